//! Redo that is owed: changes in the log that the image of a page in the store lacks, of a page
//! without a frame. Recovery gathers them from the log's tail ([`Pool::owe`]); eviction leaves them
//! in place of an image (`Pool::owe_frame`), so that changes of several stays in memory share one.
//! The thread that misses such a page applies them before others see it.
//!
//! Owed redo holds the redo point as a dirty frame does (rules M2). A page stops being owed only
//! when its frame is dirty with all of its changes, when the store has an image that contains them,
//! or when nobody will ever want it: it was freed, given up, or its tree was dropped.

use super::changes::{Changes, Delta};
use super::frame::{Meta, WriteGuard};
use super::owed_pages::{Apply, OwedPage};
use super::pool::{page_lsn_of, Pool};
use super::table::{Shard, SHARDS};
use super::tail::Tail;
use crate::base::{Error, Lsn, PageId, Result, TreeId, CHECKED};
use crate::os::planted::{self, Bug};
use crate::os::sync::yield_now;
use crate::store::Stretch;
use std::sync::atomic::{Ordering::Relaxed, Ordering::SeqCst};
use std::sync::Arc;

impl Pool {
    /// How owed changes are made. The first call decides.
    pub fn set_apply(&self, apply: Apply) {
        self.owed.apply.get_or_init(|| apply);
    }

    /// From now on nobody loads these pages without these changes. Before anybody reads pages, those
    /// in memory must be paid ([`Pool::owed_in_memory`]).
    pub fn owe(&self, tail: Tail) {
        assert_eq!(self.owed_pages(), 0, "what was owed before is paid first");
        for (page, mut of_page) in tail.pages {
            let Some(first) = of_page.first() else { continue };
            of_page.changes.shrink();
            let (tree, delta, changes) = (of_page.tree, of_page.delta, Arc::new(of_page.changes));
            let (recovered, frame) = (true, Arc::default());
            let owed = OwedPage { tree, first, recovered, delta, changes, frame };
            self.insert_owed(&mut self.table.shard(page), page, owed);
        }
    }

    pub(super) fn insert_owed(&self, shard: &mut Shard, page: PageId, owed: OwedPage) {
        self.owed.count.fetch_add(1, SeqCst);
        self.owed.recovered.fetch_add(usize::from(owed.recovered), SeqCst);
        self.owed.recovered_own.fetch_add(usize::from(self.is_recovered_own(&owed)), SeqCst);
        self.tally.change_bytes.fetch_add(owed.memory_bytes(), Relaxed);
        shard.owed.insert(page, owed);
    }

    pub(super) fn remove_owed(&self, shard: &mut Shard, page: PageId) -> Option<OwedPage> {
        let owed = shard.owed.remove(page)?;
        self.owed.count.fetch_sub(1, SeqCst);
        self.owed.recovered.fetch_sub(usize::from(owed.recovered), SeqCst);
        self.owed.recovered_own.fetch_sub(usize::from(self.is_recovered_own(&owed)), SeqCst);
        self.tally.change_bytes.fetch_sub(owed.memory_bytes(), Relaxed);
        Some(owed)
    }

    fn is_recovered_own(&self, owed: &OwedPage) -> bool {
        owed.recovered && owed.tree.0 < self.first_owing_tree.load(Relaxed)
    }

    /// Nobody wants the page, or the store has it.
    pub(super) fn forget_owed_page(&self, page: PageId) {
        self.remove_owed(&mut self.table.shard(page), page);
    }

    /// Forgets these changes, and none that the page owes since.
    fn forget_these(&self, page: PageId, changes: &Arc<Changes>) {
        let mut shard = self.table.shard(page);
        let owed = shard.owed.pages.get(&page);
        if owed.is_some_and(|owed| Arc::ptr_eq(&owed.changes, changes)) {
            self.remove_owed(&mut shard, page);
        }
    }

    pub(super) fn owed_to(&self, page: PageId) -> Option<OwedPage> {
        match self.owed_pages() {
            0 => None,
            _ => self.table.shard(page).owed.pages.get(&page).cloned(),
        }
    }

