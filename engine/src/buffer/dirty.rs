//! The dirty frames by age, so that nobody looks for them among all frames: a checkpoint takes those from
//! before a position, and the oldest one holds the redo point.
//!
//! Invariants:
//! 1. A page is listed with an LSN exactly while it has a frame in the table with this recovery LSN. Only
//!    [`DirtyPages::lower`] and [`DirtyPages::clear`] change a recovery LSN, under the list's lock. A frame
//!    that leaves the table is made clean under its shard's lock (`Shard::remove_at`), so an older frame
//!    of the page has no entry.
//! 2. The list does not know where in its shard a frame stands. So it misses no page whose frame moves
//!    there, that is dirty again after a failed write, or that is loaded and paid what it owed.
//! 3. A change of a page that is dirty already takes no lock here.

use crate::base::{Lsn, PageId};
use crate::os::rank::Rank;
use crate::os::sync::{Mutex, Ranked};
use std::collections::BTreeSet;
#[cfg(test)]
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};

/// Parts of this list and of the table of frames: a page is in the same one of both.
pub(super) const SHARDS: usize = 64;

/// "Not dirty" and "not being written", where otherwise a recovery LSN stands.
pub(super) const CLEAN: u64 = u64::MAX;

/// Pages by recovery LSN.
pub(super) type ByAge = BTreeSet<(u64, PageId)>;

pub(super) struct DirtyPages {
    shards: Vec<Mutex<ByAge>>,
    count: AtomicUsize,
    /// Entries that were looked at.
    #[cfg(test)]
    pub looked_at: AtomicU64,
}

impl Default for DirtyPages {
    fn default() -> DirtyPages {
        DirtyPages {
            shards: (0..SHARDS).map(|_| Mutex::ranked(Rank::DirtyPages, ByAge::new())).collect(),
            count: AtomicUsize::new(0),
            #[cfg(test)]
            looked_at: AtomicU64::new(0),
        }
    }
}

impl DirtyPages {
    fn nth(&self, n: usize) -> &Mutex<ByAge> {
        &self.shards[n % SHARDS]
    }

    /// How many frames are dirty.
    pub fn count(&self) -> usize {
        self.count.load(SeqCst)
    }

    /// The page's frame is dirty from `lsn` on, unless it is from earlier.
    pub fn lower(&self, page: PageId, rec_lsn: &AtomicU64, lsn: u64) {
        if rec_lsn.load(SeqCst) <= lsn {
            return;
        }
        let mut by_age = self.nth(page.0 as usize).lock();
        let old = rec_lsn.fetch_min(lsn, SeqCst);
        if old <= lsn {
            return;
        }
        if !by_age.remove(&(old, page)) {
            self.count.fetch_add(1, SeqCst);
        }
        assert!(by_age.insert((lsn, page)), "one frame of a page is in the list");
    }

    pub fn clear(&self, page: PageId, rec_lsn: &AtomicU64) {
        if rec_lsn.load(SeqCst) == CLEAN {
            return;
        }
        let mut by_age = self.nth(page.0 as usize).lock();
        let old = rec_lsn.swap(CLEAN, SeqCst);
        if by_age.remove(&(old, page)) {
            self.count.fetch_sub(1, SeqCst);
        }
    }

    /// The lowest recovery LSN of the nth part.
    pub fn oldest(&self, n: usize) -> u64 {
        self.look();
        self.nth(n).lock().first().map_or(CLEAN, |&(rec_lsn, _)| rec_lsn)
    }

    /// The oldest pages of the nth part that are dirty from before `lsn` and `wanted`, at most `limit`.
    pub fn before(
        &self,
        n: usize,
        lsn: Lsn,
        limit: usize,
        wanted: impl Fn(PageId) -> bool,
    ) -> Vec<PageId> {
        let by_age = self.nth(n).lock();
        let old = by_age.range(..(lsn.0, PageId::ZERO)).inspect(|_| self.look());
        old.map(|&(_, page)| page).filter(|&page| wanted(page)).take(limit).collect()
    }

    /// Pages of the nth part that are dirty from `from` on and from before `to`.
    pub fn count_between(&self, n: usize, from: Lsn, to: Lsn) -> usize {
        let (from, to) = ((from.0, PageId::ZERO), (to.0, PageId::ZERO));
        self.nth(n).lock().range(from..to).count()
    }

    /// Whether the nth part lists these frames, as far as they are dirty, and no other.
    pub fn lists<'a>(
        &self,
        n: usize,
        frames: impl Iterator<Item = (PageId, &'a AtomicU64)>,
    ) -> bool {
        let by_age = self.nth(n).lock();
        let all = frames.map(|(page, rec_lsn)| (rec_lsn.load(SeqCst), page));
        let dirty: ByAge = all.filter(|&(rec_lsn, _)| rec_lsn != CLEAN).collect();
        dirty == *by_age
    }

    fn look(&self) {
        #[cfg(test)]
        self.looked_at.fetch_add(1, Relaxed);
    }
}
