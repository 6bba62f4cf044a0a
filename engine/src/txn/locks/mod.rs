//! The lock manager: which rows and intervals are held, and who waits for whom. Of the rest of the room it
//! knows only the transaction table. `manager` is what sessions call; `state` is what is held in one tree,
//! `line` who waits there, and `tree` with the files beside it the order of the holds.
//!
//! 1. Granted holds of one row are compatible, and with every interval of others over it that was
//!    grown by `try_lock_next`.
//! 2. First come, first served, in all trees by one sequence of tickets: a request waits for what
//!    is held against it and for what was asked for before it (`line.rs` says what conflicts).
//!    It passes waiters only if its owner holds a part of it, or they wait for that owner. An
//!    insert that may go on keeps its place until its entry is there. The end of a hold wakes only
//!    those that it granted to (S3), and those who have somebody new to report.
//! 3. The end of a transaction stores its state, then releases. An implicit hold is recorded only
//!    for an id that is not over, checked under the holder's `held`, which the end takes after its
//!    state: so it is always released.
//! 4. An owner waits for one thing at a time, and no cycle of waiters outlives the call that
//!    closed it.
//! 5. No call-out (report, unpark) and no freeing happens under a mutex. Order of locks: `waits`
//!    (only those who begin a wait, or end one without a grant), then the shard of one tree, then
//!    the holders or an owner's `held`, then the table's exception set. No two shards at a time.
//!    The table never calls the manager.
//! 6. Threads sleep and time is read in `park` only.

mod deadlock;
mod key;
mod leaf;
mod line;
mod manager;
mod owner;
mod park;
mod queue;
mod reach;
mod shape;
mod slab;
mod state;
mod tree;

pub use manager::{Enqueued, Granted, LockManager, Ticket};
pub use owner::Owner;
pub use queue::LockMode;
