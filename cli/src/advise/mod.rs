//! `sluice advise`: what holds back the writes of a running server.
//!
//! 1. Nothing is changed: the server is asked SHOW and SELECT only, in a read-only transaction where
//!    tables are read; the storage is measured in a directory that the user names.
//! 2. A rule without its facts is silent, and what is missing is said.
//! 3. Advice that costs durability says what can be lost.

mod facts;
mod output;
mod rules_data;
mod rules_durable;
mod rules_host;
mod rules_log;
mod rules_pages;
mod verdict;

use crate::db::Dsn;
use crate::{signals, Result};
use clap::Args;
use facts::Facts;
use serde_json::{json, Value};
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Args)]
pub struct AdviseArgs {
    /// mysql://USER@HOST[:PORT]/[?password-file=PATH|password-env=NAME|socket=PATH|ssl-ca=PATH|...];
    /// without a password there, MYSQL_PWD holds it
    pub dsn: String,
    /// Seconds between the two samples
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..))]
    pub interval: u64,
    /// Measure the storage in this directory of the server's file system
    #[arg(long, value_name = "DIR")]
    pub probe_dir: Option<PathBuf>,
    /// Size of the file of that measurement
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u64).range(1..=4096))]
    pub probe_mib: u64,
    /// Read some rows of the largest tables to estimate what compression would save
    #[arg(long)]
    pub sample_rows: bool,
    /// Terabytes that the drive may be written in its life, for the date of wear-out
    #[arg(long, value_name = "TB")]
    pub endurance_tb: Option<f64>,
    /// One JSON object instead of text
    #[arg(long)]
    pub json: bool,
    /// Repeat until interrupted
    #[arg(long)]
    pub watch: bool,
    /// Compare with an earlier answer of --json
    #[arg(long, value_name = "FILE")]
    pub compare: Option<PathBuf>,
}

/// Exit codes besides 0, nothing to advise, and 1, an error.
const EXIT_ADVICE: u8 = 10;
const EXIT_CRITICAL: u8 = 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    Note,
    Warning,
    Critical,
}

impl Severity {
    fn name(self) -> &'static str {
        match self {
            Severity::Note => "note",
            Severity::Warning => "warning",
            Severity::Critical => "critical",
        }
    }
}

#[derive(Clone, Debug)]
pub struct Advice {
    pub rule: &'static str,
    pub severity: Severity,
    /// Orders advice of one severity: a guess at the share of write time or bytes at stake.
    pub gain: f64,
    pub title: String,
    pub evidence: String,
    /// What to expect, and under which assumption.
    pub expected: String,
    pub change: Vec<String>,
    /// Variables and values of the change, where it is one: what a program can apply.
    pub settings: Vec<(&'static str, String)>,
    /// Whether the change works without a restart, where it is one of a variable.
    pub dynamic: Option<bool>,
    pub risk: Option<String>,
}

impl Advice {
    pub fn new(rule: &'static str, severity: Severity, gain: f64, title: &str) -> Advice {
        Advice {
            rule,
            severity,
            gain,
            title: title.to_string(),
            evidence: String::new(),
            expected: String::new(),
            change: Vec::new(),
            settings: Vec::new(),
            dynamic: None,
            risk: None,
        }
    }

    pub fn because(mut self, evidence: String) -> Advice {
        self.evidence = evidence;
        self
    }

    pub fn expect(mut self, text: &str) -> Advice {
        self.expected = text.to_string();
        self
    }

    pub fn change(mut self, text: impl Into<String>) -> Advice {
        self.change.push(text.into());
        self
    }

    pub fn set(mut self, name: &'static str, value: impl ToString) -> Advice {
        self.settings.push((name, value.to_string()));
        self
    }

    pub fn dynamic(mut self, dynamic: bool) -> Advice {
        self.dynamic = Some(dynamic);
        self
    }

    pub fn risk(mut self, text: &str) -> Advice {
        self.risk = Some(text.to_string());
        self
    }

    fn to_json(&self) -> Value {
        let settings = self.settings.iter();
        let settings = settings.map(|(name, value)| (name.to_string(), json!(value)));
        json!({
            "settings": Value::Object(settings.collect()),
            "rule": self.rule, "severity": self.severity.name(), "title": self.title,
            "evidence": self.evidence, "expected": self.expected, "change": self.change,
            "dynamic": self.dynamic, "risk": self.risk,
        })
    }
}

type Rule = fn(&Facts) -> Option<Advice>;

/// Every rule, by its number in docs/advise.md.
pub fn rules() -> Vec<Rule> {
    let mut rules: Vec<Rule> = Vec::new();
    rules.extend(rules_log::RULES);
    rules.extend(rules_durable::RULES);
    rules.extend(rules_pages::RULES);
    rules.extend(rules_data::RULES);
    rules.extend(rules_host::RULES);
    rules
}

/// In order of severity and gain.
pub fn advice(facts: &Facts) -> Vec<Advice> {
    let mut list: Vec<Advice> = rules().iter().filter_map(|rule| rule(facts)).collect();
    list.sort_by(|a, b| b.severity.cmp(&a.severity).then(b.gain.total_cmp(&a.gain)));
    list
}

pub fn run(args: &AdviseArgs) -> Result<ExitCode> {
    signals::catch();
    let dsn = Dsn::parse(&args.dsn)?;
    let before = args.compare.as_deref().map(output::read_answer).transpose()?;
    loop {
        let facts = facts::gather(&dsn, args)?;
        let list = advice(&facts);
        let answer = output::answer(&facts, &list);
        if args.json {
            report!("{answer}");
        } else {
            output::print(&facts, &list);
            if let Some(before) = &before {
                output::print_comparison(before, &answer);
            }
        }
        if !args.watch || signals::stopped() {
            return Ok(match list.iter().map(|a| a.severity).max() {
                None | Some(Severity::Note) => ExitCode::SUCCESS,
                Some(Severity::Warning) => ExitCode::from(EXIT_ADVICE),
                Some(Severity::Critical) => ExitCode::from(EXIT_CRITICAL),
            });
        }
    }
}

#[cfg(test)]
mod tests;
