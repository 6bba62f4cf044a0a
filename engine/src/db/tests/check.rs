//! CHECK TABLE compares indexes with rows in bounded memory, and a kill ends it and other long work.

use super::damage::{geometry, open_with, spec};
use crate::base::{Error, Result};
use crate::db::lease::Purpose;
use crate::db::*;
use crate::os::sim::SimOs;
use std::cell::Cell;
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

const TABLE: &str = "db/t";

fn table_spec() -> TableSpec {
    TableSpec {
        indexes: vec![IndexSpec { unique: true }, IndexSpec { unique: false }],
        ..spec(TABLE)
    }
}

/// A row `id` with an entry of the index that names the row `named`.
fn insert(trx: &mut Trx, table: &Table, id: u32, salt: u8, named: u32) -> Result<()> {
    let (key, name) = (id.to_be_bytes(), [&[salt][..], &named.to_be_bytes()].concat());
    trx.statement_start();
    let row = Entry { key: &key, payload: &[3; 20], parts: &[], unique: true };
    let entry = Entry { key: &name, payload: b"", parts: &[], unique: false };
    trx.insert(table, &RowWrite { entries: &[row, entry] })
}

fn filled(engine: &Arc<Engine>, rows: u32, entry: impl Fn(u32) -> (u8, u32)) -> Arc<Table> {
    engine.create_table(TABLE, table_spec()).unwrap();
    let table = engine.table(TABLE).unwrap().unwrap();
    table.name_rows(Arc::new(|_, key: &[u8], _: &[u8]| Ok(key[1..].to_vec())));
    let mut trx = engine.begin(1);
    for id in 0..rows {
        let (salt, named) = entry(id);
        insert(&mut trx, &table, id, salt, named).unwrap();
    }
    trx.commit(true).unwrap();
    table
}

fn open() -> Arc<Engine> {
    open_with(SimOs::new(1), Arc::new(NoHost)).unwrap()
}

fn faults(entry: impl Fn(u32) -> (u8, u32)) -> Vec<String> {
    let engine = open();
    filled(&engine, 700, entry);
    let report = engine.check_table(TABLE, CheckDepth::Full, &|| false).unwrap();
    assert_eq!(report.rows, 700);
    report.faults
}

#[test]
fn indexes_are_compared_with_rows_a_share_of_the_keys_at_a_time() {
    assert_eq!(faults(|id| (0, id)), Vec::<String>::new());
    let found = faults(|id| match id {
        7 => (1, 8),
        20..30 => (0, 5000 + id),
        600 | 601 => (id as u8, 602),
        _ => (0, id),
    });
    let want = [
        "secondary index 1: 10 entries have no row",
        "secondary index 1: 3 entries name a row that another one names",
        "secondary index 1: 13 rows have no entry",
    ];
    assert_eq!(found, want);
}

#[test]
fn a_kill_ends_the_check_of_a_table_wherever_it_is() {
    let engine = open();
    filled(&engine, 3000, |id| (0, id));
    for depth in [CheckDepth::Quick, CheckDepth::Full] {
        let asked = Cell::new(0);
        let count = || {
            asked.set(asked.get() + 1);
            false
        };
        assert!(engine.check_table(TABLE, depth, &count).unwrap().faults.is_empty());
        assert!(asked.get() > 10, "{}", asked.get());
        for at in 1..=asked.get() {
            asked.set(0);
            let killed = || {
                count();
                asked.get() >= at
            };
            let ended = engine.check_table(TABLE, depth, &killed);
            assert!(matches!(ended, Err(Error::Interrupted)), "{at}: {ended:?}");
        }
    }
}

#[test]
fn a_kill_ends_a_long_scan() {
    let engine = open();
    let table = filled(&engine, 3000, |id| (0, id));
    let modes = [ReadMode::Snapshot, ReadMode::Lock { exclusive: false, wait: WaitPolicy::Wait }];
    for (index, mode) in [(0, modes[0]), (1, modes[0]), (0, modes[1])] {
        let (mut trx, mut cursor) = (engine.begin(7), Cursor::default());
        let (all, forward) = (Bound::Unbounded, Direction::Forward);
        trx.seek(&mut cursor, &table, index, all, all, forward, mode).unwrap();
        assert!(trx.next(&mut cursor).unwrap());
        engine.interrupt(7);
        let ended = (0..2000).find_map(|_| trx.next(&mut cursor).err());
        assert!(matches!(ended, Some(Error::Interrupted)), "{ended:?}");
        trx.rollback();
    }
}

