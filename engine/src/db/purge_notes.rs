//! The last record about the purge in the log (`upkeep/purged.rs`).

use std::sync::atomic::AtomicU64;

#[derive(Default)]
pub(crate) struct PurgeNotes {
    /// The log's end when a record was last thought of.
    pub asked_at: AtomicU64,
    /// The LSN in the last record.
    pub noted: AtomicU64,
}
