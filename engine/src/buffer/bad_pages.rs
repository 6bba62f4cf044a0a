//! The list of the pages that were given up, each with its tree.

use crate::base::{PageId, TreeId};
use crate::os::rank::Rank;
use crate::os::sync::{Ranked, RwLock};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

pub(super) struct BadPages {
    pub(super) list: RwLock<BTreeMap<PageId, TreeId>>,
    /// The list is not empty.
    pub(super) any: AtomicBool,
}

impl Default for BadPages {
    fn default() -> BadPages {
        let list = RwLock::ranked(Rank::BadPages, BTreeMap::new());
        BadPages { list, any: AtomicBool::new(false) }
    }
}

impl BadPages {
    pub fn remove(&self, page: PageId) {
        self.change(|list| list.remove(&page));
    }

    pub fn change<R>(&self, change: impl FnOnce(&mut BTreeMap<PageId, TreeId>) -> R) -> R {
        let mut list = self.list.write();
        let changed = change(&mut list);
        self.any.store(!list.is_empty(), SeqCst);
        changed
    }
}
