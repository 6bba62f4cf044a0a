//! A large INSERT into an empty table: like inserts of one row after the other, or nothing of it.

use super::loads::{
    assert_nothing_left, assert_sound, change_some, new_table, some_rows, stops_at, without_twins,
};
use super::*;
use crate::base::TreeId;
use std::cell::Cell;

/// Some rows.
const TRIAL_BYTES: usize = 1500;

fn insert_all(trx: &mut Trx, table: &Arc<Table>, rows: &[Row]) -> Result<()> {
    insert_unless(&|| false, trx, table, rows)
}

/// As a server does it: a statement that fails is taken back.
fn insert_unless(
    killed: &Killed<'_>,
    trx: &mut Trx,
    table: &Arc<Table>,
    rows: &[Row],
) -> Result<()> {
    trx.statement_start();
    let mut bulk = BulkInsert::new(table, TRIAL_BYTES);
    let mut all = || -> Result<()> {
        for row in rows {
            row.images().with(|write| bulk.insert(trx, write, killed))?;
        }
        bulk.end(trx, killed)
    };
    let done = all();
    if done.is_err() {
        bulk.give_up();
        trx.statement_rollback()?;
    }
    done
}

fn good_rows(seed: u64) -> Vec<Row> {
    without_twins(some_rows(&mut SimRng::new(seed), 60_000))
}

fn model_of(rows: &[Row]) -> Model {
    rows.iter().map(|row| (row.id, row.clone())).collect()
}

fn loaded(engine: &Engine) -> u64 {
    engine.bulk_inserts.load(std::sync::atomic::Ordering::Relaxed)
}

fn settle(engine: &Engine) {
    while engine.ctx.revert_step(3).unwrap() {}
    while engine.ctx.purge_step(100).unwrap() {}
}

fn trees_of(table: &Table) -> Vec<TreeId> {
    table.def.trees().map(|index| index.tree).collect()
}

/// No row, no entry, and no page but the roots.
fn assert_empty(engine: &Arc<Engine>, table: &Arc<Table>, context: &str) {
    settle(engine);
    assert_is(&mut engine.begin(7), table, &Model::new(), context);
    engine.checkpoint_now().unwrap();
    for (gate, tree) in table.gates.iter().chain([&table.long_values]).zip(trees_of(table)) {
        assert!(gate.tree().is_empty().unwrap(), "{context}: {tree:?} has entries");
        assert_eq!(engine.store.tree_bytes(tree).0, 1, "{context}: pages of {tree:?}");
    }
}

fn after_crash(os: &Arc<SimOs>) -> (Arc<Engine>, Arc<Table>) {
    os.crash();
    let engine = open(os).unwrap();
    let table = engine.table(TABLE).unwrap().unwrap();
    table.name_rows(Arc::new(row_key_of));
    (engine, table)
}

/// Rows in an order of which the load must know what to do with.
fn ordered(rng: &mut SimRng, mut rows: Vec<Row>) -> Vec<Row> {
    match rng.below(4) {
        0 => rows.reverse(),
        1 => rows.rotate_left(1),
        2 => {
            let late = rows.len() / 2;
            rows[late..].rotate_left(1);
        }
        _ => {}
    }
    rows
}

