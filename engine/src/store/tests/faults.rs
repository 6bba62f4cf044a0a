//! Full disks, failed writes, damaged files.

use super::*;
use crate::base::formats::{Release, ENCRYPTED_TABLES};
use crate::os::sim::Fault;
use crate::os::{OpenMode, Os};
use std::path::Path;

const RAW: Compression = Compression::None;

fn version(lsn: u64) -> Version {
    Version { lsn, tree: 1, noise: 8000 }
}

fn pages_path() -> &'static Path {
    Path::new("/store/pages")
}

#[test]
fn a_full_disk_poisons_nothing_and_loses_nothing() {
    for seed in 0..60 {
        let (os, store) = new_store(seed);
        let mut rng = SimRng::new(seed);
        let mut model = Model::new();
        let mut full = 0;
        os.fail_after(rng.below(60), Fault::DiskFull);
        for lsn in 1..300 {
            let page = 1 + rng.below(30);
            match write_one(&store, page, version(lsn), RAW) {
                Ok(()) => {
                    model.insert(page, version(lsn));
                }
                Err(Error::Full { .. }) => {
                    // Written or not: what is there must be one of the two.
                    full += 1;
                    let mut out = vec![0; PAGE_BYTES];
                    let got = store.read(PageId(page), &mut out).unwrap();
                    if got.is_some_and(|info| info.lsn.0 == lsn) {
                        model.insert(page, version(lsn));
                    }
                }
                Err(error) => panic!("{error}"),
            }
            if rng.chance(10) {
                let _ = store.gc_step(50_000);
            }
            if rng.chance(5) {
                assert!(matches!(checkpoint(&store, b"n"), Ok(()) | Err(Error::Full { .. })));
            }
        }
        assert!(full > 0);
        check_all(&store, &model, 30, 2);
        os.clear_fault();
        checkpoint(&store, b"after").unwrap();
        let next = version(1000);
        write_one(&store, 1, next, RAW).unwrap();
        model.insert(1, next);
        checkpoint(&store, b"last").unwrap();
        check_all(&store, &model, 30, 2);
        os.crash();
        let (store, note) = Store::open(os, options()).unwrap();
        assert_eq!(note, b"last");
        check_all(&store, &model, 30, 2);
    }
}

/// Also with raw pages, where padding alone leaves a quarter of every small segment dead.
#[test]
fn collection_frees_mostly_dead_segments_and_comes_to_an_end() {
    let (_, store) = new_store(3);
    // Fill some segments with raw pages, three to a segment, then kill two of three.
    for page in 1..=30 {
        write_one(&store, page, version(page), RAW).unwrap();
    }
    checkpoint(&store, b"full").unwrap();
    (1..=30).filter(|page| page % 3 != 0).for_each(|page| store.free(PageId(page)));
    let before = store.stats();
    assert!(before.dead_bytes > before.live_bytes);
    assert!(store.wants_gc());
    let mut rounds = 0;
    while store.gc_step(u64::MAX).unwrap() > 0 {
        rounds += 1;
        assert!(rounds < 20);
        checkpoint(&store, b"gc").unwrap();
    }
    let after = store.stats();
    assert!(!store.wants_gc());
    assert!(after.free_bytes > before.free_bytes + 4 * after.segment_bytes, "{after:?}");
    for page in 1..=30 {
        let want = version(page);
        check_page(&store, page, (page % 3 == 0).then_some(&want)).unwrap();
    }
}

