//! Two readings of the counters, and what lies between them.

use super::tables::{self, ByTable, TableWrites};
use super::WatchArgs;
use crate::db::{bytes_by_cause, Causes, Client, Counters, Dsn, CAUSES};
use crate::host::{
    self, DeviceCounters, ProcessCounters, Storage, StorageBytes, StorageCounters, Tools,
};
use crate::Result;
use serde_json::{json, Value};
use std::time::Instant;

const STOCK_ROW_BYTES: f64 = 200.0;

pub struct Sampler {
    client: Client,
    version: String,
    page_bytes: f64,
    row_bytes: f64,
    pid: Option<u32>,
    storage: Storage,
    endurance_bytes: Option<f64>,
    /// How many tables are wanted.
    tables: Option<usize>,
    missing: Vec<String>,
    last: Reading,
}

struct Reading {
    at: Instant,
    status: Counters,
    storage: StorageCounters,
    process: Option<ProcessCounters>,
    lag_s: Option<f64>,
    tables: Option<ByTable>,
}

#[derive(Default)]
pub struct Sample {
    pub version: String,
    pub seconds: f64,
    pub rows: f64,
    pub row_bytes: f64,
    pub commits: f64,
    pub groups: f64,
    pub causes: Causes,
    pub causes_since_start: Causes,
    pub rows_since_start: f64,
    /// Of all devices below the server.
    pub device: Option<DeviceCounters>,
    pub storage: StorageBytes,
    pub process_bytes: Option<f64>,
    /// Without what the page cache rounds up.
    pub write_call_bytes: Option<f64>,
    pub cpu_s: Option<f64>,
    pub lag_s: Option<f64>,
    pub gauges: Vec<(String, f64)>,
    pub wear_out_days: Option<f64>,
    /// Most first.
    pub tables: Option<Vec<TableWrites>>,
    pub missing: Vec<String>,
}

impl Sampler {
    pub fn new(dsn: &Dsn, args: &WatchArgs) -> Result<Sampler> {
        let mut client = Client::connect(dsn)?;
        let variables = client.variables()?;
        let pid = host::process_of(&variables);
        let mut storage = match pid {
            Some(_) => Storage::below(&host::directories(&variables), &Tools::default()),
            None => Storage::default(),
        };
        let mut missing = std::mem::take(&mut storage.missing);
        if pid.is_none() {
            missing.push(
                "process, device and journal: the server is not visible on this host".to_string(),
            );
        }
        let row_bytes = match args.row_bytes {
            Some(bytes) => bytes,
            None => mean_row_bytes(&mut client).unwrap_or_else(|| {
                missing.push(format!("size of rows: {STOCK_ROW_BYTES} bytes are assumed"));
                STOCK_ROW_BYTES
            }),
        };
        let mut sampler = Sampler {
            version: variables.text("version").unwrap_or("?").to_string(),
            page_bytes: variables.number("innodb_page_size").unwrap_or(16384.0),
            row_bytes,
            pid,
            storage,
            endurance_bytes: args.endurance_tb.map(|tb| tb * 1e12),
            tables: args.tables,
            missing,
            last: Reading {
                at: Instant::now(),
                status: Counters::default(),
                storage: StorageCounters::default(),
                process: None,
                lag_s: None,
                tables: None,
            },
            client,
        };
        sampler.look_for_tables();
        sampler.last = sampler.read()?;
        if !sampler.last.status.has("binlog_bytes_written") {
            sampler
                .missing
                .push("bytes of the binlog: this server does not count them".to_string());
        }
        if sampler.pid.is_some() && sampler.last.process.is_none_or(|p| p.written_bytes.is_none()) {
            sampler.missing.push("bytes of the process: no right to read /proc/PID/io".to_string());
        }
        Ok(sampler)
    }

    /// Figures that no sample will have, and why.
    pub fn missing(&self) -> &[String] {
        &self.missing
    }

    fn look_for_tables(&mut self) {
        if let (Some(_), Err(error)) = (self.tables, tables::read(&mut self.client)) {
            self.tables = None;
            self.missing.push(format!("bytes by table: {error}"));
        }
    }

    fn read(&mut self) -> Result<Reading> {
        let replica = self.client.rows("SHOW SLAVE STATUS").unwrap_or_default();
        let lag = replica.first().and_then(|row| row.get("seconds_behind_master")?.parse().ok());
        Ok(Reading {
            at: Instant::now(),
            status: self.client.status()?,
            storage: self.storage.read(),
            process: self.pid.and_then(ProcessCounters::read),
            lag_s: lag,
            tables: self.tables.map(|_| tables::read(&mut self.client)).transpose()?,
        })
    }

