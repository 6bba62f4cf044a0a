//! The room against a simple model: a map of pages, and what a crash may leave of it.

mod backup;
mod crash;
mod faults;
mod files;
mod growth;
mod increments;
mod large;
mod leaves;
mod map;
mod rotation;
mod segments;
mod space;
mod stretch;
mod threads;

use super::engine::PageInfo;
use super::stats::StoreStats;
use super::*;
use crate::base::{Error, PAGE_BYTES};
use crate::os::sim::{SimOs, SimRng};
use std::collections::BTreeMap;
use std::sync::Arc;

const DIR: &str = "/store";

fn options() -> StoreOptions {
    StoreOptions { segment_bytes: StoreOptions::SEGMENT_BYTES_MIN, ..StoreOptions::new(DIR) }
}

/// Memory for so many leaves of the map.
fn options_with_leaves(leaves: usize) -> StoreOptions {
    StoreOptions { map_bytes: leaves * leaf::LEAF_BYTES, ..options() }
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
    let write = PageWrite { page: PageId(page), tree, lsn, bytes: &bytes, compression };
    store.write(Cause::Eviction, &[write])?.pop().map_or(Ok(()), |(_, error)| Err(error))
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

/// Every page up to `pages`, and every sum that follows from them.
fn check_all(store: &Store, model: &Model, pages: u64, trees: u32) {
    check_pages(store, model, 1..=pages, trees);
}

fn check_pages(store: &Store, model: &Model, pages: impl Iterator<Item = u64>, trees: u32) {
    for page in pages {
        check_page(store, page, model.get(&page)).expect("a sound store");
    }
    check_sums(store, model, trees);
}

fn check_sums(store: &Store, model: &Model, trees: u32) {
    assert_eq!(store.pages(), model.len() as u64);
    for tree in 0..trees {
        let of_tree = model.values().filter(|v| v.tree == tree).count() as u64;
        assert_eq!(store.tree_bytes(TreeId(tree)).0, of_tree);
    }
    let stats = store.stats();
    let live: u64 = (0..trees).map(|t| store.tree_bytes(TreeId(t)).1).sum();
    assert_eq!(stats.live_bytes, live);
    let free = stats.free_bytes + stats.reserved_bytes + stats.hole_bytes;
    let sum = stats.live_bytes + stats.dead_bytes + free;
    assert_eq!(sum, stats.segments * stats.segment_bytes);
    let segments = &store.state.read().segments;
    assert_eq!(segments.totals(), segments.counted());
}

fn checkpoint(store: &Store, note: &[u8]) -> Result<(), Error> {
    store.checkpoint(note, &mut |_| Ok(()))
}

/// The persisted sums are those of the persisted map.
fn check_files(os: &Arc<SimOs>) {
    let files = StoreFiles::read(&**os, DIR.as_ref(), None).expect("sound files");
    assert_eq!(files.wrong_sums().unwrap(), Vec::<String>::new());
}

fn new_store(seed: u64) -> (Arc<SimOs>, Arc<Store>) {
    new_store_with(seed, options())
}

fn new_store_with(seed: u64, options: StoreOptions) -> (Arc<SimOs>, Arc<Store>) {
    let os = SimOs::new(seed);
    let store = Store::create(os.clone(), options).unwrap();
    (os, store)
}
