//! Shows that the power cuts and the backups can fail: each time they ignore the syncs of one kind of file, or
//! the plugin or the program makes a mistake on purpose (plugin/src/planted.rs, engine/src/os/bug.rs), and the
//! run must find a difference of the kind that this must make, not just any. See docs/powercut.md and
//! docs/backup.md.

use sluice_rig::place::{self, WorkDir};
use sluice_rig::planted;
use sluice_rig::server::Prefix;
use std::io;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

enum Fault {
    /// The parts of paths whose syncs are ignored; $ is the path's end.
    Ignores(&'static str),
    /// A mistake of the plugin.
    Planted(&'static str),
    /// A mistake of the program `sluice`.
    InProgram(&'static str),
}

struct Kind {
    name: &'static str,
    /// The test that must find it.
    test: &'static str,
    fault: Fault,
    options: &'static [&'static str],
    /// Within which the run must fail.
    rounds: u64,
    /// What the failure may say: in the harness's own words, or in the error log of a server that does not
    /// start. Patterns of [`fits`]. Only the ends of paths can fit: the directory of a run has a neutral name.
    reasons: &'static [&'static [&'static str]],
}

const LOST: &[&str] = &[
    "acknowledged",
    "lost row",
    "in the engine but not",
    "in the binlog but not",
    "accounts_",
    "is missing",
    "not #",
    "was closed with",
];

const ROUNDS: u64 = 20;
/// Names of files are made with the directory: each round has a new one.
const FRESH: &[&str] = &["--fresh-every", "1"];

/// Whose proof each kind is part of.
pub const POWERCUT: &str = "powercut";
pub const BACKUP: &str = "backup";

static KINDS: [Kind; 12] = [
    Kind {
        name: "log",
        test: POWERCUT,
        fault: Fault::Ignores(".log$"),
        options: &[],
        rounds: ROUNDS,
        reasons: &[&["Sluice: *sluice/log/#*.log", "Sluice: *of a newer state of this one"], LOST],
    },
    Kind {
        name: "log-control",
        test: POWERCUT,
        fault: Fault::Ignores("/sluice/log/control"),
        options: &[],
        rounds: ROUNDS,
        reasons: &[&["Sluice: *sluice/log/control", "Sluice: *says that it was durable up to"]],
    },
    Kind {
        name: "log-directory",
        test: POWERCUT,
        fault: Fault::Ignores("/sluice/log/$"),
        options: FRESH,
        rounds: ROUNDS,
        reasons: &[&["Sluice: *sluice/log/"]],
    },
    Kind {
        name: "pages",
        test: POWERCUT,
        fault: Fault::Ignores("/sluice/pages$"),
        options: &[],
        rounds: ROUNDS,
        reasons: &[&["Sluice: *sluice/pages", "CHECK TABLE"]],
    },
    Kind {
        name: "map",
        test: POWERCUT,
        fault: Fault::Ignores("/sluice/map"),
        options: &[],
        rounds: ROUNDS,
        reasons: &[&["Sluice: *sluice/map"]],
    },
    Kind {
        name: "superblock",
        test: POWERCUT,
        fault: Fault::Ignores("/sluice/superblock$"),
        options: &[],
        rounds: ROUNDS,
        reasons: &[&["Sluice: *superblock", "Sluice: *segment where recovery starts"], LOST],
    },
    Kind {
        name: "store-directory",
        test: POWERCUT,
        fault: Fault::Ignores("/sluice/$"),
        options: FRESH,
        rounds: ROUNDS,
        reasons: &[&[
            "Sluice: cannot start*sluice/* No such file",
            "Sluice: cannot start*sluice/* missing",
            "Sluice: cannot open*sluice/* No such file",
            "Sluice: cannot open*sluice/* missing",
            "doesn't exist in engine",
            "not of this one",
        ]],
    },
    Kind {
        name: "binlog",
        test: POWERCUT,
        fault: Fault::Ignores("/data/binlog.0"),
        // The server itself syncs it.
        options: &["--binlog", "synced"],
        rounds: ROUNDS,
        reasons: &[&["the binary log"], LOST],
    },
    Kind {
        name: "binlog-in-log",
        test: POWERCUT,
        fault: Fault::Ignores("/data/binlog.0"),
        // Its files are completed from the log.
        options: &["--binlog", "log"],
        rounds: ROUNDS,
        reasons: &[&["binary log"], LOST],
    },
    Kind {
        // A copy of ALTER TABLE is not flushed before it replaces its table.
        name: "copy",
        test: POWERCUT,
        fault: Fault::Planted("copy"),
        options: &["--cuts-in-copies"],
        // The cut is at each call of an ALTER TABLE in its turn.
        rounds: 44,
        reasons: &[&["ddl tables are "]],
    },
    Kind {
        // An increment leaves out images that only have another place.
        name: "increment",
        test: BACKUP,
        fault: Fault::InProgram("IncrementByLsn"),
        options: &[],
        rounds: ROUNDS,
        reasons: &[&[" + *sluice restore: *the copy is damaged", " + *CHECK TABLE"], LOST],
    },
    Kind {
        // The server frees log that the backup is to copy.
        name: "backup-log",
        test: BACKUP,
        fault: Fault::Planted("BackupLogFreedEarly"),
        options: &[],
        rounds: ROUNDS,
        reasons: &[&["nobody ended it: *.log"]],
    },
];

struct Proof {
    prefix: Prefix,
    /// In place of each kind's own.
    rounds: Option<u64>,
    seed: u64,
    dir: PathBuf,
    /// Of the plugin with mistakes.
    plugin_dir: Option<PathBuf>,
    /// The `sluice` with mistakes.
    program: Option<PathBuf>,
}

/// Runs the kinds of `test` that `args` name, all without one.
pub fn run(test: &str, args: &[&str], work: &WorkDir) -> Result<ExitCode, String> {
    let (mut prefix, mut rounds, mut seed, mut kinds) = (None, None, 1, Vec::new());
    let mut args = args.iter();
    while let Some(&arg) = args.next() {
        let mut value = || args.next().copied().ok_or(format!("{arg} needs a value"));
        let number = |text: &str| text.parse().map_err(|_| format!("{arg} {text}: no number"));
        match arg {
            "--rounds" => rounds = Some(number(value()?)?),
            "--seed" => seed = number(value()?)?,
            "--prefix" => prefix = Some(PathBuf::from(value()?)),
            name => {
                let kind = KINDS.iter().find(|kind| (kind.test, kind.name) == (test, name));
                kinds.push(kind.ok_or(format!("no kind {name}"))?);
            }
        }
    }
    if kinds.is_empty() {
        kinds.extend(KINDS.iter().filter(|kind| kind.test == test));
    }
    let prefix = place::prefix(prefix)?;
    let plugin = kinds.iter().any(|kind| matches!(kind.fault, Fault::Planted(_)));
    let program = kinds.iter().any(|kind| matches!(kind.fault, Fault::InProgram(_)));
    let plugin_dir = plugin.then(|| planted::build(&prefix)).transpose();
    let program = program.then(|| planted::build_program(&prefix)).transpose();
    let proof = Proof {
        plugin_dir: plugin_dir.map_err(|e| e.to_string())?,
        program: program.map_err(|e| e.to_string())?,
        dir: work.run(),
        prefix,
        rounds,
        seed,
    };
    let mut passed = 0;
    for kind in &kinds {
        passed += u64::from(proof.notices(kind).map_err(|e| format!("{}: {e}", kind.name))?);
    }
    let failed = kinds.len() as u64 - passed;
    println!("{passed} passed, {failed} failed");
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

impl Proof {
    /// Whether the run fails for a reason that the fault must have.
    fn notices(&self, kind: &Kind) -> io::Result<bool> {
        let rounds = self.rounds.unwrap_or(kind.rounds);
        let ended = self.command(kind, rounds)?.output()?;
        let text = [ended.stdout, ended.stderr].concat();
        let text = String::from_utf8_lossy(&text);
        // Kept after a failure.
        std::fs::remove_dir_all(&self.dir).or_else(|error| match error.kind() {
            io::ErrorKind::NotFound => Ok(()),
            _ => Err(error),
        })?;
        let name = kind.name;
        if ended.status.success() {
            println!("{name}: NOT noticed in {rounds} rounds");
            return Ok(false);
        }
        let round = text.lines().find_map(|line| line.strip_prefix("FAILED in round "));
        let found = complaints(&text);
        let fitting = found.iter().find(|line| kind.reasons.concat().iter().any(|p| fits(p, line)));
        match (round.and_then(|rest| rest.split(',').next()), fitting) {
            (Some(round), Some(reason)) => {
                let reason: String = reason.chars().take(200).collect();
                println!("{name}: round {round}: {reason}");
                Ok(true)
            }
            _ => {
                println!("{name}: failed for another reason:");
                found.iter().take(5).for_each(|line| println!("{line}"));
                Ok(false)
            }
        }
    }

    fn command(&self, kind: &Kind, rounds: u64) -> io::Result<Command> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args([kind.test, "--rounds", &rounds.to_string()]);
        command.args(["--seed", &self.seed.to_string()]).args(kind.options);
        command.arg("--prefix").arg(&self.prefix.root).arg("--dir").arg(&self.dir);
        let (option, built, mistake) = match &kind.fault {
            Fault::Ignores(paths) => {
                command.args(["--ignore-sync", paths]);
                return Ok(command);
            }
            Fault::Planted(mistake) => ("--server-option", &self.plugin_dir, mistake),
            Fault::InProgram(mistake) => ("--program", &self.program, mistake),
        };
        let built = built.as_deref().ok_or_else(|| io::Error::other("nothing was built"))?;
        let value = match &kind.fault {
            Fault::Planted(_) => format!("--plugin-dir={}", built.display()),
            _ => built.display().to_string(),
        };
        command.args([option, &value]).env("SLUICE_PLANTED", mistake);
        Ok(command)
    }
}

/// What the run complained about, and what the server said before it gave up.
fn complaints(text: &str) -> Vec<&str> {
    const BAD: [&str; 6] = ["corrupt", "refused", "cannot", "missing", "damaged", "lost"];
    let of_run = text.lines().skip_while(|line| !line.starts_with("FAILED in round")).skip(1);
    let of_run = of_run.take_while(|line| !line.starts_with("kept "));
    let is_bad = |line: &&str| {
        let ours = line.split_once("Sluice: ").map(|(_, rest)| rest);
        line.contains("[ERROR]") || ours.is_some_and(|rest| BAD.iter().any(|b| rest.contains(b)))
    };
    of_run.chain(text.lines().filter(is_bad)).collect()
}

/// Whether the parts of the pattern, between its stars, stand in the line one after the other; a digit
/// must follow a part that ends with #.
fn fits(pattern: &str, line: &str) -> bool {
    let mut rest = line;
    pattern.split('*').all(|part| {
        let word = part.trim_end_matches('#');
        let is_here = |(at, _): &(usize, &str)| {
            let next = rest[at + word.len()..].chars().next();
            word == part || next.is_some_and(|c| c.is_ascii_digit())
        };
        let Some((at, _)) = rest.match_indices(word).find(is_here) else { return false };
        rest = &rest[at + word.len()..];
        true
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_fits_part_by_part() {
        let line = "[ERROR] Sluice: cannot read /d/sluice/log/000017.log: it ends";
        assert!(fits("Sluice: *sluice/log/#*.log", line) && fits("cannot", line));
        assert!(!fits("sluice/log/*Sluice: ", line), "in the other order");
        assert!(fits("not #", "not here: sums to 12, not 15") && !fits("not #", "is not there"));
    }

    #[test]
    fn complaints_are_those_of_the_run_and_of_the_server() {
        let text = "Sluice: started\nFAILED in round 3, seed 1: 1 problems\n  row 7\nkept /d\n\
                    2026 [ERROR] no table\nSluice: file is missing";
        let wanted = ["  row 7", "2026 [ERROR] no table", "Sluice: file is missing"];
        assert_eq!(complaints(text), wanted);
    }
}
