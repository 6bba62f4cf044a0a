//! Tables that are loaded: like those of which every row was inserted, or gone.

use super::*;
use std::cell::Cell;
use std::path::Path;

const ROWS: u32 = 300;

/// Rows in the order of their keys, some with long values; keys of the unique index as they come.
pub(super) fn some_rows(rng: &mut SimRng, uniques: u64) -> Vec<Row> {
    let row = |id| Row {
        id,
        plain: rng.below(8) as u8,
        unique: rng.below(uniques) as u16,
        filler: if rng.chance(5) { 4_000 + rng.below(9_000) as usize } else { 40 },
    };
    (0..ROWS).map(row).collect()
}

/// Of rows with one key in the unique index the first.
pub(super) fn without_twins(rows: Vec<Row>) -> Vec<Row> {
    let mut taken = BTreeSet::new();
    rows.into_iter().filter(|row| taken.insert(row.unique)).collect()
}

pub(super) fn new_table(engine: &Arc<Engine>) -> Arc<Table> {
    engine.create_table(TABLE, spec()).unwrap();
    let table = engine.table(TABLE).unwrap().unwrap();
    table.name_rows(Arc::new(row_key_of));
    table.name_parts(Arc::new(Parts));
    table
}

fn load(engine: &Arc<Engine>, table: &Arc<Table>, rows: &[Row]) -> Result<Option<Twice>> {
    let mut load = engine.load_table(table)?.expect("an empty table");
    for row in rows {
        let added = row.images().with(|write| load.add(write, &|| false))?;
        assert_eq!(added, Added::Done);
    }
    let twice = load.finish(&|| false)?;
    engine.end_copy(&[Arc::clone(table)]).map(|()| twice)
}

pub(super) fn assert_sound(engine: &Arc<Engine>, context: &str) {
    let report = engine.check_table(TABLE, CheckDepth::Full, &|| false).unwrap();
    assert_eq!(report.faults, Vec::<String>::new(), "{context}");
}

/// One transaction, which is committed or rolled back, and a step of the background.
pub(super) fn change_some(
    rng: &mut SimRng,
    engine: &Engine,
    trx: &mut Trx,
    table: &Arc<Table>,
    model: &mut Model,
) {
    let mut draft = model.clone();
    transaction(rng, trx, table, &mut draft).unwrap();
    if rng.chance(70) {
        trx.commit(true).unwrap();
        *model = draft;
    } else {
        trx.rollback();
    }
    engine.step().unwrap();
}

#[test]
fn a_loaded_table_is_like_any_other() {
    for seed in 0..10 {
        let (os, mut rng) = (SimOs::new(seed), SimRng::new(seed));
        let engine = open(&os).unwrap();
        let table = new_table(&engine);
        let rows = without_twins(some_rows(&mut rng, 60_000));
        assert_eq!(load(&engine, &table, &rows).unwrap(), None);
        let mut model: Model = rows.iter().map(|row| (row.id, row.clone())).collect();
        assert_is(&mut engine.begin(2), &table, &model, "loaded");
        drop((table, engine));
        // It is durable without anything else.
        os.crash();
        let engine = open(&os).unwrap();
        let table = engine.table(TABLE).unwrap().unwrap();
        table.name_rows(Arc::new(row_key_of));
        assert_is(&mut engine.begin(2), &table, &model, "after a crash");
        assert_sound(&engine, "after a crash");
        let mut trx = engine.begin(1);
        for round in 0..60 {
            change_some(&mut rng, &engine, &mut trx, &table, &mut model);
            assert_is(&mut engine.begin(2), &table, &model, &format!("seed {seed} round {round}"));
        }
        while engine.ctx.revert_step(100).unwrap() {}
        while engine.ctx.purge_step(100).unwrap() {}
        assert_is(&mut trx, &table, &model, "at rest");
        assert_sound(&engine, "at rest");
    }
}

/// At which row, and by which index, inserts of one row after the other stop.
pub(super) fn stops_at(rows: &[Row]) -> Option<(usize, Row)> {
    let engine = open(&SimOs::new(1)).unwrap();
    let table = new_table(&engine);
    let mut trx = engine.begin(1);
    for row in rows {
        match row.images().with(|write| trx.insert(&table, write)) {
            Ok(()) => {}
            Err(Error::Duplicate) => return Some((trx.duplicate_index(), row.clone())),
            Err(error) => panic!("{error}"),
        }
    }
    None
}

