//! Faults of settings.

use crate::{is_silent_about, named, nothing, says, World, USUAL};
use sluice_rig::suite::skip;
use sluice_rig::tool::{checkout, run, Home};
use std::process::Command;

pub fn advise_names_planted_faults(w: &mut World) {
    w.server();
    w.rule_follows_its_fault(
        "W04",
        "SET GLOBAL innodb_io_capacity_max = 200",
        "SET GLOBAL innodb_io_capacity_max = 2000",
    );
    // With the binlog in the log of Sluice sync_binlog = 0 loses nothing.
    w.rule_follows_its_fault(
        "W10",
        "SET GLOBAL sync_binlog = 0, sluice_persist_binlog_to_redo = OFF",
        "SET GLOBAL sluice_persist_binlog_to_redo = ON",
    );
    w.rule_follows_its_fault(
        "W10",
        "SET GLOBAL sluice_flush_log_at_trx_commit = 2",
        "SET GLOBAL sluice_flush_log_at_trx_commit = 1, sync_binlog = 1",
    );
    w.rule_follows_its_fault(
        "W10",
        "SET GLOBAL innodb_flush_log_at_trx_commit = 0",
        "SET GLOBAL innodb_flush_log_at_trx_commit = 1",
    );
    for engine in ["InnoDB", "Sluice"] {
        let without_key = format!("CREATE DATABASE a; CREATE TABLE a.t (x INT) ENGINE={engine}");
        w.rule_follows_its_fault("W14", &without_key, "DROP DATABASE a");
    }
    w.rule_follows_its_fault(
        "W16",
        "SET GLOBAL binlog_checksum = NONE",
        "SET GLOBAL binlog_checksum = CRC32",
    );
    w.rule_follows_its_fault(
        "W23",
        "SET GLOBAL tmp_table_size = 1048576, sort_buffer_size = 1 << 40",
        "SET GLOBAL sort_buffer_size = DEFAULT",
    );
}

/// Options of a start with faults W07 and W18.
pub const FAULTY_START: [&str; 3] =
    ["--skip-innodb-doublewrite", "--innodb-use-native-aio=0", "--innodb-buffer-pool-size=32M"];

pub fn faults_of_the_start_are_named(w: &mut World) {
    w.server_with(&FAULTY_START);
    let answer = w.advise();
    says(&named("W07"), &answer);
    says(r#""severity":"critical""#, &answer);
    says(&named("W18"), &answer);
    w.server_with(&USUAL);
    let answer = w.advise();
    is_silent_about(&named("W07"), &answer);
    is_silent_about(&named("W18"), &answer);
}

fn over_two_engines(home: &Home) {
    home.sql("BEGIN; UPDATE m.r SET v = v + 1; UPDATE m.s SET v = v + 1; COMMIT");
}

pub fn myrocks_tables_are_judged(w: &mut World) {
    let fetch = checkout().join("scripts/fetch-myrocks");
    if !w.tool.has_plugin("ha_rocksdb.so") && run(&mut Command::new(fetch)).code != Some(0) {
        skip("MyRocks cannot be fetched");
    }
    let rocks = ["--plugin-load-add=ha_rocksdb.so", "--loose-rocksdb-block-cache-size=16M"];
    w.server_with(&[&USUAL[..], &rocks[..]].concat());
    w.rule_follows_its_fault(
        "W10",
        "SET GLOBAL rocksdb_flush_log_at_trx_commit = 2",
        "SET GLOBAL rocksdb_flush_log_at_trx_commit = 1",
    );
    w.rule_follows_its_fault(
        "W14",
        "CREATE DATABASE a; CREATE TABLE a.t (x INT) ENGINE=ROCKSDB",
        "DROP DATABASE a",
    );
    w.home.sql(
        "CREATE DATABASE m; CREATE TABLE m.r (id INT PRIMARY KEY, v INT) ENGINE=ROCKSDB;
         CREATE TABLE m.s (id INT PRIMARY KEY, v INT) ENGINE=Sluice;
         INSERT INTO m.r VALUES (1, 1); INSERT INTO m.s VALUES (1, 1)",
    );
    w.rule_follows_its_load("W24", &over_two_engines, &nothing, &[]);
    says(r#""m.r""#, &w.advise());
    w.home.sql("DROP DATABASE m");
}
