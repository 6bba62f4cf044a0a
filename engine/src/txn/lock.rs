//! The lock manager: what sessions call.

use super::deadlock;
use super::interrupt::{Outcome, Owner};
use super::lock_queue::Mode;
use super::lock_state::{Admission, Counters, LockStats, Locks, TreeLocks, Wakes};
use super::park::Deadline;
use super::table::{TxnState, TxnTable};
use crate::base::{Error, Result, TreeId, TxnId};
use crate::os::sync::Mutex;
use std::ops::Bound;
use std::sync::atomic::Ordering;
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

/// Row locks, interval locks and their waiters, for all trees.
pub struct LockManager {
    table: Arc<TxnTable>,
    counters: Arc<Counters>,
    locks: Mutex<Locks>,
}

impl LockManager {
    pub fn new(table: Arc<TxnTable>) -> Arc<LockManager> {
        let locks = Locks::default();
        let counters = Arc::clone(&locks.counters);
        Arc::new(LockManager { table, counters, locks: Mutex::new(locks) })
    }

    /// An identity for a session of the server; `session` is opaque and comes back in reports.
    pub fn owner(&self, session: u64) -> Arc<Owner> {
        self.locks.lock().new_owner(session)
    }

    /// From now on `owner` is behind `txn`. Call it before the first entry with this id is
    /// written. Takes over what others' waits have recorded for a recovered transaction.
    pub fn register_holder(&self, owner: &Arc<Owner>, txn: TxnId) {
        let mut locks = self.locks.lock();
        owner.set_txn(Some(txn));
        let Some(before) = locks.holders.insert(txn, Arc::clone(owner)) else { return };
        if before == *owner {
            return;
        }
        let rows = std::mem::take(&mut before.held.lock().rows);
        for (tree, key) in rows {
            let row = locks.trees.get_mut(&tree).and_then(|t| t.rows.get_mut(&key));
            row.expect("a held row").revoke(&before);
            locks.grant_implicit(owner, tree, &key);
        }
    }

    pub fn owner_of(&self, txn: TxnId) -> Option<Arc<Owner>> {
        self.locks.lock().holders.get(&txn).map(Arc::clone)
    }

    /// Whether a lock of the row would be granted, without taking it: for writers, whose id in
    /// the entry is their lock. They hold the leaf's latch exclusively.
    pub fn check(
        &self,
        owner: &Arc<Owner>,
        tree: TreeId,
        key: &[u8],
        mode: Mode,
    ) -> std::result::Result<(), Conflict> {
        let rows = self.counters.rows(tree).load(Ordering::Acquire);
        let intervals = self.counters.intervals(tree).load(Ordering::Acquire);
        if rows == 0 && intervals == 0 {
            return Ok(());
        }
        let locks = self.locks.lock();
        let Some(tree) = locks.trees.get(&tree) else { return Ok(()) };
        // As in `admit`: who holds the row goes on, whatever intervals lie over it. A row that is
        // not there can be held by one and lie in the interval of another; inserts look for that.
        let by_row = tree.rows.get(key).and_then(|q| q.grant_of(owner)).map(|g| g.mode());
        if by_row >= Some(mode) {
            return Ok(());
        }
        match tree.admit(owner, key, mode) {
            Admission::Free => Ok(()),
            Admission::Blocked(other) => Err(Conflict::with(&other)),
        }
    }

    /// Takes the lock if nobody is in the way. Callable under a page latch: it does not wait.
    pub fn try_lock(
        &self,
        owner: &Arc<Owner>,
        tree: TreeId,
        key: &[u8],
        mode: Mode,
    ) -> std::result::Result<Granted, Conflict> {
        let mut locks = self.locks.lock();
        let granted = admit(&mut locks, owner, tree, key, mode)?;
        if granted != Granted::Held {
            locks.grant(owner, tree, key, mode);
        }
        Ok(granted)
    }

    /// Takes the next-key lock of a scan: if nobody is in the way of `key`, the owner's interval
    /// grows over the range, which must contain it; the interval then is the lock of the row.
    pub fn try_lock_next(
        &self,
        owner: &Arc<Owner>,
        tree: TreeId,
        range: (Bound<&[u8]>, Bound<&[u8]>),
        key: &[u8],
        mode: Mode,
    ) -> std::result::Result<Granted, Conflict> {
        let mut locks = self.locks.lock();
        let granted = admit(&mut locks, owner, tree, key, mode)?;
        locks.grow_range(owner, tree, range.0, range.1, mode);
        Ok(granted)
    }

