//! The state that a checkpoint hands on to the next one, under its mutex.

use super::mapfile::ChangeLog;
use super::superblock::Superblock;
use crate::os::{File, SIMULATED};
use std::sync::Arc;

/// In the simulator lives are short: snapshots must be frequent.
const SNAPSHOT_BYTES_SIMULATED: u64 = 16 << 10;

pub struct Checkpointer {
    pub(super) slots: Arc<dyn File>,
    /// The slot that surely holds `current`; the other is written first.
    pub(super) newest: usize,
    pub(super) current: Superblock,
    pub(super) changes: ChangeLog,
    pub(super) snapshot_bytes: u64,
    /// A leaf could not be read for a snapshot when the change log ended here: the next attempt
    /// waits until it has grown as much again.
    pub(super) failed_at: u64,
    /// The disk has no room for what the next checkpoint may append.
    pub(super) lacks_reserve: bool,
    /// Map files of older generations may still be there.
    pub(super) has_obsolete: bool,
}

impl Checkpointer {
    pub fn new(
        slots: Arc<dyn File>,
        newest: usize,
        current: Superblock,
        changes: ChangeLog,
    ) -> Checkpointer {
        let snapshot_bytes = current.directory_at + current.directory_bytes;
        Checkpointer {
            slots,
            newest,
            current,
            changes,
            snapshot_bytes,
            failed_at: 0,
            lacks_reserve: false,
            has_obsolete: false,
        }
    }

    #[cfg(test)]
    pub fn map_generation(&self) -> u64 {
        self.current.map_generation
    }

    /// What both slots hold between checkpoints.
    pub fn current(&self) -> Superblock {
        self.current
    }

    /// The change log is long against the cost of a snapshot, or for the next opening of the store.
    pub(super) fn wants_snapshot(&self, segment_bytes: u64, limit_bytes: u64) -> bool {
        let most_bytes = limit_bytes.min(2 * self.snapshot_bytes);
        let least_bytes = if SIMULATED { SNAPSHOT_BYTES_SIMULATED } else { segment_bytes };
        let grown_bytes = self.changes.end() - self.failed_at;
        grown_bytes > least_bytes.max(most_bytes)
            || self.lacks_reserve && grown_bytes > 2 * self.snapshot_bytes
    }
}
