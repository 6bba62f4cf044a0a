//! The figures of each measurement that is more than sysbench points: columns and charts.

use super::trials::{Column, Curve, Of, Shape};

const MIB: f64 = 1048576.0;

const fn median(label: &'static str, path: &'static str) -> Column {
    Column { label, of: Of::Median(path), divisor: 1.0 }
}

const fn last(label: &'static str, path: &'static str, divisor: f64) -> Column {
    Column { label, of: Of::Last(path), divisor }
}

/// Over all seconds of all repetitions.
const fn seconds(
    label: &'static str,
    series: &'static str,
    at: usize,
    part: f64,
    divisor: f64,
) -> Column {
    Column { label, of: Of::Seconds(series, at, part), divisor }
}

pub const SHAPES: [Shape; 10] =
    [RESTART, ROLLBACK, HELD, SOAK, LAG, RECEIVE, COLUMNS, LARGE_VALUE, LARGE_UPDATE, HOT_ROW];

const RESTART: Shape = Shape {
    name: "restart",
    title: "Restart after kill -9",
    note: "Medians. answer: from exec of the server to its first answer; empty: the same of the server with \
           nothing in it; restart: the difference. TPS back: the second in which 90 % of the TPS of before \
           were reached; - where they were not.",
    parameters: &[("change", "transaction"), ("gb", "GB"), ("when", "killed at")],
    columns: &[
        median("written s", "written_s"),
        median("answer s", "answer_s"),
        median("empty s", "empty_s"),
        median("restart s", "restart_s"),
        Column { label: "first row ms", of: Of::Median("first_row_s"), divisor: 0.001 },
        median("TPS before", "tps_before"),
        median("TPS back, second", "tps_back_s"),
        Column { label: "binlog MiB", of: Of::Median("binlog_bytes"), divisor: MIB },
    ],
    bars: &[("restart_s", "Restart: seconds beyond those of an empty server", "seconds")],
    curves: &[Curve {
        series: "tps_after",
        at: 1,
        title: "TPS after the restart",
        unit: "TPS",
        divisor: 1.0,
    }],
};

const ROLLBACK: Shape = Shape {
    name: "rollback",
    title: "ROLLBACK of a large transaction",
    note: "Medians. revert: from the answer to ROLLBACK until nothing is left to take back; first scan: right \
           after the answer; updates: a second, 2000 in one transaction, before, after the first scan, and in \
           the end.",
    parameters: &[("change", "transaction")],
    columns: &[
        median("rows", "rows"),
        median("transaction s", "transaction_s"),
        median("ROLLBACK ms", "rollback_ms"),
        median("revert s", "revert_s"),
        median("scan before s", "scan_before_s"),
        median("first scan s", "scan_first_s"),
        median("slowest scan s", "scan_slowest_s"),
        median("scan after s", "scan_after_s"),
        median("updates/s before", "updates_before"),
        median("meanwhile", "updates_during"),
        median("after", "updates_after"),
    ],
    bars: &[
        ("rollback_ms", "Until ROLLBACK answers", "ms"),
        ("revert_s", "Until all is taken back", "seconds"),
        ("scan_first_s", "First scan after ROLLBACK", "seconds"),
    ],
    curves: &[],
};

/// Of points, not of trials: the same workload period after period.
const HELD: Shape = Shape {
    name: "held",
    title: "Under an old snapshot",
    note: "'held' has a snapshot from before the first period, 'free' has none; they take turns. TPS and 95 % \
           are medians of the periods; sizes are those after the last. The store of InnoDB is its table files, \
           system and undo tablespaces, its backlog the history list.",
    parameters: &[("workload", "workload"), ("threads", "threads")],
    columns: &[
        median("TPS", "tps"),
        median("95 % below, ms", "latency_ms.p95"),
        last("store MiB", "sizes.store_bytes", MIB),
        last("log in use MiB", "sizes.log_used_bytes", MIB),
        last("log held by snapshots MiB", "sizes.pin_snapshots_bytes", MIB),
        last("log held by purge MiB", "sizes.pin_purge_bytes", MIB),
        last("versions moved", "sizes.versions_moved", 1.0),
        last("backlog", "sizes.backlog", 1.0),
    ],
    bars: &[],
    curves: &[],
};

