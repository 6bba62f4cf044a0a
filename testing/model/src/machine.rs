//! Pool, owed changes, redo window and store together: what becomes of each change of a page.
//!
//! 1. A change is pending until an image or a delta of its page holds it; the oldest pending change
//!    is the redo point.
//! 2. An image or a delta that is written holds all pending changes of its page.
//! 3. A page that is not in memory is read before its image can be written.

use crate::clock::Clock;
use crate::sizes::{CHANGE_HEAD_BYTES, FRAME_BYTES, OWED_PAGE_BYTES, RECORD_BYTES};
use crate::store::{Kind, Store, StorePolicy};
use crate::workload::{Visit, Workload};
use std::collections::{BinaryHeap, VecDeque};

/// Which page is written when the memory for owed changes is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Victim {
    /// The one with the most owed bytes among those that have a frame.
    MostInMemory,
    /// The one with the most owed bytes.
    Most,
    /// The one whose first change is the oldest.
    Oldest,
    /// As the engine does it: one that is evicted, if its changes are worth an image. Beyond so many
    /// percent of the memory fewer and fewer are.
    Evicted { scarce: u64 },
}

#[derive(Clone, Copy, Debug)]
pub struct OwedPolicy {
    /// Percent of the pool's memory for owed changes.
    pub share: u64,
    pub victim: Victim,
    /// A page that is evicted is written if its first change is older than this share of the window,
    /// in percent: it need not be read for that later. 100: never.
    pub early: u64,
    /// Cumulative deltas instead of images, up to so many percent of the size at which an image is
    /// cheaper. 0: none.
    pub deltas: u64,
}

#[derive(Clone, Copy, Debug)]
pub enum PagePolicy {
    /// A dirty frame is written before it is evicted; everything at a checkpoint.
    Today,
    Owed(OwedPolicy),
}

#[derive(Clone, Copy, Debug)]
pub struct Policy {
    pub pool_bytes: u64,
    /// Log between the redo point and the end: 40 % of the capacity today.
    pub window_bytes: u64,
    pub pages: PagePolicy,
    pub store: StorePolicy,
}

#[derive(Clone, Copy)]
struct Page {
    /// Pending changes; none: `first` is `NEVER`.
    changes: u32,
    bytes: u32,
    first: u64,
    /// Bytes of changes in the store's delta.
    delta: u32,
}

const NEVER: u64 = u64::MAX;
/// As in the engine (`buffer/gather.rs`).
const WORTH_BYTES: u64 = 16_384 / 4;
const CLEAN: Page = Page { changes: 0, bytes: 0, first: NEVER, delta: 0 };
/// Shares of the engine: frames kept free, frames that may be dirty.
const RESERVE_SHARE: usize = 16;
const DIRTY_PERCENT_MAX: usize = 75;
/// The redo point moves with a checkpoint of the map, so often in a window.
const CHECKPOINTS_PER_WINDOW: u64 = 16;

/// Totals since the start.
#[derive(Clone, Copy, Debug, Default)]
pub struct Totals {
    pub transactions: u64,
    pub changes: u64,
    pub log_bytes: u64,
    pub reads: u64,
    /// Of deltas, beside that of the image.
    pub delta_reads: u64,
    /// Reads of pages to write them.
    pub writer_reads: u64,
    /// Images, or deltas, by cause: evicted, asked for by the window, memory full, or worth it.
    pub evicted: u64,
    pub by_window: u64,
    pub by_memory: u64,
}

/// Highest values since [`Machine::forget_peaks`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Peaks {
    pub owed_changes: u64,
    pub owed_bytes: u64,
    pub window_bytes: u64,
    /// Used bytes of the file, of the bytes of all images.
    pub used_percent: u64,
}

pub struct Machine {
    policy: Policy,
    clock: Clock,
    pages: Vec<Page>,
    pub store: Store,
    lsn: u64,
    /// As the last checkpoint has it.
    redo_point: u64,
    checkpoint_at: u64,
    dirty: usize,
    owed_changes: u64,
    owed_bytes: u64,
    oldest: VecDeque<(u64, u32)>,
    /// Owed bytes of pages with a frame, and without; entries may be out of date.
    most_framed: BinaryHeap<(u32, u32)>,
    most_evicted: BinaryHeap<(u32, u32)>,
    pub totals: Totals,
    pub peaks: Peaks,
}

impl Machine {
    /// A machine whose data was loaded in order, and is in the store.
    pub fn new(policy: Policy, workload: &Workload) -> Machine {
        let frame_bytes = match policy.pages {
            PagePolicy::Today => policy.pool_bytes,
            PagePolicy::Owed(owed) => policy.pool_bytes * (100 - owed.share) / 100,
        };
        let frames = (frame_bytes / FRAME_BYTES) as usize;
        let mut store = Store::new(policy.store);
        for page in 0..workload.pages() {
            store.write(page, Kind::Image, workload.image_bytes(page));
        }
        store.checkpoint();
        Machine {
            policy,
            clock: Clock::new((frames - frames / RESERVE_SHARE).max(1)),
            pages: vec![CLEAN; workload.pages() as usize],
            store,
            lsn: 0,
            redo_point: 0,
            checkpoint_at: 0,
            dirty: 0,
            owed_changes: 0,
            owed_bytes: 0,
            oldest: VecDeque::new(),
            most_framed: BinaryHeap::new(),
            most_evicted: BinaryHeap::new(),
            totals: Totals::default(),
            peaks: Peaks::default(),
        }
    }

