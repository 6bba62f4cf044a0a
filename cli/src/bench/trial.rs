//! Measurements that are not one sysbench run: which there are, and their order.

use super::params::{TxnStatement, When};
use super::plan::Plan;
use super::run::Bench;
use super::{follow, large, locks, receive, restart, rollback, soak};
use crate::Result;
use serde_json::{json, Map, Value};

pub type Fields = Result<Map<String, Value>>;

const LEVELS: [&str; 2] = ["READ COMMITTED", "REPEATABLE READ"];

/// Of a preset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Restart,
    Rollback,
    Soak,
    Lag,
    Receive,
    LargeRows,
    Locks,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Trial {
    /// One transaction of about `gb` GB, kill -9, and a start.
    Restart {
        gb: f64,
        when: When,
        change: TxnStatement,
    },
    /// One transaction of the plan's rows, ROLLBACK, and what others see meanwhile.
    Rollback {
        change: TxnStatement,
    },
    /// A stretch of mixed load, watched second by second.
    Soak,
    /// A replica that applies.
    Lag {
        engine: String,
        apply_threads: u32,
    },
    /// Replicas that receive and do not apply.
    Receive {
        receivers: u32,
    },
    /// A table of 900 columns.
    Columns,
    LargeValue {
        mib: u64,
    },
    /// One UPDATE of the plan's rows at this isolation level, beside small commits.
    LargeUpdate {
        level: &'static str,
    },
    /// One row that so many sessions update.
    HotRow {
        writers: u32,
    },
}

impl Kind {
    /// Each measurement gets a server of its own on a new directory; no other runs meanwhile.
    pub fn is_alone(self) -> bool {
        matches!(self, Kind::Restart | Kind::Rollback | Kind::LargeRows | Kind::Locks)
    }

    /// Whether the plan's workloads are measured as points too.
    pub fn has_points(self) -> bool {
        self == Kind::Lag
    }

    pub fn needs_port(self) -> bool {
        matches!(self, Kind::Lag | Kind::Receive)
    }

    pub fn trials(self, plan: &Plan) -> Vec<Trial> {
        let p = &plan.params;
        match self {
            Kind::Soak => vec![Trial::Soak],
            Kind::Rollback => p.change.iter().map(|&change| Trial::Rollback { change }).collect(),
            Kind::Receive => {
                p.receivers.iter().map(|&receivers| Trial::Receive { receivers }).collect()
            }
            Kind::LargeRows => {
                let values = p.value_mib.iter().map(|&mib| Trial::LargeValue { mib });
                std::iter::once(Trial::Columns).chain(values).collect()
            }
            Kind::Locks => {
                let level = |level: &&'static str| Trial::LargeUpdate { level };
                let hot = plan.threads.iter().map(|&writers| Trial::HotRow { writers });
                LEVELS.iter().map(level).chain(hot).collect()
            }
            Kind::Lag => {
                let of = |engine: &String| {
                    let engine = engine.clone();
                    let trial = move |&apply_threads: &u32| Trial::Lag {
                        engine: engine.clone(),
                        apply_threads,
                    };
                    p.apply_threads.iter().map(trial).collect::<Vec<_>>()
                };
                p.replica_engines.iter().flat_map(of).collect()
            }
            Kind::Restart => {
                let mut trials = Vec::new();
                for &change in &p.change {
                    for &gb in &p.size_gb {
                        trials.extend(p.when.iter().map(|&when| Trial::Restart {
                            gb,
                            when,
                            change,
                        }));
                    }
                }
                trials
            }
        }
    }
}

impl Trial {
    pub fn name(&self) -> &'static str {
        match self {
            Trial::Restart { .. } => "restart",
            Trial::Rollback { .. } => "rollback",
            Trial::Soak => "soak",
            Trial::Lag { .. } => "lag",
            Trial::Receive { .. } => "receive",
            Trial::Columns => "columns",
            Trial::LargeValue { .. } => "large-value",
            Trial::LargeUpdate { .. } => "large-update",
            Trial::HotRow { .. } => "hot-row",
        }
    }

    /// What it is of, as fields of its result.
    pub fn parameters(&self) -> Value {
        match self {
            Trial::Restart { gb, when, change } => {
                json!({"gb": gb, "when": when.name(), "change": change.name()})
            }
            Trial::Rollback { change } => json!({"change": change.name()}),
            Trial::Lag { engine, apply_threads } => {
                json!({"replica": engine, "apply_threads": apply_threads})
            }
            Trial::Receive { receivers } => json!({"receivers": receivers}),
            Trial::LargeValue { mib } => json!({"value_mib": mib}),
            Trial::LargeUpdate { level } => json!({"level": level}),
            Trial::HotRow { writers } => json!({"writers": writers}),
            Trial::Soak | Trial::Columns => json!({}),
        }
    }

    pub fn key(&self) -> String {
        let parameters = self.parameters();
        let words = parameters.as_object().into_iter().flatten();
        let word = |value: &Value| value.as_str().map_or(value.to_string(), String::from);
        words.fold(self.name().to_string(), |key, (_, value)| format!("{key} {}", word(value)))
    }

    /// Works on the tables that the run loads.
    pub fn needs_load(&self) -> bool {
        *self == Trial::Soak
    }

    /// A first guess.
    pub fn seconds(&self, plan: &Plan) -> f64 {
        let rows = plan.rows as f64;
        match self {
            Trial::Restart { gb, .. } => {
                25.0 + gb * 60.0 + f64::from(plan.params.tps_seconds.unwrap_or(0)) * 2.0
            }
            Trial::Rollback { .. } => 20.0 + rows / 2e4,
            Trial::Soak => f64::from(plan.seconds),
            Trial::Lag { .. } => 15.0 + f64::from(plan.seconds) * 2.0,
            Trial::Receive { receivers } => 5.0 + f64::from(plan.seconds + receivers * 4),
            Trial::Columns => 15.0,
            Trial::LargeValue { mib } => 20.0 + *mib as f64 / 8.0,
            Trial::LargeUpdate { .. } => 25.0 + rows / 3e4,
            Trial::HotRow { .. } => 15.0 + f64::from(plan.seconds),
        }
    }

    /// Bytes on the disk, beyond the loaded tables and logs.
    pub fn disk_bytes(&self, plan: &Plan) -> u64 {
        match self {
            Trial::Restart { gb, .. } => (gb * 5e9) as u64,
            Trial::Rollback { .. } => plan.rows * 2000,
            Trial::LargeUpdate { .. } => plan.rows * 1000,
            Trial::LargeValue { mib } => (mib << 20) * 6,
            Trial::Receive { .. } | Trial::Lag { .. } => 2 << 30,
            Trial::Soak | Trial::Columns | Trial::HotRow { .. } => 0,
        }
    }

    pub fn run(&self, bench: &mut Bench, target: usize) -> Fields {
        match self {
            Trial::Restart { gb, when, change } => {
                restart::restart(bench, target, *gb, *when, *change)
            }
            Trial::Rollback { change } => rollback::rollback(bench, target, *change),
            Trial::Soak => soak::stretch(bench, target),
            Trial::Lag { engine, apply_threads } => {
                follow::lag(bench, target, engine, *apply_threads)
            }
            Trial::Receive { receivers } => receive::receive(bench, target, *receivers),
            Trial::Columns => large::columns(bench, target),
            Trial::LargeValue { mib } => large::value(bench, target, *mib),
            Trial::LargeUpdate { level } => locks::large_update(bench, target, level),
            Trial::HotRow { writers } => locks::hot_row(bench, target, *writers),
        }
    }
}
