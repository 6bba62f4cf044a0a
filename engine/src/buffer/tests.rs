use super::frame::Meta;
use super::writeback_tests::assert_all_listed;
use super::*;
use crate::base::{Error, Lsn, PageId, TreeId, PAGE_BYTES};
use crate::os::sim::{Fault, SimOs, SimRng};
use crate::os::Os;
use crate::store::{Store, StoreOptions};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::Arc;
use std::thread;

pub(super) const TREE: TreeId = TreeId(3);

fn store_options() -> StoreOptions {
    StoreOptions { segment_bytes: 1 << 20, ..StoreOptions::new("/store") }
}

/// The least pool of a program that is not simulated.
const CAPACITY_BYTES: usize = 64 * PAGE_BYTES;

pub(super) fn new_pool() -> (Arc<SimOs>, Arc<Pool>) {
    let os = SimOs::new(1);
    let store = Store::create(os.clone(), store_options()).unwrap();
    (os, Pool::new(store, PoolOptions { capacity_bytes: CAPACITY_BYTES }))
}

/// Writes page id, LSN and a body that depends on both.
fn fill(guard: &mut WriteGuard, lsn: u64) {
    let page = guard.page();
    guard.will_change(Lsn(lsn));
    let bytes = guard.bytes_mut();
    bytes[..8].copy_from_slice(&page.0.to_le_bytes());
    bytes[8..16].copy_from_slice(&lsn.to_le_bytes());
    bytes[16..].fill((page.0 ^ lsn) as u8);
}

fn verify(bytes: &[u8], page: u64) -> u64 {
    assert_eq!(bytes[..8], page.to_le_bytes());
    let lsn = u64::from_le_bytes(bytes[8..16].try_into().unwrap());
    assert!(bytes[16..].iter().all(|&b| b == (page ^ lsn) as u8));
    lsn
}

pub(super) fn create(pool: &Pool, pages: std::ops::RangeInclusive<u64>, lsn: u64) {
    for page in pages {
        fill(&mut pool.create(PageId(page), TREE).unwrap(), lsn);
    }
}

#[test]
fn pages_come_back_from_the_store_after_eviction() {
    let (_os, pool) = new_pool();
    create(&pool, 1..=500, 10);
    for page in 1..=500 {
        assert_eq!(verify(&pool.read(PageId(page)).unwrap(), page), 10);
    }
    let stats = pool.stats();
    assert!(stats.evictions > 300 && stats.misses > 300, "{stats:?}");
    assert!(stats.frames <= 64 + 32, "{stats:?}");
    pool.evict_step(100).unwrap();
    assert!(pool.stats().free > 0);
}

#[test]
fn a_page_that_nobody_has_is_corrupt_and_leaves_no_frame() {
    let (_os, pool) = new_pool();
    assert!(matches!(pool.read(PageId(5)), Err(Error::Corrupt { .. })));
    assert!(matches!(pool.write(PageId::ZERO), Err(Error::Corrupt { .. })));
    fill(&mut pool.create(PageId(5), TREE).unwrap(), 1);
    assert_eq!(verify(&pool.read(PageId(5)).unwrap(), 5), 1);
    assert!(pool.create(PageId(5), TREE).is_err());
}

#[test]
fn only_a_page_in_memory_that_stays_is_resident() {
    let (_os, pool) = new_pool();
    create(&pool, 1..=1, 7);
    let is_resident = || {
        let shared = pool.read_resident(PageId(1), &mut Passing::default()).is_some();
        assert_eq!(pool.write_resident(PageId(1)).is_some(), shared);
        shared
    };
    assert!(is_resident());
    pool.writeback_before(Lsn(100), 10).unwrap();
    pool.discard(PageId(1));
    assert!(!is_resident(), "a miss reads nothing");
    assert_eq!(verify(&pool.read(PageId(1)).unwrap(), 1), 7);
    assert!(is_resident());
    pool.write(PageId(1)).unwrap().will_free(Lsn(200));
    assert!(!is_resident(), "its record is in the log");
    pool.free(PageId(1));
    assert!(!is_resident());
}

#[test]
fn one_read_serves_all_who_miss_together() {
    let (_os, pool) = new_pool();
    create(&pool, 1..=1, 7);
    pool.writeback_before(Lsn(100), 10).unwrap();
    for _ in 0..200 {
        pool.discard(PageId(1));
        let before = pool.stats().misses;
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| verify(&pool.read(PageId(1)).unwrap(), 1));
            }
        });
        assert_eq!(pool.stats().misses, before + 1);
    }
}

