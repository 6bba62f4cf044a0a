//! Taking versions back: on touch, by statement rollback, and in the background after a rollback
//! or a crash; and the purge of delete marks, which walks the same record chains.
//!
//! Invariant (rules M8): an entry is touched on behalf of a record only while its writer and
//! version LSN are still those of the record, checked under the leaf's exclusive latch.

use super::registry::{OpenTxn, PurgeItem};
use super::reverting::Reverting;
use super::session::{Context, Stopped, RECORD_REVERTED};
use super::trees::TreeGate;
use super::versions::{Note, VersionReader, VersionRecord};
use super::TxnState;
use crate::base::{Csn, EntryHeader, Error, Lsn, Result, TreeId, TxnId};
use crate::btree::{decode_record, EntryEdit, RECORD_TREE};
use crate::os::planted::{self, Bug};
use crate::os::sync::Mutex;
use crate::wal::{ReadAhead, Record};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::atomic::Ordering;

/// One step along a transaction's record chain.
pub struct RevertStep {
    /// The transaction's record before this one; zero at the first.
    pub previous: Lsn,
    /// The entry that is no longer the transaction's, if its tree is still there.
    pub reverted: Option<(TreeId, Vec<u8>)>,
}

/// The entry that stands where a version was looked for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Met {
    Itself,
    Nothing,
    /// A committed version above it: it never comes back.
    Committed,
    /// A version that a rollback may take away.
    Open,
}

impl Context {
    /// The version written at `lsn`, from the log or, below the log's first kept byte, from the
    /// tree of old versions.
    pub(crate) fn version_record(&self, lsn: Lsn) -> Result<VersionRecord> {
        self.decode_version(lsn, self.wal.read(lsn))
    }

    /// The same, for callers that go from entry to entry.
    pub(crate) fn version_near(
        &self,
        lsn: Lsn,
        reader: &Mutex<VersionReader>,
    ) -> Result<VersionRecord> {
        self.decode_version(lsn, reader.lock().read(&self.wal, lsn))
    }

    /// The same, for callers that follow a chain of records.
    fn version_along(&self, lsn: Lsn, ahead: &mut ReadAhead) -> Result<VersionRecord> {
        self.decode_version(lsn, self.wal.read_along(lsn, ahead))
    }

