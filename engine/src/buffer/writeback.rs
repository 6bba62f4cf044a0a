//! Writing dirty pages to the store: claim under the shard's lock, copy under a shared latch,
//! compress and write with nothing held, settle under the shard's lock. A page whose leaf of the
//! page map cannot be read stays dirty, and keeps no other from being written. A page of a tree that
//! the store has dropped is settled without a copy: the log says durably that nobody wants it.

use super::frame::{Content, Latch, Meta, CLEAN};
use super::pool::{page_lsn_of, Pool};
use super::table::{Shard, Slot, SHARDS};
use crate::base::{Error, Lsn, PageId, Result, PAGE_BYTES};
use crate::os::planted::{self, Bug};
use crate::store::{Cause, PageWrite};
use std::sync::atomic::{Ordering::Relaxed, Ordering::SeqCst};
use std::sync::Arc;
use std::time::Duration;

/// Pages handed to the store in one call.
pub(super) const BATCH_PAGES: usize = 32;

/// How long to wait for another thread's writeback before looking again.
const WRITING_WAIT: Duration = Duration::from_millis(10);

/// A dirty frame that this thread, and nobody else, will write.
pub(super) struct Claim {
    meta: Arc<Meta>,
    latch: Arc<Latch>,
}

impl Claim {
    pub fn page(&self) -> PageId {
        self.meta.page
    }
}

/// The outcome of one claim.
#[derive(Clone, Copy, PartialEq)]
enum Fate {
    NotCopied,
    NotStored,
    Stored,
    /// Its tree is gone.
    Unwanted,
}

/// What became of claimed pages.
#[derive(Default)]
pub(super) struct Written {
    /// That are clean: written, or wanted by nobody.
    pub pages: usize,
    /// Why a page was not, of the first one.
    pub refused: Option<Error>,
}

impl Written {
    fn add(&mut self, other: Written) {
        self.pages += other.pages;
        self.refused = self.refused.take().or(other.refused);
    }

    /// The pages that are clean, or why none is.
    pub fn progress(self) -> Result<usize> {
        match self.refused {
            Some(error) if self.pages == 0 => Err(error),
            _ => Ok(self.pages),
        }
    }
}

/// How to get the shared latch of a page to copy.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Patience {
    /// The caller holds no latch.
    Wait,
    /// The caller may hold latches: pages in use are passed over.
    Try,
}

impl Patience {
    /// Only a checkpoint waits for pages.
    fn cause(self) -> Cause {
        match self {
            Patience::Wait => Cause::Checkpoint,
            Patience::Try => Cause::Eviction,
        }
    }
}

/// Claims slot `i` if it is dirty and nobody writes it.
pub(super) fn claim(shard: &mut Shard, i: usize) -> Option<Claim> {
    let slot = &shard.slots[i];
    let meta = &slot.meta;
    let rec_lsn = meta.rec_lsn.load(SeqCst);
    if rec_lsn == CLEAN || meta.is_writing() || meta.doomed.load(SeqCst) {
        return None;
    }
    meta.writing_lsn.store(rec_lsn, SeqCst);
    shard.writing.insert((rec_lsn, meta.page));
    Some(Claim { meta: Arc::clone(meta), latch: Arc::clone(&slot.latch) })
}

