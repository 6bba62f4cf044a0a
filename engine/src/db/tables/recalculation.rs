//! The statistics of one table, taken a piece at a time: a part of the key of one index.

use super::remembered::Mark;
use super::table::Table;
use crate::base::{EntryHeader, Error, Result};
use crate::catalog::{IndexStatistics, TableStatistics};
use crate::db::callbacks::KeyParts;
use crate::os::rank::Rank;
use crate::os::sync::{Mutex, Ranked};
use crate::txn::TreeGate;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::Arc;

/// Leaves that are read for each part of a key unless told otherwise.
const SAMPLE_PAGES: usize = 20;
pub(crate) const SAMPLE_PAGES_MAX: usize = 100_000;
/// What background recalculation works on, and how.
pub(crate) struct Recalculation {
    pub job: Mutex<Option<Job>>,
    pub is_on: AtomicBool,
    pub sample_pages: AtomicUsize,
}

impl Default for Recalculation {
    fn default() -> Recalculation {
        Recalculation {
            job: Mutex::ranked(Rank::Statistics, None),
            is_on: AtomicBool::new(true),
            sample_pages: AtomicUsize::new(SAMPLE_PAGES),
        }
    }
}

/// The statistics of one table, being taken.
pub(crate) struct Job {
    pub table: Arc<Table>,
    parts: Arc<dyn KeyParts>,
    sample_pages: usize,
    pub begun: Mark,
    taken: Vec<IndexStatistics>,
    /// Of the tree that is being looked at, once its size is known.
    current: Option<IndexStatistics>,
}

fn is_alive(entry: &[u8]) -> bool {
    EntryHeader::split(entry).is_ok_and(|(header, _)| !header.is_deleted())
}

impl Job {
    pub fn new(table: Arc<Table>, parts: Arc<dyn KeyParts>, sample_pages: usize) -> Job {
        let begun = table.counters.remembered.mark();
        Job { table, parts, sample_pages, begun, taken: Vec::new(), current: None }
    }

    /// Does a piece; false when all is done.
    pub fn step(&mut self) -> Result<bool> {
        let index = self.taken.len();
        let Some(gate) = self
            .table
            .gates
            .get(index)
            .or_else(|| (index == self.table.gates.len()).then_some(&self.table.long_values))
        else {
            return Ok(false);
        };
        let gate = Arc::clone(gate);
        let Some(_kept) = gate.enter() else { return Err(Error::NotFound) };
        let prefixes = if index < self.table.gates.len() { self.parts.count(index) } else { 0 };
        let mut current = match self.current.take() {
            Some(current) => self.count_prefix(&gate, index, prefixes, current)?,
            None => self.measure(&gate)?,
        };
        if index == 0 && current.distinct.is_empty() {
            // Rows that go in from here on were not counted.
            self.begun = self.table.counters.remembered.grown_since(self.begun);
        }
        // The whole key: there is one entry for each.
        if current.distinct.len() + 1 == prefixes {
            current.distinct.push(current.entries);
        }
        match current.distinct.len() >= prefixes {
            true => self.taken.push(current),
            false => self.current = Some(current),
        }
        Ok(true)
    }

    fn measure(&self, gate: &TreeGate) -> Result<IndexStatistics> {
        let size = gate.tree().sample_size(self.sample_pages, &is_alive)?;
        Ok(IndexStatistics {
            entries: size.entries.round() as u64,
            leaf_pages: size.leaf_pages.round() as u64,
            pages: size.pages.round() as u64,
            distinct: Vec::new(),
        })
    }

    fn count_prefix(
        &self,
        gate: &TreeGate,
        index: usize,
        prefixes: usize,
        mut current: IndexStatistics,
    ) -> Result<IndexStatistics> {
        let parts = current.distinct.len() + 1;
        assert!(parts < prefixes, "the last prefix is the whole key");
        let ends = |key: &[u8], ends: &mut Vec<usize>| self.parts.ends(index, key, ends);
        let found = gate.tree().sample_distinct(parts, &ends, self.sample_pages, &is_alive)?;
        // Longer prefixes have no fewer values, and no more than there are entries.
        let shorter = current.distinct.last().copied().unwrap_or(0);
        current.distinct.push((found.round() as u64).min(current.entries).max(shorter));
        Ok(current)
    }

    pub fn finish(self) -> (Arc<Table>, Arc<TableStatistics>, Mark) {
        (self.table, Arc::new(TableStatistics { trees: self.taken }), self.begun)
    }
}
