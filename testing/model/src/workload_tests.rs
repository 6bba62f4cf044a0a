use super::*;
use crate::sizes::ROWS_188;

fn rows(keys: Keys, index: bool) -> Workload {
    let rows = Rows { keys, sizes: ROWS_188, tables: 2, rows: 150_000, index, codec: Codec::Lz4 };
    Workload::rows(rows, LogCodec::Plain, 1)
}

fn visits(workload: &mut Workload, transactions: usize) -> Vec<Visit> {
    let mut all = Vec::new();
    for _ in 0..transactions {
        workload.next(&mut all);
    }
    all
}

fn counts(visits: &[Visit], pages: u32) -> Vec<u32> {
    let mut counts = vec![0; pages as usize];
    visits.iter().for_each(|visit| counts[visit.page as usize] += 1);
    counts
}

#[test]
fn uniform_updates_meet_all_leaves_alike() {
    let mut workload = rows(Keys::Uniform, false);
    assert_eq!(workload.pages(), 2 * 2005);
    let counts = counts(&visits(&mut workload, 401_000), workload.pages());
    // 100 each, with a deviation of 10; the last leaf of a table is not full.
    let (least, most) = (counts[..2004].iter().min(), counts.iter().max());
    assert!(least > Some(&55) && most < Some(&150), "{least:?} {most:?}");
}

#[test]
fn zipf_has_its_weights() {
    let (mut rng, n, draws) = (Rng::new(5), 10_000u64, 1_000_000);
    let mut counts = vec![0u64; n as usize];
    (0..draws).for_each(|_| counts[zipf(&mut rng, n, 0.8) as usize] += 1);
    let sum: f64 = (1..=n).map(|rank| (rank as f64).powf(-0.8)).sum();
    let share = |ranks: std::ops::Range<u64>| -> (f64, f64) {
        let exact: f64 = ranks.clone().map(|rank| ((rank + 1) as f64).powf(-0.8)).sum();
        (counts[ranks.start as usize..ranks.end as usize].iter().sum::<u64>() as f64, exact)
    };
    for ranks in [0..10, 10..100, 100..1000, 1000..10_000] {
        let (drawn, exact) = share(ranks.clone());
        let expected = exact / sum * draws as f64;
        assert!((drawn / expected - 1.0).abs() < 0.08, "{ranks:?}: {drawn} of {expected}");
    }
}

#[test]
fn an_indexed_column_changes_the_index_too_and_is_purged_later() {
    let mut workload = rows(Keys::Uniform, true);
    assert_eq!(workload.pages(), 2 * (2005 + 481));
    let all = visits(&mut workload, 10_000);
    assert_eq!(all.len(), 3 * 10_000 + 9500);
    let purges = all.iter().filter(|visit| visit.change_bytes == INDEX_PURGE);
    let is_index = |page: u32| page % (2005 + 481) >= 2005;
    assert!(purges.clone().all(|visit| is_index(visit.page)));
    assert!(purges.clone().all(|v| workload.image_bytes(v.page) == ROWS_188.index_leaf_lz4));
    assert_eq!(purges.count(), 9500);
}

#[test]
fn appended_rows_fill_new_leaves_one_after_the_other() {
    let mut workload = rows(Keys::Append, false);
    let all = visits(&mut workload, 7485);
    assert_eq!(all[0].page, workload.pages());
    assert_eq!(all[7484].page, workload.pages() + 99);
    assert!(all.windows(2).all(|pair| pair[1].page - pair[0].page <= 1));
}

#[test]
fn a_trace_like_tpcc_is_hot_in_districts_and_uniform_in_stock() {
    let mut workload = Workload::tpcc(3, Codec::Lz4, LogCodec::Plain, 1);
    let loaded = workload.pages();
    let all = visits(&mut workload, 100_000);
    let most = all.iter().map(|visit| visit.page).max().unwrap_or_default();
    assert!(most > loaded, "orders are appended");
    let changes: Vec<Visit> = all.iter().filter(|v| v.change_bytes > 0).copied().collect();
    let counts = counts(&changes, most + 1);
    // 0.88 of 100,000 transactions change one of three pages with districts.
    let hot = counts.iter().filter(|&&count| count > 20_000).count();
    assert_eq!(hot, 3);
    let stock = &counts[850 + 2..850 + 2 + 2173];
    assert!(stock.iter().all(|&count| (30..130).contains(&count)), "69 each");
}

#[test]
fn a_seed_repeats_its_visits() {
    let run = || {
        let pages = visits(&mut Workload::tpcc(2, Codec::Lz4, LogCodec::Plain, 7), 1000);
        pages.iter().map(|visit| visit.page).collect::<Vec<u32>>()
    };
    assert_eq!(run(), run());
}
