//! One server to be backed up, and the program.

use crate::replica::{listen, GRANT};
use crate::scratch::{prefix, Scratch};
use crate::site::Site;
use crate::wait_until;
use crate::writer::KEYS_EACH;
use sluice_rig::port::Port;
use sluice_rig::tool::{run, says, spawn};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

pub const WRITERS: i64 = 4;
pub const SMALL: [&str; 2] =
    ["--loose-sluice-log-capacity=16M", "--loose-sluice-buffer-pool-size=16M"];
pub const INFO: &str = "sluice_backup_info";

pub const TABLES: [&str; 12] = [
    "CREATE DATABASE w",
    "CREATE DATABASE `odd-näme`",
    "CREATE TABLE w.s (a BIGINT PRIMARY KEY, b LONGTEXT, KEY (b(10)))",
    "CREATE TABLE w.n (a INT PRIMARY KEY, n INT NOT NULL, KEY (n))",
    "CREATE TABLE w.p (a BIGINT PRIMARY KEY, b INT) PARTITION BY HASH (a) PARTITIONS 3",
    "CREATE TABLE `odd-näme`.`t-1 ü` (a INT PRIMARY KEY)",
    "INSERT INTO w.n VALUES (0, 0), (1, 0), (2, 0), (3, 0)",
    "INSERT INTO `odd-näme`.`t-1 ü` VALUES (1), (2)",
    "CREATE VIEW w.v AS SELECT COUNT(*) AS c FROM w.s",
    "CREATE TRIGGER w.tr AFTER DELETE ON w.s FOR EACH ROW INSERT INTO w.p VALUES (-OLD.a, 0)",
    "CREATE PROCEDURE w.pr() SELECT 'proc'",
    "CREATE USER u@localhost IDENTIFIED BY 'u'",
];

/// Rows in two tables, and a change of one that others change: who misses one has other numbers.
pub fn transaction(key: i64) -> Vec<String> {
    let bytes = if key % 50 == 0 { 20_000 } else { 100 };
    vec![
        "BEGIN".into(),
        format!("INSERT INTO w.s VALUES ({key}, CONCAT('{key}', REPEAT('x', {bytes})))"),
        format!("INSERT INTO w.p VALUES ({key}, {key} % 50)"),
        format!("UPDATE w.n SET n = n + 1 WHERE a = {}", key / KEYS_EACH % WRITERS),
        "COMMIT".into(),
    ]
}

pub struct Case {
    pub d: Site,
    pub program: PathBuf,
    pub scratch: Scratch,
}

impl Case {
    pub fn new(name: &str) -> Case {
        let scratch = Scratch::new("backup", name);
        let program = sluice_rig::tool::built("sluice").expect("the program");
        let d = Site::new(&scratch, "d", "Sluice", &SMALL);
        Case { d, program, scratch }
    }

    pub fn with_tables(name: &str) -> Case {
        let mut case = Case::new(name);
        case.d.start(&[]);
        case.d.run(&TABLES);
        case
    }

    /// Replicas may follow this one, by the port.
    pub fn with_replicas(name: &str) -> (Case, Port) {
        let (mut case, port) = (Case::new(name), Port::reserve());
        case.d.start(&listen(&port).each_ref().map(String::as_str));
        case.d.run(&TABLES);
        case.d.run(&[GRANT]);
        (case, port)
    }

    /// Some MiB that do not compress, so that a slow copy takes a while.
    pub fn fill(&self) {
        self.d.run(&[
            "CREATE TABLE w.big (a INT PRIMARY KEY, b VARBINARY(4000))",
            "INSERT INTO w.big SELECT seq, RANDOM_BYTES(1000) FROM w.seq_1_to_20000",
            "FLUSH ENGINE LOGS",
        ]);
    }

    pub fn to(&self, name: &str) -> PathBuf {
        self.scratch.path(name)
    }

    pub fn backup(&self, name: &str, options: &[&str]) -> Command {
        self.backup_of(&self.d, name, options)
    }

    pub fn backup_of(&self, site: &Site, name: &str, options: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        let address = format!("mysql://root@localhost/?socket={}", site.socket().display());
        command.args(["backup", &address, "--to"]).arg(self.to(name)).args(options);
        command
    }

    /// An increment on another backup.
    pub fn increment(&self, name: &str, base: &str) -> Command {
        let mut command = self.backup(name, &["--since"]);
        command.arg(self.to(base));
        command
    }

    /// A restore of a backup and increments on it.
    pub fn restore_all(&self, names: &[&str], to: &Path) -> Command {
        let mut command = self.restore(names[0], to);
        for name in &names[1..] {
            command.arg("--with").arg(self.to(name));
        }
        command
    }

