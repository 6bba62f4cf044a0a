//! The order in which redo in the background takes the pages that recovery left.

use crate::base::{PageId, TreeId};
use crate::os::rank::Rank;
use crate::os::sync::{Mutex, Ranked};
use std::sync::atomic::AtomicU64;

/// Recovered pages in the order of the file as it was when they were looked for.
pub(super) struct FileOrder {
    /// The next one is the last.
    pages: Mutex<Vec<(PageId, TreeId)>>,
    /// They have ids below this one.
    pub end: AtomicU64,
}

impl Default for FileOrder {
    fn default() -> FileOrder {
        FileOrder { pages: Mutex::ranked(Rank::RedoOrder, Vec::new()), end: AtomicU64::new(0) }
    }
}

impl FileOrder {
    /// The next pages, at most so many.
    pub fn take(&self, limit: usize) -> Vec<(PageId, TreeId)> {
        let mut pages = self.pages.lock();
        let rest = pages.len().saturating_sub(limit);
        let next = pages.drain(rest..).rev().collect();
        if rest == 0 {
            *pages = Vec::new();
        }
        next
    }

    /// These are the next ones.
    pub fn put(&self, pages: Vec<(PageId, TreeId)>) {
        self.pages.lock().extend(pages.into_iter().rev());
    }
}
