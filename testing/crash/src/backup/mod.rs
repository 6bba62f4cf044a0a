//! Backups under load: each round one `sluice backup` of a server at work, which is let alone or ended with
//! its program, its session or its server. A finished one is restored and compared with the side record at
//! its place in the binlog; of an unfinished one nothing may be left. See docs/backup.md.
//!
//! 1. Each session has a GTID domain of its own, and each of its transactions writes a row. So the GTIDs of a
//!    backup say how many transactions of each session are in it.
//! 2. A directory with a list is a finished backup, however its program ended; any other one is not.

mod copy;
mod end;
mod program;
mod tally;

use crate::ddl;
use crate::kill9::{create_schema, one, Checked, Plan};
use crate::record::SLOTS;
use crate::verify::{inject, Record};
use crate::workload::{self, domain, Settings, ANSWER_LIMIT};
use copy::{parse_place, Expected, Facts, Place, DDL_DOMAIN, SETUP_DOMAIN};
use end::{End, Moment, Phase, LIST};
use program::{Ended, Program, Running, ACCOUNT};
use sluice_rig::client::{Client, Fault};
use sluice_rig::rng::Rng;
use sluice_rig::server::{copy_tree, last_lines, Binlog, Launch, Server};
use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};
pub use tally::Tally;

/// Until the server has let go of the files of a backup that ended. It takes milliseconds; the longest is
/// printed.
const LET_GO_LIMIT: Duration = Duration::from_secs(180);

/// One data directory with its server and its record.
struct Site {
    launch: Launch,
    server: Option<Server>,
    record: Record,
    used_autos: Arc<Mutex<HashSet<i64>>>,
    /// Transactions that made the tables.
    setup: u64,
    program: Program,
    dir: PathBuf,
}

/// How a round goes.
struct Draw {
    end: End,
    moment: Moment,
    sessions: usize,
    ddl_rows: i64,
    lead: Duration,
    trail: Duration,
    options: Vec<String>,
}

/// What the harness saw of a backup.
struct Seen {
    /// Acknowledged before it began.
    before: Place,
    /// How far it was when something was ended.
    phase: Option<Phase>,
    ended: Ended,
}

/// Runs all rounds; at the first violation returns what went wrong and in which round.
pub fn run(plan: &Plan, tally: &mut Tally) -> Result<(), (u64, Vec<String>)> {
    let template = plan.dir.join("template");
    plan.prefix.install(&template).map_err(|e| (0, vec![e.to_string()]))?;
    let mut site = None;
    for round in 0..plan.rounds {
        let mut rng = Rng::new(plan.seed).fork(round + 1);
        if round % plan.fresh_every == 0 {
            drop(site.take());
            let made = Site::create(plan, round / plan.fresh_every, &mut rng);
            site = Some(made.map_err(|p| (round, p))?);
        }
        let Some(site) = site.as_mut() else { unreachable!("made in round 0") };
        site.round(plan, round, &mut rng, tally).map_err(|p| (round, p))?;
        tally.rounds += 1;
    }
    match tally.is_worth_something() {
        true => Ok(()),
        false => Err((plan.rounds, vec!["less than a third of the backups were finished".into()])),
    }
}

impl Site {
    fn create(plan: &Plan, number: u64, rng: &mut Rng) -> Checked<Site> {
        let dir = plan.dir.join("server");
        if dir.exists() {
            fs::remove_dir_all(&dir).map_err(one("removing the old directory"))?;
        }
        fs::create_dir_all(&dir).map_err(one("making the directory"))?;
        let launch = Launch {
            prefix: plan.prefix.clone(),
            dir,
            engine: plan.engine.clone(),
            binlog: plan.binlog.of(number, &[Binlog::InLog, Binlog::Synced]),
            log_mib: *rng.pick(&[16, 32, 64]).unwrap_or(&16),
            binlog_rotation_kib: *rng.pick(&[256, 1024, 16 * 1024]).unwrap_or(&1024),
            extra: [sizes(rng), plan.server_options.clone()].concat(),
            environment: Vec::new(),
        };
        copy_tree(&plan.dir.join("template"), &launch.data()).map_err(one("copying"))?;
        let server = launch.start().map_err(one("first start"))?;
        let made = create_schema(&server, &plan.engine, &plan.engine)
            .and_then(|()| create_account(&server.socket()));
        made.map_err(|fault| vec![format!("creating the tables: {fault}")])?;
        let beside = std::env::current_exe().unwrap_or_default();
        let program =
            Program { sluice: beside.with_file_name("sluice"), said: plan.dir.join("said") };
        let setup = place(&server.socket())?.remove(&SETUP_DOMAIN).unwrap_or(0);
        let mut record = Record::new(true);
        record.sessions.iter_mut().for_each(|session| session.begin_history());
        let (server, used_autos, dir) = (Some(server), Arc::default(), plan.dir.clone());
        Ok(Site { launch, server, record, used_autos, setup, program, dir })
    }

