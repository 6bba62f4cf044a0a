//! What is to be measured: the configuration of a run.

use super::params::Params;
use super::presets;
use super::target::TargetSpec;
use super::tpcc;
use super::trial::{Kind, Trial};
use super::RunArgs;
use crate::Result;
use serde_json::{json, Value};

pub const STOCK_ROW_BYTES: u32 = 188;
pub const ZIPFIAN: &str = "zipfian";

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
    /// Rest before each measurement.
    pub settle_ms: u64,
    /// Of sysbench: auto, or disable.
    pub ps_mode: String,
    /// How keys are chosen; zipfian is ours, the others are sysbench's.
    pub rand_type: String,
    /// Of every private server, after its own.
    pub server_options: Vec<String>,
    /// Targets on which a snapshot from after the load is held to the end.
    pub held: Vec<String>,
    /// Measurements that are more than sysbench points.
    pub kind: Option<Kind>,
    pub params: Params,
}

impl Plan {
    pub fn new(args: &RunArgs, preset: Option<&str>) -> Result<Plan> {
        let mut plan = presets::plan(preset, args.published)?;
        if !args.targets.is_empty() {
            plan.targets =
                args.targets.iter().map(|text| TargetSpec::parse(text)).collect::<Result<_>>()?;
            plan.advise = None;
        }
        plan.keep_only(&args.only)?;
        plan.override_with(args);
        plan.params.override_with(&args.params)?;
        plan.take_minutes(args.repetitions.is_some());
        plan.schema = args.schema.clone();
        plan.check()?;
        if plan.is_tpcc() && (args.tables.is_some() || args.rows.is_some()) {
            return Err(
                "preset tpcc has --warehouses and --scale-percent instead of --tables and \
                        --rows"
                    .to_string(),
            );
        }
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
        self.settle_ms = args.settle.map_or(self.settle_ms, |s| (s * 1000.0) as u64);
        self.ps_mode = args.ps_mode.clone().unwrap_or_else(|| self.ps_mode.clone());
        self.rand_type = args.rand_type.clone().unwrap_or_else(|| self.rand_type.clone());
        self.server_options.extend(args.server_options.iter().cloned());
    }

    /// Targets of these names, in the order of the plan. `Sluice` means `sluice`.
    fn keep_only(&mut self, names: &[String]) -> Result<()> {
        let known = |name: &&String| self.targets.iter().any(|t| t.name.eq_ignore_ascii_case(name));
        if let Some(name) = names.iter().find(|name| !known(name)) {
            let all: Vec<&str> = self.targets.iter().map(|t| t.name.as_str()).collect();
            return Err(format!("--only {name}: the targets are {}", all.join(", ")));
        }
        if !names.is_empty() {
            let is_kept = |t: &TargetSpec| names.iter().any(|n| t.name.eq_ignore_ascii_case(n));
            self.targets.retain(is_kept);
        }
        self.held.retain(|name| self.targets.iter().any(|t| t.name == *name));
        Ok(())
    }

    /// As many repetitions as fill the minutes, unless a number was given.
    fn take_minutes(&mut self, given: bool) {
        let Some(minutes) = self.params.minutes.filter(|_| !given) else { return };
        let round = u64::from(self.seconds) * self.targets.len().max(1) as u64;
        self.repetitions = (u64::from(minutes) * 60).div_ceil(round.max(1)).max(1) as u32;
    }

