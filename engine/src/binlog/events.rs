//! Follows the events in the bytes of a binlog: their lengths and types, GTIDs and XIDs.
//!
//! The length stands at offset 9 of an event's header and is readable in an encrypted binlog too;
//! there nothing else is.

use super::gtid::Gtid;
use crate::base::checksum::checksum;
use crate::base::Result;
use crate::os::File;

/// The magic number in front of the first event.
pub const MAGIC_BYTES: u64 = 4;
/// The front of an event's header: timestamp, type, server id, length.
const HEAD_BYTES: usize = 13;
pub const EVENT_BYTES_MIN: u32 = 19;
/// Where the flags of the first event stand in the file. The server clears the first of them when
/// it closes the file.
const FLAGS_AT: usize = 4 + 17;
const IN_USE: u8 = 1;
/// Longer first events do not exist.
const FIRST_EVENT_BYTES_MAX: u32 = 4096;

/// The whole header of an event.
const HEADER_BYTES: usize = 19;
/// The front of a GTID event: header, sequence number, domain.
const GTID_BYTES: usize = HEADER_BYTES + 12;
const XID_BYTES: usize = HEADER_BYTES + 8;
/// A longer list of GTIDs is not read.
const GTID_LIST_BYTES_MAX: u32 = 16 << 20;

pub const STOP: u8 = 3;
pub const ROTATE: u8 = 4;
const FORMAT_DESCRIPTION: u8 = 15;
pub const XID: u8 = 16;
const XA_PREPARE: u8 = 38;
const BINLOG_CHECKPOINT: u8 = 161;
pub const GTID: u8 = 162;
const GTID_LIST: u8 = 163;
const START_ENCRYPTION: u8 = 164;
/// Events that something else must follow in their group: variables, parts of loaded files, table
/// maps, rows of all versions, annotations.
const INNER: [u8; 20] =
    [5, 9, 13, 14, 17, 19, 23, 24, 25, 30, 31, 32, 160, GTID, 166, 167, 168, 169, 170, 171];

/// An event that a restart must know of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    Gtid(Gtid),
    Xid(u64),
}

/// Knows where the next event begins.
#[derive(Clone)]
pub struct Walker {
    next: u64,
    /// The first bytes of the event at `next`: so many, of so many that are wanted.
    head: [u8; GTID_BYTES],
    have: usize,
    want: usize,
    last_type: u8,
    /// Since [`Walker::take_seen`].
    seen: Vec<Seen>,
    /// Transactions (GTID events) seen since [`Walker::take_transactions`].
    transactions: u64,
    pub is_encrypted: bool,
}

pub fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

pub fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

impl Walker {
    /// An event begins at `at`.
    pub fn new(at: u64) -> Walker {
        Walker {
            next: at,
            head: [0; GTID_BYTES],
            have: 0,
            want: HEAD_BYTES,
            last_type: 0,
            seen: Vec::new(),
            transactions: 0,
            is_encrypted: false,
        }
    }

    /// Takes the bytes at `pos`, which follow those of the last call. `false`: no events.
    pub fn pass(&mut self, pos: u64, bytes: &[u8]) -> bool {
        let end = pos + bytes.len() as u64;
        if self.next + (self.have as u64) < pos {
            return false;
        }
        while self.next + (self.have as u64) < end {
            let from = (self.next + self.have as u64 - pos) as usize;
            let n = (self.want - self.have).min(bytes.len() - from);
            self.head[self.have..self.have + n].copy_from_slice(&bytes[from..from + n]);
            self.have += n;
            if self.have < self.want {
                return true;
            }
            let length = u32_at(&self.head, 9);
            if length < EVENT_BYTES_MIN {
                return false;
            }
            let wanted = self.wanted_bytes().min(length as usize);
            if self.have < wanted {
                self.want = wanted;
                continue;
            }
            self.look();
            (self.have, self.want) = (0, HEAD_BYTES);
            self.next += u64::from(length);
        }
        true
    }

    /// Where the event that has been seen last ends, as its header says.
    pub fn event_end(&self) -> u64 {
        self.next
    }

    /// How much of the event has to be looked at.
    fn wanted_bytes(&self) -> usize {
        match self.head[4] {
            _ if self.is_encrypted => HEAD_BYTES,
            GTID => GTID_BYTES,
            XID => XID_BYTES,
            _ => HEAD_BYTES,
        }
    }

    fn look(&mut self) {
        let head = &self.head;
        self.last_type = head[4];
        match head[4] {
            _ if self.is_encrypted => {}
            GTID => {
                self.transactions += 1;
                let (sequence, domain) = (u64_at(head, 19), u32_at(head, 27));
                let gtid = Gtid { domain, server: u32_at(head, 5), sequence };
                // Shorter ones do not exist.
                if self.have == GTID_BYTES {
                    self.seen.push(Seen::Gtid(gtid));
                }
            }
            XID if self.have == XID_BYTES => self.seen.push(Seen::Xid(u64_at(head, 19))),
            _ => {}
        }
    }

    /// What was seen of groups that have ended.
    pub fn take_seen(&mut self) -> Vec<Seen> {
        std::mem::take(&mut self.seen)
    }

    /// Is the last event one that nothing of its group can follow?
    pub fn ends_group(&self) -> bool {
        !self.is_encrypted && matches!(self.last_type, XID | XA_PREPARE)
    }

    /// Does an event end at `pos`?
    pub fn is_boundary(&self, pos: u64) -> bool {
        self.have == 0 && self.next == pos
    }

