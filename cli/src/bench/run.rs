//! A whole run: checks, servers, steps, clean-up, report.

use super::journal::Journal;
use super::measure::{Load, Run};
use super::plan::Plan;
use super::progress::{clock, Progress};
use super::steps::{steps, BenchStep};
use super::sysbench::{Files, Report};
use super::target::Target;
use super::trial::Kind;
use super::{advised, lag, sizes, special, tools, tpcc, RunArgs};
use crate::db::Client;
use crate::host::{self, Device};
use crate::{reports, signals, Result};
use serde_json::{json, Map, Value};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

const PROBE_MIB: usize = 16;
/// As a shell reports a program that Ctrl-C ended.
const INTERRUPTED: u8 = 130;

pub struct Bench {
    pub plan: Plan,
    pub targets: Vec<Target>,
    pub files: Files,
    journal: Journal,
    progress: Progress,
    loaded: BTreeSet<(usize, u32)>,
    /// Targets that this machine cannot start; their steps are left out.
    absent: BTreeSet<usize>,
    /// Sessions that hold a snapshot until they are dropped.
    holders: Vec<Client>,
    failures: u32,
    servers: PathBuf,
    prefix: Option<PathBuf>,
}

/// One preset, or several one after the other, each in a directory of its own.
pub fn run(args: &RunArgs) -> Result<ExitCode> {
    let [first, _, ..] = &args.preset[..] else {
        return run_one(args, args.preset.first().map(String::as_str), &args.out);
    };
    let mut failed = Vec::new();
    // Refused before anything is measured, if one of them is.
    args.preset.iter().try_for_each(|name| Plan::new(args, Some(name)).map(|_| ()))?;
    eprintln!("sluice: {} presets, {first} first", args.preset.len());
    for name in &args.preset {
        match run_one(args, Some(name), &args.out.join(name)) {
            _ if signals::stopped() => return Ok(ExitCode::from(INTERRUPTED)),
            Ok(code) if code == ExitCode::SUCCESS => {}
            Ok(_) => failed.push(name.as_str()),
            Err(why) => {
                eprintln!("sluice: {name}: {why}");
                failed.push(name.as_str());
            }
        }
    }
    match failed.is_empty() {
        true => Ok(ExitCode::SUCCESS),
        false => Err(format!("failed: {}", failed.join(", "))),
    }
}

fn run_one(args: &RunArgs, preset: Option<&str>, out: &Path) -> Result<ExitCode> {
    let plan = Plan::new(args, preset)?;
    if out.to_string_lossy().contains(',') {
        return Err("--out cannot have a comma: sysbench takes it for the end of a socket's name"
            .to_string());
    }
    let steps = steps(&plan);
    let absent = absent(&plan, args.prefix.as_deref());
    let present = |step: &&BenchStep| !absent.contains(&step.target());
    let seconds: f64 = steps.iter().filter(present).map(|step| step.seconds(&plan)).sum();
    if args.dry_run {
        report!("{:#}", plan.to_json());
        for at in &absent {
            let name = &plan.targets[*at].name;
            report!("target {name} is left out: the plugin of its engine is not in the prefix");
        }
        report!("{} steps, about {}", steps.iter().filter(present).count(), clock(seconds as u64));
        return Ok(ExitCode::SUCCESS);
    }
    tools::ensure_sysbench()?;
    tools::check_descriptors(plan.threads_max())?;
    let out = std::path::absolute(out).map_err(|e| format!("--out: {e}"))?;
    fs::create_dir_all(&out).map_err(|e| format!("cannot create {}: {e}", out.display()))?;
    disk_suffices(&plan, absent.len() as u64, &out)?;
    let journal = Journal::open(&out, &plan.to_json(), &environment(&out))?;
    let todo = |step: &&BenchStep| {
        !matches!(step, BenchStep::Load { .. }) && !journal.is_done(&step.key(&plan))
    };
    if !steps.iter().any(|step| todo(&step)) {
        eprintln!("sluice: everything is measured");
        return reports::write_all(&out).map(|()| ExitCode::SUCCESS);
    }
    if plan.is_whole() && journal.goes_on {
        return Err(format!(
            "{} holds part of a run that cannot go on, because each measurement depends on all \
             before it: choose another --out, or remove it",
            out.display()
        ));
    }
    let servers = out.join("servers");
    fs::create_dir_all(&servers)
        .map_err(|e| format!("cannot create {}: {e}", servers.display()))?;
    let mut bench = Bench::new(plan, journal, &servers, args, seconds)?;
    let outcome = bench.start_targets(&out).and_then(|()| bench.all_steps(&steps));
    bench.clean_up();
    let _ = fs::remove_dir_all(&servers);
    if signals::stopped() {
        eprintln!("sluice: interrupted; the same command goes on with what is left");
        return Ok(ExitCode::from(INTERRUPTED));
    }
    outcome?;
    reports::write_all(&out)?;
    match bench.failures {
        0 => Ok(ExitCode::SUCCESS),
        _ => Ok(ExitCode::FAILURE),
    }
}

