//! Redo that is owed: changes in the log's tail that the page map does not contain and that nobody
//! has applied yet. The thread that misses such a page applies them before others see it; the
//! background goes through the rest ([`Pool::next_owed`], [`Pool::pay`]).
//!
//! Owed redo holds the redo point as a dirty frame does (rules M2). A page stops being owed only
//! when its frame is dirty with all of its changes, when the store has an image that contains them,
//! or when nobody will ever want it: it was freed, given up, or its tree was dropped.

use super::frame::WriteGuard;
use super::pool::{page_lsn_of, Pool};
use crate::base::{Error, IdHasher, Lsn, PageId, Result, TreeId};
use crate::os::planted::{self, Bug};
use crate::os::rank::Rank;
use crate::os::sync::{Mutex, Ranked};
use std::collections::{BTreeMap, HashMap};
use std::hash::BuildHasherDefault;
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};

/// Makes a change to a page and sets its LSN; on an error the page may be anything.
pub type Apply = fn(&mut [u8], PageId, &[u8], Lsn) -> Result<()>;

/// In front of each change in [`OwedPage::changes`]: its LSN and its length.
const HEAD_BYTES: usize = 12;

/// The changes of one page, in the order of the log.
struct OwedPage {
    tree: TreeId,
    /// The first change makes the page from nothing.
    creates: bool,
    first: Lsn,
    last: Lsn,
    changes: Vec<u8>,
}

impl OwedPage {
    fn push(&mut self, lsn: Lsn, change: &[u8]) {
        debug_assert!(self.last <= lsn, "changes come in the order of the log");
        self.last = lsn;
        self.changes.extend_from_slice(&lsn.0.to_le_bytes());
        self.changes.extend_from_slice(&(change.len() as u32).to_le_bytes());
        self.changes.extend_from_slice(change);
    }

    fn changes(&self) -> impl Iterator<Item = (Lsn, &[u8])> {
        let mut rest = &self.changes[..];
        std::iter::from_fn(move || {
            let (lsn, after) = rest.split_first_chunk::<8>()?;
            let (length, after) = after.split_first_chunk::<4>()?;
            let (change, after) = after.split_at_checked(u32::from_le_bytes(*length) as usize)?;
            rest = after;
            Some((Lsn(u64::from_le_bytes(*lsn)), change))
        })
    }
}

/// Changes gathered from the log, by page.
#[derive(Default)]
pub struct Tail {
    pages: HashMap<PageId, OwedPage, BuildHasherDefault<IdHasher>>,
    bytes: usize,
}

impl Tail {
    /// To be called in the order of the log. `creates`: the change makes the page from nothing.
    pub fn add(&mut self, tree: TreeId, page: PageId, lsn: Lsn, change: &[u8], creates: bool) {
        let first = || OwedPage { tree, creates, first: lsn, last: lsn, changes: Vec::new() };
        self.pages.entry(page).or_insert_with(first).push(lsn, change);
        self.bytes += HEAD_BYTES + change.len();
    }

    /// Memory that the changes take, about.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn retain(&mut self, mut keep: impl FnMut(PageId, TreeId) -> bool) {
        self.pages.retain(|&page, owed| keep(page, owed.tree));
    }
}

pub(super) struct Owed {
    pages: Mutex<BTreeMap<PageId, Arc<OwedPage>>>,
    /// How many there are: while there are none, misses do not take the lock.
    count: AtomicUsize,
    /// Where the next batch begins.
    cursor: AtomicU64,
    applied: AtomicU64,
    pub apply: OnceLock<Apply>,
}

impl Default for Owed {
    fn default() -> Owed {
        Owed {
            pages: Mutex::ranked(Rank::OwedPages, BTreeMap::new()),
            count: AtomicUsize::default(),
            cursor: AtomicU64::default(),
            applied: AtomicU64::default(),
            apply: OnceLock::default(),
        }
    }
}

impl Owed {
    fn of(&self, page: PageId) -> Option<Arc<OwedPage>> {
        match self.count.load(SeqCst) {
            0 => None,
            _ => self.pages.lock().get(&page).cloned(),
        }
    }

    pub fn remove(&self, page: PageId) {
        if self.count.load(SeqCst) > 0 {
            self.change_pages(|pages| drop(pages.remove(&page)));
        }
    }

    fn change_pages(&self, change: impl FnOnce(&mut BTreeMap<PageId, Arc<OwedPage>>)) {
        let mut pages = self.pages.lock();
        change(&mut pages);
        self.count.store(pages.len(), SeqCst);
    }

    /// The lowest LSN that is owed. A page goes from here to a dirty frame: look here first for
    /// the lowest of both.
    pub fn lowest(&self) -> u64 {
        if self.count.load(SeqCst) == 0 || planted::is(Bug::OwedNotInRedoPoint) {
            return u64::MAX;
        }
        self.pages.lock().values().map(|owed| owed.first.0).min().unwrap_or(u64::MAX)
    }

