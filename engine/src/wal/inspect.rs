//! The log's files for tools and people.

use super::append::{control_path, Wal};
use super::recover::{open_files, read_control};
use crate::base::{Lsn, Result};
use crate::os::{OpenMode, Os};
use std::path::{Path, PathBuf};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentState {
    /// Holds kept log, or will when the stream reaches it.
    Live,
    /// Kept for reuse only.
    Free,
    /// Header or length are not those of its number.
    Damaged,
}

#[derive(Clone, Debug)]
pub struct SegmentInfo {
    pub number: u64,
    pub path: PathBuf,
    pub first: Lsn,
    pub end: Lsn,
    pub state: SegmentState,
}

/// A log directory as it lies on disk.
#[derive(Clone, Debug)]
pub struct WalFiles {
    pub segment_bytes: u64,
    pub incarnation: u64,
    /// Where the newest incarnation began.
    pub start: Lsn,
    pub segments: Vec<SegmentInfo>,
}

/// Where the log stands, for debugging.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WalPosition {
    pub oldest: Lsn,
    /// Reads from here on need no disk.
    pub cached: Lsn,
    pub durable: Lsn,
    pub written: Lsn,
    pub end: Lsn,
    /// Segments exist up to here.
    pub room: Lsn,
}

fn info(number: u64, path: PathBuf, segment_bytes: u64, state: SegmentState) -> SegmentInfo {
    let first = Lsn(number * segment_bytes);
    SegmentInfo { number, path, first, end: Lsn(first.0 + segment_bytes), state }
}

/// Describes the log in `dir` without opening it for work.
pub fn inspect(os: &dyn Os, dir: &Path) -> Result<WalFiles> {
    let file = os.open(&control_path(dir), OpenMode { create: false, direct: true })?;
    let control = read_control(&*file)?;
    let files = open_files(os, dir, control.segment_bytes)?;
    let segments = files.into_values().map(|found| {
        let state = if found.intact { SegmentState::Live } else { SegmentState::Damaged };
        info(found.number, found.file.path().to_path_buf(), control.segment_bytes, state)
    });
    Ok(WalFiles {
        segment_bytes: control.segment_bytes,
        incarnation: control.incarnation,
        start: Lsn(control.start),
        segments: segments.collect(),
    })
}

impl Wal {
    /// Every segment file of the open log.
    pub fn segments(&self) -> Vec<SegmentInfo> {
        let state = |free| if free { SegmentState::Free } else { SegmentState::Live };
        let list = self.segments.list().into_iter();
        list.map(|(n, path, free)| info(n, path, self.segments.segment_bytes, state(free)))
            .collect()
    }

    /// The log's positions, lowest first as read: each may have moved on when the next is read.
    pub fn position(&self) -> WalPosition {
        WalPosition {
            oldest: self.oldest(),
            cached: Lsn(self.ring.cache_low()),
            durable: self.durable(),
            written: Lsn(self.ring.written()),
            end: self.end(),
            room: Lsn(self.segments.end()),
        }
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }
}
