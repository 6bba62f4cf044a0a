//! Our own measurements: of commits, restarts, rollbacks, old snapshots, long loads, replicas and
//! large rows. docs/bench.md describes each.

use super::params::{Params, TxnStatement, When};
use super::plan::Plan;
use super::presets::arm;
use super::target::TargetSpec;
use super::tpcc;
use super::trial::Kind;
use std::fs;

pub const NAMES: [&str; 12] = [
    "oltp",
    "commit",
    "write-less",
    "tpcc",
    "restart",
    "old-snapshot",
    "rollback",
    "soak",
    "replica-lag",
    "replica-receive",
    "large-rows",
    "locks",
];

pub fn plan(name: &str, base: Plan) -> Option<Plan> {
    // The sizes are the same on every machine, so that figures of several can be compared.
    let base = Plan { pool_mib: 512, log_mib: 1024, warmup: 0, ..base };
    Some(match name {
        "oltp" => oltp(base),
        "commit" => commit(base),
        "write-less" => write_less(base),
        "tpcc" => tpcc(base),
        "restart" => restart(base),
        "old-snapshot" => old_snapshot(base),
        "rollback" => rollback(base),
        "soak" => soak(base),
        "replica-lag" => replica_lag(base),
        "replica-receive" => replica_receive(base),
        "large-rows" => large_rows(base),
        "locks" => locks(base),
        _ => return None,
    })
}

fn oltp(base: Plan) -> Plan {
    let names = fs::read_dir("/usr/share/sysbench").into_iter().flatten().flatten();
    let names = names.map(|entry| entry.file_name().to_string_lossy().into_owned());
    Plan {
        workloads: stock_workloads(names),
        threads: vec![1, 16, 64],
        rows: 500_000,
        seconds: 20,
        repetitions: 1,
        settle_ms: 2000,
        ..base
    }
}

/// Every oltp_*.lua that sysbench brings. Reads first: the others change the tables, and oltp_delete
/// empties them in the end.
fn stock_workloads(files: impl Iterator<Item = String>) -> Vec<String> {
    let place = |name: &str| match name {
        "oltp_point_select" => 0,
        "oltp_read_only" => 1,
        "oltp_delete" => 3,
        _ => 2,
    };
    let stock = |file: String| {
        let name = file.strip_suffix(".lua")?;
        (name.starts_with("oltp_") && name != "oltp_common").then(|| name.to_string())
    };
    let mut found: Vec<String> = files.filter_map(stock).collect();
    if found.is_empty() {
        // sysbench is not there yet, or elsewhere.
        let known = ["point_select", "read_only", "insert", "read_write", "update_index"];
        let more = ["update_non_index", "write_only", "delete"];
        found = known.iter().chain(&more).map(|name| format!("oltp_{name}")).collect();
    }
    found.sort_by_key(|name| (place(name), name.clone()));
    found
}

fn commit(base: Plan) -> Plan {
    let off = "loose_sluice_persist_binlog_to_redo=OFF";
    Plan {
        targets: vec![
            arm("innodb", "InnoDB", &[]),
            arm("sluice", "Sluice", &[]),
            arm("sluice-off", "Sluice", &[off]),
            arm("innodb-nobinlog", "InnoDB", &["skip_log_bin"]),
            arm("sluice-nobinlog", "Sluice", &["skip_log_bin"]),
        ],
        workloads: list(&["oltp_update_non_index", "oltp_insert"]),
        threads: vec![1, 16, 64],
        ..base
    }
}

/// Data of ten times the pool, and long enough for the steady state of checkpoints and of the
/// collection of dead space.
fn write_less(base: Plan) -> Plan {
    Plan {
        targets: vec![
            arm("innodb", "InnoDB", &[]),
            arm("sluice", "Sluice", &[]),
            arm("myrocks", "RocksDB", &[]),
        ],
        // Reads last: of what the updates left.
        workloads: list(&[
            "rows_update_non_index",
            "rows_update_index",
            "rows_point_select",
            "rows_read_only",
        ]),
        threads: vec![24],
        tables: 2,
        rows: 1_500_000,
        pool_mib: 96,
        log_mib: 512,
        repetitions: 1,
        seconds: 300,
        warmup: 120,
        ..base
    }
}

/// About 800 MB; a pool of an eighth of that, and one larger than the data.
fn tpcc(base: Plan) -> Plan {
    Plan {
        targets: vec![
            arm("innodb", "InnoDB", &[]),
            arm("sluice", "Sluice", &[]),
            arm("innodb-memory", "InnoDB", &["innodb_buffer_pool_size=2G"]),
            arm("sluice-memory", "Sluice", &["loose_sluice_buffer_pool_size=2G"]),
        ],
        workloads: list(&[tpcc::WORKLOAD]),
        threads: vec![24],
        pool_mib: 96,
        log_mib: 512,
        repetitions: 1,
        seconds: 300,
        warmup: 120,
        params: Params { warehouses: Some(10), scale_percent: Some(100), ..Params::default() },
        ..base
    }
}

fn list(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| name.to_string()).collect()
}

