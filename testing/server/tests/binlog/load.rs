//! Rotation, the switch, RESET MASTER and kills while sessions write.

use crate::case::{none_is_missing, Case};
use crate::files;
use sluice_server_tests::writer::{insert, row_of_both, row_of_s, Writers, KEYS_EACH};
use std::time::Instant;

#[test]
fn one_flush_for_a_commit() {
    let mut case = Case::new("one_flush_for_a_commit");
    case.d.start(&["--loose-sluice-sync-binlog-interval=1000"]);
    case.make_tables();
    let counts = || (case.d.status("Sluice_log_flushes"), case.d.status("Sluice_binlog_groups"));
    let (before, begun) = (counts(), Instant::now());
    insert(&case.d, 1..=500, row_of_s);
    let (after, seconds) = (counts(), begun.elapsed().as_secs());
    assert_eq!(after.1 - before.1, 500, "groups");
    // The background syncs of a second may cost two flushes.
    let flushes_max = 500 + 20.max(2 * seconds);
    let flushes = after.0 - before.0;
    assert!(flushes <= flushes_max, "{flushes} flushes of the log in {seconds} s");
    assert_eq!(case.d.value("SELECT @@sync_binlog"), "1", "@@sync_binlog");
    // Otherwise the server syncs its file as well.
    assert_eq!(case.d.status("Sluice_binlog_in_log"), 1, "the binlog is in the log");
    assert_eq!(case.d.status("Sluice_binlog_uncovered_commits"), 0, "uncovered commits");
}

#[test]
fn switch_and_rotation_under_load() {
    let mut case = Case::new("switch_and_rotation_under_load");
    case.d.start(&["--max-binlog-size=65536"]);
    case.make_tables();
    let writers = Writers::start(&case.d, 4, 1, row_of_s);
    for i in 1..=12 {
        let switch = format!("SET GLOBAL sluice_persist_binlog_to_redo = {}", i % 2);
        let checksum = if i % 3 == 0 { "NONE" } else { "CRC32" };
        let checksum = format!("SET GLOBAL binlog_checksum = {checksum}");
        case.d.run(&[&switch, "FLUSH BINARY LOGS", &checksum]);
        writers.wait_for(300);
    }
    case.d.kill();
    let acknowledged = writers.join();
    case.d.start(&[]);
    none_is_missing(&case.d, &acknowledged);
    let (count, sum) = case.d.count_and_sum("s");
    case.same_rows(count, sum);
}

#[test]
fn reset_master_and_flush_logs_under_load() {
    let mut case = Case::new("reset_master_and_flush_logs_under_load");
    case.d.start(&["--max-binlog-size=262144"]);
    case.make_tables();
    let writers = Writers::start(&case.d, 3, 1, row_of_s);
    for i in 1..=15 {
        case.d.run(&[if i % 3 == 0 { "RESET MASTER" } else { "FLUSH BINARY LOGS" }]);
        writers.wait_for(40);
    }
    case.d.kill();
    let acknowledged = writers.join();
    case.d.start(&[]);
    none_is_missing(&case.d, &acknowledged);
}

#[test]
fn purge_and_reset_storms_lose_nothing() {
    let mut case = Case::new("purge_and_reset_storms_lose_nothing");
    case.d.start(&["--max-binlog-size=4096"]);
    case.make_tables();
    let writers = Writers::start(&case.d, 3, 1, row_of_both);
    for i in 1..=20 {
        match i % 4 {
            0 => case.d.run(&["RESET MASTER"]),
            1 => {
                let checksum = if i % 8 == 1 { "NONE" } else { "CRC32" };
                case.d.run(&[&format!("SET GLOBAL binlog_checksum = {checksum}")]);
            }
            _ => {
                let last = files::name(&case.last_binlog());
                case.d.run(&[&format!("PURGE BINARY LOGS TO '{last}'"), "FLUSH BINARY LOGS"]);
            }
        }
        writers.wait_for(25);
    }
    case.d.kill();
    let acknowledged = writers.join();
    case.d.start(&[]);
    none_is_missing(&case.d, &acknowledged);
    assert_eq!(case.d.count_and_sum("i"), case.d.count_and_sum("s"), "rows of InnoDB");
    assert_eq!(case.d.status("Sluice_binlog_fallbacks%"), 0, "fallbacks");
}

