//! A restore that applies kept binary logs: exactly up to the place that was asked for, or nothing at all.

use crate::case::{is_empty, state, Case};
use sluice_rig::tool::{run, says, signal, spawn, wait};
use sluice_server_tests::site::Site;
use sluice_server_tests::wait_until;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

/// A place that a restore can be asked for, and what is there.
struct Place {
    gtid: String,
    /// The first transaction after it.
    next: String,
    file: String,
    position: String,
    /// Between its last transaction and the next one.
    time: String,
    state: Vec<Vec<String>>,
}

/// A place after these statements.
fn place(site: &Site, statements: &[&str]) -> Place {
    site.run(statements);
    let master = site.row("SHOW MASTER STATUS");
    // Times have seconds: the next statement is in another one.
    std::thread::sleep(Duration::from_millis(1100));
    let gtid = site.value("SELECT @@gtid_binlog_pos");
    let number: u64 = gtid.rsplit('-').next().and_then(|n| n.parse().ok()).expect("a GTID");
    Place {
        next: format!("0-1-{}", number + 1),
        gtid,
        file: master["File"].clone(),
        position: master["Position"].clone(),
        time: site.value("SELECT DATE_FORMAT(UTC_TIMESTAMP(), '%Y-%m-%d %H:%i:%sZ')"),
        state: state(site),
    }
}

fn binlogs(case: &Case) -> String {
    format!("--binlogs={}", case.d.data("").display())
}

#[test]
fn a_restore_stops_exactly_where_it_is_told() {
    let mut case = Case::with_tables("a_restore_stops_exactly");
    case.d.run(&["INSERT INTO w.s VALUES (1, 'a')"]);
    let mut xa = case.d.client();
    for sql in ["XA START 'q'", "INSERT INTO w.s VALUES (2, 'xa')", "XA END 'q'", "XA PREPARE 'q'"]
    {
        xa.run(sql).unwrap_or_else(|fault| panic!("{sql}: {fault}"));
    }
    drop(xa);
    run(&mut case.backup("b", &[])).ok();
    let first = place(
        &case.d,
        &[
            "INSERT INTO w.s SELECT seq, 'x' FROM w.seq_10_to_2000",
            "XA COMMIT 'q'",
            "CREATE USER v@localhost IDENTIFIED BY 'v'",
            "GRANT SELECT ON *.* TO v@localhost",
            "FLUSH BINARY LOGS",
            "CREATE TABLE w.later (a INT PRIMARY KEY, KEY (a))",
            "ALTER TABLE w.later ADD COLUMN b LONGTEXT, ALGORITHM=COPY",
            "INSERT INTO w.later VALUES (1, REPEAT('y', 100000)), (2, NULL)",
        ],
    );
    let second = place(&case.d, &["UPDATE w.later SET b = 'second' WHERE a = 2"]);
    let last = place(&case.d, &["DROP TABLE w.later", "DELETE FROM w.s WHERE a < 100"]);
    let binlogs = binlogs(&case);
    let places = [
        ("g", &first, format!("--to-gtid={}", first.gtid), "the first one that is left out"),
        ("n", &second, format!("--before-gtid={}", second.next), "the first one that is left out"),
        ("p", &first, format!("--to-position={}:{}", first.file, first.position), "transactions"),
        ("t", &second, format!("--to-time={}", second.time), "the first one that is left out"),
        ("e", &last, "--progress".into(), "the binary logs end there"),
    ];
    for (name, place, option, words) in places {
        let mut site = case.site(name);
        let said = run(&mut case.restore_by("b", &site.data(""), &[&binlogs, &option])).ok();
        says(words, &said);
        says(&format!("gtid_binlog_pos {}", place.gtid), &said);
        site.start(&[]);
        assert_eq!(state(&site), place.state, "{option}");
        // It is whole: InnoDB's tables are there, and it commits and survives.
        assert_eq!(site.value("SELECT COUNT(*) >= 0 FROM mysql.innodb_table_stats"), "1");
        site.run(&["INSERT INTO w.s VALUES (-1, 'more')"]);
        site.kill();
        site.start(&[]);
        assert_eq!(site.value("SELECT b FROM w.s WHERE a = -1"), "more");
        site.stop();
    }
    case.d.stop();
}

