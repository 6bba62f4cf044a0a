//! The lock manager: what sessions call.

use super::deadlock;
use super::key::Span;
use super::owner::{Outcome, Owner};
use super::park::Deadline;
use super::queue::{Grant, LockMode, Want};
use super::state::{Effects, TreeLocks};
use crate::base::{Error, IdMap, Result, TreeId, TxnId};
use crate::os::rank::Rank;
use crate::os::sync::{Mutex, Ranked};
use crate::txn::{TxnState, TxnTable};
use std::ops::Bound;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::Arc;
use std::time::Duration;

/// Somebody is in the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conflict {
    pub session: u64,
    pub txn: Option<TxnId>,
}

impl Conflict {
    fn with(owner: &Owner) -> Conflict {
        Conflict { session: owner.session(), txn: owner.txn() }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Granted {
    /// The row was not held.
    New,
    /// It was held in a weaker mode.
    Raised,
    /// The owner held it already, itself or through an interval.
    Held,
}

/// What became of a request that may wait.
#[must_use]
#[derive(Debug)]
pub enum Enqueued {
    Granted,
    Waiting(Ticket),
    /// The implicit holder has ended: look at the entry again.
    HolderGone,
}

const SHARDS: usize = 256;
const HOLDER_SHARDS: usize = 64;
/// Idle trees that a shard keeps: their memory is soon of use again, unless they are dropped.
const IDLE_TREES_KEPT: usize = 4;

type Holders = Mutex<IdMap<TxnId, Arc<Owner>>>;

/// The locks of the trees whose ids fall into one slot: mostly one tree.
struct Shard {
    /// Rows and spans that are held or waited for: what writers look at instead of taking the
    /// mutex. A writer holds its leaf's latch exclusively, and a thread that asks for a key of that leaf
    /// for the first time holds it too, so the latch orders the two.
    rows: AtomicU32,
    spans: AtomicU32,
    trees: Mutex<IdMap<TreeId, Box<TreeLocks>>>,
}

impl Default for Shard {
    fn default() -> Shard {
        let trees = Mutex::ranked(Rank::LockManager, IdMap::default());
        Shard { rows: AtomicU32::new(0), spans: AtomicU32::new(0), trees }
    }
}

/// Numbers for the statistics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LockStats {
    pub waits: u64,
    pub deadlocks: u64,
    pub timeouts: u64,
    pub interrupts: u64,
    /// Holds of rows and of intervals, and those who wait for one, now.
    pub rows: u64,
    pub intervals: u64,
}

#[derive(Default)]
struct Events {
    waits: AtomicU64,
    deadlocks: AtomicU64,
    timeouts: AtomicU64,
    interrupts: AtomicU64,
}

/// Row locks, interval locks and their waiters, for all trees.
pub struct LockManager {
    table: Arc<TxnTable>,
    /// Held by those who begin a wait, and by those who end one without a grant: so the graph of
    /// waits only loses edges while somebody searches it.
    waits: Mutex<()>,
    shards: Box<[Shard]>,
    /// The owner of an id in an entry.
    holders: Box<[Holders]>,
    next_ticket: AtomicU64,
    next_owner: AtomicU64,
    events: Events,
}

impl LockManager {
    pub fn new(table: Arc<TxnTable>) -> Arc<LockManager> {
        Arc::new(LockManager {
            table,
            waits: Mutex::ranked(Rank::LockWaits, ()),
            shards: (0..SHARDS).map(|_| Shard::default()).collect(),
            holders: (0..HOLDER_SHARDS)
                .map(|_| Mutex::ranked(Rank::LockHolders, IdMap::default()))
                .collect(),
            next_ticket: AtomicU64::new(1),
            next_owner: AtomicU64::new(1),
            events: Events::default(),
        })
    }

    fn shard(&self, tree: TreeId) -> &Shard {
        &self.shards[tree.0 as usize % SHARDS]
    }

    fn holders(&self, txn: TxnId) -> &Holders {
        &self.holders[txn.0 as usize % HOLDER_SHARDS]
    }

