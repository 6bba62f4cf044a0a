//! Pages that were given up: they cannot be read, and work owed to them was put aside (rules S8).
//!
//! The list is part of every checkpoint and of the log's tail; it lives until the page's tree is
//! dropped. Without it a page that becomes readable again, in an older state, would be wrong data.

use super::pool::Pool;
use crate::base::{Error, PageId, Result, TreeId};
use std::sync::atomic::Ordering::SeqCst;

impl Pool {
    /// No one gets this page any more; what the pool has of it is forgotten. No latch may be held.
    /// Answers whether it was good until now.
    pub fn give_up(&self, page: PageId, tree: TreeId) -> bool {
        // In the list before the frame goes: a checkpoint reads the redo point before the list.
        let fresh = self.bad.change(|list| list.insert(page, tree)).is_none();
        self.discard(page);
        self.forget_owed_page(page);
        fresh
    }

    pub fn is_given_up(&self, page: PageId) -> bool {
        self.bad.list.read().contains_key(&page)
    }

    /// Whether any page was given up. Nobody may come to the pages below an inner one.
    pub fn has_given_up(&self) -> bool {
        self.bad.any.load(SeqCst)
    }

    /// Every page that was given up, with its tree.
    pub fn given_up(&self) -> Vec<(PageId, TreeId)> {
        self.bad.list.read().iter().map(|(&page, &tree)| (page, tree)).collect()
    }

    /// The tree is gone for ever, and with it the damage.
    pub fn forget_given_up(&self, tree: TreeId) {
        self.bad.change(|list| list.retain(|_, of| *of != tree));
    }

    pub(super) fn check_not_bad(&self, page: PageId) -> Result<()> {
        match self.bad.list.read().get(&page) {
            None => Ok(()),
            Some(tree) => {
                let what = format!("page {page} of tree {tree} was found damaged and given up");
                Err(Error::corrupt(what, self.store.place_of(page)).of_page(page))
            }
        }
    }

    /// The error of a page's check, with the file that the page came from.
    pub(super) fn at_place_of(&self, page: PageId, error: Error) -> Error {
        match error {
            Error::Corrupt { what, .. } => {
                let what = format!("page {page}: {what}");
                Error::corrupt(what, self.store.place_of(page)).of_page(page)
            }
            other => other,
        }
    }
}
