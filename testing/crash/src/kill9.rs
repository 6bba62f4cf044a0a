//! The rounds: work, kill or cut the power, restart (ending the restart too, at times), verify.

use crate::ddl;
use crate::loss::Lost;
use crate::power::{Power, PowerPlan};
use crate::record::{ACCOUNTS, OPENING_BALANCE, SLOTS, WIDE_BYTES, WIDE_ROWS};
use crate::shimcheck;
use crate::sizes::{self, Met};
use crate::verify::{inject, Outcome, Record};
use crate::workload::{self, Settings};
use sluice_rig::client::{Client, Fault};
use sluice_rig::rng::Rng;
use sluice_rig::server::{copy_tree, last_lines, Binlog, Launch, Prefix, Server};
use std::collections::HashSet;
use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, SystemTime};

#[derive(Clone, Copy, PartialEq)]
pub enum BinlogMode {
    /// The same for every data directory.
    All(Binlog),
    /// Each data directory has its own: in the log, off, synced by the server, and so on.
    Mix,
}

impl BinlogMode {
    pub fn of(self, number: u64, turns: &[Binlog]) -> Binlog {
        match self {
            BinlogMode::All(binlog) => binlog,
            BinlogMode::Mix => turns[number as usize % turns.len()],
        }
    }
}

pub struct Plan {
    pub rounds: u64,
    pub seed: u64,
    pub engine: String,
    pub prefix: Prefix,
    /// Another server, which takes each data directory over after its first round.
    pub next_prefix: Option<Prefix>,
    pub dir: PathBuf,
    pub binlog: BinlogMode,
    /// A data directory lives for this many rounds.
    pub fresh_every: u64,
    pub without: HashSet<String>,
    pub server_options: Vec<String>,
    /// In a quarter of the rounds, ask for a shutdown just before the kill.
    pub kill_in_shutdown: bool,
    /// Cut the power, do not only kill.
    pub power: Option<PowerPlan>,
    /// Make backups beside the work.
    pub backup: bool,
    /// The `sluice` that makes and restores them, if it is not the one beside this program.
    pub program: Option<PathBuf>,
    /// SQL that falsifies the data between restart and verification.
    pub injection: Option<&'static str>,
}

#[derive(Default)]
pub struct Totals {
    pub rounds: u64,
    pub kills: u64,
    pub kills_in_recovery: u64,
    pub acknowledged: u64,
    pub committed: u64,
    pub absent: u64,
    pub rows: u64,
    pub binlog_ids: u64,
    pub binlog_cut_short: u64,
    pub cuts: u64,
    pub cuts_in_recovery: u64,
    pub cuts_in_shutdown: u64,
    pub cuts_after_shutdown: u64,
    pub lost: Lost,
    pub met: Met,
}

/// One data directory with its server, its record and its settings.
struct Epoch {
    launch: Launch,
    /// Options of each start, beside the sizes.
    options: Vec<String>,
    /// Watches the server's files, when its power is to be cut.
    power: Option<Power>,
    server: Option<Server>,
    record: Record,
    used_autos: Arc<Mutex<HashSet<i64>>>,
    /// Transactions over both engines are left out, so the power may go during a shutdown.
    without_mixed: bool,
}

/// How a round's server ends.
#[derive(Clone, Copy, PartialEq)]
enum Ending {
    Kill,
    KillInShutdown(Duration),
    /// At the nth file call from now, in one of its phases.
    Cut(u64, u64),
    CutInShutdown(u64, u64),
    CutAfterShutdown,
    /// The same call of an ALTER TABLE that copies rows, while nobody else works: the commits of others
    /// make durable what DDL has left out.
    CutInCopy(u64, u64),
}

/// File calls of an ALTER TABLE that copies a small table, and some more.
const CALLS_OF_COPY: u64 = 44;

const ROUNDS_A_LINE: u64 = 25;
/// So many rounds meet all that their sizes are for.
const ROUNDS_WORTH: u64 = 20;

pub type Checked<T> = Result<T, Vec<String>>;

pub fn one<E: std::fmt::Display>(what: &str) -> impl Fn(E) -> Vec<String> + '_ {
    move |error| vec![format!("{what}: {error}")]
}

