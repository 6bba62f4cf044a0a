//! Backups under load: each round one `sluice backup` of a server at work, and in half of the rounds
//! increments on it (`chain`). Each is let alone or ended with its program, its session or its server (`bench`).
//! A finished one is restored, an increment with all that it rests on, and compared with the side record at
//! its place in the binlog (`restored`); of an unfinished one nothing may be left. See docs/backup.md.
//!
//! 1. Each session has a GTID domain of its own, and each of its transactions writes a row. So the GTIDs of a
//!    backup say how many transactions of each session are in it.
//! 2. A directory with a list is a finished backup, however its program ended; any other one is not.
//! 3. A stream is finished if its program says so. If that was killed, the restore says it.

mod bench;
mod chain;
mod copy;
mod end;
mod program;
mod restored;
mod tally;

use crate::kill9::{create_schema, one, Checked, Plan};
use crate::record::SLOTS;
use crate::verify::Record;
use crate::workload::{self, domain, Settings, ANSWER_LIMIT};
use crate::{binlog, ddl, sizes};
use bench::{let_go, Bench, Draw, Load, Seen};
use copy::{parse_place, Place, DDL_DOMAIN, SETUP_DOMAIN};
use end::{End, Moment, To, LIST};
use program::{Program, ACCOUNT};
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
use std::time::Duration;
pub use tally::Tally;

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
    /// How often there was load.
    works: i64,
    /// The server has begun to give GTIDs a second time, so that they say nothing of copies any more.
    is_renumbered: bool,
}

