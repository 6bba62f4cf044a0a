//! One backup beside the load, let alone or ended with its program, its session or its server.

use super::copy::Place;
use super::end::{self, End, Moment, Phase, To};
use super::program::{Ended, Program, Running, ACCOUNT};
use super::{connect, Tally};
use crate::kill9::{one, Checked};
use sluice_rig::client::Fault;
use sluice_rig::server::Server;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// Until the server has let go of the files of a backup that ended. It takes milliseconds; the longest is
/// printed.
const LET_GO_LIMIT: Duration = Duration::from_secs(180);

/// How a backup goes.
pub struct Draw {
    pub to: To,
    pub end: End,
    pub moment: Moment,
    pub load: Load,
    pub lead: Duration,
    pub trail: Duration,
    pub options: Vec<String>,
}

/// The sessions that work beside a backup, and the rows of its DDL.
pub struct Load {
    pub sessions: usize,
    pub ddl_rows: i64,
}

/// A backup as the harness saw it.
pub struct Seen {
    /// Acknowledged before it began.
    pub before: Place,
    /// How far it was when something was ended.
    pub phase: Option<Phase>,
    pub ended: Ended,
}

impl Seen {
    /// It was told to end before it had begun to listen, and so had made nothing.
    pub fn is_deaf(&self) -> bool {
        self.phase == Some(Phase::Begins) && self.ended.status.signal() == Some(libc::SIGTERM)
    }
}

/// The means to make a backup beside the load.
pub struct Bench<'a> {
    pub program: Program,
    pub data: PathBuf,
    pub counters: Vec<(u64, Arc<AtomicU64>)>,
    pub draw: &'a Draw,
}

impl Bench<'_> {
    /// Takes the server if it was killed.
    pub fn run(&self, server: &mut Option<Server>, tally: &mut Tally) -> Checked<Seen> {
        let Some(socket) = server.as_ref().map(Server::socket) else {
            return Err(vec!["no server".into()]);
        };
        thread::sleep(self.draw.lead);
        let before = self.acknowledged();
        let started = self.program.backup(&socket, &self.draw.to, &self.draw.options);
        let mut running = started.map_err(one("sluice backup"))?;
        let phase = self.end(&mut running, server)?;
        let ended = running.end().map_err(one("sluice backup"))?;
        let sum = |place: &Place| place.values().sum::<u64>();
        tally.during += sum(&self.acknowledged()) - sum(&before);
        if server.is_some() {
            tally.let_go = tally.let_go.max(let_go(&socket, &self.data)?);
            thread::sleep(self.draw.trail);
        }
        Ok(Seen { before, phase, ended })
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
        let phase = || Phase::of(&self.draw.to, &self.data);
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

/// Waits until the server keeps nothing for a backup; how long that took.
pub fn let_go(socket: &Path, data: &Path) -> Checked<Duration> {
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
