//! `sluice-sim`: runs seeds, on as many cores as asked for, and says how to repeat what failed.

use sluice_sim::{find_planted, run, Bug, Options, Profile, Report};
use std::collections::VecDeque;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

const USAGE: &str =
    "usage: sluice-sim run --seeds N [--first S] [--jobs N] [--seconds N] [--trace] [--bug NAME]
           [--profile NAME] [--hashes]
       sluice-sim planted --seeds N [--jobs N] [--bug NAME]: every bug of os/bug.rs, or
                                   this one, must be found by one of the first N seeds
  --seeds N    run seeds S to S+N-1
  --first S    default 0
  --jobs N     so many seeds at a time (default: one per core)
  --seconds N  start no seed after this time
  --bug NAME   with run: plant this bug in every seed, to see how many find it
  --profile NAME  every seed is of this kind: Any, Worn, ... (testing/sim/src/profile.rs)
  --hashes     print the trace hash of every seed
  --trace      print every event (and run one seed at a time)";
const PROGRESS_EVERY: Duration = Duration::from_secs(10);
/// After so many failures nothing is learned from more of them.
const FAILURES_MAX: u64 = 20;

#[derive(Default)]
struct Args {
    seeds: u64,
    first: u64,
    jobs: usize,
    seconds: Option<u64>,
    hashes: bool,
    trace: bool,
    planted: bool,
    bug: Option<Bug>,
    profile: Option<Profile>,
}

fn bug_named(name: &str) -> Option<Bug> {
    let found = Bug::ALL.into_iter().find(|bug| name == format!("{bug:?}"));
    if found.is_none() {
        eprintln!("no bug is called {name}");
    }
    found
}

fn profile_named(name: &str) -> Option<Profile> {
    let found = Profile::ALL.into_iter().find(|profile| name == format!("{profile:?}"));
    if found.is_none() {
        eprintln!("no profile is called {name}");
    }
    found
}

fn parse(words: impl Iterator<Item = String>) -> Option<Args> {
    let mut args = Args::default();
    let mut words: VecDeque<String> = words.collect();
    let verb = words.pop_front().filter(|verb| verb == "run" || verb == "planted")?;
    args.planted = verb == "planted";
    while let Some(option) = words.pop_front() {
        match option.as_str() {
            "--trace" => args.trace = true,
            "--hashes" => args.hashes = true,
            "--seeds" => args.seeds = words.pop_front()?.parse().ok()?,
            "--first" => args.first = words.pop_front()?.parse().ok()?,
            "--jobs" => args.jobs = words.pop_front()?.parse().ok()?,
            "--bug" => args.bug = Some(bug_named(&words.pop_front()?)?),
            "--profile" => args.profile = Some(profile_named(&words.pop_front()?)?),
            "--seconds" => args.seconds = Some(words.pop_front()?.parse().ok()?),
            _ => return None,
        }
    }
    if args.jobs == 0 {
        args.jobs = std::thread::available_parallelism().map_or(1, usize::from);
    }
    if args.trace {
        args.jobs = 1;
    }
    (args.seeds > 0).then_some(args)
}

struct Progress {
    args: Args,
    next: AtomicU64,
    passed: AtomicU64,
    failed: AtomicU64,
    points: AtomicU64,
    begin: Instant,
    said: Mutex<Instant>,
}

impl Progress {
    /// The next seed to run, if there is one.
    fn take(&self) -> Option<u64> {
        let spent = self.begin.elapsed().as_secs();
        let enough = self.args.seconds.is_some_and(|seconds| spent >= seconds);
        if enough || self.failed.load(Ordering::Relaxed) >= FAILURES_MAX {
            return None;
        }
        let taken = self.next.fetch_add(1, Ordering::Relaxed);
        (taken < self.args.seeds).then_some(self.args.first + taken)
    }

    fn note(&self, seed: u64, report: &Report) {
        let count = if report.failure.is_some() { &self.failed } else { &self.passed };
        count.fetch_add(1, Ordering::Relaxed);
        self.points.fetch_add(report.points, Ordering::Relaxed);
        if self.args.hashes || self.args.seeds == 1 {
            println!("seed {seed}: trace {:016x}, {} points", report.trace_hash, report.points);
        }
        if let Some(why) = &report.failure {
            println!(
                "seed {seed} failed: {why}\n  repeat: make sim SEEDS=1 ARGS=\"--first {seed}\""
            );
        }
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        if said.elapsed() >= PROGRESS_EVERY {
            *said = Instant::now();
            println!("{} s: {}", self.begin.elapsed().as_secs(), self.summary());
        }
    }

    fn summary(&self) -> String {
        let (passed, failed) =
            (self.passed.load(Ordering::Relaxed), self.failed.load(Ordering::Relaxed));
        format!("{} of {} seeds, {failed} failed", passed + failed, self.args.seeds)
    }
}

fn main() -> ExitCode {
    let Some(args) = parse(std::env::args().skip(1)) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    if args.planted {
        return planted(&args);
    }
    let options = Options { trace: args.trace, planted: args.bug, profile: args.profile };
    let progress = Progress {
        next: AtomicU64::new(0),
        passed: AtomicU64::new(0),
        failed: AtomicU64::new(0),
        points: AtomicU64::new(0),
        begin: Instant::now(),
        said: Mutex::new(Instant::now()),
        args,
    };
    std::thread::scope(|scope| {
        for _ in 0..progress.args.jobs {
            scope.spawn(|| {
                while let Some(seed) = progress.take() {
                    progress.note(seed, &run(seed, options));
                }
            });
        }
    });
    let seconds = progress.begin.elapsed().as_secs_f64();
    let points = progress.points.load(Ordering::Relaxed);
    println!("{}: {seconds:.1} s, {points} points", progress.summary());
    let failed = progress.failed.load(Ordering::Relaxed);
    println!("{} passed, {failed} failed", progress.passed.load(Ordering::Relaxed));
    ExitCode::from(u8::from(failed > 0))
}

/// Every planted bug must be found.
fn planted(args: &Args) -> ExitCode {
    let asked = |bug: &Bug| args.bug.is_none_or(|one| one == *bug);
    let bugs: Mutex<VecDeque<Bug>> = Mutex::new(Bug::ALL.into_iter().filter(asked).collect());
    let (found, missed) = (AtomicU64::new(0), AtomicU64::new(0));
    let take = || bugs.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
    let hunt = || {
        while let Some(bug) = take() {
            match find_planted(bug, args.first, args.seeds) {
                Some((seed, why)) => {
                    let why: String = why.lines().next().unwrap_or_default().chars().collect();
                    println!("{bug:?}: found by seed {seed}: {why}");
                    found.fetch_add(1, Ordering::Relaxed);
                }
                None => {
                    println!("{bug:?}: NOT found by {} seeds", args.seeds);
                    missed.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
    };
    std::thread::scope(|scope| (0..args.jobs).for_each(|_| drop(scope.spawn(hunt))));
    let missed = missed.into_inner();
    println!("{} passed, {missed} failed", found.into_inner());
    ExitCode::from(u8::from(missed > 0))
}
