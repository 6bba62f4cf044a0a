//! One server directory of a test: its server is started with options, asked, stopped and killed.
//! Anything unexpected is a panic with the end of the error log.

use crate::scratch::{install, prefix, Scratch};
use crate::wait_until;
use sluice_rig::client::{Answer, Client, Fault};
use sluice_rig::server::{last_lines, Binlog, Launch, Prefix, Server};
use sluice_rig::tool::{run, signal, Ended};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

pub struct Site {
    launch: Launch,
    server: Option<Server>,
    /// Bytes of the error log before the last start.
    log_start: usize,
}

/// The rig's small sizes and short waits are for other tests.
const DEFAULTS: [&str; 8] = [
    "--log-bin=sluice-bin",
    "--gtid-strict-mode=1",
    "--max-allowed-packet=64M",
    "--skip-name-resolve",
    "--innodb-lock-wait-timeout=50",
    "--loose-sluice-lock-wait-timeout=50",
    "--loose-sluice-buffer-pool-size=128M",
    "--loose-sluice-log-capacity=512M",
];

impl Site {
    /// Directory `name` with a fresh installation. Tables are made in `engine`; without Sluice the
    /// server has no plugin. The options are those of every start.
    pub fn new(scratch: &Scratch, name: &str, engine: &str, options: &[&str]) -> Site {
        let dir = scratch.path(name);
        std::fs::create_dir(&dir).expect("a new directory");
        let engine_option = format!("--default-storage-engine={engine}");
        let extra = DEFAULTS.iter().chain(options).map(|option| option.to_string());
        let launch = Launch {
            prefix: prefix(),
            dir,
            engine: engine.into(),
            binlog: Binlog::InLog,
            log_mib: 96,
            binlog_rotation_kib: 1 << 20,
            extra: extra.chain([engine_option]).collect(),
            environment: Vec::new(),
        };
        install(&launch.data());
        Site { launch, server: None, log_start: 0 }
    }

    /// From the next start on the server's plugin makes these mistakes (plugin/src/planted.rs), with
    /// commas between. `dir`: where a plugin is that can.
    pub fn plant(&mut self, names: &str, dir: &Path) {
        self.launch.environment.push(("SLUICE_PLANTED".into(), names.into()));
        self.launch.extra.push(format!("--plugin-dir={}", dir.display()));
    }

    /// From the next start on the server is that of another installation.
    pub fn move_to(&mut self, prefix: Prefix) {
        self.launch.prefix = prefix;
    }

    /// Runs a program of the installation that the server is from.
    #[track_caller]
    pub fn program(&self, name: &str, arguments: &[&str]) -> Ended {
        let mut command = Command::new(self.launch.prefix.program(name));
        run(command.arg("--no-defaults").args(arguments))
    }

    /// A file of the data directory.
    pub fn data(&self, name: &str) -> PathBuf {
        self.launch.data().join(name)
    }

    pub fn socket(&self) -> PathBuf {
        self.launch.socket()
    }

    /// The process of the server that runs.
    #[track_caller]
    pub fn pid(&self) -> u32 {
        let text = std::fs::read_to_string(self.data("../pid")).expect("a server that runs");
        text.trim().parse().expect("a number")
    }

    /// Nothing of the server runs while `look` does: a signal stops it before.
    #[track_caller]
    pub fn frozen<T>(&self, look: impl FnOnce() -> T) -> T {
        let pid = self.pid();
        signal("STOP", pid);
        let is_stopped = || {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("a process");
            stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'))
        };
        wait_until("a server that stands still", is_stopped);
        let found = look();
        signal("CONT", pid);
        found
    }

    fn try_start(&mut self, options: &[&str]) -> io::Result<()> {
        assert!(self.server.is_none(), "a server runs already");
        self.log_start = self.log().len();
        let mut launch = self.launch.clone();
        launch.extra.extend(options.iter().map(|option| option.to_string()));
        self.server = Some(launch.start()?);
        Ok(())
    }

    #[track_caller]
    pub fn start(&mut self, options: &[&str]) {
        if let Err(problem) = self.try_start(options) {
            panic!("{problem}\n{}", last_lines(&self.launch.error_log(), 25));
        }
    }

    /// A start that must end by itself, after the error log has said `why`.
    #[track_caller]
    pub fn refuses(&mut self, why: &str, options: &[&str]) {
        match self.try_start(options) {
            Ok(()) => panic!("the server started with {options:?}"),
            Err(problem) => {
                // Neither a crash nor a start that hangs.
                let says = problem.to_string();
                assert!(says.contains("did not start: exit status"), "{says}");
            }
        }
        self.says(why);
    }

