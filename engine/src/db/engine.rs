//! The engine: everything that is open, and what holds writers back.

use super::backups::Backups;
use super::callbacks::Killed;
use super::checkpoints::{CheckpointState, Checkpoints, Progress, RoomWait};
use super::config::{Config, FlushAtCommit, Host, LogCompression};
use super::lease::{Lease, Purpose};
use super::log_keys::LogKeys;
use super::log_shares::LogShares;
use super::long_counters::LongCounters;
use super::pace::Point;
use super::purge_notes::PurgeNotes;
use super::sessions::Sessions;
use super::settings::Settings;
use super::tables::{Recalculation, Schema};
use super::unreadable::Unreadable;
use super::workers::Workers;
use crate::base::{Error, Lsn, PageId, Result};
use crate::binlog::Binlog;
use crate::btree;
use crate::buffer::Pool;
use crate::catalog::Catalog;
use crate::os::hash::{HashMap, HashSet};
use crate::os::observe::{self, Wait};
use crate::os::planted::{self, Bug};
use crate::os::rank::Rank;
use crate::os::sync::{now_ns, Mutex, Ranked, RwLock};
use crate::os::{Os, SIMULATED};
use crate::store::Store;
use crate::txn::{Context, Owner, Session, Sweep};
use crate::wal::{Place, Wal};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::Arc;
use std::time::Duration;

/// A restart unpacks so many times the bytes of the log's files at most, by what counts against the capacity.
const UNPACKED_TIMES: u64 = 2;

/// Bytes of unwritten log that call for the worker that writes ahead.
const WRITE_AHEAD_BYTES: u64 = 1 << 20;

/// Transactions with delete marks, and share of the log's capacity from the oldest of them on,
/// above which writers wait for the purge.
const PURGE_BACKLOG_MAX: usize = 10_000;
/// From so many on writers help: the leaves are still in memory.
const PURGE_HELP_BACKLOG: usize = if SIMULATED { 2 } else { 128 };
const PURGE_LAG_PERCENT: u64 = 20;
const PURGE_HELP_RECORDS: usize = if SIMULATED { 2 } else { 8 };

pub struct Engine {
    pub(crate) config: Config,
    pub(crate) host: Arc<dyn Host>,
    pub(crate) os: Arc<dyn Os>,
    pub(crate) wal: Arc<Wal>,
    pub(crate) store: Arc<Store>,
    pub(crate) pool: Arc<Pool>,
    /// What all trees share.
    pub(crate) env: Arc<btree::Env>,
    /// What all transactions share.
    pub(crate) ctx: Arc<Context>,
    pub(crate) schema: Schema,
    pub(crate) old_versions_root: PageId,
    pub(crate) sweep: Mutex<Sweep>,
    pub(crate) recalculation: Recalculation,
    pub(crate) checkpoints: Checkpoints,
    pub(crate) purge_notes: PurgeNotes,
    pub(crate) backups: Backups,
    pub(crate) workers: Workers,
    pub(crate) binlog: Arc<Binlog>,
    settings: Settings,
    pub(crate) sessions: Sessions,
    /// For how long the last measurement of room on the disk is good.
    pub(crate) lease: Lease,
    pub(crate) long_values: LongCounters,
    pub(crate) log_shares: LogShares,
    pub(crate) log_keys: LogKeys,
    /// Of copies, in trees that were built at once.
    pub(crate) loaded_rows: AtomicU64,
    /// Statements that loaded an empty table, and their rows.
    pub(crate) bulk_inserts: AtomicU64,
    pub(crate) bulk_rows: AtomicU64,
    /// What the error log was told already.
    pub(crate) reported_damage: Mutex<HashSet<String>>,
    pub(crate) unreadable: Unreadable,
    pub(crate) _lock: Box<dyn Send + Sync>,
}

/// What [`Engine::new`] is made of.
pub(crate) struct Parts {
    pub config: Config,
    pub host: Arc<dyn Host>,
    pub os: Arc<dyn Os>,
    pub wal: Arc<Wal>,
    pub store: Arc<Store>,
    pub pool: Arc<Pool>,
    pub env: Arc<btree::Env>,
    pub ctx: Arc<Context>,
    pub catalog: Catalog,
    pub catalog_root: PageId,
    pub old_versions_root: PageId,
    pub next_tree: u32,
    pub next_table: u64,
    pub checkpoint: CheckpointState,
    pub log_keys: LogKeys,
    pub binlog: Arc<Binlog>,
    pub lock: Box<dyn Send + Sync>,
}

