//! Everything that changes together with a map entry, under one short lock. No I/O in here.

use super::map::{Entry, PageMap};
use super::record::Packed;
use super::segments::SegmentTable;
use crate::base::{Lsn, PageId, TreeId};
use std::collections::HashMap;

/// Map slots that one step of [`State::free_tree_step`] looks at while it holds the lock.
const EXAMINED_PAGES_MAX: usize = 16 * 1024;

#[derive(Clone, Copy, Default)]
pub struct TreeUse {
    pub pages: u64,
    pub stored_bytes: u64,
}

pub struct State {
    pub map: PageMap,
    pub segments: SegmentTable,
    pub trees: HashMap<TreeId, TreeUse>,
    /// Trees being freed, with the map leaf where the next step goes on. Tree ids are never
    /// reused, so a late write of such a page is dropped.
    dropped: HashMap<TreeId, usize>,
    pub max_page: PageId,
    /// Highest LSN that any entry ever named.
    pub max_lsn: Lsn,
}

/// What a checkpoint makes durable: the map as it was at one moment, as changes.
pub struct Capture {
    pub changes: Vec<(PageId, Entry)>,
    /// Segments that the captured map does not name.
    pub releasable: Vec<usize>,
    pub max_lsn: Lsn,
    pub max_page: PageId,
}

impl State {
    pub fn new(segment_bytes: u64) -> State {
        State {
            map: PageMap::default(),
            segments: SegmentTable::new(segment_bytes),
            trees: HashMap::new(),
            dropped: HashMap::new(),
            max_page: PageId::ZERO,
            max_lsn: Lsn::ZERO,
        }
    }

    /// Counts a page in and out; the map and the segments hold the same sums.
    fn account(&mut self, old: Entry, new: Entry) {
        if !new.is_none() {
            self.segments.add_live(new.place(), new.record_bytes());
            let tree = self.trees.entry(new.tree()).or_default();
            tree.pages += 1;
            tree.stored_bytes += new.record_bytes() as u64;
        }
        if !old.is_none() {
            self.segments.sub_live(old.place(), old.record_bytes());
            self.uncount(old);
        }
    }

    fn uncount(&mut self, old: Entry) {
        let Some(tree) = self.trees.get_mut(&old.tree()) else { return };
        tree.pages -= 1;
        tree.stored_bytes -= old.record_bytes() as u64;
        if tree.pages == 0 {
            self.trees.remove(&old.tree());
        }
    }

    /// Counts a loaded entry to its tree; segments are loaded as a whole.
    pub fn count_loaded(&mut self, page: PageId, entry: Entry) {
        let tree = self.trees.entry(entry.tree()).or_default();
        tree.pages += 1;
        tree.stored_bytes += entry.record_bytes() as u64;
        self.max_page = self.max_page.max(page);
        self.max_lsn = self.max_lsn.max(entry.lsn());
    }

    /// The newest record of a page lies at `place` now.
    pub fn publish(&mut self, record: &Packed, place: u64) {
        if self.dropped.contains_key(&record.tree) {
            return;
        }
        let entry = record.entry_at(place);
        let old = self.map.set(record.page, entry);
        self.account(old, entry);
        self.max_page = self.max_page.max(record.page);
        self.max_lsn = self.max_lsn.max(record.lsn);
    }

    /// The record of a page was copied to `new`; nothing happens if the page has moved on.
    pub fn swap(&mut self, page: PageId, old: Entry, new: Entry) -> bool {
        if self.map.get(page) != Some(old) {
            return false;
        }
        self.map.set(page, new);
        self.account(old, new);
        true
    }

    pub fn free(&mut self, page: PageId) {
        if self.map.get(page).is_some() {
            let old = self.map.set(page, Entry::NONE);
            self.account(old, Entry::NONE);
        }
    }

    /// Frees up to `budget_pages` pages of a tree; true when none is left.
    pub fn free_tree_step(&mut self, tree: TreeId, budget_pages: usize) -> bool {
        let mut leaf = *self.dropped.entry(tree).or_insert(0);
        let (mut freed, mut examined) = (0, 0);
        while self.trees.contains_key(&tree) {
            if freed >= budget_pages || examined >= EXAMINED_PAGES_MAX {
                break;
            }
            // No page of the tree can appear behind the cursor: writes of it are dropped.
            assert!(leaf < self.map.leaf_slots());
            let pages = self.map.leaf_entries(leaf);
            let of_tree = pages.filter(|(_, e)| e.tree() == tree).take(budget_pages - freed);
            let first = (leaf as u64) << super::map::LEAF_BITS;
            let found: Vec<_> = of_tree.map(|(i, _)| PageId(first + i as u64)).collect();
            examined += super::map::LEAF_PAGES;
            freed += found.len();
            found.iter().for_each(|&page| self.free(page));
            if freed < budget_pages {
                leaf += 1;
            }
        }
        self.dropped.insert(tree, leaf);
        !self.trees.contains_key(&tree)
    }

    pub fn capture(&mut self) -> Capture {
        Capture {
            changes: self.map.take_changes(),
            releasable: self.segments.releasable(),
            max_lsn: self.max_lsn,
            max_page: self.max_page,
        }
    }

    /// The checkpoint of `capture` did not happen: the next one must write its changes again.
    pub fn restore(&mut self, capture: &Capture) {
        for &(page, _) in &capture.changes {
            self.map.mark(page);
        }
    }
}
