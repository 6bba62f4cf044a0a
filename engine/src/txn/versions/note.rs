//! The part of a tree record that belongs to transactions: the writer and the key of the version,
//! and the entry before it.
//!
//! ```text
//! u8      form: 1 = new version, 2 = delete mark, 3 = load of the tree
//! varint  TxnId of the writer
//! varint  LSN of the writer's previous record, 0 = this is its first
//! bytes   key (varint length, then the key)
//! rest    the previous entry, header included; empty = there was none
//! ```
//! A load has no key and no previous entry: all entries of the tree that name this record are its versions, and
//! they are the first ones of their keys (see `load`).
//!
//! Records of changes that are nobody's version (splits, reverts, purges) carry no note.

use crate::base::codec::{put_bytes, put_varint, Reader};
use crate::base::{Lsn, Result, TxnId};

const VERSION: u8 = 1;
const DELETE_MARK: u8 = 2;
const LOAD: u8 = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Note<'a> {
    pub txn: TxnId,
    pub previous_lsn: Lsn,
    pub key: &'a [u8],
    /// The entry that this version replaced; `None` when the key was not there.
    pub replaced: Option<&'a [u8]>,
    pub deletes: bool,
    pub loads: bool,
}

impl<'a> Note<'a> {
    pub fn encode(&self) -> Vec<u8> {
        let replaced = self.replaced.unwrap_or(&[]);
        let mut out = Vec::with_capacity(24 + self.key.len() + replaced.len());
        out.push(match (self.deletes, self.loads) {
            (false, false) => VERSION,
            (true, _) => DELETE_MARK,
            (false, true) => LOAD,
        });
        put_varint(&mut out, self.txn.0);
        put_varint(&mut out, self.previous_lsn.0);
        put_bytes(&mut out, self.key);
        out.extend_from_slice(replaced);
        out
    }

    /// `None` for a record that is nobody's version.
    pub fn decode(bytes: &'a [u8]) -> Result<Option<Note<'a>>> {
        if bytes.is_empty() {
            return Ok(None);
        }
        let mut r = Reader::new(bytes, "version note");
        let form = r.u8()?;
        if !matches!(form, VERSION | DELETE_MARK | LOAD) {
            return Err(r.fail("unknown form"));
        }
        let txn = TxnId(r.varint()?);
        let previous_lsn = Lsn(r.varint()?);
        let key = r.bytes()?;
        let replaced = (!r.is_empty()).then_some(r.rest());
        let (deletes, loads) = (form == DELETE_MARK, form == LOAD);
        if loads && (!key.is_empty() || replaced.is_some()) {
            return Err(r.fail("load of one entry"));
        }
        Ok(Some(Note { txn, previous_lsn, key, replaced, deletes, loads }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trip() {
        for replaced in [None, Some(&b"old entry"[..])] {
            let note = Note {
                txn: TxnId(1 << 40),
                previous_lsn: Lsn(99),
                key: b"k",
                replaced,
                deletes: replaced.is_some(),
                loads: false,
            };
            assert_eq!(Note::decode(&note.encode()).unwrap(), Some(note));
            let load = Note { key: b"", replaced: None, deletes: false, loads: true, ..note };
            assert_eq!(Note::decode(&load.encode()).unwrap(), Some(load));
            assert!(Note::decode(&Note { key: b"k", ..load }.encode()).is_err());
        }
        assert_eq!(Note::decode(&[]).unwrap(), None);
        assert!(Note::decode(&[9, 1, 1, 1]).is_err());
        assert!(Note::decode(&[1, 1]).is_err());
    }
}
