//! The pace at which pages leave the redo window, so that their images are no bursts.
//!
//! The window bounds the log that a restart reads: a page whose redo begins before it is written. Pages that
//! became dirty at about the same time would reach its begin at about the same time, be written, and become
//! dirty together again. So pages leave early where many come close together: oldest first, at the lowest
//! rate at which none is late. With `p(n)` pages that will be late after `n` more bytes of log, that rate is the
//! highest `p(n) / n`. Each turn of the window spreads them further, and pages that are spread evenly leave
//! at the window's begin, as they would without this. The rate is the intensity of Yao, Demers, Shenker: A
//! Scheduling Model for Reduced CPU Energy, FOCS 1995, with pages for work and log for time.
//!
//! Only half of the window is looked ahead, so that pages keep gathering changes in the other half.

use crate::base::Lsn;
use crate::wal::Place;

/// Pieces into which the half that is looked ahead is divided.
pub(crate) const SLICES: usize = 64;
/// Of them the window has so many.
pub(crate) const SLICES_OF_WINDOW: u64 = 2 * SLICES as u64;
/// A plan holds for so many. It needs a count of all pages.
const SLICES_OF_PLAN: u64 = 4;

/// Pages whose redo begins before a position.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Mark {
    pub lsn: Lsn,
    pub pages: u64,
}

/// Which pages are to leave as the log grows.
#[derive(Clone, Debug)]
pub(crate) struct WindowPlan {
    /// The first one is the window's begin, and each of the others will be it after one slice more of log; but
    /// none is where pages have left already.
    marks: [Mark; SLICES + 1],
    slice_bytes: u64,
    /// So many pages leave in the log of so many slices.
    rate: (u64, u64),
}

impl WindowPlan {
    pub fn new(marks: [Mark; SLICES + 1], slice_bytes: u64) -> WindowPlan {
        let rates = marks.iter().map(|mark| mark.pages).zip(0..).skip(1);
        let is_less = |a: (u64, u64), b: (u64, u64)| a.0 * b.1 < b.0 * a.1;
        let rate = rates.fold((0, 1), |best, rate| if is_less(best, rate) { rate } else { best });
        WindowPlan { marks, slice_bytes: slice_bytes.max(1), rate }
    }

    /// Whether so much was logged since that another one is to be made.
    pub fn is_over(&self, logged_bytes: u64) -> bool {
        logged_bytes >= SLICES_OF_PLAN * self.slice_bytes
    }

    /// The pages that are to have left after so much log.
    pub fn pages_due(&self, logged_bytes: u64) -> u64 {
        let (pages, slices) = self.rate;
        let log = u128::from(slices) * u128::from(self.slice_bytes);
        let due = u128::from(pages) * u128::from(logged_bytes) / log;
        u64::try_from(due).unwrap_or(u64::MAX)
    }

    /// The position before which about so many pages' redo begins, as far ahead as this plan looks.
    pub fn position_of(&self, pages: u64) -> Lsn {
        let [mut from, ..] = self.marks;
        for to in self.marks {
            if to.pages >= pages {
                let (all, wanted) = (to.pages - from.pages, pages.saturating_sub(from.pages));
                let log = to.lsn.0.saturating_sub(from.lsn.0);
                let part = u128::from(log) * u128::from(wanted) / u128::from(all.max(1));
                return Lsn(from.lsn.0 + u64::try_from(part).unwrap_or(log).min(log));
            }
            from = to;
        }
        from.lsn
    }
}

/// How far the pages are that leave the window.
#[derive(Default)]
pub(crate) struct Leaving {
    /// With the place and the position at which the log ended when it was made.
    pub plan: Option<(WindowPlan, (Place, Lsn))>,
    /// Pages of the plan that have left.
    pub pages: u64,
    /// The redo of all pages began here, or later.
    pub before: Lsn,
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    const WINDOW: u64 = 32_000;
    const SLICE: u64 = WINDOW / SLICES_OF_WINDOW;
    const PAGES: u64 = 4000;

    /// Pages by the position at which their redo begins. One that leaves is dirty again after 1 to 800 bytes.
    struct Model {
        dirty: BTreeSet<(u64, u64)>,
        end: u64,
        random: u64,
    }

    impl Model {
        fn begin(&self) -> u64 {
            self.end.saturating_sub(WINDOW)
        }

