//! What goes on behind the sessions: each kind of work is a step with a budget, called by a
//! thread here or, without threads, by whoever owns the engine ([`Engine::step`]).

use super::config::Level;
use super::engine::Engine;
use crate::base::{Error, Result};
use crate::os::sync::{self, Condvar, Mutex};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// A checkpoint starts when redo would read this share of the log's capacity.
const CHECKPOINT_PERCENT: u64 = 40;
const GC_STEP_BYTES: u64 = 8 << 20;
const REVERT_STEP_RECORDS: usize = 256;
const PURGE_STEP_TRANSACTIONS: usize = 256;
const EVICT_STEP_PAGES: usize = 64;
const IDLE_CHECKPOINT: Duration = Duration::from_secs(30);
/// After an error a worker rests, so that it neither spins nor floods the error log.
const REST_AFTER_ERROR: Duration = Duration::from_secs(1);
const REPORT_EVERY_NS: u64 = 10_000_000_000;

type Step = fn(&Engine) -> Result<bool>;

/// A kind of background work: a thread's name, how long it idles, what it does.
struct Worker {
    name: &'static str,
    idle: Duration,
    step: Step,
}

const WORKERS: [Worker; 5] = [
    Worker { name: "sluice-log", idle: Duration::from_millis(50), step: Engine::log_step },
    Worker { name: "sluice-check", idle: Duration::from_millis(100), step: Engine::space_step },
    Worker { name: "sluice-evict", idle: Duration::from_millis(10), step: Engine::evict_step },
    Worker { name: "sluice-revert", idle: Duration::from_millis(100), step: Engine::revert_step },
    Worker { name: "sluice-purge", idle: Duration::from_millis(100), step: Engine::purge_step },
];

/// Wakes idle workers. It is not a part of the engine, so that whoever idles does not keep the
/// engine alive: several workers in turn would do so for ever.
#[derive(Default)]
pub(crate) struct Bell {
    rung: Mutex<()>,
    heard: Condvar,
}

impl Bell {
    pub fn ring(&self) {
        drop(self.rung.lock());
        self.heard.notify_all();
    }

    fn wait(&self, idle: Duration) {
        self.heard.wait_for(&mut self.rung.lock(), idle);
    }
}

impl Engine {
    pub(crate) fn start_background(self: &Arc<Self>) {
        if !self.config.background {
            return;
        }
        let mut threads = self.threads.lock();
        for worker in &WORKERS {
            let engine = Arc::downgrade(self);
            let bell = Arc::clone(&self.bell);
            let body = move || run(&engine, &bell, worker);
            match sync::spawn(worker.name, body) {
                Ok(handle) => threads.push(handle),
                Err(error) => {
                    let message = format!("Sluice: cannot start {}: {error}", worker.name);
                    self.host.log(Level::Error, &message);
                }
            }
        }
    }

    /// One round of every kind of background work, for engines without threads.
    pub fn step(&self) -> Result<()> {
        for worker in &WORKERS {
            (worker.step)(self)?;
        }
        Ok(())
    }

    /// Prepares log segments, writes ahead, and once a second makes the log durable.
    fn log_step(&self) -> Result<bool> {
        while self.wal.prepare_step()? {}
        self.wal.write_step()?;
        let now = self.os.now_ns();
        let last = self.last_log_flush_ns.load(Ordering::Relaxed);
        if now.saturating_sub(last) >= 1_000_000_000 {
            self.last_log_flush_ns.store(now, Ordering::Relaxed);
            self.flush_log()?;
        }
        Ok(false)
    }

    /// Checkpoints, GC of the page store, and the pages of dropped trees.
    fn space_step(&self) -> Result<bool> {
        if self.wants_checkpoint() {
            self.checkpoint_now()?;
        } else if self.store.wants_checkpoint() {
            self.checkpoint_map()?;
        }
        self.release_log();
        let dropping = self.free_dropped_step();
        let mut moved = 0;
        if self.store.wants_gc() {
            moved = self.store.gc_step(GC_STEP_BYTES)?;
        }
        Ok(dropping || moved > 0)
    }

    fn wants_checkpoint(&self) -> bool {
        let redo = self.redo_bytes();
        if redo >= self.log_capacity() / 100 * CHECKPOINT_PERCENT {
            return true;
        }
        let idle_ns = self.os.now_ns().saturating_sub(self.last_checkpoint_ns());
        redo > 0 && idle_ns >= IDLE_CHECKPOINT.as_nanos() as u64 && self.has_news()
    }

    /// Whether anything was logged since the last checkpoint but the checkpoint itself.
    fn has_news(&self) -> bool {
        self.wal.stats().records > self.records_at_checkpoint.load(Ordering::Relaxed)
    }

    fn evict_step(&self) -> Result<bool> {
        self.pool.evict_step(EVICT_STEP_PAGES)?;
        Ok(false)
    }

    fn revert_step(&self) -> Result<bool> {
        self.ctx.revert_step(REVERT_STEP_RECORDS)
    }

    fn purge_step(&self) -> Result<bool> {
        self.ctx.table.advance_horizon();
        self.ctx.purge_step(PURGE_STEP_TRANSACTIONS)
    }
}

fn run(engine: &Weak<Engine>, bell: &Bell, worker: &Worker) {
    let mut last_error_ns: Option<u64> = None;
    while let Some(engine) = engine.upgrade() {
        if engine.stopped.load(Ordering::SeqCst) {
            return;
        }
        let idle = match (worker.step)(&engine) {
            Ok(true) => continue,
            Ok(false) => worker.idle,
            Err(error) => {
                let now_ns = engine.os.now_ns();
                if last_error_ns.is_none_or(|at| now_ns.saturating_sub(at) > REPORT_EVERY_NS) {
                    report(&engine, worker.name, &error);
                    last_error_ns = Some(now_ns);
                }
                REST_AFTER_ERROR
            }
        };
        drop(engine);
        bell.wait(idle);
    }
}

fn report(engine: &Engine, worker: &str, error: &Error) {
    engine.host.log(Level::Error, &format!("Sluice: {worker}: {error}"));
}
