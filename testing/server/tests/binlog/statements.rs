//! Statements in the binlog instead of rows: at REPEATABLE READ and above, where locks keep what a
//! statement has read. STATEMENTS_ENGINE=InnoDB shows the same of InnoDB,
//! STATEMENTS_SEED and STATEMENTS_SECONDS make other and longer runs.

use crate::files;
use sluice_rig::client::Fault;
use sluice_server_tests::binlog::mariadb_binlog;
use sluice_server_tests::scratch::Scratch;
use sluice_server_tests::site::{done, Site};
use sluice_server_tests::statements::{
    make_tables, replayed_difference, row_events, run_load, Load,
};
use sluice_server_tests::wait_until;
use std::path::PathBuf;
use std::time::Duration;

const HELD: [&str; 2] = ["REPEATABLE READ", "SERIALIZABLE"];
const ALL: [&str; 4] = ["READ UNCOMMITTED", "READ COMMITTED", HELD[0], HELD[1]];

struct Pair {
    scratch: Scratch,
    source: Site,
    other: Site,
}

fn pair(name: &str, format: &str) -> Pair {
    let scratch = Scratch::new("binlog", name);
    let engine = std::env::var("STATEMENTS_ENGINE").unwrap_or("Sluice".into());
    let format = format!("--binlog-format={format}");
    let waits = ["--innodb-lock-wait-timeout=1", "--loose-sluice-lock-wait-timeout=1"];
    let source = Site::new(&scratch, "d", &engine, &[&format, waits[0], waits[1]]);
    let mut other = Site::new(&scratch, "r", &engine, &["--skip-log-bin"]);
    other.start(&[]);
    let mut pair = Pair { scratch, source, other };
    pair.source.start(&[]);
    make_tables(&pair.source);
    pair
}

impl Pair {
    fn binlogs(&self) -> Vec<PathBuf> {
        files::binlogs(&self.source.data("sluice-bin.index"), &self.source.data(""))
    }

    /// Runs the binlog on the other server, which has the same rows then; the text of the binlog.
    fn check(&mut self, seed: u64) -> String {
        self.source.run(&["FLUSH BINARY LOGS"]);
        let text = mariadb_binlog(&self.binlogs());
        let file = self.scratch.path("binlog.sql");
        let found = replayed_difference(&text, &self.source, &self.other, file);
        assert_eq!(found, None, "seed {seed}");
        self.other.stop();
        self.source.stop();
        text
    }

    fn run(mut self, levels: &'static [&'static str], seed: u64) -> String {
        let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
        let seed = number("STATEMENTS_SEED").unwrap_or(seed);
        let seconds = number("STATEMENTS_SECONDS").unwrap_or(6);
        let commits = run_load(&self.source, seed, levels, Duration::from_secs(seconds));
        println!("{commits} transactions in {seconds} s");
        assert!(commits > 100, "{commits} transactions in {seconds} s");
        self.check(seed)
    }
}

#[test]
fn statements_alone_make_the_same_rows() {
    let text = pair("statements_alone_make_the_same_rows", "STATEMENT").run(&HELD, 1);
    assert_eq!(row_events(&text), 0, "events of rows");
}

/// At READ COMMITTED and below come rows.
#[test]
fn statements_and_rows_make_the_same_rows() {
    let text = pair("statements_and_rows_make_the_same_rows", "MIXED").run(&ALL, 2);
    assert!(row_events(&text) > 50, "events of rows");
    assert!(text.contains("UPDATE t SET v = v +"), "no statement");
}

#[test]
fn read_committed_refuses_a_binlog_of_statements() {
    let mut pair = pair("read_committed_refuses_a_binlog_of_statements", "STATEMENT");
    let mut client = pair.source.client();
    done(client.run("SET tx_isolation = 'READ-COMMITTED'"), "a level");
    match client.run("UPDATE stm.t SET v = 0") {
        Err(Fault::Sql(1665, _)) => {}
        Err(fault) => panic!("{fault}"),
        Ok(()) => panic!("a statement at READ COMMITTED is in the binlog"),
    }
    pair.source.stop();
    pair.other.stop();
}

/// Killed under load again and again: the file that the start completes makes the rows that are there.
#[test]
fn statements_are_whole_after_kills() {
    let mut pair = pair("statements_are_whole_after_kills", "MIXED");
    for round in 0..4 {
        let load = Load::start(&pair.source, 10 + round, &ALL);
        let before = load.commits();
        wait_until("commits", || load.commits() > before + 100 * (round + 1));
        pair.source.kill();
        load.end();
        pair.source.start(&[]);
    }
    pair.check(10);
}
