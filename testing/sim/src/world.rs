//! One seed: a machine that loses power again and again, and an engine on it that many sessions
//! use at once. Every loss of power is followed by a recovery, which may lose power too, and by a
//! comparison of all that is there with the model.

use crate::backup::{self, Backups};
use crate::check;
use crate::hiding::{self, Hiding};
use crate::loading::COPIED;
use crate::model::{Ddl, Found, Model};
use crate::operator;
use crate::processor::Processor;
use crate::profile::{Habits, Illness, Limits, Profile};
use crate::row::spec;
use crate::session::{Flow, Session};
use sluice_engine::base::{Error, Result, TreeId};
use sluice_engine::db::{
    Compression, Config, Engine, FixedKeys, FlushAtCommit, Geometry, Host, Level, LogCompression,
    TableSpec,
};
use sluice_engine::os::planted::Bug;
use sluice_engine::os::sched::{self, Pace};
use sluice_engine::os::sim::{Fault, Kind, SimOs, SimRng, Spell, Trouble};
use sluice_engine::os::sync::{sleep, spawn};
use sluice_engine::os::Os;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

pub const TABLES: u64 = 3;
pub const SESSION_OF_CHECKS: u64 = 99;
/// So many seeds of 100 have somebody who makes backups: drawn apart, the others stay as they were.
const BACKUP_PERCENT: u64 = 20;
const BACKUP_SALT: u64 = 0xba_c0;
/// And so many have lives that pack the same positions of the log into different places.
const PACKING_PERCENT: u64 = 20;
const PACKING_SALT: u64 = 0xac_61;
/// Of 100 openings so many let pages leave deltas: all of some seeds, none of as many, every second one of the rest.
const DELTAS_PERCENT: [u64; 5] = [100, 100, 0, 0, 50];
const DELTAS_SALT: u64 = 0xde_17;
/// Simulated time after which background work that nobody disturbs must be done.
const QUIET_MAX: Duration = Duration::from_secs(500);

/// After it nobody rests because of an error, and nobody waits for room.
const TURNS_WELL_AGAIN: u64 = 120;
/// In such a time the engine gives a place up.
const TURNS_SICK: u64 = 60;
const STEPS_WELL_AGAIN: u64 = 30;

#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Print every event.
    pub trace: bool,
    pub planted: Option<Bug>,
    /// Instead of the seed's own.
    pub profile: Option<Profile>,
}

/// How a seed ended.
#[derive(Clone, Debug)]
pub struct Report {
    /// The same for the same seed.
    pub trace_hash: u64,
    /// Places at which another thread could have gone on.
    pub points: u64,
    pub failure: Option<String>,
}

/// Runs one seed.
pub fn run(seed: u64, options: Options) -> Report {
    let mut pace = Pace { trace: options.trace, planted: options.planted, ..Pace::of_seed(seed) };
    let mut rng = SimRng::new(seed);
    let profile = options.profile.unwrap_or_else(|| Profile::of_seed(seed));
    let limits = Limits::of_profile(profile, &mut rng, &mut pace);
    let _processor = Processor::keep_to_one();
    let outcome = sched::run(seed, pace, move || World::new(seed, rng, limits).run());
    Report { trace_hash: outcome.trace_hash, points: outcome.points, failure: outcome.failure }
}

/// The first of `seeds` seeds from `first` on that finds the planted bug, and how.
pub fn find_planted(bug: Bug, first: u64, seeds: u64) -> Option<(u64, String)> {
    let options = Options { planted: Some(bug), ..Options::default() };
    (first..first + seeds).find_map(|seed| run(seed, options).failure.map(|why| (seed, why)))
}

fn is_of_writes(trouble: &Trouble) -> bool {
    matches!(trouble, Trouble::Write | Trouble::Names | Trouble::Overwrite)
}

/// Does one of these troubles explain the error?
fn is_explained(met: &[Trouble], error: &Error) -> bool {
    match error {
        Error::Io { .. } => met.iter().any(|t| is_of_writes(t) || t.is_of_reads()),
        Error::Poisoned { .. } => met.iter().any(is_of_writes),
        Error::Full { .. } => !met.is_empty(),
        _ => false,
    }
}

/// An engine between two losses of power, and those who use it.
pub struct Life {
    pub engine: Arc<Engine>,
    pub habits: Habits,
    /// A commit with a flush is durable when it returns.
    pub commits_are_durable: bool,
    /// Of tables that must be encrypted, if there may be some.
    promised: Option<Arc<Mutex<BTreeSet<TreeId>>>>,
    model: Arc<Mutex<Model>>,
    os: Arc<SimOs>,
    dark_at: AtomicU64,
    steps: AtomicU64,
    steps_max: u64,
    is_over: AtomicBool,
}