#[test]
fn a_failed_write_or_sync_poisons() {
    let mut poisoned = 0;
    for at in 0..20 {
        let (os, store) = new_store(at);
        write_one(&store, 1, version(1), RAW).unwrap();
        checkpoint(&store, b"one").unwrap();
        write_one(&store, 2, version(2), RAW).unwrap();
        os.fail_after(at, Fault::IoError);
        let failed = checkpoint(&store, b"two").is_err();
        os.clear_fault();
        assert_eq!(store.is_poisoned(), failed);
        if failed {
            poisoned += 1;
            assert!(matches!(checkpoint(&store, b"x"), Err(Error::Poisoned { .. })));
            let refused = write_one(&store, 3, version(3), RAW);
            assert!(matches!(refused, Err(Error::Poisoned { .. })));
            check_page(&store, 2, Some(&version(2))).unwrap();
        }
        os.crash();
        let (store, note) = Store::open(os, options()).unwrap();
        check_page(&store, 1, Some(&version(1))).unwrap();
        check_page(&store, 2, (note == b"two").then_some(&version(2))).unwrap();
        assert!(failed || note == b"two");
    }
    assert!(poisoned >= 6, "{poisoned}");
}

#[test]
fn a_failing_log_flush_keeps_the_changes_for_the_next_checkpoint() {
    let (os, store) = new_store(4);
    write_one(&store, 1, version(7), RAW).unwrap();
    let mut asked = Lsn::ZERO;
    let failed = store.checkpoint(b"no", &mut |lsn| {
        asked = lsn;
        Err(Error::Full { what: "log" })
    });
    assert!(failed.is_err());
    assert_eq!(asked, Lsn(7));
    checkpoint(&store, b"yes").unwrap();
    os.crash();
    let (store, note) = Store::open(os, options()).unwrap();
    assert_eq!(note, b"yes");
    check_page(&store, 1, Some(&version(7))).unwrap();
}

#[test]
fn rot_is_found_and_named_and_leaves_the_rest_alone() {
    for seed in 0..40 {
        let (os, store) = new_store(seed);
        let mut rng = SimRng::new(seed);
        for page in 1..=20 {
            write_one(&store, page, version(page), RAW).unwrap();
        }
        checkpoint(&store, b"").unwrap();
        let victim = 1 + rng.below(20);
        let entry = store.entry(PageId(victim)).unwrap().unwrap();
        let at = entry.place() + rng.below(entry.record_bytes() as u64);
        os.flip_bit(pages_path(), at, rng.below(8) as u8);
        // Frees segments around it, so that GC meets the damaged record.
        (1..=20).filter(|p| p % 2 == 0 && *p != victim).for_each(|p| store.free(PageId(p)));
        for _ in 0..30 {
            store.gc_step(100_000).unwrap();
            checkpoint(&store, b"").unwrap();
        }
        let error = store.read(PageId(victim), &mut vec![0; PAGE_BYTES]).unwrap_err();
        let Error::Corrupt { what, place, .. } = error else { panic!("{error}") };
        assert!(what.contains(&format!("page {victim} ")), "{what}");
        assert!(place.contains("/store/pages"), "{place}");
        for page in (1..=20).filter(|&p| p % 2 == 1 && p != victim) {
            check_page(&store, page, Some(&version(page))).unwrap();
        }
        write_one(&store, victim, version(99), RAW).unwrap();
        check_page(&store, victim, Some(&version(99))).unwrap();
        assert_eq!(store.stats().corrupt_reads, 1);
    }
}

#[test]
fn a_record_of_an_older_write_is_not_taken_for_the_new_one() {
    // A lost write: the place holds a sound record, of the right page, from another time.
    let (os, store) = new_store(8);
    write_one(&store, 1, version(1), RAW).unwrap();
    checkpoint(&store, b"").unwrap();
    write_one(&store, 1, version(2), RAW).unwrap();
    checkpoint(&store, b"").unwrap();
    let file = os.open(pages_path(), OpenMode::default()).unwrap();
    let (old, new) = (0, store.entry(PageId(1)).unwrap().unwrap());
    let mut bytes = vec![0; new.record_bytes()];
    file.read_at(&mut bytes, old).unwrap();
    assert!(record::verify(store.seed, &bytes).is_ok());
    file.write_at(&bytes, new.place()).unwrap();
    let read = store.read(PageId(1), &mut vec![0; PAGE_BYTES]);
    assert!(matches!(read, Err(Error::Corrupt { .. })));
}