/// The scan meets no row that it could stop at.
#[test]
fn a_kill_ends_a_scan_that_finds_nothing() {
    let engine = open();
    let table = filled(&engine, 3000, |id| (0, id));
    let reader = engine.begin(2);
    let mut trx = engine.begin(1);
    for id in 0..3000u32 {
        let (key, name) = (id.to_be_bytes(), [&[0][..], &id.to_be_bytes()].concat());
        trx.statement_start();
        let row = Entry { key: &key, payload: &[3; 20], parts: &[], unique: true };
        let entry = Entry { key: &name, payload: b"", parts: &[], unique: false };
        trx.delete(&table, &RowWrite { entries: &[row, entry] }).unwrap();
    }
    trx.commit(true).unwrap();
    drop(reader);
    let (mut trx, mut cursor) = (engine.begin(7), Cursor::default());
    let (all, forward) = (Bound::Unbounded, Direction::Forward);
    trx.seek(&mut cursor, &table, 0, all, all, forward, ReadMode::Snapshot).unwrap();
    engine.interrupt(7);
    assert!(matches!(trx.next(&mut cursor), Err(Error::Interrupted)));
    trx.clear_interrupt();
    assert!(!trx.next(&mut cursor).unwrap());
}

#[test]
fn a_kill_ends_the_wait_for_room_in_the_log() {
    let mut config = Config::new("/data");
    config.buffer_pool_bytes = 1 << 20;
    let engine = Engine::open_with(SimOs::new(1), config, geometry(), Arc::new(NoHost)).unwrap();
    let table = filled(&engine, 10, |id| (0, id));
    // No checkpoint can make this much room.
    engine.set_log_capacity_bytes(0);
    let began = Instant::now();
    let killer = std::thread::spawn({
        let engine = Arc::clone(&engine);
        move || {
            std::thread::sleep(Duration::from_millis(200));
            engine.interrupt(7);
        }
    });
    let mut trx = engine.begin(7);
    let refused = insert(&mut trx, &table, 99, 0, 99);
    assert!(matches!(refused, Err(Error::Interrupted)), "{refused:?}");
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    killer.join().unwrap();
    drop(trx);
    engine.set_log_capacity_bytes(1 << 20);
    engine.shutdown().unwrap();
}

/// The wait for room in the log is limited by time: to be woken without any room does not use it up.
#[test]
fn wake_ups_do_not_shorten_the_wait_for_room_in_the_log() {
    let mut config = Config::new("/data");
    config.buffer_pool_bytes = 1 << 20;
    let engine = Engine::open_with(SimOs::new(1), config, geometry(), Arc::new(NoHost)).unwrap();
    let table = filled(&engine, 10, |id| (0, id));
    engine.set_log_capacity_bytes(0);
    let is_done = AtomicBool::new(false);
    // So many waits of 20 ms would be 62 s.
    let asked = Cell::new(0);
    let killed = || {
        if asked.replace(asked.get() + 1) == 3100 {
            engine.set_log_capacity_bytes(1 << 20);
        }
        false
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                engine.announce_room();
                std::thread::yield_now();
            }
        });
        let admitted = engine.admit(Purpose::Add, &killed);
        is_done.store(true, Ordering::Relaxed);
        admitted.unwrap();
    });
    drop(table);
    engine.shutdown().unwrap();
}

#[test]
fn a_checkpoint_makes_progress_until_nothing_is_left_to_write() {
    let mut config = Config::new("/data");
    config.background = false;
    let engine = Engine::open_with(SimOs::new(1), config, geometry(), Arc::new(NoHost)).unwrap();
    let _table = filled(&engine, 10, |id| (0, id));
    let begin = engine.checkpoint_progress();
    engine.checkpoint_now().unwrap();
    let after = engine.checkpoint_progress();
    assert!(after.pages > begin.pages && after.redo_from > begin.redo_from, "{begin:?} {after:?}");
    engine.checkpoint_now().unwrap();
    assert_eq!(engine.checkpoint_progress(), after, "checkpoints alone make no room");
}

#[test]
fn a_kill_ends_the_wait_of_ddl_for_room_in_the_log() {
    let mut config = Config::new("/data");
    config.buffer_pool_bytes = 1 << 20;
    let engine = Engine::open_with(SimOs::new(1), config, geometry(), Arc::new(NoHost)).unwrap();
    let table = filled(&engine, 10, |id| (0, id));
    engine.set_log_capacity_bytes(0);
    let asked = Cell::new(0);
    let killed = || asked.replace(asked.get() + 1) >= 5;
    for statement in ["create", "rename", "truncate"] {
        asked.set(0);
        let refused = match statement {
            "create" => engine.create_table_unless(&killed, "db/new", table_spec(), false),
            "rename" => engine.rename_table_unless(&killed, TABLE, "db/new").map(drop),
            _ => engine.truncate_table_unless(&killed, TABLE, 1).map(drop),
        };
        assert!(matches!(refused, Err(Error::Interrupted)), "{statement}: {refused:?}");
        assert_eq!(asked.get(), 6, "{statement}");
    }
    assert_eq!(engine.table_names(), [TABLE]);
    assert!(table.is_current(), "nobody truncated it");
    // What a killed statement takes back is not stopped by the same kill.
    engine.rename_table_unless(&|| true, TABLE, "db/back").unwrap().or_error().unwrap();
    engine.set_log_capacity_bytes(1 << 20);
    let report = engine.check_table("db/back", CheckDepth::Full, &|| false).unwrap();
    assert_eq!((report.rows, report.faults), (10, Vec::<String>::new()));
    engine.shutdown().unwrap();
}