impl Life {
    pub fn model(&self) -> MutexGuard<'_, Model> {
        self.model.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn os(&self) -> &Arc<SimOs> {
        &self.os
    }

    /// Of a table with this number, if the life lets tables choose: every second one is to be encrypted.
    pub fn spec(&self, number: u64) -> TableSpec {
        TableSpec { is_encrypted: self.promised.is_some() && number % 2 == 0, ..spec() }
    }

    pub fn note_promised(&self) {
        if let Some(promised) = &self.promised {
            hiding::note(promised, &self.engine);
        }
    }

    pub fn is_dark(&self) -> bool {
        self.os.mutations() > self.dark_at.load(Ordering::Relaxed)
    }

    /// The power goes off after so many more changing calls, if it is not off yet.
    pub fn cut_power_after(&self, calls: u64) {
        if self.os.is_dark() {
            return;
        }
        self.dark_at.store(self.os.mutations() + calls, Ordering::Relaxed);
        self.os.fail_after(calls, Fault::PowerCut);
    }

    /// A trouble that begins now.
    pub fn suffer(&self, trouble: Trouble, lasts_ns: u64) {
        let from_ns = self.os.now_ns();
        self.os.add_spell(Spell { trouble, from_ns, to_ns: from_ns + lasts_ns });
    }

    /// Whether power that is off, or a trouble that the machine has met, explains the error. Only a
    /// failed write or sync stops all writes: a full disk, a full table of open files and a place
    /// that cannot be read do not.
    pub fn explains(&self, error: &Error) -> bool {
        match error {
            // A thread that waits for a checkpoint that finds the machine dark is told that the log is full.
            Error::Io { .. } | Error::Poisoned { .. } | Error::Full { .. } if self.is_dark() => {
                true
            }
            Error::Corrupt { .. } => self.engine.given_up_pages() > 0,
            _ => is_explained(&self.os.met(), error),
        }
    }

    /// Counts a step of somebody's; false when all have had enough.
    pub fn goes_on(&self) -> bool {
        let steps = self.steps.fetch_add(1, Ordering::Relaxed);
        !self.is_over.load(Ordering::Relaxed) && steps < self.steps_max && !self.is_dark()
    }
}

/// Hears what the engine has to say: an error of a background thread is one of the run.
struct Witness {
    os: Arc<SimOs>,
    is_sick: bool,
}

impl Host for Witness {
    fn log(&self, level: Level, message: &str) {
        let is_given_up = self.is_sick && message.contains("given up");
        let is_damage = message.contains("corrupt") || message.contains("panicked");
        let met_trouble = !is_damage && !self.os.met().is_empty();
        let is_fine = is_given_up || met_trouble;
        assert!(level != Level::Error || self.os.is_dark() || is_fine, "{message}");
    }

    fn lock_wait(&self, _waiter_session: u64, _holder_session: u64) {}
}

struct World {
    rng: SimRng,
    hiding: Hiding,
    /// Of somebody who makes backups, if there is one.
    backup_rng: Option<SimRng>,
    backups: Backups,
    /// Draws how a life packs the log, if lives differ.
    packing_rng: Option<SimRng>,
    /// Draws whether an opening lets pages leave deltas, and so many of 100 do.
    deltas: (RefCell<SimRng>, u64),
    os: Arc<SimOs>,
    limits: Limits,
    model: Arc<Mutex<Model>>,
    /// Some engine could not purge delete marks in time: they stay for ever.
    marks_stay: bool,
}

impl World {
    fn new(seed: u64, rng: SimRng, limits: Limits) -> World {
        let mut backup_rng = SimRng::new(seed ^ BACKUP_SALT);
        let mut packing_rng = SimRng::new(seed ^ PACKING_SALT);
        let mut deltas_rng = SimRng::new(seed ^ DELTAS_SALT);
        let deltas_percent = DELTAS_PERCENT[deltas_rng.below(5) as usize];
        World {
            rng,
            hiding: Hiding::of_seed(seed),
            backup_rng: backup_rng.chance(BACKUP_PERCENT).then_some(backup_rng),
            backups: Backups::default(),
            packing_rng: packing_rng.chance(PACKING_PERCENT).then_some(packing_rng),
            deltas: (RefCell::new(deltas_rng), deltas_percent),
            os: SimOs::new(seed),
            limits,
            model: Arc::default(),
            marks_stay: false,
        }
    }