/// Runs all rounds; at the first violation returns what went wrong and in which round.
pub fn run(plan: &Plan, tally: &mut Tally) -> Result<(), (u64, Vec<String>)> {
    let template = plan.dir.join("template");
    plan.prefix.install(&template).map_err(|e| (0, vec![e.to_string()]))?;
    let mut site = None;
    for round in 0..plan.rounds {
        let mut rng = Rng::new(plan.seed).fork(round + 1);
        if round % plan.fresh_every == 0 || site.is_none() {
            drop(site.take());
            let made = Site::create(plan, round / plan.fresh_every, &mut rng);
            site = Some(made.map_err(|p| (round, p))?);
        }
        let Some(used) = site.as_mut() else { unreachable!("made in round 0") };
        match used.round(plan, round, &mut rng, tally) {
            Err(_) if used.is_renumbered => {
                fs::remove_dir_all(used.backups()).map_err(|e| (round, vec![e.to_string()]))?;
                tally.renumbered += 1;
                site = None;
            }
            done => done.map_err(|p| (round, p))?,
        }
        tally.rounds += 1;
        tally.tell(plan.rounds);
    }
    match tally.complaint() {
        None => Ok(()),
        Some(why) => Err((plan.rounds, vec![why])),
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
            extra: [sizes::draw(rng), plan.server_options.clone()].concat(),
            environment: Vec::new(),
        };
        copy_tree(&plan.dir.join("template"), &launch.data()).map_err(one("copying"))?;
        let server = launch.start().map_err(one("first start"))?;
        let made = create_schema(&server, &plan.engine, &plan.engine)
            .and_then(|()| create_account(&server.socket()));
        made.map_err(|fault| vec![format!("creating the tables: {fault}")])?;
        let beside = || std::env::current_exe().unwrap_or_default().with_file_name("sluice");
        let sluice = plan.program.clone().unwrap_or_else(beside);
        let program = Program { sluice, said: plan.dir.join("said") };
        let setup = place(&server.socket())?.remove(&SETUP_DOMAIN).unwrap_or(0);
        let mut record = Record::new(true);
        record.sessions.iter_mut().for_each(|session| session.begin_history());
        let (server, used_autos, dir) = (Some(server), Arc::default(), plan.dir.clone());
        Ok(Site {
            launch,
            server,
            record,
            used_autos,
            setup,
            program,
            dir,
            works: 0,
            is_renumbered: false,
        })
    }

    fn round(&mut self, plan: &Plan, round: u64, rng: &mut Rng, tally: &mut Tally) -> Checked<()> {
        if rng.one_in(5) {
            self.restart_cleanly()?;
        }
        self.record.sessions.iter_mut().for_each(|session| session.begin_history());
        fs::create_dir(self.backups()).map_err(one("the directory of the backups"))?;
        match chain::is_one(plan.seed, round) {
            true => self.chain(plan, rng, tally)?,
            false => {
                let wish = Wish { base: None, end: End::of(plan.seed, round), is_base: false };
                let link = self.attempt(plan, &wish, rng, tally)?;
                link.map_or(Ok(()), |link| self.compare(plan, &link, rng, tally))?;
            }
        }
        fs::remove_dir_all(self.backups()).map_err(one("removing what was compared"))
    }

    /// One backup under load, or an increment on another one; answers it if it was finished.
    fn attempt(
        &mut self,
        plan: &Plan,
        wish: &Wish,
        rng: &mut Rng,
        tally: &mut Tally,
    ) -> Checked<Option<Link>> {
        let draw = self.draw(wish, rng);
        let seen = self.back_up(plan, &draw, rng, tally)?;
        let mut path = wish.base.map_or_else(Vec::new, |base| base.path.clone());
        path.push(draw.to.path().to_owned());
        let link = Link { path, to: draw.to.clone(), seen };
        let is_finished = self.is_finished(&link)?;
        tally.count(wish.end, &link, is_finished);
        self.check_end(&draw, &link.seen, is_finished)?;
        match is_finished {
            true => Ok(Some(link)),
            false => self.refuse(&link, rng).map(|()| None),
        }
    }

    fn backups(&self) -> PathBuf {
        self.dir.join("backups")
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

    fn draw(&self, wish: &Wish, rng: &mut Rng) -> Draw {
        let to = self.backups().join(self.works.to_string());
        let is_stream = rng.one_in(3) && !wish.is_base;
        let to = if is_stream { To::Stream(to) } else { To::Dir(to) };
        let mut options = Vec::new();
        let mut pages = Duration::ZERO;
        let verifies = !rng.one_in(3);
        if !rng.one_in(4) {
            let time = Duration::from_millis(rng.between(100, 3000) as u64);
            let (copied, verified) = self.bytes_of(wish);
            let bytes = copied + if verifies && !is_stream { verified } else { 0 };
            let rate_mib = ((bytes as f64 / time.as_secs_f64()) as u64 >> 20).max(1);
            pages = Duration::from_secs_f64(copied as f64 / (rate_mib << 20) as f64);
            options.push(format!("--rate-mib={rate_mib}"));
        }
        if !verifies {
            options.push("--no-verify".into());
        }
        if is_stream && rng.one_in(2) {
            options.push("--compress".into());
        }
        if let Some(base) = wish.base {
            options.push(format!("--since={}", base.to.path().display()));
        }
        Draw {
            end: wish.end,
            moment: Moment::draw(rng, &to, pages),
            to,
            load: Load::draw(rng),
            lead: Duration::from_millis(rng.between(100, 700) as u64),
            trail: Duration::from_millis(rng.between(0, 300) as u64),
            options,
        }
    }

    /// Bytes of pages that a backup copies, and that its verification reads at most: of pages each for
    /// itself and for its table, of the log all of it, to check and to recover.
    fn bytes_of(&self, wish: &Wish) -> (u64, u64) {
        let pages = fs::metadata(self.launch.data().join("sluice/pages"))
            .map_or(0, |meta| meta.blocks() * 512);
        match wish.base {
            // An increment has a part of them, and each of its images is verified.
            Some(_) => (pages / 4, pages / 4),
            None => (pages, 2 * pages + 2 * ((self.launch.log_mib as u64) << 20)),
        }
    }

    fn back_up(&mut self, plan: &Plan, draw: &Draw, rng: &Rng, tally: &mut Tally) -> Checked<Seen> {
        let (program, data) = (self.program.clone(), self.launch.data());
        let bench = Bench { program, data, counters: self.counters(), draw };
        self.under_load(plan, &draw.load, rng, tally, |server, tally| bench.run(server, tally))
    }

    /// What happens while the sessions work. A server that was killed starts again afterwards.
    fn under_load<T>(
        &mut self,
        plan: &Plan,
        load: &Load,
        rng: &Rng,
        tally: &mut Tally,
        act: impl FnOnce(&mut Option<Server>, &mut Tally) -> Checked<T>,
    ) -> Checked<T> {
        let acknowledged = self.record.acknowledged();
        let done = self.work(plan, load, rng, |server| act(server, tally))?;
        tally.acknowledged += self.record.acknowledged() - acknowledged;
        if self.server.is_none() {
            self.recover()?;
        }
        self.check_numbers()?;
        Ok(done)
    }

    fn work<T>(
        &mut self,
        plan: &Plan,
        load: &Load,
        rng: &Rng,
        act: impl FnOnce(&mut Option<Server>) -> Checked<T>,
    ) -> Checked<T> {
        let Some(server) = self.server.take() else { return Err(vec!["no server".into()]) };
        let end = Arc::new(AtomicBool::new(false));
        let settings = Settings {
            socket: server.socket(),
            without: plan.without.clone(),
            used_autos: self.used_autos.clone(),
            round: self.works,
            own_domains: true,
            end: end.clone(),
        };
        self.works += 1;
        let record = &mut self.record;
        let (server, done) = thread::scope(|scope| {
            for session in record.sessions.iter_mut().take(load.sessions) {
                let (settings, rng) = (&settings, rng.fork(100 + session.slot as u64));
                scope.spawn(move || workload::run_session(session, settings, rng));
            }
            if settings.has("ddl") {
                let (record, rng) = (&mut record.ddl, rng.fork(99));
                let work = ddl::Work {
                    socket: &settings.socket,
                    engine: &plan.engine,
                    rows: load.ddl_rows,
                    domain: Some(DDL_DOMAIN),
                    names_return: true,
                    end: &settings.end,
                };
                scope.spawn(move || ddl::run_session(record, &work, rng, || Ok(())));
            }
            let mut server = Some(server);
            let done = act(&mut server);
            end.store(true, Ordering::SeqCst);
            (server, done)
        });
        self.server = server;
        // What a session saw says more than how the backup went.
        let problems = self.record.complaints();
        match problems.is_empty() {
            true => done,
            false => Err([problems, done.err().unwrap_or_default()].concat()),
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
        let steps_before = self.record.ddl.steps.len();
        self.record.verify(&mut client, &self.launch.prefix, &self.launch.data())?;
        // A statement that leaves the tables as they are may have happened: only its number tells.
        let ddl = &mut self.record.ddl;
        let count = copy::ddl_count(&place(&socket)?, self.setup);
        if ddl.steps.len() > steps_before && count == steps_before as u64 {
            ddl.has_no_number();
        } else if let Some(after) = doubtful.filter(|after| *after == ddl.tables) {
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
    fn check_numbers(&mut self) -> Checked<()> {
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
                self.is_renumbered = self.has_taken_back(&found, &wanted);
                Err(vec![format!("the primary's GTIDs are {found:?}, acknowledged {wanted:?}")])
            }
        }
    }

    /// A start by the server's own scan of the binlog (`TC_LOG_BINLOG::recover`) takes the GTID of a
    /// group that is cut off along to the next file that it reads, an older one, and then sets the state of one
    /// domain to what that file begins with. The binlog has all transactions nevertheless.
    fn has_taken_back(&self, found: &Place, wanted: &Place) -> bool {
        let lower: Vec<_> = wanted.iter().filter(|(d, n)| found.get(d) != Some(n)).collect();
        let [(domain, newest)] = lower[..] else { return false };
        let log = fs::read_to_string(self.launch.error_log()).unwrap_or_default();
        let last = log.rsplit("Starting MariaDB").next().unwrap_or_default();
        let is_lower = found.get(domain).is_some_and(|n| n < newest);
        let is_cut = last.contains("Event truncated") && last.contains("server's scan");
        is_lower
            && is_cut
            && binlog::has_gtid(&self.launch.prefix, &self.launch.data(), *domain, *newest)
    }

    fn is_finished(&self, link: &Link) -> Checked<bool> {
        let code = link.seen.ended.status.code();
        match (&link.to, code) {
            (To::Dir(dir), _) => Ok(dir.join(LIST).exists()),
            (To::Stream(_), Some(code)) => Ok(code == 0),
            (To::Stream(_), None) => self.can_be_restored(link),
        }
    }

    /// Did the program say what it did, and remove what is no backup?
    fn check_end(&self, draw: &Draw, seen: &Seen, is_finished: bool) -> Checked<()> {
        let (code, text) = (seen.ended.status.code(), &seen.ended.text);
        let is_kept = draw.to.path().join("data").exists();
        let what = match (code, is_finished) {
            (Some(0), false) => "success without a backup",
            (Some(code), true) if code != 0 => "an error, but a backup",
            (Some(_), false) if draw.end == End::Nothing => "nobody ended it",
            (Some(_), false) if is_kept => "the files of a backup that failed are kept",
            (Some(_), false) if !text.contains("error") => "no reason",
            (None, _) if draw.end == End::ProgramTold && seen.is_deaf() => return Ok(()),
            (None, _) if draw.end != End::ProgramKilled => "it crashed",
            _ => return Ok(()),
        };
        Err(vec![format!("{}: {what}: {}; {text}", draw.end.name(), seen.ended.status)])
    }
}

/// What kind of backup is to be made.
struct Wish<'a> {
    /// Of an increment.
    base: Option<&'a Link>,
    end: End,
    /// Others will rest on it: then it is no stream.
    is_base: bool,
}

/// A backup that was finished, or tried.
struct Link {
    /// The full backup, each increment up to this one, and this one.
    path: Vec<PathBuf>,
    to: To,
    seen: Seen,
}

impl Link {
    fn is_increment(&self) -> bool {
        self.path.len() > 1
    }

    fn is_stream(&self) -> bool {
        matches!(self.to, To::Stream(_))
    }

    /// For a message.
    fn shown(&self) -> String {
        let names = self.path.iter().filter_map(|path| path.file_name()?.to_str());
        names.collect::<Vec<_>>().join(" + ")
    }
}

impl Load {
    fn draw(rng: &mut Rng) -> Load {
        Load {
            sessions: rng.between(4, SLOTS as i64) as usize,
            ddl_rows: *rng.pick(&[20, 500, 5000]).unwrap_or(&20),
        }
    }
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
