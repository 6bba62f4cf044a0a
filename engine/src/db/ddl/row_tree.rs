//! The clustered tree of a table that is loaded. The first rows tell in which order they come: if all of them
//! are in the order of their keys, the tree grows bottom up from then on, else all rows are sorted.

use super::sorter::Sorter;
use crate::base::Result;
use crate::btree::Builder;

/// Of a row in the sorter's memory, beside its bytes.
const SPAN_BYTES_MAX: usize = 32;

/// After an entry in a sorter: when its row came.
pub(super) const ARRIVAL_BYTES: usize = 8;

/// Rows of which it is not known yet that they come in order, or known that they do not.
struct RowSorter {
    sorter: Sorter,
    last_key: Vec<u8>,
    bytes: usize,
    /// The first ones: they fit the memory.
    first_bytes: usize,
    is_in_order: bool,
}

pub(super) struct RowTree {
    builder: Builder,
    sorting: Option<RowSorter>,
}

impl RowTree {
    /// `memory_bytes`: of the sorter.
    pub fn new(builder: Builder, sorter: Sorter, memory_bytes: usize) -> RowTree {
        let first_bytes = memory_bytes / 16 * 15;
        let sorting =
            RowSorter { sorter, last_key: Vec::new(), bytes: 0, first_bytes, is_in_order: true };
        RowTree { builder, sorting: Some(sorting) }
    }

    /// Can a row with this key be the next one?
    pub fn takes(&self, key: &[u8]) -> bool {
        self.sorting.is_some() || self.builder.last_key().is_none_or(|last| last < key)
    }

    /// A row, which came as number `arrival`. Uses `entry` up; asks for room for rows that came before.
    pub fn add(
        &mut self,
        key: &[u8],
        entry: &mut Vec<u8>,
        arrival: u64,
        ask: &mut dyn FnMut(usize) -> Result<()>,
    ) -> Result<()> {
        let Some(sorting) = &mut self.sorting else { return self.builder.push(key, entry) };
        entry.extend_from_slice(&arrival.to_be_bytes());
        sorting.add(key, entry)?;
        if sorting.is_in_order && sorting.bytes >= sorting.first_bytes {
            return self.build(ask);
        }
        Ok(())
    }

    /// They were in order so far.
    fn build(&mut self, ask: &mut dyn FnMut(usize) -> Result<()>) -> Result<()> {
        let Some(sorting) = self.sorting.take() else { return Ok(()) };
        let mut sorted = sorting.sorter.finish()?;
        let (mut key, mut value) = (Vec::new(), Vec::new());
        while sorted.next(&mut key, &mut value)? {
            ask(key.len() + value.len())?;
            self.builder.push(&key, &value[..value.len() - ARRIVAL_BYTES])?;
        }
        Ok(())
    }

    /// All rows are in. The answer has them all, if the tree is still to be built, and its builder.
    pub fn finish(self) -> Result<Option<(Sorter, Builder)>> {
        match self.sorting {
            Some(sorting) => Ok(Some((sorting.sorter, self.builder))),
            None => self.builder.finish().map(|()| None),
        }
    }
}

impl RowSorter {
    fn add(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let is_next = self.bytes == 0 || self.last_key.as_slice() < key;
        self.is_in_order &= is_next;
        if self.is_in_order {
            self.last_key.clear();
            self.last_key.extend_from_slice(key);
        }
        self.bytes += key.len() + value.len() + SPAN_BYTES_MAX;
        self.sorter.push(key, value)
    }
}
