//! After a restart: compares everything the server holds with the side record.

use crate::binlog::BinlogRecord;
use crate::ddl::{self, DdlRecord};
use crate::record::{
    Actual, Ledger, Resolution, Session, Stored, Table, ACCOUNTS, OPENING_BALANCE, RANGE, SLOTS,
    WIDE_BYTES, WIDE_ROWS,
};
use sluice_rig::client::{Client, Fault, Reply};
use sluice_rig::server::Prefix;
use std::collections::BTreeSet;
use std::path::Path;

/// What the harness knows about one data directory.
pub struct Record {
    pub sessions: Vec<Session>,
    pub ddl: DdlRecord,
    pub binlog: Option<BinlogRecord>,
}

#[derive(Default)]
pub struct Outcome {
    pub committed: u64,
    pub absent: u64,
    pub rows: u64,
}

type Problems = Vec<String>;
type KeyRow = (i64, Option<i64>, i64);

impl Record {
    pub fn new(binlog: bool) -> Record {
        Record {
            sessions: (0..SLOTS).map(Session::new).collect(),
            ddl: DdlRecord::default(),
            binlog: binlog.then(BinlogRecord::default),
        }
    }

    pub fn acknowledged(&self) -> u64 {
        self.sessions.iter().map(|s| s.acknowledged).sum::<u64>() + self.ddl.acknowledged
    }

    /// All checks; every problem found, not only the first.
    pub fn verify(
        &mut self,
        client: &mut Client,
        prefix: &Prefix,
        data: &Path,
    ) -> Result<Outcome, Problems> {
        let mut problems = self.complaints();
        let mut outcome = Outcome::default();
        match read_everything(client) {
            Ok(actual) => self.resolve_sessions(actual, &mut outcome, &mut problems),
            Err(fault) => problems.push(format!("reading the tables: {fault}")),
        }
        for (what, result) in [
            ("accounts", self.check_accounts(client)),
            ("wide", self.check_wide(client)),
            ("indexes", check_indexes(client)),
            ("CHECK TABLE", check_tables(client)),
        ] {
            let found = result.unwrap_or_else(|fault| vec![format!("{fault}")]);
            problems.extend(found.into_iter().map(|problem| format!("{what}: {problem}")));
        }
        problems.extend(ddl::verify(&mut self.ddl, client).err().unwrap_or_default());
        problems.extend(self.check_binlog(prefix, data));
        match problems.is_empty() {
            true => Ok(outcome),
            false => Err(problems),
        }
    }

    /// What the sessions themselves have complained about while they ran.
    pub fn complaints(&mut self) -> Problems {
        let mut all: Problems =
            self.sessions.iter_mut().flat_map(|s| s.violations.drain(..)).collect();
        all.append(&mut self.ddl.violations);
        all
    }

    fn resolve_sessions(
        &mut self,
        actual: Vec<Actual>,
        outcome: &mut Outcome,
        problems: &mut Problems,
    ) {
        assert_eq!(actual.len(), self.sessions.len());
        for (session, actual) in self.sessions.iter_mut().zip(actual) {
            outcome.rows += (actual.rows.len() + actual.autos.len() + actual.journal.len()) as u64;
            match session.resolve(&actual) {
                Ok(Resolution::Nothing) => {}
                Ok(Resolution::Committed) => outcome.committed += 1,
                Ok(Resolution::Absent) => outcome.absent += 1,
                Err(found) => problems
                    .extend(found.into_iter().map(|p| format!("session {}: {p}", session.slot))),
            }
        }
    }

    fn check_accounts(&self, client: &mut Client) -> Reply<Problems> {
        let mut problems = Vec::new();
        for (ledger, name) in [(Ledger::A, "accounts_a"), (Ledger::B, "accounts_b")] {
            let actual: Vec<(i64, i64)> =
                client.rows(&format!("SELECT id, balance FROM {name} ORDER BY id"))?;
            let wanted: Vec<_> = (1..=ACCOUNTS).map(|id| (id, self.balance(ledger, id))).collect();
            if actual != wanted {
                problems.push(format!("{name} is {actual:?}, not {wanted:?}"));
            }
        }
        Ok(problems)
    }

    /// The rows of the wide table are those that were there from the beginning, plus what was added.
    fn check_wide(&self, client: &mut Client) -> Reply<Problems> {
        let sql = format!(
            "SELECT id, balance, LENGTH(pad) = {WIDE_BYTES} FROM wide FORCE INDEX (PRIMARY) ORDER BY id"
        );
        let actual: Vec<(i64, i64, bool)> = client.rows(&sql)?;
        let wanted: Vec<_> =
            (1..=WIDE_ROWS).map(|id| (id, self.moved(Ledger::Wide, id), true)).collect();
        let first = actual.iter().zip(&wanted).find(|(a, b)| a != b);
        Ok(match actual == wanted {
            true => Vec::new(),
            false => vec![format!("{} rows, first difference {first:?}", actual.len())],
        })
    }

    fn balance(&self, ledger: Ledger, id: i64) -> i64 {
        OPENING_BALANCE + self.moved(ledger, id)
    }

    fn moved(&self, ledger: Ledger, id: i64) -> i64 {
        let moved = |s: &Session| s.committed.transfers.get(&(ledger, id)).copied().unwrap_or(0);
        self.sessions.iter().map(moved).sum()
    }

