//! Everything under the manager's mutex: queues, intervals, and the rules of who may go ahead.

use super::interrupt::{Held, Outcome, Owner, Wait, WaitKind};
use super::lock_queue::{Grant, Mode, Queue, Waiter};
use super::range::{borrowed, is_empty_range, Intervals};
use crate::base::{TreeId, TxnId};
use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeSet, HashMap};
use std::hash::BuildHasherDefault;
use std::ops::Bound;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::Arc;

/// Keyed without entropy: the same run takes the same course.
type Map<K, V> = HashMap<K, V, BuildHasherDefault<DefaultHasher>>;

/// Owners to unpark when the mutex is released.
pub(super) type Wakes = Vec<Arc<Owner>>;

/// A tree's map is given back when it is empty and grew beyond this.
const ROWS_KEPT: usize = 1024;

pub(super) struct InsertWaiter {
    pub(super) ticket: u64,
    pub(super) owner: Arc<Owner>,
    pub(super) key: Arc<[u8]>,
}

#[derive(Default)]
pub(super) struct TreeLocks {
    pub(super) rows: Map<Arc<[u8]>, Queue>,
    pub(super) intervals: Intervals,
    /// In order of arrival.
    pub(super) inserts: Vec<InsertWaiter>,
    /// Keys whose queue has waiters: what the end of an interval looks through.
    waiting_keys: BTreeSet<Arc<[u8]>>,
}

/// Why a request must wait.
pub(super) enum Admission {
    Free,
    Blocked(Arc<Owner>),
}

impl TreeLocks {
    pub(super) fn is_privileged(&self, owner: &Owner, key: &[u8]) -> bool {
        let holds = self.rows.get(key).is_some_and(|q| q.grant_of(owner).is_some());
        holds || self.intervals.covering(owner, key).is_some()
    }

    /// The strongest mode in which `owner` holds the row, by itself or through an interval.
    pub(super) fn held_mode(&self, owner: &Owner, key: &[u8]) -> Option<Mode> {
        let row = self.rows.get(key).and_then(|q| q.grant_of(owner)).map(|g| g.mode());
        row.max(self.intervals.covering(owner, key))
    }

    /// May a new request for the row go ahead of, or beside, everybody there?
    pub(super) fn admit(&self, owner: &Owner, key: &[u8], mode: Mode) -> Admission {
        if let Some(other) = self.intervals.against(owner, key, Some(mode)).next() {
            return Admission::Blocked(Arc::clone(other));
        }
        let Some(queue) = self.rows.get(key) else { return Admission::Free };
        if let Some(other) = queue.holders_against(owner, mode).next() {
            return Admission::Blocked(Arc::clone(other));
        }
        if !queue.waiting.is_empty() && !self.is_privileged(owner, key) {
            if let Some(waiter) = queue.waiters_against(queue.waiting.len(), mode).next() {
                return Admission::Blocked(Arc::clone(&waiter.owner));
            }
        }
        Admission::Free
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.intervals.len() == 0 && self.inserts.is_empty()
    }

    fn queue_mut(&mut self, key: &[u8]) -> (&mut Queue, bool) {
        if self.rows.contains_key(key) {
            return (self.rows.get_mut(key).expect("just found"), false);
        }
        (self.rows.entry(Arc::from(key)).or_default(), true)
    }
}

/// Numbers for the statistics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LockStats {
    pub waits: u64,
    pub deadlocks: u64,
    pub timeouts: u64,
    pub interrupts: u64,
    /// Locked or awaited rows, and intervals, now.
    pub rows: u64,
    pub intervals: u64,
}

const COUNTER_SLOTS: usize = 256;

/// How many queues and intervals there are, by tree (hashed): what writers look at instead of
/// taking the mutex. A writer holds its leaf's latch exclusively, and whoever locks a key of that
/// leaf for the first time holds the latch too, so the latch orders the two.
pub(super) struct Counters {
    rows: [AtomicU32; COUNTER_SLOTS],
    intervals: [AtomicU32; COUNTER_SLOTS],
}

impl Counters {
    pub(super) fn rows(&self, tree: TreeId) -> &AtomicU32 {
        &self.rows[tree.0 as usize % COUNTER_SLOTS]
    }

    pub(super) fn intervals(&self, tree: TreeId) -> &AtomicU32 {
        &self.intervals[tree.0 as usize % COUNTER_SLOTS]
    }

    pub(super) fn sums(&self) -> (u64, u64) {
        let sum = |slots: &[AtomicU32]| {
            slots.iter().map(|slot| u64::from(slot.load(Ordering::Relaxed))).sum()
        };
        (sum(&self.rows), sum(&self.intervals))
    }
}

impl Default for Counters {
    fn default() -> Counters {
        let zeros = || std::array::from_fn(|_| AtomicU32::new(0));
        Counters { rows: zeros(), intervals: zeros() }
    }
}

#[derive(Default)]
pub(super) struct Locks {
    pub(super) counters: Arc<Counters>,
    pub(super) trees: Map<TreeId, TreeLocks>,
    /// Who is behind an id in an entry.
    pub(super) holders: Map<TxnId, Arc<Owner>>,
    pub(super) next_ticket: u64,
    pub(super) next_owner: u64,
    pub(super) stats: LockStats,
}

