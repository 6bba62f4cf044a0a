//! The version header that every entry of every tree carries in front of its payload.
//!
//! ```text
//! byte 0      flags
//! byte 1..7   TxnId of the writer, 48 bits little-endian
//! byte 7..15  LSN of the log record that wrote this version (and holds the previous one)
//! byte 15..   payload (empty in a delete mark)
//! ```
//! The LSN is not known before its record is reserved in the log: `btree` stamps it while it
//! applies a change, at [`LSN_RANGE`].

use super::error::{Error, Result};
use super::ids::{Lsn, TxnId};
use std::ops::Range;

pub const ENTRY_HEADER_BYTES: usize = 15;
/// Where `btree` stamps the LSN of the record that carries a versioned entry.
pub const LSN_RANGE: Range<usize> = 7..15;
pub const TXN_ID_MAX: TxnId = TxnId((1 << 48) - 1);

/// The entry is deleted; it stays until no snapshot can see what was there before.
pub const DELETED: u8 = 1;
/// There is no previous version: a reader that does not see this one sees nothing.
pub const FIRST: u8 = 2;
const KNOWN_FLAGS: u8 = DELETED | FIRST;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryHeader {
    pub flags: u8,
    pub txn: TxnId,
    pub lsn: Lsn,
}

impl EntryHeader {
    pub fn is_deleted(&self) -> bool {
        self.flags & DELETED != 0
    }

    pub fn is_first(&self) -> bool {
        self.flags & FIRST != 0
    }

    pub fn put(&self, out: &mut Vec<u8>) {
        assert!(self.txn <= TXN_ID_MAX);
        out.push(self.flags);
        out.extend_from_slice(&self.txn.0.to_le_bytes()[..6]);
        out.extend_from_slice(&self.lsn.0.to_le_bytes());
    }

    /// Splits an entry into header and payload.
    pub fn split(entry: &[u8]) -> Result<(EntryHeader, &[u8])> {
        let Some((head, payload)) = entry.split_at_checked(ENTRY_HEADER_BYTES) else {
            return Err(Error::corrupt("entry shorter than its header", "entry"));
        };
        let flags = head[0];
        if flags & !KNOWN_FLAGS != 0 {
            return Err(Error::corrupt(format!("unknown entry flags {flags:#x}"), "entry"));
        }
        let txn = u64::from_le_bytes([head[1], head[2], head[3], head[4], head[5], head[6], 0, 0]);
        let lsn = u64::from_le_bytes([
            head[7], head[8], head[9], head[10], head[11], head[12], head[13], head[14],
        ]);
        Ok((EntryHeader { flags, txn: TxnId(txn), lsn: Lsn(lsn) }, payload))
    }
}

/// The payload of a new entry, in two parts: the form that the owner of the tree gives it, and the bytes
/// that it was given. They become one where the change of the page is encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Payload<'a>(pub &'a [u8], pub &'a [u8]);

impl<'a> From<&'a [u8]> for Payload<'a> {
    fn from(bytes: &'a [u8]) -> Payload<'a> {
        Payload(&[], bytes)
    }
}

impl Payload<'_> {
    pub fn len(&self) -> usize {
        self.0.len() + self.1.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.0);
        out.extend_from_slice(self.1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_round_trip() {
        let header = EntryHeader { flags: DELETED, txn: TXN_ID_MAX, lsn: Lsn(u64::MAX - 5) };
        let mut bytes = Vec::new();
        header.put(&mut bytes);
        assert_eq!(bytes.len(), ENTRY_HEADER_BYTES);
        assert_eq!(bytes[LSN_RANGE], (u64::MAX - 5).to_le_bytes());
        bytes.extend_from_slice(b"row");
        assert_eq!(EntryHeader::split(&bytes).unwrap(), (header, &b"row"[..]));
        assert!(EntryHeader::split(&bytes[..14]).is_err());
    }
}
