//! `sluice bench`: sysbench against several servers side by side.
//!
//! 1. Every result is a line of `results.jsonl` and is complete when it is there; what is there is
//!    not measured again (`journal`).
//! 2. The first line holds the configuration; with another one the run is refused.
//! 3. Targets take turns within each point, so that drift of the machine hits all alike (`steps`).
//! 4. However a run ends, its private servers are stopped and removed, and so are its schemas on
//!    servers it was given. A schema that it did not make is not touched (`target`).

mod advised;
mod follow;
mod journal;
mod kill;
mod lag;
mod large;
mod locks;
mod measure;
mod params;
mod plan;
mod presets;
mod progress;
mod receive;
mod restart;
mod rollback;
mod run;
mod sizes;
mod soak;
mod special;
mod steps;
mod suites;
mod sysbench;
mod target;
mod tools;
mod tpcc;
mod trial;

use crate::{reports, signals, Result};
use clap::{Args, Subcommand};
use params::ParamArgs;
use plan::ZIPFIAN;
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Subcommand)]
pub enum BenchCommand {
    /// Measure, or go on with an interrupted measurement of the same configuration
    Run(Box<RunArgs>),
    /// Write report.html, report.md and report.csv from the results in a directory; or the tables of
    /// README.md and docs/ from the committed results
    Report(ReportArgs),
}

#[derive(Args)]
pub struct RunArgs {
    /// Published evaluations: optimized-writes, enhanced-binlog, binlog-in-redo, write-amplification,
    /// tuning. Our own: oltp, commit, write-less, tpcc, restart, old-snapshot, rollback, soak,
    /// replica-lag, replica-receive, large-rows, locks. Several run one after the other, each below --out
    #[arg(long, value_delimiter = ',')]
    pub preset: Vec<String>,
    /// Directory of results and reports; private servers live below it while it runs
    #[arg(long)]
    pub out: PathBuf,
    /// NAME=ENGINE[:option=value,...] for a private server, NAME=mysql://USER@HOST[:PORT]/[#ENGINE]
    /// for a running one; replaces the preset's targets
    #[arg(long = "target", value_name = "NAME=SPEC")]
    pub targets: Vec<String>,
    /// Of the targets, only these names
    #[arg(long, value_delimiter = ',')]
    pub only: Vec<String>,
    /// Stock sysbench workloads, or rows_insert, rows_update_non_index, rows_update_index,
    /// rows_point_select, rows_read_only
    #[arg(long, value_delimiter = ',')]
    pub workloads: Vec<String>,
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub threads: Vec<u32>,
    /// Sizes of rows for the rows_* workloads; the stock ones have 188 bytes
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(70..=60_000))]
    pub row_bytes: Vec<u32>,
    #[command(flatten)]
    pub params: ParamArgs,
    /// Seconds of rest before each measurement
    #[arg(long, value_parser = settle)]
    pub settle: Option<f64>,
    /// Prepared statements of sysbench: auto, disable
    #[arg(long, value_parser = ["auto", "disable"])]
    pub ps_mode: Option<String>,
    /// How keys are chosen: zipfian for the rows_* workloads, the others are sysbench's
    #[arg(long, value_parser = ["uniform", "gaussian", "special", "pareto", ZIPFIAN])]
    pub rand_type: Option<String>,
    /// name=value, for every private server
    #[arg(long = "server-option", value_name = "NAME=VALUE")]
    pub server_options: Vec<String>,
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
    #[arg(required_unless_present = "tables")]
    dir: Option<PathBuf>,
    /// Write the tables between the markers of README.md and docs/ of this checkout
    #[arg(long, value_name = "CHECKOUT", num_args = 0..=1, default_missing_value = ".")]
    tables: Option<PathBuf>,
}

fn settle(text: &str) -> std::result::Result<f64, String> {
    let seconds = text.parse().map_err(|_| "not a number of seconds".to_string())?;
    match (0.0..=3600.0).contains(&seconds) {
        true => Ok(seconds),
        false => Err("not between 0 and 3600".to_string()),
    }
}

pub fn run(command: BenchCommand) -> Result<ExitCode> {
    match command {
        BenchCommand::Run(args) => {
            signals::catch();
            run::run(&args)
        }
        BenchCommand::Report(args) => report(&args).map(|()| ExitCode::SUCCESS),
    }
}

fn report(args: &ReportArgs) -> Result<()> {
    if let Some(dir) = &args.dir {
        reports::write_all(dir)?;
    }
    if let Some(root) = &args.tables {
        let changed = reports::fill::write_all(root)?;
        report!("{changed} pages changed");
    }
    Ok(())
}