    fn round(&mut self, plan: &Plan, round: u64, rng: &mut Rng, tally: &mut Tally) -> Checked<()> {
        if rng.one_in(5) {
            self.restart_cleanly()?;
        }
        let draw = self.draw(plan, round, rng);
        let acknowledged = self.record.acknowledged();
        self.record.sessions.iter_mut().for_each(|session| session.begin_history());
        let (seen, during) = self.work(plan, round, &draw, rng, tally)?;
        tally.acknowledged += self.record.acknowledged() - acknowledged;
        tally.during += during;
        if self.server.is_none() {
            self.recover()?;
        }
        self.check_numbers()?;
        let is_finished = self.backup().join(LIST).exists();
        tally.count(draw.end, seen.phase, is_finished);
        self.check_end(&draw, &seen, is_finished)?;
        match is_finished {
            true => self.compare(plan, &seen, rng, tally),
            false => self.refuse(&seen, rng),
        }?;
        for dir in [self.backup(), self.restored()] {
            if dir.exists() {
                fs::remove_dir_all(&dir).map_err(one("removing what was compared"))?;
            }
        }
        Ok(())
    }

    fn backup(&self) -> PathBuf {
        self.dir.join("backup")
    }

    /// For a server on the copy.
    fn restored(&self) -> PathBuf {
        self.dir.join("restored")
    }

    fn restart_cleanly(&mut self) -> Checked<()> {
        if let Some(server) = self.server.take() {
            server.stop().map_err(one("clean shutdown"))?;
        }
        self.server = Some(self.launch.start().map_err(one("start after a clean shutdown"))?);
        Ok(())
    }

    fn draw(&self, plan: &Plan, round: u64, rng: &mut Rng) -> Draw {
        let mut options = Vec::new();
        let mut pages = Duration::ZERO;
        if !rng.one_in(4) {
            pages = Duration::from_millis(rng.between(100, 3000) as u64);
            let bytes = fs::metadata(self.launch.data().join("sluice/pages"))
                .map_or(0, |meta| meta.blocks() * 512);
            let rate = (bytes as f64 / pages.as_secs_f64()) as u64 >> 20;
            options.push(format!("--rate-mib={}", rate.max(1)));
        }
        if rng.one_in(3) {
            options.push("--no-verify".into());
        }
        Draw {
            end: End::of(plan.seed, round),
            moment: Moment::draw(rng, pages),
            sessions: rng.between(4, SLOTS as i64) as usize,
            ddl_rows: *rng.pick(&[20, 500, 5000]).unwrap_or(&20),
            lead: Duration::from_millis(rng.between(100, 700) as u64),
            trail: Duration::from_millis(rng.between(0, 300) as u64),
            options,
        }
    }

    /// The load, and one backup beside it. Also how many commits were acknowledged meanwhile.
    fn work(
        &mut self,
        plan: &Plan,
        round: u64,
        draw: &Draw,
        rng: &Rng,
        tally: &mut Tally,
    ) -> Checked<(Seen, u64)> {
        let Some(server) = self.server.take() else { return Err(vec!["no server".into()]) };
        let end = Arc::new(AtomicBool::new(false));
        let settings = Settings {
            socket: server.socket(),
            without: plan.without.clone(),
            used_autos: self.used_autos.clone(),
            round: round as i64,
            own_domains: true,
            end: end.clone(),
        };
        let counters = self.counters();
        let bench = Bench {
            program: &self.program,
            to: &self.dir.join("backup"),
            data: &self.launch.data(),
            counters: &counters,
            draw,
        };
        let record = &mut self.record;
        let (server, seen) = thread::scope(|scope| {
            for session in record.sessions.iter_mut().take(draw.sessions) {
                let (settings, rng) = (&settings, rng.fork(100 + session.slot as u64));
                scope.spawn(move || workload::run_session(session, settings, rng));
            }
            if settings.has("ddl") {
                let (record, rng) = (&mut record.ddl, rng.fork(99));
                let work = ddl::Work {
                    socket: &settings.socket,
                    engine: &plan.engine,
                    rows: draw.ddl_rows,
                    domain: Some(DDL_DOMAIN),
                    end: &settings.end,
                };
                scope.spawn(move || ddl::run_session(record, &work, rng, || Ok(())));
            }
            let mut server = Some(server);
            let seen = bench.run(&mut server, tally);
            end.store(true, Ordering::SeqCst);
            (server, seen)
        });
        self.server = server;
        // What a session saw says more than how the backup went.
        let problems = self.record.complaints();
        match problems.is_empty() {
            true => seen,
            false => Err([problems, seen.err().unwrap_or_default()].concat()),
        }
    }

