//! What a start reads of the binlog after a crash, and a second crash in the middle of it.

use crate::case::Case;
use crate::files::copy_dir;
use sluice_server_tests::writer::{insert, row_of_both, row_of_s};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;

const SKIPPED: &str = "need not be scanned";
const SCANNED: &str = "Recovering after a crash";

/// The server need not read its last binlog, and finds the same as if it had: GTID state, rows of
/// both engines; an XA transaction stays prepared.
#[test]
fn the_scan_is_skipped() {
    let mut case = Case::new("the_scan_is_skipped");
    case.d.start(&["--max-binlog-size=65536"]);
    case.make_tables();
    let row = "INSERT INTO test.s VALUES (1000, 'domain 7')";
    case.d.run(&["SET gtid_domain_id = 7, server_id = 9", row]);
    insert(&case.d, 1..=150, row_of_both);
    case.d.run(&[
        "XA START 'a'",
        "INSERT INTO test.s VALUES (2000, '')",
        "XA END 'a'",
        "XA PREPARE 'a'",
    ]);
    case.d.run(&["INSERT INTO test.s VALUES (1001, 'last')"]);
    let gtids = case.d.value("SELECT @@gtid_binlog_state");
    case.d.kill();
    case.d.start(&[]);
    case.d.says(SKIPPED);
    case.d.does_not_say(SCANNED);
    assert_eq!(case.d.value("SELECT @@gtid_binlog_state"), gtids, "GTID state");
    assert_eq!(case.d.count_and_sum("i"), (150, 11_325), "rows of InnoDB");
    assert_eq!(case.d.rows("XA RECOVER").len(), 1, "prepared XA transactions");
    case.d.run(&["XA COMMIT 'a'"]);
    case.same_rows(153, 15_326);
}

/// Where the log does not know enough the server scans, and the error log says why.
#[test]
fn the_scan_is_left_to_the_server() {
    let mut case = Case::new("the_scan_is_left_to_the_server");
    let scan = ["--loose-sluice-skip-binlog-scan=OFF"];
    case.d.start(&[]);
    case.make_tables();
    insert(&case.d, 1..=5, row_of_s);
    case.d.run(&["SET GLOBAL sluice_persist_binlog_to_redo = OFF"]);
    insert(&case.d, 6..=10, row_of_s);
    case.d.kill();
    case.d.start(&scan);
    case.d.says("left to the server's scan: the log had no authority over it");
    insert(&case.d, 11..=15, row_of_s);
    case.d.kill();
    case.d.start(&scan);
    case.d.says("left to the server's scan: sluice_skip_binlog_scan is OFF");
    assert_eq!(case.d.times_said(SCANNED), 2, "scans");
    case.same_rows(15, 120);
}

/// A second crash while the first is being recovered from: what was done is done again, or is left
/// to the server.
#[test]
fn a_crash_in_recovery_loses_nothing() {
    let mut case = Case::new("a_crash_in_recovery_loses_nothing");
    let state = case.d.data("sluice-bin.state");
    case.d.start(&[]);
    case.make_tables();
    for round in 1..=3 {
        insert(&case.d, round * 100 + 1..=round * 100 + 20, row_of_both);
        case.d.kill();
        if round == 3 {
            // Nothing but a state file without an end, of a start before this one.
            fs::write(&state, "0-1-").unwrap();
        } else {
            // It ends when the old binlog is closed, before the server opens a new one.
            case.d.refuses(SKIPPED, &["--default-storage-engine=nosuch"]);
        }
        if round == 2 {
            // As if the flag that the file is in use, and the state, had not reached the disk.
            fs::remove_file(&state).unwrap();
            let file = File::options().write(true).open(case.last_binlog()).unwrap();
            file.write_all_at(&[1], 21).unwrap();
        }
        case.d.start(&[]);
        assert_eq!(case.d.count_and_sum("s"), case.d.count_and_sum("i"), "rows in round {round}");
    }
    assert_eq!(case.d.value("SELECT COUNT(*) FROM test.s"), "60", "rows");
    case.gtid_position_is("0-1-64");
}

/// The files of Sluice are put back from a copy that is older than the binlog.
#[test]
fn an_older_copy_cuts_nothing() {
    let mut case = Case::new("an_older_copy_cuts_nothing");
    let files = case.d.data("sluice");
    let [older, newer, newest, earlier_life] =
        ["older", "newer", "newest", "earlier-life"].map(|name| case.scratch.path(name));
    case.d.start(&[]);
    case.make_tables();
    insert(&case.d, 1..=10, row_of_s);
    case.d.wait_until_log_is_durable();
    copy_dir(&files, &older);
    insert(&case.d, 11..=30, row_of_s);
    case.d.kill();
    copy_dir(&files, &newer);
    let end = case.last_size();
    for copy in [&older, &newer] {
        fs::remove_dir_all(&files).unwrap();
        copy_dir(copy, &files);
        if copy == &older {
            case.d.refuses("an older copy", &[]);
        }
        assert_eq!(case.last_size(), end, "bytes of the binlog");
    }
    case.d.start(&[]);
    case.same_rows(30, 465);
    // One of an earlier life: not even one group is cut.
    case.d.stop();
    copy_dir(&files, &earlier_life);
    case.d.start(&[]);
    insert(&case.d, 31..=31, row_of_s);
    case.d.kill();
    fs::rename(&files, &newest).unwrap();
    copy_dir(&earlier_life, &files);
    case.d.refuses("these files are an older copy", &[]);
    fs::remove_dir_all(&files).unwrap();
    fs::rename(&newest, &files).unwrap();
    case.d.start(&[]);
    case.same_rows(31, 496);
}
