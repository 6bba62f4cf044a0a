//! Scans of more pages than memory holds. Each page is wanted once, and to load it would push out one
//! that others want again. So a scan that has loaded many pages gives the frame of a page that it
//! loaded itself back as it leaves it, and loads the next one into that: the idea of the ring for
//! bulk reads in PostgreSQL (`src/backend/storage/buffer/README`). Before that, and while memory has
//! room, its pages stay, so that a table which fits into memory comes to be there.

use super::frame::ReadGuard;
use super::pool::{Found, Pool};
use crate::base::{PageId, Result};
use std::sync::atomic::Ordering::Relaxed;

/// A scan is long when it has loaded more than this share of the frames.
const LONG_SHARE: usize = 16;

/// What one scan has loaded.
#[derive(Default)]
pub struct Passing {
    loaded: usize,
    /// The page on which it stands, if it has loaded it.
    own: Option<PageId>,
    /// Pages that were entered for it and that it has not come to.
    awaited: Vec<PageId>,
    /// The furthest page that was looked at for it.
    reach: Option<PageId>,
}

impl Passing {
    fn note(&mut self, page: PageId, loaded: bool) {
        let awaited = self.awaited.iter().position(|&other| other == page);
        awaited.map(|i| self.awaited.swap_remove(i));
        if loaded || awaited.is_some() {
            self.loaded += 1;
            self.own = Some(page);
        } else if self.own != Some(page) {
            self.own = None;
        }
    }

    pub(super) fn loaded(&self) -> usize {
        self.loaded
    }

    pub(super) fn reach(&self) -> Option<PageId> {
        self.reach
    }

    /// The page was looked at; `entered`: it had no frame, and has one now for this scan.
    pub(super) fn reaches(&mut self, page: PageId, entered: bool) {
        self.reach = Some(page);
        if entered {
            self.awaited.push(page);
        }
    }

    /// The scan has gone elsewhere.
    pub(super) fn awaits_nothing(&mut self) {
        self.awaited.clear();
    }
}

impl Pool {
    /// As [`Pool::read`], of a page on which a scan stands.
    pub fn read_passing(&self, page: PageId, scan: &mut Passing) -> Result<ReadGuard> {
        let (guard, loaded) = self.read_as(page, !self.is_long(scan))?;
        scan.note(page, loaded);
        Ok(guard)
    }

    /// The same, but only of a page that is in memory and is not being freed.
    pub fn read_resident(&self, page: PageId, scan: &mut Passing) -> Option<ReadGuard> {
        match self.find_shared(page, !self.is_long(scan)) {
            Found::Guard(guard) if !guard.is_being_freed() => {
                scan.note(page, false);
                Some(guard)
            }
            _ => None,
        }
    }

    /// The scan leaves the page, whose latch it does not hold any more. Its frame goes if the scan is
    /// long and has loaded it, nobody else wanted it meanwhile, and memory is full.
    pub fn pass(&self, page: PageId, scan: &mut Passing) {
        if scan.own != Some(page) {
            return;
        }
        scan.own = None;
        if !self.is_long(scan) || !self.is_full() {
            return;
        }
        let owed_max = self.owed_bytes_max();
        let mut shard = self.table.shard(page);
        let Some(i) = shard.place_of(page) else { return };
        let is_wanted = shard.slots[i].meta.referenced.load(Relaxed);
        if is_wanted || !shard.slots[i].is_unused() || !self.may_go(&mut shard, i, owed_max) {
            return;
        }
        let slot = shard.remove_at(i);
        drop(shard);
        self.counters.passed.fetch_add(1, Relaxed);
        let buf = self.take_memory(slot);
        self.give_buf(buf);
    }

    fn is_long(&self, scan: &Passing) -> bool {
        scan.loaded > 0 && scan.loaded > self.capacity() / LONG_SHARE
    }
}
