//! From one series of the server to the next on the same data directory: the next server recovers
//! what the older one left, with its own plugin. docs/install.md says how an administrator does it.
//!
//! `cargo test --release --workspace --test upgrade [NAME]`, after `make build` and
//! `make build SERVER=11.8`.

use sluice_server_tests::builds::Builds;
use sluice_server_tests::kinds::{self, HISTORY};
use sluice_server_tests::scratch::{next_prefix, prefix, Scratch};
use sluice_server_tests::site::Site;
use sluice_server_tests::writer::{Writers, KEYS_EACH};
use std::collections::BTreeSet;

const WRITERS: i64 = 4;
/// Acknowledged transactions of a load, and more that are under way.
const COMMITS: usize = 300;

/// How a server ends.
#[derive(Clone, Copy, PartialEq)]
enum End {
    /// SIGKILL while the writers are at work.
    Kill,
    /// A shutdown, after them.
    Stop,
}

/// A transaction in a table of each engine, one with partitions and one whose rows all change.
fn transaction(key: i64) -> Vec<String> {
    let bytes = if key % 40 == 0 { 30_000 } else { 30 };
    vec![
        "BEGIN".into(),
        format!("INSERT INTO busy.s (a, b, u) VALUES ({key}, REPEAT('x', {bytes}), 'u{key}')"),
        format!("INSERT INTO busy.p VALUES ({key}, {key} % 50)"),
        format!("INSERT INTO busy.i VALUES ({key})"),
        format!("UPDATE busy.n SET n = n + 1 WHERE a = {}", key / KEYS_EACH % WRITERS),
        "COMMIT".into(),
    ]
}

const LOAD_TABLES: [&str; 6] = [
    "CREATE DATABASE busy",
    "CREATE TABLE busy.s (a BIGINT PRIMARY KEY, b LONGTEXT, c INT AS (a % 7) VIRTUAL, \
     u VARCHAR(40) NOT NULL UNIQUE, KEY (c), KEY (b(10))) ENGINE=Sluice",
    "CREATE TABLE busy.p (a BIGINT PRIMARY KEY, b INT, KEY (b DESC)) ENGINE=Sluice \
     PARTITION BY HASH (a) PARTITIONS 3",
    "CREATE TABLE busy.i (a BIGINT PRIMARY KEY) ENGINE=InnoDB",
    "CREATE TABLE busy.n (a INT PRIMARY KEY, n INT NOT NULL, KEY (n)) ENGINE=Sluice",
    "INSERT INTO busy.n VALUES (0, 0), (1, 0), (2, 0), (3, 0)",
];

/// A data directory, and what must be in it.
struct Upgrade {
    site: Site,
    _scratch: Scratch,
    /// Event groups of the binlog before the first load.
    groups: Option<usize>,
    /// Keys of transactions that are committed.
    keys: BTreeSet<i64>,
    /// Of those that were under way when the server ended: each is there or is not.
    open: BTreeSet<i64>,
    first: i64,
}

impl Upgrade {
    /// Tables of every kind, made by the older server, which runs.
    fn new(test: &str, options: &[&str]) -> Upgrade {
        let scratch = Scratch::new("upgrade", test);
        let mut site = Site::new(&scratch, "d", "Sluice", options);
        site.start(&[]);
        kinds::make(&site);
        kinds::change(&site);
        site.run(&LOAD_TABLES);
        let groups = (site.value("SELECT @@log_bin") == "1").then(|| last_group(&site));
        let (keys, open) = (BTreeSet::new(), BTreeSet::new());
        Upgrade { site, _scratch: scratch, groups, keys, open, first: 0 }
    }

    /// Writers work, and the server ends.
    fn load_and_end(&mut self, end: End) {
        let first = self.first;
        let writers = Writers::start(&self.site, WRITERS, first, transaction);
        writers.wait_for(COMMITS);
        let acknowledged = match end {
            End::Kill => {
                self.site.kill();
                writers.join()
            }
            End::Stop => {
                let keys = writers.end();
                self.site.stop();
                keys
            }
        };
        if end == End::Kill {
            let next = |writer| {
                let from = first + writer * KEYS_EACH;
                let is_own = |key: &&i64| (from..from + KEYS_EACH).contains(*key);
                from + acknowledged.iter().filter(is_own).count() as i64
            };
            self.open = (0..WRITERS).map(next).collect();
        }
        self.keys.extend(acknowledged);
        self.first = first + WRITERS * KEYS_EACH;
    }