    fn model(&self) -> MutexGuard<'_, Model> {
        self.model.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(mut self) {
        let mut all = false;
        for number in 0..=self.limits.lives {
            let engine = self.recover(all);
            if number == self.limits.lives {
                for (xid, _) in self.model().prepared_changes() {
                    assert!(engine.rollback_prepared(&xid).expect("a rollback"), "an XID is gone");
                }
                self.come_to_rest(&engine);
                engine.shutdown().expect("a shutdown under power");
                drop(engine);
                return self.end_in_other_modes();
            }
            all = self.life(engine);
        }
    }

    /// What one mode leaves plain the next one has to find, although the first has come to rest.
    fn end_in_other_modes(&self) {
        for &mode in self.hiding.modes_of_the_end() {
            self.hiding.order(mode);
            let opened = self.open(FlushAtCommit::AtCommit);
            let engine = opened.unwrap_or_else(|e| panic!("cannot open: {e}"));
            self.come_to_rest(&engine);
            engine.shutdown().expect("a shutdown under power");
        }
    }

    fn geometry(&self) -> Geometry {
        Geometry {
            log_segment_bytes: self.limits.segment_bytes,
            log_cache_bytes: self.limits.log_cache_bytes,
            store_segment_bytes: self.limits.segment_bytes,
        }
    }

    fn open(&self, mode: FlushAtCommit) -> Result<Arc<Engine>> {
        let mut config = Config::new("/data");
        // GC and holes are at work more often than with the default.
        config.space_percent = 125;
        config.page_deltas = self.deltas.0.borrow_mut().chance(self.deltas.1);
        config.flush_at_commit = mode;
        if !self.limits.is_compressed {
            config.compression = Compression::None;
        }
        config.log_compression = self.limits.log_compression;
        config.buffer_pool_bytes = self.limits.pool_bytes;
        config.page_map_bytes = Some(self.limits.page_map_bytes);
        config.log_capacity_bytes = self.limits.log_capacity_bytes;
        let geometry = self.geometry();
        self.hiding.open(&self.os, &|encryption| {
            let os = Arc::clone(&self.os) as Arc<dyn Os>;
            let witness = Witness { os: Arc::clone(&self.os), is_sick: self.limits.is_sick() };
            let config = Config { encryption, ..config.clone() };
            Engine::open_with(os, config, geometry, Arc::new(witness))
        })
    }

    /// Opens the engine, perhaps only after losing power while it recovered, and compares.
    fn recover(&mut self, all: bool) -> Arc<Engine> {
        while self.rng.chance(30) {
            self.recover_in_vain();
        }
        let mode = match self.rng.below(10) {
            _ if self.limits.habits.never_flushes => FlushAtCommit::EverySecond,
            0 => FlushAtCommit::EverySecond,
            1 => FlushAtCommit::WriteOnly,
            _ => FlushAtCommit::AtCommit,
        };
        let sick = self.rng.chance(self.limits.sick_open_percent).then(|| self.open_sick(mode));
        let open = || self.open(mode).unwrap_or_else(|e| panic!("cannot open: {e}"));
        let engine = sick.flatten().unwrap_or_else(open);
        engine.set_flush_at_commit(mode);
        if let Some(rng) = &mut self.packing_rng {
            let how = [LogCompression::None, LogCompression::Lz4, LogCompression::Zstd];
            engine.set_log_compression(how[rng.below(3) as usize]);
        }
        self.end_copy(&engine);
        let found = check::everything(&engine, SESSION_OF_CHECKS, self.limits.habits.ids);
        let prepared = engine.prepared();
        self.model().recovered(&found, &prepared, all);
        self.drop_damaged(&engine, &found);
        self.end_some_prepared(&engine);
        if self.rng.chance(20) {
            let again = check::everything(&engine, SESSION_OF_CHECKS, self.limits.habits.ids);
            self.compare_with_base(&again);
        }
        engine
    }