impl Locks {
    pub(super) fn new_owner(&mut self, session: u64) -> Arc<Owner> {
        self.next_owner += 1;
        Owner::new(self.next_owner, session)
    }

    /// Records a granted row.
    pub(super) fn grant(&mut self, owner: &Arc<Owner>, tree: TreeId, key: &[u8], mode: Mode) {
        self.hold(owner, tree, key, |queue| queue.grant(owner, mode));
    }

    pub(super) fn grant_implicit(&mut self, owner: &Arc<Owner>, tree: TreeId, key: &[u8]) {
        self.hold(owner, tree, key, |queue| queue.grant_implicit(owner));
    }

    fn hold(
        &mut self,
        owner: &Arc<Owner>,
        tree: TreeId,
        key: &[u8],
        record: impl FnOnce(&mut Queue) -> bool,
    ) {
        let locks = self.trees.entry(tree).or_default();
        let (queue, is_new_queue) = locks.queue_mut(key);
        let is_new_row = record(queue);
        if is_new_row {
            let (key, _) = locks.rows.get_key_value(key).expect("the queue is there");
            owner.held.lock().rows.push((tree, Arc::clone(key)));
            owner.locks.fetch_add(1, Ordering::Relaxed);
        }
        self.counters.rows(tree).fetch_add(u32::from(is_new_queue), Ordering::Release);
    }

    /// Queues a request for the row. The caller looks for deadlocks next.
    pub(super) fn wait_for_row(
        &mut self,
        owner: &Arc<Owner>,
        tree: TreeId,
        key: &[u8],
        mode: Mode,
    ) {
        let ticket = self.take_ticket(owner);
        let locks = self.trees.entry(tree).or_default();
        let privileged = locks.is_privileged(owner, key);
        let (queue, is_new_queue) = locks.queue_mut(key);
        queue.push(Waiter { ticket, owner: Arc::clone(owner), mode, privileged });
        let (key, _) = locks.rows.get_key_value(key).expect("the queue is there");
        let key = Arc::clone(key);
        locks.waiting_keys.insert(Arc::clone(&key));
        self.counters.rows(tree).fetch_add(u32::from(is_new_queue), Ordering::Release);
        let kind = WaitKind::Row { mode, privileged };
        owner.held.lock().wait = Some(Wait { ticket, tree, key, kind });
    }

    /// Queues an insert until the intervals over its key are gone.
    pub(super) fn wait_for_insert(&mut self, owner: &Arc<Owner>, tree: TreeId, key: &[u8]) {
        let ticket = self.take_ticket(owner);
        let key: Arc<[u8]> = Arc::from(key);
        let locks = self.trees.entry(tree).or_default();
        let waiter = InsertWaiter { ticket, owner: Arc::clone(owner), key: Arc::clone(&key) };
        locks.inserts.push(waiter);
        let kind = WaitKind::Insert;
        owner.held.lock().wait = Some(Wait { ticket, tree, key, kind });
    }

    fn take_ticket(&mut self, owner: &Owner) -> u64 {
        debug_assert!(owner.held.lock().wait.is_none(), "an owner waits for one thing");
        owner.set_outcome(Outcome::Waiting);
        self.stats.waits += 1;
        self.next_ticket += 1;
        self.next_ticket
    }

    /// Takes a waiting owner out of its queue; those behind may go.
    pub(super) fn cancel(&mut self, owner: &Owner, wakes: &mut Wakes) {
        let Some(wait) = owner.held.lock().wait.take() else { return };
        let locks = self.trees.get_mut(&wait.tree).expect("a tree that is waited on");
        match wait.kind {
            WaitKind::Insert => locks.inserts.retain(|w| w.ticket != wait.ticket),
            WaitKind::Row { privileged, .. } => {
                let queue = locks.rows.get_mut(&*wait.key).expect("a queue that is waited in");
                let at = queue.position(privileged, wait.ticket);
                queue.waiting.remove(at);
                self.pump(wait.tree, &wait.key, wakes);
            }
        }
    }

    /// Grants the row to every waiter that nothing holds back any more, and forgets a queue that
    /// is empty. Called after every change that may free somebody.
    pub(super) fn pump(&mut self, tree: TreeId, key: &[u8], wakes: &mut Wakes) {
        let Some(locks) = self.trees.get_mut(&tree) else { return };
        let Some(queue) = locks.rows.get_mut(key) else { return };
        let mut strongest_left: Option<Mode> = None;
        let mut at = 0;
        while at < queue.waiting.len() {
            let waiter = &queue.waiting[at];
            let behind = !waiter.privileged
                && strongest_left.is_some_and(|mode| mode.conflicts(waiter.mode));
            let blocked = behind
                || queue.holders_against(&waiter.owner, waiter.mode).next().is_some()
                || locks.intervals.against(&waiter.owner, key, Some(waiter.mode)).next().is_some();
            if blocked {
                strongest_left = strongest_left.max(Some(waiter.mode));
                if !waiter.privileged && waiter.mode == Mode::Exclusive {
                    break;
                }
                at += 1;
                continue;
            }
            let waiter = queue.waiting.remove(at).expect("in bounds");
            let mut held = waiter.owner.held.lock();
            let wait = held.wait.take().expect("its owner waits");
            if queue.grant(&waiter.owner, waiter.mode) {
                held.rows.push((tree, wait.key));
                waiter.owner.locks.fetch_add(1, Ordering::Relaxed);
            }
            drop(held);
            waiter.owner.set_outcome(Outcome::Granted);
            wakes.push(waiter.owner);
        }
        if queue.waiting.is_empty() {
            locks.waiting_keys.remove(key);
            if queue.is_empty() {
                locks.rows.remove(key);
                self.counters.rows(tree).fetch_sub(1, Ordering::Release);
            }
        }
    }

