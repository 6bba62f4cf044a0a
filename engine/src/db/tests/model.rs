//! The engine against a model, with crashes anywhere (ring A of the whole engine, one thread).

use crate::base::{Error, Result};
use crate::db::*;
use crate::os::sim::{Fault, SimOs, SimRng};
use crate::os::Os;
use crate::txn::LockMode;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

mod bulk;
mod loads;
mod old_versions;
mod overtaken;
mod own_log;
mod rollback;

const TABLE: &str = "db/t";

fn open(os: &Arc<SimOs>) -> Result<Arc<Engine>> {
    let mut config = Config::new("/data");
    config.background = false;
    config.buffer_pool_bytes = 1 << 20;
    config.log_capacity_bytes = 512 << 10;
    // Bytes that are kept are compared with bytes that were logged.
    config.log_compression = LogCompression::None;
    let geometry = Geometry {
        log_segment_bytes: 64 << 10,
        log_cache_bytes: 256 << 10,
        store_segment_bytes: 64 << 10,
    };
    Engine::open_with(Arc::clone(os) as Arc<dyn Os>, config, geometry, Arc::new(NoHost))
}

fn spec() -> TableSpec {
    let index = |unique| IndexSpec { unique };
    TableSpec {
        indexes: vec![index(true), index(false), index(true)],
        definition: b"model".to_vec(),
        autoinc_start: 1,
        compression: None,
        is_encrypted: false,
    }
}

/// A row of the model table: primary key, a value with a plain index, one with a unique index.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Row {
    id: u32,
    plain: u8,
    unique: u16,
    filler: usize,
}

struct Images {
    keys: [Vec<u8>; 3],
    payloads: [Vec<u8>; 3],
}

impl Row {
    fn images(&self) -> Images {
        let id = self.id.to_be_bytes().to_vec();
        let mut plain = vec![self.plain];
        plain.extend_from_slice(&id);
        let mut payload = vec![self.plain];
        payload.extend_from_slice(&self.unique.to_be_bytes());
        payload.resize(3 + self.filler, self.id as u8);
        Images {
            keys: [id.clone(), plain, self.unique.to_be_bytes().to_vec()],
            payloads: [payload, Vec::new(), id],
        }
    }

    fn read(key: &[u8], payload: &[u8]) -> Row {
        let id = u32::from_be_bytes(key.try_into().unwrap());
        assert!(payload[3..].iter().all(|&b| b == id as u8), "filler of another row");
        let unique = u16::from_be_bytes([payload[1], payload[2]]);
        Row { id, plain: payload[0], unique, filler: payload.len() - 3 }
    }

    fn random(rng: &mut SimRng) -> Row {
        let filler = match rng.below(20) {
            0 => 10_000 + rng.below(30_000) as usize,
            1..=3 => rng.below(3_000) as usize,
            _ => rng.below(200) as usize,
        };
        let (plain, unique) = (rng.below(8) as u8, rng.below(80) as u16);
        Row { id: rng.below(60) as u32, plain, unique, filler }
    }
}

impl Images {
    fn with<R>(&self, f: impl FnOnce(&RowWrite<'_>) -> R) -> R {
        let entry = |i: usize, unique| Entry {
            key: &self.keys[i],
            payload: &self.payloads[i],
            parts: &[],
            unique,
        };
        f(&RowWrite { entries: &[entry(0, true), entry(1, false), entry(2, true)] })
    }
}

/// Where the entries of the test's table keep the primary key.
fn row_key_of(index: usize, key: &[u8], payload: &[u8]) -> Result<Vec<u8>> {
    Ok(if index == 1 { key[key.len() - 4..].to_vec() } else { payload.to_vec() })
}

/// Keys of one part, with the primary key after it in the second index.
struct Parts;

impl KeyParts for Parts {
    fn count(&self, index: usize) -> usize {
        if index == 1 {
            2
        } else {
            1
        }
    }