    /// Leaves the changes of the unused frame in slot `i` in place of an image, if they are all
    /// gathered and take at most `bytes_max`, or can be left to a delta. A page of a dropped tree owes
    /// nothing. Answers whether the frame may go.
    pub(super) fn owe_frame(&self, shard: &mut Shard, i: usize, bytes_max: usize) -> bool {
        let meta = Arc::clone(&shard.slots[i].meta);
        if self.store.is_dropped(meta.tree()) {
            meta.set_clean();
            return true;
        }
        let (page, rec_lsn) = (meta.page, meta.rec_lsn.load(SeqCst));
        let wants_image = rec_lsn < self.images_before.load(SeqCst)
            || meta.doomed.load(SeqCst)
            || meta.tree().0 < self.first_owing_tree.load(Relaxed);
        if wants_image || shard.owed.pages.contains_key(&page) {
            return false;
        }
        let Some((delta, changes)) = self.take_owed(&meta, bytes_max) else { return false };
        let late = planted::is(Bug::OwedTooLate);
        let first = delta.map_or(Lsn(rec_lsn), |delta| delta.at);
        let first = if late { changes.last.max(first) } else { first };
        let (tree, changes) = (meta.tree(), Arc::new(changes));
        let body = Arc::get_mut(&mut shard.slots[i].latch).map(|latch| latch.get_mut());
        let frame = body.filter(|_| CHECKED).map(|body| Arc::from(&body.bytes[..]));
        let (recovered, frame) = (false, frame.unwrap_or_default());
        self.insert_owed(shard, page, OwedPage { tree, first, recovered, delta, changes, frame });
        meta.set_clean();
        self.counters.owed_evictions.fetch_add(1, Relaxed);
        true
    }

    /// Takes the list of a frame that goes: the delta that has the front of it, and the rest, of at most
    /// `bytes_max`. If the rest is more, a new delta has the whole list.
    fn take_owed(&self, meta: &Meta, bytes_max: usize) -> Option<(Option<Delta>, Changes)> {
        let mut gathered = meta.gathered.lock();
        let (whole, mut delta) = (gathered.whole()?, gathered.delta());
        let rest_bytes = whole.len_bytes() - delta.map_or(0, |delta| delta.bytes);
        if rest_bytes > bytes_max {
            delta = Some(self.log_frame_delta(meta, whole, delta)?);
        }
        let whole = gathered.take()?;
        Some((delta, whole.without_front(delta.map_or(0, |delta| delta.bytes))))
    }

    /// Owed pages that have a frame, from what was redone before.
    pub fn owed_in_memory(&self) -> Vec<(PageId, TreeId)> {
        let in_shard = |n| -> Vec<(PageId, TreeId)> {
            let shard = self.table.nth(n);
            let owed = shard.owed.pages.iter().filter(|(&page, _)| shard.get(page).is_some());
            owed.map(|(&page, owed)| (page, owed.tree)).collect()
        };
        (0..SHARDS).flat_map(in_shard).collect()
    }

    /// Pages with changes that nobody has applied yet.
    pub fn owed_pages(&self) -> usize {
        self.owed.count.load(SeqCst)
    }

    /// Those of them that recovery found.
    pub fn recovered_pages(&self) -> usize {
        self.owed.recovered.load(SeqCst)
    }

    pub fn is_owed(&self, page: PageId) -> bool {
        self.owed_to(page).is_some()
    }

    /// Changes applied of all that were ever owed.
    pub fn owed_applied(&self) -> u64 {
        self.owed.applied.load(Relaxed)
    }

    /// Up to `limit` owed pages whose redo begins before `lsn`.
    pub fn owed_before(&self, lsn: Lsn, limit: usize) -> Vec<(PageId, TreeId)> {
        let mut found = Vec::new();
        if self.owed_pages() == 0 {
            return found;
        }
        let start = self.next_shard.fetch_add(1, Relaxed);
        for n in 0..SHARDS {
            let shard = self.table.nth(start + n);
            let old = shard.owed.by_age.range(..(lsn, PageId::ZERO));
            let left = limit - found.len();
            found.extend(old.take(left).map(|&(_, page)| (page, shard.owed.pages[&page].tree)));
            if found.len() >= limit {
                break;
            }
        }
        found
    }

    /// Pages whose redo begins before `lsn` are written from now on and owed no more.
    pub fn want_images_before(&self, lsn: Lsn) {
        self.images_before.fetch_max(lsn.0, SeqCst);
    }

    /// The LSN of the page's image. Zero: it has none, or nothing is known of it now.
    pub fn image_of(&self, page: PageId) -> Lsn {
        self.store.lsn_of(page).ok().flatten().unwrap_or(Lsn::ZERO)
    }

