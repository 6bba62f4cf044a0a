//! The map in memory against a plain one: what is dropped, read again, taken by checkpoints and
//! written to snapshots, one after the other and in each other's midst.

use super::super::entry::MapEntry;
use super::super::map::{leaf_of, page_at, Lookup, PageMap};
use super::super::snapshot::{write_snapshot, Chunk, MapSnapshot};
use super::*;
use std::cell::RefCell;
use std::collections::BTreeMap;

const LEAVES: u64 = 10;
const LEAF: u64 = leaf::LEAF_PAGES as u64;

struct Run {
    os: Arc<SimOs>,
    rng: SimRng,
    map: PageMap,
    model: BTreeMap<PageId, MapEntry>,
    /// What snapshot and change log say together.
    durable: BTreeMap<PageId, MapEntry>,
    /// The changes that the current change log holds, in order, and the snapshot under it.
    log: Vec<(PageId, MapEntry)>,
    chunks: Vec<(usize, Chunk)>,
    snapshot: Arc<MapSnapshot>,
    generation: u64,
    reads: usize,
}

fn lay(entries: &[(PageId, MapEntry)], over: &mut BTreeMap<PageId, MapEntry>) {
    for &(page, entry) in entries {
        match entry.is_none() {
            true => over.remove(&page),
            false => over.insert(page, entry),
        };
    }
}

impl Run {
    fn new(seed: u64) -> Run {
        let os = SimOs::new(seed);
        let file = mapfile::create_file(&*os, "/map".as_ref()).unwrap();
        let written = write_snapshot(file, 1, 0, 0, &|_| Ok(Vec::new()));
        let snapshot = written.map_err(|_| "a new file").unwrap().snapshot;
        let mut rng = SimRng::new(seed);
        let budget = rng.below(6) as usize * leaf::LEAF_BYTES;
        let map = PageMap::new(Arc::clone(&snapshot), &[], budget);
        let (model, durable) = Default::default();
        let (log, chunks) = Default::default();
        Run { os, rng, map, model, durable, log, chunks, snapshot, generation: 0, reads: 0 }
    }

    fn some_page(&mut self) -> PageId {
        PageId(self.rng.below(LEAVES) * LEAF + self.rng.below(12) * 40)
    }

    /// Brings the leaf in as the store does, with a chance that it is dropped at once.
    fn pin(&mut self, leaf: usize) {
        while !self.map.pin(leaf) {
            match self.map.to_read(leaf) {
                Some(missing) => {
                    let entries = missing.read().unwrap();
                    self.reads += 1;
                    self.map.install(&missing, &entries);
                }
                None => self.map.install_new(leaf),
            }
            if self.rng.chance(10) {
                self.map.shrink_to(0);
            }
        }
    }

    fn set(&mut self) {
        let page = self.some_page();
        let entry = match self.rng.chance(25) {
            true => MapEntry::NONE,
            false => {
                let place = self.rng.below(1 << 40);
                MapEntry::new(place, 100, Lsn(self.rng.next_u64()), TreeId(7), 5)
            }
        };
        self.pin(leaf_of(page));
        self.map.shrink();
        let old = self.map.set(page, entry);
        self.map.unpin(leaf_of(page));
        assert_eq!(old, self.model.get(&page).copied().unwrap_or(MapEntry::NONE));
        lay(&[(page, entry)], &mut self.model);
    }

    fn get(&mut self) {
        let page = self.some_page();
        let found = match self.map.get(page) {
            Lookup::Known(entry) => entry,
            Lookup::Missing(missing) => {
                self.reads += 1;
                let entries = missing.read().unwrap();
                self.map.install(&missing, &entries);
                self.map.shrink();
                let entries = entries.into_iter().map(|(i, e)| (page_at(missing.leaf, i), e));
                entries.collect::<BTreeMap<_, _>>().get(&page).copied()
            }
        };
        assert_eq!(found, self.model.get(&page).copied());
    }

    fn checkpoint(&mut self) {
        let taken = self.map.take_changes();
        if self.rng.chance(25) {
            // It failed: the next one takes them again, as they are then.
            (0..self.rng.below(4)).for_each(|_| self.set());
            self.map.shrink_to(self.rng.below(3) as usize);
            taken.iter().for_each(|(page, _)| self.map.mark(*page));
            return;
        }
        self.log.extend(&taken);
        lay(&taken, &mut self.durable);
        assert_eq!(self.durable, self.model);
    }

    /// A checkpoint with a new snapshot, while others work.
    fn snapshot(mut self) -> Run {
        self.generation += 1;
        let path = mapfile::snapshot_path("/m".as_ref(), self.generation);
        let file = mapfile::create_file(&*self.os, &path).unwrap();
        let (generation, leaves) = (self.generation, self.map.leaf_slots());
        let run = RefCell::new(self);
        let leaf_of = |leaf| {
            let mut run = run.borrow_mut();
            let view = run.map.view(leaf);
            (0..run.rng.below(3)).for_each(|_| run.set());
            run.map.shrink();
            view.read()
        };
        let written = write_snapshot(file, 1, generation, leaves, &leaf_of);
        let Ok(written) = written else { panic!("a disk without faults") };
        let mut run = run.into_inner();
        let taken = run.map.take_changes();
        run.durable = run.model.clone();
        (0..run.rng.below(9)).for_each(|_| run.set());
        run.map.rebase(Arc::clone(&written.snapshot), &written.chunks, &taken);
        run.log = taken;
        (run.snapshot, run.chunks) = (written.snapshot, written.chunks);
        run
    }

    /// As after a restart: only what is durable is there.
    fn reopen(&mut self) {
        let budget = self.rng.below(6) as usize * leaf::LEAF_BYTES;
        self.map = PageMap::new(Arc::clone(&self.snapshot), &self.chunks, budget);
        for &(page, entry) in &self.log {
            self.map.load_change(page, entry);
        }
        self.model = self.durable.clone();
    }

    fn check(&self) {
        let leaves = 0..self.map.leaf_slots();
        let pages = leaves.flat_map(|leaf| {
            let pages = self.map.view(leaf).read().unwrap();
            pages.into_iter().map(move |(index, entry)| (page_at(leaf, index), entry))
        });
        assert_eq!(pages.collect::<BTreeMap<_, _>>(), self.model);
    }
}

#[test]
fn a_map_that_is_partly_in_memory_is_the_whole_map() {
    let mut reads = 0;
    for seed in 0..200 {
        let mut run = Run::new(seed);
        for _ in 0..400 {
            match run.rng.below(100) {
                0..=54 => run.set(),
                55..=84 => run.get(),
                85..=91 => run.checkpoint(),
                92..=93 => run = run.snapshot(),
                94..=95 => run.reopen(),
                96..=98 => run.map.shrink_to(run.rng.below(3) as usize),
                _ => run.check(),
            }
        }
        run.check();
        reads += run.reads;
    }
    assert!(reads > 1000, "{reads}");
}
