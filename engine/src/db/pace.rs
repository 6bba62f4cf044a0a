//! Checkpoints that cost nothing, so that a restart finds little to redo.
//!
//! Waiting with a checkpoint saves page writes when pages are changed again that are dirty already:
//! then fewer and fewer become dirty for each byte of log. While as many do as at first, as in one
//! large transaction that goes through its pages in order, or while most of them are new, the pages
//! must be written anyway, and a checkpoint may as well be made now. If others are dirty as well, a
//! checkpoint would write those too early: then it waits until they leave the redo window.

/// So much log is needed before a judgement, and twice as much before a checkpoint.
const HALF_BYTES: u64 = 16 << 20;
/// Pages made dirty per byte of log, in the second half against the first, that count as equal.
const EQUAL_PERCENT: u128 = 90;
/// Percent of the pages that a checkpoint would write, from which on the others do not count.
const MOST_PERCENT: u128 = 75;

/// What has happened since the last checkpoint; `Default`: there was none in this process.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pace {
    begin: Point,
    middle: Option<Point>,
}

/// The log's end, the pages that a checkpoint would write, and how many have ever become dirty or been made.
/// A page that was written because its changes were old does not count again.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Point {
    pub log_end: u64,
    pub dirty: u64,
    pub dirtied: u64,
    pub made: u64,
}

impl Point {
    /// Log and pages since then.
    fn since(self, then: Point) -> (u128, u128) {
        let pages = self.dirtied.saturating_sub(then.dirtied);
        (u128::from(self.log_end.saturating_sub(then.log_end)), u128::from(pages))
    }
}

impl Pace {
    pub fn begin(at: Point) -> Pace {
        Pace { begin: at, middle: None }
    }

    /// Would a checkpoint now write no more pages than one later? To be asked often. `gathers`: pages
    /// wait in memory until they are worth an image; those that are not new are written too early.
    pub fn is_free(&mut self, now: Point, gathers: bool) -> bool {
        if self.begin.log_end == 0 {
            self.begin = now;
        }
        let (log, pages) = now.since(self.begin);
        if log < u128::from(HALF_BYTES) {
            return false;
        }
        let is_most = |pages: u128| pages * 100 >= u128::from(now.dirty) * MOST_PERCENT;
        let made = u128::from(now.made.saturating_sub(self.begin.made));
        if log >= 2 * u128::from(HALF_BYTES) && is_most(made) {
            return true;
        }
        if gathers {
            return false;
        }
        let middle = *self.middle.get_or_insert(now);
        let (log_first, pages_first) = middle.since(self.begin);
        let (log_second, pages_second) = (log - log_first, pages.saturating_sub(pages_first));
        log_second >= u128::from(HALF_BYTES)
            && is_most(pages)
            && pages_second * log_first * 100 >= pages_first * log_second * EQUAL_PERCENT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// MiB of log until a checkpoint is free, at most `max`, when `dirtied` says how many pages
    /// are dirty after so much log.
    fn free_at(max: u64, dirtied: impl Fn(u64) -> u64, made_per_mib: u64) -> Option<u64> {
        let at = |mib: u64| Point {
            log_end: 1000 + (mib << 20),
            dirty: dirtied(mib),
            dirtied: 7 + dirtied(mib),
            made: 9 + mib * made_per_mib,
        };
        let mut pace = Pace::begin(at(0));
        (0..=max).find(|&mib| pace.is_free(at(mib), false))
    }

    #[test]
    fn a_checkpoint_is_free_while_pages_are_changed_in_order() {
        assert_eq!(free_at(1000, |mib| mib * 60, 0), Some(32));
        assert_eq!(free_at(1000, |_| 0, 0), Some(32));
        // New pages, and for a while some others.
        assert_eq!(free_at(1000, |mib| mib * 60 + 200.min(20 * mib), 60), Some(32));
    }

    #[test]
    fn no_checkpoint_is_free_while_pages_gather_changes_unless_most_are_new() {
        let at = |mib: u64, made: u64| Point {
            log_end: 1 + (mib << 20),
            dirty: mib * 60,
            dirtied: mib * 60,
            made,
        };
        let mut pace = Pace::begin(at(0, 0));
        assert!(!(0..1000).any(|mib| pace.is_free(at(mib, 0), true)));
        let mut pace = Pace::begin(at(0, 0));
        assert_eq!((0..1000).find(|&mib| pace.is_free(at(mib, mib * 50), true)), Some(32));
    }

    #[test]
    fn no_checkpoint_is_free_while_many_others_are_dirty() {
        let free_beside = |others: u64, made: u64| {
            let at = |mib: u64| Point {
                log_end: 1 + (mib << 20),
                dirty: others + mib * 60,
                dirtied: others + mib * 60,
                made: mib * made,
            };
            let mut pace = Pace::begin(at(0));
            (0..200).find(|&mib| pace.is_free(at(mib), false))
        };
        for made in [0, 60] {
            assert_eq!(free_beside(600, made), Some(32));
            // When they are a quarter of all.
            assert_eq!(free_beside(60 * 33, made), Some(99));
            assert_eq!(free_beside(60_000, made), None);
        }
    }

    #[test]
    fn a_checkpoint_waits_while_dirty_pages_are_changed_again() {
        assert_eq!(free_at(1000, |mib| (mib * 300).min(2000), 1), None);
        assert_eq!(
            free_at(1000, |mib| (1e4 * (1.0 - (-(mib as f64) / 30.0).exp())) as u64, 1),
            None
        );
    }
}
