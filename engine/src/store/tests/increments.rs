//! Copies of the store made of an earlier copy and what that lacks.

use super::*;
use crate::base::Result;
use crate::os::{AlignedBuf, OpenMode, Os};
use std::path::{Path, PathBuf};

const PAGES: u64 = 150;
const DIRECT: OpenMode = OpenMode { create: false, direct: true };
const CREATE: OpenMode = OpenMode { create: true, direct: true };

/// One store, and a machine with copies of it.
struct Case {
    os: Arc<SimOs>,
    copies: Arc<SimOs>,
    store: Arc<Store>,
    model: Model,
    rng: SimRng,
    lsn: u64,
}

impl Case {
    fn new(seed: u64) -> Case {
        let (os, store) = new_store(seed);
        let (model, rng) = (Model::new(), SimRng::new(seed));
        let mut case = Case { os, copies: SimOs::new(seed), store, model, rng, lsn: 0 };
        (0..2).for_each(|_| case.change(100));
        case
    }

    /// Writes so many of 100 pages, frees some, and collects.
    fn change(&mut self, percent: u64) {
        for page in 1..=PAGES {
            self.lsn += 1;
            if self.rng.chance(percent) {
                let noise = self.rng.below(9000) as usize;
                let version = Version { lsn: self.lsn, tree: 1, noise };
                write_one(&self.store, page, version, Compression::Lz4).unwrap();
                self.model.insert(page, version);
            } else if self.rng.chance(3) {
                self.store.free(PageId(page));
                self.model.remove(&page);
            }
            if page % 16 == 0 {
                checkpoint(&self.store, b"later").unwrap();
                self.store.gc_step(64 << 10).unwrap();
            }
        }
        checkpoint(&self.store, b"of the copy").unwrap();
    }

    fn crash(&mut self) {
        self.os.crash();
        let (store, _) = Store::open(self.os.clone(), options()).unwrap();
        self.store = store;
    }

    /// The store as it is, copied to `to`; laid over `base` if there is one. Others write meanwhile. Answers
    /// the bytes of images that it has copied.
    fn copy(&mut self, to: &str, base: Option<&str>) -> Result<u64> {
        self.store.pin_backup().unwrap();
        let copied = self.copy_pinned(to, base);
        self.store.unpin_backup();
        copied
    }

    fn copy_pinned(&mut self, to: &str, base: Option<&str>) -> Result<u64> {
        let pinned = PinnedStore::read(&*self.os, Path::new(DIR))?;
        let parts = match base {
            Some(base) => {
                let base = CopiedStore::read(&*self.copies, Path::new(base))?;
                pinned.parts_since(&*self.os, &base)?
            }
            None => pinned.parts(),
        };
        let of_copy = self.model.clone();
        self.change(30);
        self.copies.create_dir(Path::new(to))?;
        if let Some(base) = base {
            self.write_whole(&Path::new(to).join("pages"), &Path::new(base).join("pages"))?;
        }
        let mut copied = 0;
        for part in &parts {
            let is_pages = part.path == pinned.pages_path();
            copied += if is_pages { part.bytes } else { 0 };
            let bytes = read(&*self.os, &part.path, part.offset, part.bytes)?;
            let target = Path::new(to).join(part.path.file_name().unwrap());
            let create = !self.copies.exists(&target)?;
            let file = self.copies.open(&target, OpenMode { create, direct: true })?;
            file.write_at(&bytes, part.offset)?;
        }
        let pages = self.copies.open(&Path::new(to).join("pages"), DIRECT)?;
        pages.set_len(pinned.pages_bytes())?;
        let (path, block) = pinned.superblock();
        let target = Path::new(to).join(path.file_name().unwrap());
        self.copies.open(&target, CREATE)?.write_at(&block, 0)?;
        self.check(to, &of_copy);
        Ok(copied)
    }

    fn parts_since(&self, base: &CopiedStore) -> Result<Vec<FilePart>> {
        self.store.pin_backup().unwrap();
        let pinned = PinnedStore::read(&*self.os, Path::new(DIR)).unwrap();
        let parts = pinned.parts_since(&*self.os, base);
        self.store.unpin_backup();
        parts
    }

    /// Superblock and page map, as the last checkpoint left them.
    fn copied_map(&self, to: &str) -> CopiedStore {
        self.copies.create_dir(Path::new(to)).unwrap();
        for (path, bytes) in self.files().iter().filter(|(path, _)| !path.ends_with("pages")) {
            let target = Path::new(to).join(path.file_name().unwrap());
            self.copies.open(&target, CREATE).unwrap().write_at(bytes, 0).unwrap();
        }
        CopiedStore::read(&*self.copies, Path::new(to)).unwrap()
    }

    fn files(&self) -> Vec<(PathBuf, AlignedBuf)> {
        let whole = |path: PathBuf| {
            let bytes = self.os.open(&path, DIRECT).unwrap().len().unwrap();
            let all = read(&*self.os, &path, 0, bytes).unwrap();
            (path, all)
        };
        self.os.list(Path::new(DIR)).unwrap().into_iter().map(whole).collect()
    }

