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
use crate::base::{EntryHeader, Error, Lsn, Result, TreeId, TxnId};
use crate::btree::{decode_record, Change, RECORD_TREE};
use crate::wal::Record;

/// One step along a transaction's record chain.
pub struct Step {
    /// The transaction's record before this one; zero at the first.
    pub previous: Lsn,
    /// The entry that was taken back, if its tree is still there.
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

impl VersionRecord {
    pub(super) fn new(tree: TreeId, note: &Note<'_>) -> VersionRecord {
        VersionRecord {
            tree,
            txn: note.txn,
            previous_lsn: note.previous_lsn,
            key: note.key.to_vec(),
            replaced: note.replaced.map(<[u8]>::to_vec),
            deletes: note.deletes,
        }
    }
}

impl Context {
    /// The version written at `lsn`, from the log or, below the log's first kept byte, from the
    /// tree of old versions.
    pub(crate) fn version_record(&self, lsn: Lsn) -> Result<VersionRecord> {
        let record: Record = match self.wal.read(lsn) {
            Err(Error::NotRetained) => {
                return self.old.read(lsn)?.ok_or(Error::NotRetained);
            }
            other => other?,
        };
        let fault = |why: &str| Error::corrupt(why, format!("log {lsn:?}"));
        if record.kind != RECORD_TREE {
            return Err(fault("not a version record"));
        }
        let decoded = decode_record(&record.payload)?;
        let note = Note::decode(decoded.note)?.ok_or_else(|| fault("record without a version"))?;
        Ok(VersionRecord::new(decoded.tree, &note))
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
        Ok(Step { previous, reverted: Some((record.tree, record.key)) })
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
                Some(older) => {
                    let value = older.to_vec();
                    Change::put(value, Vec::new(), false)
                }
                None => Change::remove(Vec::new()),
            }
        })?;
        fault.map_or(Ok(()), Err)
    }

    /// As [`Context::revert_record`], for the background: nobody waits for an answer, so work that
    /// a damaged page stops is put aside, and a transaction whose chain is damaged does not keep
    /// those behind it waiting.
    fn revert_behind(&self, txn: TxnId, lsn: Lsn) -> Result<Step> {
        let reverted = self.revert_record(txn, lsn);
        if !matches!(reverted, Err(Error::Corrupt { .. })) {
            return reverted;
        }
        match self.version_record(lsn) {
            Ok(record) => {
                let step = Step { previous: record.previous_lsn, reverted: None };
                self.unless_put_aside(Some(record.tree), reverted, step)
            }
            Err(error) => {
                self.to_revert.lock().rotate_left(1);
                Err(error)
            }
        }
    }

    /// `instead`, if `done` failed at damage and its work was put aside.
    fn unless_put_aside<T>(&self, tree: Option<TreeId>, done: Result<T>, instead: T) -> Result<T> {
        let aside = |error: &Error| self.put_aside.get().is_some_and(|put| put(tree, error));
        match done {
            Err(error) if matches!(error, Error::Corrupt { .. }) && aside(&error) => Ok(instead),
            other => other,
        }
    }

    /// Reverts up to `budget` records of rolled back transactions. Answers whether work is left.
    pub fn revert_step(&self, budget: usize) -> Result<bool> {
        let mut left = budget;
        while left > 0 {
            let Some(open) = self.to_revert.lock().front().cloned() else { return Ok(false) };
            let mut lsn = open.last_lsn();
            while left > 0 && lsn != Lsn::ZERO {
                let step = self.revert_behind(open.id, lsn)?;
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
            let oldest = self.table.oldest_snapshot_csn();
            let Some(item) = self.registry.peek_purge(oldest) else { return Ok(false) };
            // Where the log cannot be read, delete marks stay: they take room, no more.
            let purged = self.unless_put_aside(None, self.purge_transaction(item), 1)?;
            left = left.saturating_sub(purged.max(1));
            self.registry.pop_purge(item.txn);
        }
        Ok(true)
    }

    fn purge_transaction(&self, item: PurgeItem) -> Result<usize> {
        let mut lsn = item.last_lsn;
        let mut records = 0;
        // After a crash `first_lsn` can lie inside the chain: what is before it was purged. What
        // lies below `moved_to` is purged by the sweep of the moved versions.
        while lsn != Lsn::ZERO && lsn >= item.first_lsn.max(self.old.moved_to()) {
            let record = match self.version_record(lsn) {
                // Moved in between.
                Err(Error::NotRetained) if lsn < self.old.moved_to() => break,
                other => other?,
            };
            records += 1;
            if record.deletes {
                self.purge_mark(record.tree, &record.key, (item.txn, lsn))?;
            }
            lsn = record.previous_lsn;
        }
        Ok(records)
    }

    /// Removes a delete mark that every snapshot sees, if it still stands.
    pub(super) fn purge_mark(&self, tree: TreeId, key: &[u8], stands: (TxnId, Lsn)) -> Result<()> {
        let Some(gate) = self.trees.get(tree) else { return Ok(()) };
        let Some(_inside) = gate.enter() else { return Ok(()) };
        let done = self.replace_if(&gate, key, stands, None);
        self.unless_put_aside(Some(tree), done, ())
    }
}
