//! The cost of a whole write-back.

use super::dirty::{ByAge, SHARDS};
use super::tests::{create, new_pool};
use super::Pool;
use crate::base::{Lsn, PAGE_BYTES};
use std::sync::atomic::{Ordering::Relaxed, Ordering::SeqCst};
use std::sync::Arc;
use std::time::Instant;

const BUDGET_PAGES: usize = 64;

/// A large pool with pages from LSN 10 on, of which the last are clean.
fn pool_with(dirty: u64, clean: u64) -> Arc<Pool> {
    let (_os, pool) = new_pool();
    pool.set_capacity((dirty + clean + 1000) as usize * PAGE_BYTES);
    create(&pool, dirty + 1..=dirty + clean, 10);
    while !pool.writeback_before(Lsn(11), BUDGET_PAGES).unwrap() {}
    create(&pool, 1..=dirty, 20);
    pool
}

/// Writes all pages back, as a checkpoint does. Answers how many frames were looked at for that.
fn write_all(pool: &Pool) -> u64 {
    let looked_at = &pool.dirty.looked_at;
    let before = looked_at.load(Relaxed);
    while !pool.writeback_before(Lsn(1000), BUDGET_PAGES).unwrap() {}
    assert_eq!(pool.redo_point(Lsn(1000)), Lsn(1000));
    looked_at.load(Relaxed) - before
}

#[test]
fn a_whole_writeback_looks_at_no_frame_many_times() {
    for (dirty, clean) in [(1 << 14, 0), (1000, 1 << 14)] {
        let looked_at = write_all(&pool_with(dirty, clean));
        let most = 3 * (dirty + clean) + dirty;
        assert!(looked_at <= most, "{looked_at} looks for {dirty} dirty and {clean} clean frames");
    }
}

/// To be asked at any moment, whatever other threads do.
pub(super) fn assert_all_listed(pool: &Pool) {
    for n in 0..SHARDS {
        let shard = pool.table.nth(n);
        assert!(pool.lists_all_dirty(n, &shard), "shard {n}");
        let writing = shard.slots.iter().filter(|slot| slot.meta.is_writing());
        let writing = writing.map(|slot| (slot.meta.writing_lsn.load(SeqCst), slot.meta.page));
        assert_eq!(writing.collect::<ByAge>(), shard.writing, "shard {n}");
    }
}

/// Time that this thread had a processor.
fn processor_ms() -> u64 {
    let stats = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    stats.split(' ').next().unwrap().parse::<u64>().unwrap() / 1_000_000
}

#[test]
#[ignore = "a measurement, not a check"]
fn processor_time_of_a_whole_writeback() {
    for (dirty, clean) in [(1 << 14, 0), (1 << 16, 0), (1 << 18, 0), (1 << 12, 1 << 18)] {
        let pool = pool_with(dirty, clean);
        let (began, began_ms) = (Instant::now(), processor_ms());
        let looked_at = write_all(&pool);
        println!(
            "{dirty:7} dirty, {clean:7} clean: {:6} ms of processor, {:6} ms, {looked_at} looks",
            processor_ms() - began_ms,
            began.elapsed().as_millis(),
        );
    }
}