    /// Looks at a tree's locks; `None`: there are none.
    pub(super) fn look<R>(&self, tree: TreeId, f: impl FnOnce(&TreeLocks) -> R) -> Option<R> {
        self.shard(tree).trees.lock().get(&tree).map(|locks| f(locks))
    }

    /// Changes a tree's locks. What follows from that is for `effects`.
    pub(super) fn change<R>(
        &self,
        tree: TreeId,
        effects: &mut Effects,
        f: impl FnOnce(&mut TreeLocks, &mut Effects) -> R,
    ) -> R {
        let shard = self.shard(tree);
        let mut trees = shard.trees.lock();
        let locks = trees.entry(tree).or_default();
        let before = locks.counts();
        let answer = f(locks, effects);
        let after = locks.counts();
        if before.0 != after.0 {
            shard.rows.fetch_add(after.0.wrapping_sub(before.0), Ordering::Release);
        }
        if before.1 != after.1 {
            shard.spans.fetch_add(after.1.wrapping_sub(before.1), Ordering::Release);
        }
        if locks.is_empty() && (locks.keeps_much() || trees.len() > IDLE_TREES_KEPT) {
            effects.tree = trees.remove(&tree);
        }
        answer
    }

    /// An identity for a session of the server; `session` is opaque and comes back in reports.
    pub fn owner(&self, session: u64) -> Arc<Owner> {
        Owner::new(self.next_owner.fetch_add(1, Ordering::Relaxed), session)
    }

    /// From now on `txn` belongs to `owner`. Call it before the first entry with this id is
    /// written.
    pub fn register_holder(&self, owner: &Arc<Owner>, txn: TxnId) {
        owner.set_txn(Some(txn));
        self.holders(txn).lock().insert(txn, Arc::clone(owner));
    }

    #[cfg(test)]
    pub fn owner_of(&self, txn: TxnId) -> Option<Arc<Owner>> {
        self.holders(txn).lock().get(&txn).map(Arc::clone)
    }

    fn is_over(&self, txn: TxnId) -> bool {
        !matches!(self.table.state(txn), TxnState::Active | TxnState::Prepared)
    }

    /// The owner of an id that is not over. One that nobody has registered gets an owner
    /// without a session.
    fn holder(&self, txn: TxnId) -> Option<Arc<Owner>> {
        let mut holders = self.holders(txn).lock();
        // It leaves the map after its state is stored.
        if self.is_over(txn) {
            return None;
        }
        let holder = holders.entry(txn).or_insert_with(|| {
            let holder = self.owner(0);
            holder.set_txn(Some(txn));
            holder
        });
        Some(Arc::clone(holder))
    }

    /// Whether a lock of the row would be granted, without taking it: for writers, whose id in
    /// the entry is their lock. They hold the leaf's latch exclusively. Answers whether the owner
    /// holds the row by itself.
    pub fn check(
        &self,
        owner: &Arc<Owner>,
        tree: TreeId,
        key: &[u8],
        mode: LockMode,
    ) -> std::result::Result<bool, Conflict> {
        let shard = self.shard(tree);
        let spans = shard.spans.load(Ordering::Acquire);
        if shard.rows.load(Ordering::Acquire) == 0 && spans == 0 {
            return Ok(false);
        }
        let looked = self.look(tree, |locks| {
            let admitted = locks.admit(owner, key, &Want::Row(mode));
            let admitted = admitted.map_err(|other| Conflict::with(other));
            admitted.map(|_| locks.row_mode(locks.slot(owner), key).is_some())
        });
        looked.unwrap_or(Ok(false))
    }

    /// Takes the lock if nobody is in the way. Callable under a page latch: it does not wait.
    pub fn try_lock(
        &self,
        owner: &Arc<Owner>,
        tree: TreeId,
        key: &[u8],
        mode: LockMode,
    ) -> std::result::Result<Granted, Conflict> {
        self.try_take(owner, tree, key, Want::Row(mode))
    }

