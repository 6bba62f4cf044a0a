//! A copy of ALTER TABLE: its rows after a loss of power, and after a failure.

use super::session::Session;
use sluice_engine::base::{Error, Result};
use sluice_engine::db::{
    Config, Cursor, Direction, Engine, Entry, FlushAtCommit, Geometry, IndexSpec, Isolation,
    NoHost, ReadMode, RowWrite, Table, TableSpec,
};
use sluice_engine::os::sim::SimOs;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

const TABLE: &str = "db/#sql-alter";
/// Of several transactions of the copy, and more than the rows that tell a load in which order they come.
const ROWS: u32 = 5000;
const ROW_BYTES: usize = 3800;

fn open(os: &Arc<SimOs>) -> Arc<Engine> {
    let mut config = Config::new("/data");
    config.background = false;
    // Weaker than what the copy needs.
    config.flush_at_commit = FlushAtCommit::EverySecond;
    let geometry = Geometry {
        log_segment_bytes: 1 << 20,
        log_cache_bytes: 256 << 10,
        store_segment_bytes: 256 << 10,
    };
    Engine::open_with(Arc::clone(os) as _, config, geometry, Arc::new(NoHost)).unwrap()
}

fn begin(engine: &Arc<Engine>) -> Session {
    let mut session = Session::new(engine, 7);
    assert!(session.statement_start(Isolation::RepeatableRead, Duration::from_secs(1)));
    session
}

fn spec() -> TableSpec {
    TableSpec {
        indexes: vec![IndexSpec { unique: true }, IndexSpec { unique: true }],
        definition: Vec::new(),
        autoinc_start: 1,
        compression: None,
        is_encrypted: false,
    }
}

/// `loads`: the trees are built at once.
fn copy_rows(engine: &Arc<Engine>, session: &mut Session, loads: bool) -> Arc<Table> {
    engine.create_table(TABLE, spec()).unwrap();
    let table = engine.table(TABLE).unwrap().unwrap();
    session.copy_begin(&table, loads);
    for id in 0..ROWS {
        insert(session, &table, id, ROWS - id).unwrap();
        if id % 100 == 0 {
            engine.step().unwrap();
        }
    }
    table
}

fn insert(session: &mut Session, table: &Arc<Table>, id: u32, second: u32) -> Result<()> {
    let (key, second, payload) = (id.to_be_bytes(), second.to_be_bytes(), [7; ROW_BYTES]);
    let entry = |key, payload| Entry { key, payload, parts: &[], unique: true };
    let entries = [entry(&key, &payload), entry(&second, &key)];
    session.copy_row(table, &RowWrite { entries: &entries }, false)
}

fn rows(engine: &Arc<Engine>) -> u32 {
    let table = engine.table(TABLE).unwrap().unwrap();
    let (mut trx, mut cursor, all) = (engine.begin(99), Cursor::default(), Bound::Unbounded);
    let way = Direction::Forward;
    trx.seek(&mut cursor, &table, 0, all, all, way, ReadMode::Snapshot).unwrap();
    let mut count = 0;
    while trx.next(&mut cursor).unwrap() {
        count += 1;
    }
    count
}

#[test]
fn a_copy_is_durable_at_its_end() {
    for loads in [false, true] {
        let os = SimOs::new(1);
        let engine = open(&os);
        let mut session = begin(&engine);
        copy_rows(&engine, &mut session, loads);
        session.copy_end().unwrap();
        os.crash();
        drop((session, engine));
        assert_eq!(rows(&open(&os)), ROWS, "loads: {loads}");
    }
}

#[test]
fn a_copy_that_failed_takes_back_its_last_transaction() {
    let os = SimOs::new(2);
    let engine = open(&os);
    let mut session = begin(&engine);
    copy_rows(&engine, &mut session, false);
    session.copy_abort();
    let left = rows(&engine);
    assert!(left > 0 && left < ROWS, "{left}: those that were committed piece by piece");
    // The server drops the table.
    assert!(engine.drop_table(TABLE).unwrap());
}

#[test]
fn a_load_that_failed_leaves_no_row() {
    let engine = open(&SimOs::new(2));
    let mut session = begin(&engine);
    copy_rows(&engine, &mut session, true);
    session.copy_abort();
    assert_eq!(rows(&engine), 0);
    assert!(engine.drop_table(TABLE).unwrap());
}

#[test]
fn rows_that_come_late_are_in_the_copy() {
    let os = SimOs::new(3);
    let engine = open(&os);
    let mut session = begin(&engine);
    let table = copy_rows(&engine, &mut session, true);
    // Below and above what is there already.
    for id in [u32::MAX, ROWS + 1, ROWS + 2] {
        insert(&mut session, &table, id, id).unwrap();
    }
    session.copy_end().unwrap();
    os.crash();
    drop((session, engine, table));
    assert_eq!(rows(&open(&os)), ROWS + 3);
}

/// By the load at its end, or when a row comes out of order; or by the insert of one row.
#[test]
fn a_duplicate_is_named_whoever_finds_it() {
    for (loads, late) in [(true, false), (true, true), (false, true)] {
        let engine = open(&SimOs::new(4));
        let mut session = begin(&engine);
        let table = copy_rows(&engine, &mut session, loads);
        let mut found = insert(&mut session, &table, ROWS + 5, 1);
        if late && found.is_ok() {
            found = insert(&mut session, &table, ROWS, ROWS + 1);
        }
        if found.is_ok() {
            found = session.copy_end();
        }
        let context = format!("loads: {loads}, late: {late}");
        assert!(matches!(found, Err(Error::Duplicate)), "{context}");
        assert_eq!(session.duplicate_index(late), 1, "{context}");
        let twice = session.copied_duplicate().map(|duplicate| duplicate.twice.key.clone());
        assert_eq!(twice, loads.then(|| 1u32.to_be_bytes().to_vec()), "{context}");
        if loads && late {
            let goes_on = insert(&mut session, &table, ROWS + 6, ROWS + 6);
            assert!(matches!(goes_on, Err(Error::Refused(_))), "{context}: {goes_on:?}");
        }
        session.copy_abort();
        assert!(engine.drop_table(TABLE).unwrap());
    }
}

/// It would see those rows of the copy that were committed before it.
#[test]
fn a_snapshot_from_the_middle_of_a_copy_does_not_get_at_the_table() {
    for loads in [false, true] {
        let engine = open(&SimOs::new(5));
        let mut session = begin(&engine);
        let table = copy_rows(&engine, &mut session, loads);
        let mut reader = engine.begin(9);
        reader.open_snapshot();
        insert(&mut session, &table, ROWS, ROWS + 1).unwrap();
        if loads {
            // Something is committed before the copy ends.
            engine.create_table("db/other", spec()).unwrap();
        }
        session.copy_end().unwrap();
        let (mut cursor, all, way) = (Cursor::default(), Bound::Unbounded, Direction::Forward);
        let seen = reader.seek(&mut cursor, &table, 0, all, all, way, ReadMode::Snapshot);
        assert!(matches!(seen, Err(Error::TableChanged)), "loads: {loads}");
    }
}