#[test]
fn a_bulk_insert_is_like_any_other() {
    for seed in 0..16 {
        let (os, mut rng) = (SimOs::new(seed), SimRng::new(seed));
        let engine = open(&os).unwrap();
        let table = new_table(&engine);
        let rows = ordered(&mut rng, good_rows(seed));
        let mut before = engine.begin(3);
        before.open_snapshot();
        let mut trx = engine.begin(1);
        insert_all(&mut trx, &table, &rows).unwrap();
        assert_eq!(loaded(&engine), 1);
        let mut model = model_of(&rows);
        assert_is(&mut trx, &table, &model, "its own rows");
        let mut committed = engine.begin(4);
        committed.set_isolation(Isolation::ReadCommitted);
        assert_is(&mut committed, &table, &Model::new(), "not committed");
        let mut uncommitted = engine.begin(5);
        uncommitted.set_isolation(Isolation::ReadUncommitted);
        assert_is(&mut uncommitted, &table, &model, "read uncommitted");
        trx.commit(true).unwrap();
        committed.statement_start();
        assert_is(&mut committed, &table, &model, "committed");
        assert_is(&mut before, &table, &Model::new(), "a snapshot from before");
        for round in 0..40 {
            change_some(&mut rng, &engine, &mut trx, &table, &mut model);
            let context = format!("seed {seed} round {round}");
            assert_is(&mut engine.begin(2), &table, &model, &context);
            assert_is(&mut before, &table, &Model::new(), &context);
        }
        drop((before, committed, uncommitted, trx, table, engine));
        let (engine, table) = after_crash(&os);
        assert_is(&mut engine.begin(2), &table, &model, "after a crash");
        settle(&engine);
        assert_sound(&engine, "at rest");
    }
}

#[test]
fn a_bulk_insert_names_the_duplicate_at_which_inserts_would_stop() {
    let mut late = 0;
    for seed in 0..30 {
        let mut rng = SimRng::new(seed);
        let uniques = [100, 10_000, 60_000][seed as usize % 3];
        let mut rows = some_rows(&mut rng, uniques);
        if seed % 5 == 0 {
            rows.push(rows[rows.len() / 2].clone());
        }
        let engine = open(&SimOs::new(seed)).unwrap();
        let table = new_table(&engine);
        let mut trx = engine.begin(1);
        trx.statement_start();
        let (mut bulk, mut found) = (BulkInsert::new(&table, TRIAL_BYTES), None);
        for row in &rows {
            match row.images().with(|write| bulk.insert(&mut trx, write, &|| false)) {
                Ok(()) => {}
                Err(Error::Duplicate) => {
                    let images = row.images();
                    let at = trx.duplicate_index();
                    found = Some((at, images.keys[at].clone(), images.payloads[at].clone()));
                    break;
                }
                Err(error) => panic!("{error}"),
            }
        }
        if found.is_none() {
            match bulk.end(&mut trx, &|| false) {
                Ok(()) => {}
                Err(Error::Duplicate) => {}
                Err(error) => panic!("{error}"),
            }
        }
        if let Some(mut twice) = bulk.take_duplicate() {
            late += 1;
            assert!(trx.read_stored(&table, &mut twice.stored).unwrap());
            found = Some((twice.index, twice.key, twice.stored));
        }
        let expected = stops_at(&rows).map(|(index, row)| {
            let images = row.images();
            (index, images.keys[index].clone(), images.payloads[index].clone())
        });
        assert_eq!(found, expected, "seed {seed}");
        if expected.is_some() {
            bulk.give_up();
            trx.statement_rollback().unwrap();
            assert_empty(&engine, &table, &format!("seed {seed}"));
        }
    }
    assert!(late > 5, "{late} duplicates were found by a load");
}

#[test]
fn a_rolled_back_bulk_insert_leaves_nothing() {
    for seed in 0..8 {
        let os = SimOs::new(seed);
        let engine = open(&os).unwrap();
        let table = new_table(&engine);
        let rows = ordered(&mut SimRng::new(seed), good_rows(seed));
        let mut trx = engine.begin(1);
        insert_all(&mut trx, &table, &rows).unwrap();
        // What comes later is taken back with it.
        let mut draft = model_of(&rows);
        transaction(&mut SimRng::new(seed), &mut trx, &table, &mut draft).unwrap();
        trx.rollback();
        assert_is(&mut engine.begin(2), &table, &Model::new(), "rolled back");
        if seed % 2 == 0 {
            // On touch.
            let mut other = engine.begin(2);
            for row in rows.iter().step_by(7) {
                row.images().with(|write| other.insert(&table, write)).unwrap();
            }
            other.rollback();
        }
        assert_empty(&engine, &table, "rolled back");
        let model = model_of(&rows);
        fill(&engine, &rows);
        assert_is(&mut engine.begin(2), &table, &model, "again");
        assert_sound(&engine, "again");
    }
}

