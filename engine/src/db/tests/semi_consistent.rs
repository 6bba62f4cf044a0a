//! Scans that look at a held row before they wait for it, and the locks of duplicates.

use crate::base::{Error, Result};
use crate::db::*;
use crate::os::sim::SimOs;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

const TABLE: &str = "db/t";
const SEMI: ReadMode = ReadMode::Lock { exclusive: true, wait: WaitPolicy::CommittedFirst };
const FOREVER: Duration = Duration::from_secs(60);

/// Longer than a leaf takes: the value has a tree of its own.
fn long(byte: u8) -> Vec<u8> {
    vec![byte; 20_000]
}

fn open() -> (Arc<Engine>, Arc<Table>) {
    let engine = super::damage::open_with(SimOs::new(1), Arc::new(NoHost)).unwrap();
    let indexes = vec![IndexSpec { unique: true }];
    let definition = TABLE.as_bytes().to_vec();
    let spec =
        TableSpec { indexes, definition, autoinc_start: 1, compression: None, is_encrypted: false };
    engine.create_table(TABLE, spec).unwrap();
    let table = engine.table(TABLE).unwrap().unwrap();
    (engine, table)
}

fn begin(engine: &Arc<Engine>, session: u64, isolation: Isolation) -> Trx {
    let mut trx = engine.begin(session);
    trx.set_isolation(isolation);
    trx.set_lock_timeout(Duration::from_millis(20));
    trx.statement_start();
    trx
}

fn entry<'a>(key: &'a [u8; 1], payload: &'a [u8]) -> [Entry<'a>; 1] {
    [Entry { key, payload, parts: &[], unique: true }]
}

fn insert(trx: &mut Trx, table: &Table, key: u8, payload: &[u8]) -> Result<()> {
    trx.insert(table, &RowWrite { entries: &entry(&[key], payload) })
}

fn update(trx: &mut Trx, table: &Table, key: u8, old: &[u8], new: &[u8]) -> Result<()> {
    let key = [key];
    let (old, new) = (entry(&key, old), entry(&key, new));
    trx.update(table, &RowWrite { entries: &old }, &RowWrite { entries: &new })
}

fn delete(trx: &mut Trx, table: &Table, key: u8, payload: &[u8]) -> Result<()> {
    trx.delete(table, &RowWrite { entries: &entry(&[key], payload) })
}

/// What the next step finds: key, payload, and whether it only looked.
fn step(trx: &mut Trx, cursor: &mut Cursor) -> Result<Option<(u8, Vec<u8>, bool)>> {
    let found = trx.next(cursor)?;
    Ok(found.then(|| (cursor.key()[0], cursor.payload().to_vec(), cursor.peeks())))
}

fn scan(trx: &mut Trx, table: &Arc<Table>) -> Cursor {
    let mut cursor = Cursor::default();
    let (all, forward) = (Bound::Unbounded, Direction::Forward);
    trx.seek(&mut cursor, table, 0, all, all, forward, SEMI).unwrap();
    cursor
}

fn filled(engine: &Arc<Engine>, table: &Table) {
    let mut trx = engine.begin(1);
    for key in 1..=4 {
        insert(&mut trx, table, key, &long(key)).unwrap();
    }
    trx.commit(true).unwrap();
}

#[test]
fn a_held_row_is_shown_as_committed_last_and_then_waited_for() {
    for isolation in [Isolation::ReadUncommitted, Isolation::ReadCommitted] {
        let (engine, table) = open();
        filled(&engine, &table);
        let mut holder = begin(&engine, 2, isolation);
        update(&mut holder, &table, 2, &long(2), &long(20)).unwrap();
        delete(&mut holder, &table, 3, &long(3)).unwrap();
        insert(&mut holder, &table, 9, &long(9)).unwrap();
        let mut trx = begin(&engine, 3, isolation);
        let mut cursor = scan(&mut trx, &table);
        assert_eq!(step(&mut trx, &mut cursor).unwrap(), Some((1, long(1), false)));
        assert_eq!(step(&mut trx, &mut cursor).unwrap(), Some((2, long(2), true)));
        assert!(!trx.lock_is_new(), "nothing was locked");
        // Wanted: the next step comes to it again.
        let waits = step(&mut trx, &mut cursor);
        assert!(matches!(waits, Err(Error::LockTimeout)), "{isolation:?}: {waits:?}");
        let mut cursor = scan(&mut trx, &table);
        step(&mut trx, &mut cursor).unwrap();
        step(&mut trx, &mut cursor).unwrap();
        cursor.pass_peeked();
        // Deleted and not committed: there, if the deleter turns back.
        assert_eq!(step(&mut trx, &mut cursor).unwrap(), Some((3, long(3), true)));
        holder.commit(true).unwrap();
        // Gone when it is wanted; the row that was inserted is there now.
        assert_eq!(step(&mut trx, &mut cursor).unwrap(), Some((4, long(4), false)));
        assert_eq!(step(&mut trx, &mut cursor).unwrap(), Some((9, long(9), false)));
        assert_eq!(step(&mut trx, &mut cursor).unwrap(), None);
        assert_eq!(trx.isolation(), isolation);
    }
}

#[test]
fn what_is_read_again_is_the_newest_version_with_a_lock() {
    let (engine, table) = open();
    filled(&engine, &table);
    let mut holder = begin(&engine, 2, Isolation::ReadCommitted);
    update(&mut holder, &table, 2, &long(2), &long(20)).unwrap();
    let mut trx = begin(&engine, 3, Isolation::ReadCommitted);
    trx.set_lock_timeout(FOREVER);
    let mut cursor = scan(&mut trx, &table);
    step(&mut trx, &mut cursor).unwrap();
    assert_eq!(step(&mut trx, &mut cursor).unwrap(), Some((2, long(2), true)));
    let ends = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(50));
        holder.commit(true).unwrap();
    });
    assert_eq!(step(&mut trx, &mut cursor).unwrap(), Some((2, long(20), false)));
    ends.join().unwrap();
    let mut other = begin(&engine, 4, Isolation::ReadCommitted);
    let refused = update(&mut other, &table, 2, &long(20), &long(21));
    assert!(matches!(refused, Err(Error::LockTimeout)), "{refused:?}");
}

