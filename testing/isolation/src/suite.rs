//! All cases at all levels on both engines of one server, several at a time.

use crate::case::{parse, Case};
use crate::compare::{differences, idle_allowances, Pair};
use crate::level::{Engine, Level};
use crate::outcome::Timeline;
use crate::schedule::{self, Place};
use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::path::Path;
use std::sync::Mutex;

/// What became of one case.
pub struct CaseRun<'a> {
    pub case: &'a Case,
    pub pairs: Vec<(Level, Pair)>,
    pub faults: Vec<String>,
}

/// The cases of all files of `dir` whose name or group contains `filter`.
pub fn load(dir: &Path, filter: &str) -> Result<Vec<Case>, String> {
    let entries = fs::read_dir(dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    let mut paths: Vec<_> = entries.flatten().map(|e| e.path()).collect();
    paths.sort();
    let mut cases = Vec::new();
    for path in paths.iter().filter(|p| p.extension().is_some_and(|e| e == "case")) {
        let text = fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
        let group = path.file_stem().and_then(|s| s.to_str()).unwrap_or("");
        cases.extend(parse(group, &text)?);
    }
    let mut names = HashSet::new();
    if let Some(twice) = cases.iter().find(|case| !names.insert(case.name.clone())) {
        return Err(format!("two cases are called {}", twice.name));
    }
    cases.retain(|case| case.name.contains(filter) || case.group.contains(filter));
    Ok(cases)
}

type Job = (usize, Level, Engine);

pub fn run<'a>(cases: &'a [Case], socket: &Path, threads: usize) -> Vec<CaseRun<'a>> {
    let mut jobs: Vec<Job> = Vec::new();
    for (index, case) in cases.iter().enumerate() {
        for level in &case.levels {
            jobs.extend(Engine::BOTH.map(|engine| (index, *level, engine)));
        }
    }
    jobs.reverse();
    let queue = Mutex::new(jobs);
    let results = Mutex::new(BTreeMap::new());
    // Cases with routines share the server's list of them, and would be seen to wait for it.
    let routines = Mutex::new(());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| loop {
                let job = queue.lock().map(|mut q| q.pop()).unwrap_or(None);
                let Some((index, level, engine)) = job else { break };
                let database = format!("c{index}_{}_{}", level as u32, engine.name());
                let place = Place { socket, database, level, engine };
                let alone = has_routines(&cases[index]).then(|| routines.lock());
                let result = schedule::run(&cases[index], &place);
                drop(alone);
                if let Ok(mut results) = results.lock() {
                    results.insert((index, level, engine.name()), result);
                }
            });
        }
    });
    let mut results = results.into_inner().unwrap_or_default();
    let mut take = |index, level, engine: Engine| {
        results.remove(&(index, level, engine.name())).unwrap_or(Err("not run".into()))
    };
    let each = cases.iter().enumerate();
    each.map(|(index, case)| judge(case, |level, engine| take(index, level, engine))).collect()
}

fn has_routines(case: &Case) -> bool {
    let makes_one = |sql: &String| {
        ["create function", "create procedure", "create trigger"].iter().any(|m| sql.contains(m))
    };
    case.setup.iter().any(makes_one)
}

fn judge(
    case: &Case,
    mut take: impl FnMut(Level, Engine) -> Result<Timeline, String>,
) -> CaseRun<'_> {
    let mut run = CaseRun { case, pairs: Vec::new(), faults: Vec::new() };
    for &level in &case.levels {
        let (innodb, sluice) = (take(level, Engine::InnoDb), take(level, Engine::Sluice));
        let (innodb, sluice) = match (innodb, sluice) {
            (Ok(innodb), Ok(sluice)) => (innodb, sluice),
            (a, b) => {
                let mut fault = |engine, text: String| {
                    run.faults.push(format!("{} at {level} on {engine}: {text}", case.name));
                };
                let _ = a.map_err(|text| fault(Engine::InnoDb, text));
                let _ = b.map_err(|text| fault(Engine::Sluice, text));
                continue;
            }
        };
        let pair = Pair { innodb, sluice };
        for d in differences(case, level, &pair).iter().filter(|d| d.allowed_by.is_none()) {
            run.faults.push(format!(
                "{} at {level}:\n  {} InnoDB: {}\n  {} Sluice: {}",
                case.name, d.label, d.innodb, d.label, d.sluice
            ));
        }
        run.pairs.push((level, pair));
    }
    run.faults.extend(idle_allowances(case, &run.pairs));
    run
}

/// Everything that was seen, for the record of a run.
pub fn record(runs: &[CaseRun]) -> String {
    let mut out = String::new();
    for run in runs {
        for (level, pair) in &run.pairs {
            out.push_str(&format!("{}/{} at {level}\n", run.case.group, run.case.name));
            for engine in Engine::BOTH {
                for step in pair.of(engine) {
                    out.push_str(&format!("  {engine} {}: {}\n", step.label, step.outcome.text()));
                }
            }
        }
    }
    out
}