    pub fn sample(&mut self) -> Result<Sample> {
        let now = self.read()?;
        if now.status.count("uptime") < self.last.status.count("uptime") {
            return Err("the server was restarted".to_string());
        }
        let sample = self.between(&self.last, &now);
        self.last = now;
        Ok(sample)
    }

    fn between(&self, then: &Reading, now: &Reading) -> Sample {
        let seconds = now.at.duration_since(then.at).as_secs_f64().max(0.001);
        let (total, before) = (
            bytes_by_cause(&now.status, self.page_bytes),
            bytes_by_cause(&then.status, self.page_bytes),
        );
        let mut causes = Causes::default();
        for (cause, (now, then)) in causes.iter_mut().zip(total.iter().zip(before)) {
            *cause = (now - then).max(0.0);
        }
        let storage = self.storage.between(&then.storage, &now.storage);
        let device = storage.device();
        let process = now.process.zip(then.process);
        let less = |now: Option<u64>, then: Option<u64>| Some(now?.saturating_sub(then?) as f64);
        let grown = |name: &str| now.status.since(&then.status, name);
        let commits = match grown("binlog_commits") {
            n if n > 0.0 => n,
            _ => grown("com_commit"),
        };
        let worn = device.zip(self.endurance_bytes).filter(|(d, _)| d.written_bytes > 0);
        Sample {
            version: self.version.clone(),
            seconds,
            rows: rows_changed(&now.status) - rows_changed(&then.status),
            row_bytes: self.row_bytes,
            commits,
            groups: grown("binlog_group_commits"),
            causes,
            causes_since_start: total,
            rows_since_start: rows_changed(&now.status),
            device,
            storage,
            process_bytes: process
                .and_then(|(now, then)| less(now.written_bytes, then.written_bytes)),
            write_call_bytes: process
                .and_then(|(now, then)| less(now.write_call_bytes, then.write_call_bytes)),
            cpu_s: process.map(|(now, then)| now.cpu_s - then.cpu_s),
            lag_s: now.lag_s,
            gauges: gauges(&now.status),
            tables: self.tables.zip(then.tables.as_ref().zip(now.tables.as_ref())).map(
                |(most, (then, now))| {
                    let mut tables = tables::between(then, now);
                    tables.truncate(most);
                    tables
                },
            ),
            wear_out_days: worn
                .map(|(d, endurance)| endurance / (d.written_bytes as f64 / seconds) / 86_400.0),
            missing: self.missing.clone(),
        }
    }
}

impl Sample {
    pub fn server_bytes(&self) -> f64 {
        self.causes.iter().sum()
    }

    /// What the device got beyond the server's own account; other programs are in it.
    pub fn beyond_bytes(&self) -> Option<f64> {
        Some((self.device?.written_bytes as f64 - self.server_bytes()).max(0.0))
    }

    /// The share of what the process wrote that the server's counters name.
    pub fn named_share(&self) -> Option<f64> {
        self.process_bytes.filter(|bytes| *bytes > 0.0).map(|bytes| self.server_bytes() / bytes)
    }

    /// Bytes of the device, or else of the server's own account, per byte of rows.
    pub fn amplification(&self) -> Option<f64> {
        let changed = self.rows * self.row_bytes;
        let written = self.device.map_or(self.server_bytes(), |d| d.written_bytes as f64);
        (changed > 0.0).then(|| written / changed)
    }

    pub fn amplification_since_start(&self) -> Option<f64> {
        let changed = self.rows_since_start * self.row_bytes;
        (changed > 0.0).then(|| self.causes_since_start.iter().sum::<f64>() / changed)
    }

    pub fn flushes_per_commit(&self) -> Option<f64> {
        let flushes = self.device?.flushes as f64;
        (self.commits > 0.0).then(|| flushes / self.commits)
    }

    pub fn group_size(&self) -> Option<f64> {
        (self.groups > 0.0).then(|| self.commits / self.groups)
    }

