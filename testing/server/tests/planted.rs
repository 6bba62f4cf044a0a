//! What the plugin does after a failure that a test cannot bring about from outside; and that the test
//! fails where the mend of the defect is taken out. Needs a plugin with planted mistakes:
//! `make diff KIND=planted` builds it and runs this.

use sluice_server_tests::binlog::mariadb_binlog;
use sluice_server_tests::scratch::Scratch;
use sluice_server_tests::site::{done, Site};
use sluice_server_tests::statements::{make_tables, replayed_difference, run_load};
use sluice_server_tests::wait_until;
use std::fs;
use std::path::PathBuf;
use std::thread::{sleep, JoinHandle};
use std::time::Duration;

const FAILED: &str = "the log cannot be flushed";
/// See plugin/src/planted.rs.
const REFUSES_FLUSH: &str = "refuse-flush";
/// The plugin asks again ten times a second.
const LONG_ENOUGH: Duration = Duration::from_secs(5);

fn planted_dir() -> PathBuf {
    let dir = std::env::var_os("SLUICE_PLANTED_DIR").map(PathBuf::from);
    dir.expect("SLUICE_PLANTED_DIR, the directory of a plugin with planted mistakes")
}

/// A server with a plugin that makes these mistakes, a table and some commits in its binlog.
fn site(scratch: &Scratch, mistakes: &str) -> Site {
    let mut site = Site::new(scratch, "d", "Sluice", &[]);
    site.plant(mistakes, &planted_dir());
    site.start(&[]);
    site.run(&["CREATE DATABASE test", "CREATE TABLE test.s (a INT PRIMARY KEY)"]);
    site.run(&["INSERT INTO test.s VALUES (1), (2)", "INSERT INTO test.s VALUES (3)"]);
    site
}

/// Sends RESET MASTER, which waits until the log is flushed, and waits until that was refused.
fn reset_meets_a_refusal(site: &Site) -> JoinHandle<()> {
    fs::write(site.data(REFUSES_FLUSH), "").expect("a file");
    let mut client = site.patient_client(sluice_server_tests::PATIENCE);
    let reset = std::thread::spawn(move || done(client.run("RESET MASTER"), "RESET MASTER"));
    wait_until("a refused flush", || site.log().contains(FAILED));
    assert!(!reset.is_finished(), "the binlog was removed before the log was flushed");
    reset
}

#[test]
fn a_failed_answer_to_a_checkpoint_is_repeated() {
    let scratch = Scratch::new("planted", "a_failed_answer_to_a_checkpoint_is_repeated");
    let mut site = site(&scratch, "flush-refused");
    let reset = reset_meets_a_refusal(&site);
    fs::remove_file(site.data(REFUSES_FLUSH)).expect("no file");
    wait_until("an answer to RESET MASTER", || reset.is_finished());
    reset.join().expect("RESET MASTER");
    site.run(&["INSERT INTO test.s VALUES (4)"]);
    // A rotation asks as well, and the shutdown waits for the answer.
    fs::write(site.data(REFUSES_FLUSH), "").expect("a file");
    site.run(&["FLUSH BINARY LOGS"]);
    wait_until("a second refusal", || site.times_said(FAILED) == 2);
    fs::remove_file(site.data(REFUSES_FLUSH)).expect("no file");
    site.stop();
    site.start(&[]);
    assert_eq!(site.count_and_sum("s"), (4, 10), "rows");
    site.stop();
}

/// D7: what failed is not asked again.
#[test]
fn an_answer_that_is_not_repeated_is_noticed() {
    let scratch = Scratch::new("planted", "an_answer_that_is_not_repeated_is_noticed");
    let mut site = site(&scratch, "D7,flush-refused");
    let reset = reset_meets_a_refusal(&site);
    fs::remove_file(site.data(REFUSES_FLUSH)).expect("no file");
    sleep(LONG_ENOUGH);
    assert!(!reset.is_finished(), "RESET MASTER ended, though the mend was taken out");
    site.kill();
    assert!(reset.join().is_err(), "a killed server has answered");
}