    /// Queues a request for the row; callable under a page latch. With an implicit holder, the
    /// writer whose id is in the entry, the hold of that one is recorded first.
    pub fn enqueue(
        self: &Arc<Self>,
        owner: &Arc<Owner>,
        tree: TreeId,
        key: &[u8],
        mode: Mode,
        implicit_holder: Option<TxnId>,
    ) -> Enqueued {
        let mut locks = self.locks.lock();
        let mut holder = None;
        if let Some(txn) = implicit_holder.filter(|&txn| owner.txn() != Some(txn)) {
            // The end of a transaction stores its state first and then comes for this mutex: what
            // is recorded here for one that is not over will be released.
            if !matches!(self.table.state(txn), TxnState::Active | TxnState::Prepared) {
                return Enqueued::HolderGone;
            }
            holder = Some(record_implicit(&mut locks, txn, tree, key));
        }
        match admit(&mut locks, owner, tree, key, mode) {
            Ok(Granted::Held) => return Enqueued::Granted,
            Ok(Granted::New | Granted::Raised) => {
                locks.grant(owner, tree, key, mode);
                return Enqueued::Granted;
            }
            Err(_) => locks.wait_for_row(owner, tree, key, mode),
        }
        let mut wakes = Wakes::new();
        deadlock::resolve(&mut locks, owner, &mut wakes);
        if let Some(holder) = holder {
            deadlock::resolve(&mut locks, &holder, &mut wakes);
        }
        drop(locks);
        wake(wakes);
        Enqueued::Waiting(Ticket::new(self, owner))
    }

    /// The owner of an interval that keeps others from inserting `key`.
    pub fn insert_conflict(
        &self,
        owner: &Arc<Owner>,
        tree: TreeId,
        key: &[u8],
    ) -> Option<Conflict> {
        if self.counters.intervals(tree).load(Ordering::Acquire) == 0 {
            return None;
        }
        let locks = self.locks.lock();
        let mut others = locks.trees.get(&tree)?.intervals.against(owner, key, None);
        others.next().map(|other| Conflict::with(other))
    }

    /// Waits for the end of those intervals. Nothing is held afterwards: look again.
    pub fn enqueue_insert(
        self: &Arc<Self>,
        owner: &Arc<Owner>,
        tree: TreeId,
        key: &[u8],
    ) -> Enqueued {
        let mut locks = self.locks.lock();
        let is_free = |t: &TreeLocks| t.intervals.against(owner, key, None).next().is_none();
        if locks.trees.get(&tree).is_none_or(is_free) {
            return Enqueued::Granted;
        }
        locks.wait_for_insert(owner, tree, key);
        let mut wakes = Wakes::new();
        deadlock::resolve(&mut locks, owner, &mut wakes);
        drop(locks);
        wake(wakes);
        Enqueued::Waiting(Ticket::new(self, owner))
    }

    /// Grows the owner's interval. Never waits: intervals do not conflict with each other, and the
    /// rows in the range are the caller's business.
    pub fn lock_range(
        &self,
        owner: &Arc<Owner>,
        tree: TreeId,
        low: Bound<&[u8]>,
        high: Bound<&[u8]>,
        mode: Mode,
    ) {
        self.locks.lock().grow_range(owner, tree, low, high, mode);
    }

    /// Whether the owner's explicit locks, or those recorded for its id, or its intervals give it
    /// the row in this mode.
    pub fn holds(&self, owner: &Arc<Owner>, tree: TreeId, key: &[u8], mode: Mode) -> bool {
        let locks = self.locks.lock();
        let held = locks.trees.get(&tree).and_then(|t| t.held_mode(owner, key));
        held >= Some(mode)
    }

    /// The transaction is over and its state is stored: everything goes, waiters are granted in
    /// order, and the owner is ready for its next transaction.
    pub fn release_all(&self, owner: &Arc<Owner>) {
        let mut wakes = Wakes::new();
        let mut locks = self.locks.lock();
        if let Some(txn) = owner.txn() {
            locks.holders.remove(&txn);
            owner.set_txn(None);
        }
        owner.set_undo_count(0);
        locks.release_all(owner, &mut wakes);
        drop(locks);
        wake(wakes);
    }

    /// Gives up the row that the owner asked for (READ COMMITTED, a row that does not match). A
    /// hold that rests on the owner's id in the entry stays.
    pub fn release_one(&self, owner: &Arc<Owner>, tree: TreeId, key: &[u8]) {
        self.release_part(owner, tree, std::iter::once(key), |grant| grant.explicit = None);
    }