    pub fn to_json(&self) -> Value {
        let named = |causes: &Causes| -> Value {
            let pairs =
                CAUSES.iter().zip(causes).map(|(name, bytes)| (name.to_string(), json!(bytes)));
            Value::Object(pairs.collect())
        };
        json!({
            "seconds": self.seconds, "rows": self.rows, "row_bytes": self.row_bytes,
            "commits": self.commits, "group_size": self.group_size(),
            "bytes_by_cause": named(&self.causes),
            "bytes_by_cause_since_start": named(&self.causes_since_start),
            "beyond_bytes": self.beyond_bytes(), "process_bytes": self.process_bytes,
            "write_call_bytes": self.write_call_bytes, "named_share": self.named_share(),
            "device_bytes": self.device.map(|d| d.written_bytes),
            "device_flushes": self.device.map(|d| d.flushes),
            "discarded_bytes": self.device.and_then(|d| d.discarded_bytes),
            "journal_bytes": self.storage.journal().map(|journal| journal.bytes),
            "storage": self.storage.to_json(),
            "flushes_per_commit": self.flushes_per_commit(),
            "write_amplification": self.amplification(),
            "write_amplification_since_start": self.amplification_since_start(),
            "cpu_s": self.cpu_s, "replica_lag_s": self.lag_s, "wear_out_days": self.wear_out_days,
            "gauges": self.gauges.iter().map(|(n, v)| (n.clone(), json!(v))).collect::<serde_json::Map<_, _>>(),
            "tables": self.tables.as_ref().map(|t| t.iter().map(TableWrites::to_json).collect::<Vec<_>>()),
            "missing": self.missing,
        })
    }
}

/// Rows changed in all engines. MariaDB counts rows of temporary tables apart, as Handler_tmp_*;
/// MySQL counts them here.
fn rows_changed(status: &Counters) -> f64 {
    ["handler_write", "handler_update", "handler_delete"].iter().map(|n| status.count(n)).sum()
}

/// State of logs and garbage collection, as far as the engines tell.
fn gauges(status: &Counters) -> Vec<(String, f64)> {
    let names = [
        "innodb_checkpoint_age",
        "innodb_checkpoint_max_age",
        "innodb_history_list_length",
        "innodb_buffer_pool_pages_dirty",
        "sluice_log_redo_bytes",
        "sluice_store_live_bytes",
        "sluice_store_dead_bytes",
        "sluice_store_free_bytes",
        "sluice_store_hole_bytes",
        "sluice_buffer_pool_pages_dirty",
        "sluice_purge_backlog",
        "sluice_revert_backlog",
        "threads_running",
    ];
    names.iter().filter_map(|name| Some((name.to_string(), status.number(name)?))).collect()
}

fn mean_row_bytes(client: &mut Client) -> Option<f64> {
    let sql =
        "SELECT SUM(data_length) / SUM(table_rows) AS n FROM information_schema.tables WHERE \
               table_type = 'BASE TABLE' AND table_rows > 0 AND table_schema NOT IN ('mysql', \
               'information_schema', 'performance_schema', 'sys')";
    client.value(sql).ok()??.parse().ok().filter(|n: &f64| *n > 0.0)
}

#[cfg(test)]
pub mod tests {
    use super::*;

    pub fn sample() -> Sample {
        Sample {
            version: "10.11.18-MariaDB".to_string(),
            seconds: 1.0,
            rows: 1000.0,
            row_bytes: 200.0,
            commits: 500.0,
            groups: 100.0,
            causes: [1e6, 2e6, 3e6, 4e6, 0.0, 0.0],
            causes_since_start: [1e6, 2e6, 3e6, 4e6, 0.0, 0.0],
            rows_since_start: 2000.0,
            device: Some(DeviceCounters {
                written_bytes: 12_000_000,
                flushes: 200,
                ..DeviceCounters::default()
            }),
            ..Sample::default()
        }
    }

    #[test]
    fn ratios() {
        let mut sample = sample();
        assert_eq!(sample.server_bytes(), 1e7);
        assert_eq!(sample.beyond_bytes(), Some(2e6));
        assert_eq!(sample.amplification(), Some(60.0));
        assert_eq!(sample.amplification_since_start(), Some(25.0));
        assert_eq!(sample.flushes_per_commit(), Some(0.4));
        assert_eq!(sample.group_size(), Some(5.0));
        sample.device = None;
        assert_eq!(sample.amplification(), Some(50.0), "the server's own account");
        assert_eq!((sample.beyond_bytes(), sample.flushes_per_commit()), (None, None));
        sample.rows = 0.0;
        assert_eq!(sample.amplification(), None);
    }

    #[test]
    fn rows_of_temporary_tables_are_not_taken_off_again() {
        let status = Counters::parse("Handler_write 10\nHandler_tmp_write 40\nHandler_update 3\n");
        assert_eq!(rows_changed(&status), 13.0);
    }
}
