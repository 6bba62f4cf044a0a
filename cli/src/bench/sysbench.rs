//! The command line of sysbench, and its report.

use super::plan::{Plan, ZIPFIAN};
use super::target::Target;
use super::tpcc;
use crate::db::Place;
use crate::Result;
use serde_json::{json, Value};
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

const ROWS_SCRIPT: &str = include_str!("rows.lua");
const PROBE_SCRIPT: &str = include_str!("probe.lua");
const TPCC_SCRIPT: &str = include_str!("tpcc.lua");

/// Files that sysbench reads: our script, and passwords, which must not be on its command line.
pub struct Files {
    dir: PathBuf,
}

impl Files {
    pub fn new(dir: &Path) -> Result<Files> {
        let files = Files { dir: dir.to_path_buf() };
        let scripts = [
            (files.rows(), ROWS_SCRIPT),
            (files.probe(), PROBE_SCRIPT),
            (files.tpcc(), TPCC_SCRIPT),
        ];
        for (script, text) in scripts {
            fs::write(&script, text)
                .map_err(|e| format!("cannot write {}: {e}", script.display()))?;
        }
        Ok(files)
    }

    /// A workload of sysbench: an update of one row every 10 ms.
    pub fn probe(&self) -> PathBuf {
        self.dir.join("sluice_probe.lua")
    }

    fn rows(&self) -> PathBuf {
        self.dir.join("sluice_rows.lua")
    }

    fn tpcc(&self) -> PathBuf {
        self.dir.join("sluice_tpcc.lua")
    }

    /// The script of a workload, and the options that it alone has.
    fn script(&self, plan: &Plan, workload: &str, row_bytes: u32) -> Vec<String> {
        if workload == tpcc::WORKLOAD {
            let mut words = vec![self.tpcc().display().to_string()];
            words.extend(tpcc::options(&plan.params));
            return words;
        }
        let mut words = match workload.strip_prefix("rows_") {
            None => vec![workload.to_string()],
            Some(work) => vec![
                self.rows().display().to_string(),
                format!("--work={work}"),
                format!("--row_bytes={row_bytes}"),
            ],
        };
        words.push(format!("--tables={}", plan.tables));
        words.push(format!("--table_size={}", plan.rows));
        words.push(match plan.rand_type.as_str() {
            ZIPFIAN => format!("--keys={ZIPFIAN}"),
            other => format!("--rand-type={other}"),
        });
        words
    }

    fn password_file(&self, target: &Target) -> Result<Option<PathBuf>> {
        let Some(password) = target.dsn.password()? else { return Ok(None) };
        let path = self.dir.join(format!("{}.cnf", target.spec.name));
        let _ = fs::remove_file(&path);
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        file.and_then(|mut file| writeln!(file, "mysql-password={password}"))
            .map_err(|e| format!("cannot write {}: {e}", path.display()))?;
        Ok(Some(path))
    }

    /// sysbench on a target's schema; `threads` and the rest of the options are the caller's.
    pub fn words(
        &self,
        target: &Target,
        plan: &Plan,
        workload: &str,
        row_bytes: u32,
        command: &str,
    ) -> Result<Vec<String>> {
        let mut words = vec!["sysbench".to_string()];
        if let Some(path) = self.password_file(target)? {
            words.push(format!("--config-file={}", path.display()));
        }
        words.push("--db-driver=mysql".to_string());
        words.push(format!("--mysql-user={}", target.dsn.user));
        match &target.dsn.place {
            Place::Socket(path) => words.push(format!("--mysql-socket={}", path.display())),
            Place::Tcp(host, port) => {
                words.push(format!("--mysql-host={host}"));
                words.push(format!("--mysql-port={port}"));
            }
        }
        words.push(format!("--mysql-db={}", target.schema(plan, row_bytes)));
        words.extend(self.script(plan, workload, row_bytes));
        words.push(format!("--mysql_storage_engine={}", target.spec.engine));
        words.push(format!("--db-ps-mode={}", plan.ps_mode));
        if workload == "oltp_read_only" {
            words.extend(plan.read_only_args.iter().cloned());
        }
        words.push(command.to_string());
        Ok(words)
    }
}

/// What sysbench printed.
#[derive(Debug, Default)]
pub struct Report {
    pub transactions: u64,
    pub tps: f64,
    pub queries: [u64; 4],
    pub qps: f64,
    pub errors: u64,
    pub reconnects: u64,
    pub mean_ms: f64,
    pub max_ms: f64,
    /// Upper edge in milliseconds, and how many.
    histogram: Vec<(f64, u64)>,
    pub fatal: Option<String>,
}

/// Kinds of queries in `Report::queries`.
const QUERY_KINDS: [&str; 4] = ["read", "write", "other", "total"];

impl Report {
    pub fn parse(text: &str) -> Report {
        let mut report = Report::default();
        for line in text.lines() {
            report.take(line.trim());
        }
        report
    }

