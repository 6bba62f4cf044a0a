//! The end of a binlog file, the file or the log is lost.

use crate::case::{unsynced, Case, Loss};
use crate::files;
use sluice_server_tests::writer::{insert, row_of_i, row_of_m, row_of_s};
use std::fs::{self, File};

#[test]
fn lost_tail_is_completed() {
    unsynced("lost_tail_is_completed", |case| {
        case.d.start(&[]);
        case.make_tables();
        let tail = case.tail_after(&["FLUSH LOGS"]);
        insert(&case.d, 1..=100, row_of_s);
        insert(&case.d, 1..=20, row_of_i);
        insert(&case.d, 1..=20, row_of_m);
        case.d.run(&[
            "BEGIN",
            "INSERT INTO test.s VALUES (101, 'x')",
            "INSERT INTO test.i VALUES (101, 'x')",
            "COMMIT",
        ]);
        case.kill_unsynced(&tail)?;
        case.lose_from(tail.size, Loss::Cut);
        case.d.start(&[]);
        case.same_rows(101, 5151);
        assert_eq!(case.d.value("SELECT COUNT(*) FROM test.i"), "21", "rows of InnoDB");
        for (keys, loss) in [(102..=150, Loss::Zeros), (151..=200, Loss::Cut)] {
            let tail = case.tail_after(&[]);
            insert(&case.d, keys, row_of_s);
            case.kill_unsynced(&tail)?;
            case.lose_from(tail.size + 1000, loss);
            case.d.start(&[]);
        }
        case.same_rows(200, 20_100);
        // The rows of three engines, a transaction of two, and four statements that made tables.
        case.gtid_position_is(&format!("0-1-{}", 200 + 40 + 4));
        Ok(())
    });
}

#[test]
fn large_groups_and_traps() {
    unsynced("large_groups_and_traps", |case| {
        case.d.start(&[]);
        case.make_tables();
        case.d.run(&["SET GLOBAL binlog_checksum = NONE", "RESET MASTER"]);
        let large =
            "INSERT INTO test.s VALUES (1, REPEAT('x', 9000000)), (2, REPEAT('y', 9000000))";
        case.d.run(&[large]);
        assert_eq!(case.d.status("Sluice_binlog_large_groups"), 1, "large groups");
        // Events of whole blocks past the buffer, written by one statement each.
        for bytes in [61_440, 65_400, 65_460, 69_556, 131_072, 135_168] {
            let replace = format!("REPLACE INTO test.m VALUES ({bytes}, '{}')", "z".repeat(bytes));
            case.d.run(&["SET binlog_format = statement", &replace]);
        }
        assert_eq!(case.d.status("Sluice_binlog_fallbacks%"), 0, "fallbacks");
        let tail = case.tail_after(&["INSERT INTO test.s VALUES (3, 'small')"]);
        let end: u64 = case.d.row("SHOW MASTER STATUS")["Position"].parse().unwrap();
        case.kill_unsynced(&tail)?;
        assert_eq!(case.last_size(), end, "bytes of the file");
        case.lose_from(end - 100, Loss::Cut);
        case.d.start(&[]);
        assert_eq!(case.d.value("SELECT COUNT(*) FROM test.s"), "3", "rows");
        assert_eq!(files::size(&case.binlogs()[0]), end, "bytes of the file that was completed");
        Ok(())
    });
}

