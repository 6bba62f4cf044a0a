//! The tables of docs/decisions/0025-owed-pages.md: which cases, in which order.

use crate::machine::{PagePolicy, Victim};
use crate::run::{Case, Data, MIB};
use crate::sizes::{Codec, LogCodec, ROWS_188, ROWS_512};
use crate::store::StorePolicy;
use crate::workload::Keys;

pub const NAMES: [&str; 10] = [
    "today",
    "monte-carlo",
    "window",
    "built",
    "victim",
    "gc",
    "codec",
    "workloads",
    "small-pool",
    "deltas",
];

pub fn cases(table: &str, seed: u64) -> Vec<Case> {
    match table {
        "today" => today(seed),
        "monte-carlo" => monte_carlo(seed),
        "window" => window(seed),
        "built" => built(seed),
        "victim" => victim(seed),
        "gc" => gc(seed),
        "codec" => codec(seed),
        "workloads" => workloads(seed),
        "small-pool" => small_pool(seed),
        "deltas" => deltas(seed),
        _ => Vec::new(),
    }
}

fn rows(keys: Keys, index: bool) -> Data {
    Data::Rows { keys, sizes: ROWS_188, index }
}

fn long_rows(index: bool) -> Data {
    Data::Rows { keys: Keys::Uniform, sizes: ROWS_512, index }
}

fn today(seed: u64) -> Vec<Case> {
    vec![
        Case::today("update_non_index", seed),
        Case::today("update_index", seed).with(|case| case.data = rows(Keys::Uniform, true)),
        Case::today("update_non_index, images of 9.4 kB", seed).with(with_short_images),
        Case::today("512 bytes, 150,000 rows, pool 64 MiB, c", seed)
            .with(|c| small_table(c, false)),
        Case::today("512 bytes, 150,000 rows, pool 64 MiB, k", seed).with(|c| small_table(c, true)),
    ]
}

/// As the sizes were measured.
fn small_table(case: &mut Case, index: bool) {
    case.data = long_rows(index);
    (case.tables, case.rows, case.pool_bytes) = (1, 150_000, 64 * MIB);
}

/// As the design assumed them.
fn with_short_images(case: &mut Case) {
    let mut sizes = ROWS_188;
    (sizes.leaf_lz4, sizes.rows_per_leaf) = (9400, 1_500_000.0 / 21_000.0);
    sizes.change_c = 260 - crate::sizes::CHANGE_HEAD_BYTES;
    case.data = Data::Rows { keys: Keys::Uniform, sizes, index: false };
}

/// The Monte Carlo that stands in the design, without any limit by the redo window.
fn monte_carlo(seed: u64) -> Vec<Case> {
    let owed = |share| {
        Case::owed(&format!("{share} % owed"), seed).with(with_short_images).with_owed(|owed| {
            (owed.share, owed.victim, owed.early) = (share, Victim::MostInMemory, 100);
        })
    };
    let mut cases = vec![Case::today("today", seed).with(with_short_images)];
    cases.extend([25, 50, 70].map(owed));
    cases.extend([25, 50].map(|share| {
        owed(share).with(|case| {
            case.pool_bytes = 16 * MIB;
            case.label = format!("16 MiB, {share} % owed");
        })
    }));
    for case in &mut cases[1..] {
        case.window_percent = 1000;
    }
    cases
}

fn window(seed: u64) -> Vec<Case> {
    let mut cases = Vec::new();
    for share in [25, 50, 70] {
        for (percent, log_mib) in [(40, 512), (60, 512), (70, 512), (80, 512), (80, 1024)] {
            let label = format!("{share} % owed, window {} MiB", log_mib * percent / 100);
            cases.push(Case::owed(&label, seed).with_owed(|owed| owed.share = share).with(
                |case| {
                    (case.window_percent, case.log_bytes) = (percent, log_mib * MIB);
                },
            ));
        }
    }
    cases
}