fn environment(out: &Path) -> Value {
    let text = |words: &[&str]| {
        let output = std::process::Command::new(words[0]).args(&words[1..]).output().ok()?;
        Some(String::from_utf8_lossy(&output.stdout).trim().to_string())
    };
    json!({
        "sluice": env!("CARGO_PKG_VERSION"),
        "sysbench": text(&["sysbench", "--version"]),
        "time": text(&["date", "-u", "+%Y-%m-%dT%H:%M:%SZ"]),
        "machine": host::machine(out),
    })
}

/// Targets whose engine is not in the prefix.
fn absent(plan: &Plan, prefix: Option<&Path>) -> BTreeSet<usize> {
    let is_absent = |at: &usize| {
        let mut target = Target::new(&plan.targets[*at], plan, Path::new(""), "");
        target.use_prefix(prefix);
        target.cannot_start().is_some()
    };
    (0..plan.targets.len()).filter(is_absent).collect()
}

fn disk_suffices(plan: &Plan, absent: u64, out: &Path) -> Result<()> {
    let private = plan.targets.iter().filter(|t| t.is_private()).count() as u64;
    let private = private.saturating_sub(absent);
    let replicas = if plan.replica { 1 } else { 0 };
    let needed = plan.disk_bytes_per_target() * (private + replicas);
    match host::free_bytes(out) {
        Some(free) if private > 0 && free < needed => Err(format!(
            "the private servers may need {} MiB at {}, where {} MiB are free: use fewer --rows or \
             --tables, or another --out",
            needed >> 20,
            out.display(),
            free >> 20
        )),
        _ => Ok(()),
    }
}

impl Bench {
    fn new(
        plan: Plan,
        journal: Journal,
        servers: &Path,
        args: &RunArgs,
        guess: f64,
    ) -> Result<Bench> {
        let files = Files::new(servers)?;
        let make = |spec| {
            let mut target = Target::new(spec, &plan, servers, &journal.run_id);
            target.use_prefix(args.prefix.as_deref());
            let replicated = plan.replica || plan.kind.is_some_and(Kind::needs_port);
            if replicated && spec.is_private() && spec.has_binlog() {
                target.listen()?;
            }
            Ok(target)
        };
        let targets = plan.targets.iter().map(make).collect::<Result<_>>()?;
        Ok(Bench {
            files,
            targets,
            plan,
            journal,
            progress: Progress::new(guess),
            loaded: BTreeSet::new(),
            absent: BTreeSet::new(),
            holders: Vec::new(),
            failures: 0,
            servers: servers.to_path_buf(),
            prefix: args.prefix.clone(),
        })
    }

    fn start_targets(&mut self, out: &Path) -> Result<()> {
        if !self.journal.is_done("storage") {
            self.progress.begin("measuring the storage");
            let probe = host::probe(out, PROBE_MIB)?.to_json();
            let device = Device::of(out).map(|d| d.name);
            let line =
                json!({"kind": "storage", "key": "storage", "probe": probe, "device": device});
            self.journal.write(&line)?;
        }
        for at in 0..self.targets.len() {
            if signals::stopped() {
                return Err("interrupted".to_string());
            }
            self.start_target(at)?;
        }
        if self.absent.len() == self.targets.len() {
            return Err("none of the targets can be measured here".to_string());
        }
        Ok(())
    }

