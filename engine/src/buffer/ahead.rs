//! Reading ahead. A scan that reads its leaves from the store would wait for each of them. So it enters
//! frames for the leaves that follow, by the parent that it has at hand, and threads of the background
//! fill them meanwhile: leaves need not lie side by side in the file, as they must for InnoDB's linear
//! read-ahead.
//!
//! A frame is entered while its parent is latched, which is when a page cannot be freed; a thread that
//! frees it later finds the frame ([`super::Pool::free`]). It is filled under its own latch by the
//! thread that comes first, be it one of the background or the scan: so a page that is asked for is
//! never waited for in a queue.

use super::awaited::Waker;
use super::frame::{Content, WriteGuard};
use super::passing::Passing;
use super::pool::Pool;
use crate::base::{PageId, TreeId};
use crate::store::Stretch;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;

/// So many pages of a scan are awaited at most, and as a share of the capacity.
const AHEAD_PAGES_MAX: usize = 16;
const AHEAD_SHARE: usize = 8;
/// Pages that a scan must have loaded before others are read ahead of it: a short one wants no more.
const LOADED_MIN: usize = 4;
/// Pages that one read brings at most.
const RUN_PAGES_MAX: usize = 8;
/// Pages that all scans await together at most.
const QUEUE_PAGES_MAX: usize = 128;

impl Pool {
    /// Says that threads call [`Pool::read_step`], and how to wake them. The first call decides.
    pub fn set_read_waker(&self, wake: Waker) {
        self.awaited.waker.get_or_init(|| wake);
    }

    /// A scan stands before a page; `coming(n)` is the nth after it in the scan's direction. The caller
    /// holds the latch of their parent.
    pub fn read_ahead(&self, scan: &mut Passing, coming: impl Fn(usize) -> Option<PageId>) {
        let Some(wake) = self.awaited.waker.get() else { return };
        let most = AHEAD_PAGES_MAX.min(self.capacity() / AHEAD_SHARE);
        if scan.loaded() < LOADED_MIN || most == 0 {
            return;
        }
        let is_reach = |n: &usize| scan.reach().is_some_and(|page| coming(*n) == Some(page));
        let reach = (1..=most).rev().find(is_reach).unwrap_or(0);
        if reach > most / 2 {
            return;
        }
        if reach == 0 {
            scan.awaits_nothing();
        }
        let mut any = false;
        for page in (reach + 1..=most).map_while(coming) {
            let Some(entered) = self.enter_awaited(page) else { break };
            scan.reaches(page, entered);
            any |= entered;
        }
        if any {
            wake();
        }
    }

    /// Whether a frame was entered: it has one already otherwise. None: there is no memory to spare,
    /// or the readers are behind.
    fn enter_awaited(&self, page: PageId) -> Option<bool> {
        if page == PageId::ZERO || self.table.shard(page).get(page).is_some() {
            return Some(false);
        }
        if self.awaited.pages.lock().len() >= QUEUE_PAGES_MAX {
            return None;
        }
        let Some(guard) = self.enter(page, TreeId::default(), self.take_spare()?) else {
            return Some(false);
        };
        guard.0.meta.referenced.store(false, Relaxed);
        drop(guard);
        self.awaited.pages.lock().push_back(page);
        Some(true)
    }

    /// Fills the next awaited frames, of pages that lie one after the other in the file, or of one page.
    /// Answers whether there was anything to do.
    pub fn read_step(&self) -> bool {
        Stretch::lent(|stretch| {
            let run = self.next_run(stretch);
            let mut shared = (run.len() > 1).then_some(stretch);
            if let Some(stretch) = shared.as_deref_mut() {
                self.store.load_stretch(stretch);
            }
            for &page in &run {
                self.fill_if_awaited(page, shared.as_deref_mut());
            }
            !run.is_empty()
        })
    }

    /// Takes pages from the queue, and plans the stretch that they are in.
    fn next_run(&self, stretch: &mut Stretch) -> Vec<PageId> {
        loop {
            let next: Vec<PageId> =
                self.awaited.pages.lock().iter().take(RUN_PAGES_MAX).copied().collect();
            let run = match next.len() {
                0 => return next,
                _ => self.store.plan_stretch(&next, stretch).max(1),
            };
            let mut pages = self.awaited.pages.lock();
            // Another reader may have been faster.
            if pages.iter().take(run).eq(&next[..run]) {
                return pages.drain(..run).collect();
            }
        }
    }

    /// Fills the frame if it is still there and nobody has done it yet. A page that cannot be read goes
    /// without a word: the scan tells of it when it comes to it.
    fn fill_if_awaited(&self, page: PageId, stretch: Option<&mut Stretch>) {
        let latch = self.table.shard(page).get(page).map(|slot| Arc::clone(&slot.latch));
        let Some(guard) = latch.map(|latch| WriteGuard(latch.write_arc())) else { return };
        let is_awaited = guard.0.content == Content::Awaited;
        if is_awaited && self.fill_or_drop(guard, stretch).is_ok() {
            self.counters.read_ahead.fetch_add(1, Relaxed);
        }
    }
}