/// Runs all rounds; at the first violation returns what went wrong and in which round.
pub fn run(plan: &Plan, totals: &mut Totals) -> Result<(), (u64, Vec<String>)> {
    if let Some(power) = &plan.power {
        let problems = shimcheck::run(power, &plan.dir.join("check"));
        if !problems.is_empty() {
            return Err((0, problems));
        }
    }
    let template = plan.dir.join("template");
    plan.prefix.install(&template).map_err(|e| (0, vec![e.to_string()]))?;
    let mut epoch = None;
    for round in 0..plan.rounds {
        let mut rng = Rng::new(plan.seed).fork(round + 1);
        if round % plan.fresh_every == 0 {
            drop(epoch.take());
            let number = round / plan.fresh_every;
            epoch = Some(Epoch::create(plan, number, &mut rng).map_err(|p| (round, p))?);
        }
        let Some(epoch) = epoch.as_mut() else { unreachable!("made in round 0") };
        let outcome = epoch.round(plan, round, &mut rng, totals).map_err(|p| (round, p))?;
        totals.rounds += 1;
        totals.committed += outcome.committed;
        totals.absent += outcome.absent;
        totals.rows += outcome.rows;
        totals.tell(plan.rounds);
    }
    totals.check_worth(plan).map_err(|problem| (plan.rounds, vec![problem]))
}

impl Totals {
    /// A long run in which no page owed changes, or no table was loaded, says nothing of that.
    fn check_worth(&self, plan: &Plan) -> Result<(), String> {
        let in_copies = plan.power.as_ref().is_some_and(|power| power.in_copies);
        let is_ours = plan.engine.eq_ignore_ascii_case("sluice") && plan.server_options.is_empty();
        if !is_ours || in_copies || self.rounds < ROUNDS_WORTH {
            return Ok(());
        }
        let loads = if plan.without.contains("ddl") { 1 } else { self.met.loads };
        match (self.met.owed, loads) {
            (0, _) => Err("no page was evicted that owed changes".into()),
            (_, 0) => Err("no INSERT ... SELECT loaded its table".into()),
            _ => Ok(()),
        }
    }

    /// A long run shows how far it has come: each round so far has lost nothing.
    fn tell(&self, of: u64) {
        if self.rounds % ROUNDS_A_LINE == 0 && self.rounds < of {
            let Totals { rounds, kills, cuts, acknowledged, .. } = self;
            println!("{rounds} of {of} rounds: {kills} kills, {cuts} cuts, {acknowledged} acknowledged commits");
        }
    }
}

impl Epoch {
    fn create(plan: &Plan, number: u64, rng: &mut Rng) -> Checked<Epoch> {
        let dir = plan.dir.join("server");
        if dir.exists() {
            fs::remove_dir_all(&dir).map_err(one("removing the old directory"))?;
        }
        fs::create_dir_all(&dir).map_err(one("making the directory"))?;
        let binlog = plan.binlog.of(number, &[Binlog::InLog, Binlog::Off, Binlog::Synced]);
        let mut launch = Launch {
            prefix: plan.prefix.clone(),
            dir,
            engine: plan.engine.clone(),
            binlog,
            log_mib: *rng.pick(&[8, 16, 64]).unwrap_or(&16),
            binlog_rotation_kib: *rng.pick(&[256, 1024, 16 * 1024]).unwrap_or(&1024),
            extra: plan.server_options.clone(),
            environment: Vec::new(),
        };
        copy_tree(&plan.dir.join("template"), &launch.data()).map_err(one("copying"))?;
        let power = match &plan.power {
            Some(power) => {
                let power = Power::new(power, &launch.dir).map_err(one("the side directory"))?;
                power.watch(&mut launch);
                Some(power)
            }
            None => None,
        };
        let options = launch.extra.clone();
        launch.extra = [sizes::draw(rng), options.clone()].concat();
        let server = launch.start().map_err(one("first start"))?;
        create_schema(&server, &plan.engine, "InnoDB")
            .map_err(|fault| vec![format!("creating the tables: {fault}")])?;
        let record = Record::new(binlog != Binlog::Off);
        // Some directories have a binlog and no transactions over both engines.
        let without_mixed = binlog == Binlog::Off || (plan.power.is_some() && number / 3 % 2 == 1);
        let used_autos = Arc::default();
        let server = Some(server);
        Ok(Epoch { launch, options, power, server, record, used_autos, without_mixed })
    }