    /// All acknowledged transactions are there as a whole, and nothing else.
    #[track_caller]
    fn verify(&mut self) {
        let keys = |table: &str| -> BTreeSet<i64> {
            let rows = self.site.rows(&format!("SELECT a FROM busy.{table}"));
            rows.iter().map(|row| row[0].parse().expect("a number")).collect()
        };
        let found = keys("s");
        let missing: Vec<_> = self.keys.difference(&found).collect();
        assert!(missing.is_empty(), "acknowledged, and not there: {missing:?}");
        let others = found.difference(&self.keys);
        let strange: Vec<_> = others.filter(|key| !self.open.contains(key)).collect();
        assert!(strange.is_empty(), "there, and never committed: {strange:?}");
        assert_eq!(keys("p"), found, "keys of the table with partitions");
        assert_eq!(keys("i"), found, "keys of InnoDB's table");
        let sum = self.site.value("SELECT SUM(n) FROM busy.n FORCE INDEX (n) WHERE n > 0");
        assert_eq!(sum, found.len().to_string(), "updates");
        (self.keys, self.open) = (found, BTreeSet::new());
        kinds::check(&self.site, "busy", "");
        if let Some(groups) = self.groups {
            // Each transaction is one group, with the next GTID, on both servers.
            assert_eq!(last_group(&self.site), groups + self.keys.len(), "GTID position");
            assert_eq!(rows_in_binlog(&self.site), self.keys.len(), "rows in the binlog");
        }
    }

    /// The older server ends, the next one recovers, is upgraded, writes, is killed and recovers again.
    /// Returns what the tables of every kind have.
    #[track_caller]
    fn cross(&mut self, end: End) -> String {
        let content = kinds::content(&self.site);
        let older = self.site.value("SELECT VERSION()");
        self.load_and_end(end);
        self.site.move_to(next_prefix());
        self.site.start(&[]);
        assert_ne!(self.site.value("SELECT VERSION()"), older);
        self.verify();
        self.has(&content, HISTORY);
        self.run_mariadb_upgrade();
        self.has(&content, "");
        self.load_and_end(End::Kill);
        self.site.start(&[]);
        self.verify();
        self.has(&content, "");
        content
    }

    /// The tables of every kind are as they were, but for the one that is left out.
    #[track_caller]
    fn has(&self, content: &str, left_out: &str) {
        kinds::same(&kinds::content(&self.site), content, left_out);
        kinds::check(&self.site, "kinds", left_out);
    }

    #[track_caller]
    fn run_mariadb_upgrade(&self) {
        let socket = format!("--socket={}", self.site.socket().display());
        let said = self.site.program("mariadb-upgrade", &["-uroot", &socket]).ok();
        let rebuilt: Vec<_> = said.lines().filter(|l| l.contains("Needs upgrade")).collect();
        assert!(rebuilt.len() == 1 && rebuilt[0].starts_with(HISTORY), "{said}");
    }
}

/// The last number of the GTID position.
#[track_caller]
fn last_group(site: &Site) -> usize {
    let position = site.value("SELECT @@gtid_binlog_pos");
    let number = position.rsplit('-').next().and_then(|number| number.parse().ok());
    number.unwrap_or_else(|| panic!("GTID position {position}"))
}

/// Rows of busy.s in whole groups of the binlog, of both servers.
#[track_caller]
fn rows_in_binlog(site: &Site) -> usize {
    let index = std::fs::read_to_string(site.data("sluice-bin.index")).expect("an index");
    let files = index.lines().map(|name| site.data(name).display().to_string());
    files.map(|file| rows_in_file(site, &file)).sum()
}

