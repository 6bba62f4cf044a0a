//! What long values cost since the engine was opened.

use std::sync::atomic::AtomicU64;

#[derive(Default)]
pub(crate) struct LongCounters {
    /// Chunks.
    pub read: AtomicU64,
    pub written: AtomicU64,
    /// Values that a new version of their row took over.
    pub kept: AtomicU64,
}
