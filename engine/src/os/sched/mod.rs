//! A seeded scheduler for many threads of which exactly one runs at a time (feature `sim`).
//!
//! [`run`] starts a first task on a thread of its own; tasks start others with [`spawn`]. The one
//! that runs has the baton and passes it on where it would block, and, as the seed wills, at
//! every [`point`]: acquiring a lock, a call of the simulated machine. Time is simulated: it
//! advances a little at each point, jumps to the end of somebody's sleep as the seed wills, and
//! jumps to the first end of a sleep when everybody sleeps. When nobody can ever run again, the
//! run has failed.
//!
//! Invariants:
//! 1. Only the thread with the baton reads or changes the scheduler's state, or runs code of the
//!    engine. So the same seed gives the same run, as long as nothing in it depends on addresses,
//!    on the machine's clock, or on the order of a hash table with random keys (`os::hash` draws
//!    them from the seed).
//! 2. Between letting go of a mutex and waiting for its condition there is no point.
//! 3. A failure freezes the run: no thread of it ever goes on, so nothing is unwound. Its memory
//!    is lost.
//!
//! The idea of a baton among blocking threads with a simulated clock is known from FoundationDB's
//! simulation and from Neon's `desim`.

mod locks;
mod state;
mod tasks;

pub use locks::{RawMutex, RawRwLock};
pub use state::Pace;
pub use tasks::{
    current, join_others, park, put_nothing_off, run, spawn, yield_now, JoinHandle, Outcome, Thread,
};
pub(crate) use tasks::{
    hash_key, is_task, now_ns, planted, point, puts_off, sleep, stall, wait_at, wake_all_at,
    wake_one_at, wrote,
};
