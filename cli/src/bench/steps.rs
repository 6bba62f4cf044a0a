//! The order of a run.

use super::plan::Plan;
use super::trial::Trial;

#[derive(Clone, Debug, PartialEq)]
pub enum BenchStep {
    Load {
        target: usize,
        row_bytes: u32,
    },
    /// `sluice advise` on one target, its settings for another.
    Advise {
        from: usize,
        target: usize,
    },
    Point {
        target: usize,
        workload: String,
        row_bytes: u32,
        threads: u32,
        repetition: u32,
    },
    /// From few threads to many inside of one run.
    Jump {
        target: usize,
    },
    Replica {
        target: usize,
    },
    Restart {
        target: usize,
        mib: u64,
    },
    /// Opens a snapshot that stays to the end.
    Hold {
        target: usize,
    },
    Trial {
        target: usize,
        trial: Trial,
        repetition: u32,
    },
}

impl BenchStep {
    /// Names the step in the results; the same for the same plan.
    pub fn key(&self, plan: &Plan) -> String {
        let name = |target: &usize| plan.targets[*target].name.as_str();
        match self {
            BenchStep::Load { target, row_bytes } => format!("load {} {row_bytes}", name(target)),
            BenchStep::Advise { target, .. } => format!("advise {}", name(target)),
            BenchStep::Point { target, workload, row_bytes, threads, repetition } => {
                format!("point {} {workload} {row_bytes} {threads} {repetition}", name(target))
            }
            BenchStep::Jump { target } => format!("jump {}", name(target)),
            BenchStep::Replica { target } => format!("replica {}", name(target)),
            BenchStep::Restart { target, mib } => format!("restart {} {mib}", name(target)),
            BenchStep::Hold { target } => format!("hold {}", name(target)),
            BenchStep::Trial { target, trial, repetition } => {
                format!("trial {} {} {repetition}", name(target), trial.key())
            }
        }
    }

    pub fn target(&self) -> usize {
        match self {
            BenchStep::Load { target, .. }
            | BenchStep::Advise { target, .. }
            | BenchStep::Point { target, .. }
            | BenchStep::Jump { target }
            | BenchStep::Replica { target }
            | BenchStep::Hold { target }
            | BenchStep::Trial { target, .. }
            | BenchStep::Restart { target, .. } => *target,
        }
    }

    /// A first guess; progress corrects it by what the run really takes.
    pub fn seconds(&self, plan: &Plan) -> f64 {
        // Starting and ending sysbench, settling and reading sizes take time too.
        let measured = f64::from(plan.seconds + plan.warmup) + 2.0;
        match self {
            BenchStep::Load { row_bytes, .. } => 5.0 + plan.row_data_bytes(*row_bytes) as f64 / 8e6,
            BenchStep::Advise { .. } => 40.0,
            BenchStep::Point { .. } => measured,
            BenchStep::Jump { .. } => f64::from(plan.seconds) * 2.0 + 2.0,
            BenchStep::Replica { .. } => f64::from(plan.replica_seconds()) * 2.0 + 12.0,
            BenchStep::Restart { mib, .. } => 10.0 + *mib as f64 / 10.0,
            BenchStep::Hold { .. } => 2.0,
            BenchStep::Trial { trial, .. } => trial.seconds(plan),
        }
    }
}

/// Loads first; within each point the targets take turns, and another one begins each time.
pub fn steps(plan: &Plan) -> Vec<BenchStep> {
    let targets = plan.targets.len();
    let mut steps = Vec::new();
    let trials = plan.trials();
    if plan.has_points() || trials.iter().any(Trial::needs_load) {
        for &row_bytes in &plan.row_bytes {
            steps.extend((0..targets).map(|target| BenchStep::Load { target, row_bytes }));
        }
    }
    steps.extend(plan.advised().map(|(from, target)| BenchStep::Advise { from, target }));
    let is_held = |target: &usize| plan.held.contains(&plan.targets[*target].name);
    steps.extend((0..targets).filter(is_held).map(|target| BenchStep::Hold { target }));
    let mut first = 0;
    for repetition in 1..=plan.repetitions {
        for round in rounds(plan, &trials) {
            steps.extend((0..targets).map(|turn| {
                let target = (first + turn) % targets;
                round.step(target, repetition)
            }));
            first += 1;
        }
    }
    once(plan, &mut steps);
    steps
}

/// What all targets do in turn.
enum Round {
    Point { workload: String, row_bytes: u32, threads: u32 },
    Trial(Trial),
}

impl Round {
    fn step(&self, target: usize, repetition: u32) -> BenchStep {
        match self {
            Round::Trial(trial) => BenchStep::Trial { target, trial: trial.clone(), repetition },
            Round::Point { workload, row_bytes, threads } => BenchStep::Point {
                target,
                workload: workload.clone(),
                row_bytes: *row_bytes,
                threads: *threads,
                repetition,
            },
        }
    }
}

fn rounds(plan: &Plan, trials: &[Trial]) -> Vec<Round> {
    let mut rounds = Vec::new();
    for workload in plan.workloads.iter().filter(|_| plan.has_points()) {
        for &row_bytes in &plan.row_bytes {
            rounds.extend(plan.threads.iter().map(|&threads| Round::Point {
                workload: workload.clone(),
                row_bytes,
                threads,
            }));
        }
    }
    rounds.extend(trials.iter().cloned().map(Round::Trial));
    rounds
}

/// What is measured once, whatever the number of repetitions.
fn once(plan: &Plan, steps: &mut Vec<BenchStep>) {
    let targets = plan.targets.len();
    if plan.step.is_some() {
        steps.extend((0..targets).map(|target| BenchStep::Jump { target }));
    }
    let private = |target: &usize| plan.targets[*target].is_private();
    if plan.replica {
        let has_binlog = |target: &usize| plan.targets[*target].has_binlog();
        let targets = (0..targets).filter(private).filter(has_binlog);
        steps.extend(targets.map(|target| BenchStep::Replica { target }));
    }
    for &mib in &plan.restart_mib {
        steps.extend((0..targets).filter(private).map(|target| BenchStep::Restart { target, mib }));
    }
}

#[cfg(test)]
mod tests {
    use super::super::presets;
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn targets_take_turns_and_keys_are_unique() {
        let plan = presets::plan(Some("optimized-writes"), false).unwrap();
        let steps = steps(&plan);
        let keys: BTreeSet<String> = steps.iter().map(|s| s.key(&plan)).collect();
        assert_eq!(keys.len(), steps.len());
        let count = plan.targets.len();
        let points: Vec<&BenchStep> =
            steps.iter().filter(|s| matches!(s, BenchStep::Point { .. })).collect();
        for (at, round) in points.chunks(count).enumerate() {
            assert_eq!(round.iter().map(|s| s.target()).collect::<BTreeSet<_>>().len(), count);
            assert_eq!(round[0].target(), at % count, "another target begins each time");
        }
        assert!(steps.iter().any(|s| matches!(s, BenchStep::Replica { .. })));
    }
}