    /// Takes away a part of what the owner's hold of the row rests on; the hold goes when
    /// nothing is left.
    pub(super) fn weaken_row(
        &mut self,
        owner: &Owner,
        tree: TreeId,
        key: &[u8],
        weaken: impl Fn(&mut Grant),
        wakes: &mut Wakes,
    ) {
        let Some(queue) = self.trees.get_mut(&tree).and_then(|t| t.rows.get_mut(key)) else {
            return;
        };
        let Some(grant) = queue.granted.iter_mut().find(|g| *g.owner == *owner) else { return };
        weaken(grant);
        if grant.explicit.is_some() || grant.implicit {
            return self.pump(tree, key, wakes);
        }
        let mut held = owner.held.lock();
        // What is given up one by one was mostly taken last.
        let at = held.rows.iter().rposition(|row| row.0 == tree && *row.1 == *key);
        held.rows.swap_remove(at.expect("a held row"));
        drop(held);
        self.release_row(owner, tree, key, wakes);
    }

    /// Releases one row of the owner, whatever it rests on.
    pub(super) fn release_row(
        &mut self,
        owner: &Owner,
        tree: TreeId,
        key: &[u8],
        wakes: &mut Wakes,
    ) {
        let Some(queue) = self.trees.get_mut(&tree).and_then(|t| t.rows.get_mut(key)) else {
            return;
        };
        if queue.revoke(owner) {
            owner.locks.fetch_sub(1, Ordering::Relaxed);
            self.pump(tree, key, wakes);
        }
    }

    /// Releases everything of an owner that does not wait.
    pub(super) fn release_all(&mut self, owner: &Owner, wakes: &mut Wakes) {
        let Held { rows, ranges, wait } = std::mem::take(&mut *owner.held.lock());
        assert!(wait.is_none(), "an owner that waits cannot end");
        for (tree, key) in &rows {
            self.release_row(owner, *tree, key, wakes);
        }
        for tree in &ranges {
            self.release_ranges(owner, *tree, wakes);
        }
        for tree in rows.iter().map(|r| r.0).chain(ranges) {
            let is_idle = |t: &TreeLocks| t.is_empty() && t.rows.capacity() > ROWS_KEPT;
            if self.trees.get(&tree).is_some_and(is_idle) {
                self.trees.remove(&tree);
            }
        }
        owner.locks.store(0, Ordering::Relaxed);
    }

    /// Adds a range to the owner's intervals; an empty one changes nothing.
    pub(super) fn grow_range(
        &mut self,
        owner: &Arc<Owner>,
        tree: TreeId,
        low: Bound<&[u8]>,
        high: Bound<&[u8]>,
        mode: Mode,
    ) {
        if is_empty_range(low, high) {
            return;
        }
        let intervals = &mut self.trees.entry(tree).or_default().intervals;
        let before = intervals.len() as u32;
        intervals.grow(owner, low, high, mode);
        let after = intervals.len() as u32;
        let counter = self.counters.intervals(tree);
        counter.fetch_add(after.wrapping_sub(before), Ordering::Release);
        let mut held = owner.held.lock();
        if !held.ranges.contains(&tree) {
            held.ranges.push(tree);
        }
    }

    fn release_ranges(&mut self, owner: &Owner, tree: TreeId, wakes: &mut Wakes) {
        let Some(locks) = self.trees.get_mut(&tree) else { return };
        let removed = locks.intervals.remove(owner);
        self.counters.intervals(tree).fetch_sub(removed.len() as u32, Ordering::Release);
        let mut keys = Vec::new();
        for interval in &removed {
            let range = (borrowed(&interval.low), borrowed(&interval.high));
            keys.extend(locks.waiting_keys.range::<[u8], _>(range).map(Arc::clone));
        }
        let TreeLocks { inserts, intervals, .. } = locks;
        inserts.retain(|waiter| {
            if intervals.against(&waiter.owner, &waiter.key, None).next().is_some() {
                return true;
            }
            waiter.owner.held.lock().wait = None;
            waiter.owner.set_outcome(Outcome::Granted);
            wakes.push(Arc::clone(&waiter.owner));
            false
        });
        for key in keys {
            self.pump(tree, &key, wakes);
        }
    }
}
