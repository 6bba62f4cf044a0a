//! The checkpoint: the only place where records become durable by name.
//!
//! ```text
//! capture map -> write and sync pages -> flush log -> write and sync map changes
//!             -> first slot -> second slot -> release segments, remove old map files
//! ```
//! A failure before the first slot undoes the capture: its changes are written by the next
//! checkpoint. After the first slot the checkpoint has happened; a failure of the second slot
//! only leaves everything that the older slot needs in place.

use super::checkpointer::Checkpointer;
use super::counters::add;
use super::engine::{encrypt_note, proof, remove_obsolete, Store};
use super::mapfile::{self, ChangeLog};
use super::snapshot::{write_snapshot, Failure, WrittenSnapshot};
use super::state::Capture;
use super::superblock::{KeyClaim, Superblock};
use crate::base::{Error, Lsn, Result, BLOCK_BYTES};
use crate::cipher::Oldest;
use crate::os::planted::{self, Bug};
use std::sync::atomic::Ordering::Relaxed;

/// Disk space kept after the end of the change log, in segments (and at most this many bytes).
const CHANGES_RESERVE_BYTES_MAX: u64 = 4 << 20;

/// A map snapshot that is written but named by no superblock yet.
struct NewMap {
    generation: u64,
    written: WrittenSnapshot,
    changes: ChangeLog,
}

impl Store {
    /// Makes the map as it is now durable, together with `note`. `flush_log_past` is called once,
    /// after the map was captured, with the highest LSN that it names; the caller must also make
    /// durable what it logged about pages it freed before (flushing to the log's end covers both).
    /// After `Ok`, neither superblock slot needs the log or the note of an older checkpoint.
    pub fn checkpoint(
        &self,
        note: &[u8],
        flush_log_past: &mut dyn FnMut(Lsn) -> Result<()>,
    ) -> Result<()> {
        let mut cp = self.checkpointer.lock();
        self.check_poison()?;
        self.free_again();
        if self.is_full() {
            self.give_back()?;
            self.reserve_changes(&mut cp, note.len());
        }
        if cp.lacks_reserve && self.stats().releasable_bytes > 0 && self.give_back_to(0)? {
            // GC gets it back from what this checkpoint frees.
            self.reserve_changes(&mut cp, note.len());
        }
        let new_map = self.snapshot_if_wanted(&mut cp)?;
        let capture = self.state.write().capture(new_map.is_some());
        let prepared = self.prepare(&cp, new_map.as_ref(), &capture, note, flush_log_past);
        let (sb, changes) = match prepared {
            Ok(prepared) => prepared,
            Err(error) => {
                self.state.write().restore(&capture);
                return Err(error);
            }
        };
        let claimed = sb.claim.oldest_of_pages(self.under(), self.scope());
        {
            // From here on a start may find this one.
            let mut state = self.state.write();
            state.durable_oldest = state.durable_oldest.min(claimed);
        }
        let first = 1 - cp.newest;
        if let Err(error) = self.write_slot(&cp, sb, first) {
            self.state.write().restore(&capture);
            return Err(error);
        }
        if new_map.is_some() {
            (cp.has_obsolete, cp.failed_at) = (true, 0);
            cp.snapshot_bytes = sb.directory_at + sb.directory_bytes;
        }
        let second = cp.newest;
        (cp.current, cp.changes, cp.newest) = (sb, changes, first);
        self.write_slot(&cp, sb, second)?;
        if let Some(NewMap { written, .. }) = new_map {
            // The old file stays readable for threads that are reading a leaf of it.
            let mut state = self.state.write();
            state.map.rebase(written.snapshot, &written.chunks, &capture.changes);
        }
        add(&self.counters.checkpoints, 1);
        if !planted::is(Bug::StoreSegmentFreedEarly) {
            self.state.write().segments.release(&capture.releasable, self.epochs.now());
        }
        {
            let mut state = self.state.write();
            state.segments.take_up();
            state.durable_oldest = claimed;
        }
        if !capture.releasable.is_empty() {
            self.full.store(false, Relaxed);
        }
        self.refresh_debt();
        if cp.has_obsolete {
            self.remove_obsolete(&mut cp);
        }
        self.reserve_changes(&mut cp, note.len());
        Ok(())
    }

    /// Map files of older generations go; those of a backup with the first checkpoint after it.
    fn remove_obsolete(&self, cp: &mut Checkpointer) {
        let (current, backup) = (cp.current.map_generation, self.backup_map.load(Relaxed));
        let removed = remove_obsolete(&*self.os, &self.dir, [current, backup]);
        cp.has_obsolete = removed.is_err() || ![0, current].contains(&backup);
    }

    /// Not needed by this checkpoint; writes that need room find a full disk.
    fn reserve_changes(&self, cp: &mut Checkpointer, note_bytes: usize) {
        let bytes = self.changes_reserve_bytes() + 2 * note_bytes as u64;
        cp.lacks_reserve = cp.changes.reserve(bytes).is_err();
    }

    /// What the next checkpoint may append without new space: see [`Store::wants_checkpoint`].
    pub fn changes_reserve_bytes(&self) -> u64 {
        self.segment_bytes.min(CHANGES_RESERVE_BYTES_MAX)
    }

    fn write_slot(&self, cp: &Checkpointer, sb: Superblock, slot: usize) -> Result<()> {
        // The block was there before: even a full disk is a failed write, of which nobody knows
        // how much arrived.
        let written = sb.write(&*cp.slots, slot).map_err(|error| match error {
            Error::Full { .. } => {
                Error::io("write", cp.slots.path(), std::io::ErrorKind::StorageFull.into())
            }
            other => other,
        });
        written.map_err(|error| self.poisoned_by(error))?;
        add(&self.counters.superblock_bytes, BLOCK_BYTES as u64);
        Ok(())
    }

