//! With MariaDB 11.8 others write while ALTER TABLE copies a table (LOCK=NONE): the server reads the table in
//! one snapshot, keeps what others change meanwhile, and applies that to the new table at the end.
//!
//! `cargo test --release --workspace --test online_alter`, after `make build SERVER=11.8`.

use sluice_rig::client::Fault;
use sluice_server_tests::scratch::{next_prefix, Scratch};
use sluice_server_tests::site::{done, Site};
use sluice_server_tests::wait_until;
use sluice_server_tests::writer::{Writers, KEYS_EACH};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const WRITERS: i64 = 3;
/// The copy takes seconds.
const ROWS: i64 = 60_000;
const SMALL: [&str; 2] = ["--loose-sluice-log-capacity=64M", "--loose-sluice-buffer-pool-size=16M"];

/// Changes of the table that is copied, and the same of one that nobody alters. ROLLBACK TO SAVEPOINT is not among
/// them: beside an ALTER, statements of a server of 11.8.6 fail after it (error 3, errno 14), with InnoDB as well.
fn transaction(key: i64) -> Vec<String> {
    // Each writer has rows of its own, so that none waits for another.
    let old = key * 7919 % (ROWS / 16) * 16 + key / KEYS_EACH % WRITERS * 4;
    let both = |sql: &str| ["t", "same"].map(|table| sql.replace("TABLE", table));
    let mut all = vec!["BEGIN".to_owned()];
    let bytes = if key % 20 == 0 { 20_000 } else { 50 };
    all.extend(both(&format!("INSERT INTO w.TABLE VALUES ({key}, {old}, REPEAT('n', {bytes}))")));
    all.extend(both(&format!(
        "UPDATE w.TABLE SET k = k + 1, c = CONCAT('u', {key}) WHERE a = -{old}"
    )));
    match key % 4 {
        0 => all.extend(both(&format!("DELETE FROM w.TABLE WHERE a = -({old} + 1)"))),
        2 => {
            all.extend(both(&format!("UPDATE w.TABLE SET a = a - 1000000 WHERE a = -({old} + 2)")))
        }
        _ => {}
    }
    all.push(if key % 10 == 3 { "ROLLBACK" } else { "COMMIT" }.into());
    all
}

/// A server of the next series with two tables that are the same.
fn with_tables(test: &str) -> (Site, Scratch) {
    let scratch = Scratch::new("online_alter", test);
    let mut site = Site::new(&scratch, "d", "Sluice", &SMALL);
    site.move_to(next_prefix());
    site.start(&[]);
    site.run(&[
        "CREATE DATABASE w",
        "CREATE TABLE w.t (a BIGINT PRIMARY KEY, k INT NOT NULL, c LONGTEXT, KEY (k), KEY (c(20)))",
        &format!("INSERT INTO w.t SELECT -seq, seq % 1000, CONCAT(seq, REPEAT('x', 300)) FROM w.seq_1_to_{ROWS}"),
        "CREATE TABLE w.same LIKE w.t",
        "INSERT INTO w.same SELECT * FROM w.t",
    ]);
    (site, scratch)
}

/// Answers how long the statement took, and its error.
fn alter(site: &Site, sql: &'static str) -> JoinHandle<(Duration, Result<(), Fault>)> {
    let mut client = site.patient_client(Duration::from_secs(300));
    std::thread::spawn(move || {
        let begun = Instant::now();
        let ended = client.run(sql);
        (begun.elapsed(), ended)
    })
}

fn wait_for_copy(site: &Site) {
    let copies =
        "SELECT COUNT(*) FROM information_schema.processlist WHERE state = 'copy to tmp table'";
    wait_until("the copy", || site.value(copies) != "0");
}

