//! sluice-diff: the same random statements on Sluice and InnoDB in one server, everything that the
//! client sees compared. See docs/diff.md.

mod alone;
mod args;
mod books;
mod case;
mod chance;
mod claims;
mod compare;
mod concurrent;
mod ddl;
mod dml;
mod each_type;
mod exprs;
mod gen;
mod load;
mod mistakes;
mod orders;
mod pairs;
mod plans;
mod planted;
mod programs;
mod queries;
mod rules;
mod run;
mod schema;
mod script;
mod session;
mod settings;
mod shrink;
mod types;
mod verify;
mod waits;
mod world;

use args::Options;
use case::Case;
use compare::Difference;
use rules::Counts;
use script::ScriptStep;
use sluice_rig::place::{self, WorkDir};
use sluice_rig::rng::Rng;
use std::collections::BTreeMap;
use std::io;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use world::World;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let done = place::with_dir(args, || WorkDir::in_memory("diff"))
        .map_err(|error| error.to_string())
        .and_then(|(args, work)| {
            let (is_same, keeps) = obey(args)?;
            if let Some(work) = work.filter(|_| keeps) {
                println!("kept {}", work.keep().map_err(|error| error.to_string())?.display());
            }
            Ok(is_same)
        });
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(problem) => {
            eprintln!("sluice-diff: error: {problem}");
            ExitCode::from(2)
        }
    }
}

/// Whether all was the same, and whether the directory is to be kept.
fn obey(args: Vec<String>) -> Result<(bool, bool), String> {
    match args.first().map(String::as_str) {
        Some("types") => return each_type::run(args.into_iter().skip(1)),
        Some("planted") => return planted::run(&args[1..]).map(|are_found| (are_found, false)),
        _ => {}
    }
    let options = args::parse(args.into_iter()).map_err(|problem| {
        let (usage, types, rules) = (args::USAGE, each_type::USAGE, rules::reasons());
        format!("{problem}\n\n{usage}\n\n{types}\n\nrules, what may differ:\n{rules}")
    })?;
    let done = if options.replay.is_empty() { run(&options) } else { replay(&options) };
    if !options.keep {
        // Nobody needs it, and a file that cannot be removed does no harm.
        let _ = std::fs::remove_dir_all(&options.place.dir);
    }
    done.map(|is_same| (is_same, options.keep)).map_err(|error| error.to_string())
}

#[derive(Default)]
struct Totals {
    cases: u64,
    statements: u64,
    differences: usize,
    counts: Counts,
    kinds: BTreeMap<String, (u64, u64)>,
}

fn run(options: &Options) -> io::Result<bool> {
    let mut world = World::start(&options.place)?;
    println!("diff: seed {}, {} sessions", options.seed, options.sessions);
    let started = Instant::now();
    let mut totals = Totals::default();
    let root = Rng::new(options.seed);
    let mut number = options.only.unwrap_or(0);
    while totals.statements < options.statements
        && totals.differences < options.differences
        && started.elapsed().as_secs() < options.seconds
    {
        let rng = root.fork(number);
        let mut case = match one_case(&mut world, rng, options) {
            Ok(case) => case,
            Err(error) if !world.is_alive() => {
                world.restart()?;
                return Err(error);
            }
            Err(error) => return Err(error),
        };
        if let (Some(_), Some(ending)) = (&case.found, &case.ending) {
            let rule = if world.is_alive() { orders::explain(&mut world, ending)? } else { None };
            if let Some(rule) = rule {
                case.found = None;
                case.counts.add(rule);
            }
        }
        totals.add(&case);
        if let Some(found) = &case.found {
            totals.differences += 1;
            report(options, &mut world, number, &case.steps, found)?;
        }
        number += 1;
        if options.only.is_some() {
            break;
        }
    }
    totals.print(started.elapsed().as_secs_f64());
    println!("{} passed, {} failed", totals.cases - totals.differences as u64, totals.differences);
    Ok(totals.differences == 0)
}

fn one_case(world: &mut World, rng: Rng, options: &Options) -> io::Result<Case> {
    let Options { length, style, sessions, .. } = *options;
    match sessions {
        1 => case::single(world, rng, length, style),
        _ => concurrent::several(world, rng, length, style, sessions),
    }
}

impl Totals {
    fn add(&mut self, case: &Case) {
        self.cases += 1;
        self.statements += case.steps.len() as u64;
        self.counts.merge(&case.counts);
        for (kind, (all, failed)) in &case.kinds {
            let entry = self.kinds.entry(kind.clone()).or_default();
            entry.0 += all;
            entry.1 += failed;
        }
    }

    fn print(&self, seconds: f64) {
        let rate = self.statements as f64 / seconds;
        println!("statements  {} in {seconds:.1} s, {rate:.0} a second", self.statements);
        println!("cases       {}", self.cases);
        for (kind, (all, failed)) in &self.kinds {
            println!("  {kind:<12} {all:>8}, failed alike {failed}");
        }
        for (rule, count) in &self.counts.0 {
            println!("rule {rule:<22} {count}");
        }
        println!("{} unexplained differences", self.differences);
    }
}

fn report(
    options: &Options,
    world: &mut World,
    number: u64,
    steps: &[ScriptStep],
    found: &Difference,
) -> io::Result<()> {
    println!("case {number}: {}", text_of(found));
    if !world.is_alive() {
        for line in world::tail(&world.error_log(), 30) {
            println!("  {line}");
        }
        world.restart()?;
    }
    let mut steps = steps.to_vec();
    let mut note = "not made smaller".to_owned();
    if options.shrink {
        let limit = Duration::from_secs(options.shrink_seconds);
        let mut shrinker = shrink::Shrinker::new(world, found.clone(), limit);
        match shrinker.shrink(&steps)? {
            Some(smaller) => {
                note = format!("{} of {} statements stay", smaller.len(), steps.len());
                steps = smaller;
            }
            None => note = "it did not fail when it was run again".to_owned(),
        }
    }
    std::fs::create_dir_all(&options.out)?;
    let file = options.out.join(format!("seed{}-case{number}.sql", options.seed));
    let header = [
        text_of(found),
        format!(
            "sluice-diff run --seed {} --sessions {} --only {number}: {note}",
            options.seed, options.sessions
        ),
        format!("To run it: target/release/sluice-diff replay {}", file.display()),
    ];
    let text = script::write(&header, &steps);
    std::fs::write(&file, &text)?;
    println!("{text}");
    Ok(())
}

fn text_of(found: &Difference) -> String {
    let Difference { kind, statement, sluice, innodb } = found;
    format!("{kind:?} differ: {statement}\n  Sluice: {sluice}\n  InnoDB: {innodb}")
}

fn replay(options: &Options) -> io::Result<bool> {
    let mut world = World::start(&options.place)?;
    let (mut passed, mut failed) = (0, 0);
    for file in &options.replay {
        let text = std::fs::read_to_string(file)?;
        let steps = script::parse(&text).map_err(io::Error::other)?;
        let mut counts = Counts::default();
        let found = match run::run_script(&mut world, &steps, &mut counts, script::is_strict(&text))
        {
            Ok(found) => found,
            Err(_) if !world.is_alive() => Some(case::crash()),
            Err(error) => return Err(error),
        };
        match found {
            None => {
                passed += 1;
                println!("{}: the same", file.display());
            }
            Some(found) => {
                failed += 1;
                println!("{}: {}", file.display(), text_of(&found));
            }
        }
        if !world.is_alive() {
            world.restart()?;
        }
    }
    println!("{passed} passed, {failed} failed");
    Ok(failed == 0)
}
