//! A backup of a running store: the places that one checkpoint names stay as they are while somebody,
//! maybe another process, copies them.
//!
//! Invariants:
//! 1. A backup is pinned between two checkpoints, so the map that it copies is that of both slots. From
//!    then on no segment that was not free is reused, and the map files stay, until it is unpinned.
//! 2. Records that the map names are durable and never change. Other bytes of a segment that is copied,
//!    and those after the named end of the change log, may be anything.
//! 3. Nothing of a backup is durable but a file that the next opening removes: a crash ends it.

use super::engine::{
    backup_superblock_path, load_map, pages_path, remove_if_there, superblock_path, Store,
};
use super::mapfile;
use super::superblock::{self, Superblock};
use crate::base::{Error, Result, BLOCK_BYTES};
use crate::os::planted::{self, Bug};
use crate::os::{AlignedBuf, OpenMode, Os};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;

impl Store {
    /// Keeps all that the last checkpoint names until [`Store::unpin_backup`], and writes down for the
    /// copy what its superblock is. The caller keeps out a second backup.
    pub fn pin_backup(&self) -> Result<()> {
        let cp = self.checkpointer.lock();
        self.check_poison()?;
        let sb = cp.current();
        let path = backup_superblock_path(&self.dir);
        remove_if_there(&*self.os, &path)?;
        let file = self.os.open(&path, OpenMode { create: true, direct: true })?;
        if let Err(error) = file.write_at(&superblock::whole(&sb), 0) {
            let _ = self.os.remove(&path);
            return Err(error);
        }
        self.backup_map.store(sb.map_generation, Relaxed);
        if !planted::is(Bug::BackupSegmentsReused) {
            self.state.write().segments.pin();
        }
        Ok(())
    }

    /// Lets go of what a backup kept. It waits for no checkpoint: commits may be held meanwhile.
    pub fn unpin_backup(&self) {
        self.backup_map.store(0, Relaxed);
        let freed = self.state.write().segments.unpin(self.epochs.now());
        if freed > 0 {
            self.full.store(false, Relaxed);
        }
        // If it stays, the next backup or opening removes it.
        let _ = remove_if_there(&*self.os, &backup_superblock_path(&self.dir));
    }
}

/// A piece of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilePart {
    pub path: PathBuf,
    pub offset: u64,
    pub bytes: u64,
}

/// What is to be copied of a pinned store.
pub struct PinnedStore {
    pub(super) dir: PathBuf,
    pub(super) sb: Superblock,
    /// Segments of which the map names something, in order.
    segments: Vec<u64>,
    snapshot_bytes: u64,
}

impl PinnedStore {
    pub fn read(os: &dyn Os, dir: &Path) -> Result<PinnedStore> {
        let direct = OpenMode { create: false, direct: true };
        let file = os.open(&backup_superblock_path(dir), direct)?;
        let Some((_, sb)) = superblock::read(&*file)?.newest else {
            let place = file.path().display().to_string();
            return Err(Error::corrupt("the superblock of the backup", place));
        };
        let (_, _, _, sums) = load_map(os, dir, &sb, 0)?;
        let segments = sums.segments.keys().map(|&segment| segment as u64).collect();
        let snapshot = os.open(&mapfile::snapshot_path(dir, sb.map_generation), direct)?;
        Ok(PinnedStore { dir: dir.to_owned(), sb, segments, snapshot_bytes: snapshot.len()? })
    }

    /// Pieces in any order; each is whole blocks.
    pub fn parts(&self) -> Vec<FilePart> {
        let mut parts = self.map_parts();
        let bytes = self.sb.segment_bytes;
        let pages = pages_path(&self.dir);
        let part = |&n: &u64| FilePart { path: pages.clone(), offset: n * bytes, bytes };
        parts.extend(self.segments.iter().map(part));
        parts
    }

    /// The page map.
    pub(super) fn map_parts(&self) -> Vec<FilePart> {
        let generation = self.sb.map_generation;
        let whole = |path, bytes: u64| FilePart { path, offset: 0, bytes };
        let changes_bytes = self.sb.changes_end.next_multiple_of(BLOCK_BYTES as u64);
        vec![
            whole(mapfile::snapshot_path(&self.dir, generation), self.snapshot_bytes),
            whole(mapfile::changes_path(&self.dir, generation), changes_bytes),
        ]
    }

    /// Length of the copy of the pages file.
    pub fn pages_bytes(&self) -> u64 {
        self.segments.last().map_or(0, |last| (last + 1) * self.sb.segment_bytes)
    }

    pub fn pages_path(&self) -> PathBuf {
        pages_path(&self.dir)
    }

    /// The name of the copy's superblock, and what is in it.
    pub fn superblock(&self) -> (PathBuf, AlignedBuf) {
        (superblock_path(&self.dir), superblock::whole(&self.sb))
    }
}
