//! Private replicas of a target, in any engine: started, attached, compared, removed.
//!
//! The tables that are replicated carry no engine: each server makes them in its own.

use super::lag::{Curve, Gone};
use super::measure::Load;
use super::plan::Plan;
use super::run::Bench;
use super::sysbench::Report;
use super::target::{Target, TargetSpec};
use super::trial::Fields;
use crate::db::Client;
use crate::host::ProcessCounters;
use crate::Result;
use serde_json::{json, Map};
use std::fs::File;
use std::io::Read;
use std::time::Duration;

const ACCOUNT: &str = "sluice_replica@127.0.0.1";

/// Nobody else on this machine can guess it.
fn random_password() -> Result<String> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom")
        .and_then(|mut file| file.read_exact(&mut bytes))
        .map_err(|e| format!("cannot read /dev/urandom: {e}"))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// An account for replicas; the answer is its password, which goes through the socket only.
pub fn make_account(primary: &Target) -> Result<String> {
    let mut source = Client::connect(&primary.dsn)?;
    let password = random_password()?;
    source.execute(&format!("CREATE OR REPLACE USER {ACCOUNT} IDENTIFIED BY '{password}'"))?;
    source.execute(&format!("GRANT REPLICATION SLAVE ON *.* TO {ACCOUNT}"))?;
    Ok(password)
}

pub fn drop_account(primary: &Target) {
    let dropped = Client::connect(&primary.dsn)
        .and_then(|mut client| client.execute(&format!("DROP USER IF EXISTS {ACCOUNT}")));
    if let Err(why) = dropped {
        eprintln!("sluice: cannot drop the account {ACCOUNT}, drop it by hand: {why}");
    }
}

/// A replica of all that the primary writes from now on.
pub fn attach(primary: &Target, replica: &Target, password: &str, start: &str) -> Result<()> {
    let port = primary.port().ok_or("the primary does not listen")?;
    let mut source = Client::connect(&primary.dsn)?;
    let position = source.value("SELECT @@gtid_binlog_pos")?.unwrap_or_default();
    let mut client = Client::connect(&replica.dsn)?;
    client.execute(&format!("SET GLOBAL gtid_slave_pos = '{position}'"))?;
    client.execute(&format!(
        "CHANGE MASTER TO MASTER_HOST='127.0.0.1', MASTER_PORT={port}, MASTER_USER='sluice_replica', \
         MASTER_PASSWORD='{password}', MASTER_CONNECT_RETRY=1, MASTER_USE_GTID=slave_pos"
    ))?;
    client.execute(start)
}

/// A replica with tables in an engine of its own; gone with this value.
pub struct Follower {
    pub target: Target,
}

impl Follower {
    pub fn start(
        bench: &Bench,
        name: &str,
        engine: &str,
        id: u32,
        threads: u32,
    ) -> Result<Follower> {
        let options = [
            format!("server_id={id}"),
            format!("default_storage_engine={engine}"),
            format!("slave_parallel_threads={threads}"),
            "slave_parallel_mode=optimistic".to_string(),
            "gtid_strict_mode=1".to_string(),
            "log_slave_updates=1".to_string(),
            "slave_net_timeout=10".to_string(),
        ];
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        let spec = TargetSpec::private(name, engine, &options);
        let mut target = Target::new(&spec, &bench.plan, bench.scratch(), "");
        target.use_prefix(bench.prefix());
        let mut follower = Follower { target };
        follower.target.clean_up(&[])?;
        follower.target.start(64)?;
        Ok(follower)
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        if let Err(why) = self.target.clean_up(&[]) {
            eprintln!("sluice: cannot clean up replica {}: {why}", self.target.spec.name);
        }
    }
}

/// The run's plan, on a schema for replicas.
pub fn plan_of(bench: &Bench) -> Plan {
    let schema = format!("{}_lag", bench.plan.schema);
    Plan { schema, ..bench.plan.clone() }
}

