//! A copy of ALTER TABLE: its rows after a loss of power, and after a failure.

use super::session::Session;
use sluice_engine::db::{
    Config, Cursor, Direction, Engine, Entry, FlushAtCommit, Geometry, IndexSpec, Isolation,
    NoHost, ReadMode, RowWrite, TableSpec,
};
use sluice_engine::os::sim::SimOs;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

const TABLE: &str = "db/#sql-alter";
/// Of several transactions of the copy.
const ROWS: u32 = 3000;

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

fn copy_rows(engine: &Arc<Engine>, session: &mut Session) {
    let spec = TableSpec {
        indexes: vec![IndexSpec { unique: true }],
        definition: Vec::new(),
        autoinc_start: 1,
        compression: None,
    };
    engine.create_table(TABLE, spec).unwrap();
    let table = engine.table(TABLE).unwrap().unwrap();
    session.copy_begin();
    for id in 0..ROWS {
        let (key, payload) = (id.to_be_bytes(), [7; 1000]);
        let entry = Entry { key: &key, payload: &payload, parts: &[], unique: true };
        session.inserter(true).insert(&table, &RowWrite { entries: &[entry] }).unwrap();
        session.copied(payload.len()).unwrap();
        if id % 100 == 0 {
            engine.step().unwrap();
        }
    }
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
    let os = SimOs::new(1);
    let engine = open(&os);
    let mut session = begin(&engine);
    copy_rows(&engine, &mut session);
    session.copy_end().unwrap();
    os.crash();
    drop((session, engine));
    assert_eq!(rows(&open(&os)), ROWS);
}

#[test]
fn a_copy_that_failed_takes_back_its_last_transaction() {
    let os = SimOs::new(2);
    let engine = open(&os);
    let mut session = begin(&engine);
    copy_rows(&engine, &mut session);
    session.copy_abort();
    let left = rows(&engine);
    assert!(left > 0 && left < ROWS, "{left}: those that were committed piece by piece");
    // The server drops the table.
    assert!(engine.drop_table(TABLE).unwrap());
}
