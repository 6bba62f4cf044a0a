//! Keys of rows of tables without a primary key: they ascend, and are never given twice.

use crate::base::{Error, Result};
use crate::btree::{Direction, LeafEnd};
use crate::txn::TreeGate;
use std::ops::{Bound, ControlFlow};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::OnceLock;

/// Where keys go on when the highest one cannot be found out: above all that were ever given.
const FALLBACK: u64 = 1 << 62;

/// The next key, once it is known: a table that is opened reads nothing for it.
pub(crate) struct HiddenKey(OnceLock<AtomicU64>);

impl HiddenKey {
    /// For an empty table.
    pub fn first() -> HiddenKey {
        HiddenKey(OnceLock::from(AtomicU64::new(1)))
    }

    /// For a table that may have rows: asks them at the first use.
    pub fn of_rows() -> HiddenKey {
        HiddenKey(OnceLock::new())
    }

    /// The same counter for the same rows; nobody draws from this one any more.
    pub fn carried_over(&self) -> HiddenKey {
        let next = self.0.get().map(|next| AtomicU64::new(next.load(Ordering::Relaxed)));
        HiddenKey(next.map(OnceLock::from).unwrap_or_default())
    }

    pub fn next(&self, rows: &TreeGate) -> Result<u64> {
        let next = match self.0.get() {
            Some(next) => next,
            None => {
                // No key is given before this is set, so every reader finds the same.
                let after = after_last(rows)?;
                self.0.get_or_init(|| AtomicU64::new(after))
            }
        };
        Ok(next.fetch_add(1, Ordering::Relaxed))
    }
}

fn after_last(rows: &TreeGate) -> Result<u64> {
    match last_key(rows) {
        Ok(last) => Ok(last + 1),
        Err(Error::Corrupt { .. }) => Ok(FALLBACK),
        Err(error) => Err(error),
    }
}

/// The highest hidden key in a clustered tree.
fn last_key(rows: &TreeGate) -> Result<u64> {
    let mut last = 0;
    let mut from: Bound<Vec<u8>> = Bound::Unbounded;
    loop {
        let bound = from.as_ref().map(|key| &key[..]);
        let end = rows.tree().scan_leaf(bound, Direction::Backward, &mut |key, _| {
            if let Ok(bytes) = <[u8; 8]>::try_from(key) {
                last = u64::from_be_bytes(bytes);
            }
            ControlFlow::Break(())
        })?;
        match end {
            LeafEnd::Next(fence) => from = Bound::Excluded(fence),
            _ => return Ok(last & (u64::MAX >> 1)),
        }
    }
}