#[test]
fn the_redo_point_is_the_lowest_dirty_page_until_it_is_written() {
    let (_os, pool) = new_pool();
    create(&pool, 1..=1, 50);
    create(&pool, 2..=2, 40);
    fill(&mut pool.write(PageId(2)).unwrap(), 90);
    assert_eq!(pool.redo_point(Lsn(1000)), Lsn(40));
    assert_eq!(pool.redo_point(Lsn(30)), Lsn(30));
    assert!(!pool.writeback_before(Lsn(60), 1).unwrap());
    assert!(pool.writeback_before(Lsn(60), 1).unwrap());
    assert_eq!(pool.redo_point(Lsn(1000)), Lsn(1000));
    fill(&mut pool.write(PageId(2)).unwrap(), 95);
    assert_eq!(pool.redo_point(Lsn(1000)), Lsn(95));
}

#[test]
fn a_failed_writeback_leaves_pages_as_dirty_as_they_were() {
    let (os, pool) = new_pool();
    create(&pool, 1..=40, 20);
    os.fail_after(0, Fault::DiskFull);
    let mut rng = SimRng::new(2);
    let mut lsn = 20;
    // The store takes some pages in memory before it needs the disk.
    let failed = (0..2000).any(|_| {
        lsn += 1;
        let mut guard = pool.write(PageId(1 + rng.below(40))).unwrap();
        guard.will_change(Lsn(lsn));
        let noise: Vec<u8> = (16..PAGE_BYTES).map(|_| rng.next_u64() as u8).collect();
        guard.bytes_mut()[16..].copy_from_slice(&noise);
        drop(guard);
        let before = pool.redo_point(Lsn(1 << 40));
        let result = pool.writeback_before(Lsn(1 << 40), 5);
        if result.is_err() {
            assert_eq!(pool.redo_point(Lsn(1 << 40)), before);
            assert_all_listed(&pool);
        }
        result.is_err()
    });
    assert!(failed);
    os.clear_fault();
    while !pool.writeback_before(Lsn(1 << 40), 100).unwrap() {}
    assert_eq!(pool.stats().dirty, 0);
}

/// A leaf of the page map that cannot be read costs its own pages their writeback, not the others
/// of their batch.
#[test]
fn pages_of_an_unreadable_leaf_keep_no_other_from_being_written() {
    let (os, pool) = new_pool();
    create(&pool, 1..=1, 10);
    // In no leaf of the page map together with it, however small leaves are.
    create(&pool, 600..=600, 10);
    while !pool.writeback_before(Lsn(100), 100).unwrap() {}
    // Until both leaves are in a snapshot; in the new life they are in no memory.
    while os.exists(Path::new("/store/map-1")).unwrap() {
        pool.store().checkpoint(&[1; 9000], &mut |_| Ok(())).unwrap();
    }
    drop(pool);
    let (store, _) = Store::open(os.clone(), store_options()).unwrap();
    let pool = Pool::new(store, PoolOptions { capacity_bytes: CAPACITY_BYTES });
    verify(&pool.read(PageId(1)).unwrap(), 1);
    os.fail_reads_of(Some("map-"));
    create(&pool, 2..=15, 50);
    create(&pool, 601..=607, 40);
    assert!(!pool.writeback_before(Lsn(1000), 100).unwrap());
    assert_eq!((pool.stats().dirty, pool.redo_point(Lsn(1000))), (7, Lsn(40)));
    assert!(matches!(pool.writeback_before(Lsn(1000), 100), Err(Error::Io { .. })));
    assert_eq!((pool.stats().dirty, pool.redo_point(Lsn(1000))), (7, Lsn(40)));
    assert!(!pool.store().is_poisoned());
    os.fail_reads_of(None);
    while !pool.writeback_before(Lsn(1000), 100).unwrap() {}
    assert_eq!(pool.stats().dirty, 0);
}

#[test]
fn a_page_to_be_freed_holds_the_redo_point_and_is_not_written() {
    let (_os, pool) = new_pool();
    create(&pool, 1..=2, 10);
    while !pool.writeback_before(Lsn(100), 10).unwrap() {}
    pool.write(PageId(1)).unwrap().will_free(Lsn(60));
    pool.writeback_before(Lsn(100), 10).unwrap();
    assert_eq!(pool.redo_point(Lsn(100)), Lsn(60));
    pool.free(PageId(1));
    assert_eq!(pool.redo_point(Lsn(100)), Lsn(100));
    assert!(pool.read(PageId(1)).is_err());
    assert_eq!(pool.store().pages(), 1);
}

