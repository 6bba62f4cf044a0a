//! Numbers of the store: bytes written by cause, and how the space is used.

use super::engine::Store;
use super::segments::RESERVED_SEGMENTS;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreStats {
    /// Records of pages written by the caller, without padding.
    pub images: u64,
    pub image_bytes: u64,
    /// All that was written to the pages file: records of callers and of GC, and padding.
    pub written_bytes: u64,
    /// Padding of blocks between records.
    pub padding_bytes: u64,
    /// Records copied by GC.
    pub gc_bytes: u64,
    /// Map snapshots and change log.
    pub map_bytes: u64,
    pub superblock_bytes: u64,
    pub checkpoints: u64,
    pub reads: u64,
    /// Of `reads`, those whose bytes came with those of other pages.
    pub stretch_reads: u64,
    /// Bytes read from the file for them.
    pub read_bytes: u64,
    /// Reads served by records not yet handed to the OS.
    pub memory_reads: u64,
    pub corrupt_reads: u64,
    /// Memory that the page map takes.
    pub map_memory_bytes: u64,
    /// Leaves of the page map read because they were not in memory, and reads that failed.
    pub map_leaf_reads: u64,
    pub map_leaf_faults: u64,
    pub pages: u64,
    pub segments: u64,
    pub segment_bytes: u64,
    /// Bytes of records that the map names.
    pub live_bytes: u64,
    /// Neither live nor free: replaced records, padding, the rest of open segments.
    pub dead_bytes: u64,
    /// The part of the dead bytes that the next checkpoint frees.
    pub releasable_bytes: u64,
    /// The part of the dead bytes that a backup keeps from being free.
    pub held_bytes: u64,
    /// Free for ordinary writes, and what only GC may take: of what the file system has reserved.
    pub free_bytes: u64,
    pub reserved_bytes: u64,
    /// Free segments that are holes, or may be: left free by an earlier life.
    pub hole_bytes: u64,
    /// Given back to the file system since the store was opened, cut off or punched.
    pub returned_bytes: u64,
}

impl Store {
    pub fn stats(&self) -> StoreStats {
        let get = |counter: &AtomicU64| counter.load(Relaxed);
        let (totals, there, pages, map_memory_bytes) = {
            let state = self.state.read();
            let segments = &state.segments;
            let map_bytes = state.map.memory_bytes() as u64;
            (segments.totals(), segments.there() as u64, state.pages, map_bytes)
        };
        let reserve = RESERVED_SEGMENTS as u64 * self.segment_bytes;
        let there_bytes = there * self.segment_bytes;
        let reserved_bytes = there_bytes.min(reserve);
        let file_bytes = totals.segments * self.segment_bytes;
        StoreStats {
            images: get(&self.counters.images),
            image_bytes: get(&self.counters.image_bytes),
            written_bytes: get(&self.pages.written_bytes),
            padding_bytes: get(&self.pages.padding_bytes),
            gc_bytes: get(&self.counters.gc_bytes),
            map_bytes: get(&self.counters.map_bytes),
            superblock_bytes: get(&self.counters.superblock_bytes),
            checkpoints: get(&self.counters.checkpoints),
            reads: get(&self.counters.reads),
            stretch_reads: get(&self.counters.stretch_reads),
            read_bytes: get(&self.pages.read_bytes),
            memory_reads: get(&self.pages.memory_reads),
            corrupt_reads: get(&self.counters.corrupt_reads),
            map_memory_bytes,
            map_leaf_reads: get(&self.counters.map_leaf_reads),
            map_leaf_faults: get(&self.counters.map_leaf_faults),
            pages,
            segments: totals.segments,
            segment_bytes: self.segment_bytes,
            live_bytes: totals.live_bytes,
            dead_bytes: file_bytes - totals.free_bytes - totals.live_bytes,
            releasable_bytes: totals.releasable_bytes,
            held_bytes: totals.held_bytes,
            free_bytes: there_bytes - reserved_bytes,
            reserved_bytes,
            hole_bytes: totals.free_bytes - there_bytes,
            returned_bytes: get(&self.counters.returned_bytes),
        }
    }
}
