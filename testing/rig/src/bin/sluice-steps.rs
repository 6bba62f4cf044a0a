//! sluice-steps: every test, step by step, and the sum of what they report. `scripts/test` builds, and then
//! runs it.
//!
//! ONLY has names of steps; without it, all. Each step's output is kept in target/test/STEP.log. At the end
//! the steps have their times, the longest first, and each step that failed is named once more, with the lines
//! of its log that say why. The last line is
//! "N passed, N failed" or "N passed, N failed, N skipped"; the exit code is 0 only if nothing failed.

use sluice_rig::place::target_dir;
use sluice_rig::tool::checkout;
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

type TestStep = (&'static str, &'static str);

/// Name and command line. TOOLS is the directory of the programs that the build makes; SERVERS runs a test of
/// testing/server, on real servers.
const STEPS: [TestStep; 32] = [
    ("cargo-test", "cargo test --workspace --release --locked --no-fail-fast"),
    ("simulation", "cargo test --release --locked -p sluice-sim --features sim"),
    ("server", "$SERVERS server"),
    ("loader", "$SERVERS loader"),
    ("tarball", "$SERVERS tarball"),
    ("damage", "$SERVERS damage"),
    ("formats", "$SERVERS formats -- --skip keep_the_newest_format"),
    ("backup", "$SERVERS backup -- --test-threads=2"),
    ("presets", "$SERVERS presets"),
    ("volumes", "$SERVERS volumes"),
    ("mariadb_backup", "$SERVERS mariadb_backup"),
    ("types", "\"$TOOLS/sluice-diff\" types --quick"),
    ("isolation", "\"$TOOLS/sluice-isolation\" all --histories 4 --seconds 8"),
    ("binlog", "$SERVERS binlog -- --test-threads=2"),
    ("diff-cases", "\"$TOOLS/sluice-diff\" replay"),
    ("diff-2", "\"$TOOLS/sluice-diff\" run --statements 8000 --seed 2"),
    ("diff-3", "\"$TOOLS/sluice-diff\" run --statements 8000 --seed 3"),
    ("diff-4", "\"$TOOLS/sluice-diff\" run --statements 8000 --seed 4"),
    ("diff-5", "\"$TOOLS/sluice-diff\" run --statements 8000 --seed 5"),
    ("diff-6", "\"$TOOLS/sluice-diff\" run --statements 8000 --seed 6"),
    ("diff-sessions-2-1", "\"$TOOLS/sluice-diff\" run $SHORT --sessions 2 --seed 1"),
    ("diff-sessions-2-6", "\"$TOOLS/sluice-diff\" run $SHORT --sessions 2 --seed 6"),
    ("diff-sessions-3-3", "\"$TOOLS/sluice-diff\" run $SHORT --sessions 3 --seed 3"),
    ("diff-sessions-3-4", "\"$TOOLS/sluice-diff\" run $SHORT --sessions 3 --seed 4"),
    ("plans", "\"$TOOLS/sluice-plans\" --scale 0.1 --least 90"),
    ("tools", "$SERVERS tools"),
    ("advise", "$SERVERS advise"),
    ("replicas", "$SERVERS replicas -- --test-threads=2"),
    ("mtr", "scripts/mtr"),
    ("encryption", "$SERVERS encryption -- --test-threads=4"),
    ("kill9", "make --no-print-directory crash KIND=kill9 ROUNDS=\"${KILL9_ROUNDS:-5}\""),
    // Always the same seed: three finished backups, and three that are ended in other ways.
    (
        "backup-crash",
        "make --no-print-directory crash KIND=backup SEED=26 ROUNDS=\"${BACKUP_ROUNDS:-6}\"",
    ),
];

/// The other series: its packages, the plugin for it, our suite under its driver; then from the default
/// server to it on the same data directories.
const NEXT_SERIES: [TestStep; 4] = [
    ("mtr-11.8", "make --no-print-directory mtr SERVER=11.8"),
    ("online_alter", "$BUILD_NEXT && $SERVERS online_alter -- --test-threads=1"),
    ("upgrade", "$BUILD_NEXT && $SERVERS upgrade -- --test-threads=2"),
    // One directory with the binlog in the log, one without a binlog, one with the server syncing it.
    (
        "kill9-upgrade",
        "$BUILD_NEXT && \"$TOOLS/sluice-crash\" kill9 --rounds 3 --seed 1 --fresh-every 1 \
         --next-prefix .prefix-11.8",
    ),
];