#[test]
fn a_load_names_the_duplicate_at_which_inserts_would_stop() {
    for seed in 0..20 {
        let mut rng = SimRng::new(seed);
        let uniques = [100, 10_000, 60_000][seed as usize % 3];
        let rows = some_rows(&mut rng, uniques);
        let engine = open(&SimOs::new(seed)).unwrap();
        let table = new_table(&engine);
        let found = load(&engine, &table, &rows).unwrap();
        let Some((index, row)) = stops_at(&rows) else {
            assert_eq!(found, None, "seed {seed}");
            continue;
        };
        let found = found.unwrap_or_else(|| panic!("seed {seed}: no duplicate"));
        let images = row.images();
        assert_eq!((found.index, &found.key), (index, &images.keys[index]), "seed {seed}");
        let mut payload = found.stored;
        assert!(engine.begin(2).read_stored(&table, &mut payload).unwrap());
        assert_eq!(payload, images.payloads[index], "seed {seed}");
        assert!(engine.drop_table(TABLE).unwrap());
    }
}

#[test]
fn rows_that_come_out_of_order_go_in_one_by_one() {
    let os = SimOs::new(3);
    let engine = open(&os).unwrap();
    let table = new_table(&engine);
    let rows = without_twins(some_rows(&mut SimRng::new(3), 60_000));
    let mut load = engine.load_table(&table).unwrap().expect("an empty table");
    let (late, first) = rows.split_at(rows.len() / 2);
    let mut add = |row: &Row| row.images().with(|write| load.add(write, &|| false)).unwrap();
    for row in first {
        assert_eq!(add(row), Added::Done);
    }
    assert_eq!(add(&late[0]), Added::OutOfOrder);
    assert_eq!(add(first.last().unwrap()), Added::OutOfOrder);
    assert_eq!(load.finish(&|| false).unwrap(), None);
    let mut trx = engine.begin(1);
    let again = first[7].images().with(|write| trx.insert(&table, write));
    assert!(matches!(again, Err(Error::Duplicate)) && trx.duplicate_index() == 0);
    let twin = Row { unique: first[7].unique, ..late[0].clone() };
    let again = twin.images().with(|write| trx.insert(&table, write));
    assert!(matches!(again, Err(Error::Duplicate)) && trx.duplicate_index() == 2);
    for row in late {
        row.images().with(|write| trx.insert(&table, write)).unwrap();
    }
    trx.commit(true).unwrap();
    let model: Model = rows.iter().map(|row| (row.id, row.clone())).collect();
    assert_is(&mut trx, &table, &model, "both halves");
    assert!(engine.load_table(&table).unwrap().is_none(), "it has rows");
}

#[test]
fn older_snapshots_do_not_get_at_a_table_that_was_being_filled() {
    let engine = open(&SimOs::new(4)).unwrap();
    let table = new_table(&engine);
    let rows = without_twins(some_rows(&mut SimRng::new(4), 60_000));
    let mut reader = engine.begin(5);
    // A commit of another table's rows between the making of the table and the end of its load.
    reader.open_snapshot();
    engine.create_table("db/other", spec()).unwrap();
    assert_eq!(load(&engine, &table, &rows).unwrap(), None);
    let mut cursor = Cursor::default();
    let (all, forward) = (Bound::Unbounded, Direction::Forward);
    for renamed in [false, true] {
        let outcome = reader.seek(&mut cursor, &table, 0, all, all, forward, ReadMode::Snapshot);
        assert!(matches!(outcome, Err(Error::TableChanged)), "renamed: {renamed}");
        if !renamed {
            engine.rename_table(TABLE, "db/renamed").unwrap();
        }
    }
    let table = engine.table("db/renamed").unwrap().unwrap();
    let outcome = reader.seek(&mut cursor, &table, 0, all, all, forward, ReadMode::Snapshot);
    assert!(matches!(outcome, Err(Error::TableChanged)));
}

#[test]
fn a_kill_ends_a_load_and_nothing_stays() {
    let (os, mut met) = (SimOs::new(5), 0);
    let engine = open(&os).unwrap();
    let rows = without_twins(some_rows(&mut SimRng::new(5), 60_000));
    for after in 0..12 {
        let table = new_table(&engine);
        let asked = Cell::new(0);
        let killed = || asked.replace(asked.get() + 1) >= after;
        let mut load = engine.load_table(&table).unwrap().expect("an empty table");
        let all = || -> Result<Option<Twice>> {
            for row in &rows {
                row.images().with(|write| load.add(write, &killed))?;
            }
            load.finish(&killed)
        };
        match all() {
            Err(Error::Interrupted) => met += 1,
            other => assert!(matches!(other, Ok(None)), "{other:?}"),
        }
        drop(table);
        assert!(engine.drop_table(TABLE).unwrap());
        assert_nothing_left(&os, &engine);
    }
    assert!((2..12).contains(&met), "{met} were killed");
}