fn restart(base: Plan) -> Plan {
    let binlog = ["max_binlog_size=1G"];
    Plan {
        targets: vec![arm("innodb", "InnoDB", &binlog), arm("sluice", "Sluice", &binlog)],
        workloads: list(&["oltp_update_non_index"]),
        threads: vec![4],
        tables: 1,
        rows: 20_000,
        repetitions: 1,
        kind: Some(Kind::Restart),
        params: Params {
            size_gb: vec![1.0],
            when: vec![When::Commit, When::Middle],
            change: vec![TxnStatement::Insert],
            tps_seconds: Some(0),
            cold: Some(false),
            ..Params::default()
        },
        ..base
    }
}

fn old_snapshot(base: Plan) -> Plan {
    let both = |name: &str, engine: &str| {
        let of = |suffix: &str| arm(&format!("{name}-{suffix}"), engine, &[]);
        [of("free"), of("held")]
    };
    let targets: Vec<TargetSpec> =
        both("innodb", "InnoDB").into_iter().chain(both("sluice", "Sluice")).collect();
    Plan {
        targets,
        held: list(&["sluice-held", "innodb-held"]),
        workloads: list(&["oltp_update_index"]),
        threads: vec![16],
        log_mib: 256,
        seconds: 60,
        settle_ms: 0,
        params: Params { minutes: Some(10), ..Params::default() },
        ..base
    }
}

fn rollback(base: Plan) -> Plan {
    Plan {
        log_mib: 512,
        tables: 1,
        rows: 1_000_000,
        repetitions: 1,
        kind: Some(Kind::Rollback),
        params: Params {
            change: vec![TxnStatement::Update, TxnStatement::Insert, TxnStatement::Delete],
            ..Params::default()
        },
        ..base
    }
}

fn soak(base: Plan) -> Plan {
    Plan {
        workloads: list(&["oltp_read_write"]),
        threads: vec![8],
        rows: 500_000,
        // A tenth of the data.
        pool_mib: 64,
        log_mib: 512,
        seconds: 120,
        settle_ms: 0,
        kind: Some(Kind::Soak),
        params: Params { minutes: Some(60), ..Params::default() },
        ..base
    }
}

const REPLICATED: [&str; 3] = ["gtid_strict_mode=1", "log_slave_updates=1", "slave_net_timeout=10"];

fn replicated(base: Plan) -> Plan {
    Plan {
        targets: vec![arm("sluice", "Sluice", &REPLICATED)],
        threads: vec![16],
        rows: 20_000,
        pool_mib: 256,
        log_mib: 512,
        seconds: 20,
        ..base
    }
}

fn replica_lag(base: Plan) -> Plan {
    Plan {
        repetitions: 1,
        kind: Some(Kind::Lag),
        params: Params {
            replica_engines: list(&["Sluice", "InnoDB"]),
            apply_threads: vec![1, 4],
            ..Params::default()
        },
        ..replicated(base)
    }
}

fn replica_receive(base: Plan) -> Plan {
    Plan {
        kind: Some(Kind::Receive),
        params: Params { receivers: vec![0, 1, 5], ..Params::default() },
        ..replicated(base)
    }
}

fn large_rows(base: Plan) -> Plan {
    let options = [
        "max_allowed_packet=1G",
        "secure_file_priv=",
        "skip_log_bin",
        "loose_sluice_buffer_pool_size=64M",
    ];
    Plan {
        targets: vec![arm("sluice", "Sluice", &options)],
        pool_mib: 64,
        repetitions: 1,
        kind: Some(Kind::LargeRows),
        params: Params { value_mib: vec![256, 1023], ..Params::default() },
        ..base
    }
}

fn locks(base: Plan) -> Plan {
    Plan {
        threads: vec![64],
        tables: 1,
        rows: 10_000_000,
        // Small against the data, so that it is full before the UPDATE: what comes is not the pool.
        pool_mib: 128,
        seconds: 20,
        kind: Some(Kind::Locks),
        ..base
    }
}

#[cfg(test)]
mod tests {
    use super::super::presets;
    use super::super::steps::{steps, BenchStep};
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_suite_has_steps_with_names_of_their_own() {
        for name in NAMES {
            let plan = presets::plan(Some(name), false).unwrap();
            let steps = steps(&plan);
            let keys: BTreeSet<String> = steps.iter().map(|s| s.key(&plan)).collect();
            assert_eq!(keys.len(), steps.len(), "{name}");
            assert!(steps
                .iter()
                .any(|s| matches!(s, BenchStep::Point { .. } | BenchStep::Trial { .. })));
        }
    }

    #[test]
    fn reads_come_first_and_deletes_last() {
        let files = ["oltp_delete.lua", "oltp_common.lua", "oltp_read_only.lua", "bulk_insert.lua"];
        let more = ["oltp_insert.lua", "oltp_point_select.lua"];
        let found = stock_workloads(files.iter().chain(&more).map(|f| f.to_string()));
        assert_eq!(found, ["oltp_point_select", "oltp_read_only", "oltp_insert", "oltp_delete"]);
        assert_eq!(stock_workloads(std::iter::empty()).len(), 8);
    }

    #[test]
    fn alone_measurements_load_nothing_first() {
        let plan = presets::plan(Some("restart"), false).unwrap();
        assert!(steps(&plan).iter().all(|s| matches!(s, BenchStep::Trial { .. })));
        let plan = presets::plan(Some("soak"), false).unwrap();
        assert!(matches!(steps(&plan)[0], BenchStep::Load { .. }));
    }
}