    /// Everything up to the superblock. Answers its new content and the change log it names.
    fn prepare(
        &self,
        cp: &Checkpointer,
        new_map: Option<&NewMap>,
        capture: &Capture,
        note: &[u8],
        flush_log_past: &mut dyn FnMut(Lsn) -> Result<()>,
    ) -> Result<(Superblock, ChangeLog)> {
        // Every record that the captured map names was packed before its entry was set.
        self.pages.seal_all();
        self.write_tail()?;
        if !planted::is(Bug::CheckpointWithoutStoreSync) {
            self.pages.sync().map_err(|error| self.poisoned_by(error))?;
        }
        if !planted::is(Bug::CheckpointWithoutLogFlush) {
            flush_log_past(capture.sums.max_lsn)?;
        }

        let cipher = self.cipher.as_deref();
        if let Some(cipher) = cipher {
            cipher.refresh();
        }
        let note = encrypt_note(cipher, self.seed, note)?;
        let mut sb = cp.current;
        sb.proof = proof(cipher, sb.proof)?;
        sb.claim = self.claim_of(capture);
        sb.promises = capture.promises;
        sb.generation += 1;
        sb.max_page = capture.max_page.0;
        let log = new_map.map_or(&cp.changes, |new| &new.changes);
        let appended = log.append(&note, &capture.sums, &capture.changes);
        let changes = appended.map_err(|error| self.poisoned_by(error))?;
        add(&self.counters.map_bytes, changes.end() - log.end());
        (sb.changes_end, sb.changes_chain) = (changes.end(), changes.chain());
        sb.last_batch_at = changes.last_batch_at();
        if let Some(new) = new_map {
            // The names of the new files must be durable before a superblock uses them.
            self.os.sync_dir(&self.dir).map_err(|error| self.poisoned_by(error))?;
            sb.map_generation = new.generation;
            sb.directory_at = new.written.directory.at;
            sb.directory_bytes = new.written.directory.bytes;
            sb.directory_checksum = new.written.directory.checksum;
        }
        assert!(sb.changes_end > sb.last_batch_at);
        Ok((sb, changes))
    }

    /// If there are no pages the newest version is enough for them.
    fn claim_of(&self, capture: &Capture) -> KeyClaim {
        let pages = match capture.oldest {
            Oldest::Version(version) => Some(version),
            Oldest::None => Some(self.newest_version()),
            Oldest::Foreign | Oldest::Unknown => None,
        };
        KeyClaim {
            key: self.under().unwrap_or(0),
            pages,
            scope: self.scope(),
            log: capture.log_claim,
        }
    }

    /// Writes a new snapshot if the change log is long. The leaves are copied one after the
    /// other while the map changes, from memory or from the old snapshot: the changes not yet
    /// taken go to the first batch of the new change log, so that both together are the captured
    /// map.
    fn snapshot_if_wanted(&self, cp: &mut Checkpointer) -> Result<Option<NewMap>> {
        let limit_bytes = self.state.read().map.changes_limit_bytes();
        if !cp.wants_snapshot(self.segment_bytes, limit_bytes) {
            return Ok(None);
        }
        let generation = cp.current.generation + 1;
        let mut written = self.write_snapshot(generation);
        if matches!(written, Err(Failure::Write(Error::Full { .. }))) && cp.lacks_reserve {
            // The new files may have what is reserved for the old change log, which they replace.
            cp.changes.give_back()?;
            written = self.write_snapshot(generation);
        }
        match written {
            Ok(new) => return Ok(Some(new)),
            // The change log has room reserved, so it grows on.
            Err(Failure::Write(Error::Full { .. })) => {}
            // Nothing is lost: the old snapshot and the change log hold what can be had.
            Err(Failure::Read(_)) => cp.failed_at = cp.changes.end(),
            Err(Failure::Write(error)) => return Err(self.poisoned_by(error)),
        }
        let paths = [mapfile::snapshot_path, mapfile::changes_path];
        for path in paths.map(|path_of| path_of(&self.dir, generation)) {
            if self.os.exists(&path)? {
                self.os.remove(&path)?;
            }
        }
        Ok(None)
    }

    fn write_snapshot(&self, generation: u64) -> std::result::Result<NewMap, Failure> {
        let leaves = self.state.read().map.leaf_slots();
        let leaf_of = |leaf: usize| {
            let view = self.state.read().map.view(leaf);
            view.read()
        };
        let path = mapfile::snapshot_path(&self.dir, generation);
        let file = mapfile::create_file(&*self.os, &path).map_err(Failure::Write)?;
        let written = write_snapshot(file, self.seed, generation, leaves, &leaf_of)?;
        let end = written.directory.at + written.directory.bytes;
        add(&self.counters.map_bytes, end.next_multiple_of(BLOCK_BYTES as u64));
        let path = mapfile::changes_path(&self.dir, generation);
        let file = mapfile::create_file(&*self.os, &path).map_err(Failure::Write)?;
        let mut changes = ChangeLog::new(file, self.seed, generation);
        // On a full disk it is tried again when the old files are gone.
        match changes.reserve(self.changes_reserve_bytes()) {
            Ok(()) | Err(Error::Full { .. }) => {}
            Err(error) => return Err(Failure::Write(error)),
        }
        Ok(NewMap { generation, written, changes })
    }
}
