//! How even the seconds of a measurement are: whether TPS breaks in, and the longest transaction.

use super::data::{latency, seconds_column, Cell, Figure, Results};
use super::svg::short;
use serde_json::Value;

/// With fewer samples a median says nothing.
const SECONDS_MIN: usize = 10;
/// Of the median: a second below it is a break.
const BREAK: f64 = 0.5;

pub const NOTE: &str =
    "TPS of each second as sysbench reports it, over all repetitions. Longest: of all \
                        transactions, in ms.";

const HEAD: [&str; 8] = [
    "workload",
    "threads",
    "target",
    "TPS, median of the seconds",
    "lowest second",
    "lowest / median",
    "seconds below half of the median",
    "longest ms",
];

struct Evenness {
    median: f64,
    lowest: f64,
    breaks: usize,
    count: usize,
}

fn evenness(seconds: Vec<f64>) -> Option<Evenness> {
    let figure = Figure::of(seconds.clone()).filter(|f| f.count >= SECONDS_MIN)?;
    let breaks = seconds.iter().filter(|tps| **tps < figure.median * BREAK).count();
    Some(Evenness { median: figure.median, lowest: figure.least, breaks, count: figure.count })
}

/// A row for each cell that was measured long enough.
pub fn table(results: &Results) -> (Vec<String>, Vec<Vec<String>>) {
    let row = |cell: Cell| {
        let of = |line: &Value| seconds_column(&line["per_second"], 1);
        let seconds = results.points(&cell).flat_map(of).map(|(_, tps)| tps).collect();
        let found = evenness(seconds)?;
        let longest = results.figure(&cell, latency("max")).map(|f| f.most);
        Some(vec![
            results.label(&cell.workload, cell.row_bytes),
            cell.threads.to_string(),
            cell.target,
            short(found.median),
            short(found.lowest),
            format!("{:.2}", found.lowest / found.median.max(f64::MIN_POSITIVE)),
            format!("{} of {}", found.breaks, found.count),
            longest.map_or("-".to_string(), short),
        ])
    };
    (HEAD.map(String::from).to_vec(), results.cells().into_iter().filter_map(row).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn breaks_are_counted() {
        let mut seconds = vec![100.0; 20];
        seconds.extend([49.0, 50.0, 0.0]);
        let found = evenness(seconds).unwrap();
        assert_eq!((found.median, found.lowest), (100.0, 0.0));
        assert_eq!((found.breaks, found.count), (2, 23));
        assert!(evenness(vec![100.0; SECONDS_MIN - 1]).is_none());
    }

    #[test]
    fn a_row_has_all_repetitions() {
        let config = json!({"kind": "config", "plan": {"targets": [{"name": "a"}], "workloads": ["w"],
            "row_bytes": [188], "threads": [4]}});
        let point = |lowest: f64, longest: f64| {
            let seconds: Vec<[f64; 4]> = (1..=6)
                .map(|s| [f64::from(s), if s == 3 { lowest } else { 80.0 }, 0.0, 0.0])
                .collect();
            json!({"kind": "point", "target": "a", "workload": "w", "row_bytes": 188, "threads": 4,
                "per_second": seconds, "latency_ms": {"max": longest}})
        };
        let lines = [config, point(20.0, 7.0), point(60.0, 9.0)].map(|line| format!("{line}\n"));
        let (head, rows) = table(&Results::parse(&lines.concat()).unwrap());
        assert_eq!(rows, [["w", "4", "a", "80", "20", "0.25", "1 of 12", "9"]]);
        assert_eq!(head.len(), rows[0].len());
    }
}
