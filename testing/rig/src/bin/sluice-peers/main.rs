//! sluice-peers: suites of the server's own test driver, once with InnoDB and once with Sluice as the default
//! engine. `scripts/peer-suites main` runs it.
//!
//! usage: sluice-peers [--compare] [main|handler|SUITE.TEST]...
//!
//! 1. `tests` makes two copies of a suite, one for each engine.
//! 2. The driver runs each and writes the output of each test. An error does not end a test.
//! 3. `outcome` compares the two outputs of a test, names of engines and plans aside.
//! 4. plugin/mysql-test/known-failures has a line for each difference that is known:
//!    `SUITE.TEST SUM # reason; reason`. SUM is that of the difference, so another difference in the same
//!    test is new; `*` where it changes from run to run.
//!
//! `--compare` runs nothing and compares the outputs of the last run. The last line is "N passed, N failed, N
//! skipped"; known differences count as skipped.

mod outcome;
mod tests;

use outcome::Outcome;
use sluice_rig::place::{prefix, target_dir, WorkDir};
use sluice_rig::tool::checkout;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use tests::{Engine, Suite, ENGINES};

struct Known {
    sum: String,
    reasons: Vec<String>,
}

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(problem) => {
            eprintln!("sluice-peers: error: {problem}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<bool, String> {
    let (options, mut names): (Vec<_>, Vec<_>) =
        std::env::args().skip(1).partition(|arg| arg.starts_with('-'));
    if let Some(option) = options.iter().find(|option| *option != "--compare") {
        return Err(format!("{option}: only --compare and names of suites and tests"));
    }
    if names.is_empty() {
        names = tests::SUITES.iter().map(|suite| suite.name.to_owned()).collect();
    }
    let copies = target_dir().join("mtr-peers");
    let prefix = prefix(None)?.root;
    let suites = tests::chosen(&names, &prefix)?;
    if options.is_empty() {
        run_driver(&suites, &prefix, &copies)?;
    }
    let known = known(&fs::read_to_string(checkout().join(KNOWN)).map_err(|e| e.to_string())?);
    let mut sum = Sum::default();
    for (suite, tests) in &suites {
        for test in tests {
            let outcome = outcome::of(&copies, suite.name, test)?;
            sum.add(&format!("{}.{test}", suite.name), outcome, &known);
        }
    }
    Ok(sum.report())
}

const KNOWN: &str = "plugin/mysql-test/known-failures";

/// The driver's log of each engine stays beside the copies.
fn run_driver(
    suites: &[(&Suite, Vec<String>)],
    prefix: &Path,
    copies: &Path,
) -> Result<(), String> {
    let io = |error: std::io::Error| format!("{}: {error}", copies.display());
    let _ = fs::remove_dir_all(copies);
    fs::create_dir_all(copies).map_err(io)?;
    // Tests source files of other suites, beside their own.
    let stock = prefix.join("usr/share/mysql/mysql-test/suite");
    std::os::unix::fs::symlink(stock, copies.join("suite")).map_err(io)?;
    for (suite, tests) in suites {
        tests::copy(suite, tests, prefix, copies).map_err(io)?;
    }
    let work = WorkDir::in_memory("peers").map_err(io)?;
    for engine in ENGINES {
        let mut driver = Command::new(checkout().join("scripts/mtr"));
        // The second --force: go on after an error.
        driver.args(["--force", "--record", "--retry=0", "--testcase-timeout=2"]);
        driver.args(["--suite-timeout=600", "--mysqld=--innodb", "--mysqld=--partition"]);
        driver.arg(format!("--vardir={}", work.run().display()));
        driver.arg(format!("--mysqld=--default-storage-engine={}", engine.name));
        // Each engine has a limit of its own, and tests set that of InnoDB.
        driver.args(
            ["innodb", "sluice"]
                .map(|engine| format!("--mysqld=--loose-{engine}-lock-wait-timeout=3")),
        );
        // A replica would make a table of the default engine, and the server warns of its name.
        driver.arg("--mysqld=--gtid-pos-auto-engines=MyISAM");
        for (suite, tests) in suites {
            driver.args(tests.iter().map(|test| format!("{}.{test}", suite.copy_for(engine))));
        }
        driver.env("SLUICE_MTR_SUITES", copies).stdin(Stdio::null());
        let log = fs::File::create(log_of(copies, engine)).map_err(io)?;
        println!("sluice-peers: {}, log in {}", engine.name, log_of(copies, engine).display());
        // It fails if a test fails, which the comparison looks at.
        driver.stdout(log.try_clone().map_err(io)?).stderr(log).status().map_err(io)?;
    }
    Ok(())
}

fn log_of(copies: &Path, engine: &Engine) -> PathBuf {
    copies.join(format!("{}.log", engine.name))
}

/// Lines `SUITE.TEST SUM # reason; reason`. Those without a sum are not ours.
fn known(text: &str) -> BTreeMap<String, Known> {
    let mut known = BTreeMap::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (entry, reasons) = line.split_once('#').unwrap_or((line, ""));
        if let [test, sum] = entry.split_whitespace().collect::<Vec<_>>()[..] {
            let reasons = reasons.split(';').map(|reason| reason.trim().to_owned()).collect();
            known.insert(test.to_owned(), Known { sum: sum.to_owned(), reasons });
        }
    }
    known
}