fn is_the_same(site: &Site) {
    let sum = |table: &str| {
        site.rows(&format!(
            "SELECT COUNT(*), SUM(a), SUM(CRC32(CONCAT(a, ',', k, ',', c))), SUM(LENGTH(c)) FROM w.{table}"
        ))
    };
    assert_eq!(sum("t"), sum("same"));
    for index in ["k", "c"] {
        let by = format!("SELECT COUNT(*) FROM w.t FORCE INDEX ({index}) WHERE {index} >= ''");
        assert_eq!(site.value(&by), sum("t")[0][0], "rows by the index {index}");
    }
    for table in ["t", "same"] {
        assert_eq!(site.rows(&format!("CHECK TABLE w.{table}"))[0][3], "OK", "{table}");
    }
}

#[test]
fn writers_go_on_while_a_table_is_copied() {
    let (mut site, _scratch) = with_tables("writers_go_on");
    let mut first = 1;
    for sql in [
        "ALTER TABLE w.t ADD COLUMN d INT NOT NULL DEFAULT 7 INVISIBLE, ALGORITHM=COPY, LOCK=NONE",
        "ALTER TABLE w.t MODIFY k BIGINT NOT NULL, ADD KEY both_of_them (k, d), ALGORITHM=COPY, LOCK=NONE",
        "ALTER TABLE w.t DROP COLUMN d, FORCE, ALGORITHM=COPY, LOCK=NONE",
    ] {
        let writers = Writers::start(&site, WRITERS, first, transaction);
        writers.wait_for(20);
        let altering = alter(&site, sql);
        wait_for_copy(&site);
        let before = writers.count();
        wait_until("commits beside the copy", || {
            writers.count() >= before + 10 || altering.is_finished()
        });
        let is_copying = !altering.is_finished();
        let (took, ended) = altering.join().expect("a session");
        done(ended, sql);
        println!("{sql}: {took:?}, {} commits beside it", writers.count() - before);
        assert!(is_copying, "writers waited for the copy");
        writers.end();
        is_the_same(&site);
        first += WRITERS * KEYS_EACH;
    }
    site.kill();
    site.start(&[]);
    is_the_same(&site);
    site.stop();
}

/// The table is as it was, with what others wrote; nothing of the new one is left.
#[test]
fn a_copy_that_does_not_end_changes_nothing() {
    let (mut site, _scratch) = with_tables("a_copy_that_does_not_end");
    let sql =
        "ALTER TABLE w.t ADD COLUMN d INT NOT NULL DEFAULT 7 INVISIBLE, ALGORITHM=COPY, LOCK=NONE";
    let writers = Writers::start(&site, WRITERS, 1, transaction);
    writers.wait_for(20);
    let altering = alter(&site, sql);
    wait_for_copy(&site);
    let id =
        site.value("SELECT id FROM information_schema.processlist WHERE info LIKE 'ALTER TABLE%'");
    site.run(&[&format!("KILL QUERY {id}")]);
    let (_, ended) = altering.join().expect("a session");
    // The client takes the error of a killed statement for the end of its session.
    assert!(ended.is_err(), "the statement was killed too late");
    writers.end();
    is_the_same(&site);
    let columns = "SELECT COUNT(*) FROM information_schema.columns WHERE table_schema = 'w' AND table_name = 't'";
    assert_eq!(site.value(columns), "3");

    let writers = Writers::start(&site, WRITERS, 1 + WRITERS * KEYS_EACH, transaction);
    writers.wait_for(20);
    let altering = alter(&site, sql);
    wait_for_copy(&site);
    writers.wait_for(30);
    site.kill();
    writers.join();
    let (_, ended) = altering.join().expect("a session");
    assert!(matches!(ended, Err(Fault::Lost(_))), "the server was killed too late");
    site.start(&[]);
    is_the_same(&site);
    assert_eq!(site.value(columns), "3");
    let names = "SELECT GROUP_CONCAT(table_name ORDER BY 1) FROM information_schema.tables WHERE table_schema = 'w'";
    assert_eq!(site.value(names), "same,t");
    site.stop();
}
