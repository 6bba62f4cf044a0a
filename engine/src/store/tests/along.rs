//! Scans that read ahead in the file see what others see.

use super::*;

const NOISE: usize = 3000;

fn version(lsn: u64) -> Version {
    Version { lsn, tree: 1, noise: NOISE }
}

/// Pages in the file, in the order of their ids.
fn filled(pages: u64) -> (Arc<SimOs>, Arc<Store>, Model) {
    let (os, store) = new_store(1);
    let model: Model = (1..=pages).map(|page| (page, version(page))).collect();
    let write = |(&page, &v): (&u64, &Version)| write_one(&store, page, v, Compression::None);
    model.iter().for_each(|entry| write(entry).unwrap());
    checkpoint(&store, b"").unwrap();
    (os, store, model)
}

fn check_along(store: &Store, along: &mut ReadAlong, page: u64, want: Option<&Version>) {
    let mut out = vec![0xaa; PAGE_BYTES];
    let got = store.read_along(PageId(page), &mut out, along).unwrap();
    assert_eq!(got.map(|info| info.lsn.0), want.map(|v| v.lsn), "page {page}");
    assert!(want.is_none_or(|v| out == v.bytes(page)), "bytes of page {page}");
}

#[test]
fn a_scan_takes_pages_that_follow_each_other_from_large_reads() {
    let (_os, store, model) = filled(300);
    let before = store.stats();
    let mut along = ReadAlong::default();
    model.iter().for_each(|(&page, v)| check_along(&store, &mut along, page, Some(v)));
    let now = store.stats();
    assert_eq!(now.reads - before.reads, 300);
    let taken = now.along_reads - before.along_reads;
    assert!(taken > 280, "{taken}");
    let stored = 300 * (PAGE_BYTES as u64 + 100);
    let read = now.read_bytes - before.read_bytes;
    assert!(read < stored * 3 / 2, "{read} bytes for {stored}");
    // Here and there nothing is read ahead.
    for page in (1..=300).rev().step_by(7) {
        check_along(&store, &mut ReadAlong::default(), page, model.get(&page));
    }
    assert_eq!(store.stats().along_reads - before.along_reads, taken);
}

#[test]
fn bytes_that_have_become_stale_are_not_used() {
    let (_os, store, mut model) = filled(400);
    let (mut rng, mut along) = (SimRng::new(7), ReadAlong::default());
    let mut lsn = 1000;
    for turn in 0..12_000 {
        let page = turn % 400 + 1;
        check_along(&store, &mut along, page, model.get(&page));
        // Mostly pages that the scan has read ahead already.
        let near = (page + rng.below(12)) % 400 + 1;
        match rng.below(12) {
            0..=2 => {
                lsn += 1;
                model.insert(near, version(lsn));
                write_one(&store, near, version(lsn), Compression::Lz4).unwrap();
            }
            3 => {
                store.free(PageId(near));
                model.remove(&near);
            }
            4 => drop(store.gc_step(64 << 10).unwrap()),
            5 => checkpoint(&store, b"").unwrap(),
            6 => drop(store.give_back().unwrap()),
            _ => {}
        }
    }
    assert!(store.stats().along_reads > 500, "{:?}", store.stats());
}

#[test]
fn a_scan_goes_on_where_reading_ahead_fails() {
    let (os, store, model) = filled(100);
    let mut along = ReadAlong::default();
    check_along(&store, &mut along, 1, model.get(&1));
    os.fail_reads_of(Some("pages"));
    let mut out = vec![0; PAGE_BYTES];
    assert!(store.read_along(PageId(2), &mut out, &mut along).is_err());
    os.fail_reads_of(None);
    (2..=100).for_each(|page| check_along(&store, &mut along, page, model.get(&page)));
}
