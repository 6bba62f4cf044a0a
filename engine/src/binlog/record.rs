//! The room's log records and its part of the checkpoint's note.

use crate::base::codec::{put_bytes, put_u64, put_u8, put_varint, Reader};
use crate::base::{Lsn, Result};

/// Log record: bytes of a binlog file.
pub const RECORD_BINLOG: u8 = 24;
/// Log record: a change of the state.
pub const RECORD_BINLOG_STATE: u8 = 25;

const NOTE_FORMAT: u8 = 1;
const GROUP_END: u8 = 1;

/// A binlog file as the log knows it. The id is never used again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileInfo {
    pub id: u64,
    /// As the server names it in the index.
    pub path: String,
    pub generation: u64,
    /// The last group end that is in the log, or where it began.
    pub end: u64,
}

/// What happens with the file after a crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Authority {
    /// It is left alone.
    #[default]
    Off,
    /// It is completed, and cut behind the last group end.
    On,
    /// It is completed.
    Ending,
}

impl Authority {
    fn decode(r: &mut Reader<'_>) -> Result<Authority> {
        match r.u8()? {
            0 => Ok(Authority::Off),
            1 => Ok(Authority::On),
            2 => Ok(Authority::Ending),
            _ => Err(r.fail("authority")),
        }
    }
}

/// Everything that a checkpoint carries.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct State {
    /// Drawn once; stands in the file beside the binlog too. 0: not yet.
    pub identity: u64,
    pub authority: Authority,
    /// Of the last state record.
    pub sequence: u64,
    pub next_id: u64,
    pub begin_lsn: Lsn,
    /// Those not known to be synced, and the current one; in order of their ids.
    pub files: Vec<FileInfo>,
}

/// A state record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Authority begins at `end` of this file.
    Begin(FileInfo),
    /// The server goes on in this file.
    File(FileInfo),
    /// Authority ends. `settled`: every file is synced.
    End {
        settled: bool,
    },
    /// A large group is not in the log: the file is synced up to here.
    True {
        id: u64,
        end: u64,
    },
    Identity(u64),
}

pub fn bytes_head(id: u64, pos: u64, is_group_end: bool) -> Vec<u8> {
    let mut out = Vec::with_capacity(24);
    put_u8(&mut out, if is_group_end { GROUP_END } else { 0 });
    put_varint(&mut out, id);
    put_varint(&mut out, pos);
    out
}

pub struct BytesRecord<'a> {
    pub id: u64,
    pub pos: u64,
    pub is_group_end: bool,
    pub bytes: &'a [u8],
}

pub fn decode_bytes(payload: &[u8]) -> Result<BytesRecord<'_>> {
    let mut r = Reader::new(payload, "binlog record");
    let flags = r.u8()?;
    if flags & !GROUP_END != 0 {
        return Err(r.fail("flags"));
    }
    let (id, pos) = (r.varint()?, r.varint()?);
    let bytes = r.rest();
    if pos.checked_add(bytes.len() as u64).is_none() {
        return Err(r.fail("position"));
    }
    Ok(BytesRecord { id, pos, is_group_end: flags & GROUP_END != 0, bytes })
}

fn put_file(out: &mut Vec<u8>, file: &FileInfo) {
    put_varint(out, file.id);
    put_bytes(out, file.path.as_bytes());
    put_u64(out, file.generation);
    put_varint(out, file.end);
}

fn read_file(r: &mut Reader<'_>) -> Result<FileInfo> {
    let id = r.varint()?;
    let path = std::str::from_utf8(r.bytes()?).map_err(|_| r.fail("name"))?.to_owned();
    Ok(FileInfo { id, path, generation: r.u64()?, end: r.varint()? })
}

pub fn encode_change(sequence: u64, change: &Change) -> Vec<u8> {
    let mut out = Vec::with_capacity(64);
    put_varint(&mut out, sequence);
    match change {
        Change::Begin(file) => {
            put_u8(&mut out, 1);
            put_file(&mut out, file);
        }
        Change::File(file) => {
            put_u8(&mut out, 2);
            put_file(&mut out, file);
        }
        Change::End { settled } => {
            put_u8(&mut out, 3);
            put_u8(&mut out, u8::from(*settled));
        }
        Change::True { id, end } => {
            put_u8(&mut out, 4);
            put_varint(&mut out, *id);
            put_varint(&mut out, *end);
        }
        Change::Identity(identity) => {
            put_u8(&mut out, 5);
            put_u64(&mut out, *identity);
        }
    }
    out
}

pub fn decode_change(payload: &[u8]) -> Result<(u64, Change)> {
    let mut r = Reader::new(payload, "binlog state record");
    let sequence = r.varint()?;
    let change = match r.u8()? {
        1 => Change::Begin(read_file(&mut r)?),
        2 => Change::File(read_file(&mut r)?),
        3 => Change::End { settled: r.u8()? != 0 },
        4 => Change::True { id: r.varint()?, end: r.varint()? },
        5 => Change::Identity(r.u64()?),
        _ => return Err(r.fail("unknown change")),
    };
    r.finish()?;
    Ok((sequence, change))
}

impl State {
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(64);
        put_u8(&mut out, NOTE_FORMAT);
        put_u64(&mut out, self.identity);
        put_u8(&mut out, self.authority as u8);
        for v in [self.sequence, self.next_id, self.begin_lsn.0, self.files.len() as u64] {
            put_varint(&mut out, v);
        }
        self.files.iter().for_each(|file| put_file(&mut out, file));
        out
    }

    /// No bytes: the state of a new engine.
    pub fn decode(bytes: &[u8]) -> Result<State> {
        if bytes.is_empty() {
            return Ok(State::default());
        }
        let mut r = Reader::new(bytes, "binlog state");
        if r.u8()? != NOTE_FORMAT {
            return Err(r.fail("unknown format"));
        }
        let identity = r.u64()?;
        let authority = Authority::decode(&mut r)?;
        let (sequence, next_id) = (r.varint()?, r.varint()?);
        let begin_lsn = Lsn(r.varint()?);
        let mut files = Vec::new();
        for _ in 0..r.varint()? {
            files.push(read_file(&mut r)?);
        }
        r.finish()?;
        Ok(State { identity, authority, sequence, next_id, begin_lsn, files })
    }
}
