//! How long a large store takes to open, and what its map takes in memory.

use super::super::engine::{pages_path, superblock_path};
use super::super::entry::MapEntry;
use super::super::map::page_at;
use super::super::mapfile::ChangeLog;
use super::super::snapshot::write_snapshot;
use super::super::sums::Sums;
use super::*;
use crate::os::{OpenMode, Os, RealOs};
use std::path::{Path, PathBuf};
use std::time::Instant;

pub const PAGES: u64 = 10_000_000;
pub const RECORD_BYTES: u64 = 4000;
const TREES: u64 = 100;
const LEAF: u64 = leaf::LEAF_PAGES as u64;

pub fn entry(page: u64, segment_bytes: u64) -> MapEntry {
    let per_segment = segment_bytes / RECORD_BYTES;
    let place = page / per_segment * segment_bytes + page % per_segment * RECORD_BYTES;
    let tree = TreeId((page * TREES / PAGES) as u32);
    MapEntry::new(place, RECORD_BYTES as usize, Lsn(1 << 38 | page), tree, page as u32)
}

/// A store without pages, but with a map that says otherwise.
fn make(os: &dyn Os, dir: &Path, segment_bytes: u64) {
    let slots = os.open(&superblock_path(dir), OpenMode { create: false, direct: true }).unwrap();
    let mut sb = superblock::read(&*slots).unwrap().newest.unwrap().1;
    let generation = 100;
    let mut sums = Sums::default();
    (1..=PAGES).for_each(|page| sums.count(entry(page, segment_bytes), segment_bytes));
    let file = mapfile::create_file(os, &mapfile::snapshot_path(dir, generation)).unwrap();
    let leaf_of = |leaf| {
        let pages = (0..LEAF as usize).map(|index| (index, page_at(leaf, index).0));
        let pages = pages.filter(|(_, page)| (1..=PAGES).contains(page));
        Ok(pages.map(|(index, page)| (index, entry(page, segment_bytes))).collect())
    };
    let leaves = (PAGES / LEAF) as usize + 1;
    let Ok(written) = write_snapshot(file, sb.seed, generation, leaves, &leaf_of) else {
        panic!("no room for the map")
    };
    let changes = mapfile::create_file(os, &mapfile::changes_path(dir, generation)).unwrap();
    let changes = ChangeLog::new(changes, sb.seed, generation).append(b"", &sums, &[]).unwrap();
    let count = (PAGES / (segment_bytes / RECORD_BYTES)) + 1;
    let pages = os.open(&pages_path(dir), OpenMode::default()).unwrap();
    pages.set_len(count * segment_bytes).unwrap();
    let directory = written.directory;
    (sb.map_generation, sb.max_page, sb.generation) = (generation, PAGES, sb.generation + 1);
    (sb.directory_at, sb.directory_bytes) = (directory.at, directory.bytes);
    (sb.directory_checksum, sb.changes_end) = (directory.checksum, changes.end());
    (sb.changes_chain, sb.last_batch_at) = (changes.chain(), changes.last_batch_at());
    (0..superblock::SLOTS).for_each(|slot| sb.write(&*slots, slot).unwrap());
}

fn resident_mib() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = statm.split(' ').nth(1).and_then(|n| n.parse().ok()).unwrap_or(0);
    (pages * 4096) >> 20
}

/// `cargo test --release -p sluice-engine --lib ten_million_pages -- --ignored --nocapture`
#[test]
#[ignore = "a measurement, for docs/decisions/0020-page-map-on-demand.md"]
fn ten_million_pages() {
    let dir: PathBuf = std::env::temp_dir().join(format!("sluice-map-{}", std::process::id()));
    let os = RealOs::new();
    let options = StoreOptions::new(&dir);
    drop(Store::create(os.clone(), options.clone()).unwrap());
    make(&*os, &dir, options.segment_bytes);
    let before = resident_mib();
    let begin = Instant::now();
    let (store, _) = Store::open(os.clone(), options).unwrap();
    println!("open: {:?}, {} MiB more resident", begin.elapsed(), resident_mib() - before);
    let stats = store.stats();
    println!("{} pages, map {} KiB in memory", stats.pages, stats.map_memory_bytes >> 10);
    let mut rng = SimRng::new(1);
    let begin = Instant::now();
    for _ in 0..20_000 {
        let page = 1 + rng.below(PAGES);
        let found = store.entry(PageId(page)).unwrap();
        assert_eq!(found, Some(entry(page, stats.segment_bytes)));
    }
    let each = begin.elapsed() / 20_000;
    let stats = store.stats();
    println!("random look-up: {each:?}, {} leaves read", stats.map_leaf_reads);
    println!(
        "map {} KiB in memory, {} MiB more resident",
        stats.map_memory_bytes >> 10,
        resident_mib() - before
    );
    let begin = Instant::now();
    let hot: u64 = (0..10_000_000u64)
        .map(|n| store.entry(PageId(1 + n % 1000)).unwrap().map_or(0, |e| e.place() & 1))
        .sum();
    println!("look-up of a resident leaf: {:?} ({hot})", begin.elapsed() / 10_000_000);
    drop(store);
    std::fs::remove_dir_all(&dir).unwrap();
}