/// Once for each time that memory of changes has gone down by enough.
#[test]
fn the_heap_is_trimmed_when_many_changes_have_gone() {
    let (_os, pool) = new_pool();
    let mut wants = |change_bytes| {
        pool.tally.change_bytes.store(change_bytes, Relaxed);
        pool.wants_trim()
    };
    let found = [0, 9 << 20, 6 << 20, 5 << 20, 4 << 20, 7 << 20, 1 << 20].map(&mut wants);
    assert_eq!(found, [false, false, false, true, false, false, true]);
}

#[test]
fn a_frame_in_use_is_never_evicted() {
    let (_os, pool) = new_pool();
    create(&pool, 1..=1, 10);
    let held = pool.read(PageId(1)).unwrap();
    create(&pool, 2..=300, 10);
    assert!(!Arc::ptr_eq(
        &held.0.meta,
        &Arc::new(Meta::new(PageId(1), TREE, Arc::default(), Arc::default()))
    ));
    let again = pool.read(PageId(1)).unwrap();
    assert!(Arc::ptr_eq(&held.0.meta, &again.0.meta), "one frame per page");
}

#[test]
fn threads_never_see_an_older_page_again() {
    let (_os, pool) = new_pool();
    create(&pool, 1..=200, 1);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let (pool, done) = (&pool, &done);
        let worker = |n: u64| {
            let mut rng = SimRng::new(n);
            let mut seen = vec![0; 201];
            for _ in 0..4000 {
                let page = 1 + rng.below(200);
                let lsn = if rng.chance(40) {
                    let mut guard = pool.write(PageId(page)).unwrap();
                    let lsn = verify(&guard, page) + 1;
                    fill(&mut guard, lsn);
                    lsn
                } else {
                    verify(&pool.read(PageId(page)).unwrap(), page)
                };
                assert!(lsn >= seen[page as usize], "page {page} went back");
                seen[page as usize] = lsn;
            }
        };
        let background = scope.spawn(move || {
            while !done.load(SeqCst) {
                pool.evict_step(8).unwrap();
                pool.writeback_before(Lsn(u64::MAX - 1), 16).unwrap();
                assert_all_listed(pool);
            }
        });
        let workers: Vec<_> = (1..=6).map(|n| scope.spawn(move || worker(n))).collect();
        workers.into_iter().for_each(|w| w.join().unwrap());
        done.store(true, SeqCst);
        background.join().unwrap();
    });
}

/// Pages in a scattered order, most of them changed: twenty times what fits.
fn change_many(pool: &Pool, pages: u64) {
    let mut rng = SimRng::new(9);
    create(pool, 1..=pages, 10);
    for lsn in 11..4 * pages {
        let page = 1 + rng.below(pages);
        if rng.chance(70) {
            fill(&mut pool.write(PageId(page)).unwrap(), lsn);
        } else {
            verify(&pool.read(PageId(page)).unwrap(), page);
        }
        pool.admit();
    }
}

#[test]
fn a_miss_writes_no_page_while_somebody_evicts() {
    let (_os, pool) = new_pool();
    let evictor = Arc::downgrade(&pool);
    pool.set_waker(Box::new(move || {
        // In the thread of the miss, which may hold latches: the step must not wait for one.
        evictor.upgrade().unwrap().evict_step(64).unwrap();
    }));
    change_many(&pool, 64 * 20);
    let stats = pool.stats();
    assert!(stats.misses > 2000 && stats.writebacks > 2000, "{stats:?}");
    assert_eq!((stats.inline_writebacks, stats.overcommits), (0, 0), "{stats:?}");
    assert!(stats.dirty <= 64 * 3 / 4 + 32, "{stats:?}");
    assert!(stats.frames <= 64, "{stats:?}");
}

