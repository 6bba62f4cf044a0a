//! The pages that redo is owed to: those of one shard of the table, by page and by age, and counters.

use super::changes::{Changes, Delta};
use super::file_order::FileOrder;
use crate::base::{Lsn, PageId, Result, TreeId};
use crate::os::planted::{self, Bug};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::{Arc, OnceLock};

/// Memory that an owed page takes beside its changes, about.
pub(super) const ENTRY_BYTES: usize = 160;

/// The changes of one page.
#[derive(Clone)]
pub(super) struct OwedPage {
    pub tree: TreeId,
    /// Redo of the page begins here, or later.
    pub first: Lsn,
    /// Recovery found it in the log.
    pub recovered: bool,
    /// The first of its changes are in this record of the log.
    pub delta: Option<Delta>,
    /// The others.
    pub changes: Arc<Changes>,
    /// The evicted frame, in checked builds: its image and the changes make it again.
    pub frame: Arc<[u8]>,
}

impl OwedPage {
    pub fn memory_bytes(&self) -> usize {
        ENTRY_BYTES + self.changes.memory_bytes()
    }

    /// The last of all its changes.
    pub fn last(&self) -> Lsn {
        self.delta.map_or(Lsn::ZERO, |delta| delta.last).max(self.changes.last)
    }
}

/// The owed pages of one shard of the table, under its lock: so a page is never seen between its
/// frame and here.
#[derive(Default)]
pub(super) struct OwedPages {
    pub pages: BTreeMap<PageId, OwedPage>,
    pub by_age: BTreeSet<(Lsn, PageId)>,
}

impl OwedPages {
    /// The lowest LSN that is owed.
    pub fn lowest(&self) -> u64 {
        match self.by_age.first() {
            Some((first, _)) if !planted::is(Bug::OwedNotInRedoPoint) => first.0,
            _ => u64::MAX,
        }
    }

    /// Pages whose redo begins at `from` or later, and before `to`.
    pub fn count_between(&self, from: Lsn, to: Lsn) -> usize {
        self.by_age.range((from, PageId::ZERO)..(to, PageId::ZERO)).count()
    }

    pub fn trees(&self) -> impl Iterator<Item = TreeId> + '_ {
        self.pages.values().map(|owed| owed.tree)
    }

    pub fn insert(&mut self, page: PageId, owed: OwedPage) {
        self.by_age.insert((owed.first, page));
        let old = self.pages.insert(page, owed);
        assert!(old.is_none(), "what was owed before is paid first");
    }

    pub fn remove(&mut self, page: PageId) -> Option<OwedPage> {
        let owed = self.pages.remove(&page)?;
        self.by_age.remove(&(owed.first, page));
        Some(owed)
    }
}

/// Makes a change to a page and sets its LSN; on an error the page may be anything.
pub type Apply = fn(&mut [u8], PageId, &[u8], Lsn) -> Result<()>;

/// Counters that the owed pages of all shards share, and their order.
#[derive(Default)]
pub(super) struct Owed {
    /// How many pages are owed to, and how many of them recovery found; of those, pages of trees that owe
    /// nothing else ([`super::Pool::set_first_owing_tree`]).
    pub count: AtomicUsize,
    pub recovered: AtomicUsize,
    pub recovered_own: AtomicUsize,
    /// Page after which the next batch begins.
    pub cursor: AtomicU64,
    pub file_order: FileOrder,
    pub applied: AtomicU64,
    pub apply: OnceLock<Apply>,
}
