//! Servers that have tables of InnoDB as well: what of both engines is of one moment.

use crate::case::{upgrade, Case, WRITERS};
use sluice_rig::tool::run;
use sluice_server_tests::site::{done, Site};
use sluice_server_tests::writer::Writers;
use std::path::Path;

const TABLES: [&str; 3] = [
    "CREATE DATABASE w",
    "CREATE TABLE w.s (a BIGINT PRIMARY KEY) ENGINE=Sluice",
    "CREATE TABLE w.i (a BIGINT PRIMARY KEY) ENGINE=InnoDB",
];

/// A key in a table of each engine: both have it, or neither.
fn transaction(key: i64) -> Vec<String> {
    vec![
        "BEGIN".into(),
        format!("INSERT INTO w.i VALUES ({key})"),
        format!("INSERT INTO w.s VALUES ({key})"),
        "COMMIT".into(),
    ]
}

fn dump(site: &Site, to: &Path, more: &[&str]) {
    let socket = format!("--socket={}", site.socket().display());
    let file = format!("--result-file={}", to.display());
    let options = ["--user=root", &socket, &file, "--single-transaction"];
    site.program("mariadb-dump", &[&options[..], more].concat()).ok();
}

fn load(site: &Site, from: &Path) {
    let socket = format!("--socket={}", site.socket().display());
    let source = format!("source {}", from.display());
    site.program("mariadb", &["--user=root", &socket, "--database=w", "-e", &source]).ok();
}

#[track_caller]
fn is_of_one_moment(site: &Site, at_least: usize) {
    let keys = |table: &str| site.rows(&format!("SELECT a FROM w.{table} ORDER BY a"));
    assert!(keys("s") == keys("i"), "{} and {} rows", keys("s").len(), keys("i").len());
    assert!(keys("s").len() >= at_least, "{} rows", keys("s").len());
}

#[test]
fn a_dump_of_both_engines_is_of_one_moment() {
    let mut case = Case::new("a_dump_of_both_engines");
    case.d.start(&[]);
    case.d.run(&TABLES);
    let writers = Writers::start(&case.d, WRITERS, 1, transaction);
    let mut r = Site::new(&case.scratch, "r", "Sluice", &[]);
    r.start(&[]);
    r.run(&["CREATE DATABASE w"]);
    for _ in 0..5 {
        writers.wait_for(100);
        let before = writers.count();
        dump(&case.d, &case.to("dump.sql"), &["w"]);
        load(&r, &case.to("dump.sql"));
        is_of_one_moment(&r, before);
    }
    writers.end();
    r.stop();
    case.d.stop();
}

/// FLUSH TABLES WITH READ LOCK of another session holds writers, and lets `sluice backup` work.
#[test]
fn a_backup_and_a_dump_under_a_read_lock_are_of_one_moment() {
    let mut case = Case::new("a_backup_and_a_dump");
    case.d.start(&[]);
    case.d.run(&TABLES);
    let writers = Writers::start(&case.d, WRITERS, 1, transaction);
    writers.wait_for(100);
    let mut lock = case.d.client();
    done(lock.run("FLUSH TABLES WITH READ LOCK"), "a read lock");
    let before = writers.count();
    run(&mut case.backup("b", &["--only-sluice", "--wait=10"])).ok();
    dump(&case.d, &case.to("dump.sql"), &["w", "i"]);
    assert!(writers.count() <= before + WRITERS as usize, "writers went on");
    done(lock.run("UNLOCK TABLES"), "the end of the lock");
    writers.wait_for(100);
    writers.end();
    let mut r = case.restored("b", "r");
    r.start(&[]);
    upgrade(&mut r);
    load(&r, &case.to("dump.sql"));
    is_of_one_moment(&r, before);
    r.stop();
    case.d.stop();
}
