//! DDL on a full disk: it happens in memory and on disk, or in neither, at whichever call the room
//! ends.

use super::damage::{open_with, spec};
use crate::base::{Error, Result};
use crate::db::*;
use crate::os::sim::{Fault, SimOs};
use std::cell::RefCell;
use std::ops::Bound;
use std::sync::Arc;

const OLD: &str = "db/old";
const NEW: &str = "db/new";
/// What the definition of an altered table is made of.
const ALTERED: u8 = 8;

/// Every statement changes the catalog; some log more than a segment for it.
const STATEMENTS: [&str; 5] = ["create", "drop", "rename", "truncate", "alter"];

fn open(os: &Arc<SimOs>) -> Arc<Engine> {
    open_with(os.clone(), Arc::new(NoHost)).unwrap()
}

fn large(name: &str, bytes: usize) -> TableSpec {
    TableSpec { definition: vec![7; bytes], ..spec(name) }
}

fn insert(engine: &Arc<Engine>, name: &str, id: u8) -> Result<()> {
    let table = engine.table(name)?.ok_or(Error::NotFound)?;
    let mut trx = engine.begin(1);
    trx.statement_start();
    let entry = |key, unique| Entry { key, payload: b"row", parts: &[], unique };
    let (key, second, third) = ([id], [1, id], [2, id]);
    let entries = [entry(&key, true), entry(&second, false), entry(&third, true)];
    trx.insert(&table, &RowWrite { entries: &entries })?;
    trx.commit(true)
}

fn rows(engine: &Arc<Engine>, name: &str) -> Vec<Vec<u8>> {
    let table = engine.table(name).unwrap().unwrap();
    let (mut trx, mut cursor, mut found) = (engine.begin(2), Cursor::default(), Vec::new());
    let (all, forward) = (Bound::Unbounded, Direction::Forward);
    trx.seek(&mut cursor, &table, 0, all, all, forward, ReadMode::Snapshot).unwrap();
    while trx.next(&mut cursor).unwrap() {
        found.push(cursor.key().to_vec());
    }
    found
}

/// What others do between the admission of a DDL statement's commit and the commit.
type Others = Box<dyn Fn(&Engine)>;

thread_local! {
    static OTHERS: RefCell<Option<Others>> = const { RefCell::new(None) };
}

/// Called by each DDL statement right before its commit.
pub(in crate::db) fn commits(engine: &Engine) {
    let others = OTHERS.with_borrow_mut(Option::take);
    if let Some(others) = others {
        others(engine);
    }
}

/// Logs without asking for room, until at most `left` bytes are left in the last segment.
fn fill_log(engine: &Engine, left: u64) {
    let Some(table) = engine.schema.tables.read().values().next().cloned() else { return };
    let mut next = table.autoinc_peek();
    while engine.wal.room_bytes() > left {
        next += 1;
        table.autoinc_keep(next);
    }
}

fn run(engine: &Arc<Engine>, statement: &str, bytes: usize) -> Result<Durability> {
    let durable = |()| Durability::Durable;
    match statement {
        "create" => engine.create_table(NEW, large(NEW, bytes)).map(durable),
        "drop" => engine.drop_table(OLD).map(drop).map(durable),
        "rename" => engine.rename_table_unless(&|| false, OLD, NEW),
        "alter" => alter(engine, bytes),
        _ => engine.truncate_table_unless(&|| false, OLD, 1),
    }
}

/// Its answer agrees with what is there. Answers whether the statement has failed.
fn check_answer(done: &Result<Durability>, statement: &str, happened: bool, place: &str) -> bool {
    match done {
        Ok(Durability::Durable) => assert!(happened, "{place}"),
        Ok(Durability::NotYet(error)) => {
            assert!(happened && matches!(error, Error::Full { .. }), "{place}")
        }
        Err(error) => {
            assert!(matches!(error, Error::Full { .. }), "{place}");
            // These two are asked for again, and their answer does not tell.
            assert!(!happened || matches!(statement, "create" | "drop"), "{place}");
        }
    }
    !matches!(done, Ok(Durability::Durable))
}

/// Builds the second index of the table anew, from its one row.
fn alter(engine: &Arc<Engine>, bytes: usize) -> Result<Durability> {
    let indexes =
        [AlteredIndex::Kept(0), AlteredIndex::New { unique: false }, AlteredIndex::Kept(2)];
    let mut build = engine.alter_indexes(OLD, &indexes, vec![ALTERED; bytes], &|| false)?;
    build.add(0, &[1, 1], b"row")?;
    assert!(build.build(&|| false)?.is_none());
    build.put().map(|(_, durability)| durability)
}