    pub fn restore(&self, from: &str, to: &Path) -> Command {
        let mut command = Command::new(&self.program);
        command.args(["restore", "--from"]).arg(self.to(from)).arg("--to").arg(to);
        command
    }

    /// Verifies the engine's files in a data directory that nobody uses.
    pub fn verification(&self, data: &Path) -> Command {
        let mut command = Command::new(&self.program);
        command.arg("inspect").arg(data.join("sluice")).arg("verify");
        command
    }

    /// A server on what was restored; it does not run yet.
    #[track_caller]
    pub fn restored(&self, from: &str, name: &str) -> Site {
        let site = self.site(name);
        run(&mut self.restore(from, &site.data(""))).ok();
        site
    }

    /// A server whose data directory is to be restored.
    pub fn site(&self, name: &str) -> Site {
        let options = [&SMALL[..], &["--server-id=2", "--log-slave-updates"]].concat();
        let site = Site::new(&self.scratch, name, "Sluice", &options);
        fs::remove_dir_all(site.data("")).expect("an installation that nobody needs");
        site
    }

    /// A restore that starts a private server.
    pub fn restore_by(&self, from: &str, to: &Path, options: &[&str]) -> Command {
        let (mut command, prefix) = (self.restore(from, to), prefix().root);
        command.arg(format!("--basedir={}", prefix.join("usr").display())).args(options);
        command.arg("--").arg(format!("--plugin-dir={}", prefix.join("plugin").display()));
        command
    }

    pub fn info(&self, name: &str) -> String {
        fs::read_to_string(self.to(name).join(INFO)).expect("the list of a backup")
    }

    pub fn fact(&self, backup: &str, name: &str) -> String {
        let info = self.info(backup);
        let line = info.lines().find_map(|line| line.strip_prefix(&format!("{name} ")));
        line.unwrap_or_else(|| panic!("no {name}")).to_owned()
    }

    /// A backup that takes long, when the server keeps files for it.
    pub fn slow_backup(&self, name: &str) -> Child {
        let child = spawn(&mut self.backup(name, &["--rate-mib=1"]));
        wait_until("a backup under way", || self.d.status("Sluice_backup_state") == 1);
        child
    }

    /// Kills every other session until no backup is under way: its own may be at work, or asleep.
    pub fn kill_sessions(&self) {
        let others = "SELECT id FROM information_schema.processlist
                       WHERE id <> CONNECTION_ID() AND command <> 'Daemon'";
        wait_until("the end of the session", || {
            for id in self.d.rows(others).into_iter().flatten() {
                // A session that has gone meanwhile is unknown.
                let _ = self.d.client().run(&format!("KILL {id}"));
            }
            self.d.status("Sluice_backup_state") == 0
        });
    }

    /// Nothing is kept for a backup any more.
    pub fn nothing_is_kept(&self) {
        wait_until("the end of the backup", || self.d.status("Sluice_backup_state") == 0);
        assert_eq!(self.d.status("Sluice_log_pin_backup_bytes"), 0, "log");
        assert_eq!(self.d.status("Sluice_store_held_bytes"), 0, "pages");
        assert!(!self.d.data("sluice/superblock.backup").exists());
    }
}

/// What a server has, to be compared.
pub fn state(site: &Site) -> Vec<Vec<String>> {
    let tables = "SELECT CONCAT('`', table_schema, '`.`', table_name, '`') FROM \
                  information_schema.tables WHERE table_schema IN ('w', 'odd-näme') AND \
                  table_type = 'BASE TABLE' ORDER BY 1";
    let sums = site
        .rows(tables)
        .concat()
        .into_iter()
        .flat_map(|name| site.rows(&format!("CHECKSUM TABLE {name}")));
    let mut found: Vec<Vec<String>> = sums.collect();
    found.extend(site.rows("SELECT user, select_priv FROM mysql.user ORDER BY 1"));
    found.extend(site.rows("XA RECOVER"));
    found
}

/// Makes the tables of InnoDB in `mysql`, and starts again: a server that began without them does not use
/// them.
#[track_caller]
pub fn upgrade(site: &mut Site) {
    let socket = format!("--socket={}", site.socket().display());
    let said = site.program("mariadb-upgrade", &["--user=root", &socket]).ok();
    says("Phase 8/8", &said);
    site.stop();
    site.start(&[]);
}

pub fn is_empty(dir: &Path) -> bool {
    fs::read_dir(dir).map_or(true, |mut entries| entries.next().is_none())
}
