//! GC and checkpoints keep the size of the store near that of its live pages.

use super::super::policy::{SpacePolicy, SPACE_PERCENT_MAX, SPACE_PERCENT_MIN};
use super::*;

const SEGMENT_BYTES: u64 = 128 << 10;
const PAGES: u64 = 3000;
/// The reserve, the open segments, and what a checkpoint waits for at least.
const CONSTANT_SEGMENTS: u64 = 2 + 2 + 5;
/// What is free and no surplus, beside the reserve.
const KEPT_SEGMENTS: u64 = 10;
const BATCH: u64 = 16;
const GC_STEP_BYTES: u64 = 32 << 10;

/// Where updates go.
#[derive(Clone, Copy, Debug)]
enum Keys {
    Uniform,
    /// 90 of 100 go to the first tenth of the pages.
    Hot,
    /// By Zipf's law with the exponent 0.8, over pages in no order.
    Zipf,
}

const KEYS: [Keys; 3] = [Keys::Uniform, Keys::Hot, Keys::Zipf];

struct Draw {
    keys: Keys,
    rng: SimRng,
    /// Sums of the probabilities, for Zipf.
    sums: Vec<f64>,
}

impl Draw {
    fn new(keys: Keys) -> Draw {
        let mut sum = 0.0;
        let sums = (1..=PAGES).map(|rank| {
            sum += (rank as f64).powf(-0.8);
            sum
        });
        Draw { keys, rng: SimRng::new(keys as u64), sums: sums.collect() }
    }

    fn page(&mut self) -> u64 {
        match self.keys {
            Keys::Hot if self.rng.chance(90) => 1 + self.rng.below(PAGES / 10),
            Keys::Uniform | Keys::Hot => 1 + self.rng.below(PAGES),
            Keys::Zipf => {
                let at = self.rng.below(1 << 30) as f64 / (1 << 30) as f64
                    * self.sums[PAGES as usize - 1];
                let rank = self.sums.partition_point(|&sum| sum <= at) as u64;
                1 + rank * 1009 % PAGES
            }
        }
    }
}

#[derive(Debug)]
struct Outcome {
    /// Highest size of the segments in use, less a constant, against the live bytes, in percent; and
    /// that of all that the file takes on the disk.
    in_use_percent: u64,
    size_percent: u64,
    /// Bytes copied by GC against bytes of images, in percent.
    gc_percent: u64,
    checkpoints: u64,
    /// Batches after which writers had to rest.
    rests: u64,
    returned_bytes: u64,
}

/// `pieces`: of GC for each batch of writes, when it works without rest.
fn run(space_percent: u64, keys: Keys, pieces: u64, updates: u64) -> Outcome {
    let options = StoreOptions { segment_bytes: SEGMENT_BYTES, ..options() };
    let os = SimOs::new(7);
    let store = Store::create(os.clone(), options).unwrap();
    store.set_space_percent(space_percent);
    let mut draw = Draw::new(keys);
    let mut rng = SimRng::new(1);
    let mut lsn = 0;
    let mut write = |page: u64| {
        lsn += 1;
        let noise = 1500 + (page * 37 % 1000) as usize;
        write_one(&store, page, Version { lsn, tree: 1, noise }, Compression::Lz4).unwrap();
    };
    (1..=PAGES).for_each(&mut write);
    checkpoint(&store, b"loaded").unwrap();
    let before = store.stats();
    let (mut in_use_percent, mut size_percent, mut rests) = (0, 0, 0);
    for n in 0..updates {
        write(draw.page());
        if n % BATCH != 0 {
            continue;
        }
        for _ in 0..pieces {
            if store.gc_pressure_percent() > rng.below(100) {
                store.gc_step(GC_STEP_BYTES).unwrap();
            }
        }
        if store.wants_checkpoint() {
            checkpoint(&store, b"space").unwrap();
        }
        os.advance_ns(20_000_000);
        store.give_back_step().unwrap();
        let now = store.stats();
        let percent = |bytes: u64, segments: u64| {
            bytes.saturating_sub(segments * SEGMENT_BYTES) * 100 / now.live_bytes
        };
        let on_disk = now.segments * SEGMENT_BYTES - now.hole_bytes;
        size_percent = size_percent.max(percent(on_disk, CONSTANT_SEGMENTS + KEPT_SEGMENTS));
        in_use_percent = in_use_percent.max(percent(on_disk - now.free_bytes, CONSTANT_SEGMENTS));
        rests += u64::from(store.debt_percent() > 0);
    }
    let now = store.stats();
    Outcome {
        in_use_percent,
        size_percent,
        gc_percent: (now.gc_bytes - before.gc_bytes) * 100 / (now.image_bytes - before.image_bytes),
        checkpoints: now.checkpoints - before.checkpoints,
        rests,
        returned_bytes: now.returned_bytes,
    }
}

