//! The list of the pages that were given up, each with its tree.

use crate::base::{PageId, TreeId};
use crate::os::rank::Rank;
use crate::os::sync::{Ranked, RwLock};
use std::collections::BTreeMap;

pub(super) struct BadPages {
    pub(super) list: RwLock<BTreeMap<PageId, TreeId>>,
}

impl Default for BadPages {
    fn default() -> BadPages {
        BadPages { list: RwLock::ranked(Rank::BadPages, BTreeMap::new()) }
    }
}

impl BadPages {
    pub fn remove(&self, page: PageId) {
        self.list.write().remove(&page);
    }
}
