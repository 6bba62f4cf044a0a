use super::*;
use crate::sizes::{Codec, LogCodec, ROWS_188};
use crate::workload::{Keys, Rows};

fn workload(keys: Keys) -> Workload {
    let rows =
        Rows { keys, sizes: ROWS_188, tables: 1, rows: 150_000, index: false, codec: Codec::Lz4 };
    Workload::rows(rows, LogCodec::Plain, 1)
}

fn policy(pages: PagePolicy) -> Policy {
    let store = StorePolicy { segment_bytes: 256 << 10, ..StorePolicy::by_lifetime(140) };
    Policy { pool_bytes: 8 << 20, window_bytes: 64 << 20, pages, store }
}

const OWED: OwedPolicy = OwedPolicy { share: 50, victim: Victim::Most, early: 100, deltas: 0 };

fn run(policy: Policy, keys: Keys, transactions: u64) -> Machine {
    let mut workload = workload(keys);
    let mut machine = Machine::new(policy, &workload);
    (0..transactions).for_each(|_| machine.run_transaction(&mut workload));
    machine
}

/// Sums over the pages, beside the totals that are kept.
fn check(machine: &Machine) {
    let owed = machine.pages.iter().filter(|page| page.first != NEVER);
    let bytes = |page: &Page| u64::from(page.bytes) + OWED_PAGE_BYTES;
    assert_eq!(machine.owed_bytes, owed.clone().map(bytes).sum::<u64>());
    assert_eq!(machine.owed_changes, owed.clone().map(|page| u64::from(page.changes)).sum::<u64>());
    let framed = (0..machine.pages.len() as u32).filter(|&page| machine.clock.holds(page));
    let dirty = framed.filter(|&page| machine.pages[page as usize].first != NEVER);
    assert_eq!(machine.dirty, dirty.count());
    let oldest = owed.map(|page| page.first).min();
    assert!(oldest.is_none_or(|oldest| oldest >= machine.redo_point), "redo would miss a change");
    for (page, state) in machine.pages.iter().enumerate() {
        assert_eq!(state.delta > 0, machine.store.has(page as u32, Kind::Delta));
    }
}

#[test]
fn every_change_is_pending_or_in_the_store() {
    let evicted = Victim::Evicted { scarce: 75 };
    for victim in [Victim::MostInMemory, Victim::Most, Victim::Oldest, evicted] {
        for (early, deltas) in [(100, 0), (50, 0), (100, 100), (75, 50)] {
            let owed = OwedPolicy { victim, early, deltas, ..OWED };
            for keys in [Keys::Uniform, Keys::Zipf(0.8), Keys::Append] {
                check(&run(policy(PagePolicy::Owed(owed)), keys, 60_000));
            }
        }
    }
    check(&run(policy(PagePolicy::Today), Keys::Uniform, 60_000));
}

#[test]
fn memory_and_window_are_kept() {
    for deltas in [0, 100] {
        let machine =
            run(policy(PagePolicy::Owed(OwedPolicy { deltas, ..OWED })), Keys::Uniform, 200_000);
        let peaks = machine.peaks;
        assert!(peaks.window_bytes <= 64 << 20, "{peaks:?}");
        // One change more than fits, before a page is written.
        assert!(peaks.owed_bytes <= (4 << 20) + 400, "{peaks:?}");
        assert!(peaks.owed_bytes > 3 << 20, "the memory is used: {peaks:?}");
    }
}

/// Pages that stay in memory are not asked, so a load that fits may exceed it: this one does not.
#[test]
fn pages_that_are_evicted_keep_the_memory() {
    let victim = Victim::Evicted { scarce: 75 };
    let owed = OwedPolicy { victim, ..OWED };
    let peaks = run(policy(PagePolicy::Owed(owed)), Keys::Uniform, 200_000).peaks;
    assert!(peaks.owed_bytes <= 4 << 20, "{peaks:?}");
    assert!(peaks.owed_bytes > 3 << 20, "the memory is used: {peaks:?}");
}

/// 2004 leaves; with M owed changes a page on average, and the most owed one written, an image
/// holds about 2 M + 1 of them.
#[test]
fn an_image_holds_as_many_changes_as_the_memory_lets_gather() {
    let machine = run(
        Policy { window_bytes: 1 << 40, ..policy(PagePolicy::Owed(OWED)) },
        Keys::Uniform,
        300_000,
    );
    let mean = machine.owed_changes as f64 / 2004.0;
    let images = (machine.totals.by_memory + machine.totals.evicted) as f64;
    let changes = machine.totals.changes as f64 / images;
    assert!((changes / (2.0 * mean + 1.0) - 1.0).abs() < 0.2, "{changes} with {mean} owed");
}

#[test]
fn todays_way_writes_an_image_for_nearly_each_change_out_of_memory() {
    let machine = run(policy(PagePolicy::Today), Keys::Uniform, 60_000);
    let images = (machine.totals.evicted + machine.totals.by_window) as f64;
    let changes = machine.totals.changes as f64 / images;
    // A quarter of the pages has frames.
    assert!((1.1..1.4).contains(&changes), "{changes}");
    let reads = machine.totals.reads as f64 / 60_000.0;
    assert!((0.72..0.82).contains(&reads), "{reads}");
}

#[test]
fn a_seed_repeats_its_bytes() {
    let written = || {
        let machine = run(policy(PagePolicy::Owed(OWED)), Keys::Zipf(0.8), 50_000);
        (machine.store.written.image_bytes, machine.store.written.gc_bytes, machine.totals.reads)
    };
    assert_eq!(written(), written());
}