    fn check(&self) -> Result<()> {
        let mut names: Vec<&str> = self.targets.iter().map(|t| t.name.as_str()).collect();
        names.sort_unstable();
        if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(format!("two targets have the name {}", pair[0]));
        }
        self.check_trials()?;
        if names.is_empty() || self.workloads.is_empty() || self.threads.is_empty() {
            return Err("nothing to measure: give a --preset, or --target, --workloads and \
                        --threads"
                .to_string());
        }
        self.check_workloads()?;
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if self.schema.is_empty() || self.schema.len() > 40 || !self.schema.chars().all(plain) {
            return Err("--schema takes up to 40 letters, digits and underscores".to_string());
        }
        Ok(())
    }

    /// The stock workloads have one size of rows, and their keys are sysbench's; the tables of tpcc
    /// are its own.
    fn check_workloads(&self) -> Result<()> {
        let is_tpcc = |name: &String| name == tpcc::WORKLOAD;
        if self.workloads.iter().any(|name| is_tpcc(name) != self.is_tpcc()) {
            return Err(
                "the workload tpcc belongs to the preset tpcc, and is its only one".to_string()
            );
        }
        let Some(name) = self.workloads.iter().find(|name| !name.starts_with("rows_")) else {
            return Ok(());
        };
        if self.row_bytes != [STOCK_ROW_BYTES] {
            return Err(match self.is_tpcc() {
                true => "tpcc has rows of its own: no --row-bytes".to_string(),
                false => format!(
                    "{name} has rows of {STOCK_ROW_BYTES} bytes; other sizes need the workloads \
                     rows_*"
                ),
            });
        }
        match self.rand_type.as_str() {
            "uniform" => Ok(()),
            _ if self.is_tpcc() => Err("tpcc chooses its keys itself: no --rand-type".to_string()),
            ZIPFIAN => Err(format!("{name} has no zipfian keys; the workloads rows_* have")),
            _ => Ok(()),
        }
    }

    /// Trials kill and remove servers, and hold snapshots: only private ones.
    fn check_trials(&self) -> Result<()> {
        let private = self.targets.iter().all(TargetSpec::is_private);
        if !private && (self.kind.is_some() || !self.held.is_empty()) {
            return Err(format!("preset {} needs private servers", self.preset));
        }
        let replicas = self.kind.is_some_and(Kind::needs_port);
        match self.targets.iter().find(|t| replicas && !t.has_binlog()) {
            Some(t) => Err(format!("target {} has no binlog: no replica can follow it", t.name)),
            None => Ok(()),
        }
    }

    pub fn trials(&self) -> Vec<Trial> {
        self.kind.map_or(Vec::new(), |kind| kind.trials(self))
    }

    pub fn has_points(&self) -> bool {
        self.kind.is_none_or(Kind::has_points)
    }

    pub fn is_alone(&self) -> bool {
        self.kind.is_some_and(Kind::is_alone)
    }

    /// Each figure depends on all that went before on the same server.
    pub fn is_whole(&self) -> bool {
        !self.held.is_empty() || self.kind == Some(Kind::Soak)
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

    pub fn is_tpcc(&self) -> bool {
        self.params.warehouses.is_some()
    }

    /// About what the rows of one target take, without indexes of choice and overhead.
    pub fn row_data_bytes(&self, row_bytes: u32) -> u64 {
        match self.is_tpcc() {
            true => tpcc::data_bytes(&self.params),
            false => u64::from(self.tables) * self.rows * u64::from(row_bytes + 60),
        }
    }

    pub fn load_threads(&self) -> u32 {
        self.params.warehouses.unwrap_or(self.tables).min(4)
    }

    pub fn threads_max(&self) -> u32 {
        let step = self.step.map_or(0, |(_, to)| to);
        self.threads.iter().copied().max().unwrap_or(1).max(step)
    }

    /// About what the data of one target takes, with indexes, logs and the binlog of the run.
    pub fn disk_bytes_per_target(&self) -> u64 {
        let data: u64 = self.row_bytes.iter().map(|b| self.row_data_bytes(*b + 20) * 3 / 2).sum();
        let largest = self.restart_mib.iter().copied().max().unwrap_or(0);
        // Load and measurements go through the binlog; a huge transaction is there several times.
        let trials = self.trials().iter().map(|t| t.disk_bytes(self)).max().unwrap_or(0);
        data * 2 + (self.log_mib * 2 + largest * 5 + 512) * (1 << 20) + trials
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
            "settle_ms": self.settle_ms,
            "ps_mode": self.ps_mode,
            "rand_type": self.rand_type,
            "server_options": self.server_options,
            "held": self.held,
            "params": self.params.to_json(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(preset: &str, change: impl Fn(&mut Plan)) -> String {
        let mut plan = presets::plan(Some(preset), false).unwrap();
        plan.schema = "s".to_string();
        change(&mut plan);
        plan.check().err().unwrap_or_default()
    }

    #[test]
    fn sizes_of_rows_and_zipfian_keys_need_our_workloads() {
        let longer = |plan: &mut Plan| plan.row_bytes = vec![188, 512];
        let zipfian = |plan: &mut Plan| plan.rand_type = ZIPFIAN.to_string();
        assert_eq!(refusal("write-less", longer), "");
        assert_eq!(refusal("write-less", zipfian), "");
        assert!(refusal("oltp", longer).contains("rows of 188 bytes"));
        assert!(refusal("oltp", zipfian).contains("no zipfian keys"));
        assert_eq!(refusal("oltp", |plan| plan.rand_type = "pareto".to_string()), "");
    }

    #[test]
    fn tpcc_stands_alone() {
        assert_eq!(refusal("tpcc", |_| ()), "");
        let other = |plan: &mut Plan| plan.workloads.push("rows_insert".to_string());
        let tpcc = |plan: &mut Plan| plan.workloads.push(tpcc::WORKLOAD.to_string());
        assert!(refusal("tpcc", other).contains("its only one"));
        assert!(refusal("commit", tpcc).contains("belongs to the preset tpcc"));
        assert!(refusal("tpcc", |plan| plan.row_bytes = vec![512]).contains("rows of its own"));
        assert!(refusal("tpcc", |plan| plan.rand_type = "pareto".to_string()).contains("itself"));
    }

    #[test]
    fn warehouses_decide_what_is_loaded() {
        let mut plan = presets::plan(Some("tpcc"), false).unwrap();
        let large = (plan.row_data_bytes(STOCK_ROW_BYTES), plan.load_threads());
        assert_eq!(large, (810_000_000, 4));
        plan.params.warehouses = Some(2);
        plan.params.scale_percent = Some(10);
        let small = (plan.row_data_bytes(STOCK_ROW_BYTES), plan.load_threads());
        assert_eq!(small, (17_000_000, 2));
    }
}
