//! Finding memory. The background keeps a reserve of free frames ([`Pool::evict_step`]): it sweeps
//! the clock, takes clean frames and writes dirty ones back. A miss takes a free frame, else a
//! clean victim; it does no I/O for memory while somebody else does it: rather the pool grows by
//! a few frames, and writers are held back ([`Pool::admit`]) until it has shrunk again.

use super::frame::PageBuf;
use super::pool::Pool;
use super::table::{Shard, Slot, SHARDS};
use super::writeback::{claim, Claim, Patience, Written, BATCH_PAGES};
use crate::base::{PageId, Result};
use crate::os::observe::{self, Wait};
use crate::os::trim_heap;
use std::sync::atomic::{Ordering::Relaxed, Ordering::SeqCst};
use std::sync::Arc;
use std::time::Duration;

/// Most steps of the clock in one shard per visit: bounds how long its lock is held.
const CLOCK_STEPS_MAX: usize = 128;

/// Free frames that the background keeps ready, as a share of the capacity: what misses take
/// while it waits for a processor.
const RESERVE_SHARE: usize = 16;
const RESERVE_MAX: usize = 1024;
/// The share of the capacity by which misses may exceed it before they write pages themselves.
const EXCESS_SHARE: usize = 8;
/// Percent of the capacity that may be dirty: so reads find clean victims when the store is full.
const DIRTY_PERCENT_MAX: usize = 75;

/// The share of the memory for changes that the heap may keep after they are gone, and the least of it.
const TRIM_SHARE: usize = 8;
const TRIM_BYTES_MIN: usize = 4 << 20;

/// Longest that one change waits for the background to catch up.
const ADMIT_WAIT_MAX: Duration = Duration::from_secs(1);
const ADMIT_WAIT_SLICE: Duration = Duration::from_millis(20);

impl Pool {
    /// Memory for a page. Never waits for a latch.
    pub(super) fn take_buf(&self) -> Result<PageBuf> {
        if let Some(buf) = self.take_spare() {
            return Ok(buf);
        }
        let capacity = self.capacity();
        let excess = capacity / EXCESS_SHARE;
        if self.waker.get().is_some() && self.frames.load(SeqCst) < capacity + excess {
            self.counters.overcommits.fetch_add(1, Relaxed);
            return Ok(self.new_buf());
        }
        self.counters.inline_writebacks.fetch_add(1, Relaxed);
        let written = self.write_claims(self.dirty_victims(BATCH_PAGES), Patience::Try);
        // Pages that cannot be written owe their changes, as many as they are: no memory is lost.
        if let Some(slot) = self.clean_victim(usize::MAX) {
            return Ok(self.take_memory(slot));
        }
        // Everything is in use or cannot be written: rather a few frames too many than a failed
        // read, but not without end.
        if self.frames.load(SeqCst) > capacity + capacity / 4 + BATCH_PAGES {
            written?.progress()?;
        }
        self.counters.overcommits.fetch_add(1, Relaxed);
        Ok(self.new_buf())
    }

    /// Memory that costs no I/O and does not make the pool larger than it should be.
    pub(super) fn take_spare(&self) -> Option<PageBuf> {
        if let Some(buf) = self.take_free() {
            return Some(buf);
        }
        if self.frames.load(SeqCst) < self.capacity() {
            return Some(self.new_buf());
        }
        let slot = self.clean_victim(self.owed_bytes_max())?;
        Some(self.take_memory(slot))
    }

    /// A free frame; calls the background when the reserve is half used up.
    fn take_free(&self) -> Option<PageBuf> {
        let (buf, left) = {
            let mut free = self.free.lock();
            (free.pop(), free.len())
        };
        if left <= self.reserve() / 2 && self.free_deficit() > 0 {
            if let Some(wake) = self.waker.get() {
                wake();
            }
        }
        buf
    }

    /// Says that somebody calls [`Pool::evict_step`] in the background, and how to wake them. The
    /// first call decides.
    pub fn set_waker(&self, wake: Box<dyn Fn() + Send + Sync>) {
        self.waker.get_or_init(|| wake);
    }

    /// To be called before a change, with no latch held: waits while the pool is over its
    /// capacity because the background has not written enough. It gives up after a while: what
    /// happens then is up to the misses.
    pub fn admit(&self) {
        if self.is_behind() {
            self.wait_for_background();
        }
    }

