//! Checkpoints: what bounds the log that recovery reads (rules M2 to M4).
//!
//! Order, and why:
//! 1. The log's end is read before anything is looked at: whatever happens later lies after it,
//!    in the part of the log that recovery scans anyway.
//! 2. Images of pages that owe changes from before that point, or from before an earlier one, and
//!    of dirty pages from before it are written, unless only space is wanted.
//! 3. The redo point is taken, then the ids to come, then the registry of transactions. A
//!    transaction in the middle of a record says so and holds the scan's start back.
//! 4. The log is flushed, up to its end of then; what the note says of transactions, and the deltas that
//!    the redo point relies on, are then durable.
//! 5. The store makes its map durable, flushing the log once more past every page it names, and
//!    switches the superblock.
//! 6. Log segments go that nobody needs. Both superblock slots name this checkpoint by then.

use crate::base::{Lsn, Result};
use crate::db::checkpoints::CheckpointState;
use crate::db::engine::Engine;
use crate::db::pace::Pace;
use crate::db::recovery::{CheckpointNote, OpenNote, OpenState, PurgeNote};
use crate::os::planted::{self, Bug};
use crate::txn::{OpenTxn, TxnState};
use std::sync::atomic::Ordering;

/// What the last checkpoint needs, among what keeps log.
pub(super) const REDO_PIN: &str = "log_pin_redo_bytes";
const WRITEBACK_PAGES: usize = 64;
/// Share of the log's capacity that versions alone may hold back in any case.
const VERSIONS_PERCENT: u64 = 25;
/// And so many times what large transactions logged of versions: as much again for splits, and as much
/// by others. To move such log would write most of it again, in the log and in pages.
const OWN_PARTS: u64 = 3;
/// But no more than this: each segment is an open file.
const OWN_LOG_BYTES_MAX: u64 = 8 << 30;

impl CheckpointState {
    pub fn of(note: &CheckpointNote) -> CheckpointState {
        CheckpointState {
            needs_from: note.needs_from(),
            redo_from: note.redo_from,
            moved_to: note.moved_to,
        }
    }
}

impl Engine {
    /// A whole checkpoint: dirty pages are written first, so that redo starts about here.
    /// Sessions go on meanwhile.
    pub fn checkpoint_now(&self) -> Result<()> {
        self.checkpoint_with(Some(self.wal.end()))
    }

    /// A checkpoint after which redo reads at most the log that lies after `redo_from` now.
    pub(crate) fn checkpoint_from(&self, redo_from: Lsn) -> Result<()> {
        self.checkpoint_with(Some(redo_from))
    }

    /// Makes the page map durable as it is, so that the space of replaced images becomes free.
    /// Writing dirty pages for that would replace as many images again.
    pub(crate) fn checkpoint_map(&self) -> Result<()> {
        self.checkpoint_with(None)
    }

    fn checkpoint_with(&self, images_before: Option<Lsn>) -> Result<()> {
        let one_at_a_time = self.checkpoints.turn.lock();
        if let Some(lsn) = images_before {
            while !self.write_images_before(lsn, WRITEBACK_PAGES)? {
                // A checkpoint needs the log in the end.
                self.wal.check_poison()?;
                self.check_running()?;
                if self.store.wants_checkpoint() {
                    // Dead space does not wait for all of them.
                    self.write_checkpoint()?;
                    self.announce_room();
                }
            }
        }
        let pace = Pace::begin(self.pace_point());
        self.write_checkpoint()?;
        *self.checkpoints.pace.lock() = pace;
        drop(one_at_a_time);
        if images_before.is_some() {
            self.note_checkpoint();
        }
        self.announce_room();
        self.release_log();
        self.settle_writes();
        Ok(())
    }