    fn start_target(&mut self, at: usize) -> Result<()> {
        let name = self.plan.targets[at].name.clone();
        self.progress.begin(&format!("starting {name}"));
        // What a killed run left behind.
        let schemas = self.schemas(at);
        self.targets[at].clean_up(&schemas)?;
        if let Some(why) = self.targets[at].cannot_start() {
            self.progress.note(&format!("sluice: target {name} is left out: {why}"));
            self.absent.insert(at);
            let key = format!("absent {name}");
            let line = json!({"kind": "absent", "key": key, "target": name, "why": why});
            return match self.journal.is_done(&key) {
                true => Ok(()),
                false => self.journal.write(&line),
            };
        }
        if let Some(advice) = self.journal.advice.as_ref().filter(|l| l["target"] == *name) {
            self.targets[at].set_options(&advised::options_of(advice));
        }
        self.targets[at].start(self.plan.threads_max())?;
        self.targets[at].check(self.plan.threads_max())?;
        let key = format!("server {name}");
        if !self.journal.is_done(&key) {
            let settings = self.targets[at].settings()?;
            let line = json!({"kind": "server", "key": key, "target": name, "settings": settings});
            self.journal.write(&line)?;
        }
        match self.plan.is_alone() {
            true => self.targets[at].clean_up(&[]),
            false => Ok(()),
        }
    }

    /// The server of a target on a new directory, for a measurement that has the machine alone.
    pub fn fresh(&mut self, target: usize) -> Result<()> {
        let threads = self.plan.threads_max();
        self.targets[target].clean_up(&[])?;
        self.targets[target].start(threads).map(|_| ())
    }

    /// Files of a measurement, and servers beside the targets; gone with the run.
    pub fn scratch(&self) -> &Path {
        &self.servers
    }

    pub fn prefix(&self) -> Option<&Path> {
        self.prefix.as_deref()
    }

    /// A session that took its snapshot and keeps it.
    fn hold(&mut self, target: usize) -> Result<Map<String, Value>> {
        let server = &self.targets[target];
        let schema = server.schema(&self.plan, self.plan.row_bytes[0]);
        let mut client = Client::connect(&server.dsn)?;
        client.execute("SET SESSION wait_timeout = 2147483")?;
        client.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT")?;
        let sum = client.value(&format!("SELECT SUM(k) AS s FROM `{schema}`.sbtest1"))?;
        self.holders.push(client);
        Ok(Map::from_iter([("sum".to_string(), json!(sum))]))
    }

    fn schemas(&self, target: usize) -> Vec<String> {
        let schema = |row_bytes: &u32| self.targets[target].schema(&self.plan, *row_bytes);
        self.plan.row_bytes.iter().map(schema).collect()
    }

    fn all_steps(&mut self, steps: &[BenchStep]) -> Result<()> {
        for step in steps {
            let key = step.key(&self.plan);
            let guess = step.seconds(&self.plan);
            let needed = match step {
                BenchStep::Load { target, row_bytes } => {
                    self.load_is_needed(steps, *target, *row_bytes)
                }
                _ => !self.journal.is_done(&key),
            };
            if self.absent.contains(&step.target()) {
                continue;
            }
            if needed {
                self.progress.begin(&key);
                self.one_step(step, &key)?;
            }
            self.progress.end(guess);
        }
        self.progress.begin("cleaning up");
        self.progress.note("");
        Ok(())
    }

    fn load_is_needed(&self, steps: &[BenchStep], target: usize, row_bytes: u32) -> bool {
        let stock = row_bytes == self.plan.row_bytes[0];
        steps.iter().any(|step| {
            let uses = match step {
                BenchStep::Advise { from, .. } => *from == target && stock,
                BenchStep::Point { target: t, row_bytes: b, .. } => *t == target && *b == row_bytes,
                BenchStep::Jump { target: t } | BenchStep::Hold { target: t } => {
                    *t == target && stock
                }
                BenchStep::Trial { target: t, trial, .. } => {
                    *t == target && stock && trial.needs_load()
                }
                _ => false,
            };
            uses && !self.journal.is_done(&step.key(&self.plan))
        })
    }