    /// Opens the engine on a machine that cannot read this and that, and lets some time pass; then
    /// the machine is well again. `None`: it did not open, or stopped; and it has lost power.
    fn open_sick(&mut self, mode: FlushAtCommit) -> Option<Arc<Engine>> {
        for n in 0..1 + self.rng.below(5) {
            let of = [Kind::Pages, Kind::Pages, Kind::Map, Kind::Log][self.rng.below(4) as usize];
            let trouble = match self.rng.below(10) {
                // Where every opening is sick, each has pages that it cannot read.
                _ if n == 0 && self.limits.sick_open_percent == 100 => self.bad_place(Kind::Pages),
                0 => [Trouble::Write, Trouble::Names][self.rng.below(2) as usize],
                1 => Trouble::Overwrite,
                2 => Trouble::OpenFiles,
                3 => Trouble::Space { one_of: 1 + self.rng.below(3) },
                _ => self.bad_place(of),
            };
            let lasts_ns = [10_000_000, 100_000_000, 5_000_000_000, 60_000_000_000];
            let now_ns = self.os.now_ns();
            let most_ns = lasts_ns[self.rng.below(4) as usize];
            let to_ns = now_ns + self.rng.below(most_ns);
            self.os.add_spell(Spell { trouble, from_ns: now_ns, to_ns });
        }
        let opened = self.open(mode);
        if opened.is_ok() {
            let turns = self.rng.below(TURNS_SICK);
            (0..turns).for_each(|_| sleep(Duration::from_secs(1)));
        }
        let met = self.os.met();
        self.marks_stay |= opened.as_ref().is_ok_and(|engine| engine.marks_left() > 0);
        match opened {
            Ok(engine) if !met.iter().any(is_of_writes) => {
                self.os.heal();
                (0..TURNS_WELL_AGAIN).for_each(|_| sleep(Duration::from_secs(1)));
                self.os.forget_met();
                self.marks_stay |= engine.marks_left() > 0;
                Some(engine)
            }
            opened => {
                match opened {
                    // Its threads end with it.
                    Ok(engine) => drop(engine),
                    Err(error) => {
                        let refused = matches!(error, Error::Refused { .. }) && !met.is_empty();
                        assert!(refused || is_explained(&met, &error), "cannot open: {error}");
                    }
                }
                self.lose_power();
                None
            }
        }
    }

    fn bad_place(&mut self, of: Kind) -> Trouble {
        let places = match of {
            Kind::Pages => 40,
            Kind::Map | Kind::Log => 6,
        };
        let from = self.rng.below(places) << 14;
        let bytes = (1 << 14) << self.rng.below(4);
        Trouble::Reads { of, from, to: from + bytes }
    }

    /// Loses power while the engine opens, or after that, before anybody has touched a row: what
    /// redo owes is then still owed.
    fn recover_in_vain(&mut self) {
        let calls = self.rng.below(self.limits.calls_per_recovery);
        if self.rng.chance(70) {
            self.os.fail_after(calls, Fault::PowerCut);
        }
        if let Ok(engine) = self.open(FlushAtCommit::AtCommit) {
            for _ in 0..self.rng.below(self.limits.idle_orders) {
                let done = operator::look_after(&engine, &mut self.rng);
                assert!(done.is_ok() || self.os.is_dark(), "{done:?}");
            }
        }
        self.lose_power();
    }

    /// As a server does when it starts: a table that was being filled comes to its name, or goes.
    fn end_copy(&self, engine: &Arc<Engine>) {
        if engine.table(COPIED).expect("an open engine").is_none() {
            return;
        }
        let noted = self.model().noted_copy();
        match noted {
            Some(name) => engine.rename_table(COPIED, &name).expect("a rename"),
            None => assert!(engine.drop_table(COPIED).expect("a drop"), "no {COPIED}"),
        }
    }

    /// A table that lost pages can only go.
    fn drop_damaged(&mut self, engine: &Arc<Engine>, found: &Found) {
        for name in found.unreadable.keys() {
            let prepared = self.model().prepared_in_base(name);
            for xid in prepared {
                assert!(engine.rollback_prepared(&xid).expect("a rollback"), "an XID is gone");
                self.model().rolled_back(&xid);
            }
            assert!(engine.drop_table(name).expect("a drop"), "no {name}");
            self.model().drop_damaged(name);
        }
    }

    fn compare_with_base(&self, found: &Found) {
        let model = self.model();
        for (name, rows) in &found.tables {
            assert!(*rows == model.base().table(name), "{name} has changed by itself");
        }
    }

    fn end_some_prepared(&mut self, engine: &Arc<Engine>) {
        let prepared = self.model().prepared_changes();
        for (xid, _) in prepared {
            match self.rng.below(3) {
                0 => {
                    assert!(engine.commit_prepared(&xid).expect("a commit"), "an XID is gone");
                    self.model().commit_prepared(&xid);
                }
                1 => {
                    assert!(engine.rollback_prepared(&xid).expect("a rollback"), "an XID is gone");
                    self.model().rolled_back(&xid);
                }
                _ => {}
            }
        }
    }