#[track_caller]
fn rows_in_file(site: &Site, file: &str) -> usize {
    let arguments = ["--verify-binlog-checksum", "--base64-output=decode-rows", "-v", file];
    let ended = site.program("mariadb-binlog", &arguments);
    // A killed server that syncs the binlog itself may leave half an event at the end.
    let is_cut = ["read error", "truncated"].iter().any(|words| ended.err.contains(words));
    assert!(ended.code == Some(0) || is_cut, "{file}: {}", ended.err);
    let (mut rows, mut in_group) = (0, 0);
    for line in ended.out.lines() {
        if line == "START TRANSACTION" || line == "BEGIN" {
            in_group = 0;
        } else if line.starts_with("### INSERT INTO `busy`.`s`") {
            in_group += 1;
        } else if line.starts_with("COMMIT") {
            rows += std::mem::take(&mut in_group);
        }
    }
    rows
}

#[test]
fn killed_with_the_binlog_in_the_log() {
    Upgrade::new("killed_with_the_binlog_in_the_log", &[]).cross(End::Kill);
}

#[test]
fn killed_with_a_binlog_that_the_server_syncs() {
    let options = ["--loose-sluice-persist-binlog-to-redo=OFF"];
    Upgrade::new("killed_with_a_binlog_that_the_server_syncs", &options).cross(End::Kill);
}

/// One directory of plugins, with a loader, serves both.
#[test]
fn killed_with_a_build_for_each_server() {
    let scratch = Scratch::new("upgrade", "builds");
    let builds = Builds::new(scratch.path("plugins"));
    builds.add(&prefix());
    builds.add(&next_prefix());
    let mut site = Site::new(&scratch, "d", "Sluice", &[&builds.option()]);
    site.start(&[]);
    site.run(&LOAD_TABLES);
    let older = site.value("SELECT VERSION()");
    site.kill();
    site.move_to(next_prefix());
    site.start(&[]);
    assert_ne!(site.value("SELECT VERSION()"), older);
    assert_eq!(site.value("SELECT COUNT(*) FROM busy.n"), "4");
    site.stop();
}

/// And back, which MariaDB does not support: Sluice's files depend on no server, but its own tables do.
#[test]
fn stopped_and_back_again() {
    let mut upgrade = Upgrade::new("stopped_and_back_again", &[]);
    let content = upgrade.cross(End::Stop);
    upgrade.site.stop();
    upgrade.site.move_to(prefix());
    upgrade.site.start(&[]);
    upgrade.site.says("has been removed on upgrade to MariaDB 11.0 or later");
    upgrade.verify();
    upgrade.has(&content, HISTORY);
    upgrade.site.stop();
}

/// A transaction that was prepared by the older server waits for its coordinator on the next one.
#[test]
fn prepared_transactions_cross() {
    let scratch = Scratch::new("upgrade", "prepared_transactions_cross");
    let mut site = Site::new(&scratch, "d", "Sluice", &[]);
    site.start(&[]);
    site.run(&LOAD_TABLES);
    for (xid, key) in [("commit", 1), ("rollback", 2)] {
        let mut branch = transaction(key);
        branch[0] = format!("XA START '{xid}'");
        *branch.last_mut().expect("COMMIT") = format!("XA END '{xid}'");
        branch.retain(|sql| !sql.starts_with("UPDATE"));
        branch.push(format!("XA PREPARE '{xid}'"));
        site.run(&branch.iter().map(String::as_str).collect::<Vec<_>>());
    }
    site.kill();
    site.move_to(next_prefix());
    site.start(&[]);
    assert_eq!(site.rows("XA RECOVER").len(), 2, "prepared transactions");
    assert_eq!(site.value("SELECT COUNT(*) FROM busy.s"), "0", "rows before their end");
    site.run(&["XA COMMIT 'commit'", "XA ROLLBACK 'rollback'"]);
    for table in ["s", "p", "i"] {
        assert_eq!(site.rows(&format!("SELECT a FROM busy.{table}")), [["1"]], "{table}");
    }
    kinds::check(&site, "busy", "");
    site.stop();
}
