//! Follows the events in the bytes of a binlog: only their lengths and types.
//!
//! The length stands at offset 9 of an event's header and is readable in an encrypted binlog too;
//! there the type is not.

use crate::base::checksum::checksum;
use crate::base::Result;
use crate::os::File;

/// The magic number in front of the first event.
pub const MAGIC_BYTES: u64 = 4;
/// Of an event's header: timestamp, type, server id, length.
const HEAD_BYTES: usize = 13;
const EVENT_BYTES_MIN: u32 = 19;
/// Where the flags of the first event stand in the file. The server clears the first of them when
/// it closes the file.
const FLAGS_AT: usize = 4 + 17;
/// Longer first events do not exist.
const FIRST_EVENT_BYTES_MAX: u32 = 4096;

const STOP: u8 = 3;
const ROTATE: u8 = 4;
const FORMAT_DESCRIPTION: u8 = 15;
const BINLOG_CHECKPOINT: u8 = 161;
const GTID: u8 = 162;
const GTID_LIST: u8 = 163;
const START_ENCRYPTION: u8 = 164;
/// Events that something else must follow in their group: variables, parts of loaded files, table
/// maps, rows of all versions, annotations.
const INNER: [u8; 20] =
    [5, 9, 13, 14, 17, 19, 23, 24, 25, 30, 31, 32, 160, GTID, 166, 167, 168, 169, 170, 171];

/// Knows where the next event begins.
pub struct Walker {
    next: u64,
    head: [u8; HEAD_BYTES],
    have: usize,
    last_type: u8,
    /// Transactions (GTID events) seen since [`Walker::take_transactions`].
    transactions: u64,
    pub is_encrypted: bool,
}

impl Walker {
    /// An event begins at `at`.
    pub fn new(at: u64) -> Walker {
        Walker {
            next: at,
            head: [0; HEAD_BYTES],
            have: 0,
            last_type: 0,
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
            let n = (HEAD_BYTES - self.have).min(bytes.len() - from);
            self.head[self.have..self.have + n].copy_from_slice(&bytes[from..from + n]);
            self.have += n;
            if self.have < HEAD_BYTES {
                return true;
            }
            let length =
                u32::from_le_bytes([self.head[9], self.head[10], self.head[11], self.head[12]]);
            if length < EVENT_BYTES_MIN {
                return false;
            }
            self.have = 0;
            self.next += u64::from(length);
            self.last_type = self.head[4];
            if !self.is_encrypted && self.last_type == GTID {
                self.transactions += 1;
            }
        }
        true
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

/// Is there, among the first events of the file, the one behind which events are encrypted?
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