    pub fn trees(&self) -> Vec<TreeId> {
        let mut trees: Vec<TreeId> = self.pages.lock().values().map(|owed| owed.tree).collect();
        trees.dedup();
        trees
    }
}

impl Pool {
    /// How the changes of [`Pool::owe`] are made. The first call decides.
    pub fn set_apply(&self, apply: Apply) {
        self.owed.apply.get_or_init(|| apply);
    }

    /// From now on nobody loads these pages without these changes. Nothing may be owed already, and
    /// before anybody reads pages those in memory must be paid ([`Pool::owed_in_memory`]).
    pub fn owe(&self, tail: Tail) {
        self.owed.change_pages(|pages| {
            assert!(pages.is_empty(), "what was owed before is paid first");
            pages.extend(tail.pages.into_iter().map(|(page, owed)| (page, Arc::new(owed))));
        });
    }

    /// Owed pages that have a frame, from what was redone before.
    pub fn owed_in_memory(&self) -> Vec<(PageId, TreeId)> {
        let owed: Vec<(PageId, TreeId)> =
            self.owed.pages.lock().iter().map(|(&page, owed)| (page, owed.tree)).collect();
        owed.into_iter().filter(|&(page, _)| self.table.shard(page).get(page).is_some()).collect()
    }

    /// Pages with changes that nobody has applied yet.
    pub fn owed_pages(&self) -> usize {
        self.owed.count.load(SeqCst)
    }

    pub fn is_owed(&self, page: PageId) -> bool {
        self.owed.of(page).is_some()
    }

    /// Changes applied of all that were ever owed.
    pub fn owed_applied(&self) -> u64 {
        self.owed.applied.load(Relaxed)
    }

    /// Up to `limit` owed pages of trees below `end`, each time the next ones in the order of
    /// their ids, round and round.
    pub fn next_owed(&self, limit: usize, end: TreeId) -> Vec<(PageId, TreeId)> {
        if self.owed_pages() == 0 {
            return Vec::new();
        }
        let pages = self.owed.pages.lock();
        let cursor = PageId(self.owed.cursor.load(Relaxed));
        let behind = pages.range((Excluded(cursor), Unbounded));
        let all = behind.chain(pages.range(..=cursor));
        let of_tree = all.filter(|(_, owed)| owed.tree < end);
        let found: Vec<_> = of_tree.take(limit).map(|(&page, owed)| (page, owed.tree)).collect();
        if let Some((last, _)) = found.last() {
            self.owed.cursor.store(last.0, Relaxed);
        }
        found
    }

    /// Brings a page up to date. One whose image in the store is new enough, by the map, is not
    /// read for that. No latch may be held.
    pub fn pay(&self, page: PageId) -> Result<()> {
        let Some(owed) = self.owed.of(page) else { return Ok(()) };
        if self.store.lsn_of(page)?.is_some_and(|lsn| lsn >= owed.last) {
            self.owed.remove(page);
            return Ok(());
        }
        let mut guard = self.write(page)?;
        // One that was in memory already.
        self.pay_loaded(&mut guard)
    }

    /// Nobody will want the pages of this tree: it was dropped, and the log says so.
    pub fn forget_owed(&self, tree: TreeId) {
        if self.owed_pages() > 0 {
            self.owed.change_pages(|pages| pages.retain(|_, owed| owed.tree != tree));
        }
    }

    /// Whether redo makes the page from nothing, and for which tree.
    pub(super) fn owed_creation(&self, page: PageId) -> Option<TreeId> {
        self.owed.of(page).filter(|owed| owed.creates).map(|owed| owed.tree)
    }

    /// Applies what is owed to a page that was just read, before anybody else can see it. After an
    /// error it is still owed, and the frame is not to be used.
    pub(super) fn pay_loaded(&self, guard: &mut WriteGuard) -> Result<()> {
        let page = guard.page();
        let Some(owed) = self.owed.of(page) else { return Ok(()) };
        let Some(apply) = self.owed.apply.get() else {
            return Err(Error::corrupt("redo is owed, and nobody can apply it", page.to_string()));
        };
        let (mut from, mut applied) = (None, 0);
        for (lsn, change) in owed.changes() {
            let bytes = &mut guard.0.bytes[..];
            if page_lsn_of(bytes) < lsn {
                apply(bytes, page, change, lsn).map_err(|error| error.of_page(page))?;
                from.get_or_insert(lsn);
                applied += 1;
            }
        }
        if let Some(lsn) = from {
            // Dirty before it is not owed any more: see `Owed::lowest`.
            guard.will_change(lsn);
        }
        self.owed.remove(page);
        self.owed.applied.fetch_add(applied, Relaxed);
        Ok(())
    }
}