    /// Counters of acknowledged transactions by domain, to be read while the sessions run.
    fn counters(&self) -> Vec<(u64, Arc<AtomicU64>)> {
        let history = |session: &crate::record::Session| {
            Some((domain(session.slot), session.history.as_ref()?.counter()))
        };
        let mut counters: Vec<_> = self.record.sessions.iter().filter_map(history).collect();
        counters.push((DDL_DOMAIN, self.record.ddl.count.clone()));
        counters
    }

    /// The server was killed: nothing that was acknowledged is lost, and it knows of no backup.
    fn recover(&mut self) -> Checked<()> {
        let server = self.launch.start().map_err(|error| {
            eprintln!("{}", last_lines(&self.launch.error_log(), 15));
            vec![format!("restart after the kill: {error}")]
        })?;
        let socket = server.socket();
        self.server = Some(server);
        let mut client = connect(&socket, "k9")?;
        let doubtful = self.record.ddl.doubtful.clone();
        self.record.verify(&mut client, &self.launch.prefix, &self.launch.data())?;
        // A statement that leaves the tables as they are may have happened: only its number tells.
        let ddl = &mut self.record.ddl;
        let count = copy::ddl_count(&place(&socket)?, self.setup);
        if let Some(after) = doubtful.filter(|after| *after == ddl.tables) {
            if count == ddl.steps.len() as u64 + 1 {
                ddl.step(after);
            }
        }
        let mut used = self.used_autos.lock().unwrap_or_else(|e| e.into_inner());
        for session in &self.record.sessions {
            used.extend(session.committed.autos.iter());
        }
        drop(used);
        let_go(&socket, &self.launch.data()).map(|_| ())
    }

    fn socket(&self) -> PathBuf {
        self.launch.socket()
    }

    /// The GTIDs of the primary number exactly the transactions of the record, or they say nothing of a copy.
    fn check_numbers(&self) -> Checked<()> {
        let mut found = place(&self.socket())?;
        found.insert(DDL_DOMAIN, copy::ddl_count(&found, self.setup));
        found.remove(&SETUP_DOMAIN);
        found.retain(|_, count| *count > 0);
        let mut wanted: Place = self
            .counters()
            .into_iter()
            .map(|(domain, n)| (domain, n.load(Ordering::SeqCst)))
            .collect();
        wanted.retain(|_, count| *count > 0);
        match found == wanted {
            true => Ok(()),
            false => {
                Err(vec![format!("the primary's GTIDs are {found:?}, acknowledged {wanted:?}")])
            }
        }
    }

    /// Did the program say what it did, and remove what is no backup?
    fn check_end(&self, draw: &Draw, seen: &Seen, is_finished: bool) -> Checked<()> {
        let (code, text) = (seen.ended.status.code(), &seen.ended.text);
        let is_kept = self.backup().join("data").exists();
        let what = match (code, is_finished) {
            (Some(0), false) => "success without a backup",
            (Some(code), true) if code != 0 => "an error, but a backup",
            (Some(_), false) if draw.end == End::Nothing => "nobody ended it",
            (Some(_), false) if is_kept => "the files of a backup that failed are kept",
            (Some(_), false) if !text.contains("error") => "no reason",
            (None, _) if draw.end != End::ProgramKilled => "it crashed",
            _ => return Ok(()),
        };
        Err(vec![format!("{}: {what}: {}; {text}", draw.end.name(), seen.ended.status)])
    }