#[test]
fn an_encrypted_binlog_is_completed() {
    unsynced("an_encrypted_binlog_is_completed", |case| {
        let keys = case.scratch.path("keys");
        fs::write(&keys, "1;770A8A65DA156D24EE2A093277530142770A8A65DA156D24EE2A093277530142\n")
            .unwrap();
        let file = format!("--loose-file-key-management-filename={}", keys.display());
        let options = ["--plugin-load-add=file_key_management", "--encrypt-binlog", &file];
        case.d.start(&options);
        case.make_tables();
        let tail = case.tail_after(&["FLUSH BINARY LOGS"]);
        insert(&case.d, 1..=50, row_of_s);
        insert(&case.d, 1..=10, row_of_i);
        case.kill_unsynced(&tail)?;
        case.lose_from(tail.size, Loss::Cut);
        case.d.start(&options);
        assert_eq!(case.d.count_and_sum("s"), (50, 1275), "rows after restart");
        assert_eq!(case.d.value("SELECT COUNT(*) FROM test.i"), "10", "rows of InnoDB");
        // Only the server can read the file.
        let first = files::name(&case.binlogs()[0]);
        assert_eq!(files::rows_of_s_sent(&case.d, &first), 50, "rows in the binlog");
        Ok(())
    });
}

#[test]
fn a_missing_log_is_noticed() {
    let mut case = Case::new("a_missing_log_is_noticed");
    let (log, away) = (case.d.data("sluice"), case.scratch.path("away"));
    case.d.start(&[]);
    case.make_tables();
    insert(&case.d, 1..=5, row_of_s);
    case.d.kill();
    fs::rename(&log, &away).unwrap();
    case.d.refuses("not of this one", &[]);
    fs::remove_dir_all(&log).unwrap();
    fs::rename(&away, &log).unwrap();
    case.d.start(&[]);
    case.same_rows(5, 15);
    case.d.stop();
    // After a clean stop nothing is held in the log only: there is no mark.
    let names = fs::read_dir(case.d.data("")).unwrap().flatten().map(|file| file.file_name());
    let marks: Vec<_> = names.filter(|name| name.to_string_lossy().ends_with(".sluice")).collect();
    assert!(marks.is_empty(), "{marks:?}");
}

/// Somebody removes the file under the server. Nothing is lost in the tables; the server says at the
/// start what is missing, as it does with every engine, and starts when the index is put right.
#[test]
fn a_deleted_binlog_costs_no_rows() {
    let mut case = Case::new("a_deleted_binlog_costs_no_rows");
    case.d.start(&[]);
    case.make_tables();
    insert(&case.d, 1..=10, row_of_s);
    fs::remove_file(case.last_binlog()).unwrap();
    insert(&case.d, 11..=20, row_of_s);
    // A rotation opens a new file; the transactions of the lost one are committed before.
    case.d.run(&["FLUSH BINARY LOGS"]);
    insert(&case.d, 21..=30, row_of_s);
    case.d.kill();
    case.d.start(&[]);
    assert_eq!(case.d.count_and_sum("s"), (30, 465), "rows");
    case.d.stop();
    case.d.start(&[]);
    fs::remove_file(case.last_binlog()).unwrap();
    insert(&case.d, 31..=40, row_of_s);
    // The commit records decide without the binlog.
    case.d.wait_until_log_is_durable();
    case.d.kill();
    case.d.refuses("is in the index but does not exist", &[]);
    files::drop_last(&case.index);
    case.d.refuses("does not exist, and", &[]);
    case.d.start(&["--loose-sluice-abandon-binlog=ON"]);
    assert_eq!(case.d.count_and_sum("s"), (40, 820), "rows without the lost binlog");
}

/// Somebody truncates the file under the server, which goes on writing after the hole.
#[test]
fn a_truncated_binlog_is_filled_again() {
    unsynced("a_truncated_binlog_is_filled_again", |case| {
        case.d.start(&[]);
        case.make_tables();
        let tail = case.tail_after(&["FLUSH BINARY LOGS"]);
        insert(&case.d, 1..=20, row_of_s);
        let file = File::options().write(true).open(case.last_binlog()).unwrap();
        assert!(file.metadata().unwrap().len() > 1000, "nothing to be cut");
        file.set_len(1000).unwrap();
        insert(&case.d, 21..=40, row_of_s);
        case.kill_unsynced(&tail)?;
        case.d.start(&[]);
        case.same_rows(40, 820);
        Ok(())
    });
}