    pub fn run_transaction(&mut self, workload: &mut Workload) {
        let mut visits = workload.take_buffer();
        let log_bytes = workload.next(&mut visits);
        for &visit in &visits {
            self.visit(visit, workload);
        }
        workload.give_buffer(visits);
        self.lsn += log_bytes;
        self.totals.log_bytes += log_bytes;
        self.totals.transactions += 1;
        match self.policy.pages {
            PagePolicy::Today => self.keep_up_today(workload),
            PagePolicy::Owed(owed) => self.keep_up_owed(owed, workload),
        }
        self.note_peaks();
    }

    fn visit(&mut self, visit: Visit, workload: &Workload) {
        let page = visit.page;
        if self.pages.len() <= page as usize {
            self.pages.resize(page as usize + 1, CLEAN);
        }
        if !self.clock.touch(page) {
            if self.store.has(page, Kind::Image) {
                self.totals.reads += 1;
                self.totals.delta_reads += u64::from(self.pages[page as usize].delta > 0);
            }
            while self.clock.is_full() {
                self.evict(workload);
            }
            self.clock.insert(page);
            let Page { bytes, first, .. } = self.pages[page as usize];
            if first != NEVER {
                self.dirty += 1;
                self.note_most(page, bytes);
            }
        }
        if visit.change_bytes > 0 {
            self.change(page, visit.change_bytes);
        }
    }

    fn change(&mut self, page: u32, bytes: u32) {
        let changed = &mut self.pages[page as usize];
        if changed.first == NEVER {
            changed.first = self.lsn;
            self.oldest.push_back((self.lsn, page));
            self.dirty += 1;
            self.owed_bytes += OWED_PAGE_BYTES;
        }
        changed.changes += 1;
        changed.bytes += bytes + CHANGE_HEAD_BYTES;
        self.owed_bytes += u64::from(bytes + CHANGE_HEAD_BYTES);
        self.owed_changes += 1;
        self.totals.changes += 1;
        let bytes = changed.bytes;
        self.note_most(page, bytes);
    }

    fn note_most(&mut self, page: u32, bytes: u32) {
        let PagePolicy::Owed(OwedPolicy { victim, .. }) = self.policy.pages else { return };
        if !matches!(victim, Victim::Most | Victim::MostInMemory) {
            return;
        }
        if self.most_framed.len() > 4 * self.pages.len() + 1024 {
            let (pages, clock) = (&self.pages, &self.clock);
            let is_so = |&(bytes, page): &(u32, u32)| pages[page as usize].bytes == bytes;
            self.most_framed.retain(|entry| is_so(entry) && clock.holds(entry.1));
            self.most_evicted.retain(|entry| is_so(entry) && !clock.holds(entry.1));
        }
        self.most_framed.push((bytes, page));
    }

    /// Frees a frame, or writes a page that stands in the way.
    fn evict(&mut self, workload: &Workload) {
        let page = self.clock.candidate();
        let Page { bytes, first, .. } = self.pages[page as usize];
        if first == NEVER {
            self.clock.remove(page);
            return;
        }
        let PagePolicy::Owed(owed) = self.policy.pages else {
            self.totals.evicted += 1;
            self.write_image(page, workload);
            return;
        };
        let age = self.lsn - first;
        // An image is worth it when the changes are as long; and when it is due soon anyway.
        let is_long = bytes >= self.owed_bytes_max(owed).unwrap_or(workload.image_bytes(page));
        let is_due = owed.early < 100 && age > self.policy.window_bytes / 100 * owed.early;
        if is_long || is_due {
            self.totals.evicted += 1;
            self.write_owed(page, if is_long { 0 } else { owed.deltas }, workload);
        } else {
            self.dirty -= 1;
            self.most_evicted.push((bytes, page));
        }
        self.clock.remove(page);
    }

    /// Bytes of changes that are worth an image, if memory decides that.
    fn owed_bytes_max(&self, owed: OwedPolicy) -> Option<u32> {
        let Victim::Evicted { scarce } = owed.victim else { return None };
        let budget = self.policy.pool_bytes / 100 * owed.share;
        let scarce = budget / 100 * scarce;
        let left = budget.saturating_sub(self.owed_bytes.max(scarce));
        Some((WORTH_BYTES * left / (budget - scarce)) as u32)
    }

    fn write_image(&mut self, page: u32, workload: &Workload) {
        if self.clock.holds(page) {
            self.dirty -= 1;
        } else if self.store.has(page, Kind::Image) {
            self.totals.writer_reads += 1;
        }
        self.settle(page);
        if std::mem::take(&mut self.pages[page as usize].delta) > 0 {
            self.store.forget(page, Kind::Delta);
        }
        self.store.write(page, Kind::Image, workload.image_bytes(page));
    }

