//! The cost of locks in a server: the memory of one large UPDATE, the delay of other commits while it
//! commits, and one row that many sessions update.

use super::run::Bench;
use super::sizes::memory_kib;
use super::trial::Fields;
use crate::db::{Client, Dsn};
use crate::Result;
use serde_json::{json, Map};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(4 * 3600);
/// The prober commits so long before the transaction begins, and after it ended.
const QUIET: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(1);
const MEMORY_EACH: Duration = Duration::from_millis(20);

type Lap = (Instant, Instant);

/// Does a thing again and again until it is told to end.
struct Loop<T> {
    ends: Arc<AtomicBool>,
    thread: JoinHandle<Result<T>>,
}

impl<T: Send + 'static> Loop<T> {
    fn start(work: impl FnOnce(&AtomicBool) -> Result<T> + Send + 'static) -> Loop<T> {
        let ends = Arc::new(AtomicBool::new(false));
        let its_ends = Arc::clone(&ends);
        Loop { ends, thread: std::thread::spawn(move || work(&its_ends)) }
    }

    fn end(self) -> Result<T> {
        self.ends.store(true, Ordering::Relaxed);
        self.thread.join().unwrap_or_else(|_| Err("a thread of the measurement broke".to_string()))
    }
}

/// Commits an update of one row and notes when, with a pause after each.
fn commits(dsn: &Dsn, sql: &'static str, pause: Option<Duration>) -> Result<Loop<Vec<Lap>>> {
    let mut client = Client::connect_with_limit(dsn, LIMIT)?;
    Ok(Loop::start(move |ends| {
        let mut laps = Vec::new();
        while !ends.load(Ordering::Relaxed) {
            let begun = Instant::now();
            client.execute(sql)?;
            laps.push((begun, Instant::now()));
            pause.into_iter().for_each(std::thread::sleep);
        }
        Ok(laps)
    }))
}

fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}

/// The longest of those that overlap the time between two moments.
fn longest_ms(laps: &[Lap], from: Instant, to: Instant) -> f64 {
    let over = laps.iter().filter(|(begun, ended)| *begun < to && *ended > from);
    over.map(|(begun, ended)| ms(*ended - *begun)).fold(0.0, f64::max)
}

/// `part` of all are not longer.
fn quantile_ms(sorted: &[f64], part: f64) -> f64 {
    let place = (sorted.len() as f64 * part).ceil() as usize;
    sorted.get(place.clamp(1, sorted.len().max(1)) - 1).copied().unwrap_or(0.0)
}

/// One UPDATE of all rows and its COMMIT, while another session commits small updates of another
/// table.
pub fn large_update(bench: &mut Bench, target: usize, level: &str) -> Fields {
    let rows = bench.plan.rows;
    bench.fresh(target)?;
    let server = &bench.targets[target];
    let pid = server.pid.ok_or("the server's process is not known")?;
    let memory =
        move || memory_kib(pid, "VmRSS").ok_or("the server's memory is not known".to_string());
    let mut client = Client::connect_with_limit(&server.dsn, LIMIT)?;
    fill(&mut client, &server.spec.engine, rows)?;
    let before_kib = memory()?;
    let prober = commits(&server.dsn, "UPDATE r.other SET n = n + 1 WHERE a = 1", Some(PAUSE))?;
    let most_kib = Loop::start(move |ends| {
        let mut most = 0;
        while !ends.load(Ordering::Relaxed) {
            most = memory()?.max(most);
            std::thread::sleep(MEMORY_EACH);
        }
        Ok(most)
    });
    let quiet = Instant::now();
    std::thread::sleep(QUIET);
    client.execute(&format!("SET TRANSACTION ISOLATION LEVEL {level}"))?;
    client.execute("BEGIN")?;
    let begun = Instant::now();
    client.execute("UPDATE r.t SET n = n + 1")?;
    let updated = Instant::now();
    let locks = locks_held(&mut client)?;
    let commits_at = Instant::now();
    client.execute("COMMIT")?;
    let ended = Instant::now();
    std::thread::sleep(QUIET);
    let (laps, most_kib) = (prober.end()?, most_kib.end()?);
    let sum = client.value("SELECT CAST(SUM(n) AS CHAR) AS n FROM r.t")?.unwrap_or_default();
    if sum != (rows * (rows + 1) / 2 + rows).to_string() {
        return Err(format!("the sum after the UPDATE is {sum}"));
    }
    let mib = |kib: u64| json!(kib as f64 / 1024.0);
    Ok(Map::from_iter([
        ("rows".to_string(), json!(rows)),
        ("statement_s".to_string(), json!((updated - begun).as_secs_f64())),
        ("commit_ms".to_string(), json!(ms(ended - commits_at))),
        ("memory_before_mib".to_string(), mib(before_kib)),
        ("memory_more_mib".to_string(), mib(most_kib.saturating_sub(before_kib))),
        ("locks".to_string(), json!(locks)),
        ("others_before_ms".to_string(), json!(longest_ms(&laps, quiet, begun))),
        ("others_statement_ms".to_string(), json!(longest_ms(&laps, begun, updated))),
        ("others_commit_ms".to_string(), json!(longest_ms(&laps, commits_at, ended))),
        ("seconds".to_string(), json!((ended - begun).as_secs_f64())),
    ]))
}