    fn ends(&self, index: usize, key: &[u8], ends: &mut Vec<usize>) {
        let all: &[usize] = [&[4][..], &[1, 5], &[2]][index];
        ends.extend(all.iter().copied().filter(|&end| end <= key.len()));
    }
}

type Model = BTreeMap<u32, Row>;

fn scan(
    trx: &mut Trx,
    table: &Arc<Table>,
    index: usize,
    way: Direction,
) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut cursor = Cursor::default();
    let all = Bound::Unbounded;
    trx.seek(&mut cursor, table, index, all, all, way, ReadMode::Snapshot).unwrap();
    let mut out = Vec::new();
    while trx.next(&mut cursor).unwrap() {
        out.push((cursor.key().to_vec(), cursor.payload().to_vec()));
    }
    out
}

fn rows(trx: &mut Trx, table: &Arc<Table>) -> Model {
    let entries = scan(trx, table, 0, Direction::Forward);
    entries.iter().map(|(k, p)| Row::read(k, p)).map(|r| (r.id, r)).collect()
}

fn assert_is(trx: &mut Trx, table: &Arc<Table>, model: &Model, context: &str) {
    assert_eq!(&rows(trx, table), model, "{context}: clustered index");
    for index in 1..3 {
        let mut keys: Vec<_> = model.values().map(|r| r.images().keys[index].clone()).collect();
        keys.sort();
        let keys_of = |entries: Vec<(Vec<u8>, Vec<u8>)>| -> Vec<Vec<u8>> {
            entries.into_iter().map(|e| e.0).collect()
        };
        let found = keys_of(scan(trx, table, index, Direction::Forward));
        assert_eq!(found, keys, "{context}: index {index}");
        keys.reverse();
        let found = keys_of(scan(trx, table, index, Direction::Backward));
        assert_eq!(found, keys, "{context}: index {index} backwards");
    }
}

/// One random row operation on engine and model alike.
fn step(rng: &mut SimRng, trx: &mut Trx, table: &Arc<Table>, model: &mut Model) -> Result<()> {
    let row = Row::random(rng);
    let new = row.images();
    let taken = model.values().any(|r| r.unique == row.unique && r.id != row.id);
    let old = model.get(&row.id).cloned();
    let outcome = match &old {
        None => new.with(|w| trx.insert(table, w)),
        Some(old) if rng.chance(30) => {
            old.images().with(|w| trx.delete(table, w))?;
            model.remove(&old.id);
            return Ok(());
        }
        Some(old) => old.images().with(|o| new.with(|n| trx.update(table, o, n))),
    };
    match (outcome, taken) {
        (Ok(()), false) => {
            model.insert(row.id, row);
            Ok(())
        }
        (Err(Error::Duplicate), true) => {
            assert_eq!(trx.duplicate_index(), 2);
            Ok(())
        }
        (Ok(()), true) => panic!("a duplicate went in"),
        (Err(Error::Duplicate), false) => panic!("no duplicate, but refused"),
        (Err(error), _) => Err(error),
    }
}

/// What a life leaves behind: the model as acknowledged, and as it may be if the commit under way
/// at the crash made it.
struct Life {
    acknowledged: Model,
    in_doubt: Option<Model>,
}

/// Builds one or two of the secondary indexes anew in place, or gives up in the middle.
fn alter(rng: &mut SimRng, engine: &Arc<Engine>) -> Result<()> {
    let table = engine.table(TABLE)?.unwrap();
    let is_new = [rng.chance(50), rng.chance(50)];
    let index = |i: usize| match is_new[i - 1] {
        true => AlteredIndex::New { unique: i == 2 },
        false => AlteredIndex::Kept(i),
    };
    let indexes = [AlteredIndex::Kept(0), index(1), index(2)];
    let mut build = engine.alter_indexes(TABLE, &indexes, b"model".to_vec(), &|| false)?;
    let (mut trx, mut cursor) = (engine.begin(2), Cursor::default());
    let (all, forward) = (Bound::Unbounded, Direction::Forward);
    trx.seek(&mut cursor, &table, 0, all, all, forward, ReadMode::Snapshot)?;
    while trx.next(&mut cursor)? {
        let images = Row::read(cursor.key(), cursor.payload()).images();
        for (n, i) in [1, 2].into_iter().filter(|i| is_new[i - 1]).enumerate() {
            build.add(n, &images.keys[i], &images.payloads[i])?;
        }
    }
    if rng.chance(10) {
        return Ok(());
    }
    assert_eq!(build.build(&|| false)?, None);
    if rng.chance(90) {
        build.commit()?;
    }
    Ok(())
}