    /// Nothing is pending for the page any more.
    fn settle(&mut self, page: u32) {
        let pending = &mut self.pages[page as usize];
        self.owed_changes -= u64::from(pending.changes);
        self.owed_bytes -= u64::from(pending.bytes) + OWED_PAGE_BYTES;
        (pending.changes, pending.bytes, pending.first) = (0, 0, NEVER);
    }

    /// Writes what is owed to the page: its image, or all changes since that.
    fn write_owed(&mut self, page: u32, deltas: u64, workload: &Workload) {
        let Page { bytes, delta, .. } = self.pages[page as usize];
        let image = workload.image_bytes(page);
        let together = delta + bytes;
        // Where an image and the growing deltas after it cost least by change, for deltas that grow
        // by as much each time.
        let longest = (2.0 * f64::from(image) * f64::from(bytes)).sqrt() * deltas as f64 / 100.0;
        if !self.store.has(page, Kind::Image) || f64::from(together) > longest {
            self.write_image(page, workload);
            return;
        }
        if self.clock.holds(page) {
            self.dirty -= 1;
        } else if delta > 0 {
            self.totals.writer_reads += 1;
        }
        self.settle(page);
        self.pages[page as usize].delta = together;
        self.store.write(page, Kind::Delta, together + RECORD_BYTES);
    }

    fn keep_up_today(&mut self, workload: &Workload) {
        while self.dirty * 100
            > self.policy.pool_bytes as usize / FRAME_BYTES as usize * DIRTY_PERCENT_MAX
        {
            let page = self.clock.candidate();
            if self.pages[page as usize].first != NEVER {
                self.totals.evicted += 1;
                self.write_image(page, workload);
            }
        }
        if self.lsn - self.checkpoint_at >= self.policy.window_bytes {
            while let Some(page) = self.take_oldest(self.lsn) {
                self.totals.by_window += 1;
                self.write_image(page, workload);
            }
            self.checkpoint();
        }
    }

    fn keep_up_owed(&mut self, owed: OwedPolicy, workload: &Workload) {
        let slice = self.policy.window_bytes / CHECKPOINTS_PER_WINDOW;
        let oldest = self.lsn.saturating_sub(self.policy.window_bytes - slice);
        while let Some(page) = self.take_oldest(oldest) {
            self.totals.by_window += 1;
            self.write_owed(page, owed.deltas, workload);
        }
        while self.owed_bytes > self.policy.pool_bytes / 100 * owed.share {
            let Some(page) = self.memory_victim(owed.victim) else { break };
            self.totals.by_memory += 1;
            self.write_owed(page, owed.deltas, workload);
        }
        if self.lsn - self.checkpoint_at >= slice {
            self.checkpoint();
        }
    }

    /// The page with the oldest pending change, if that is before `end`.
    fn take_oldest(&mut self, end: u64) -> Option<u32> {
        while let Some(&(first, page)) = self.oldest.front() {
            if self.pages[page as usize].first != first {
                self.oldest.pop_front();
            } else if first < end {
                return Some(page);
            } else {
                return None;
            }
        }
        None
    }

    fn memory_victim(&mut self, victim: Victim) -> Option<u32> {
        match victim {
            Victim::Oldest => return self.take_oldest(NEVER),
            Victim::Evicted { .. } => return None,
            Victim::Most | Victim::MostInMemory => {}
        }
        let framed = Self::top(&mut self.most_framed, &self.pages, |page| self.clock.holds(page));
        if let (Some((_, page)), Victim::MostInMemory) = (framed, victim) {
            return Some(page);
        }
        let evicted =
            Self::top(&mut self.most_evicted, &self.pages, |page| !self.clock.holds(page));
        framed.max(evicted).map(|(_, page)| page)
    }

    fn top(
        heap: &mut BinaryHeap<(u32, u32)>,
        pages: &[Page],
        is_there: impl Fn(u32) -> bool,
    ) -> Option<(u32, u32)> {
        while let Some(&(bytes, page)) = heap.peek() {
            if pages[page as usize].bytes == bytes && is_there(page) {
                return Some((bytes, page));
            }
            heap.pop();
        }
        None
    }

    fn checkpoint(&mut self) {
        self.take_oldest(0);
        self.redo_point = self.oldest.front().map_or(self.lsn, |&(first, _)| first);
        self.checkpoint_at = self.lsn;
        self.store.checkpoint();
    }

    fn note_peaks(&mut self) {
        let peaks = &mut self.peaks;
        peaks.owed_changes = peaks.owed_changes.max(self.owed_changes);
        peaks.owed_bytes = peaks.owed_bytes.max(self.owed_bytes);
        peaks.window_bytes = peaks.window_bytes.max(self.lsn - self.redo_point);
        let percent = self.store.used_bytes() * 100 / self.store.image_bytes().max(1);
        peaks.used_percent = peaks.used_percent.max(percent);
    }

    pub fn forget_peaks(&mut self) {
        self.peaks = Peaks::default();
    }
}

#[cfg(test)]
#[path = "machine_tests.rs"]
mod tests;
