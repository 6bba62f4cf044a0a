//! `sluice`: private servers with the engine, and measurements of any server.

#[macro_use]
mod report;
mod advise;
mod backup;
mod bench;
mod db;
mod host;
mod inspect;
mod keys;
mod pace;
mod pages;
mod reports;
mod server;
mod signals;
mod watch;

use clap::{CommandFactory, Parser, Subcommand};
use std::process::ExitCode;

/// An error is the line that the user reads.
type Result<T> = std::result::Result<T, String>;

#[derive(Parser)]
#[command(
    name = "sluice",
    version,
    about = "Runs, measures and inspects the Sluice storage engine"
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Start, stop and look at a private MariaDB server with the engine
    #[command(subcommand)]
    Server(server::ServerCommand),
    /// Copy the Sluice tables of a running server on this host
    Backup(backup::BackupArgs),
    /// Make a data directory of a backup
    Restore(backup::RestoreArgs),
    /// Look into a stopped data directory, without changing it: 0 clean, 1 damage, 2 unreadable
    Inspect(inspect::InspectArgs),
    /// Measure servers side by side with sysbench, and report
    #[command(subcommand)]
    Bench(bench::BenchCommand),
    /// Say what holds back the writes of a running server; changes nothing
    Advise(advise::AdviseArgs),
    /// Print what a running server writes, and why, line by line
    Writes(watch::WatchArgs),
    /// Show what a running server writes, and why, on the whole terminal
    Top(watch::WatchArgs),
    /// Write manual pages, and completions for shells
    #[command(hide = true)]
    Pages(pages::PagesArgs),
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Server(command) => server::run(command),
        Command::Backup(args) => backup::backup(&args),
        Command::Restore(args) => backup::restore(&args),
        Command::Inspect(args) => Ok(inspect::run(&args)),
        Command::Bench(command) => bench::run(command),
        Command::Advise(args) => advise::run(&args),
        Command::Writes(args) => watch::writes(&args),
        Command::Top(args) => watch::top(&args),
        Command::Pages(args) => pages::run(&args, Cli::command()),
    };
    outcome.unwrap_or_else(|reason| {
        eprintln!("sluice: error: {reason}");
        ExitCode::FAILURE
    })
}
