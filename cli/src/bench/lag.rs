//! A private replica of a target: how far it falls behind under load, and for how long.

use super::follow;
use super::measure::{Load, Output, Run};
use super::run::{replica_dir, Bench};
use super::target::Target;
use crate::db::Client;
use crate::{signals, Result};
use serde_json::{json, Map, Value};
use std::time::{Duration, Instant};

const THREADS: u32 = 16;
const ROWS_MOST: u64 = 25_000;
/// Of the curve.
const SAMPLE: Duration = Duration::from_millis(500);
const CATCH_UP_LIMIT: Duration = Duration::from_secs(600);

pub fn replica(bench: &Bench, target: usize) -> Result<Map<String, Value>> {
    let primary = &bench.targets[target];
    let dir = primary.dir.as_deref().ok_or("only private servers get a replica")?;
    let mut replica = primary.second(&replica_dir(dir));
    let outcome = replica
        .start(64)
        .and_then(|_| follow::make_account(primary))
        .and_then(|password| follow::attach(primary, &replica, &password, "START SLAVE"))
        .and_then(|()| measured(bench, primary, &replica));
    let cleaned = replica.clean_up(&[]);
    follow::drop_account(primary);
    let fields = outcome?;
    cleaned.map(|()| fields)
}

/// Rows of its own: the replica has none of the measured ones.
fn measured(bench: &Bench, primary: &Target, replica: &Target) -> Result<Map<String, Value>> {
    let row_bytes = bench.plan.row_bytes[0];
    let mut plan = bench.plan.clone();
    plan.schema += "_replica";
    plan.rows = plan.rows.min(ROWS_MOST);
    let schema = primary.schema(&plan, row_bytes);
    primary.make_schema(&schema)?;
    let workload = &bench.plan.workloads[0];
    let load = Load { target: primary, plan: &plan, files: &bench.files, workload, row_bytes };
    let prepared = Run::start(&load.prepare_words()?, 4)?.finish(Duration::from_secs(3600))?;
    if let Some(why) = prepared.failure {
        return Err(format!("loading: {why}"));
    }
    let mut curve = Curve::new(primary, replica)?;
    curve.until_even()?;
    curve.begin();
    let seconds = plan.replica_seconds();
    let run = load.start(THREADS, seconds)?;
    let Gone { output, load_s, behind_s, lag } = curve.watch(run, seconds)?;
    primary.drop_schema(&schema)?;
    let report = super::sysbench::Report::parse(&output.text);
    let most = |column: usize| lag.iter().map(|row| row[column]).fold(0.0, f64::max);
    Ok(Map::from_iter([
        ("threads".to_string(), json!(THREADS)),
        ("tps".to_string(), json!(report.tps)),
        ("load_s".to_string(), json!(load_s)),
        ("behind_s".to_string(), json!(behind_s)),
        ("replica_tps".to_string(), json!(report.transactions as f64 / (load_s + behind_s))),
        ("lag_most_transactions".to_string(), json!(most(1))),
        ("lag_most_s".to_string(), json!(most(2))),
        ("lag".to_string(), json!(lag)),
    ]))
}

/// A load that ended, and a replica that has all of it.
pub struct Gone {
    pub output: Output,
    pub load_s: f64,
    pub behind_s: f64,
    /// Seconds since the beginning, transactions behind, seconds behind by the positions, and as
    /// the replica says it.
    pub lag: Vec<[f64; 4]>,
}

/// One look at both servers.
#[derive(Clone, Copy)]
struct Look {
    s: f64,
    /// Sequence numbers of the last transactions.
    primary: f64,
    replica: f64,
    /// As the replica says it, in whole seconds.
    said_s: Option<f64>,
}

pub struct Curve {
    primary: Client,
    replica: Client,
    begun: Instant,
    next: Instant,
    looks: Vec<Look>,
}

impl Curve {
    pub fn new(primary: &Target, replica: &Target) -> Result<Curve> {
        let now = Instant::now();
        Ok(Curve {
            primary: Client::connect(&primary.dsn)?,
            replica: Client::connect(&replica.dsn)?,
            begun: now,
            next: now,
            looks: Vec::new(),
        })
    }

    pub fn begin(&mut self) {
        self.begun = Instant::now();
        self.next = self.begun;
        self.looks.clear();
    }

    fn seconds(&self) -> f64 {
        self.begun.elapsed().as_secs_f64()
    }

    fn tick(&mut self) -> Result<()> {
        if Instant::now() < self.next {
            return Ok(());
        }
        self.next += SAMPLE;
        let look = self.look()?;
        self.looks.push(look);
        Ok(())
    }

