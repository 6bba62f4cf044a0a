//! Who holds and waits: the owner of locks, and how its sleep ends.

use super::lock_queue::Mode;
use super::park::Parker;
use crate::base::{TreeId, TxnId};
use crate::os::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicU8, Ordering};
use std::sync::Arc;

/// What the owner waits for.
#[derive(Clone)]
pub(super) struct Wait {
    pub(super) ticket: u64,
    pub(super) tree: TreeId,
    pub(super) key: Arc<[u8]>,
    pub(super) kind: WaitKind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum WaitKind {
    /// A lock of the row. A privileged waiter holds the row already, or an interval over it, and
    /// waits only for other holders.
    Row { mode: Mode, privileged: bool },
    /// The end of all intervals of others over the key.
    Insert,
}

/// What the manager knows of an owner. Locked only with the manager's mutex held.
#[derive(Default)]
pub(super) struct Held {
    pub(super) rows: Vec<(TreeId, Arc<[u8]>)>,
    /// Trees with intervals of this owner, each once.
    pub(super) ranges: Vec<TreeId>,
    pub(super) wait: Option<Wait>,
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
    session: u64,
    txn: AtomicU64,
    undo: AtomicU64,
    pub(super) locks: AtomicU64,
    interrupted: AtomicBool,
    outcome: AtomicU8,
    pub(super) parker: Parker,
    pub(super) held: Mutex<Held>,
}

impl Owner {
    pub(super) fn new(number: u64, session: u64) -> Arc<Owner> {
        Arc::new(Owner {
            number,
            session,
            txn: AtomicU64::new(0),
            undo: AtomicU64::new(0),
            locks: AtomicU64::new(0),
            interrupted: AtomicBool::new(false),
            outcome: AtomicU8::new(Outcome::Granted as u8),
            parker: Parker::default(),
            held: Mutex::default(),
        })
    }

    /// The server's name for the session, opaque here; zero for a recovered transaction.
    pub fn session(&self) -> u64 {
        self.session
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
        write!(f, "Owner({}, session {}, {:?})", self.number, self.session, self.txn())
    }
}
