//! Work beside the sessions: each kind is a step with a budget. A thread of this module calls it,
//! or, without threads, the owner of the engine ([`Engine::step`]).

use crate::base::{Error, Lsn, Result};
use crate::db::bell::Bell;
use crate::db::config::Level;
use crate::db::engine::Engine;
use crate::os::observe;
use crate::os::sync;
use crate::os::SIMULATED;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// A checkpoint starts when redo would read this share of the log's capacity. Pages that have left the redo
/// window by then are written.
const CHECKPOINT_PERCENT: u64 = 93;
/// GC copies in pieces of this size and rests in between, the less the more there is to collect.
pub(super) const GC_STEP_BYTES: u64 = 1 << 20;
const GC_REST_MAX: Duration = Duration::from_millis(100);
/// Between two slices of free space that go back: readers of the file wait for each.
const GIVE_BACK_REST: Duration = Duration::from_millis(10);
/// Sweeps of old versions rest so many times as long as they work.
const SWEEP_RESTS: u32 = 4;
const SWEEP_STEP_LEAVES: usize = 8;
const SWEEP_REST_MAX: Duration = Duration::from_millis(20);
const REVERT_STEP_RECORDS: usize = 1024;
/// While sessions are at work the revert rests at most so many times as long as it works.
const REVERT_RESTS: u32 = 8;
const REVERT_REST_MAX: Duration = Duration::from_millis(100);
const PURGE_STEP_RECORDS: usize = 256;
const PURGE_REST: Duration = Duration::from_millis(5);
/// Sampling for statistics rests so many times as long as it reads.
const STATISTICS_RESTS: u32 = 4;
const STATISTICS_REST_MAX: Duration = Duration::from_millis(100);
const EVICT_STEP_PAGES: usize = 64;
/// Scans ring when there is something to read ahead.
const READ_IDLE: Duration = Duration::from_secs(3600);
const IDLE_CHECKPOINT: Duration = Duration::from_secs(30);
/// Less log than this between two checkpoints of an idle engine: all pages are written.
const QUIET_BYTES: u64 = 4 << 20;
/// Only recovery leaves something to redo.
const REDO_IDLE: Duration = Duration::from_secs(3600);
/// In the simulator much is to happen while redo is owed.
const REDO_REST_SIMULATED: Duration = Duration::from_millis(10);
/// After an error a worker rests, so that it neither spins nor floods the error log.
const REST_AFTER_ERROR: Duration = Duration::from_secs(1);
const REPORT_EVERY_NS: u64 = 10_000_000_000;

/// What a worker does after a step.
enum Next {
    /// Nothing is left to do.
    Idle,
    Again,
    /// There is more, but others shall have their turn.
    After(Duration),
}

impl From<bool> for Next {
    /// Whether more is left to do now.
    fn from(more: bool) -> Next {
        if more {
            Next::Again
        } else {
            Next::Idle
        }
    }
}

/// A kind of background work: a thread's name, how long it idles, what it does.
struct Worker {
    name: &'static str,
    idle: Duration,
    step: fn(&Engine) -> Result<Next>,
    /// An engine without background that only reads has it, too ([`Engine::start_readers`]).
    is_for_readers: bool,
}

impl Worker {
    const fn new(name: &'static str, idle: Duration, step: fn(&Engine) -> Result<Next>) -> Worker {
        Worker { name, idle, step, is_for_readers: false }
    }

    const fn for_readers(self) -> Worker {
        Worker { is_for_readers: true, ..self }
    }
}