const SECOND_AT: u64 = 64 << 10;

/// A device may damage all of a unit that it was writing.
#[test]
fn a_shorn_write_leaves_one_superblock_slot() {
    for (damaged, unit) in [(0, 16), (1, 16), (0, 64), (1, 64)] {
        let (os, store) = new_store(damaged);
        write_one(&store, 1, version(1), RAW).unwrap();
        checkpoint(&store, b"note").unwrap();
        drop(store);
        let file = os.open(Path::new("/store/superblock"), OpenMode::default()).unwrap();
        let at = damaged * SECOND_AT;
        let bytes = (file.len().unwrap() - at).min(unit << 10);
        file.write_at(&vec![0x5a; bytes as usize], at).unwrap();
        let (store, note) = Store::open(os.clone(), options()).unwrap();
        assert_eq!(note, b"note");
        check_page(&store, 1, Some(&version(1))).unwrap();
    }
}

/// Before the slots lay apart the second one was at 4096, and nothing after it.
#[test]
fn slots_side_by_side_are_read_and_move_apart() {
    for damaged in [None, Some(0), Some(4096)] {
        let (os, store) = new_store(1);
        write_one(&store, 1, version(1), RAW).unwrap();
        checkpoint(&store, b"note").unwrap();
        drop(store);
        let path = Path::new("/store/superblock");
        let file = os.open(path, OpenMode::default()).unwrap();
        let mut block = vec![0; 4096];
        file.read_at(&mut block, 0).unwrap();
        file.set_len(4096).unwrap();
        file.write_at(&block, 4096).unwrap();
        damaged.iter().for_each(|at| os.flip_bit(path, at + 40, 2));
        let (store, note) = Store::open(os.clone(), options()).unwrap();
        assert_eq!(note, b"note");
        write_one(&store, 1, version(2), RAW).unwrap();
        checkpoint(&store, b"later").unwrap();
        drop(store);
        assert!(file.len().unwrap() > SECOND_AT);
        os.flip_bit(path, 40, 2);
        let (store, note) = Store::open(os.clone(), options()).unwrap();
        assert_eq!(note, b"later");
        check_page(&store, 1, Some(&version(2))).unwrap();
        drop(store);
        // The old place does not count any more.
        os.flip_bit(path, 40, 2);
        os.flip_bit(path, SECOND_AT + 40, 2);
        assert!(matches!(Store::open(os.clone(), options()), Err(Error::Corrupt { .. })));
    }
}

#[test]
fn one_damaged_superblock_slot_is_enough_to_open_two_are_not() {
    let slots = Path::new("/store/superblock");
    for damaged in 0..2 {
        let (os, store) = new_store(damaged);
        write_one(&store, 1, version(1), RAW).unwrap();
        checkpoint(&store, b"note").unwrap();
        drop(store);
        os.flip_bit(slots, damaged * SECOND_AT + 40, 2);
        let (store, note) = Store::open(os.clone(), options()).unwrap();
        assert_eq!(note, b"note");
        check_page(&store, 1, Some(&version(1))).unwrap();
        drop(store);
        // Opening has repaired it: the other one may go now.
        os.flip_bit(slots, (1 - damaged) * SECOND_AT + 40, 2);
        Store::open(os.clone(), options()).unwrap();
        os.flip_bit(slots, 40, 2);
        os.flip_bit(slots, SECOND_AT + 40, 2);
        assert!(matches!(Store::open(os.clone(), options()), Err(Error::Corrupt { .. })));
        assert!(matches!(Store::create(os, options()), Err(Error::Refused(_))));
    }
}

