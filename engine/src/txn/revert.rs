//! Taking versions back: on touch, by statement rollback, and in the background after a rollback
//! or a crash; and the purge of delete marks, which walks the same record chains.
//!
//! Invariant (rules M8): an entry is touched on behalf of a record only while its writer and
//! version LSN are still those of the record, checked under the leaf's exclusive latch.

use super::note::Note;
use super::registry::PurgeItem;
use super::session::{Context, RECORD_REVERTED};
use super::trees::TreeGate;
use super::TxnState;
use crate::base::{Csn, EntryHeader, Error, Lsn, Result, TreeId, TxnId};
use crate::btree::{decode_record, Change, RECORD_TREE};
use crate::os::planted::{self, Bug};
use crate::wal::Record;

/// One step along a transaction's record chain.
pub struct Step {
    /// The transaction's record before this one; zero at the first.
    pub previous: Lsn,
    /// The entry that is no longer the transaction's, if its tree is still there.
    pub reverted: Option<(TreeId, Vec<u8>)>,
}

/// What a version record says, owned.
pub(crate) struct VersionRecord {
    pub tree: TreeId,
    pub txn: TxnId,
    pub previous_lsn: Lsn,
    pub key: Vec<u8>,
    pub replaced: Option<Vec<u8>>,
    pub deletes: bool,
}

impl Context {
    /// Reads the version record at `lsn`.
    pub(crate) fn version_record(&self, lsn: Lsn) -> Result<VersionRecord> {
        let record: Record = self.wal.read(lsn)?;
        let fault = |why: &str| Error::corrupt(why, format!("log {lsn:?}"));
        if record.kind != RECORD_TREE {
            return Err(fault("not a version record"));
        }
        let decoded = decode_record(&record.payload)?;
        let note = Note::decode(decoded.note)?.ok_or_else(|| fault("record without a version"))?;
        Ok(VersionRecord {
            tree: decoded.tree,
            txn: note.txn,
            previous_lsn: note.previous_lsn,
            key: note.key.to_vec(),
            replaced: note.replaced.map(<[u8]>::to_vec),
            deletes: note.deletes,
        })
    }

    /// Takes back the version that `txn` wrote at `lsn`, if it still stands.
    pub(crate) fn revert_record(&self, txn: TxnId, lsn: Lsn) -> Result<Step> {
        let record = self.version_record(lsn)?;
        if record.txn != txn {
            let place = format!("log {lsn:?}");
            return Err(Error::corrupt("record chain of another transaction", place));
        }
        let previous = record.previous_lsn;
        let Some(gate) = self.trees.get(record.tree) else {
            return Ok(Step { previous, reverted: None });
        };
        let Some(_inside) = gate.enter() else { return Ok(Step { previous, reverted: None }) };
        let stands = (txn, lsn);
        self.replace_if(&gate, &record.key, stands, record.replaced.as_deref())?;
        // An earlier version of its own keeps the row locked by its id.
        let is_own = |older: &[u8]| EntryHeader::split(older).is_ok_and(|(h, _)| h.txn == txn);
        let still_own = record.replaced.as_deref().is_some_and(is_own);
        Ok(Step { previous, reverted: (!still_own).then_some((record.tree, record.key)) })
    }

    /// Revert on touch: puts back the newest version that is not of an aborted transaction.
    pub(crate) fn revert_entry(&self, gate: &TreeGate, key: &[u8], bad: EntryHeader) -> Result<()> {
        let mut header = bad;
        let good = loop {
            let record = match self.version_record(header.lsn) {
                // The background revert was faster and the log let go: look at the entry again.
                Err(Error::NotRetained) => return Ok(()),
                other => other?,
            };
            let Some(replaced) = record.replaced else { break None };
            let (older, _) = EntryHeader::split(&replaced)?;
            if older.txn != bad.txn && self.table.state(older.txn) != TxnState::Aborted {
                break Some(replaced);
            }
            header = older;
        };
        self.replace_if(gate, key, (bad.txn, bad.lsn), good.as_deref())
    }

    /// Replaces the entry by `with` (or removes it) while its version is still `stands`.
    fn replace_if(
        &self,
        gate: &TreeGate,
        key: &[u8],
        stands: (TxnId, Lsn),
        with: Option<&[u8]>,
    ) -> Result<()> {
        let mut fault = None;
        gate.tree().change(key, &mut |current| {
            let Some(entry) = current else { return Change::Keep };
            match EntryHeader::split(entry) {
                Ok((header, _)) if (header.txn, header.lsn) == stands => {}
                Ok(_) => return Change::Keep,
                Err(error) => {
                    fault = Some(error);
                    return Change::Keep;
                }
            }
            match with {
                Some(older) if !self.is_purged(older) => {
                    let value = older.to_vec();
                    Change::put(value, Vec::new(), false)
                }
                _ => Change::remove(Vec::new()),
            }
        })?;
        fault.map_or(Ok(()), Err)
    }

    /// Is this a delete mark that the purge may have passed already, because everybody sees it?
    /// Then it must not come back: nobody would ever take it away. Asked under the latch under
    /// which it would come back; a purge that passes later finds it there.
    fn is_purged(&self, older: &[u8]) -> bool {
        EntryHeader::split(older).is_ok_and(|(header, _)| {
            header.is_deleted()
                && matches!(self.table.state(header.txn), TxnState::Committed(_))
                && self.table.oldest_view(Lsn(u64::MAX)).sees(&self.table, header.txn, None)
        })
    }

    /// Reverts up to `budget` records of rolled back transactions. Answers whether work is left.
    pub fn revert_step(&self, budget: usize) -> Result<bool> {
        let mut left = budget;
        while left > 0 {
            let Some(open) = self.to_revert.lock().front().cloned() else { return Ok(false) };
            let mut lsn = open.last_lsn();
            while left > 0 && lsn != Lsn::ZERO {
                let step = self.revert_record(open.id, lsn)?;
                lsn = step.previous;
                open.begin_record(self.wal.end());
                open.end_record(lsn);
                left -= 1;
            }
            if lsn == Lsn::ZERO {
                self.append_outcome(RECORD_REVERTED, open.id);
                self.table.forget(open.id);
                self.registry.remove(open.id);
                self.to_revert.lock().pop_front();
                left = left.saturating_sub(1);
            }
        }
        Ok(!self.to_revert.lock().is_empty())
    }

    /// Removes delete marks that every snapshot sees. Answers whether work is left for now.
    pub fn purge_step(&self, budget: usize) -> Result<bool> {
        let mut left = budget;
        while left > 0 {
            let oldest = match planted::is(Bug::PurgeIgnoresSnapshots) {
                true => Csn(u64::MAX),
                false => self.table.oldest_snapshot_csn(),
            };
            let Some(item) = self.registry.peek_purge(oldest) else { return Ok(false) };
            left = left.saturating_sub(self.purge_transaction(item)?.max(1));
            self.registry.pop_purge(item.txn);
        }
        Ok(true)
    }

    fn purge_transaction(&self, item: PurgeItem) -> Result<usize> {
        let mut lsn = item.last_lsn;
        let mut records = 0;
        // After a crash `first_lsn` can lie inside the chain: what is before it was purged.
        while lsn != Lsn::ZERO && lsn >= item.first_lsn {
            let record = self.version_record(lsn)?;
            records += 1;
            if record.deletes {
                if let Some(gate) = self.trees.get(record.tree) {
                    if let Some(_inside) = gate.enter() {
                        self.replace_if(&gate, &record.key, (item.txn, lsn), None)?;
                    }
                }
            }
            lsn = record.previous_lsn;
        }
        Ok(records)
    }
}
