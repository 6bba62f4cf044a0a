//! One session of DDL on tables of its own. The record is the set of tables with their shape;
//! the statement in flight at the crash may have happened or not, as a whole.

use sluice_rig::client::{Client, Fault, Reply};
use sluice_rig::rng::Rng;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;

#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Shape {
    pub rows: i64,
    pub columns: i64,
    pub indexed: bool,
}

pub type Tables = BTreeMap<String, Shape>;

#[derive(Default)]
pub struct DdlRecord {
    pub tables: Tables,
    /// What `tables` becomes when the statement in flight has happened.
    pub doubtful: Option<Tables>,
    /// The statement in flight, for the report.
    pub sent: String,
    pub acknowledged: u64,
    /// The tables after each statement that has happened, the first one first.
    pub steps: Vec<Tables>,
    /// The tables after a TRUNCATE that came after so many steps and has no GTID: the server writes it to the
    /// binlog when the engine is done, and a kill came between the two. Nothing completes it at the start.
    pub unnumbered: BTreeMap<u64, Tables>,
    /// As many as there are steps, for those who look on while the session runs.
    pub count: Arc<AtomicU64>,
    pub violations: Vec<String>,
    next: u64,
}

impl DdlRecord {
    /// The statement that makes `after` of the tables has happened.
    pub fn step(&mut self, after: Tables) {
        self.tables = after.clone();
        self.steps.push(after);
        self.count.store(self.steps.len() as u64, Ordering::SeqCst);
    }

    /// The statement in flight was found to have happened, and its number was not given to it. Answers whether
    /// that may be.
    pub fn has_no_number(&mut self) -> bool {
        if !self.sent.starts_with("TRUNCATE ") {
            return false;
        }
        let Some(after) = self.steps.pop() else { return false };
        let steps = self.steps.len() as u64;
        self.unnumbered.insert(steps, after);
        self.count.store(steps, Ordering::SeqCst);
        true
    }
}

const BASE_COLUMNS: i64 = 2;
/// A load has at most so many times the rows of an INSERT.
const LOAD_FACTOR_MAX: i64 = 20;

/// How one session works.
pub struct Work<'a> {
    pub socket: &'a Path,
    pub engine: &'a str,
    /// Rows of an INSERT.
    pub rows: i64,
    /// Its transactions have a GTID domain of their own.
    pub domain: Option<u64>,
    /// Names of tables that are gone are given to new ones.
    pub names_return: bool,
    /// It ends when this is set.
    pub end: &'a AtomicBool,
}

fn connect(work: &Work) -> Reply<Client> {
    let mut client = Client::connect_with_limit(work.socket, "k9", crate::workload::ANSWER_LIMIT)?;
    if let Some(domain) = work.domain {
        client.run(&format!("SET SESSION gtid_domain_id = {domain}"))?;
    }
    Ok(client)
}

/// Runs until it is told to end, the server is gone or has done something wrong. `cut` is called once, before
/// a statement that copies rows.
pub fn run_session(
    record: &mut DdlRecord,
    work: &Work,
    mut rng: Rng,
    cut: impl Fn() -> std::io::Result<()>,
) {
    let Ok(mut client) = connect(work) else { return };
    let mut before_cut = rng.between(5, 20);
    while !work.end.load(Ordering::SeqCst) {
        let (sql, after) = plan(record, work, &mut rng);
        before_cut -= 1;
        if before_cut < 0 && copies_rows(record, &sql) {
            before_cut = i64::MAX;
            if let Err(error) = cut() {
                record.violations.push(format!("ddl: the cut: {error}"));
                return;
            }
        }
        record.doubtful = Some(after.clone());
        record.sent.clone_from(&sql);
        match client.run(&sql) {
            Ok(()) => {
                record.step(after);
                record.doubtful = None;
                record.acknowledged += 1;
            }
            Err(Fault::Lost(_)) => return,
            Err(Fault::Sql(code, text)) => {
                record.doubtful = None;
                record.violations.push(format!("ddl: error {code} ({text}): {sql}"));
                return;
            }
        }
        std::thread::sleep(std::time::Duration::from_millis(rng.between(0, 60) as u64));
    }
}

fn copies_rows(record: &DdlRecord, sql: &str) -> bool {
    let table = sql.strip_prefix("ALTER TABLE ").and_then(|rest| rest.split(' ').next());
    table.and_then(|name| record.tables.get(name)).is_some_and(|shape| shape.rows > 0)
}

