//! One stretch of a long mixed load: every second its transactions, the longest of them, the longest
//! update of a prober (one row every 10 ms), the server's memory, and the sizes of store and log.

use super::measure::{seconds_of, Run};
use super::run::Bench;
use super::sizes;
use super::sysbench::Report;
use super::target::Target;
use super::trial::Fields;
use crate::db::Client;
use crate::Result;
use serde_json::{json, Map, Value};
use std::time::{Duration, Instant};

pub fn stretch(bench: &mut Bench, target: usize) -> Fields {
    let bench = &*bench;
    let seconds = bench.plan.seconds;
    let load = bench.measured(target, &bench.plan.workloads[0], bench.plan.row_bytes[0]);
    make_probe(load.target, &load.target.schema(&bench.plan, load.row_bytes))?;
    let mut words = load.run_words(bench.plan.threads[0], seconds)?;
    words.retain(|word| word != "--histogram=on");
    words.push("--percentile=100".to_string());
    words.push("--mysql-ignore-errors=1213,1205,1020".to_string());
    let mut probe_words = load.run_words(1, seconds)?;
    let script = bench.files.probe().display().to_string();
    probe_words.iter_mut().filter(|w| **w == load.workload).for_each(|w| *w = script.clone());
    let mut samples = Samples::new(load.target);
    let probe = Run::start(&probe_words, 1)?;
    let mixed = Run::start(&words, bench.plan.threads[0])?;
    let time = Duration::from_secs(seconds.into());
    let mixed = mixed.finish_calling(time, || samples.tick())?;
    let probe = probe.finish(time)?;
    let report = Report::parse(&mixed.text);
    let mut fields = Map::from_iter([
        ("tps".to_string(), json!(report.tps)),
        ("errors".to_string(), json!(report.errors)),
        ("per_second".to_string(), json!(seconds_of(&mixed.text))),
        ("probe_per_second".to_string(), json!(probe_lines(&probe.text))),
        ("sizes_per_second".to_string(), json!(samples.rows)),
        ("waits".to_string(), waits(load.target)?),
    ]);
    if let Some(why) = report.fatal.or(mixed.failure).or(probe.failure) {
        fields.insert("failure".to_string(), json!(why));
    }
    Ok(fields)
}

/// The prober's own table.
fn make_probe(server: &Target, schema: &str) -> Result<()> {
    let mut client = Client::connect(&server.dsn)?;
    let engine = &server.spec.engine;
    client.execute(&format!(
        "CREATE TABLE IF NOT EXISTS `{schema}`.probe (id INT PRIMARY KEY, n INT NOT NULL) ENGINE={engine}"
    ))?;
    client.execute(&format!(
        "INSERT IGNORE INTO `{schema}`.probe SELECT seq, 0 FROM `{schema}`.seq_1_to_100"
    ))
}

/// `probe SECOND MILLISECONDS`, as rows.
fn probe_lines(text: &str) -> Vec<[f64; 2]> {
    let row = |line: &str| {
        let mut words = line.strip_prefix("probe ")?.split_whitespace();
        Some([words.next()?.parse().ok()?, words.next()?.parse().ok()?])
    };
    text.lines().filter_map(row).collect()
}

/// What made sessions wait, since the server's start.
fn waits(server: &Target) -> Result<Value> {
    let status = Client::connect(&server.dsn)?.status()?;
    let names = [
        "sluice_buffer_pool_waits",
        "sluice_store_gc_waits",
        "sluice_room_refusals",
        "innodb_buffer_pool_wait_free",
        "innodb_log_waits",
    ];
    let known = names.iter().filter_map(|n| Some((n.to_string(), json!(status.number(n)?))));
    Ok(Value::Object(known.collect()))
}

/// Each second: second, KiB in memory, bytes of the store, bytes of the log.
struct Samples<'a> {
    server: &'a Target,
    begun: Instant,
    rows: Vec<[f64; 4]>,
}

impl Samples<'_> {
    fn new(server: &Target) -> Samples<'_> {
        Samples { server, begun: Instant::now(), rows: Vec::new() }
    }

    fn tick(&mut self) {
        let second = self.begun.elapsed().as_secs_f64();
        if second < self.rows.len() as f64 + 1.0 {
            return;
        }
        let memory = self.server.pid.and_then(|pid| sizes::memory_kib(pid, "VmRSS")).unwrap_or(0);
        let (store, log) = match &self.server.data {
            Some(data) => sizes::store_and_log(&self.server.spec.engine, data),
            None => (0, 0),
        };
        self.rows.push([second.floor(), memory as f64, store as f64, log as f64]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_prober() {
        let text = "Running\nprobe 2 13.5\n[ 2s ] thds: 1\nprobe 3 0.4\nprobe x y\n";
        assert_eq!(probe_lines(text), [[2.0, 13.5], [3.0, 0.4]]);
    }
}
