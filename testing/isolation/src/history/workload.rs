//! What a session of a random history does.

use super::model::{Key, Kind, Op, Outcome, Seen, Txn, Value};
use crate::level::{Engine, Level};
use sluice_rig::client::{Client, Fault, Reply};
use sluice_rig::rng::Rng;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Keys that are in use at a time: few enough to meet at.
const WINDOW: i64 = 6;
/// After so many transactions the window moves on by a key, so that lists stay short.
const PER_KEY: u64 = 40;
/// Errors by which a transaction gives way to others: timeout, deadlock.
const GIVES_WAY: [u16; 2] = [1205, 1213];

/// What all sessions of a history share.
pub struct Shared {
    pub kind: Kind,
    pub level: Level,
    pub stop: AtomicBool,
    pub killing: AtomicBool,
    pub values: AtomicU64,
    pub begun: AtomicU64,
}

impl Shared {
    pub fn new(kind: Kind, level: Level) -> Shared {
        Shared {
            kind,
            level,
            stop: AtomicBool::new(false),
            killing: AtomicBool::new(false),
            values: AtomicU64::new(1),
            begun: AtomicU64::new(0),
        }
    }
}

pub const DATABASE: &str = "histories";

pub fn create(client: &mut Client, engine: Engine) -> Reply<()> {
    client.run(&format!("CREATE DATABASE {DATABASE}"))?;
    client.run(&format!(
        "CREATE TABLE {DATABASE}.lists (k INT PRIMARY KEY, g INT NOT NULL, v TEXT NOT NULL,
         KEY g (g)) ENGINE={engine}"
    ))?;
    client.run(&format!(
        "CREATE TABLE {DATABASE}.registers (k INT PRIMARY KEY, g INT NOT NULL,
         ver BIGINT NOT NULL, val BIGINT NOT NULL, KEY g (g, ver, val)) ENGINE={engine}"
    ))
}

/// One session, until it is told to stop or the server is gone.
pub struct Worker<'a> {
    shared: &'a Shared,
    client: Client,
    rng: Rng,
    life: usize,
    pub txns: Vec<Txn>,
    pub faults: Vec<String>,
}

enum End {
    Done,
    /// The server has rolled it back, or part of it.
    GaveWay,
    Lost,
}

