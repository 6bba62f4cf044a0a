//! A transaction that fills an empty tree at once: its entries go in leaf by leaf, without a record for
//! each of them.
//!
//! Invariants:
//! 1. One record with a note begins the load of a tree ([`Session::begin_load`]). Each entry names that record
//!    and its transaction, and is the first version of its key. So readers and the revert on touch need no rule
//!    of their own; what takes back the record takes back all entries that name it (rules M8).
//! 2. The tree has had no committed version that a snapshot may look for: what is moved of a key ends with its
//!    first version, and a load leaves none in the log.
//! 3. From before the trees were found empty to the end of the transaction, the intervals of all keys of the
//!    clustered tree and of that of long values are locked ([`Session::lock_all`]). Every insert of a row begins in
//!    one of them, so no other transaction inserts into the table.
//! 4. No savepoint from the middle of a load is rolled back to.

use super::locks::{Enqueued, LockMode, Owner};
use super::registry::OpenTxn;
use super::reverting::LoadSweep;
use super::session::{Context, Session, WaitReport};
use super::trees::TreeGate;
use super::versions::{Note, VersionRecord};
use crate::base::entry::FIRST;
use crate::base::{EntryHeader, Error, Lsn, Result, TreeId, TxnId};
use crate::btree::Admit;
use crate::os::planted::{self, Bug};
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

/// In the background's budget a leaf counts as so many records.
const LEAF_RECORDS: usize = 32;

impl Session {
    /// Keeps all others from inserting into the tree until the end of the transaction. False: somebody
    /// waits to insert there, or has the right to.
    pub fn lock_all(&self, gate: &TreeGate) -> bool {
        let all = (Bound::Unbounded, Bound::Unbounded);
        let locks = &self.ctx.locks;
        locks.try_lock_range(&self.owner, gate.id(), all, LockMode::Exclusive).is_ok()
    }

    /// From now on entries with this header may go into the tree.
    pub fn begin_load(&mut self, gate: &TreeGate) -> Result<EntryHeader> {
        let open = self.ensure_open();
        let mut note = Note {
            txn: open.id,
            previous_lsn: open.last_lsn(),
            key: b"",
            replaced: None,
            deletes: false,
            loads: true,
        };
        if planted::is(Bug::LoadNotTakenBack) {
            note.loads = false;
        }
        open.begin_record(self.ctx.wal.end());
        let appended = gate.tree().note(&note.encode()).inspect_err(|_| open.cancel_record())?;
        open.end_version(appended, false);
        self.loads_from.get_or_insert(appended.lsn);
        Ok(EntryHeader { flags: FIRST, txn: open.id, lsn: appended.lsn })
    }

    /// The first record of the load that is under way, unless that was taken back.
    pub fn loads_from(&self) -> Option<Lsn> {
        self.loads_from
    }

    /// No load is under way any more.
    pub fn end_load(&mut self) {
        self.loads_from = None;
    }

    /// What asks for the keys of a tree that is loaded.
    pub fn load_turn(&self, gate: &TreeGate) -> Box<dyn Admit> {
        Box::new(LoadTurn {
            ctx: Arc::clone(&self.ctx),
            owner: Arc::clone(&self.owner),
            tree: gate.id(),
            timeout: self.lock_timeout,
            key: Vec::new(),
        })
    }

    /// So many entries were loaded.
    pub fn note_loaded(&mut self, entries: u64) {
        self.writes += entries;
        self.owner.set_undo_count(self.writes);
    }
}

/// Keys wait as an insert of each would.
struct LoadTurn {
    ctx: Arc<Context>,
    owner: Arc<Owner>,
    tree: TreeId,
    timeout: Duration,
    /// Not admitted.
    key: Vec<u8>,
}

