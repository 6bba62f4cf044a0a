//! Each rule fires on its fault and is silent without it.
//!
//! The base is the status of a private server under sysbench, recorded; the faults are set into it.
//! Facts of MySQL 5.7 and 8 are synthetic: written from its public manual, never seen on a server.

use super::facts::{Facts, TableFact};
use super::*;
use crate::db::Counters;
use crate::host::{DeviceCounters, Mount, Probe};

const STATUS: &str = include_str!("recorded_status.txt");
const VARIABLES: &str = include_str!("recorded_variables.txt");

fn healthy() -> Facts {
    let mut facts = Facts {
        variables: Counters::parse(VARIABLES),
        before: Counters::parse(STATUS),
        after: Counters::parse(STATUS),
        seconds: 60.0,
        processors: 2,
        memory_bytes: Some(24 << 30),
        rotational: Some(true),
        ..Facts::default()
    };
    facts.variables.set("innodb_log_file_size", 1u64 << 30);
    facts
}

fn grow(facts: &mut Facts, name: &str, by: f64) {
    let value = facts.before.count(name) + by;
    facts.before.set(name, facts.before.count(name));
    facts.after.set(name, value);
}

fn fired(facts: &Facts) -> Vec<&'static str> {
    advice(facts).iter().map(|a| a.rule).collect()
}

fn probe(p99_us: f64, atomic: Option<u32>) -> Probe {
    Probe {
        flush_4k_us: vec![p99_us; 10],
        flush_16k_us: vec![p99_us; 10],
        random_16k_per_s: 500.0,
        atomic_max_bytes: atomic,
        direct_io: true,
    }
}

/// Plants a fault, expects the rule; and without the fault, silence.
fn check(rule: &str, plant: impl FnOnce(&mut Facts)) {
    let mut facts = healthy();
    assert!(!fired(&facts).contains(&rule), "{rule} fires without a fault: {:?}", fired(&facts));
    plant(&mut facts);
    assert!(fired(&facts).contains(&rule), "{rule} is silent: {:?}", fired(&facts));
    let found = advice(&facts).into_iter().find(|a| a.rule == rule).unwrap();
    assert!(!found.evidence.is_empty() && !found.expected.is_empty() && !found.change.is_empty());
}

#[test]
fn log_rules() {
    check("W01", |f| grow(f, "innodb_os_log_written", 60e6));
    check("W02", |f| grow(f, "innodb_log_waits", 6.0));
    check("W09", |f| {
        f.probe = Some(probe(900.0, None));
        grow(f, "binlog_commits", 6000.0);
    });
    check("W10", |f| f.variables.set("sync_binlog", 0));
    check("W10", |f| f.variables.set("innodb_flush_log_at_trx_commit", 2));
    check("W10", |f| f.variables.set("rocksdb_flush_log_at_trx_commit", 2));
    check("W10", |f| f.variables.set("sluice_flush_log_at_trx_commit", 0));
    check("W11", |f| {
        grow(f, "binlog_commits", 100.0);
        grow(f, "binlog_group_commits", 95.0);
        f.after.set("threads_running", 20);
    });
    check("W12", |f| f.binlog_excess_bytes = Some(200e6));
    check("W12", |f| {
        f.binlog_excess_bytes = Some(200e6);
        f.variables.set("version", "11.8.2-MariaDB");
        f.variables.set("binlog_large_commit_threshold", 4u64 << 30);
    });
    check("W12", |f| {
        grow(f, "binlog_cache_use", 1000.0);
        grow(f, "binlog_cache_disk_use", 100.0);
    });
}

/// With the binlog in the log of Sluice, sync_binlog decides only together with its own variable.
#[test]
fn durability_is_judged_by_who_flushes_the_binlog() {
    let mut facts = healthy();
    facts.variables.set("innodb_flush_log_at_trx_commit", 3);
    assert!(!fired(&facts).contains(&"W10"), "3 flushes at prepare as well");
    facts.variables.set("sync_binlog", 0);
    facts.after.set("sluice_binlog_in_log", 1);
    assert!(!fired(&facts).contains(&"W10"), "the log is flushed for both");
    facts.variables.set("sluice_flush_log_at_trx_commit", 2);
    let found = advice(&facts).into_iter().find(|a| a.rule == "W10").unwrap();
    assert_eq!(
        found.to_json()["settings"],
        json!({"sluice_flush_log_at_trx_commit": "1", "sync_binlog": "1"})
    );
    facts.variables.set("sync_binlog", 100);
    assert!(!fired(&facts).contains(&"W10"), "each group flushes the log");
    // The binlog is durable, InnoDB is not: they differ after a crash.
    facts.variables.set("innodb_flush_log_at_trx_commit", 2);
    let found = advice(&facts).into_iter().find(|a| a.rule == "W10").unwrap();
    assert!(found.to_json().to_string().contains("what InnoDB then lacks"));
}