    fn round(
        &mut self,
        plan: &Plan,
        round: u64,
        rng: &mut Rng,
        totals: &mut Totals,
    ) -> Checked<Outcome> {
        if rng.one_in(5) {
            self.restart_cleanly()?;
        }
        let before = self.record.acknowledged();
        let ending = self.ending(plan, round, rng);
        self.work_and_end(plan, round, ending, rng, &mut totals.met)?;
        self.count(ending, totals);
        if self.power.is_some() && ending != Ending::Kill {
            self.lose(rng, totals)?;
        }
        totals.acknowledged += self.record.acknowledged() - before;
        self.launch.extra = [sizes::draw(rng), self.options.clone()].concat();
        if let Some(next) = &plan.next_prefix {
            self.launch.prefix = next.clone();
        }
        match &self.power {
            Some(power) if !power.plan.cuts_in_recovery => {}
            Some(_) => self.cut_restarts(rng, totals)?,
            None => self.kill_restarts(rng, totals)?,
        }
        let server = self.launch.start().map_err(|error| {
            eprintln!("{}", last_lines(&self.launch.error_log(), 15));
            vec![format!("restart after the kill: {error}")]
        })?;
        let (ids, cut_short) = self.binlog_counts();
        let outcome = self.verify(plan, &server)?;
        totals.binlog_ids += self.binlog_counts().0 - ids;
        totals.binlog_cut_short += self.binlog_counts().1 - cut_short;
        self.remember_autos();
        self.server = Some(server);
        Ok(outcome)
    }

    fn restart_cleanly(&mut self) -> Checked<()> {
        if let Some(server) = self.server.take() {
            server.stop().map_err(one("clean shutdown"))?;
        }
        self.server = Some(self.launch.start().map_err(one("start after a clean shutdown"))?);
        Ok(())
    }

    fn ending(&self, plan: &Plan, round: u64, rng: &mut Rng) -> Ending {
        let shutdown_kill = Duration::from_millis(rng.between(0, 300) as u64);
        let in_shutdown = rng.one_in(4);
        let Some(power) = &plan.power else {
            return match plan.kill_in_shutdown && in_shutdown {
                true => Ending::KillInShutdown(shutdown_kill),
                false => Ending::Kill,
            };
        };
        let (calls, phase) = (rng.between(1, 300) as u64, rng.between(0, 3) as u64);
        if power.in_copies {
            // Each call in its turn.
            return Ending::CutInCopy(1 + round * 3 % CALLS_OF_COPY, phase);
        }
        match rng.between(1, 10) {
            1 if power.kills_with_binlog || self.launch.binlog != Binlog::Synced => Ending::Kill,
            2 => Ending::CutAfterShutdown,
            3 | 4 if self.without_mixed || plan.kill_in_shutdown => {
                Ending::CutInShutdown(calls, phase)
            }
            5 if !plan.without.contains("ddl") => {
                Ending::CutInCopy(1 + calls % CALLS_OF_COPY, phase)
            }
            _ => Ending::Cut(calls, phase),
        }
    }

    fn count(&self, ending: Ending, totals: &mut Totals) {
        match ending {
            Ending::Kill | Ending::KillInShutdown(_) => totals.kills += 1,
            Ending::Cut(..) | Ending::CutInCopy(..) => totals.cuts += 1,
            Ending::CutInShutdown(..) => totals.cuts_in_shutdown += 1,
            Ending::CutAfterShutdown => totals.cuts_after_shutdown += 1,
        }
    }

    /// The power is off: what was not synced goes.
    fn lose(&self, rng: &mut Rng, totals: &mut Totals) -> Checked<()> {
        let Some(power) = &self.power else { return Ok(()) };
        let lost = power.lose(rng).map_err(one("applying the loss of power"))?;
        totals.lost.add(&lost);
        Ok(())
    }

    /// Without a binlog a transaction over two engines is not crash safe on any 10.11 server: see
    /// docs/kill9.md.
    fn left_out(&self, plan: &Plan) -> HashSet<String> {
        let mut without = plan.without.clone();
        if self.without_mixed {
            without.insert("mixed".into());
        }
        without
    }

