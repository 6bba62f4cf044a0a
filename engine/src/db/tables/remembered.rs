//! How large a table is, which the optimizer asks at every statement: by its statistics and what has
//! changed since, else measured, and remembered as long as that cannot be far off.

use crate::base::PAGE_BYTES;
use crate::catalog::TableStatistics;
use crate::os::rank::Rank;
use crate::os::sync::{now_ns, Mutex, Ranked, RwLock};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::Arc;

/// This share of the rows may have been written since: fewer than an estimate is off anyway.
const CHANGED_SHARE: u64 = 64;
/// Trees change without any row: the purge removes what was deleted.
const REMEMBERED_NS_MAX: u64 = 1_000_000_000;
/// Statistics are due when this share of the rows, and so many more, have changed since the last ones.
const STATISTICS_SHARE: u64 = 10;
const STATISTICS_CHANGES_MIN: u64 = 16;

/// About how large a table is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableSize {
    pub rows: u64,
    /// Pages of the clustered index.
    pub clustered_pages: u64,
    /// Bytes of pages in memory, long values included: on disk they are compressed.
    pub data_bytes: u64,
    pub index_bytes: u64,
}

#[derive(Clone, Copy)]
struct Measured {
    size: TableSize,
    changes: u64,
    at_ns: u64,
}

/// The counters of a table at some time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mark {
    changes: u64,
    grown: i64,
}

impl Mark {
    /// So many rows went in, and nothing else happened.
    pub fn of_inserts(rows: u64) -> Mark {
        Mark { changes: rows, grown: rows as i64 }
    }
}

#[derive(Clone, Default)]
pub(crate) struct Known {
    pub statistics: Option<Arc<TableStatistics>>,
    /// When they were last taken, or could not be. None: not since the table was opened.
    mark: Option<Mark>,
    /// Grows with every refresh.
    pub version: u64,
}

pub(crate) struct Remembered {
    /// Rows that went in or out or changed keys since the table was opened.
    changes: AtomicU64,
    /// Rows that went in less those that went out; a rollback does not count.
    grown: AtomicI64,
    last: Mutex<Option<Measured>>,
    known: RwLock<Known>,
    /// When the background last took them on.
    taken_on_ns: AtomicU64,
}

impl Default for Remembered {
    fn default() -> Remembered {
        Remembered {
            changes: AtomicU64::new(0),
            grown: AtomicI64::new(0),
            last: Mutex::ranked(Rank::Estimate, None),
            known: RwLock::ranked(Rank::Estimate, Known::default()),
            taken_on_ns: AtomicU64::new(0),
        }
    }
}

impl Remembered {
    pub fn row_inserted(&self) {
        self.grown.fetch_add(1, Ordering::Relaxed);
        self.keys_changed();
    }

    pub fn row_deleted(&self) {
        self.grown.fetch_sub(1, Ordering::Relaxed);
        self.keys_changed();
    }

    pub fn keys_changed(&self) {
        self.changes.fetch_add(1, Ordering::Relaxed);
    }

    pub fn mark(&self) -> Mark {
        let changes = self.changes.load(Ordering::Relaxed);
        Mark { changes, grown: self.grown.load(Ordering::Relaxed) }
    }

    /// The mark with the rows of now.
    pub fn grown_since(&self, mark: Mark) -> Mark {
        Mark { grown: self.grown.load(Ordering::Relaxed), ..mark }
    }

    pub fn known(&self) -> Known {
        self.known.read().clone()
    }

    /// Takes over statistics that were begun at `mark`.
    pub fn learn(&self, statistics: Arc<TableStatistics>, mark: Mark) {
        let mut known = self.known.write();
        *known =
            Known { statistics: Some(statistics), mark: Some(mark), version: known.version + 1 };
    }

    /// They could not be taken: not again before much more has changed.
    pub fn give_up(&self, mark: Mark) {
        self.known.write().mark = Some(mark);
    }

    /// Whether the statistics are to be refreshed, which is so once in `interval_ns` at most.
    pub fn is_due(&self, now_ns: u64, interval_ns: u64) -> bool {
        let last_ns = self.taken_on_ns.load(Ordering::Relaxed);
        if last_ns != 0 && now_ns.saturating_sub(last_ns) < interval_ns {
            return false;
        }
        let changes = self.changes.load(Ordering::Relaxed);
        let known = self.known.read();
        let Some(mark) = known.mark else { return true };
        let rows = known.statistics.as_ref().map_or(0, |s| s.rows());
        changes.saturating_sub(mark.changes) > STATISTICS_CHANGES_MIN + rows / STATISTICS_SHARE
    }

