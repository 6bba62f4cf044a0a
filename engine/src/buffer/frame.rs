//! One page in memory, and the guards that are the only way to its bytes.

use super::changes::{Gathered, Tally};
use super::dirty::DirtyPages;
pub(super) use super::dirty::CLEAN;
use crate::base::{Lsn, PageId, TreeId};
use crate::os::planted::{self, Bug};
use crate::os::rank::Rank;
use crate::os::sync::{ArcRwLockReadGuard, ArcRwLockWriteGuard, Mutex, Ranked, RawRwLock, RwLock};
use crate::os::SlabBuf;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::SeqCst};
use std::sync::Arc;

pub(super) type PageBuf = SlabBuf;
pub(super) type Latch = RwLock<Body>;

/// What others may know about a frame without its latch.
pub(super) struct Meta {
    pub page: PageId,
    tree: AtomicU32,
    /// Lowest LSN that redo of this page needs, CLEAN if none. Lowered under the exclusive latch
    /// (or by a failed writeback), raised to CLEAN only by the claimed writeback under a shared one, or
    /// with the frame unused or dead. See [`DirtyPages`].
    pub rec_lsn: AtomicU64,
    /// Recovery LSN of the copy being written. Set and cleared under the shard's lock.
    pub writing_lsn: AtomicU64,
    /// Second chance of the clock.
    pub referenced: AtomicBool,
    /// The page is being freed: no writeback may copy it any more.
    pub doomed: AtomicBool,
    /// The changes since the image in the store. Grows under the exclusive latch, begins anew under
    /// a shared one with the page claimed.
    pub gathered: Mutex<Gathered>,
    dirty: Arc<DirtyPages>,
}

impl Meta {
    pub fn new(page: PageId, tree: TreeId, tally: Arc<Tally>, dirty: Arc<DirtyPages>) -> Meta {
        Meta {
            gathered: Mutex::ranked(Rank::GatheredChanges, Gathered::new(tally)),
            dirty,
            page,
            tree: AtomicU32::new(tree.0),
            rec_lsn: AtomicU64::new(CLEAN),
            writing_lsn: AtomicU64::new(CLEAN),
            referenced: AtomicBool::new(true),
            doomed: AtomicBool::new(false),
        }
    }

    pub fn tree(&self) -> TreeId {
        TreeId(self.tree.load(SeqCst))
    }

    pub fn set_tree(&self, tree: TreeId) {
        self.tree.store(tree.0, SeqCst);
    }

    /// Dirty from `lsn` on, unless it is from earlier.
    pub fn set_dirty(&self, lsn: u64) {
        if planted::is(Bug::DirtyAgainUnlisted) && self.is_writing() {
            self.rec_lsn.fetch_min(lsn, SeqCst);
            return;
        }
        self.dirty.lower(self.page, &self.rec_lsn, lsn);
    }

    pub fn set_clean(&self) {
        self.dirty.clear(self.page, &self.rec_lsn);
    }

    pub fn is_dirty(&self) -> bool {
        self.rec_lsn.load(SeqCst) != CLEAN
    }

    pub fn is_writing(&self) -> bool {
        self.writing_lsn.load(SeqCst) != CLEAN
    }
}

/// The state of a frame's bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Content {
    /// Nothing yet: a thread that wants the page fills the frame first.
    Awaited,
    Page,
    /// The frame is no longer the page's: look the page up again.
    Dead,
}

/// What the latch protects.
pub(super) struct Body {
    pub meta: Arc<Meta>,
    pub bytes: PageBuf,
    pub content: Content,
}

/// Shared access to a page, until dropped.
pub struct ReadGuard(pub(super) ArcRwLockReadGuard<RawRwLock, Body>);

impl ReadGuard {
    pub fn page(&self) -> PageId {
        self.0.meta.page
    }

    /// Set under the exclusive latch by who frees the page: it is of no tree any more.
    pub(super) fn is_being_freed(&self) -> bool {
        self.0.meta.doomed.load(SeqCst)
    }
}

impl Deref for ReadGuard {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0.bytes[..]
    }
}

/// Exclusive access to a page, until dropped.
pub struct WriteGuard(pub(super) ArcRwLockWriteGuard<RawRwLock, Body>);

impl WriteGuard {
    pub fn page(&self) -> PageId {
        self.0.meta.page
    }

    pub(super) fn is_being_freed(&self) -> bool {
        self.0.meta.doomed.load(SeqCst)
    }

    /// Makes the frame dirty from `log_end` on, unless it is dirty from earlier. To be called with
    /// the log's end of now, before the record of the change is appended (invariant 3).
    pub fn will_change(&mut self, log_end: Lsn) {
        let late_bytes = if planted::is(Bug::DirtyTooLate) { 4096 } else { 0 };
        let meta = &self.0.meta;
        meta.gathered.lock().announce();
        meta.set_dirty(log_end.0 + late_bytes);
    }

    /// The bytes to change; [`WriteGuard::will_change`] must have been called.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        assert!(self.0.meta.is_dirty(), "a page is marked dirty before it changes");
        &mut self.0.bytes[..]
    }

    /// The record to be appended frees this page: it is not written any more and, until
    /// [`super::Pool::free`] follows, it holds the redo point below that record.
    pub fn will_free(&mut self, log_end: Lsn) {
        self.will_change(log_end);
        self.0.meta.doomed.store(true, SeqCst);
    }

    /// The tree whose page this is; travels with the page into the store.
    pub fn set_tree(&mut self, tree: TreeId) {
        self.0.meta.set_tree(tree);
    }

    /// Gives up exclusiveness without letting another writer in between.
    pub fn downgrade(self) -> ReadGuard {
        ReadGuard(ArcRwLockWriteGuard::downgrade(self.0))
    }
}

impl Deref for WriteGuard {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0.bytes[..]
    }
}