    fn look(&mut self) -> Result<Look> {
        let ask = |client: &mut Client, sql| {
            client.value(sql).map(|v| sequence(&v.unwrap_or_default()).unwrap_or(0.0))
        };
        let s = self.seconds();
        // The replica is asked last: it may be said to be nearer than it was, never ahead of time.
        let primary = ask(&mut self.primary, "SELECT @@gtid_binlog_pos")?;
        let replica = ask(&mut self.replica, "SELECT @@gtid_slave_pos")?;
        let state = self.replica.rows("SHOW SLAVE STATUS")?.pop().unwrap_or_default();
        for error in ["last_sql_error", "last_io_error"] {
            if let Some(text) = state.get(error).filter(|text| !text.is_empty()) {
                return Err(format!("the replica stopped: {text}"));
            }
        }
        let said_s = state.get("seconds_behind_master").and_then(|v| v.parse().ok());
        Ok(Look { s, primary, replica, said_s })
    }

    /// Goes on with the curve until the replica has all that the primary has.
    pub fn until_even(&mut self) -> Result<()> {
        let begun = Instant::now();
        while begun.elapsed() < CATCH_UP_LIMIT {
            if signals::stopped() {
                return Err("interrupted".to_string());
            }
            let look = self.look()?;
            if Instant::now() >= self.next || look.replica >= look.primary {
                self.next = Instant::now() + SAMPLE;
                self.looks.push(look);
            }
            if look.replica >= look.primary {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Err(format!("the replica did not catch up in {} s", CATCH_UP_LIMIT.as_secs()))
    }

    /// Follows a load to its end, and the replica until it has all of it.
    pub fn watch(&mut self, run: Run, seconds: u32) -> Result<Gone> {
        let mut failure = Ok(());
        let output = run.finish_calling(Duration::from_secs(seconds.into()), || {
            if failure.is_ok() {
                failure = self.tick();
            }
        })?;
        failure?;
        let load_s = self.seconds();
        self.until_even()?;
        let behind_s = (self.seconds() - load_s).max(0.0);
        Ok(Gone { output, load_s, behind_s, lag: lag(&self.looks) })
    }
}

/// `0-1-1234` is 1234.
fn sequence(position: &str) -> Option<f64> {
    position.split(',').next()?.rsplit('-').next()?.parse().ok()
}

/// How long ago the primary was where the replica is: finer than the replica's whole seconds.
fn lag(looks: &[Look]) -> Vec<[f64; 4]> {
    let row = |at: usize| {
        let now = looks[at];
        let behind = (now.primary - now.replica).max(0.0);
        let seconds = match behind > 0.0 {
            true => (now.s - when(&looks[..=at], now.replica)).max(0.0),
            false => 0.0,
        };
        let rounded = |value: f64| (value * 1000.0).round() / 1000.0;
        [rounded(now.s), behind, rounded(seconds), now.said_s.unwrap_or(0.0)]
    };
    (0..looks.len()).map(row).collect()
}

/// When the primary passed this number, between two looks in proportion.
fn when(looks: &[Look], number: f64) -> f64 {
    let Some(later) = looks.iter().position(|look| look.primary > number) else {
        return looks.last().map_or(0.0, |look| look.s);
    };
    let Some(earlier) = later.checked_sub(1) else { return looks[later].s };
    let (a, b) = (looks[earlier], looks[later]);
    a.s + (b.s - a.s) * (number - a.primary) / (b.primary - a.primary).max(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lag_is_the_age_of_the_replicas_position() {
        assert_eq!(sequence("0-1-1234"), Some(1234.0));
        assert_eq!(sequence("0-2-7,1-1-9"), Some(7.0));
        assert_eq!(sequence(""), None);
        let look = |s: f64, primary: f64, replica: f64| Look { s, primary, replica, said_s: None };
        let looks = [
            look(0.0, 0.0, 0.0),
            look(1.0, 100.0, 50.0),
            look(2.0, 200.0, 50.0),
            look(3.0, 200.0, 200.0),
        ];
        let rows = lag(&looks);
        assert_eq!(rows[0], [0.0, 0.0, 0.0, 0.0]);
        assert_eq!(rows[1], [1.0, 50.0, 0.5, 0.0]);
        assert_eq!(rows[2], [2.0, 150.0, 1.5, 0.0]);
        assert_eq!(rows[3], [3.0, 0.0, 0.0, 0.0]);
    }
}
