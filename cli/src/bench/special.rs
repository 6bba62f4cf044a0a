//! Measurements that are not one sysbench run: a jump in the number of threads, a replica's lag,
//! and a restart after a large transaction.

use super::measure::{seconds_of, Run, Watch};
use super::run::{replica_dir, Bench};
use super::target::Target;
use crate::db::Client;
use crate::{signals, Result};
use serde_json::{json, Map, Value};
use std::process::Command;
use std::time::{Duration, Instant};

type Fields = Result<Map<String, Value>>;

const BIG_ROW_BYTES: u64 = 256;
/// A transaction of gigabytes takes its time.
const BIG_LIMIT: Duration = Duration::from_secs(4 * 3600);
const CATCH_UP_LIMIT: Duration = Duration::from_secs(600);
const DEATH_LIMIT: Duration = Duration::from_secs(120);
const REPLICA_THREADS: u32 = 16;

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

/// A private replica of the target, load on the target, and how far the replica falls behind.
pub fn replica(bench: &Bench, target: usize) -> Fields {
    let primary = &bench.targets[target];
    let dir = primary.dir.as_deref().ok_or("only private servers get a replica")?;
    let mut replica = primary.second(&replica_dir(dir));
    let outcome = replica
        .start(64)
        .and_then(|_| attach(primary, &replica))
        .and_then(|()| replica_lag(bench, target, &replica));
    let cleaned = replica.clean_up(&[]);
    let _ = Client::connect(&primary.dsn)
        .and_then(|mut c| c.execute("DROP USER IF EXISTS sluice_replica@127.0.0.1"));
    let fields = outcome?;
    cleaned.map(|()| fields)
}

fn attach(primary: &Target, replica: &Target) -> Result<()> {
    let port = primary.port().ok_or("the primary does not listen")?;
    let mut source = Client::connect(&primary.dsn)?;
    // Through the socket only, and gone with the server: never on a command line or in a file.
    let password = format!("{:x}", std::process::id() as u64 * 2_654_435_761 + u64::from(port));
    source.execute(&format!(
        "CREATE OR REPLACE USER sluice_replica@127.0.0.1 IDENTIFIED BY '{password}'"
    ))?;
    source.execute("GRANT REPLICATION SLAVE ON *.* TO sluice_replica@127.0.0.1")?;
    let position = source.value("SELECT @@gtid_binlog_pos")?.unwrap_or_default();
    let mut client = Client::connect(&replica.dsn)?;
    client.execute(&format!("SET GLOBAL gtid_slave_pos = '{position}'"))?;
    client.execute(&format!(
        "CHANGE MASTER TO MASTER_HOST='127.0.0.1', MASTER_PORT={port}, MASTER_USER='sluice_replica', \
         MASTER_PASSWORD='{password}', MASTER_USE_GTID=slave_pos"
    ))?;
    client.execute("START SLAVE")
}

/// Rows of its own: the replica has none of the measured ones.
fn replica_lag(bench: &Bench, target: usize, replica: &Target) -> Fields {
    let primary = &bench.targets[target];
    let row_bytes = bench.plan.row_bytes[0];
    let mut plan = bench.plan.clone();
    plan.schema += "_replica";
    plan.rows = plan.rows.min(25_000);
    let schema = primary.schema(&plan, row_bytes);
    primary.make_schema(&schema)?;
    let load = super::measure::Load {
        target: primary,
        plan: &plan,
        files: &bench.files,
        workload: &bench.plan.workloads[0],
        row_bytes,
    };
    let prepared = Run::start(&load.prepare_words()?, 4)?.finish(Duration::from_secs(3600))?;
    if let Some(why) = prepared.failure {
        return Err(format!("loading: {why}"));
    }
    caught_up(primary, replica)?;
    let begun = Instant::now();
    let run = load.start(REPLICA_THREADS, plan.seconds)?;
    let output = run.finish(Duration::from_secs(plan.seconds.into()))?;
    let ended = Instant::now();
    caught_up(primary, replica)?;
    let behind_s = ended.elapsed().as_secs_f64();
    primary.drop_schema(&schema)?;
    let report = super::sysbench::Report::parse(&output.text);
    let load_s = ended.duration_since(begun).as_secs_f64();
    Ok(Map::from_iter([
        ("threads".to_string(), json!(REPLICA_THREADS)),
        ("tps".to_string(), json!(report.tps)),
        ("load_s".to_string(), json!(load_s)),
        ("behind_s".to_string(), json!(behind_s)),
        ("replica_tps".to_string(), json!(report.transactions as f64 / (load_s + behind_s))),
    ]))
}

/// Waits until the replica has applied all that the primary has written so far.
fn caught_up(primary: &Target, replica: &Target) -> Result<()> {
    let position = Client::connect(&primary.dsn)?.value("SELECT @@gtid_binlog_pos")?;
    let position = position.unwrap_or_default();
    let mut client = Client::connect(&replica.dsn)?;
    let begun = Instant::now();
    while begun.elapsed() < CATCH_UP_LIMIT {
        if signals::stopped() {
            return Err(interrupted());
        }
        let answer = client.value(&format!("SELECT MASTER_GTID_WAIT('{position}', 1)"))?;
        if answer.as_deref() == Some("0") {
            return Ok(());
        }
        let state = client.rows("SHOW SLAVE STATUS")?.pop().unwrap_or_default();
        for error in ["last_sql_error", "last_io_error"] {
            if let Some(text) = state.get(error).filter(|text| !text.is_empty()) {
                return Err(format!("the replica stopped: {text}"));
            }
        }
    }
    Err(format!("the replica did not catch up in {} s", CATCH_UP_LIMIT.as_secs()))
}

/// A killed process keeps its files, and the lock of its directory, until it is gone or a zombie.
fn wait_for_death(pid: u32) -> Result<()> {
    let begun = Instant::now();
    while begun.elapsed() < DEATH_LIMIT {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let state = stat.rsplit_once(')').and_then(|(_, rest)| rest.trim_start().chars().next());
        if matches!(state, None | Some('Z' | 'X')) {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Err(format!("the killed server, pid {pid}, is still there"))
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
    let pid = server.pid.ok_or("the server's process is not known")?;
    let killed = Command::new("kill").args(["-KILL", &pid.to_string()]).status();
    if !killed.is_ok_and(|status| status.success()) {
        return Err(format!("cannot kill the server, pid {pid}"));
    }
    wait_for_death(pid)?;
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
