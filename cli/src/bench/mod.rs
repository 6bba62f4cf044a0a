//! `sluice bench`: sysbench against several servers side by side.
//!
//! 1. Every result is a line of `results.jsonl` and is complete when it is there; what is there is
//!    not measured again (`journal`).
//! 2. The first line holds the configuration; with another one the run is refused.
//! 3. Targets take turns within each point, so that drift of the machine hits all alike (`steps`).
//! 4. However a run ends, its private servers are stopped and removed, and so are its schemas on
//!    servers it was given. A schema that it did not make is not touched (`target`).

mod advised;
mod journal;
mod lag;
mod measure;
mod plan;
mod presets;
mod progress;
mod run;
mod special;
mod steps;
mod sysbench;
mod target;
mod tools;

use crate::{reports, signals, Result};
use clap::{Args, Subcommand};
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Subcommand)]
pub enum BenchCommand {
    /// Measure, or go on with an interrupted measurement of the same configuration
    Run(Box<RunArgs>),
    /// Write report.html, report.md and report.csv from the results in a directory
    Report(ReportArgs),
}

#[derive(Args)]
pub struct RunArgs {
    /// optimized-writes, enhanced-binlog, binlog-in-redo, write-amplification, tuning
    #[arg(long)]
    pub preset: Option<String>,
    /// Directory of results and reports; private servers live below it while it runs
    #[arg(long)]
    pub out: PathBuf,
    /// NAME=ENGINE[:option=value,...] for a private server, NAME=mysql://USER@HOST[:PORT]/[#ENGINE]
    /// for a running one; replaces the preset's targets
    #[arg(long = "target", value_name = "NAME=SPEC")]
    pub targets: Vec<String>,
    /// Stock sysbench workloads, or rows_insert, rows_update_non_index, rows_update_index
    #[arg(long, value_delimiter = ',')]
    pub workloads: Vec<String>,
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub threads: Vec<u32>,
    /// Sizes of rows for the rows_* workloads; the stock ones have 188 bytes
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(70..=60_000))]
    pub row_bytes: Vec<u32>,
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    pub repetitions: Option<u32>,
    /// Seconds of each measurement
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    pub seconds: Option<u32>,
    /// Seconds of load before each measurement that are not counted
    #[arg(long)]
    pub warmup: Option<u32>,
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    pub tables: Option<u32>,
    /// Rows in each table
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    pub rows: Option<u64>,
    /// Buffer pool of each private server
    #[arg(long)]
    pub pool_mib: Option<u64>,
    /// Log capacity of each private server
    #[arg(long)]
    pub log_mib: Option<u64>,
    /// Name of the schema on running servers; must not exist there, or be empty
    #[arg(long, default_value = "sluice_bench")]
    pub schema: String,
    /// The sizes and times of the published evaluation instead of those scaled to this machine
    #[arg(long)]
    pub published: bool,
    /// Private MariaDB prefix [default: $SLUICE_PREFIX, else .prefix of the checkout]
    #[arg(long)]
    pub prefix: Option<PathBuf>,
    /// Print the configuration and the time it will take, and end
    #[arg(long)]
    pub dry_run: bool,
}

#[derive(Args)]
pub struct ReportArgs {
    /// Directory with results.jsonl
    dir: PathBuf,
}

pub fn run(command: BenchCommand) -> Result<ExitCode> {
    match command {
        BenchCommand::Run(args) => {
            signals::catch();
            run::run(&args)
        }
        BenchCommand::Report(args) => reports::write_all(&args.dir).map(|()| ExitCode::SUCCESS),
    }
}
