//! The log's files for tools and people.

use super::append::{control_path, Wal};
use super::format::{Control, BLOCK, STREAM_START};
use super::read::visit_records;
use super::recover::{choose_files, open_files, read_control, Chosen};
use super::scanner::{Scanner, Spot};
use super::{Place, RecordRef};
use crate::base::{Error, Lsn, Result};
use crate::cipher::Cipher;
use crate::os::{AlignedBuf, File, OpenMode, Os};
use std::path::{Path, PathBuf};
use std::sync::Arc;

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
    /// Without its header.
    pub bytes: u64,
    pub state: SegmentState,
}

/// A log directory as it lies on disk.
#[derive(Clone, Debug)]
pub struct WalFiles {
    #[cfg(test)]
    pub segment_bytes: u64,
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
    pub room: Place,
}

fn info(number: u64, path: PathBuf, segment_bytes: u64, state: SegmentState) -> SegmentInfo {
    SegmentInfo { number, path, bytes: segment_bytes, state }
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
        #[cfg(test)]
        segment_bytes: control.segment_bytes,
        segments: segments.collect(),
    })
}

/// Which of the two copies of the control file cannot be read.
pub fn damaged_control_copies(file: &dyn File) -> Result<Vec<u64>> {
    let mut block = AlignedBuf::new(BLOCK as usize);
    let mut damaged = Vec::new();
    for slot in 0..2 {
        match file.read_at(&mut block, slot * BLOCK).and_then(|()| Control::decode(&block)) {
            Ok(_) => {}
            Err(Error::Corrupt { .. }) => damaged.push(slot),
            Err(error) => return Err(error),
        }
    }
    Ok(damaged)
}

/// The header of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchInfo {
    pub lsn: Lsn,
    /// After its last record.
    pub end: Lsn,
    /// In the file, without padding: fewer if it is packed.
    pub stored_bytes: u64,
    pub incarnation: u64,
    pub durable_before: Lsn,
}

/// Gets what [`scan_files`] finds, in order. `false` ends the scan.
pub trait LogVisitor {
    fn batch(&mut self, batch: BatchInfo) -> bool;
    fn record(&mut self, lsn: Lsn, end: Lsn, record: RecordRef<'_>) -> Result<()>;
}

/// Where a scan ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogEnd {
    pub from: Lsn,
    pub end: Lsn,
    pub stopped: bool,
}

/// Visits the batches that hold or follow `from` up to the first that is not valid, without
/// opening the log for work. Whether that is the log's end is for recovery to say.
pub fn scan_files(
    os: &Arc<dyn Os>,
    dir: &Path,
    from: Lsn,
    cipher: Option<Arc<Cipher>>,
    visitor: &mut dyn LogVisitor,
) -> Result<LogEnd> {
    let file = os.open(&control_path(dir), OpenMode { create: false, direct: true })?;
    let control = read_control(&*file)?;
    let files = open_files(&**os, dir, control.segment_bytes)?;
    let from = from.0.max(STREAM_START);
    let Chosen { segments, .. } =
        choose_files(os, dir, files, from, control.segment_bytes, &cipher)?;
    let mut scanner = Scanner::new(&segments, segments.end());
    let (start, mut place) = match scanner.find_batch(from)? {
        Spot::Batch(note) => (note.lsn, note.place),
        Spot::End(place) => (from, place),
    };
    let mut at = start;
    while let Some(header) = scanner.batch(place)?.filter(|header| header.lsn == at) {
        let info = BatchInfo {
            lsn: Lsn(header.lsn),
            end: Lsn(header.end()),
            stored_bytes: header.stored_bytes(),
            incarnation: header.incarnation,
            durable_before: Lsn(header.durable_before),
        };
        if !visitor.batch(info) {
            return Ok(LogEnd { from: Lsn(start), end: Lsn(at), stopped: true });
        }
        let bytes = scanner.bytes(&header)?;
        visit_records(&header, bytes, from, u64::MAX, &mut |lsn, record| {
            let end = Lsn(lsn.0 + record.payload.len() as u64);
            visitor.record(lsn, end, record)
        })?;
        (at, place) = (header.next(), header.next_place());
    }
    Ok(LogEnd { from: Lsn(start), end: Lsn(at), stopped: false })
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
            room: Place(self.segments.end()),
        }
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }
}