    pub(super) fn write_checkpoint(&self) -> Result<()> {
        let note = self.checkpoint_note()?;
        self.store.claim_log(self.log_keys.newest());
        self.store.checkpoint(&note.encode(), &mut |lsn| self.flush_log_past(lsn))?;
        *self.checkpoints.state.lock() = CheckpointState::of(&note);
        let place = self.wal.place_of(note.redo_from);
        self.checkpoints.redo_place.store(place.0, Ordering::Relaxed);
        self.checkpoints.redo_from.store(note.redo_from.0, Ordering::Relaxed);
        Ok(())
    }

    fn checkpoint_note(&self) -> Result<CheckpointNote> {
        let log_end = self.wal.end();
        let redo_from = match planted::is(Bug::RedoPointTooHigh) {
            true => log_end,
            false => self.pool.redo_point(log_end),
        };
        assert!(redo_from <= log_end, "the redo point lies in the log");
        let mut note = CheckpointNote {
            scan_from: redo_from,
            redo_from,
            catalog_root: self.schema.catalog_root,
            old_versions_root: self.old_versions_root,
            next_txn: self.ctx.table.next_id().0,
            next_page: self.env.next_page().0,
            next_tree: u64::from(self.schema.next_tree.load(Ordering::SeqCst)),
            next_table: self.schema.next_table.load(Ordering::SeqCst),
            ..CheckpointNote::default()
        };
        let open = self.ctx.registry.list().into_iter();
        for open in open.filter(|_| !planted::is(Bug::CheckpointForgetsOpen)) {
            // Read before its state: see `OpenTxn::begin_record`.
            if let Some(lsn) = open.pending_since() {
                note.scan_from = note.scan_from.min(lsn);
            }
            note.open.push(self.open_note(&open));
        }
        let (binlog, pin) = self.binlog.note_and_pin();
        note.binlog = binlog;
        note.scan_from = pin.map_or(note.scan_from, |lsn| note.scan_from.min(lsn));
        for item in self.ctx.registry.purge_items() {
            let (first_lsn, last_lsn) = (item.first_lsn, item.last_lsn);
            note.purge.push(PurgeNote { txn: item.txn, first_lsn, last_lsn });
        }
        // After the purge's items: those that left it because they were moved lie below. The moved
        // versions are in the log, which is flushed below.
        note.moved_to = self.ctx.old.moved_to();
        for table in self.schema.tables.read().values() {
            note.counters.push((table.id(), table.autoinc_kept()));
        }
        note.bad_pages = self.pool.given_up();
        note.counters.sort_unstable();
        self.flush_log_past(log_end)?;
        note.durable = self.wal.durable();
        Ok(note)
    }

    /// Makes the log durable past `lsn`, and past all that was appended before the call: the redo point
    /// relies on deltas that may be as young.
    fn flush_log_past(&self, lsn: Lsn) -> Result<()> {
        match planted::is(Bug::DeltaNotFlushed) {
            true => self.wal.flush_to(lsn),
            false => self.flush_log(),
        }
    }

    fn open_note(&self, open: &OpenTxn) -> OpenNote {
        let state = match self.ctx.table.state(open.id) {
            // A commit under way: its record lies at or after `pending_since` or the log's end
            // read above, so the scan will find it.
            TxnState::Active | TxnState::Committed(_) => OpenState::Active,
            TxnState::Prepared => OpenState::Prepared,
            TxnState::Aborted => OpenState::Aborted,
        };
        OpenNote {
            id: open.id,
            state,
            first_lsn: open.first_lsn,
            last_lsn: open.last_lsn(),
            deletes: open.has_deletes(),
            xid: open.xid(),
        }
    }

    /// Lets go of log that nobody needs: both checkpoints, every transaction in the registry, the
    /// purge, the oldest snapshot. Versions that were moved do not need it once that is durable.
    pub(crate) fn release_log(&self) {
        // Makes the pins of snapshots to come exact.
        self.ctx.table.oldest_needed_lsn();
        let low = match planted::is(Bug::LogSegmentFreedEarly) {
            true => Some(self.checkpoints.state.lock().redo_from),
            false => self.log_pins().iter().map(|pin| pin.1).min(),
        };
        if let Some(low) = low {
            self.ctx.old.release(low);
            self.wal.retain_from(low);
        }
    }

