//! For how long the last measurement of room on the disk is good (`disk_room`).

use std::sync::atomic::{AtomicBool, AtomicU64};

#[derive(Default)]
pub(crate) struct Lease {
    /// End of the log up to which nobody needs to measure again.
    pub end: AtomicU64,
    pub short: AtomicBool,
    /// The disk had no room for the log's next segment.
    pub log_is_full: AtomicBool,
    pub refused: AtomicU64,
    pub gc_waits: AtomicU64,
}

/// What a session is about to do.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// It takes room and gives none back.
    Add,
    Delete,
}