    /// The owner's changes of these keys are undone (M7): holds that rested on its id in the
    /// entries go, explicit locks stay.
    pub fn wake_keys<'a>(
        &self,
        owner: &Arc<Owner>,
        tree: TreeId,
        keys: impl IntoIterator<Item = &'a [u8]>,
    ) {
        if self.counters.rows(tree).load(Ordering::Acquire) == 0 {
            return;
        }
        self.release_part(owner, tree, keys, |grant| grant.implicit = false);
    }

    fn release_part<'a>(
        &self,
        owner: &Arc<Owner>,
        tree: TreeId,
        keys: impl IntoIterator<Item = &'a [u8]>,
        weaken: impl Fn(&mut super::lock_queue::Grant),
    ) {
        let mut wakes = Wakes::new();
        let mut locks = self.locks.lock();
        for key in keys {
            locks.weaken_row(owner, tree, key, &weaken, &mut wakes);
        }
        drop(locks);
        wake(wakes);
    }

    /// Ends the owner's present or next wait. Takes no lock that a waiter holds while it reports.
    pub fn interrupt(&self, owner: &Owner) {
        owner.interrupt();
    }

    pub fn stats(&self) -> LockStats {
        let (rows, intervals) = self.counters.sums();
        LockStats { rows, intervals, ..self.locks.lock().stats }
    }
}

fn admit(
    locks: &mut Locks,
    owner: &Arc<Owner>,
    tree: TreeId,
    key: &[u8],
    mode: Mode,
) -> std::result::Result<Granted, Conflict> {
    let Some(tree) = locks.trees.get(&tree) else { return Ok(Granted::New) };
    let by_row = tree.rows.get(key).and_then(|q| q.grant_of(owner)).map(|g| g.mode());
    if by_row >= Some(mode) {
        return Ok(Granted::Held);
    }
    if let Admission::Blocked(other) = tree.admit(owner, key, mode) {
        return Err(Conflict::with(&other));
    }
    let is_covered = tree.intervals.covering(owner, key) >= Some(mode);
    Ok(match by_row {
        _ if is_covered => Granted::Held,
        Some(_) => Granted::Raised,
        None => Granted::New,
    })
}

/// Records that `txn` holds the row by its id in the entry. A recovered transaction has no
/// session: it gets an owner of its own.
fn record_implicit(locks: &mut Locks, txn: TxnId, tree: TreeId, key: &[u8]) -> Arc<Owner> {
    let holder = match locks.holders.get(&txn) {
        Some(holder) => Arc::clone(holder),
        None => {
            let holder = locks.new_owner(0);
            holder.set_txn(Some(txn));
            locks.holders.insert(txn, Arc::clone(&holder));
            holder
        }
    };
    locks.grant_implicit(&holder, tree, key);
    holder
}

fn wake(wakes: Wakes) {
    for owner in wakes {
        owner.parker.unpark();
    }
}

/// A place in a queue. Dropped without a wait it is given up.
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
    /// every session in the way (waiter, holder), before the sleep and without any mutex held.
    pub fn wait(mut self, timeout: Duration, report: &dyn Fn(u64, u64)) -> Result<()> {
        let deadline = Deadline::after(timeout);
        for holder in self.sessions_ahead() {
            report(self.owner.session(), holder);
        }
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
            if !self.owner.parker.park(deadline) {
                return self.give_up(Error::LockTimeout);
            }
        }
    }

    fn sessions_ahead(&self) -> Vec<u64> {
        let locks = self.manager.locks.lock();
        let mut sessions: Vec<u64> =
            deadlock::all_blockers(&locks, &self.owner).iter().map(|o| o.session()).collect();
        sessions.sort_unstable();
        sessions.dedup();
        sessions
    }

    /// Leaves the queue, unless an outcome came first.
    fn give_up(&self, why: Error) -> Result<()> {
        let mut wakes = Wakes::new();
        let mut locks = self.manager.locks.lock();
        match self.owner.outcome() {
            Outcome::Granted => return Ok(()),
            Outcome::Deadlock => return Err(Error::Deadlock),
            Outcome::Waiting => {}
        }
        locks.cancel(&self.owner, &mut wakes);
        match why {
            Error::LockTimeout => locks.stats.timeouts += 1,
            _ => locks.stats.interrupts += 1,
        }
        drop(locks);
        wake(wakes);
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
#[path = "lock_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "lock_model_tests.rs"]
mod model_tests;
