//! Everything that changes together with a map entry, under one short lock. No I/O in here.

use super::choices::Choices;
use super::entry::MapEntry;
use super::map::{Lookup, PageMap};
use super::record::Packed;
use super::segments::SegmentTable;
use super::sums::{Sums, TreeUse};
use super::superblock::KeyClaim;
use super::written::{Cause, WrittenPages};
use crate::base::{Lsn, PageId, TreeId};
use crate::cipher::Oldest;
use crate::os::hash::{HashMap, HashSet};

pub struct State {
    pub map: PageMap,
    pub segments: SegmentTable,
    pub trees: HashMap<TreeId, TreeUse>,
    /// Pages of all trees.
    pub pages: u64,
    /// Trees whose sums changed since a checkpoint took them.
    changed_trees: HashSet<TreeId>,
    /// Trees being freed, with the map leaf where the next step goes on. Tree ids are never
    /// reused, so a late write of such a page is dropped.
    pub dropped: HashMap<TreeId, usize>,
    /// Pages to be freed whose leaf of the map could not be read.
    pub not_freed: Vec<PageId>,
    pub max_page: PageId,
    /// Highest LSN that any entry ever named.
    pub max_lsn: Lsn,
    pub written: WrittenPages,
    /// Which records are encrypted.
    pub choices: Choices,
    /// What the last checkpoint says of the keys of its pages; while another one writes its superblocks, the
    /// older of both.
    pub durable_oldest: Oldest,
    /// What the next one is to say of the log: see [`KeyClaim::log`].
    pub log_claim: Option<(u32, Lsn)>,
}

/// What a checkpoint makes durable: the map as it was at one moment, as changes.
pub struct Capture {
    pub changes: Vec<(PageId, MapEntry)>,
    /// Sums of the captured map: all, or those that changed.
    pub sums: Sums,
    /// Segments that the captured map does not name.
    pub releasable: Vec<usize>,
    pub max_page: PageId,
    /// Of the keys of the records that the captured map names.
    pub oldest: Oldest,
    pub log_claim: Option<(u32, Lsn)>,
    /// See [`Choices::promises`].
    pub promises: bool,
}

impl State {
    /// The state of a map that was loaded, with its sums and the number of segments in the file.
    pub fn load(
        map: PageMap,
        sums: Sums,
        segment_bytes: u64,
        segments: usize,
        (claim, choices): (KeyClaim, Choices),
    ) -> State {
        let under = choices.under();
        let oldest = claim.oldest_of_pages(under, choices.scope());
        State {
            map,
            segments: SegmentTable::load(segment_bytes, segments, &sums.segments, oldest),
            pages: sums.pages(),
            trees: sums.trees.into_iter().collect(),
            changed_trees: HashSet::default(),
            dropped: HashMap::default(),
            not_freed: Vec::new(),
            max_page: PageId::ZERO,
            max_lsn: sums.max_lsn,
            written: WrittenPages::default(),
            choices,
            durable_oldest: oldest,
            log_claim: claim.log.filter(|_| claim.key == under.unwrap_or(0)),
        }
    }

    /// Counts a page in, as a record of `oldest`, and out; the map and the sums say the same.
    fn account(&mut self, old: MapEntry, new: MapEntry, oldest: Oldest) {
        if !new.is_none() {
            self.segments.add_live(new.place(), new.record_bytes(), oldest);
            let tree = self.trees.entry(new.tree()).or_default();
            tree.pages += 1;
            tree.stored_bytes += new.record_bytes() as u64;
            self.pages += 1;
            self.changed_trees.insert(new.tree());
        }
        if !old.is_none() {
            self.segments.sub_live(old.place(), old.record_bytes());
            self.uncount(old);
        }
    }

    fn uncount(&mut self, old: MapEntry) {
        let Some(tree) = self.trees.get_mut(&old.tree()) else { return };
        tree.pages -= 1;
        tree.stored_bytes -= old.record_bytes() as u64;
        if tree.pages == 0 {
            self.trees.remove(&old.tree());
        }
        self.pages -= 1;
        self.changed_trees.insert(old.tree());
    }

    /// A record has its place in the pages file.
    pub fn count_written(&mut self, record: &Packed, cause: Cause) {
        let bytes = record.bytes.len() as u64;
        match self.dropped.contains_key(&record.tree) {
            true => self.written.count_dropped(cause, bytes),
            false => self.written.count(record.tree, cause, bytes),
        }
    }

    /// The newest record of a page lies at `place` now.
    pub fn publish(&mut self, record: &Packed, place: u64) {
        if self.dropped.contains_key(&record.tree) {
            return;
        }
        let entry = record.entry_at(place);
        let old = self.map.set(record.page, entry);
        self.account(old, entry, self.choices.oldest_of(record.tree, record.key()));
        self.max_page = self.max_page.max(record.page);
        self.max_lsn = self.max_lsn.max(record.lsn);
    }

    /// Of the keys that a start needs for pages, after this checkpoint or the next one.
    pub fn oldest_needed(&self) -> Oldest {
        self.durable_oldest.min(self.segments.oldest())
    }

    /// The record of a page was copied to `place`; nothing happens if the page has moved on.
    pub fn swap(&mut self, old: MapEntry, record: &Packed, place: u64) -> bool {
        if !self.is_at(record.page, old) {
            return false;
        }
        let new = record.entry_at(place);
        self.map.set(record.page, new);
        self.account(old, new, self.choices.oldest_of(record.tree, record.key()));
        true
    }

    /// Whether this is the newest entry of a page whose leaf is pinned.
    pub fn is_at(&self, page: PageId, entry: MapEntry) -> bool {
        matches!(self.map.get(page), Lookup::Known(Some(now)) if now == entry)
    }

    /// Forgets a page whose leaf is pinned.
    pub fn free(&mut self, page: PageId) {
        if matches!(self.map.get(page), Lookup::Known(Some(_))) {
            let old = self.map.set(page, MapEntry::NONE);
            self.account(old, MapEntry::NONE, Oldest::None);
        }
    }

    /// From now on writes of the tree's pages are dropped. Answers where freeing them goes on.
    pub fn drop_tree(&mut self, tree: TreeId) -> usize {
        self.written.drop_tree(tree);
        *self.dropped.entry(tree).or_insert(0)
    }

    /// `whole`: with all sums, not only those that changed.
    pub fn capture(&mut self, whole: bool) -> Capture {
        let mut sums = Sums { max_lsn: self.max_lsn, ..Sums::default() };
        sums.segments = self.segments.take_changed(whole);
        let mut changed = std::mem::take(&mut self.changed_trees);
        if whole {
            changed.extend(self.trees.keys());
        }
        let used = |tree| self.trees.get(&tree).copied().unwrap_or_default();
        sums.trees = changed.into_iter().map(|tree| (tree, used(tree))).collect();
        Capture {
            changes: self.map.take_changes(),
            sums,
            releasable: self.segments.releasable(),
            max_page: self.max_page,
            oldest: self.segments.oldest(),
            log_claim: self.log_claim,
            promises: self.choices.promises(),
        }
    }

    /// The checkpoint of `capture` did not happen: the next one must write its changes again.
    pub fn restore(&mut self, capture: &Capture) {
        capture.changes.iter().for_each(|&(page, _)| self.map.mark(page));
        self.segments.mark_changed(capture.sums.segments.keys());
        self.changed_trees.extend(capture.sums.trees.keys());
    }
}