#[derive(Default)]
struct Sum {
    same: usize,
    in_another_order: usize,
    not_run: usize,
    known: usize,
    new: Vec<String>,
    /// Known differences that are gone.
    gone: Vec<String>,
    reasons: BTreeMap<String, usize>,
}

impl Sum {
    fn add(&mut self, test: &str, outcome: Outcome, known: &BTreeMap<String, Known>) {
        self.in_another_order += usize::from(matches!(outcome, Outcome::Same { in_order: false }));
        match (outcome, known.get(test)) {
            (Outcome::NotRun, _) => self.not_run += 1,
            (Outcome::Same { .. }, None) => self.same += 1,
            (Outcome::Same { .. }, Some(entry)) => {
                self.same += 1;
                if entry.sum != "*" {
                    self.gone.push(test.to_owned());
                }
            }
            (Outcome::Different { sum, .. }, Some(entry)) if [&sum, "*"].contains(&&*entry.sum) => {
                self.known += 1;
                for reason in &entry.reasons {
                    *self.reasons.entry(reason.clone()).or_default() += 1;
                }
            }
            (Outcome::Different { sum, diff }, _) => {
                println!("\n=== {test} {sum}\n{diff}");
                self.new.push(format!("{test} {sum}"));
            }
        }
    }

    fn report(&self) -> bool {
        let Sum { same, in_another_order, not_run, known, new, gone, reasons } = self;
        println!("\nprint the same: {same}, {in_another_order} of them some rows in another order");
        println!("known differences: {known}; not run here: {not_run}");
        reasons.iter().for_each(|(reason, tests)| println!("  {tests:4} {reason}"));
        gone.iter().for_each(|test| println!("no difference left, strike it out: {test}"));
        new.iter().for_each(|test| println!("new difference: {test}"));
        let failed = new.len() + gone.len();
        println!("{same} passed, {failed} failed, {} skipped", known + not_run);
        failed == 0 && *same > 0
    }
}

#[cfg(test)]
mod checks {
    use super::*;

    fn count(entries: &str, outcome: Outcome) -> (usize, usize, usize, usize) {
        let mut sum = Sum::default();
        sum.add("main.x", outcome, &known(entries));
        (sum.same, sum.known, sum.new.len(), sum.gone.len())
    }

    #[test]
    fn a_difference_is_known_by_its_sum() {
        let differs = || Outcome::Different { sum: "12ab".into(), diff: String::new() };
        assert_eq!(count("main.x 12ab # FULLTEXT", differs()), (0, 1, 0, 0));
        assert_eq!(count("main.x * # FULLTEXT", differs()), (0, 1, 0, 0));
        assert_eq!(count("main.x 99ff # FULLTEXT", differs()), (0, 0, 1, 0));
        assert_eq!(count("main.y 12ab # FULLTEXT", differs()), (0, 0, 1, 0));
        assert_eq!(count("main.x # FULLTEXT", differs()), (0, 0, 1, 0));
        assert_eq!(count("main.x 12ab # FULLTEXT", Outcome::Same { in_order: true }), (1, 0, 0, 1));
        assert_eq!(count("", Outcome::Same { in_order: true }), (1, 0, 0, 0));
    }
}
