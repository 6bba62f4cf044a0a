//! Room `txn`: which transaction sees which version, and which one waits.
//!
//! The core, below, knows no trees, pages or log: the transaction table says which ids are
//! committed and in what order, snapshots say what a reader sees, the lock manager which owner waits.
//!
//! ```text
//! id:     allocate -> active -> set_prepared -> prepared
//!         active | prepared -> commit -> committed(csn)
//!         active | prepared -> abort -> aborted -> forget (every entry is reverted)
//!                                               -> leave_aborted (damage keeps some)
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
//! 6. A thread that reads an entry resolves its id under the same leaf latch (M9). Then an aborted id
//!    can be forgotten as soon as its last entry is reverted, without an epoch.
//! 7. A state-changing record is announced (`OpenTxn::begin_record`) before it is appended, so that
//!    a checkpoint's note never hides an outcome from the scan.
//!
//! Inner rooms with invariants of their own: `locks`, which owner waits; `versions`, what a version
//! says and where it is when its log is gone. Threads sleep and time is read in `locks` only.

mod contested;
mod cursor;
mod cursor_entry;
mod load;
mod locks;
mod mover;
mod prepared;
mod read;
mod registry;
mod revert;
mod reverting;
mod session;
mod snapshot;
mod table;
mod trees;
mod versions;
mod view;
mod write;

pub use contested::Contested;
pub use cursor::Cursor;
pub use cursor_entry::CursorEntry;
pub use locks::{Enqueued, Granted, LockManager, LockMode, Owner, Ticket};
pub(crate) use mover::Sweep;
pub use read::{ReadMode, WaitPolicy};
pub use registry::{OpenTxn, PurgeItem, Registry};
pub use reverting::Reverting;
pub use session::{
    Context, Savepoint, Session, Stopped, RECORD_ABORT, RECORD_COMMIT, RECORD_PREPARE,
    RECORD_REVERTED,
};
pub use snapshot::Snapshot;
pub use table::{TxnState, TxnTable, Unsettled};
pub use trees::{TreeGate, Trees};
pub use versions::{Note, OldVersions, OLD_VERSIONS_TREE};
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
