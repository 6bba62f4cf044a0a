//! Random work, a power cut at a random mutation, and the model of the newest checkpoint.

use super::*;
use crate::os::sim::Fault;

const PAGES: u64 = 40;
/// Between page ids, so that they lie in several leaves of the map.
const SPREAD: u64 = 97;
const TREES: u32 = 3;

/// One life after the other of one store, with crashes at random mutations.
struct Run {
    os: Arc<SimOs>,
    options: StoreOptions,
    rng: SimRng,
    lsn: u64,
    checkpoints: u64,
    /// What all lives did together.
    sums: StoreStats,
    /// What the running store must show.
    live: Model,
    /// What the newest checkpoint that returned `Ok` must show, with its note.
    durable: (Model, Vec<u8>),
    /// The checkpoint that was under way when the power went.
    in_flight: Option<(Model, Vec<u8>)>,
}

impl Run {
    fn some_page(&mut self) -> u64 {
        SPREAD * (1 + self.rng.below(PAGES))
    }

    fn write(&mut self, store: &Store) -> Result<(), Error> {
        self.lsn += 1;
        let page = self.some_page();
        let noise = self.rng.below(PAGE_BYTES as u64 - 8) as usize;
        let tree = self.live.get(&page).map_or(self.rng.below(u64::from(TREES)) as u32, |v| v.tree);
        let version = Version { lsn: self.lsn, tree, noise };
        let compression = match self.rng.below(3) {
            0 => Compression::None,
            1 => Compression::Lz4,
            _ => Compression::Zstd(1),
        };
        let done = write_one(store, page, version, compression);
        if done.is_ok() {
            self.live.insert(page, version);
        }
        done
    }

    fn checkpoint(&mut self, store: &Store) -> Result<(), Error> {
        self.checkpoints += 1;
        let mut note = self.checkpoints.to_le_bytes().to_vec();
        note.resize(8 + self.rng.below(9000) as usize, 7);
        self.in_flight = Some((self.live.clone(), note.clone()));
        let highest = self.live.values().map(|v| v.lsn).max().unwrap_or(0);
        let mut flushed = 0;
        let others = if self.rng.chance(50) { self.rng.below(40) } else { 0 };
        store.checkpoint(&note, &mut |lsn| {
            flushed = lsn.0;
            // Other threads work on while the log is flushed; space freed too early would be
            // overwritten here, under the map that a crash goes back to.
            for _ in 0..others {
                self.write(store)?;
            }
            Ok(())
        })?;
        assert!(flushed >= highest, "the log was not flushed past the map");
        self.durable = self.in_flight.take().expect("set above");
        Ok(())
    }

    fn step(&mut self, store: &Store) -> Result<(), Error> {
        match self.rng.below(100) {
            0..=69 => self.write(store),
            70..=74 => {
                let page = self.some_page();
                store.free(PageId(page));
                self.live.remove(&page);
                Ok(())
            }
            75..=84 => store.gc_step(self.rng.below(100_000)).map(|_| ()),
            85..=91 => self.checkpoint(store),
            92..=94 => store.give_back_to(self.rng.below(4) as usize).map(|_| ()),
            _ => {
                let page = self.some_page();
                check_page(store, page, self.live.get(&page))
            }
        }
    }

    /// Runs until the power goes; then the disk holds what the crash left of it.
    fn life(&mut self, store: &Store) {
        self.os.fail_after(self.rng.below(250), Fault::PowerCut);
        for _ in 0..400 {
            if let Err(error) = self.step(store) {
                assert!(!matches!(error, Error::Corrupt { .. }), "{error}");
                break;
            }
        }
        let stats = store.stats();
        self.sums.gc_bytes += stats.gc_bytes;
        self.sums.image_bytes += stats.image_bytes;
        self.sums.checkpoints += stats.checkpoints;
        self.sums.map_leaf_reads += stats.map_leaf_reads;
        self.sums.segments = self.sums.segments.max(stats.segments);
        self.sums.returned_bytes += stats.returned_bytes;
        self.os.crash();
    }

    fn reopen(&mut self) -> Arc<Store> {
        check_files(&self.os);
        let opened = Store::open(self.os.clone(), self.options.clone());
        let (store, note) = opened.expect("opens after a crash");
        if let Some(in_flight) = self.in_flight.take() {
            if in_flight.1 == note {
                self.durable = in_flight;
            }
        }
        assert_eq!(note, self.durable.1, "the note of the newest checkpoint");
        self.live = self.durable.0.clone();
        check_pages(&store, &self.live, (1..=PAGES).map(|n| n * SPREAD), TREES);
        store
    }
}

fn run_crashes(seed: u64, lives: usize) -> StoreStats {
    // From nothing in memory but what is in use to all eight leaves.
    let options = options_with_leaves(seed as usize % 10);
    let (os, mut store) = new_store_with(seed, options.clone());
    let mut run = Run {
        os,
        options,
        rng: SimRng::new(seed ^ 0x5717),
        lsn: 0,
        checkpoints: 0,
        sums: StoreStats::default(),
        live: Model::new(),
        durable: (Model::new(), Vec::new()),
        in_flight: None,
    };
    for _ in 0..lives {
        run.life(&store);
        // The power may go again while the store is opened.
        if run.rng.chance(30) {
            run.os.fail_after(run.rng.below(4), Fault::PowerCut);
            let _ = Store::open(run.os.clone(), run.options.clone());
            run.os.crash();
        }
        store = run.reopen();
    }
    run.sums
}

#[test]
fn a_crash_leaves_the_newest_checkpoint() {
    for seed in 0..250 {
        let sums = run_crashes(seed, 5);
        if seed % 50 == 0 {
            // The run is worth nothing unless it collects, checkpoints and reuses segments.
            assert!(sums.gc_bytes > 0 && sums.checkpoints > 3, "{sums:?}");
            assert!(sums.map_leaf_reads > 0, "{sums:?}");
            assert!(sums.returned_bytes > 0, "{sums:?}");
            let written = sums.image_bytes + sums.gc_bytes;
            assert!(written > sums.segments * options().segment_bytes, "no reuse: {sums:?}");
        }
    }
}

#[test]
fn the_map_is_compacted_and_old_map_files_go() {
    let (os, store) = new_store(1);
    let mut model = Model::new();
    for lsn in 1..60 {
        let version = Version { lsn, tree: 1, noise: 100 };
        write_one(&store, lsn, version, Compression::Lz4).unwrap();
        model.insert(lsn, version);
        checkpoint(&store, &[lsn as u8; 9000]).unwrap();
    }
    let names = crate::os::Os::list(&*os, DIR.as_ref()).unwrap();
    assert_eq!(names.len(), 4, "{names:?}");
    assert!(!names.contains(&mapfile::snapshot_path(DIR.as_ref(), 1)));
    drop(store);
    let (store, note) = Store::open(os, options()).unwrap();
    assert_eq!(note, [59; 9000]);
    check_all(&store, &model, 70, 2);
    assert_eq!(store.max_page(), PageId(59));
}

#[test]
fn an_interrupted_creation_is_started_again() {
    for seed in 0..200 {
        let os = SimOs::new(seed);
        os.fail_after(seed % 25, Fault::PowerCut);
        let done = Store::create(os.clone(), options()).is_ok();
        os.crash();
        if !Store::exists(&*os, DIR.as_ref()).unwrap() {
            assert!(!done);
            Store::create(os.clone(), options()).unwrap();
        }
        let (store, note) = Store::open(os, options()).unwrap();
        assert!(note.is_empty());
        check_all(&store, &Model::new(), 3, 1);
    }
}
