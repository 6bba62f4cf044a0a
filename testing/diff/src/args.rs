//! The command line.

use crate::schema::Style;
use crate::world::Place;
use sluice_rig::place;
use sluice_rig::server::Prefix;
use sluice_rig::tool::checkout;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

pub const USAGE: &str = "\
usage: sluice-diff run [options]          random cases on Sluice and InnoDB, compared
       sluice-diff replay [options] [FILE...]   scripts of earlier differences (testing/diff/cases/*.sql)
       sluice-diff planted [--prefix P] [NAME...]   every planted mistake must be found (docs/diff.md)
  --statements N    how many statements to run at least (10000)
  --seed S          what is run (from the clock)
  --sessions K      connections of each engine (1)
  --length N        statements in a case (150)
  --differences N   stop after so many differences (1)
  --seconds N       stop after so many seconds
  --only CASE       only the case of this number
  --without LIST    leave out: auto-increment, on-duplicate
  --no-shrink       write the whole script of a difference
  --shrink-seconds N  how long one script is made smaller (120)
  --out DIR         where scripts of differences go (target/diff)
  --prefix P        the private server installation ($SLUICE_PREFIX, or .prefix of the checkout)
  --dir D           a directory to make and work in (a new one in memory or $TMPDIR)
  --plugin-dir D    the plugin to load instead of the prefix's
  --planted NAME    a mistake to switch on in a plugin that was built with planted mistakes
  --binlog          with the server's binlog
  --trace           show every step with the answers of both sides
  --keep            keep the server's directory";

pub struct Options {
    pub replay: Vec<PathBuf>,
    pub statements: u64,
    pub seed: u64,
    pub sessions: usize,
    pub length: usize,
    pub differences: usize,
    pub seconds: u64,
    pub only: Option<u64>,
    pub shrink: bool,
    pub shrink_seconds: u64,
    pub out: PathBuf,
    pub place: Place,
    pub keep: bool,
    pub style: Style,
}

fn defaults() -> Options {
    let clock = SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |d| d.as_nanos() as u64);
    Options {
        replay: Vec::new(),
        statements: 10_000,
        seed: clock % 1_000_000,
        sessions: 1,
        length: crate::case::LENGTH,
        differences: 1,
        seconds: u64::MAX,
        only: None,
        shrink: true,
        shrink_seconds: 120,
        out: place::target_dir().join("diff"),
        place: Place {
            prefix: Prefix { root: PathBuf::new() },
            dir: PathBuf::new(),
            plugin_dir: None,
            planted: None,
            binlog: false,
            trace: false,
            waits: false,
        },
        keep: false,
        style: Style { small: false, auto_increment: true, on_duplicate: true },
    }
}

pub fn parse(mut args: impl Iterator<Item = String>) -> Result<Options, String> {
    let mut options = defaults();
    let replay = match args.next().as_deref() {
        Some("run") => false,
        Some("replay") => true,
        other => return Err(format!("unknown command {:?}", other.unwrap_or(""))),
    };
    while let Some(name) = args.next() {
        match name.as_str() {
            "--no-shrink" => options.shrink = false,
            "--keep" => options.keep = true,
            "--trace" => options.place.trace = true,
            "--binlog" => options.place.binlog = true,
            _ if !name.starts_with("--") && replay => options.replay.push(name.into()),
            _ => {
                let value = args.next().ok_or(format!("{name} needs a value"))?;
                set(&mut options, &name, &value)?;
            }
        }
    }
    if replay && options.replay.is_empty() {
        options.replay = cases().map_err(|error| format!("testing/diff/cases: {error}"))?;
    }
    let named = Some(options.place.prefix.root).filter(|root| !root.as_os_str().is_empty());
    options.place.prefix = place::prefix(named)?;
    options.place.waits = options.sessions > 1 || replay;
    Ok(options)
}

/// The scripts that the repository keeps.
fn cases() -> std::io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(checkout().join("testing/diff/cases"))? {
        found.push(entry?.path());
    }
    found.retain(|path| path.extension().is_some_and(|extension| extension == "sql"));
    found.sort();
    Ok(found)
}

fn set(options: &mut Options, name: &str, value: &str) -> Result<(), String> {
    let number = || value.parse::<u64>().map_err(|_| format!("{name}: {value} is no number"));
    match name {
        "--statements" => options.statements = number()?,
        "--seed" => options.seed = number()?,
        "--sessions" => options.sessions = number()?.clamp(1, 16) as usize,
        "--length" => options.length = number()?.max(1) as usize,
        "--differences" => options.differences = number()? as usize,
        "--seconds" => options.seconds = number()?,
        "--only" => options.only = Some(number()?),
        "--shrink-seconds" => options.shrink_seconds = number()?,
        "--out" => options.out = value.into(),
        "--without" => {
            for what in value.split(',') {
                match what {
                    "auto-increment" => options.style.auto_increment = false,
                    "on-duplicate" => options.style.on_duplicate = false,
                    _ => return Err(format!("--without {what}: unknown")),
                }
            }
        }
        "--prefix" => options.place.prefix = Prefix { root: value.into() },
        "--dir" => options.place.dir = value.into(),
        "--plugin-dir" => options.place.plugin_dir = Some(value.into()),
        "--planted" => options.place.planted = Some(value.into()),
        _ => return Err(format!("unknown option {name}")),
    }
    Ok(())
}