    /// Sessions at work until the power goes off or they have had enough. True: nothing may be
    /// lost.
    fn life(&mut self, engine: Arc<Engine>) -> bool {
        self.model().open();
        let calls = self.rng.below(self.limits.calls_per_life);
        let cut = self.rng.chance(85);
        let mode = engine.flush_at_commit();
        let life = Arc::new(Life {
            habits: self.limits.habits,
            commits_are_durable: mode == FlushAtCommit::AtCommit,
            promised: self.hiding.has_choice().then(|| Arc::clone(&self.hiding.promised)),
            model: Arc::clone(&self.model),
            os: Arc::clone(&self.os),
            dark_at: AtomicU64::new(u64::MAX),
            steps: AtomicU64::new(0),
            steps_max: self.limits.steps,
            is_over: AtomicBool::new(false),
            engine,
        });
        if cut {
            life.cut_power_after(calls);
        }
        self.work(&life);
        if self.limits.illness != Illness::None && !life.is_dark() {
            self.get_well(&life);
        }
        self.marks_stay |= life.engine.marks_left() > 0;
        let shut_down = self.rng.chance(30);
        let engine = Arc::clone(&life.engine);
        drop(life);
        let told = self.model().told_lsn();
        let all = shut_down && engine.shutdown().is_ok();
        drop(engine);
        if all {
            self.model().durable_up_to(told);
        }
        self.lose_power();
        self.check_backups();
        all
    }

    /// Each backup of the life that has ended holds what was committed up to its end.
    fn check_backups(&mut self) {
        let made = std::mem::take(
            &mut self.backups.lock().unwrap_or_else(PoisonError::into_inner).of_life,
        );
        let (geometry, ids) = (self.geometry(), self.limits.habits.ids);
        // A backup needs the keys of its time.
        let newest = |keys: &Arc<FixedKeys>| keys.newest.load(Ordering::Relaxed) as u32;
        let all_keys = self.hiding.keys.as_ref().map(|keys| FixedKeys::new(newest(keys)));
        let Some(rng) = &mut self.backup_rng else { return };
        let all: Vec<_> =
            made.iter().map(|backup| backup.found(geometry, ids, &all_keys, rng)).collect();
        all.iter().for_each(|found| self.model().copied(&found.rows, &found.prepared, found.end));
    }

    /// Some troubles, each for a while or until the end of the life.
    fn fall_ill(&mut self) {
        for _ in 0..1 + self.rng.below(4) {
            let trouble = match self.rng.below(9) {
                n if self.limits.illness == Illness::Writes => match n {
                    0 => Trouble::Write,
                    1 => Trouble::Names,
                    _ => Trouble::Overwrite,
                },
                0 if self.rng.chance(60) => Trouble::Overwrite,
                0 => [Trouble::Write, Trouble::Names][self.rng.below(2) as usize],
                1 | 2 => self.bad_place(Kind::Pages),
                3 => self.bad_place(Kind::Log),
                4 | 5 => Trouble::OpenFiles,
                _ => Trouble::Space { one_of: 1 + self.rng.below(3) },
            };
            let from_ns = self.os.now_ns() + self.rng.below(100_000_000);
            let stays = self.rng.chance(25);
            let lasts_ns = match stays {
                true => u64::MAX / 2,
                false => self.rng.below(300_000_000),
            };
            self.os.add_spell(Spell { trouble, from_ns, to_ns: from_ns + lasts_ns });
        }
    }

    /// The machine is well again: nothing of what it had may be felt any more, unless a write or a
    /// sync failed.
    fn get_well(&mut self, life: &Arc<Life>) {
        if self.os.met().iter().any(is_of_writes) {
            return;
        }
        if self.rng.chance(30) {
            // What stays bad is given up, if nothing but the background waits for it.
            (0..TURNS_SICK).for_each(|_| sleep(Duration::from_secs(1)));
            if self.os.met().iter().any(is_of_writes) {
                return;
            }
        }
        self.os.heal();
        // Workers that met an error rest.
        // In turns: a long sleep may end at once, when time jumps.
        (0..TURNS_WELL_AGAIN).for_each(|_| sleep(Duration::from_secs(1)));
        self.os.forget_met();
        if operator::flushing(life, Engine::checkpoint_now).is_err() {
            return;
        }
        life.steps.store(0, Ordering::Relaxed);
        life.is_over.store(false, Ordering::Relaxed);
        Session::new(Arc::clone(life), 1, self.rng.next_u64()).work_some(STEPS_WELL_AGAIN);
        life.is_over.store(true, Ordering::Relaxed);
    }