    /// What keeps log, each with the first position that it needs.
    pub(crate) fn log_pins(&self) -> Vec<(&'static str, Lsn)> {
        let mut state = *self.checkpoints.state.lock();
        if planted::is(Bug::MovedLogFreedEarly) {
            state.moved_to = self.ctx.old.moved_to();
            state.needs_from = state.needs_from.max(state.moved_to.min(state.redo_from));
        }
        let mut pins = vec![(REDO_PIN, state.needs_from)];
        let mut pin =
            |name, lsn: Option<Lsn>| pins.extend(lsn.map(|l| (name, l.max(state.moved_to))));
        // The registry before the purge: a commit in between must not be missed.
        let (open, reverting) = self.ctx.oldest_open_lsns();
        pin("log_pin_transactions_bytes", open);
        pin("log_pin_revert_bytes", reverting);
        pin("log_pin_purge_bytes", self.ctx.registry.oldest_purge_lsn());
        pin("log_pin_snapshots_bytes", self.ctx.table.oldest_snapshot_pin());
        pins.extend(self.binlog.note_and_pin().1.map(|lsn| ("log_pin_binlog_bytes", lsn)));
        if !planted::is(Bug::BackupLogFreedEarly) {
            pins.extend(self.backups.log_from().map(|lsn| ("log_pin_backup_bytes", lsn)));
        }
        pins.sort_by_key(|pin| pin.1);
        pins
    }

    /// From where on the log is kept for versions.
    fn versions_from(&self) -> Option<Lsn> {
        // The mover may be ahead of the pins that hold the log.
        let moved_to = self.ctx.old.moved_to();
        Some(self.ctx.lowest_pin()?.max(moved_to))
    }

    /// Whether the log kept for versions is more than it may be. Only a revert is waited for that
    /// long ([`Context::reverting_from`]).
    pub(crate) fn versions_fill_log(&self) -> bool {
        let fills =
            |low| self.wal.file_bytes_from(low) > self.log_capacity().max(self.own_log_limit(low));
        self.versions_from().is_some_and(fills)
    }

    /// Log from `low` on that versions may hold back for the sake of those who wrote much of it. On a disk that
    /// is nearly full as well: to move it would need more room than it gives. They count it as it is in
    /// memory; it takes the share of the files that all log from `low` on takes.
    fn own_log_limit(&self, low: Lsn) -> u64 {
        let own = self.ctx.registry.own_log_bytes(self.ctx.table.oldest_snapshot_csn());
        let in_memory = u128::from(self.wal.end().0.saturating_sub(low.0).max(1));
        let share = u128::from(own) * u128::from(self.wal.file_bytes_from(low)) / in_memory;
        u64::try_from(share).unwrap_or(u64::MAX).saturating_mul(OWN_PARTS).min(OWN_LOG_BYTES_MAX)
    }

    /// Up to where versions have to leave the log now, if anybody still needs them there. The limits are of
    /// bytes of the log's files, as its capacity is.
    pub(crate) fn move_target(&self) -> Option<Lsn> {
        let share = self.log_capacity() / 100 * VERSIONS_PERCENT;
        let low = self.versions_from()?;
        let limit = share.max(self.own_log_limit(low));
        if planted::is(Bug::OwnLogTakenForMoved) && limit > share {
            self.ctx.old.release(self.wal.lsn_before_end(share));
        }
        let target = self.wal.lsn_before_end(limit - share / 2);
        let target = match self.ctx.reverting_from() {
            Some(first) if !self.is_short_of_room() => target.min(first),
            _ => target,
        };
        (self.wal.file_bytes_from(low) > limit && target > low).then_some(target)
    }
}