    /// Takes the next-key lock of a scan: if nobody is in the way of `key`, or waits to insert
    /// into the range, the owner's interval grows over the range, which must contain the key; the
    /// interval then is the lock of the row.
    pub fn try_lock_next(
        &self,
        owner: &Arc<Owner>,
        tree: TreeId,
        range: (Bound<&[u8]>, Bound<&[u8]>),
        key: &[u8],
        mode: LockMode,
    ) -> std::result::Result<Granted, Conflict> {
        let span = Span::of(range.0, range.1).expect("a range with a key");
        self.try_take(owner, tree, key, Want::Span { span, mode, row: true })
    }

    /// Grows the owner's interval over a range whose rows are the caller's business, if nobody
    /// waits to insert into it.
    pub fn try_lock_range(
        &self,
        owner: &Arc<Owner>,
        tree: TreeId,
        range: (Bound<&[u8]>, Bound<&[u8]>),
        mode: LockMode,
    ) -> std::result::Result<Granted, Conflict> {
        let Some(span) = Span::of(range.0, range.1) else { return Ok(Granted::Held) };
        self.try_take(owner, tree, &[], Want::Span { span, mode, row: false })
    }

    fn try_take(
        &self,
        owner: &Arc<Owner>,
        tree: TreeId,
        key: &[u8],
        want: Want,
    ) -> std::result::Result<Granted, Conflict> {
        let mut effects = Effects::default();
        let granted = self.change(tree, &mut effects, |locks, effects| {
            let want = locks.narrowed(owner, key, want);
            let granted = locks.admit(owner, key, &want);
            let granted = granted.map_err(|other| Conflict::with(other))?;
            if granted != Granted::Held || want.span().is_some() {
                locks.take(owner, tree, key, &want, effects);
            }
            Ok(granted)
        });
        effects.finish();
        granted
    }

    /// Queues a request for the row; callable under a page latch. With an implicit holder, the
    /// writer whose id is in the entry, the hold of that one is recorded first.
    pub fn enqueue(
        self: &Arc<Self>,
        owner: &Arc<Owner>,
        tree: TreeId,
        key: &[u8],
        mode: LockMode,
        implicit_holder: Option<TxnId>,
    ) -> Enqueued {
        self.enqueue_want(owner, tree, key, Want::Row(mode), implicit_holder)
    }

    /// The same for the next-key lock of a scan.
    #[allow(clippy::too_many_arguments, reason = "what a next-key lock is, each named")]
    pub fn enqueue_next(
        self: &Arc<Self>,
        owner: &Arc<Owner>,
        tree: TreeId,
        range: (Bound<&[u8]>, Bound<&[u8]>),
        key: &[u8],
        mode: LockMode,
        implicit_holder: Option<TxnId>,
    ) -> Enqueued {
        let span = Span::of(range.0, range.1).expect("a range with a key");
        let want = Want::Span { span, mode, row: true };
        self.enqueue_want(owner, tree, key, want, implicit_holder)
    }

    /// The same for a range whose rows are the caller's business.
    pub fn enqueue_range(
        self: &Arc<Self>,
        owner: &Arc<Owner>,
        tree: TreeId,
        range: (Bound<&[u8]>, Bound<&[u8]>),
        mode: LockMode,
    ) -> Enqueued {
        let Some(span) = Span::of(range.0, range.1) else { return Enqueued::Granted };
        self.enqueue_want(owner, tree, &[], Want::Span { span, mode, row: false }, None)
    }

    /// The owner of an interval that keeps others from inserting `key`.
    pub fn insert_conflict(
        &self,
        owner: &Arc<Owner>,
        tree: TreeId,
        key: &[u8],
    ) -> Option<Conflict> {
        if self.shard(tree).spans.load(Ordering::Acquire) == 0 {
            return None;
        }
        let admitted = |locks: &TreeLocks| {
            let admitted = locks.admit(owner, key, &Want::Insert);
            admitted.err().map(|other| Conflict::with(other))
        };
        self.look(tree, admitted).flatten()
    }

    /// Waits for the end of those intervals. A place in line is held afterwards, until
    /// [`LockManager::finish_insert`]: look again, and insert.
    pub fn enqueue_insert(
        self: &Arc<Self>,
        owner: &Arc<Owner>,
        tree: TreeId,
        key: &[u8],
    ) -> Enqueued {
        self.enqueue_want(owner, tree, key, Want::Insert, None)
    }