    fn decode_version(&self, lsn: Lsn, read: Result<Record>) -> Result<VersionRecord> {
        let is_gone = match &read {
            Err(Error::NotRetained) => true,
            // Segments keep more of the log than anybody needs; its key may have been thrown away.
            Err(Error::Refused(_)) => lsn < self.old.moved_to(),
            _ => false,
        };
        let record = match read {
            Err(_) if is_gone => {
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
    pub(super) fn revert_own(
        &self,
        txn: TxnId,
        lsn: Lsn,
        record: VersionRecord,
    ) -> Result<RevertStep> {
        if record.loads {
            self.revert_load(&record, (txn, lsn))?;
            return Ok(RevertStep { previous: record.previous_lsn, reverted: None });
        }
        let is_there = self.revert_version(txn, lsn, &record)?;
        // An earlier version of its own keeps the row locked by its id.
        let is_own = |older: &[u8]| EntryHeader::split(older).is_ok_and(|(h, _)| h.txn == txn);
        let is_free = is_there && !record.replaced.as_deref().is_some_and(is_own);
        let reverted = is_free.then_some((record.tree, record.key));
        Ok(RevertStep { previous: record.previous_lsn, reverted })
    }

    /// The version that `txn` wrote at `lsn`.
    pub(super) fn own_version(
        &self,
        txn: TxnId,
        lsn: Lsn,
        ahead: &mut ReadAhead,
    ) -> Result<VersionRecord> {
        let record = self.version_along(lsn, ahead)?;
        if record.txn != txn {
            let place = format!("log {lsn:?}");
            return Err(Error::corrupt("record chain of another transaction", place));
        }
        Ok(record)
    }

    /// Answers whether the tree is still there.
    fn revert_version(&self, txn: TxnId, lsn: Lsn, record: &VersionRecord) -> Result<bool> {
        let Some(gate) = self.trees.get(record.tree) else { return Ok(false) };
        let Some(_inside) = gate.enter() else { return Ok(false) };
        self.replace_if(&gate, &record.key, (txn, lsn), record.replaced.as_deref())?;
        Ok(true)
    }

    /// Revert on touch: puts back the newest version that is not of an aborted transaction.
    pub(crate) fn revert_entry(
        &self,
        gate: &TreeGate,
        key: &[u8],
        bad: EntryHeader,
        reader: &Mutex<VersionReader>,
    ) -> Result<()> {
        self.meet_rolled_back();
        let mut header = bad;
        let good = loop {
            let read = match header.lsn == bad.lsn {
                true => self.version_near(header.lsn, reader),
                false => self.version_record(header.lsn),
            };
            let record = match read {
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
        self.change_if(gate, key, stands, &mut || match with {
            Some(older) if !self.is_purged(older) => EntryEdit::put(older.to_vec(), Vec::new()),
            _ => EntryEdit::remove(Vec::new()),
        })
        .map(drop)
    }

    /// Makes a change to the entry while its version is still `stands`. Another version is
    /// judged under the latch.
    fn change_if<'c>(
        &self,
        gate: &TreeGate,
        key: &[u8],
        stands: (TxnId, Lsn),
        change: &mut dyn FnMut() -> EntryEdit<'c>,
    ) -> Result<Met> {
        let mut met = Ok(Met::Nothing);
        gate.tree().change(key, &mut |current| {
            met = current.map_or(Ok(Met::Nothing), |entry| {
                let (header, _) = EntryHeader::split(entry)?;
                Ok(match self.table.state(header.txn) {
                    _ if (header.txn, header.lsn) == stands => Met::Itself,
                    TxnState::Committed(_) => Met::Committed,
                    _ => Met::Open,
                })
            });
            match met {
                Ok(Met::Itself) => change(),
                _ => EntryEdit::Keep,
            }
        })?;
        met
    }

    /// `instead`, if `done` failed at damage and its work was put aside. To be asked once for each
    /// error: the judge counts the tries.
    pub(super) fn unless_put_aside<T>(
        &self,
        work: Stopped,
        done: Result<T>,
        instead: T,
    ) -> Result<T> {
        let aside = |error: &Error| self.put_aside.get().is_some_and(|put| put(work, error));
        match done {
            Err(error) if error.is_bad_read() && aside(&error) => Ok(instead),
            other => other,
        }
    }

    /// The same for the revert of `open` in this tree, of which something is left then.
    pub(super) fn unless_left<T>(
        &self,
        open: &OpenTxn,
        tree: TreeId,
        done: Result<T>,
        instead: T,
    ) -> Result<T> {
        let is_failed = done.is_err();
        let done = self.unless_put_aside(Stopped::Page(tree), done, instead)?;
        if is_failed {
            open.note_left();
        }
        Ok(done)
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
        let done = self.revert_some(budget);
        self.revert_goes_on.store(matches!(done, Ok(true)), Ordering::Relaxed);
        done
    }

    /// How many rolled back transactions the background has not reverted yet.
    pub fn reverts_waiting(&self) -> usize {
        self.to_revert.lock().len()
    }

    /// A session comes across what waits for the revert.
    pub(super) fn meet_rolled_back(&self) {
        self.met_rolled_back.fetch_add(1, Ordering::Relaxed);
    }

    /// How often that was since this was last asked.
    pub fn take_met_rolled_back(&self) -> u32 {
        self.met_rolled_back.swap(0, Ordering::Relaxed)
    }

    /// Whether any session reads or writes at this moment.
    pub fn sessions_at_work(&self) -> bool {
        let stats = self.table.stats();
        stats.snapshots > 0 || stats.open > self.reverts_waiting() as u64
    }

    fn revert_some(&self, budget: usize) -> Result<bool> {
        let mut reverting = self.reverting.lock();
        let mut left = budget;
        while left > 0 {
            let Some(open) = self.to_revert.lock().front().cloned() else { return Ok(false) };
            let lsn = match self.revert_piece(&open, &mut left, &mut reverting) {
                // A chain that cannot be read does not keep those after it waiting.
                Err(error) if error.is_bad_read() => {
                    self.to_revert.lock().rotate_left(1);
                    return Err(error);
                }
                other => other?,
            };
            if lsn == Lsn::ZERO {
                self.append_outcome(RECORD_REVERTED, open.id);
                match open.is_left() {
                    true => self.table.leave_aborted(open.id),
                    false => self.table.forget(open.id),
                }
                self.registry.remove(open.id);
                self.to_revert.lock().pop_front();
                left = left.saturating_sub(1);
            }
        }
        Ok(!self.to_revert.lock().is_empty())
    }

    /// Reverts the youngest records that are left of a transaction; answers the next one. Entries
    /// that were inserted go at the end, leaf by leaf: no older record of the transaction is
    /// about any of them. Work that a damaged page stops is put aside: nobody waits for an answer.
    fn revert_piece(
        &self,
        open: &OpenTxn,
        left: &mut usize,
        reverting: &mut Reverting,
    ) -> Result<Lsn> {
        let mut inserted: BTreeMap<TreeId, BTreeMap<Vec<u8>, Lsn>> = BTreeMap::new();
        let mut lsn = open.last_lsn();
        while *left > 0 && lsn != Lsn::ZERO {
            let record = self.own_version(open.id, lsn, &mut reverting.ahead)?;
            if record.loads {
                if !self.revert_load_some(&record, (open, lsn), &mut reverting.sweep, left)? {
                    break;
                }
            } else if record.replaced.is_some() {
                let done = self.revert_version(open.id, lsn, &record);
                self.unless_left(open, record.tree, done, false)?;
            } else {
                let entries = inserted.entry(record.tree).or_default();
                entries.entry(record.key).or_insert(lsn);
            }
            lsn = record.previous_lsn;
            *left = left.saturating_sub(1);
        }
        for (tree, entries) in inserted {
            self.remove_inserted(tree, open, &entries)?;
        }
        // Only now: after a crash the chain is walked again from where this says.
        open.begin_record(self.wal.end());
        open.end_record(lsn);
        Ok(lsn)
    }

    /// Removes the entries that still are the first versions that `open` wrote.
    fn remove_inserted(
        &self,
        tree: TreeId,
        open: &OpenTxn,
        entries: &BTreeMap<Vec<u8>, Lsn>,
    ) -> Result<()> {
        let Some(gate) = self.trees.get(tree) else { return Ok(()) };
        let Some(_inside) = gate.enter() else { return Ok(()) };
        let mut at = entries.first_key_value().map(|(key, _)| key);
        while let Some(key) = at {
            let swept = remove_from_leaf(&gate, key, open.id, entries);
            // Entries in other leaves must go all the same.
            let behind = Some(Bound::Excluded(key.clone()));
            let rest = self.unless_left(open, tree, swept, behind)?;
            let next = rest.and_then(|from| entries.range((from, Bound::Unbounded)).next());
            at = next.map(|(key, _)| key);
        }
        Ok(())
    }

    /// Removes delete marks that every snapshot sees. Answers whether work is left for now.
    pub fn purge_step(&self, budget: usize) -> Result<bool> {
        Ok(self.purge_with(&mut self.purging.lock(), budget)? == 0)
    }

    /// The same beside other threads. Answers whether it found work.
    pub fn purge_beside(&self, budget: usize) -> Result<bool> {
        let left = match self.purging.try_lock() {
            Some(mut ahead) => self.purge_with(&mut ahead, budget)?,
            None => self.purge_with(&mut ReadAhead::forward(), budget)?,
        };
        Ok(left < budget)
    }

    /// Answers what is left of the budget: then nothing is left to do.
    fn purge_with(&self, ahead: &mut ReadAhead, budget: usize) -> Result<usize> {
        let mut left = budget;
        while left > 0 {
            let oldest = match planted::is(Bug::PurgeIgnoresSnapshots) {
                true => Csn(u64::MAX),
                false => self.table.oldest_snapshot_csn(),
            };
            let Some(item) = self.registry.claim_purge(oldest) else { break };
            match self.purge_transaction(item, &mut left, ahead) {
                Ok(Lsn::ZERO) => self.registry.pop_purge(item.txn),
                Ok(rest) => self.registry.shorten_purge(item.txn, rest),
                Err(error) => {
                    self.registry.shorten_purge(item.txn, item.last_lsn);
                    return Err(error);
                }
            }
        }
        Ok(left)
    }

    /// Answers the last record that is left, if any.
    fn purge_transaction(
        &self,
        item: PurgeItem,
        budget: &mut usize,
        ahead: &mut ReadAhead,
    ) -> Result<Lsn> {
        let mut lsn = item.last_lsn;
        // After a crash `first_lsn` can lie inside the chain: what is before it was purged. What
        // lies below `moved_to` is purged by the sweep of the moved versions.
        while lsn != Lsn::ZERO && lsn >= item.first_lsn.max(self.old.moved_to()) {
            if *budget == 0 {
                return Ok(lsn);
            }
            let read = match self.version_along(lsn, ahead) {
                // Moved in between.
                Err(Error::NotRetained) if lsn < self.old.moved_to() => break,
                other => other.map(Some),
            };
            // Where the log cannot be read, delete marks stay: they take room, no more.
            let Some(record) = self.unless_put_aside(Stopped::Log, read, None)? else {
                self.marks_left.fetch_add(1, Ordering::Relaxed);
                break;
            };
            *budget -= 1;
            if record.deletes {
                self.purge_own(&record, (item.txn, lsn))?;
            }
            lsn = record.previous_lsn;
        }
        *budget = budget.saturating_sub(1);
        Ok(Lsn::ZERO)
    }

    /// Removes a delete mark, if it still stands.
    pub(super) fn purge_mark(&self, tree: TreeId, key: &[u8], stands: (TxnId, Lsn)) -> Result<Met> {
        let met = self.at_version(tree, key, stands, &mut || EntryEdit::remove(&[][..]));
        self.unless_put_aside(Stopped::Page(tree), met, Met::Nothing)
    }

    /// The same for a mark that its own record names. Damage costs this mark, and no mark of
    /// another page.
    fn purge_own(&self, mark: &VersionRecord, stands: (TxnId, Lsn)) -> Result<()> {
        let remove = &mut || EntryEdit::remove(&[][..]);
        let met = self.at_version(mark.tree, &mark.key, stands, remove);
        let is_lost = met.is_err();
        self.unless_put_aside(Stopped::Mark(mark.tree), met, Met::Nothing)?;
        if is_lost {
            self.marks_left.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    /// What has become of a version.
    pub(super) fn look_at(&self, tree: TreeId, key: &[u8], stands: (TxnId, Lsn)) -> Result<Met> {
        let met = self.at_version(tree, key, stands, &mut || EntryEdit::Keep);
        self.unless_put_aside(Stopped::Page(tree), met, Met::Nothing)
    }

    /// Whether the newest version of `key` is still the one that `head` names.
    pub(super) fn stands(&self, gate: &TreeGate, key: &[u8], head: EntryHeader) -> Result<bool> {
        let mut stands = Ok(false);
        gate.tree().get(key, &mut |current| {
            if let Some(entry) = current {
                stands = EntryHeader::split(entry).map(|(header, _)| header == head);
            }
        })?;
        stands
    }

    fn at_version<'c>(
        &self,
        tree: TreeId,
        key: &[u8],
        stands: (TxnId, Lsn),
        change: &mut dyn FnMut() -> EntryEdit<'c>,
    ) -> Result<Met> {
        let Some(gate) = self.trees.get(tree) else { return Ok(Met::Nothing) };
        let Some(_inside) = gate.enter() else { return Ok(Met::Nothing) };
        self.change_if(&gate, key, stands, change)
    }
}

/// Those in the leaf of `key`. Answers where the next leaf begins, if there is one.
fn remove_from_leaf(
    gate: &TreeGate,
    key: &[u8],
    txn: TxnId,
    entries: &BTreeMap<Vec<u8>, Lsn>,
) -> Result<Option<Bound<Vec<u8>>>> {
    let mut fault = None;
    let swept = gate.tree().remove_where(key, &mut |key, entry| {
        let Some(&lsn) = entries.get(key) else { return false };
        match EntryHeader::split(entry) {
            Ok((header, _)) => (header.txn, header.lsn) == (txn, lsn),
            Err(error) => {
                fault = Some(error);
                false
            }
        }
    })?;
    fault.map_or(Ok(()), Err)?;
    Ok(swept.next.map(Bound::Included))
}
