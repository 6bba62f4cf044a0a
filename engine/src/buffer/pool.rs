//! Fetching pages: hit, miss, creation, removal.

use super::awaited::{Awaited, Waker};
use super::bad_pages::BadPages;
use super::changes::Tally;
use super::delta::Deltas;
use super::dirty::DirtyPages;
use super::frame::{Body, Content, Latch, Meta, PageBuf, ReadGuard, WriteGuard, CLEAN};
use super::owed_pages::Owed;
use super::table::{FrameTable, Shard, Slot, SHARDS};
use crate::base::{checked, Error, Lsn, PageId, Result, TreeId, PAGE_BYTES};
use crate::os::hash::HashMap;
use crate::os::planted::{self, Bug};
use crate::os::rank::Rank;
use crate::os::sync::{
    condition, ArcRwLockReadGuard, ArcRwLockWriteGuard, Condvar, Mutex, Ranked, RawRwLock, RwLock,
};
use crate::os::{Slabs, SIMULATED};
use crate::store::{Compression, Store, Stretch};
use std::sync::atomic::{
    AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst,
};
use std::sync::{Arc, OnceLock};

/// Fewest frames a pool works with: a structure change holds a handful, per thread.
pub(super) const FRAMES_MIN: usize = if SIMULATED { 16 } else { 64 };

pub struct PoolOptions {
    pub capacity_bytes: usize,
}

#[derive(Clone, Copy, Debug, Default)]
pub struct PoolStats {
    pub hits: u64,
    pub misses: u64,
    pub evictions: u64,
    /// Frames dirty now.
    pub dirty: u64,
    /// Pages without a frame that changes are owed to.
    pub owed_pages: u64,
    /// Evictions that left the changes of a page in place of an image.
    pub owed_evictions: u64,
    /// Deltas appended to the log, and read from it.
    pub deltas: u64,
    pub delta_reads: u64,
    /// Evictions by scans of pages that they had loaded.
    pub passed: u64,
    /// Pages that were read before a scan came to them.
    pub read_ahead: u64,
    /// Memory of changes, those of frames and those that are owed.
    pub change_bytes: u64,
    /// Frames allocated now, free ones included.
    pub frames: u64,
    #[cfg(test)]
    pub free: u64,
    /// Pages written back, and those of them whose changes were old.
    pub writebacks: u64,
    pub old_writebacks: u64,
    /// Misses that found no clean victim and wrote pages back themselves.
    pub inline_writebacks: u64,
    /// Frames allocated over the capacity, because everything else was in use.
    pub overcommits: u64,
    /// Changes that waited because the pool was over its capacity.
    pub waits: u64,
}

#[derive(Default)]
pub(super) struct Counters {
    pub misses: AtomicU64,
    pub evictions: AtomicU64,
    pub owed_evictions: AtomicU64,
    pub passed: AtomicU64,
    pub read_ahead: AtomicU64,
    pub writebacks: AtomicU64,
    pub old_writebacks: AtomicU64,
    pub inline_writebacks: AtomicU64,
    pub overcommits: AtomicU64,
    pub waits: AtomicU64,
}

/// Verifies the structure of a page that came from the store.
pub type PageCheck = fn(&[u8]) -> Result<()>;

pub struct Pool {
    pub(super) store: Arc<Store>,
    pub(super) table: FrameTable,
    pub(super) capacity_frames: AtomicUsize,
    /// Frames allocated, in the table or free.
    pub(super) frames: AtomicUsize,
    pub(super) free: Mutex<Vec<PageBuf>>,
    memory: Slabs,
    /// Most memory of changes since the heap was last trimmed.
    pub(super) changes_high: AtomicUsize,
    /// Shard where the next search for a victim begins.
    pub(super) next_shard: AtomicUsize,
    pub(super) counters: Counters,
    /// Sums over frames and owed pages. Each counts itself.
    pub(super) tally: Arc<Tally>,
    pub(super) dirty: Arc<DirtyPages>,
    /// Whether frames gather their changes: the store has more pages than memory.
    pub(super) gathers: AtomicBool,
    /// Pages of trees below it get an image whenever they are evicted.
    pub(super) first_owing_tree: AtomicU32,
    /// Pages whose redo begins before it are written, and owed no more.
    pub(super) images_before: AtomicU64,
    /// Wakes the thread that evicts in the background, if there is one.
    pub(super) waker: OnceLock<Waker>,
    /// Threads that wait in [`Pool::admit`].
    pub(super) behind: Mutex<()>,
    pub(super) caught_up: Condvar,
    compression: RwLock<HashMap<TreeId, Compression>>,
    check: OnceLock<PageCheck>,
    pub(super) bad: BadPages,
    pub(super) owed: Owed,
    pub(super) deltas: Deltas,
    pub(super) awaited: Awaited,
}

