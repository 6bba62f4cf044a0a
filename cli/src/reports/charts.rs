//! Which charts a run has.

use super::data::{
    device_bytes, flushes, latency, per_transaction, process_bytes, seconds_column, tps,
    write_amplification, Cell, Results,
};
use super::svg::{lines, stacked, Axes, Point, Series};
use super::trials;
use crate::db::CAUSES;
use serde_json::Value;

/// Headings, and the charts below them.
pub fn sections(results: &Results) -> Vec<(String, Vec<String>)> {
    let mut sections = trials::charts(results);
    sections.push(("Period by period".to_string(), trials::periods(results)));
    for (workload, row_bytes) in results.workloads() {
        let charts = of_workload(results, &workload, row_bytes);
        sections.push((results.label(&workload, row_bytes), charts));
    }
    let load = [simple(results, "load", "seconds", "Time to load"), load_io(results)];
    let restart =
        simple(results, "restart", "restart_s", "From start to the first answer, by MiB changed");
    let replica = [
        lag(results, 2, "Replica: seconds behind", "s"),
        lag(results, 1, "Replica: transactions behind", "transactions"),
        simple(results, "replica", "behind_s", "Replica: time to catch up after the load"),
    ];
    let more = [
        ("A jump in the number of threads", jumps(results).into_iter().collect::<Vec<_>>()),
        ("Load", load.into_iter().flatten().collect()),
        ("Restart after kill -9", restart.into_iter().collect()),
        ("Replica", replica.into_iter().flatten().collect()),
    ];
    sections.extend(more.map(|(name, charts)| (name.to_string(), charts)));
    sections.retain(|(_, charts)| !charts.is_empty());
    sections
}

fn of_workload(results: &Results, workload: &str, row_bytes: u64) -> Vec<String> {
    let by_threads = |title: &str, unit: &str, of: &dyn Fn(&Value) -> Option<f64>| {
        threads_chart(results, workload, row_bytes, title, unit, of)
    };
    let over = |what: &str, field: &str, column: usize| {
        over_time(results, workload, row_bytes, what, field, column)
    };
    let preset = super::data::text_of(&results.config["plan"]["preset"]);
    let mut charts = vec![by_threads("Transactions per second", "TPS", &tps)];
    if preset == "tuning" {
        charts.push(by_threads("Response time, mean", "ms", &latency("mean")));
    }
    charts.push(by_threads("Latency, 95th percentile", "ms", &latency("p95")));
    charts.push(by_threads("Latency, 99th percentile", "ms", &latency("p99")));
    if preset == "write-amplification" {
        let title = "Write amplification: bytes by the server per byte of rows changed";
        charts.push(by_threads(title, "times", &write_amplification));
    }
    charts.push(causes(results, workload, row_bytes));
    charts.push(by_threads("Bytes by the server per transaction", "bytes", &process_bytes));
    charts.push(by_threads("Device flushes per transaction", "flushes", &flushes));
    charts.push(over("TPS", "per_second", 1));
    charts.push(over("Device: writes/s", "io_per_second", 2));
    // The published charts of this one show both.
    if preset == "optimized-writes" {
        charts.push(over("Device: reads/s", "io_per_second", 1));
    }
    charts.into_iter().filter(|chart| !chart.is_empty()).collect()
}

fn threads_chart(
    results: &Results,
    workload: &str,
    row_bytes: u64,
    title: &str,
    unit: &str,
    of: &dyn Fn(&Value) -> Option<f64>,
) -> String {
    let threads = results.threads();
    let marks: Vec<f64> = threads.iter().map(|n| *n as f64).collect();
    let axes = Axes { title, x: "threads", y: unit, marks: &marks };
    let cell = |target: &str, threads| Cell {
        target: target.to_string(),
        workload: workload.to_string(),
        row_bytes,
        threads,
    };
    if let [only] = threads[..] {
        let bar = |target: String| {
            let figure = results.figure(&cell(&target, only), of)?;
            Some((target, vec![figure.median]))
        };
        let bars: Vec<_> = results.targets().into_iter().filter_map(bar).collect();
        let x = format!("{only} threads");
        let axes = Axes { x: if bars.len() > 3 { "" } else { &x }, ..axes };
        return if bars.is_empty() { String::new() } else { stacked(&axes, &[unit], &bars) };
    }
    let series = |target: String| {
        let point = |n: &u64| {
            let figure = results.figure(&cell(&target, *n), of)?;
            let spread = (figure.count > 1).then_some((figure.least, figure.most));
            Some(Point { x: *n as f64, y: figure.median, spread })
        };
        Series { points: threads.iter().filter_map(point).collect(), name: target.clone() }
    };
    let series: Vec<Series> = results.targets().into_iter().map(series).collect();
    if series.iter().all(|s| s.points.is_empty()) {
        String::new()
    } else {
        lines(&axes, &series)
    }
}