impl Engine {
    /// Whether what is written is encrypted.
    pub(crate) fn encrypts(&self) -> bool {
        self.config.encryption.as_ref().is_some_and(|e| e.writes_under.is_some())
    }

    pub(crate) fn new(parts: Parts) -> Arc<Engine> {
        let redo_place = parts.wal.place_of(parts.checkpoint.redo_from);
        Arc::new(Engine {
            settings: Settings::new(&parts.config),
            unreadable: Unreadable::new(Arc::clone(&parts.os), Arc::clone(&parts.store)),
            config: parts.config,
            host: parts.host,
            os: parts.os,
            wal: parts.wal,
            store: parts.store,
            pool: parts.pool,
            env: parts.env,
            ctx: parts.ctx,
            old_versions_root: parts.old_versions_root,
            sweep: Mutex::ranked(Rank::Sweep, Sweep::default()),
            recalculation: Recalculation::default(),
            schema: Schema {
                catalog: parts.catalog,
                catalog_root: parts.catalog_root,
                tables: RwLock::ranked(Rank::Tables, HashMap::default()),
                ddl: Mutex::ranked(Rank::Ddl, ()),
                next_tree: AtomicU32::new(parts.next_tree),
                next_table: AtomicU64::new(parts.next_table),
                dropped_trees: Mutex::ranked(Rank::DroppedTrees, Vec::new()),
            },
            checkpoints: Checkpoints::new(parts.checkpoint, redo_place),
            purge_notes: PurgeNotes::default(),
            backups: Backups::default(),
            workers: Workers::default(),
            binlog: parts.binlog,
            sessions: Sessions::new(),
            lease: Lease::default(),
            long_values: LongCounters::default(),
            log_shares: LogShares::default(),
            log_keys: parts.log_keys,
            loaded_rows: AtomicU64::new(0),
            bulk_inserts: AtomicU64::new(0),
            bulk_rows: AtomicU64::new(0),
            reported_damage: Mutex::ranked(Rank::ReportedDamage, HashSet::default()),
            _lock: parts.lock,
        })
    }

    /// The owner of a session's locks, which [`Engine::interrupt`] finds from now on.
    pub(crate) fn register_session(&self, session: u64) -> Arc<Owner> {
        let owner = self.ctx.locks.owner(session);
        self.sessions.register(session, &owner);
        owner
    }

    /// Wakes the session if it waits for a lock: it was killed. Never blocks for long.
    pub fn interrupt(&self, session: u64) {
        if let Some(owner) = self.sessions.owner(session) {
            self.ctx.locks.interrupt(&owner);
        }
    }

    pub(crate) fn system_session(&self) -> Session {
        Session::new(Arc::clone(&self.ctx), self.ctx.locks.owner(0))
    }

    /// Refuses or delays a write: called with no latch held, before each row operation. A kill of
    /// the session ends the wait.
    pub(crate) fn admit(&self, purpose: Purpose, killed: &Killed<'_>) -> Result<()> {
        self.check_running()?;
        self.check_room(purpose, killed)?;
        match purpose {
            Purpose::Add => self.wal.admit()?,
            Purpose::Delete => self.wal.admit_owed()?,
        }
        self.write_log_ahead();
        self.wait_for_gc();
        self.pool.admit();
        self.help_purge();
        if self.redo_bytes() < self.log_capacity() {
            return Ok(());
        }
        self.wait_for_room(killed)
    }

    /// Writers do a part of the purge when it falls behind, beside each other: so its backlog and the
    /// log that it holds back stay bounded, and it finds the leaves in memory.
    fn help_purge(&self) {
        if !self.config.background {
            return;
        }
        let lag = self.log_capacity() / 100 * PURGE_LAG_PERCENT;
        let low = Lsn(self.wal.end().0.saturating_sub(lag));
        let oldest = || self.ctx.table.oldest_snapshot_csn();
        let lags = |most| self.ctx.registry.purge_lags(low, most, oldest);
        if !lags(PURGE_HELP_BACKLOG) {
            return;
        }
        // The purge's own thread meets the same failure and reports it: this statement is not at fault.
        let found = self.ctx.purge_beside(PURGE_HELP_RECORDS);
        if matches!(found, Ok(false)) && lags(PURGE_BACKLOG_MAX) {
            // Others are at all of it, as at one transaction with many deletes: their pace counts.
            let _ = self.ctx.purge_step(PURGE_HELP_RECORDS);
        }
    }