/// The pages of dropped trees are free, and no file of a sorter is there.
pub(super) fn assert_nothing_left(os: &Arc<SimOs>, engine: &Arc<Engine>) {
    while engine.free_dropped_step().unwrap() {}
    let known = engine.ctx.trees.ids();
    let unknown: Vec<_> =
        engine.store.trees().into_iter().filter(|tree| !known.contains(tree)).collect();
    assert_eq!(unknown, vec![], "pages of trees that no table names");
    let files = os.list(Path::new("/data")).unwrap();
    let left = files.iter().find(|path| path.to_string_lossy().contains("sort-"));
    assert!(left.is_none(), "{left:?}");
}

/// The server drops the table after the crash, unless it had noted that its rows are there.
#[test]
fn a_load_is_whole_or_its_table_can_go_at_whichever_call_the_power_goes() {
    let rows = without_twins(some_rows(&mut SimRng::new(6), 60_000));
    let model: Model = rows.iter().map(|row| (row.id, row.clone())).collect();
    let (mut at, mut whole) = (0, 0);
    while whole < 3 {
        at += 7;
        let os = SimOs::new(at);
        let engine = open(&os).unwrap();
        let table = new_table(&engine);
        os.fail_after(at, Fault::PowerCut);
        let done = load(&engine, &table, &rows);
        let done = done.and_then(|twice| engine.checkpoint_now().map(|()| twice));
        drop((table, engine));
        os.crash();
        let engine = open(&os).unwrap();
        if done.is_ok() {
            whole += 1;
            let table = engine.table(TABLE).unwrap().unwrap();
            assert_is(&mut engine.begin(2), &table, &model, &format!("call {at}"));
        }
        assert!(engine.drop_table(TABLE).unwrap());
        assert_nothing_left(&os, &engine);
    }
    assert!(at > 140, "the power went at {at} calls at most");
}

#[test]
fn a_full_disk_ends_a_load_and_nothing_stays() {
    let rows = without_twins(some_rows(&mut SimRng::new(7), 60_000));
    let (mut at, mut met, mut unmet) = (0, 0, 0);
    while unmet < 3 {
        at += 11;
        let os = SimOs::new(at);
        let engine = open(&os).unwrap();
        let table = new_table(&engine);
        os.fail_after(at, Fault::DiskFull);
        if let Err(error) = load(&engine, &table, &rows) {
            assert!(matches!(error, Error::Full { .. }), "{error}");
            met += 1;
        } else {
            unmet += 1;
        }
        os.clear_fault();
        drop(table);
        assert!(engine.drop_table(TABLE).unwrap());
        assert_nothing_left(&os, &engine);
        let table = new_table(&engine);
        assert_eq!(load(&engine, &table, &rows).unwrap(), None);
        assert_sound(&engine, "there is room again");
    }
    assert!(met > 5, "{met} loads met the full disk");
}

/// The load fails alone, or the engine stops: the table can go then, or after a restart.
#[test]
fn an_io_error_ends_a_load_and_nothing_stays() {
    let rows = without_twins(some_rows(&mut SimRng::new(8), 60_000));
    let (mut at, mut met, mut stopped, mut unmet) = (0, 0, 0, 0);
    while unmet < 3 {
        at += 7;
        let os = SimOs::new(at);
        let engine = open(&os).unwrap();
        let table = new_table(&engine);
        os.fail_after(at, Fault::IoError);
        match load(&engine, &table, &rows) {
            Ok(_) => unmet += 1,
            Err(error) => {
                assert!(matches!(error, Error::Io { .. } | Error::Poisoned { .. }), "{error}");
                met += 1;
            }
        }
        os.clear_fault();
        let is_stopped = engine.wal.is_poisoned() || engine.store.is_poisoned();
        stopped += u64::from(is_stopped);
        drop((table, engine));
        if is_stopped {
            os.crash();
        }
        // A file of a sorter that could not be removed goes at the next start.
        let engine = open(&os).unwrap();
        assert!(engine.drop_table(TABLE).unwrap());
        assert_nothing_left(&os, &engine);
        let table = new_table(&engine);
        assert_eq!(load(&engine, &table, &rows).unwrap(), None);
        assert_sound(&engine, "after the error");
    }
    assert!(met > 5 && stopped > 0, "{met} loads met an error, {stopped} stopped the engine");
}
