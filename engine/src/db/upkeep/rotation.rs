//! The rotation of keys: pages that are under an old one, or plain where they should not be, are written anew
//! at a pace of its own. The log goes by itself.

use super::background::GC_STEP_BYTES;
use super::checkpoint::REDO_PIN;
use crate::base::{Lsn, Result};
use crate::cipher::Oldest;
use crate::db::engine::Engine;
use crate::os::SIMULATED;
use std::sync::atomic::Ordering::Relaxed;

/// It reads and writes so much in a second at most. In the simulator lives are short.
const BYTES_A_SECOND: u64 = if SIMULATED { 64 << 20 } else { 8 << 20 };
/// After an error, often that of a key which nobody has, GC is to go on undisturbed.
const REST_AFTER_ERROR_NS: u64 = 10_000_000_000;
/// A key that is gone for ever would be reported again and again.
const REST_PUT_OFF_NS: u64 = if SIMULATED { 1_000_000_000 } else { 60_000_000_000 };

impl Engine {
    /// A step of the rotation, if it has rested long enough. It leaves the disk to others while writers
    /// wait for GC, while dead space waits for a checkpoint, and while there is no room to spare.
    pub(super) fn rotation_step(&self) -> Result<()> {
        if self.config.encryption.is_none() {
            return Ok(());
        }
        let newest = self.store.refresh_key();
        self.log_keys.note(newest, || self.wal.end());
        // A backup keeps the old places of all that moves.
        let is_busy = self.store.debt_percent() > 0
            || self.store.wants_checkpoint()
            || self.backups.log_from().is_some();
        let rests = self.os.now_ns() < self.workers.rotation_due_ns.load(Relaxed);
        if rests || is_busy || self.store.is_full() || self.is_short_of_room() {
            return Ok(());
        }
        let age = self.rotate_key_age();
        let done = self.store.rotate_step(age, GC_STEP_BYTES);
        let rest_ns = match &done {
            // They were put off after an error.
            Ok(0) if self.store.has_older(age) => REST_PUT_OFF_NS,
            Ok(bytes) => bytes * 1_000_000_000 / BYTES_A_SECOND,
            Err(_) => REST_AFTER_ERROR_NS,
        };
        self.workers.rotation_due_ns.store(self.os.now_ns() + rest_ns, Relaxed);
        if done? == 0 && self.store.has_keys_to_claim(age) {
            self.checkpoint_map()?;
        }
        if self.store.wants_checkpoint() {
            self.wake_background();
        }
        Ok(())
    }

    /// Only the last checkpoint needs log from before the newest version of the key: the next one does not.
    pub(super) fn checkpoint_needs_old_keys(&self) -> bool {
        let Some((_, from)) = self.log_keys.newest().filter(|_| self.config.encryption.is_some())
        else {
            return false;
        };
        let needs_from = self.checkpoints.state.lock().needs_from;
        let is_other = |name: &str| name != REDO_PIN;
        needs_from < from && !self.log_pins().iter().any(|pin| is_other(pin.0) && pin.1 < from)
    }

    /// From where on the log is needed.
    fn needed_log(&self) -> Lsn {
        self.log_pins().first().map_or(self.wal.end(), |pin| pin.1)
    }

    /// For status variables.
    pub(in crate::db) fn key_status(&self) -> Vec<(&'static str, u64)> {
        let pages = self.store.page_keys();
        let needed = self.needed_log();
        let log_from = self.log_keys.newest().map_or(needed, |newest| newest.1);
        let oldest = pages.oldest.min(self.log_keys.oldest_from(needed));
        let needs_old = oldest < Oldest::Version(pages.newest);
        vec![
            ("encryption_key_version", u64::from(pages.newest)),
            ("encryption_oldest_key_version", u64::from(oldest.version())),
            ("encryption_old_keys_needed", u64::from(needs_old)),
            ("encryption_old_page_bytes", pages.old_bytes),
            ("encryption_unknown_page_bytes", pages.unknown_bytes),
            ("encryption_old_log_bytes", log_from.0.saturating_sub(needed.0)),
            ("encryption_rewritten_pages", pages.rewritten_pages),
            ("encryption_rewritten_bytes", pages.rewritten_bytes),
        ]
    }
}
