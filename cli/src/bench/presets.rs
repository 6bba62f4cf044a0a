//! Each system's own evaluation (docs/bench.md says which), scaled to this machine by default, and
//! our own measurements (`suites`).

use super::params::Params;
use super::plan::{Plan, STOCK_ROW_BYTES};
use super::suites;
use super::target::TargetSpec;
use crate::{host, Result};

/// Evaluations that others published.
pub const PUBLISHED: [&str; 5] =
    ["optimized-writes", "enhanced-binlog", "binlog-in-redo", "write-amplification", "tuning"];

pub fn plan(preset: Option<&str>, published: bool) -> Result<Plan> {
    let base = base();
    let plan = match preset {
        None => base,
        Some("optimized-writes") => optimized_writes(base, published),
        Some("enhanced-binlog") => enhanced_binlog(base, published),
        Some("binlog-in-redo") => binlog_in_redo(base, published),
        Some("write-amplification") => write_amplification(base, published),
        Some("tuning") => tuning(base, published),
        Some(name) => match suites::plan(name, base) {
            Some(plan) => plan,
            None => {
                let names = [&PUBLISHED[..], &suites::NAMES[..]].concat();
                return Err(format!("no preset '{name}'; there are {}", names.join(", ")));
            }
        },
    };
    Ok(Plan { preset: preset.unwrap_or("custom").to_string(), ..plan })
}

/// Small enough for two processors and a few GiB: minutes, not hours.
fn base() -> Plan {
    let memory_mib = host::memory_bytes().unwrap_or(4 << 30) >> 20;
    Plan {
        preset: String::new(),
        targets: vec![arm("innodb", "InnoDB", &[]), arm("sluice", "Sluice", &[])],
        workloads: vec!["oltp_write_only".to_string()],
        threads: scaled_threads(&[1, 4, 16, 64]),
        row_bytes: vec![STOCK_ROW_BYTES],
        repetitions: 3,
        seconds: 5,
        warmup: 1,
        tables: 4,
        rows: 100_000,
        // Up to six servers run at once.
        pool_mib: (memory_mib / 32).clamp(64, 4096),
        log_mib: (memory_mib / 48).clamp(64, 4096),
        schema: String::new(),
        restart_mib: Vec::new(),
        step: None,
        replica: false,
        read_only_args: Vec::new(),
        advise: None,
        settle_ms: 500,
        ps_mode: "auto".to_string(),
        rand_type: "uniform".to_string(),
        server_options: Vec::new(),
        held: Vec::new(),
        kind: None,
        params: Params::default(),
    }
}

/// A processor of the machine stands for 32 threads: beyond, more threads only queue.
fn scaled_threads(wanted: &[u32]) -> Vec<u32> {
    let most = (host::processors() as u32 * 32).max(16);
    let mut threads: Vec<u32> = wanted.iter().map(|n| (*n).min(most)).collect();
    threads.dedup();
    threads
}

pub fn arm(name: &str, engine: &str, options: &[&str]) -> TargetSpec {
    TargetSpec::private(name, engine, options)
}

fn optimized_writes(base: Plan, published: bool) -> Plan {
    let powers: Vec<u32> = (0..=10).map(|bit| 1 << bit).collect();
    let mut targets = Vec::new();
    for (suffix, binlog) in [("", None), ("-nobinlog", Some("skip_log_bin"))] {
        let with =
            |option: Option<&'static str>| option.into_iter().chain(binlog).collect::<Vec<&str>>();
        let name = |arm: &str| format!("{arm}{suffix}");
        targets.push(arm(&name("innodb"), "InnoDB", &with(None)));
        targets.push(arm(&name("innodb-nodw"), "InnoDB", &with(Some("innodb_doublewrite=0"))));
        targets.push(arm(&name("sluice"), "Sluice", &with(None)));
        targets.push(arm(&name("myrocks"), "RocksDB", &with(None)));
    }
    let scaled = Plan {
        targets,
        threads: scaled_threads(&[1, 8, 64]),
        step: Some((1, scaled_threads(&[256])[0])),
        replica: true,
        // The data is several times the pool, so that pages are written all the time.
        pool_mib: 64,
        rows: 100_000,
        seconds: 4,
        ..base
    };
    if !published {
        return scaled;
    }
    Plan {
        threads: powers,
        tables: 250,
        rows: 33_000_000,
        repetitions: 1,
        seconds: 1200,
        step: Some((1, 256)),
        pool_mib: large_pool_mib(),
        ..scaled
    }
}