    fn is_behind(&self) -> bool {
        let capacity = self.capacity();
        let limit = capacity + capacity / (2 * EXCESS_SHARE);
        // Free frames do not count: the background has nothing to do about them.
        self.waker.get().is_some()
            && self.frames.load(Relaxed) > limit
            && self.frames_in_table() > limit
    }

    fn frames_in_table(&self) -> usize {
        let free = self.free.lock().len();
        self.frames.load(SeqCst).saturating_sub(free)
    }

    /// Gives back free frames beyond the capacity, which shrinks while changes gather.
    fn trim_free(&self) {
        while self.frames.load(SeqCst) > self.capacity() {
            let Some(buf) = self.free.lock().pop() else { return };
            self.frames.fetch_sub(1, SeqCst);
            drop(buf);
        }
    }

    /// Whether so much memory of changes was freed that the heap should give it back: frames come in its place.
    pub(super) fn wants_trim(&self) -> bool {
        let now = self.tally.change_bytes.load(Relaxed);
        let high = self.changes_high.fetch_max(now, Relaxed).max(now);
        let wants = high - now >= (self.budget_bytes() / TRIM_SHARE).max(TRIM_BYTES_MIN);
        if wants {
            self.changes_high.store(now, Relaxed);
        }
        wants
    }

    #[cold]
    fn wait_for_background(&self) {
        self.counters.waits.fetch_add(1, Relaxed);
        let mut waited = Duration::ZERO;
        while waited < ADMIT_WAIT_MAX && self.is_behind() {
            if let Some(wake) = self.waker.get() {
                wake();
            }
            let mut guard = self.behind.lock();
            observe::waiting(Wait::Frame, || {
                self.caught_up.wait_for(&mut guard, ADMIT_WAIT_SLICE);
            });
            waited += ADMIT_WAIT_SLICE;
        }
    }

    /// Keeps free frames ahead of need, and the share of dirty ones below its limit. True: more
    /// is to be done now.
    pub fn evict_step(&self, budget_pages: usize) -> Result<bool> {
        self.refresh_gathers();
        self.trim_free();
        if self.wants_trim() {
            trim_heap();
        }
        let mut budget = budget_pages;
        while budget > 0 {
            let wanted = self.free_deficit().min(budget);
            let to_clean = self.dirty_excess().min(budget).min(BATCH_PAGES);
            if wanted == 0 && to_clean == 0 {
                return Ok(false);
            }
            let (freed, mut claims) = self.sweep(wanted);
            if claims.len() < to_clean {
                claims.extend(self.dirty_victims(to_clean - claims.len()));
            }
            let seen = freed + claims.len();
            budget = budget.saturating_sub(seen);
            let Written { pages: written, refused } = self.write_claims(claims, Patience::Try)?;
            if !self.is_behind() {
                drop(self.behind.lock());
                self.caught_up.notify_all();
            }
            if freed + written == 0 {
                // Everything is in use at this moment, or cannot be written.
                return refused.map_or(Ok(false), Err);
            }
        }
        Ok(true)
    }

    /// Turns the clock in every shard until `wanted` clean frames were freed or a batch of dirty
    /// ones was met and claimed.
    pub(super) fn sweep(&self, wanted: usize) -> (usize, Vec<Claim>) {
        let start = self.next_shard.fetch_add(1, Relaxed);
        let (mut freed, mut claims) = (0, Vec::new());
        for n in 0..2 * SHARDS {
            if freed >= wanted || claims.len() >= BATCH_PAGES {
                break;
            }
            let room = BATCH_PAGES - claims.len();
            let share = (wanted - freed).min(wanted / SHARDS + 1);
            let owed_max = self.owed_bytes_max();
            let mut shard = self.table.nth(start + n);
            let claimed = claims.len();
            let victims = self.sweep_shard(&mut shard, (share, owed_max), room, &mut claims);
            drop(shard);
            self.claim_new_pages_after(claimed, &mut claims);
            freed += victims.len();
            for slot in victims {
                let buf = self.take_memory(slot);
                self.give_buf(buf);
            }
        }
        (freed, claims)
    }

