//! Finding memory: free frames, then clean victims by second chance, then writeback of dirty ones.

use super::frame::PageBuf;
use super::pool::Pool;
use super::table::{Shard, Slot, SHARDS};
use super::writeback::{claim, Claim, Patience, BATCH_PAGES};
use crate::base::Result;
use std::sync::atomic::{Ordering::Relaxed, Ordering::SeqCst};
use std::sync::Arc;

/// Most steps of the clock in one shard per visit: bounds how long its lock is held.
const CLOCK_STEPS_MAX: usize = 128;

/// Free frames that the background step keeps ready, as a share of the capacity.
const FREE_SHARE: usize = 64;
const FREE_MAX: usize = 256;

impl Pool {
    /// Memory for a page. Never waits for a latch.
    pub(super) fn take_buf(&self) -> Result<PageBuf> {
        if let Some(buf) = self.free.lock().pop() {
            return Ok(buf);
        }
        let capacity = self.capacity_frames.load(SeqCst);
        if self.frames.load(SeqCst) < capacity {
            return Ok(self.new_buf());
        }
        if let Some(slot) = self.clean_victim() {
            return Ok(self.take_memory(slot));
        }
        self.counters.inline_writebacks.fetch_add(1, Relaxed);
        let written = self.write_claims(self.dirty_victims(BATCH_PAGES), Patience::Try);
        if let Some(slot) = self.clean_victim() {
            return Ok(self.take_memory(slot));
        }
        // Everything is in use or cannot be written: rather a few frames too many than a failed
        // read, but not without end.
        if self.frames.load(SeqCst) > capacity + capacity / 4 + BATCH_PAGES {
            written?;
        }
        self.counters.overcommits.fetch_add(1, Relaxed);
        Ok(self.new_buf())
    }

    /// Keeps free frames ahead of need: evicts clean victims, writes dirty ones back first.
    pub fn evict_step(&self, budget_pages: usize) -> Result<()> {
        let mut budget = budget_pages;
        loop {
            while self.free_deficit() > 0 && budget > 0 {
                let Some(slot) = self.clean_victim() else { break };
                budget -= 1;
                let buf = self.take_memory(slot);
                self.give_buf(buf);
            }
            let wanted = self.free_deficit().min(budget);
            if wanted == 0 {
                return Ok(());
            }
            let claims = self.dirty_victims(wanted.min(BATCH_PAGES));
            if claims.is_empty() {
                return Ok(());
            }
            budget = budget.saturating_sub(claims.len());
            self.write_claims(claims, Patience::Wait)?;
        }
    }

    /// How many frames should be freed now.
    fn free_deficit(&self) -> usize {
        let capacity = self.capacity_frames.load(SeqCst);
        let target = (capacity / FREE_SHARE).clamp(1, FREE_MAX);
        let in_table = self.frames.load(SeqCst).saturating_sub(self.free.lock().len());
        (in_table + target).saturating_sub(capacity)
    }

    fn take_memory(&self, slot: Slot) -> PageBuf {
        self.counters.evictions.fetch_add(1, Relaxed);
        match Arc::try_unwrap(slot.latch) {
            Ok(latch) => latch.into_inner().bytes,
            Err(_) => unreachable!("a victim was removed while nobody else referred to it"),
        }
    }

    fn clean_victim(&self) -> Option<Slot> {
        let start = self.next_shard.fetch_add(1, Relaxed);
        // Two passes: the first may only take second chances away.
        (0..2 * SHARDS).find_map(|n| clean_victim_in(&mut self.table.nth(start + n)))
    }

    fn dirty_victims(&self, limit: usize) -> Vec<Claim> {
        let start = self.next_shard.fetch_add(1, Relaxed);
        let mut claims: Vec<Claim> = Vec::new();
        for n in 0..SHARDS {
            let shard = self.table.nth(start + n);
            for i in 0..shard.slots.len() {
                if claims.len() >= limit {
                    return claims;
                }
                if !shard.slots[i].meta.referenced.load(Relaxed) {
                    claims.extend(claim(&shard, i));
                }
            }
        }
        claims
    }
}

fn clean_victim_in(shard: &mut Shard) -> Option<Slot> {
    let steps = (2 * shard.slots.len()).min(CLOCK_STEPS_MAX);
    for _ in 0..steps {
        if shard.hand >= shard.slots.len() {
            shard.hand = 0;
        }
        let i = shard.hand;
        shard.hand += 1;
        let slot = &mut shard.slots[i];
        if slot.meta.referenced.swap(false, Relaxed) {
            continue;
        }
        // Exclusive ownership first: it makes a last holder's changes of the state visible. New
        // references are made only under this shard's lock.
        let unused = Arc::get_mut(&mut slot.latch).is_some();
        if unused && !slot.meta.is_dirty() && !slot.meta.is_writing() {
            return Some(shard.remove_at(i));
        }
    }
    None
}
