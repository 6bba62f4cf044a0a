//! Locks and condition variables of the whole engine. Every room takes them from here, so that a
//! simulated scheduler can stand in for the machine's.

pub use parking_lot::{
    ArcRwLockReadGuard, ArcRwLockWriteGuard, Condvar, Mutex, MutexGuard, RawRwLock, RwLock,
    RwLockReadGuard,
};
