//! Leaves of the page map that are read when somebody needs them: outside the lock of the map, so
//! that no thread waits for a leaf that another one reads. A writer pins the leaves of the entries
//! first: an entry changes only in memory, where the old one says which bytes died with it.

use super::counters::add;
use super::engine::Store;
use super::entry::MapEntry;
use super::map::{leaf_of, page_at, Lookup, Missing};
use crate::base::{Error, PageId, Result, TreeId};

/// Pages that one step of [`Store::free_tree_step`] looks at.
const EXAMINED_PAGES_MAX: usize = 16 * 1024;

/// Leaves that stay in memory as long as this lives. Not to be dropped under the lock of the map.
pub(super) struct Pins<'a> {
    store: &'a Store,
    leaves: Vec<usize>,
}

impl Drop for Pins<'_> {
    fn drop(&mut self) {
        let state = self.store.state.read();
        self.leaves.iter().for_each(|&leaf| state.map.unpin(leaf));
    }
}

impl Store {
    /// The newest entry of a page.
    pub(super) fn entry(&self, page: PageId) -> Result<Option<MapEntry>> {
        loop {
            let missing = match self.state.read().map.get(page) {
                Lookup::Known(entry) => return Ok(entry),
                Lookup::Missing(missing) => missing,
            };
            let entries = self.read_leaf(&missing).map_err(|error| error.of_page(page))?;
            let mut state = self.state.write();
            state.map.install(&missing, &entries);
            // Before it may go again.
            let found = state.map.get(page);
            state.map.shrink();
            if let Lookup::Known(entry) = found {
                return Ok(entry);
            }
        }
    }

    fn read_leaf(&self, missing: &Missing) -> Result<Vec<(usize, MapEntry)>> {
        add(&self.counters.map_leaf_reads, 1);
        // The file may have become shorter since: an entry that was replaced may lie beyond its end.
        let segments = super::entry::PLACE_END / self.segment_bytes;
        let read = missing.read().and_then(|entries| {
            let possible = |e: &MapEntry| e.is_possible(self.segment_bytes, segments);
            match entries.iter().find(|(_, entry)| !possible(entry)) {
                Some((index, entry)) => Err(self.impossible(page_at(missing.leaf, *index), *entry)),
                None => Ok(entries),
            }
        });
        if read.is_err() {
            add(&self.counters.map_leaf_faults, 1);
        }
        read
    }

    pub(super) fn impossible(&self, page: PageId, entry: MapEntry) -> Error {
        let place = format!("{} offset {}", self.pages.file().path().display(), entry.place());
        Error::corrupt(format!("map entry of page {page}"), place)
    }

    /// Brings the leaves of these pages in and keeps them there.
    pub(super) fn pin(&self, pages: impl Iterator<Item = PageId>) -> Result<Pins<'_>> {
        let mut leaves: Vec<usize> = pages.map(leaf_of).collect();
        leaves.sort_unstable();
        leaves.dedup();
        let mut pins = Pins { store: self, leaves: Vec::with_capacity(leaves.len()) };
        for leaf in leaves {
            self.pin_leaf(leaf)?;
            pins.leaves.push(leaf);
        }
        Ok(pins)
    }

    fn pin_leaf(&self, leaf: usize) -> Result<()> {
        loop {
            let missing = {
                let state = self.state.read();
                if state.map.pin(leaf) {
                    return Ok(());
                }
                state.map.to_read(leaf)
            };
            let entries = match &missing {
                Some(missing) => self.read_leaf(missing)?,
                None => Vec::new(),
            };
            let mut state = self.state.write();
            match &missing {
                Some(missing) => state.map.install(missing, &entries),
                None => state.map.install_new(leaf),
            }
            let is_pinned = state.map.pin(leaf);
            state.map.shrink();
            if is_pinned {
                return Ok(());
            }
        }
    }

    /// The pages of one leaf, as they are at some moment during the call; the leaf does not come
    /// in for it.
    pub(super) fn leaf_pages(&self, leaf: usize) -> Result<Vec<(PageId, MapEntry)>> {
        let view = self.state.read().map.view(leaf);
        let read = view.read();
        if read.is_err() {
            add(&self.counters.map_leaf_faults, 1);
        }
        Ok(read?.into_iter().map(|(index, entry)| (page_at(leaf, index), entry)).collect())
    }

    /// Forgets a page; the next checkpoint makes that durable. The log record that freed it must
    /// be appended before, and the checkpoint's `flush_log_past` must cover it. If the map cannot
    /// be read here, checkpoints try again; nobody asks for the page any more, so all that is lost
    /// if they fail too is its space, until its tree goes.
    pub fn free(&self, page: PageId) {
        if page.0 > super::PAGE_ID_MAX {
            return;
        }
        let freed = self.free_now(page);
        if freed.is_err() {
            self.state.write().not_freed.push(page);
        }
    }

    fn free_now(&self, page: PageId) -> Result<()> {
        let known = self.state.read().map.get(page);
        if matches!(known, Lookup::Known(None)) {
            return Ok(());
        }
        let _pins = self.pin([page].into_iter())?;
        self.state.write().free(page);
        Ok(())
    }

    pub(super) fn free_again(&self) {
        let pages = std::mem::take(&mut self.state.write().not_freed);
        pages.into_iter().for_each(|page| self.free(page));
    }

    /// From now on writes of these trees' pages are dropped, and their records stay as they are.
    pub fn drop_trees(&self, trees: &[TreeId]) {
        let mut state = self.state.write();
        trees.iter().for_each(|&tree| {
            state.drop_tree(tree);
        });
    }

    /// Forgets up to `budget_pages` pages of a tree that is gone for ever: later writes of its
    /// pages are dropped. True when nothing is left, but for pages in leaves of the map that
    /// cannot be read: those stay, and the tree with them.
    pub fn free_tree_step(&self, tree: TreeId, budget_pages: usize) -> bool {
        let mut leaf = self.state.write().drop_tree(tree);
        let (mut freed, mut examined) = (0, 0);
        let is_done = loop {
            let state = self.state.read();
            // No page of the tree can appear after the cursor: writes of it are dropped.
            if !state.trees.contains_key(&tree) || leaf >= state.map.leaf_slots() {
                break true;
            }
            drop(state);
            if freed >= budget_pages || examined >= EXAMINED_PAGES_MAX {
                break false;
            }
            let room = budget_pages - freed;
            let found = self.free_in_leaf(tree, leaf, room).unwrap_or(0);
            freed += found;
            examined += super::leaf::LEAF_PAGES;
            leaf += usize::from(found < room);
        };
        let mut state = self.state.write();
        state.dropped.insert(tree, leaf);
        if is_done {
            state.choices.forget(tree);
        }
        is_done
    }

    /// Frees up to `room` pages of a tree in one leaf; answers how many.
    fn free_in_leaf(&self, tree: TreeId, leaf: usize, room: usize) -> Result<usize> {
        let mut pages = self.leaf_pages(leaf)?;
        pages.retain(|(_, entry)| entry.tree() == tree);
        pages.truncate(room);
        let _pins = self.pin(pages.iter().map(|(page, _)| *page))?;
        let mut state = self.state.write();
        // GC may have moved one meanwhile; it is the tree's still.
        pages.iter().for_each(|(page, _)| state.free(*page));
        Ok(pages.len())
    }
}
