//! The engine: everything that is open, and who waits for what.

use super::background::Bell;
use super::config::{Config, FlushAtCommit, Host};
use super::table::Table;
use super::trx::Trx;
use crate::base::{Error, Lsn, PageId, Result};
use crate::btree;
use crate::buffer::Pool;
use crate::catalog::Catalog;
use crate::os::planted::{self, Bug};
use crate::os::sync::{Condvar, JoinHandle, Mutex, RwLock};
use crate::os::Os;
use crate::store::Store;
use crate::txn::{Context, Open, Owner, Session};
use crate::wal::Wal;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicU8, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Longest time that a writer waits for a checkpoint to make room in the log.
const LOG_WAIT_MAX: Duration = Duration::from_secs(60);

/// A prepared transaction without a session.
pub(crate) struct Detached {
    pub open: Arc<Open>,
    pub owner: Arc<Owner>,
}

/// Where the last checkpoints stand.
#[derive(Clone, Copy, Default)]
pub(crate) struct CheckpointState {
    /// Below it, recovery from this checkpoint reads nothing: not to scan, to revert or to purge.
    pub needs_from: Lsn,
    pub redo_from: Lsn,
}

pub struct Engine {
    pub(crate) config: Config,
    pub(crate) host: Arc<dyn Host>,
    pub(crate) os: Arc<dyn Os>,
    pub(crate) wal: Arc<Wal>,
    pub(crate) store: Arc<Store>,
    pub(crate) pool: Arc<Pool>,
    pub(crate) env: Arc<btree::Env>,
    pub(crate) ctx: Arc<Context>,
    pub(crate) catalog: Catalog,
    pub(crate) catalog_root: PageId,
    pub(crate) tables: RwLock<HashMap<String, Arc<Table>>>,
    /// One DDL statement at a time.
    pub(crate) ddl: Mutex<()>,
    pub(crate) next_tree: AtomicU32,
    pub(crate) next_table: AtomicU64,
    /// One checkpoint at a time.
    pub(crate) checkpointing: Mutex<()>,
    pub(crate) checkpoint: Mutex<CheckpointState>,
    /// The redo point of the last checkpoint, for those who wait for room in the log.
    pub(crate) redo_from: AtomicU64,
    pub(crate) log_capacity_bytes: AtomicU64,
    flush_at_commit: AtomicU8,
    sessions: Mutex<HashMap<u64, Weak<Owner>>>,
    pub(crate) prepared: Mutex<HashMap<Vec<u8>, Detached>>,
    /// Trees of dropped tables whose pages are not all free yet.
    pub(crate) dropped_trees: Mutex<Vec<crate::base::TreeId>>,
    pub(crate) stopped: AtomicBool,
    pub(crate) bell: Arc<Bell>,
    pub(crate) last_log_flush_ns: AtomicU64,
    last_checkpoint_ns: AtomicU64,
    pub(crate) records_at_checkpoint: AtomicU64,
    room: Mutex<()>,
    room_made: Condvar,
    pub(crate) threads: Mutex<Vec<JoinHandle>>,
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
    pub next_tree: u32,
    pub next_table: u64,
    pub checkpoint: CheckpointState,
    pub lock: Box<dyn Send + Sync>,
}

impl Engine {
    pub(crate) fn new(parts: Parts) -> Arc<Engine> {
        Arc::new(Engine {
            redo_from: AtomicU64::new(parts.checkpoint.redo_from.0),
            log_capacity_bytes: AtomicU64::new(parts.config.log_capacity_bytes),
            flush_at_commit: AtomicU8::new(parts.config.flush_at_commit as u8),
            config: parts.config,
            host: parts.host,
            os: parts.os,
            wal: parts.wal,
            store: parts.store,
            pool: parts.pool,
            env: parts.env,
            ctx: parts.ctx,
            catalog: parts.catalog,
            catalog_root: parts.catalog_root,
            tables: RwLock::default(),
            ddl: Mutex::default(),
            next_tree: AtomicU32::new(parts.next_tree),
            next_table: AtomicU64::new(parts.next_table),
            checkpointing: Mutex::default(),
            checkpoint: Mutex::new(parts.checkpoint),
            sessions: Mutex::default(),
            prepared: Mutex::default(),
            dropped_trees: Mutex::default(),
            stopped: AtomicBool::new(false),
            bell: Arc::default(),
            last_log_flush_ns: AtomicU64::new(0),
            last_checkpoint_ns: AtomicU64::new(0),
            records_at_checkpoint: AtomicU64::new(0),
            room: Mutex::new(()),
            room_made: Condvar::new(),
            threads: Mutex::default(),
            _lock: parts.lock,
        })
    }

