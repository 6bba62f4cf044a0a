//! Free space goes back to the file system, and is reserved again before it is used.

use super::*;
use crate::os::sim::Fault;
use crate::os::SIMULATED;

const RAW: Compression = Compression::None;
const PAGES: u64 = 300;
/// Longer than a surplus has to last.
const LONG_NS: u64 = 60_000_000_000;

fn version(lsn: u64) -> Version {
    Version { lsn, tree: 1, noise: 100 }
}

fn write(store: &Store, model: &mut Model, page: u64, lsn: u64) -> Result<(), Error> {
    write_one(store, page, version(lsn), RAW)?;
    model.insert(page, version(lsn));
    Ok(())
}

/// Pages in all segments.
fn fill(store: &Store, model: &mut Model, lsn: u64) -> Result<(), Error> {
    (1..=PAGES).try_for_each(|page| write(store, model, page, lsn))?;
    checkpoint(store, b"full")
}

/// Pages of the middle go, so that what is free is not only at the end.
fn free_middle(store: &Store, model: &mut Model) -> Result<(), Error> {
    (PAGES / 4..PAGES * 3 / 4).for_each(|page| {
        store.free(PageId(page));
        model.remove(&page);
    });
    checkpoint(store, b"freed")
}

/// As the background does, with pauses.
fn give_back(os: &SimOs, store: &Store) -> Result<u64, Error> {
    let mut steps = 0;
    store.give_back_step()?;
    os.advance_ns(LONG_NS);
    while store.give_back_step()? {
        steps += 1;
        assert!(steps < 1000, "{:?}", store.stats());
    }
    Ok(steps)
}

#[test]
fn what_is_free_goes_back_and_comes_again() {
    let (os, store) = new_store(1);
    let mut model = Model::new();
    fill(&store, &mut model, 1).unwrap();
    let full_bytes = os.used_bytes();
    free_middle(&store, &mut model).unwrap();
    let before = store.stats();
    assert!(before.free_bytes > 30 * before.segment_bytes, "{before:?}");
    assert_eq!(os.used_bytes(), full_bytes);

    if !SIMULATED {
        // Not at once: the next load may want it.
        store.give_back_step().unwrap();
        os.advance_ns(1_000_000);
        assert!(!store.give_back_step().unwrap());
        assert_eq!(store.stats().returned_bytes, 0);
    }

    give_back(&os, &store).unwrap();
    let after = store.stats();
    check_all(&store, &model, PAGES, 2);
    assert!(after.hole_bytes > 20 * after.segment_bytes, "{after:?}");
    assert!(os.used_bytes() + after.returned_bytes <= full_bytes + 8192, "{after:?}");
    assert!(after.free_bytes <= 8 * after.segment_bytes, "{after:?}");
    // It stays so.
    assert_eq!(give_back(&os, &store).unwrap(), 0);
    assert_eq!(store.stats().returned_bytes, after.returned_bytes);

    fill(&store, &mut model, 2).unwrap();
    check_all(&store, &model, PAGES, 2);
    (1..=PAGES).for_each(|page| store.free(PageId(page)));
    checkpoint(&store, b"empty").unwrap();
    // The open segment leaves the end.
    (1..=8).for_each(|page| write(&store, &mut model, page, 3).unwrap());
    checkpoint(&store, b"few").unwrap();
    give_back(&os, &store).unwrap();
    let empty = store.stats();
    assert!(empty.segments < 20, "the end is cut off: {empty:?}");
}

#[test]
fn what_a_read_may_see_stays() {
    let (os, store) = new_store(2);
    let mut model = Model::new();
    fill(&store, &mut model, 1).unwrap();
    let reading = store.epochs.enter();
    free_middle(&store, &mut model).unwrap();
    give_back(&os, &store).unwrap();
    // What nobody ever wrote lies at the end.
    let unwritten_bytes = 3 * store.stats().segment_bytes;
    assert!(store.stats().returned_bytes <= unwritten_bytes);
    drop(reading);
    give_back(&os, &store).unwrap();
    assert!(store.stats().returned_bytes > 5 * unwritten_bytes);
}

/// The next life does not know what is a hole; it reserves what it uses (the simulated file system
/// panics at a write into a hole), and what it keeps.
#[test]
fn a_hole_is_not_forgotten_by_a_restart() {
    for crashes in [false, true] {
        let (os, store) = new_store(3);
        let mut model = Model::new();
        fill(&store, &mut model, 1).unwrap();
        free_middle(&store, &mut model).unwrap();
        give_back(&os, &store).unwrap();
        drop(store);
        if crashes {
            os.crash();
        }
        let (store, _) = Store::open(os.clone(), options()).unwrap();
        let stats = store.stats();
        assert_eq!((stats.free_bytes, stats.reserved_bytes), (0, 0), "{stats:?}");
        assert!(stats.hole_bytes > 20 * stats.segment_bytes, "{stats:?}");
        let used_bytes = os.used_bytes();
        give_back(&os, &store).unwrap();
        let stats = store.stats();
        assert_eq!(stats.reserved_bytes, 2 * stats.segment_bytes);
        assert!(os.used_bytes() <= used_bytes + 9 * stats.segment_bytes, "{stats:?}");
        fill(&store, &mut model, 2).unwrap();
        check_all(&store, &model, PAGES, 2);
    }
}