#[test]
fn an_evictor_that_is_late_costs_frames_first_and_then_writes() {
    let (_os, pool) = new_pool();
    pool.set_waker(Box::new(|| ()));
    create(&pool, 1..=72, 10);
    let stats = pool.stats();
    assert_eq!((stats.inline_writebacks, stats.overcommits), (0, 8), "{stats:?}");
    create(&pool, 73..=200, 10);
    assert!(pool.stats().inline_writebacks > 0);
    assert!(pool.stats().frames <= 64 + 8 + 1, "{:?}", pool.stats());
    // A writer waits until the pool is back at its size.
    let waits = pool.stats().waits;
    thread::scope(|scope| {
        let writer = scope.spawn(|| pool.admit());
        while pool.evict_step(64).unwrap() {}
        writer.join().unwrap();
    });
    pool.admit();
    assert!(pool.stats().waits <= waits + 1);
    assert!(pool.stats().frames <= 64, "{:?}", pool.stats());
}

/// A hand that stood in a shard whose last frame it had just taken.
#[test]
fn a_pool_can_be_evicted_to_the_last_frame() {
    let (_os, pool) = new_pool();
    pool.set_capacity(1 << 30);
    create(&pool, 1..=300, 10);
    while !pool.writeback_before(Lsn(100), 100).unwrap() {}
    pool.set_capacity(0);
    pool.free.lock().clear();
    // As if nothing but these frames were there.
    for _ in 0..20 {
        pool.sweep(10_000);
    }
    assert_eq!(pool.stats().evictions, 300);
}

/// A change of these tests: the page's body becomes this byte. The byte 255 cannot be applied.
pub(super) fn apply(
    bytes: &mut [u8],
    page: PageId,
    change: &[u8],
    lsn: Lsn,
) -> crate::base::Result<()> {
    if change[0] == 255 {
        return Err(Error::corrupt("change", page.to_string()));
    }
    bytes[..8].copy_from_slice(&page.0.to_le_bytes());
    bytes[8..16].copy_from_slice(&lsn.0.to_le_bytes());
    bytes[16..].fill(change[0]);
    Ok(())
}

/// Pages 1 to 3 in the store with LSN 10, and changes of pages 1 to 4 that are owed.
fn pool_that_owes() -> Arc<Pool> {
    let (_os, pool) = new_pool();
    create(&pool, 1..=3, 10);
    pool.writeback_before(Lsn(100), 10).unwrap();
    (1..=3).for_each(|page| pool.discard(PageId(page)));
    pool.set_apply(apply);
    let mut tail = Tail::default();
    tail.add(TREE, PageId(1), Lsn(9), &[255], false);
    tail.add(TREE, PageId(3), Lsn(10), &[255], false);
    tail.add(TREE, PageId(1), Lsn(20), &[7], false);
    tail.add(TREE, PageId(2), Lsn(30), &[8], false);
    tail.add(TREE, PageId(2), Lsn(40), &[9], false);
    tail.add(TreeId(5), PageId(4), Lsn(50), &[1], true);
    pool.owe(tail);
    pool
}

#[test]
fn who_misses_a_page_applies_what_is_owed_to_it() {
    let pool = pool_that_owes();
    let seen = |page| (pool.read(PageId(page)).unwrap()[8], pool.read(PageId(page)).unwrap()[16]);
    assert_eq!([seen(1), seen(2), seen(4)], [(20, 7), (40, 9), (50, 1)]);
    assert_eq!((pool.owed_pages(), pool.owed_applied()), (1, 4));
    // The image in the store is new enough: it is not even read.
    let misses = pool.stats().misses;
    pool.pay(PageId(3)).unwrap();
    assert_eq!((pool.owed_pages(), pool.stats().misses), (0, misses));
    assert!(pool.trees().contains(&TreeId(5)));
}

#[test]
fn what_is_owed_holds_the_redo_point_until_it_is_in_the_store() {
    let pool = pool_that_owes();
    let point = || pool.redo_point(Lsn(1000));
    assert_eq!(point(), Lsn(9));
    pool.pay(PageId(3)).unwrap();
    drop(pool.write(PageId(1)).unwrap());
    assert_eq!(point(), Lsn(9), "page 1 is dirty from the first change that was owed");
    pool.writeback_before(Lsn(1000), 10).unwrap();
    assert_eq!(point(), Lsn(30));
    pool.give_up(PageId(2), TREE);
    assert_eq!(point(), Lsn(50));
    pool.forget_owed(TreeId(5));
    assert_eq!(point(), Lsn(1000));
    assert!(pool.read(PageId(4)).is_err());
}

