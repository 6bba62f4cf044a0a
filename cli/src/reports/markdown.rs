//! The report as Markdown.

use super::data::{device_bytes, flushes, latency, text_of, tps, Figure, Results};
use super::findings;
use super::svg::short;
use serde_json::Value;

pub const HEAD: [&str; 8] =
    ["workload", "threads", "target", "TPS", "p95 ms", "p99 ms", "device bytes/txn", "flushes/txn"];

pub fn rows(results: &Results) -> Vec<[String; 8]> {
    let with_spread = |f: Option<Figure>| match f {
        None => "-".to_string(),
        Some(f) if f.count == 1 => short(f.median),
        Some(f) => format!("{} ({} to {})", short(f.median), short(f.least), short(f.most)),
    };
    let median = |f: Option<Figure>| f.map_or("-".to_string(), |f| short(f.median));
    let row = |cell: super::data::Cell| {
        [
            results.label(&cell.workload, cell.row_bytes),
            cell.threads.to_string(),
            cell.target.clone(),
            with_spread(results.figure(&cell, tps)),
            with_spread(results.figure(&cell, latency("p95"))),
            median(results.figure(&cell, latency("p99"))),
            median(results.figure(&cell, device_bytes)),
            median(results.figure(&cell, flushes)),
        ]
    };
    results.cells().into_iter().map(row).collect()
}

pub fn page(results: &Results) -> String {
    let plan = &results.config["plan"];
    let mut text = format!("# sluice bench: {}\n\n## Found\n\n", text_of(&plan["preset"]));
    for sentence in findings::sentences(results) {
        text += &format!("- {sentence}\n");
    }
    text += &format!("\n## Measured\n\n| {} |\n|{}\n", HEAD.join(" | "), "---|".repeat(HEAD.len()));
    for row in rows(results) {
        text += &format!("| {} |\n", row.map(|c| c.replace('|', "\\|")).join(" | "));
    }
    text += "\n## Configuration\n\n";
    for (name, value) in settings(results) {
        text += &format!("- {name}: `{value}`\n");
    }
    text
}

/// The exact configuration, the machine and each server's own account of its settings.
pub fn settings(results: &Results) -> Vec<(String, String)> {
    let mut list = Vec::new();
    let mut add = |name: String, value: &Value| {
        if !value.is_null() {
            list.push((name, text_of(value)));
        }
    };
    for part in ["plan", "environment"] {
        for (name, value) in results.config[part].as_object().into_iter().flatten() {
            add(name.clone(), value);
        }
    }
    for line in results.of_kind("storage") {
        add("storage".to_string(), &line["probe"]);
    }
    for line in results.of_kind("server") {
        add(format!("server {}", text_of(&line["target"])), &line["settings"]);
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recorded_run_as_markdown() {
        let results = Results::parse(super::super::data::tests::RECORDED).unwrap();
        let text = page(&results);
        for wanted in ["## Found", "## Measured", "| innodb |", "processors"] {
            assert!(text.contains(wanted), "{wanted} in {text}");
        }
    }
}
