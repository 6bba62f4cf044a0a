//! The room's log records and its part of the checkpoint's note.

use super::census::{put_seen, read_seen, Census};
use super::events::Seen;
use crate::base::codec::{put_bytes, put_u64, put_u8, put_varint, Reader};
use crate::base::{formats, Lsn, Result};
use crate::wal::RecordRef;

/// Log record: bytes of a binlog file.
pub const RECORD_BINLOG: u8 = 24;
/// Log record: a change of the state.
pub const RECORD_BINLOG_STATE: u8 = 25;

const NOTE_FORMAT: u8 = formats::CURRENT.binlog_state;
/// Without `State::is_relaxed`.
const NOTE_FORMAT_2: u8 = 2;
const GROUP_END: u8 = 1;
/// The end of a group for sure.
const CERTAIN: u8 = 2;
/// The log was written at this group's end, not flushed: some such groups may get lost.
const RELAXED: u8 = 4;

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
    /// It is completed, and cut after the last group end.
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
    /// The number of the last state record.
    pub sequence: u64,
    pub next_id: u64,
    pub begin_lsn: Lsn,
    /// Those not known to be synced, and the current one; in order of their ids.
    pub files: Vec<FileInfo>,
    pub census: Census,
    /// The last group did not wait for the log: after a loss of power the log may lack more than
    /// one that the file has.
    pub is_relaxed: bool,
}

/// A state record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StateChange {
    /// Authority begins at `end` of this file.
    Begin(FileInfo, Census),
    /// The server goes on in this file.
    File(FileInfo, Census),
    /// Authority ends. `settled`: every file is synced.
    End {
        settled: bool,
    },
    /// A large group, from `from` on, is not in the log: the file is synced up to here. `seen`
    /// is what a restart must know of it, if its end is certain.
    True {
        id: u64,
        from: u64,
        end: u64,
        seen: Option<Vec<Seen>>,
    },
    Identity(u64),
    Synced(Synced),
}

/// Binlog bytes in records below `before` are synced in their files. A restart completes these
/// from here on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Synced {
    pub before: Lsn,
    /// The newest of these files, and the position up to which it was synced.
    pub id: u64,
    pub pos: u64,
}

pub fn bytes_head(id: u64, pos: u64, end: Option<GroupEnd>, is_relaxed: bool) -> Vec<u8> {
    let mut out = Vec::with_capacity(24);
    let flags = match end {
        None => 0,
        Some(GroupEnd::Maybe) => GROUP_END,
        Some(GroupEnd::Certain) => GROUP_END | CERTAIN,
    };
    put_u8(&mut out, if end.is_some() && is_relaxed { flags | RELAXED } else { flags });
    put_varint(&mut out, id);
    put_varint(&mut out, pos);
    out
}

/// Ends here a group?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupEnd {
    /// The buffer was full: maybe more of the group follows.
    Maybe,
    Certain,
}

pub struct BytesRecord<'a> {
    pub id: u64,
    pub pos: u64,
    pub group_end: Option<GroupEnd>,
    pub is_relaxed: bool,
    pub bytes: &'a [u8],
}

pub fn decode_bytes(payload: &[u8]) -> Result<BytesRecord<'_>> {
    let mut r = Reader::new(payload, "binlog record");
    let flags = r.u8()?;
    let is_relaxed = flags & RELAXED != 0;
    let group_end = match flags & !RELAXED {
        0 if !is_relaxed => None,
        GROUP_END => Some(GroupEnd::Maybe),
        3 => Some(GroupEnd::Certain),
        _ => return Err(r.fail("flags")),
    };
    let (id, pos) = (r.varint()?, r.varint()?);
    let bytes = r.rest();
    if pos.checked_add(bytes.len() as u64).is_none() {
        return Err(r.fail("position"));
    }
    Ok(BytesRecord { id, pos, group_end, is_relaxed, bytes })
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