    fn enqueue_want(
        self: &Arc<Self>,
        owner: &Arc<Owner>,
        tree: TreeId,
        key: &[u8],
        want: Want,
        implicit_holder: Option<TxnId>,
    ) -> Enqueued {
        if matches!(want, Want::Insert) && !owner.keeps_insert_at(tree, key) {
            self.finish_insert(owner);
        }
        let mut effects = Effects::default();
        let graph = self.waits.lock();
        let queued = self.change(tree, &mut effects, |locks, effects| {
            let mut holder = None;
            if let Some(txn) = implicit_holder.filter(|&txn| owner.txn() != Some(txn)) {
                let recorded = self.record_implicit(locks, txn, tree, key, effects);
                holder = Some(recorded.ok_or(Enqueued::HolderGone)?);
            }
            let want = locks.narrowed(owner, key, want);
            match locks.admit(owner, key, &want).map_err(|_| ()) {
                Ok(granted) => {
                    if granted != Granted::Held || want.span().is_some() {
                        locks.take(owner, tree, key, &want, effects);
                    }
                    return Err(Enqueued::Granted);
                }
                Err(()) if matches!(want, Want::Insert) && locks.wait_again(owner, key) => {}
                Err(()) => {
                    let ticket = self.next_ticket.fetch_add(1, Ordering::Relaxed);
                    locks.wait(owner, tree, key, want, ticket, effects);
                }
            }
            Ok(holder)
        });
        let holder = match queued {
            Ok(holder) => holder,
            Err(done) => {
                drop(graph);
                effects.finish();
                return done;
            }
        };
        self.events.waits.fetch_add(1, Ordering::Relaxed);
        for owner in std::iter::once(owner).chain(&holder).filter(|o| o.can_be_waited_for()) {
            self.end_deadlocks(owner, &mut effects);
        }
        drop(graph);
        effects.finish();
        Enqueued::Waiting(Ticket::new(self, owner))
    }

    /// Records that `txn` holds the row by its id in the entry; `None` when it is over. The end of
    /// a transaction stores its state, and then takes its list of trees under its `held`: what is
    /// recorded here before that will be released.
    fn record_implicit(
        &self,
        locks: &mut TreeLocks,
        txn: TxnId,
        tree: TreeId,
        key: &[u8],
        effects: &mut Effects,
    ) -> Option<Arc<Owner>> {
        let holder = self.holder(txn)?;
        {
            let mut held = holder.held.lock();
            if self.is_over(txn) {
                return None;
            }
            if locks.slot(&holder).is_none() {
                locks.enter_anew(&holder, &mut held, tree);
            }
        }
        locks.hold_row(&holder, tree, key, |grant| grant.implicit = true);
        locks.tell_of_row(&holder, key, LockMode::Exclusive, effects);
        Some(holder)
    }

    /// Whether the owner's explicit locks, or those recorded for its id, or its intervals give it
    /// the row in this mode.
    pub fn holds(&self, owner: &Arc<Owner>, tree: TreeId, key: &[u8], mode: LockMode) -> bool {
        let held = self.look(tree, |locks| {
            let slot = locks.slot(owner);
            locks.row_mode(slot, key).max(locks.covering(slot, key))
        });
        held.flatten() >= Some(mode)
    }

    /// The transaction is over and its state is stored: everything goes, waiters are granted in
    /// order, and the owner is ready for its next transaction. One that holds nothing takes no
    /// mutex of a tree; many holds go in parts, so that others get in between.
    pub fn release_all(&self, owner: &Arc<Owner>) {
        if let Some(txn) = owner.txn() {
            self.holders(txn).lock().remove(&txn);
            owner.set_txn(None);
        }
        owner.set_undo_count(0);
        self.finish_insert(owner);
        let trees = {
            let mut held = owner.held.lock();
            assert!(held.wait.is_none(), "an owner that waits cannot end");
            std::mem::take(&mut held.trees)
        };
        for tree in trees {
            let mut goes_on = true;
            while goes_on {
                let mut effects = Effects::default();
                goes_on = self.change(tree, &mut effects, |locks, effects| {
                    locks.release_some(owner, tree, effects)
                });
                effects.finish();
            }
        }
        owner.locks.store(0, Ordering::Relaxed);
    }

