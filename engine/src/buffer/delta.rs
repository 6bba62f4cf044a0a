//! Deltas: the changes of a page since its image, all together in one record of the log.
//!
//! When memory for changes is scarce, a frame goes with a delta in place of an image, and the page
//! owes the record. A delta is a tenth of an image, and costs a miss one read of the log. It has all
//! changes of the delta before it: a page never owes two. So it grows, until an image is cheaper.
//! After Kim, Whang, Song: Page-Differential Logging, SIGMOD 2010, with the log as the place of the
//! differences: no space of the store is theirs, and the redo window makes them go.
//!
//! Invariants:
//! 1. A delta has each change of its page from its first to its last.
//! 2. The record is in the log before the redo point passes the changes in it, and durable before a
//!    checkpoint names such a redo point: a checkpoint takes the point first, and flushes the log then.
//! 3. A page that owes a delta holds the redo point at its record.

use super::changes::Changes;
use crate::base::{Lsn, PageId, Result, TreeId, PAGE_BYTES};
use crate::os::SIMULATED;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::OnceLock;

/// Bytes of an image, times two: see [`DeltaSize::bytes_by_changes_max`]. More in the simulator, whose changes
/// are long, so that deltas follow each other.
const TWO_IMAGES_BYTES: usize = 2 * (PAGE_BYTES - PAGE_BYTES / 8) * if SIMULATED { 8 } else { 1 };

/// The log, as far as deltas need it.
pub trait DeltaLog: Send + Sync {
    /// Appends a record. Never waits.
    fn append(&self, tree: TreeId, page: PageId, changes: &Changes) -> Lsn;

    /// The changes of the record at `at`, which is one of this page.
    fn read(&self, page: PageId, at: Lsn) -> Result<Changes>;
}

/// How large deltas may become.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum DeltaSize {
    /// As long as they cost fewest bytes.
    Full,
    /// Half of that: few pages then cost a second read.
    Half,
}

impl DeltaSize {
    /// Images and deltas together cost least when deltas grow to T = sqrt(2 x image x change) (0025).
    /// With `n` changes in `b` bytes that is b x n <= 2 x image; half of T is a quarter of this.
    fn bytes_by_changes_max(self) -> usize {
        match self {
            DeltaSize::Full => TWO_IMAGES_BYTES,
            DeltaSize::Half => TWO_IMAGES_BYTES / 4,
        }
    }

    /// Whether a delta of these changes costs less than an image.
    pub fn allows(self, changes: &Changes) -> bool {
        !changes.creates
            && changes.len_bytes() * changes.iter().count() <= self.bytes_by_changes_max()
    }
}

#[derive(Default)]
pub(super) struct Deltas {
    pub log: OnceLock<Box<dyn DeltaLog>>,
    pub is_on: AtomicBool,
    pub written: AtomicU64,
    pub reads: AtomicU64,
}