    fn put_back(&mut self, files: &[(PathBuf, AlignedBuf)]) {
        for path in self.os.list(Path::new(DIR)).unwrap() {
            self.os.remove(&path).unwrap();
        }
        for (path, bytes) in files {
            self.os.open(path, CREATE).unwrap().write_at(bytes, 0).unwrap();
        }
        let (store, _) = Store::open(self.os.clone(), options()).unwrap();
        self.store = store;
    }

    fn generation(&self) -> u64 {
        StoreFiles::read(&*self.os, Path::new(DIR), None).unwrap().header.generation
    }

    fn write_whole(&self, to: &Path, from: &Path) -> Result<()> {
        let bytes = self.copies.open(from, DIRECT)?.len()?;
        let all = read(&*self.copies, from, 0, bytes)?;
        self.copies.open(to, CREATE)?.write_at(&all, 0)
    }

    fn check(&self, copy: &str, model: &Model) {
        let options = StoreOptions { dir: copy.into(), ..options() };
        let (store, note) = Store::open(self.copies.clone(), options).unwrap();
        assert_eq!(note, b"of the copy");
        check_all(&store, model, PAGES, 2);
    }
}

fn read(os: &dyn Os, path: &Path, offset: u64, bytes: u64) -> Result<AlignedBuf> {
    let mut buffer = AlignedBuf::new(bytes as usize);
    // Lengths of the change log need not be whole blocks.
    os.open(path, OpenMode::default())?.read_at(&mut buffer[..bytes as usize], offset)?;
    Ok(buffer)
}

#[test]
fn increments_are_the_store_as_it_was() {
    for seed in 0..20 {
        let mut case = Case::new(seed);
        let whole = case.copy("/0", None).unwrap();
        for n in 1..=4 {
            let percent = [100, 30, 5, 0][case.rng.below(4) as usize];
            case.change(percent);
            if case.rng.chance(50) {
                case.crash();
            }
            let base = format!("/{}", n - 1);
            let part = case.copy(&format!("/{n}"), Some(&base)).unwrap();
            assert!(part <= whole * 2, "{part} of {whole}");
        }
        check_all(&case.store, &case.model, PAGES, 2);
    }
}

#[test]
fn an_increment_has_what_has_changed() {
    let case = Case::new(1);
    let before = case.copied_map("/before");
    let parts = case.parts_since(&before).unwrap();
    assert_eq!(parts.len(), 2, "only the map: {parts:?}");
    let one = Version { lsn: case.lsn + 1, tree: 1, noise: 100 };
    write_one(&case.store, 7, one, Compression::Lz4).unwrap();
    checkpoint(&case.store, b"one page").unwrap();
    let parts = case.parts_since(&before).unwrap();
    let images: u64 = parts[2..].iter().map(|part| part.bytes).sum();
    assert!((4096..=8192).contains(&images), "{images} bytes for one small image");
}

#[test]
fn what_was_not_an_earlier_state_is_refused() {
    let refused = |case: &Case, base: &CopiedStore, why: &str| {
        let error = case.parts_since(base).expect_err("it is no base");
        assert!(matches!(error, Error::Refused(_)) && error.to_string().contains(why), "{error}");
    };
    let (mut case, other) = (Case::new(1), Case::new(2));
    refused(&case, &other.copied_map("/other"), "other tables");

    // The files are put back to an earlier state.
    let (early, of_early) = (case.files(), case.model.clone());
    case.change(20);
    let (late, generation) = (case.copied_map("/late"), case.generation());
    case.put_back(&early);
    check_all(&case.store, &of_early, PAGES, 2);
    refused(&case, &late, "older state");
    // They go on, another way.
    while case.generation() < generation {
        checkpoint(&case.store, b"another way").unwrap();
    }
    refused(&case, &late, "does not go on");
}

/// What an increment has is verified against the maps, damage in the server's own file included.
#[test]
fn images_of_an_increment_are_verified() {
    let mut case = Case::new(3);
    let before = case.copied_map("/base");
    case.change(20);
    case.store.pin_backup().unwrap();
    let pinned = PinnedStore::read(&*case.os, Path::new(DIR)).unwrap();
    let after = case.copied_map("/inc");
    let parts = pinned.parts_since(&*case.os, &before).unwrap();
    let file = case.copies.open(Path::new("/inc/pages"), CREATE).unwrap();
    let (mut pieces, mut at) = (Vec::new(), 0);
    for part in &parts[2..] {
        let bytes = read(&*case.os, &part.path, part.offset, part.bytes).unwrap();
        file.write_at(&bytes, at).unwrap();
        pieces.push(PackedPiece { offset: part.offset, bytes: part.bytes, at });
        at += part.bytes;
    }
    let check = |pieces: &[PackedPiece]| after.check_images(&*case.copies, &before, pieces);
    let images = check(&pieces).unwrap();
    assert!((10..=PAGES).contains(&images), "{images} images");
    let error = check(&pieces[1..]).expect_err("a piece is missing");
    assert!(matches!(error, Error::Corrupt { .. }), "{error}");
    let mut block = read(&*case.copies, file.path(), at - 4096, 4096).unwrap();
    block.iter_mut().for_each(|byte| *byte ^= 1);
    file.write_at(&block, at - 4096).unwrap();
    let error = check(&pieces).expect_err("the last image is another");
    assert!(matches!(error, Error::Corrupt { .. }), "{error}");
}
