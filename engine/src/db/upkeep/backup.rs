//! What the engine keeps for a backup while it runs (rules M21).
//!
//! A backup is the state of a crash at a position of the log that its owner chooses: the last checkpoint
//! as it was when the backup began, and the log from what that needs to the position. The owner copies
//! both while sessions go on; nobody waits for it. The files that it needs take room on the disk: when
//! others need that room, the backup is given up.

use crate::base::{Error, Result};
use crate::db::config::Level;
use crate::db::engine::Engine;
use crate::wal::Place;
use std::sync::atomic::Ordering;

impl Engine {
    /// Makes a checkpoint of the page map, and keeps what it names, and the log that it needs, until
    /// [`Engine::end_backup`]. Answers from where on files of the log are kept.
    pub fn begin_backup(&self) -> Result<Place> {
        self.check_running()?;
        if self.is_short_of_room() {
            return Err(Error::Full { what: "disk" });
        }
        let turn = self.backups.turn.lock();
        if self.backups.taken.swap(true, Ordering::SeqCst) {
            return Err(Error::Refused("a backup is under way already".into()));
        }
        let begun = self.pin_backup();
        drop(turn);
        if begun.is_err() {
            self.end_backup();
        }
        begun
    }

    fn pin_backup(&self) -> Result<Place> {
        // No other checkpoint comes between this one and the pins.
        let _turn = self.checkpoints.turn.lock();
        self.write_checkpoint()?;
        let from = self.checkpoints.state.lock().needs_from;
        self.backups.keep_log(from);
        self.store.pin_backup()?;
        self.backups.begun.fetch_add(1, Ordering::SeqCst);
        Ok(self.wal.segment_place(from))
    }

    /// Lets go of what was kept; does nothing if no backup is under way. Commits may be held
    /// meanwhile, so it waits for nothing.
    pub fn end_backup(&self) {
        let _turn = self.backups.turn.lock();
        if self.backups.let_log_go() {
            self.store.unpin_backup();
        }
        self.backups.lost.store(false, Ordering::SeqCst);
        self.backups.taken.store(false, Ordering::SeqCst);
    }

    /// Whether what the backup needs is still kept. A copy is good only if this is so after its end.
    pub fn is_backup_kept(&self) -> bool {
        self.backups.state() == 1 && self.backups.log_from().is_some()
    }

    /// The disk is full: what the backup keeps is needed. Answers whether there was a backup.
    pub(super) fn give_up_backup(&self) -> bool {
        if self.backups.log_from().is_none() {
            return false;
        }
        let Some(turn) = self.backups.turn.try_lock() else { return false };
        if !self.backups.let_log_go() {
            return false;
        }
        self.backups.lost.store(true, Ordering::SeqCst);
        self.store.unpin_backup();
        drop(turn);
        self.release_log();
        let text = "the backup under way is given up: the disk is full, and what the backup keeps is needed";
        self.host.log(Level::Warning, text);
        true
    }
}
