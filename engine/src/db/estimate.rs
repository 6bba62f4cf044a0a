//! How large a table is, which the optimizer asks at every statement: remembered as long as it
//! cannot be far off.

use super::table::Table;
use crate::os::sync::{now_ns, Mutex};
use std::sync::atomic::{AtomicU64, Ordering};

/// This share of the rows may have been written since: fewer than an estimate is off anyway.
const CHANGED_SHARE: u64 = 64;
/// Sizes on disk change without any row: pages are written behind.
const REMEMBERED_NS_MAX: u64 = 1_000_000_000;

/// About how large a table is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableSize {
    pub rows: u64,
    /// Bytes of page images of the rows, long values included.
    pub data_bytes: u64,
    pub index_bytes: u64,
}

#[derive(Clone, Copy)]
struct Measured {
    size: TableSize,
    changes: u64,
    at_ns: u64,
}

#[derive(Default)]
pub(crate) struct Remembered {
    /// Rows written since the table was opened.
    changes: AtomicU64,
    last: Mutex<Option<Measured>>,
}

impl Remembered {
    pub fn row_changed(&self) {
        self.changes.fetch_add(1, Ordering::Relaxed);
    }

    fn get_or_measure(&self, measure: impl FnOnce() -> TableSize) -> TableSize {
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
}

impl Table {
    pub fn size(&self) -> TableSize {
        self.counters.remembered.get_or_measure(|| self.measure())
    }

    fn measure(&self) -> TableSize {
        let bytes_of = |gate: &crate::txn::TreeGate| self.store.tree_bytes(gate.id()).1;
        TableSize {
            rows: self.gates[0].tree().estimate_len().unwrap_or(0),
            data_bytes: bytes_of(&self.gates[0]) + bytes_of(&self.long_values),
            index_bytes: self.gates[1..].iter().map(|gate| bytes_of(gate)).sum(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_measures_again_when_a_share_of_the_rows_has_changed() {
        let remembered = Remembered::default();
        let measured = |rows| {
            let size = TableSize { rows, data_bytes: 0, index_bytes: 0 };
            remembered.get_or_measure(|| size).rows
        };
        assert_eq!(measured(640), 640);
        for _ in 0..10 {
            remembered.row_changed();
            assert_eq!(measured(1), 640);
        }
        remembered.row_changed();
        assert_eq!(measured(6), 6);
        // Of a small table every change counts.
        assert_eq!(measured(7), 6);
        remembered.row_changed();
        assert_eq!(measured(7), 7);
    }
}
