//! Reads of many pages by one scan. Pages that were written in the order of their keys, as a load or
//! an index build writes them, lie in the file in that order. So a scan that has met some of them one
//! after the other reads ahead in the file, and takes the next ones from there. Each record that it
//! takes must be exactly the one that the page map names, so bytes that have become stale are never
//! used.

use super::engine::{PageInfo, Store};
use super::pages::PagesFile;
use crate::base::{PageId, Result, BLOCK_BYTES};
use crate::os::AlignedBuf;
use std::ops::Range;

/// Read at a time.
const AHEAD_BYTES: usize = 256 << 10;
/// A record that begins at most so far after the end of the one before follows it.
const NEAR_BYTES: u64 = 64 << 10;
/// Records that must follow each other before the scan reads ahead.
const RUN_MIN: u32 = 2;

/// What one scan has read ahead.
#[derive(Default)]
pub struct ReadAlong {
    bytes: Option<AlignedBuf>,
    /// The part of the file that the bytes are of.
    range: Range<u64>,
    /// Where the record before ended, and how many have followed each other.
    end: u64,
    run: u32,
}

impl ReadAlong {
    /// Notes the record's place. Answers whether to read ahead from it on.
    fn note(&mut self, place: u64, len: usize) -> bool {
        let follows = place >= self.end && place - self.end <= NEAR_BYTES;
        self.run = if follows { self.run.saturating_add(1) } else { 0 };
        self.end = place + len as u64;
        self.run >= RUN_MIN && !self.covers(place, len)
    }

    fn covers(&self, place: u64, len: usize) -> bool {
        self.range.start <= place && place + len as u64 <= self.range.end
    }

    fn find(&mut self, place: u64, len: usize) -> Option<&mut [u8]> {
        if !self.covers(place, len) {
            return None;
        }
        let skip = (place - self.range.start) as usize;
        self.bytes.as_mut().map(|bytes| &mut bytes[skip..skip + len])
    }

    /// A read that fails leaves nothing: the record is then read alone.
    fn fill(&mut self, file: &PagesFile, place: u64) {
        self.range = 0..0;
        let from = place - place % BLOCK_BYTES as u64;
        let bytes = self.bytes.get_or_insert_with(|| AlignedBuf::new(AHEAD_BYTES));
        if let Ok(read) = file.read_up_to(&mut bytes[..AHEAD_BYTES], from) {
            self.range = from..from + read as u64;
        }
    }
}

impl Store {
    /// As [`Store::read`], of one page after the other of a scan.
    pub fn read_along(
        &self,
        page: PageId,
        out: &mut [u8],
        along: &mut ReadAlong,
    ) -> Result<Option<PageInfo>> {
        let Some(entry) = self.entry_now(page)? else { return self.read(page, out) };
        let (place, len) = (entry.place(), entry.record_bytes());
        if along.note(place, len) {
            along.fill(&self.pages, place);
        }
        let found = along.find(place, len);
        match found.is_some_and(|bytes| self.unpack_named(page, entry, bytes, out).is_ok()) {
            true => Ok(Some(self.count_along(entry))),
            false => self.read(page, out),
        }
    }
}
