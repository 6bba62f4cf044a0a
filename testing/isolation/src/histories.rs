//! The commands `histories` and `planted`.

use crate::args::Options;
use crate::history::check::{check, Report};
use crate::history::model::{Anomaly, History, Kind, Outcome};
use crate::history::plant::plant;
use crate::history::run::{record, Plan};
use crate::level::Level;
use sluice_rig::server::{copy_tree, Binlog, Launch};
use std::fs;
use std::time::Duration;

/// A commit is handed to the operating system before it is answered, so no kill takes it.
fn launch(options: &Options, name: &str) -> Result<Launch, String> {
    let dir = options.dir.join(name);
    let template = options.dir.join("template");
    let launch = Launch {
        prefix: options.prefix.clone(),
        dir: dir.clone(),
        engine: "Sluice".into(),
        binlog: Binlog::Off,
        log_mib: 32,
        binlog_rotation_kib: 1024,
        extra: vec![
            "--innodb-flush-log-at-trx-commit=2".into(),
            "--loose-sluice-flush-log-at-trx-commit=2".into(),
        ],
        environment: Vec::new(),
    };
    let make = || {
        fs::create_dir_all(&dir)?;
        if !template.exists() {
            launch.prefix.install(&template)?;
        }
        copy_tree(&template, &launch.data())
    };
    make().map_err(|e| format!("{}: {e}", dir.display()))?;
    Ok(launch)
}

const KINDS: [Kind; 2] = [Kind::List, Kind::Register];

pub fn run(options: &Options) -> Result<bool, String> {
    println!("seed {}, engine {}, {} histories", options.seed, options.engine, options.histories);
    let time = Duration::from_secs(options.seconds) / options.histories.max(1) as u32;
    let (mut passed, mut failed) = (0, 0);
    for number in 0..options.histories {
        let level = options.level.unwrap_or(Level::ALL[number % 4]);
        let plan = Plan {
            engine: options.engine,
            level,
            kind: KINDS[(number + number / 4) % 2],
            sessions: options.sessions,
            kills: options.kills,
            time,
            seed: options.seed + number as u64,
        };
        let name = format!("history{number}");
        let history = record(&plan, &launch(options, &name)?)?;
        let report = check(&history);
        let is_right = tell(&plan, &history, &report);
        if is_right {
            passed += 1;
            let _ = fs::remove_dir_all(options.dir.join(&name));
        } else {
            failed += 1;
            let text = format!("{history:#?}\n{:#?}\n", report.findings);
            let _ = fs::write(options.dir.join(format!("{name}.txt")), text);
        }
    }
    println!("{passed} passed, {failed} failed");
    Ok(failed == 0)
}

fn tell(plan: &Plan, history: &History, report: &Report) -> bool {
    let wrong = report.forbidden_at(plan.level);
    let seen: Vec<&str> = report.kinds().iter().map(|kind| kind.name()).collect();
    println!(
        "{} {:?} seed {}: {} committed, {} rolled back, {} cut off; {} reads, {} dependencies, {} \
         reads of killed commits; seen: {}",
        plan.level,
        plan.kind,
        plan.seed,
        history.count(Outcome::Committed),
        history.count(Outcome::Aborted),
        history.count(Outcome::Unknown),
        report.reads,
        report.edges,
        report.reads_of_killed,
        if seen.is_empty() { "nothing".into() } else { seen.join(", ") },
    );
    for finding in wrong.iter().take(10) {
        println!("  FORBIDDEN at {}: {}: {}", plan.level, finding.anomaly, finding.text);
    }
    for fault in history.faults.iter().take(10) {
        println!("  FAULT {fault}");
    }
    wrong.is_empty() && history.faults.is_empty()
}

/// What is planted at each level: a forged transaction in the recorded history, and the run itself
/// when a stronger level is claimed for it than it had.
const FORGED: [(Level, Anomaly); 4] = [
    (Level::ReadUncommitted, Anomaly::G0),
    (Level::ReadCommitted, Anomaly::G1b),
    (Level::RepeatableRead, Anomaly::ReadSkew),
    (Level::Serializable, Anomaly::G2Item),
];

fn betraying(claim: Level) -> &'static [Anomaly] {
    match claim {
        Level::ReadUncommitted => &[],
        Level::ReadCommitted => &[Anomaly::G1a, Anomaly::G1b],
        Level::RepeatableRead => &[Anomaly::ReadSkew],
        Level::Serializable => &[Anomaly::LostUpdate, Anomaly::GSingle, Anomaly::G2Item],
    }
}

pub fn planted(options: &Options) -> Result<bool, String> {
    let (mut passed, mut failed) = (0, 0);
    let mut count = |found: bool, text: String| {
        println!("{} {text}", if found { "found     " } else { "NOT FOUND " });
        *(if found { &mut passed } else { &mut failed }) += 1;
    };
    for (number, (level, forged)) in FORGED.into_iter().enumerate() {
        for kind in KINDS {
            let seed = options.seed + number as u64;
            let (engine, sessions) = (options.engine, options.sessions);
            let time = Duration::from_millis(1000);
            let plan = Plan { engine, level, kind, sessions, kills: 0, time, seed };
            let name = format!("planted{number}{kind:?}");
            let mut history = record(&plan, &launch(options, &name)?)?;
            let report = check(&history);
            let is_clean = report.forbidden_at(level).is_empty();
            count(is_clean, format!("{level} {kind:?}: nothing wrong as recorded"));
            if let Some(claim) = Level::ALL.get(number + 1) {
                let wanted = betraying(*claim);
                let found = wanted.iter().any(|anomaly| report.has(*anomaly));
                count(found, format!("{level} {kind:?} claimed to be {claim}: {wanted:?}"));
            }
            plant(&mut history, forged);
            let found = check(&history).forbidden_at(level).iter().any(|f| f.anomaly == forged);
            count(found, format!("{level} {kind:?} with {forged} forged"));
            let _ = fs::remove_dir_all(options.dir.join(&name));
        }
    }
    println!("{passed} passed, {failed} failed");
    Ok(failed == 0)
}