/// Steps that run beside the one before them, as both wait more than they work. None of them fails because work
/// is slow, but for one test of `backup`: what takes a moment there has two seconds.
const BESIDE: [&str; 13] = [
    "loader",
    "tarball",
    "formats",
    "presets",
    "mariadb_backup",
    "types",
    "diff-3",
    "diff-5",
    "diff-sessions-2-6",
    "diff-sessions-3-4",
    "advise",
    "encryption",
    "kill9-upgrade",
];

/// In a clean root of Debian. Only by its name: `make test-deb`.
const DEB: TestStep = ("deb", "$SERVERS deb");

/// Two rounds with the binlog in the log, two without it, two with the server syncing it; always the same
/// seed.
const POWERCUT: TestStep = (
    "powercut",
    "make --no-print-directory crash KIND=powercut SEED=1 ROUNDS=\"${POWERCUT_ROUNDS:-6}\" \
     ARGS='--fresh-every 2'",
);

/// Words of the commands.
const WORDS: [(&str, &str); 3] = [
    ("SERVERS", "cargo test --workspace --release --locked --test"),
    ("SHORT", "--statements 2500 --length 60"),
    ("BUILD_NEXT", "make --no-print-directory build SERVER=11.8"),
];

/// Lines of the log of a step that failed which are shown at the end.
const REASONS_MAX: usize = 40;

/// What scripts/fetch-mariadb ends with if the mirror has no release that the plugin knows.
const NO_RELEASE: i32 = 3;

/// Steps that run at the same time, next to each other in the list.
fn together(steps: &[TestStep]) -> impl Iterator<Item = &[TestStep]> {
    steps.chunk_by(|_, next| BESIDE.contains(&next.0))
}

#[derive(Default, Debug, PartialEq)]
struct Count {
    passed: u64,
    failed: u64,
    skipped: u64,
}