#[test]
fn what_cannot_be_applied_stays_owed_and_leaves_no_frame() {
    let pool = pool_that_owes();
    (1..=4).for_each(|page| pool.pay(PageId(page)).unwrap());
    pool.writeback_before(Lsn(1000), 10).unwrap();
    let mut tail = Tail::default();
    tail.add(TREE, PageId(2), Lsn(60), &[255], false);
    tail.add(TREE, PageId(6), Lsn(60), &[1], false);
    tail.add(TREE, PageId(1), Lsn(60), &[3], false);
    pool.owe(tail);
    pool.discard(PageId(2));
    for _ in 0..2 {
        assert!(matches!(pool.read(PageId(2)), Err(Error::Corrupt { .. })));
        assert!(matches!(pool.read(PageId(6)), Err(Error::Corrupt { .. })), "nobody made it");
    }
    assert_eq!(pool.owed_in_memory(), [(PageId(1), TREE)]);
    pool.pay(PageId(1)).unwrap();
    assert_eq!(pool.read(PageId(1)).unwrap()[16], 3);
    assert_eq!(pool.next_owed(9, TreeId(4)).len(), 2);
    assert_eq!(pool.next_owed(9, TREE).len(), 0, "only of trees below");
}

/// Of 300 pages, in the order of the file, one is freed and one paid meanwhile. Neighbours come from one read.
#[test]
fn recovered_pages_are_paid_in_the_order_of_the_file() {
    let (_os, pool) = new_pool();
    let ids = || (1..=300).rev().chain(301..=400);
    ids().for_each(|page| create(&pool, page..=page, 10));
    pool.writeback_before(Lsn(1000), 1000).unwrap();
    pool.store().checkpoint(&[1], &mut |_| Ok(())).unwrap();
    (1..=400).for_each(|page| pool.discard(PageId(page)));
    pool.set_apply(apply);
    let mut tail = Tail::default();
    (1..=300).for_each(|page| tail.add(TREE, PageId(page), Lsn(20), &[7], false));
    // The images of these have it.
    (301..=400).for_each(|page| tail.add(TREE, PageId(page), Lsn(10), &[255], false));
    pool.owe(tail);
    let place = |page: PageId| pool.store().place_in_file(page).unwrap();
    let reads = || pool.store().stats().stretch_reads;
    let (before, mut seen, mut last) = (reads(), 0, 0);
    loop {
        let next = pool.next_in_file(16);
        if next.is_empty() {
            break;
        }
        assert!(next.iter().map(|&(page, _)| place(page)).is_sorted());
        assert!(place(next[0].0) >= last);
        last = place(next[next.len() - 1].0);
        seen += next.len();
        if seen == 64 {
            pool.free(PageId(next[3].0 .0));
            pool.pay(next[5].0).unwrap();
        }
        pool.pay_together(&next).into_iter().for_each(|paid| paid.unwrap());
    }
    assert_eq!((seen, pool.recovered_pages()), (300, 0));
    assert!(reads() - before > 250, "{} reads", reads() - before);
}

/// Pages of trees that owe nothing else are counted apart: a search for them ends at once when there is none.
#[test]
fn owed_pages_of_the_engines_own_trees_are_found() {
    let (_os, pool) = new_pool();
    let own = TreeId(TREE.0 - 1);
    pool.set_first_owing_tree(TREE);
    let mut tail = Tail::default();
    tail.add(own, PageId(8), Lsn(20), &[1], true);
    tail.add(TREE, PageId(9), Lsn(30), &[1], true);
    pool.owe(tail);
    assert_eq!(
        (pool.next_owed(9, own).len(), pool.next_owed(9, TREE)),
        (0, vec![(PageId(8), own)])
    );
    pool.forget_owed(own);
    assert_eq!(pool.next_owed(9, TREE).len(), 0);
    assert_eq!(pool.next_owed(9, TreeId(TREE.0 + 1)), [(PageId(9), TREE)]);
}