fn enhanced_binlog(base: Plan, published: bool) -> Plan {
    let published_threads = vec![25, 100, 1000, 4000];
    let scaled = Plan {
        targets: vec![
            arm("innodb", "InnoDB", &[]),
            arm("innodb-nobinlog", "InnoDB", &["skip_log_bin"]),
            arm("sluice", "Sluice", &[]),
            arm("sluice-nobinlog", "Sluice", &["skip_log_bin"]),
        ],
        threads: scaled_threads(&published_threads),
        restart_mib: vec![64, 320],
        ..base
    };
    if !published {
        return scaled;
    }
    Plan {
        threads: published_threads,
        restart_mib: vec![1024, 5120],
        repetitions: 10,
        seconds: 60,
        rows: 1_000_000,
        pool_mib: large_pool_mib(),
        ..scaled
    }
}

fn binlog_in_redo(base: Plan, published: bool) -> Plan {
    let scaled = Plan {
        targets: vec![
            arm("innodb", "InnoDB", &[]),
            arm("sluice-off", "Sluice", &["loose_sluice_persist_binlog_to_redo=0"]),
            arm("sluice-on", "Sluice", &["loose_sluice_persist_binlog_to_redo=1"]),
        ],
        workloads: ["oltp_update_non_index", "oltp_insert", "oltp_write_only"]
            .map(String::from)
            .to_vec(),
        threads: scaled_threads(&[1, 8, 64]),
        seconds: 4,
        ..base
    };
    if !published {
        return scaled;
    }
    Plan {
        threads: vec![1, 2, 4, 8, 16, 32, 64, 128, 256, 512],
        repetitions: 1,
        seconds: 60,
        rows: 1_000_000,
        pool_mib: large_pool_mib(),
        ..scaled
    }
}

fn write_amplification(base: Plan, published: bool) -> Plan {
    let scaled = Plan {
        targets: vec![
            arm("innodb", "InnoDB", &[]),
            arm("innodb-nodw", "InnoDB", &["innodb_doublewrite=0"]),
            arm("sluice", "Sluice", &[]),
            arm("sluice-zstd", "Sluice", &["loose_sluice_compression=zstd"]),
            arm("myrocks", "RocksDB", &[]),
        ],
        workloads: ["rows_insert", "rows_update_non_index", "rows_update_index"]
            .map(String::from)
            .to_vec(),
        threads: vec![24],
        row_bytes: vec![188, 512],
        tables: 2,
        rows: 150_000,
        pool_mib: 64,
        // One long measurement instead of several short ones: checkpoints and compaction of what
        // was written must fall into it.
        repetitions: 1,
        seconds: 12,
        warmup: 3,
        ..base
    };
    if !published {
        return scaled;
    }
    // 200 GB of data, a pool of 32 GB.
    Plan { tables: 8, rows: 60_000_000, pool_mib: 32 * 1024, seconds: 1800, ..scaled }
}

fn tuning(base: Plan, published: bool) -> Plan {
    // A log that is as small against the data as 128 MiB was against the published data.
    let default = [
        "innodb_io_capacity=200",
        "innodb_io_capacity_max=2000",
        "innodb_read_io_threads=4",
        "innodb_write_io_threads=4",
        if published { "innodb_log_file_size=128M" } else { "innodb_log_file_size=16M" },
    ];
    let published_settings = [
        "innodb_io_capacity=2000",
        "innodb_io_capacity_max=18000",
        "innodb_read_io_threads=8",
        "innodb_write_io_threads=8",
        if published { "innodb_log_file_size=4G" } else { "innodb_log_file_size=512M" },
    ];
    let scaled = Plan {
        targets: vec![
            arm("default", "InnoDB", &default),
            arm("advised", "InnoDB", &default),
            arm("published", "InnoDB", &published_settings),
        ],
        // Advice about the first, under load, is set on the second.
        advise: Some(("default".to_string(), "advised".to_string())),
        workloads: ["oltp_read_only", "oltp_write_only", "oltp_read_write"]
            .map(String::from)
            .to_vec(),
        threads: scaled_threads(&[16, 64]),
        tables: 20,
        rows: 25_000,
        read_only_args: vec!["--range_selects=0".to_string(), "--skip-trx=1".to_string()],
        ..base
    };
    if !published {
        return scaled;
    }
    let threads = vec![64, 128, 256, 512];
    Plan { threads, tables: 250, repetitions: 1, seconds: 1200, warmup: 2, ..scaled }
}

