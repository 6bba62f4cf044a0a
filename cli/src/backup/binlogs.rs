//! Kept binary logs: their files in order, and the transactions in each.
//!
//! Only the headers of events are read, and GTIDs. `mariadb-binlog` reads the rest, and verifies it.

use super::files;
use super::gtid::{Gtid, State};
use crate::Result;
use std::fs::File;
use std::io::{BufReader, ErrorKind, Read};
use std::path::{Path, PathBuf};

const MAGIC: [u8; 4] = [0xfe, b'b', b'i', b'n'];
const HEADER_BYTES: usize = 19;
/// A GTID event after its header: sequence, domain, flags.
const GTID_BYTES: usize = 13;
const BUFFER_BYTES: usize = 256 << 10;
/// Longer lists of GTIDs do not exist.
const LIST_BYTES_MAX: usize = 64 << 20;
/// Statements that end a transaction are shorter.
const LAST_BYTES_MAX: usize = 4096;
/// The front of a statement's body; the lengths of a database's name and of variables are in it.
const STATEMENT_BYTES: usize = 13;

const QUERY: u8 = 2;
const STOP: u8 = 3;
const ROTATE: u8 = 4;
const FORMAT_DESCRIPTION: u8 = 15;
const XID: u8 = 16;
const XA_PREPARE: u8 = 38;
const CHECKPOINT: u8 = 161;
const GTID: u8 = 162;
const GTID_LIST: u8 = 163;
const START_ENCRYPTION: u8 = 164;
const QUERY_COMPRESSED: u8 = 165;
const STANDALONE: u8 = 1;

/// A transaction, or a statement of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transaction {
    pub gtid: Gtid,
    /// Seconds since 1970 by the clock of the server that committed it.
    pub time: u32,
    pub start: u64,
    pub end: u64,
}

/// The items of a file of the binary log, in order.
#[derive(Clone, Debug)]
pub enum Item {
    /// All that was committed before this file.
    Before(State),
    Transaction(Transaction),
}

/// The files of one binary log from one on.
pub struct Chain {
    pub files: Vec<PathBuf>,
}

impl Chain {
    /// The files in `dir` from `first` on, none of which may be missing.
    pub fn find(dir: &Path, first: &str) -> Result<Chain> {
        let (base, number) = first.rsplit_once('.').ok_or_else(|| {
            format!("the backup names no file of a binary log ('{first}'): its server had none")
        })?;
        let number: u64 = number.parse().map_err(|_| format!("'{first}' is no binary log"))?;
        let of_base = |path: &PathBuf| {
            let (name, end) = path.file_name()?.to_str()?.rsplit_once('.')?;
            let is_number = !end.is_empty() && end.bytes().all(|byte| byte.is_ascii_digit());
            let found: u64 = (is_number && name == base).then(|| end.parse().ok())??;
            (found >= number).then(|| (found, path.clone()))
        };
        let mut found: Vec<_> = files::list(dir)?.iter().filter_map(of_base).collect();
        found.sort();
        if found.first().is_none_or(|(n, _)| *n != number) {
            return Err(format!(
                "{} does not have {first}, at which the backup stands",
                dir.display()
            ));
        }
        for (wanted, (is, _)) in (number..).zip(&found) {
            if wanted != *is {
                return Err(format!(
                    "{} has {base}.{is:06}, but not {base}.{wanted:06}",
                    dir.display()
                ));
            }
        }
        Ok(Chain { files: found.into_iter().map(|(_, path)| path).collect() })
    }

    /// The name of a file, as the server has it.
    pub fn name(&self, file: usize) -> String {
        self.files[file].file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// Reads a file to its end, or until `see` says that it has seen enough (false).
    pub fn read(&self, file: usize, see: &mut dyn FnMut(Item) -> Result<bool>) -> Result<()> {
        let path = &self.files[file];
        let mut reader = Reader::open(path)?;
        while let Some(item) = reader.next()? {
            if !see(item)? {
                return Ok(());
            }
        }
        if !reader.is_cut || file + 1 == self.files.len() {
            return Ok(());
        }
        Err(reader.fault("ends in the middle of an event"))
    }
}

/// An event's header.
struct Event {
    time: u32,
    kind: u8,
    server: u32,
    bytes: u32,
}

/// The group of events that is being read.
struct Group {
    transaction: Transaction,
    is_standalone: bool,
    /// Is the event that was read last one that ends a group?
    is_whole: bool,
}

struct Reader<'a> {
    path: &'a Path,
    file: BufReader<File>,
    at: u64,
    checksum_bytes: usize,
    group: Option<Group>,
    /// The file ends in the middle of an event.
    is_cut: bool,
    ended: bool,
}

