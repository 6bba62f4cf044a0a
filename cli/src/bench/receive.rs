//! The cost of replicas that receive and do not apply: the TPS of the primary, and the bytes it reads.

use super::follow::{self, Follower};
use super::plan::Plan;
use super::run::Bench;
use super::sysbench::Report;
use super::target::Target;
use super::trial::Fields;
use crate::db::Client;
use crate::{signals, Result};
use serde_json::{json, Map};
use std::time::{Duration, Instant};

const CATCH_UP_LIMIT: Duration = Duration::from_secs(120);

pub fn receive(bench: &Bench, target: usize, count: u32) -> Fields {
    let primary = &bench.targets[target];
    let plan = follow::plan_of(bench);
    follow::make_tables(primary, &plan)?;
    let password = follow::make_account(primary)?;
    let outcome = started(bench, primary, count, &password)
        .and_then(|followers| measured(bench, &plan, target, &followers));
    follow::drop_account(primary);
    follow::drop_tables(primary, &plan)?;
    outcome
}

fn started(bench: &Bench, primary: &Target, count: u32, password: &str) -> Result<Vec<Follower>> {
    let one = |number: u32| {
        let name = format!("receiver-{number}");
        let follower = Follower::start(bench, &name, "InnoDB", 1 + number, 0)?;
        follow::attach(primary, &follower.target, password, "START SLAVE IO_THREAD")?;
        Ok(follower)
    };
    (1..=count).map(one).collect()
}

fn measured(bench: &Bench, plan: &Plan, target: usize, followers: &[Follower]) -> Fields {
    let primary = &bench.targets[target];
    followers.iter().try_for_each(|f| received(primary, &f.target))?;
    let before = follow::read_bytes(primary);
    let output = follow::load_for(bench, plan, target)?;
    followers.iter().try_for_each(|f| received(primary, &f.target))?;
    let read = follow::read_bytes(primary).zip(before);
    let report = Report::parse(&output.text);
    let mut fields = Map::from_iter([
        ("threads".to_string(), json!(plan.threads[0])),
        ("tps".to_string(), json!(report.tps)),
        ("primary_read_bytes".to_string(), json!(read.map(|(now, then)| now.saturating_sub(then)))),
    ]);
    if let Some(why) = report.fatal.or(output.failure) {
        fields.insert("failure".to_string(), json!(why));
    }
    Ok(fields)
}

/// Waits until a follower has all that the primary has written.
fn received(primary: &Target, follower: &Target) -> Result<()> {
    let mut source = Client::connect(&primary.dsn)?;
    let mut client = Client::connect(&follower.dsn)?;
    let begun = Instant::now();
    loop {
        let written = source.value("SELECT @@gtid_binlog_pos")?.unwrap_or_default();
        let row = client.rows("SHOW SLAVE STATUS")?.pop().unwrap_or_default();
        let text = |name: &str| row.get(name).cloned().unwrap_or_default();
        if text("gtid_io_pos") == written {
            return Ok(());
        }
        if signals::stopped() {
            return Err("interrupted".to_string());
        }
        if begun.elapsed() > CATCH_UP_LIMIT {
            let (position, error) = (text("gtid_io_pos"), text("last_io_error"));
            return Err(format!("{} has {position}, not {written} {error}", follower.spec.name));
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}