    fn compare(&self, plan: &Plan, seen: &Seen, rng: &mut Rng, tally: &mut Tally) -> Checked<()> {
        let facts = Facts::read(&self.backup())?;
        let mut found = facts.place.clone();
        found.insert(DDL_DOMAIN, copy::ddl_count(&found, self.setup));
        let problems = copy::missing(&seen.before, &found);
        if !problems.is_empty() {
            return Err(problems);
        }
        let mut expected = Expected::at(&self.record, &facts.place, self.setup)?;
        let launch = self.restore(rng)?;
        let server = launch.start().map_err(|error| {
            eprintln!("{}", last_lines(&launch.error_log(), 15));
            vec![format!("the server on the copy: {error}")]
        })?;
        let socket = server.socket();
        if let Some(sql) = plan.injection {
            let injected = inject(&mut connect(&socket, "k9")?, sql);
            injected.map_err(|fault| vec![format!("injection: {fault}")])?;
        }
        tally.rows += expected.compare(&socket, &launch.prefix, &launch.data())?;
        tally.falsified += expected.notices(&self.record, &socket)?;
        copy::check_position(&expected, &facts, &self.launch.prefix, &self.launch.data())?;
        tally.compared += expected.transactions();
        tally.tables += expected.record.ddl.tables.len() as u64;
        let word_before = |what: &str| -> u64 {
            let before = seen.ended.text.split(what).next().unwrap_or_default();
            before.split_whitespace().last().and_then(|word| word.parse().ok()).unwrap_or(0)
        };
        tally.mib += word_before(" MiB in ");
        tally.held_ms = tally.held_ms.max(word_before(" ms"));
        Ok(())
    }

    /// A data directory of the backup, for a server that keeps a binlog of its own.
    fn restore(&self, rng: &mut Rng) -> Checked<Launch> {
        let launch = Launch { dir: self.restored(), ..self.launch.clone() };
        let target = match rng.one_in(2) {
            true => launch.data(),
            false => launch.dir.clone(),
        };
        fs::create_dir_all(&target).map_err(one("making the target"))?;
        let ended = self.program.restore(&self.backup(), &launch.data());
        let Ended { status, text } = ended.map_err(one("sluice restore"))?;
        if !status.success() {
            return Err(vec![format!("sluice restore: {status}: {text}")]);
        }
        let dropped =
            text.lines().filter_map(|line| line.split_once("without a definition, dropped: "));
        let users: Vec<_> =
            dropped.filter(|(_, name)| !name.contains("/#sql")).map(|(_, name)| name).collect();
        match users.is_empty() {
            true => Ok(launch),
            false => Err(vec![format!("lost tables, without a definition: {users:?}")]),
        }
    }

    /// What was not finished is no backup, and the target stays empty.
    fn refuse(&self, seen: &Seen, rng: &mut Rng) -> Checked<()> {
        let target = self.restored();
        if rng.one_in(2) {
            fs::create_dir(&target).map_err(one("making the target"))?;
        }
        let ended = self.program.restore(&self.backup(), &target);
        let Ended { status, text } = ended.map_err(one("sluice restore"))?;
        let is_empty = fs::read_dir(&target).map_or(true, |mut entries| entries.next().is_none());
        let is_said = text.contains("no backup, or one that was not finished");
        match status.success() || !is_empty || !is_said {
            false => Ok(()),
            true => Err(vec![format!(
                "an unfinished backup ({:?}) is not refused: {status}, empty: {is_empty}: {text}",
                seen.phase
            )]),
        }
    }
}

/// A pool that is smaller than the data, so that pages are replaced while they are copied; and the log as it
/// may be written.
fn sizes(rng: &mut Rng) -> Vec<String> {
    let pick = |rng: &mut Rng, name: &str, values: &[&str]| {
        format!("--loose-sluice-{name}={}", rng.pick(values).unwrap_or(&""))
    };
    vec![
        pick(rng, "buffer-pool-size", &["4M", "8M", "32M"]),
        pick(rng, "space-amplification-pct", &["110", "160"]),
        pick(rng, "log-compression", &["none", "lz4", "zstd"]),
    ]
}

/// What a backup beside the load needs.
struct Bench<'a> {
    program: &'a Program,
    to: &'a Path,
    data: &'a Path,
    counters: &'a [(u64, Arc<AtomicU64>)],
    draw: &'a Draw,
}

