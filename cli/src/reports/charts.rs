//! Which charts a run has.

use super::data::{device_bytes, flushes, latency, per_transaction, tps, Cell, Results};
use super::svg::{lines, stacked, Axes, Point, Series};
use crate::db::CAUSES;
use serde_json::Value;

pub fn all(results: &Results) -> Vec<String> {
    let mut charts = Vec::new();
    for (workload, row_bytes) in results.workloads() {
        charts.extend(of_workload(results, &workload, row_bytes));
    }
    charts.extend(jumps(results));
    charts.extend(simple(results, "load", "seconds", "Load", "seconds"));
    charts.extend(load_io(results));
    charts.extend(simple(results, "restart", "restart_s", "Restart after kill -9", "seconds"));
    charts.extend(simple(
        results,
        "replica",
        "behind_s",
        "Replica: seconds to catch up",
        "seconds",
    ));
    charts
}

fn of_workload(results: &Results, workload: &str, row_bytes: u64) -> Vec<String> {
    let label = results.label(workload, row_bytes);
    let by_threads = |title: &str, unit: &str, of: &dyn Fn(&Value) -> Option<f64>| {
        threads_chart(results, workload, row_bytes, &format!("{label}: {title}"), unit, of)
    };
    let mut charts = vec![
        by_threads("transactions per second", "TPS", &tps),
        by_threads("latency, 95th percentile", "ms", &latency("p95")),
        by_threads("latency, 99th percentile", "ms", &latency("p99")),
        by_threads("device flushes per transaction", "flushes", &flushes),
        by_threads("bytes to the device per transaction", "bytes", &device_bytes),
    ];
    charts.push(causes(results, workload, row_bytes, &label));
    charts.push(over_time(results, workload, row_bytes, &label, "TPS", "per_second", 1));
    charts.push(over_time(
        results,
        workload,
        row_bytes,
        &label,
        "writes per second",
        "io_per_second",
        2,
    ));
    charts.push(over_time(
        results,
        workload,
        row_bytes,
        &label,
        "reads per second",
        "io_per_second",
        1,
    ));
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

/// Bytes per transaction at the largest number of threads, by cause, up to what the device saw.
fn causes(results: &Results, workload: &str, row_bytes: u64, label: &str) -> String {
    let Some(threads) = results.threads().into_iter().max() else { return String::new() };
    let bar = |target: String| {
        let cell = Cell { target, workload: workload.to_string(), row_bytes, threads };
        let mut values: Vec<f64> = CAUSES[..CAUSES.len() - 1]
            .iter()
            .map(|cause| {
                let of = |line: &Value| per_transaction(line, &line["bytes_by_cause"][*cause]);
                results.figure(&cell, of).map_or(0.0, |f| f.median)
            })
            .collect();
        let known: f64 = values.iter().sum();
        let device = results.figure(&cell, device_bytes).map_or(0.0, |f| f.median);
        values.push((device - known).max(0.0));
        (known + device > 0.0).then_some((cell.target, values))
    };
    let bars: Vec<_> = results.targets().into_iter().filter_map(bar).collect();
    if bars.is_empty() {
        return String::new();
    }
    let title = format!("{label}: bytes written per transaction, by cause ({threads} threads)");
    stacked(&Axes { title: &title, x: "", y: "bytes", marks: &[] }, &CAUSES, &bars)
}

/// A column of a series of seconds at the largest number of threads, first repetition.
fn over_time(
    results: &Results,
    workload: &str,
    row_bytes: u64,
    label: &str,
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
    let title = format!("{label}: {what} over time ({threads} threads)");
    lines(&Axes { title: &title, x: "seconds", y: what, marks: &[] }, &series)
}

fn seconds(rows: &Value, column: usize) -> Vec<Point> {
    let rows = rows.as_array().map(Vec::as_slice).unwrap_or_default();
    let point =
        |row: &Value| Some(Point { x: row[0].as_f64()?, y: row[column].as_f64()?, spread: None });
    rows.iter().filter_map(point).collect()
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

fn simple(results: &Results, kind: &str, field: &str, title: &str, unit: &str) -> Option<String> {
    let bar = |line: &Value| {
        let mut name = super::data::text_of(&line["target"]);
        if let Some(mib) = line["mib"].as_u64() {
            name += &format!(" {mib} M");
        }
        Some((name, vec![line[field].as_f64()?]))
    };
    let bars: Vec<_> = results.of_kind(kind).filter_map(bar).collect();
    let axes = Axes { title, x: "", y: unit, marks: &[] };
    (!bars.is_empty()).then(|| stacked(&axes, &[unit], &bars))
}
