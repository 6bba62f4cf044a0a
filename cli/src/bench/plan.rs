//! What is to be measured: the configuration of a run.

use super::presets;
use super::target::TargetSpec;
use super::RunArgs;
use crate::Result;
use serde_json::{json, Value};

pub const STOCK_ROW_BYTES: u32 = 188;

#[derive(Clone, Debug)]
pub struct Plan {
    pub preset: String,
    pub targets: Vec<TargetSpec>,
    pub workloads: Vec<String>,
    pub threads: Vec<u32>,
    pub row_bytes: Vec<u32>,
    pub repetitions: u32,
    pub seconds: u32,
    pub warmup: u32,
    pub tables: u32,
    pub rows: u64,
    pub pool_mib: u64,
    pub log_mib: u64,
    pub schema: String,
    /// Sizes of transactions after which a private server is killed and started again.
    pub restart_mib: Vec<u64>,
    /// From few threads to many inside of one run.
    pub step: Option<(u32, u32)>,
    pub replica: bool,
    /// For the stock read-only workload of the tuning evaluation.
    pub read_only_args: Vec<String>,
    /// Names of two targets: what `sluice advise` says of the first is set on the second.
    pub advise: Option<(String, String)>,
}

impl Plan {
    pub fn new(args: &RunArgs) -> Result<Plan> {
        let mut plan = presets::plan(args.preset.as_deref(), args.published)?;
        if !args.targets.is_empty() {
            plan.targets =
                args.targets.iter().map(|text| TargetSpec::parse(text)).collect::<Result<_>>()?;
            plan.advise = None;
        }
        plan.override_with(args);
        plan.schema = args.schema.clone();
        plan.check()?;
        Ok(plan)
    }

    fn override_with(&mut self, args: &RunArgs) {
        fn list<T: Clone>(ours: &mut Vec<T>, theirs: &[T]) {
            if !theirs.is_empty() {
                *ours = theirs.to_vec();
            }
        }
        list(&mut self.workloads, &args.workloads);
        list(&mut self.threads, &args.threads);
        list(&mut self.row_bytes, &args.row_bytes);
        self.repetitions = args.repetitions.unwrap_or(self.repetitions);
        self.seconds = args.seconds.unwrap_or(self.seconds);
        self.warmup = args.warmup.unwrap_or(self.warmup);
        self.tables = args.tables.unwrap_or(self.tables);
        self.rows = args.rows.unwrap_or(self.rows);
        self.pool_mib = args.pool_mib.unwrap_or(self.pool_mib);
        self.log_mib = args.log_mib.unwrap_or(self.log_mib);
    }

    fn check(&self) -> Result<()> {
        let mut names: Vec<&str> = self.targets.iter().map(|t| t.name.as_str()).collect();
        names.sort_unstable();
        if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(format!("two targets have the name {}", pair[0]));
        }
        if names.is_empty() || self.workloads.is_empty() || self.threads.is_empty() {
            return Err("nothing to measure: give a --preset, or --target, --workloads and \
                        --threads"
                .to_string());
        }
        let stock = self.workloads.iter().find(|name| !name.starts_with("rows_"));
        if let (Some(name), true) = (stock, self.row_bytes != [STOCK_ROW_BYTES]) {
            return Err(format!(
                "{name} has rows of {STOCK_ROW_BYTES} bytes; other sizes need rows_insert, \
                 rows_update_non_index or rows_update_index"
            ));
        }
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if self.schema.is_empty() || self.schema.len() > 40 || !self.schema.chars().all(plain) {
            return Err("--schema takes up to 40 letters, digits and underscores".to_string());
        }
        Ok(())
    }

    /// Long enough for a curve.
    pub fn replica_seconds(&self) -> u32 {
        self.seconds.max(12)
    }

    /// Places of the two targets of `advise`.
    pub fn advised(&self) -> Option<(usize, usize)> {
        let (from, to) = self.advise.as_ref()?;
        let place = |name: &String| self.targets.iter().position(|t| t.name == *name);
        Some((place(from)?, place(to)?))
    }

    pub fn threads_max(&self) -> u32 {
        let step = self.step.map_or(0, |(_, to)| to);
        self.threads.iter().copied().max().unwrap_or(1).max(step)
    }

    /// About what the data of one target takes, with indexes, logs and the binlog of the run.
    pub fn disk_bytes_per_target(&self) -> u64 {
        let rows = u64::from(self.tables) * self.rows;
        let data: u64 = self.row_bytes.iter().map(|b| rows * (u64::from(*b) + 80) * 3 / 2).sum();
        let largest = self.restart_mib.iter().copied().max().unwrap_or(0);
        // Load and measurements go through the binlog; a huge transaction is there several times.
        data * 2 + (self.log_mib * 2 + largest * 5 + 512) * (1 << 20)
    }

    /// All that decides whether two runs measure the same.
    pub fn to_json(&self) -> Value {
        json!({
            "preset": self.preset,
            "targets": self.targets.iter().map(TargetSpec::to_json).collect::<Vec<_>>(),
            "workloads": self.workloads,
            "threads": self.threads,
            "row_bytes": self.row_bytes,
            "repetitions": self.repetitions,
            "seconds": self.seconds,
            "warmup": self.warmup,
            "tables": self.tables,
            "rows": self.rows,
            "pool_mib": self.pool_mib,
            "log_mib": self.log_mib,
            "schema": self.schema,
            "restart_mib": self.restart_mib,
            "step": self.step.map(|(from, to)| vec![from, to]),
            "replica": self.replica,
            "read_only_args": self.read_only_args,
            "advise": self.advise.as_ref().map(|(from, to)| vec![from, to]),
        })
    }
}