impl<'a> Worker<'a> {
    pub fn connect(shared: &'a Shared, socket: &Path, rng: Rng, life: usize) -> Reply<Worker<'a>> {
        let mut client = Client::connect(socket, DATABASE)?;
        client.run(&format!("SET SESSION TRANSACTION ISOLATION LEVEL {}", shared.level))?;
        Ok(Worker { shared, client, rng, life, txns: Vec::new(), faults: Vec::new() })
    }

    pub fn work(&mut self) {
        while !self.shared.stop.load(Ordering::Relaxed) {
            if !self.transaction() {
                break;
            }
        }
    }

    /// False: the server is gone.
    fn transaction(&mut self) -> bool {
        self.shared.begun.fetch_add(1, Ordering::Relaxed);
        let mut ops = Vec::new();
        let end = match self.client.run("BEGIN") {
            Ok(()) => self.steps(&mut ops),
            Err(fault) => self.judge(fault),
        };
        let (outcome, goes_on) = self.finish(end);
        self.txns.push(Txn { life: self.life, ops, outcome });
        goes_on
    }

    fn steps(&mut self, ops: &mut Vec<Op>) -> End {
        for _ in 0..self.rng.between(1, 5) {
            if let Err(fault) = self.step(ops) {
                return self.judge(fault);
            }
        }
        End::Done
    }

    fn finish(&mut self, end: End) -> (Outcome, bool) {
        let statement = match end {
            End::Lost => return (Outcome::Aborted, false),
            End::Done if !self.rng.one_in(8) => "COMMIT",
            _ => "ROLLBACK",
        };
        match self.client.run(statement).map_err(|fault| self.judge(fault)) {
            Ok(()) if statement == "COMMIT" => (Outcome::Committed, true),
            Ok(()) => (Outcome::Aborted, true),
            Err(End::Lost) if statement == "COMMIT" => (Outcome::Unknown, false),
            Err(End::Lost) => (Outcome::Aborted, false),
            Err(_) => (Outcome::Aborted, true),
        }
    }

    fn judge(&mut self, fault: Fault) -> End {
        match fault {
            Fault::Sql(code, _) if GIVES_WAY.contains(&code) => End::GaveWay,
            Fault::Sql(code, text) => {
                self.faults.push(format!("error {code}: {text}"));
                End::GaveWay
            }
            Fault::Lost(text) => {
                if !self.shared.killing.load(Ordering::SeqCst) {
                    self.faults.push(format!("connection lost without a kill: {text}"));
                }
                End::Lost
            }
        }
    }

    fn key(&mut self) -> Key {
        let base = self.shared.begun.load(Ordering::Relaxed) / PER_KEY;
        base + self.rng.between(1, WINDOW) as u64
    }

    fn step(&mut self, ops: &mut Vec<Op>) -> Reply<()> {
        let key = self.key();
        match self.rng.between(1, 100) {
            1..=42 => self.write(key, ops),
            43..=72 => self.read(&format!("k = {key}"), "", &[key], "", ops),
            73..=82 => {
                let (low, high) = (key, key + 2);
                let keys: Vec<Key> = (low..=high).collect();
                self.read(&format!("k BETWEEN {low} AND {high}"), "", &keys, "", ops)
            }
            83..=90 => self.read(&format!("g = {key}"), "FORCE INDEX (g)", &[key], "", ops),
            91..=95 => self.read(&format!("k = {key}"), "", &[key], "FOR UPDATE", ops),
            _ => self.read(&format!("k = {key}"), "", &[key], "LOCK IN SHARE MODE", ops),
        }
    }

    fn write(&mut self, key: Key, ops: &mut Vec<Op>) -> Reply<()> {
        let value = self.shared.values.fetch_add(1, Ordering::Relaxed);
        let by_update = self.rng.one_in(2);
        let (set, row) = match self.shared.kind {
            Kind::List => {
                (format!("v = CONCAT(v, ',{value}')"), format!("{key}, {key}, '{value}'"))
            }
            Kind::Register => (
                format!("ver = LAST_INSERT_ID(ver + 1), val = {value}"),
                format!("{key}, {key}, LAST_INSERT_ID(1), {value}"),
            ),
        };
        let table = self.table();
        // Before the server has it: a write whose answer a kill cut off, or that gave way in the end,
        // may have been seen at READ UNCOMMITTED. The transaction has not committed then.
        let place = ops.len();
        ops.push(Op::Write { key, value, version: 0 });
        if by_update {
            self.client.run(&format!("UPDATE {table} SET {set} WHERE k = {key}"))?;
        }
        if !by_update || self.client.matched() == 0 {
            self.client.run(&format!(
                "INSERT INTO {table} VALUES ({row}) ON DUPLICATE KEY UPDATE {set}"
            ))?;
        }
        let version = self.client.last_insert_id() as u64;
        ops[place] = Op::Write { key, value, version };
        Ok(())
    }

    fn table(&self) -> &'static str {
        match self.shared.kind {
            Kind::List => "lists",
            Kind::Register => "registers",
        }
    }

    fn read(
        &mut self,
        filter: &str,
        hint: &str,
        keys: &[Key],
        lock: &str,
        ops: &mut Vec<Op>,
    ) -> Reply<()> {
        let columns = columns(self.shared.kind);
        let table = self.table();
        let sql = format!("SELECT {columns} FROM {table} {hint} WHERE {filter} {lock}");
        let rows = read_rows(&mut self.client, self.shared.kind, &sql)?;
        let nothing = match self.shared.kind {
            Kind::List => Seen::List(Vec::new()),
            Kind::Register => Seen::Register { version: 0, value: 0 },
        };
        let current = !lock.is_empty();
        for key in keys {
            let seen = rows.iter().find(|(k, _)| k == key).map_or(&nothing, |(_, seen)| seen);
            ops.push(Op::Read { key: *key, seen: seen.clone(), current });
        }
        Ok(())
    }
}

fn columns(kind: Kind) -> &'static str {
    match kind {
        Kind::List => "k, v",
        Kind::Register => "k, CONCAT(ver, ',', val)",
    }
}

/// All rows of the history's table.
pub fn all_rows(client: &mut Client, kind: Kind) -> Reply<Vec<(Key, Seen)>> {
    let table = if kind == Kind::List { "lists" } else { "registers" };
    let columns = columns(kind);
    read_rows(client, kind, &format!("SELECT {columns} FROM {DATABASE}.{table} ORDER BY k"))
}

fn read_rows(client: &mut Client, kind: Kind, sql: &str) -> Reply<Vec<(Key, Seen)>> {
    let rows: Vec<(Key, String)> = client.rows(sql)?;
    Ok(rows.into_iter().map(|(key, text)| (key, seen_of(kind, &text))).collect())
}

/// What is no number becomes one that nobody wrote.
fn seen_of(kind: Kind, text: &str) -> Seen {
    let list: Vec<Value> = text.split(',').map(|v| v.parse().unwrap_or(Value::MAX)).collect();
    match kind {
        Kind::List => Seen::List(list),
        Kind::Register => Seen::Register {
            version: list.first().copied().unwrap_or(Value::MAX),
            value: list.last().copied().unwrap_or(Value::MAX),
        },
    }
}
