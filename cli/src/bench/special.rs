//! Measurements that are not one sysbench run: a jump in the number of threads, and a restart
//! after a large transaction.

use super::measure::{seconds_of, Watch};
use super::run::Bench;
use crate::db::Client;
use crate::{signals, Result};
use serde_json::{json, Map, Value};
use std::time::{Duration, Instant};

type Fields = Result<Map<String, Value>>;

const BIG_ROW_BYTES: u64 = 256;
/// A transaction of gigabytes takes its time.
const BIG_LIMIT: Duration = Duration::from_secs(4 * 3600);

fn interrupted() -> String {
    "interrupted".to_string()
}

/// The first half of the time with few threads, the second with many.
pub fn jump(bench: &Bench, target: usize) -> Fields {
    let (from, to) = bench.plan.step.unwrap_or((1, 1));
    let half = bench.plan.seconds;
    let row_bytes = bench.plan.row_bytes[0];
    let load = bench.measured(target, &bench.plan.workloads[0], row_bytes);
    load.warm_up(from)?;
    let mut watch = Watch::begin(load.target)?;
    let begun = Instant::now();
    let few = load.start(from, half * 2)?;
    let middle = begun + Duration::from_secs(half.into());
    while Instant::now() < middle {
        if !signals::sleep_until(Instant::now() + Duration::from_millis(100)) {
            return Err(interrupted());
        }
        watch.tick();
    }
    let started_s = begun.elapsed().as_secs_f64();
    let many = load.start(to.saturating_sub(from).max(1), half)?;
    let many = many.finish_watching(Duration::from_secs(half.into()), &mut watch)?;
    let few = few.finish(Duration::from_secs(half.into()))?;
    let mut fields = watch.end(load.target)?;
    let (few_s, many_s) = (seconds_of(&few.text), seconds_of(&many.text));
    let sum = |second: &[f64; 4]| {
        let same = |other: &&[f64; 4]| (other[0] + started_s.floor() - second[0]).abs() < 0.5;
        let more = many_s.iter().find(same).map_or(0.0, |other| other[1]);
        json!([second[0], second[1] + more])
    };
    fields.insert("per_second".to_string(), few_s.iter().map(sum).collect());
    fields.insert("from".to_string(), json!(from));
    fields.insert("to".to_string(), json!(to));
    if let Some(why) = few.failure.or(many.failure) {
        fields.insert("failure".to_string(), json!(why));
    }
    Ok(fields)
}

/// One transaction of `mib` MiB, kill -9 right after its commit, and the time until the server
/// answers again.
pub fn restart(bench: &mut Bench, target: usize, mib: u64) -> Fields {
    let threads = bench.plan.threads_max();
    let server = &mut bench.targets[target];
    let mut client = Client::connect_with_limit(&server.dsn, BIG_LIMIT)?;
    let rows = (mib << 20) / BIG_ROW_BYTES;
    let engine = server.spec.engine.clone();
    client.execute("CREATE DATABASE IF NOT EXISTS sluice_restart")?;
    client.execute("DROP TABLE IF EXISTS sluice_restart.big")?;
    client.execute(&format!(
        "CREATE TABLE sluice_restart.big (id INT PRIMARY KEY, v CHAR(244) NOT NULL) ENGINE={engine}"
    ))?;
    let begun = Instant::now();
    client.execute(&format!(
        "INSERT INTO sluice_restart.big SELECT seq, RPAD(MD5(seq), 244, SHA1(seq)) FROM \
         sluice_restart.seq_1_to_{rows}"
    ))?;
    let transaction_s = begun.elapsed().as_secs_f64();
    server.kill()?;
    let restart_s = server.start(threads)?;
    let mut client = Client::connect_with_limit(&server.dsn, BIG_LIMIT)?;
    let found = client.value("SELECT COUNT(*) AS n FROM sluice_restart.big")?.unwrap_or_default();
    client.execute("DROP DATABASE sluice_restart")?;
    let mut fields = Map::from_iter([
        ("transaction_s".to_string(), json!(transaction_s)),
        ("restart_s".to_string(), json!(restart_s)),
        ("seconds".to_string(), json!(restart_s)),
        ("rows".to_string(), json!(rows)),
    ]);
    if found != rows.to_string() {
        let why = format!("{found} of {rows} committed rows are there after the restart");
        fields.insert("failure".to_string(), json!(why));
    }
    Ok(fields)
}
