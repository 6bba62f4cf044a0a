//! Seeds that must pass, and what the simulator promises about itself.

mod runner;

use sluice_sim::{run, Options};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// Time for seeds that nobody chose.
const SHARE: Duration = Duration::from_secs(25);

#[track_caller]
fn passes(seed: u64) {
    let report = run(seed, Options::default());
    assert_eq!(report.failure, None, "seed {seed}");
}

/// The trace is that of all choices and of all bytes that were written. The second run has another heap
/// and other addresses, and a run of another seed beside it.
fn the_same_seed_gives_the_same_trace() {
    for seed in 0..12 {
        let first = run(seed, Options::default());
        let blocks: Vec<Vec<u8>> = (0..1000).map(|n| vec![0xa5; 16 + 37 * (n % 97)]).collect();
        let kept: Vec<_> = blocks.into_iter().step_by(3).collect();
        let second = std::thread::scope(|scope| {
            scope.spawn(|| run(seed + 500, Options::default()));
            run(seed, Options::default())
        });
        assert!(kept.iter().flatten().all(|&byte| byte == 0xa5));
        assert_eq!(first.failure, None, "seed {seed}");
        assert_eq!(first.trace_hash, second.trace_hash, "seed {seed}");
        assert_eq!(first.points, second.points, "seed {seed}");
    }
}

fn other_seeds_give_other_traces() {
    let hashes: BTreeSet<u64> =
        (100..110).map(|seed| run(seed, Options::default()).trace_hash).collect();
    assert_eq!(hashes.len(), 10);
}

fn a_share_of_seeds_passes() {
    let begin = Instant::now();
    let mut seeds = 1000..;
    while begin.elapsed() < SHARE {
        passes(seeds.next().unwrap_or_default());
    }
    println!("{} seeds", seeds.start - 1000);
}

/// A segment that the disk had refused to read was tried again after a checkpoint only, and none came: its
/// old key stayed needed for ever.
fn segments_that_were_put_off_are_rotated() {
    passes(1101);
}

/// A rollback brought back a delete mark that the purge had passed: it stayed for ever.
fn delete_marks_that_were_purged_do_not_come_back() {
    [3, 7, 8, 11, 13].into_iter().for_each(passes);
}

/// A session that held the lock of a row that is gone, in an interval of somebody else, took the
/// processor until the other one ended; a rollback to a savepoint gave others the lock of a row
/// that still had the transaction's earlier version.
fn who_cannot_write_waits() {
    [282, 563, 711, 2159, 2567, 2581].into_iter().for_each(passes);
}

/// A transaction that began while a checkpoint took its notes kept the engine from opening.
fn a_checkpoint_may_meet_a_new_transaction() {
    passes(652);
}

/// Pages of a table that was never finished came to the store after the look for such trees.
fn pages_that_redo_made_for_nobody_are_freed() {
    [443, 1061].into_iter().for_each(passes);
}

/// The row in the way was deleted before it was locked: no duplicate any more.
fn a_duplicate_is_one_when_it_is_locked() {
    passes(2382);
}

/// A delete mark was purged under an old snapshot, and with its key went the record of a rolled back
/// transaction whose revert had not come there yet.
fn a_revert_keeps_the_records_of_its_chain() {
    [301127, 301210, 303805].into_iter().for_each(passes);
}

/// Another's interval lay over an own row, and the gap before it stayed open to inserts.
fn the_gap_before_an_own_row_is_locked() {
    passes(925763);
}

fn main() {
    runner::run(tests![
        the_same_seed_gives_the_same_trace,
        other_seeds_give_other_traces,
        a_share_of_seeds_passes,
        segments_that_were_put_off_are_rotated,
        delete_marks_that_were_purged_do_not_come_back,
        who_cannot_write_waits,
        a_checkpoint_may_meet_a_new_transaction,
        pages_that_redo_made_for_nobody_are_freed,
        a_duplicate_is_one_when_it_is_locked,
        a_revert_keeps_the_records_of_its_chain,
        the_gap_before_an_own_row_is_locked,
    ])
}
