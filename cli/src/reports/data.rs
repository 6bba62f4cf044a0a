//! The results of a run, and medians of repetitions.

use crate::Result;
use serde_json::Value;
use std::fs;
use std::path::Path;

pub struct Results {
    pub config: Value,
    pub lines: Vec<Value>,
}

/// A figure of several repetitions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figure {
    pub median: f64,
    pub least: f64,
    pub most: f64,
    pub count: usize,
}

impl Figure {
    pub fn of(mut values: Vec<f64>) -> Option<Figure> {
        values.sort_by(f64::total_cmp);
        let count = values.len();
        let (least, most) = (*values.first()?, *values.last()?);
        let median = (values[(count - 1) / 2] + values[count / 2]) / 2.0;
        Some(Figure { median, least, most, count })
    }
}

/// What a point is of, but for its repetition.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    pub target: String,
    pub workload: String,
    pub row_bytes: u64,
    pub threads: u64,
}

impl Results {
    pub fn read(dir: &Path) -> Result<Results> {
        let path = dir.join("results.jsonl");
        let text = fs::read_to_string(&path)
            .map_err(|e| format!("cannot read {}: {e}", path.display()))?;
        Results::parse(&text).map_err(|why| format!("{}: {why}", path.display()))
    }

    /// Half a line at the end is of a run that was killed.
    pub fn parse(text: &str) -> Result<Results> {
        let whole = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
        let mut lines = Vec::new();
        for (at, line) in whole.enumerate() {
            let value: Value =
                serde_json::from_str(line).map_err(|e| format!("line {}: {e}", at + 1))?;
            lines.push(value);
        }
        if lines.first().is_none_or(|first| first["kind"] != "config") {
            return Err("the first line is not a configuration".to_string());
        }
        Ok(Results { config: lines.remove(0), lines })
    }

    pub fn of_kind<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = &'a Value> {
        self.lines.iter().filter(move |l| l["kind"] == kind && l["failure"].is_null())
    }

    pub fn failed(&self) -> impl Iterator<Item = &Value> {
        // A measurement that failed and was repeated later is not a failure.
        let done = |key: &Value| {
            self.lines.iter().any(|other| other["key"] == *key && other["failure"].is_null())
        };
        self.lines.iter().filter(move |l| !l["failure"].is_null() && !done(&l["key"]))
    }

    pub fn plan_list(&self, name: &str) -> Vec<String> {
        let values = self.config["plan"][name].as_array().cloned().unwrap_or_default();
        values.iter().map(text_of).collect()
    }

    pub fn targets(&self) -> Vec<String> {
        let targets = self.config["plan"]["targets"].as_array().cloned().unwrap_or_default();
        let names: Vec<String> = targets.iter().map(|t| text_of(&t["name"])).collect();
        let measured = |name: &String| {
            self.lines.iter().any(|l| l["target"] == **name && l["kind"] != "absent")
        };
        names.into_iter().filter(measured).collect()
    }

    /// Pairs of workload and size of rows, in the plan's order.
    pub fn workloads(&self) -> Vec<(String, u64)> {
        let sizes: Vec<u64> =
            self.plan_list("row_bytes").iter().filter_map(|s| s.parse().ok()).collect();
        let workloads = self.plan_list("workloads");
        workloads.iter().flat_map(|w| sizes.iter().map(move |s| (w.clone(), *s))).collect()
    }

    pub fn threads(&self) -> Vec<u64> {
        self.plan_list("threads").iter().filter_map(|s| s.parse().ok()).collect()
    }

    pub fn points<'a>(&'a self, cell: &'a Cell) -> impl Iterator<Item = &'a Value> {
        self.of_kind("point").filter(move |line| {
            line["target"] == *cell.target
                && line["workload"] == *cell.workload
                && line["row_bytes"] == cell.row_bytes
                && line["threads"] == cell.threads
        })
    }

    /// Over the repetitions of a cell.
    pub fn figure(&self, cell: &Cell, of: impl Fn(&Value) -> Option<f64>) -> Option<Figure> {
        Figure::of(self.points(cell).filter_map(of).collect())
    }

    pub fn cells(&self) -> Vec<Cell> {
        let mut cells = Vec::new();
        for (workload, row_bytes) in self.workloads() {
            for threads in self.threads() {
                for target in self.targets() {
                    let workload = workload.clone();
                    cells.push(Cell { target, workload, row_bytes, threads });
                }
            }
        }
        cells
    }

    /// The plan's name, with the size of rows where there are several.
    pub fn label(&self, workload: &str, row_bytes: u64) -> String {
        match self.plan_list("row_bytes").len() {
            1 => workload.to_string(),
            _ => format!("{workload}, rows of {row_bytes} B"),
        }
    }
}

