//! One measurement: sysbench runs, and meanwhile the machine and the server are watched.

use super::plan::Plan;
use super::sysbench::{interval_line, Files, Report};
use super::target::Target;
use super::{tools, tpcc};
use crate::db::{bytes_by_cause, Client, Counters, CAUSES};
use crate::host::{self, DeviceCounters, ProcessCounters, Storage, StorageCounters};
use crate::{signals, Result};
use serde_json::{json, Map, Value};
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// What sysbench may take longer than it was told: connecting, and ending transactions.
const GRACE: Duration = Duration::from_secs(60);

/// What a measurement is of.
pub struct Load<'a> {
    pub target: &'a Target,
    pub plan: &'a Plan,
    pub files: &'a Files,
    pub workload: &'a str,
    pub row_bytes: u32,
}

impl Load<'_> {
    pub fn run_words(&self, threads: u32, seconds: u32) -> Result<Vec<String>> {
        let mut words =
            self.files.words(self.target, self.plan, self.workload, self.row_bytes, "run")?;
        words.push(format!("--threads={threads}"));
        words.push(format!("--time={seconds}"));
        words.push("--report-interval=1".to_string());
        words.push("--histogram=on".to_string());
        Ok(words)
    }

    pub fn prepare_words(&self) -> Result<Vec<String>> {
        let mut words =
            self.files.words(self.target, self.plan, self.workload, self.row_bytes, "prepare")?;
        words.push(format!("--threads={}", self.plan.load_threads()));
        Ok(words)
    }

    pub fn warm_up(&self, threads: u32) -> Result<()> {
        if self.plan.warmup > 0 {
            let words = self.run_words(threads, self.plan.warmup)?;
            Run::start(&words, threads)?.finish(Duration::from_secs(self.plan.warmup.into()))?;
        }
        Ok(())
    }

    /// The fields of a result.
    pub fn point(&self, threads: u32, seconds: u32) -> Result<Map<String, Value>> {
        self.warm_up(threads)?;
        let words = self.run_words(threads, seconds)?;
        let mut watch = Watch::begin(self.target)?;
        let run = Run::start(&words, threads)?;
        let output = run.finish_watching(Duration::from_secs(seconds.into()), &mut watch)?;
        let mut fields = watch.end(self.target)?;
        add_report(&mut fields, &output);
        if let Some(mix) = tpcc::mix(&output.text) {
            fields.insert("mix".to_string(), mix);
        }
        Ok(fields)
    }

    pub fn start(&self, threads: u32, seconds: u32) -> Result<Run> {
        Run::start(&self.run_words(threads, seconds)?, threads)
    }
}

fn add_report(fields: &mut Map<String, Value>, output: &Output) {
    let report = Report::parse(&output.text);
    let mut add = |name: &str, value: Value| fields.insert(name.to_string(), value);
    add("transactions", json!(report.transactions));
    add("tps", json!(report.tps));
    add("qps", json!(report.qps));
    add("errors", json!(report.errors));
    add("reconnects", json!(report.reconnects));
    add("latency_ms", report.latency());
    add("per_second", json!(seconds_of(&output.text)));
    if let Some(reason) = report.fatal.or_else(|| output.failure.clone()) {
        add("failure", json!(reason));
    } else if report.transactions == 0 {
        add("failure", json!("no transaction ended in time"));
    }
}

pub fn seconds_of(text: &str) -> Vec<[f64; 4]> {
    text.lines().filter_map(interval_line).collect()
}

pub struct Output {
    pub text: String,
    pub failure: Option<String>,
}

/// A sysbench that runs. It does not outlive this value.
pub struct Run {
    child: Child,
    reader: Option<std::thread::JoinHandle<String>>,
}

