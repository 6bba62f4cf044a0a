//! GC and checkpoints keep the size of the store near that of its live pages.

use super::*;

const SEGMENT_BYTES: u64 = 128 << 10;
const PAGES: u64 = 3000;
/// The reserve, the open segments, and what a checkpoint waits for at least.
const CONSTANT_SEGMENTS: u64 = 2 + 2 + 5;
const BATCH: u64 = 16;
const GC_STEP_BYTES: u64 = 32 << 10;

#[derive(Debug)]
struct Outcome {
    /// Highest size of the pages file, less a constant, against its live bytes, in percent.
    size_percent: u64,
    /// Bytes copied by GC against bytes of images, in percent.
    gc_percent: u64,
    checkpoints: u64,
    behind: u64,
}

/// Percent of the updates that go to the first tenth of the pages.
fn run(policy: SpacePolicy, hot_percent: u64, updates: u64) -> Outcome {
    let options = StoreOptions { segment_bytes: SEGMENT_BYTES, ..options() };
    let mut store = Store::create(SimOs::new(7), options).unwrap();
    Arc::get_mut(&mut store).unwrap().policy = policy;
    let mut rng = SimRng::new(hot_percent);
    let mut lsn = 0;
    let mut write = |page: u64| {
        lsn += 1;
        let noise = 1500 + (page * 37 % 1000) as usize;
        write_one(&store, page, Version { lsn, tree: 1, noise }, Compression::Lz4).unwrap();
    };
    (1..=PAGES).for_each(&mut write);
    checkpoint(&store, b"loaded").unwrap();
    let before = store.stats();
    let (mut size_percent, mut behind) = (0, 0);
    for n in 0..updates {
        let pages = if rng.chance(hot_percent) { PAGES / 10 } else { PAGES };
        write(1 + rng.below(pages));
        if n % BATCH != 0 {
            continue;
        }
        // One piece of work for each batch: the background has no more time than writers.
        if store.gc_pressure_percent() > rng.below(100) {
            store.gc_step(GC_STEP_BYTES).unwrap();
        }
        if store.wants_checkpoint() {
            checkpoint(&store, b"space").unwrap();
        }
        let now = store.stats();
        let size_bytes = (now.segments - CONSTANT_SEGMENTS) * SEGMENT_BYTES;
        size_percent = size_percent.max(size_bytes * 100 / now.live_bytes);
        behind += u64::from(store.debt_percent() >= 100);
    }
    let now = store.stats();
    Outcome {
        size_percent,
        gc_percent: (now.gc_bytes - before.gc_bytes) * 100 / (now.image_bytes - before.image_bytes),
        checkpoints: now.checkpoints - before.checkpoints,
        behind,
    }
}

#[test]
fn the_store_stays_near_its_live_bytes() {
    for hot_percent in [0, 90] {
        let outcome = run(SpacePolicy::default(), hot_percent, 12_000);
        assert!(outcome.size_percent <= 175, "{outcome:?}");
        assert!(outcome.gc_percent < 200, "{outcome:?}");
        assert_eq!(outcome.behind, 0, "GC keeps up: {outcome:?}");
    }
}

#[test]
fn writers_are_told_to_rest_when_nobody_collects() {
    let options = options();
    let store = Store::create(SimOs::new(7), options).unwrap();
    let mut lsn = 0;
    while store.debt_percent() < 100 {
        lsn += 1;
        write_one(&store, 1 + lsn % 50, Version { lsn, tree: 1, noise: 9000 }, Compression::None)
            .unwrap();
        assert!(lsn < 10_000, "{:?}", store.stats());
    }
    while store.gc_pressure_percent() > 0 {
        store.gc_step(u64::MAX).unwrap();
        checkpoint(&store, b"n").unwrap();
    }
    checkpoint(&store, b"n").unwrap();
    assert_eq!(store.debt_percent(), 0, "{:?}", store.stats());
}

/// `cargo test --release -p sluice-engine --lib dead_space_by_policy -- --ignored --nocapture`
#[test]
#[ignore = "a measurement, for docs/decisions/0018-dead-space.md"]
fn dead_space_by_policy() {
    println!("gc% checkpoint% hot%   size%  gc bytes%  checkpoints  behind");
    for hot_percent in [0, 90] {
        for gc_percent in [15, 20, 30, 40, 60] {
            for checkpoint_percent in [6, 12, 25] {
                let policy = SpacePolicy { gc_percent, checkpoint_percent, ..Default::default() };
                let o = run(policy, hot_percent, 60_000);
                println!(
                    "{gc_percent:>3} {checkpoint_percent:>11} {hot_percent:>4} {:>7} {:>10} {:>12} {:>7}",
                    o.size_percent, o.gc_percent, o.checkpoints, o.behind
                );
            }
        }
    }
}
