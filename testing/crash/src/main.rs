//! sluice-crash: kills a real server with SIGKILL under load, restarts it, and compares what it
//! holds with a side record of what it had acknowledged. See docs/kill9.md.

mod args;
mod binlog;
mod ddl;
mod innodb;
#[allow(dead_code, reason = "the shim's side of it is compiled there")]
#[path = "../../powershim/src/journal.rs"]
mod journal;
mod kill9;
mod loss;
mod ops;
mod power;
mod record;
mod shimcheck;
mod verify;
mod workload;

use kill9::{Plan, Totals};
use std::process::ExitCode;
use std::time::Instant;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    if let (Some("shim-script"), Some(dir)) = (arguments.next().as_deref(), arguments.next()) {
        return match shimcheck::script(dir.as_ref()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("shim-script: {error}");
                ExitCode::FAILURE
            }
        };
    }
    let options = match args::parse(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(problem) => {
            eprintln!("{problem}\n\n{}", args::USAGE);
            return ExitCode::from(2);
        }
    };
    run(&options.plan, options.keep)
}

fn run(plan: &Plan, keep: bool) -> ExitCode {
    if let Err(error) = std::fs::create_dir(&plan.dir) {
        eprintln!("{}: {error}", plan.dir.display());
        return ExitCode::from(2);
    }
    let test = if plan.power.is_some() { "powercut" } else { "kill9" };
    println!("{test}: {} rounds, engine {}, seed {}", plan.rounds, plan.engine, plan.seed);
    let started = Instant::now();
    let mut totals = Totals::default();
    let result = kill9::run(plan, &mut totals);
    print_totals(&totals, started.elapsed().as_secs_f64());
    match result {
        Ok(()) => {
            if keep {
                println!("kept {}", plan.dir.display());
            } else if let Err(error) = std::fs::remove_dir_all(&plan.dir) {
                eprintln!("{}: {error}", plan.dir.display());
            }
            println!("0 lost, 0 phantom");
            println!("{} passed, 0 failed", totals.rounds);
            ExitCode::SUCCESS
        }
        Err((round, problems)) => {
            report_failure(plan, round, &problems);
            println!("{} passed, 1 failed", totals.rounds);
            ExitCode::FAILURE
        }
    }
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

fn report_failure(plan: &Plan, round: u64, problems: &[String]) {
    println!("FAILED in round {round}, seed {}: {} problems", plan.seed, problems.len());
    for problem in problems.iter().take(30) {
        println!("  {problem}");
    }
    println!("kept {}", plan.dir.display());
}