pub fn encode_change(sequence: u64, change: &StateChange) -> Vec<u8> {
    let mut out = Vec::with_capacity(64);
    put_varint(&mut out, sequence);
    match change {
        StateChange::Begin(file, census) => {
            put_u8(&mut out, 1);
            put_file(&mut out, file);
            census.put(&mut out);
        }
        StateChange::File(file, census) => {
            put_u8(&mut out, 2);
            put_file(&mut out, file);
            census.put(&mut out);
        }
        StateChange::End { settled } => {
            put_u8(&mut out, 3);
            put_u8(&mut out, u8::from(*settled));
        }
        StateChange::True { id, from, end, seen } => {
            put_u8(&mut out, 4);
            for v in [*id, *from, *end] {
                put_varint(&mut out, v);
            }
            put_u8(&mut out, u8::from(seen.is_some()));
            put_seen(&mut out, seen.as_deref().unwrap_or_default());
        }
        StateChange::Identity(identity) => {
            put_u8(&mut out, 5);
            put_u64(&mut out, *identity);
        }
        StateChange::Synced(Synced { before, id, pos }) => {
            put_u8(&mut out, 6);
            for v in [before.0, *id, *pos] {
                put_varint(&mut out, v);
            }
        }
    }
    out
}

pub fn decode_change(payload: &[u8]) -> Result<(u64, StateChange)> {
    let mut r = Reader::new(payload, "binlog state record");
    let sequence = r.varint()?;
    let change = match r.u8()? {
        1 => StateChange::Begin(read_file(&mut r)?, Census::read(&mut r)?),
        2 => StateChange::File(read_file(&mut r)?, Census::read(&mut r)?),
        3 => StateChange::End { settled: r.u8()? != 0 },
        4 => {
            let (id, from, end) = (r.varint()?, r.varint()?, r.varint()?);
            let is_certain = r.u8()? != 0;
            let seen = read_seen(&mut r)?;
            StateChange::True { id, from, end, seen: is_certain.then_some(seen) }
        }
        5 => StateChange::Identity(r.u64()?),
        6 => StateChange::Synced(Synced {
            before: Lsn(r.varint()?),
            id: r.varint()?,
            pos: r.varint()?,
        }),
        _ => return Err(r.fail("unknown change")),
    };
    r.finish()?;
    Ok((sequence, change))
}

/// A record of this room in words.
pub fn describe_record(record: RecordRef<'_>) -> Result<String> {
    if record.kind == RECORD_BINLOG {
        let r = decode_bytes(record.payload)?;
        let end = match r.group_end {
            None => "",
            Some(GroupEnd::Maybe) => ", maybe the end of a group",
            Some(GroupEnd::Certain) => ", the end of a group",
        };
        return Ok(format!("file {} at {}: {} bytes{end}", r.id, r.pos, r.bytes.len()));
    }
    let (sequence, change) = decode_change(record.payload)?;
    let text = match change {
        StateChange::Begin(file, _) => format!("begins with {} at {}", file.path, file.end),
        StateChange::File(file, _) => format!("goes on with {} at {}", file.path, file.end),
        StateChange::End { settled: true } => "ends".to_owned(),
        StateChange::End { settled: false } => "ends with a fault".to_owned(),
        StateChange::True { id, from, end, .. } => {
            format!("file {id} is synced from {from} to {end}")
        }
        StateChange::Identity(identity) => format!("identity {identity:016x}"),
        StateChange::Synced(Synced { before, id, pos }) => {
            format!("all before LSN {} is synced, up to {pos} of file {id}", before.0)
        }
    };
    Ok(format!("{sequence}: {text}"))
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
        self.census.put(&mut out);
        put_u8(&mut out, u8::from(self.is_relaxed));
        out
    }

    /// No bytes: the state of a new engine.
    pub fn decode(bytes: &[u8]) -> Result<State> {
        if bytes.is_empty() {
            return Ok(State::default());
        }
        let mut r = Reader::new(bytes, "binlog state");
        let format = r.u8()?;
        if format != NOTE_FORMAT && format != NOTE_FORMAT_2 {
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
        let census = Census::read(&mut r)?;
        let is_relaxed = format == NOTE_FORMAT && r.u8()? != 0;
        r.finish()?;
        Ok(State { identity, authority, sequence, next_id, begin_lsn, files, census, is_relaxed })
    }
}