pub(super) enum Found<G> {
    Guard(G),
    /// The page has a frame, which is to be filled.
    Awaited(Arc<Latch>),
    Retry,
    Miss,
}

impl Pool {
    pub fn new(store: Arc<Store>, options: PoolOptions) -> Arc<Pool> {
        Arc::new(Pool {
            store,
            table: FrameTable::new(),
            capacity_frames: AtomicUsize::new(capacity_frames(options.capacity_bytes)),
            frames: AtomicUsize::new(0),
            free: Mutex::ranked(Rank::FreeFrames, Vec::new()),
            memory: Slabs::new(PAGE_BYTES),
            changes_high: AtomicUsize::new(0),
            next_shard: AtomicUsize::new(0),
            counters: Counters::default(),
            tally: Arc::default(),
            dirty: Arc::default(),
            gathers: AtomicBool::new(false),
            first_owing_tree: AtomicU32::new(0),
            images_before: AtomicU64::new(0),
            waker: OnceLock::new(),
            behind: Mutex::ranked(Rank::PoolSize, ()),
            caught_up: condition(Rank::PoolSizeWait),
            compression: RwLock::ranked(Rank::Compression, HashMap::default()),
            check: OnceLock::new(),
            bad: BadPages::default(),
            owed: Owed::default(),
            deltas: Deltas::default(),
            awaited: Awaited::default(),
        })
    }

    /// Every page read from the store from now on must pass `check`. The first call decides.
    pub fn set_page_check(&self, check: PageCheck) {
        self.check.get_or_init(|| check);
    }

    /// The page with a shared latch.
    pub fn read(&self, page: PageId) -> Result<ReadGuard> {
        Ok(self.read_as(page, true)?.0)
    }

    /// Also answers whether this call has loaded it. `again`: it will be wanted again.
    pub(super) fn read_as(&self, page: PageId, again: bool) -> Result<(ReadGuard, bool)> {
        loop {
            let loaded = match self.find_shared(page, again) {
                Found::Guard(guard) => return Ok((guard, false)),
                Found::Awaited(latch) => self.fill_awaited(&latch)?,
                Found::Retry => None,
                Found::Miss => self.load(page, None)?,
            };
            if let Some(guard) = loaded {
                guard.0.meta.referenced.store(again, Relaxed);
                return Ok((guard.downgrade(), true));
            }
        }
    }

    /// The page with an exclusive latch.
    pub fn write(&self, page: PageId) -> Result<WriteGuard> {
        self.write_from(page, None)
    }

    /// The same; a page that has no frame is read from the stretch if it is in it.
    pub(super) fn write_from(
        &self,
        page: PageId,
        mut stretch: Option<&mut Stretch>,
    ) -> Result<WriteGuard> {
        loop {
            let loaded = match self.find_exclusive(page) {
                Found::Guard(guard) => return Ok(guard),
                Found::Awaited(latch) => self.fill_awaited(&latch)?,
                Found::Retry => None,
                Found::Miss => self.load(page, stretch.as_deref_mut())?,
            };
            if let Some(guard) = loaded {
                return Ok(guard);
            }
        }
    }

    /// As [`Pool::write`], but only of a page that is in memory and is not being freed.
    pub fn write_resident(&self, page: PageId) -> Option<WriteGuard> {
        match self.find_exclusive(page) {
            Found::Guard(guard) if !guard.is_being_freed() => Some(guard),
            _ => None,
        }
    }

    /// A zeroed page that the store does not have; nobody else may know its id yet.
    pub fn create(&self, page: PageId, tree: TreeId) -> Result<WriteGuard> {
        assert!(page != PageId::ZERO, "page id zero means none");
        let guard = self.enter(page, tree, self.take_buf()?);
        let mut guard =
            guard.ok_or_else(|| Error::corrupt("page created twice", page.to_string()))?;
        guard.0.bytes.fill(0);
        guard.0.content = Content::Page;
        // Until a change makes the page from nothing.
        guard.0.meta.gathered.lock().lose();
        Ok(guard)
    }