fn large_pool_mib() -> u64 {
    (host::memory_bytes().unwrap_or(4 << 30) >> 20) / 8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_makes_a_plan_in_both_sizes() {
        for name in PUBLISHED {
            let (small, large) =
                (plan(Some(name), false).unwrap(), plan(Some(name), true).unwrap());
            assert_eq!(small.preset, name);
            assert!(!small.targets.is_empty() && !small.workloads.is_empty());
            assert!(u64::from(small.tables) * small.rows <= u64::from(large.tables) * large.rows);
            assert!(small.seconds <= large.seconds);
        }
        assert!(plan(Some("nothing"), false).unwrap_err().contains("tuning"));
    }

    #[test]
    fn published_threads() {
        let threads = plan(Some("optimized-writes"), true).unwrap().threads;
        assert_eq!((threads.first(), threads.last(), threads.len()), (Some(&1), Some(&1024), 11));
        assert_eq!(plan(Some("enhanced-binlog"), true).unwrap().threads, [25, 100, 1000, 4000]);
    }

    /// Scripts that measured or tested something, and are gone.
    const FORMER: [&str; 24] = [
        "bench",
        "bench-commit",
        "check-licences",
        "diff",
        "diff-planted",
        "isolation",
        "kill9",
        "large-rows",
        "old-snapshot",
        "plans",
        "powercut",
        "powercut-proof",
        "presets",
        "replicas",
        "restart",
        "rollback",
        "soak",
        "sysbench-suite",
        "test-advise",
        "test-binlog",
        "test-damage",
        "test-server",
        "test-tools",
        "types",
    ];

    /// The scripts that a row of docs/bench.md replaces.
    fn scripts(row: &str) -> impl Iterator<Item = &str> {
        let cell = row.split('|').nth(1).unwrap_or_default();
        cell.split([' ', ',', ';', '`']).filter_map(|word| word.strip_prefix("scripts/"))
    }

    #[test]
    fn every_former_script_has_a_command() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let read = |path: &str| std::fs::read_to_string(root.join(path)).unwrap();
        let (page, makefile) = (read("docs/bench.md"), read("Makefile"));
        let rows: Vec<&str> = page.lines().filter(|line| scripts(line).next().is_some()).collect();
        for script in FORMER {
            assert!(rows.iter().any(|row| scripts(row).any(|s| s == script)), "{script}");
        }
        let variables =
            makefile.lines().filter(|line| line.starts_with("BENCH_")).collect::<String>();
        let variables: Vec<&str> =
            variables.split_whitespace().chain(["SECONDS", "COLD"]).collect();
        for row in rows.iter().filter(|row| row.contains("make bench PRESET=")) {
            let presets = row.split("PRESET=").nth(1).unwrap().split([' ', '`']).next().unwrap();
            for preset in presets.split(',') {
                plan(Some(preset), false).unwrap();
            }
            let is_name = |word: &&str| {
                word.len() > 1 && word.chars().all(|c| c.is_ascii_uppercase() || c == '_')
            };
            let own = row
                .split('|')
                .nth(3)
                .unwrap()
                .split([' ', ','])
                .map(|word| word.rsplit('=').next().unwrap());
            for name in own.filter(is_name).filter(|name| *name != "PRESET") {
                assert!(variables.contains(&name), "{row}: make passes no {name} on");
            }
        }
    }
}
