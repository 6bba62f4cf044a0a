//! The files of a log that somebody else appends to, for a copy of a part of it.

use super::append::control_path;
use super::format::{decode_segment_header, encode_segment_header, BLOCK};
use super::recover::read_control;
use super::segments::segment_path;
use super::Place;
use crate::base::{Error, Result};
use crate::os::{AlignedBuf, File, OpenMode, Os};
use std::path::{Path, PathBuf};

/// A piece of a segment file, in whole blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentPart {
    pub number: u64,
    pub path: PathBuf,
    pub offset: u64,
    pub bytes: u64,
}

/// What is to be copied of a log. A copy begins with a segment: batches are found from the first one of
/// their segment on.
pub struct PinnedLog {
    dir: PathBuf,
    segment_bytes: u64,
}

impl PinnedLog {
    pub fn read(os: &dyn Os, dir: &Path) -> Result<PinnedLog> {
        let file = os.open(&control_path(dir), OpenMode { create: false, direct: true })?;
        let control = read_control(&*file)?;
        Ok(PinnedLog { dir: dir.to_owned(), segment_bytes: control.segment_bytes })
    }

    /// Path and length. It changes only when an engine opens the log.
    pub fn control(&self) -> (PathBuf, u64) {
        (control_path(&self.dir), 2 * BLOCK)
    }

    pub fn file_bytes(&self) -> u64 {
        BLOCK + self.segment_bytes
    }

    /// The pieces from `from` to `to`, which lie at blocks; headers come with the first piece of each
    /// segment.
    pub fn parts(&self, from: Place, to: Place) -> Vec<SegmentPart> {
        assert!(from.0 % BLOCK == 0 && to.0 % BLOCK == 0);
        let mut parts = Vec::new();
        let mut at = from.0;
        while at < to.0 {
            let (number, skip) = (at / self.segment_bytes, at % self.segment_bytes);
            let end = to.0.min((number + 1) * self.segment_bytes);
            let header = if skip == 0 { BLOCK } else { 0 };
            parts.push(SegmentPart {
                number,
                path: segment_path(&self.dir, number),
                offset: BLOCK + skip - header,
                bytes: end - at + header,
            });
            at = end;
        }
        parts
    }

    /// A segment in which nothing was written, for a copy that ends where its first segment begins: its
    /// path and its header.
    pub fn empty_segment(&self, at: Place) -> (PathBuf, AlignedBuf) {
        let number = at.0 / self.segment_bytes;
        let mut header = AlignedBuf::new(BLOCK as usize);
        encode_segment_header(&mut header, number, self.segment_bytes);
        (segment_path(&self.dir, number), header)
    }

    /// Fails if the file is another segment by now.
    pub fn check(&self, number: u64, file: &dyn File) -> Result<()> {
        let mut header = AlignedBuf::new(BLOCK as usize);
        file.read_at(&mut header, 0)?;
        match decode_segment_header(&header)? == (number, self.segment_bytes) {
            true => Ok(()),
            false => {
                let place = file.path().display().to_string();
                Err(Error::corrupt("a segment of the log was reused while it was copied", place))
            }
        }
    }
}