    /// Forgets a page without writing it.
    pub fn discard(&self, page: PageId) {
        self.remove(page, || ());
    }

    /// Forgets a page here and in the store. The record that names it as freed must be in the log
    /// and no latch may be held. The frame counts for the redo point until the store knows, so
    /// that a checkpoint either has the page forgotten or replays the record that frees it.
    pub fn free(&self, page: PageId) {
        self.remove(page, || self.store.free(page));
        self.forget_owed_page(page);
        self.bad.remove(page);
    }

    fn remove(&self, page: PageId, forget: impl FnOnce()) {
        let found = self.table.shard(page).get(page).map(|slot| {
            slot.meta.doomed.store(true, SeqCst);
            (Arc::clone(&slot.meta), Arc::clone(&slot.latch))
        });
        let Some((meta, latch)) = found else { return forget() };
        latch.write().content = Content::Dead;
        let mut shard = self.table.shard(page);
        while meta.is_writing() {
            self.table.written(page).wait(&mut shard);
        }
        drop(shard);
        forget();
        let slot = self.table.shard(page).remove(&meta);
        drop(latch);
        slot.into_iter().for_each(|slot| self.reclaim(slot));
    }

    /// The lowest LSN that redo needs if the store as it is now became durable: lowest recovery
    /// LSN over dirty frames, writebacks in flight and what is owed, at most `log_end`. The caller
    /// must have read `log_end` from the log before the call. A page goes from a frame to what is
    /// owed and back under its shard's lock, or is dirty first: so it is seen in one of them.
    pub fn redo_point(&self, log_end: Lsn) -> Lsn {
        let mut lowest = log_end.0;
        for n in 0..SHARDS {
            let shard = self.table.nth(n);
            let writing = shard.oldest_writing().map_or(CLEAN, |(writing_lsn, _)| writing_lsn);
            lowest = lowest.min(shard.owed.lowest()).min(writing).min(self.dirty.oldest(n));
            checked!(planted::is(Bug::DirtyAgainUnlisted) || self.lists_all_dirty(n, &shard));
        }
        Lsn(lowest)
    }

    /// For each of these positions, in order, how many pages' redo begins before it, without those that are
    /// being written.
    pub fn count_before(&self, positions: &[Lsn]) -> Vec<u64> {
        let mut counts = vec![0; positions.len()];
        for n in 0..SHARDS {
            let shard = self.table.nth(n);
            let (mut from, mut before) = (Lsn::ZERO, 0);
            for (count, &to) in counts.iter_mut().zip(positions) {
                let to = to.max(from);
                before +=
                    self.dirty.count_between(n, from, to) + shard.owed.count_between(from, to);
                *count += before as u64;
                from = to;
            }
        }
        counts
    }

    /// Whether the list of dirty pages is what the frames of the nth shard say.
    pub(super) fn lists_all_dirty(&self, n: usize, shard: &Shard) -> bool {
        let metas = shard.slots.iter().map(|slot| &slot.meta);
        self.dirty.lists(n, metas.map(|meta| (meta.page, &meta.rec_lsn)))
    }

    /// Takes effect with later misses and eviction steps.
    pub fn set_capacity(&self, bytes: usize) {
        self.capacity_frames.store(capacity_frames(bytes), SeqCst);
    }

    /// How pages of `tree` are compressed from their next writeback on.
    pub fn set_tree_compression(&self, tree: TreeId, compression: Compression) {
        self.compression.write().insert(tree, compression);
    }

    pub(super) fn compression(&self, tree: TreeId) -> Compression {
        match self.compression.read().get(&tree) {
            Some(Compression::None) => Compression::None,
            Some(Compression::Zstd(level)) => Compression::Zstd(*level),
            Some(Compression::Lz4) | None => Compression::Lz4,
        }
    }

