//! The command line.

use crate::kill9::{BinlogMode, Plan};
use crate::loss::Spare;
use crate::power::PowerPlan;
use crate::workload::FEATURES;
use sluice_rig::place;
use sluice_rig::server::{Binlog, Prefix};
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

pub const USAGE: &str = "\
usage: sluice-crash kill9|powercut|backup [options]
       sluice-crash powercut-proof|backup-proof [--rounds N] [--seed S] [--prefix P] [KIND...]
                          see docs/powercut.md, docs/backup.md
  --rounds N          rounds of work, kill, restart, verify (10)
  --seed S            workload and timing (from the clock)
  --engine E          Sluice, or InnoDB to try the harness (Sluice)
  --prefix P          the private server installation ($SLUICE_PREFIX, or .prefix of the checkout)
  --next-prefix P     another installation: from a data directory's first kill on its server runs there
  --dir D             a directory to make and work in (a new one in $TMPDIR; of powercut in memory)
  --binlog MODE       log (in Sluice's log), synced (by the server), off, or mix: each in turn,
                      by data directory (mix)
  --fresh-every K     rounds that one data directory lives for (5)
  --without LIST      leave out: blobs, savepoints, replace, mixed, ddl, transfers, auto-increment
  --server-option O   one more option for the server; may be repeated
  --kill-in-shutdown  kill some servers during a clean shutdown (see docs/kill9.md)
  --keep              keep the directory even when all is well
  --shim FILE         powercut: the library to preload (beside this program)
  --ignore-sync LIST  powercut: parts of paths, separated by colons, whose syncs are ignored;
                      $ marks the end of a path: must fail
  --strict-names      powercut: every name needs a sync of its directory, the server's own too
  --kills-with-binlog powercut: mere kills of a server with a binlog, too (see docs/powercut.md)
  --spare LIST        powercut: of the losses that the stock server does not survive, leave out
                      tc-log, ddl-log, frm, innodb-checkpoint, or none (all four)
  --cuts-in-copies    powercut: every cut in an ALTER TABLE that copies rows, at each of its calls in turn
  --no-recovery-cuts  powercut: let every restart come to its end
  --program FILE      backup: the sluice under test (beside this program)
  --inject-loss       delete an acknowledged row after the restart or the restore: must fail
  --inject-phantom    insert a row there: must fail";

pub struct Options {
    pub plan: Plan,
    pub keep: bool,
}

pub fn parse(mut args: impl Iterator<Item = String>) -> Result<Options, String> {
    let mut plan = defaults();
    match args.next().as_deref() {
        Some("kill9") => {}
        Some("powercut") => plan.power = Some(default_power()),
        Some("backup") => plan.backup = true,
        other => return Err(format!("unknown command {:?}", other.unwrap_or(""))),
    }
    let mut keep = false;
    while let Some(name) = args.next() {
        match name.as_str() {
            "--keep" => keep = true,
            "--strict-names" => power(&mut plan)?.strict_names = true,
            "--kills-with-binlog" => power(&mut plan)?.kills_with_binlog = true,
            "--cuts-in-copies" => power(&mut plan)?.in_copies = true,
            "--no-recovery-cuts" => power(&mut plan)?.cuts_in_recovery = false,
            "--kill-in-shutdown" => plan.kill_in_shutdown = true,
            "--inject-loss" => plan.injection = Some(INJECT_LOSS),
            "--inject-phantom" => plan.injection = Some(INJECT_PHANTOM),
            _ => {
                let value = args.next().ok_or(format!("{name} needs a value"))?;
                set(&mut plan, &name, value)?;
            }
        }
    }
    if plan.backup {
        only_of_servers(&plan)?;
    }
    if plan.fresh_every == 0 {
        return Err("--fresh-every must not be 0".into());
    }
    let named = Some(plan.prefix.root).filter(|root| !root.as_os_str().is_empty());
    plan.prefix = place::prefix(named)?;
    if let Some(power) = &plan.power {
        if !power.library.exists() {
            return Err(format!("no shim {}: run make build", power.library.display()));
        }
    }
    if let Some(next) = &mut plan.next_prefix {
        next.root = absolute(&next.root)?;
    }
    plan.dir = absolute(&plan.dir)?;
    Ok(Options { plan, keep })
}

fn absolute(path: impl AsRef<Path>) -> Result<PathBuf, String> {
    std::path::absolute(path).map_err(|e| e.to_string())
}

/// A place in the binlog is what a backup is compared by; and the engine has backups, no other one.
fn only_of_servers(plan: &Plan) -> Result<(), String> {
    let is_off = plan.binlog == BinlogMode::All(Binlog::Off);
    let is_other = !plan.engine.eq_ignore_ascii_case("sluice");
    match is_off || is_other || plan.next_prefix.is_some() || plan.kill_in_shutdown {
        false => Ok(()),
        true => {
            Err("backup has no --binlog off, --engine, --next-prefix, --kill-in-shutdown".into())
        }
    }
}

fn power(plan: &mut Plan) -> Result<&mut PowerPlan, String> {
    plan.power.as_mut().ok_or("that is an option of powercut".into())
}

fn default_power() -> PowerPlan {
    let beside = std::env::current_exe().unwrap_or_default();
    PowerPlan {
        library: beside.with_file_name("libsluice_powershim.so"),
        ignore_sync: String::new(),
        strict_names: false,
        cuts_in_recovery: true,
        kills_with_binlog: false,
        in_copies: false,
        spare: Spare::ALL,
    }
}

const INJECT_LOSS: &str = "DELETE FROM main_rows LIMIT 1";
const INJECT_PHANTOM: &str = "INSERT INTO main_rows VALUES (999999, 1, NULL, '', NULL)";

fn defaults() -> Plan {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Plan {
        rounds: 10,
        seed: now.as_nanos() as u64 % 1_000_000,
        engine: "Sluice".into(),
        prefix: Prefix { root: PathBuf::new() },
        next_prefix: None,
        dir: PathBuf::new(),
        binlog: BinlogMode::Mix,
        fresh_every: 5,
        without: HashSet::new(),
        server_options: Vec::new(),
        kill_in_shutdown: false,
        power: None,
        backup: false,
        program: None,
        injection: None,
    }
}

fn set(plan: &mut Plan, name: &str, value: String) -> Result<(), String> {
    match name {
        "--rounds" => plan.rounds = number(name, &value)?,
        "--seed" => plan.seed = number(name, &value)?,
        "--fresh-every" => plan.fresh_every = number(name, &value)?,
        "--engine" => plan.engine = value,
        "--prefix" => plan.prefix = Prefix { root: PathBuf::from(value) },
        "--next-prefix" => plan.next_prefix = Some(Prefix { root: PathBuf::from(value) }),
        "--dir" => plan.dir = PathBuf::from(value),
        "--program" if plan.backup => plan.program = Some(absolute(&value)?),
        "--shim" => power(plan)?.library = value.into(),
        "--spare" => power(plan)?.spare = spare(&value)?,
        "--ignore-sync" => power(plan)?.ignore_sync = value,
        "--server-option" => plan.server_options.push(value),
        "--binlog" => {
            plan.binlog = match value.as_str() {
                "log" => BinlogMode::All(Binlog::InLog),
                "synced" => BinlogMode::All(Binlog::Synced),
                "off" => BinlogMode::All(Binlog::Off),
                "mix" => BinlogMode::Mix,
                _ => return Err(format!("--binlog {value}?")),
            }
        }
        "--without" => {
            for feature in value.split(',').filter(|f| !f.is_empty()) {
                if !FEATURES.contains(&feature) {
                    return Err(format!("--without {feature}?"));
                }
                plan.without.insert(feature.into());
            }
        }
        _ => return Err(format!("unknown option {name}")),
    }
    Ok(())
}

fn spare(list: &str) -> Result<Spare, String> {
    let mut spare = Spare::default();
    for one in list.split(',') {
        match one {
            "tc-log" => spare.tc_log = true,
            "ddl-log" => spare.ddl_log = true,
            "frm" => spare.frm = true,
            "innodb-checkpoint" => spare.innodb_checkpoint = true,
            "none" => {}
            other => return Err(format!("--spare {other}?")),
        }
    }
    Ok(spare)
}

fn number(name: &str, value: &str) -> Result<u64, String> {
    value.parse().map_err(|_| format!("{name} {value}: not a number"))
}
