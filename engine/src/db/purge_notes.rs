//! What the log was last told of the purge (`upkeep/purged.rs`).

use std::sync::atomic::AtomicU64;

#[derive(Default)]
pub(crate) struct PurgeNotes {
    /// The log's end when a record was last thought of.
    pub asked_at: AtomicU64,
    /// What the last record says.
    pub noted: AtomicU64,
}
