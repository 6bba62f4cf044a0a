//! Leaves of the page map that are not in memory.

use super::super::map::Lookup;
use super::*;
use std::path::Path;

const LEAF: u64 = leaf::LEAF_PAGES as u64;
const RAW: Compression = Compression::None;

fn version(lsn: u64) -> Version {
    Version { lsn, tree: 1, noise: 300 }
}

/// Pages of `leaves` leaves, one each, in a store that was opened anew: no leaf is in memory, all
/// are in the snapshot.
fn reopened(seed: u64, leaves: u64, options: StoreOptions) -> (Arc<SimOs>, Arc<Store>, Model) {
    let (os, store) = new_store_with(seed, options.clone());
    let mut model = Model::new();
    for leaf in 0..leaves {
        let (page, version) = (leaf * LEAF + 1 + leaf, version(leaf + 1));
        write_one(&store, page, version, Compression::Lz4).unwrap();
        model.insert(page, version);
    }
    let generation = |store: &Store| store.checkpointer.lock().map_generation();
    let first = generation(&store);
    while generation(&store) == first {
        checkpoint(&store, &[1; 9000]).unwrap();
    }
    drop(store);
    let (store, _) = Store::open(os.clone(), options).unwrap();
    (os, store, model)
}

fn snapshot_file(store: &Store) -> std::path::PathBuf {
    mapfile::snapshot_path(Path::new(DIR), store.checkpointer.lock().map_generation())
}

#[test]
fn opening_reads_no_leaf_and_memory_stays_within_the_budget() {
    let budget = 4 * leaf::LEAF_BYTES;
    let (_, store, model) = reopened(1, 60, options_with_leaves(4));
    assert_eq!(store.lsn_in_memory(PageId(1)), None);
    assert_eq!(store.stats().map_leaf_reads, 0);
    check_sums(&store, &model, 2);
    let upper = store.stats().map_memory_bytes;
    assert!(upper < 60 * 64, "{upper}");
    for round in 0..3 {
        for (&page, version) in &model {
            check_page(&store, page, Some(version)).unwrap();
            let now = store.stats().map_memory_bytes;
            assert!(now <= upper + budget as u64, "{now}");
        }
        assert!(store.stats().map_leaf_reads >= 56 * (round + 1), "they do not all fit");
    }
    let reads = store.stats().map_leaf_reads;
    let (&page, version) = model.last_key_value().unwrap();
    (0..9).for_each(|_| check_page(&store, page, Some(version)).unwrap());
    assert_eq!(store.lsn_in_memory(PageId(page)), Some(Lsn(version.lsn)));
    assert_eq!(store.stats().map_leaf_reads, reads, "one that is in memory is not read again");
}

#[test]
fn one_damaged_leaf_costs_its_pages_and_nothing_else() {
    for seed in 0..20 {
        let (os, store, mut model) = reopened(seed, 12, options_with_leaves(2));
        let mut rng = SimRng::new(seed);
        // Twelve chunks of one entry.
        let path = snapshot_file(&store);
        os.flip_bit(&path, 4096 + rng.below(12 * 16), rng.below(8) as u8);
        let mut bad = Vec::new();
        for (&page, version) in &model {
            match check_page(&store, page, Some(version)) {
                Ok(()) => {}
                Err(Error::Corrupt { what, place, page: named }) => {
                    assert!(what.contains("leaf"), "{what}");
                    assert!(place.contains("/store/map-"), "{place}");
                    assert_eq!(named, Some(PageId(page)));
                    bad.push(page);
                }
                Err(error) => panic!("{error}"),
            }
        }
        assert_eq!(bad.len(), 1, "{bad:?}");
        let bad = bad[0];
        assert!(matches!(write_one(&store, bad, version(99), RAW), Err(Error::Corrupt { .. })));
        store.free(PageId(bad));
        assert!(!store.is_poisoned());
        // Writing, freeing, GC, snapshots that fail and checkpoints go on.
        let generation = store.checkpointer.lock().map_generation();
        for lsn in 100..160 {
            let page = *model.keys().nth(rng.below(12) as usize).unwrap();
            if page != bad {
                write_one(&store, page, version(lsn), RAW).unwrap();
                model.insert(page, version(lsn));
            }
            store.gc_step(100_000).unwrap();
            checkpoint(&store, &[2; 9000]).unwrap();
        }
        assert_eq!(store.checkpointer.lock().map_generation(), generation, "nothing is dropped");
        assert!(store.stats().map_leaf_faults >= 5);
        assert!(store.free_tree_step(TreeId(2), 10));
        drop(store);
        let files = StoreFiles::read(&*os, DIR.as_ref(), None).unwrap();
        assert!(files.wrong_sums().is_err());
        assert_eq!(files.places().filter(|place| place.is_err()).count(), 1);
        let (store, _) = Store::open(os, options()).unwrap();
        for (&page, version) in model.iter().filter(|(page, _)| **page != bad) {
            check_page(&store, page, Some(version)).unwrap();
        }
        assert_eq!(store.pages(), 12);
        while !store.free_tree_step(TreeId(1), 5) {}
        assert_eq!((store.pages(), store.trees()), (1, vec![TreeId(1)]));
    }
}

