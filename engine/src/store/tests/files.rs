//! Files of a store that nobody has open: many records of one read.

use super::*;
use crate::os::{OpenMode, Os};
use crate::store::inspect::together;
use std::path::Path;

const PAGES: u64 = 300;

/// Pages written in an order of its own, some of them twice, all but the last ten long ones.
fn files_of(os: &Arc<SimOs>, store: &Arc<Store>) -> (StoreFiles, Model) {
    let mut model = Model::new();
    for lsn in 0..PAGES * 5 / 4 {
        let page = lsn * 7 % PAGES + 1;
        let v = Version { lsn: lsn + 1, tree: 1, noise: if page > PAGES - 10 { 50 } else { 9000 } };
        write_one(store, page, v, Compression::Lz4).unwrap();
        model.insert(page, v);
    }
    checkpoint(store, b"").unwrap();
    (StoreFiles::read(&**os, DIR.as_ref(), None).unwrap(), model)
}

/// Every page once, and in the order of the file; answers those that cannot be read.
fn read_all(files: &StoreFiles, model: &Model) -> Vec<u64> {
    let places: Vec<PagePlace> = files.places().map(Result::unwrap).collect();
    let offset = |page| places.iter().find(|place| place.page == page).unwrap().offset;
    let (mut seen, mut bad) = (Vec::new(), Vec::new());
    files.read_pages(places.clone(), &mut |page, bytes| {
        seen.push(offset(page));
        match bytes {
            Ok(bytes) => assert!(bytes == model[&page.0].bytes(page.0), "bytes of page {page}"),
            Err(Error::Corrupt { .. } | Error::Io { .. }) => bad.push(page.0),
            Err(error) => panic!("{error}"),
        }
    });
    assert_eq!(seen.len(), model.len());
    assert!(seen.is_sorted());
    bad.sort_unstable();
    bad
}

#[test]
fn records_that_lie_together_come_with_few_reads() {
    let (os, store) = new_store(1);
    let (files, model) = files_of(&os, &store);
    assert_eq!(read_all(&files, &model), Vec::<u64>::new());
    let mut places: Vec<PagePlace> = files.places().map(Result::unwrap).collect();
    places.sort_unstable_by_key(|place| place.offset);
    let end = places.last().unwrap().offset;
    let (mut rest, mut reads) = (&places[..], 0);
    while !rest.is_empty() {
        rest = &rest[together(rest).0..];
        reads += 1;
    }
    assert!((end >> 20..(end >> 20) + 3).contains(&reads), "{reads} reads of {end} bytes");
    for (&page, v) in &model {
        assert!(files.page(PageId(page)).unwrap() == v.bytes(page));
    }
}

#[test]
fn a_damaged_record_costs_nothing_but_itself() {
    let (os, store) = new_store(2);
    let (files, model) = files_of(&os, &store);
    let path = Path::new(DIR).join("pages");
    let broken = files.place(PageId(17)).unwrap().unwrap();
    os.flip_bit(&path, broken.offset + broken.bytes as u64 / 2, 3);
    assert_eq!(read_all(&files, &model), [17]);
    assert!(matches!(files.page(PageId(17)), Err(Error::Corrupt { .. })));
    let unread = files.place(PageId(18)).unwrap().unwrap();
    os.set_bad_place(&path, unread.offset + 4500, true);
    assert_eq!(read_all(&files, &model), [17, 18]);
    os.set_bad_place(&path, unread.offset + 4500, false);
    // A map that names one record twice.
    let (twice, mut count) = (files.place(PageId(20)).unwrap().unwrap(), 0);
    files.read_pages(vec![twice, twice], &mut |_, bytes| count += u32::from(bytes.is_ok()));
    assert_eq!(count, 2);
    // Records after the end of the file.
    let cut = files.place(PageId(1)).unwrap().unwrap().offset / 4096 * 4096;
    let is_cut = |place: PagePlace| place.offset + place.bytes as u64 > cut;
    let mut lost: Vec<u64> =
        files.places().map(Result::unwrap).filter(|p| is_cut(*p)).map(|p| p.page.0).collect();
    os.open(&path, OpenMode { create: false, direct: true }).unwrap().set_len(cut).unwrap();
    lost.push(17);
    lost.sort_unstable();
    lost.dedup();
    assert_eq!(read_all(&files, &model), lost);
}
