//! The report as Markdown.

use super::about;
use super::data::{
    cpu_us, device_bytes, flushes, latency, own_flushes, process_bytes, text_of, tps, Figure,
    Results,
};
use super::findings::{self, Verdict};
use super::svg::short;
use super::{seconds, trials};
use serde_json::Value;

const HEAD: [&str; 10] = [
    "workload",
    "threads",
    "target",
    "TPS",
    "mean ms",
    "p95 ms",
    "p99 ms",
    "server bytes/txn",
    "device bytes/txn",
    "flushes/txn",
];
/// Of results that have them.
const MORE_HEAD: [&str; 3] = ["flushes that the server counts/txn", "server CPU us/txn", "errors"];

/// TPS of each target relative to the one it is compared with, a row for each number of threads.
pub fn relative(results: &Results) -> (Vec<String>, Vec<Vec<String>>) {
    let pairs: Vec<(String, String)> = results
        .targets()
        .into_iter()
        .filter_map(|target| Some((target.clone(), findings::baseline(results, &target)?)))
        .collect();
    let mut head = vec!["workload".to_string(), "threads".to_string()];
    head.extend(pairs.iter().map(|(target, base)| format!("{target} / {base}")));
    let mut rows = Vec::new();
    for (workload, row_bytes) in results.workloads() {
        for threads in results.threads() {
            let cell = |(target, base): &(String, String)| {
                let list = findings::verdicts(results, &workload, row_bytes, target, base);
                match list.into_iter().find(|(n, _)| *n == threads) {
                    None => "-".to_string(),
                    Some((_, Verdict::Even(ratio))) => format!("even ({ratio:.2})"),
                    Some((_, Verdict::Differs(ratio) | Verdict::Single(ratio))) => {
                        format!("{ratio:.2}")
                    }
                }
            };
            let mut row = vec![results.label(&workload, row_bytes), threads.to_string()];
            row.extend(pairs.iter().map(cell));
            rows.push(row);
        }
    }
    if pairs.is_empty() || results.of_kind("point").next().is_none() {
        rows.clear();
    }
    (head, rows)
}

/// What `sluice advise` gave: settings, and what a program cannot apply.
pub fn advice(results: &Results) -> (Vec<[String; 4]>, Vec<String>) {
    let Some(line) = results.of_kind("advice").next() else { return (Vec::new(), Vec::new()) };
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let setting = |s: &Value| ["rule", "name", "before", "after"].map(|name| text_of(&s[name]));
    let settings = list(&line["applied"]).iter().map(setting).collect();
    let has_none = |a: &Value| a["settings"].as_object().is_none_or(|s| s.is_empty());
    let other = |a: &Value| {
        let (rule, title, evidence) = (&a["rule"], &a["title"], &a["evidence"]);
        format!("{} {}: {}", text_of(rule), text_of(title), text_of(evidence))
    };
    let answer = list(&line["answer"]["advice"]);
    (settings, answer.iter().filter(|a| has_none(a)).map(other).collect())
}

pub const ADVICE_HEAD: [&str; 4] = ["rule", "setting", "default", "advised"];

pub fn table<R: AsRef<[String]>>(head: &[String], rows: &[R]) -> String {
    let line = |cells: &[String]| {
        let cells: Vec<String> = cells.iter().map(|c| c.replace('|', "\\|")).collect();
        format!("| {} |\n", cells.join(" | "))
    };
    let body: String = rows.iter().map(|row| line(row.as_ref())).collect();
    format!("{}|{}\n{body}", line(head), "---|".repeat(head.len()))
}

pub fn with_spread(figure: Option<Figure>) -> String {
    match figure {
        None => "-".to_string(),
        Some(f) if f.count == 1 => short(f.median),
        Some(f) => format!("{} ({} to {})", short(f.median), short(f.least), short(f.most)),
    }
}

/// Head and rows of all points.
pub fn measured(results: &Results) -> (Vec<String>, Vec<Vec<String>>) {
    let has_more = results.of_kind("point").any(|line| line["own_flushes"].is_number());
    let median = |f: Option<Figure>| f.map_or("-".to_string(), |f| short(f.median));
    let row = |cell: super::data::Cell| {
        let mut row = vec![
            results.label(&cell.workload, cell.row_bytes),
            cell.threads.to_string(),
            cell.target.clone(),
            with_spread(results.figure(&cell, tps)),
            median(results.figure(&cell, latency("mean"))),
            with_spread(results.figure(&cell, latency("p95"))),
            median(results.figure(&cell, latency("p99"))),
            median(results.figure(&cell, process_bytes)),
            median(results.figure(&cell, device_bytes)),
            median(results.figure(&cell, flushes)),
        ];
        if has_more {
            row.push(median(results.figure(&cell, own_flushes)));
            row.push(median(results.figure(&cell, cpu_us)));
            let errors = results.points(&cell).filter_map(|line| line["errors"].as_f64());
            row.push(short(errors.sum()));
        }
        row
    };
    let more = MORE_HEAD.iter().filter(|_| has_more);
    let head = HEAD.iter().chain(more).map(|name| name.to_string()).collect();
    let is_there = |cell: &super::data::Cell| results.points(cell).next().is_some();
    let any = results.of_kind("point").next().is_some();
    // Where only some cells have points, the others are what failed.
    let cells = results.cells().into_iter().filter(|cell| any || is_there(cell));
    (head, cells.map(row).collect())
}

pub fn page(results: &Results) -> String {
    let mut text = format!("# sluice bench, {}\n\n", about::title(results));
    for paragraph in about::paragraphs(results) {
        text += &format!("{paragraph}\n\n");
    }
    text += "## Found\n\n";
    for sentence in findings::sentences(results) {
        text += &format!("- {sentence}\n");
    }
    let (settings_given, other) = advice(results);
    if !settings_given.is_empty() {
        text += "\n## Settings that sluice advise gave\n\n";
        text += &table(&ADVICE_HEAD.map(String::from), &settings_given);
    }
    if !other.is_empty() {
        text += "\nAdvice without a setting, not applied:\n\n";
        text += &other.iter().map(|line| format!("- {line}\n")).collect::<String>();
    }
    for found in trials::tables(results) {
        text += &format!("\n## {}\n\n{}\n\n", found.title, found.note);
        text += &table(&found.head, &found.rows);
    }
    let (head, rows_relative) = relative(results);
    if !rows_relative.is_empty() {
        text += &format!("\n## TPS, relative\n\n{}", table(&head, &rows_relative));
    }
    let (head, rows) = measured(results);
    if !rows.is_empty() {
        text += &format!("\n## Measured\n\n{}", table(&head, &rows));
    }
    let (head, rows) = seconds::table(results);
    if !rows.is_empty() {
        text += &format!("\n## Second by second\n\n{}\n\n{}", seconds::NOTE, table(&head, &rows));
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
        for wanted in ["## Found", "## TPS, relative", "## Measured", "| innodb |", "processors"] {
            assert!(text.contains(wanted), "{wanted} in {text}");
        }
    }
}
