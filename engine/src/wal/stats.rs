//! Counters of the log.

use super::RECORD_KINDS;
use crate::base::Lsn;
use std::sync::atomic::{AtomicU64, Ordering};

/// A picture of the log's counters since it was opened, and of its size now.
#[derive(Clone, Debug, Default)]
pub struct WalStats {
    /// Bytes of records by kind, their frames included.
    pub appended_bytes: [u64; RECORD_KINDS],
    pub records: u64,
    /// Batch headers and the zeros up to the next block.
    pub padding_bytes: u64,
    /// Rounds that made bytes durable.
    pub flushes: u64,
    /// Of these, done by one data-sync write.
    pub flushes_by_one_write: u64,
    /// Calls that waited for durability, and their time.
    pub flush_waits: u64,
    pub flush_wait_ns: u64,
    pub writes: u64,
    pub written_bytes: u64,
    /// Records in the written batches, and what they take there: it is less if they are packed.
    pub record_bytes: u64,
    pub record_stored_bytes: u64,
    /// Written to make segments: headers, and the zeros of new ones.
    pub made_bytes: u64,
    pub segments_kept: u64,
    pub segments_spare: u64,
    pub segments_free: u64,
    pub segments_created: u64,
    pub segments_recycled: u64,
    pub segments_removed: u64,
    /// Segments made by a flush because none was prepared.
    pub segments_late: u64,
    pub cache_reads: u64,
    pub disk_reads: u64,
    /// Pieces read for callers that follow chains of records.
    pub ahead_reads: u64,
    pub incarnation: u64,
    pub oldest: Lsn,
    pub durable: Lsn,
    pub written: Lsn,
    pub end: Lsn,
}

#[derive(Default)]
pub(super) struct Counters {
    pub flushes: AtomicU64,
    pub flushes_by_one_write: AtomicU64,
    pub flush_waits: AtomicU64,
    pub flush_wait_ns: AtomicU64,
    pub writes: AtomicU64,
    pub written_bytes: AtomicU64,
    pub record_bytes: AtomicU64,
    pub record_stored_bytes: AtomicU64,
    pub segments_late: AtomicU64,
    pub cache_reads: AtomicU64,
    pub disk_reads: AtomicU64,
    pub ahead_reads: AtomicU64,
}

pub(super) fn count(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Ordering::Relaxed);
}

pub(super) fn value(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}