const NEW_COLUMN: &str = "ALTER TABLE test.s ADD b INT, ALGORITHM=COPY";
const ALTER: &str = "ALTER TABLE test.s ADD KEY (b), ALGORITHM=INPLACE";

/// What an ALTER TABLE in place answers whose last flush fails, with these mistakes.
fn altered(site: &mut Site, mistakes: &str) -> Result<(), String> {
    site.run(&[NEW_COLUMN]);
    site.stop();
    site.plant(mistakes, &planted_dir());
    site.start(&[]);
    site.client().run(ALTER).map_err(|fault| fault.to_string())
}

/// The log has stopped: the server ends, and the next start finds the table altered.
#[test]
fn an_alter_that_may_be_durable_is_settled_by_a_start() {
    let scratch = Scratch::new("planted", "an_alter_that_may_be_durable_is_settled_by_a_start");
    let mut site = site(&scratch, "");
    let answer = altered(&mut site, "ddl-stopped").expect_err("no answer");
    assert!(answer.contains("connection lost"), "{answer}");
    site.aborts();
    site.says("so the server ends here");
    site.plant("", &planted_dir());
    site.start(&[]);
    assert_eq!(site.count_and_sum("s"), (3, 6), "rows");
    site.run(&[
        "SELECT * FROM test.s FORCE INDEX (b) WHERE b IS NULL",
        "INSERT INTO test.s VALUES (4, 4)",
    ]);
    site.stop();
}

/// The log has no room for a while: the statement waits.
#[test]
fn an_alter_waits_for_room_in_the_log() {
    let scratch = Scratch::new("planted", "an_alter_waits_for_room_in_the_log");
    let mut site = site(&scratch, "");
    altered(&mut site, "ddl-full").expect("ALTER TABLE");
    site.says("its change is logged and not yet durable");
    site.run(&["RENAME TABLE test.s TO test.r", "RENAME TABLE test.r TO test.s"]);
    site.stop();
    site.start(&[]);
    site.run(&["SELECT * FROM test.s FORCE INDEX (b) WHERE b IS NULL", "TRUNCATE TABLE test.s"]);
    assert_eq!(site.count_and_sum("s").0, 0, "rows");
    site.stop();
}

/// D13: the server takes its half back, and does not know the table after that.
#[test]
fn an_alter_that_is_not_settled_is_noticed() {
    let scratch = Scratch::new("planted", "an_alter_that_is_not_settled_is_noticed");
    let mut site = site(&scratch, "");
    assert!(altered(&mut site, "ddl-stopped,not-settled").is_err(), "ALTER TABLE did not fail");
    site.stop();
    site.start(&[]);
    let read = site.client().run("SELECT COUNT(*) FROM test.s");
    assert!(read.is_err(), "the table opens, though the mend was taken out");
    site.stop();
}

/// Runs statements of several sessions, and their binlog again: see tests/binlog/statements.rs.
fn statements_part(name: &str, mistake: &str) {
    let scratch = Scratch::new("planted", name);
    let options = ["--binlog-format=STATEMENT", "--loose-sluice-lock-wait-timeout=1"];
    let mut source = Site::new(&scratch, "d", "Sluice", &options);
    source.plant(mistake, &planted_dir());
    source.start(&[]);
    make_tables(&source);
    run_load(&source, 1, &["REPEATABLE READ"], Duration::from_secs(6));
    source.run(&["FLUSH BINARY LOGS"]);
    let text = mariadb_binlog(&[source.data("sluice-bin.000001")]);
    let mut other = Site::new(&scratch, "r", "Sluice", &["--skip-log-bin"]);
    other.start(&[]);
    let found = replayed_difference(&text, &source, &other, scratch.path("binlog.sql"));
    assert!(found.is_some(), "{mistake}: the binlog makes the same rows");
    source.stop();
    other.stop();
}

/// L2: reads in share mode lock nothing.
#[test]
fn statements_that_do_not_hold_what_they_read_are_noticed() {
    statements_part("statements_that_do_not_hold_what_they_read_are_noticed", "L2");
}

/// L3: gaps are not locked.
#[test]
fn statements_that_hold_no_gaps_are_noticed() {
    statements_part("statements_that_hold_no_gaps_are_noticed", "L3");
}
