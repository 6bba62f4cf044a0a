//! `sluice backup` and `sluice restore`: a copy of the Sluice tables of a running server, and a data
//! directory made of it.
//!
//! 1. The server keeps what the copy needs from BACKUP STAGE START to END or to the end of the session
//!    (`server`). This program reads files only, so a crash of it harms nobody.
//! 2. A backup is whole when its list of files is there (`manifest`): it is written last.
//! 3. A restore makes nothing that a server would start before all of it is verified and recovered
//!    (`restore`).
//! 4. An increment has what another backup lacks (`base`), and a restore lays both over one another (`layers`).

mod base;
mod binlogs;
mod files;
mod finish;
mod gtid;
mod identity;
mod keys;
mod layers;
mod make;
mod manifest;
mod owner;
mod pacing;
mod private;
mod replay;
mod replica;
mod restore;
mod server;
mod stream;
mod until;

use self::base::Base;
use self::finish::Finish;
use self::gtid::Gtid;
use self::make::To;
use self::pacing::Pacing;
use self::restore::Source;
use self::until::Until;
use crate::db::Dsn;
use crate::keys::KeyArgs;
use crate::pace::{self, Rate};
use crate::{signals, Result};
use clap::{ArgGroup, Args};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

#[derive(Args)]
pub struct BackupArgs {
    /// Server on this host: mysql://USER@localhost/?socket=PATH[&password-file=PATH|&password-env=NAME];
    /// without a password there, MYSQL_PWD holds it
    dsn: String,
    /// Directory for the backup, which must be empty or not exist; `-`: a stream to standard output
    #[arg(long, value_name = "DIR|-")]
    to: PathBuf,
    /// Only what has changed since the backup or increment in this directory: an increment on it
    #[arg(long, value_name = "DIR", visible_alias = "incremental-basedir")]
    since: Option<PathBuf>,
    /// Compress the stream by zstd, at level 3 or another
    #[arg(long, value_name = "LEVEL", num_args = 0..=1, require_equals = true, default_missing_value = "3", value_parser = clap::value_parser!(i32).range(1..=19))]
    compress: Option<i32>,
    /// Leave out tables of other engines instead of refusing a server that has some
    #[arg(long)]
    only_sluice: bool,
    /// MiB a second at most that are copied, and that the verification reads; none: as fast as it goes; auto:
    /// as fast as leaves clients of the server nine tenths of what they do, but 16 at least
    #[arg(long, value_name = "N|auto|none", default_value = "auto")]
    rate_mib: Rate,
    /// Seconds to wait for another backup, for running DDL statements, and for commits under way
    #[arg(long, value_name = "S", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    wait: u64,
    /// Do not verify the pages and tables of the copy; of a stream, the restore does it
    #[arg(long)]
    no_verify: bool,
    /// Show bytes, rate and phase on standard error, also if that is no terminal
    #[arg(long)]
    progress: bool,
    #[command(flatten)]
    keys: KeyArgs,
}