/// Others take the room of the holes: the disk is full when they are wanted again, and nothing is lost.
#[test]
fn a_full_disk_says_so_before_a_hole_is_written() {
    for seed in 0..20 {
        let (os, store) = new_store(seed);
        let mut model = Model::new();
        fill(&store, &mut model, 1).unwrap();
        free_middle(&store, &mut model).unwrap();
        give_back(&os, &store).unwrap();
        os.set_capacity_bytes(Some(os.used_bytes() + seed * 10_000));
        let refused = (1..=PAGES).find_map(|page| write(&store, &mut model, page, 2).err());
        assert!(matches!(refused, Some(Error::Full { .. })), "{refused:?}");
        assert!(store.is_full());
        let stats = store.stats();
        assert_eq!(stats.reserved_bytes, 2 * stats.segment_bytes, "GC has its own: {stats:?}");
        assert_eq!(stats.free_bytes, 0);
        assert_eq!(store.free_bytes(), 0, "holes are no room");
        // What GC moves and a checkpoint frees is enough to go on.
        (PAGES * 3 / 4..=PAGES).filter(|page| page % 4 > 0).for_each(|page| {
            store.free(PageId(page));
            model.remove(&page);
        });
        loop {
            match store.gc_step(u64::MAX) {
                Ok(0) => break,
                Ok(_) | Err(Error::Full { .. }) => checkpoint(&store, b"gc").unwrap(),
                Err(error) => panic!("{error}"),
            }
        }
        write(&store, &mut model, 1, 3).unwrap();
        os.set_capacity_bytes(None);
        fill(&store, &mut model, 4).unwrap();
        os.crash();
        let (store, _) = Store::open(os, options()).unwrap();
        check_all(&store, &model, PAGES, 2);
    }
}

#[test]
fn a_file_system_without_holes_keeps_them_without_a_word() {
    let (os, store) = new_store(4);
    os.set_without_holes();
    let mut model = Model::new();
    fill(&store, &mut model, 1).unwrap();
    free_middle(&store, &mut model).unwrap();
    let used_bytes = os.used_bytes();
    for _ in 0..3 {
        give_back(&os, &store).unwrap();
    }
    let stats = store.stats();
    assert_eq!(stats.hole_bytes, 0);
    assert!(os.used_bytes() + 3 * stats.segment_bytes >= used_bytes, "only the end is cut");
    drop(store);
    let (store, _) = Store::open(os.clone(), options()).unwrap();
    for _ in 0..3 {
        give_back(&os, &store).unwrap();
    }
    assert_eq!(store.stats().hole_bytes, 0, "all of it is there");
    fill(&store, &mut model, 2).unwrap();
    check_all(&store, &model, PAGES, 2);
}

/// A failed punch is told once, loses nothing and stops nothing.
#[test]
fn a_failed_punch_stops_nothing() {
    let mut failed = 0;
    for at in 0..6 {
        let (os, store) = new_store(5);
        let mut model = Model::new();
        fill(&store, &mut model, 1).unwrap();
        free_middle(&store, &mut model).unwrap();
        store.give_back_step().unwrap();
        os.advance_ns(LONG_NS);
        os.fail_after(at, Fault::IoError);
        let outcome = store.give_back_step();
        os.clear_fault();
        if store.is_poisoned() {
            // The file could not be cut: its length is unknown.
            continue;
        }
        failed += u64::from(outcome.is_err());
        for _ in 0..3 {
            give_back(&os, &store).unwrap();
        }
        fill(&store, &mut model, 2).unwrap();
        check_all(&store, &model, PAGES, 2);
    }
    assert!(failed > 2, "{failed}");
}

/// What each checkpoint that began is to show, by its note; and how many have ended.
#[derive(Default)]
struct Ledger {
    live: Model,
    begun: Vec<Model>,
    ended: usize,
}

impl Ledger {
    fn checkpoint(&mut self, store: &Store) -> Result<(), Error> {
        self.begun.push(self.live.clone());
        checkpoint(store, &[self.begun.len() as u8])?;
        self.ended = self.begun.len();
        Ok(())
    }

    /// Fills, frees, gives back, fills again.
    fn give_and_take(&mut self, os: &SimOs, store: &Store) -> Result<(), Error> {
        for round in 1..=2 {
            (1..=PAGES).try_for_each(|page| write(store, &mut self.live, page, round))?;
            self.checkpoint(store)?;
            (PAGES / 4..PAGES * 3 / 4).for_each(|page| {
                store.free(PageId(page));
                self.live.remove(&page);
            });
            // What the next checkpoint frees is not free yet.
            give_back(os, store)?;
            self.checkpoint(store)?;
            give_back(os, store)?;
        }
        Ok(())
    }
}

#[test]
fn a_crash_at_any_call_leaves_the_newest_checkpoint() {
    let (os, store) = new_store(6);
    let begin = os.mutations();
    Ledger::default().give_and_take(&os, &store).unwrap();
    let calls = os.mutations() - begin;
    assert!(calls > 300, "{calls}");
    for at in (0..calls).step_by(3) {
        let (os, store) = new_store(6);
        os.fail_after(at, Fault::PowerCut);
        let mut ledger = Ledger::default();
        ledger.give_and_take(&os, &store).unwrap_err();
        drop(store);
        os.crash();
        check_files(&os);
        let (store, note) = Store::open(os.clone(), options()).unwrap();
        let number = note.first().map_or(0, |&n| usize::from(n));
        assert!((ledger.ended..=ledger.begun.len()).contains(&number), "power cut at call {at}");
        let mut model = match number {
            0 => Model::new(),
            n => ledger.begun.swap_remove(n - 1),
        };
        check_all(&store, &model, PAGES, 2);
        fill(&store, &mut model, 9).unwrap();
        check_all(&store, &model, PAGES, 2);
    }
}
