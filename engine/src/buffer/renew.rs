//! Deltas of pages: logged when a frame goes or when the redo window asks, and read when the page is wanted.

use super::changes::{Changes, Delta};
use super::delta::{DeltaLog, DeltaSize};
use super::frame::Meta;
use super::owed_pages::{OwedPage, ENTRY_BYTES};
use super::pool::Pool;
use crate::base::{Error, PageId, Result, TreeId};
use crate::os::planted::{self, Bug};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;

impl Pool {
    /// Where deltas go. The first call decides.
    pub fn set_delta_log(&self, log: Box<dyn DeltaLog>) {
        self.deltas.log.get_or_init(|| log);
    }

    /// Whether pages leave deltas from now on. Those that are owed are read in any case.
    pub fn set_deltas(&self, is_on: bool) {
        self.deltas.is_on.store(is_on, Relaxed);
    }

    pub(super) fn has_deltas(&self) -> bool {
        self.deltas.is_on.load(Relaxed)
    }

    /// Appends a delta of changes that are all of the page since its image. None: it is to have an
    /// image. Nobody may change the page meanwhile.
    pub(super) fn log_delta(
        &self,
        (tree, page): (TreeId, PageId),
        changes: &Changes,
        size: DeltaSize,
    ) -> Option<Delta> {
        let wants = self.has_deltas() && size.allows(changes);
        let log = self.deltas.log.get().filter(|_| wants)?;
        let at = log.append(tree, page, changes);
        self.deltas.written.fetch_add(1, Relaxed);
        Delta::of(at, changes)
    }

    /// The changes of a delta that the page owes.
    pub(super) fn read_delta(&self, page: PageId, delta: Delta) -> Result<Changes> {
        let Some(log) = self.deltas.log.get() else {
            return Err(Error::corrupt("a delta is owed, and nobody reads it", page.to_string()));
        };
        self.deltas.reads.fetch_add(1, Relaxed);
        let changes = log.read(page, delta.at).map_err(|error| error.of_page(page))?;
        if Delta::of(delta.at, &changes) != Some(delta) {
            let what = format!("another delta than page {page} owes");
            return Err(Error::corrupt(what, format!("log position {}", delta.at)).of_page(page));
        }
        Ok(changes)
    }

    /// A delta of the list of a frame that goes, if an image does not cost less and memory has room for its entry.
    pub(super) fn log_frame_delta(
        &self,
        meta: &Meta,
        whole: &Changes,
        old: Option<Delta>,
    ) -> Option<Delta> {
        let entries = self.tally.change_bytes.load(Relaxed) + ENTRY_BYTES;
        if entries > self.budget_bytes() + whole.memory_bytes() {
            return None;
        }
        let id = (meta.tree(), meta.page);
        match old.filter(|_| planted::is(Bug::DeltaLacksOlder)) {
            Some(old) => self.log_delta(id, &whole.after(old.last), DeltaSize::Full),
            None => self.log_delta(id, whole, DeltaSize::Full),
        }
    }

    /// All changes that are owed to the page, those of its delta first.
    pub(super) fn all_owed(&self, page: PageId, owed: &OwedPage) -> Result<Arc<Changes>> {
        let Some(delta) = owed.delta else { return Ok(Arc::clone(&owed.changes)) };
        let mut all = self.read_delta(page, delta)?;
        all.append(&owed.changes);
        Ok(Arc::new(all))
    }

    /// A page that owes changes from before the redo window's begin owes a new delta of them from now on, if
    /// that costs less than an image. False: it needs an image. No latch may be held.
    pub fn renew_owed(&self, page: PageId) -> Result<bool> {
        if !self.has_deltas() {
            return Ok(false);
        }
        self.trim_recovered(page);
        let Some(owed) = self.owed_to(page) else { return Ok(true) };
        if self.forget_stored(page, &owed)? {
            return Ok(true);
        }
        let all = self.all_owed(page, &owed)?;
        let mut shard = self.table.shard(page);
        let same = |now: &&OwedPage| Arc::ptr_eq(&now.changes, &owed.changes);
        if shard.get(page).is_some() || shard.owed.pages.get(&page).filter(same).is_none() {
            // Somebody reads it, or has read it.
            return Ok(true);
        }
        let Some(delta) = self.log_delta((owed.tree, page), &all, DeltaSize::Half) else {
            return Ok(false);
        };
        self.remove_owed(&mut shard, page);
        let (first, changes) = (delta.at, Arc::default());
        self.insert_owed(&mut shard, page, OwedPage { first, delta: Some(delta), changes, ..owed });
        Ok(true)
    }
}