/// Rows that others insert while the background takes back a load stay.
#[test]
fn a_load_is_taken_back_beside_new_rows() {
    let engine = open(&SimOs::new(1)).unwrap();
    let table = new_table(&engine);
    let rows = good_rows(1);
    let mut trx = engine.begin(1);
    insert_all(&mut trx, &table, &rows).unwrap();
    trx.rollback();
    let (mut model, mut other) = (Model::new(), engine.begin(2));
    for row in rows.iter().step_by(11) {
        row.images().with(|write| other.insert(&table, write)).unwrap();
        other.commit(false).unwrap();
        model.insert(row.id, row.clone());
        engine.ctx.revert_step(2).unwrap();
        assert_is(&mut engine.begin(3), &table, &model, "beside the revert");
    }
    settle(&engine);
    assert_is(&mut engine.begin(3), &table, &model, "at rest");
    assert_sound(&engine, "at rest");
}

#[test]
fn later_statements_of_the_transaction_fail_alone() {
    let engine = open(&SimOs::new(2)).unwrap();
    let table = new_table(&engine);
    let rows = good_rows(2);
    let model = model_of(&rows);
    let mut trx = engine.begin(1);
    insert_all(&mut trx, &table, &rows).unwrap();
    let twin = Row { id: 100_000, ..rows[5].clone() };
    trx.statement_start();
    let again = twin.images().with(|write| trx.insert(&table, write));
    assert!(matches!(again, Err(Error::Duplicate)) && trx.duplicate_index() == 2);
    trx.statement_rollback().unwrap();
    // A second statement of the same kind, of which nothing is loaded.
    let again = insert_all(&mut trx, &table, &rows);
    assert!(matches!(again, Err(Error::Duplicate)) && trx.duplicate_index() == 0);
    assert_eq!(loaded(&engine), 1);
    assert_is(&mut trx, &table, &model, "after two errors");
    trx.commit(true).unwrap();
    assert_is(&mut engine.begin(2), &table, &model, "committed");
    assert_sound(&engine, "committed");
}

/// After a failed load the statement before it is still there, and so are long values that come later.
#[test]
fn a_failed_load_fails_alone() {
    let engine = open(&SimOs::new(3)).unwrap();
    let table = new_table(&engine);
    engine.create_table("db/other", spec()).unwrap();
    let other = engine.table("db/other").unwrap().unwrap();
    let rows = good_rows(3);
    let mut twice = rows.clone();
    twice.push(Row { id: 100_000, ..rows[9].clone() });
    let mut trx = engine.begin(1);
    rows[0].images().with(|write| trx.insert(&other, write)).unwrap();
    let done = insert_all(&mut trx, &table, &twice);
    assert!(matches!(done, Err(Error::Duplicate)));
    assert_eq!(loaded(&engine), 1);
    assert_is(&mut trx, &table, &Model::new(), "taken back");
    assert_empty(&engine, &table, "taken back");
    // It had rows: one by one.
    insert_all(&mut trx, &table, &rows).unwrap();
    assert_eq!(loaded(&engine), 1);
    trx.commit(true).unwrap();
    assert_is(&mut engine.begin(2), &table, &model_of(&rows), "the second attempt");
    assert_is(&mut engine.begin(2), &other, &model_of(&rows[..1]), "the other table");
    assert_sound(&engine, "the second attempt");
}

