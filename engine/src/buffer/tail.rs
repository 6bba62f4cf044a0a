//! Recovery gathers, from the log's tail and by page, the changes that the image of the page may lack.

use super::changes::{Changes, Delta, HEAD_BYTES};
use super::owed_pages::ENTRY_BYTES;
use crate::base::{IdMap, Lsn, PageId, TreeId};
use crate::os::planted::{self, Bug};

/// The changes of one page: those of a delta, and those after it.
#[derive(Default)]
pub(super) struct PageTail {
    pub tree: TreeId,
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
        if self.changes.first().is_some_and(|first| first <= image) {
            self.changes = self.changes.after(image);
        }
    }

    fn memory_bytes(&self) -> usize {
        ENTRY_BYTES + self.changes.len_bytes()
    }
}

/// Changes gathered from the log, by page.
#[derive(Default)]
pub struct Tail {
    pub(super) pages: IdMap<PageId, PageTail>,
    bytes: usize,
}

impl Tail {
    /// To be called in the order of the log. `creates`: the change makes the page from nothing. One that a
    /// delta has is passed over.
    pub fn add(&mut self, tree: TreeId, page: PageId, lsn: Lsn, change: &[u8], creates: bool) {
        let first = || PageTail { tree, changes: Changes::new(creates), ..PageTail::default() };
        let known = self.pages.len();
        let tail = self.pages.entry(page).or_insert_with(first);
        if tail.delta.is_some_and(|delta| lsn <= delta.last) {
            return;
        }
        tail.changes.push(lsn, change);
        self.bytes += HEAD_BYTES + change.len() + ENTRY_BYTES * (self.pages.len() - known);
    }

    /// A delta, in the order of the log as well.
    pub fn add_delta(&mut self, tree: TreeId, page: PageId, delta: Delta) {
        let known = self.pages.get(&page).map_or(0, PageTail::memory_bytes);
        let tail = self.pages.entry(page).or_default();
        tail.tree = tree;
        tail.take(delta);
        self.bytes += tail.memory_bytes();
        self.bytes -= known;
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
