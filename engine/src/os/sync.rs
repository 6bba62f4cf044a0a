//! Locks, condition variables and threads of the whole engine. Every room takes them from here,
//! so that with the feature `sim` a simulated scheduler stands in for the machine's
//! (`os/sched`). Without the feature the locks are parking_lot's own, at no cost.

#[cfg(any(feature = "sim", debug_assertions))]
pub use super::ranked::{
    ArcRwLockReadGuard, ArcRwLockWriteGuard, Condvar, Mutex, MutexGuard, RawRwLock, RwLock,
    RwLockReadGuard,
};
#[cfg(feature = "sim")]
pub use super::sched::{current, park, spawn, yield_now, JoinHandle, Thread};
#[cfg(not(any(feature = "sim", debug_assertions)))]
pub use parking_lot::{
    ArcRwLockReadGuard, ArcRwLockWriteGuard, Condvar, Mutex, MutexGuard, RawRwLock, RwLock,
    RwLockReadGuard,
};
#[cfg(not(feature = "sim"))]
pub use std::thread::{current, Thread};
#[cfg(not(feature = "sim"))]
pub use thread::{park, spawn, yield_now, JoinHandle};

use super::rank::Rank;
pub use super::rank::Ranked;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

#[cfg(not(any(feature = "sim", debug_assertions)))]
impl<T> Ranked<T> for Mutex<T> {
    fn ranked(_rank: Rank, value: T) -> Mutex<T> {
        Mutex::new(value)
    }
}

#[cfg(not(any(feature = "sim", debug_assertions)))]
impl<T> Ranked<T> for RwLock<T> {
    fn ranked(_rank: Rank, value: T) -> RwLock<T> {
        RwLock::new(value)
    }
}

/// A condition; `rank` is that of the sleep for it.
pub fn condition(rank: Rank) -> Condvar {
    #[cfg(any(feature = "sim", debug_assertions))]
    return Condvar::with_rank(rank);
    #[cfg(not(any(feature = "sim", debug_assertions)))]
    {
        let _ = rank;
        Condvar::new()
    }
}

/// Nanoseconds of a clock that never goes back: the machine's, or the scheduler's.
pub fn now_ns() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    #[cfg(feature = "sim")]
    if let Some(now_ns) = super::sched::now_ns() {
        return now_ns;
    }
    let start = START.get_or_init(Instant::now);
    u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// A place where a simulated scheduler may let another thread run: for reads that several threads
/// order themselves by and that take no lock.
pub fn may_switch(what: &'static str) {
    #[cfg(feature = "sim")]
    super::sched::point(what);
    let _ = what;
}

/// Lets at least this time pass.
pub fn sleep(time: Duration) {
    #[cfg(feature = "sim")]
    if super::sched::sleep(time) {
        return;
    }
    std::thread::sleep(time);
}

/// Whether work that may wait is put off now, because the scheduler wills it.
pub fn puts_off() -> bool {
    #[cfg(feature = "sim")]
    if super::sched::puts_off() {
        return true;
    }
    false
}

#[cfg(not(feature = "sim"))]
mod thread {
    /// A thread that runs until its body returns.
    pub struct JoinHandle(std::thread::JoinHandle<()>);

    /// Waits for an `unpark` of this thread; may also return without one.
    pub fn park() {
        std::thread::park();
    }

    /// Lets another thread run.
    pub fn yield_now() {
        std::thread::yield_now();
    }

    pub fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> std::io::Result<JoinHandle> {
        std::thread::Builder::new().name(name.into()).spawn(body).map(JoinHandle)
    }

    impl JoinHandle {
        /// Is it the thread that asks?
        pub fn is_current(&self) -> bool {
            self.0.thread().id() == std::thread::current().id()
        }

        /// Waits for its end. A panic in it has already been reported.
        pub fn join(self) {
            let _ = self.0.join();
        }
    }
}