    #[cold]
    fn wait_for_room(&self, killed: &Killed<'_>) -> Result<()> {
        if !self.config.background {
            return self.checkpoint_now();
        }
        let mut wait = RoomWait::new(self.checkpoint_progress());
        let slice = Duration::from_millis(20);
        while self.redo_bytes() >= self.log_capacity() {
            self.check_running()?;
            if killed() {
                return Err(Error::Interrupted);
            }
            self.wal.admit()?;
            // Without a store there will be no checkpoint.
            self.store.check_poison()?;
            self.wake_background();
            let waited = self.wait_for_announcement(slice);
            if wait.is_hopeless(self.checkpoint_progress(), waited) {
                return Err(Error::Full { what: "log" });
            }
        }
        Ok(())
    }

    pub(crate) fn checkpoint_progress(&self) -> Progress {
        Progress {
            redo_place: self.checkpoints.redo_place.load(Ordering::Relaxed),
            redo_from: self.checkpoints.redo_from.load(Ordering::Relaxed),
            pages: self.pool.writebacks(),
        }
    }

    /// Returns after a checkpoint, at the latest after `slice`; answers how long it took. A thread
    /// that comes late to the processor has waited no longer.
    pub(crate) fn wait_for_announcement(&self, slice: Duration) -> Duration {
        let begun_ns = now_ns();
        let mut guard = self.checkpoints.done.lock();
        observe::waiting(Wait::LogRoom, || self.checkpoints.room_made.wait_for(&mut guard, slice));
        Duration::from_nanos(now_ns() - begun_ns).min(slice)
    }

    pub(crate) fn last_checkpoint_ns(&self) -> u64 {
        self.checkpoints.last_ns.load(Ordering::Relaxed)
    }

    /// A whole checkpoint is done: the next one of an idle engine is due from here.
    pub(crate) fn note_checkpoint(&self) {
        self.checkpoints.last_ns.store(self.os.now_ns(), Ordering::Relaxed);
        self.checkpoints.records.store(self.wal.stats().records, Ordering::Relaxed);
        self.checkpoints.log_end.store(self.wal.end().0, Ordering::Relaxed);
    }

    /// A checkpoint is done: what it allows may go on.
    pub(crate) fn announce_room(&self) {
        drop(self.checkpoints.done.lock());
        self.checkpoints.room_made.notify_all();
    }

    pub(crate) fn log_capacity(&self) -> u64 {
        self.settings.log_capacity_bytes()
    }

    /// Bytes of the log's files that redo would read now; but where packing has made them very few, a part of
    /// the bytes as they are in memory, by which the time of a restart goes.
    pub(crate) fn redo_bytes(&self) -> u64 {
        let at = |position: &AtomicU64| position.load(Ordering::Relaxed);
        let (place, lsn) = (&self.checkpoints.redo_place, &self.checkpoints.redo_from);
        self.redo_bytes_since(Place(at(place)), Lsn(at(lsn)))
    }

    /// How much longer redo has become since the log ended at this place and position.
    pub(crate) fn redo_bytes_since(&self, place: Place, lsn: Lsn) -> u64 {
        let in_files = self.wal.end_place().0.saturating_sub(place.0);
        in_files.max(self.wal.end().0.saturating_sub(lsn.0) / UNPACKED_TIMES)
    }

    /// From where on redo would be `bytes`.
    pub(crate) fn redo_point(&self, bytes: u64) -> Lsn {
        let in_memory = self.wal.end().0.saturating_sub(bytes * UNPACKED_TIMES);
        self.wal.lsn_before_end(bytes).max(Lsn(in_memory))
    }

    pub(crate) fn pace_point(&self) -> Point {
        let pool = self.pool.stats();
        let (log_end, made) = (self.wal.end().0, self.env.next_page().0);
        let dirty = pool.dirty + pool.owed_pages;
        Point {
            log_end,
            dirty,
            dirtied: dirty + pool.writebacks.saturating_sub(pool.old_writebacks),
            made,
        }
    }

