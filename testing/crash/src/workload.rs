//! One session of the random workload. It runs transactions until the connection is gone (the
//! server was killed) and keeps its side record at every step: a change enters `pending` when the
//! server has accepted the statement, and `committed` when it has acknowledged the commit.

use crate::ops::{self, Expect, Planned, Scope};
use crate::record::{
    apply_to_rows, Ledger, Row, RowChange, Rows, Session, Table, ACCOUNTS, OPENING_BALANCE,
    WIDE_ROWS,
};
use sluice_rig::client::{Client, Fault, Reply, DUPLICATE};
use sluice_rig::rng::Rng;
use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Kinds of work that can be left out, for engines that do not have them yet.
pub const FEATURES: [&str; 7] =
    ["blobs", "savepoints", "replace", "mixed", "ddl", "transfers", "auto-increment"];

/// Longer than any wait that is not a hang.
pub const ANSWER_LIMIT: Duration = Duration::from_secs(180);

#[derive(Clone)]
pub struct Settings {
    pub socket: PathBuf,
    pub without: HashSet<String>,
    /// AUTO_INCREMENT values of all acknowledged rows, of all sessions, also of deleted ones.
    pub used_autos: Arc<Mutex<HashSet<i64>>>,
    /// Transaction ids of this round are `round << 40 | slot << 32 | sequence`. Each start of the sessions on
    /// one data directory has another number.
    pub round: i64,
    /// Each session has a GTID domain of its own, and each of its transactions an id: so a position in the
    /// binlog says how many transactions of the session are before it.
    pub own_domains: bool,
    /// The sessions end when this is set.
    pub end: Arc<AtomicBool>,
}

/// The GTID domain of a session.
pub fn domain(slot: usize) -> u64 {
    slot as u64 + 1
}

impl Settings {
    pub fn has(&self, feature: &str) -> bool {
        debug_assert!(FEATURES.contains(&feature));
        !self.without.contains(feature)
    }
}

/// Why a transaction ended early.
enum Stop {
    /// The connection is gone.
    Lost,
    /// Deadlock or lock wait timeout: the transaction was rolled back.
    RolledBack,
    /// The server did something wrong; noted in the record.
    Wrong,
}

/// The transaction goes on, or stops.
type Flow = Result<(), Stop>;

pub struct Worker<'a> {
    client: Client,
    record: &'a mut Session,
    settings: &'a Settings,
    rng: Rng,
    /// The rows as this session sees them inside its open transaction.
    view: Rows,
    sequence: i64,
}

/// Runs until it is told to end, the server is gone or has done something wrong.
pub fn run_session(record: &mut Session, settings: &Settings, rng: Rng) {
    let Ok(client) = connect(settings, record.slot) else { return };
    let view = record.committed.rows.clone();
    let mut worker = Worker { client, record, settings, rng, view, sequence: 0 };
    while !settings.end.load(Ordering::SeqCst) {
        match worker.transaction() {
            Ok(()) => {}
            Err(Stop::RolledBack) => {
                worker.forget();
                if worker.client.run("ROLLBACK").is_err() {
                    return;
                }
            }
            Err(Stop::Lost) | Err(Stop::Wrong) => return,
        }
    }
}

fn connect(settings: &Settings, slot: usize) -> Reply<Client> {
    let mut client = Client::connect_with_limit(&settings.socket, "k9", ANSWER_LIMIT)?;
    if settings.own_domains {
        client.run(&format!("SET SESSION gtid_domain_id = {}", domain(slot)))?;
    }
    Ok(client)
}

