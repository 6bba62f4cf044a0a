//! When frames gather their changes, how much memory they may take, and which frames may go without
//! an image.
//!
//! A page image costs about 10 kB of writes, a change a few hundred bytes of memory. So an image is
//! written when it holds enough changes to be worth it, or when the redo window asks for the oldest of
//! them ([`Pool::want_images_before`]). When memory for changes runs out, a page with few of them
//! leaves a delta in the log in place of them ([`super::delta`]), and else an image: the fuller the
//! memory, the fewer bytes are few. The changes of all pages take about three fifths of the pool at most,
//! and frames get what is left ([`Pool::capacity`]).

use super::frame::WriteGuard;
use super::pool::{Pool, FRAMES_MIN};
use crate::base::{Lsn, TreeId, PAGE_BYTES};
use crate::os::SIMULATED;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

/// So many bytes of changes of one page are worth its image. The simulator's changes are long.
const WORTH_BYTES: usize = if SIMULATED { PAGE_BYTES } else { PAGE_BYTES / 4 };
/// Percent of the pool that changes may take, and of that share from which on it gets scarce. Where it is
/// scarce pages leave deltas, which the simulator is to see often.
const SHARE_PERCENT: usize = if SIMULATED { 40 } else { 60 };
const SCARCE_PERCENT: usize = if SIMULATED { 10 } else { 90 };
/// By this part of their share frames may exceed it with deltas, which free memory: they need whole lists.
const EXCESS_SHARE: usize = 8;
/// Frames gather while the store has at least this share of the pages that memory could hold.
const FULL_PERCENT: u64 = 95;

impl Pool {
    /// Frames that memory has room for, beside the changes.
    pub(super) fn capacity(&self) -> usize {
        let changes = self.tally.change_bytes.load(Relaxed) / PAGE_BYTES;
        self.capacity_frames.load(Relaxed).saturating_sub(changes).max(FRAMES_MIN)
    }

    pub(super) fn budget_bytes(&self) -> usize {
        self.capacity_frames.load(Relaxed) * PAGE_BYTES / 100 * SHARE_PERCENT
    }

    /// Most bytes of changes that a frame gathers now.
    pub(super) fn gathered_bytes_max(&self) -> usize {
        let budget = self.budget_bytes();
        let max = budget + usize::from(self.has_deltas()) * (budget / EXCESS_SHARE);
        let is_open = self.gathers() && self.tally.change_bytes.load(Relaxed) < max;
        usize::from(is_open) * WORTH_BYTES
    }

    /// Most bytes of changes with which a frame goes without an image.
    pub(super) fn owed_bytes_max(&self) -> usize {
        let (budget, used) = (self.budget_bytes(), self.tally.change_bytes.load(Relaxed));
        let scarce = budget / 100 * SCARCE_PERCENT;
        match used <= scarce {
            true => WORTH_BYTES,
            false => WORTH_BYTES * budget.saturating_sub(used) / (budget - scarce),
        }
    }

    /// Whether frames gather their changes, because memory holds a part of the pages only.
    pub fn gathers(&self) -> bool {
        self.gathers.load(Relaxed)
    }

    /// Pages of trees below `tree` owe nothing but what recovery found: one whose image cannot be read
    /// is lost with what it owes, and without them the engine cannot go on.
    pub fn set_first_owing_tree(&self, tree: TreeId) {
        self.first_owing_tree.store(tree.0, SeqCst);
    }

    /// Looks whether changes are to be gathered from now on.
    pub fn refresh_gathers(&self) {
        let in_memory = self.capacity_frames.load(Relaxed) as u64 * FULL_PERCENT / 100;
        self.gathers.store(self.store.pages() > in_memory, SeqCst);
    }

    /// The frame has this change now, whose record is in the log with `lsn`. `creates`: the change
    /// makes the page from nothing.
    pub fn gather(&self, guard: &WriteGuard, lsn: Lsn, change: &[u8], creates: bool) {
        let may_owe = guard.0.meta.tree().0 >= self.first_owing_tree.load(Relaxed);
        let bytes_max = if may_owe { self.gathered_bytes_max() } else { 0 };
        guard.0.meta.gathered.lock().push(lsn, change, creates, bytes_max);
    }
}