    pub(crate) fn check_running(&self) -> Result<()> {
        if self.workers.stopped.load(Ordering::Relaxed) {
            return Err(Error::Refused("the engine is shut down".into()));
        }
        Ok(())
    }

    pub(crate) fn flush_for_commit(&self, end: Lsn) -> Result<()> {
        if planted::is(Bug::CommitWithoutFlush) {
            return Ok(());
        }
        match self.settings.flush_at_commit() {
            FlushAtCommit::EverySecond => Ok(()),
            FlushAtCommit::WriteOnly => self.wal.write_to(end),
            FlushAtCommit::AtCommit => self.wal.flush_to(end),
        }
    }

    /// Makes everything appended so far durable.
    pub fn flush_log(&self) -> Result<()> {
        self.wal.flush_to(self.wal.end())
    }

    /// Everything below is durable; a batch of the log ends there.
    pub fn log_durable(&self) -> (Lsn, Place) {
        self.wal.durable_end()
    }

    pub fn set_flush_at_commit(&self, mode: FlushAtCommit) {
        self.settings.set_flush_at_commit(mode);
    }

    pub fn set_buffer_pool_bytes(&self, bytes: u64) {
        self.pool.set_capacity(usize::try_from(bytes).unwrap_or(usize::MAX));
    }

    pub fn set_log_capacity_bytes(&self, bytes: u64) {
        self.settings.set_log_capacity_bytes(bytes);
        self.wal.set_capacity_bytes(bytes);
        self.wake_background();
    }

    /// The log follows at the next step of its worker.
    pub fn set_log_compression(&self, how: LogCompression) {
        self.settings.set_log_compression(how);
        self.workers.log_bell.ring();
    }

    /// Only the log's worker calls this, so that the last setting stays.
    pub(crate) fn refresh_log_compression(&self) {
        let gathers = self.pool.gathers();
        if let Some(how) = self.settings.new_log_compression(gathers) {
            self.wal.set_compression(how.now(gathers));
        }
    }

    /// See [`Config::page_deltas`](super::Config).
    pub fn set_page_deltas(&self, is_on: bool) {
        self.pool.set_deltas(is_on);
    }

    /// See [`Config::space_percent`](super::Config); a value out of range becomes the next within.
    pub fn set_space_percent(&self, percent: u64) {
        self.store.set_space_percent(percent);
        self.wake_background();
    }

    /// See [`Config::rotate_key_age`](super::Config).
    pub fn set_rotate_key_age(&self, versions: u32) {
        self.settings.set_rotate_key_age(versions);
        self.wake_background();
    }

    pub(crate) fn rotate_key_age(&self) -> u32 {
        self.settings.rotate_key_age()
    }

    pub(crate) fn wake_background(&self) {
        for bell in [
            &self.workers.bell,
            &self.workers.evict_bell,
            &self.workers.read_bell,
            &self.workers.revert_bell,
            &self.workers.log_bell,
        ] {
            bell.ring();
        }
    }

    /// Has the log written ahead when much of it waits: a commit has to write all that was logged
    /// before it, also that of a bulk load.
    fn write_log_ahead(&self) {
        let end = self.wal.end().0;
        let from =
            self.wal.written_estimate().0.max(self.workers.log_rung_at.load(Ordering::Relaxed));
        if end.saturating_sub(from) > WRITE_AHEAD_BYTES {
            self.workers.log_rung_at.store(end, Ordering::Relaxed);
            self.workers.log_bell.ring();
        }
    }

    /// Stops the background, writes a last checkpoint, and refuses everything from then on.
    pub fn shutdown(&self) -> Result<()> {
        if self.workers.stopped.load(Ordering::SeqCst) {
            return Ok(());
        }
        let last = self.checkpoint_now();
        self.stop_workers();
        last.and_then(|()| self.flush_log())
    }

    pub(crate) fn stop_workers(&self) {
        self.workers.stopped.store(true, Ordering::SeqCst);
        self.wake_background();
        for thread in std::mem::take(&mut *self.workers.threads.lock()) {
            if !thread.is_current() {
                thread.join();
            }
        }
    }
}