fn plan(record: &mut DdlRecord, work: &Work, rng: &mut Rng) -> (String, Tables) {
    let mut after = record.tables.clone();
    let names: Vec<String> = after.keys().cloned().collect();
    let name = match rng.pick(&names) {
        Some(name) if names.len() >= 2 && !rng.one_in(4) => name.clone(),
        _ => return plan_create(record, work, after, rng),
    };
    let shape = after.entry(name.clone()).or_default();
    if shape.rows == 0 && !rng.one_in(4) {
        // A copy of an empty table can lose nothing.
        return (plan_fill(&name, shape, work.rows, rng), after);
    }
    let sql = match rng.between(1, 9) {
        1..=3 => plan_insert(&name, shape, work.rows),
        4 => {
            shape.columns += 1;
            let column = shape.columns;
            format!("ALTER TABLE {name} ADD COLUMN c{column} INT NOT NULL DEFAULT {column}")
        }
        5 => {
            shape.indexed = !shape.indexed;
            match shape.indexed {
                true => format!("CREATE INDEX v ON {name} (v)"),
                false => format!("ALTER TABLE {name} DROP INDEX v"),
            }
        }
        6 => {
            shape.rows = 0;
            format!("TRUNCATE TABLE {name}")
        }
        7 => format!("ALTER TABLE {name} FORCE"),
        8 => {
            let shape = shape.clone();
            after.remove(&name);
            let to = free_name(record, work, rng);
            after.insert(to.clone(), shape);
            format!("RENAME TABLE {name} TO {to}")
        }
        _ => {
            after.remove(&name);
            format!("DROP TABLE {name}")
        }
    };
    (sql, after)
}

/// The first rows of a table, often by a statement that may load it.
fn plan_fill(name: &str, shape: &mut Shape, rows: i64, rng: &mut Rng) -> String {
    if rng.one_in(5) {
        return plan_insert(name, shape, rows);
    }
    shape.rows = rows * rng.between(1, LOAD_FACTOR_MAX);
    let all = format!("seq_1_to_{}", shape.rows);
    format!("INSERT INTO {name} (id, v) SELECT seq, seq % 7 FROM {all}")
}

fn plan_insert(name: &str, shape: &mut Shape, rows: i64) -> String {
    let first = shape.rows + 1;
    shape.rows += rows;
    let rows: Vec<_> = (first..=shape.rows).map(|id| format!("({id}, {})", id % 7)).collect();
    format!("INSERT INTO {name} (id, v) VALUES {}", rows.join(", "))
}

fn plan_create(
    record: &mut DdlRecord,
    work: &Work,
    mut after: Tables,
    rng: &mut Rng,
) -> (String, Tables) {
    let (name, engine) = (free_name(record, work, rng), work.engine);
    let sql = format!("CREATE TABLE {name} (id BIGINT PRIMARY KEY, v INT) ENGINE={engine}");
    after.insert(name, Shape { columns: BASE_COLUMNS, ..Shape::default() });
    (sql, after)
}

/// One that no table has, at times that of a table that is gone.
fn free_name(record: &mut DdlRecord, work: &Work, rng: &mut Rng) -> String {
    if work.names_return && rng.one_in(2) {
        let all = (1..=record.next).map(name);
        let gone: Vec<String> = all.filter(|name| !record.tables.contains_key(name)).collect();
        if let Some(name) = rng.pick(&gone) {
            return name.clone();
        }
    }
    record.next += 1;
    name(record.next)
}

fn name(number: u64) -> String {
    format!("ddl_{number}")
}

/// Compares the tables with the record, and takes the outcome of the statement in flight.
pub fn verify(record: &mut DdlRecord, client: &mut Client) -> Result<(), Vec<String>> {
    let actual = read_tables(client)
        .map_err(|fault| vec![format!("ddl tables: {fault}; last sent: {}", record.sent)])?;
    let doubtful = record.doubtful.take();
    if record.tables == actual {
        return Ok(());
    }
    match doubtful {
        Some(after) if after == actual => {
            record.step(after);
            Ok(())
        }
        other => Err(vec![format!(
            "ddl tables are {actual:?}, acknowledged {:?}, in flight {other:?}",
            record.tables
        )]),
    }
}

fn read_tables(client: &mut Client) -> Reply<Tables> {
    let mut tables = Tables::new();
    for name in client.rows::<String>("SHOW TABLES LIKE 'ddl\\_%'")? {
        let shape = read_shape(client, &name)?;
        tables.insert(name, shape);
    }
    Ok(tables)
}

fn read_shape(client: &mut Client, name: &str) -> Reply<Shape> {
    let columns = client.rows::<String>(&format!(
        "SELECT column_name FROM information_schema.columns \
         WHERE table_schema = 'k9' AND table_name = '{name}'"
    ))?;
    let indexed = !client
        .rows::<mysql::Row>(&format!("SHOW INDEX FROM {name} WHERE Key_name = 'v'"))?
        .is_empty();
    let force = if indexed { "FORCE INDEX (v)" } else { "" };
    // The rows are 1..=n with v = id % 7; anything else counts as a row too many.
    let counts: Vec<(i64, i64, i64)> = client.rows(&format!(
        "SELECT COUNT(*), IFNULL(MAX(id), 0), CAST(IFNULL(SUM(v <> id % 7), 0) AS SIGNED) FROM {name}"
    ))?;
    let by_index: Vec<i64> =
        client.rows(&format!("SELECT COUNT(*) FROM {name} {force} WHERE v >= 0"))?;
    let (count, max, wrong) = counts.first().copied().unwrap_or((-1, -1, -1));
    let rows = if by_index == [count] && max == count && wrong == 0 { count } else { -1 };
    Ok(Shape { rows, columns: columns.len() as i64, indexed })
}
