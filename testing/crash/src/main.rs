//! sluice-crash: kills a real server with SIGKILL under load, restarts it, and compares what it
//! holds with a side record of what it had acknowledged. See docs/kill9.md. The same for a server whose power
//! is cut (docs/powercut.md), and for backups of a server under load (docs/backup.md).

mod args;
mod backup;
mod binlog;
mod ddl;
mod history;
mod innodb;
#[allow(dead_code, reason = "the shim's side of it is compiled there")]
#[path = "../../powershim/src/journal.rs"]
mod journal;
mod kill9;
mod loss;
mod ops;
mod power;
mod proof;
mod record;
mod shimcheck;
mod sizes;
mod verify;
mod workload;

use backup::Tally;
use kill9::{Plan, Totals};
use sluice_rig::place::{self, Turn, WorkDir};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    match words[..] {
        ["shim-script", dir] => match shimcheck::script(dir.as_ref()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => cannot(error),
        },
        ["powercut-proof", ref kinds @ ..] => {
            let prove = |work| proof::run(proof::POWERCUT, kinds, &work).unwrap_or_else(cannot);
            in_memory("powercut-proof", prove)
        }
        ["backup-proof", ref kinds @ ..] => {
            let proved = WorkDir::new("proof").map_err(|e| e.to_string());
            let proved = proved.and_then(|work| proof::run(proof::BACKUP, kinds, &work));
            proved.unwrap_or_else(cannot)
        }
        ["powercut", ..] if !words.contains(&"--dir") => {
            in_memory("powercut", |work| rounds(args, || Ok(work)))
        }
        ["backup", ..] => rounds(args, || WorkDir::new("backup")),
        _ => rounds(args, || WorkDir::new("kill9")),
    }
}

fn cannot(why: impl std::fmt::Display) -> ExitCode {
    eprintln!("sluice-crash: error: {why}");
    ExitCode::from(2)
}

/// The losses of power are made by the harness, so nothing needs a real disk, and a busy one would take
/// half of the time.
fn in_memory(name: &str, work: impl FnOnce(WorkDir) -> ExitCode) -> ExitCode {
    match place::on_tmpfs(name) {
        Ok(Turn::Ours(dir)) => work(dir),
        Ok(Turn::Ended(code)) => code,
        Err(error) => cannot(error),
    }
}

fn rounds(args: Vec<String>, new: impl FnOnce() -> std::io::Result<WorkDir>) -> ExitCode {
    let (args, work) = match place::with_dir(args, new) {
        Ok(found) => found,
        Err(error) => return cannot(error),
    };
    match args::parse(args.into_iter()) {
        Ok(options) => run(&options.plan, options.keep, work),
        Err(problem) => {
            eprintln!("{problem}\n\n{}", args::USAGE);
            ExitCode::from(2)
        }
    }
}

fn run(plan: &Plan, keeps: bool, work: Option<WorkDir>) -> ExitCode {
    if let Err(error) = std::fs::create_dir(&plan.dir) {
        return cannot(format!("{}: {error}", plan.dir.display()));
    }
    let test = match (&plan.power, plan.backup) {
        (Some(_), _) => "powercut",
        (None, true) => "backup",
        (None, false) => "kill9",
    };
    println!("{test}: {} rounds, engine {}, seed {}", plan.rounds, plan.engine, plan.seed);
    let started = Instant::now();
    let seconds = || started.elapsed().as_secs_f64();
    let (result, passed) = if plan.backup {
        let mut tally = Tally::default();
        let result = backup::run(plan, &mut tally);
        tally.print(seconds());
        (result, tally.rounds)
    } else {
        let mut totals = Totals::default();
        let result = kill9::run(plan, &mut totals);
        print_totals(&totals, seconds());
        (result, totals.rounds)
    };
    match result {
        Ok(()) => {
            if keeps {
                println!("kept {}", kept(plan, work).display());
            } else if let Err(error) = std::fs::remove_dir_all(&plan.dir) {
                eprintln!("{}: {error}", plan.dir.display());
            }
            println!("0 lost, 0 phantom");
            println!("{passed} passed, 0 failed");
            ExitCode::SUCCESS
        }
        Err((round, problems)) => {
            println!("FAILED in round {round}, seed {}: {} problems", plan.seed, problems.len());
            let count = |word| problems.iter().filter(|problem| problem.contains(word)).count();
            let (lost, phantom) = (count("lost "), count("phantom "));
            for problem in problems.iter().take(30) {
                println!("  {problem}");
            }
            println!("kept {}", kept(plan, work).display());
            println!("{lost} lost, {phantom} phantom");
            println!("{passed} passed, 1 failed");
            ExitCode::FAILURE
        }
    }
}

/// Where what is to be looked at stays.
fn kept(plan: &Plan, work: Option<WorkDir>) -> PathBuf {
    let Some(work) = work else { return plan.dir.clone() };
    // It is large, and the cuts are written in a story of their own.
    let _ = std::fs::remove_file(plan.dir.join("server/side/journal"));
    work.keep().unwrap_or_else(|error| {
        eprintln!("cannot keep it: {error}");
        plan.dir.clone()
    })
}

fn print_totals(totals: &Totals, seconds: f64) {
    println!("rounds                      {}", totals.rounds);
    println!("kills                       {}", totals.kills);
    println!("  of these in recovery      {}", totals.kills_in_recovery);
    if totals.cuts > 0 {
        print_losses(totals);
    }
    println!("acknowledged commits        {}", totals.acknowledged);
    println!("in flight, found committed  {}", totals.committed);
    println!("in flight, found absent     {}", totals.absent);
    println!("rows compared               {}", totals.rows);
    println!("evictions that owe changes  {}", totals.met.owed);
    println!("  deltas in the log         {}", totals.met.deltas);
    println!("loads by INSERT ... SELECT  {}", totals.met.loads);
    println!("transactions in the binlog  {}", totals.binlog_ids);
    println!("binlog files cut short      {}", totals.binlog_cut_short);
    println!("seconds                     {seconds:.1}");
}

fn print_losses(totals: &Totals) {
    println!("cuts under load             {}", totals.cuts);
    println!("cuts in recovery            {}", totals.cuts_in_recovery);
    println!("cuts in a shutdown          {}", totals.cuts_in_shutdown);
    println!("cuts after a shutdown       {}", totals.cuts_after_shutdown);
    let lost = &totals.lost;
    println!("unsynced changes            {}", lost.changes_at_risk);
    println!("unsynced sectors            {}", lost.sectors_at_risk);
    println!("  of these lost or torn     {}", lost.sectors);
    println!("file lengths lost           {}", lost.lengths);
    println!("unsynced names              {}", lost.names_at_risk);
    println!("  of these lost             {}", lost.names);
}