#[test]
fn others_wait_for_the_end_of_a_bulk_insert() {
    let engine = open(&SimOs::new(4)).unwrap();
    let table = new_table(&engine);
    let rows = good_rows(4);
    let mut trx = engine.begin(1);
    trx.statement_start();
    let mut bulk = BulkInsert::new(&table, TRIAL_BYTES);
    let (mine, theirs) = rows.split_at(rows.len() - 1);
    let mut other = engine.begin(2);
    other.set_lock_timeout(Duration::ZERO);
    let theirs = theirs[0].images();
    let mut meets = |trx: &mut Trx, bulk: &BulkInsert| {
        assert!(bulk.is_loading());
        assert_is(trx, &table, &Model::new(), "rows that are on their way");
        let met = theirs.with(|write| other.insert(&table, write));
        assert!(matches!(met, Err(Error::LockTimeout)), "{met:?}");
        other.rollback();
    };
    for (at, row) in mine.iter().enumerate() {
        row.images().with(|write| bulk.insert(&mut trx, write, &|| false)).unwrap();
        if at == mine.len() / 2 {
            meets(&mut engine.begin(3), &bulk);
        }
    }
    meets(&mut engine.begin(3), &bulk);
    bulk.end(&mut trx, &|| false).unwrap();
    assert!(!bulk.is_loading());
    let met = theirs.with(|write| other.insert(&table, write));
    assert!(matches!(met, Err(Error::LockTimeout)), "{met:?}");
    other.rollback();
    trx.commit(false).unwrap();
    theirs.with(|write| other.insert(&table, write)).unwrap();
    other.commit(true).unwrap();
    assert_is(&mut engine.begin(3), &table, &model_of(&rows), "both");
    assert_sound(&engine, "both");
}

/// It has long values, which come before the row. They wait as well.
#[test]
fn a_load_goes_on_beside_an_insert_that_waits() {
    let engine = open(&SimOs::new(10)).unwrap();
    let table = new_table(&engine);
    let mut rows = good_rows(10);
    for row in rows.iter_mut().step_by(3) {
        row.filler = 9_000;
    }
    let (mine, theirs) = rows.split_at(rows.len() - 1);
    let theirs = Row { filler: 9_000, ..theirs[0].clone() };
    let mut trx = engine.begin(1);
    trx.statement_start();
    let mut bulk = BulkInsert::new(&table, TRIAL_BYTES);
    let mut put = |row: &Row| {
        row.images().with(|write| bulk.insert(&mut trx, write, &|| false)).unwrap();
    };
    mine[..100].iter().for_each(&mut put);
    let (other_engine, other_table) = (Arc::clone(&engine), Arc::clone(&table));
    let waiter = std::thread::spawn(move || {
        let mut other = other_engine.begin(2);
        other.set_lock_timeout(Duration::from_secs(60));
        theirs.images().with(|write| other.insert(&other_table, write)).unwrap();
        other.commit(true).unwrap();
        theirs
    });
    while engine.ctx.locks.stats().waits == 0 {
        std::thread::yield_now();
    }
    mine[100..].iter().for_each(&mut put);
    bulk.end(&mut trx, &|| false).unwrap();
    assert_is(&mut trx, &table, &model_of(mine), "its own rows");
    trx.commit(true).unwrap();
    let theirs = waiter.join().unwrap();
    let mut model = model_of(mine);
    model.insert(theirs.id, theirs);
    assert_is(&mut engine.begin(3), &table, &model, "both");
    assert_sound(&engine, "both");
}