fn live(rng: &mut SimRng, engine: &Arc<Engine>, mut model: Model) -> Life {
    let mut table = engine.table(TABLE).unwrap().unwrap();
    table.name_parts(Arc::new(Parts));
    let mut trx = engine.begin(1);
    loop {
        let mut draft = model.clone();
        if transaction(rng, &mut trx, &table, &mut draft).is_err() {
            return Life { acknowledged: model, in_doubt: None };
        }
        if rng.chance(20) {
            trx.rollback();
        } else if trx.commit(true).is_err() {
            return Life { acknowledged: model, in_doubt: Some(draft) };
        } else {
            model = draft;
        }
        let worked = match rng.below(10) {
            0..=3 => engine.step(),
            4 if rng.chance(30) => engine.checkpoint_now(),
            5 if rng.chance(30) => engine.analyze_table(TABLE, 0, &|| false),
            6 if rng.chance(40) => alter(rng, engine),
            _ => engine.flush_log(),
        };
        if let Ok(Some(altered)) = engine.table(TABLE) {
            altered.name_parts(Arc::new(Parts));
            table = altered;
        }
        if worked.is_err() {
            return Life { acknowledged: model, in_doubt: None };
        }
    }
}

fn transaction(
    rng: &mut SimRng,
    trx: &mut Trx,
    table: &Arc<Table>,
    draft: &mut Model,
) -> Result<()> {
    for _ in 0..1 + rng.below(6) {
        if !rng.chance(15) {
            step(rng, trx, table, draft)?;
            continue;
        }
        let (savepoint, mut lost) = (trx.savepoint(), draft.clone());
        for _ in 0..rng.below(4) {
            step(rng, trx, table, &mut lost)?;
        }
        trx.rollback_to(savepoint)?;
    }
    Ok(())
}

fn crash_run(seed: u64) {
    let mut rng = SimRng::new(seed);
    let os = SimOs::new(seed);
    let engine = open(&os).unwrap();
    engine.create_table(TABLE, spec()).unwrap();
    drop(engine);
    let mut model = Model::new();
    for life in 0..5 {
        let context = format!("seed {seed} life {life}");
        if rng.chance(40) {
            // A crash during recovery.
            os.fail_after(rng.below(40), Fault::PowerCut);
            drop(open(&os));
            os.crash();
        }
        let engine = open(&os).unwrap_or_else(|e| panic!("{context}: {e}"));
        os.fail_after(rng.below(600), Fault::PowerCut);
        let outcome = live(&mut rng, &engine, model.clone());
        drop(engine);
        os.crash();
        let engine = open(&os).unwrap_or_else(|e| panic!("{context}: {e}"));
        let table = engine.table(TABLE).unwrap().unwrap();
        let mut trx = engine.begin(1);
        table.name_rows(Arc::new(row_key_of));
        let found = rows(&mut trx, &table);
        model = match outcome.in_doubt {
            Some(draft) if found == draft => draft,
            _ => outcome.acknowledged,
        };
        assert_is(&mut trx, &table, &model, &context);
        while engine.ctx.revert_step(100).unwrap() {}
        while engine.ctx.purge_step(100).unwrap() {}
        assert_is(&mut trx, &table, &model, &context);
        assert_eq!(
            engine.check_table(TABLE, CheckDepth::Full, &|| false).unwrap().faults,
            Vec::<String>::new(),
            "{context}"
        );
        drop(trx);
        if rng.chance(30) {
            engine.shutdown().unwrap();
        }
    }
}