    /// A transaction for one session. `session` is whatever the host knows it by.
    pub fn begin(self: &Arc<Self>, session: u64) -> Trx {
        let owner = self.ctx.locks.owner(session);
        self.sessions.lock().insert(session, Arc::downgrade(&owner));
        Trx::new(Arc::clone(self), session, owner)
    }

    pub(crate) fn forget_session(&self, session: u64) {
        let mut sessions = self.sessions.lock();
        // A newer transaction of the same session stays known.
        if sessions.get(&session).is_some_and(|owner| owner.strong_count() <= 1) {
            sessions.remove(&session);
        }
    }

    /// Wakes the session if it waits for a lock: it was killed. Never blocks for long.
    pub fn interrupt(&self, session: u64) {
        let owner = self.sessions.lock().get(&session).and_then(Weak::upgrade);
        if let Some(owner) = owner {
            self.ctx.locks.interrupt(&owner);
        }
    }

    pub(crate) fn system_session(&self) -> Session {
        Session::new(Arc::clone(&self.ctx), self.ctx.locks.owner(0))
    }

    /// Refuses or delays a write: called with no latch held, before each row operation.
    pub(crate) fn admit(&self) -> Result<()> {
        self.check_running()?;
        self.wal.admit()?;
        if self.redo_bytes() < self.log_capacity() {
            return Ok(());
        }
        self.wait_for_room()
    }

    #[cold]
    fn wait_for_room(&self) -> Result<()> {
        if !self.config.background {
            return self.checkpoint_now();
        }
        let mut waited = Duration::ZERO;
        let slice = Duration::from_millis(20);
        while self.redo_bytes() >= self.log_capacity() {
            self.check_running()?;
            self.wal.admit()?;
            self.wake_background();
            let mut guard = self.room.lock();
            self.room_made.wait_for(&mut guard, slice);
            waited += slice;
            if waited > LOG_WAIT_MAX {
                return Err(Error::Full { what: "log" });
            }
        }
        Ok(())
    }

    pub(crate) fn last_checkpoint_ns(&self) -> u64 {
        self.last_checkpoint_ns.load(Ordering::Relaxed)
    }

    /// A checkpoint is done: what it allows may go on.
    pub(crate) fn announce_room(&self) {
        self.last_checkpoint_ns.store(self.os.now_ns(), Ordering::Relaxed);
        self.records_at_checkpoint.store(self.wal.stats().records, Ordering::Relaxed);
        drop(self.room.lock());
        self.room_made.notify_all();
    }

    pub(crate) fn log_capacity(&self) -> u64 {
        self.log_capacity_bytes.load(Ordering::Relaxed)
    }

    /// Bytes of log that redo would read now.
    pub(crate) fn redo_bytes(&self) -> u64 {
        self.wal.end().0.saturating_sub(self.redo_from.load(Ordering::Relaxed))
    }

    pub(crate) fn check_running(&self) -> Result<()> {
        if self.stopped.load(Ordering::Relaxed) {
            return Err(Error::Refused("the engine is shut down".into()));
        }
        Ok(())
    }

    pub(crate) fn flush_for_commit(&self, end: Lsn) -> Result<()> {
        if planted::is(Bug::CommitWithoutFlush) {
            return Ok(());
        }
        match self.flush_at_commit.load(Ordering::Relaxed) {
            0 => Ok(()),
            2 => self.wal.write_to(end),
            _ => self.wal.flush_to(end),
        }
    }

    /// Makes everything appended so far durable.
    pub fn flush_log(&self) -> Result<()> {
        self.wal.flush_to(self.wal.end())
    }

    pub fn set_flush_at_commit(&self, mode: FlushAtCommit) {
        self.flush_at_commit.store(mode as u8, Ordering::Relaxed);
    }

    pub fn set_buffer_pool_bytes(&self, bytes: u64) {
        self.pool.set_capacity(usize::try_from(bytes).unwrap_or(usize::MAX));
    }

    pub fn set_log_capacity_bytes(&self, bytes: u64) {
        self.log_capacity_bytes.store(bytes, Ordering::Relaxed);
        self.wake_background();
    }

    pub(crate) fn wake_background(&self) {
        self.bell.ring();
    }

    /// Stops the background, writes a last checkpoint, and refuses everything from then on.
    pub fn shutdown(&self) -> Result<()> {
        if self.stopped.load(Ordering::SeqCst) {
            return Ok(());
        }
        let last = self.checkpoint_now();
        self.stopped.store(true, Ordering::SeqCst);
        self.wake_background();
        for thread in std::mem::take(&mut *self.threads.lock()) {
            if !thread.is_current() {
                thread.join();
            }
        }
        last.and_then(|()| self.flush_log())
    }
}
