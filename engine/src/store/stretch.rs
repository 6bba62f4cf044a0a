//! Reads of several pages in one go. Pages that were written in the order of their ids, as a load or an
//! index build makes them, lie one after the other in the file. A reader that wants some of them takes
//! them from one read of all. Each record that it takes must be exactly the one that the page map names
//! at that moment, so bytes that have become stale are never used.

use super::counters::add;
use super::engine::{PageInfo, Store};
use super::read_plan::ReadPlan;
use crate::base::{PageId, Result};
use crate::os::AlignedBuf;
use std::cell::RefCell;

/// Read at a time at most, and left unused between two records.
const STRETCH_BYTES_MAX: usize = 256 << 10;
const GAP_BYTES_MAX: u64 = 16 << 10;

thread_local! {
    static STRETCH: RefCell<Stretch> = RefCell::default();
}

/// A part of the pages file.
pub struct Stretch {
    bytes: Option<AlignedBuf>,
    plan: ReadPlan,
}

impl Default for Stretch {
    fn default() -> Stretch {
        Stretch { bytes: None, plan: ReadPlan::new(GAP_BYTES_MAX, STRETCH_BYTES_MAX) }
    }
}

impl Stretch {
    /// Lends that of this thread.
    pub fn lent<T>(work: impl FnOnce(&mut Stretch) -> T) -> T {
        STRETCH.with_borrow_mut(work)
    }

    fn find(&mut self, place: u64, len: usize) -> Option<&mut [u8]> {
        let found = self.plan.find(place, len)?;
        self.bytes.as_mut().map(|bytes| &mut bytes[found])
    }
}

impl Store {
    /// Where the page lies in the file, if the map can be read.
    pub fn place_in_file(&self, page: PageId) -> Option<u64> {
        self.entry_now(page).ok().flatten().map(|entry| entry.place())
    }

    /// Plans the stretch that begins with the first of these pages. Answers how many of them, from the
    /// first on, it holds.
    pub fn plan_stretch(&self, pages: &[PageId], stretch: &mut Stretch) -> usize {
        stretch.plan.clear();
        let mut is_in = |page: PageId| {
            let entry = self.entry_now(page).ok().flatten();
            entry.is_some_and(|entry| stretch.plan.takes(entry.place(), entry.record_bytes()))
        };
        pages.iter().take_while(|&&page| is_in(page)).count()
    }

    /// Reads it. One that cannot be read holds nothing: each page is then read alone.
    pub fn load_stretch(&self, stretch: &mut Stretch) {
        let bytes = stretch.bytes.get_or_insert_with(|| AlignedBuf::new(STRETCH_BYTES_MAX));
        let plan = &mut stretch.plan;
        if self.pages.read_blocks(&mut bytes[..plan.bytes()], plan.start()).is_err() {
            plan.clear();
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