        fn plan(&self, left: u64) -> WindowPlan {
            let mark = |n: usize| {
                let lsn = left.max(self.begin() + n as u64 * SLICE);
                Mark { lsn: Lsn(lsn), pages: self.dirty.range(..(lsn, 0)).count() as u64 }
            };
            WindowPlan::new(std::array::from_fn(mark), SLICE)
        }

        fn leave_before(&mut self, lsn: u64) -> u64 {
            let old: Vec<(u64, u64)> = self.dirty.range(..(lsn, 0)).copied().collect();
            for &(first, page) in &old {
                self.dirty.remove(&(first, page));
                self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                self.dirty.insert((self.end + 1 + (self.random >> 33) % 800, page));
            }
            old.len() as u64
        }

        /// Pages that left in each step of 100 bytes of log, for so many windows.
        fn run(&mut self, windows: u64, is_planned: bool) -> Vec<u64> {
            let (mut plan, mut made_at, mut left) = (self.plan(0), self.end, 0);
            let steps = 0..windows * WINDOW / 100;
            let step = |_| {
                self.end += 100;
                if plan.is_over(self.end - made_at) {
                    (plan, made_at) = (self.plan(left), self.end);
                }
                let planned = plan.position_of(plan.pages_due(self.end - made_at)).0;
                left = if is_planned { self.begin().max(planned) } else { self.begin() };
                self.leave_before(left)
            };
            steps.map(step).collect()
        }
    }

    fn all_at(first: impl Fn(u64) -> u64) -> Model {
        let dirty = (0..PAGES).map(|page| (first(page), page)).collect();
        Model { dirty, end: WINDOW, random: 1 }
    }

    #[test]
    fn pages_that_came_together_are_spread_and_none_is_late() {
        let mut model = all_at(|page| WINDOW - 800 + page / 5);
        let burst = all_at(|page| WINDOW - 800 + page / 5).run(6, false);
        assert!(*burst.iter().max().unwrap() > 20 * PAGES * 100 / WINDOW);
        let first: u64 = model.run(1, true).iter().sum();
        assert!(first <= PAGES, "{first}");
        model.run(3, true);
        let steady = model.run(2, true);
        let (most, all) = (steady.iter().max().unwrap(), steady.iter().sum::<u64>());
        assert!(*most <= 3 * PAGES * 100 / WINDOW, "{most}");
        // Without the plan each page leaves once in a window and the bytes until it is dirty again.
        assert!(all * 100 <= 2 * PAGES * 112, "{all} of {}", 2 * PAGES);
    }

    #[test]
    fn the_first_turn_takes_half_a_window() {
        let mut model = all_at(|page| WINDOW - 800 + page / 5);
        let mut steps = model.run(1, true);
        steps.sort_unstable();
        // The first one takes what one plan has seen come.
        let [.., second, first] = steps[..] else { panic!("few steps") };
        assert!(first <= 10 * PAGES * 100 / WINDOW, "{first}");
        assert!(second <= 4 * PAGES * 100 / WINDOW, "{second}");
    }

    #[test]
    fn pages_that_are_spread_leave_where_the_window_begins() {
        let model = all_at(|page| page * WINDOW / PAGES);
        let plan = model.plan(0);
        assert_eq!(plan.pages_due(0), 0);
        assert!(plan.pages_due(SLICE).abs_diff(SLICE * PAGES / WINDOW) <= 1);
        for slices in 0..SLICES as u64 {
            let due = plan.pages_due(slices * SLICE);
            let position = plan.position_of(due).0;
            // The first slice has one page more than most.
            assert!(
                position.abs_diff(slices * SLICE) <= 2 + slices * SLICE / 31,
                "{slices}: {position}"
            );
        }
    }

    #[test]
    fn nothing_and_too_much_are_answered() {
        let none = WindowPlan::new([Mark { lsn: Lsn(7), pages: 0 }; SLICES + 1], 0);
        assert_eq!((none.pages_due(u64::MAX), none.position_of(0)), (0, Lsn(7)));
        assert_eq!(none.position_of(u64::MAX), Lsn(7));
        let many = WindowPlan::new([Mark { lsn: Lsn(u64::MAX), pages: 1 << 40 }; SLICES + 1], 1);
        assert_eq!(many.pages_due(u64::MAX), u64::MAX);
        assert_eq!(many.position_of(1), Lsn(u64::MAX));
    }
}
