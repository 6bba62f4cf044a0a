//! Locks that know the scheduler: a task that cannot get one passes the baton on. A thread that
//! is no task blocks as with parking_lot's own locks, which lie inside.
//!
//! Safety argument: each raw lock forwards every acquisition and release to the parking_lot lock
//! inside it, one for one, and answers as that one does; exclusion is the inner lock's. The
//! scheduler only decides when to try again.

use super::state::On;
use super::tasks::{coin, point, wait, wake_all};
use parking_lot::lock_api;
use std::sync::atomic::{AtomicUsize, Ordering};

fn place<T>(lock: &T) -> On {
    On::Place(std::ptr::from_ref(lock) as usize)
}

pub struct RawMutex(parking_lot::RawMutex);

// SAFETY: exclusion is that of the mutex inside.
unsafe impl lock_api::RawMutex for RawMutex {
    #[allow(clippy::declare_interior_mutable_const, reason = "asked for by the trait")]
    const INIT: RawMutex = RawMutex(<parking_lot::RawMutex as lock_api::RawMutex>::INIT);
    type GuardMarker = <parking_lot::RawMutex as lock_api::RawMutex>::GuardMarker;

    fn lock(&self) {
        if !point("lock") {
            return self.0.lock();
        }
        while !self.0.try_lock() {
            wait("a mutex", place(self), None);
        }
    }

    fn try_lock(&self) -> bool {
        point("try lock");
        self.0.try_lock()
    }

    unsafe fn unlock(&self) {
        // SAFETY: the caller's promise is passed on.
        unsafe { self.0.unlock() };
        wake_all(place(self));
    }

    fn is_locked(&self) -> bool {
        self.0.is_locked()
    }
}

pub struct RawRwLock {
    inner: parking_lot::RawRwLock,
    /// Tasks that wait to write: as with parking_lot, they may hold new readers back.
    writers: AtomicUsize,
}

// SAFETY: exclusion is that of the lock inside.
unsafe impl lock_api::RawRwLock for RawRwLock {
    #[allow(clippy::declare_interior_mutable_const, reason = "asked for by the trait")]
    const INIT: RawRwLock = RawRwLock {
        inner: <parking_lot::RawRwLock as lock_api::RawRwLock>::INIT,
        writers: AtomicUsize::new(0),
    };
    type GuardMarker = <parking_lot::RawRwLock as lock_api::RawRwLock>::GuardMarker;

    fn lock_shared(&self) {
        if !point("lock shared") {
            return self.inner.lock_shared();
        }
        while self.yields_to_writer() || !self.inner.try_lock_shared() {
            wait("a shared lock", place(self), None);
        }
    }

    fn try_lock_shared(&self) -> bool {
        point("try lock shared");
        !self.yields_to_writer() && self.inner.try_lock_shared()
    }

    unsafe fn unlock_shared(&self) {
        // SAFETY: the caller's promise is passed on.
        unsafe { self.inner.unlock_shared() };
        wake_all(place(self));
    }

    fn lock_exclusive(&self) {
        if !point("lock exclusive") {
            return self.inner.lock_exclusive();
        }
        while !self.inner.try_lock_exclusive() {
            self.writers.fetch_add(1, Ordering::Relaxed);
            wait("an exclusive lock", place(self), None);
            self.writers.fetch_sub(1, Ordering::Relaxed);
        }
    }

    fn try_lock_exclusive(&self) -> bool {
        point("try lock exclusive");
        self.inner.try_lock_exclusive()
    }

    unsafe fn unlock_exclusive(&self) {
        // SAFETY: the caller's promise is passed on.
        unsafe { self.inner.unlock_exclusive() };
        wake_all(place(self));
    }
}

impl RawRwLock {
    /// A waiting writer wakes the readers that it kept waiting when it unlocks.
    fn yields_to_writer(&self) -> bool {
        self.writers.load(Ordering::Relaxed) > 0 && coin()
    }
}

// SAFETY: forwarded to the lock inside.
unsafe impl lock_api::RawRwLockDowngrade for RawRwLock {
    unsafe fn downgrade(&self) {
        // SAFETY: the caller's promise is passed on.
        unsafe { lock_api::RawRwLockDowngrade::downgrade(&self.inner) };
        wake_all(place(self));
    }
}