/// A range that another transaction has read and locked stays as it was.
#[test]
fn a_load_waits_for_locked_ranges() {
    for index in 0..3 {
        let engine = open(&SimOs::new(5)).unwrap();
        let table = new_table(&engine);
        let mut reader = engine.begin(2);
        let (mut cursor, all) = (Cursor::default(), Bound::Unbounded);
        let mode = ReadMode::Lock { exclusive: false, wait: WaitPolicy::Wait };
        reader.seek(&mut cursor, &table, index, all, all, Direction::Forward, mode).unwrap();
        let mut trx = engine.begin(1);
        trx.set_lock_timeout(Duration::ZERO);
        trx.statement_start();
        let mut bulk = BulkInsert::new(&table, TRIAL_BYTES);
        let rows = good_rows(5);
        let mut load = |rows: &[Row]| -> Result<()> {
            for row in rows {
                row.images().with(|write| bulk.insert(&mut trx, write, &|| false))?;
            }
            Ok(())
        };
        // The first rows are in trees, the others on their way.
        load(&rows[..100]).unwrap();
        assert!(!reader.next(&mut cursor).unwrap());
        assert_eq!(loaded(&engine), 1);
        load(&rows[100..]).and_then(|()| bulk.end(&mut trx, &|| false)).map_or_else(
            |error| assert!(matches!(error, Error::LockTimeout), "{error}"),
            |()| panic!("a range of index {index} was not waited for"),
        );
        bulk.give_up();
        trx.statement_rollback().unwrap();
        assert_empty(&engine, &table, "the reader's range");
    }
}

#[test]
fn rows_of_others_keep_a_statement_from_loading() {
    let rows = good_rows(6);
    let (theirs, mine) = rows.split_at(1);
    for commits in [false, true] {
        let engine = open(&SimOs::new(6)).unwrap();
        let table = new_table(&engine);
        let mut other = engine.begin(2);
        let mut trx = engine.begin(1);
        trx.statement_start();
        let mut bulk = BulkInsert::new(&table, TRIAL_BYTES);
        for (at, row) in mine.iter().enumerate() {
            if at == 1 {
                theirs[0].images().with(|write| other.insert(&table, write)).unwrap();
                if commits {
                    other.commit(false).unwrap();
                }
            }
            row.images().with(|write| bulk.insert(&mut trx, write, &|| false)).unwrap();
        }
        bulk.end(&mut trx, &|| false).unwrap();
        assert_eq!(loaded(&engine), 0);
        other.commit(false).unwrap();
        trx.commit(true).unwrap();
        assert_is(&mut engine.begin(3), &table, &model_of(&rows), "both");
    }
}

#[test]
fn tables_that_may_have_had_rows_are_not_loaded() {
    let os = SimOs::new(7);
    let engine = open(&os).unwrap();
    new_table(&engine);
    drop(engine);
    let engine = open(&os).unwrap();
    let rows = good_rows(7);
    let mut trx = engine.begin(1);
    let table = engine.table(TABLE).unwrap().unwrap();
    insert_all(&mut trx, &table, &rows).unwrap();
    assert_eq!(loaded(&engine), 0, "it was made in another life");
    for row in &rows {
        row.images().with(|write| trx.delete(&table, write)).unwrap();
    }
    trx.commit(true).unwrap();
    settle(&engine);
    insert_all(&mut trx, &table, &rows).unwrap();
    trx.commit(true).unwrap();
    assert_eq!(loaded(&engine), 0, "it had rows");
    engine.truncate_table(TABLE, 1).unwrap();
    let table = engine.table(TABLE).unwrap().unwrap();
    insert_all(&mut trx, &table, &rows).unwrap();
    trx.commit(true).unwrap();
    assert_eq!(loaded(&engine), 1);
    assert_is(&mut engine.begin(3), &table, &model_of(&rows), "truncated");
}

