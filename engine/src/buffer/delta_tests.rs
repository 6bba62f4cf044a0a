//! Deltas: evictions that leave them, misses that read them, recovery that finds them.

use super::tests::{apply, create, new_pool, TREE};
use super::*;
use crate::base::{Error, Lsn, PageId, Result, TreeId};
use crate::os::sync::Mutex;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::Arc;

/// A log of deltas alone: the LSN of the first is 1000, that of the next 1001.
#[derive(Default)]
struct Records(Mutex<Vec<(PageId, Changes)>>);

struct Shared(Arc<Records>);

impl DeltaLog for Shared {
    fn append(&self, _tree: TreeId, page: PageId, changes: &Changes) -> Lsn {
        let mut records = self.0 .0.lock();
        records.push((page, changes.clone()));
        Lsn(999 + records.len() as u64)
    }

    fn read(&self, page: PageId, at: Lsn) -> Result<Changes> {
        let records = self.0 .0.lock();
        let found = at.0.checked_sub(1000).and_then(|n| records.get(n as usize));
        let found = found.filter(|record| record.0 == page);
        found.map(|record| record.1.clone()).ok_or_else(|| Error::corrupt("no delta", "test"))
    }
}

/// Pages 1 to 3 in the store with LSN 10, and a log for deltas.
fn pool_with_log() -> (Arc<Pool>, Arc<Records>) {
    let (_os, pool) = new_pool();
    let records = Arc::<Records>::default();
    pool.set_apply(apply);
    pool.set_delta_log(Box::new(Shared(Arc::clone(&records))));
    create(&pool, 1..=3, 10);
    assert!(pool.writeback_before(Lsn(100), 10).unwrap());
    pool.gathers.store(true, SeqCst);
    pool.set_deltas(true);
    (pool, records)
}

fn change(pool: &Pool, page: u64, lsn: u64, byte: u8) {
    change_by(pool, page, lsn, &[byte]);
}

fn change_by(pool: &Pool, page: u64, lsn: u64, change: &[u8]) {
    let mut guard = pool.write(PageId(page)).unwrap();
    guard.will_change(Lsn(lsn));
    apply(guard.bytes_mut(), PageId(page), change, Lsn(lsn)).unwrap();
    pool.gather(&guard, Lsn(lsn), change, false);
}

/// Evicts the page without an image, if its changes in memory then take at most so many bytes.
fn evict(pool: &Pool, page: u64, bytes_max: usize) -> bool {
    let mut shard = pool.table.shard(PageId(page));
    let i = shard.place_of(PageId(page)).unwrap();
    let goes = pool.owe_frame(&mut shard, i, bytes_max);
    let slot = goes.then(|| shard.remove_at(i));
    drop(shard);
    slot.into_iter().for_each(|slot| pool.reclaim(slot));
    goes
}

fn lsn_and_byte(pool: &Pool, page: u64) -> (u64, u8) {
    let guard = pool.read(PageId(page)).unwrap();
    (u64::from_le_bytes(guard[8..16].try_into().unwrap()), guard[16])
}

#[test]
fn a_page_goes_with_a_delta_where_memory_for_its_changes_is_scarce() {
    let (pool, records) = pool_with_log();
    let point = || pool.redo_point(Lsn(5000));
    change(&pool, 1, 20, 7);
    change(&pool, 1, 30, 8);
    let used = pool.stats().change_bytes;
    assert!(evict(&pool, 1, 0));
    assert_eq!((records.0.lock().len(), pool.stats().deltas, point()), (1, 1, Lsn(1000)));
    assert!(pool.stats().change_bytes < used + 160, "its changes have left memory");
    assert_eq!(lsn_and_byte(&pool, 1), (30, 8));
    assert_eq!((pool.stats().delta_reads, pool.owed_pages(), point()), (1, 0, Lsn(1000)));
    // While there is memory, later changes stay in it, and the delta has the others.
    change(&pool, 1, 1010, 9);
    assert!(evict(&pool, 1, 100));
    assert_eq!((records.0.lock().len(), point()), (1, Lsn(1000)));
    assert_eq!(lsn_and_byte(&pool, 1), (1010, 9));
    // The next delta has all of them, and redo begins with it.
    change(&pool, 1, 1020, 5);
    assert!(evict(&pool, 1, 0));
    let lsns: Vec<u64> = records.0.lock()[1].1.iter().map(|(lsn, _)| lsn.0).collect();
    assert_eq!((lsns, point()), (vec![20, 30, 1010, 1020], Lsn(1001)));
    assert_eq!(lsn_and_byte(&pool, 1), (1020, 5));
    // An image ends it.
    assert!(pool.writeback_before(Lsn(5000), 10).unwrap());
    change(&pool, 1, 2000, 6);
    assert!(evict(&pool, 1, 0));
    assert_eq!(records.0.lock()[2].1.iter().count(), 1);
}

