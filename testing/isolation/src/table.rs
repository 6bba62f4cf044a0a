//! The table of docs/isolation.md, made from a run.

use crate::case::Case;
use crate::compare::{differences, shows_anomaly, Pair};
use crate::level::{Engine, Level};
use crate::outcome::Timeline;
use crate::suite::CaseRun;
use std::collections::BTreeMap;
use std::fmt::Write;

const BEGIN: &str = "<!-- begin: sluice-isolation table -->\n";
const END: &str = "<!-- end: sluice-isolation table -->";

pub fn render(runs: &[CaseRun]) -> String {
    let mut groups: BTreeMap<&str, Vec<&CaseRun>> = BTreeMap::new();
    for run in runs {
        groups.entry(&run.case.group).or_default().push(run);
    }
    let mut out = String::new();
    for (group, runs) in groups {
        let _ = writeln!(out, "\n### {}\n", heading(group));
        out.push_str(
            "| case | READ UNCOMMITTED | READ COMMITTED | REPEATABLE READ | SERIALIZABLE |\n",
        );
        out.push_str("|---|---|---|---|---|\n");
        for run in &runs {
            out.push_str(&row(run));
        }
        let explained: String = runs.iter().map(|run| reasons(run.case)).collect();
        if !explained.is_empty() {
            let _ = write!(out, "\nDifferences:\n\n{explained}");
        }
    }
    out.push('\n');
    out
}

/// `2-rows-and-gaps`: Rows and gaps.
fn heading(group: &str) -> String {
    let words =
        group.trim_start_matches(|c: char| c.is_ascii_digit() || c == '-').replace('-', " ");
    let (first, rest) = words.split_at(words.len().min(1));
    first.to_uppercase() + rest
}

fn row(run: &CaseRun) -> String {
    let mut line = format!("| **{}**: {} |", run.case.name, run.case.about);
    for level in Level::ALL {
        let pair = run.pairs.iter().find(|(l, _)| *l == level).map(|(_, pair)| pair);
        let cell = pair.map_or(" ".into(), |pair| cell(run.case, level, pair));
        let _ = write!(line, " {cell} |");
    }
    line + "\n"
}

fn cell(case: &Case, level: Level, pair: &Pair) -> String {
    let [innodb, sluice] = Engine::BOTH.map(|engine| summary(case, pair.of(engine)));
    if innodb != sluice {
        return format!("InnoDB: {innodb}; Sluice: {sluice}");
    }
    match differences(case, level, pair).is_empty() {
        true => innodb,
        false => format!("{innodb} (differs)"),
    }
}

fn summary(case: &Case, timeline: &Timeline) -> String {
    let notable = timeline.iter().filter_map(|step| {
        step.outcome.summary().map(|summary| format!("{} {summary}", step.label))
    });
    let steps = notable.collect::<Vec<_>>().join(", ");
    let verdict = match case.anomaly.is_empty() {
        true => "",
        false if shows_anomaly(case, timeline) => "**possible**",
        false => "impossible",
    };
    match (verdict, steps.as_str()) {
        ("", "") => "nobody waits".into(),
        ("", steps) => steps.into(),
        (verdict, "") => verdict.into(),
        (verdict, steps) => format!("{verdict}: {steps}"),
    }
}

fn reasons(case: &Case) -> String {
    let mut out = String::new();
    for difference in &case.differences {
        let levels: Vec<&str> = difference.levels.iter().map(|level| level.name()).collect();
        let _ = write!(out, "- **{}**, {}: ", case.name, levels.join(", "));
        let steps = difference.steps.iter();
        let texts = steps.map(|(label, engine, text)| format!("{label} {engine}: {text}"));
        let mut texts: Vec<String> = texts.collect();
        if difference.victim {
            texts.push("the victim of the deadlock may be another one".into());
        }
        let _ = writeln!(out, "{}, because {}.", texts.join("; "), difference.reason);
    }
    out
}

/// The document with `table` between its marks.
pub fn replaced(document: &str, table: &str) -> Result<String, String> {
    let problem = || "docs/isolation.md has no marks for the table".to_string();
    let begin = document.find(BEGIN).ok_or_else(problem)? + BEGIN.len();
    let end = document.find(END).ok_or_else(problem)?;
    Ok(format!("{}{table}{}", &document[..begin], &document[end..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_has_a_heading() {
        assert_eq!(heading("2-rows-and-gaps"), "Rows and gaps");
        assert_eq!(heading(""), "");
    }

    #[test]
    fn only_what_is_between_the_marks_is_replaced() {
        let document = format!("before\n{BEGIN}old\n{END}\nafter\n");
        let made = replaced(&document, "new\n").unwrap();
        assert_eq!(made, format!("before\n{BEGIN}new\n{END}\nafter\n"));
        assert!(replaced("no marks", "new").is_err());
    }
}