    /// The trees of all pages in memory or owed, some of them more than once.
    pub fn trees(&self) -> Vec<TreeId> {
        let of_shard = |n| -> Vec<TreeId> {
            let shard = self.table.nth(n);
            let mut trees: Vec<TreeId> = shard.owed.trees().collect();
            trees.extend(shard.slots.iter().map(|slot| slot.meta.tree()));
            trees.sort_unstable();
            trees.dedup();
            trees
        };
        (0..SHARDS).flat_map(of_shard).collect()
    }

    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    pub fn stats(&self) -> PoolStats {
        let hits = (0..SHARDS).map(|n| self.table.nth(n).hits).sum();
        let counters = &self.counters;
        PoolStats {
            hits,
            misses: counters.misses.load(Relaxed),
            evictions: counters.evictions.load(Relaxed),
            dirty: self.dirty.count() as u64,
            owed_pages: self.owed_pages() as u64,
            owed_evictions: counters.owed_evictions.load(Relaxed),
            deltas: self.deltas.written.load(Relaxed),
            delta_reads: self.deltas.reads.load(Relaxed),
            passed: counters.passed.load(Relaxed),
            read_ahead: counters.read_ahead.load(Relaxed),
            change_bytes: self.tally.change_bytes.load(Relaxed) as u64,
            frames: self.frames.load(SeqCst) as u64,
            #[cfg(test)]
            free: self.free.lock().len() as u64,
            writebacks: counters.writebacks.load(Relaxed),
            old_writebacks: counters.old_writebacks.load(Relaxed),
            inline_writebacks: counters.inline_writebacks.load(Relaxed),
            overcommits: counters.overcommits.load(Relaxed),
            waits: counters.waits.load(Relaxed),
        }
    }

    /// Pages written back since the start.
    pub fn writebacks(&self) -> u64 {
        self.counters.writebacks.load(Relaxed)
    }

    pub(super) fn find_shared(&self, page: PageId, again: bool) -> Found<ReadGuard> {
        let mut shard = self.table.shard(page);
        let Some(slot) = touch(&mut shard, page, again) else { return Found::Miss };
        let guard = match slot.latch.try_read_arc() {
            Some(guard) => guard,
            None => {
                let latch = Arc::clone(&slot.latch);
                drop(shard);
                latch.read_arc()
            }
        };
        match guard.content {
            Content::Page => Found::Guard(ReadGuard(guard)),
            Content::Awaited if planted::is(Bug::AwaitedTakenForPage) => {
                Found::Guard(ReadGuard(guard))
            }
            Content::Awaited => Found::Awaited(Arc::clone(ArcRwLockReadGuard::rwlock(&guard))),
            Content::Dead => Found::Retry,
        }
    }

    fn find_exclusive(&self, page: PageId) -> Found<WriteGuard> {
        let mut shard = self.table.shard(page);
        let Some(slot) = touch(&mut shard, page, true) else { return Found::Miss };
        let guard = match slot.latch.try_write_arc() {
            Some(guard) => guard,
            None => {
                let latch = Arc::clone(&slot.latch);
                drop(shard);
                latch.write_arc()
            }
        };
        match guard.content {
            Content::Page => Found::Guard(WriteGuard(guard)),
            Content::Awaited => Found::Awaited(Arc::clone(ArcRwLockWriteGuard::rwlock(&guard))),
            Content::Dead => Found::Retry,
        }
    }

    /// Enters a new frame for the page, held exclusively, with any bytes in it. None: another thread
    /// was faster.
    pub(super) fn enter(&self, page: PageId, tree: TreeId, bytes: PageBuf) -> Option<WriteGuard> {
        let meta = Arc::new(self.new_meta(page, tree));
        let body = Body { meta: Arc::clone(&meta), bytes, content: Content::Awaited };
        let mut shard = self.table.shard(page);
        if shard.get(page).is_some() {
            drop(shard);
            self.give_buf(body.bytes);
            return None;
        }
        let latch = Arc::new(RwLock::ranked(Rank::PageLatch, body));
        // Nobody else knows the latch, so it is free: this does not wait under the shard.
        let guard = latch.try_write_arc().expect("a new latch is free");
        shard.insert(Slot { meta, latch });
        Some(WriteGuard(guard))
    }

    fn new_meta(&self, page: PageId, tree: TreeId) -> Meta {
        Meta::new(page, tree, Arc::clone(&self.tally), Arc::clone(&self.dirty))
    }

    /// Reads a page into a new frame. None: another thread was faster, look again.
    fn load(&self, page: PageId, stretch: Option<&mut Stretch>) -> Result<Option<WriteGuard>> {
        if page == PageId::ZERO {
            return Err(Error::corrupt("reference to page zero", "buffer"));
        }
        let Some(guard) = self.enter(page, TreeId::default(), self.take_buf()?) else {
            return Ok(None);
        };
        self.counters.misses.fetch_add(1, Relaxed);
        self.fill_or_drop(guard, stretch).map(Some)
    }