/// What the counters do not name: the server's own, and the rest of the device.
const ELSE: [&str; 2] = ["server, else", "file system, others"];

/// Bytes per transaction at the largest number of threads, by cause, up to what the device saw.
fn causes(results: &Results, workload: &str, row_bytes: u64) -> String {
    let Some(threads) = results.threads().into_iter().max() else { return String::new() };
    let bar = |target: String| {
        let cell = Cell { target, workload: workload.to_string(), row_bytes, threads };
        let median = |of: &dyn Fn(&Value) -> Option<f64>| {
            results.figure(&cell, of).map_or(0.0, |f| f.median)
        };
        let mut values: Vec<f64> = CAUSES[..CAUSES.len() - 1]
            .iter()
            .map(|cause| median(&|line| per_transaction(line, &line["bytes_by_cause"][*cause])))
            .collect();
        let known: f64 = values.iter().sum();
        let server = median(&process_bytes).max(known);
        values.push(server - known);
        values.push((median(&device_bytes) - server).max(0.0));
        (values.iter().sum::<f64>() > 0.0).then_some((cell.target, values))
    };
    let bars: Vec<_> = results.targets().into_iter().filter_map(bar).collect();
    if bars.is_empty() {
        return String::new();
    }
    let parts: Vec<&str> = CAUSES[..CAUSES.len() - 1].iter().chain(&ELSE).copied().collect();
    let title = format!("Bytes written per transaction, by cause, {threads} threads");
    stacked(&Axes { title: &title, x: "", y: "bytes", marks: &[] }, &parts, &bars)
}

/// A column of a series of seconds at the largest number of threads, first repetition.
fn over_time(
    results: &Results,
    workload: &str,
    row_bytes: u64,
    what: &str,
    field: &str,
    column: usize,
) -> String {
    let Some(threads) = results.threads().into_iter().max() else { return String::new() };
    let series = |target: String| {
        let cell = Cell { target, workload: workload.to_string(), row_bytes, threads };
        let points = results.points(&cell).next().map(|l| seconds(&l[field], column));
        Series { points: points.unwrap_or_default(), name: cell.target }
    };
    let series: Vec<Series> = results.targets().into_iter().map(series).collect();
    if series.iter().all(|s| s.points.len() < 2) {
        return String::new();
    }
    let title = format!("{what} over time, {threads} threads, first repetition");
    lines(&Axes { title: &title, x: "seconds", y: what, marks: &[] }, &series)
}

/// A column of each replica's curve.
fn lag(results: &Results, column: usize, title: &str, unit: &str) -> Option<String> {
    let name = |line: &Value| super::data::text_of(&line["target"]);
    let of = |line: &Value| Series { name: name(line), points: seconds(&line["lag"], column) };
    let series: Vec<Series> = results.of_kind("replica").map(of).collect();
    let axes = Axes { title, x: "seconds since the begin of the load", y: unit, marks: &[] };
    series.iter().any(|s| s.points.len() > 1).then(|| lines(&axes, &series))
}

fn seconds(rows: &Value, column: usize) -> Vec<Point> {
    let point = |(x, y)| Point { x, y, spread: None };
    seconds_column(rows, column).into_iter().map(point).collect()
}

fn jumps(results: &Results) -> Option<String> {
    let series: Vec<Series> = results
        .of_kind("jump")
        .map(|l| Series {
            name: super::data::text_of(&l["target"]),
            points: seconds(&l["per_second"], 1),
        })
        .collect();
    let first = results.of_kind("jump").next()?;
    let title = format!("From {} to {} threads in one run: TPS", first["from"], first["to"]);
    Some(lines(&Axes { title: &title, x: "seconds", y: "TPS", marks: &[] }, &series))
}

fn load_io(results: &Results) -> Option<String> {
    let series: Vec<Series> = results
        .of_kind("load")
        .map(|l| Series {
            name: super::data::text_of(&l["target"]),
            points: seconds(&l["io_per_second"], 2),
        })
        .collect();
    let axes = Axes {
        title: "Load: writes per second over time",
        x: "seconds",
        y: "writes/s",
        marks: &[],
    };
    series.iter().any(|s| s.points.len() > 1).then(|| lines(&axes, &series))
}

fn simple(results: &Results, kind: &str, field: &str, title: &str) -> Option<String> {
    let bar = |line: &Value| {
        let mut name = super::data::text_of(&line["target"]);
        if let Some(mib) = line["mib"].as_u64() {
            name += &format!(" {mib} M");
        }
        Some((name, vec![line[field].as_f64()?]))
    };
    let bars: Vec<_> = results.of_kind(kind).filter_map(bar).collect();
    let axes = Axes { title, x: "", y: "seconds", marks: &[] };
    (!bars.is_empty()).then(|| stacked(&axes, &["seconds"], &bars))
}
