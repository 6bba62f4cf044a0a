//! Checkpoints: what bounds the log that recovery reads (rules M2 to M4).
//!
//! Order, and why:
//! 1. The log's end is read before anything is looked at: whatever happens later lies behind it,
//!    in the part of the log that recovery scans anyway.
//! 2. Dirty pages from before that point are written, unless only space is wanted.
//! 3. The redo point is taken, then the ids to come, then the registry of transactions. A
//!    transaction in the middle of a record says so and holds the scan's start back.
//! 4. The log is flushed; what the note says of transactions is then durable.
//! 5. The store makes its map durable, flushing the log once more past every page it names, and
//!    switches the superblock.
//! 6. Log segments go that nobody needs. Both superblock slots name this checkpoint by then.

use super::engine::{CheckpointState, Engine};
use super::note::{CheckpointNote, OpenNote, OpenState, PurgeNote};
use crate::base::{Lsn, Result};
use crate::os::planted::{self, Bug};
use crate::txn::{Open, TxnState};
use std::sync::atomic::Ordering;

const WRITEBACK_PAGES: usize = 64;

impl Engine {
    /// A whole checkpoint: dirty pages are written first, so that redo starts about here.
    /// Sessions go on meanwhile.
    pub fn checkpoint_now(&self) -> Result<()> {
        self.checkpoint_with(true)
    }

    /// Makes the page map durable as it is, so that the space of replaced images becomes free.
    /// Writing dirty pages for that would replace as many images again.
    pub(crate) fn checkpoint_map(&self) -> Result<()> {
        self.checkpoint_with(false)
    }

    fn checkpoint_with(&self, writeback: bool) -> Result<()> {
        let one_at_a_time = self.checkpointing.lock();
        if writeback {
            let target = self.wal.end();
            while !self.pool.writeback_before(target, WRITEBACK_PAGES)? {}
        }
        self.write_checkpoint()?;
        drop(one_at_a_time);
        self.announce_room();
        self.release_log();
        Ok(())
    }

    fn write_checkpoint(&self) -> Result<()> {
        let note = self.checkpoint_note()?;
        self.store.checkpoint(&note.encode(), &mut |_| self.flush_log())?;
        *self.checkpoint.lock() =
            CheckpointState { needs_from: note.needs_from(), redo_from: note.redo_from };
        self.redo_from.store(note.redo_from.0, Ordering::Relaxed);
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
            catalog_root: self.catalog_root,
            next_txn: self.ctx.table.next_id().0,
            next_page: self.env.next_page().0,
            next_tree: u64::from(self.next_tree.load(Ordering::SeqCst)),
            next_table: self.next_table.load(Ordering::SeqCst),
            ..CheckpointNote::default()
        };
        let open = self.ctx.registry.list().into_iter();
        for open in open.filter(|_| !planted::is(Bug::CheckpointForgetsOpen)) {
            // Read before its state: see `Open::begin_record`.
            if let Some(lsn) = open.pending_since() {
                note.scan_from = note.scan_from.min(lsn);
            }
            note.open.push(self.open_note(&open));
        }
        for item in self.ctx.registry.purge_items() {
            let (first_lsn, last_lsn) = (item.first_lsn, item.last_lsn);
            note.purge.push(PurgeNote { txn: item.txn, first_lsn, last_lsn });
        }
        for table in self.tables.read().values() {
            note.counters.push((table.id(), table.autoinc_peek()));
        }
        note.counters.sort_unstable();
        self.flush_log()?;
        note.durable = self.wal.durable();
        Ok(note)
    }

    fn open_note(&self, open: &Open) -> OpenNote {
        let state = match self.ctx.table.state(open.id) {
            // A commit under way: its record lies at or behind `pending_since` or the log's end
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
    /// purge, the oldest snapshot.
    pub(crate) fn release_log(&self) {
        let state = *self.checkpoint.lock();
        let pins = [
            Some(state.needs_from),
            self.ctx.registry.oldest_lsn(),
            self.ctx.table.oldest_snapshot_pin(),
        ];
        let pins = pins.into_iter().take(match planted::is(Bug::LogSegmentFreedEarly) {
            true => 1,
            false => 3,
        });
        if let Some(low) = pins.flatten().min() {
            self.wal.retain_from(low);
        }
    }

    /// The log's pins, oldest first, for the status.
    pub(crate) fn log_pins(&self) -> Vec<(&'static str, Lsn)> {
        let state = *self.checkpoint.lock();
        let mut pins = vec![("checkpoint", state.needs_from)];
        pins.extend(self.ctx.registry.oldest_lsn().map(|lsn| ("transactions", lsn)));
        pins.extend(self.ctx.table.oldest_snapshot_pin().map(|lsn| ("snapshots", lsn)));
        pins.sort_by_key(|pin| pin.1);
        pins
    }
}