    /// Forgets what the page owes, if the store has an image of all of it or drops the page's tree. Answers
    /// whether it did.
    pub(super) fn forget_stored(&self, page: PageId, owed: &OwedPage) -> Result<bool> {
        let enough = match planted::is(Bug::OlderImagePays) {
            true => owed.first,
            false => owed.last(),
        };
        let has_image = self.store.lsn_of(page)?.is_some_and(|lsn| lsn >= enough);
        let is_settled = has_image || self.store.is_dropped(owed.tree);
        if is_settled {
            self.forget_these(page, &owed.changes);
        }
        Ok(is_settled)
    }

    /// Brings a page up to date. One whose image in the store is new enough, by the map, is not
    /// read for that. No latch may be held.
    pub fn pay(&self, page: PageId) -> Result<()> {
        self.pay_from(page, None)
    }

    /// The same; a page that has no frame is read from the stretch if it is in it.
    pub(super) fn pay_from(&self, page: PageId, stretch: Option<&mut Stretch>) -> Result<()> {
        let Some(owed) = self.owed_to(page) else { return Ok(()) };
        if self.forget_stored(page, &owed)? {
            return Ok(());
        }
        let mut guard = self.write_from(page, stretch)?;
        // One that was in memory already.
        self.pay_loaded(&mut guard)?;
        // Nobody asked for it: it is the first to go.
        guard.0.meta.referenced.store(false, Relaxed);
        Ok(())
    }

    /// Nobody will want the pages of this tree: it was dropped, and the log says so.
    pub fn forget_owed(&self, tree: TreeId) {
        if self.owed_pages() == 0 {
            return;
        }
        for n in 0..SHARDS {
            let mut shard = self.table.nth(n);
            let of_tree = shard.owed.pages.iter().filter(|(_, owed)| owed.tree == tree);
            let pages: Vec<PageId> = of_tree.map(|(&page, _)| page).collect();
            for page in pages {
                self.remove_owed(&mut shard, page);
            }
        }
    }

    /// Whether redo makes the page from nothing, and for which tree.
    pub(super) fn owed_creation(&self, page: PageId) -> Option<TreeId> {
        self.owed_to(page).filter(|owed| owed.changes.creates).map(|owed| owed.tree)
    }

    /// Applies what is owed to a page that was just read, before anybody else can see it. After an
    /// error it is still owed, and the frame is not to be used.
    pub(super) fn pay_loaded(&self, guard: &mut WriteGuard) -> Result<()> {
        let page = guard.page();
        let Some(owed) = self.owed_to(page) else { return Ok(()) };
        let Some(apply) = self.owed.apply.get() else {
            return Err(Error::corrupt("redo is owed, and nobody can apply it", page.to_string()));
        };
        let changes = self.all_owed(page, &owed)?;
        let (mut from, mut applied) = (None, 0);
        let image = page_lsn_of(&guard.0.bytes[..]);
        for (lsn, change) in changes.iter() {
            let bytes = &mut guard.0.bytes[..];
            if page_lsn_of(bytes) < lsn {
                apply(bytes, page, change, lsn).map_err(|error| error.of_page(page))?;
                from.get_or_insert(lsn);
                applied += 1;
            }
        }
        let is_same = owed.frame.is_empty() || guard.0.bytes[..] == owed.frame[..];
        assert!(is_same, "page {page} is not what was evicted, on the image of {image}");
        let is_image = !guard.0.meta.is_dirty();
        if planted::is(Bug::PaidBeforeDirty) {
            self.forget_owed_page(page);
            yield_now();
        }
        if from.is_some() {
            // Dirty before it is not owed any more: see `Pool::redo_point`. From the first change after
            // the image, which the list need not begin with: one that makes the page replaced it.
            guard.will_change(owed.first);
        }
        self.forget_owed_page(page);
        self.owed.applied.fetch_add(applied, Relaxed);
        if from.is_some() {
            drop(owed.changes);
            self.keep_gathered(guard, changes, owed.delta, is_image);
        }
        Ok(())
    }

    /// The frame takes the list over, unless it has changes that the list lacks.
    fn keep_gathered(
        &self,
        guard: &WriteGuard,
        changes: Arc<Changes>,
        delta: Option<Delta>,
        is_whole: bool,
    ) {
        let mut gathered = guard.0.meta.gathered.lock();
        if is_whole && changes.len_bytes() <= self.gathered_bytes_max() {
            gathered.adopt(Arc::unwrap_or_clone(changes), delta);
        } else {
            gathered.lose();
        }
    }
}
