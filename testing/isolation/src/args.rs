//! The command line.

use crate::level::{Engine, Level};
use sluice_rig::place;
use sluice_rig::server::Prefix;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

pub const USAGE: &str = "\
usage: sluice-isolation COMMAND [options]
  all                cases, planted and histories
  cases              run the cases on both engines and compare, also with the table in the docs
  table              the same, and write the table
  histories          random histories on a real server with kills, checked at their level
  planted            the checker must find what is planted at each level
  --histories N      how many, at each level in turn (8)
  --seconds S        of load, for all of them (24)
  --seed S           (from the clock)
  --engine E         of the histories: Sluice or InnoDB (Sluice)
  --level L          of all histories
  --sessions N       of a history (6)
  --kills N          of the server, in a history (1)
  --filter TEXT      only cases whose name or group contains it; leaves the docs alone
  --cases DIR        where the cases are (testing/isolation/cases)
  --document FILE    where the table is (docs/isolation.md)
  --threads N        cases at a time (6)
  --prefix P         the private server installation ($SLUICE_PREFIX, or .prefix of the checkout)
  --dir D            a directory to make, work in and keep (one in $TMPDIR, kept after a failure)";

#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Command {
    All,
    Cases,
    Table,
    Histories,
    Planted,
}

#[derive(Clone)]
pub struct Options {
    pub command: Command,
    pub filter: String,
    pub cases: PathBuf,
    pub document: PathBuf,
    pub threads: usize,
    pub histories: usize,
    pub seconds: u64,
    pub seed: u64,
    pub engine: Engine,
    pub level: Option<Level>,
    pub sessions: usize,
    pub kills: usize,
    pub prefix: Prefix,
    pub dir: PathBuf,
}

pub fn parse(mut args: impl Iterator<Item = String>) -> Result<Options, String> {
    let command = match args.next().as_deref() {
        Some("all") => Command::All,
        Some("cases") => Command::Cases,
        Some("table") => Command::Table,
        Some("histories") => Command::Histories,
        Some("planted") => Command::Planted,
        other => return Err(format!("unknown command {:?}", other.unwrap_or(""))),
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut options = Options {
        command,
        filter: String::new(),
        cases: "testing/isolation/cases".into(),
        document: "docs/isolation.md".into(),
        threads: 6,
        histories: 8,
        seconds: 24,
        seed: now.as_nanos() as u64 % 1_000_000,
        engine: Engine::Sluice,
        level: None,
        sessions: 6,
        kills: 1,
        prefix: Prefix { root: PathBuf::new() },
        dir: PathBuf::new(),
    };
    while let Some(name) = args.next() {
        let value = args.next().ok_or(format!("{name} needs a value"))?;
        set(&mut options, &name, value)?;
    }
    let named = Some(options.prefix.root).filter(|root| !root.as_os_str().is_empty());
    options.prefix = place::prefix(named)?;
    options.dir = std::path::absolute(&options.dir).map_err(|e| e.to_string())?;
    Ok(options)
}

fn set(options: &mut Options, name: &str, value: String) -> Result<(), String> {
    match name {
        "--filter" => options.filter = value,
        "--cases" => options.cases = value.into(),
        "--document" => options.document = value.into(),
        "--histories" => options.histories = number(name, &value)?,
        "--seconds" => options.seconds = number(name, &value)?,
        "--seed" => options.seed = number(name, &value)?,
        "--sessions" => options.sessions = number(name, &value)?,
        "--kills" => options.kills = number(name, &value)?,
        "--engine" => {
            options.engine = Engine::parse(&value).ok_or(format!("no engine {value}"))?;
        }
        "--level" => {
            options.level = Some(Level::parse(&value).ok_or(format!("no level {value}"))?);
        }
        "--threads" => options.threads = number(name, &value)?,
        "--prefix" => options.prefix = Prefix { root: value.into() },
        "--dir" => options.dir = value.into(),
        _ => return Err(format!("unknown option {name}")),
    }
    Ok(())
}

fn number<T: std::str::FromStr>(name: &str, value: &str) -> Result<T, String> {
    value.parse().map_err(|_| format!("{name} {value}: not a number"))
}
