//! What one large transaction costs at the restart after a kill -9.
//!
//! The time from exec of the server to its first answer, less that of the same server with nothing
//! in it. Killed right after the commit, or when half of the statements were acknowledged.

use super::measure::{seconds_of, Run};
use super::params::{TxnStatement, When};
use super::run::Bench;
use super::target::Target;
use super::trial::Fields;
use crate::db::{Client, Dsn};
use crate::{signals, Result};
use serde_json::{json, Map, Value};
use std::path::Path;
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// With the server's own bytes in each row.
const ROW_BYTES: f64 = 240.0;
const STATEMENTS: u64 = 10;
/// Starts of the empty server, of which the median counts.
const EMPTY_STARTS: usize = 3;
/// A transaction of gigabytes takes its time.
const LIMIT: Duration = Duration::from_secs(4 * 3600);

pub fn restart(
    bench: &mut Bench,
    target: usize,
    gb: f64,
    when: When,
    change: TxnStatement,
) -> Fields {
    if !matches!(change, TxnStatement::Insert | TxnStatement::RandomUpdate) {
        return Err(format!(
            "restart has no --change {}: use insert or random_update",
            change.name()
        ));
    }
    let rows = (gb * 1e9 / ROW_BYTES / STATEMENTS as f64) as u64 * STATEMENTS;
    bench.fresh(target)?;
    let empty_s = empty(bench, target)?;
    fill(&bench.targets[target], rows, change)?;
    let before = tps(bench, target, true)?;
    let begun = Instant::now();
    run_until(&mut bench.targets[target], transaction(rows, change), when)?;
    let written_s = begun.elapsed().as_secs_f64();
    let answer_s = timed_start(bench, target)?;
    let (first_row_s, found) = look(&bench.targets[target].dsn)?;
    let after = tps(bench, target, false)?;
    let data = bench.targets[target].data.clone().ok_or("the data directory is not known")?;
    let mut fields = Map::from_iter([
        ("rows".to_string(), json!(rows)),
        ("written_s".to_string(), json!(written_s)),
        ("answer_s".to_string(), json!(answer_s)),
        ("empty_s".to_string(), json!(empty_s)),
        ("restart_s".to_string(), json!(answer_s - empty_s)),
        ("first_row_s".to_string(), json!(first_row_s)),
        ("binlog_bytes".to_string(), json!(binlog_bytes(&data))),
        ("seconds".to_string(), json!(answer_s - empty_s)),
    ]);
    fields.extend(come_back(&before, &after));
    let wanted = match (when, change) {
        (When::Middle, TxnStatement::Insert) => 1,
        _ => rows + 1,
    };
    if found != wanted {
        let why = format!("{found} rows are there after the restart instead of {wanted}");
        fields.insert("failure".to_string(), json!(why));
    }
    Ok(fields)
}

/// The median of several starts after a kill of a server with nothing in it.
fn empty(bench: &mut Bench, target: usize) -> Result<f64> {
    let mut times = Vec::new();
    for _ in 0..EMPTY_STARTS {
        bench.targets[target].kill()?;
        times.push(timed_start(bench, target)?);
    }
    times.sort_by(f64::total_cmp);
    Ok(times[times.len() / 2])
}

/// Seconds from exec to the first answer.
fn timed_start(bench: &mut Bench, target: usize) -> Result<f64> {
    let threads = bench.plan.threads_max();
    if bench.plan.params.cold == Some(true) {
        drop_caches()?;
    }
    let begun = Instant::now();
    bench.targets[target].start(threads)?;
    Client::connect(&bench.targets[target].dsn)?.value("SELECT 1")?;
    Ok(begun.elapsed().as_secs_f64())
}

fn drop_caches() -> Result<()> {
    let synced = std::process::Command::new("sync").status();
    let dropped = std::fs::write("/proc/sys/vm/drop_caches", "3");
    match (synced, dropped) {
        (Ok(_), Ok(())) => Ok(()),
        _ => Err("--cold: cannot drop the cache of files (it needs root)".to_string()),
    }
}

fn fill(server: &Target, rows: u64, change: TxnStatement) -> Result<()> {
    let mut client = Client::connect_with_limit(&server.dsn, LIMIT)?;
    client.execute("CREATE DATABASE r")?;
    client.execute(&format!(
        "CREATE TABLE r.t (a INT PRIMARY KEY, b CHAR(230)) ENGINE={} CHARACTER SET latin1",
        server.spec.engine
    ))?;
    client.execute("INSERT INTO r.t VALUES (0, 'first')")?;
    match change {
        TxnStatement::RandomUpdate => inserts(rows).iter().try_for_each(|sql| client.execute(sql)),
        _ => Ok(()),
    }
}

/// In order of the key.
fn inserts(rows: u64) -> Vec<String> {
    let part = rows / STATEMENTS;
    let one = |i: u64| {
        format!(
            "INSERT INTO r.t SELECT seq, RPAD(MD5(seq), 230, SHA1(seq)) FROM r.seq_{}_to_{}",
            i * part + 1,
            (i + 1) * part
        )
    };
    (0..STATEMENTS).map(one).collect()
}

/// Of a quarter of the rows, scattered over all of them by a multiplication with a prime number.
fn random_updates(rows: u64) -> Vec<String> {
    let part = rows / 4 / STATEMENTS;
    let one = |i: u64| {
        format!(
            "UPDATE r.seq_{}_to_{} s STRAIGHT_JOIN r.t ON t.a = s.seq * 2038074743 % {rows} + 1 \
             SET t.b = REVERSE(t.b)",
            i * part + 1,
            (i + 1) * part
        )
    };
    (0..STATEMENTS).map(one).collect()
}