impl Reader<'_> {
    fn open(path: &Path) -> Result<Reader<'_>> {
        let failed = |e| format!("cannot read {}: {e}", path.display());
        let mut file = BufReader::with_capacity(BUFFER_BYTES, File::open(path).map_err(failed)?);
        let mut magic = [0; 4];
        file.read_exact(&mut magic).map_err(failed)?;
        if magic != MAGIC {
            return Err(format!(
                "{} is no binary log that can be read: is it encrypted?",
                path.display()
            ));
        }
        let at = magic.len() as u64;
        Ok(Reader { path, file, at, checksum_bytes: 0, group: None, is_cut: false, ended: false })
    }

    fn fault(&self, what: &str) -> String {
        format!("the binary log {} is damaged: it {what} at {}", self.path.display(), self.at)
    }

    fn next(&mut self) -> Result<Option<Item>> {
        while !self.ended {
            let Some(event) = self.event()? else {
                self.ended = true;
                return Ok(self.end_group().map(Item::Transaction));
            };
            let (body, ended) = (event.bytes as usize - HEADER_BYTES, self.begin(&event));
            let item = self.look(&event, body)?;
            if self.is_cut {
                (self.ended, self.group) = (true, None);
                return Ok(ended.map(Item::Transaction));
            }
            self.at += u64::from(event.bytes);
            if let Some(group) = &mut self.group {
                group.transaction.end = self.at;
            }
            if let Some(item) = ended.map(Item::Transaction).or(item) {
                return Ok(Some(item));
            }
        }
        Ok(None)
    }

    /// The transaction that ends where `event` begins, if this begins something else.
    fn begin(&mut self, event: &Event) -> Option<Transaction> {
        let others = [STOP, ROTATE, FORMAT_DESCRIPTION, CHECKPOINT, GTID, GTID_LIST];
        match others.contains(&event.kind) {
            true => self.end_group(),
            false => None,
        }
    }

    /// One that is not whole never was: the server has lost its end.
    fn end_group(&mut self) -> Option<Transaction> {
        self.group.take().filter(|group| group.is_whole).map(|group| group.transaction)
    }

    fn event(&mut self) -> Result<Option<Event>> {
        let mut head = [0; HEADER_BYTES];
        if !self.fill(&mut head)? {
            return Ok(None);
        }
        let event = Event {
            time: u32_at(&head, 0),
            kind: head[4],
            server: u32_at(&head, 5),
            bytes: u32_at(&head, 9),
        };
        match event.bytes as usize >= HEADER_BYTES + self.checksum_bytes {
            true => Ok(Some(event)),
            false => Err(self.fault("has an event of no length")),
        }
    }

    /// Reads what is needed of the event's body, and goes to its end.
    fn look(&mut self, event: &Event, body: usize) -> Result<Option<Item>> {
        match event.kind {
            START_ENCRYPTION => Err(format!(
                "{} is encrypted: keep binary logs for a restore in plain, for example by \
                 mariadb-binlog --read-from-remote-server --raw",
                self.path.display()
            )),
            FORMAT_DESCRIPTION => {
                let bytes = self.body(body)?;
                // One byte says how events are checked; a checksum follows it.
                self.checksum_bytes = match bytes.len().checked_sub(5).map(|at| bytes[at]) {
                    Some(1) => 4,
                    _ => 0,
                };
                Ok(None)
            }
            GTID_LIST => {
                let bytes = self.body(body)?;
                match self.is_cut {
                    true => Ok(None),
                    false => self.list(&bytes).map(Some),
                }
            }
            GTID => self.gtid(event, body).map(|()| None),
            QUERY => {
                let is_last = match body <= LAST_BYTES_MAX {
                    true => is_last(&self.body(body)?, self.checksum_bytes),
                    false => self.skip(body).map(|()| false)?,
                };
                self.inner(is_last, true);
                Ok(None)
            }
            kind => {
                self.skip(body)?;
                self.inner(kind == XID || kind == XA_PREPARE, kind == QUERY_COMPRESSED);
                Ok(None)
            }
        }
    }

    fn inner(&mut self, ends: bool, ends_alone: bool) {
        if let Some(group) = &mut self.group {
            group.is_whole = ends || (group.is_standalone && ends_alone);
        }
    }

    fn gtid(&mut self, event: &Event, body: usize) -> Result<()> {
        if body < GTID_BYTES {
            return Err(self.fault("has a GTID that is too short"));
        }
        let bytes = self.body(body)?;
        if self.is_cut {
            return Ok(());
        }
        let sequence = u64::from(u32_at(&bytes, 0)) | u64::from(u32_at(&bytes, 4)) << 32;
        let gtid = Gtid { domain: u32_at(&bytes, 8), server: event.server, sequence };
        let transaction = Transaction { gtid, time: event.time, start: self.at, end: self.at };
        let is_standalone = bytes[12] & STANDALONE != 0;
        self.group = Some(Group { transaction, is_standalone, is_whole: false });
        Ok(())
    }

    fn list(&self, bytes: &[u8]) -> Result<Item> {
        let short = || self.fault("has a list of GTIDs that is too short");
        let count = bytes.first_chunk::<4>().map(|four| u32::from_le_bytes(*four) & 0x0fff_ffff);
        let count = count.ok_or_else(short)? as usize;
        let entries = bytes.get(4..4 + count * 16).ok_or_else(short)?;
        let gtid = |entry: &[u8]| Gtid {
            domain: u32_at(entry, 0),
            server: u32_at(entry, 4),
            sequence: u64::from(u32_at(entry, 8)) | u64::from(u32_at(entry, 12)) << 32,
        };
        Ok(Item::Before(State::of(entries.chunks_exact(16).map(gtid))))
    }

    /// So many bytes; fewer if the file ends.
    fn body(&mut self, bytes: usize) -> Result<Vec<u8>> {
        if bytes > LIST_BYTES_MAX {
            return Err(self.fault("has an event that is too long"));
        }
        let mut body = vec![0; bytes];
        match self.fill(&mut body)? {
            true => Ok(body),
            false => Ok(Vec::new()),
        }
    }

    /// False if the file ends before.
    fn fill(&mut self, bytes: &mut [u8]) -> Result<bool> {
        let mut have = 0;
        while have < bytes.len() {
            match self.file.read(&mut bytes[have..]) {
                Ok(0) => {
                    self.is_cut |= have > 0 || bytes.len() != HEADER_BYTES;
                    return Ok(false);
                }
                Ok(n) => have += n,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(format!("cannot read {}: {e}", self.path.display())),
            }
        }
        Ok(true)
    }

    /// The last byte is read, which finds the end of the file.
    fn skip(&mut self, bytes: usize) -> Result<()> {
        let Some(before) = bytes.checked_sub(1) else { return Ok(()) };
        let gone = self.file.seek_relative(before as i64);
        gone.map_err(|e| format!("cannot read {}: {e}", self.path.display()))?;
        self.fill(&mut [0]).map(|_| ())
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// Does the statement in this body end a transaction?
fn is_last(body: &[u8], checksum_bytes: usize) -> bool {
    let text = || {
        let variables = usize::from(u16::from_le_bytes([*body.get(11)?, *body.get(12)?]));
        let from = STATEMENT_BYTES + variables + usize::from(body[8]) + 1;
        body.get(from..body.len().checked_sub(checksum_bytes)?)
    };
    text().is_some_and(|text| {
        text == b"COMMIT"
            || text == b"ROLLBACK"
            || text.starts_with(b"XA COMMIT ")
            || text.starts_with(b"XA ROLLBACK ")
    })
}
