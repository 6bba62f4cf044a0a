//! How large a table and a range of it are, by the trees.

use super::remembered::TableSize;
use super::table::Table;
use crate::base::PAGE_BYTES;
use crate::btree::{RangeEstimate, TreeSize};
use std::ops::Bound;
use std::sync::Arc;

impl Table {
    pub fn size(&self) -> TableSize {
        let remembered = &self.counters.remembered;
        remembered.by_statistics().unwrap_or_else(|| remembered.get_or_measure(|| self.measure()))
    }

    fn measure(&self) -> TableSize {
        let size_of = |gate: &Arc<crate::txn::TreeGate>| {
            gate.tree().estimate_size().unwrap_or(TreeSize { entries: 0, leaf_pages: 1, pages: 1 })
        };
        let clustered = size_of(&self.gates[0]);
        let data_pages = clustered.pages + size_of(&self.long_values).pages;
        let index_pages: u64 = self.gates[1..].iter().map(|gate| size_of(gate).pages).sum();
        TableSize {
            rows: clustered.entries,
            clustered_pages: clustered.pages,
            data_bytes: data_pages * PAGE_BYTES as u64,
            index_bytes: index_pages * PAGE_BYTES as u64,
        }
    }

    /// About how many entries lie in a range. None: the tree cannot be read.
    pub fn range_estimate(
        &self,
        index: usize,
        low: Bound<&[u8]>,
        high: Bound<&[u8]>,
    ) -> Option<RangeEstimate> {
        self.gates[index].tree().estimate_range(low, high).ok()
    }
}
