//! What was found, in sentences. The first target is what the others are compared with.

use super::data::{
    device_bytes, flushes, text_of, tps, write_amplification, Cell, Figure, Results,
};
use serde_json::Value;

/// Below this a difference is not worth a word, however often it was measured.
const SMALL: f64 = 0.05;

pub fn sentences(results: &Results) -> Vec<String> {
    let mut found = Vec::new();
    for (workload, row_bytes) in results.workloads() {
        for other in results.targets().into_iter().skip(1) {
            found.extend(compared(results, &workload, row_bytes, &other));
        }
        found.extend(amplification(results, &workload, row_bytes));
    }
    found.extend(shared_disk(results));
    found.extend(times(results, "load", "seconds", "Loading took"));
    found.extend(times(results, "restart", "restart_s", "After kill -9 the server answered in"));
    found.extend(times(results, "replica", "behind_s", "The replica caught up in"));
    for line in results.of_kind("absent") {
        found.push(format!(
            "{} was not measured: {}.",
            text_of(&line["target"]),
            text_of(&line["why"])
        ));
    }
    for line in results.failed() {
        found.push(format!("{} failed: {}.", text_of(&line["key"]), text_of(&line["failure"])));
    }
    found
}

/// One sentence over all numbers of threads.
fn compared(results: &Results, workload: &str, row_bytes: u64, other: &str) -> Option<String> {
    let first = results.targets().into_iter().next()?;
    let cell = |target: &str, threads| Cell {
        target: target.to_string(),
        workload: workload.to_string(),
        row_bytes,
        threads,
    };
    let mut parts = Vec::new();
    for threads in results.threads() {
        let (ours, theirs) = (cell(other, threads), cell(&first, threads));
        let (Some(a), Some(b)) = (results.figure(&ours, tps), results.figure(&theirs, tps)) else {
            continue;
        };
        parts.push(format!("{} at {threads}", judged(a, b)));
    }
    let count = results.config["plan"]["repetitions"].as_u64().unwrap_or(1);
    let note = match count {
        1 => {
            " One repetition: the spread is not known, so differences of some percent mean nothing."
                .to_string()
        }
        n => format!(" Medians of {n} repetitions; \"even\" where the spreads overlap."),
    };
    let label = results.label(workload, row_bytes);
    let list = parts.join(", ");
    (!parts.is_empty()).then(|| {
        format!("{label}: {other} has these TPS relative to {first}, by threads: {list}.{note}")
    })
}

fn judged(a: Figure, b: Figure) -> String {
    let ratio = a.median / b.median.max(f64::MIN_POSITIVE);
    let overlap = a.count > 1 && a.least <= b.most && b.least <= a.most;
    if overlap || (ratio - 1.0).abs() < SMALL {
        return format!("even ({ratio:.2})");
    }
    format!("{ratio:.2}")
}

fn amplification(results: &Results, workload: &str, row_bytes: u64) -> Vec<String> {
    let Some(threads) = results.threads().into_iter().max() else { return Vec::new() };
    let label = results.label(workload, row_bytes);
    let mut parts = Vec::new();
    for target in results.targets() {
        let cell = Cell { target, workload: workload.to_string(), row_bytes, threads };
        let Some(bytes) = results.figure(&cell, device_bytes) else { continue };
        let flushes = results.figure(&cell, flushes).map_or(0.0, |f| f.median);
        let times = match results.figure(&cell, write_amplification) {
            Some(f) => format!(" ({:.0} times the row)", f.median),
            None => String::new(),
        };
        let name = &cell.target;
        parts.push(format!("{name} {:.1} kB{times} and {flushes:.2} flushes", bytes.median / 1e3));
    }
    if parts.is_empty() {
        return Vec::new();
    }
    let list = parts.join("; ");
    vec![format!("{label}: per transaction at {threads} threads the device got: {list}.")]
}

/// The device's counters are of the whole disk.
fn shared_disk(results: &Results) -> Option<String> {
    let share = |line: &Value| {
        let process = line["process_written_bytes"].as_f64().filter(|n| *n > 0.0)?;
        Some(line["device"]["written_bytes"].as_f64()? / process)
    };
    let figure = Figure::of(results.of_kind("point").filter_map(share).collect())?;
    (figure.median > 1.5).then(|| {
        format!(
            "The disk got {:.1} times what the measured server wrote: the file system's own writes, \
             and those of other programs. Figures of the device are too high by what others wrote.",
            figure.median
        )
    })
}

fn times(results: &Results, kind: &str, field: &str, verb: &str) -> Option<String> {
    let part = |line: &Value| {
        let several = results.plan_list("row_bytes").len() > 1;
        let size = match (line["mib"].as_u64(), line["row_bytes"].as_u64()) {
            (Some(mib), _) => format!(" after a transaction of {mib} MiB"),
            (None, Some(bytes)) if several => format!(" with rows of {bytes} B"),
            _ => String::new(),
        };
        Some(format!("{:.1} s for {}{size}", line[field].as_f64()?, text_of(&line["target"])))
    };
    let parts: Vec<String> = results.of_kind(kind).filter_map(part).collect();
    (!parts.is_empty()).then(|| format!("{verb} {}.", parts.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlapping_spreads_are_even() {
        let figure = |values: &[f64]| Figure::of(values.to_vec()).unwrap();
        assert_eq!(
            judged(figure(&[90.0, 100.0, 120.0]), figure(&[80.0, 85.0, 95.0])),
            "even (1.18)"
        );
        assert_eq!(judged(figure(&[200.0, 210.0]), figure(&[100.0, 105.0])), "2.00");
        assert_eq!(judged(figure(&[103.0]), figure(&[100.0])), "even (1.03)");
    }

    #[test]
    fn a_recorded_run_is_described() {
        let results = Results::parse(super::super::data::tests::RECORDED).unwrap();
        let found = sentences(&results);
        assert!(found.iter().any(|s| s.contains("relative to")), "{found:?}");
        assert!(found.iter().any(|s| s.contains("flushes")), "{found:?}");
    }
}