/// Killed at any moment under a load of mixed transactions and rotations, again and again: however
/// they are resolved, both engines have the same rows, and all that were acknowledged.
#[test]
fn mixed_transactions_agree_after_kills() {
    let mut case = Case::new("mixed_transactions_agree_after_kills");
    case.d.start(&["--max-binlog-size=65536"]);
    case.make_tables();
    let mut acknowledged = Vec::new();
    for round in 1..=6 {
        let writers = Writers::start(&case.d, 4, round * 4 * KEYS_EACH, row_of_both);
        writers.wait_for(40 * round as usize);
        case.d.kill();
        acknowledged.extend(writers.join());
        // Every other time the server resolves them.
        let skip = if round % 2 == 0 { "OFF" } else { "ON" };
        let skip = format!("--loose-sluice-skip-binlog-scan={skip}");
        case.d.start(&["--max-binlog-size=65536", &skip]);
        for (one, other) in [("s", "i"), ("i", "s")] {
            let only = format!(
                "SELECT COUNT(*) FROM test.{one} LEFT JOIN test.{other} USING (a) WHERE {other}.a IS NULL"
            );
            assert_eq!(case.d.value(&only), "0", "rows of test.{one} only, in round {round}");
        }
        none_is_missing(&case.d, &acknowledged);
    }
    let (count, sum) = case.d.count_and_sum("s");
    case.same_rows(count, sum);
    assert!(case.d.times_said("need not be scanned") > 0, "no scan was skipped");
}

/// Without a binlog every commit is durable by itself. Of a transaction of two engines only Sluice's
/// part is looked at: this server's tc.log lets InnoDB roll back what it had only prepared.
#[test]
fn commits_without_a_binlog() {
    let mut case = Case::new("commits_without_a_binlog");
    case.d.start(&["--skip-log-bin"]);
    case.make_tables();
    insert(&case.d, 1..=50, row_of_s);
    insert(&case.d, 51..=70, row_of_both);
    assert_eq!(case.d.status("Sluice_binlog_in_log"), 0, "the binlog is in the log");
    case.d.kill();
    case.d.start(&["--skip-log-bin"]);
    assert_eq!(case.d.count_and_sum("s"), (70, 2485), "rows");
    case.d.stop();
    // And with one again.
    case.d.start(&[]);
    insert(&case.d, 71..=80, row_of_both);
    case.d.kill();
    case.d.start(&[]);
    assert_eq!(case.d.count_and_sum("s"), (80, 3240), "rows with the binlog again");
}

/// Transactions of which the binlog's group commit sees nothing, and XA transactions, are durable
/// when they are acknowledged.
#[test]
fn commits_beside_the_group_commit() {
    let mut case = Case::new("commits_beside_the_group_commit");
    case.d.start(&[]);
    case.make_tables();
    case.d.run(&["SET sql_log_bin = 0", "INSERT INTO test.s VALUES (1, 'not logged')"]);
    case.d.kill();
    case.d.start(&[]);
    case.d.run(&[
        "BEGIN",
        "SELECT * FROM test.s FOR UPDATE",
        "UPDATE test.s SET b = b",
        "COMMIT",
        "SET sql_log_bin = 0",
        "BEGIN",
        "INSERT INTO test.s VALUES (2, '')",
        "INSERT INTO test.i VALUES (2, '')",
        "COMMIT",
    ]);
    case.d.kill();
    case.d.start(&[]);
    assert_eq!(case.d.count_and_sum("s"), (2, 3), "rows");
    assert_eq!(case.d.count_and_sum("i"), (1, 2), "rows of InnoDB");
    case.d.run(&[
        "XA START 'p'",
        "INSERT INTO test.s VALUES (10, '')",
        "XA END 'p'",
        "XA PREPARE 'p'",
    ]);
    case.d.kill();
    case.d.start(&[]);
    let prepared = case.d.rows("XA RECOVER");
    assert_eq!(prepared.iter().map(|row| row[3].as_str()).collect::<Vec<_>>(), ["p"], "XA RECOVER");
    case.d.run(&["XA COMMIT 'p'"]);
    case.d.kill();
    case.d.start(&[]);
    assert_eq!(case.d.count_and_sum("s"), (3, 13), "rows after XA COMMIT");
    assert!(case.d.rows("XA RECOVER").is_empty(), "XA RECOVER");
}
