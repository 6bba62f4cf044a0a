//! The copy of a pinned engine, or of what an earlier copy lacks: pages while sessions go on, the log as it
//! grows, the superblock last.

use crate::base::checksum::checksum;
use crate::base::{Error, Result, BLOCK_BYTES};
use crate::os::{AlignedBuf, File, OpenMode, Os};
use crate::store::{CopiedStore, FilePart, PackedPiece, PinnedStore};
use crate::wal::{PinnedLog, Place};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes that are read at a time.
const PIECE_BYTES: u64 = 1 << 20;
/// The copy is made durable as it grows, in steps of so many bytes. Else the kernel would write gigabytes of it at
/// once in the end, and commits of a server on the same disk would wait for that.
const SYNC_BYTES: u64 = 64 << 20;
/// The file of the images, of which an increment has some.
pub const PAGES: &str = "pages";

/// Called after each piece with its bytes: to keep to a rate, to show progress, to stop.
pub type Pause<'a> = &'a mut dyn FnMut(u64) -> Result<()>;

/// What was copied: a piece of a file of the copy, and the checksum of it as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopiedPart {
    /// Below the directory of the copy.
    pub name: PathBuf,
    /// In the file of the original.
    pub offset: u64,
    pub bytes: u64,
    pub check: u32,
}

/// A copy that is whole.
#[derive(Clone, Debug)]
pub struct Copied {
    pub parts: Vec<CopiedPart>,
    /// Lengths of the files of the original.
    pub files: BTreeMap<PathBuf, u64>,
}

/// A copy under way. The log lies in `log` below the copy's directory, wherever it is in the original.
pub struct Copying {
    from: Arc<dyn Os>,
    to: Arc<dyn Os>,
    dir: PathBuf,
    store: PinnedStore,
    log: PinnedLog,
    log_at: Place,
    /// Files of the copy. None stays open: there may be many of the log.
    targets: BTreeMap<PathBuf, CopyFile>,
    parts: Vec<CopiedPart>,
    /// Written since the last step.
    unsynced_bytes: u64,
    /// Each file of the copy is its parts one after the other, as they came.
    is_packed: bool,
}

#[derive(Default)]
struct CopyFile {
    /// Length of the file of the original.
    bytes: u64,
    /// Bytes of its parts so far.
    copied: u64,
}

impl Copying {
    /// `log_from` is what [`crate::db::Engine::begin_backup`] has answered; `dir` an empty directory.
    pub fn begin(
        (from, data_dir, log_dir): (Arc<dyn Os>, &Path, &Path),
        (to, dir): (Arc<dyn Os>, &Path),
        log_from: Place,
    ) -> Result<Copying> {
        to.create_dir(dir)?;
        to.create_dir(&dir.join("log"))?;
        let store = PinnedStore::read(&*from, data_dir)?;
        let log = PinnedLog::read(&*from, log_dir)?;
        let mut copying = Copying {
            log_at: log_from,
            dir: dir.to_owned(),
            targets: BTreeMap::new(),
            parts: Vec::new(),
            unsynced_bytes: 0,
            is_packed: false,
            from,
            to,
            store,
            log,
        };
        copying.copy_control()?;
        Ok(copying)
    }

    fn copy_control(&mut self) -> Result<()> {
        let (control, bytes) = self.log.control();
        let source = self.open(&control)?;
        let name = Path::new("log").join(file_name(&control)?);
        self.copy_range(&*source, (name, bytes), (0, bytes), &mut |_| Ok(()))
    }

    /// What is to be copied of the store, in any order.
    pub fn store_parts(&self) -> Vec<FilePart> {
        self.store.parts()
    }

    /// From here on the copy is an increment on the one in `base`: answers what is to be copied of the
    /// store, in order, without what that one has, or those have that it rests on. Refused if the store
    /// cannot have been the base once.
    pub fn store_parts_since(&mut self, base: (&dyn Os, &Path)) -> Result<Vec<FilePart>> {
        let base = CopiedStore::read(base.0, base.1)?;
        let parts = self.store.parts_since(&*self.from, &base)?;
        self.is_packed = true;
        // It has a length, also if nothing of it is copied.
        let pages = file_name(&self.store.pages_path())?;
        self.create(&pages, self.store.pages_bytes())?;
        Ok(parts)
    }

    pub fn copy_store_part(&mut self, part: &FilePart, pause: Pause<'_>) -> Result<()> {
        let source = self.open(&part.path)?;
        let bytes = match part.path == self.store.pages_path() {
            true => self.store.pages_bytes(),
            false => part.bytes,
        };
        let name = file_name(&part.path)?;
        self.copy_range(&*source, (name, bytes), (part.offset, part.bytes), pause)
    }

