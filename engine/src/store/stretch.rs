//! Reads of several pages in one go. Pages that were written in the order of their ids, as a load or an
//! index build makes them, lie one after the other in the file. A reader that wants some of them takes
//! them from one read of all. Each record that it takes must be exactly the one that the page map names
//! at that moment, so bytes that have become stale are never used.

use super::counters::add;
use super::engine::{PageInfo, Store};
use crate::base::{PageId, Result, BLOCK_BYTES};
use crate::os::AlignedBuf;
use std::ops::Range;

/// Read at a time at most.
const STRETCH_BYTES_MAX: usize = 256 << 10;
/// A record that begins at most so far after the end of the one before is read with it.
const GAP_BYTES_MAX: u64 = 16 << 10;

/// A part of the pages file.
#[derive(Default)]
pub struct Stretch {
    bytes: Option<AlignedBuf>,
    range: Range<u64>,
}

impl Stretch {
    /// Takes the record in, unless it lies elsewhere.
    fn reaches(&mut self, place: u64, len: usize) -> bool {
        let end = place + len as u64;
        if self.range.is_empty() {
            self.range = place - place % BLOCK_BYTES as u64..end;
            return true;
        }
        let follows = place >= self.range.end && place - self.range.end <= GAP_BYTES_MAX;
        let fits = end - self.range.start <= STRETCH_BYTES_MAX as u64;
        if follows && fits {
            self.range.end = end;
        }
        follows && fits
    }

    fn find(&mut self, place: u64, len: usize) -> Option<&mut [u8]> {
        let end = place + len as u64;
        if place < self.range.start || end > self.range.end {
            return None;
        }
        let skip = (place - self.range.start) as usize;
        self.bytes.as_mut().map(|bytes| &mut bytes[skip..skip + len])
    }
}

impl Store {
    /// Plans the stretch that begins with the first of these pages. Answers how many of them, from the
    /// first on, it holds.
    pub fn plan_stretch(&self, pages: &[PageId], stretch: &mut Stretch) -> usize {
        stretch.range = 0..0;
        let mut is_in = |page: PageId| {
            let entry = self.entry_now(page).ok().flatten();
            entry.is_some_and(|entry| stretch.reaches(entry.place(), entry.record_bytes()))
        };
        pages.iter().take_while(|&&page| is_in(page)).count()
    }

    /// Reads it. One that cannot be read holds nothing: each page is then read alone.
    pub fn load_stretch(&self, stretch: &mut Stretch) {
        let bytes = stretch.bytes.get_or_insert_with(|| AlignedBuf::new(STRETCH_BYTES_MAX));
        let from = stretch.range.start;
        let len = (stretch.range.end - from) as usize;
        if self.pages.read_blocks(&mut bytes[..len.next_multiple_of(BLOCK_BYTES)], from).is_err() {
            stretch.range = 0..0;
        }
    }

    /// As [`Store::read`], from the stretch if the page is in it.
    pub fn read_in_stretch(
        &self,
        page: PageId,
        out: &mut [u8],
        stretch: &mut Stretch,
    ) -> Result<Option<PageInfo>> {
        let Some(entry) = self.entry_now(page)? else { return self.read(page, out) };
        let found = stretch.find(entry.place(), entry.record_bytes());
        match found.is_some_and(|bytes| self.unpack_named(page, entry, bytes, out).is_ok()) {
            true => {
                add(&self.counters.reads, 1);
                add(&self.counters.stretch_reads, 1);
                Ok(Some(PageInfo { lsn: entry.lsn(), tree: entry.tree() }))
            }
            false => self.read(page, out),
        }
    }
}