/// Pages 1 to 3 have images with LSN 10. Page 3 was made by a change of the tail, which can make it again.
#[test]
fn a_tail_over_a_store_passes_over_what_its_images_hold() {
    let (_os, pool) = new_pool();
    create(&pool, 1..=3, 10);
    pool.writeback_before(Lsn(100), 10).unwrap();
    let mut tail = Tail::over(&pool.store);
    for (page, lsn) in [(1, 9), (2, 10), (3, 8), (1, 10), (3, 10), (4, 10), (1, 11)] {
        tail.add(TREE, PageId(page), Lsn(lsn), &[1], lsn == 8);
    }
    let found = |tail: &Tail, page| {
        let changes = &tail.pages[&PageId(page)].changes;
        (changes.creates, changes.iter().map(|(lsn, _)| lsn.0).collect::<Vec<u64>>())
    };
    assert_eq!((found(&tail, 1), found(&tail, 2)), ((false, vec![11]), (false, vec![])));
    assert_eq!((found(&tail, 3), found(&tail, 4)), ((true, vec![8, 10]), (false, vec![10])));
    assert_eq!(tail.take().pages.len(), 4);
    // The next part knows the images too.
    tail.add(TREE, PageId(1), Lsn(10), &[1], false);
    assert_eq!(found(&tail, 1), (false, vec![]));
    pool.owe(tail);
    assert_eq!(pool.owed_pages(), 0);
}

#[test]
fn a_tail_that_shrinks_takes_what_its_changes_take() {
    let mut tail = Tail::default();
    let mut taken = 0;
    for lsn in 1..=100 {
        tail.add(TREE, PageId(lsn % 3), Lsn(lsn), &[1; 100], false);
        taken = taken.max(tail.bytes());
    }
    tail.shrink();
    let shrunk = tail.bytes();
    assert!(shrunk < taken && shrunk > 100 * 100, "{taken} bytes, {shrunk} when shrunk");
    // From now on lists grow by little.
    (0..3).for_each(|page| tail.add(TREE, PageId(page), Lsn(200), &[1; 100], false));
    assert!(tail.bytes() - shrunk < shrunk / 6, "{shrunk} bytes, then {}", tail.bytes());
}

/// The same pages and images: what these hold is forgotten without a read, and the redo point rises.
#[test]
fn a_page_that_recovery_found_owes_what_its_image_lacks() {
    let pool = pool_that_owes();
    let (used, misses) = (pool.stats().change_bytes, pool.stats().misses);
    (1..=4).for_each(|page| pool.trim_recovered(PageId(page)));
    assert_eq!((pool.owed_pages(), pool.recovered_pages()), (3, 0), "page 3 has an image of all");
    assert_eq!(pool.redo_point(Lsn(1000)), Lsn(20));
    assert!(pool.stats().change_bytes < used);
    assert_eq!(pool.stats().misses, misses);
    let seen = |page| (pool.read(PageId(page)).unwrap()[8], pool.read(PageId(page)).unwrap()[16]);
    assert_eq!([seen(1), seen(2), seen(3), seen(4)], [(20, 7), (40, 9), (10, 9), (50, 1)]);
    // It owes nothing now: nothing happens.
    pool.trim_recovered(PageId(1));
    assert_eq!((pool.owed_pages(), pool.owed_applied()), (0, 4));
}

#[test]
fn a_tail_forgets_what_images_hold() {
    let mut tail = Tail::default();
    tail.add(TREE, PageId(1), Lsn(5), &[1; 40], true);
    tail.add(TREE, PageId(1), Lsn(9), &[2; 40], false);
    tail.add(TREE, PageId(2), Lsn(7), &[3; 40], true);
    tail.add(TREE, PageId(3), Lsn(8), &[4; 40], false);
    let bytes = tail.bytes();
    tail.trim(|page| [Lsn::ZERO, Lsn(5), Lsn(6), Lsn(8)][page.0 as usize]);
    assert!(tail.bytes() < bytes * 2 / 3, "{} of {bytes}", tail.bytes());
    let (_os, pool) = new_pool();
    pool.owe(tail);
    assert_eq!(pool.redo_point(Lsn(1000)), Lsn(7), "page 2 was made anew, page 3 owes nothing");
    assert_eq!(pool.owed_pages(), 2);
}

/// Of pages 1 to 500 in the store, the first 40 are wanted again and again.
fn pool_with_hot_pages() -> Arc<Pool> {
    let (_os, pool) = new_pool();
    create(&pool, 1..=500, 10);
    assert!(pool.writeback_before(Lsn(100), 1000).unwrap());
    (1..=500).for_each(|page| pool.discard(PageId(page)));
    want_hot_pages(&pool);
    pool
}

/// Answers how many of them had to be read.
fn want_hot_pages(pool: &Pool) -> u64 {
    let before = pool.stats().misses;
    (1..=40).for_each(|page| drop(pool.read(PageId(page)).unwrap()));
    pool.stats().misses - before
}