#[test]
fn acknowledged_commits_survive_crashes_anywhere() {
    let seeds = std::env::var("SLUICE_SEEDS").ok().and_then(|s| s.parse().ok()).unwrap_or(40);
    let first = std::env::var("SLUICE_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(0);
    for seed in first..first + seeds {
        crash_run(seed);
    }
}

fn fill(engine: &Arc<Engine>, rows: &[Row]) {
    let table = engine.table(TABLE).unwrap().unwrap();
    let mut trx = engine.begin(1);
    for row in rows {
        row.images().with(|w| trx.insert(&table, w)).unwrap();
    }
    trx.commit(true).unwrap();
}

#[test]
fn a_key_that_is_there_twice_stops_the_build_and_changes_nothing() {
    let os = SimOs::new(1);
    let engine = open(&os).unwrap();
    engine.create_table(TABLE, spec()).unwrap();
    let row = |id: u32| Row { id, plain: 1, unique: id as u16, filler: 1 };
    fill(&engine, &[row(1), row(2), row(3)]);
    let kept = AlteredIndex::Kept;
    let indexes = [kept(0), AlteredIndex::New { unique: true }, kept(1), kept(2)];
    let trees = engine.ctx.trees.ids().len();
    let mut build = engine.alter_indexes(TABLE, &indexes, b"4".to_vec(), &|| false).unwrap();
    for (key, payload) in [(b"a", b"1"), (b"b", b"2"), (b"a", b"3")] {
        build.add(0, key, payload).unwrap();
    }
    let found = build.build(&|| false).unwrap().expect("twice");
    let mut payloads = found.payloads.clone();
    payloads.sort();
    assert_eq!((found.index, payloads), (0, [b"1".to_vec(), b"3".to_vec()]));
    drop(build);
    assert_eq!(engine.ctx.trees.ids().len(), trees);
    assert_eq!(engine.table(TABLE).unwrap().unwrap().definition(), b"model");
    fill(&engine, &[row(4)]);
}

#[test]
fn an_alter_keeps_rows_and_counters_and_is_not_for_older_snapshots() {
    let os = SimOs::new(1);
    let engine = open(&os).unwrap();
    engine.create_table(TABLE, spec()).unwrap();
    let row = |id: u32| Row { id, plain: id as u8, unique: id as u16, filler: 1 };
    fill(&engine, &[row(1), row(2)]);
    let old = engine.table(TABLE).unwrap().unwrap();
    old.autoinc_update(|_| 9);
    old.autoinc_keep(7);
    let mut reader = engine.begin(5);
    reader.open_snapshot();
    // The index of plain values goes, the other takes its place.
    let indexes = [AlteredIndex::Kept(0), AlteredIndex::Kept(2)];
    let build = engine.alter_indexes(TABLE, &indexes, b"two".to_vec(), &|| false).unwrap();
    let table = build.commit().unwrap();
    assert!(!old.is_current() && table.id() > old.id());
    assert_eq!((table.definition(), table.index_count()), (&b"two"[..], 2));
    assert_eq!((table.autoinc_peek(), table.autoinc_kept()), (9, 7));
    assert_eq!(scan(&mut engine.begin(2), &table, 1, Direction::Forward).len(), 2);
    let mut cursor = Cursor::default();
    let (all, forward) = (Bound::Unbounded, Direction::Forward);
    let outcome = reader.seek(&mut cursor, &table, 0, all, all, forward, ReadMode::Snapshot);
    assert!(matches!(outcome, Err(Error::TableChanged)), "{outcome:?}");
    drop((reader, table, old));
    drop(engine);
    os.crash();
    let table = open(&os).unwrap().table(TABLE).unwrap().unwrap();
    assert_eq!((table.definition(), table.index_count()), (&b"two"[..], 2));
    assert_eq!(table.autoinc_peek(), 7);
}

#[test]
fn a_snapshot_sees_what_was_committed_when_it_was_taken() {
    let os = SimOs::new(1);
    let engine = open(&os).unwrap();
    engine.create_table(TABLE, spec()).unwrap();
    let table = engine.table(TABLE).unwrap().unwrap();
    let mut rng = SimRng::new(5);
    let mut model = Model::new();
    let mut readers: Vec<(Trx, Model)> = Vec::new();
    let mut writer = engine.begin(1);
    for round in 0..200 {
        for _ in 0..4 {
            step(&mut rng, &mut writer, &table, &mut model).unwrap();
        }
        writer.commit(true).unwrap();
        if round % 20 == 0 {
            let mut reader = engine.begin(100 + round);
            reader.open_snapshot();
            readers.push((reader, model.clone()));
        }
        engine.step().unwrap();
    }
    for (reader, seen) in &mut readers {
        assert_is(reader, &table, seen, "old snapshot");
    }
}

#[test]
fn a_writer_waits_for_the_writer_before_it() {
    let os = SimOs::new(1);
    let engine = open(&os).unwrap();
    engine.create_table(TABLE, spec()).unwrap();
    let table = engine.table(TABLE).unwrap().unwrap();
    let row = Row { id: 1, plain: 1, unique: 1, filler: 1 };
    let mut first = engine.begin(1);
    row.images().with(|w| first.insert(&table, w)).unwrap();
    let mut second = engine.begin(2);
    second.set_lock_timeout(Duration::from_millis(20));
    let outcome = row.images().with(|w| second.insert(&table, w));
    assert!(matches!(outcome, Err(Error::LockTimeout)), "{outcome:?}");
    first.rollback();
    row.images().with(|w| second.insert(&table, w)).unwrap();
    second.commit(true).unwrap();
    let outcome = row.images().with(|w| first.insert(&table, w));
    assert!(matches!(outcome, Err(Error::Duplicate)), "{outcome:?}");
    assert_eq!(first.duplicate_index(), 0);
}

/// A superblock that was never written whole was taken for a damaged one, for ever.
#[test]
fn a_creation_that_loses_power_anywhere_is_started_again() {
    for seed in 0..200 {
        let os = SimOs::new(seed);
        let mut rng = SimRng::new(seed);
        for _ in 0..4 {
            os.fail_after(rng.below(50), Fault::PowerCut);
            drop(open(&os));
            os.crash();
        }
        let engine = open(&os).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        engine.create_table(TABLE, spec()).unwrap();
        drop(engine);
        let engine = open(&os).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        assert_eq!(engine.table_names(), [TABLE]);
    }
}

/// Idle background threads kept the engine alive for one another, and its directory locked.
#[test]
fn an_engine_dropped_without_shutdown_lets_go_of_its_directory() {
    let os = SimOs::new(1);
    let open = || {
        let os = Arc::clone(&os) as Arc<dyn Os>;
        Engine::open(os, Config::new("/data"), Arc::new(NoHost))
    };
    let engine = open().unwrap();
    std::thread::sleep(Duration::from_millis(150));
    drop(engine);
    // A step under way ends first.
    let again = (0..100).find_map(|_| {
        std::thread::sleep(Duration::from_millis(20));
        open().ok()
    });
    again.expect("the directory stays locked").shutdown().unwrap();
}

/// The row was reverted on touch, its chunks still carried the delete marks of the rolled back
/// update: "part of a long value is missing".
#[test]
fn a_rolled_back_change_of_a_long_value_is_seen_through_by_a_locking_read() {
    let os = SimOs::new(1);
    let engine = open(&os).unwrap();
    engine.create_table(TABLE, spec()).unwrap();
    let table = engine.table(TABLE).unwrap().unwrap();
    let long = Row { id: 1, plain: 1, unique: 1, filler: 20_000 };
    let short = Row { filler: 10, ..long.clone() };
    let mut trx = engine.begin(1);
    long.images().with(|w| trx.insert(&table, w)).unwrap();
    trx.commit(true).unwrap();
    long.images().with(|o| short.images().with(|n| trx.update(&table, o, n))).unwrap();
    trx.rollback();
    let mode = ReadMode::Lock { exclusive: true, wait: WaitPolicy::Wait };
    let (key, mut payload) = (1_u32.to_be_bytes(), Vec::new());
    assert!(trx.get(&table, 0, &key, mode, &mut payload).unwrap());
    assert_eq!(Row::read(&key, &payload), long);
}

/// Another's interval can lie over an own row: its scan found nothing, and grew the interval before it
/// looked once more. A scan locks the gap before the own row all the same.
#[test]
fn the_gap_before_an_own_row_is_locked_under_the_interval_of_another() {
    let engine = open(&SimOs::new(1)).unwrap();
    engine.create_table(TABLE, spec()).unwrap();
    let table = engine.table(TABLE).unwrap().unwrap();
    let row = |id: u32| Row { id, plain: 1, unique: id as u16, filler: 1 };
    let key = |id: u32| id.to_be_bytes();
    let (mut writer, mut other) = (engine.begin(1), engine.begin(2));
    row(44).images().with(|w| writer.insert(&table, w)).unwrap();
    let tree = table.gates[0].id();
    let (low, high) = (key(43), key(57));
    let over = (Bound::Included(&low[..]), Bound::Included(&high[..]));
    let locks = &engine.ctx.locks;
    locks.try_lock_range(&other.session.owner, tree, over, LockMode::Exclusive).unwrap();
    let (low, high) = (key(37), key(54));
    let mut cursor = Cursor::default();
    let (from, to) = (Bound::Included(&low[..]), Bound::Included(&high[..]));
    let mode = ReadMode::Lock { exclusive: true, wait: WaitPolicy::Wait };
    writer.seek(&mut cursor, &table, 0, from, to, Direction::Forward, mode).unwrap();
    assert!(writer.next(&mut cursor).unwrap());
    other.set_lock_timeout(Duration::ZERO);
    let inserted = row(37).images().with(|w| other.insert(&table, w));
    assert!(matches!(inserted, Err(Error::LockTimeout)), "{inserted:?}");
    row(36).images().with(|w| other.insert(&table, w)).unwrap();
}

/// Reads the row as an UPDATE does, and updates it.
fn lock_and_update(trx: &mut Trx, table: &Table, id: u32, plain: u8, filler: usize) {
    let mode = ReadMode::Lock { exclusive: true, wait: WaitPolicy::Wait };
    let (key, mut payload) = (id.to_be_bytes(), Vec::new());
    assert!(trx.get(table, 0, &key, mode, &mut payload).unwrap());
    let old = Row::read(&key, &payload);
    update_unasked(trx, table, &old, plain, filler);
}

/// An update of a row that the transaction has not locked: the id in the entry is its only lock.
fn update_unasked(trx: &mut Trx, table: &Table, old: &Row, plain: u8, filler: usize) {
    let new = Row { id: old.id, plain, unique: old.id as u16, filler };
    old.images().with(|o| new.images().with(|n| trx.update(table, o, n))).unwrap();
}

fn insert_rows(engine: &Arc<Engine>, table: &Table, ids: std::ops::Range<u32>, filler: usize) {
    let mut trx = engine.begin(9);
    for id in ids {
        let row = Row { id, plain: 0, unique: id as u16, filler };
        row.images().with(|w| trx.insert(table, w)).unwrap();
    }
    trx.commit(true).unwrap();
}

#[test]
fn updates_keep_no_lock_beside_the_ids_in_the_entries() {
    let engine = open(&SimOs::new(1)).unwrap();
    engine.create_table(TABLE, spec()).unwrap();
    let table = engine.table(TABLE).unwrap().unwrap();
    insert_rows(&engine, &table, 0..300, 10);
    for isolation in [Isolation::ReadCommitted, Isolation::RepeatableRead] {
        let mut trx = engine.begin(1);
        trx.set_isolation(isolation);
        trx.statement_start();
        (0..300).for_each(|id| lock_and_update(&mut trx, &table, id, 1, 10));
        let locks = engine.ctx.locks.stats();
        assert!(locks.rows <= 1 && locks.intervals == 0, "{isolation:?}: {locks:?}");
        // A row that was locked before a savepoint stays locked when its change is undone.
        trx.statement_start();
        let mode = ReadMode::Lock { exclusive: true, wait: WaitPolicy::Wait };
        let mut payload = Vec::new();
        trx.rollback();
        assert!(trx.get(&table, 0, &7_u32.to_be_bytes(), mode, &mut payload).unwrap());
        let savepoint = trx.savepoint();
        lock_and_update(&mut trx, &table, 7, 2, 10);
        lock_and_update(&mut trx, &table, 8, 2, 10);
        trx.rollback_to(savepoint).unwrap();
        let mut other = engine.begin(2);
        other.set_lock_timeout(Duration::ZERO);
        let key = |id: u32| id.to_be_bytes();
        let locked = other.get(&table, 0, &key(7), mode, &mut payload);
        assert!(matches!(locked, Err(Error::LockTimeout)), "{locked:?}");
        other.rollback();
    }
}

/// A row comes back whole: not when its entry does, before its long value.
#[test]
fn nobody_gets_a_row_before_all_of_it_is_undone() {
    let engine = open(&SimOs::new(1)).unwrap();
    engine.create_table(TABLE, spec()).unwrap();
    let table = engine.table(TABLE).unwrap().unwrap();
    insert_rows(&engine, &table, 0..2, 300_000);
    for round in 0..20 {
        let mut writer = engine.begin(1);
        writer.set_isolation(Isolation::ReadCommitted);
        writer.statement_start();
        let savepoint = writer.savepoint();
        for id in 0..2 {
            let old = Row { id, plain: 0, unique: id as u16, filler: 300_000 };
            update_unasked(&mut writer, &table, &old, 1, 10);
        }
        let before = engine.ctx.locks.stats().waits;
        let reader = std::thread::spawn({
            let (engine, table) = (Arc::clone(&engine), Arc::clone(&table));
            move || {
                let mode = ReadMode::Lock { exclusive: false, wait: WaitPolicy::Wait };
                let (mut trx, mut payload) = (engine.begin(2), Vec::new());
                trx.get(&table, 0, &0_u32.to_be_bytes(), mode, &mut payload).map(|_| payload.len())
            }
        });
        while engine.ctx.locks.stats().waits == before {
            std::thread::yield_now();
        }
        writer.rollback_to(savepoint).unwrap();
        assert_eq!(reader.join().unwrap().unwrap(), 300_003, "round {round}");
    }
}

#[test]
fn prepared_transactions_survive_and_keep_their_rows_locked() {
    for commit in [true, false] {
        let os = SimOs::new(7);
        let engine = open(&os).unwrap();
        engine.create_table(TABLE, spec()).unwrap();
        let table = engine.table(TABLE).unwrap().unwrap();
        let row = Row { id: 1, plain: 1, unique: 1, filler: 5_000 };
        let mut trx = engine.begin(1);
        row.images().with(|w| trx.insert(&table, w)).unwrap();
        trx.prepare(b"xid-1", true).unwrap();
        trx.detach();
        drop((table, engine));
        os.crash();
        let engine = open(&os).unwrap();
        assert_eq!(engine.prepared(), vec![b"xid-1".to_vec()]);
        let table = engine.table(TABLE).unwrap().unwrap();
        let mut other = engine.begin(2);
        other.set_lock_timeout(Duration::from_millis(1));
        let outcome = row.images().with(|w| other.insert(&table, w));
        assert!(matches!(outcome, Err(Error::LockTimeout)), "{outcome:?}");
        assert_is(&mut other, &table, &Model::new(), "prepared is not visible");
        other.commit(true).unwrap();
        match commit {
            true => assert!(engine.commit_prepared(b"xid-1").unwrap()),
            false => assert!(engine.rollback_prepared(b"xid-1").unwrap()),
        }
        let expected: Model = if commit { [(1, row)].into() } else { Model::new() };
        assert_is(&mut other, &table, &expected, "after the decision");
    }
}

/// A prepared transaction without its session, before and after a crash, holds up statements that
/// replace a table that it wrote, and only these.
#[test]
fn prepared_transactions_are_waited_for() {
    for (crash, savepoint) in [(false, false), (false, true), (true, false), (true, true)] {
        let os = SimOs::new(8);
        let mut engine = open(&os).unwrap();
        for name in [TABLE, "db/other", "db/third"] {
            engine.create_table(name, spec()).unwrap();
        }
        let row = |id| Row { id, plain: 1, unique: id as u16, filler: 5_000 };
        let mut trx = engine.begin(1);
        let [table, third] = [TABLE, "db/third"].map(|n| engine.table(n).unwrap().unwrap());
        row(1).images().with(|w| trx.insert(&table, w)).unwrap();
        row(2).images().with(|w| trx.insert(&third, w)).unwrap();
        if savepoint {
            let at = trx.savepoint();
            row(3).images().with(|w| trx.insert(&third, w)).unwrap();
            trx.rollback_to(at).unwrap();
        }
        trx.prepare(b"x", true).unwrap();
        trx.detach();
        if crash {
            drop((table, third, engine));
            os.crash();
            engine = open(&os).unwrap();
        }
        let mut ddl = engine.begin(2);
        ddl.set_lock_timeout(Duration::from_millis(1));
        let mut wait = |name| ddl.wait_for_prepared(&engine.table(name).unwrap().unwrap());
        for name in [TABLE, "db/third"] {
            let waited = wait(name);
            assert!(matches!(waited, Err(Error::LockTimeout)), "{name}: {waited:?}");
        }
        wait("db/other").unwrap();
        assert!(engine.rollback_prepared(b"x").unwrap());
        wait(TABLE).unwrap();
        wait("db/third").unwrap();
        drop(ddl);
        let locks = engine.ctx.locks.stats();
        assert_eq!((locks.rows, locks.intervals), (0, 0), "the wait leaves no lock");
    }
}

/// Found by a crash test of the server: the checkpoint knew that the transaction was rolled back,
/// and the scan, which begins at an older dirty page, met its prepare record after that.
#[test]
fn a_checkpoint_may_know_more_than_the_start_of_the_tail() {
    let os = SimOs::new(1);
    let engine = open(&os).unwrap();
    engine.create_table(TABLE, spec()).unwrap();
    let table = engine.table(TABLE).unwrap().unwrap();
    let row = Row { id: 1, plain: 1, unique: 1, filler: 10 };
    let mut trx = engine.begin(1);
    row.images().with(|w| trx.insert(&table, w)).unwrap();
    trx.prepare(b"xid", true).unwrap();
    trx.rollback();
    engine.checkpoint_map().unwrap();
    drop((trx, table, engine));
    os.crash();
    let engine = open(&os).unwrap();
    let table = engine.table(TABLE).unwrap().unwrap();
    assert!(engine.prepared().is_empty());
    assert_is(&mut engine.begin(1), &table, &Model::new(), "after the crash");
}

/// Found by a crash test of the server: the row's entry was reverted on touch, the chunks of its
/// long value still carried the delete marks of the transaction rolled back.
#[test]
fn a_locking_read_sees_the_long_value_behind_a_rolled_back_update() {
    let os = SimOs::new(1);
    let engine = open(&os).unwrap();
    engine.create_table(TABLE, spec()).unwrap();
    let table = engine.table(TABLE).unwrap().unwrap();
    let row = |filler| Row { id: 1, plain: 1, unique: 1, filler };
    let mut trx = engine.begin(1);
    row(20_000).images().with(|w| trx.insert(&table, w)).unwrap();
    trx.commit(true).unwrap();
    let (old, new) = (row(20_000).images(), row(30_000).images());
    old.with(|o| new.with(|n| trx.update(&table, o, n))).unwrap();
    trx.rollback();
    let mode = ReadMode::Lock { exclusive: true, wait: WaitPolicy::Wait };
    let mut payload = Vec::new();
    assert!(trx.get(&table, 0, &old.keys[0], mode, &mut payload).unwrap());
    assert_eq!(payload, old.payloads[0]);
}

fn ddl_step(rng: &mut SimRng, engine: &Engine, exists: &mut BTreeSet<String>) -> Result<()> {
    let name = format!("db/t{}", rng.below(3));
    if !exists.contains(&name) {
        exists.insert(name.clone());
        engine.create_table(&name, spec())
    } else if rng.chance(50) {
        exists.remove(&name);
        engine.drop_table(&name).map(|_| ())
    } else {
        engine.truncate_table(&name, 1)
    }
}

#[test]
fn tables_come_and_go_with_crashes_between() {
    for seed in 0..40 {
        let os = SimOs::new(seed);
        let mut rng = SimRng::new(seed);
        drop(open(&os).unwrap());
        let mut exists: BTreeSet<String> = BTreeSet::new();
        for _ in 0..8 {
            let engine = open(&os).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
            let before = exists.clone();
            os.fail_after(rng.below(80), Fault::PowerCut);
            let outcome = ddl_step(&mut rng, &engine, &mut exists);
            let _ = engine.step();
            drop(engine);
            os.crash();
            let engine = open(&os).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
            let names: BTreeSet<String> = engine.table_names().into_iter().collect();
            if outcome.is_err() && names == before {
                exists = before;
            }
            assert_eq!(names, exists, "seed {seed}");
        }
    }
}
