//! Pages whose keys cannot be had, and writers in the middle of a change of keys.

use super::super::record;
use super::super::state::State;
use super::super::superblock::{self, KeyClaim, Superblock};
use super::*;
use crate::cipher::{Cipher, FixedKeys, Keys, Oldest, Scope, ENVELOPE_BYTES};
use std::sync::atomic::Ordering;

const PAGES: u64 = 40;

struct AllBut(u32);

impl Keys for AllBut {
    fn newest(&self, id: u32) -> Option<u32> {
        (id != self.0).then_some(1)
    }
    fn key(&self, id: u32, _: u32) -> Option<Vec<u8>> {
        (id != self.0).then(|| vec![id as u8; 16])
    }
}

fn open_under(os: &Arc<SimOs>, keys: Arc<dyn Keys>, id: u32) -> Arc<Store> {
    let cipher = Some(Cipher::new(&**os, keys, Some(id)).unwrap());
    let options = StoreOptions { cipher, ..options() };
    match Store::exists(&**os, DIR.as_ref()).unwrap() {
        true => Store::open(os.clone(), options).unwrap().0,
        false => Store::create(os.clone(), options).unwrap(),
    }
}

fn fill(store: &Store, pages: std::ops::RangeInclusive<u64>, lsn: u64) {
    for page in pages {
        let version = Version { lsn, tree: 1, noise: 9000 };
        write_one(store, page, version, Compression::Lz4).unwrap();
    }
}

fn assert_whole_without_version_1(os: &Arc<SimOs>, keys: Arc<FixedKeys>) {
    keys.oldest.store(2, Ordering::Relaxed);
    let store = open_under(os, keys, 1);
    let mut out = vec![0; PAGE_BYTES];
    (1..=PAGES).for_each(|page| assert!(store.read(PageId(page), &mut out).unwrap().is_some()));
}

/// One that does not open stays where it is, is reported once for each checkpoint, and keeps nobody else.
#[test]
fn a_page_whose_key_is_gone_stays() {
    let os = SimOs::new(3);
    let store = open_under(&os, Arc::new(AllBut(0)), 7);
    fill(&store, 1..=PAGES, 5);
    checkpoint(&store, b"under 7").unwrap();
    drop(store);
    let store = open_under(&os, Arc::new(AllBut(0)), 8);
    fill(&store, PAGES / 2..=PAGES, 9);
    checkpoint(&store, b"the proof is under 8").unwrap();
    drop(store);
    let store = open_under(&os, Arc::new(AllBut(7)), 8);
    let step = || store.rotate_step(1, 1);
    for _ in 0..3 {
        let (mut refused, mut rounds) = (0, 0);
        while rounds < 100 {
            rounds += 1;
            match step() {
                Ok(0) => break,
                Ok(_) => {}
                Err(Error::Refused(why)) => {
                    assert!(why.contains("key 7 version 1 is needed"), "{why}");
                    refused += 1;
                }
                Err(error) => panic!("{error}"),
            }
        }
        assert!(refused > 0 && rounds < 100, "{refused} in {rounds} rounds");
        let keys = store.page_keys();
        assert!(keys.old_bytes > 0 && keys.oldest < Oldest::Version(1), "{keys:?}");
        checkpoint(&store, b"again").unwrap();
    }
    drop(store);
    let store = open_under(&os, Arc::new(AllBut(0)), 8);
    while store.rotate_step(1, 1 << 20).unwrap() > 0 {}
    checkpoint(&store, b"done").unwrap();
    assert_eq!(store.page_keys().oldest, Oldest::Version(1));
}

/// A record may have been encrypted before the key changed, and be written after that.
#[test]
fn a_key_is_needed_while_somebody_packs_under_it() {
    let os = SimOs::new(4);
    let keys = FixedKeys::new(1);
    let store = open_under(&os, keys.clone(), 1);
    fill(&store, 1..=PAGES, 5);
    checkpoint(&store, b"under 1").unwrap();
    let packing = store.packing.enter();
    keys.newest.store(2, Ordering::Relaxed);
    let turn = || {
        assert_eq!(store.refresh_key(), 2);
        while store.rotate_step(1, 1 << 20).unwrap() > 0 {}
        checkpoint(&store, b"later").unwrap();
        store.page_keys()
    };
    for _ in 0..3 {
        let keys = turn();
        assert_eq!((keys.oldest, keys.old_bytes), (Oldest::Version(1), 0));
    }
    drop(packing);
    turn();
    assert_eq!(turn().oldest, Oldest::Version(2));
    // Files say it too: without version 1 the store opens and is whole.
    drop(store);
    assert_whole_without_version_1(&os, keys);
}