/// The tables of sysbench, without an engine.
pub fn make_tables(primary: &Target, plan: &Plan) -> Result<()> {
    let mut client = Client::connect(&primary.dsn)?;
    let schema = primary.schema(plan, plan.row_bytes[0]);
    client.execute(&format!("SET default_storage_engine = {}", primary.spec.engine))?;
    client.execute(&format!("CREATE OR REPLACE DATABASE `{schema}`"))?;
    client.execute(&format!("USE `{schema}`"))?;
    for i in 1..=plan.tables {
        client.execute(&format!(
            "CREATE TABLE sbtest{i} (id INT AUTO_INCREMENT PRIMARY KEY, k INT NOT NULL DEFAULT 0, \
             c CHAR(120) NOT NULL DEFAULT '', pad CHAR(60) NOT NULL DEFAULT '', KEY k_{i} (k))"
        ))?;
        client.execute(&format!(
            "INSERT INTO sbtest{i} (k, c, pad) SELECT seq, LEFT(SHA2(seq, 512), 119), SHA1(seq) \
             FROM seq_1_to_{}",
            plan.rows
        ))?;
    }
    Ok(())
}

pub fn drop_tables(primary: &Target, plan: &Plan) -> Result<()> {
    let schema = primary.schema(plan, plan.row_bytes[0]);
    Client::connect(&primary.dsn)?.execute(&format!("DROP DATABASE IF EXISTS `{schema}`"))
}

fn checksums(server: &Target, plan: &Plan, schema: &str) -> Result<Vec<String>> {
    let tables: Vec<String> = (1..=plan.tables).map(|i| format!("`{schema}`.sbtest{i}")).collect();
    let rows =
        Client::connect(&server.dsn)?.rows(&format!("CHECKSUM TABLE {}", tables.join(", ")))?;
    Ok(rows.into_iter().filter_map(|mut row| row.remove("checksum")).collect())
}

/// How far a replica falls behind, and what reading for it costs the primary.
pub fn lag(bench: &Bench, target: usize, engine: &str, threads: u32) -> Fields {
    let primary = &bench.targets[target];
    let plan = plan_of(bench);
    let password = make_account(primary)?;
    let outcome = Follower::start(bench, "replica", engine, 2, threads).and_then(|follower| {
        attach(primary, &follower.target, &password, "START SLAVE")?;
        make_tables(primary, &plan)?;
        lag_measured(bench, &plan, primary, &follower.target)
    });
    drop_account(primary);
    drop_tables(primary, &plan)?;
    outcome
}

fn lag_measured(bench: &Bench, plan: &Plan, primary: &Target, replica: &Target) -> Fields {
    let row_bytes = plan.row_bytes[0];
    let workload = &plan.workloads[0];
    let load = Load { target: primary, plan, files: &bench.files, workload, row_bytes };
    let mut curve = Curve::new(primary, replica)?;
    curve.until_even()?;
    curve.begin();
    let read = read_bytes(primary);
    let run = load.start(plan.threads[0], plan.seconds)?;
    let Gone { output, load_s, behind_s, lag } = curve.watch(run, plan.seconds)?;
    let read = read_bytes(primary).zip(read).map(|(now, then)| now.saturating_sub(then));
    let report = Report::parse(&output.text);
    let most = |column: usize| lag.iter().map(|row| row[column]).fold(0.0, f64::max);
    let mut fields = Map::from_iter([
        ("threads".to_string(), json!(plan.threads[0])),
        ("tps".to_string(), json!(report.tps)),
        ("behind_s".to_string(), json!(behind_s)),
        ("replica_tps".to_string(), json!(report.transactions as f64 / (load_s + behind_s))),
        ("lag_most_s".to_string(), json!(most(2))),
        ("lag_most_transactions".to_string(), json!(most(1))),
        ("primary_read_bytes".to_string(), json!(read)),
        ("lag".to_string(), json!(lag)),
    ]);
    let schema = primary.schema(plan, row_bytes);
    if let Some(why) = report.fatal.or(output.failure) {
        fields.insert("failure".to_string(), json!(why));
    } else if checksums(primary, plan, &schema)? != checksums(replica, plan, &schema)? {
        fields.insert("failure".to_string(), json!("the tables of the replica differ"));
    }
    Ok(fields)
}

/// Bytes that the server's process read from the disk.
pub fn read_bytes(server: &Target) -> Option<u64> {
    server.pid.and_then(ProcessCounters::read)?.read_bytes
}

/// Load for what only receives, too.
pub fn load_for(bench: &Bench, plan: &Plan, target: usize) -> Result<super::measure::Output> {
    let primary = &bench.targets[target];
    let (row_bytes, workload) = (plan.row_bytes[0], &plan.workloads[0]);
    let load = Load { target: primary, plan, files: &bench.files, workload, row_bytes };
    let run = load.start(plan.threads[0], plan.seconds)?;
    run.finish(Duration::from_secs(plan.seconds.into()))
}
