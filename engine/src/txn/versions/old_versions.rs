//! Versions that outlived their log (rules M5): a system tree keyed by the LSN under which every
//! entry and every record names them, so that no pointer is ever rewritten.
//!
//! ```text
//! moved_to --> [ log ... ]      a version at or above the log's first kept byte is in the log,
//!                               one below it in the tree, or needed by nobody
//! ```
//! Invariants:
//! 1. The log below `moved_to` holds no version that is needed and not in the tree. A checkpoint
//!    notes `moved_to`; only then, the inserts being durable, may log below it go.
//! 2. A version is needed while its writer has no outcome or is not wholly reverted; while a live
//!    snapshot sees what it replaced and not it; or while it is a delete mark not purged yet.
//!    The writer's state is read before the snapshots are listed: a snapshot taken later sees
//!    every commit until then.
//! 3. Versions between two needed ones of a key are not kept. A reader whose next version is
//!    missing goes on with the next older one of that key (`Session::kept_below`); if there is none, and
//!    the newest version still stands, its snapshot sees nothing there. So a first version is kept only
//!    while there are older ones, of a life of the key that was purged: it keeps them out of the chain.
//! 4. A delete mark below which no snapshot sees anything goes with its entry, however old the
//!    oldest snapshot is, and then no settled version of the key is kept: else one snapshot would keep
//!    every key that came and went after it.
//! 5. One thread moves and sweeps; the tree's changes are logged and are nobody's version.
//!
//! Entries of the tree; the first byte of a value makes sure that it never looks like an entry
//! with a header:
//! ```text
//! 0, LSN u64 BE, part u8                         0x80, a part of (varint tree id, version note);
//!                                                before part 0's: varint length of all parts
//! 1, tree u32 BE, 16 bytes of the key or zeros   0x80
//!    after its end, hash of key u64 BE, LSN u64 BE
//! ```
//! The key's beginning keeps the order of the rows: a transaction that goes through a table in
//! order changes this tree in order too, and not a page of it for each row. (Before 2026-11-21 it was
//! missing. Such references go with the next sweep: nobody looks for them, as snapshots end with the
//! process.)

use super::note::Note;
use super::version::VersionRecord;
use crate::base::checksum::checksum;
use crate::base::codec::{put_varint, Reader};
use crate::base::limits::{KEY_BYTES_MAX, VALUE_BYTES_MAX};
use crate::base::{EntryHeader, Error, Lsn, Result, TreeId, TxnId};
use crate::btree::{Direction, EntryEdit, LeafEnd, Tree};
use crate::txn::TreeGate;
use std::ops::{Bound, ControlFlow};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

pub const OLD_VERSIONS_TREE: TreeId = TreeId(4);

const MARK: u8 = 0x80;
const BY_LSN: u8 = 0;
pub(in crate::txn) const BY_KEY: u8 = 1;
const KEY_PREFIX_BYTES: usize = 16;
const KEY_KEY_BYTES: usize = 21 + KEY_PREFIX_BYTES;
const PART_BYTES_MAX: usize = VALUE_BYTES_MAX - 8;
/// A note holds at most a key, an entry, and a few numbers.
const BYTES_MAX: usize = KEY_BYTES_MAX + VALUE_BYTES_MAX + 64;
// Whom a record concerns is read from its first part alone.
const _: () = assert!(KEY_BYTES_MAX + 128 < PART_BYTES_MAX);

#[derive(Default)]
pub struct OldVersions {
    gate: OnceLock<Arc<TreeGate>>,
    moved_to: AtomicU64,
    pub(in crate::txn) moved: AtomicU64,
    pub(in crate::txn) dropped: AtomicU64,
    pub(in crate::txn) sweeps: AtomicU64,
    reads: AtomicU64,
}

/// Counters since the engine was opened.
#[derive(Clone, Copy, Debug, Default)]
pub struct OldVersionsStats {
    pub moved: u64,
    pub dropped: u64,
    /// Begun passes over all that was moved.
    pub sweeps: u64,
    pub reads: u64,
}

/// What the first part of a moved version says.
pub(in crate::txn) struct Moved {
    pub lsn: Lsn,
    pub tree: TreeId,
    pub txn: TxnId,
    pub replaced: Option<EntryHeader>,
    pub deletes: bool,
    pub key: Vec<u8>,
}

pub(in crate::txn) fn lsn_key(lsn: Lsn, part: u8) -> [u8; 10] {
    let mut key = [0; 10];
    key[0] = BY_LSN;
    key[1..9].copy_from_slice(&lsn.0.to_be_bytes());
    key[9] = part;
    key
}

/// All of one length, so that nothing stands between two of one key.
fn key_key(tree: TreeId, key: &[u8], lsn: Lsn) -> [u8; KEY_KEY_BYTES] {
    let mut out = [0; KEY_KEY_BYTES];
    let prefix = &key[..key.len().min(KEY_PREFIX_BYTES)];
    out[0] = BY_KEY;
    out[1..5].copy_from_slice(&tree.0.to_be_bytes());
    out[5..][..prefix.len()].copy_from_slice(prefix);
    let rest = &mut out[5 + KEY_PREFIX_BYTES..];
    rest[..4].copy_from_slice(&checksum(1, key).to_be_bytes());
    rest[4..8].copy_from_slice(&checksum(0x9e37_79b9, key).to_be_bytes());
    rest[8..].copy_from_slice(&lsn.0.to_be_bytes());
    out
}