const SOAK: Shape = Shape {
    name: "soak",
    title: "A long mixed load",
    note: "Over all seconds. The prober updates one row every 10 ms.",
    parameters: &[],
    columns: &[
        seconds("TPS median", "per_second", 1, 0.5, 1.0),
        seconds("TPS lowest 1 %", "per_second", 1, 0.01, 1.0),
        seconds("longest transaction ms: p50", "per_second", 3, 0.5, 1.0),
        seconds("p99", "per_second", 3, 0.99, 1.0),
        seconds("max", "per_second", 3, 1.0, 1.0),
        seconds("longest probe ms: p50", "probe_per_second", 1, 0.5, 1.0),
        seconds("p99", "probe_per_second", 1, 0.99, 1.0),
        seconds("max", "probe_per_second", 1, 1.0, 1.0),
        seconds("memory MiB max", "sizes_per_second", 1, 1.0, 1024.0),
        seconds("store MiB max", "sizes_per_second", 2, 1.0, MIB),
        Column {
            label: "store MiB at the end",
            of: Of::SecondsLast("sizes_per_second", 2),
            divisor: MIB,
        },
        seconds("log MiB max", "sizes_per_second", 3, 1.0, MIB),
    ],
    bars: &[],
    curves: &[
        curve("per_second", 1, "TPS", "TPS", 1.0),
        curve("per_second", 3, "Longest transaction of each second", "ms", 1.0),
        curve("probe_per_second", 1, "Longest update of the prober", "ms", 1.0),
        curve("sizes_per_second", 1, "Memory of the server", "MiB", 1024.0),
        curve("sizes_per_second", 2, "Size of the store", "MiB", MIB),
        curve("sizes_per_second", 3, "Size of the log", "MiB", MIB),
    ],
};

const fn curve(
    series: &'static str,
    at: usize,
    title: &'static str,
    unit: &'static str,
    divisor: f64,
) -> Curve {
    Curve { series, at, title, unit, divisor }
}

const LAG: Shape = Shape {
    name: "lag",
    title: "A replica that applies",
    note: "Medians. Lag is the age of the replica's GTID position on the primary.",
    parameters: &[("replica", "engine of the replica"), ("apply_threads", "threads that apply")],
    columns: &[
        median("primary TPS", "tps"),
        median("seconds to catch up", "behind_s"),
        median("replica TPS", "replica_tps"),
        median("lag at most s", "lag_most_s"),
        median("bytes the primary read", "primary_read_bytes"),
    ],
    bars: &[("behind_s", "Time to catch up after the load", "seconds")],
    curves: &[
        curve("lag", 2, "Seconds behind", "s", 1.0),
        curve("lag", 1, "Transactions behind", "transactions", 1.0),
    ],
};

const RECEIVE: Shape = Shape {
    name: "receive",
    title: "Replicas that receive and do not apply",
    note: "Medians. The bytes are those that the primary's process read from the disk.",
    parameters: &[("receivers", "replicas")],
    columns: &[
        median("primary TPS", "tps"),
        median("bytes the primary read", "primary_read_bytes"),
    ],
    bars: &[("tps", "TPS of the primary", "TPS")],
    curves: &[],
};

const COLUMNS: Shape = Shape {
    name: "columns",
    title: "A table of 900 columns",
    note: "Written, read after kill -9 and after a restart, and checked.",
    parameters: &[],
    columns: &[median("memory at most, MiB", "peak_mib")],
    bars: &[],
    curves: &[],
};

const LARGE_VALUE: Shape = Shape {
    name: "large-value",
    title: "One large value",
    note: "Random bytes in a LONGBLOB, killed after the commit. Memory: the most that the server's process ever \
           had.",
    parameters: &[("value_mib", "MiB")],
    columns: &[
        median("memory MiB before", "peak_before_mib"),
        median("after INSERT", "peak_insert_mib"),
        median("after recovery", "peak_recovery_mib"),
        median("after reading it", "peak_read_mib"),
        median("INSERT s", "insert_s"),
        median("start after kill s", "start_s"),
        median("read s", "read_s"),
    ],
    bars: &[],
    curves: &[],
};

const LARGE_UPDATE: Shape = Shape {
    name: "large-update",
    title: "One UPDATE of all rows",
    note: "Medians. Memory: of the server's process before the statement, and the most beyond that until the \
           end. Locks: by the server's own account, before the COMMIT. Others: the longest commit of a session \
           that updates another table all the time, before the transaction, during the statement, and during \
           its COMMIT.",
    parameters: &[("level", "isolation level")],
    columns: &[
        median("rows", "rows"),
        median("statement s", "statement_s"),
        median("COMMIT ms", "commit_ms"),
        median("memory MiB before", "memory_before_mib"),
        median("more at most", "memory_more_mib"),
        median("locks", "locks"),
        median("others before ms", "others_before_ms"),
        median("during statement", "others_statement_ms"),
        median("during COMMIT", "others_commit_ms"),
    ],
    bars: &[
        ("memory_more_mib", "Memory beyond that of before", "MiB"),
        ("others_commit_ms", "Longest commit of others during the COMMIT", "ms"),
    ],
    curves: &[],
};

const HOT_ROW: Shape = Shape {
    name: "hot-row",
    title: "One row that many sessions update",
    note:
        "Medians. Each statement is its own transaction; in the end the row must say how many were \
           acknowledged.",
    parameters: &[("writers", "sessions")],
    columns: &[
        median("TPS", "tps"),
        median("p50 ms", "p50_ms"),
        median("p99 ms", "p99_ms"),
        median("max ms", "max_ms"),
    ],
    bars: &[("tps", "Updates of one row", "TPS"), ("p99_ms", "99 % below", "ms")],
    curves: &[],
};