/// A statement that writes elsewhere, too, takes nothing of that back.
#[test]
fn writes_to_another_table_keep_a_statement_from_loading() {
    let engine = open(&SimOs::new(8)).unwrap();
    let table = new_table(&engine);
    engine.create_table("db/other", spec()).unwrap();
    let other = engine.table("db/other").unwrap().unwrap();
    let rows = good_rows(8);
    let mut trx = engine.begin(1);
    trx.statement_start();
    let mut bulk = BulkInsert::new(&table, TRIAL_BYTES);
    for (at, row) in rows.iter().enumerate() {
        row.images().with(|write| bulk.insert(&mut trx, write, &|| false)).unwrap();
        if at == 1 {
            row.images().with(|write| trx.insert(&other, write)).unwrap();
        }
    }
    bulk.end(&mut trx, &|| false).unwrap();
    trx.commit(true).unwrap();
    assert_eq!(loaded(&engine), 0);
    assert_is(&mut engine.begin(3), &table, &model_of(&rows), "the table");
    assert_is(&mut engine.begin(3), &other, &model_of(&rows[1..2]), "the other table");
}

/// A rollback to before the load, by others than the statement's caller, is noticed.
#[test]
fn rows_of_a_load_that_was_taken_back_do_not_come() {
    let engine = open(&SimOs::new(9)).unwrap();
    let table = new_table(&engine);
    let rows = good_rows(9);
    let mut trx = engine.begin(1);
    let savepoint = trx.savepoint();
    let mut bulk = BulkInsert::new(&table, TRIAL_BYTES);
    let mut put =
        |trx: &mut Trx, row: &Row| row.images().with(|write| bulk.insert(trx, write, &|| false));
    for row in &rows[..200] {
        put(&mut trx, row).unwrap();
    }
    trx.rollback_to(savepoint).unwrap();
    assert!(put(&mut trx, &rows[200]).is_err());
    assert!(bulk.is_loading() && bulk.end(&mut trx, &|| false).is_err());
    trx.rollback();
    assert_empty(&engine, &table, "taken back");
}

#[test]
fn a_kill_ends_a_bulk_insert_and_nothing_stays() {
    let (os, mut met) = (SimOs::new(5), 0);
    let engine = open(&os).unwrap();
    let rows = good_rows(5);
    for after in 0..10 {
        engine.drop_table(TABLE).unwrap();
        let table = new_table(&engine);
        let asked = Cell::new(0);
        let killed = || asked.replace(asked.get() + 1) >= after;
        let mut trx = engine.begin(1);
        match insert_unless(&killed, &mut trx, &table, &rows) {
            Err(Error::Interrupted) => {
                met += 1;
                assert_empty(&engine, &table, &format!("killed at question {after}"));
            }
            other => assert!(other.is_ok(), "{other:?}"),
        }
        trx.rollback();
        assert_empty(&engine, &table, "rolled back");
        assert_nothing_left(&os, &engine);
    }
    assert!((2..10).contains(&met), "{met} were killed");
}

#[test]
fn a_full_disk_ends_a_bulk_insert_and_nothing_stays() {
    let rows = good_rows(7);
    let (mut at, mut met, mut unmet) = (0, 0, 0);
    while unmet < 3 {
        at += 11;
        let os = SimOs::new(at);
        let engine = open(&os).unwrap();
        let table = new_table(&engine);
        os.fail_after(at, Fault::DiskFull);
        let mut trx = engine.begin(1);
        let done = insert_all(&mut trx, &table, &rows);
        os.clear_fault();
        match done {
            Err(error) => {
                assert!(matches!(error, Error::Full { .. }), "{error}");
                met += 1;
                trx.rollback();
                assert_empty(&engine, &table, &format!("full at call {at}"));
            }
            Ok(()) => unmet += 1,
        }
        trx.commit(true).unwrap();
        assert_sound(&engine, "there is room again");
    }
    assert!(met > 5, "{met} statements met the full disk");
}

