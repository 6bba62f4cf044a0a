//! sluice-isolation: what each isolation level of Sluice does, beside InnoDB, on a real server.
//! See docs/isolation.md.

mod args;
mod case;
mod compare;
mod histories;
mod history;
mod level;
mod observer;
mod outcome;
mod schedule;
mod session;
mod suite;
mod table;

use args::{Command, Options};
use sluice_rig::client::Client;
use sluice_rig::place::{self, WorkDir};
use sluice_rig::server::{last_lines, Binlog, Launch, Server};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

fn main() -> ExitCode {
    let args = std::env::args().skip(1).collect();
    let (args, work) = match place::with_dir(args, || WorkDir::new("isolation")) {
        Ok(found) => found,
        Err(error) => {
            eprintln!("sluice-isolation: {error}");
            return ExitCode::FAILURE;
        }
    };
    let options = match args::parse(args.into_iter()) {
        Ok(options) => options,
        Err(problem) => {
            eprintln!("{problem}\n\n{}", args::USAGE);
            return ExitCode::from(2);
        }
    };
    if run(&options) {
        return ExitCode::SUCCESS;
    }
    // Outcomes, error logs, a history and its data.
    match work.map(WorkDir::keep) {
        Some(Ok(kept)) => println!("kept {}", kept.display()),
        Some(Err(error)) => eprintln!("sluice-isolation: cannot keep it: {error}"),
        None => {}
    }
    ExitCode::FAILURE
}

fn run(options: &Options) -> bool {
    let done = match options.command {
        Command::All => Ok(all(options)),
        Command::Cases | Command::Table => cases(options),
        Command::Histories => histories::run(options),
        Command::Planted => histories::planted(options),
    };
    done.unwrap_or_else(|problem| {
        eprintln!("sluice-isolation: {problem}");
        false
    })
}

/// The three parts, each in a directory of its own, which stays if it fails.
fn all(options: &Options) -> bool {
    let mut are_good = true;
    for (name, command) in [
        ("cases", Command::Cases),
        ("planted", Command::Planted),
        ("histories", Command::Histories),
    ] {
        println!("isolation: {name}");
        let part = Options { command, dir: options.dir.join(name), ..options.clone() };
        match run(&part) {
            true => drop(fs::remove_dir_all(&part.dir)),
            false => are_good = false,
        }
    }
    are_good
}

/// Waits are seen in performance_schema; none of them may end by a timeout that no case asks for.
fn launch(options: &Options) -> Launch {
    let extra = [
        "--performance-schema=ON",
        "--performance-schema-instrument=wait/synch/cond/sluice/%=ON",
        "--performance-schema-consumer-events-waits-current=ON",
        "--innodb-lock-wait-timeout=600",
        "--loose-sluice-lock-wait-timeout=600",
        "--innodb-flush-log-at-trx-commit=0",
        "--loose-sluice-flush-log-at-trx-commit=0",
        "--query-cache-type=0",
        "--max-connections=500",
    ];
    Launch {
        prefix: options.prefix.clone(),
        dir: options.dir.clone(),
        engine: "Sluice".into(),
        binlog: Binlog::Off,
        log_mib: 64,
        binlog_rotation_kib: 1024,
        extra: extra.map(String::from).to_vec(),
        environment: Vec::new(),
    }
}

fn start(launch: &Launch) -> Result<Server, String> {
    fs::create_dir_all(&launch.dir).map_err(|e| format!("{}: {e}", launch.dir.display()))?;
    launch.prefix.install(&launch.data()).map_err(|e| e.to_string())?;
    launch.start().map_err(|e| format!("{e}\n{}", last_lines(&launch.error_log(), 20)))
}

fn cases(options: &Options) -> Result<bool, String> {
    let begun = Instant::now();
    let cases = suite::load(&options.cases, &options.filter)?;
    let server = start(&launch(options))?;
    let _pin = pin(&server.socket())?;
    let runs = suite::run(&cases, &server.socket(), options.threads);
    let record = options.dir.join("outcomes.txt");
    fs::write(&record, suite::record(&runs)).map_err(|e| e.to_string())?;
    let is_whole = options.filter.is_empty() && runs.iter().all(|r| r.faults.is_empty());
    let is_same = !is_whole || document(options, &table::render(&runs))?;
    let levels: usize = runs.iter().map(|run| run.pairs.len()).sum();
    let allowed: usize = runs.iter().map(differing).sum();
    let faults: Vec<&String> = runs.iter().flat_map(|run| &run.faults).collect();
    for fault in &faults {
        println!("UNEXPLAINED {fault}");
    }
    let failed = faults.len() + usize::from(!is_same);
    println!("cases                    {}", cases.len());
    println!("cases x levels compared  {levels}");
    println!("differing, explained     {allowed}");
    println!("unexplained              {}", faults.len());
    println!("seconds                  {:.1}", begun.elapsed().as_secs_f64());
    println!("{} passed, {failed} failed", levels.saturating_sub(faults.len()));
    Ok(failed == 0)
}

/// At how many levels the engines differ as the case allows.
fn differing(run: &suite::CaseRun) -> usize {
    let is_allowed = |(level, pair): &&(level::Level, compare::Pair)| {
        let found = compare::differences(run.case, *level, pair);
        !found.is_empty() && found.iter().all(|d| d.allowed_by.is_some())
    };
    run.pairs.iter().filter(is_allowed).count()
}

/// A snapshot older than all that the cases do: no engine purges what they delete, at no time that
/// chance would choose.
fn pin(socket: &Path) -> Result<Client, String> {
    let mut client = Client::connect(socket, "").map_err(|e| e.to_string())?;
    client.run("START TRANSACTION WITH CONSISTENT SNAPSHOT").map_err(|e| e.to_string())?;
    Ok(client)
}

/// Writes the table into the document, or tells whether it is there.
fn document(options: &Options, table: &str) -> Result<bool, String> {
    let path: &PathBuf = &options.document;
    let before = fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
    let after = table::replaced(&before, table)?;
    if options.command == Command::Table {
        fs::write(path, &after).map_err(|e| format!("{}: {e}", path.display()))?;
    } else if before != after {
        println!("{} is not what was seen: run `sluice-isolation table`", path.display());
        return Ok(false);
    }
    Ok(true)
}