#[test]
fn two_flushes_are_named_where_there_are_two() {
    let two_flushes = |facts: &Facts| {
        advice(facts).iter().any(|a| a.rule == "W09" && a.evidence.contains("both flushed"))
    };
    let mut facts = healthy();
    grow(&mut facts, "binlog_commits", 60_000.0);
    grow(&mut facts, "innodb_os_log_written", 60e6);
    assert!(two_flushes(&facts));
    facts.after.set("sluice_binlog_in_log", 1);
    assert!(two_flushes(&facts), "InnoDB flushes its own log as well");
    facts.after.set("innodb_os_log_written", facts.before.count("innodb_os_log_written"));
    assert!(!two_flushes(&facts));
}

#[test]
fn page_rules() {
    check("W03", |f| grow(f, "innodb_buffer_pool_wait_free", 3.0));
    check("W03", |f| f.rotational = Some(false));
    check("W04", |f| f.variables.set("innodb_io_capacity_max", 300));
    check("W05", |f| {
        for sample in [&mut f.before, &mut f.after] {
            sample.set("innodb_buffer_pool_pages_total", 1000);
            sample.set("innodb_buffer_pool_pages_dirty", 800);
        }
        f.device = Some(DeviceCounters::default());
    });
    check("W06", |f| {
        f.variables.set("innodb_flush_neighbors", 1);
        f.rotational = Some(false);
    });
    check("W07", |f| {
        f.variables.set("innodb_flush_method", "O_DIRECT");
        f.probe = Some(probe(100.0, Some(65536)));
    });
    check("W07", |f| f.variables.set("innodb_doublewrite", "OFF"));
    check("W08", |f| {
        grow(f, "innodb_pages_written", 6000.0);
        grow(f, "innodb_dblwr_pages_written", 6000.0);
    });
    check("W16", |f| f.variables.set("binlog_checksum", "NONE"));
    check("W16", |f| f.after.set("innodb_redo_log_enabled", "OFF"));
    check("W18", |f| {
        f.before.set("innodb_data_pending_reads", 400);
        f.after.set("innodb_data_pending_reads", 300);
    });
}

#[test]
fn doublewrite_off_is_critical_only_without_proof() {
    let mut facts = healthy();
    facts.variables.set("innodb_doublewrite", "OFF");
    facts.variables.set("innodb_flush_method", "O_DIRECT");
    assert_eq!(advice(&facts)[0].severity, Severity::Critical);
    facts.probe = Some(probe(100.0, Some(16384)));
    assert!(!fired(&facts).contains(&"W07"));
    facts.probe = Some(probe(100.0, Some(4096)));
    assert!(fired(&facts).contains(&"W07"), "4 KiB are not a page");
}

#[test]
fn data_rules() {
    let table = TableFact {
        name: "a.b".into(),
        engine: "InnoDB".into(),
        has_key: true,
        key_type: "int(11)".into(),
        rows: 1e5,
        data_bytes: 1e8,
        ..TableFact::default()
    };
    check("W13", |f| f.longest_transaction_s = Some(4000.0));
    check("W14", |f| f.tables = vec![TableFact { has_key: false, ..table.clone() }]);
    check("W14", |f| f.tables = vec![TableFact { key_type: "uuid".into(), ..table.clone() }]);
    check("W14", |f| f.tables = vec![TableFact { index_bytes: 9e7, ..table.clone() }]);
    check("W15", |f| f.tables = vec![TableFact { compressed: Some(0.4), ..table.clone() }]);
    check("W17", |f| {
        grow(f, "created_tmp_tables", 100.0);
        grow(f, "created_tmp_disk_tables", 50.0);
    });
    check("W21", |f| {
        for name in ["com_insert", "handler_write", "handler_commit", "binlog_commits"] {
            grow(f, name, 60_000.0);
        }
    });
    check("W22", |f| {
        f.variables.set("slave_parallel_threads", 0);
        f.replica = Some([("using_gtid".to_string(), "Slave_Pos".to_string())].into());
    });
    check("W22", |f| {
        f.variables.set("binlog_row_image", "MINIMAL");
        f.other_readers = Some(1.0);
    });
    check("W22", |f| {
        f.variables.set("binlog_format", "MIXED");
        f.other_readers = Some(1.0);
    });
    check("W23", |f| f.variables.set("key_buffer_size", 40u64 << 30));
    check("W24", |f| grow(f, "transactions_multi_engine", 1.0));
}