fn scan(pool: &Pool, pages: std::ops::RangeInclusive<u64>, meanwhile: impl Fn(u64)) {
    let mut scan = Passing::default();
    for page in pages {
        // A batch of rows, and the rest of the leaf.
        for _ in 0..2 {
            verify(&pool.read_passing(PageId(page), &mut scan).unwrap(), page);
        }
        meanwhile(page);
        pool.pass(PageId(page), &mut scan);
    }
}

#[test]
fn a_long_scan_leaves_what_others_want_in_memory() {
    let pool = pool_with_hot_pages();
    scan(&pool, 101..=500, |_| ());
    let missed = want_hot_pages(&pool);
    assert!(missed <= 8, "as many as the scan may load before it is long, and some: {missed}");
    let stats = pool.stats();
    assert!(stats.passed > 300 && stats.frames <= 64 + 8, "{stats:?}");
    // A page that another thread wants meanwhile stays, and so does one that is in use.
    let held = pool.read(PageId(200)).unwrap();
    scan(&pool, 101..=500, |page| {
        if page == 490 {
            drop(pool.read(PageId(page)).unwrap());
        }
    });
    drop(held);
    let mut passing = Passing::default();
    assert!([200, 490].iter().all(|&p| pool.read_resident(PageId(p), &mut passing).is_some()));
    assert!(pool.read_resident(PageId(489), &mut passing).is_none());
}

#[test]
fn a_scan_of_what_memory_has_room_for_brings_it_in() {
    let pool = pool_with_hot_pages();
    (1..=40).for_each(|page| pool.discard(PageId(page)));
    scan(&pool, 101..=150, |_| ());
    let before = pool.stats();
    scan(&pool, 101..=150, |_| ());
    let now = pool.stats();
    assert_eq!((now.passed, now.misses - before.misses), (0, 0));
}

#[test]
fn a_page_that_a_scan_passes_owes_its_changes_again() {
    let pool = pool_that_owes();
    pool.gathers.store(true, SeqCst);
    create(&pool, 5..=100, 10);
    assert!(pool.writeback_before(Lsn(100), 1000).unwrap());
    // Long, and memory is full.
    let mut scan = Passing::default();
    for page in 5..=100 {
        drop(pool.read_passing(PageId(page), &mut scan).unwrap());
        pool.pass(PageId(page), &mut scan);
    }
    let images = pool.stats().writebacks;
    for page in [1, 2] {
        drop(pool.read_passing(PageId(page), &mut scan).unwrap());
        assert!(!pool.is_owed(PageId(page)));
        pool.pass(PageId(page), &mut scan);
        assert!(pool.is_owed(PageId(page)));
    }
    assert_eq!(pool.stats().writebacks, images);
    assert_eq!(pool.redo_point(Lsn(1000)), Lsn(9));
    assert_eq!([1, 2].map(|page| pool.read(PageId(page)).unwrap()[16]), [7, 9]);
}

/// The pages that follow a page, up to page 500, for a scan that goes up.
fn after(page: u64) -> impl Fn(usize) -> Option<PageId> {
    move |n| Some(PageId(page + n as u64)).filter(|next| next.0 <= 500)
}

/// A pool whose readers are called by hand, and a scan that stands before page 105.
fn pool_that_reads_ahead() -> (Arc<Pool>, Passing) {
    let pool = pool_with_hot_pages();
    pool.set_read_waker(Box::new(|| ()));
    let mut scan = Passing::default();
    (101..=104).for_each(|page| step(&pool, page, &mut scan));
    (pool, scan)
}

fn step(pool: &Pool, page: u64, scan: &mut Passing) {
    pool.read_ahead(scan, after(page));
    verify(&pool.read_passing(PageId(page), scan).unwrap(), page);
    pool.pass(PageId(page), scan);
}

#[test]
fn a_scan_finds_the_pages_that_were_read_ahead() {
    let (pool, mut scan) = pool_that_reads_ahead();
    let before = pool.stats();
    for page in 105..=500 {
        step(&pool, page, &mut scan);
        while pool.read_step() {}
    }
    let stats = pool.stats();
    assert_eq!(stats.read_ahead + stats.misses - before.misses, 396, "each page is read once");
    assert_eq!(stats.misses - before.misses, 1, "no page was read ahead of the first");
    assert!(stats.frames <= 64 + 8, "{stats:?}");
    assert!(want_hot_pages(&pool) <= 12, "the scan gives its frames back");
}

