//! Events that the store counts.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

#[derive(Default)]
pub struct Counters {
    pub image_bytes: AtomicU64,
    pub images: AtomicU64,
    pub gc_bytes: AtomicU64,
    pub map_bytes: AtomicU64,
    pub superblock_bytes: AtomicU64,
    pub reads: AtomicU64,
    pub stretch_reads: AtomicU64,
    pub checkpoints: AtomicU64,
    pub corrupt_reads: AtomicU64,
    pub map_leaf_reads: AtomicU64,
    pub map_leaf_faults: AtomicU64,
    pub returned_bytes: AtomicU64,
    pub rewritten_pages: AtomicU64,
    pub rewritten_bytes: AtomicU64,
}

pub fn add(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Relaxed);
}
