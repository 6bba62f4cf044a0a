//! Faults that show only under load.

use crate::{durable_write_us, is_silent_about, named, nothing, World, ROUNDS};
use sluice_rig::client::Client;
use sluice_rig::suite::skip;
use sluice_rig::tool::{says, Home};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::thread::{sleep, spawn};
use std::time::Duration;

/// The statement, in which n is a number, `times` times in one session.
fn repeat(home: &Home, times: u32, statement: &str) {
    repeat_by(&mut home.connect(), times, statement);
}

fn repeat_by(client: &mut Client, times: u32, statement: &str) {
    let repeated = format!(
        "BEGIN NOT ATOMIC DECLARE n INT DEFAULT 0;
         WHILE n < {times} DO SET n = n + 1; {statement}; END WHILE; END"
    );
    client.run(&repeated).unwrap_or_else(|fault| panic!("{fault}\nby {repeated}"));
}

fn large_redo(home: &Home) {
    home.sql("UPDATE l.i SET v = REPEAT(CHAR(97 + RAND() * 20), 6000)");
}

pub fn w02_waits_for_the_log_buffer(w: &mut World) {
    w.tables_for_load();
    w.rule_follows_its_load("W02", &large_redo, &nothing, &[]);
}

fn usual_dirty_pages(home: &Home) {
    home.sql("SET GLOBAL innodb_max_dirty_pages_pct = 90");
}

fn dirty_pages(home: &Home) {
    home.sql(
        "SET GLOBAL innodb_io_capacity = 100, innodb_max_dirty_pages_pct = 1;
         UPDATE l.i SET v = REPEAT(CHAR(97 + RAND() * 20), 6000) WHERE id % 2",
    );
}

/// Milliseconds for which the device of this directory was busy so far; 0 where the system does not
/// say.
fn device_busy_ms(dir: &Path) -> u64 {
    let device = fs::metadata(dir).expect("our directory").dev();
    // As glibc's gnu_dev_major and gnu_dev_minor.
    let major = (device >> 8 & 0xfff) | (device >> 32 & !0xfff);
    let minor = (device & 0xff) | (device >> 12 & !0xff);
    let counts = fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/stat"));
    let busy = counts.ok().and_then(|c| c.split_whitespace().nth(9)?.parse().ok());
    busy.unwrap_or(0)
}

/// The rule is about a disk that rests: the sample follows the load, and a disk that others, or the
/// few flushes that are left, keep busy proves nothing.
pub fn w05_stays_dirty(w: &mut World) {
    let home = w.tables_for_load();
    let (mut answer, mut busy) = (String::new(), 0);
    let fires = (0..ROUNDS).any(|_| {
        dirty_pages(&home);
        let begin = device_busy_ms(&w.tool.work);
        answer = w.advise();
        busy = device_busy_ms(&w.tool.work) - begin;
        answer.contains(&named("W05"))
    });
    usual_dirty_pages(&home);
    home.sql("SET GLOBAL innodb_io_capacity = 2000");
    // The sample takes a second, and the rule ends at half of it.
    if !fires && busy >= 400 {
        skip(format!("the disk was busy for {busy} ms of a sample of 1 s"));
    }
    assert!(fires, "{answer}\nW05 does not fire");
    is_silent_about(&named("W05"), &w.advise());
}

pub fn w06_flushes_neighbours(w: &mut World) {
    let us = durable_write_us(&w.tool);
    if us >= 2000 {
        skip(format!("a durable write takes {us} us here: this may be a turning disk"));
    }
    w.tables_for_load();
    let probe = w.tool.work.join("probe6");
    fs::create_dir(&probe).expect("a new directory");
    let neighbours = |home: &Home| drop(home.sql("SET GLOBAL innodb_flush_neighbors = 1"));
    let no_neighbours = |home: &Home| drop(home.sql("SET GLOBAL innodb_flush_neighbors = 0"));
    let args = ["--probe-dir", &probe.to_string_lossy(), "--probe-mib", "1"];
    w.rule_follows_its_load("W06", &neighbours, &no_neighbours, &args);
}

fn flush_pages(home: &Home) {
    large_redo(home);
    home.sql("SET GLOBAL innodb_max_dirty_pages_pct = 0");
    sleep(Duration::from_secs(1));
}

pub fn w08_writes_pages_twice(w: &mut World) {
    let home = w.tables_for_load();
    home.sql("SET GLOBAL innodb_io_capacity_max = 20000, innodb_io_capacity = 10000");
    w.rule_follows_its_load("W08", &flush_pages, &usual_dirty_pages, &[]);
    home.sql("SET GLOBAL innodb_io_capacity = 2000, innodb_io_capacity_max = 4000");
}

pub fn w09_commits_wait_for_flushes(w: &mut World) {
    let us = durable_write_us(&w.tool);
    // The rule begins at 500 us, and its samples need not take as long as this one.
    if us <= 800 {
        skip(format!("a durable write takes {us} us here: no commit waits long"));
    }
    w.tables_for_load();
    let single_commits = |home: &Home| repeat(home, 600, "UPDATE l.i SET v = n WHERE id = 1");
    w.rule_follows_its_load("W09", &single_commits, &nothing, &[]);
}

fn commits(home: &Home) {
    repeat(home, 300, "UPDATE l.s SET v = n WHERE id = 1");
}

fn lonely_commits(home: &Home) {
    let sleeper = |home: Home| spawn(move || drop(home.sql("SELECT SLEEP(4)")));
    let sleepers: Vec<_> = (0..20).map(|_| sleeper(home.clone())).collect();
    commits(home);
    sleepers.into_iter().for_each(|sleeper| sleeper.join().expect("a session that sleeps"));
}

pub fn w11_commits_alone(w: &mut World) {
    w.tables_for_load();
    w.rule_follows_its_load("W11", &lonely_commits, &commits, &[]);
}

pub fn w13_versions_pile_up(w: &mut World) {
    let home = w.tables_for_load();
    let mut snapshot = home.connect();
    let begun = snapshot.script(
        "START TRANSACTION WITH CONSISTENT SNAPSHOT;
         SELECT COUNT(*) FROM l.i",
    );
    assert_eq!(begun.unwrap_or_else(|fault| panic!("{fault}")), "3000");
    home.sql("SET GLOBAL innodb_flush_log_at_trx_commit = 0");
    let mut writer = home.connect();
    writer.run("SET sql_log_bin = 0").unwrap_or_else(|fault| panic!("{fault}"));
    repeat_by(&mut writer, 101_000, "UPDATE l.i SET v = n WHERE id = n % 100 + 1");
    home.sql("SET GLOBAL innodb_flush_log_at_trx_commit = 1");
    let answer = w.advise();
    drop(snapshot);
    says(&named("W13"), &answer);
    let is_silent = (0..60).any(|_| !w.advise().contains(&named("W13")));
    assert!(is_silent, "W13 fires without an old snapshot");
}

fn single_inserts(home: &Home) {
    home.sql("CREATE OR REPLACE TABLE l.n (id INT AUTO_INCREMENT PRIMARY KEY) ENGINE=Sluice");
    repeat(home, 4000, "INSERT INTO l.n VALUES (NULL)");
}

/// 500 a second, however long a flush takes here: no commit waits for one.
pub fn w21_inserts_single_rows(w: &mut World) {
    let home = w.tables_for_load();
    home.sql("SET GLOBAL sluice_flush_log_at_trx_commit = 2, sync_binlog = 0");
    w.rule_follows_its_load("W21", &single_inserts, &nothing, &[]);
    home.sql("SET GLOBAL sluice_flush_log_at_trx_commit = 1, sync_binlog = 1");
}