/// The scan leaves the pool as full as it gets.
fn fill(client: &mut Client, engine: &str, rows: u64) -> Result<()> {
    client.execute("SET sql_log_bin = 0")?;
    client.execute("CREATE DATABASE r")?;
    client.execute("USE r")?;
    client.execute(&format!(
        "CREATE TABLE t (a INT PRIMARY KEY, n INT NOT NULL, b CHAR(60) NOT NULL) ENGINE={engine} \
         CHARACTER SET latin1"
    ))?;
    client
        .execute(&format!("INSERT INTO t SELECT seq, seq, REPEAT('x', 60) FROM seq_1_to_{rows}"))?;
    client.execute(&format!(
        "CREATE TABLE other (a INT PRIMARY KEY, n INT NOT NULL) ENGINE={engine}"
    ))?;
    client.execute("INSERT INTO other VALUES (1, 0)")?;
    client.execute("SET sql_log_bin = 1")?;
    client.value("SELECT SUM(n) AS n FROM t").map(|_| ())
}

/// By the server's own account: of all transactions, before the COMMIT of the large one.
fn locks_held(client: &mut Client) -> Result<Option<f64>> {
    let status = client.status()?;
    if let (Some(rows), Some(ranges)) =
        (status.number("sluice_row_locks"), status.number("sluice_range_locks"))
    {
        return Ok(Some(rows + ranges));
    }
    let sql = "SELECT trx_rows_locked AS n FROM information_schema.innodb_trx \
               WHERE trx_mysql_thread_id = CONNECTION_ID()";
    Ok(client.value(sql)?.and_then(|n| n.parse().ok()))
}

/// Sessions that update one row, each statement its own transaction.
pub fn hot_row(bench: &mut Bench, target: usize, writers: u32) -> Fields {
    bench.fresh(target)?;
    let seconds = bench.plan.seconds;
    let server = &bench.targets[target];
    let mut client = Client::connect(&server.dsn)?;
    fill(&mut client, &server.spec.engine, 100)?;
    let loops: Vec<_> = (0..writers)
        .map(|_| commits(&server.dsn, "UPDATE r.other SET n = n + 1 WHERE a = 1", None))
        .collect::<Result<_>>()?;
    let begun = Instant::now();
    std::thread::sleep(Duration::from_secs(seconds.into()));
    let until = Instant::now();
    loops.iter().for_each(|writer| writer.ends.store(true, Ordering::Relaxed));
    let mut laps = Vec::new();
    for writer in loops {
        laps.extend(writer.end()?);
    }
    let found = client.value("SELECT n FROM r.other")?.unwrap_or_default();
    if found != laps.len().to_string() {
        return Err(format!("{} commits were acknowledged, the row says {found}", laps.len()));
    }
    let within = laps.iter().filter(|(_, ended)| *ended > begun && *ended <= until);
    let mut times: Vec<f64> = within.map(|(begun, ended)| ms(*ended - *begun)).collect();
    times.sort_by(f64::total_cmp);
    let measured_s = (until - begun).as_secs_f64();
    Ok(Map::from_iter([
        ("tps".to_string(), json!(times.len() as f64 / measured_s)),
        ("p50_ms".to_string(), json!(quantile_ms(&times, 0.5))),
        ("p99_ms".to_string(), json!(quantile_ms(&times, 0.99))),
        ("max_ms".to_string(), json!(quantile_ms(&times, 1.0))),
        ("seconds".to_string(), json!(measured_s)),
    ]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_of_few_and_many() {
        let all: Vec<f64> = (1..=200).map(f64::from).collect();
        assert_eq!([0.5, 0.99, 1.0].map(|part| quantile_ms(&all, part)), [100.0, 198.0, 200.0]);
        assert_eq!(quantile_ms(&[7.0], 0.01), 7.0);
        assert_eq!(quantile_ms(&[], 0.99), 0.0);
    }

    #[test]
    fn a_commit_counts_in_every_window_that_it_overlaps() {
        let zero = Instant::now();
        let at = |ms: u64| zero + Duration::from_millis(ms);
        let laps = [(at(0), at(1)), (at(5), at(25)), (at(30), at(33))];
        assert_eq!(longest_ms(&laps, at(0), at(4)), 1.0);
        assert_eq!(longest_ms(&laps, at(4), at(10)), 20.0);
        assert_eq!(longest_ms(&laps, at(20), at(40)), 20.0);
        assert_eq!(longest_ms(&laps, at(26), at(40)), 3.0);
        assert_eq!(longest_ms(&laps, at(40), at(50)), 0.0);
    }
}