    fn work_and_end(
        &mut self,
        plan: &Plan,
        round: u64,
        ending: Ending,
        rng: &mut Rng,
        met: &mut Met,
    ) -> Checked<()> {
        let Some(server) = self.server.take() else { return Err(vec!["no server".into()]) };
        let settings = Settings {
            socket: server.socket(),
            without: self.left_out(plan),
            used_autos: self.used_autos.clone(),
            round: round as i64,
            own_domains: false,
            end: Arc::default(),
        };
        let sessions = rng.between(4, SLOTS as i64) as usize;
        let work = Duration::from_millis(rng.between(200, 3000) as u64);
        let with_ddl = settings.has("ddl") && rng.one_in(2);
        let power = self.power.clone();
        let cut = match (&power, ending) {
            (Some(power), Ending::CutInCopy(calls, phase)) => Some((power, calls, phase)),
            _ => None,
        };
        let (sessions, work, with_ddl) = match cut {
            Some(_) => (0, Duration::ZERO, true),
            None => (sessions, work, with_ddl),
        };
        let started = server.started;
        let (record, rng) = (&mut self.record, &*rng);
        let ended = thread::scope(|scope| {
            for session in record.sessions.iter_mut().take(sessions) {
                let (settings, rng) = (&settings, rng.fork(100 + session.slot as u64));
                scope.spawn(move || workload::run_session(session, settings, rng));
            }
            if with_ddl {
                let (record, rng) = (&mut record.ddl, rng.fork(99));
                let work = ddl::Work {
                    socket: &settings.socket,
                    engine: &plan.engine,
                    rows: 20,
                    domain: None,
                    names_return: false,
                    end: &settings.end,
                };
                scope.spawn(move || {
                    ddl::run_session(record, &work, rng, || match cut {
                        Some((power, calls, phase)) => power.arm(calls, phase),
                        None => Ok(()),
                    });
                });
            }
            thread::sleep(work);
            if cut.is_none() {
                met.count(&server.socket());
            }
            end(server, ending, power.as_ref()).map_err(one("ending the server"))
        });
        // What a session saw says more than how the server went down.
        let problems = self.record.complaints();
        let ended = ended.and(no_complaints(self.power.as_ref(), started));
        match problems.is_empty() {
            true => ended,
            false => Err([problems, ended.err().unwrap_or_default()].concat()),
        }
    }

    /// Starts the server and kills it while it recovers, several times, in half of the rounds.
    fn kill_restarts(&self, rng: &mut Rng, totals: &mut Totals) -> Checked<()> {
        let kills = if rng.one_in(2) { rng.between(1, 4) } else { 0 };
        for _ in 0..kills {
            let server = self.launch.spawn().map_err(one("restart"))?;
            thread::sleep(Duration::from_millis(rng.between(0, 500) as u64));
            server.kill().map_err(one("kill during recovery"))?;
        }
        totals.kills += kills as u64;
        totals.kills_in_recovery += kills as u64;
        Ok(())
    }

    /// The same with the power, at a file call of the recovery or soon after it.
    fn cut_restarts(&self, rng: &mut Rng, totals: &mut Totals) -> Checked<()> {
        let Some(power) = &self.power else { return Ok(()) };
        let cuts = if rng.one_in(2) { rng.between(1, 3) } else { 0 };
        for _ in 0..cuts {
            let calls = 1u64 << rng.between(0, 10);
            let calls = calls + rng.between(0, calls as i64) as u64;
            let phase = rng.between(0, 3) as u64;
            power.arm(calls, phase).map_err(one("arming a cut in recovery"))?;
            let mut server = self.launch.spawn().map_err(one("restart"))?;
            let started = server.started;
            let answers = server.answers_before_cut().map_err(|error| {
                eprintln!("{}", last_lines(&self.launch.error_log(), 15));
                vec![format!("restart after a cut: {error}")]
            })?;
            if answers {
                power.arm(rng.between(1, 20) as u64, phase).map_err(one("arming a cut"))?;
                server.cut_off(false).map_err(one("the cut after recovery"))?;
            }
            no_complaints(self.power.as_ref(), started)?;
            self.lose(rng, totals)?;
            totals.cuts_in_recovery += 1;
        }
        Ok(())
    }

