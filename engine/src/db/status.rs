//! Numbers for status variables, and a page of text for people.

use super::engine::Engine;
use super::records::{RECORD_COUNTER, RECORD_PURGED};
use crate::base::Lsn;
use crate::binlog::{RECORD_BINLOG, RECORD_BINLOG_STATE};
use crate::btree::{RECORD_DELTA, RECORD_TREE};
use crate::txn::{RECORD_ABORT, RECORD_COMMIT, RECORD_PREPARE, RECORD_REVERTED};
use std::fmt::Write;
use std::sync::atomic::Ordering;

impl Engine {
    /// Name (without the prefix `Sluice_`) and value. Bytes end in `_bytes`, times in `_us`;
    /// counters run since the engine was opened.
    pub fn status(&self) -> Vec<(&'static str, u64)> {
        let mut out = self.log_status();
        out.extend(self.store_status());
        out.extend(self.key_status());
        out.extend(self.transaction_status());
        out.extend(self.binlog.status());
        out
    }

    fn log_status(&self) -> Vec<(&'static str, u64)> {
        let log = self.wal.stats();
        let (durable, durable_place) = self.wal.durable_end();
        let pins = self.log_pins();
        let pin = |name| {
            let lsn = pins.iter().find(|pin| pin.0 == name).map(|pin| pin.1 .0);
            (name, lsn.map_or(0, |lsn| self.wal.file_bytes_from(Lsn(lsn))))
        };
        let kind = |k: u8| log.appended_bytes[usize::from(k)];
        let outcomes =
            [RECORD_COMMIT, RECORD_ABORT, RECORD_PREPARE, RECORD_REVERTED, RECORD_PURGED];
        vec![
            ("log_lsn", log.end.0),
            ("log_durable_lsn", durable.0),
            ("log_durable_place", durable_place.0),
            ("log_oldest_lsn", log.oldest.0),
            ("log_redo_bytes", self.redo_bytes()),
            ("redo_owed_pages", self.pool.recovered_pages() as u64),
            ("log_records", log.records),
            ("log_flushes", log.flushes),
            ("log_flush_waits", log.flush_waits),
            ("log_flush_wait_us", log.flush_wait_ns / 1000),
            ("log_writes", log.writes),
            ("log_written_bytes", log.written_bytes),
            ("log_made_bytes", log.made_bytes),
            ("log_tree_bytes", kind(RECORD_TREE)),
            ("log_delta_bytes", kind(RECORD_DELTA)),
            ("log_outcome_bytes", outcomes.iter().map(|&k| kind(k)).sum()),
            ("log_counter_bytes", kind(RECORD_COUNTER)),
            ("log_binlog_bytes", kind(RECORD_BINLOG) + kind(RECORD_BINLOG_STATE)),
            ("log_padding_bytes", log.padding_bytes),
            ("log_segments", log.segments_kept + log.segments_spare + log.segments_free),
            ("log_segments_late", log.segments_late),
            pin("log_pin_redo_bytes"),
            pin("log_pin_transactions_bytes"),
            pin("log_pin_revert_bytes"),
            pin("log_pin_purge_bytes"),
            pin("log_pin_snapshots_bytes"),
            pin("log_pin_binlog_bytes"),
            pin("log_pin_backup_bytes"),
            ("log_version_reads_memory", log.cache_reads),
            ("log_version_reads_disk", log.disk_reads),
            ("log_version_reads_ahead", log.ahead_reads),
        ]
    }

