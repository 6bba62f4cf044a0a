//! The room against a simple model: a map of pages, and what a crash may leave of it.

use super::*;
use crate::base::{Error, PAGE_BYTES};
use crate::os::sim::{Fault, SimOs, SimRng};
use crate::os::Os;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::Arc;

const DIR: &str = "/store";
const PAGES: u64 = 40;
const TREES: u64 = 3;

fn options() -> StoreOptions {
    StoreOptions { dir: DIR.into(), segment_bytes: StoreOptions::SEGMENT_BYTES_MIN }
}

/// The content of a page follows from this; so the model stays small.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Version {
    lsn: u64,
    tree: u32,
    /// How many bytes do not compress.
    noise: usize,
}

impl Version {
    fn bytes(&self, page: u64) -> Vec<u8> {
        let mut rng = SimRng::new(self.lsn * 1000 + page);
        let mut bytes = vec![(self.lsn % 251) as u8; PAGE_BYTES];
        bytes[..8].copy_from_slice(&page.to_le_bytes());
        for chunk in bytes[8..8 + self.noise].chunks_mut(8) {
            let word = rng.next_u64().to_le_bytes();
            chunk.copy_from_slice(&word[..chunk.len()]);
        }
        bytes
    }
}

type Model = BTreeMap<u64, Version>;

fn write_one(store: &Store, page: u64, v: Version, compression: Compression) -> Result<(), Error> {
    let (tree, lsn) = (TreeId(v.tree), Lsn(v.lsn));
    let bytes = v.bytes(page);
    store.write(&[PageWrite { page: PageId(page), tree, lsn, bytes: &bytes, compression }])
}

fn check_page(store: &Store, page: u64, want: Option<&Version>) -> Result<(), Error> {
    let mut out = vec![0xaa; PAGE_BYTES];
    let got = store.read(PageId(page), &mut out)?;
    let want_info = want.map(|v| PageInfo { lsn: Lsn(v.lsn), tree: TreeId(v.tree) });
    assert_eq!(got, want_info, "page {page}");
    if let Some(version) = want {
        assert!(out == version.bytes(page), "bytes of page {page} at {version:?}");
    }
    Ok(())
}

fn check_all(store: &Store, model: &Model) {
    for page in 1..=PAGES {
        check_page(store, page, model.get(&page)).expect("a sound store");
    }
    assert_eq!(store.pages(), model.len() as u64);
    for tree in 0..TREES {
        let of_tree = model.values().filter(|v| u64::from(v.tree) == tree).count() as u64;
        assert_eq!(store.tree_bytes(TreeId(tree as u32)).0, of_tree);
    }
    let stats = store.stats();
    let live: u64 = (0..TREES).map(|t| store.tree_bytes(TreeId(t as u32)).1).sum();
    assert_eq!(stats.live_bytes, live);
    let sum = stats.live_bytes + stats.dead_bytes + stats.free_bytes + stats.reserved_bytes;
    assert_eq!(sum, stats.segments * stats.segment_bytes);
}

/// One life after the other of one store, with crashes at random mutations.
struct Run {
    os: Arc<SimOs>,
    rng: SimRng,
    lsn: u64,
    /// What the running store must show.
    live: Model,
    /// What the newest checkpoint that returned `Ok` must show, with its note.
    durable: (Model, Vec<u8>),
    /// The checkpoint that was under way when the power went.
    in_flight: Option<(Model, Vec<u8>)>,
}

impl Run {
    fn write(&mut self, store: &Store) -> Result<(), Error> {
        self.lsn += 1;
        let page = 1 + self.rng.below(PAGES);
        let noise = self.rng.below(PAGE_BYTES as u64 - 8) as usize;
        let tree = self.live.get(&page).map_or(self.rng.below(TREES) as u32, |v| v.tree);
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
        let note = vec![self.lsn as u8; self.rng.below(9000) as usize];
        self.in_flight = Some((self.live.clone(), note.clone()));
        let highest = self.live.values().map(|v| v.lsn).max().unwrap_or(0);
        let mut flushed = 0;
        store.checkpoint(&note, &mut |lsn| {
            flushed = lsn.0;
            Ok(())
        })?;
        assert!(flushed >= highest, "the log was not flushed past the map");
        self.durable = (self.live.clone(), note);
        self.in_flight = None;
        Ok(())
    }

    fn step(&mut self, store: &Store) -> Result<(), Error> {
        match self.rng.below(100) {
            0..=69 => self.write(store),
            70..=74 => {
                let page = 1 + self.rng.below(PAGES);
                store.free(PageId(page));
                self.live.remove(&page);
                Ok(())
            }
            75..=84 => store.gc_step(self.rng.below(100_000)).map(|_| ()),
            85..=91 => self.checkpoint(store),
            _ => {
                let page = 1 + self.rng.below(PAGES);
                check_page(store, page, self.live.get(&page))
            }
        }
    }

    /// Runs until the power goes; then the disk holds what the crash left of it.
    fn life(&mut self, store: &Store) {
        self.os.fail_after(self.rng.below(120), Fault::PowerCut);
        for _ in 0..400 {
            if let Err(error) = self.step(store) {
                assert!(!matches!(error, Error::Corrupt { .. }), "{error}");
                break;
            }
        }
        self.os.crash();
    }

    fn reopen(&mut self) -> Arc<Store> {
        let (store, note) = Store::open(self.os.clone(), options()).expect("opens after a crash");
        if let Some(in_flight) = self.in_flight.take() {
            if in_flight.1 == note {
                self.durable = in_flight;
            }
        }
        assert_eq!(note, self.durable.1, "the note of the newest checkpoint");
        self.live = self.durable.0.clone();
        check_all(&store, &self.live);
        store
    }
}

fn run_crashes(seed: u64) -> StoreStats {
    let os = SimOs::new(seed);
    let mut store = Store::create(os.clone(), options()).unwrap();
    let (live, durable) = (Model::new(), (Model::new(), Vec::new()));
    let rng = SimRng::new(seed ^ 0x5717);
    let mut run = Run { os, rng, lsn: 0, live, durable, in_flight: None };
    for _ in 0..5 {
        run.life(&store);
        // The power may go again while the store is opened.
        if run.rng.chance(30) {
            run.os.fail_after(run.rng.below(4), Fault::PowerCut);
            let _ = Store::open(run.os.clone(), options());
            run.os.crash();
        }
        store = run.reopen();
    }
    store.stats()
}

#[test]
fn a_crash_leaves_the_newest_checkpoint() {
    for seed in 0..250 {
        run_crashes(seed);
    }
}
