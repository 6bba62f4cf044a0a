//! The pages of one shard of the table that redo is owed to, by page and by age.

use super::changes::Changes;
use crate::base::{Lsn, PageId, TreeId};
use crate::os::planted::{self, Bug};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Memory that an owed page takes beside its changes, about.
const ENTRY_BYTES: usize = 160;

/// The changes of one page.
#[derive(Clone)]
pub(super) struct OwedPage {
    pub tree: TreeId,
    /// Redo of the page begins here, or later.
    pub first: Lsn,
    /// Recovery found it in the log.
    pub recovered: bool,
    pub changes: Arc<Changes>,
    /// The evicted frame, in checked builds: its image and the changes make it again.
    pub frame: Arc<[u8]>,
}

impl OwedPage {
    pub fn memory_bytes(&self) -> usize {
        ENTRY_BYTES + self.changes.memory_bytes()
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
