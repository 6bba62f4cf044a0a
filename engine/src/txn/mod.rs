//! Room `txn`: who sees which version and who waits.
//!
//! The core, below, knows no trees, pages or log: the transaction table says which ids are
//! committed and in what order, snapshots say what a reader sees, the lock manager who waits.
//!
//! ```text
//! id:     allocate -> active -> set_prepared -> prepared
//!         active | prepared -> commit -> committed(csn)
//!         active | prepared -> abort -> aborted -> forget (every entry is reverted)
//! waiter: enqueue -> waiting -> granted | deadlock (victim) | timed out | interrupted
//! ```
//!
//! Invariants of the table and its snapshots:
//! 1. An id below the horizon is committed for every snapshot that counts csns, unless it is in
//!    the exception set. The set is changed before the horizon passes an id.
//! 2. Csns are given out, their states stored and the watermark moved in one step under one
//!    mutex; a snapshot is the watermark and registers under the same mutex. So a snapshot sees a
//!    transaction wholly or not at all, always the same way, and the oldest snapshot is never
//!    computed beside a registration.
//! 3. `commit` does not allocate, fail, or wait for anything but that mutex.
//! 4. A word of the ring is reused only after the horizon passed its id; readers look at the
//!    horizon again after the word.
//! 5. The ring does not fill: open ids become exceptions, snapshots that hold it back get a
//!    classical view, before the horizon passes what only the view tells.
//! 6. Whoever reads an entry resolves its id under the same leaf latch (M9). Then an aborted id
//!    can be forgotten as soon as its last entry is reverted, without an epoch.
//! 7. A state-changing record is announced (`Open::begin_record`) before it is appended, so that
//!    a checkpoint's note never hides an outcome from the scan.
//!
//! Invariants of the lock manager:
//! 8. Granted holds of one row are compatible, and with every interval of others over it that was
//!    grown by `try_lock_next`.
//! 9. First come, first served, in all trees by one sequence of tickets: a request waits for what
//!    is held against it and for what was asked for before it (`lock_line.rs` says what conflicts).
//!    It passes waiters only if its owner holds a part of it, or they wait for that owner. An
//!    insert that may go on keeps its place until its entry is there. The end of a hold wakes only
//!    those that it granted to (S3), and those who have somebody new to report.
//! 10. The end of a transaction stores its state, then releases. An implicit hold is recorded only
//!    for an id that is not over, checked under the holder's `held`, which the end takes after its
//!    state: so it is always released.
//! 11. An owner waits for one thing at a time, and no cycle of waiters outlives the call that
//!    closed it.
//! 12. No call-out (report, unpark) and no freeing happens under a mutex. Order of locks: `waits`
//!    (only those who begin a wait, or end one without a grant), then the shard of one tree, then
//!    the holders or an owner's `held`, then the table's exception set. No two shards at a time.
//!    The table never calls the manager.
//! 13. Threads sleep and time is read in `park` only.

mod along;
mod contested;
mod cursor;
mod deadlock;
mod interrupt;
mod lock;
mod lock_key;
mod lock_leaf;
mod lock_line;
mod lock_queue;
mod lock_reach;
mod lock_shape;
mod lock_slab;
mod lock_state;
mod lock_tree;
mod mover;
mod note;
mod old_versions;
mod park;
mod prepared;
mod read;
mod registry;
mod revert;
mod session;
mod snapshot;
mod table;
mod trees;
mod version;
mod write;

pub use contested::Contested;
pub use cursor::Cursor;
pub use interrupt::Owner;
pub use lock::{Enqueued, Granted, LockManager, Ticket};
pub use lock_queue::Mode;
pub(crate) use mover::Sweep;
pub use note::Note;
pub use old_versions::{OldVersions, OLD_VERSIONS_TREE};
pub use read::{ReadMode, WaitPolicy};
pub use registry::{Open, PurgeItem, Registry};
pub use session::{
    Context, Savepoint, Session, Stopped, RECORD_ABORT, RECORD_COMMIT, RECORD_PREPARE,
    RECORD_REVERTED,
};
pub use snapshot::Snapshot;
pub use table::{TxnState, TxnTable, Unsettled};
pub use trees::{TreeGate, Trees};
pub use write::{Expect, Written};

/// What a transaction sees, as InnoDB's users know it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Isolation {
    ReadUncommitted,
    ReadCommitted,
    #[default]
    RepeatableRead,
    Serializable,
}
