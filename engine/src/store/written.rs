//! Bytes of records in the pages file, by tree and cause.

use super::pages::StreamKind;
use crate::base::TreeId;
use crate::os::hash::HashMap;

/// Why a record is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The pool needs the frame.
    Eviction,
    /// The log before the page's changes is to go.
    Checkpoint,
    /// Its segment is to become free.
    Gc,
}

impl Cause {
    pub(super) fn stream(self) -> StreamKind {
        match self {
            Cause::Eviction | Cause::Checkpoint => StreamKind::Fresh,
            Cause::Gc => StreamKind::Survivors,
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageBytes {
    pub eviction: u64,
    pub checkpoint: u64,
    pub gc: u64,
}

impl PageBytes {
    fn count(&mut self, cause: Cause, bytes: u64) {
        *match cause {
            Cause::Eviction => &mut self.eviction,
            Cause::Checkpoint => &mut self.checkpoint,
            Cause::Gc => &mut self.gc,
        } += bytes;
    }

    pub fn add(&mut self, other: PageBytes) {
        self.eviction += other.eviction;
        self.checkpoint += other.checkpoint;
        self.gc += other.gc;
    }
}

/// Since the store was opened. A record counts when it gets its place, before it is in the file.
#[derive(Clone, Debug, Default)]
pub struct WrittenPages {
    pub by_tree: HashMap<TreeId, PageBytes>,
    /// Of trees that are being freed, or are gone.
    pub dropped: PageBytes,
}

impl WrittenPages {
    /// Of a tree that is there.
    pub(super) fn count(&mut self, tree: TreeId, cause: Cause, bytes: u64) {
        self.by_tree.entry(tree).or_default().count(cause, bytes);
    }

    pub(super) fn count_dropped(&mut self, cause: Cause, bytes: u64) {
        self.dropped.count(cause, bytes);
    }

    pub(super) fn drop_tree(&mut self, tree: TreeId) {
        if let Some(bytes) = self.by_tree.remove(&tree) {
            self.dropped.add(bytes);
        }
    }
}