#[test]
fn a_scan_does_not_wait_for_readers_that_are_behind() {
    let (pool, mut scan) = pool_that_reads_ahead();
    let before = pool.stats();
    (105..=500).for_each(|page| step(&pool, page, &mut scan));
    let stats = pool.stats();
    assert_eq!((stats.read_ahead, stats.misses - before.misses), (0, 396));
    while pool.read_step() {}
    assert_eq!(pool.stats().read_ahead, 0, "the pages have come and gone");
}

#[test]
fn a_short_scan_reads_nothing_ahead() {
    let pool = pool_with_hot_pages();
    pool.set_read_waker(Box::new(|| ()));
    let mut scan = Passing::default();
    (101..=103).for_each(|page| step(&pool, page, &mut scan));
    assert!(!pool.read_step());
}

#[test]
fn an_awaited_page_may_be_freed_written_or_unreadable() {
    let (pool, mut scan) = pool_that_reads_ahead();
    pool.read_ahead(&mut scan, after(104));
    // Page 105 goes, and 106 is another thread's; nobody can read 107.
    pool.free(PageId(105));
    drop(pool.write(PageId(106)).unwrap());
    pool.store().free(PageId(107));
    while pool.read_step() {}
    assert!([105, 107].iter().all(|&page| pool.read_passing(PageId(page), &mut scan).is_err()));
    (106..=108).step_by(2).for_each(|page| {
        verify(&pool.read_passing(PageId(page), &mut scan).unwrap(), page);
    });
    assert!(pool.stats().frames <= 64 + 8);
}

/// How many of the pages begin in the file where the page before them ends.
fn in_order(pool: &Pool, pages: std::ops::RangeInclusive<u64>) -> usize {
    let place_of = |page| -> (u64, u64) {
        let text = pool.store().place_of(PageId(page));
        let words: Vec<&str> = text.split(' ').collect();
        let [.., "offset", place, "length", len] = words[..] else { panic!("{text}") };
        (place.parse().expect("a place"), len.parse().expect("a length"))
    };
    let places: Vec<_> = pages.map(place_of).collect();
    places.windows(2).filter(|two| two[0].0 + two[0].1 == two[1].0).count()
}

#[test]
fn new_pages_go_to_the_file_in_their_order() {
    // Several pages in each shard of the table of frames. By a checkpoint:
    let (_os, pool) = new_pool();
    pool.set_capacity(1000 * PAGE_BYTES);
    create(&pool, 1..=600, 10);
    assert!(pool.writeback_before(Lsn(100), 1000).unwrap());
    assert!(in_order(&pool, 1..=600) >= 500, "{}", in_order(&pool, 1..=600));
    // By eviction, as a load goes on:
    let (_os, pool) = new_pool();
    pool.set_capacity(300 * PAGE_BYTES);
    for page in 1..=2000 {
        create(&pool, page..=page, 10);
        while pool.evict_step(64).unwrap() {}
    }
    assert!(in_order(&pool, 1..=1600) >= 900, "{}", in_order(&pool, 1..=1600));
}

/// Nothing of it is packed, appended or owed; pages of other trees are written as ever.
#[test]
fn a_dirty_page_of_a_dropped_tree_is_clean_and_not_written() {
    let (_os, pool) = new_pool();
    create(&pool, 1..=30, 10);
    fill(&mut pool.create(PageId(100), TreeId(4)).unwrap(), 20);
    pool.store().drop_trees(&[TREE]);
    assert!(pool.writeback_before(Lsn(1000), 100).unwrap());
    assert_eq!((pool.redo_point(Lsn(1000)), pool.stats().dirty), (Lsn(1000), 0));
    let (stats, written) = (pool.store().stats(), pool.store().written());
    assert_eq!((stats.images, stats.pages), (1, 1));
    assert_eq!(written.dropped, Default::default());

    // The clock neither writes them nor leaves changes.
    create(&pool, 31..=60, 30);
    assert_eq!(pool.redo_point(Lsn(1000)), Lsn(30));
    create(&pool, 201..=400, 40);
    while pool.evict_step(100).unwrap() {}
    let stats = pool.stats();
    assert_eq!((stats.owed_pages, stats.writebacks, pool.store().stats().images), (0, 1, 1));
    assert!(stats.evictions > 100, "{stats:?}");
}