impl Admit for LoadTurn {
    fn admits(&mut self, key: &[u8]) -> bool {
        let locks = &self.ctx.locks;
        let is_free = locks.check(&self.owner, self.tree, key, LockMode::Exclusive).is_ok()
            && locks.insert_conflict(&self.owner, self.tree, key).is_none();
        if !is_free {
            self.key.clear();
            self.key.extend_from_slice(key);
        }
        is_free
    }

    fn wait(&mut self) -> Result<()> {
        if self.timeout.is_zero() {
            return Err(Error::LockTimeout);
        }
        let LoadTurn { ctx, owner, tree, timeout, key } = self;
        let locks = &ctx.locks;
        let report = &*ctx.report_wait;
        let row = locks.enqueue(owner, *tree, key, LockMode::Exclusive, None);
        wait_for(row, *timeout, report)?;
        wait_for(locks.enqueue_insert(owner, *tree, key), *timeout, report)
    }

    fn done(&mut self) {
        self.ctx.locks.finish_insert(&self.owner);
    }
}

fn wait_for(enqueued: Enqueued, timeout: Duration, report: &WaitReport) -> Result<()> {
    match enqueued {
        Enqueued::Waiting(ticket) => ticket.wait(timeout, report),
        Enqueued::Granted | Enqueued::HolderGone => Ok(()),
    }
}

impl Context {
    /// Takes back, now, all entries that name the record.
    pub(super) fn revert_load(&self, record: &VersionRecord, stands: (TxnId, Lsn)) -> Result<()> {
        let Some(gate) = self.trees.get(record.tree) else { return Ok(()) };
        let Some(_inside) = gate.enter() else { return Ok(()) };
        let mut sweep = LoadSweep::of(stands);
        while !self.sweep_leaf(&gate, &mut sweep)? {}
        Ok(())
    }

    /// The same for the background, as far as the budget goes. True: all are gone.
    pub(super) fn revert_load_some(
        &self,
        record: &VersionRecord,
        (open, lsn): (&OpenTxn, Lsn),
        under_way: &mut Option<LoadSweep>,
        left: &mut usize,
    ) -> Result<bool> {
        let Some(gate) = self.trees.get(record.tree) else { return Ok(true) };
        let Some(_inside) = gate.enter() else { return Ok(true) };
        let stands = (open.id, lsn);
        let fresh = || LoadSweep::of(stands);
        let mut sweep = under_way.take().filter(|s| s.stands == stands).unwrap_or_else(fresh);
        while *left > 0 {
            *left = left.saturating_sub(LEAF_RECORDS);
            let swept = self.sweep_leaf(&gate, &mut sweep);
            let is_over = match (swept, sweep.tidies) {
                // Merging leaves takes nothing back: it may stay undone.
                (Err(_), true) => true,
                (swept, _) => {
                    let is_failed = swept.is_err();
                    let is_over = self.unless_left(open, gate.id(), swept, false)?;
                    if is_failed {
                        // Entries in other leaves must go all the same.
                        sweep.go_on(gate.tree().next_leaf(&sweep.at)?);
                    }
                    is_over
                }
            };
            if is_over {
                return Ok(true);
            }
        }
        *under_way = Some(sweep);
        Ok(false)
    }

    /// True after the last one.
    fn sweep_leaf(&self, gate: &TreeGate, sweep: &mut LoadSweep) -> Result<bool> {
        if sweep.tidies {
            let next = gate.tree().tidy(&sweep.at)?;
            let is_over = next.is_none();
            sweep.at = next.unwrap_or_default();
            return Ok(is_over);
        }
        let mut fault = None;
        let stands = sweep.stands;
        let swept = gate.tree().remove_only(
            &sweep.at,
            &mut |_, entry| match EntryHeader::split(entry) {
                Ok((header, _)) => (header.txn, header.lsn) == stands,
                Err(error) => {
                    fault = Some(error);
                    false
                }
            },
        )?;
        fault.map_or(Ok(()), Err)?;
        sweep.go_on(swept.next);
        Ok(false)
    }
}