#[derive(Args)]
#[command(group = ArgGroup::new("until").requires("binlogs"))]
pub struct RestoreArgs {
    /// Directory of a backup; `-` or a file: a stream, compressed or not
    #[arg(long, value_name = "DIR|FILE|-")]
    from: PathBuf,
    /// An increment on it, a directory or a stream; several in the order in which they were made, each
    /// after --with
    #[arg(long, value_name = "DIR|FILE", visible_alias = "incremental-dir")]
    with: Vec<PathBuf>,
    /// Data directory of a server that does not run: must be empty or not exist
    #[arg(long, value_name = "DATADIR")]
    to: PathBuf,
    /// Whose the directory and all files in it are, as chown has it; by default those of the directory's
    /// owner. A directory that root makes is root's
    #[arg(long, value_name = "USER[:GROUP]")]
    owner: Option<String>,
    /// Apply the binary logs of the server, which are kept in this directory: all, unless an option
    /// --to-... or --before-gtid says how far
    #[arg(long, value_name = "DIR")]
    binlogs: Option<PathBuf>,
    /// Up to the last transaction before this time: 'YYYY-MM-DD HH:MM:SS' in the time zone of this host,
    /// or with Z at the end in UTC
    #[arg(long, value_name = "TIME", group = "until")]
    to_time: Option<String>,
    /// Up to this transaction, which is applied: DOMAIN-SERVER-SEQUENCE, or several with commas between
    #[arg(long, value_name = "GTID", group = "until")]
    to_gtid: Option<String>,
    /// Up to this transaction, which is not applied
    #[arg(long, value_name = "GTID", group = "until")]
    before_gtid: Option<String>,
    /// Up to this place in a binary log
    #[arg(long, value_name = "FILE:POSITION", group = "until")]
    to_position: Option<String>,
    /// Make it a replica of this server, from its first start on:
    /// mysql://USER@HOST[:PORT]/[?password-file=PATH|password-env=NAME|ssl-...]
    #[arg(long, value_name = "URL")]
    as_replica_of: Option<String>,
    /// Where MariaDB is installed, for --binlogs and --as-replica-of, which start a private server
    /// [default: where PATH finds mariadbd]
    #[arg(long, value_name = "DIR")]
    basedir: Option<PathBuf>,
    /// Do not verify the pages and tables of a stream
    #[arg(long)]
    no_verify: bool,
    /// Show bytes, rate and phase on standard error, also if that is no terminal
    #[arg(long)]
    progress: bool,
    #[command(flatten)]
    keys: KeyArgs,
    /// Options for the private server, after `--`
    #[arg(last = true, value_name = "MARIADBD OPTIONS")]
    options: Vec<String>,
}

impl RestoreArgs {
    fn until(&self) -> Result<Until> {
        let targets = [
            self.to_time.as_deref().map(Until::time),
            self.to_gtid.as_deref().map(Until::gtids),
            self.before_gtid.as_deref().map(|text| Gtid::parse(text).map(Until::Before)),
            self.to_position.as_deref().map(Until::position),
        ];
        targets.into_iter().flatten().next().unwrap_or(Ok(Until::End))
    }

    fn finish(&self) -> Result<Finish> {
        let until = self.until()?;
        Ok(Finish {
            binlogs: self.binlogs.clone().map(|dir| (dir, until)),
            primary: self.as_replica_of.as_deref().map(Dsn::parse).transpose()?,
            basedir: self.basedir.clone(),
            options: self.options.clone(),
        })
    }
}

pub fn backup(args: &BackupArgs) -> Result<ExitCode> {
    signals::catch();
    pace::show(args.progress);
    let dsn = Dsn::parse(&args.dsn)?;
    let is_stream = args.to.as_os_str() == "-";
    if args.compress.is_some() && !is_stream {
        return Err("--compress is for a stream (--to -): in a directory pages are compressed as in the store".into());
    }
    let options = make::Options {
        to: if is_stream { To::Stream(args.compress) } else { To::Dir(&args.to) },
        base: args.since.as_deref().map(Base::read).transpose()?,
        only_sluice: args.only_sluice,
        pacing: Pacing { dsn: &dsn, rate: args.rate_mib },
        wait: Duration::from_secs(args.wait),
        verifies: !args.no_verify,
        keys: args.keys.read()?,
    };
    keys::warn_of_version(&dsn, options.keys.as_deref())?;
    make::run(&dsn, &options)?;
    Ok(ExitCode::SUCCESS)
}

pub fn restore(args: &RestoreArgs) -> Result<ExitCode> {
    signals::catch();
    pace::show(args.progress);
    let options = restore::Options {
        increments: args.with.iter().map(|path| Source::of(path)).collect(),
        finish: args.finish()?,
        verifies: !args.no_verify,
        keys: args.keys.read()?,
        owner: args.owner.clone(),
    };
    restore::run(&Source::of(&args.from), &args.to, &options)?;
    Ok(ExitCode::SUCCESS)
}