const WORKERS: [Worker; 13] = [
    // First: without threads it goes before the steps that need the pages. Two, so that the disk has another
    // read to do meanwhile.
    Worker::new("sluice-redo", REDO_IDLE, Engine::redo_worker_step),
    Worker::new("sluice-redo", REDO_IDLE, Engine::redo_worker_step),
    Worker::new("sluice-log", Duration::from_millis(50), Engine::log_step),
    Worker::new("sluice-check", Duration::from_millis(100), Engine::space_step),
    Worker::new("sluice-gc", Duration::from_millis(100), Engine::gc_step),
    Worker::new("sluice-age", Duration::from_millis(10), Engine::age_step),
    Worker::new("sluice-evict", Duration::from_millis(10), Engine::evict_step).for_readers(),
    // Two, so that the disk has another read to do while a page is being unpacked.
    Worker::new("sluice-read", READ_IDLE, Engine::read_step).for_readers(),
    Worker::new("sluice-read", READ_IDLE, Engine::read_step).for_readers(),
    Worker::new("sluice-revert", Duration::from_millis(100), Engine::revert_step),
    Worker::new("sluice-purge", Duration::from_millis(100), Engine::purge_step),
    Worker::new("sluice-move", Duration::from_millis(100), Engine::move_step),
    Worker::new("sluice-stats", Duration::from_secs(1), Engine::statistics_step),
];

impl Engine {
    pub(crate) fn start_background(self: &Arc<Self>) {
        if self.config.background {
            self.start(|_| true);
        }
    }

    /// For an engine without background that only reads: pages come ahead of its scans.
    pub(crate) fn start_readers(self: &Arc<Self>) {
        self.start(|worker| worker.is_for_readers);
    }

    fn start(self: &Arc<Self>, is_wanted: impl Fn(&Worker) -> bool) {
        let evict_bell = Arc::clone(&self.workers.evict_bell);
        self.pool.set_waker(Box::new(move || evict_bell.ring()));
        let read_bell = Arc::clone(&self.workers.read_bell);
        self.pool.set_read_waker(Box::new(move || read_bell.ring()));
        let mut threads = self.workers.threads.lock();
        for worker in WORKERS.iter().filter(|worker| is_wanted(worker)) {
            let engine = Arc::downgrade(self);
            let bell = Arc::clone(match worker.name {
                "sluice-evict" => &self.workers.evict_bell,
                "sluice-read" => &self.workers.read_bell,
                "sluice-revert" => &self.workers.revert_bell,
                "sluice-log" => &self.workers.log_bell,
                _ => &self.workers.bell,
            });
            let body = move || observe::thread(worker.name, || run(&engine, &bell, worker));
            match sync::spawn(worker.name, body) {
                Ok(handle) => threads.push(handle),
                Err(error) => {
                    let message = format!("cannot start {}: {error}", worker.name);
                    self.host.log(Level::Error, &message);
                }
            }
        }
    }

    /// One round of every kind of background work, for engines without threads. One that fails
    /// keeps no other from its turn; the first error is the answer.
    pub fn step(&self) -> Result<()> {
        let mut first = Ok(());
        for worker in &WORKERS {
            let outcome = (worker.step)(self);
            first = first.and(outcome.map(|_| ()));
        }
        first
    }

    /// Prepares log segments, writes ahead, and once a second makes the log durable.
    fn log_step(&self) -> Result<Next> {
        self.refresh_room();
        let prepared = self.prepare_log();
        let is_full = matches!(prepared, Err(Error::Full { .. }));
        self.lease.log_is_full.store(is_full, Ordering::Relaxed);
        self.refresh_log_compression();
        self.wal.write_step()?;
        let now = self.os.now_ns();
        let last = self.workers.last_log_flush_ns.load(Ordering::Relaxed);
        if now.saturating_sub(last) >= 1_000_000_000 {
            self.workers.last_log_flush_ns.store(now, Ordering::Relaxed);
            self.flush_log()?;
        }
        prepared?;
        Ok(Next::Idle)
    }

