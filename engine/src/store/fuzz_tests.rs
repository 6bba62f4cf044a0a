use super::blocks::read_range;
use super::entry::MapEntry;
use super::map::PageMap;
use super::sums::{Sums, TreeUse};
use super::*;
use crate::base::checksum::checksum;
use crate::base::{BLOCK_BYTES, PAGE_BYTES};
use crate::os::fuzz::fuzz;

#[test]
fn fuzz_superblocks() {
    let sb = superblock::Superblock { generation: 3, segment_bytes: 1 << 20, ..Default::default() };
    let block = sb.encode();
    fuzz("superblocks", &[block[..100].to_vec()], &mut |bytes| {
        let mut block = vec![0; BLOCK_BYTES];
        let n = bytes.len().min(BLOCK_BYTES);
        block[..n].copy_from_slice(&bytes[..n]);
        let _ = superblock::parse(&block, "fuzz");
        let check = checksum(checksum(0, &block[..12]), &block[16..]);
        block[12..16].copy_from_slice(&check.to_le_bytes());
        let _ = superblock::parse(&block, "fuzz");
    });
}

#[test]
fn fuzz_page_records() {
    let mut page = vec![0; PAGE_BYTES];
    page[100..4000].iter_mut().enumerate().for_each(|(i, b)| *b = (i % 7) as u8);
    let packed = |compression| {
        let (page_id, tree, lsn) = (PageId(5), TreeId(16), Lsn(77));
        let write = PageWrite { page: page_id, tree, lsn, bytes: &page, compression };
        record::pack(9, &write, None).unwrap().bytes
    };
    let corpus = [packed(Compression::Lz4), packed(Compression::Zstd(3))];
    let mut out = vec![0; PAGE_BYTES];
    fuzz("page records", &corpus, &mut |bytes| {
        let _ = record::verify(9, bytes);
        // As if the checksum had held.
        if let Ok(head) = record::header(bytes) {
            let _ = record::unpack(&head, &mut bytes.to_vec(), &mut out, None);
        }
    });
}

#[test]
fn fuzz_map_batches() {
    let entry = |n: u64| MapEntry::new(n * 5000, 300, Lsn(n), TreeId(16), n as u32);
    let changes: Vec<_> = (1..30).map(|n| (PageId(n * 3), entry(n))).collect();
    let mut sums = Sums { max_lsn: Lsn(77), ..Sums::default() };
    sums.segments.extend([(1, 900), (70, 5)]);
    sums.trees.insert(TreeId(16), TreeUse { pages: 3, stored_bytes: 905 });
    let body = mapfile::encode_batch(b"checkpoint note", &sums, &changes);
    fuzz("map batches", &[body], &mut |bytes| {
        let (mut map, mut sums) = (PageMap::new(no_snapshot(), &[], 0), Sums::default());
        let _ = mapfile::apply_batch(bytes, &mut map, &mut sums, 10_000);
        assert!(map.leaf_slots() <= 10_000 / leaf::LEAF_PAGES + 1);
        let _ = sums.check(1 << 20, 100);
    });
}

fn no_snapshot() -> std::sync::Arc<snapshot::MapSnapshot> {
    let os = crate::os::sim::SimOs::new(1);
    let file = mapfile::create_file(&*os, "/map".as_ref()).unwrap();
    let written = snapshot::write_snapshot(file, 1, 1, 0, &|_| Ok(Vec::new()));
    written.map_err(|_| "a new file").unwrap().snapshot
}

#[test]
fn fuzz_leaves_and_directories() {
    let os = crate::os::sim::SimOs::new(1);
    let file = mapfile::create_file(&*os, "/map".as_ref()).unwrap();
    let entry = |n: u64| MapEntry::new(n * 5000, 300, Lsn(n), TreeId(16), n as u32);
    let leaf_of = |leaf: usize| Ok((0..9).map(|i| (i * 3, entry((leaf + i) as u64))).collect());
    let written = snapshot::write_snapshot(file.clone(), 9, 1, 5, &leaf_of);
    let directory = written.map_err(|_| "a new file").unwrap().directory;
    let chunks = read_range(&*file, 4096, directory.at - 4096).unwrap();
    fuzz("leaves of the map", &[chunks[..chunks.len() / 5].to_vec()], &mut |bytes| {
        let entries = snapshot::decode_leaf(bytes).unwrap_or_default();
        assert!(entries.iter().all(|(index, _)| *index < leaf::LEAF_PAGES));
    });
    let bytes = read_range(&*file, directory.at, directory.bytes).unwrap();
    fuzz("directories of the map", &[bytes], &mut |bytes| {
        let chunks = snapshot::decode_directory(bytes, 10_000).unwrap_or_default();
        assert!(chunks.len() <= 10_000 / leaf::LEAF_PAGES + 1);
    });
}
