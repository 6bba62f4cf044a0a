//! Advice as text and as JSON.

use super::facts::Facts;
use super::{verdict, Advice};
use crate::Result;
use serde_json::{json, Value};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Rates that a comparison shows.
const COMPARED: [&str; 7] = [
    "commits_per_s",
    "rows_per_s",
    "log_mib_per_s",
    "pages_written_per_s",
    "doublewrite_pages_per_s",
    "log_waits_per_s",
    "free_page_waits_per_s",
];

pub fn answer(facts: &Facts, list: &[Advice]) -> Value {
    let verdicts = verdict::verdicts(facts).into_iter();
    let verdicts: Vec<Value> = verdicts
        .map(|(what, answer, why)| json!({"what": what, "answer": answer, "why": why}))
        .collect();
    let waits: Vec<Value> = facts
        .waits
        .iter()
        .map(|(event, count, seconds)| json!({"event": event, "count": count, "seconds": seconds}))
        .collect();
    json!({
        "format": 1,
        "version": facts.variables.text("version"),
        "seconds": facts.seconds,
        "advice": list.iter().map(Advice::to_json).collect::<Vec<_>>(),
        "verdicts": verdicts,
        "tables": verdict::tables(facts),
        "waits": waits,
        "probe": facts.probe.as_ref().map(|p| p.to_json()),
        "rates": {
            "commits_per_s": facts.commits_per_s(),
            "rows_per_s": facts.rate("handler_write") + facts.rate("handler_update") + facts.rate("handler_delete"),
            "log_mib_per_s": facts.rate("innodb_os_log_written") / 1048576.0,
            "pages_written_per_s": facts.rate("innodb_pages_written"),
            "doublewrite_pages_per_s": facts.rate("innodb_dblwr_pages_written"),
            "log_waits_per_s": facts.rate("innodb_log_waits"),
            "free_page_waits_per_s": facts.rate("innodb_buffer_pool_wait_free"),
        },
        "missing": facts.missing,
    })
}

pub fn print(facts: &Facts, list: &[Advice]) {
    let version = facts.variables.text("version").unwrap_or("?");
    report!(
        "{version}, sampled for {:.0} s, {:.0} commits a second",
        facts.seconds,
        facts.commits_per_s()
    );
    if list.is_empty() {
        report!("\nNothing to advise.");
    }
    for advice in list {
        report!("\n[{}] {} ({})", advice.rule, advice.title, advice.severity.name());
        report!("  evidence: {}", advice.evidence);
        report!("  expect:   {}", advice.expected);
        for change in &advice.change {
            report!("  change:   {change}");
        }
        match advice.dynamic {
            Some(true) => report!("  works at once"),
            Some(false) => report!("  needs a restart"),
            None => {}
        }
        if let Some(risk) = &advice.risk {
            report!("  risk:     {risk}");
        }
    }
    report!("\nWould this server gain?");
    for (what, answer, why) in verdict::verdicts(facts) {
        report!("  {what}: {answer} ({why})");
    }
    for table in verdict::tables(facts) {
        let text = |name: &str| table[name].as_str().unwrap_or_default().to_string();
        report!(
            "  {} ({}): Optimized Writes {}; Sluice {}",
            text("table"),
            text("engine"),
            text("optimized_writes"),
            text("sluice")
        );
    }
    if !facts.waits.is_empty() {
        report!("\nTop waits since the server's start");
        for (event, count, seconds) in &facts.waits {
            report!("  {seconds:10.1} s {count:12.0} x {event}");
        }
    }
    if !facts.missing.is_empty() {
        report!("\nNot known");
        facts.missing.iter().for_each(|what| report!("  {what}"));
    }
}

pub fn read_answer(path: &Path) -> Result<Value> {
    let text =
        fs::read_to_string(path).map_err(|e| format!("cannot read {}: {e}", path.display()))?;
    let value: Value =
        serde_json::from_str(&text).map_err(|e| format!("{}: {e}", path.display()))?;
    match value["format"] == json!(1) {
        true => Ok(value),
        false => Err(format!("{} is not an answer of `sluice advise --json`", path.display())),
    }
}

pub fn print_comparison(before: &Value, after: &Value) {
    report!("\nBefore and after");
    for name in COMPARED {
        let number = |answer: &Value| answer["rates"][name].as_f64().unwrap_or(0.0);
        let (then, now) = (number(before), number(after));
        let change = if then > 0.0 {
            format!("{:+.0} %", (now / then - 1.0) * 100.0)
        } else {
            "-".to_string()
        };
        report!("  {name:24} {then:12.1} {now:12.1} {change:>8}");
    }
    let (then, now) = (rules_of(before), rules_of(after));
    let list = |set: Vec<&String>| set.iter().map(|s| s.as_str()).collect::<Vec<_>>().join(" ");
    report!("  settled: {}", list(then.difference(&now).collect()));
    report!("  new:     {}", list(now.difference(&then).collect()));
}

fn rules_of(answer: &Value) -> BTreeSet<String> {
    let advice = answer["advice"].as_array().map(Vec::as_slice).unwrap_or_default();
    advice.iter().filter_map(|a| Some(a["rule"].as_str()?.to_string())).collect()
}