    /// Keeps log segments ready. On a full disk the page store gives what it has free.
    fn prepare_log(&self) -> Result<()> {
        loop {
            match self.wal.prepare_step() {
                Ok(true) => {}
                Ok(false) => return Ok(()),
                Err(Error::Full { .. }) if self.store.give_back()? => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Checkpoints, the pages of dropped trees, and room for the file system.
    fn space_step(&self) -> Result<Next> {
        let shared = self.share_room();
        let dropping = self.free_dropped_step();
        let done = match self.wanted_checkpoint() {
            Some(redo_from) => self.checkpoint_from(redo_from),
            None => Ok(()),
        };
        if self.store.wants_checkpoint() {
            // Also when there was no room to write pages: this is what makes some.
            self.checkpoint_map()?;
        }
        self.release_log();
        let giving = self.store.give_back_step();
        shared?;
        done?;
        Ok(match (dropping?, giving?) {
            (true, _) => Next::Again,
            (false, true) => Next::After(GIVE_BACK_REST),
            (false, false) => Next::Idle,
        })
    }

    /// GC of the page store, and while it is not at its limit the rotation of keys.
    fn gc_step(&self) -> Result<Next> {
        if self.store.gc_pressure_percent() < 100 {
            self.rotation_step()?;
        }
        self.collect_step()
    }

    /// GC at the pace that keeps dead space where it is: it rests three times
    /// as long as it works when there is just enough to collect, and not at all at the limit.
    fn collect_step(&self) -> Result<Next> {
        let pressure = self.store.gc_pressure_percent();
        if pressure == 0 {
            return Ok(Next::Idle);
        }
        let began_ns = self.os.now_ns();
        if self.store.gc_step(GC_STEP_BYTES)? == 0 {
            return Ok(Next::Idle);
        }
        if self.store.wants_checkpoint() {
            self.wake_background();
        }
        if pressure >= 100 {
            return Ok(Next::Again);
        }
        let share = (100 - pressure.min(100)) as u32;
        Ok(self.rest_since(began_ns, 3 * share, GC_REST_MAX))
    }

    /// From where on redo is to begin after a checkpoint now, if one is wanted.
    fn wanted_checkpoint(&self) -> Option<Lsn> {
        let (redo, end) = (self.redo_bytes(), self.wal.end());
        if self.checkpoints.pace.lock().is_free(self.pace_point(), self.pool.gathers()) {
            return Some(end);
        }
        if redo >= self.log_capacity() / 100 * CHECKPOINT_PERCENT {
            return Some(self.window_begin());
        }
        // A checkpoint frees log and dead space.
        let is_short = self.is_short_of_room() || self.lease.log_is_full.load(Ordering::Relaxed);
        if is_short && redo >= 2 * self.wal.segment_bytes() {
            return Some(end);
        }
        let idle_ns = self.os.now_ns().saturating_sub(self.last_checkpoint_ns());
        let is_due = idle_ns >= IDLE_CHECKPOINT.as_nanos() as u64;
        // While much is logged the window alone bounds redo: images of all would be a burst.
        let is_quiet = self.logged_since_checkpoint() < QUIET_BYTES;
        let is_of_use = || redo > 0 && self.has_news() || self.checkpoint_needs_old_keys();
        (is_due && is_of_use()).then(|| if is_quiet { end } else { self.window_begin() })
    }

    fn age_step(&self) -> Result<Next> {
        self.window_step().map(Next::from)
    }

    /// Whether anything was logged since the last whole checkpoint but the checkpoint itself.
    fn has_news(&self) -> bool {
        self.wal.stats().records > self.checkpoints.records.load(Ordering::Relaxed)
    }

    fn logged_since_checkpoint(&self) -> u64 {
        self.wal.end().0.saturating_sub(self.checkpoints.log_end.load(Ordering::Relaxed))
    }

    fn redo_worker_step(&self) -> Result<Next> {
        Ok(match self.redo_step()? {
            true if SIMULATED => Next::After(REDO_REST_SIMULATED),
            more => Next::from(more),
        })
    }

    fn evict_step(&self) -> Result<Next> {
        self.pool.evict_step(EVICT_STEP_PAGES).map(Next::from)
    }

    fn read_step(&self) -> Result<Next> {
        Ok(self.pool.read_step().into())
    }

    fn revert_step(&self) -> Result<Next> {
        let began_ns = self.os.now_ns();
        let more = self.ctx.revert_step(REVERT_STEP_RECORDS)?;
        if !more {
            self.ctx.take_met_rolled_back();
            return Ok(Next::Idle);
        }
        Ok(match self.revert_rests() {
            0 => Next::Again,
            rests => self.rest_since(began_ns, 100 * rests, REVERT_REST_MAX),
        })
    }

    /// The revert rests this many times as long as it has worked, so that the entries of a large
    /// transaction do not take a processor from sessions that work elsewhere. A session that meets
    /// such an entry reverts it itself, at a higher cost: the more did so since the last call, the
    /// less the revert rests. When a second one waits or the log is full it has fallen behind.
    pub(in crate::db) fn revert_rests(&self) -> u32 {
        let met = self.ctx.take_met_rolled_back();
        let behind = self.ctx.reverts_waiting() > 1 || self.versions_fill_log();
        match self.ctx.sessions_at_work() && !behind && !self.is_short_of_room() {
            true => REVERT_RESTS / met.saturating_add(1),
            false => 0,
        }
    }

    /// A rest of so many percent of the work since `began_ns`, of `most` at most.
    fn rest_since(&self, began_ns: u64, percent: u32, most: Duration) -> Next {
        let worked = Duration::from_nanos(self.os.now_ns().saturating_sub(began_ns));
        Next::After((worked * percent / 100).min(most))
    }

    fn purge_step(&self) -> Result<Next> {
        self.ctx.table.advance_horizon();
        let had_work = self.ctx.registry.purge_backlog() > 0;
        let more = self.ctx.purge_step(PURGE_STEP_RECORDS)?;
        self.note_purged();
        Ok(match more {
            true => Next::Again,
            // More is to come soon, of leaves that are in memory now.
            false if had_work => Next::After(PURGE_REST),
            false => Next::Idle,
        })
    }

    /// Samples one part of one index for a table that has changed much.
    fn statistics_step(&self) -> Result<Next> {
        let began_ns = self.os.now_ns();
        Ok(match !sync::puts_off() && self.recalculate_some()? {
            true => self.rest_since(began_ns, 100 * STATISTICS_RESTS, STATISTICS_REST_MAX),
            false => Next::Idle,
        })
    }

    /// Moves versions out of the log when they hold back too much of it, and drops moved ones.
    fn move_step(&self) -> Result<Next> {
        let mut more = false;
        // Moving appends: without room it would only delay the checkpoint.
        if self.redo_bytes() < self.log_capacity() {
            if let Some(target) = self.move_target() {
                more = self.ctx.move_step(target, &self.sweep)?;
            }
        }
        let began_ns = self.os.now_ns();
        let mut sweeps = true;
        for _ in 0..SWEEP_STEP_LEAVES {
            sweeps = sweeps && !sync::puts_off() && self.ctx.sweep_step(&self.sweep)?;
        }
        if more || !sweeps || self.is_short_of_room() {
            return Ok(Next::from(more || sweeps));
        }
        // The sweep after a large transaction takes seconds, and nobody waits for it.
        Ok(self.rest_since(began_ns, 100 * SWEEP_RESTS, SWEEP_REST_MAX))
    }
}

/// A worker that panics leaves its work half done: others would wait for it for ever, or the log
/// grow without end. Nothing is acknowledged from then on.
struct Alarm<'a> {
    engine: &'a Weak<Engine>,
    worker: &'static str,
}

impl Drop for Alarm<'_> {
    fn drop(&mut self) {
        if let (true, Some(engine)) = (std::thread::panicking(), self.engine.upgrade()) {
            let what = format!("the background thread {} has panicked", self.worker);
            engine.host.log(Level::Error, &format!("{what}; restart the server"));
            engine.wal.poison(&what);
        }
    }
}

fn run(engine: &Weak<Engine>, bell: &Bell, worker: &Worker) {
    let _alarm = Alarm { engine, worker: worker.name };
    let mut last_error_ns: Option<u64> = None;
    let mut rings_seen = 0;
    while let Some(engine) = engine.upgrade() {
        if engine.workers.stopped.load(Ordering::SeqCst) {
            return;
        }
        let idle = match (worker.step)(&engine) {
            Ok(Next::Again) => continue,
            Ok(Next::After(rest)) => {
                drop(engine);
                sync::sleep(rest);
                continue;
            }
            Ok(Next::Idle) => worker.idle,
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
        bell.wait(&mut rings_seen, idle);
    }
}

/// Tells people, but not of work that the end of the engine breaks off.
pub(in crate::db) fn report(engine: &Engine, worker: &str, error: &Error) {
    if matches!(error, Error::Refused(_)) && engine.check_running().is_err() {
        return;
    }
    let text = engine.describe_damage(error);
    engine.host.log(Level::Error, &format!("{worker}: {text}"));
}