/// The LSN and part in a key of the first kind.
pub(in crate::txn) fn parse_lsn_key(key: &[u8]) -> Option<(Lsn, u8)> {
    let (&BY_LSN, rest) = key.split_first()? else { return None };
    let (lsn, part) = rest.split_at_checked(8)?;
    let &[part] = part else { return None };
    Some((Lsn(u64::from_be_bytes(lsn.try_into().ok()?)), part))
}

/// The LSN in a key of the second kind.
pub(in crate::txn) fn parse_key_key(key: &[u8]) -> Option<Lsn> {
    let (_, lsn) = key.strip_prefix(&[BY_KEY])?.split_last_chunk::<8>()?;
    Some(Lsn(u64::from_be_bytes(*lsn)))
}

/// Reads the front of a record that may be cut off after its replaced entry's header.
pub(in crate::txn) fn parse_first_part(lsn: Lsn, value: &[u8]) -> Result<Moved> {
    let mut r = Reader::new(value, "moved version");
    if r.u8()? != MARK {
        return Err(r.fail("unknown form"));
    }
    r.varint()?;
    let tree = u32::try_from(r.varint()?).map_err(|_| r.fail("tree id"))?;
    let fault = || Error::corrupt("moved version without a note", format!("log {lsn:?}"));
    let note = Note::decode(r.rest())?.ok_or_else(fault)?;
    Ok(Moved {
        lsn,
        tree: TreeId(tree),
        txn: note.txn,
        replaced: replaced_header(&note)?,
        deletes: note.deletes,
        key: note.key.to_vec(),
    })
}

pub(in crate::txn) fn replaced_header(note: &Note<'_>) -> Result<Option<EntryHeader>> {
    note.replaced.map(|entry| EntryHeader::split(entry).map(|(header, _)| header)).transpose()
}

impl OldVersions {
    /// The tree, once it is open; versions below `moved_to` are in it.
    pub fn open(&self, gate: Arc<TreeGate>, moved_to: Lsn) {
        assert!(self.gate.set(gate).is_ok(), "the tree is opened once");
        self.moved_to.store(moved_to.0, Ordering::SeqCst);
    }

    pub fn moved_to(&self) -> Lsn {
        Lsn(self.moved_to.load(Ordering::SeqCst))
    }

    pub(in crate::txn) fn set_moved_to(&self, lsn: Lsn) {
        self.moved_to.fetch_max(lsn.0, Ordering::SeqCst);
    }

    /// Nobody needs a version below `low` from the log.
    pub fn release(&self, low: Lsn) {
        self.set_moved_to(low);
    }

    pub(in crate::txn) fn tree(&self) -> Option<&Tree> {
        self.gate.get().map(|gate| gate.tree())
    }

    pub fn stats(&self) -> OldVersionsStats {
        OldVersionsStats {
            moved: self.moved.load(Ordering::Relaxed),
            dropped: self.dropped.load(Ordering::Relaxed),
            sweeps: self.sweeps.load(Ordering::Relaxed),
            reads: self.reads.load(Ordering::Relaxed),
        }
    }

