//! `sluice`: private servers with the engine, from the command line.

#[macro_use]
mod report;
mod inspect;
mod server;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

#[derive(Parser)]
#[command(name = "sluice", version, about = "Runs and inspects the Sluice storage engine")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Start, stop and look at a private MariaDB server with the engine
    #[command(subcommand)]
    Server(server::ServerCommand),
    /// Look into a stopped data directory, without changing it: 0 clean, 1 damage, 2 unreadable
    Inspect(inspect::InspectArgs),
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Server(command) => server::run(command),
        Command::Inspect(args) => Ok(inspect::run(&args)),
    };
    outcome.unwrap_or_else(|reason| {
        eprintln!("sluice: error: {reason}");
        ExitCode::FAILURE
    })
}