fn transaction(rows: u64, change: TxnStatement) -> Vec<String> {
    match change {
        TxnStatement::RandomUpdate => random_updates(rows),
        _ => inserts(rows),
    }
}

/// Runs the transaction on a session of its own, and kills the server when half of its statements
/// were acknowledged (the next one is under way then), or its commit.
fn run_until(server: &mut Target, statements: Vec<String>, when: When) -> Result<()> {
    let wanted = match when {
        When::Middle => statements.len() / 2,
        When::Commit => statements.len() + 1,
    };
    let (say, acknowledged) = mpsc::channel();
    let dsn = server.dsn.clone();
    let session = std::thread::spawn(move || -> Result<()> {
        let mut client = Client::connect_with_limit(&dsn, LIMIT)?;
        client.execute("BEGIN")?;
        for sql in statements.iter().map(String::as_str).chain(["COMMIT"]) {
            client.execute(sql)?;
            let _ = say.send(());
        }
        Ok(())
    });
    for number in 0..wanted {
        while acknowledged.recv_timeout(Duration::from_millis(1)).is_err() {
            if signals::stopped() {
                return Err("interrupted".to_string());
            }
            if session.is_finished() && number < wanted {
                // All that it said may be there by now.
                if acknowledged.try_recv().is_ok() {
                    break;
                }
                let end = session.join().unwrap_or(Ok(()));
                return Err(format!(
                    "the transaction ended early: {}",
                    end.err().unwrap_or_default()
                ));
            }
        }
    }
    server.kill()?;
    let _ = session.join();
    Ok(())
}

/// Seconds to a row by its key, and how many rows there are.
fn look(dsn: &Dsn) -> Result<(f64, u64)> {
    let mut client = Client::connect_with_limit(dsn, LIMIT)?;
    let begun = Instant::now();
    client.value("SELECT b FROM r.t WHERE a = 0")?;
    let first_row_s = begun.elapsed().as_secs_f64();
    let found = client.value("SELECT COUNT(*) AS n FROM r.t")?.unwrap_or_default();
    Ok((first_row_s, found.parse().unwrap_or(0)))
}

/// Transactions of each second of sysbench on tables of its own; nothing without --tps-seconds.
fn tps(bench: &Bench, target: usize, load: bool) -> Result<Vec<f64>> {
    let seconds = bench.plan.params.tps_seconds.unwrap_or(0);
    if seconds == 0 {
        return Ok(Vec::new());
    }
    let workload = bench.measured(target, &bench.plan.workloads[0], bench.plan.row_bytes[0]);
    if load {
        let server = &bench.targets[target];
        server.make_schema(&server.schema(&bench.plan, bench.plan.row_bytes[0]))?;
        let run = Run::start(&workload.prepare_words()?, 4)?.finish(LIMIT)?;
        run.failure.map_or(Ok(()), Err)?;
    }
    let run = workload.start(bench.plan.threads[0], seconds)?;
    let output = run.finish(Duration::from_secs(seconds.into()))?;
    output.failure.map_or(Ok(()), Err)?;
    let rates: Vec<f64> = seconds_of(&output.text).iter().map(|second| second[1]).collect();
    match rates.is_empty() {
        true => Err("sysbench named no second: --tps-seconds must be 2 or more".to_string()),
        false => Ok(rates),
    }
}

/// TPS before, the median; the first second after the restart with 90 % of that, or null.
fn come_back(before: &[f64], after: &[f64]) -> Map<String, Value> {
    let mut sorted = before.to_vec();
    sorted.sort_by(f64::total_cmp);
    let Some(tps) = sorted.get(sorted.len() / 2).copied() else { return Map::new() };
    let back = after.iter().position(|now| *now >= 0.9 * tps).map(|at| at + 1);
    let series: Vec<[f64; 2]> =
        (1..).map(f64::from).zip(after.iter().copied()).map(|(s, t)| [s, t]).collect();
    Map::from_iter([
        ("tps_before".to_string(), json!(tps)),
        ("tps_back_s".to_string(), json!(back)),
        ("tps_after".to_string(), json!(series)),
    ])
}

fn binlog_bytes(data: &Path) -> u64 {
    let files = std::fs::read_dir(data).into_iter().flatten().flatten();
    let files = files.filter(|f| f.file_name().to_string_lossy().starts_with("sluice-bin.0"));
    files.filter_map(|f| Some(f.metadata().ok()?.len())).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_statements_cover_all_rows() {
        let sql = inserts(100);
        assert_eq!(sql.len(), 10);
        assert!(sql[0].ends_with("seq_1_to_10") && sql[9].ends_with("seq_91_to_100"));
        let sql = random_updates(4000);
        assert!(sql[9].starts_with("UPDATE r.seq_901_to_1000 "), "{}", sql[9]);
    }

    #[test]
    fn the_second_in_which_tps_are_back() {
        let fields = come_back(&[100.0, 90.0, 110.0], &[20.0, 89.0, 90.0, 200.0]);
        assert_eq!((&fields["tps_before"], &fields["tps_back_s"]), (&json!(100.0), &json!(3)));
        assert_eq!(fields["tps_after"][1], json!([2.0, 89.0]));
        assert_eq!(come_back(&[100.0], &[1.0])["tps_back_s"], Value::Null);
        assert!(come_back(&[], &[]).is_empty());
    }
}
