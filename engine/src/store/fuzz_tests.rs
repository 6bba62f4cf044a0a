use super::map::{Entry, PageMap};
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
        record::pack(9, &write).unwrap().bytes
    };
    let corpus = [packed(Compression::Lz4), packed(Compression::Zstd(3))];
    let mut out = vec![0; PAGE_BYTES];
    fuzz("page records", &corpus, &mut |bytes| {
        let _ = record::verify(9, bytes);
        // As if the checksum had held.
        if let Ok(head) = record::header(bytes) {
            let _ = record::unpack(&head, bytes, &mut out);
        }
    });
}

#[test]
fn fuzz_map_batches() {
    let entry = |n: u64| Entry::new(n * 5000, 300, Lsn(n), TreeId(16), n as u32);
    let changes: Vec<_> = (1..30).map(|n| (PageId(n * 3), entry(n))).collect();
    let body = mapfile::encode_batch(b"checkpoint note", &changes);
    fuzz("map batches", &[body], &mut |bytes| {
        let mut map = PageMap::default();
        let _ = mapfile::apply_batch(bytes, &mut map, 10_000);
        assert!(map.leaf_slots() <= 4);
    });
}
