//! The sharded table of frames. Each shard is one mutex, a map and a slab that the clock runs over.

use super::dirty::ByAge;
pub(super) use super::dirty::SHARDS;
use super::frame::{Latch, Meta};
use super::owed_pages::OwedPages;
use crate::base::{IdMap, PageId};
use crate::os::rank::Rank;
use crate::os::sync::{condition, Condvar, Mutex, MutexGuard, Ranked};
use std::sync::Arc;

pub(super) struct Slot {
    pub meta: Arc<Meta>,
    pub latch: Arc<Latch>,
}

impl Slot {
    /// Nobody holds or waits for the latch, and no copy is being written. Exclusive ownership makes a
    /// last holder's changes of the state visible; new references are made only under the shard's lock.
    pub fn is_unused(&mut self) -> bool {
        Arc::get_mut(&mut self.latch).is_some() && !self.meta.is_writing()
    }
}

#[derive(Default)]
pub(super) struct Shard {
    index: IdMap<PageId, usize>,
    pub slots: Vec<Slot>,
    /// Where the clock goes on.
    pub hand: usize,
    /// Where the search for dirty frames goes on.
    pub dirty_hand: usize,
    pub hits: u64,
    /// Changes of pages that have no frame, or whose frame is being filled.
    pub owed: OwedPages,
    /// Pages whose copies are on their way to the store.
    pub writing: ByAge,
}

impl Shard {
    pub fn get(&self, page: PageId) -> Option<&Slot> {
        self.index.get(&page).map(|&i| &self.slots[i])
    }

    pub fn place_of(&self, page: PageId) -> Option<usize> {
        self.index.get(&page).copied()
    }

    pub fn insert(&mut self, slot: Slot) {
        let old = self.index.insert(slot.meta.page, self.slots.len());
        assert!(old.is_none(), "a page has one frame");
        self.slots.push(slot);
    }

    pub fn is_writing(&self, page: PageId) -> bool {
        self.get(page).is_some_and(|slot| slot.meta.is_writing())
    }

    /// The lowest recovery LSN of copies on their way to the store, with its page.
    pub fn oldest_writing(&self) -> Option<(u64, PageId)> {
        self.writing.first().copied()
    }

    /// The next slot of the search for dirty frames, if there is any.
    pub fn next_dirty_hand(&mut self) -> Option<usize> {
        let i = self.dirty_hand.checked_rem(self.slots.len())?;
        self.dirty_hand = i + 1;
        Some(i)
    }

    pub fn remove_at(&mut self, i: usize) -> Slot {
        let slot = self.slots.swap_remove(i);
        assert!(!slot.meta.is_writing(), "a frame stays while its copy is written");
        slot.meta.set_clean();
        self.index.remove(&slot.meta.page);
        if let Some(moved) = self.slots.get(i) {
            self.index.insert(moved.meta.page, i);
        }
        slot
    }

    /// Removes exactly this frame, not a later one of the same page.
    pub fn remove(&mut self, meta: &Arc<Meta>) -> Option<Slot> {
        let &i = self.index.get(&meta.page)?;
        Arc::ptr_eq(&self.slots[i].meta, meta).then(|| self.remove_at(i))
    }
}

pub(super) struct FrameTable {
    shards: Vec<(Mutex<Shard>, Condvar)>,
}

fn new_shard() -> (Mutex<Shard>, Condvar) {
    (Mutex::ranked(Rank::Shard, Shard::default()), condition(Rank::PageWrittenWait))
}

impl FrameTable {
    pub fn new() -> FrameTable {
        FrameTable { shards: (0..SHARDS).map(|_| new_shard()).collect() }
    }

    pub fn shard(&self, page: PageId) -> MutexGuard<'_, Shard> {
        self.nth(page.0 as usize)
    }

    pub fn nth(&self, n: usize) -> MutexGuard<'_, Shard> {
        self.shards[n % SHARDS].0.lock()
    }

    /// Signalled, under the shard's lock, whenever a writeback of one of its pages ends.
    pub fn written(&self, page: PageId) -> &Condvar {
        &self.shards[page.0 as usize % SHARDS].1
    }
}