    #[track_caller]
    pub fn kill(&mut self) {
        let server = self.server.take().expect("a server that runs");
        server.kill().expect("a server to be killed");
    }

    /// The server ends by itself, as after a crash.
    #[track_caller]
    pub fn aborts(&mut self) {
        let server = self.server.take().expect("a server that runs");
        server.wait_for_abort().expect("a server that aborts");
    }

    #[track_caller]
    pub fn stop(&mut self) {
        let server = self.server.take().expect("a server that runs");
        if let Err(problem) = server.stop() {
            panic!("{problem}\n{}", last_lines(&self.launch.error_log(), 25));
        }
    }

    /// A new connection.
    #[track_caller]
    pub fn client(&self) -> Client {
        done(Client::connect(&self.socket(), ""), "connect")
    }

    /// One whose statements may take so long.
    #[track_caller]
    pub fn patient_client(&self, limit: Duration) -> Client {
        done(Client::connect_with_limit(&self.socket(), "", limit), "connect")
    }

    /// Runs statements on a connection of their own.
    #[track_caller]
    pub fn run(&self, statements: &[&str]) {
        let mut client = self.client();
        for sql in statements {
            done(client.run(sql), sql);
        }
    }

    /// The first value of the first row, "" if there is none.
    #[track_caller]
    pub fn value(&self, sql: &str) -> String {
        self.rows(sql).into_iter().flatten().next().unwrap_or_default()
    }

    /// All rows, as text; NULL is "NULL".
    #[track_caller]
    pub fn rows(&self, sql: &str) -> Vec<Vec<String>> {
        match done(self.client().answer(sql), sql) {
            Answer::Rows(rows) => {
                rows.into_iter().map(|row| row.into_iter().map(text).collect()).collect()
            }
            Answer::Done(_) => Vec::new(),
        }
    }

    /// The first row by the names of its columns.
    #[track_caller]
    pub fn row(&self, sql: &str) -> BTreeMap<String, String> {
        done(self.client().first_by_name(sql), sql).unwrap_or_default()
    }

    /// The sum of the counters whose name is like this.
    #[track_caller]
    pub fn status(&self, name: &str) -> u64 {
        let rows = self.rows(&format!("SHOW GLOBAL STATUS LIKE '{name}'"));
        assert!(!rows.is_empty(), "no counter {name}");
        rows.iter().map(|row| row[1].parse::<u64>().unwrap_or_else(|_| panic!("{row:?}"))).sum()
    }

    /// How many rows table test.`table` has, and the sum of their keys.
    #[track_caller]
    pub fn count_and_sum(&self, table: &str) -> (i64, i64) {
        let sql = format!("SELECT COUNT(*), COALESCE(SUM(a), 0) FROM test.{table}");
        done(self.client().rows(&sql), &sql)[0]
    }

    /// The keys of table test.`table`.
    #[track_caller]
    pub fn keys(&self, table: &str) -> Vec<i64> {
        let sql = format!("SELECT a FROM test.{table}");
        done(self.client().rows(&sql), &sql)
    }

    /// Waits until all that is in the log is on the disk.
    #[track_caller]
    pub fn wait_until_log_is_durable(&self) {
        wait_until("a log that is on the disk", || {
            self.status("Sluice_log_durable_lsn") >= self.status("Sluice_log_lsn")
        });
    }

    /// The whole error log.
    pub fn log(&self) -> String {
        let bytes = std::fs::read(self.launch.error_log()).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// What the error log has got since the last start began.
    pub fn log_of_last_start(&self) -> String {
        self.log().get(self.log_start..).unwrap_or_default().into()
    }

    /// The error log of the last start has these words.
    #[track_caller]
    pub fn says(&self, words: &str) {
        let log = self.log_of_last_start();
        assert!(log.contains(words), "no word of '{words}':\n{log}");
    }

    #[track_caller]
    pub fn does_not_say(&self, words: &str) {
        let said = self.log_of_last_start().lines().find(|l| l.contains(words)).map(String::from);
        assert_eq!(said, None, "the error log says it");
    }

    /// Lines of the whole error log with these words.
    pub fn times_said(&self, words: &str) -> usize {
        self.log().lines().filter(|line| line.contains(words)).count()
    }
}

fn text(value: Option<String>) -> String {
    value.unwrap_or_else(|| "NULL".into())
}

#[track_caller]
pub fn done<T>(reply: Result<T, Fault>, sql: &str) -> T {
    match reply {
        Ok(value) => value,
        Err(fault) => panic!("{}: {fault}", sql.chars().take(200).collect::<String>()),
    }
}
