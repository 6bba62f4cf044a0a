//! Pages leave the redo window: they are written as they leave it, at the pace of [`WindowPlan`], so that a checkpoint
//! finds little to write.

use crate::base::{Lsn, Result};
use crate::db::engine::Engine;
use crate::db::window::{Leaving, Mark, WindowPlan, SLICES, SLICES_OF_WINDOW};
use crate::os::SIMULATED;

/// The window is this share of the log's capacity.
const WINDOW_PERCENT: u64 = 85;
/// So many pages leave at a time, or all whose redo begins in so much log.
const STEP_PAGES: usize = 64;
const STEP_BYTES: u64 = if SIMULATED { 4 << 10 } else { 1 << 20 };

impl Engine {
    pub(super) fn window_begin(&self) -> Lsn {
        self.redo_point(self.window_bytes())
    }

    fn window_bytes(&self) -> u64 {
        self.log_capacity() / 100 * WINDOW_PERCENT
    }

    /// Writes pages that leave the window. Answers whether more are to leave now.
    pub(super) fn window_step(&self) -> Result<bool> {
        let mut leaving = std::mem::take(&mut *self.checkpoints.leaving.lock());
        let due = self.pages_due(&mut leaving);
        let is_done = match self.first_to_stay(&leaving, due) {
            None => true,
            Some(lsn) => {
                // Deltas would fill a full disk further.
                let is_done = match self.is_short_of_room() {
                    true => self.write_images_before(lsn, STEP_PAGES)?,
                    false => self.renew_before(lsn, STEP_PAGES)?,
                };
                if is_done {
                    (leaving.pages, leaving.before) = (due, lsn);
                }
                is_done
            }
        };
        *self.checkpoints.leaving.lock() = leaving;
        Ok(!is_done)
    }

    /// The pages that are to have left by the plan, after it was made anew if it was over.
    fn pages_due(&self, leaving: &mut Leaving) -> u64 {
        if let Some((plan, (place, lsn))) = &leaving.plan {
            let logged_bytes = self.redo_bytes_since(*place, *lsn);
            if !plan.is_over(logged_bytes) {
                return plan.pages_due(logged_bytes);
            }
        }
        let log_end = (self.wal.end_place(), self.wal.end());
        (leaving.plan, leaving.pages) = (Some((self.plan(leaving.before), log_end)), 0);
        0
    }

    /// `left`: the redo of pages began there or later.
    fn plan(&self, left: Lsn) -> WindowPlan {
        let slice_bytes = self.window_bytes() / SLICES_OF_WINDOW;
        let ahead = |slices| self.redo_point(self.window_bytes() - slices * slice_bytes).max(left);
        let positions: Vec<Lsn> = (0..=SLICES as u64).map(ahead).collect();
        let counts = self.pool.count_before(&positions);
        let mark = |n: usize| Mark { lsn: positions[n], pages: counts[n] };
        WindowPlan::new(std::array::from_fn(mark), slice_bytes)
    }

    /// The position before which the redo of no page is to begin, if it is worth a step.
    fn first_to_stay(&self, leaving: &Leaving, due: u64) -> Option<Lsn> {
        let begin = self.window_begin();
        let is_late = begin.0 >= leaving.before.0 + STEP_BYTES;
        let is_due = due >= leaving.pages + STEP_PAGES as u64;
        let planned = leaving.plan.as_ref().map_or(Lsn::ZERO, |(plan, _)| plan.position_of(due));
        (is_late || is_due).then_some(begin.max(planned))
    }
}