#[test]
fn a_row_that_is_inserted_and_not_committed_is_passed_by() {
    let (engine, table) = open();
    filled(&engine, &table);
    let mut holder = begin(&engine, 2, Isolation::ReadCommitted);
    insert(&mut holder, &table, 0, &long(0)).unwrap();
    let mut trx = begin(&engine, 3, Isolation::ReadUncommitted);
    let mut cursor = scan(&mut trx, &table);
    assert_eq!(step(&mut trx, &mut cursor).unwrap(), Some((1, long(1), false)));
}

#[test]
fn duplicates_are_locked_in_share_mode() {
    let (engine, table) = open();
    filled(&engine, &table);
    let mut first = begin(&engine, 2, Isolation::RepeatableRead);
    let mut second = begin(&engine, 3, Isolation::RepeatableRead);
    for trx in [&mut first, &mut second] {
        let refused = insert(trx, &table, 1, b"other");
        assert!(matches!(refused, Err(Error::Duplicate)), "{refused:?}");
    }
    let refused = delete(&mut first, &table, 1, &long(1));
    assert!(matches!(refused, Err(Error::LockTimeout)), "{refused:?}");
    second.set_replace(true);
    let refused = insert(&mut second, &table, 1, b"other");
    assert!(matches!(refused, Err(Error::LockTimeout)), "{refused:?}");
}

#[test]
fn inserts_that_wait_for_one_key_do_not_deadlock() {
    for commits in [false, true] {
        let (engine, table) = open();
        filled(&engine, &table);
        let mut holder = begin(&engine, 2, Isolation::RepeatableRead);
        match commits {
            true => delete(&mut holder, &table, 1, &long(1)).unwrap(),
            false => insert(&mut holder, &table, 7, b"seven").unwrap(),
        }
        let key = if commits { 1 } else { 7 };
        let waiters: Vec<_> = (3..6)
            .map(|session| {
                let (engine, table) = (Arc::clone(&engine), Arc::clone(&table));
                std::thread::spawn(move || {
                    let mut trx = begin(&engine, session, Isolation::RepeatableRead);
                    trx.set_lock_timeout(FOREVER);
                    let done = insert(&mut trx, &table, key, b"waited");
                    trx.commit(true).unwrap();
                    done
                })
            })
            .collect();
        while engine.ctx.locks.stats().waits < 3 {
            std::thread::sleep(Duration::from_millis(1));
        }
        match commits {
            true => holder.commit(true).unwrap(),
            false => holder.rollback(),
        }
        let done: Vec<_> = waiters.into_iter().map(|w| w.join().unwrap()).collect();
        assert_eq!(done.iter().filter(|d| d.is_ok()).count(), 1, "{done:?}");
        let refused = done.iter().filter(|d| matches!(d, Err(Error::Duplicate))).count();
        assert_eq!(refused, 2, "{done:?}");
        assert_eq!(engine.ctx.locks.stats().deadlocks, 0);
    }
}

/// The same, of the value only its first byte.
fn short_step(trx: &mut Trx, cursor: &mut Cursor) -> Option<(u8, u8, bool)> {
    step(trx, cursor).unwrap().map(|(key, payload, peeks)| (key, payload[0], peeks))
}

/// A locking scan that waits shows nothing that is inserted meanwhile before its place, as in
/// InnoDB; also where it has only looked at the row first.
#[test]
fn a_scan_that_waited_goes_on_where_it_was() {
    for (direction, between) in [(Direction::Forward, 15), (Direction::Backward, 25)] {
        for wait in [WaitPolicy::Wait, WaitPolicy::CommittedFirst] {
            let (engine, table) = open();
            let mut holder = begin(&engine, 1, Isolation::ReadCommitted);
            for key in [10, 20, 30] {
                insert(&mut holder, &table, key, &long(key)).unwrap();
            }
            holder.commit(true).unwrap();
            update(&mut holder, &table, 20, &long(20), &long(1)).unwrap();
            let mut trx = begin(&engine, 2, Isolation::ReadCommitted);
            trx.set_lock_timeout(FOREVER);
            let (mut cursor, all) = (Cursor::default(), Bound::Unbounded);
            let mode = ReadMode::Lock { exclusive: true, wait };
            trx.seek(&mut cursor, &table, 0, all, all, direction, mode).unwrap();
            let (first, last) = if between == 15 { (10, 30) } else { (30, 10) };
            assert_eq!(short_step(&mut trx, &mut cursor), Some((first, first, false)));
            if wait == WaitPolicy::CommittedFirst {
                assert_eq!(short_step(&mut trx, &mut cursor), Some((20, 20, true)));
            }
            let locks = &engine.ctx.locks;
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    while locks.stats().waits == 0 {
                        std::thread::yield_now();
                    }
                    let mut other = begin(&engine, 3, Isolation::ReadCommitted);
                    insert(&mut other, &table, between, b"new").unwrap();
                    other.commit(true).unwrap();
                    holder.commit(true).unwrap();
                });
                let found = short_step(&mut trx, &mut cursor);
                assert_eq!(found, Some((20, 1, false)), "{direction:?} {wait:?}");
            });
            assert_eq!(short_step(&mut trx, &mut cursor), Some((last, last, false)));
            assert_eq!(short_step(&mut trx, &mut cursor), None);
        }
    }
}
