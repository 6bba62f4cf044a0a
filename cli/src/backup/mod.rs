//! `sluice backup` and `sluice restore`: a copy of the Sluice tables of a running server, and a data
//! directory made of it.
//!
//! 1. The server keeps what the copy needs from BACKUP STAGE START to END or to the end of the session
//!    (`server`). This program reads files only, so a crash of it harms nobody.
//! 2. A backup is whole when its list of files is there (`manifest`): it is written last.
//! 3. A restore makes nothing that a server would start before all of it is verified and recovered
//!    (`restore`).

mod files;
mod make;
mod manifest;
mod pace;
mod restore;
mod server;

use crate::db::Dsn;
use crate::{signals, Result};
use clap::Args;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

#[derive(Args)]
pub struct BackupArgs {
    /// Server on this host: mysql://USER@localhost/?socket=PATH[&password-file=PATH|&password-env=NAME];
    /// without a password there, MYSQL_PWD holds it
    dsn: String,
    /// Directory for the backup, which must be empty or not exist
    #[arg(long, value_name = "DIR")]
    to: PathBuf,
    /// Leave out tables of other engines instead of refusing a server that has some
    #[arg(long)]
    only_sluice: bool,
    /// MiB a second of pages that are copied at most; the log is copied as fast as it goes
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    rate_mib: Option<u64>,
    /// Seconds to wait for another backup, for running DDL statements, and for commits under way
    #[arg(long, value_name = "S", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    wait: u64,
    /// Do not verify the pages and tables of the copy
    #[arg(long)]
    no_verify: bool,
}

#[derive(Args)]
pub struct RestoreArgs {
    /// Directory of a backup
    #[arg(long, value_name = "DIR")]
    from: PathBuf,
    /// Data directory of a server that does not run: must be empty or not exist
    #[arg(long, value_name = "DATADIR")]
    to: PathBuf,
}

pub fn backup(args: &BackupArgs) -> Result<ExitCode> {
    signals::catch();
    let dsn = Dsn::parse(&args.dsn)?;
    let options = make::Options {
        to: &args.to,
        only_sluice: args.only_sluice,
        rate_bytes: args.rate_mib.map(|mib| mib << 20),
        wait: Duration::from_secs(args.wait),
        verifies: !args.no_verify,
    };
    make::run(&dsn, &options)?;
    Ok(ExitCode::SUCCESS)
}

pub fn restore(args: &RestoreArgs) -> Result<ExitCode> {
    signals::catch();
    restore::run(&args.from, &args.to)?;
    Ok(ExitCode::SUCCESS)
}
