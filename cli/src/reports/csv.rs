//! One line per measurement, for a spreadsheet.

use super::data::{device_bytes, flushes, process_bytes, text_of, write_amplification, Results};
use serde_json::Value;

const COLUMNS: [&str; 23] = [
    "kind",
    "target",
    "workload",
    "row_bytes",
    "threads",
    "repetition",
    "tps",
    "qps",
    "mean_ms",
    "p50_ms",
    "p95_ms",
    "p99_ms",
    "p999_ms",
    "server_bytes_per_txn",
    "device_bytes_per_txn",
    "write_amplification",
    "flushes_per_txn",
    "server_cpu_s",
    "size_bytes",
    "seconds",
    "errors",
    "log_bin",
    "failure",
];

pub fn table(results: &Results) -> String {
    let mut text = COLUMNS.join(",") + "\n";
    let kinds = ["load", "point", "jump", "replica", "restart"];
    for line in results.lines.iter().filter(|l| kinds.iter().any(|k| l["kind"] == *k)) {
        let values: Vec<String> =
            COLUMNS.iter().map(|column| quoted(&value(line, column))).collect();
        text += &(values.join(",") + "\n");
    }
    text
}

/// One line per figure of what is more than a sysbench point.
pub fn trials(results: &Results) -> Option<String> {
    let named = ["kind", "key", "target", "trial", "repetition", "took_s", "failure"];
    let mut text = "trial,target,repetition,key,figure,value\n".to_string();
    let mut count = 0;
    for line in results.of_kind("trial") {
        let own =
            ["trial", "target", "repetition", "key"].map(|name| quoted(&text_of(&line[name])));
        let figures = line.as_object().into_iter().flatten();
        for (name, figure) in figures.filter(|(name, _)| !named.contains(&name.as_str())) {
            if let Some(number) = figure.as_f64() {
                text += &format!("{},{name},{number}\n", own.join(","));
                count += 1;
            }
        }
    }
    (count > 0).then_some(text)
}

fn value(line: &Value, column: &str) -> String {
    let figure = |f: Option<f64>| f.map_or(String::new(), |f| format!("{f:.3}"));
    match column {
        "server_bytes_per_txn" => figure(process_bytes(line)),
        "write_amplification" => figure(write_amplification(line)),
        "device_bytes_per_txn" => figure(device_bytes(line)),
        "flushes_per_txn" => figure(flushes(line)),
        "seconds" if line["restart_s"].is_number() => figure(line["restart_s"].as_f64()),
        "seconds" if line["behind_s"].is_number() => figure(line["behind_s"].as_f64()),
        _ => {
            let latency = column.strip_suffix("_ms").map(|name| &line["latency_ms"][name]);
            match latency.unwrap_or(&line[column]) {
                Value::Null => String::new(),
                other => text_of(other),
            }
        }
    }
}

fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n']) {
        return format!("\"{}\"", text.replace('"', "\"\""));
    }
    text.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_has_all_columns() {
        let results = Results::parse(super::super::data::tests::RECORDED).unwrap();
        let text = table(&results);
        assert!(text.lines().count() > 2);
        assert!(text.lines().all(|l| l.matches(',').count() == COLUMNS.len() - 1), "{text}");
        assert!(trials(&results).is_none());
        let text = trials(&super::super::trials::tests::recorded()).unwrap();
        assert!(text.lines().any(|line| line == "restart,innodb,2,null,restart_s,5"), "{text}");
        assert_eq!(quoted("a,\"b\""), "\"a,\"\"b\"\"\"");
    }
}