    fn verify(&mut self, plan: &Plan, server: &Server) -> Checked<Outcome> {
        let lost = |fault: Fault| vec![format!("connecting after the restart: {fault}")];
        let mut client = Client::connect(&server.socket(), "k9").map_err(lost)?;
        if let Some(sql) = plan.injection {
            inject(&mut client, sql).map_err(|fault| vec![format!("injection: {fault}")])?;
        }
        let result = self.record.verify(&mut client, &self.launch.prefix, &self.launch.data());
        if result.is_err() {
            eprintln!("last lines of the error log:");
            eprintln!("{}", last_lines(&self.launch.error_log(), 15));
        }
        result
    }

    fn binlog_counts(&self) -> (u64, u64) {
        self.record.binlog.as_ref().map_or((0, 0), |b| (b.committed.len() as u64, b.cut_short))
    }

    /// Doubtful transactions that turned out to be committed own their values too.
    fn remember_autos(&self) {
        let mut used = self.used_autos.lock().unwrap_or_else(|e| e.into_inner());
        for session in &self.record.sessions {
            used.extend(session.committed.autos.iter());
        }
    }
}

fn end(server: Server, ending: Ending, power: Option<&Power>) -> std::io::Result<()> {
    let arm = |calls, phase| power.map_or(Ok(()), |power| power.arm(calls, phase));
    match ending {
        Ending::Kill => server.kill(),
        Ending::KillInShutdown(after) => server.kill_in_shutdown(after),
        Ending::CutAfterShutdown => server.stop(),
        Ending::CutInCopy(..) => server.cut_off(false),
        Ending::Cut(calls, phase) => {
            arm(calls, phase)?;
            server.cut_off(false)
        }
        Ending::CutInShutdown(calls, phase) => {
            server.terminate();
            arm(calls, phase)?;
            server.cut_off(true)
        }
    }
}

/// Whatever the shim did not see makes the run worthless.
fn no_complaints(power: Option<&Power>, started: SystemTime) -> Checked<()> {
    let Some(power) = power else { return Ok(()) };
    let found = power.unseen(started).map_err(one("looking for unseen changes"))?;
    match found.is_empty() {
        true => Ok(()),
        false => Err(found),
    }
}

/// `other` is the engine of a second table like the first one.
pub fn create_schema(server: &Server, engine: &str, other: &str) -> Result<(), Fault> {
    let mut client = Client::connect(&server.socket(), "")?;
    client.run("CREATE DATABASE k9 CHARACTER SET utf8mb4")?;
    client.run("USE k9")?;
    for (table, engine) in [("main_rows", engine), ("other_rows", other)] {
        client.run(&format!(
            "CREATE TABLE {table} (id BIGINT PRIMARY KEY, k BIGINT NOT NULL, u BIGINT NULL, \
             pad VARCHAR(120) NOT NULL, big MEDIUMBLOB NULL, KEY k (k), UNIQUE KEY u (u)) \
             ENGINE={engine}"
        ))?;
    }
    client.run(&format!(
        "CREATE TABLE auto_rows (id BIGINT AUTO_INCREMENT PRIMARY KEY, session INT NOT NULL, \
         KEY session (session)) ENGINE={engine}"
    ))?;
    client.run(&format!(
        "CREATE TABLE journal (txn BIGINT PRIMARY KEY, session INT NOT NULL) ENGINE={engine}"
    ))?;
    for table in ["accounts_a", "accounts_b"] {
        client.run(&format!(
            "CREATE TABLE {table} (id INT PRIMARY KEY, balance BIGINT NOT NULL) ENGINE={engine}"
        ))?;
        for id in 1..=ACCOUNTS {
            client.run(&format!("INSERT INTO {table} VALUES ({id}, {OPENING_BALANCE})"))?;
        }
    }
    create_wide(&mut client, engine)
}

/// A table that a small pool does not hold, filled row by row and not by a load.
fn create_wide(client: &mut Client, engine: &str) -> Result<(), Fault> {
    client.run(&format!(
        "CREATE TABLE wide (id INT PRIMARY KEY, balance BIGINT NOT NULL, \
         pad VARBINARY({WIDE_BYTES}) NOT NULL) ENGINE={engine}"
    ))?;
    for (first, last) in [(1, 1), (2, WIDE_ROWS)] {
        client.run(&format!(
            "INSERT INTO wide SELECT seq, 0, LEFT(REPEAT(SHA2(seq, 256), 16), {WIDE_BYTES}) \
             FROM seq_{first}_to_{last}"
        ))?;
    }
    Ok(())
}