/// Whether the statement has happened, by what is there.
fn has_happened(engine: &Arc<Engine>, statement: &str) -> bool {
    match statement {
        "create" => engine.table(NEW).unwrap().is_some(),
        "drop" => engine.table(OLD).unwrap().is_none(),
        "rename" => {
            let there = |name| engine.table(name).unwrap().is_some();
            assert!(there(OLD) != there(NEW));
            there(NEW)
        }
        "alter" => engine.table(OLD).unwrap().unwrap().definition().contains(&ALTERED),
        _ => rows(engine, OLD).is_empty(),
    }
}

/// The disk is full from the `at`-th call on. Answers whether the statement met that.
fn try_with_full_disk(statement: &str, bytes: usize, left: u64, at: u64) -> bool {
    let os = SimOs::new(at);
    let engine = open(&os);
    engine.create_table(OLD, large(OLD, bytes)).unwrap();
    insert(&engine, OLD, 1).unwrap();
    fill_log(&engine, left);
    os.fail_after(at, Fault::DiskFull);
    let done = run(&engine, statement, bytes);
    let place = format!("{statement}, {bytes} bytes, {left} left, call {at}: {done:?}");
    let happened = has_happened(&engine, statement);
    let has_failed = check_answer(&done, statement, happened, &place);
    os.clear_fault();
    assert_memory_is_as_disk(&os, engine, statement, happened, &place);
    has_failed
}

/// There is room again: what is written now is there after the next start.
fn assert_memory_is_as_disk(
    os: &Arc<SimOs>,
    engine: Arc<Engine>,
    statement: &str,
    happened: bool,
    place: &str,
) {
    let names = engine.table_names();
    let mut contents = Vec::new();
    for name in &names {
        insert(&engine, name, 2).unwrap();
        contents.push(rows(&engine, name));
    }
    engine.step().unwrap();
    engine.flush_log().unwrap();
    drop(engine);
    os.crash();
    let engine = open(os);
    assert_eq!(engine.table_names(), names, "{place}");
    if statement == "alter" {
        assert_eq!(has_happened(&engine, statement), happened, "{place}");
    }
    for (name, want) in names.iter().zip(&contents) {
        assert_eq!(&rows(&engine, name), want, "{place}");
        let report = engine.check_table(name, CheckDepth::Quick, &|| false).unwrap();
        assert_eq!(report.faults, Vec::<String>::new(), "{place}");
    }
    // The names are free, or taken, as they were.
    match (statement, happened) {
        ("create", false) => engine.create_table(NEW, spec(NEW)).unwrap(),
        ("drop", true) => engine.create_table(OLD, spec(OLD)).unwrap(),
        _ => {}
    }
}

#[test]
fn ddl_happens_in_memory_and_on_disk_or_in_neither() {
    let mut met = 0;
    for statement in STATEMENTS {
        for (bytes, left) in [(100, 128 << 10), (100, 12 << 10), (100, 512), (200_000, 128 << 10)] {
            met += (0..12).filter(|&at| try_with_full_disk(statement, bytes, left, at)).count();
        }
    }
    assert!(met > 20, "{met}");
}

/// Room was made sure of, and others were faster: the flush fails after the commit.
#[test]
fn ddl_whose_flush_finds_no_room_happens_in_memory_and_on_disk_or_in_neither() {
    for statement in STATEMENTS {
        let os = SimOs::new(5);
        let engine = open(&os);
        engine.create_table(OLD, spec(OLD)).unwrap();
        insert(&engine, OLD, 1).unwrap();
        let machine = Arc::clone(&os);
        let others: Others = Box::new(move |engine| {
            machine.fail_after(0, Fault::DiskFull);
            fill_log(engine, 0);
        });
        OTHERS.set(Some(others));
        let done = run(&engine, statement, 100);
        let happened = has_happened(&engine, statement);
        assert!(check_answer(&done, statement, happened, statement), "{statement}: {done:?}");
        os.clear_fault();
        assert_memory_is_as_disk(&os, engine, statement, happened, statement);
    }
}

/// As the server's recovery does with statements that had happened: nothing happens, and nothing is owed.
#[test]
fn ddl_on_a_table_that_is_gone_has_not_happened() {
    let engine = open(&SimOs::new(6));
    engine.create_table(NEW, spec(NEW)).unwrap();
    for statement in ["rename", "truncate"] {
        let done = run(&engine, statement, 100);
        assert!(matches!(done, Err(Error::NotFound)), "{statement}: {done:?}");
    }
    assert!(!engine.drop_table(OLD).unwrap());
}
