//! The command line.

use sluice_rig::server::Prefix;
use std::path::PathBuf;

pub const USAGE: &str = "\
usage: sluice-isolation COMMAND [options]
  cases              run the cases on both engines and compare, also with the table in the docs
  table              the same, and write the table
  --filter TEXT      only cases whose name or group contains it; leaves the docs alone
  --cases DIR        where the cases are (testing/isolation/cases)
  --document FILE    where the table is (docs/isolation.md)
  --threads N        cases at a time (6)
  --prefix P         the private server installation ($SLUICE_PREFIX)
  --dir D            a directory to make and work in (a new one in $TMPDIR)";

#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Command {
    Cases,
    Table,
}

pub struct Options {
    pub command: Command,
    pub filter: String,
    pub cases: PathBuf,
    pub document: PathBuf,
    pub threads: usize,
    pub prefix: Prefix,
    pub dir: PathBuf,
}

pub fn parse(mut args: impl Iterator<Item = String>) -> Result<Options, String> {
    let command = match args.next().as_deref() {
        Some("cases") => Command::Cases,
        Some("table") => Command::Table,
        other => return Err(format!("unknown command {:?}", other.unwrap_or(""))),
    };
    let mut options = Options {
        command,
        filter: String::new(),
        cases: "testing/isolation/cases".into(),
        document: "docs/isolation.md".into(),
        threads: 6,
        prefix: Prefix { root: std::env::var_os("SLUICE_PREFIX").unwrap_or_default().into() },
        dir: std::env::temp_dir().join(format!("sluice-isolation.{}", std::process::id())),
    };
    while let Some(name) = args.next() {
        let value = args.next().ok_or(format!("{name} needs a value"))?;
        set(&mut options, &name, value)?;
    }
    if options.prefix.root.as_os_str().is_empty() {
        return Err("no --prefix and no $SLUICE_PREFIX".into());
    }
    options.prefix.root = std::path::absolute(&options.prefix.root).map_err(|e| e.to_string())?;
    options.dir = std::path::absolute(&options.dir).map_err(|e| e.to_string())?;
    Ok(options)
}

fn set(options: &mut Options, name: &str, value: String) -> Result<(), String> {
    match name {
        "--filter" => options.filter = value,
        "--cases" => options.cases = value.into(),
        "--document" => options.document = value.into(),
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