    /// Claims more pages after each claim from `from` on: those with the next ids that nobody wants and
    /// that only an image can save, as those of a load. They would be claimed by the next sweeps.
    fn claim_new_pages_after(&self, from: usize, claims: &mut Vec<Claim>) {
        let is_new = |slot: &Slot| {
            let is_wanted = slot.meta.referenced.load(Relaxed);
            !is_wanted && slot.meta.gathered.lock().whole().is_none()
        };
        for i in from..claims.len() {
            let next = PageId(claims[i].page().0 + 1);
            self.claim_run(next, BATCH_PAGES, &is_new, claims);
        }
    }

    fn reserve(&self) -> usize {
        (self.capacity() / RESERVE_SHARE).clamp(1, RESERVE_MAX)
    }

    /// How many frames should be freed now.
    fn free_deficit(&self) -> usize {
        (self.frames_in_table() + self.reserve()).saturating_sub(self.capacity())
    }

    /// How many frames the background lets be dirty.
    pub fn dirty_max(&self) -> u64 {
        let share = self.capacity() * DIRTY_PERCENT_MAX / 100;
        share.max(BATCH_PAGES) as u64
    }

    fn dirty_excess(&self) -> usize {
        let (dirty, gathered) = (self.dirty.count(), self.tally.gathered.load(Relaxed));
        dirty.saturating_sub(gathered).saturating_sub(self.dirty_max() as usize)
    }

    /// Whether the unused frame in slot `i` may go without I/O.
    pub(super) fn may_go(&self, shard: &mut Shard, i: usize, owed_max: usize) -> bool {
        !shard.slots[i].meta.is_dirty() || self.owe_frame(shard, i, owed_max)
    }

    /// Whether a page that comes pushes another one out.
    pub(super) fn is_full(&self) -> bool {
        self.frames_in_table() + 2 * self.reserve() > self.capacity()
    }

    pub(super) fn take_memory(&self, slot: Slot) -> PageBuf {
        self.counters.evictions.fetch_add(1, Relaxed);
        match Arc::try_unwrap(slot.latch) {
            Ok(latch) => latch.into_inner().bytes,
            Err(_) => unreachable!("a victim was removed while nobody else referred to it"),
        }
    }

    /// A frame that may go without I/O.
    fn clean_victim(&self, owed_max: usize) -> Option<Slot> {
        let start = self.next_shard.fetch_add(1, Relaxed);
        // Two passes: the first may only take second chances away.
        (0..2 * SHARDS).find_map(|n| {
            let mut shard = self.table.nth(start + n);
            self.sweep_shard(&mut shard, (1, owed_max), 0, &mut Vec::new()).pop()
        })
    }

    /// Claims dirty frames that nobody wants, among the next ones of each shard.
    fn dirty_victims(&self, limit: usize) -> Vec<Claim> {
        let start = self.next_shard.fetch_add(1, Relaxed);
        let mut claims: Vec<Claim> = Vec::new();
        for n in 0..SHARDS {
            let mut shard = self.table.nth(start + n);
            for _ in 0..shard.slots.len().min(CLOCK_STEPS_MAX) {
                if claims.len() >= limit {
                    return claims;
                }
                let Some(i) = shard.next_dirty_hand() else { break };
                if !shard.slots[i].meta.referenced.load(Relaxed) {
                    claims.extend(claim(&mut shard, i));
                }
            }
        }
        claims
    }

    /// Moves the hand on: takes second chances away, removes up to `wanted` frames that are clean or
    /// may owe their changes (up to so many bytes of them), and claims up to `room` other dirty ones.
    fn sweep_shard(
        &self,
        shard: &mut Shard,
        (wanted, owed_max): (usize, usize),
        room: usize,
        claims: &mut Vec<Claim>,
    ) -> Vec<Slot> {
        let mut victims = Vec::new();
        let claims_max = claims.len() + room;
        let steps = (2 * shard.slots.len()).min(CLOCK_STEPS_MAX);
        for _ in 0..steps {
            if shard.hand >= shard.slots.len() {
                shard.hand = 0;
            }
            if shard.slots.is_empty() {
                break;
            }
            let i = shard.hand;
            shard.hand += 1;
            let slot = &mut shard.slots[i];
            if slot.meta.referenced.swap(false, Relaxed) {
                continue;
            }
            if !slot.is_unused() {
                continue;
            }
            if self.may_go(shard, i, owed_max) {
                victims.push(shard.remove_at(i));
                // Another frame stands here now.
                shard.hand = i;
                if victims.len() >= wanted {
                    break;
                }
            } else if claims.len() < claims_max {
                claims.extend(claim(shard, i));
            }
        }
        victims
    }
}