#[test]
fn host_rules() {
    let mount = |options: &str| Mount {
        point: "/".into(),
        kind: "ext4".into(),
        options: options.into(),
        source: "x".into(),
    };
    check("W19", |f| f.mount = Some(mount("rw,relatime,data=journal")));
    check("W19", |f| f.mount = Some(mount("rw,relatime,wsync")));
    check("W19", |f| f.mount = Some(mount("rw")));
    let mut facts = healthy();
    facts.mount = Some(mount("rw,noatime"));
    assert!(!fired(&facts).contains(&"W19"), "nothing writes times of access");
    check("W19", |f| f.space = Some((5, 100)));
    check("W19", |f| {
        f.trimmed = Some(false);
        f.rotational = Some(false);
    });
    check("W20", |f| {
        f.endurance_bytes = Some(600e12);
        f.device = Some(DeviceCounters { written_bytes: 60 << 30, ..DeviceCounters::default() });
    });
}

/// Synthetic, after the public manual of MySQL 8.0.30: the redo log has one variable.
#[test]
fn redo_capacity_of_mysql() {
    let mut facts = healthy();
    facts.variables = Counters::parse(
        "version 8.0.36\ninnodb_redo_log_capacity 104857600\ninnodb_flush_log_at_trx_commit 1\n",
    );
    grow(&mut facts, "innodb_os_log_written", 60e6);
    let found = advice(&facts).into_iter().find(|a| a.rule == "W01").unwrap();
    assert!(
        found.change[0].starts_with("SET GLOBAL innodb_redo_log_capacity"),
        "{:?}",
        found.change
    );
    assert_eq!(found.dynamic, Some(true));
    // And of 5.7: two files, and only a restart changes them.
    facts.variables = Counters::parse(
        "version 5.7.44-log\ninnodb_log_file_size 50331648\ninnodb_log_files_in_group 2\n",
    );
    assert_eq!(facts.redo_capacity(), 100663296.0);
    assert_eq!(advice(&facts).iter().find(|a| a.rule == "W01").unwrap().dynamic, Some(false));
}

#[test]
fn what_is_as_it_should_be_is_not_mentioned() {
    let mut facts = healthy();
    facts.binlog_excess_bytes = Some(100e6);
    facts.other_readers = Some(2.0);
    facts.variables.set("binlog_format", "ROW");
    facts.trimmed = Some(true);
    facts.rotational = Some(false);
    facts.variables.set("innodb_io_capacity", 2000);
    facts.variables.set("innodb_io_capacity_max", 4000);
    let found = fired(&facts);
    assert!(!found.iter().any(|rule| ["W12", "W19", "W22"].contains(rule)), "{found:?}");
    facts.binlog_excess_bytes = Some(200e6);
    facts.variables.set("version", "11.8.2-MariaDB");
    facts.variables.set("binlog_large_commit_threshold", 128u64 << 20);
    assert!(!fired(&facts).contains(&"W12"), "11.7 renames instead of copying");
}

/// A log of an hour must not fill the disk.
#[test]
fn the_log_leaves_room_on_the_disk() {
    let mut facts = healthy();
    grow(&mut facts, "innodb_os_log_written", 6e9);
    let wanted = |facts: &Facts| {
        let found = advice(facts).into_iter().find(|a| a.rule == "W01")?;
        found.settings[0].1.parse::<f64>().ok()
    };
    assert_eq!(wanted(&facts), Some(512.0 * 1073741824.0));
    facts.space = Some((40 << 30, 400 << 30));
    assert_eq!(wanted(&facts), Some(8.0 * 1073741824.0));
    facts.space = Some((2 << 30, 400 << 30));
    assert_eq!(wanted(&facts), None, "no room for more than it has");
}

#[test]
fn settings_are_for_programs() {
    let mut facts = healthy();
    facts.variables.set("innodb_io_capacity_max", 300);
    let found = advice(&facts).into_iter().find(|a| a.rule == "W04").unwrap();
    assert_eq!(found.to_json()["settings"], json!({"innodb_io_capacity_max": "400"}));
}

#[test]
fn missing_facts_keep_rules_silent() {
    let facts = Facts {
        variables: Counters::parse("version 10.6.1-MariaDB"),
        seconds: 1.0,
        ..Facts::default()
    };
    assert!(fired(&facts).is_empty(), "{:?}", fired(&facts));
}

#[test]
fn who_would_not_gain_is_named() {
    let mut facts = healthy();
    grow(&mut facts, "com_select", 60_000.0);
    grow(&mut facts, "com_update", 600.0);
    grow(&mut facts, "innodb_dblwr_pages_written", 600.0);
    let verdicts = verdict::verdicts(&facts);
    assert_eq!(verdicts[0].1, "little");
    assert!(verdicts[0].2.contains("only read"), "{:?}", verdicts[0]);
    let writes = |facts: &mut Facts| grow(facts, "com_update", 6_000_000.0);
    writes(&mut facts);
    assert_eq!(verdict::verdicts(&facts)[0].1, "yes");
}