#[test]
fn the_segments_in_use_stay_within_the_space_that_is_set() {
    for keys in KEYS {
        for space_percent in [115, 125, 160] {
            let outcome = run(space_percent, keys, 4, 12_000);
            let context = format!("{keys:?} {space_percent}: {outcome:?}");
            assert!(outcome.in_use_percent <= space_percent, "{context}");
            assert!(outcome.size_percent <= space_percent, "{context}");
            assert_eq!(outcome.rests, 0, "GC keeps up: {context}");
            assert_eq!(
                outcome.returned_bytes, 0,
                "nothing goes back that is wanted soon: {context}"
            );
        }
    }
}

/// When the parameter is set, or a directory is opened that has more dead bytes than it allows.
#[test]
fn a_tighter_target_holds_up_nobody() {
    let options = StoreOptions { segment_bytes: SEGMENT_BYTES, ..options() };
    let store = Store::create(SimOs::new(7), options).unwrap();
    store.set_space_percent(SPACE_PERCENT_MAX);
    let mut rng = SimRng::new(3);
    for lsn in 1..12_000 {
        let version = Version { lsn, tree: 1, noise: 2000 };
        write_one(&store, 1 + rng.below(PAGES), version, Compression::Lz4).unwrap();
        if store.wants_checkpoint() {
            checkpoint(&store, b"n").unwrap();
        }
    }
    let before = store.stats();
    assert!(before.dead_bytes > before.live_bytes, "{before:?}");
    store.set_space_percent(SPACE_PERCENT_MIN);
    assert_eq!(store.debt_percent(), 0, "nobody waits for what is there already");
    assert_eq!(store.gc_pressure_percent(), 100);
    while store.gc_pressure_percent() > 0 {
        store.gc_step(GC_STEP_BYTES).unwrap();
        if store.wants_checkpoint() {
            checkpoint(&store, b"n").unwrap();
        }
        assert_eq!(store.debt_percent(), 0);
    }
}

#[test]
fn all_thresholds_follow_from_one_parameter() {
    let mut last = SpacePolicy::of(SPACE_PERCENT_MIN);
    for percent in SPACE_PERCENT_MIN..=SPACE_PERCENT_MAX {
        let policy = SpacePolicy::of(percent);
        assert!(policy.gc_percent > 0 && policy.gc_percent < policy.gc_hard_percent, "{policy:?}");
        assert!(100 + policy.gc_hard_percent + policy.checkpoint_percent <= percent, "{policy:?}");
        assert!(100 + policy.limit_percent > percent, "{policy:?}");
        assert!(policy.gc_percent + 1 >= last.gc_percent, "{policy:?}");
        last = policy;
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
#[ignore = "a measurement, for docs/decisions/0031-space-goes-back.md"]
fn dead_space_by_policy() {
    println!("keys      space%  pieces  in use%  size%  gc bytes%  checkpoints  rests");
    for keys in KEYS {
        for space_percent in [110, 115, 125, 140, 164, 200] {
            for pieces in [1, 2, 4] {
                let o = run(space_percent, keys, pieces, 60_000);
                println!(
                    "{:<8} {space_percent:>7} {pieces:>7} {:>8} {:>6} {:>10} {:>12} {:>6}",
                    format!("{keys:?}"),
                    o.in_use_percent,
                    o.size_percent,
                    o.gc_percent,
                    o.checkpoints,
                    o.rests
                );
            }
        }
    }
}