#[test]
fn a_newer_format_is_refused() {
    let (os, store) = new_store(1);
    drop(store);
    let file = os.open(Path::new("/store/superblock"), OpenMode::default()).unwrap();
    let mut block = vec![0; 4096];
    file.read_at(&mut block, 0).unwrap();
    // Formats 3 and 4 are one and two higher.
    block[8] += 3;
    block[4092..].copy_from_slice(&Release(0, 9, 1).to_u32().to_le_bytes());
    let check = superblock::check_of(&block);
    block[12..16].copy_from_slice(&check.to_le_bytes());
    file.write_at(&block, 0).unwrap();
    let Err(Error::Refused(why)) = Store::open(os, options()) else { panic!("must refuse") };
    let newer = format!("version {}", ENCRYPTED_TABLES.store + 1);
    assert!(why.contains(&newer) && why.contains("Start release 0.9.1"), "{why}");
}

#[test]
fn a_dropped_tree_goes_in_steps_and_stays_gone() {
    let (os, store) = new_store(2);
    let mut model = Model::new();
    for page in 1..=60 {
        let v = Version { lsn: page, tree: (page % 2) as u32, noise: 50 };
        write_one(&store, page * 3000, v, Compression::Lz4).unwrap();
        model.insert(page * 3000, v);
    }
    let mut steps = 0;
    while !store.free_tree_step(TreeId(1), 7) {
        steps += 1;
        assert!(store.tree_bytes(TreeId(1)).0 + 7 * steps >= 30);
    }
    assert!(steps >= 3);
    let late = Version { lsn: 100, tree: 1, noise: 50 };
    write_one(&store, 3000, late, Compression::Lz4).unwrap();
    model.retain(|_, v| v.tree == 0);
    checkpoint(&store, b"").unwrap();
    os.crash();
    let (store, _) = Store::open(os, options()).unwrap();
    check_all(&store, &model, 200, 2);
    for page in 1..=60 {
        check_page(&store, page * 3000, model.get(&(page * 3000))).unwrap();
    }
}

/// How much of a slot arrived that could not be written nobody knows: nothing may go on from there
/// but what the older checkpoint named.
#[test]
fn a_superblock_slot_without_space_is_a_failed_write() {
    let mut poisoned = 0;
    for at in 0..24 {
        for cut in 0..24 {
            let (os, store) = new_store(at);
            write_one(&store, 1, version(1), RAW).unwrap();
            checkpoint(&store, b"one").unwrap();
            write_one(&store, 1, version(2), RAW).unwrap();
            os.fail_after(at, Fault::NoSpaceOnce);
            let second = checkpoint(&store, b"two");
            os.clear_fault();
            os.fail_after(cut, Fault::PowerCut);
            if store.is_poisoned() {
                poisoned += 1;
            } else if second.is_err() && write_one(&store, 1, version(3), RAW).is_ok() {
                let _ = checkpoint(&store, b"three");
            }
            drop(store);
            os.crash();
            let opened = Store::open(os, options());
            let (store, note) = opened.unwrap_or_else(|e| panic!("{at} {cut}: {e}"));
            let lsn = match &note[..] {
                b"one" => 1,
                b"two" => 2,
                b"three" => 3,
                other => panic!("{other:?}"),
            };
            let mut out = vec![0; PAGE_BYTES];
            let info = store.read(PageId(1), &mut out).unwrap().unwrap();
            assert_eq!(info.lsn.0, lsn, "{at} {cut}");
        }
    }
    assert!(poisoned > 0);
}

/// Others fill the disk: what no checkpoint took yet still fits the room after the change log.
#[test]
fn a_checkpoint_is_wanted_while_its_changes_fit_the_reserve() {
    let (os, store) = new_store(1);
    checkpoint(&store, b"first").unwrap();
    let mut changes = 0;
    while !store.wants_checkpoint() {
        changes += 1;
        assert!(changes < 20_000, "no checkpoint is wanted");
        let small = Version { lsn: changes, tree: 1, noise: 0 };
        write_one(&store, changes * 600, small, Compression::Lz4).unwrap();
    }
    os.fail_after(0, Fault::DiskFull);
    checkpoint(&store, b"second").unwrap();
    drop(store);
    os.crash();
    assert_eq!(Store::open(os, options()).unwrap().1, b"second");
}