    fn work(&mut self, life: &Arc<Life>) {
        // One table at least, so that there is something to do.
        if life.model().names.is_empty() && self.first_table(life).is_err() {
            return;
        }
        if !matches!(self.limits.illness, Illness::None | Illness::Images) {
            self.fall_ill();
        }
        let mut threads = Vec::new();
        let mut start = |name: String, body: Box<dyn FnOnce() + Send>| {
            threads.push(spawn(&name, body).expect("a thread"));
        };
        for number in 1..=self.limits.sessions {
            let (life, seed) = (Arc::clone(life), self.rng.next_u64());
            let body = move || Session::new(life, number, seed).work();
            start(format!("session-{number}"), Box::new(body));
        }
        let (ddl, seed) = (Arc::clone(life), self.rng.next_u64());
        start("ddl".into(), Box::new(move || operator::change_tables(&ddl, seed)));
        let (others, seed) = (Arc::clone(life), self.rng.next_u64());
        start("operator".into(), Box::new(move || operator::operate(&others, seed)));
        if let Some(rng) = &mut self.backup_rng {
            let (life, made, seed) = (Arc::clone(life), Arc::clone(&self.backups), rng.next_u64());
            let body = move || backup::back_up_again_and_again(&life, &made, seed);
            start("backup".into(), Box::new(body));
        }
        if let Some(keys) = &self.hiding.keys {
            let (life, keys, seed) = (Arc::clone(life), Arc::clone(keys), self.rng.next_u64());
            start("keys".into(), Box::new(move || operator::keep_keys(&life, &keys, seed)));
        }
        threads.into_iter().for_each(|thread| thread.join());
        life.is_over.store(true, Ordering::Relaxed);
    }

    fn first_table(&mut self, life: &Arc<Life>) -> Flow {
        let name = "db/t0".to_string();
        let made = life.model().begin_ddl("db/t0", |key| Ddl::Create { name, key });
        made.map_or(Ok(()), |ddl| operator::run_ddl(life, &ddl))
    }

    fn lose_power(&mut self) {
        // Threads of the engine find out that it is gone.
        sched::join_others();
        self.os.crash();
        self.hiding.check(&self.os);
    }

    /// With nobody at work, everything owed is done in the end: rolled back entries are taken
    /// back, delete marks are gone, so are the pages of dropped trees; and nothing has changed.
    fn come_to_rest(&self, engine: &Arc<Engine>) {
        // With 950 of 1000 put off, a sweep of a few hundred leaves takes longer than this waits.
        sched::put_nothing_off();
        let slice = Duration::from_millis(200);
        let mut waited = Duration::ZERO;
        while let Some(owed) = owed(engine, self.marks_stay) {
            assert!(waited < QUIET_MAX, "never comes to rest: {owed}");
            sleep(slice);
            waited += slice;
        }
        self.hiding.check_at_rest(engine);
        engine.checkpoint_now().expect("a checkpoint");
        let found = check::everything(engine, SESSION_OF_CHECKS, self.limits.habits.ids);
        self.compare_with_base(&found);
    }
}

/// 1: the keys before the newest must be kept.
const OLD_KEYS: &str = "encryption_old_keys_needed";

/// What the engine still has to do.
fn owed(engine: &Engine, marks_stay: bool) -> Option<String> {
    let unknown = engine.unknown_trees();
    if !unknown.is_empty() {
        return Some(format!("pages of dropped trees {unknown:?}"));
    }
    for name in engine.table_names() {
        let marks = engine.delete_marks(&name).expect("a scan");
        if marks > 0 && !marks_stay {
            return Some(format!("{marks} delete marks in {name}"));
        }
    }
    let names = ["revert_backlog", "purge_backlog", "transactions_open", OLD_KEYS];
    // A damaged page keeps its segment.
    let counts =
        |name: &str| names.contains(&name) && (name != OLD_KEYS || engine.given_up_pages() == 0);
    let found = engine.status().into_iter().find(|(name, n)| counts(name) && *n > 0);
    found.map(|(name, n)| format!("{name} is {n}:\n{}", engine.status_text()))
}