    /// The owner's insert is done, or given up: what came later may lock the gap.
    pub fn finish_insert(&self, owner: &Owner) {
        if !owner.has_insert.swap(false, Ordering::AcqRel) {
            return;
        }
        let Some(place) = owner.held.lock().insert.take() else { return };
        let mut effects = Effects::default();
        self.change(place.tree, &mut effects, |locks, effects| locks.leave(&place, effects));
        effects.finish();
    }

    /// Gives up the row that the owner asked for (READ COMMITTED, a row that does not match). A
    /// hold that rests on the owner's id in the entry stays.
    pub fn release_one(&self, owner: &Arc<Owner>, tree: TreeId, key: &[u8]) {
        self.release_part(owner, tree, std::iter::once(key), |grant| grant.explicit = None);
    }

    /// The owner has written the row, and so holds it by its id in the entry. A lock of the row
    /// that it took since the last place that it can be rolled back to is not needed any more.
    pub fn let_go(&self, owner: &Arc<Owner>, tree: TreeId, key: &[u8]) {
        let mut effects = Effects::default();
        self.change(tree, &mut effects, |locks, effects| locks.let_go(owner, key, effects));
        effects.finish();
    }

    /// The owner has written the row and is about to undo that: what its id in the entry gave it
    /// is held until [`LockManager::wake_keys`]; then too, if it `had_asked` for the row before it
    /// wrote it.
    pub fn hold_written(&self, owner: &Arc<Owner>, tree: TreeId, key: &[u8], had_asked: bool) {
        let mut effects = Effects::default();
        self.change(tree, &mut effects, |locks, _| {
            let covered = locks.covering(locks.slot(owner), key) == Some(LockMode::Exclusive);
            locks.hold_row(owner, tree, key, |grant| {
                grant.implicit = true;
                if had_asked && !covered {
                    grant.explicit = Some(LockMode::Exclusive);
                }
            });
        });
        effects.finish();
    }

    /// The owner's changes of these keys are undone (M7): holds that rested on its id in the
    /// entries go, explicit locks stay.
    pub fn wake_keys<'a>(
        &self,
        owner: &Arc<Owner>,
        tree: TreeId,
        keys: impl IntoIterator<Item = &'a [u8]>,
    ) {
        if self.shard(tree).rows.load(Ordering::Acquire) == 0 {
            return;
        }
        self.release_part(owner, tree, keys, |grant| grant.implicit = false);
    }

    fn release_part<'a>(
        &self,
        owner: &Arc<Owner>,
        tree: TreeId,
        keys: impl IntoIterator<Item = &'a [u8]>,
        weaken: impl Fn(&mut Grant),
    ) {
        let mut effects = Effects::default();
        self.change(tree, &mut effects, |locks, effects| {
            for key in keys {
                locks.weaken_row(owner, tree, key, &weaken, effects);
            }
        });
        effects.finish();
    }

    /// Ends the owner's present or next wait. Takes no lock that a waiter holds while it reports.
    pub fn interrupt(&self, owner: &Owner) {
        owner.interrupt();
    }

    pub fn stats(&self) -> LockStats {
        let sum = |count: fn(&Shard) -> &AtomicU32| {
            self.shards.iter().map(|s| u64::from(count(s).load(Ordering::Relaxed))).sum()
        };
        let Events { waits, deadlocks, timeouts, interrupts } = &self.events;
        LockStats {
            waits: waits.load(Ordering::Relaxed),
            deadlocks: deadlocks.load(Ordering::Relaxed),
            timeouts: timeouts.load(Ordering::Relaxed),
            interrupts: interrupts.load(Ordering::Relaxed),
            rows: sum(|s| &s.rows),
            intervals: sum(|s| &s.spans),
        }
    }

    pub(super) fn blockers(&self, owner: &Owner, nearest: bool) -> Vec<Arc<Owner>> {
        let Some(place) = owner.held.lock().wait.clone() else { return Vec::new() };
        self.look(place.tree, |locks| locks.blockers(&place, nearest)).unwrap_or_default()
    }

    /// Ends a wait without a grant; the caller holds `waits`. False: it was granted before.
    fn end_wait(&self, owner: &Owner, outcome: Outcome, effects: &mut Effects) -> bool {
        let Some(place) = owner.held.lock().wait.clone() else { return false };
        self.change(place.tree, effects, |locks, effects| {
            if owner.outcome() != Outcome::Waiting {
                return false;
            }
            owner.held.lock().wait = None;
            owner.set_outcome(outcome);
            locks.leave(&place, effects)
        })
    }

    /// Ends all cycles through `owner`, by waking the lightest of each with `Deadlock`.
    fn end_deadlocks(&self, owner: &Arc<Owner>, effects: &mut Effects) {
        while let Some(victim) = deadlock::victim(owner, |waiter| self.blockers(waiter, true)) {
            if self.end_wait(&victim, Outcome::Deadlock, effects) {
                self.events.deadlocks.fetch_add(1, Ordering::Relaxed);
                effects.wakes.push(victim);
            }
        }
    }
}