/// As the engine is, by the memory for changes and where it gets scarce.
fn built(seed: u64) -> Vec<Case> {
    let data = [
        ("update_non_index", rows(Keys::Uniform, false)),
        ("update_index", rows(Keys::Uniform, true)),
        ("zipf 0.8", rows(Keys::Zipf(0.8), false)),
        ("512 bytes", long_rows(false)),
        ("TPC-C 10", Data::Tpcc { warehouses: 10 }),
    ];
    let mut cases = Vec::new();
    for (name, data) in data {
        for (share, scarce) in [(50, 75), (50, 90), (60, 75), (60, 90), (70, 90)] {
            let label = format!("{name}, {share} % owed, scarce beyond {scarce} %");
            let case = Case::owed(&label, seed).with_owed(|owed| {
                (owed.share, owed.victim) = (share, Victim::Evicted { scarce });
                owed.early = 100;
            });
            cases.push(case.with(|case| {
                (case.data, case.window_percent) = (data, 85);
                (case.log_codec, case.half_plain_window) = (LogCodec::Zstd, true);
                case.store = StorePolicy::by_lifetime(160);
            }));
        }
    }
    cases
}

fn victim(seed: u64) -> Vec<Case> {
    let kinds = [Victim::MostInMemory, Victim::Most, Victim::Oldest];
    let case = |name: &str, share, victim, early| {
        let label = format!("{name}{share} % owed, {victim:?}, early {early} %");
        Case::owed(&label, seed)
            .with_owed(|owed| (owed.share, owed.victim, owed.early) = (share, victim, early))
    };
    let mut cases = Vec::new();
    for share in [25, 50] {
        cases.extend(kinds.map(|victim| case("", share, victim, 90)));
    }
    cases.extend([100, 75].map(|early| case("", 50, Victim::Oldest, early)));
    cases.extend(kinds.map(|victim| case("50:1, ", 50, victim, 90).with(eighth)));
    cases
}

fn gc(seed: u64) -> Vec<Case> {
    let with_store =
        |label: &str, store: StorePolicy| Case::owed(label, seed).with(|case| case.store = store);
    let mut cases = vec![with_store("owed, today's GC", StorePolicy::today())];
    for (percent, mib) in [(115, 2), (125, 2), (125, 8), (140, 2), (160, 2)] {
        let store = StorePolicy { segment_bytes: mib * MIB, ..StorePolicy::by_lifetime(percent) };
        let label = format!("owed, space {percent} %, segments {mib} MiB");
        cases.push(with_store(&label, store));
    }
    let one = StorePolicy { by_lifetime: false, ..StorePolicy::by_lifetime(125) };
    let greedy = StorePolicy { by_age: false, ..StorePolicy::by_lifetime(125) };
    let all = [
        ("four streams", StorePolicy::by_lifetime(125)),
        ("two streams", one),
        ("fewest live bytes", greedy),
    ];
    for (how, store) in all {
        cases.push(with_store(&format!("owed, space 125 %, {how}"), store));
    }
    for (how, store) in all {
        let case = with_store(&format!("zipf, owed, space 125 %, {how}"), store);
        cases.push(case.with(|case| case.data = rows(Keys::Zipf(0.8), false)));
    }
    for (how, store) in all {
        let case = with_store(&format!("zipf, today, space 125 %, {how}"), store);
        cases.push(case.with(|case| {
            (case.pages, case.log_codec) = (PagePolicy::Today, LogCodec::Plain);
            case.data = rows(Keys::Zipf(0.8), false);
        }));
    }
    for percent in [125, 140] {
        let label = format!("today, space {percent} %");
        let store = StorePolicy::by_lifetime(percent);
        cases.push(Case::today(&label, seed).with(|case| case.store = store));
    }
    cases
}

fn codec(seed: u64) -> Vec<Case> {
    let mut cases = Vec::new();
    for index in [false, true] {
        let name = if index { "update_index" } else { "update_non_index" };
        for log_codec in [LogCodec::Plain, LogCodec::Lz4, LogCodec::Zstd] {
            for codec in [Codec::Lz4, Codec::Zstd] {
                let label = format!("{name}, log {log_codec:?}, images {codec:?}");
                cases.push(Case::owed(&label, seed).with(|case| {
                    (case.codec, case.log_codec) = (codec, log_codec);
                    case.data = rows(Keys::Uniform, index);
                }));
            }
        }
        let label = format!("{name}, log Lz4, images Zstd, frozen entries");
        cases.push(Case::owed(&label, seed).with(|case| {
            case.codec = Codec::Zstd;
            case.data = Data::Rows { keys: Keys::Uniform, sizes: ROWS_188.frozen(), index };
        }));
    }
    cases
}

