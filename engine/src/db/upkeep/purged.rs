//! How far the purge has come, in a record of the log.
//!
//! Recovery finds the transactions of the log's tail, and not whether their delete marks were purged. Without
//! this record it would queue all of them again, and writers would help to purge them for minutes.

use crate::base::codec::put_varint;
use crate::db::engine::Engine;
use crate::db::records::RECORD_PURGED;
use crate::os::planted::{self, Bug};
use crate::os::SIMULATED;
use std::sync::atomic::Ordering::Relaxed;

/// Log between two records, at least. With 4 KiB the simulator's first 200 seeds did not find
/// CheckpointWithoutLogFlush.
const BETWEEN_BYTES: u64 = if SIMULATED {
    32 << 10
} else if cfg!(test) {
    4 << 10
} else {
    1 << 20
};

impl Engine {
    /// Tells how far the purge has come, if it came further and the log grew. For one thread.
    pub(in crate::db) fn note_purged(&self) {
        // First: a transaction that the registry does not have yet has its records at or after this.
        let end = self.wal.end();
        if end.0 < self.purge_notes.asked_at.load(Relaxed) + BETWEEN_BYTES {
            return;
        }
        self.purge_notes.asked_at.store(end.0, Relaxed);
        let low = match planted::is(Bug::PurgedTooFar) {
            true => end,
            false => self.ctx.registry.oldest_lsn().map_or(end, |low| low.min(end)),
        };
        if low.0 > self.purge_notes.noted.swap(low.0, Relaxed) {
            let mut payload = Vec::with_capacity(10);
            put_varint(&mut payload, low.0);
            self.wal.append(RECORD_PURGED, &[&payload]);
        }
    }
}
