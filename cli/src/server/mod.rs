//! `sluice server`: one private MariaDB server per directory.
//!
//! 1. A directory is used only if it is empty or carries our marker (`layout`).
//! 2. At most one server runs on a directory: it inherits a lock that it keeps
//!    until it dies, however it dies (`lock`).
//! 3. No account can be used over TCP unless somebody creates one (`install`).
//! 4. Nothing of the machine's own MariaDB configuration is read.

mod checks;
mod files;
mod install;
mod layout;
mod lock;
mod prefix;
mod process;
mod start;
mod status;
mod stop;

use crate::Result;
use clap::{Args, Subcommand};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[derive(Subcommand)]
pub enum ServerCommand {
    /// Start a server on a directory, which is created when it does not exist
    Start(StartArgs),
    /// Shut the server of a directory down cleanly; no error when none runs
    Stop(StopArgs),
    /// Tell whether a server runs on a directory: exit code 0 if so, 3 if not
    Status(StatusArgs),
}

#[derive(Args)]
pub struct StartArgs {
    /// Directory of the server: its data, socket, log and settings
    #[arg(long)]
    dir: PathBuf,
    /// TCP port on 127.0.0.1 [default: no TCP at all]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    port: Option<u16>,
    /// Private MariaDB prefix [default: $SLUICE_PREFIX, else .prefix of the checkout]
    #[arg(long)]
    prefix: Option<PathBuf>,
    /// Refuse to start with less free disk space than this
    #[arg(long, value_name = "MIB", default_value_t = 2048)]
    min_free_mib: u64,
    /// Seconds to wait until the server answers; crash recovery is included
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    timeout: u64,
    /// Start without the plugin, with InnoDB as default engine
    #[arg(long, hide = true)]
    without_engine: bool,
    /// Options for mariadbd, after `--`; they override ours
    #[arg(last = true, value_name = "MARIADBD OPTIONS")]
    options: Vec<String>,
}

#[derive(Args)]
pub struct StopArgs {
    /// Directory of the server
    #[arg(long)]
    dir: PathBuf,
    /// Seconds to wait for the clean shutdown
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    timeout: u64,
}

#[derive(Args)]
pub struct StatusArgs {
    /// Directory of the server
    #[arg(long)]
    dir: PathBuf,
}

pub fn run(command: ServerCommand) -> Result<ExitCode> {
    match command {
        ServerCommand::Start(args) => start::start(&args).map(|()| ExitCode::SUCCESS),
        ServerCommand::Stop(args) => stop::stop(&args).map(|()| ExitCode::SUCCESS),
        ServerCommand::Status(args) => status::status(&args),
    }
}

/// Where a private server finds its plugins.
pub fn plugin_dir(prefix: Option<&Path>) -> Result<PathBuf> {
    prefix::Prefix::find(prefix).map(|prefix| prefix.plugin_dir())
}
