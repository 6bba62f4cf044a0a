//! What a rollback of a large transaction costs: the statement itself, the revert in the background,
//! and the scans and updates of the same rows while it goes on and after it.

use super::params::TxnStatement;
use super::run::Bench;
use super::trial::Fields;
use crate::db::{Client, Dsn};
use crate::Result;
use serde_json::{json, Map};
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(4 * 3600);
const POLL: Duration = Duration::from_millis(50);
/// In one transaction, of rows anywhere.
const UPDATES: u64 = 2000;

pub fn rollback(bench: &mut Bench, target: usize, change: TxnStatement) -> Fields {
    let rows = bench.plan.rows;
    let sql = match change {
        TxnStatement::Update => "UPDATE r.t SET n = n + 1".to_string(),
        TxnStatement::Insert => format!("INSERT INTO r.t SELECT a + {rows}, n, b FROM r.t"),
        TxnStatement::Delete => "DELETE FROM r.t".to_string(),
        TxnStatement::RandomUpdate => {
            return Err(
                "rollback has no --change random_update: use update, insert or delete".to_string()
            )
        }
    };
    bench.fresh(target)?;
    let server = &bench.targets[target];
    let dsn = server.dsn.clone();
    let mut client = Client::connect_with_limit(&dsn, LIMIT)?;
    fill(&mut client, &server.spec.engine, rows)?;
    scan(&mut client, rows)?;
    let scan_before_s = scan(&mut client, rows)?;
    let updates_before = updates(&mut client)?;
    let begun = Instant::now();
    client.execute("BEGIN")?;
    client.execute(&sql)?;
    let transaction_s = begun.elapsed().as_secs_f64();
    let begun = Instant::now();
    client.execute("ROLLBACK")?;
    let rollback_ms = begun.elapsed().as_secs_f64() * 1000.0;
    let meanwhile = while_reverting(&mut client, &dsn, rows)?;
    let scan_after_s = scan(&mut client, rows)?;
    let updates_after = updates(&mut client)?;
    Ok(Map::from_iter([
        ("rows".to_string(), json!(rows)),
        ("transaction_s".to_string(), json!(transaction_s)),
        ("rollback_ms".to_string(), json!(rollback_ms)),
        ("revert_s".to_string(), json!(meanwhile.revert_s)),
        ("scan_before_s".to_string(), json!(scan_before_s)),
        ("scan_first_s".to_string(), json!(meanwhile.first_s)),
        ("scan_slowest_s".to_string(), json!(meanwhile.slowest_s)),
        ("scan_after_s".to_string(), json!(scan_after_s)),
        ("updates_before".to_string(), json!(updates_before)),
        ("updates_during".to_string(), json!(meanwhile.updates)),
        ("updates_after".to_string(), json!(updates_after)),
        ("seconds".to_string(), json!(transaction_s + rollback_ms / 1000.0)),
    ]))
}

fn fill(client: &mut Client, engine: &str, rows: u64) -> Result<()> {
    client.execute("CREATE DATABASE r")?;
    client.execute("USE r")?;
    client.execute(&format!(
        "CREATE TABLE t (a INT PRIMARY KEY, n INT, b CHAR(100)) ENGINE={engine} CHARACTER SET latin1"
    ))?;
    client.execute(&format!(
        "INSERT INTO t SELECT seq, seq, REPEAT('x', 100) FROM seq_1_to_{rows}"
    ))?;
    // The answer is updates per second.
    client.execute(&format!(
        "CREATE FUNCTION updates() RETURNS INT DETERMINISTIC MODIFIES SQL DATA \
         BEGIN \
           DECLARE i INT DEFAULT 0; \
           DECLARE begun DATETIME(6) DEFAULT SYSDATE(6); \
           WHILE i < {UPDATES} DO \
             UPDATE t SET b = REPEAT(CHAR(97 + i % 26), 100) WHERE a = 1 + (i * 7919 + 13) % {rows}; \
             SET i = i + 1; \
           END WHILE; \
           RETURN {UPDATES} * 1000000 / TIMESTAMPDIFF(MICROSECOND, begun, SYSDATE(6)); \
         END"
    ))
}

fn updates(client: &mut Client) -> Result<f64> {
    let text = client.value("SELECT updates() AS n")?.unwrap_or_default();
    text.parse().map_err(|_| format!("updates() gave '{text}'"))
}

/// Seconds of a scan, which must show the rows as they were before.
fn scan(client: &mut Client, rows: u64) -> Result<f64> {
    let begun = Instant::now();
    let row = client.rows("SELECT COUNT(*) AS rows_found, SUM(n) AS total FROM t")?.pop();
    let seconds = begun.elapsed().as_secs_f64();
    let row = row.unwrap_or_default();
    let text = |name: &str| row.get(name).cloned().unwrap_or_default();
    let (found, total) = (text("rows_found"), text("total"));
    if found != rows.to_string() || total != (rows * (rows + 1) / 2).to_string() {
        return Err(format!("a scan shows {found} rows with the sum {total}, not those of before"));
    }
    Ok(seconds)
}

struct Meanwhile {
    /// Absent where nothing is reverted in the background.
    revert_s: Option<f64>,
    first_s: f64,
    slowest_s: f64,
    updates: f64,
}

/// Scans until nothing is left to revert.
fn while_reverting(client: &mut Client, dsn: &Dsn, rows: u64) -> Result<Meanwhile> {
    let begun = Instant::now();
    let mut poller = Client::connect(dsn)?;
    let waiter = std::thread::spawn(move || -> Result<Option<f64>> {
        loop {
            match poller.status()?.number("sluice_revert_backlog") {
                Some(left) if left > 0.0 => std::thread::sleep(POLL),
                known => return Ok(known.map(|_| begun.elapsed().as_secs_f64())),
            }
        }
    });
    let first_s = scan(client, rows)?;
    let updates = updates(client)?;
    let mut slowest_s = first_s;
    while !waiter.is_finished() {
        slowest_s = slowest_s.max(scan(client, rows)?);
    }
    let revert_s =
        waiter.join().unwrap_or_else(|_| Err("the look at the revert broke".to_string()))?;
    Ok(Meanwhile { revert_s, first_s, slowest_s, updates })
}