    fn take(&mut self, line: &str) {
        if line.starts_with("FATAL:") {
            self.fatal.get_or_insert_with(|| line.to_string());
        }
        if let Some(bucket) = histogram_line(line) {
            self.histogram.push(bucket);
            return;
        }
        let Some((name, value)) = line.split_once(':') else { return };
        let words: Vec<&str> = value.split_whitespace().collect();
        let first = words.first().and_then(|word| word.parse::<f64>().ok()).unwrap_or(0.0);
        let rate = words.get(1).and_then(|w| w.trim_start_matches('(').parse().ok()).unwrap_or(0.0);
        match name {
            "transactions" => (self.transactions, self.tps) = (first as u64, rate),
            "queries" => self.qps = rate,
            "ignored errors" => self.errors = first as u64,
            "reconnects" => self.reconnects = first as u64,
            "avg" => self.mean_ms = first,
            "max" => self.max_ms = first,
            _ => {
                if let Some(at) = QUERY_KINDS.iter().position(|kind| *kind == name) {
                    self.queries[at] = first as u64;
                }
            }
        }
    }

    /// Latency below which `part` of the transactions stayed, as fine as sysbench's histogram.
    pub fn percentile_ms(&self, part: f64) -> Option<f64> {
        let total: u64 = self.histogram.iter().map(|(_, count)| count).sum();
        let wanted = (total as f64 * part).ceil() as u64;
        let mut seen = 0;
        let reached = self.histogram.iter().find(|(_, count)| {
            seen += count;
            seen >= wanted
        });
        reached.map(|(ms, _)| *ms)
    }

    pub fn latency(&self) -> Value {
        json!({
            "mean": self.mean_ms,
            "p50": self.percentile_ms(0.5),
            "p95": self.percentile_ms(0.95),
            "p99": self.percentile_ms(0.99),
            "p999": self.percentile_ms(0.999),
            "max": self.max_ms,
        })
    }
}

/// `       0.102 |****                  4`
fn histogram_line(line: &str) -> Option<(f64, u64)> {
    let (value, rest) = line.split_once(" |")?;
    let count = rest.trim_start_matches('*').trim();
    Some((value.trim().parse().ok()?, count.parse().ok()?))
}

/// One second: time, transactions and queries per second, the percentile that was asked for in
/// milliseconds.
/// `[ 1s ] thds: 4 tps: 10.00 qps: 20.00 (r/w/o: 0/20/0) lat (ms,95%): 0.40 err/s: 0.00 ...`
pub fn interval_line(line: &str) -> Option<[f64; 4]> {
    let (time, rest) = line.trim().strip_prefix('[')?.split_once("s ]")?;
    let after = |key: &str| -> Option<f64> {
        rest.split_once(key)?.1.split_whitespace().next()?.parse().ok()
    };
    let percentile = rest.split_once("lat (ms,")?.1.split_once("%): ")?.1;
    let percentile = percentile.split_whitespace().next()?.parse().ok();
    Some([time.trim().parse().ok()?, after(" tps: ")?, after(" qps: ")?, percentile?])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Printed by sysbench 1.0.20 on a private server.
    const RECORDED: &str = include_str!("sysbench_recorded.txt");

    #[test]
    fn a_recorded_report() {
        let report = Report::parse(RECORDED);
        assert!(report.transactions > 0 && report.tps > 0.0 && report.qps > 0.0);
        assert_eq!(report.queries[..3].iter().sum::<u64>(), report.queries[3]);
        let histogram: u64 = report.histogram.iter().map(|(_, count)| count).sum();
        assert_eq!(histogram, report.transactions);
        let [p50, p95, p99] = [0.5, 0.95, 0.99].map(|part| report.percentile_ms(part).unwrap());
        assert!(p50 <= p95 && p95 <= p99 && report.mean_ms < report.max_ms);
        let seconds: Vec<[f64; 4]> = RECORDED.lines().filter_map(interval_line).collect();
        assert_eq!(seconds.len(), 2);
        assert_eq!(seconds[0][0], 1.0);
        assert!(seconds[0][1] > 0.0);
        assert!(report.fatal.is_none());
    }

    #[test]
    fn percentiles_of_a_small_histogram() {
        let report = Report::parse("0.5 |**** 90\n 1.5 |* 9\n 9.5 | 1\n");
        assert_eq!(report.percentile_ms(0.5), Some(0.5));
        assert_eq!(report.percentile_ms(0.95), Some(1.5));
        assert_eq!(report.percentile_ms(0.999), Some(9.5));
        assert_eq!(Report::default().percentile_ms(0.5), None);
    }

    #[test]
    fn the_first_fatal_line_counts() {
        let report = Report::parse("FATAL: a\nFATAL: b\n");
        assert_eq!(report.fatal.as_deref(), Some("FATAL: a"));
    }
}
