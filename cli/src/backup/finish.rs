//! A restore has a private server work on the directory, before this gets its place: it applies binary
//! logs, and makes it a replica.

use super::gtid::{Gtid, State};
use super::manifest::{Manifest, SETTING};
use super::private::{Installation, Private};
use super::replay;
use super::replica::Primary;
use super::until::{self, Replay, Until};
use crate::db::Dsn;
use crate::{pace, Result};
use std::path::{Path, PathBuf};

/// The wish of the user.
#[derive(Default)]
pub struct Finish {
    /// Where the binary logs are, and how far they are applied.
    pub binlogs: Option<(PathBuf, Until)>,
    pub primary: Option<Dsn>,
    pub basedir: Option<PathBuf>,
    pub options: Vec<String>,
}

/// The work on one backup. It was found to be possible, as far as that can be said before.
pub struct Plan {
    installation: Installation,
    replay: Option<Replay>,
    until: Option<Until>,
    primary: Option<Primary>,
    /// Where the directory stands in the end.
    position: State,
}

impl Finish {
    /// Changes nothing. None: there is nothing to be done.
    pub fn plan(&self, manifest: &Manifest) -> Result<Option<Plan>> {
        if self.binlogs.is_none() && self.primary.is_none() {
            return Ok(None);
        }
        let installation = Installation::find(self.basedir.as_deref(), &self.options)?;
        pace::phase("reading the binary logs");
        let found = self.binlogs.as_ref().map(|(dir, until)| until::find(manifest, dir, until));
        let replay = found.transpose()?;
        let state =
            |name: &str| Gtid::parse_list(manifest.fact(name).unwrap_or_default()).map(State::of);
        let own = match &replay {
            Some(replay) => replay.state.clone(),
            None => state("gtid_binlog_pos")?,
        };
        // A backup of a replica has what this has applied, also without log_slave_updates.
        let position = own.with_newer_of(&state("gtid_slave_pos")?);
        let primary = self.primary.clone().map(Primary::find).transpose()?;
        if let Some(primary) = &primary {
            primary.check(&position)?;
        }
        let until = self.binlogs.as_ref().map(|(_, until)| until.clone());
        Ok(Some(Plan { installation, replay, until, primary, position }))
    }
}

impl Plan {
    pub fn run(&self, manifest: &Manifest, stage: &Path, work: &Path) -> Result<()> {
        // "loose": a server of another release may not know it.
        let settings: Vec<String> =
            manifest.facts_of(SETTING).map(|text| format!("--loose-{text}")).collect();
        let start = || Private::start(&self.installation, stage, work, &settings);
        pace::phase("a private server makes the tables of mysql that are missing");
        let mut server = start()?;
        server.upgrade()?;
        server.stop()?;
        let mut server = start()?;
        // A server of 10.11.18 ends if it is not there.
        let positions = server.control().value("SELECT COUNT(*) FROM mysql.gtid_slave_pos");
        positions.map_err(|reason| format!("mariadb-upgrade has made no tables: {reason}"))?;
        if let Some(replay) = self.replay.as_ref().filter(|replay| replay.transactions > 0) {
            pace::phase("applying the binary logs");
            let applied = replay::apply(&server, &self.installation, replay, work);
            applied.map_err(|reason| explained(reason, manifest))?;
        }
        if let Some(primary) = &self.primary {
            let position = self.position.position();
            primary.follow(server.control(), &position)?;
            let found = server.control().value("SELECT @@GLOBAL.gtid_slave_pos")?;
            if found.as_deref() != Some(position.as_str()) {
                return Err(format!(
                    "gtid_slave_pos is {found:?}, not {position}: {}",
                    server.log_lines()
                ));
            }
        }
        server.stop()
    }

    pub fn say(&self, manifest: &Manifest) {
        if let Some(replay) = &self.replay {
            self.say_replay(replay);
        }
        let version = manifest.fact("server_version").unwrap_or("the same release");
        report!("mariadb-upgrade is done. Start a server of {version} in it");
        match &self.primary {
            Some(primary) => {
                report!(
                    "with a server_id of its own: it follows {} from {}",
                    primary.shown(),
                    self.position.position()
                );
            }
            None => {
                report!("gtid_binlog_pos {}", self.position.position());
                let state = self.replay.as_ref().map_or(&self.position, |replay| &replay.state);
                report!("gtid_binlog_state {}", state.text());
            }
        }
    }

    fn say_replay(&self, replay: &Replay) {
        report!(
            "applied {} transactions of the binary logs, up to {}:{}",
            replay.transactions,
            replay.stop_file,
            replay.stop
        );
        if let Some(last) = &replay.last {
            report!("the last one is {} of unix time {}", last.gtid, last.time);
        }
        match &replay.next {
            Some(next) => report!(
                "the first one that is left out is {} of unix time {}",
                next.gtid,
                next.time
            ),
            None if matches!(self.until, Some(Until::Time { .. })) => {
                report!(
                    "the binary logs end there: they have no transaction of that time or later"
                );
            }
            None => report!("the binary logs end there"),
        }
    }
}

/// An error of a statement may be about a table that the backup does not have.
fn explained(reason: String, manifest: &Manifest) -> String {
    let is_of_user = |name: &&str| !name.starts_with("mysql.");
    let left_out: Vec<&str> = manifest.facts_of("not_copied").filter(is_of_user).collect();
    match left_out.is_empty() || !reason.starts_with(replay::NOT_APPLIED) {
        true => reason,
        false => format!("{reason}\nThe backup does not have {}", left_out.join(", ")),
    }
}