/// One call fails with EIO, another one each time. The statement fails alone, or the engine stops: after a restart
/// the table is empty, but for a commit that came to the disk all the same.
#[test]
fn an_io_error_ends_a_bulk_insert_and_nothing_stays() {
    let rows = good_rows(8);
    let model = model_of(&rows);
    let (mut at, mut met, mut stopped, mut unmet) = (0, 0, 0, 0);
    while unmet < 3 {
        at += 7;
        let (os, context) = (SimOs::new(at), format!("call {at}"));
        let engine = open(&os).unwrap();
        let table = new_table(&engine);
        os.fail_after(at, Fault::IoError);
        let mut trx = engine.begin(1);
        let inserted = insert_all(&mut trx, &table, &rows);
        let done = inserted.as_ref().map_err(Clone::clone).and_then(|()| trx.commit(true));
        os.clear_fault();
        if let Err(error) = &done {
            assert!(matches!(error, Error::Io { .. } | Error::Poisoned { .. }), "{error}");
            met += 1;
        }
        if done.is_err() && !engine.wal.is_poisoned() && !engine.store.is_poisoned() {
            trx.rollback();
            assert_empty(&engine, &table, &context);
        }
        stopped += u64::from(engine.wal.is_poisoned() || engine.store.is_poisoned());
        unmet += u64::from(done.is_ok());
        drop((trx, table, engine));
        let (engine, table) = after_crash(&os);
        let found = super::rows(&mut engine.begin(2), &table);
        if done.is_ok() || (inserted.is_ok() && found == model) {
            assert_is(&mut engine.begin(2), &table, &model, &context);
            assert_sound(&engine, &context);
        } else {
            assert_empty(&engine, &table, &context);
        }
    }
    assert!(met > 5 && stopped > 0, "{met} statements met an error, {stopped} stopped the engine");
}

/// After a crash anywhere the table is empty, but for a commit.
#[test]
fn a_bulk_insert_is_whole_or_nothing_at_whichever_call_the_power_goes() {
    let (mut at, mut whole, mut gone) = (0, 0, 0);
    while whole < 3 {
        at += 5;
        let rows = ordered(&mut SimRng::new(at), good_rows(at));
        let os = SimOs::new(at);
        let engine = open(&os).unwrap();
        let table = new_table(&engine);
        os.fail_after(at, Fault::PowerCut);
        let mut trx = engine.begin(1);
        let done = insert_all(&mut trx, &table, &rows);
        // What the statement logged comes to the disk in many ways.
        let done = done.and_then(|()| match at % 3 {
            0 => engine.checkpoint_now(),
            1 => engine.flush_log(),
            _ => Ok(()),
        });
        let done = done.and_then(|()| trx.commit(true));
        drop((trx, table, engine));
        let (engine, table) = after_crash(&os);
        let found = super::rows(&mut engine.begin(2), &table);
        let model = model_of(&rows);
        if done.is_ok() {
            whole += 1;
            assert_is(&mut engine.begin(2), &table, &model, &format!("call {at}"));
            assert_sound(&engine, "whole");
        } else if found != model {
            gone += 1;
            if at % 2 == 0 {
                // A second crash, in the middle of the revert.
                os.fail_after(at % 13, Fault::PowerCut);
                let _ = engine.ctx.revert_step(7).and_then(|_| engine.checkpoint_now());
                drop((table, engine));
                let (engine, table) = after_crash(&os);
                assert_empty(&engine, &table, &format!("call {at}, a second crash"));
            } else {
                assert_empty(&engine, &table, &format!("call {at}"));
            }
        }
    }
    assert!(gone > 20, "{gone} statements were lost");
}

