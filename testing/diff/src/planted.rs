//! `sluice-diff planted`: takes the corrections of known defects (A, D) and kinds of locks (L) out of the plugin,
//! one at a time, and sees that a test finds each. See docs/diff.md.

use sluice_rig::place;
use sluice_rig::planted;
use sluice_rig::server::Prefix;
use sluice_rig::tool::{checkout, run as ended, Ended};
use std::path::PathBuf;
use std::process::Command;

/// A random run: its seed, and within how many statements it must find the mistake.
type Random = Option<(u32, u32)>;

/// A mistake, and where it must show besides its case in `testing/diff/cases`.
struct Mistake {
    name: &'static str,
    /// In random statements of one session.
    alone: Random,
    /// Of three sessions: locks that are missing.
    sessions: Random,
    /// In the tests of testing/server/tests/planted.rs with this in their names.
    tests: Option<&'static str>,
}

const fn by_case(name: &'static str) -> Mistake {
    Mistake { name, alone: None, sessions: None, tests: None }
}

static MISTAKES: [Mistake; 11] = [
    Mistake { alone: Some((1, 20_000)), ..by_case("A1") },
    Mistake { alone: Some((1, 20_000)), ..by_case("A2") },
    by_case("A3"),
    by_case("A4"),
    by_case("A5"),
    by_case("A6"),
    Mistake { sessions: Some((2, 2000)), ..by_case("L1") },
    Mistake { sessions: Some((2, 2000)), tests: Some("do_not_hold"), ..by_case("L2") },
    Mistake { sessions: Some((2, 2000)), tests: Some("hold_no_gaps"), ..by_case("L3") },
    Mistake { tests: Some("answer"), ..by_case("D7") },
    Mistake { tests: Some("an_alter"), ..by_case("D13") },
];

struct Search {
    prefix: Prefix,
    /// Of the plugin with mistakes, which is used nowhere else.
    plugin_dir: PathBuf,
    dir: PathBuf,
    passed: u32,
    failed: u32,
}

/// Searches for the mistakes that `args` name, for all without one. Whether each was found.
pub fn run(args: &[String]) -> Result<bool, String> {
    let (mut prefix, mut dir, mut mistakes) = (None, PathBuf::new(), Vec::new());
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or(format!("{arg} needs a value"));
        match arg.as_str() {
            "--prefix" => prefix = Some(PathBuf::from(value()?)),
            "--dir" => dir = value()?.into(),
            name => {
                let mistake = MISTAKES.iter().find(|mistake| mistake.name == name);
                mistakes.push(mistake.ok_or(format!("no planted mistake {name}"))?);
            }
        }
    }
    if mistakes.is_empty() {
        mistakes.extend(&MISTAKES);
    }
    let prefix = place::prefix(prefix)?;
    let plugin_dir = planted::build(&prefix).map_err(|error| error.to_string())?;
    let mut search = Search { prefix, plugin_dir, dir, passed: 0, failed: 0 };
    mistakes.into_iter().for_each(|mistake| search.by_all(mistake));
    println!("{} passed, {} failed", search.passed, search.failed);
    Ok(search.failed == 0)
}

impl Search {
    fn by_all(&mut self, mistake: &Mistake) {
        let name = mistake.name;
        let case = format!("testing/diff/cases/{}.sql", name.to_lowercase());
        let case = checkout().join(case);
        if case.exists() {
            let script = case.display().to_string();
            self.by_difference(&format!("{name} by its case"), name, &["replay", &script]);
        }
        if let Some(random) = mistake.alone {
            self.by_random(&format!("{name} by random statements"), name, random, &[]);
        }
        if let Some(random) = mistake.sessions {
            let options = ["--sessions", "3", "--length", "60"];
            self.by_random(&format!("{name} by three sessions"), name, random, &options);
        }
        if let Some(tests) = mistake.tests {
            self.by_tests(&format!("{name} by tests on servers"), tests);
        }
    }

    fn by_random(&mut self, how: &str, name: &str, (seed, bound): (u32, u32), options: &[&str]) {
        let (seed, bound) = (seed.to_string(), bound.to_string());
        let out = place::target_dir().join("planted/diff").display().to_string();
        let run = ["run", "--seed", &seed, "--statements", &bound, "--no-shrink", "--out", &out];
        let less = ["--without", "auto-increment"];
        self.by_difference(how, name, &[&run[..], &less, options].concat());
    }

    /// The program must say that it has found a difference: by its code and one failed case.
    fn by_difference(&mut self, how: &str, name: &str, args: &[&str]) {
        let mut command = Command::new(std::env::current_exe().unwrap_or_default());
        command.args(args).args(["--planted", name]).arg("--plugin-dir").arg(&self.plugin_dir);
        command.arg("--prefix").arg(&self.prefix.root).arg("--dir").arg(&self.dir);
        let found = ended(&mut command);
        let has_failed = found.out.lines().any(|line| line.ends_with(" passed, 1 failed"));
        self.count(how, found.code == Some(1) && has_failed, &found);
    }

    /// The tests pass: the server does right after a failure, and the mistake shows where the correction
    /// is taken out.
    fn by_tests(&mut self, how: &str, filter: &str) {
        let mut command = Command::new("cargo");
        command.args(["test", "--release", "--locked", "-p", "sluice-server-tests"]);
        command.args(["--test", "planted", "--", filter]).current_dir(checkout());
        command.env("SLUICE_PREFIX", &self.prefix.root).env("SLUICE_PLANTED_DIR", &self.plugin_dir);
        let found = ended(&mut command);
        let ran = found.out.lines().filter_map(|line| line.strip_prefix("test result: ok. "));
        let has_passed = ran.into_iter().any(|rest| !rest.starts_with('0'));
        self.count(how, found.code == Some(0) && has_passed, &found);
    }

    fn count(&mut self, how: &str, is_found: bool, ended: &Ended) {
        if is_found {
            self.passed += 1;
            println!("{how}: found");
            return;
        }
        self.failed += 1;
        println!("{how}: not found (code {:?})", ended.code);
        let text = ended.text();
        let lines: Vec<_> = text.lines().collect();
        lines[lines.len().saturating_sub(30)..].iter().for_each(|line| println!("  {line}"));
    }
}