    /// The binlog holds exactly the transactions that the engine holds.
    fn check_binlog(&mut self, prefix: &Prefix, data: &Path) -> Problems {
        let Some(binlog) = &mut self.binlog else { return Vec::new() };
        let mut problems = binlog.read(prefix, data).err().unwrap_or_default();
        let engine: BTreeSet<i64> =
            self.sessions.iter().flat_map(|s| s.committed.journal.iter().copied()).collect();
        let only_engine: Vec<_> = engine.difference(&binlog.committed).take(10).collect();
        let only_binlog: Vec<_> = binlog.committed.difference(&engine).take(10).collect();
        if !only_engine.is_empty() {
            problems.push(format!("in the engine but not in the binlog: {only_engine:?}"));
        }
        if !only_binlog.is_empty() {
            problems.push(format!("in the binlog but not in the engine: {only_binlog:?}"));
        }
        problems
    }
}

/// Reads all tables once and sorts their rows by the session that owns the key. A key that no
/// session owns is given to the first one, where it shows up as a phantom.
pub fn read_everything(client: &mut Client) -> Reply<Vec<Actual>> {
    let mut actual: Vec<Actual> = (0..SLOTS).map(|_| Actual::default()).collect();
    let owner = |slot: i64| usize::try_from(slot).ok().filter(|s| *s < SLOTS).unwrap_or(0);
    for table in [Table::Main, Table::Other] {
        let sql = format!(
            "SELECT id, k, u, pad, big FROM {} FORCE INDEX (PRIMARY) ORDER BY id",
            table.name()
        );
        type Wide = (i64, i64, Option<i64>, Vec<u8>, Option<Vec<u8>>);
        for (id, k, u, pad, big) in client.rows::<Wide>(&sql)? {
            actual[owner(id / RANGE)].rows.insert((table, id), Stored { k, u, pad, big });
        }
    }
    for (id, slot) in client.rows::<(i64, i64)>("SELECT id, session FROM auto_rows")? {
        actual[owner(slot)].autos.insert(id);
    }
    for (txn, slot) in client.rows::<(i64, i64)>("SELECT txn, session FROM journal")? {
        actual[owner(slot)].journal.insert(txn);
    }
    Ok(actual)
}

/// Each index of a table shows the same rows as its primary key, in its own order.
fn check_indexes(client: &mut Client) -> Reply<Problems> {
    let mut problems = Vec::new();
    for table in [Table::Main, Table::Other] {
        let name = table.name();
        let rows: Vec<KeyRow> = client
            .rows(&format!("SELECT k, u, id FROM {name} FORCE INDEX (PRIMARY) ORDER BY id"))?;
        let mut by_k: Vec<_> = rows.iter().map(|r| (r.0, r.2)).collect();
        by_k.sort_unstable();
        let mut by_u: Vec<_> = rows.iter().filter_map(|r| Some((r.1?, r.2))).collect();
        by_u.sort_unstable();
        let scan_k = "SELECT k, id FROM {} FORCE INDEX (k) WHERE k >= 0 ORDER BY k, id";
        let scan_u = "SELECT u, id FROM {} FORCE INDEX (u) WHERE u >= 0 ORDER BY u, id";
        compare(client, &scan_k.replace("{}", name), &by_k, &mut problems)?;
        compare(client, &scan_u.replace("{}", name), &by_u, &mut problems)?;
        let reverse: Vec<i64> = client
            .rows(&format!("SELECT id FROM {name} FORCE INDEX (PRIMARY) ORDER BY id DESC"))?;
        if !reverse.iter().rev().eq(rows.iter().map(|r| &r.2)) {
            problems.push(format!("{name}: a backward scan shows {} rows", reverse.len()));
        }
        check_counts(client, name, rows.len() as u64, &mut problems)?;
    }
    Ok(problems)
}

fn compare(
    client: &mut Client,
    sql: &str,
    wanted: &[(i64, i64)],
    problems: &mut Problems,
) -> Reply<()> {
    let seen: Vec<(i64, i64)> = client.rows(sql)?;
    if seen != wanted {
        let at = seen.iter().zip(wanted).position(|(a, b)| a != b);
        let (shown, expected) = (seen.len(), wanted.len());
        problems.push(format!("{sql}: {shown} entries, not {expected}; first difference {at:?}"));
    }
    Ok(())
}

fn check_counts(
    client: &mut Client,
    name: &str,
    wanted: u64,
    problems: &mut Problems,
) -> Reply<()> {
    for index in ["PRIMARY", "k", "u"] {
        let sql = format!("SELECT COUNT(*) FROM {name} FORCE INDEX ({index})");
        let seen: Vec<u64> = client.rows(&sql)?;
        if seen != [wanted] {
            problems.push(format!("{sql}: {seen:?}, not {wanted}"));
        }
    }
    Ok(())
}

/// CHECK TABLE ... EXTENDED; an engine that does not support it says so in a note.
fn check_tables(client: &mut Client) -> Reply<Problems> {
    let mut problems = Vec::new();
    let tables = "main_rows, other_rows, auto_rows, accounts_a, accounts_b, wide, journal";
    let sql = format!("CHECK TABLE {tables} EXTENDED");
    for (table, _, kind, text) in client.rows::<(String, String, String, String)>(&sql)? {
        if kind != "note" && text != "OK" {
            problems.push(format!("{table}: {kind}: {text}"));
        }
    }
    Ok(problems)
}

/// Falsifies the server's contents, to prove that verification notices.
pub fn inject(client: &mut Client, sql: &str) -> Result<(), Fault> {
    client.run("SET SESSION sql_log_bin = 0")?;
    client.run(sql)
}