#[test]
fn a_page_whose_delta_would_be_large_gets_an_image() {
    let (pool, records) = pool_with_log();
    for lsn in 20..40 {
        change_by(&pool, 1, lsn, &[lsn as u8; 150]);
    }
    assert!(!evict(&pool, 1, 0));
    assert_eq!((records.0.lock().len(), pool.stats().deltas), (0, 0));
    assert!(evict(&pool, 1, usize::MAX), "it may owe them all the same");
    assert_eq!(lsn_and_byte(&pool, 1), (39, 39));
}

#[test]
fn a_delta_that_cannot_be_read_leaves_the_page_owed() {
    let (pool, records) = pool_with_log();
    change(&pool, 1, 20, 7);
    assert!(evict(&pool, 1, 0));
    let kept = std::mem::take(&mut *records.0.lock());
    for _ in 0..2 {
        assert!(matches!(pool.read(PageId(1)), Err(Error::Corrupt { .. })));
        assert!(pool.renew_owed(PageId(1)).is_err());
    }
    assert_eq!((pool.owed_pages(), pool.redo_point(Lsn(5000))), (1, Lsn(1000)));
    // Another one in its place is noticed.
    let mut other = Changes::default();
    other.push(Lsn(21), &[9]);
    *records.0.lock() = vec![(PageId(1), other)];
    assert!(matches!(pool.read(PageId(1)), Err(Error::Corrupt { .. })));
    *records.0.lock() = kept;
    assert_eq!(lsn_and_byte(&pool, 1), (20, 7));
}

#[test]
fn the_redo_window_gets_new_deltas_of_pages_with_few_changes() {
    let (pool, records) = pool_with_log();
    let point = || pool.redo_point(Lsn(5000));
    for page in 1..=3 {
        change(&pool, page, 20 + page, 7);
        assert!(evict(&pool, page, 100));
    }
    for lsn in 30..45 {
        change_by(&pool, 3, lsn, &[lsn as u8; 80]);
    }
    assert!(evict(&pool, 3, 4000));
    assert_eq!(point(), Lsn(21));
    assert!(pool.renew_owed(PageId(1)).unwrap());
    assert!(pool.renew_owed(PageId(2)).unwrap());
    assert!(!pool.renew_owed(PageId(3)).unwrap(), "an image costs less");
    assert_eq!((point(), records.0.lock().len()), (Lsn(23), 2));
    pool.pay(PageId(3)).unwrap();
    assert!(pool.writeback_before(Lsn(100), 10).unwrap());
    assert_eq!(point(), Lsn(1000));
    // A delta is renewed too.
    assert!(pool.renew_owed(PageId(1)).unwrap());
    assert_eq!((point(), records.0.lock().len()), (Lsn(1001), 3));
    assert_eq!((lsn_and_byte(&pool, 1), lsn_and_byte(&pool, 2)), ((21, 7), (22, 7)));
    assert!(pool.renew_owed(PageId(1)).unwrap(), "it has a frame now");
    assert_eq!(records.0.lock().len(), 3);
}