    /// Reads the page of a frame that was entered before it was wanted. None: another thread was
    /// faster, look again.
    fn fill_awaited(&self, latch: &Arc<Latch>) -> Result<Option<WriteGuard>> {
        let guard = WriteGuard(latch.write_arc());
        if guard.0.content != Content::Awaited {
            return Ok(None);
        }
        self.counters.misses.fetch_add(1, Relaxed);
        self.fill_or_drop(guard, None).map(Some)
    }

    /// Reads the page, from the stretch if it is in it.
    pub(super) fn fill_or_drop(
        &self,
        mut guard: WriteGuard,
        stretch: Option<&mut Stretch>,
    ) -> Result<WriteGuard> {
        match self.fill(&mut guard, stretch) {
            Ok(()) => {
                guard.0.content = Content::Page;
                Ok(guard)
            }
            Err(e) => {
                self.drop_failed(guard.0);
                Err(e)
            }
        }
    }

    fn fill(&self, guard: &mut WriteGuard, stretch: Option<&mut Stretch>) -> Result<()> {
        let page = guard.page();
        self.check_not_bad(page)?;
        let out = &mut guard.0.bytes[..];
        let read = match stretch {
            Some(stretch) => self.store.read_in_stretch(page, out, stretch)?,
            None => self.store.read(page, out)?,
        };
        match read {
            Some(info) => {
                self.check_read(page, &guard.0.bytes[..])?;
                guard.set_tree(info.tree);
            }
            None => {
                let Some(tree) = self.owed_creation(page) else {
                    let what = format!("page {page} is not in the page map");
                    return Err(Error::corrupt(what, self.store.place_of(page)).of_page(page));
                };
                guard.0.bytes.fill(0);
                guard.set_tree(tree);
            }
        }
        self.pay_loaded(guard)
    }

    fn check_read(&self, page: PageId, bytes: &[u8]) -> Result<()> {
        if page_id_of(bytes) != page {
            let what = format!("page {} in place of page {page}", page_id_of(bytes));
            return Err(Error::corrupt(what, self.store.place_of(page)).of_page(page));
        }
        match self.check.get() {
            Some(check) => check(bytes).map_err(|error| self.at_place_of(page, error)),
            None => Ok(()),
        }
    }

    fn drop_failed(&self, mut body: ArcRwLockWriteGuard<RawRwLock, Body>) {
        body.content = Content::Dead;
        let meta = Arc::clone(&body.meta);
        checked!(meta.rec_lsn.load(SeqCst) == CLEAN);
        let slot = self.table.shard(meta.page).remove(&meta);
        drop(body);
        slot.into_iter().for_each(|slot| self.reclaim(slot));
    }

    /// Takes the memory of a frame that left the table, if nobody waits for its latch any more.
    pub(super) fn reclaim(&self, slot: Slot) {
        match Arc::try_unwrap(slot.latch) {
            Ok(latch) => self.give_buf(latch.into_inner().bytes),
            // The last waiter finds it dead and drops it.
            Err(_) => {
                self.frames.fetch_sub(1, SeqCst);
            }
        }
    }

    pub(super) fn give_buf(&self, buf: PageBuf) {
        if self.frames.load(SeqCst) > self.capacity() {
            self.frames.fetch_sub(1, SeqCst);
        } else {
            self.free.lock().push(buf);
        }
    }

    pub(super) fn new_buf(&self) -> PageBuf {
        self.frames.fetch_add(1, SeqCst);
        self.memory.take()
    }
}

fn touch(shard: &mut Shard, page: PageId, again: bool) -> Option<&Slot> {
    let place = shard.place_of(page)?;
    shard.hits += 1;
    let slot = &shard.slots[place];
    // Usually set already: a load leaves the cache line shared.
    if again && !slot.meta.referenced.load(Relaxed) {
        slot.meta.referenced.store(true, Relaxed);
    }
    Some(slot)
}

fn capacity_frames(bytes: usize) -> usize {
    (bytes / PAGE_BYTES).max(FRAMES_MIN)
}

fn page_id_of(bytes: &[u8]) -> PageId {
    PageId(u64::from_le_bytes([
        bytes[0], bytes[1], bytes[2], bytes[3], bytes[4], bytes[5], bytes[6], bytes[7],
    ]))
}

pub(super) fn page_lsn_of(bytes: &[u8]) -> Lsn {
    Lsn(u64::from_le_bytes([
        bytes[8], bytes[9], bytes[10], bytes[11], bytes[12], bytes[13], bytes[14], bytes[15],
    ]))
}