    fn store_status(&self) -> Vec<(&'static str, u64)> {
        let store = self.store.stats();
        let pool = self.pool.stats();
        vec![
            ("checkpoints", store.checkpoints),
            ("page_images", store.images),
            ("page_image_bytes", store.image_bytes),
            ("page_written_bytes", store.written_bytes),
            ("page_gc_bytes", store.gc_bytes),
            ("page_map_bytes", store.map_bytes),
            ("superblock_bytes", store.superblock_bytes),
            ("page_reads", store.reads),
            ("page_reads_together", store.stretch_reads),
            ("page_read_bytes", store.read_bytes),
            ("page_reads_corrupt", store.corrupt_reads),
            ("store_pages", store.pages),
            ("store_map_bytes", store.map_memory_bytes),
            ("store_map_leaf_reads", store.map_leaf_reads),
            ("store_map_leaf_faults", store.map_leaf_faults),
            ("store_live_bytes", store.live_bytes),
            ("store_dead_bytes", store.dead_bytes),
            ("store_free_bytes", store.free_bytes),
            ("store_reserved_bytes", store.reserved_bytes),
            ("store_hole_bytes", store.hole_bytes),
            ("store_returned_bytes", store.returned_bytes),
            ("buffer_pool_hits", pool.hits),
            ("buffer_pool_misses", pool.misses),
            ("buffer_pool_evictions", pool.evictions),
            ("buffer_pool_pages", pool.frames),
            ("buffer_pool_pages_dirty", pool.dirty),
            ("buffer_pool_pages_owed", pool.owed_pages),
            ("buffer_pool_change_bytes", pool.change_bytes),
            ("buffer_pool_evictions_owed", pool.owed_evictions),
            ("buffer_pool_deltas", pool.deltas),
            ("buffer_pool_delta_reads", pool.delta_reads),
            ("buffer_pool_evictions_scan", pool.passed),
            ("buffer_pool_read_ahead", pool.read_ahead),
            ("buffer_pool_writebacks", pool.writebacks),
            ("buffer_pool_inline_writebacks", pool.inline_writebacks),
            ("buffer_pool_waits", pool.waits),
            ("buffer_pool_overcommits", pool.overcommits),
            ("store_gc_waits", self.lease.gc_waits.load(Ordering::Relaxed)),
            ("store_full", u64::from(self.store.is_full())),
            ("store_held_bytes", store.held_bytes),
            ("backup_state", self.backups.state()),
            ("backups", self.backups.begun.load(Ordering::Relaxed)),
            ("backup_log_lsn", self.backups.log_from().map_or(0, |lsn| lsn.0)),
            (
                "backup_log_place",
                self.backups.log_from().map_or(0, |lsn| self.wal.segment_place(lsn).0),
            ),
            ("room_refusals", self.lease.refused.load(Ordering::Relaxed)),
        ]
    }

    fn transaction_status(&self) -> Vec<(&'static str, u64)> {
        let table = self.ctx.table.stats();
        let locks = self.ctx.locks.stats();
        let old = self.ctx.old.stats();
        vec![
            ("transactions_open", table.open),
            ("snapshots", table.snapshots),
            ("snapshot_views", table.views),
            ("transaction_table_ids", table.ring_ids),
            ("transaction_table_exceptions", table.exceptions),
            ("old_versions_moved", old.moved),
            ("old_versions_dropped", old.dropped),
            ("old_versions_sweeps", old.sweeps),
            ("old_versions_reads", old.reads),
            ("revert_backlog", self.ctx.reverts_waiting() as u64),
            ("purge_backlog", self.ctx.registry.purge_backlog() as u64),
            ("row_locks", locks.rows),
            ("range_locks", locks.intervals),
            ("lock_waits", locks.waits),
            ("lock_deadlocks", locks.deadlocks),
            ("lock_timeouts", locks.timeouts),
            ("long_value_chunk_reads", self.long_values.read.load(Ordering::Relaxed)),
            ("long_value_chunk_writes", self.long_values.written.load(Ordering::Relaxed)),
            ("long_values_kept", self.long_values.kept.load(Ordering::Relaxed)),
            ("copied_rows_loaded", self.loaded_rows.load(Ordering::Relaxed)),
            ("bulk_inserts", self.bulk_inserts.load(Ordering::Relaxed)),
            ("bulk_inserted_rows", self.bulk_rows.load(Ordering::Relaxed)),
        ]
    }

    /// What `SHOW ENGINE SLUICE STATUS` prints.
    pub fn status_text(&self) -> String {
        let mut out = String::new();
        let sections = [
            ("LOG", self.log_status()),
            ("STORE AND BUFFER POOL", self.store_status()),
            ("ENCRYPTION", self.key_status()),
            ("TRANSACTIONS AND LOCKS", self.transaction_status()),
            ("BINARY LOG", self.binlog.status()),
        ];
        for (title, values) in sections {
            let _ = writeln!(out, "{title}");
            for (name, value) in values {
                let _ = writeln!(out, "  {name:<32} {value}");
            }
        }
        out.push_str("LOG PINS, OLDEST FIRST\n");
        for (name, lsn) in self.log_pins() {
            let name = name.trim_start_matches("log_pin_").trim_end_matches("_bytes");
            let _ = writeln!(out, "  {name:<32} {lsn}");
        }
        out
    }
}
