//! The owner of locks, which holds and waits, and how its sleep ends.

use super::key::Key;
use super::park::Parker;
use crate::base::{TreeId, TxnId};
use crate::os::rank::Rank;
use crate::os::sync::{Mutex, Ranked};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicU8, Ordering};
use std::sync::Arc;

/// Where an owner waits in line.
#[derive(Clone)]
pub(super) struct Place {
    pub(super) ticket: u64,
    pub(super) tree: TreeId,
    pub(super) key: Key,
}

/// What the manager knows of an owner. Locked with the mutex of a tree held, or alone.
#[derive(Default)]
pub(super) struct Held {
    /// Trees that know this owner, each once.
    pub(super) trees: Vec<TreeId>,
    pub(super) wait: Option<Place>,
    /// The place of an insert that waited and is not done.
    pub(super) insert: Option<Place>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Outcome {
    Waiting,
    Granted,
    Deadlock,
}

/// The identity under which a session's transaction holds and waits for locks. It outlives the
/// transaction: [`release_all`](super::LockManager::release_all) makes it ready for the next one.
pub struct Owner {
    pub(super) number: u64,
    session: AtomicU64,
    txn: AtomicU64,
    undo: AtomicU64,
    /// Rows and spans held.
    pub(in crate::txn) locks: AtomicU64,
    epoch: AtomicU32,
    /// Somebody new is in the way of its wait.
    pub(super) has_news: AtomicBool,
    /// It has a place in line for an insert.
    pub(super) has_insert: AtomicBool,
    interrupted: AtomicBool,
    outcome: AtomicU8,
    pub(super) parker: Parker,
    pub(super) held: Mutex<Held>,
}

impl Owner {
    pub(super) fn new(number: u64, session: u64) -> Arc<Owner> {
        Arc::new(Owner {
            number,
            session: AtomicU64::new(session),
            txn: AtomicU64::new(0),
            undo: AtomicU64::new(0),
            locks: AtomicU64::new(0),
            epoch: AtomicU32::new(0),
            has_news: AtomicBool::new(false),
            has_insert: AtomicBool::new(false),
            interrupted: AtomicBool::new(false),
            outcome: AtomicU8::new(Outcome::Granted as u8),
            parker: Parker::default(),
            held: Mutex::ranked(Rank::OwnerHeld, Held::default()),
        })
    }

    /// The server's name for the session, opaque here; zero for a transaction without one.
    pub fn session(&self) -> u64 {
        self.session.load(Ordering::Acquire)
    }

    /// The transaction outlives its session, whose name may soon be another's.
    pub fn leave_session(&self) {
        self.session.store(0, Ordering::Release);
    }

    /// Counts the places that the transaction can be rolled back to.
    pub fn epoch(&self) -> u32 {
        self.epoch.load(Ordering::Relaxed)
    }

    /// From now on the transaction can be rolled back to here.
    pub fn begin_epoch(&self) {
        self.epoch.fetch_add(1, Ordering::Relaxed);
    }

    /// The transaction's id, once it has one.
    pub fn txn(&self) -> Option<TxnId> {
        match self.txn.load(Ordering::Acquire) {
            0 => None,
            id => Some(TxnId(id)),
        }
    }

    pub(super) fn set_txn(&self, txn: Option<TxnId>) {
        self.txn.store(txn.map_or(0, |id| id.0), Ordering::Release);
    }

    /// How many rows a rollback would have to undo: part of the weight.
    pub fn set_undo_count(&self, count: u64) {
        self.undo.store(count, Ordering::Relaxed);
    }

    /// What it costs to roll this owner back: the victim of a deadlock is the lightest.
    pub fn weight(&self) -> u64 {
        self.undo.load(Ordering::Relaxed).saturating_add(self.locks.load(Ordering::Relaxed))
    }

    /// An owner that holds nothing is in nobody's way, so no cycle of waiters passes through it.
    pub(super) fn can_be_waited_for(&self) -> bool {
        self.locks.load(Ordering::Relaxed) > 0
            || self.txn.load(Ordering::Acquire) != 0
            || self.has_insert.load(Ordering::Acquire)
    }

    /// Does its insert of this key keep a place in line?
    pub(super) fn keeps_insert_at(&self, tree: TreeId, key: &[u8]) -> bool {
        let held = self.held.lock();
        held.insert.as_ref().is_some_and(|place| place.tree == tree && *place.key == *key)
    }

    pub fn is_interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Acquire)
    }

    /// Ends the present wait, or the next one, with `Interrupted`. Takes only the parker's own
    /// lock, which no thread holds while it calls out.
    pub fn interrupt(&self) {
        self.interrupted.store(true, Ordering::Release);
        self.parker.unpark();
    }

    /// The kill was for the statement only: the session goes on.
    pub fn clear_interrupt(&self) {
        self.interrupted.store(false, Ordering::Release);
    }

    pub(super) fn outcome(&self) -> Outcome {
        match self.outcome.load(Ordering::Acquire) {
            0 => Outcome::Waiting,
            1 => Outcome::Granted,
            _ => Outcome::Deadlock,
        }
    }

    pub(super) fn set_outcome(&self, outcome: Outcome) {
        self.outcome.store(outcome as u8, Ordering::Release);
    }
}

impl PartialEq for Owner {
    fn eq(&self, other: &Owner) -> bool {
        self.number == other.number
    }
}

impl Eq for Owner {}

impl std::fmt::Debug for Owner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Owner({}, session {}, {:?})", self.number, self.session(), self.txn())
    }
}
