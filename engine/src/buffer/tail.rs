//! Recovery gathers, from the log's tail and by page, the changes that the image of the page may lack.

use super::changes::{Changes, Delta};
use super::owed_pages::ENTRY_BYTES;
use crate::base::{IdMap, Lsn, PageId, TreeId};
use crate::os::planted::{self, Bug};
use crate::store::Store;
use std::sync::Arc;

/// A list grows by this part of itself at least while there is memory: by less takes longer.
const GROWTH_SHARE: usize = 2;

/// The changes of one page: those of a delta, and those after it.
#[derive(Default)]
pub(super) struct PageTail {
    pub tree: TreeId,
    /// The LSN of the page's image in the store, if it is known: none of its changes is needed.
    image: Lsn,
    pub delta: Option<Delta>,
    pub changes: Changes,
}

impl PageTail {
    /// The first change of all.
    fn first_change(&self) -> Option<Lsn> {
        self.delta.map(|delta| delta.first).or(self.changes.first())
    }

    /// Where redo of the page begins, if anything is to be redone.
    pub fn first(&self) -> Option<Lsn> {
        self.delta.map(|delta| delta.at).or(self.changes.first())
    }

    /// Takes the delta in place of the changes that it has. If the tail has changes from before the delta's
    /// first one, then it has all of the delta's too, one by one: their image may not have become durable.
    fn take(&mut self, delta: Delta) {
        let has_earlier = self.first_change().is_some_and(|first| first < delta.first);
        if has_earlier && !planted::is(Bug::DeltaTakenForAll) {
            return;
        }
        self.changes = self.changes.after(delta.last);
        self.delta = Some(delta);
    }

    /// Forgets what an image with this LSN holds.
    fn trim(&mut self, image: Lsn) {
        self.delta = self.delta.filter(|delta| delta.last > image);
        match self.changes.first() {
            Some(first) if first <= image => self.changes = self.changes.after(image),
            _ => self.changes.shrink(),
        }
    }

    fn memory_bytes(&self) -> usize {
        ENTRY_BYTES + self.changes.memory_bytes()
    }
}

/// Changes gathered from the log, by page.
#[derive(Default)]
pub struct Tail {
    pub(super) pages: IdMap<PageId, PageTail>,
    bytes: usize,
    images: Option<Arc<Store>>,
    /// Memory was short: lists grow as those of frames do.
    is_lean: bool,
}

impl Tail {
    /// Without the changes that images in `store` hold, as far as it knows them in memory.
    pub fn over(store: &Arc<Store>) -> Tail {
        Tail { images: Some(Arc::clone(store)), ..Tail::default() }
    }

    /// All that it has. It goes on empty.
    pub fn take(&mut self) -> Tail {
        let images = self.images.clone();
        std::mem::replace(self, Tail { images, ..Tail::default() })
    }

    /// To be called in the order of the log. `creates`: the change makes the page from nothing. One that the
    /// page's image or a delta has is passed over; but not where the list can make the page from nothing, should
    /// its image be damaged.
    pub fn add(&mut self, tree: TreeId, page: PageId, lsn: Lsn, change: &[u8], creates: bool) {
        let first = || {
            let images = self.images.as_ref().filter(|_| !creates);
            // Without a read: many tails have changes of more pages than a start has time for.
            let image = images.and_then(|store| store.lsn_in_memory(page)).unwrap_or(Lsn::ZERO);
            let is_all = image > Lsn::ZERO && planted::is(Bug::ImageTakenForAll);
            let image = if is_all { Lsn(u64::MAX) } else { image };
            self.bytes += ENTRY_BYTES;
            PageTail { tree, image, changes: Changes::new(creates), delta: None }
        };
        let tail = self.pages.entry(page).or_insert_with(first);
        if lsn <= tail.image || tail.delta.is_some_and(|delta| lsn <= delta.last) {
            return;
        }
        let known = tail.changes.memory_bytes();
        match self.is_lean {
            true => tail.changes.push(lsn, change),
            false => tail.changes.push_growing(lsn, change, GROWTH_SHARE),
        }
        self.bytes += tail.changes.memory_bytes() - known;
    }

    /// A delta, in the order of the log as well. One that an image has does no harm.
    pub fn add_delta(&mut self, tree: TreeId, page: PageId, delta: Delta) {
        let known = self.pages.get(&page).map_or(0, PageTail::memory_bytes);
        let tail = self.pages.entry(page).or_default();
        tail.tree = tree;
        tail.take(delta);
        self.bytes += tail.memory_bytes();
        self.bytes -= known;
    }

    /// Gives back the memory that growing took ahead, and takes less from now on.
    pub fn shrink(&mut self) {
        self.is_lean = true;
        self.bytes = 0;
        for tail in self.pages.values_mut() {
            tail.changes.shrink();
            self.bytes += tail.memory_bytes();
        }
    }

    /// Memory that the changes take, about.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn retain(&mut self, mut keep: impl FnMut(PageId, TreeId) -> bool) {
        self.pages.retain(|&page, tail| keep(page, tail.tree));
    }

    /// Forgets what images hold: `image_of` answers a page's LSN in the store.
    pub fn trim(&mut self, image_of: impl Fn(PageId) -> Lsn) {
        self.bytes = 0;
        self.pages.retain(|&page, tail| {
            tail.trim(image_of(page));
            let is_owed = tail.first().is_some();
            self.bytes += usize::from(is_owed) * tail.memory_bytes();
            is_owed
        });
    }
}