impl Run {
    pub fn start(words: &[String], threads: u32) -> Result<Run> {
        let child = tools::command(words, u64::from(threads) + 256)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|e| format!("cannot run sysbench: {e}"))?;
        Ok(Run::of(child))
    }

    /// Reads all that a child says, standard output first.
    pub fn of(mut child: Child) -> Run {
        let (out, err) = (child.stdout.take(), child.stderr.take());
        let reader = std::thread::spawn(move || {
            let other = std::thread::spawn(move || {
                let mut text = String::new();
                let _ = err.map(|mut err| err.read_to_string(&mut text));
                text
            });
            let mut text = String::new();
            for line in out.into_iter().flat_map(|out| BufReader::new(out).lines()) {
                let Ok(line) = line else { break };
                text += &line;
                text.push('\n');
            }
            text + &other.join().unwrap_or_default()
        });
        Run { child, reader: Some(reader) }
    }

    pub fn finish(self, expected: Duration) -> Result<Output> {
        self.finish_calling(expected, || {})
    }

    pub fn finish_watching(self, expected: Duration, watch: &mut Watch) -> Result<Output> {
        self.finish_calling(expected, || watch.tick())
    }

    /// Waits for the end, and calls `each` about twenty times a second. A signal, or no end long
    /// after the time, kills it.
    pub fn finish_calling(mut self, expected: Duration, mut each: impl FnMut()) -> Result<Output> {
        let begun = Instant::now();
        loop {
            let ended = self.child.try_wait().map_err(|e| format!("cannot watch sysbench: {e}"))?;
            if let Some(status) = ended {
                let text = self.reader.take().and_then(|r| r.join().ok()).unwrap_or_default();
                let failure = (!status.success()).then(|| format!("sysbench ended with {status}"));
                return Ok(Output { text, failure });
            }
            if signals::stopped() {
                return Err("interrupted".to_string());
            }
            if begun.elapsed() > expected + GRACE {
                let failure = format!("sysbench did not end {} s after its time", GRACE.as_secs());
                return Ok(Output { text: String::new(), failure: Some(failure) });
            }
            each();
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Flushes of log and binlog files that the server itself counts: those of the device are of
/// everybody on the machine. Null where no counter is known.
fn own_flushes(after: &Counters, before: &Counters) -> Value {
    let names = [
        "sluice_log_flushes",
        "sluice_binlog_file_syncs",
        "sluice_binlog_server_synced_groups",
        "innodb_os_log_fsyncs",
    ];
    let known = names.iter().filter(|name| after.has(name));
    let sum: f64 = known.clone().map(|name| after.since(before, name)).sum();
    known.count().gt(&0).then_some(sum).into()
}

/// Counters before and during a measurement.
pub struct Watch {
    client: Client,
    before: Counters,
    variables: Counters,
    process: Option<ProcessCounters>,
    begun: Instant,
    device: Option<host::Device>,
    storage: Storage,
    storage_before: StorageCounters,
    first: Option<DeviceCounters>,
    last: Option<DeviceCounters>,
    next_tick: Instant,
    io_per_second: Vec<[f64; 6]>,
}

impl Watch {
    /// Connects first: with all connections in use it could not.
    pub fn begin(target: &Target) -> Result<Watch> {
        let mut client = Client::connect(&target.dsn)?;
        let variables = client.variables()?;
        let before = client.status()?;
        let device = target.device.clone();
        let storage = match target.pid {
            Some(_) => Storage::below(&host::directories(&variables), &host::Tools::default()),
            None => Storage::default(),
        };
        let storage_before = storage.read();
        let first = device.as_ref().and_then(|d| d.counters());
        let begun = Instant::now();
        Ok(Watch {
            client,
            before,
            variables,
            process: target.pid.and_then(ProcessCounters::read),
            begun,
            storage,
            storage_before,
            first,
            last: first,
            device,
            next_tick: begun + Duration::from_secs(1),
            io_per_second: Vec::new(),
        })
    }

    /// Notes the device's second: time, reads, writes, bytes read, bytes written, flushes.
    pub fn tick(&mut self) {
        if Instant::now() < self.next_tick {
            return;
        }
        self.next_tick += Duration::from_secs(1);
        let now = self.device.as_ref().and_then(|d| d.counters());
        if let (Some(now), Some(last)) = (now, self.last) {
            let d = now.since(&last);
            let time = (self.begun.elapsed().as_secs_f64() * 10.0).round() / 10.0;
            let counts = [d.reads, d.writes, d.read_bytes, d.written_bytes, d.flushes];
            let [r, w, rb, wb, f] = counts.map(|n| n as f64);
            self.io_per_second.push([time, r, w, rb, wb, f]);
            self.last = Some(now);
        }
    }

    pub fn end(mut self, target: &Target) -> Result<Map<String, Value>> {
        let seconds = self.begun.elapsed().as_secs_f64();
        let device = self.device.as_ref().and_then(|d| d.counters());
        let process = target.pid.and_then(ProcessCounters::read);
        let storage = self.storage.between(&self.storage_before, &self.storage.read());
        let after = self.client.status()?;
        let mut fields = Map::new();
        let mut add = |name: &str, value: Value| fields.insert(name.to_string(), value);
        add("measured_s", json!(seconds));
        add("log_bin", json!(self.variables.is_on("log_bin")));
        add("io_per_second", json!(self.io_per_second));
        if let (Some(device), Some(first)) = (device, self.first) {
            let d = device.since(&first);
            add(
                "device",
                json!({
                    "reads": d.reads, "read_bytes": d.read_bytes, "writes": d.writes,
                    "written_bytes": d.written_bytes, "flushes": d.flushes, "busy_ms": d.busy_ms,
                    "discarded_bytes": d.discarded_bytes,
                }),
            );
        }
        add("storage", storage.to_json());
        if let (Some(after), Some(before)) = (process, self.process) {
            add("server_cpu_s", json!(after.cpu_s - before.cpu_s));
            let written = after.written_bytes.zip(before.written_bytes);
            add("process_written_bytes", json!(written.map(|(a, b)| a.saturating_sub(b))));
        }
        let page = self.variables.number("innodb_page_size").unwrap_or(16384.0);
        let (now, then) = (bytes_by_cause(&after, page), bytes_by_cause(&self.before, page));
        let causes = CAUSES.iter().zip(now.iter().zip(then));
        let causes = causes.map(|(name, (now, then))| (name.to_string(), json!(now - then)));
        add("bytes_by_cause", Value::Object(causes.collect()));
        add("own_flushes", own_flushes(&after, &self.before));
        let counters = [
            "binlog_commits",
            "binlog_group_commits",
            "innodb_os_log_fsyncs",
            "innodb_data_fsyncs",
            "innodb_log_waits",
            "innodb_buffer_pool_wait_free",
            "innodb_dblwr_writes",
            "sluice_log_flushes",
            "sluice_checkpoints",
            "com_commit",
        ];
        let growth = |name: &&str| (name.to_string(), json!(after.since(&self.before, name)));
        let present = counters.iter().filter(|name| after.has(name));
        add("counters", Value::Object(present.map(growth).collect()));
        Ok(fields)
    }
}