/// Of all that a statement asks, at each question: what it has logged is durable, and then the power
/// goes. No page is left that is in no tree.
#[test]
fn a_crash_in_the_middle_of_a_load_leaves_no_page() {
    for order in 0..2 {
        let (mut question, mut met) = (0, 0);
        loop {
            let os = SimOs::new(question);
            let engine = open(&os).unwrap();
            let table = new_table(&engine);
            let mut rows = good_rows(question);
            rows.iter_mut().for_each(|row| row.filler = row.filler.max(2_000));
            if order == 1 {
                // The first ones, which are short, tell that they are not in order.
                rows.reverse();
                rows[..2].iter_mut().for_each(|row| row.filler = 1);
            }
            let asked = Cell::new(0);
            let killed = || {
                let dies = asked.replace(asked.get() + 1) == question;
                if dies {
                    engine.checkpoint_now().unwrap();
                }
                dies
            };
            let mut trx = engine.begin(1);
            trx.statement_start();
            let mut bulk = BulkInsert::new(&table, TRIAL_BYTES);
            let mut all = || -> Result<()> {
                for row in &rows {
                    row.images().with(|write| bulk.insert(&mut trx, write, &killed))?;
                }
                bulk.end(&mut trx, &killed)
            };
            if all().is_ok() {
                break;
            }
            // The machine stops here: nothing is taken back in this life.
            os.fail_after(0, Fault::PowerCut);
            drop((bulk, trx, table, engine));
            let (engine, table) = after_crash(&os);
            assert_empty(&engine, &table, &format!("order {order}, question {question}"));
            question += 1;
            met += 1;
        }
        assert!(met > 8, "{met} questions");
    }
}

#[test]
fn a_prepared_bulk_insert_waits_for_its_coordinator() {
    for commits in [false, true] {
        let os = SimOs::new(8);
        let engine = open(&os).unwrap();
        let table = new_table(&engine);
        let rows = good_rows(8);
        let mut trx = engine.begin(1);
        insert_all(&mut trx, &table, &rows).unwrap();
        trx.prepare(b"x", true).unwrap();
        trx.detach();
        drop((table, engine));
        let (engine, table) = after_crash(&os);
        assert_is(&mut engine.begin(2), &table, &Model::new(), "prepared");
        // DDL knows that it has written here.
        let mut ddl = engine.begin(4);
        ddl.set_lock_timeout(Duration::ZERO);
        assert!(ddl.wait_for_prepared(&table).is_err());
        let mut other = engine.begin(3);
        other.set_lock_timeout(Duration::ZERO);
        let met = rows[3].images().with(|write| other.insert(&table, write));
        assert!(matches!(met, Err(Error::LockTimeout)), "{met:?}");
        other.rollback();
        if commits {
            assert!(engine.commit_prepared(b"x").unwrap());
            assert_is(&mut engine.begin(2), &table, &model_of(&rows), "committed");
            assert_sound(&engine, "committed");
        } else {
            assert!(engine.rollback_prepared(b"x").unwrap());
            assert_empty(&engine, &table, "rolled back");
        }
    }
}

/// Its log may go long before its end.
#[test]
fn a_load_outgrows_the_log() {
    for commits in [false, true] {
        let os = SimOs::new(9);
        let engine = open(&os).unwrap();
        let table = new_table(&engine);
        let row = |id: u32| Row { id, plain: id as u8, unique: id as u16, filler: 150 };
        let rows: Vec<Row> = (0..20_000).map(row).collect();
        let mut reader = engine.begin(3);
        reader.open_snapshot();
        let (mut trx, begin) = (engine.begin(1), engine.wal.end());
        trx.statement_start();
        let mut bulk = BulkInsert::new(&table, TRIAL_BYTES);
        for row in &rows {
            row.images().with(|write| bulk.insert(&mut trx, write, &|| false)).unwrap();
            if row.id % 500 == 0 {
                engine.step().unwrap();
            }
        }
        bulk.end(&mut trx, &|| false).unwrap();
        engine.step().unwrap();
        assert!(
            matches!(engine.wal.read(begin), Err(Error::NotRetained)),
            "its first record is there"
        );
        assert_is(&mut reader, &table, &Model::new(), "a snapshot from before");
        if commits {
            trx.commit(true).unwrap();
            assert_is(&mut engine.begin(2), &table, &model_of(&rows), "committed");
        } else {
            trx.rollback();
            assert_empty(&engine, &table, "rolled back");
        }
        drop((reader, trx));
        settle(&engine);
        assert_sound(&engine, "at rest");
    }
}