    /// May the last event be the end of a group? `true` if in doubt.
    pub fn may_end_group(&self) -> bool {
        self.is_encrypted || !INNER.contains(&self.last_type)
    }

    /// The last event says that the server is shutting down.
    pub fn is_stop(&self) -> bool {
        !self.is_encrypted && self.last_type == STOP
    }

    pub fn take_transactions(&mut self) -> u64 {
        std::mem::take(&mut self.transactions)
    }
}

/// A number that tells files of one name apart: of the first event, without the flag that says
/// that the file is in use. With it the length that was read.
pub fn generation(file: &dyn File) -> Result<u64> {
    let mut head = [0; MAGIC_BYTES as usize + HEAD_BYTES];
    file.read_at(&mut head, 0)?;
    let length = u32::from_le_bytes([head[13], head[14], head[15], head[16]]);
    let length = length.clamp(EVENT_BYTES_MIN, FIRST_EVENT_BYTES_MAX);
    let mut bytes = vec![0; MAGIC_BYTES as usize + length as usize];
    file.read_at(&mut bytes, 0)?;
    // The checksum of the event, at its end, does not cover the flag.
    bytes[FLAGS_AT] = 0;
    let created = u32::from_le_bytes([head[4], head[5], head[6], head[7]]);
    Ok(u64::from(created) << 32 | u64::from(checksum(0, &bytes)))
}

/// Is there, among the first events of the file, the one after which events are encrypted?
pub fn is_encrypted(file: &dyn File, from: u64, end: u64) -> Result<bool> {
    let mut at = from;
    for _ in 0..2 {
        if at + HEAD_BYTES as u64 > end {
            break;
        }
        let mut head = [0; HEAD_BYTES];
        file.read_at(&mut head, at)?;
        if head[4] == START_ENCRYPTION {
            return Ok(true);
        }
        let length = u32::from_le_bytes([head[9], head[10], head[11], head[12]]);
        at += u64::from(length.max(EVENT_BYTES_MIN));
    }
    Ok(false)
}

/// Does the file hold nothing but what the server writes when it opens and closes one?
pub fn is_header_only(file: &dyn File) -> Result<bool> {
    let end = file.len()?;
    let mut at = MAGIC_BYTES;
    while at < end {
        if at + HEAD_BYTES as u64 > end {
            return Ok(false);
        }
        let mut head = [0; HEAD_BYTES];
        file.read_at(&mut head, at)?;
        let plain =
            [FORMAT_DESCRIPTION, GTID_LIST, BINLOG_CHECKPOINT, START_ENCRYPTION, STOP, ROTATE];
        let length = u32::from_le_bytes([head[9], head[10], head[11], head[12]]);
        if !plain.contains(&head[4]) || length < EVENT_BYTES_MIN {
            return Ok(false);
        }
        at += u64::from(length);
    }
    Ok(at == end)
}

/// The GTID state in the header of a file, if there is nothing but a header up to `end`.
pub fn header_gtids(file: &dyn File, end: u64) -> Result<Option<Vec<Gtid>>> {
    let mut at = MAGIC_BYTES;
    let mut found = None;
    while at + HEADER_BYTES as u64 <= end {
        let mut head = [0; HEADER_BYTES];
        file.read_at(&mut head, at)?;
        let length = u32_at(&head, 9);
        if length < EVENT_BYTES_MIN || at + u64::from(length) > end {
            return Ok(None);
        }
        match head[4] {
            FORMAT_DESCRIPTION | BINLOG_CHECKPOINT => {}
            GTID_LIST if found.is_none() && length <= GTID_LIST_BYTES_MAX => {
                let mut body = vec![0; length as usize - HEADER_BYTES];
                file.read_at(&mut body, at + HEADER_BYTES as u64)?;
                found = gtid_list(&body);
            }
            // Encrypted from here, or somebody's events.
            _ => return Ok(None),
        }
        at += u64::from(length);
    }
    Ok(found.filter(|_| at == end))
}

/// The body of the event: the count, with flags in its high bits, then the GTIDs; after them
/// maybe a checksum.
fn gtid_list(body: &[u8]) -> Option<Vec<Gtid>> {
    let (count, rest) = body.split_at_checked(4)?;
    let count = (u32_at(count, 0) & ((1 << 28) - 1)) as usize;
    let read =
        |g: &[u8]| Gtid { domain: u32_at(g, 0), server: u32_at(g, 4), sequence: u64_at(g, 8) };
    (count.checked_mul(16)? <= rest.len())
        .then(|| rest.chunks_exact(16).take(count).map(read).collect())
}

/// Does the file say that it was not closed? One without a whole header says nothing: the server
/// reports it.
pub fn is_in_use(file: &dyn File) -> Result<bool> {
    if file.len()? <= FLAGS_AT as u64 {
        return Ok(false);
    }
    let mut flags = [0];
    file.read_at(&mut flags, FLAGS_AT as u64)?;
    Ok(flags[0] & IN_USE != 0)
}

/// Says durably whether the file was closed, as the server does. The caller has made it true.
pub fn set_in_use(file: &dyn File, is_in_use: bool) -> Result<()> {
    let mut flags = [0];
    file.read_at(&mut flags, FLAGS_AT as u64)?;
    let flag = if is_in_use { IN_USE } else { 0 };
    file.write_at(&[flags[0] & !IN_USE | flag], FLAGS_AT as u64)?;
    file.sync()
}