pub fn text_of(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), String::from)
}

pub fn tps(line: &Value) -> Option<f64> {
    line["tps"].as_f64()
}

pub fn latency(name: &'static str) -> impl Fn(&Value) -> Option<f64> {
    move |line| line["latency_ms"][name].as_f64()
}

pub fn per_transaction(line: &Value, total: &Value) -> Option<f64> {
    let transactions = line["transactions"].as_f64().filter(|n| *n > 0.0)?;
    Some(total.as_f64()? / transactions)
}

pub fn device_bytes(line: &Value) -> Option<f64> {
    per_transaction(line, &line["device"]["written_bytes"])
}

pub fn flushes(line: &Value) -> Option<f64> {
    per_transaction(line, &line["device"]["flushes"])
}

/// Of the server's process, as the operating system counts them: no other program is in them.
pub fn process_bytes(line: &Value) -> Option<f64> {
    per_transaction(line, &line["process_written_bytes"])
}

/// Of log and binlog files, as the server counts them.
pub fn own_flushes(line: &Value) -> Option<f64> {
    per_transaction(line, &line["own_flushes"])
}

/// Processor time of the server, in microseconds.
pub fn cpu_us(line: &Value) -> Option<f64> {
    Some(per_transaction(line, &line["server_cpu_s"])? * 1e6)
}

/// Time and one column of a series.
pub fn seconds_column(rows: &Value, column: usize) -> Vec<(f64, f64)> {
    let rows = rows.as_array().map(Vec::as_slice).unwrap_or_default();
    rows.iter().filter_map(|row| Some((row[0].as_f64()?, row[column].as_f64()?))).collect()
}

/// For single-row changes: bytes written by the server, or where that is not known to its device,
/// for each byte of changed rows.
pub fn write_amplification(line: &Value) -> Option<f64> {
    let single = [
        "rows_insert",
        "rows_update_non_index",
        "rows_update_index",
        "oltp_insert",
        "oltp_update_non_index",
        "oltp_update_index",
    ];
    let row = line["row_bytes"].as_f64()?;
    single.contains(&line["workload"].as_str()?).then_some(())?;
    process_bytes(line).or_else(|| device_bytes(line)).map(|bytes| bytes / row)
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A run of `sluice bench` on a private server, shortened.
    pub const RECORDED: &str = include_str!("recorded.jsonl");

    #[test]
    fn medians_and_spreads() {
        let figure = Figure::of(vec![3.0, 1.0, 2.0, 10.0]).unwrap();
        assert_eq!(figure, Figure { median: 2.5, least: 1.0, most: 10.0, count: 4 });
        assert_eq!(Figure::of(vec![7.0]).unwrap().median, 7.0);
        assert_eq!(Figure::of(Vec::new()), None);
    }

    #[test]
    fn a_recorded_run() {
        let results = Results::parse(RECORDED).unwrap();
        let cells = results.cells();
        assert!(cells.iter().all(|cell| results.figure(cell, tps).unwrap().median > 0.0));
        let half = &RECORDED[..RECORDED.len() - 5];
        assert_eq!(Results::parse(half).unwrap().lines.len() + 1, results.lines.len());
        assert!(Results::parse("{\"kind\":\"point\"}\n").is_err());
    }
}