/// EIO comes and goes; whatever is answered is right, and nothing is lost.
#[test]
fn failing_reads_of_leaves_lose_nothing() {
    for seed in 0..40 {
        let (os, mut store, mut model) = reopened(seed, 12, options_with_leaves(2));
        let mut rng = SimRng::new(seed + 1);
        let mut failed = 0;
        for lsn in 100..500 {
            if rng.chance(10) {
                os.fail_reads_of(rng.chance(60).then_some("map-"));
            }
            let page = (rng.below(12)) * LEAF + 1 + rng.below(3) * 30;
            let done = match rng.below(100) {
                0..=49 => check_page(&store, page, model.get(&page)),
                50..=79 => write_one(&store, page, version(lsn), Compression::Lz4).map(|()| {
                    model.insert(page, version(lsn));
                }),
                80..=84 => {
                    // Freed now or by a checkpoint; the id is never used again.
                    let page = (rng.below(12)) * LEAF + 200 + rng.below(100);
                    os.fail_reads_of(None);
                    if model.contains_key(&page) {
                        continue;
                    }
                    write_one(&store, page, version(lsn), RAW).unwrap();
                    os.fail_reads_of(rng.chance(60).then_some("map-"));
                    store.free(PageId(page));
                    Ok(())
                }
                85..=91 => checkpoint(&store, &[3; 6000]),
                92..=96 => store.gc_step(50_000).map(|_| ()),
                _ => {
                    os.fail_reads_of(None);
                    checkpoint(&store, b"n").unwrap();
                    check_pages(&store, &model, 1..=12 * LEAF, 2);
                    drop(store);
                    check_files(&os);
                    store = Store::open(os.clone(), options_with_leaves(2)).unwrap().0;
                    Ok(())
                }
            };
            match done {
                Ok(()) => {}
                Err(Error::Io { .. }) => failed += 1,
                Err(error) => panic!("{error}"),
            }
            assert!(!store.is_poisoned());
        }
        assert!(failed > 3, "{failed}");
        os.fail_reads_of(None);
        checkpoint(&store, b"last").unwrap();
        os.crash();
        check_files(&os);
        let (store, _) = Store::open(os, options_with_leaves(1)).unwrap();
        check_pages(&store, &model, 1..=12 * LEAF, 2);
    }
}

/// The old snapshot stays readable for a read that began before the new one.
#[test]
fn a_read_of_an_old_snapshot_is_not_taken_for_the_new_one() {
    let (os, store, mut model) = reopened(5, 4, options_with_leaves(4));
    let page = *model.keys().next().unwrap();
    let missing = match store.state.read().map.get(PageId(page)) {
        Lookup::Missing(missing) => missing,
        Lookup::Known(_) => panic!("nothing is in memory"),
    };
    let generation = store.checkpointer.lock().map_generation();
    write_one(&store, page, version(50), RAW).unwrap();
    model.insert(page, version(50));
    while store.checkpointer.lock().map_generation() == generation {
        checkpoint(&store, &[4; 9000]).unwrap();
    }
    store.state.write().map.shrink_to(0);
    let old = missing.read().expect("a reader of the old file can read it");
    let names = crate::os::Os::list(&*os, DIR.as_ref()).unwrap();
    assert_eq!(names.len(), 4, "its name is gone: {names:?}");
    store.state.write().map.install(&missing, &old);
    check_page(&store, page, model.get(&page)).unwrap();
}

/// The records of a segment that could not be read, or whose leaves could not: GC goes on without
/// it, and takes it up after the next checkpoint.
#[test]
fn gc_tries_again_what_could_not_be_read() {
    for unreadable in ["map-", "pages"] {
        let (os, store, model) = reopened(3, 12, options_with_leaves(2));
        os.fail_reads_of(Some(unreadable));
        for _ in 0..9 {
            assert!(matches!(store.gc_step(100_000), Ok(0) | Err(Error::Io { .. })));
        }
        assert!(matches!(store.gc_step(100_000), Ok(0)), "others have their turn");
        os.fail_reads_of(None);
        assert_eq!(store.gc_step(100_000).unwrap(), 0);
        checkpoint(&store, b"n").unwrap();
        assert!(store.gc_step(100_000).unwrap() > 0, "{unreadable}");
        check_pages(&store, &model, 1..=12 * LEAF, 2);
    }
}