    /// Keeps a version. Again after a crash: the same keys get the same values.
    pub(in crate::txn) fn insert(
        &self,
        lsn: Lsn,
        tree: TreeId,
        key: &[u8],
        note: &[u8],
    ) -> Result<()> {
        let Some(own) = self.tree() else { return Err(Error::NotRetained) };
        let mut bytes = Vec::with_capacity(note.len() + 8);
        put_varint(&mut bytes, u64::from(tree.0));
        bytes.extend_from_slice(note);
        assert!(bytes.len() <= BYTES_MAX, "a note over its limit");
        for (part, chunk) in bytes.chunks(PART_BYTES_MAX).enumerate() {
            let mut value = vec![MARK];
            if part == 0 {
                put_varint(&mut value, bytes.len() as u64);
            }
            value.extend_from_slice(chunk);
            put(own, &lsn_key(lsn, part as u8), &value)?;
        }
        put(own, &key_key(tree, key, lsn), &[MARK])?;
        self.moved.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// The version of this LSN, if it was moved and is still needed by someone.
    pub(crate) fn read(&self, lsn: Lsn) -> Result<Option<VersionRecord>> {
        let Some(own) = self.tree() else { return Ok(None) };
        self.reads.fetch_add(1, Ordering::Relaxed);
        let place = || format!("log {lsn:?}");
        let mut bytes = Vec::new();
        let mut length = 0;
        for part in 0..=u8::MAX {
            let mut value = None;
            own.get(&lsn_key(lsn, part), &mut |found| value = found.map(<[u8]>::to_vec))?;
            // Not moved, or swept between two parts: nobody needs it.
            let Some(value) = value else { return Ok(None) };
            let mut r = Reader::new(&value, "moved version");
            if r.u8()? != MARK {
                return Err(r.fail("unknown form"));
            }
            if part == 0 {
                length = usize::try_from(r.varint()?).unwrap_or(usize::MAX);
            }
            bytes.extend_from_slice(r.rest());
            if bytes.len() >= length || length > BYTES_MAX {
                break;
            }
        }
        if bytes.len() != length {
            return Err(Error::corrupt("moved version has another length", place()));
        }
        let mut r = Reader::new(&bytes, "moved version");
        let tree = u32::try_from(r.varint()?).map_err(|_| r.fail("tree id"))?;
        let note = Note::decode(r.rest())?;
        let note = note.ok_or_else(|| Error::corrupt("moved version without a note", place()))?;
        Ok(Some(VersionRecord::new(TreeId(tree), &note)))
    }

    /// The newest moved version of `key` that is older than `lsn`, settled or not.
    pub(crate) fn below(
        &self,
        tree: TreeId,
        key: &[u8],
        lsn: Lsn,
    ) -> Result<Option<VersionRecord>> {
        self.next_below(tree, key, lsn).map(|found| found.map(|(_, record)| record))
    }

    /// The moved versions of `key` that are older than `lsn`, the newest first.
    pub(crate) fn all_below(
        &self,
        tree: TreeId,
        key: &[u8],
        lsn: Lsn,
    ) -> Result<Vec<(Lsn, VersionRecord)>> {
        let mut all = Vec::new();
        let mut at = lsn;
        while let Some(found) = self.next_below(tree, key, at)? {
            at = found.0;
            all.push(found);
        }
        Ok(all)
    }

    pub(crate) fn next_below(
        &self,
        tree: TreeId,
        key: &[u8],
        lsn: Lsn,
    ) -> Result<Option<(Lsn, VersionRecord)>> {
        let mut at = lsn;
        while let Some(older) = self.lsn_below(&key_key(tree, key, at))? {
            match self.read(older)? {
                Some(record) if record.key == key => return Ok(Some((older, record))),
                // Another key with the same hash, or swept meanwhile.
                _ => at = older,
            }
        }
        Ok(None)
    }

    /// Drops one moved version.
    pub(in crate::txn) fn forget(&self, tree: TreeId, key: &[u8], lsn: Lsn) -> Result<()> {
        let Some(own) = self.tree() else { return Ok(()) };
        let mut part = 0;
        while remove(own, &lsn_key(lsn, part))? {
            part += 1;
        }
        remove(own, &key_key(tree, key, lsn))?;
        self.dropped.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn lsn_below(&self, key: &[u8; KEY_KEY_BYTES]) -> Result<Option<Lsn>> {
        let Some(own) = self.tree() else { return Ok(None) };
        let same = &key[..KEY_KEY_BYTES - 8];
        let mut from = Bound::Excluded(key.to_vec());
        loop {
            let mut found = None;
            let bound = from.as_ref().map(|k| &k[..]);
            let end = own.scan_leaf(bound, Direction::Backward, &mut |other, _| {
                found = Some(other.starts_with(same).then(|| parse_key_key(other)));
                ControlFlow::Break(())
            })?;
            match (found, end) {
                (Some(same_key), _) => return Ok(same_key.flatten()),
                (None, LeafEnd::Next(fence)) => from = Bound::Excluded(fence),
                (None, _) => return Ok(None),
            }
        }
    }
}

fn put(tree: &Tree, key: &[u8], value: &[u8]) -> Result<()> {
    tree.change(key, &mut |_| EntryEdit::put(value, &[][..]))?;
    Ok(())
}

/// Answers whether it was there.
fn remove(tree: &Tree, key: &[u8]) -> Result<bool> {
    let removed = tree.change(key, &mut |current| match current {
        Some(_) => EntryEdit::remove(&[][..]),
        None => EntryEdit::Keep,
    })?;
    Ok(removed.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_in_the_order_of_the_rows_and_keep_keys_apart() {
        let reference = |row: u64, lsn| key_key(TreeId(16), &row.to_be_bytes(), Lsn(lsn));
        let inserted: Vec<_> = (0..1000).map(|n| reference(n, 5000 - n)).collect();
        assert!(inserted.is_sorted());
        assert!(reference(7, 1) < reference(7, 2) && reference(7, u64::MAX) < reference(8, 0));
        let long = |end: &str| key_key(TreeId(16), format!("{:20}{end}", "").as_bytes(), Lsn(9));
        assert_ne!(long("a"), long("b"), "after the prefix the hash decides");
        assert_eq!(parse_key_key(&long("a")), Some(Lsn(9)));
        // Without the beginning of the key, as references were before.
        let older = [&[BY_KEY][..], &[7; 12], &Lsn(11).0.to_be_bytes()].concat();
        assert_eq!(parse_key_key(&older), Some(Lsn(11)));
        assert_eq!(parse_key_key(&lsn_key(Lsn(11), 0)), None);
    }
}