    pub fn take_on(&self, now_ns: u64) {
        self.taken_on_ns.store(now_ns.max(1), Ordering::Relaxed);
    }

    pub fn get_or_measure(&self, measure: impl FnOnce() -> TableSize) -> TableSize {
        let (changes, now_ns) = (self.changes.load(Ordering::Relaxed), now_ns());
        let is_near = |last: &Measured| {
            changes.wrapping_sub(last.changes) <= last.size.rows / CHANGED_SHARE
                && now_ns.saturating_sub(last.at_ns) < REMEMBERED_NS_MAX
        };
        if let Some(last) = self.last.lock().filter(is_near) {
            return last.size;
        }
        let size = measure();
        *self.last.lock() = Some(Measured { size, changes, at_ns: now_ns });
        size
    }

    /// By the statistics. None: there are none, or of an empty table.
    pub fn by_statistics(&self) -> Option<TableSize> {
        let known = self.known.read();
        let statistics = known.statistics.as_ref().filter(|s| s.rows() > 0)?;
        let grown_before = known.mark.map_or(0, |mark| mark.grown);
        let grown = self.grown.load(Ordering::Relaxed).wrapping_sub(grown_before);
        let rows = statistics.rows().saturating_add_signed(grown);
        let share = rows as f64 / statistics.rows() as f64;
        let pages = |n: u64| ((n as f64 * share).round() as u64).max(1);
        let (indexes, long) = statistics.trees.split_at(statistics.trees.len() - 1);
        let clustered_pages = pages(indexes.first()?.pages);
        let long_pages = pages(long[0].pages);
        Some(TableSize {
            rows,
            clustered_pages,
            data_bytes: (clustered_pages + long_pages) * PAGE_BYTES as u64,
            index_bytes: indexes[1..].iter().map(|i| pages(i.pages)).sum::<u64>()
                * PAGE_BYTES as u64,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::IndexStatistics;

    #[test]
    fn it_measures_again_when_a_share_of_the_rows_has_changed() {
        let remembered = Remembered::default();
        let measured = |rows| {
            let size = TableSize { rows, ..TableSize::default() };
            remembered.get_or_measure(|| size).rows
        };
        assert_eq!(measured(640), 640);
        for _ in 0..10 {
            remembered.keys_changed();
            assert_eq!(measured(1), 640);
        }
        remembered.keys_changed();
        assert_eq!(measured(6), 6);
        // Every change of a small table counts.
        assert_eq!(measured(7), 6);
        remembered.keys_changed();
        assert_eq!(measured(7), 7);
    }

    fn statistics(rows: u64) -> Arc<TableStatistics> {
        let tree = IndexStatistics { entries: rows, leaf_pages: 10, pages: 12, distinct: vec![] };
        Arc::new(TableStatistics { trees: vec![tree.clone(), tree.clone(), tree] })
    }

    #[test]
    fn sizes_follow_the_statistics_and_the_rows_since() {
        let remembered = Remembered::default();
        assert_eq!(remembered.by_statistics(), None);
        remembered.row_inserted();
        remembered.learn(statistics(100), remembered.mark());
        let size = remembered.by_statistics().unwrap();
        assert_eq!((size.rows, size.clustered_pages), (100, 12));
        assert_eq!((size.data_bytes, size.index_bytes), (24 << 14, 12 << 14));
        (0..100).for_each(|_| remembered.row_inserted());
        let size = remembered.by_statistics().unwrap();
        assert_eq!((size.rows, size.clustered_pages), (200, 24));
        (0..300).for_each(|_| remembered.row_deleted());
        let size = remembered.by_statistics().unwrap();
        assert_eq!((size.rows, size.clustered_pages), (0, 1));
        remembered.learn(statistics(0), remembered.mark());
        assert_eq!(remembered.by_statistics(), None);
    }

    #[test]
    fn statistics_are_due_at_first_and_when_a_tenth_has_changed() {
        let remembered = Remembered::default();
        assert!(remembered.is_due(5, 10));
        remembered.take_on(5);
        assert!(!remembered.is_due(14, 10), "not again so soon");
        assert!(remembered.is_due(15, 10));
        remembered.learn(statistics(1000), remembered.mark());
        (0..116).for_each(|_| remembered.keys_changed());
        assert!(!remembered.is_due(100, 10));
        remembered.row_deleted();
        assert!(remembered.is_due(101, 10));
        remembered.give_up(remembered.mark());
        assert!(!remembered.is_due(200, 10));
    }
}