    fn one_step(&mut self, step: &BenchStep, key: &str) -> Result<()> {
        let begun = Instant::now();
        let settle = Duration::from_millis(self.plan.settle_ms);
        if !matches!(step, BenchStep::Load { .. }) && !signals::sleep_until(begun + settle) {
            return Err("interrupted".to_string());
        }
        let result = match step {
            BenchStep::Load { target, row_bytes } => self.load(*target, *row_bytes),
            BenchStep::Point { target, workload, row_bytes, threads, .. } => {
                self.point(*target, workload, *row_bytes, *threads)
            }
            BenchStep::Advise { from, target } => advised::advise(self, *from, *target),
            BenchStep::Jump { target } => special::jump(self, *target),
            BenchStep::Replica { target } => lag::replica(self, *target),
            BenchStep::Restart { target, mib } => special::restart(self, *target, *mib),
            BenchStep::Hold { target } => self.hold(*target),
            BenchStep::Trial { target, trial, .. } => trial.run(self, *target),
        };
        if signals::stopped() {
            return Err("interrupted".to_string());
        }
        let mut fields =
            result.unwrap_or_else(|why| Map::from_iter([("failure".to_string(), json!(why))]));
        let failure = fields.get("failure").and_then(Value::as_str).map(String::from);
        fields.extend(self.named(step, key));
        fields.insert("took_s".to_string(), json!(begun.elapsed().as_secs_f64()));
        let again = matches!(step, BenchStep::Load { .. }) && self.journal.is_done(key);
        if !again {
            self.journal.write(&Value::Object(fields.clone()))?;
        }
        match (failure, step) {
            (
                Some(why),
                BenchStep::Load { .. } | BenchStep::Advise { .. } | BenchStep::Hold { .. },
            ) => return Err(format!("{key}: {why}")),
            (Some(why), _) => {
                self.failures += 1;
                self.progress.note(&format!("{key}: FAILED: {why}"));
            }
            (None, _) => self.progress.note(&summary(key, &fields)),
        }
        match self.plan.is_alone() {
            true => self.targets[step.target()].clean_up(&[]),
            false => self.revive(step.target()),
        }
    }

    fn named(&self, step: &BenchStep, key: &str) -> Map<String, Value> {
        let target = &self.plan.targets[step.target()].name;
        let mut line = json!({"key": key, "target": target});
        let more = match step {
            BenchStep::Load { row_bytes, .. } => json!({"kind": "load", "row_bytes": row_bytes}),
            BenchStep::Point { workload, row_bytes, threads, repetition, .. } => json!({
                "kind": "point", "workload": workload, "row_bytes": row_bytes,
                "threads": threads, "repetition": repetition,
            }),
            BenchStep::Advise { .. } => json!({"kind": "advice"}),
            BenchStep::Jump { .. } => json!({"kind": "jump"}),
            BenchStep::Replica { .. } => json!({"kind": "replica"}),
            BenchStep::Restart { mib, .. } => json!({"kind": "restart", "mib": mib}),
            BenchStep::Hold { .. } => json!({"kind": "hold"}),
            BenchStep::Trial { trial, repetition, .. } => {
                let mut line = trial.parameters();
                line["kind"] = json!("trial");
                line["trial"] = json!(trial.name());
                line["repetition"] = json!(repetition);
                line
            }
        };
        let mut fields = Map::new();
        for value in [&mut line, &mut (more.clone())] {
            fields.append(value.as_object_mut().expect("made as an object above"));
        }
        fields
    }

