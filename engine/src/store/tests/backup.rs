//! A backup of the store while pages are written, collected and freed.

use super::*;
use crate::os::{AlignedBuf, OpenMode, Os};
use std::path::Path;

const COPY: &str = "/copy";
const PAGES: u64 = 120;

/// Writes each page again, makes checkpoints and collects, so that every free place is used.
fn write_all(store: &Store, model: &mut Model, rng: &mut SimRng, first_lsn: u64) {
    for page in 1..=PAGES {
        let version = Version { lsn: first_lsn + page, tree: 1, noise: rng.below(9000) as usize };
        write_one(store, page, version, Compression::Lz4).unwrap();
        model.insert(page, version);
        if page % 16 == 0 {
            checkpoint(store, b"later").unwrap();
            store.gc_step(64 << 10).unwrap();
        }
    }
    checkpoint(store, b"later").unwrap();
}

fn copy(os: &Arc<SimOs>) {
    let pinned = PinnedStore::read(&**os, Path::new(DIR)).unwrap();
    os.create_dir(Path::new(COPY)).unwrap();
    let target = |path: &Path| Path::new(COPY).join(path.file_name().unwrap());
    let create = OpenMode { create: true, direct: true };
    for part in pinned.parts() {
        let source = os.open(&part.path, OpenMode { create: false, direct: true }).unwrap();
        let mut bytes = AlignedBuf::new(part.bytes as usize);
        source.read_at(&mut bytes, part.offset).unwrap();
        let path = target(&part.path);
        let mode = OpenMode { create: !os.exists(&path).unwrap(), direct: true };
        os.open(&path, mode).unwrap().write_at(&bytes, part.offset).unwrap();
    }
    os.open(&target(&pinned.pages_path()), OpenMode::default())
        .unwrap()
        .set_len(pinned.pages_bytes())
        .unwrap();
    let (path, block) = pinned.superblock();
    os.open(&target(&path), create).unwrap().write_at(&block, 0).unwrap();
}

#[test]
fn a_backup_is_the_store_as_it_was_when_it_began() {
    for seed in 0..20 {
        let (os, store) = new_store(seed);
        let (mut model, mut rng) = (Model::new(), SimRng::new(seed));
        write_all(&store, &mut model, &mut rng, 0);
        checkpoint(&store, b"of the backup").unwrap();
        store.pin_backup().unwrap();
        let of_backup = model.clone();
        (1..=4).for_each(|round| write_all(&store, &mut model, &mut rng, round * 1000));
        assert!(store.stats().held_bytes > 0, "nothing is held back");
        check_all(&store, &model, PAGES, 2);
        copy(&os);
        let held = store.stats();
        store.unpin_backup();
        let freed = store.stats();
        assert_eq!((freed.held_bytes, freed.free_bytes), (0, held.free_bytes + held.held_bytes));
        write_all(&store, &mut model, &mut rng, 9000);
        check_all(&store, &model, PAGES, 2);

        let copied = StoreOptions { dir: COPY.into(), ..options() };
        let (copied, note) = Store::open(os.clone(), copied).unwrap();
        assert_eq!(note, b"of the backup");
        check_all(&copied, &of_backup, PAGES, 2);
        drop(store);
        let names = os.list(Path::new(DIR)).unwrap();
        let maps = names.iter().filter(|path| path.to_string_lossy().contains("/map")).count();
        assert_eq!(maps, 2, "map files of the backup are left: {names:?}");
        assert!(!names.iter().any(|path| path.ends_with("superblock.backup")));
    }
}

#[test]
fn a_backup_ends_with_the_store() {
    let (os, store) = new_store(3);
    let (mut model, mut rng) = (Model::new(), SimRng::new(3));
    write_all(&store, &mut model, &mut rng, 0);
    store.pin_backup().unwrap();
    write_all(&store, &mut model, &mut rng, 1000);
    drop(store);
    os.crash();
    let (store, _) = Store::open(os.clone(), options()).unwrap();
    check_all(&store, &model, PAGES, 2);
    assert_eq!(store.stats().held_bytes, 0);
    assert!(PinnedStore::read(&*os, Path::new(DIR)).is_err());
}