#[test]
fn a_place_that_is_not_there_is_refused() {
    let case = Case::with_tables("a_place_that_is_not_there");
    run(&mut case.backup("b", &[])).ok();
    case.d.run(&[
        "INSERT INTO w.s VALUES (1, 'a')",
        "FLUSH BINARY LOGS",
        "INSERT INTO w.s VALUES (2, 'b')",
    ]);
    let (target, binlogs) = (case.to("target"), binlogs(&case));
    let refused = |options: &[&str], why: &str| {
        run(&mut case.restore_by("b", &target, options)).refuses(why);
        assert!(is_empty(&target), "a half restore");
    };
    refused(&[&binlogs, "--to-gtid=0-1-99999"], "do not have 0-1-99999");
    refused(&[&binlogs, "--to-gtid=0-1-1"], "before the backup");
    refused(&[&binlogs, "--to-time=2001-01-01 00:00:00"], "made after");
    refused(&[&binlogs, "--to-time=soon"], "is no time");
    refused(&[&binlogs, "--to-position=sluice-bin.000077:4"], "none of the binary logs");
    refused(&["--to-gtid=0-1-2"], "--binlogs");
    refused(&[&binlogs, "--to-gtid=0-1-2", "--before-gtid=0-1-2"], "cannot be used with");
    refused(&["--binlogs=/nowhere"], "cannot list /nowhere");
    run(case.restore("b", &target).args([binlogs.as_str(), "--basedir=/nowhere"]))
        .refuses("no program mariadbd");
    assert!(is_empty(&target));
}

/// Errors of programs in the middle: a table that the backup does not have, and a damaged event.
#[test]
fn what_cannot_be_applied_leaves_nothing() {
    let mut case = Case::with_tables("what_cannot_be_applied");
    case.d.run(&["CREATE TABLE w.other (a INT PRIMARY KEY) ENGINE=InnoDB"]);
    run(&mut case.backup("b", &["--only-sluice"])).ok();
    case.d.run(&["INSERT INTO w.s VALUES (1, 'a')", "INSERT INTO w.other VALUES (1)"]);
    let target = case.to("target");
    let failed = run(&mut case.restore_by("b", &target, &[&binlogs(&case)]));
    failed.refuses("w.other");
    failed.refuses("The backup does not have w.other (InnoDB)");
    assert!(is_empty(&target), "a half restore");

    // The row of w.s is damaged; lengths of events are not.
    let kept = case.to("kept");
    run(&mut case.backup("c", &["--only-sluice"])).ok();
    case.d.run(&["INSERT INTO w.s VALUES (2, 'a-row-that-is-damaged')"]);
    case.d.stop();
    fs::create_dir(&kept).expect("a directory");
    let name = case.fact("c", "binlog_file");
    fs::copy(case.d.data(&name), kept.join(&name)).expect("a binary log");
    flip(&kept.join(&name), b"a-row-that-is-damaged");
    let options = [&format!("--binlogs={}", kept.display())[..]];
    run(&mut case.restore_by("c", &target, &options)).refuses("the binary logs cannot be read");
    assert!(is_empty(&target), "a half restore");
}

fn flip(path: &Path, text: &[u8]) {
    let bytes = fs::read(path).expect("a file");
    let at = bytes.windows(text.len()).rposition(|found| found == text).expect("the text");
    let file = fs::File::options().write(true).open(path).expect("a file");
    file.write_all_at(b"A", at as u64).expect("a byte");
}

/// Whether a process has this in its command line.
fn runs(text: &str) -> bool {
    let processes = fs::read_dir("/proc").expect("processes").flatten();
    let mut lines = processes.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    lines.any(|line| {
        let line = String::from_utf8_lossy(&line);
        line.contains("mariadbd") && line.contains(text)
    })
}

#[test]
fn a_restore_that_is_killed_leaves_nothing_that_starts() {
    let case = Case::with_tables("a_restore_that_is_killed");
    run(&mut case.backup("b", &[])).ok();
    case.d.run(&["INSERT INTO w.s SELECT seq, REPEAT('x', 200) FROM w.seq_1_to_200000"]);
    for name in ["KILL", "TERM"] {
        let target = case.to(name);
        let stage = target.join("sluice-restore.tmp");
        let mut restore = spawn(&mut case.restore_by("b", &target, &[&binlogs(&case)]));
        let client = target.join("sluice-restore.work/mariadb.out");
        wait_until("the binary logs are applied", || {
            assert!(
                restore.try_wait().expect("a child").is_none(),
                "it ended before it could be stopped"
            );
            client.exists()
        });
        signal(name, restore.id());
        let ended = wait(restore);
        wait_until("the end of the private server", || !runs(&stage.display().to_string()));
        assert!(!target.join("mysql").exists(), "a server could start on it");
        match name {
            "KILL" => run(&mut case.restore("b", &target)).refuses("is not empty"),
            _ => {
                ended.refuses("stopped");
                assert!(is_empty(&target), "a half restore");
            }
        }
    }
}