    /// Copies the log on to `to`, a place that is durable and where a batch ends
    /// ([`Engine::log_durable`](crate::db::Engine::log_durable)). Answers the bytes that it copied.
    pub fn copy_log(&mut self, to: Place, pause: Pause<'_>) -> Result<u64> {
        let mut copied = 0;
        for part in self.log.parts(self.log_at, to) {
            let source = self.open(&part.path)?;
            let name = Path::new("log").join(file_name(&part.path)?);
            let file_bytes = self.log.file_bytes();
            self.copy_range(&*source, (name, file_bytes), (part.offset, part.bytes), pause)?;
            self.log.check(part.number, &*source)?;
            copied += part.bytes;
        }
        self.log_at = self.log_at.max(to);
        Ok(copied)
    }

    /// Makes all of it durable, and the copy one that opens. Answers its parts, and its files with their
    /// lengths.
    pub fn finish(mut self) -> Result<Copied> {
        let (path, header) = self.log.empty_segment(self.log_at);
        let name = Path::new("log").join(file_name(&path)?);
        let has_log = self.parts.iter().any(|part| part.name.extension() == name.extension());
        if !has_log {
            self.write_whole(name, self.log.file_bytes(), &header)?;
        }
        for name in self.targets.keys() {
            self.to.open(&self.dir.join(name), OpenMode::default())?.sync()?;
        }
        let (path, block) = self.store.superblock();
        self.write_whole(file_name(&path)?, block.len() as u64, &block)?.sync()?;
        self.to.sync_dir(&self.dir.join("log"))?;
        self.to.sync_dir(&self.dir)?;
        let files = self.targets.into_iter().map(|(name, target)| (name, target.bytes)).collect();
        Ok(Copied { parts: self.parts, files })
    }

    /// A file of which these are the first bytes.
    fn write_whole(
        &mut self,
        name: PathBuf,
        file_bytes: u64,
        block: &AlignedBuf,
    ) -> Result<Arc<dyn File>> {
        let file = self.create(&name, file_bytes)?;
        file.write_at(block, 0)?;
        let bytes = block.len() as u64;
        self.note(CopiedPart { name, offset: 0, bytes, check: checksum(0, block) });
        Ok(file)
    }

    fn note(&mut self, part: CopiedPart) {
        self.targets.entry(part.name.clone()).or_default().copied += part.bytes;
        self.parts.push(part);
    }

    fn open(&self, path: &Path) -> Result<Arc<dyn File>> {
        self.from.open(path, OpenMode { create: false, direct: true })
    }

    /// Opens a file of the copy, or makes it: `bytes` is the length of the original.
    fn create(&mut self, name: &Path, bytes: u64) -> Result<Arc<dyn File>> {
        let create = !self.targets.contains_key(name);
        let file = self.to.open(&self.dir.join(name), OpenMode { create, direct: false })?;
        if create {
            file.set_len(if self.is_packed { 0 } else { bytes })?;
            self.targets.insert(name.to_owned(), CopyFile { bytes, copied: 0 });
        }
        Ok(file)
    }

    fn copy_range(
        &mut self,
        source: &dyn File,
        (name, file_bytes): (PathBuf, u64),
        (offset, bytes): (u64, u64),
        pause: Pause<'_>,
    ) -> Result<()> {
        assert!(offset % BLOCK_BYTES as u64 == 0 && bytes % BLOCK_BYTES as u64 == 0);
        let target = self.create(&name, file_bytes)?;
        let at = match self.is_packed {
            true => self.targets.get(&name).map_or(0, |target| target.copied),
            false => offset,
        };
        let mut buffer = AlignedBuf::new(bytes.min(PIECE_BYTES) as usize);
        let (mut done, mut check) = (0, 0);
        while done < bytes {
            let piece = &mut buffer[..(bytes - done).min(PIECE_BYTES) as usize];
            source.read_at(piece, offset + done)?;
            check = checksum(check, piece);
            target.write_at(piece, at + done)?;
            done += piece.len() as u64;
            self.unsynced_bytes += piece.len() as u64;
            if self.unsynced_bytes >= SYNC_BYTES {
                target.sync()?;
                self.unsynced_bytes = 0;
            }
            pause(piece.len() as u64)?;
        }
        self.note(CopiedPart { name, offset, bytes, check });
        Ok(())
    }
}

/// Verifies the images that an increment in `dir` has; `copied` is what it was copied of. Answers their number.
/// What is encrypted needs no key.
pub fn check_increment(
    os: &dyn Os,
    dir: &Path,
    base: (&dyn Os, &Path),
    copied: &Copied,
) -> Result<u64> {
    let (mut pieces, mut at) = (Vec::new(), 0);
    for part in copied.parts.iter().filter(|part| part.name == Path::new(PAGES)) {
        pieces.push(PackedPiece { offset: part.offset, bytes: part.bytes, at });
        at += part.bytes;
    }
    pieces.sort_unstable_by_key(|piece| piece.offset);
    let base = CopiedStore::read(base.0, base.1)?;
    CopiedStore::read(os, dir)?.check_images(os, &base, &pieces)
}

fn file_name(path: &Path) -> Result<PathBuf> {
    let name = path.file_name().map(PathBuf::from);
    name.ok_or_else(|| Error::Refused(format!("{} is no file", path.display())))
}
