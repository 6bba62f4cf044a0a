//! Writing dirty pages to the store: claim under the shard's lock, copy under a shared latch,
//! compress and write with nothing held, settle under the shard's lock.

use super::frame::{Latch, Meta, CLEAN};
use super::pool::{page_lsn_of, Pool};
use super::table::{Shard, SHARDS};
use crate::base::{Lsn, PageId, Result, PAGE_BYTES};
use crate::store::PageWrite;
use std::sync::atomic::{Ordering::Relaxed, Ordering::SeqCst};
use std::sync::Arc;

/// Pages handed to the store in one call.
pub(super) const BATCH_PAGES: usize = 32;

/// A dirty frame that this thread, and nobody else, will write.
pub(super) struct Claim {
    meta: Arc<Meta>,
    latch: Arc<Latch>,
}

/// How to get the shared latch of a page to copy.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Patience {
    /// The caller holds no latch.
    Wait,
    /// The caller may hold latches: pages in use are passed over.
    Try,
}

/// Claims slot `i` if it is dirty and nobody writes it.
pub(super) fn claim(shard: &Shard, i: usize) -> Option<Claim> {
    let slot = &shard.slots[i];
    let meta = &slot.meta;
    let rec_lsn = meta.rec_lsn.load(SeqCst);
    if rec_lsn == CLEAN || meta.is_writing() || meta.doomed.load(SeqCst) {
        return None;
    }
    meta.writing_lsn.store(rec_lsn, SeqCst);
    Some(Claim { meta: Arc::clone(meta), latch: Arc::clone(&slot.latch) })
}

impl Pool {
    /// Writes pages whose recovery LSN lies below `lsn`, at most `budget_pages`. True: none is left.
    pub fn writeback_before(&self, lsn: Lsn, budget_pages: usize) -> Result<bool> {
        let mut budget = budget_pages;
        let start = self.next_shard.fetch_add(1, Relaxed);
        let mut claims = Vec::new();
        let mut last = start;
        for n in 0..SHARDS {
            last = start + n;
            claims.extend(self.claim_before(start + n, lsn, budget - claims.len()));
            if claims.len() >= BATCH_PAGES || claims.len() >= budget {
                budget -= claims.len();
                self.write_claims(std::mem::take(&mut claims), Patience::Wait)?;
            }
            if budget == 0 {
                break;
            }
        }
        self.write_claims(claims, Patience::Wait)?;
        self.next_shard.store(last, Relaxed);
        // Ends at the first one found: while many are left that is soon.
        Ok((0..SHARDS).all(|n| !self.has_before(last + n, lsn)))
    }

    fn has_before(&self, n: usize, lsn: Lsn) -> bool {
        let below =
            |meta: &Meta| meta.rec_lsn.load(SeqCst).min(meta.writing_lsn.load(SeqCst)) < lsn.0;
        self.table.nth(n).slots.iter().any(|slot| below(&slot.meta))
    }

    fn claim_before(&self, n: usize, lsn: Lsn, limit: usize) -> Vec<Claim> {
        let shard = self.table.nth(n);
        let below = |i: &usize| shard.slots[*i].meta.rec_lsn.load(SeqCst) < lsn.0;
        (0..shard.slots.len()).filter(below).filter_map(|i| claim(&shard, i)).take(limit).collect()
    }

    /// Copies and writes what was claimed, in batches. After a failure the frames are dirty again.
    /// Answers how many pages were written.
    pub(super) fn write_claims(&self, claims: Vec<Claim>, patience: Patience) -> Result<usize> {
        let mut outcome = Ok(0);
        let mut rest = claims.into_iter().peekable();
        while rest.peek().is_some() {
            let batch: Vec<Claim> = rest.by_ref().take(BATCH_PAGES).collect();
            outcome = match outcome {
                Ok(done) => self.write_batch(batch, patience).map(|n| done + n),
                Err(e) => {
                    batch.iter().for_each(|claim| self.settle(&claim.meta, false));
                    Err(e)
                }
            };
        }
        outcome
    }

    fn write_batch(&self, batch: Vec<Claim>, patience: Patience) -> Result<usize> {
        let mut copies = Vec::with_capacity(batch.len() * PAGE_BYTES);
        let mut copied: Vec<Arc<Meta>> = Vec::with_capacity(batch.len());
        for claim in batch {
            if copy(&claim, patience, &mut copies) {
                copied.push(claim.meta);
            } else {
                self.settle(&claim.meta, false);
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
            return Ok(0);
        }
        let result = self.store.write(&writes);
        copied.iter().for_each(|meta| self.settle(meta, result.is_ok()));
        result?;
        self.counters.writebacks.fetch_add(copied.len() as u64, Relaxed);
        Ok(copied.len())
    }

    /// Ends a claim. A copy that did not reach the store leaves the frame as dirty as it was.
    fn settle(&self, meta: &Arc<Meta>, stored: bool) {
        let page: PageId = meta.page;
        let _shard = self.table.shard(page);
        let claimed = meta.writing_lsn.load(SeqCst);
        assert!(claimed != CLEAN, "only a claimed page is settled");
        if !stored {
            meta.set_dirty(claimed);
        }
        meta.writing_lsn.store(CLEAN, SeqCst);
        self.table.written(page).notify_all();
    }
}

/// Appends a copy of the page; from here on the frame is clean unless it changes again.
fn copy(claim: &Claim, patience: Patience, out: &mut Vec<u8>) -> bool {
    let body = match patience {
        Patience::Wait => claim.latch.read(),
        Patience::Try => match claim.latch.try_read() {
            Some(body) => body,
            None => return false,
        },
    };
    if body.dead || claim.meta.doomed.load(SeqCst) {
        return false;
    }
    out.extend_from_slice(&body.bytes[..]);
    claim.meta.set_clean();
    true
}