/// A thread may publish such a record after a checkpoint that knew of none.
#[test]
fn a_record_that_comes_late_under_an_old_key_keeps_it_needed() {
    let os = SimOs::new(5);
    let keys = FixedKeys::new(1);
    let store = open_under(&os, keys.clone(), 1);
    fill(&store, 1..=PAGES, 5);
    let packing = store.packing.enter();
    let bytes = Version { lsn: 9, tree: 1, noise: 9000 }.bytes(1);
    let write = PageWrite {
        page: PageId(1),
        tree: TreeId(1),
        lsn: Lsn(9),
        bytes: &bytes,
        compression: Compression::Lz4,
    };
    let record = record::pack(store.seed, &write, store.cipher.as_deref()).unwrap();
    keys.newest.store(2, Ordering::Relaxed);
    let turn = || {
        assert_eq!(store.refresh_key(), 2);
        while store.rotate_step(1, 1 << 20).unwrap() > 0 {}
    };
    turn();
    checkpoint(&store, b"all under 2").unwrap();
    assert!(!store.has_keys_to_claim(1));
    let publish = |state: &mut State, _: usize, place| state.publish(&record, place);
    store.append(Cause::Eviction, std::slice::from_ref(&record), &publish).unwrap();
    drop(packing);
    assert_eq!(store.refresh_key(), 2);
    assert_eq!(store.page_keys().oldest, Oldest::Version(1));
    turn();
    // No checkpoint has named it, so no other has to.
    assert_eq!(store.page_keys().oldest, Oldest::Version(2));
    drop(store);
    assert_whole_without_version_1(&os, keys);
}

/// A build that knows of no claims leaves zeros in their place.
#[test]
fn zeros_claim_nothing() {
    let claim = KeyClaim { key: 1, pages: Some(2), log: Some((3, Lsn(4))), ..KeyClaim::default() };
    let proof = Some([7; ENVELOPE_BYTES]);
    let sb = Superblock { generation: 1, proof, claim, ..Superblock::default() };
    let mut block = sb.encode();
    let parsed = |block: &[u8]| superblock::parse(block, "here").unwrap().unwrap();
    assert_eq!(parsed(&block), sb);
    block[140..161].fill(0);
    let check = superblock::check_of(&block).to_le_bytes();
    block[12..16].copy_from_slice(&check);
    let read = parsed(&block);
    assert_eq!((read.proof, read.claim), (proof, KeyClaim::default()));
    assert!(!read.claim.needs_no_key());
    assert_eq!(read.claim.oldest_of_pages(Some(1), Scope::AllTables), Oldest::Unknown);
    assert_eq!(read.claim.oldest_of_log(Some(1)), None);
}

/// A build that knows of no choice of tables finds no claim of pages, and refuses what is promised.
#[test]
fn a_claim_of_named_tables_is_one_of_its_own() {
    let parsed = |block: &[u8]| superblock::parse(block, "here").unwrap().unwrap();
    let proof = Some([7; ENVELOPE_BYTES]);
    for (promises, version) in [(false, 4), (true, 5)] {
        for (scope, flags) in [(Scope::AllTables, 1), (Scope::NamedTables, 4)] {
            let claim = KeyClaim { key: 1, pages: Some(2), scope, log: None };
            let sb = Superblock { generation: 1, proof, claim, promises, ..Superblock::default() };
            let block = sb.encode();
            assert_eq!((block[8], block[140]), (version, flags | if promises { 8 } else { 0 }));
            assert_eq!(parsed(&block), sb);
            let oldest = |scope| claim.oldest_of_pages(Some(1), scope);
            assert_eq!(oldest(Scope::NamedTables), Oldest::Version(2));
            assert_eq!(oldest(Scope::AllTables) == Oldest::Unknown, scope == Scope::NamedTables);
        }
    }
}

/// Has key 7 only while it is on.
struct Sometimes(std::sync::atomic::AtomicBool);

impl Keys for Sometimes {
    fn newest(&self, _: u32) -> Option<u32> {
        Some(1)
    }
    fn key(&self, id: u32, _: u32) -> Option<Vec<u8>> {
        (id != 7 || self.0.load(Ordering::Relaxed)).then(|| vec![id as u8; 16])
    }
}

/// Nothing is written, so no checkpoint comes.
#[test]
fn a_page_whose_key_comes_back_is_moved_without_a_checkpoint() {
    let os = SimOs::new(3);
    let store = open_under(&os, Arc::new(AllBut(0)), 7);
    fill(&store, 1..=PAGES, 5);
    checkpoint(&store, b"under 7").unwrap();
    fill(&store, 1..=1, 6);
    drop(store);
    let store = open_under(&os, Arc::new(AllBut(0)), 8);
    checkpoint(&store, b"the proof is under 8").unwrap();
    drop(store);
    let keys = Arc::new(Sometimes(false.into()));
    let store = open_under(&os, keys.clone(), 8);
    let rotate = || while !matches!(store.rotate_step(1, 1), Ok(0)) {};
    rotate();
    assert!(store.page_keys().old_bytes > 0);
    keys.0.store(true, Ordering::Relaxed);
    rotate();
    assert_eq!(store.page_keys().old_bytes, 0);
    let version = Version { lsn: 5, tree: 1, noise: 9000 };
    check_page(&store, 2, Some(&version)).unwrap();
}
