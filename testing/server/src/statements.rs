//! Sessions that change the same rows at once, and their binlog run again on an empty server, in its
//! order and by one session. Both servers have the same rows only if each statement has held what it
//! read until its commit was in the binlog.

use crate::scratch::prefix;
use crate::site::{done, Site};
use sluice_rig::client::{Client, Fault};
use sluice_rig::rng::Rng;
use std::fs::File;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

const TABLES: [&str; 3] = ["stm.t", "stm.u", "stm.w"];
const SESSIONS: u64 = 4;

/// Tables of the default engine, so small that the sessions meet all the time.
#[track_caller]
pub fn make_tables(site: &Site) {
    site.run(&[
        "CREATE DATABASE stm",
        "CREATE TABLE stm.t (id INT AUTO_INCREMENT PRIMARY KEY, k INT NOT NULL, v INT NOT NULL, KEY (k))",
        "CREATE TABLE stm.u (a INT PRIMARY KEY, b INT UNIQUE, c INT NOT NULL, KEY (c))",
        "CREATE TABLE stm.w (a INT PRIMARY KEY, n INT NOT NULL)",
        "CREATE FUNCTION stm.f(x INT) RETURNS INT READS SQL DATA \
         RETURN (SELECT COALESCE(SUM(v), 0) FROM stm.t WHERE k = x)",
        "CREATE TRIGGER stm.after_u AFTER INSERT ON stm.u FOR EACH ROW \
         UPDATE stm.w SET n = n + NEW.c WHERE a = NEW.a % 10",
        "INSERT INTO stm.w VALUES (0,0), (1,0), (2,0), (4,0), (6,0), (8,0)",
        "INSERT INTO stm.t (k, v) VALUES (1,1), (3,3), (5,5), (7,7), (9,9), (11,11), (13,13)",
        "INSERT INTO stm.u VALUES (1,1,1), (4,4,4), (7,7,7), (10,10,10), (13,13,13)",
    ]);
}

/// Statements whose effect depends on nothing but the rows that they read: no LIMIT without an order of
/// all rows, no AUTO_INCREMENT values by an order of rows that they read.
fn statement(rng: &mut Rng) -> String {
    let (a, b) = (rng.between(0, 15), rng.between(0, 6));
    let (v, c) = (rng.between(-9, 9), rng.between(0, 20));
    let end = a + b;
    match rng.between(0, 17) {
        0 => format!("INSERT INTO t (k, v) VALUES ({a}, {v}), ({c}, {b})"),
        1 => format!("UPDATE t SET v = v + {v} WHERE k BETWEEN {a} AND {end}"),
        2 => format!("UPDATE t SET k = {a}, v = v * 2 % 1000 WHERE id = {c}"),
        3 => format!("DELETE FROM t WHERE k = {a} AND v > {v}"),
        4 => format!("INSERT INTO w VALUES ({a}, {v}) ON DUPLICATE KEY UPDATE n = n + {b}"),
        5 => format!("REPLACE INTO u VALUES ({a}, {c}, {b})"),
        6 => format!("INSERT IGNORE INTO u VALUES ({a}, {c}, {v}), ({end}, {a}, {b})"),
        7 => format!(
            "INSERT INTO w SELECT k, COUNT(*) FROM t WHERE k BETWEEN {a} AND {end} GROUP BY k \
             ON DUPLICATE KEY UPDATE n = n + VALUES(n)"
        ),
        8 => format!(
            "UPDATE u SET c = (SELECT COUNT(*) FROM t WHERE k = {c}) WHERE a BETWEEN {a} AND {end}"
        ),
        9 => format!("UPDATE w SET n = f({c}) WHERE a = {a}"),
        10 => format!("UPDATE t JOIN u ON t.k = u.a SET t.v = u.c WHERE u.b < {a}"),
        11 => format!(
            "DELETE FROM u WHERE a BETWEEN {a} AND {end} AND NOT EXISTS (SELECT 1 FROM t WHERE t.k = u.a)"
        ),
        12 => format!("INSERT INTO u SELECT id + 100, id + 200, v FROM t WHERE k = {a}"),
        13 => format!("UPDATE t SET v = {v} ORDER BY id DESC LIMIT {}", b + 1),
        14 => format!("DELETE FROM u WHERE c < {b} ORDER BY a LIMIT 2"),
        15 => format!("UPDATE u SET b = b + 1 WHERE b > {a} ORDER BY b DESC"),
        16 => format!("INSERT INTO w SELECT {a}, COALESCE(MAX(c), 0) FROM u WHERE b > {c} \
             ON DUPLICATE KEY UPDATE n = VALUES(n)"),
        _ => format!("DELETE FROM w WHERE a > 9 AND n > {v}"),
    }
}