/// Deltas by memory, window and their greatest size: what a short restart, more frames, fewer reads
/// and less space cost.
fn deltas(seed: u64) -> Vec<Case> {
    let data = [
        ("188 bytes", rows(Keys::Uniform, false), 96),
        ("512 bytes", long_rows(false), 96),
        ("50:1", rows(Keys::Uniform, false), 12),
    ];
    let arms = [(50, 70, 0), (50, 70, 25), (50, 70, 50), (50, 70, 100), (25, 40, 0), (25, 40, 50)];
    let mut cases = Vec::new();
    for (name, data, pool_mib) in data {
        for (share, percent, deltas) in arms {
            let label = format!("{name}, {share} % owed, window {percent} %, deltas {deltas} %");
            let case = Case::owed(&label, seed).with(|case| {
                (case.data, case.window_percent) = (data, percent);
                case.pool_bytes = pool_mib * MIB;
                if pool_mib == 12 {
                    eighth(case);
                }
            });
            cases.push(case.with_owed(|owed| (owed.share, owed.deltas) = (share, deltas)));
        }
    }
    cases
}

/// Today's way, owed pages, and both stages.
fn arms(name: &str, seed: u64, change: impl Fn(&mut Case)) -> Vec<Case> {
    let mut today = Case::today(&format!("{name}: today"), seed);
    let mut owed = Case::owed(&format!("{name}: owed"), seed);
    let mut deltas =
        Case::owed(&format!("{name}: owed, deltas"), seed).with_owed(|owed| owed.deltas = 100);
    [&mut today, &mut owed, &mut deltas].into_iter().for_each(change);
    vec![today, owed, deltas]
}

fn workloads(seed: u64) -> Vec<Case> {
    let data = |data: Data| move |case: &mut Case| case.data = data;
    let mut cases = arms("uniform", seed, data(rows(Keys::Uniform, false)));
    cases.extend(arms("uniform, indexed", seed, data(rows(Keys::Uniform, true))));
    cases.extend(arms("zipf 0.8", seed, data(rows(Keys::Zipf(0.8), false))));
    cases.extend(arms("append", seed, data(rows(Keys::Append, false))));
    cases.extend(arms("512 bytes", seed, data(long_rows(false))));
    cases.extend(arms("512 bytes, indexed", seed, data(long_rows(true))));
    let in_memory = |case: &mut Case| case.pool_bytes = 2048 * MIB;
    cases.extend(arms("pool 2 GiB", seed, in_memory));
    let tpcc = |warehouses, pool_mib| {
        move |case: &mut Case| {
            case.data = Data::Tpcc { warehouses };
            case.pool_bytes = pool_mib * MIB;
        }
    };
    cases.extend(arms("TPC-C 3, pool 512 MiB", seed, tpcc(3, 512)));
    cases.extend(arms("TPC-C 10, pool 96 MiB", seed, tpcc(10, 96)));
    cases
}

/// Data of 50 times the pool: an eighth of everything, so that the relations stay.
fn eighth(case: &mut Case) {
    (case.pool_bytes, case.log_bytes) = (12 * MIB, case.log_bytes / 8);
    case.rows = 1_437_000;
}

fn small_pool(seed: u64) -> Vec<Case> {
    let mut cases = arms("50:1, log 512 MiB", seed, eighth);
    cases.extend(arms("50:1, log 512 MiB, indexed", seed, |case| {
        eighth(case);
        case.data = rows(Keys::Uniform, true);
    }));
    cases.extend(arms("50:1, log 512 MiB, zipf 0.8", seed, |case| {
        eighth(case);
        case.data = rows(Keys::Zipf(0.8), false);
    }));
    cases.extend(arms("50:1, log 4 GiB", seed, |case| {
        eighth(case);
        case.log_bytes *= 8;
    }));
    cases.extend(arms("50:1, log 512 MiB, append", seed, |case| {
        eighth(case);
        case.data = rows(Keys::Append, false);
    }));
    cases
}