impl Pool {
    /// Writes pages whose recovery LSN lies below `lsn`, at most `budget_pages`. True: none is left.
    /// It fails for pages that cannot be written only when it writes no other.
    ///
    /// "None" is what each shard said in its turn, of dirty pages and of copies under way. A failed
    /// copy counts until its page is dirty again. So only a page that owed its redo can become dirty
    /// from before `lsn` later on, or one whose change was announced with an older end of the log: the
    /// record comes after the end of the log of this call all the same.
    pub fn writeback_before(&self, lsn: Lsn, budget_pages: usize) -> Result<bool> {
        let mut budget = budget_pages;
        let start = self.next_shard.fetch_add(1, Relaxed);
        let (mut claims, mut written) = (Vec::new(), Written::default());
        let mut last = start;
        let is_old = |slot: &Slot| slot.meta.rec_lsn.load(SeqCst) < lsn.0;
        'shards: for n in 0..SHARDS {
            last = start + n;
            for page in self.pages_before(last, lsn, budget) {
                let most = budget.min(BATCH_PAGES);
                self.claim_run(page, most, &is_old, &mut claims);
                if claims.len() == most {
                    written.add(self.write_claims(std::mem::take(&mut claims), Patience::Wait)?);
                    budget -= most;
                }
                if budget == 0 {
                    break 'shards;
                }
            }
        }
        written.add(self.write_claims(claims, Patience::Wait)?);
        self.next_shard.store(last, Relaxed);
        written.progress()?;
        Ok((0..SHARDS).all(|n| !self.has_before(last + n, lsn)))
    }

    /// Whether the shard has a page below `lsn`. One that another thread is writing is waited for,
    /// a moment: nothing else can be done about it.
    fn has_before(&self, n: usize, lsn: Lsn) -> bool {
        let mut shard = self.table.nth(n);
        if self.dirty.oldest(n) < lsn.0 {
            return true;
        }
        let oldest = shard.oldest_writing().filter(|&(writing_lsn, _)| writing_lsn < lsn.0);
        let Some((_, page)) = oldest else { return false };
        self.table.written(page).wait_for(&mut shard, WRITING_WAIT);
        true
    }

    fn pages_before(&self, n: usize, lsn: Lsn, limit: usize) -> Vec<PageId> {
        let shard = self.table.nth(n);
        self.dirty.before(n, lsn, limit, |page| !shard.is_writing(page))
    }

    /// Claims the page and those with the next ids, while each is `wanted`, until there are `most`
    /// claims. Pages that a load made one after the other so come to lie one after the other in the file,
    /// for scans to read them in one go.
    pub(super) fn claim_run(
        &self,
        first: PageId,
        most: usize,
        wanted: &dyn Fn(&Slot) -> bool,
        claims: &mut Vec<Claim>,
    ) {
        let mut page = first;
        while claims.len() < most {
            let mut shard = self.table.shard(page);
            let place = shard.place_of(page).filter(|&i| wanted(&shard.slots[i]));
            let Some(claimed) = place.and_then(|i| claim(&mut shard, i)) else { return };
            claims.push(claimed);
            page = PageId(page.0 + 1);
        }
    }

    /// Copies and writes what was claimed, in batches. After a failure the frames are dirty again.
    pub(super) fn write_claims(
        &self,
        mut claims: Vec<Claim>,
        patience: Patience,
    ) -> Result<Written> {
        claims.sort_unstable_by_key(Claim::page);
        let mut outcome = Ok(Written::default());
        let mut rest = claims.into_iter().peekable();
        while rest.peek().is_some() {
            let batch: Vec<Claim> = rest.by_ref().take(BATCH_PAGES).collect();
            outcome = match outcome {
                Ok(mut done) => self.write_batch(batch, patience).map(|more| {
                    done.add(more);
                    done
                }),
                Err(e) => {
                    batch.iter().for_each(|claim| self.settle(&claim.meta, Fate::NotCopied));
                    Err(e)
                }
            };
        }
        outcome
    }

    fn write_batch(&self, batch: Vec<Claim>, patience: Patience) -> Result<Written> {
        let mut copies = Vec::with_capacity(batch.len() * PAGE_BYTES);
        let mut copied: Vec<Arc<Meta>> = Vec::with_capacity(batch.len());
        let mut unwanted = 0;
        for claim in batch {
            let is_wanted = !self.store.is_dropped(claim.meta.tree());
            match copy(&claim, patience, is_wanted.then_some(&mut copies)) {
                true if is_wanted => copied.push(claim.meta),
                true => {
                    unwanted += 1;
                    self.settle(&claim.meta, Fate::Unwanted);
                }
                false => self.settle(&claim.meta, Fate::NotCopied),
            }
        }
        let pages = copied.iter().zip(copies.chunks_exact(PAGE_BYTES));
        let writes: Vec<PageWrite<'_>> = pages
            .map(|(meta, bytes)| PageWrite {
                page: meta.page,
                tree: meta.tree(),
                lsn: page_lsn_of(bytes),
                bytes,
                compression: self.compression(meta.tree()),
            })
            .collect();
        if writes.is_empty() {
            return Ok(Written { pages: unwanted, refused: None });
        }
        let mut unwritten = match self.store.write(patience.cause(), &writes) {
            Ok(unwritten) => unwritten,
            Err(error) => {
                copied.iter().for_each(|meta| self.settle(meta, Fate::NotStored));
                return Err(error);
            }
        };
        for meta in &copied {
            let stored = unwritten.iter().all(|(page, _)| *page != meta.page);
            self.settle(meta, if stored { Fate::Stored } else { Fate::NotStored });
        }
        let pages = copied.len() - unwritten.len();
        self.counters.writebacks.fetch_add(pages as u64, Relaxed);
        if patience == Patience::Wait {
            self.counters.old_writebacks.fetch_add(pages as u64, Relaxed);
        }
        let refused = (!unwritten.is_empty()).then(|| unwritten.swap_remove(0).1);
        Ok(Written { pages: pages + unwanted, refused })
    }

    /// Ends a claim. A copy that did not reach the store leaves the frame as dirty as it was, and
    /// the changes that it held are in no list.
    fn settle(&self, meta: &Arc<Meta>, fate: Fate) {
        let page: PageId = meta.page;
        let mut shard = self.table.shard(page);
        let claimed = meta.writing_lsn.load(SeqCst);
        assert!(claimed != CLEAN, "only a claimed page is settled");
        if fate == Fate::NotStored && !planted::is(Bug::FailedImageKeepsList) {
            meta.gathered.lock().lose();
        }
        if matches!(fate, Fate::NotCopied | Fate::NotStored) {
            meta.set_dirty(claimed);
        }
        meta.writing_lsn.store(CLEAN, SeqCst);
        shard.writing.remove(&(claimed, page));
        self.table.written(page).notify_all();
    }
}

/// Appends a copy of the page, if it is wanted; from here on the frame is clean unless it changes again.
fn copy(claim: &Claim, patience: Patience, out: Option<&mut Vec<u8>>) -> bool {
    let body = match patience {
        Patience::Wait => claim.latch.read(),
        Patience::Try => match claim.latch.try_read() {
            Some(body) => body,
            None => return false,
        },
    };
    if body.content != Content::Page || claim.meta.doomed.load(SeqCst) {
        return false;
    }
    if let Some(out) = out {
        out.extend_from_slice(&body.bytes[..]);
    }
    claim.meta.gathered.lock().restart();
    claim.meta.set_clean();
    true
}
