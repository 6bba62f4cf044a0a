//! Locks that know their rank, for builds that check the order ([`super::rank`]). Inside are the
//! scheduler's locks in a simulated build, else parking_lot's.
//!
//! Safety argument: each raw lock forwards every acquisition and release to the lock inside it, one
//! for one, and answers as that one does; exclusion is the inner lock's.

use super::rank::{acquire, acquired, may_wait, released, Rank, Ranked};
#[cfg(feature = "sim")]
use super::sched::{self, RawMutex as InnerMutex, RawRwLock as InnerRwLock};
use parking_lot::lock_api;
#[cfg(not(feature = "sim"))]
use parking_lot::{RawMutex as InnerMutex, RawRwLock as InnerRwLock};
use std::time::Duration;

pub type Mutex<T> = lock_api::Mutex<RawMutex, T>;
pub type MutexGuard<'a, T> = lock_api::MutexGuard<'a, RawMutex, T>;
pub type RwLock<T> = lock_api::RwLock<RawRwLock, T>;
pub type RwLockReadGuard<'a, T> = lock_api::RwLockReadGuard<'a, RawRwLock, T>;
pub type ArcRwLockReadGuard<R, T> = lock_api::ArcRwLockReadGuard<R, T>;
pub type ArcRwLockWriteGuard<R, T> = lock_api::ArcRwLockWriteGuard<R, T>;

pub struct RawMutex {
    inner: InnerMutex,
    rank: Rank,
}

impl RawMutex {
    pub const fn ranked(rank: Rank) -> RawMutex {
        RawMutex { inner: <InnerMutex as lock_api::RawMutex>::INIT, rank }
    }
}

// SAFETY: exclusion is that of the mutex inside.
unsafe impl lock_api::RawMutex for RawMutex {
    #[allow(clippy::declare_interior_mutable_const, reason = "asked for by the trait")]
    const INIT: RawMutex = RawMutex::ranked(Rank::Unranked);
    type GuardMarker = <InnerMutex as lock_api::RawMutex>::GuardMarker;

    fn lock(&self) {
        acquire(self.rank);
        self.inner.lock();
        acquired(self.rank);
    }

    fn try_lock(&self) -> bool {
        let got = self.inner.try_lock();
        if got {
            acquired(self.rank);
        }
        got
    }

    unsafe fn unlock(&self) {
        released(self.rank);
        // SAFETY: the caller's promise is passed on.
        unsafe { self.inner.unlock() };
    }

    fn is_locked(&self) -> bool {
        self.inner.is_locked()
    }
}

pub struct RawRwLock {
    inner: InnerRwLock,
    rank: Rank,
}

impl RawRwLock {
    pub const fn ranked(rank: Rank) -> RawRwLock {
        RawRwLock { inner: <InnerRwLock as lock_api::RawRwLock>::INIT, rank }
    }
}

// SAFETY: exclusion is that of the lock inside.
unsafe impl lock_api::RawRwLock for RawRwLock {
    #[allow(clippy::declare_interior_mutable_const, reason = "asked for by the trait")]
    const INIT: RawRwLock = RawRwLock::ranked(Rank::Unranked);
    type GuardMarker = <InnerRwLock as lock_api::RawRwLock>::GuardMarker;

    fn lock_shared(&self) {
        acquire(self.rank);
        self.inner.lock_shared();
        acquired(self.rank);
    }

    fn try_lock_shared(&self) -> bool {
        let got = self.inner.try_lock_shared();
        if got {
            acquired(self.rank);
        }
        got
    }

    unsafe fn unlock_shared(&self) {
        released(self.rank);
        // SAFETY: the caller's promise is passed on.
        unsafe { self.inner.unlock_shared() };
    }

    fn lock_exclusive(&self) {
        acquire(self.rank);
        self.inner.lock_exclusive();
        acquired(self.rank);
    }

    fn try_lock_exclusive(&self) -> bool {
        let got = self.inner.try_lock_exclusive();
        if got {
            acquired(self.rank);
        }
        got
    }

    unsafe fn unlock_exclusive(&self) {
        released(self.rank);
        // SAFETY: the caller's promise is passed on.
        unsafe { self.inner.unlock_exclusive() };
    }
}

// SAFETY: forwarded to the lock inside.
unsafe impl lock_api::RawRwLockDowngrade for RawRwLock {
    unsafe fn downgrade(&self) {
        // SAFETY: the caller's promise is passed on.
        unsafe { lock_api::RawRwLockDowngrade::downgrade(&self.inner) };
    }
}

/// A condition; its rank is that of the sleep for it. The mutex of a wait is let go first, so the
/// sleep stands under the other locks that the thread holds.
///
/// Threads that are no tasks of the scheduler use the first two fields, whose mutex is held from
/// before the user's is released.
pub struct Condvar {
    gate: parking_lot::Mutex<()>,
    real: parking_lot::Condvar,
    rank: Rank,
}

impl Default for Condvar {
    fn default() -> Condvar {
        Condvar::new()
    }
}

impl Condvar {
    pub const fn new() -> Condvar {
        Condvar::with_rank(Rank::Unranked)
    }

    pub const fn with_rank(rank: Rank) -> Condvar {
        Condvar { gate: parking_lot::Mutex::new(()), real: parking_lot::Condvar::new(), rank }
    }

    pub fn wait<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>) {
        self.wait_at_most(guard, None);
    }

    pub fn wait_for<T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        time: Duration,
    ) -> WaitTimeoutResult {
        WaitTimeoutResult(!self.wait_at_most(guard, Some(time)))
    }

    fn wait_at_most<T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        time: Option<Duration>,
    ) -> bool {
        #[cfg(feature = "sim")]
        if sched::is_task() {
            return MutexGuard::unlocked(guard, || {
                may_wait(self.rank);
                sched::wait_at(self.place(), time)
            });
        }
        let mut gate = self.gate.lock();
        MutexGuard::unlocked(guard, move || {
            may_wait(self.rank);
            match time {
                Some(time) => !self.real.wait_for(&mut gate, time).timed_out(),
                None => {
                    self.real.wait(&mut gate);
                    true
                }
            }
        })
    }

    #[cfg(feature = "sim")]
    fn place(&self) -> usize {
        std::ptr::from_ref(self) as usize
    }

    pub fn notify_one(&self) {
        #[cfg(feature = "sim")]
        sched::wake_one_at(self.place());
        drop(self.gate.lock());
        self.real.notify_one();
    }

    pub fn notify_all(&self) {
        #[cfg(feature = "sim")]
        sched::wake_all_at(self.place());
        drop(self.gate.lock());
        self.real.notify_all();
    }
}

#[derive(Clone, Copy, Debug)]
pub struct WaitTimeoutResult(bool);

impl WaitTimeoutResult {
    pub fn timed_out(self) -> bool {
        self.0
    }
}

impl<T> Ranked<T> for Mutex<T> {
    fn ranked(rank: Rank, value: T) -> Mutex<T> {
        Mutex::from_raw(RawMutex::ranked(rank), value)
    }
}

impl<T> Ranked<T> for RwLock<T> {
    fn ranked(rank: Rank, value: T) -> RwLock<T> {
        RwLock::from_raw(RawRwLock::ranked(rank), value)
    }
}