/// The steps that are wanted, and what they came to.
#[derive(Default)]
struct Run {
    wanted: Vec<String>,
    ran: Vec<&'static str>,
    count: Count,
    /// Names of steps and how long they took. Steps that ran beside each other have one time.
    times: Vec<(String, Duration)>,
    /// Names of the steps that failed, and the lines of their logs that say why.
    failures: Vec<(&'static str, Vec<String>)>,
}

fn main() -> ExitCode {
    let only = std::env::var("ONLY").unwrap_or_default();
    let wanted = only.split_whitespace().filter(|name| *name != "build").map(String::from);
    let is_whole = only.trim().is_empty();
    let mut run = Run { wanted: wanted.collect(), ..Run::default() };
    if is_whole || !run.wanted.is_empty() {
        if let Err(problem) = run.all() {
            eprintln!("sluice-steps: error: {problem}");
            return ExitCode::FAILURE;
        }
    }
    println!("\n=== seconds of each step, {:.0} in all", run.seconds());
    run.times.sort_by_key(|(_, time)| std::cmp::Reverse(*time));
    for (steps, time) in &run.times {
        println!("{:6.1} {steps}", time.as_secs_f64());
    }
    for (step, lines) in &run.failures {
        println!("\n=== {step} failed, target/test/{step}.log:");
        lines.iter().for_each(|line| println!("{line}"));
    }
    let Count { passed, failed, skipped } = run.count;
    let skipped = if skipped > 0 { format!(", {skipped} skipped") } else { String::new() };
    println!("\n{passed} passed, {failed} failed{skipped}");
    match failed {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

impl Run {
    fn all(&mut self) -> Result<(), String> {
        for steps in together(&STEPS) {
            self.at_once(steps)?;
        }
        self.at_once(&[POWERCUT])?;
        if std::env::var_os("SLUICE_MARIADB_VERSION").is_none_or(|version| version.is_empty()) {
            self.next_series()?;
        }
        if !self.wanted.is_empty() {
            self.at_once(&[DEB])?;
        }
        match self.wanted.iter().find(|name| !self.ran.contains(&name.as_str())) {
            Some(name) => Err(format!("no step {name}")),
            None => Ok(()),
        }
    }

    fn seconds(&self) -> f64 {
        self.times.iter().map(|(_, time)| time.as_secs_f64()).sum()
    }

    fn is_wanted(&self, step: &TestStep) -> bool {
        self.wanted.is_empty() || self.wanted.iter().any(|name| name == step.0)
    }

    /// Distributions replace their release when they like: these steps are skipped where none can be had
    /// that the plugin knows.
    fn next_series(&mut self) -> Result<(), String> {
        if !NEXT_SERIES.iter().any(|step| self.is_wanted(step)) {
            return Ok(());
        }
        let mut fetch = Command::new("scripts/fetch-mariadb");
        fetch.current_dir(checkout()).env("SLUICE_MARIADB_VERSION", "11.8");
        fetch.env("SLUICE_PREFIX", checkout().join(".prefix-11.8"));
        let fetched = fetch.status().map_err(|error| format!("scripts/fetch-mariadb: {error}"))?;
        if fetched.code() != Some(NO_RELEASE) {
            return together(&NEXT_SERIES).try_for_each(|steps| self.at_once(steps));
        }
        let wanted: Vec<_> = NEXT_SERIES.iter().filter(|step| self.is_wanted(step)).collect();
        for (name, _) in wanted {
            println!("\n=== {name}: skipped, no release of 11.8 that the plugin knows can be had");
            self.ran.push(name);
            self.count.skipped += 1;
        }
        Ok(())
    }

    /// Runs those of the steps that are wanted, all at the same time.
    fn at_once(&mut self, steps: &[TestStep]) -> Result<(), String> {
        let of = |step: TestStep| move |error| format!("step {}: {error}", step.0);
        let mut wanted = steps.iter().copied().filter(|step| self.is_wanted(step));
        let Some(first) = wanted.next() else { return Ok(()) };
        let others: Vec<TestStep> = wanted.collect();
        let began = Instant::now();
        let started = others.iter().map(|&step| Started::new(step).map_err(of(step)));
        let started: Vec<Started> = started.collect::<Result<_, _>>()?;
        println!("\n=== {}: {}", first.0, first.1);
        let ended = run(first).map_err(of(first));
        // Also if the first could not run.
        let others: Vec<_> = started.into_iter().map(|other| (other.step, other.show())).collect();
        let names: Vec<_> =
            [first].iter().chain(others.iter().map(|(step, _)| step)).map(|step| step.0).collect();
        self.times.push((names.join(", "), began.elapsed()));
        let (is_good, log) = ended?;
        self.add(first.0, is_good, &log);
        for (step, ended) in others {
            let (is_good, log) = ended.map_err(of(step))?;
            self.add(step.0, is_good, &log);
        }
        Ok(())
    }

    fn add(&mut self, name: &'static str, is_good: bool, log: &str) {
        self.ran.push(name);
        let mut count = Count::of(log);
        if !is_good && count.failed == 0 {
            // Such as a test binary that crashed.
            println!("sluice-steps: error: step {name} failed without a failed test");
            count.failed = 1;
        }
        if count.failed > 0 {
            self.failures.push((name, reasons(log)));
        }
        self.count.passed += count.passed;
        self.count.failed += count.failed;
        self.count.skipped += count.skipped;
    }
}

/// Whether a step was successful, and its log.
type Ended = std::io::Result<(bool, String)>;

/// A step that runs beside another one; its output is shown at its end.
struct Started {
    step: TestStep,
    child: Child,
}

impl Started {
    fn new(step: TestStep) -> std::io::Result<Started> {
        Ok(Started { step, child: command(step)?.stdout(Stdio::null()).spawn()? })
    }

    fn show(mut self) -> Ended {
        let is_good = self.child.wait()?.success();
        let (name, line) = self.step;
        let log = read_log(name)?;
        println!("\n=== {name}, beside the step above: {line}\n{log}");
        Ok((is_good, log))
    }
}

/// Runs a step; its output goes to the terminal as well.
fn run(step: TestStep) -> Ended {
    let is_good = command(step)?.status()?.success();
    Ok((is_good, read_log(step.0)?))
}

/// A shell with the command line, whose output goes to the step's log and on.
fn command((name, line): TestStep) -> std::io::Result<Command> {
    let log = log_of(name);
    fs::create_dir_all(log.parent().unwrap_or(&log))?;
    let mut shell = Command::new("bash");
    shell.args(["-o", "pipefail", "-c", &format!("{{ {line}; }} 2>&1 | tee \"$0\"")]).arg(&log);
    shell.current_dir(checkout()).envs(WORDS).env("TOOLS", target_dir().join("release"));
    Ok(shell)
}

fn read_log(name: &str) -> std::io::Result<String> {
    Ok(String::from_utf8_lossy(&fs::read(log_of(name))?).into_owned())
}

fn log_of(name: &str) -> PathBuf {
    target_dir().join("test").join(format!("{name}.log"))
}

/// The lines of a step's log that say why it failed: a test's name, a panic and the line after it, our own
/// programs' errors. At most REASONS_MAX.
fn reasons(log: &str) -> Vec<String> {
    // Not the panics that the simulator waits for: they name a seed first.
    let is_panic = |line: &str| line.starts_with("thread '") && line.contains("panicked at");
    let is_reason = |line: &str| {
        let is_test = line.starts_with("test ") && line.ends_with("... FAILED");
        is_test || is_panic(line) || line.contains("[ fail ]") || line.contains("error: ")
    };
    let lines: Vec<_> = log.lines().collect();
    let is_shown = |at: usize| is_reason(lines[at]) || (at > 0 && is_panic(lines[at - 1]));
    let shown = (0..lines.len()).filter(|at| is_shown(*at)).take(REASONS_MAX);
    shown.map(|at| lines[at].into()).collect()
}

impl Count {
    /// Of all result lines of cargo's tests, and of the lines "N passed, N failed, N skipped" of our own
    /// programs.
    fn of(log: &str) -> Count {
        let mut sum = Count::default();
        for line in log.lines() {
            let words: Vec<_> = line.split_whitespace().collect();
            let figures = match words[..] {
                ["test", "result:", _, passed, "passed;", failed, "failed;", skipped, ..] => {
                    [passed, failed, skipped]
                }
                [passed, "passed,", failed, "failed"] => [passed, failed, "0"],
                [passed, "passed,", failed, "failed,", skipped, "skipped"] => {
                    [passed, failed, skipped]
                }
                _ => continue,
            };
            if let [Ok(passed), Ok(failed), Ok(skipped)] = figures.map(str::parse::<u64>) {
                sum.passed += passed;
                sum.failed += failed;
                sum.skipped += skipped;
            }
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_results_are_added_up() {
        let log = "test result: ok. 5 passed; 1 failed; 2 ignored; 0 measured; 0 filtered out\n\
                   test result_of_a_sum ... ok\n\
                   3 passed, 0 failed\nmany passed, 1 failed\n7 passed, 1 failed, 4 skipped\n";
        assert_eq!(Count::of(log), Count { passed: 15, failed: 2, skipped: 6 });
    }

    #[test]
    fn the_end_says_why_a_step_failed() {
        let log =
            "test good ... ok\ntest bad ... FAILED\nthread 'bad' panicked at a.rs:1:2:\nboom\n\
                   seed 3: main: panicked at b.rs\nmain.one [ fail ]\nsluice: error: no server\n";
        let wanted = [1, 2, 3, 5, 6].map(|at| log.lines().nth(at).expect("a line"));
        assert_eq!(reasons(log), wanted);
        assert_eq!(reasons(&"test bad ... FAILED\n".repeat(100)).len(), REASONS_MAX);
    }

    #[test]
    fn steps_that_run_at_the_same_time_are_next_to_each_other() {
        let all: Vec<_> = together(&STEPS).chain(together(&NEXT_SERIES)).collect();
        let of = |name| all.iter().find(|steps| steps[0].0 == name).map(|steps| steps.len());
        assert_eq!((of("backup"), of("mtr"), of("plans")), (Some(2), Some(2), Some(1)));
        assert_eq!((of("server"), of("isolation")), (Some(3), Some(1)));
        let is_beside = |name| all.iter().any(|steps| steps[1..].iter().any(|step| step.0 == name));
        assert!(BESIDE.iter().all(|name| is_beside(*name)));
    }

    #[test]
    fn a_step_has_one_name() {
        let names = || STEPS.iter().chain(&NEXT_SERIES).chain([&DEB, &POWERCUT]).map(|step| step.0);
        assert!(names().all(|name| names().filter(|other| *other == name).count() == 1));
    }
}