/// The log of a page: changes with these LSNs, and deltas at LSNs, from one change to another.
fn tail_of(changes: &[u64], deltas: &[(u64, u64, u64)]) -> Tail {
    let mut tail = Tail::default();
    let mut deltas = deltas.iter().peekable();
    for &lsn in changes.iter().chain([&u64::MAX]) {
        while let Some(&(at, first, last)) = deltas.next_if(|delta| delta.0 < lsn) {
            let delta = Delta { at: Lsn(at), first: Lsn(first), last: Lsn(last), bytes: 13 };
            tail.add_delta(TREE, PageId(1), delta);
        }
        if lsn < u64::MAX {
            tail.add(TREE, PageId(1), Lsn(lsn), &[1], false);
        }
    }
    tail
}

fn found(tail: &Tail) -> (Option<u64>, Vec<u64>) {
    let page = &tail.pages[&PageId(1)];
    let changes = page.changes.iter().map(|(lsn, _)| lsn.0).collect();
    (page.delta.map(|delta| delta.at.0), changes)
}

#[test]
fn recovery_takes_a_delta_for_the_changes_that_it_has_and_for_no_others() {
    // Changes from before the redo point are in the delta alone.
    assert_eq!(found(&tail_of(&[], &[(50, 10, 40)])), (Some(50), vec![]));
    assert_eq!(found(&tail_of(&[30, 40, 60], &[(50, 10, 40)])), (Some(50), vec![60]));
    let both = [(50, 10, 40), (70, 10, 60)];
    assert_eq!(found(&tail_of(&[40, 60, 80], &both)), (Some(70), vec![80]));
    // An image that is not durable had the changes before the delta's first: all are there one by one.
    assert_eq!(found(&tail_of(&[20, 30, 40, 60], &[(50, 30, 40)])), (None, vec![20, 30, 40, 60]));
    let after_image = [(50, 10, 40), (90, 80, 80)];
    assert_eq!(found(&tail_of(&[40, 60, 80, 95], &after_image)), (Some(50), vec![60, 80, 95]));
}

#[test]
fn a_tail_counts_its_memory_and_forgets_deltas_that_images_hold() {
    let mut tail = tail_of(&[30, 40, 60], &[(50, 10, 40)]);
    let bytes = tail.bytes();
    assert!(bytes > tail_of(&[], &[(50, 10, 40)]).bytes());
    tail.trim(|_| Lsn(30));
    assert_eq!((found(&tail), tail.bytes()), ((Some(50), vec![60]), bytes));
    tail.trim(|_| Lsn(40));
    assert_eq!(found(&tail), (None, vec![60]));
    tail.trim(|_| Lsn(60));
    assert_eq!((tail.pages.len(), tail.bytes()), (0, 0));
}

#[test]
fn recovered_pages_owe_deltas() {
    let (pool, records) = pool_with_log();
    change(&pool, 1, 20, 7);
    change(&pool, 2, 21, 8);
    assert!(evict(&pool, 1, 0) && evict(&pool, 2, 0));
    let (os, again) = new_pool();
    drop(os);
    again.set_apply(apply);
    again.set_delta_log(Box::new(Shared(Arc::clone(&records))));
    create(&again, 1..=2, 10);
    fill_to(&again, 2, 21);
    assert!(again.writeback_before(Lsn(100), 10).unwrap());
    (1..=2).for_each(|page| again.discard(PageId(page)));
    let mut tail = Tail::default();
    for (n, (page, changes)) in records.0.lock().iter().enumerate() {
        tail.add_delta(TREE, *page, Delta::of(Lsn(1000 + n as u64), changes).unwrap());
    }
    tail.add(TREE, PageId(1), Lsn(1500), &[3], false);
    again.owe(tail);
    (1..=2).for_each(|page| again.trim_recovered(PageId(page)));
    assert_eq!((again.owed_pages(), again.redo_point(Lsn(5000))), (1, Lsn(1000)));
    assert_eq!((lsn_and_byte(&again, 1), lsn_and_byte(&again, 2).0), ((1500, 3), 21));
}

/// The page as of this LSN.
fn fill_to(pool: &Pool, page: u64, lsn: u64) {
    let mut guard = pool.write(PageId(page)).unwrap();
    guard.will_change(Lsn(lsn));
    apply(guard.bytes_mut(), PageId(page), &[8], Lsn(lsn)).unwrap();
}
