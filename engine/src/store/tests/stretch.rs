//! Reads of several pages in one go see what reads of one page see.

use super::*;
use crate::store::Stretch;

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

/// Eight pages that a reader wants, or fewer, from the one on.
fn plan(store: &Store, stretch: &mut Stretch, page: u64) -> usize {
    let wanted: Vec<PageId> = (page..page + 8).map(PageId).collect();
    store.plan_stretch(&wanted, stretch)
}

fn check_in(store: &Store, stretch: &mut Stretch, page: u64, want: Option<&Version>) {
    let mut out = vec![0xaa; PAGE_BYTES];
    let got = store.read_in_stretch(PageId(page), &mut out, stretch).unwrap();
    assert_eq!(got.map(|info| info.lsn.0), want.map(|v| v.lsn), "page {page}");
    assert!(want.is_none_or(|v| out == v.bytes(page)), "bytes of page {page}");
}

#[test]
fn pages_that_follow_each_other_come_in_one_read() {
    let (_os, store, model) = filled(300);
    let (before, mut stretch) = (store.stats(), Stretch::default());
    let mut page = 1;
    while page <= 300 {
        let count = plan(&store, &mut stretch, page) as u64;
        assert!(count >= 1, "page {page}");
        store.load_stretch(&mut stretch);
        (page..page + count).for_each(|p| check_in(&store, &mut stretch, p, model.get(&p)));
        page += count;
    }
    let now = store.stats();
    assert_eq!(now.reads - before.reads, 300);
    assert_eq!(now.stretch_reads - before.stretch_reads, 300);
    let (read, stored) = (now.read_bytes - before.read_bytes, 300 * (PAGE_BYTES as u64 + 100));
    assert!(read < stored * 3 / 2, "{read} bytes for {stored}");
    assert_eq!(store.plan_stretch(&[PageId(50), PageId(20), PageId(21)], &mut stretch), 1);
    assert_eq!(store.plan_stretch(&[PageId(1000)], &mut stretch), 0);
}

#[test]
fn bytes_that_have_become_stale_are_not_used() {
    let (_os, store, mut model) = filled(400);
    let (mut rng, mut stretch) = (SimRng::new(7), Stretch::default());
    let mut lsn = 1000;
    for turn in 0..3000 {
        let page = turn * 4 % 400 + 1;
        let count = plan(&store, &mut stretch, page) as u64;
        store.load_stretch(&mut stretch);
        for read in page..page + count {
            // Mostly a page of the stretch.
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
            check_in(&store, &mut stretch, read, model.get(&read));
        }
    }
    assert!(store.stats().stretch_reads > 500, "{:?}", store.stats());
}

#[test]
fn a_stretch_that_cannot_be_read_holds_nothing() {
    let (os, store, model) = filled(100);
    let mut stretch = Stretch::default();
    let count = plan(&store, &mut stretch, 1) as u64;
    os.fail_reads_of(Some("pages"));
    store.load_stretch(&mut stretch);
    let mut out = vec![0; PAGE_BYTES];
    assert!(store.read_in_stretch(PageId(2), &mut out, &mut stretch).is_err());
    os.fail_reads_of(None);
    (1..=count).for_each(|page| check_in(&store, &mut stretch, page, model.get(&page)));
}