/// One transaction of one of these levels.
fn transaction(
    client: &mut Client,
    rng: &mut Rng,
    levels: &[&str],
    commits: &AtomicU64,
) -> Result<(), Fault> {
    let level = rng.pick(levels).copied().unwrap_or("REPEATABLE READ");
    client.run(&format!("SET TRANSACTION ISOLATION LEVEL {level}"))?;
    client.run("BEGIN")?;
    for _ in 0..rng.between(1, 4) {
        match client.run(&statement(rng)) {
            // The transaction is gone with it.
            Err(Fault::Sql(1213, _)) => return Ok(()),
            Err(Fault::Sql(1062 | 1205, _)) | Ok(()) => {}
            Err(fault) => return Err(fault),
        }
    }
    if rng.one_in(10) {
        return client.run("ROLLBACK");
    }
    client.run("COMMIT")?;
    commits.fetch_add(1, Ordering::Relaxed);
    Ok(())
}

/// Sessions at work.
pub struct Load {
    sessions: Vec<JoinHandle<()>>,
    commits: Arc<AtomicU64>,
    must_end: Arc<AtomicBool>,
}

impl Load {
    #[track_caller]
    pub fn start(site: &Site, seed: u64, levels: &'static [&'static str]) -> Load {
        let mut load =
            Load { sessions: Vec::new(), commits: Arc::default(), must_end: Arc::default() };
        for number in 0..SESSIONS {
            let mut client = site.client();
            done(client.run("USE stm"), "USE stm");
            let (commits, must_end) = (load.commits.clone(), load.must_end.clone());
            let mut rng = Rng::new(seed).fork(number);
            load.sessions.push(std::thread::spawn(move || {
                while !must_end.load(Ordering::Relaxed) {
                    match transaction(&mut client, &mut rng, levels, &commits) {
                        Ok(()) => {}
                        // The server was killed.
                        Err(Fault::Lost(_)) => return,
                        Err(fault) => panic!("seed {seed}: {fault}"),
                    }
                }
            }));
        }
        load
    }

    /// Transactions that are committed so far.
    pub fn commits(&self) -> u64 {
        self.commits.load(Ordering::Relaxed)
    }

    #[track_caller]
    pub fn end(self) -> u64 {
        self.must_end.store(true, Ordering::Relaxed);
        for session in self.sessions {
            session.join().expect("a session");
        }
        self.commits.load(Ordering::Relaxed)
    }
}

/// Runs a load for so long.
#[track_caller]
pub fn run_load(site: &Site, seed: u64, levels: &'static [&'static str], time: Duration) -> u64 {
    let load = Load::start(site, seed, levels);
    std::thread::sleep(time);
    load.end()
}

/// Events of rows in the text of a binlog.
pub fn row_events(text: &str) -> usize {
    text.lines().filter(|line| line.contains("Table_map: `stm`")).count()
}

/// Runs the text of `source`'s binlog on an empty server: the error that it has met, or the first table that
/// is not the same then.
#[track_caller]
pub fn replayed_difference(
    text: &str,
    source: &Site,
    other: &Site,
    file: PathBuf,
) -> Option<String> {
    replay(text, other, file).err().or_else(|| first_difference(source, other))
}

/// Runs the text of a binlog on a server.
#[track_caller]
fn replay(text: &str, site: &Site, file: PathBuf) -> Result<(), String> {
    std::fs::write(&file, text).expect("a file");
    let mut command = Command::new(prefix().program("mariadb"));
    let socket = format!("--socket={}", site.socket().display());
    command.args(["--no-defaults", "-uroot", &socket, "--binary-mode"]);
    let input = File::open(&file).expect("the text of the binlog");
    let output = command.stdin(input).output().expect("mariadb");
    let said = || String::from_utf8_lossy(&output.stderr).into_owned();
    output.status.success().then_some(()).ok_or_else(said)
}

/// The first table that is not the same on both servers.
#[track_caller]
fn first_difference(one: &Site, other: &Site) -> Option<String> {
    TABLES.iter().find_map(|table| {
        let all = format!("SELECT * FROM {table} ORDER BY 1");
        let rows = [one.rows(&all), other.rows(&all)];
        let extra = |of: usize| {
            let others = &rows[1 - of];
            rows[of].iter().filter(|row| !others.contains(row)).cloned().collect::<Vec<_>>()
        };
        (rows[0] != rows[1]).then(|| format!("{table}: {:?} and {:?}", extra(0), extra(1)))
    })
}