impl Bench<'_> {
    /// Takes the server if it was killed.
    fn run(&self, server: &mut Option<Server>, tally: &mut Tally) -> Checked<(Seen, u64)> {
        let Some(socket) = server.as_ref().map(Server::socket) else {
            return Err(vec!["no server".into()]);
        };
        thread::sleep(self.draw.lead);
        let before = self.acknowledged();
        let started = self.program.backup(&socket, self.to, &self.draw.options);
        let mut running = started.map_err(one("sluice backup"))?;
        let phase = self.end(&mut running, server)?;
        let ended = running.end().map_err(one("sluice backup"))?;
        let sum = |place: &Place| place.values().sum::<u64>();
        let during = sum(&self.acknowledged()) - sum(&before);
        if server.is_some() {
            tally.let_go = tally.let_go.max(let_go(&socket, self.data)?);
            thread::sleep(self.draw.trail);
        }
        Ok((Seen { before, phase, ended }, during))
    }

    fn acknowledged(&self) -> Place {
        let counters = self.counters.iter();
        counters.map(|(domain, count)| (*domain, count.load(Ordering::SeqCst))).collect()
    }

    /// Ends what the round wants ended, at its moment; how far the backup was.
    fn end(&self, running: &mut Running, server: &mut Option<Server>) -> Checked<Option<Phase>> {
        let (end, moment) = (self.draw.end, &self.draw.moment);
        if end == End::Nothing {
            return Ok(None);
        }
        let phase = || Phase::of(self.to, self.data);
        let failed = one("waiting for the moment");
        let is_there = running.wait_until(|| phase() >= moment.mark).map_err(&failed)?;
        let until = Instant::now() + moment.rest;
        let runs = is_there && running.wait_until(|| Instant::now() >= until).map_err(&failed)?;
        let found = phase();
        match end {
            End::ProgramKilled => running.kill().map_err(one("killing the program"))?,
            End::ProgramTold if runs => running.terminate(),
            End::SessionKilled => kill_session(server.as_ref())?,
            End::ServerKilled => {
                let killed = server.take().map_or(Ok(()), Server::kill);
                killed.map_err(one("killing the server"))?;
            }
            End::ProgramTold | End::Nothing => {}
        }
        Ok(Some(found))
    }
}

/// If the backup has one, so far or still.
fn kill_session(server: Option<&Server>) -> Checked<()> {
    let Some(server) = server else { return Ok(()) };
    let mut client = connect(&server.socket(), "")?;
    let sql = format!("SELECT id FROM information_schema.processlist WHERE user = '{ACCOUNT}'");
    let ids: Vec<u64> = client.rows(&sql).map_err(one("looking for the session"))?;
    for id in ids {
        match client.run(&format!("KILL {id}")) {
            // It has just ended.
            Ok(()) | Err(Fault::Sql(1094, _)) => {}
            Err(fault) => return Err(vec![format!("killing the session: {fault}")]),
        }
    }
    Ok(())
}

/// The rights that docs/backup.md names.
fn create_account(socket: &Path) -> Result<(), Fault> {
    let mut client = Client::connect(socket, "")?;
    client.run(&format!("CREATE USER {ACCOUNT}@localhost"))?;
    client.run(&format!(
        "GRANT RELOAD, PROCESS, BINLOG MONITOR, SELECT ON *.* TO {ACCOUNT}@localhost"
    ))
}

fn connect(socket: &Path, database: &str) -> Checked<Client> {
    let client = Client::connect_with_limit(socket, database, ANSWER_LIMIT);
    client.map_err(|fault| vec![format!("connecting: {fault}")])
}

/// Where the binlog of a server stands.
fn place(socket: &Path) -> Checked<Place> {
    let mut client = connect(socket, "")?;
    let gtids: Vec<String> =
        client.rows("SELECT @@GLOBAL.gtid_binlog_pos").map_err(one("gtid_binlog_pos"))?;
    let gtids = gtids.concat();
    parse_place(&gtids).ok_or_else(|| vec![format!("gtid_binlog_pos is {gtids}")])
}

/// Waits until the server keeps nothing for a backup; how long that took.
fn let_go(socket: &Path, data: &Path) -> Checked<Duration> {
    let begun = Instant::now();
    let mut client = connect(socket, "")?;
    let sql = "SHOW GLOBAL STATUS WHERE Variable_name IN \
               ('Sluice_backup_state', 'Sluice_log_pin_backup_bytes', 'Sluice_store_held_bytes')";
    loop {
        let mut kept: Vec<(String, String)> = client.rows(sql).map_err(one("the status"))?;
        if kept.len() != 3 {
            return Err(vec![format!("the server does not say what it keeps: {kept:?}")]);
        }
        kept.retain(|(_, value)| value != "0");
        let file = end::kept_file(data);
        if kept.is_empty() && !file.exists() {
            return Ok(begun.elapsed());
        }
        if begun.elapsed() > LET_GO_LIMIT {
            return Err(vec![format!(
                "after a backup the server keeps {kept:?}, {}",
                file.display()
            )]);
        }
        thread::sleep(Duration::from_millis(5));
    }
}
