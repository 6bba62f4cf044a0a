//! Writers, readers, GC and checkpoints at the same time.

use super::*;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

const WRITERS: u64 = 3;
const PAGES_EACH: u64 = 12;
/// Between page ids: several leaves of the map, of which two fit in memory.
const SPREAD: u64 = 200;
const LEAVES: usize = 2;
const ROUNDS_MIN: u64 = 60;
const ROUNDS_MAX: u64 = 6000;

/// Whether GC and checkpoints had their turns and space was used again; how soon depends on the
/// machine's scheduler, so the writers go on until it is so.
fn was_busy(stats: &StoreStats) -> bool {
    stats.gc_bytes > 0
        && stats.checkpoints > 2
        && stats.map_leaf_reads > 0
        && stats.image_bytes > stats.segments * stats.segment_bytes
}

/// Each writer owns its pages; `seen` is the LSN that a reader must at least find. Answers the
/// number of its last round.
fn write_rounds(store: &Store, writer: u64, seen: &[AtomicU64]) -> u64 {
    let mut round = 0;
    while round < ROUNDS_MIN || (round < ROUNDS_MAX && !was_busy(&store.stats())) {
        round += 1;
        for page in (1..=WRITERS * PAGES_EACH).filter(|page| page % WRITERS == writer) {
            let version = Version { lsn: round, tree: 1, noise: 4000 };
            write_one(store, page * SPREAD, version, Compression::Lz4).unwrap();
            seen[page as usize].store(round, SeqCst);
        }
    }
    round
}

fn read_until(store: &Store, done: &AtomicBool, seen: &[AtomicU64], mut rng: SimRng) {
    let mut out = vec![0; PAGE_BYTES];
    while !done.load(SeqCst) {
        let page = 1 + rng.below(WRITERS * PAGES_EACH);
        let least = seen[page as usize].load(SeqCst);
        let info = store.read(PageId(page * SPREAD), &mut out).unwrap();
        let lsn = info.map_or(0, |info| info.lsn.0);
        assert!(lsn >= least, "page {page} went back from {least} to {lsn}");
        if lsn > 0 {
            assert!(out == Version { lsn, tree: 1, noise: 4000 }.bytes(page * SPREAD));
        }
    }
}

#[test]
fn readers_never_see_reuse_and_pages_never_go_back() {
    let options = options_with_leaves(LEAVES);
    let (os, store) = new_store_with(77, options.clone());
    let done = AtomicBool::new(false);
    let seen: Vec<AtomicU64> = (0..=WRITERS * PAGES_EACH).map(|_| AtomicU64::new(0)).collect();
    let last_rounds: Vec<u64> = std::thread::scope(|scope| {
        let (store, done, seen) = (&store, &done, &seen);
        for seed in 0..2 {
            scope.spawn(move || read_until(store, done, seen, SimRng::new(seed)));
        }
        scope.spawn(move || {
            while !done.load(SeqCst) {
                store.gc_step(60_000).unwrap();
                std::thread::yield_now();
            }
        });
        scope.spawn(move || {
            while !done.load(SeqCst) {
                checkpoint(store, &[1; 9000]).unwrap();
                std::thread::yield_now();
            }
        });
        let writers: Vec<_> =
            (0..WRITERS).map(|w| scope.spawn(move || write_rounds(store, w, seen))).collect();
        let results: Vec<_> = writers.into_iter().map(|w| w.join()).collect();
        done.store(true, SeqCst);
        results.into_iter().map(|r| r.unwrap()).collect()
    });
    checkpoint(&store, b"end").unwrap();
    let stats = store.stats();
    assert!(was_busy(&stats), "{stats:?}");
    os.crash();
    check_files(&os);
    let (store, _) = Store::open(os, options).unwrap();
    let lsn = |page: u64| last_rounds[(page % WRITERS) as usize];
    let last = |page| (page * SPREAD, Version { lsn: lsn(page), tree: 1, noise: 4000 });
    let model: Model = (1..=WRITERS * PAGES_EACH).map(last).collect();
    check_pages(&store, &model, (1..=40).map(|n| n * SPREAD), 2);
}