/// A place in line. Dropped without a wait it is given up.
#[must_use]
pub struct Ticket {
    manager: Arc<LockManager>,
    owner: Arc<Owner>,
    is_over: bool,
}

impl std::fmt::Debug for Ticket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Ticket({:?})", self.owner)
    }
}

impl Ticket {
    fn new(manager: &Arc<LockManager>, owner: &Arc<Owner>) -> Ticket {
        let (manager, owner) = (Arc::clone(manager), Arc::clone(owner));
        Ticket { manager, owner, is_over: false }
    }

    /// Waits until the lock is granted; it is held when this returns `Ok`. `report` is told of
    /// every session in the way (waiter, holder), before the sleep and whenever there is a new
    /// one, in this thread and without any mutex held.
    pub fn wait(mut self, timeout: Duration, report: &dyn Fn(u64, u64)) -> Result<()> {
        let deadline = Deadline::after(timeout);
        let mut reported = Vec::new();
        self.report_new(&mut reported, report);
        self.is_over = true;
        loop {
            match self.owner.outcome() {
                Outcome::Granted => return Ok(()),
                Outcome::Deadlock => return Err(Error::Deadlock),
                Outcome::Waiting => {}
            }
            if self.owner.is_interrupted() {
                return self.give_up(Error::Interrupted);
            }
            if self.owner.has_news.swap(false, Ordering::AcqRel) {
                self.report_new(&mut reported, report);
                continue;
            }
            if !self.owner.parker.park(deadline) {
                return self.give_up(Error::LockTimeout);
            }
        }
    }

    /// Reports the sessions in the way that were not reported yet.
    fn report_new(&self, reported: &mut Vec<u64>, report: &dyn Fn(u64, u64)) {
        let blockers = self.manager.blockers(&self.owner, false);
        let mut sessions: Vec<u64> = blockers.iter().map(|owner| owner.session()).collect();
        sessions.sort_unstable();
        sessions.dedup();
        sessions.retain(|session| !reported.contains(session));
        for &session in &sessions {
            report(self.owner.session(), session);
        }
        reported.append(&mut sessions);
    }

    /// Leaves the line, unless an outcome came first.
    fn give_up(&self, why: Error) -> Result<()> {
        let mut effects = Effects::default();
        let events = &self.manager.events;
        let graph = self.manager.waits.lock();
        let ended = self.manager.end_wait(&self.owner, Outcome::Granted, &mut effects);
        drop(graph);
        effects.finish();
        if !ended {
            return match self.owner.outcome() {
                Outcome::Deadlock => Err(Error::Deadlock),
                _ => Ok(()),
            };
        }
        let count = match why {
            Error::LockTimeout => &events.timeouts,
            _ => &events.interrupts,
        };
        count.fetch_add(1, Ordering::Relaxed);
        Err(why)
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if !self.is_over {
            // Whatever the outcome is: nobody waits for it.
            let _ = self.give_up(Error::Interrupted);
        }
    }
}

#[cfg(test)]
#[path = "manager_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "model_tests.rs"]
mod model_tests;

#[cfg(test)]
#[path = "bench.rs"]
mod bench;