    /// Loads a schema. Its name is remembered before, so that a half-made one is removed as well.
    fn load(&mut self, target: usize, row_bytes: u32) -> Result<Map<String, Value>> {
        let server = &self.targets[target];
        let schema = server.schema(&self.plan, row_bytes);
        server.make_schema(&schema)?;
        self.loaded.insert((target, row_bytes));
        let workload = self.plan.workloads[0].clone();
        let load = self.measured(target, &workload, row_bytes);
        let mut watch = super::measure::Watch::begin(server)?;
        let begun = Instant::now();
        let run = Run::start(&load.prepare_words()?, self.plan.load_threads())?;
        let output = run.finish_watching(Duration::from_secs(24 * 3600), &mut watch)?;
        let mut fields = watch.end(server)?;
        fields.insert("seconds".to_string(), json!(begun.elapsed().as_secs_f64()));
        match self.plan.params.warehouses {
            Some(count) => fields.insert("warehouses".to_string(), json!(count)),
            None => {
                let rows = u64::from(self.plan.tables) * self.plan.rows;
                fields.insert("rows".to_string(), json!(rows))
            }
        };
        fields.insert("size_bytes".to_string(), json!(server.data_bytes(&schema)));
        if let Some(why) = Report::parse(&output.text).fatal.or(output.failure) {
            fields.insert("failure".to_string(), json!(why));
        }
        Ok(fields)
    }

    fn point(
        &self,
        target: usize,
        workload: &str,
        row_bytes: u32,
        threads: u32,
    ) -> Result<Map<String, Value>> {
        let load = self.measured(target, workload, row_bytes);
        let mut fields = load.point(threads, self.plan.seconds)?;
        let schema = load.target.schema(&self.plan, row_bytes);
        fields.insert("size_bytes".to_string(), json!(load.target.data_bytes(&schema)));
        fields.insert("sizes".to_string(), sizes::of(load.target));
        if workload == tpcc::WORKLOAD && !fields.contains_key("failure") {
            if let Err(why) = tpcc::check(&load.target.dsn, &schema) {
                fields.insert("failure".to_string(), json!(why));
            }
        }
        Ok(fields)
    }

    pub fn measured<'a>(&'a self, target: usize, workload: &'a str, row_bytes: u32) -> Load<'a> {
        Load {
            target: &self.targets[target],
            plan: &self.plan,
            files: &self.files,
            workload,
            row_bytes,
        }
    }

    /// A private server that died is started again; one that was given ends the run.
    fn revive(&mut self, target: usize) -> Result<()> {
        if Client::connect(&self.targets[target].dsn).is_ok() {
            return Ok(());
        }
        let name = self.plan.targets[target].name.clone();
        if self.targets[target].dir.is_none() || self.plan.held.contains(&name) {
            return Err(format!("target {name}: the server is gone"));
        }
        self.progress
            .note(&format!("sluice: the server of target {name} died and is started again"));
        self.targets[target].start(self.plan.threads_max()).map(|_| ())
    }

    /// All that this run made, however it ended. Things that cannot be removed are named.
    fn clean_up(&mut self) {
        for at in 0..self.targets.len() {
            let schemas = match self.targets[at].dir {
                Some(_) => Vec::new(),
                None => self.schemas(at).into_iter().filter(|_| !self.loaded.is_empty()).collect(),
            };
            if let Err(why) = self.targets[at].clean_up(&schemas) {
                eprintln!("sluice: cannot clean up target {}: {why}", self.plan.targets[at].name);
            }
        }
    }
}

fn summary(key: &str, fields: &Map<String, Value>) -> String {
    let number = |name: &str| fields.get(name).and_then(Value::as_f64);
    let p95 = fields.get("latency_ms").and_then(|l| l["p95"].as_f64());
    match (number("tps"), p95, number("seconds")) {
        (Some(tps), None, _) => format!("{key}: {tps:.0} TPS"),
        (Some(tps), Some(p95), _) => format!("{key}: {tps:.0} TPS, 95 % below {p95:.2} ms"),
        (_, _, Some(seconds)) => format!("{key}: {seconds:.1} s"),
        _ => key.to_string(),
    }
}

/// Below the directory of the servers.
pub fn replica_dir(primary: &Path) -> PathBuf {
    let mut name = primary.file_name().unwrap_or_default().to_os_string();
    name.push(".replica");
    primary.with_file_name(name)
}
