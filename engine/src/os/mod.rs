//! Room `os`: how bytes, time, entropy and threads really happen.
//!
//! Invariants:
//! 1. Nothing else in the engine touches files, the clock or entropy: another [`Os`] (the
//!    simulator's) replaces all of them.
//! 2. A write is durable only after [`File::sync`] returned, or after [`File::write_durable`];
//!    a created, renamed or removed name only after [`Os::sync_dir`].
//! 3. Buffers for direct I/O are [`AlignedBuf`]; offsets and lengths are multiples of
//!    [`BLOCK_BYTES`](crate::base::BLOCK_BYTES) for files opened with `direct`.
//! 4. Locks, threads, parking and deadlines come from [`sync`], so that with the feature `sim` a
//!    seeded scheduler decides which thread runs. Atomics do not cross it.
//! 5. Hash tables have their keys from [`hash`], because the order of a table follows from them.
//! 6. Each lock has a rank ([`rank`]), and checked builds refuse an acquisition out of order.

mod aligned;
mod bug;
pub mod fuzz;
pub mod hash;
mod inode;
pub mod observe;
pub mod planted;
pub mod rank;
#[cfg(any(feature = "sim", debug_assertions))]
mod ranked;
mod real;
mod rng;
#[cfg(feature = "sim")]
pub mod sched;
pub mod sim;
mod slabs;
pub mod sync;

pub use aligned::AlignedBuf;
pub use real::RealOs;
pub use slabs::{trim_heap, SlabBuf, Slabs};

use crate::base::Result;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Whether this is the engine of the simulator, with its scheduler compiled in.
pub const SIMULATED: bool = cfg!(feature = "sim");

/// What is [`Full`](crate::base::Error::Full) when no more files can be opened. Nothing was written,
/// and the same call succeeds when others have closed some.
pub const OPEN_FILES: &str = "table of open files";

/// How a file is opened.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenMode {
    /// Create it; an existing file is an error (`create_new`).
    pub create: bool,
    /// Bypass the page cache where the file system can; callers keep to aligned blocks either way.
    pub direct: bool,
}

/// The outside world.
pub trait Os: Send + Sync {
    fn open(&self, path: &Path, mode: OpenMode) -> Result<Arc<dyn File>>;
    fn exists(&self, path: &Path) -> Result<bool>;
    fn list(&self, dir: &Path) -> Result<Vec<PathBuf>>;
    fn create_dir(&self, dir: &Path) -> Result<()>;
    fn remove(&self, path: &Path) -> Result<()>;
    fn rename(&self, from: &Path, to: &Path) -> Result<()>;
    /// Makes creations, renames and removals in `dir` durable.
    fn sync_dir(&self, dir: &Path) -> Result<()>;
    /// Bytes free on the file system of `path`.
    fn free_bytes(&self, path: &Path) -> Result<u64>;
    /// Takes the lock that keeps a second engine out of `dir`, until the guard is dropped.
    fn lock_dir(&self, dir: &Path) -> Result<Box<dyn Send + Sync>>;
    /// A file that goes through the page cache, though it was to be opened with `direct`.
    fn without_direct(&self) -> Option<PathBuf> {
        None
    }
    /// Nanoseconds of a clock that never goes back.
    fn now_ns(&self) -> u64;
    fn entropy(&self) -> u64;
    /// Bytes that nobody can guess: for keys.
    fn random(&self, out: &mut [u8]) -> Result<()>;
}

/// One open file. Offsets and lengths are bytes.
#[allow(clippy::len_without_is_empty, reason = "a length that can fail is no container's")]
pub trait File: Send + Sync {
    fn path(&self) -> &Path;
    fn len(&self) -> Result<u64>;
    /// Reads exactly `buf.len()` bytes; a shorter file is [`crate::base::Error::Corrupt`].
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()>;
    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()>;
    /// Writes and makes just these bytes durable (a data-sync write). Earlier plain writes to the
    /// file are not covered by it.
    fn write_durable(&self, buf: &[u8], offset: u64) -> Result<()>;
    fn set_len(&self, len: u64) -> Result<()>;
    /// Reserves blocks for `[0, len)` and makes the file at least that long. It fills holes.
    fn allocate(&self, len: u64) -> Result<()> {
        self.allocate_range(0, len)
    }
    /// Reserves blocks for `[from, from + len)` and makes the file at least that long. After
    /// [`Full`](crate::base::Error::Full) some of them may be reserved.
    fn allocate_range(&self, from: u64, len: u64) -> Result<()>;
    /// Gives the blocks of `[from, from + len)`, which lies in the file, back to the file system: from
    /// then on they read as zeros, and a write there may find a full disk. Until the next sync a loss
    /// of power may bring the old bytes back. False: the file system cannot, and nothing happened.
    fn punch(&self, from: u64, len: u64) -> Result<bool>;
    /// Makes every completed write and the length durable.
    fn sync(&self) -> Result<()>;
    /// The same open file under the name that [`Os::rename`] has given it: takes no new handle, so
    /// it cannot fail for want of one.
    fn renamed(&self, to: &Path) -> Arc<dyn File>;
}
