//! The server with both databases.

use crate::session::{Direct, Session, Side, SIDES};
use sluice_rig::server::{Binlog, Launch, Prefix, Server};
use std::io;
use std::path::{Path, PathBuf};

#[derive(Clone)]
pub struct Place {
    pub prefix: Prefix,
    pub dir: PathBuf,
    /// The plugin to load instead of the prefix's, for builds with planted mistakes.
    pub plugin_dir: Option<PathBuf>,
    pub planted: Option<String>,
    pub binlog: bool,
    /// Steps are shown with their answers while they run.
    pub trace: bool,
    /// Several sessions: the server must say which of them wait.
    pub waits: bool,
}

/// Of several sessions.
pub const LOCK_WAIT_TIMEOUT_S: u64 = 30;

pub struct World {
    launch: Launch,
    server: Option<Server>,
    waits: bool,
    pub trace: bool,
}

fn failed(what: &str, error: impl std::fmt::Display) -> io::Error {
    io::Error::other(format!("{what}: {error}"))
}

impl World {
    pub fn start(place: &Place) -> io::Result<World> {
        std::fs::create_dir_all(&place.dir)?;
        let launch = Launch {
            prefix: place.prefix.clone(),
            dir: place.dir.clone(),
            engine: "Sluice".into(),
            binlog: if place.binlog { Binlog::Synced } else { Binlog::Off },
            log_mib: 96,
            binlog_rotation_kib: 65536,
            extra: extra_options(place),
            environment: environment(place),
        };
        if !launch.data().exists() {
            place.prefix.install(&launch.data())?;
        }
        let mut world =
            World { server: Some(launch.start()?), launch, waits: place.waits, trace: place.trace };
        world.empty()?;
        Ok(world)
    }

    pub fn socket(&self) -> PathBuf {
        self.launch.socket()
    }

    pub fn error_log(&self) -> PathBuf {
        self.launch.error_log()
    }

    pub fn control(&self) -> io::Result<Direct> {
        Direct::connect(&self.socket(), Side::InnoDb, "").map_err(|e| failed("connect", e))
    }

    /// New databases without anything in them. Ends what earlier sessions left prepared.
    pub fn empty(&mut self) -> io::Result<()> {
        let mut control = self.control()?;
        let prepared = control.run("XA RECOVER");
        for set in &prepared.sets {
            for row in &set.rows {
                let id = row.get(3).cloned().flatten().unwrap_or_default();
                control.run(&format!("XA ROLLBACK '{}'", String::from_utf8_lossy(&id)));
            }
        }
        for side in SIDES {
            let name = side.database();
            for sql in [
                format!("DROP DATABASE IF EXISTS {name}"),
                format!("CREATE DATABASE {name} CHARACTER SET utf8mb4"),
            ] {
                let outcome = control.run(&sql);
                if !outcome.is_ok() {
                    return Err(failed(&sql, format!("{:?} {:?}", outcome.error, outcome.lost)));
                }
            }
        }
        Ok(())
    }

    pub fn session(&self, side: Side) -> io::Result<Session> {
        let mut direct = Direct::connect(&self.socket(), side, side.database())
            .map_err(|e| failed("connect", e))?;
        for sql in settings(side, self.waits) {
            let outcome = direct.run(&sql);
            if !outcome.is_ok() {
                return Err(failed(&sql, format!("{:?} {:?}", outcome.error, outcome.lost)));
            }
        }
        Ok(Session::start(direct))
    }

    pub fn is_alive(&self) -> bool {
        self.control().is_ok()
    }

    /// After a crash, or when what a session left behind cannot be cleared away.
    pub fn restart(&mut self) -> io::Result<()> {
        drop(self.server.take());
        self.server = Some(self.launch.start()?);
        self.empty()
    }
}

/// The same for every session, so that a statement means the same on both sides.
fn settings(side: Side, waits: bool) -> Vec<String> {
    let engine = side.engine();
    let limit = if waits { LOCK_WAIT_TIMEOUT_S } else { 1 };
    // InnoDB tests a condition on columns of the index before it locks the row, Sluice after it.
    let pushdown = if waits { "off" } else { "on" };
    vec![
        format!("SET optimizer_switch='index_condition_pushdown={pushdown}'"),
        format!("SET default_storage_engine={engine}, default_tmp_storage_engine={engine}"),
        "SET timestamp=1700000000, time_zone='+00:00', max_error_count=4000".into(),
        "SET rand_seed1=17, rand_seed2=23, sql_quote_show_create=1".into(),
        // A sort with LIMIT cuts its keys at max_sort_length, another sort does not.
        "SET max_sort_length=16384, sort_buffer_size=8388608".into(),
        // InnoDB in place leaves out what a copy checks: other warnings, other counts.
        "SET alter_algorithm='COPY'".into(),
        format!(
            "SET innodb_lock_wait_timeout={limit}, sluice_lock_wait_timeout={limit}, \
             lock_wait_timeout={limit}"
        ),
    ]
}

fn extra_options(place: &Place) -> Vec<String> {
    let mut options: Vec<String> = [
        "--innodb-flush-log-at-trx-commit=0",
        "--loose-sluice-flush-log-at-trx-commit=0",
        "--innodb-buffer-pool-size=64M",
        "--loose-sluice-buffer-pool-size=64M",
        "--sync-binlog=0",
        "--sync-frm=0",
        "--innodb-stats-persistent=0",
        "--query-cache-type=2",
        "--secure-file-priv=",
        "--innodb-status-output=0",
        "--log-warnings=1",
        "--max-connections=60",
    ]
    .map(String::from)
    .to_vec();
    if place.waits {
        options.extend(
            [
                "--performance-schema=ON",
                "--performance-schema-instrument=%=OFF",
                "--performance-schema-instrument=wait/synch/cond/sluice/row_lock=ON",
                "--performance-schema-consumer-events-waits-current=ON",
            ]
            .map(String::from),
        );
    }
    if let Some(dir) = &place.plugin_dir {
        options.push(format!("--plugin-dir={}", dir.display()));
    }
    options
}

fn environment(place: &Place) -> Vec<(String, std::ffi::OsString)> {
    place.planted.iter().map(|name| ("SLUICE_PLANTED".to_owned(), name.into())).collect()
}

/// The last lines of the error log, for a report of a server that has ended.
pub fn tail(path: &Path, lines: usize) -> Vec<String> {
    let text = std::fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&text).into_owned();
    let all: Vec<&str> = text.lines().collect();
    all.iter().rev().take(lines).rev().map(|l| (*l).to_owned()).collect()
}