impl Worker<'_> {
    fn transaction(&mut self) -> Flow {
        if self.rng.one_in(5) {
            return self.autocommit();
        }
        let isolation = if self.rng.one_in(4) { "READ COMMITTED" } else { "REPEATABLE READ" };
        self.send(&format!("SET TRANSACTION ISOLATION LEVEL {isolation}"))?;
        self.send("BEGIN")?;
        let journal_first = self.rng.one_in(2);
        if journal_first {
            self.write_journal()?;
        }
        for _ in 0..*self.rng.pick(&[1, 1, 2, 4, 8]).unwrap_or(&1) {
            self.step()?;
        }
        if !journal_first {
            self.write_journal()?;
        }
        match self.rng.one_in(6) {
            true => self.roll_back(),
            false => self.commit(),
        }
    }

    fn commit(&mut self) -> Flow {
        self.record.doubtful = true;
        let answer = self.client.run("COMMIT");
        self.conclude(answer)
    }

    /// The answer to a commit, or to a statement that commits itself.
    fn conclude(&mut self, answer: Result<(), Fault>) -> Flow {
        match answer {
            Ok(()) => self.acknowledged(),
            Err(Fault::Lost(_)) => Err(Stop::Lost),
            Err(Fault::Sql(code, text)) => {
                self.record.doubtful = false;
                self.refused(code, &text, "COMMIT")
            }
        }
    }

    fn acknowledged(&mut self) -> Flow {
        let mut reused = Vec::new();
        {
            let mut used = self.settings.used_autos.lock().unwrap_or_else(|e| e.into_inner());
            for change in &self.record.pending {
                if let RowChange::Auto(id) = change {
                    if !used.insert(*id) {
                        reused.push(*id);
                    }
                }
            }
        }
        self.record.acknowledge();
        match reused.is_empty() {
            true => Ok(()),
            false => self.wrong(format!("AUTO_INCREMENT values used again: {reused:?}")),
        }
    }

    fn roll_back(&mut self) -> Flow {
        self.send("ROLLBACK")?;
        self.forget();
        Ok(())
    }

    fn forget(&mut self) {
        self.record.forget();
        self.view = self.record.committed.rows.clone();
    }

    /// One statement that is its own transaction.
    fn autocommit(&mut self) -> Flow {
        let plan = match self.rng.one_in(4) || self.settings.own_domains {
            true => Some(self.plan_journal()),
            false => self.plan(),
        };
        let Some(plan) = plan else { return Ok(()) };
        if plan.expect != Expect::Duplicate {
            self.record.pending = plan.changes.clone();
        }
        self.record.doubtful = true;
        match self.client.run(&plan.sql) {
            Err(Fault::Sql(DUPLICATE, _)) if plan.expect == Expect::Duplicate => {
                self.record.forget();
                Ok(())
            }
            answer => {
                let succeeded = answer.is_ok();
                if succeeded {
                    self.check_answer(&plan)?;
                    plan.changes.iter().for_each(|change| apply_to_rows(&mut self.view, change));
                }
                self.conclude(answer)
            }
        }
    }

    fn step(&mut self) -> Flow {
        match self.rng.between(1, 20) {
            1 if self.settings.has("savepoints") => self.savepoint(),
            2 | 3 if self.settings.has("transfers") => self.transfer(),
            4 | 5 if self.settings.has("auto-increment") => self.auto_increment(),
            6 => self.read_row(),
            7 => self.read_index(),
            8 if self.settings.has("transfers") => self.read_total(),
            9 | 10 => self.change_wide(),
            _ => match self.plan() {
                Some(plan) => self.execute(plan),
                None => Ok(()),
            },
        }
    }

    fn plan(&mut self) -> Option<Planned> {
        let mixed = self.settings.has("mixed");
        let table = if mixed && self.rng.one_in(4) { Table::Other } else { Table::Main };
        let big_rows = self.settings.has("blobs");
        let scope = Scope { table, base: self.record.base(), rows: &self.view, big_rows };
        let rng = &mut self.rng;
        match rng.between(1, 16) {
            1..=4 => ops::insert(&scope, rng),
            5 => ops::insert_with_duplicate(&scope, rng),
            6 | 7 => ops::update_pad(&scope, rng),
            8 => ops::update_blob(&scope, rng),
            9 => ops::update_unique(&scope, rng),
            10 | 11 => ops::update_key_range(&scope, rng),
            12 => ops::move_row(&scope, rng),
            13 => ops::delete_by_key(&scope, rng),
            14 if self.settings.has("replace") => ops::replace(&scope, rng),
            _ => ops::delete_one(&scope, rng),
        }
    }

    /// Sends a planned statement inside a transaction and records what it changed.
    fn execute(&mut self, plan: Planned) -> Flow {
        match self.client.run(&plan.sql) {
            Ok(()) => {
                self.check_answer(&plan)?;
                plan.changes.iter().for_each(|change| apply_to_rows(&mut self.view, change));
                self.record.pending.extend(plan.changes);
                Ok(())
            }
            Err(Fault::Sql(DUPLICATE, _)) if plan.expect == Expect::Duplicate => Ok(()),
            Err(fault) => self.failed(fault, &plan.sql),
        }
    }

    fn check_answer(&mut self, plan: &Planned) -> Flow {
        match plan.expect {
            Expect::Success => Ok(()),
            Expect::Rows(wanted) if wanted == self.client.matched() => Ok(()),
            Expect::Rows(wanted) => {
                let matched = self.client.matched();
                self.wrong(format!("{matched} rows matched, not {wanted}: {}", short(&plan.sql)))
            }
            Expect::Duplicate => self.wrong(format!("duplicate accepted: {}", short(&plan.sql))),
        }
    }

    fn send(&mut self, sql: &str) -> Flow {
        self.client.run(sql).or_else(|fault| self.failed(fault, sql))
    }

    fn failed(&mut self, fault: Fault, sql: &str) -> Flow {
        match fault {
            Fault::Lost(_) => Err(Stop::Lost),
            Fault::Sql(code, text) => self.refused(code, &text, sql),
        }
    }

    /// Deadlock, lock wait timeout and write conflict are the server's right; nothing else is.
    fn refused(&mut self, code: u16, text: &str, sql: &str) -> Flow {
        match code {
            1020 | 1205 | 1213 => Err(Stop::RolledBack),
            _ => self.wrong(format!("error {code} ({text}): {}", short(sql))),
        }
    }

    fn wrong(&mut self, what: String) -> Flow {
        self.record.violations.push(format!("session {}: {what}", self.record.slot));
        Err(Stop::Wrong)
    }

    fn plan_journal(&mut self) -> Planned {
        let slot = self.record.slot as i64;
        let txn = self.settings.round << 40 | slot << 32 | self.sequence;
        self.sequence += 1;
        Planned {
            sql: format!("INSERT INTO journal VALUES ({txn}, {slot})"),
            expect: Expect::Rows(1),
            changes: vec![RowChange::Journal(txn)],
        }
    }

    fn write_journal(&mut self) -> Flow {
        let plan = self.plan_journal();
        self.execute(plan)
    }

    /// Some work after a savepoint that is then undone, or kept.
    fn savepoint(&mut self) -> Flow {
        self.send("SAVEPOINT s")?;
        let (kept, view) = (self.record.pending.len(), self.view.clone());
        for _ in 0..self.rng.between(1, 4) {
            if let Some(plan) = self.plan() {
                self.execute(plan)?;
            }
        }
        if self.rng.one_in(3) {
            return self.send("RELEASE SAVEPOINT s");
        }
        self.send("ROLLBACK TO SAVEPOINT s")?;
        self.record.pending.truncate(kept);
        self.view = view;
        Ok(())
    }

    /// Moves money from one table to the other; every session uses the same accounts.
    fn transfer(&mut self) -> Flow {
        let amount = self.rng.between(-50, 50);
        for (ledger, name, sign) in [(Ledger::A, "accounts_a", -1), (Ledger::B, "accounts_b", 1)] {
            let id = self.rng.between(1, ACCOUNTS);
            let change = amount * sign;
            self.execute(Planned {
                sql: format!("UPDATE {name} SET balance = balance + {change} WHERE id = {id}"),
                expect: Expect::Rows(1),
                changes: vec![RowChange::Transfer(ledger, id, change)],
            })?;
        }
        Ok(())
    }

    /// Rows all over a table of many pages.
    fn change_wide(&mut self) -> Flow {
        for _ in 0..self.rng.between(1, 8) {
            let (id, amount) = (self.rng.between(1, WIDE_ROWS), self.rng.between(1, 9));
            self.execute(Planned {
                sql: format!("UPDATE wide SET balance = balance + {amount} WHERE id = {id}"),
                expect: Expect::Rows(1),
                changes: vec![RowChange::Transfer(Ledger::Wide, id, amount)],
            })?;
        }
        Ok(())
    }

    fn auto_increment(&mut self) -> Flow {
        let own: Vec<i64> = self.record.committed.autos.iter().copied().collect();
        if let Some(&id) = self.rng.pick(&own).filter(|_| own.len() > 100) {
            if !self
                .record
                .pending
                .iter()
                .any(|c| matches!(c, RowChange::AutoDelete(x) if *x == id))
            {
                return self.execute(Planned {
                    sql: format!("DELETE FROM auto_rows WHERE id = {id}"),
                    expect: Expect::Rows(1),
                    changes: vec![RowChange::AutoDelete(id)],
                });
            }
        }
        self.send(&format!("INSERT INTO auto_rows (session) VALUES ({})", self.record.slot))?;
        self.record.pending.push(RowChange::Auto(self.client.last_insert_id()));
        Ok(())
    }

    /// A session sees its own changes.
    fn read_row(&mut self) -> Flow {
        let keys: Vec<_> = self.view.keys().copied().collect();
        let Some(&(table, id)) = self.rng.pick(&keys) else { return Ok(()) };
        let sql = format!("SELECT k, u, pad FROM {} WHERE id = {id}", table.name());
        let seen: Vec<(i64, Option<i64>, String)> = self.query(&sql)?;
        let Row { k, u, pad, .. } = self.view[&(table, id)].clone();
        match seen == [(k, u, pad)] {
            true => Ok(()),
            false => self.wrong(format!("own row {table:?} {id} reads as {seen:?}")),
        }
    }

    /// The secondary index shows exactly the rows that the session sees.
    fn read_index(&mut self) -> Flow {
        let (low, high) = (self.record.base(), self.record.base() + crate::record::RANGE - 1);
        let sql = format!(
            "SELECT id FROM main_rows FORCE INDEX (k) WHERE k BETWEEN {low} AND {high} ORDER BY id"
        );
        let seen: Vec<i64> = self.query(&sql)?;
        let wanted = self.view.keys().filter(|key| key.0 == Table::Main).map(|key| key.1);
        match wanted.eq(seen.iter().copied()) {
            true => Ok(()),
            false => self.wrong(format!("index k shows {} rows, not the session's", seen.len())),
        }
    }

    /// Money is neither made nor lost, in any snapshot. Not after a transfer of its own: then a
    /// snapshot sees its own row on top of a later one of others, but not their other half.
    fn read_total(&mut self) -> Flow {
        if self.record.pending.iter().any(|change| matches!(change, RowChange::Transfer(..))) {
            return Ok(());
        }
        let seen: Vec<i64> = self.query(
            "SELECT CAST((SELECT SUM(balance) FROM accounts_a) \
             + (SELECT SUM(balance) FROM accounts_b) AS SIGNED)",
        )?;
        match seen == [2 * ACCOUNTS * OPENING_BALANCE] {
            true => Ok(()),
            false => self.wrong(format!("the accounts' total reads as {seen:?}")),
        }
    }

    fn query<T: mysql::prelude::FromRow>(&mut self, sql: &str) -> Result<Vec<T>, Stop> {
        match self.client.rows(sql) {
            Ok(rows) => Ok(rows),
            Err(fault) => {
                self.failed(fault, sql)?;
                Ok(Vec::new())
            }
        }
    }
}

fn short(sql: &str) -> String {
    sql.chars().take(160).collect()
}
