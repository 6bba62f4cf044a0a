//! Rows that are too long for a leaf: their short parts stay there, chunks are read only when they are
//! wanted, and a new version of a row takes over those of parts that have not changed.

use crate::base::{Error, Result};
use crate::db::*;
use crate::os::sim::{Fault, SimOs, SimRng};
use crate::os::Os;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::atomic::Ordering;
use std::sync::Arc;

const TABLE: &str = "db/long";
/// Of the part of a row that is always in the leaf.
const HEAD_BYTES: usize = 19;
const LOCK: ReadMode = ReadMode::Lock { exclusive: true, wait: WaitPolicy::Wait };

/// A value: how long it is, and the byte that it is made of.
type Value = (usize, u8);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Row {
    id: u32,
    stamp: u32,
    values: [Value; 3],
}

type Rows = BTreeMap<u32, Row>;

impl Row {
    fn payload(&self) -> (Vec<u8>, Vec<Part>) {
        let mut payload = self.stamp.to_le_bytes().to_vec();
        for (bytes, fill) in self.values {
            payload.extend_from_slice(&(bytes as u32).to_le_bytes());
            payload.push(fill);
        }
        assert_eq!(payload.len(), HEAD_BYTES);
        let mut parts = Vec::new();
        for (tag, (bytes, fill)) in self.values.into_iter().enumerate() {
            let start = payload.len();
            payload.resize(start + bytes, fill);
            parts.push(Part { tag: tag as u16, place: start..payload.len() });
            payload.push(b'|');
        }
        (payload, parts)
    }

    fn with<R>(&self, has_parts: bool, f: impl FnOnce(&RowWrite<'_>) -> R) -> R {
        let (payload, parts) = self.payload();
        let parts = if has_parts { &parts[..] } else { &[] };
        let key = self.id.to_be_bytes();
        f(&RowWrite { entries: &[Entry { key: &key, payload: &payload, parts, unique: true }] })
    }

    /// Panics if a value is another one, or absent although it is wanted or in the leaf.
    fn parse(key: &[u8], payload: &[u8], wanted: Wanted<'_>) -> Row {
        let id = u32::from_be_bytes(key.try_into().unwrap());
        let number = |at: usize| u32::from_le_bytes(payload[at..at + 4].try_into().unwrap());
        let value = |i: usize| (number(4 + 5 * i) as usize, payload[8 + 5 * i]);
        let row = Row { id, stamp: number(0), values: [value(0), value(1), value(2)] };
        let mut rest = &payload[HEAD_BYTES..];
        for (tag, (bytes, fill)) in row.values.into_iter().enumerate() {
            let is_absent = rest.starts_with(&ABSENT) && bytes >= PART_BYTES_MIN;
            assert!(!is_absent || !wanted.has(tag as u16), "row {id}: value {tag} is absent");
            let (found, left) = rest.split_at(if is_absent { ABSENT.len() } else { bytes });
            assert!(is_absent || found.iter().all(|&b| b == fill), "row {id}: value {tag}");
            assert_eq!(left.first(), Some(&b'|'));
            rest = &left[1..];
        }
        assert!(rest.is_empty());
        row
    }
}

fn open(os: &Arc<SimOs>) -> Result<Arc<Engine>> {
    let mut config = Config::new("/data");
    config.background = false;
    config.buffer_pool_bytes = 1 << 20;
    config.log_capacity_bytes = 2 << 20;
    let geometry = Geometry {
        log_segment_bytes: 64 << 10,
        log_cache_bytes: 256 << 10,
        store_segment_bytes: 64 << 10,
    };
    Engine::open_with(Arc::clone(os) as Arc<dyn Os>, config, geometry, Arc::new(NoHost))
}

fn create_table(engine: &Engine) {
    let spec = TableSpec {
        indexes: vec![IndexSpec { unique: true }],
        definition: b"long".to_vec(),
        autoinc_start: 1,
        compression: None,
        is_encrypted: false,
    };
    engine.create_table(TABLE, spec).unwrap();
}

fn start(seed: u64) -> (Arc<Engine>, Arc<Table>) {
    let engine = open(&SimOs::new(seed)).unwrap();
    create_table(&engine);
    let table = engine.table(TABLE).unwrap().unwrap();
    (engine, table)
}

/// Chunks read, chunks written, values taken over.
fn counters(engine: &Engine) -> [u64; 3] {
    let counters = &engine.long_values;
    [&counters.read, &counters.written, &counters.kept].map(|n| n.load(Ordering::Relaxed))
}

fn read(trx: &mut Trx, table: &Table, id: u32, mode: ReadMode, wanted: Wanted<'_>) -> Option<Row> {
    let (key, mut payload) = (id.to_be_bytes(), Vec::new());
    let found = trx.get_wanted(table, 0, &key, mode, wanted, &mut payload).unwrap();
    found.then(|| Row::parse(&key, &payload, wanted))
}

fn scan(trx: &mut Trx, table: &Arc<Table>, wanted: Wanted<'_>) -> Rows {
    let (mut cursor, all) = (Cursor::default(), Bound::Unbounded);
    trx.seek(&mut cursor, table, 0, all, all, Direction::Forward, ReadMode::Snapshot).unwrap();
    let mut rows = Rows::new();
    while trx.next_wanted(&mut cursor, wanted).unwrap() {
        let row = Row::parse(cursor.key(), cursor.payload(), wanted);
        rows.insert(row.id, row);
    }
    rows
}

fn change(trx: &mut Trx, table: &Table, old: &Row, new: &Row) {
    old.with(true, |o| new.with(true, |n| trx.update(table, o, n))).unwrap();
}

fn commit(engine: &Arc<Engine>, f: impl FnOnce(&mut Trx)) {
    let mut trx = engine.begin(2);
    f(&mut trx);
    trx.commit(true).unwrap();
}

/// Chunks that are there, live or as delete marks that somebody may need.
fn chunks(table: &Table) -> u64 {
    table.long_values.tree().check().unwrap().entries
}

fn purge(engine: &Engine) {
    while engine.ctx.revert_step(100).unwrap() {}
    while engine.ctx.purge_step(100).unwrap() {}
    // Marks of versions that were moved out of the log.
    while engine.ctx.sweep_step(&engine.sweep).unwrap() {}
}

fn long_row(id: u32) -> Row {
    Row { id, stamp: 1, values: [(100, b'a'), (20_000, b'b'), (5_000, b'c')] }
}

#[test]
fn chunks_are_read_only_for_a_wanted_value() {
    let (engine, table) = start(1);
    let row = long_row(1);
    commit(&engine, |t| row.with(true, |w| t.insert(&table, w)).unwrap());
    assert_eq!(counters(&engine), [0, 6 + 2, 0]);
    let mut trx = engine.begin(1);
    for mode in [ReadMode::Snapshot, LOCK] {
        let before = counters(&engine)[0];
        let mut reads = |wanted: Wanted<'_>| {
            let before = counters(&engine)[0];
            assert_eq!(read(&mut trx, &table, 1, mode, wanted), Some(row));
            counters(&engine)[0] - before
        };
        assert_eq!(reads(Wanted::NONE), 0);
        assert_eq!(reads(Wanted::Tags(&[true, false])), 0, "a short value is in the leaf");
        assert_eq!(reads(Wanted::Tags(&[true, false, true])), 2);
        assert_eq!(reads(Wanted::Tags(&[false, true])), 6);
        assert_eq!(reads(Wanted::All), 8);
        assert_eq!(counters(&engine)[0] - before, 16);
    }
    let before = counters(&engine);
    assert_eq!(scan(&mut trx, &table, Wanted::NONE).len(), 1);
    assert_eq!(counters(&engine), before);
    assert_eq!(scan(&mut trx, &table, Wanted::All)[&1], row);
}

#[test]
fn an_update_of_another_part_neither_writes_nor_logs_chunks() {
    let (engine, table) = start(2);
    let row = long_row(1);
    commit(&engine, |t| row.with(true, |w| t.insert(&table, w)).unwrap());
    let mut old = engine.begin(1);
    assert_eq!(read(&mut old, &table, 1, ReadMode::Snapshot, Wanted::All), Some(row));
    let (log, written) = (engine.wal.end(), counters(&engine)[1]);
    let mut last = row;
    for stamp in 2..12 {
        let mut next = Row { stamp, ..last };
        next.values[0].1 = stamp as u8;
        commit(&engine, |t| change(t, &table, &last, &next));
        last = next;
    }
    let logged = engine.wal.end().0 - log.0;
    // A commit fills a block of 4096 bytes, whatever it says.
    assert!(logged <= 10 * 8192, "{logged} bytes");
    assert_eq!(counters(&engine)[1..], [written, 20]);
    // Another value goes in: only its chunks change.
    let mut next = last;
    next.values[2] = (6_000, b'd');
    commit(&engine, |t| change(t, &table, &last, &next));
    assert_eq!(counters(&engine)[1..], [written + 2, 21]);
    purge(&engine);
    assert_eq!(read(&mut old, &table, 1, ReadMode::Snapshot, Wanted::All), Some(row));
    old.rollback();
    assert_eq!(read(&mut old, &table, 1, ReadMode::Snapshot, Wanted::All), Some(next));
    old.rollback();
    purge(&engine);
    assert_eq!(chunks(&table), 8);
    commit(&engine, |t| next.with(true, |w| t.delete(&table, w)).unwrap());
    purge(&engine);
    assert_eq!(chunks(&table), 0);
}

/// The transaction's own version has chunks of a commit that its snapshot does not see.
#[test]
fn an_own_version_shows_what_it_took_over() {
    let (engine, table) = start(3);
    let row = long_row(1);
    commit(&engine, |t| row.with(true, |w| t.insert(&table, w)).unwrap());
    let mut trx = engine.begin(1);
    trx.open_snapshot();
    let mut theirs = row;
    theirs.values[1] = (9_000, b'z');
    commit(&engine, |t| change(t, &table, &row, &theirs));
    assert_eq!(read(&mut trx, &table, 1, ReadMode::Snapshot, Wanted::All), Some(row));
    assert_eq!(read(&mut trx, &table, 1, LOCK, Wanted::All), Some(theirs));
    let savepoint = trx.savepoint();
    let own = Row { stamp: 7, ..theirs };
    change(&mut trx, &table, &theirs, &own);
    assert_eq!(read(&mut trx, &table, 1, ReadMode::Snapshot, Wanted::All), Some(own));
    assert_eq!(scan(&mut trx, &table, Wanted::All)[&1], own);
    trx.rollback_to(savepoint).unwrap();
    assert_eq!(read(&mut trx, &table, 1, ReadMode::Snapshot, Wanted::All), Some(row));
    trx.rollback();
    purge(&engine);
    assert_eq!(read(&mut trx, &table, 1, ReadMode::Snapshot, Wanted::All), Some(theirs));
    trx.rollback();
    assert_eq!(chunks(&table), 3 + 2);
}

/// Format 1 has the whole row in chunks. So has a row of which nothing may go out of line.
#[test]
fn rows_stored_as_a_whole_are_read_and_become_split() {
    let (engine, table) = start(4);
    let row = long_row(1);
    commit(&engine, |t| row.with(false, |w| t.insert(&table, w)).unwrap());
    assert_eq!(chunks(&table), 7);
    let mut trx = engine.begin(1);
    assert_eq!(read(&mut trx, &table, 1, ReadMode::Snapshot, Wanted::NONE), Some(row));
    let split = Row { stamp: 2, ..row };
    commit(&engine, |t| change(t, &table, &row, &split));
    assert_eq!(read(&mut trx, &table, 1, ReadMode::Snapshot, Wanted::All), Some(row));
    trx.rollback();
    purge(&engine);
    assert_eq!((chunks(&table), counters(&engine)[2]), (8, 0));
    let before = counters(&engine)[0];
    assert_eq!(read(&mut trx, &table, 1, ReadMode::Snapshot, Wanted::NONE), Some(split));
    assert_eq!(counters(&engine)[0], before);
    trx.rollback();
    // And back.
    commit(&engine, |t| {
        split.with(true, |o| row.with(false, |n| t.update(&table, o, n))).unwrap();
    });
    purge(&engine);
    assert_eq!(chunks(&table), 7);
}

/// One random row operation on engine and model alike.
fn step(rng: &mut SimRng, trx: &mut Trx, table: &Table, rows: &mut Rows) -> Result<()> {
    let id = rng.below(12) as u32;
    let old = read_back(trx, table, id, rows)?;
    if let Some(old) = old.filter(|_| rng.chance(20)) {
        old.with(true, |w| trx.delete(table, w))?;
        rows.remove(&id);
        return Ok(());
    }
    let mut row = old.unwrap_or(Row { id, stamp: 0, values: [(0, 0); 3] });
    row.stamp = rng.next_u64() as u32;
    for value in &mut row.values {
        if old.is_none() || rng.chance(30) {
            let bytes = [50, 1_500, 4_000, 12_000][rng.below(4) as usize];
            *value = (rng.below(bytes) as usize, rng.below(120) as u8);
        }
    }
    let has_parts = rng.chance(90);
    match old {
        None => row.with(has_parts, |w| trx.insert(table, w))?,
        Some(old) => old.with(true, |o| row.with(has_parts, |n| trx.update(table, o, n)))?,
    }
    rows.insert(id, row);
    Ok(())
}

fn read_back(trx: &mut Trx, table: &Table, id: u32, rows: &Rows) -> Result<Option<Row>> {
    let (key, mut payload) = (id.to_be_bytes(), Vec::new());
    let found = trx.get(table, 0, &key, LOCK, &mut payload)?;
    let row = found.then(|| Row::parse(&key, &payload, Wanted::All));
    assert_eq!(row, rows.get(&id).copied(), "row {id}");
    Ok(row)
}

/// A transaction of some statements, some of them taken back.
fn transaction(rng: &mut SimRng, trx: &mut Trx, table: &Table, draft: &mut Rows) -> Result<()> {
    for _ in 0..1 + rng.below(4) {
        let (savepoint, before) = (trx.savepoint(), draft.clone());
        for _ in 0..1 + rng.below(3) {
            step(rng, trx, table, draft)?;
        }
        if rng.chance(25) {
            trx.rollback_to(savepoint)?;
            *draft = before;
        }
    }
    Ok(())
}

/// Works until the machine fails. Answers the rows that must be there, and those that may be.
fn live(rng: &mut SimRng, engine: &Arc<Engine>, rows: Rows) -> (Rows, Rows) {
    let table = engine.table(TABLE).unwrap().unwrap();
    let (mut rows, mut trx) = (rows, engine.begin(1));
    let mut snapshots: Vec<(Trx, Rows)> = Vec::new();
    for round in 0.. {
        if rng.chance(20) {
            let mut reader = engine.begin(10 + round);
            reader.open_snapshot();
            snapshots.push((reader, rows.clone()));
        }
        if snapshots.len() > 3 || !snapshots.is_empty() && rng.chance(20) {
            let (mut reader, seen) = snapshots.swap_remove(0);
            if check_snapshot(rng, &mut reader, &table, &seen).is_err() {
                break;
            }
        }
        let mut draft = rows.clone();
        if transaction(rng, &mut trx, &table, &mut draft).is_err() {
            break;
        }
        if rng.chance(20) {
            trx.rollback();
        } else if trx.commit(true).is_err() {
            return (rows, draft);
        } else {
            rows = draft;
        }
        let worked = match rng.below(6) {
            0 => engine.checkpoint_now(),
            1 => engine.ctx.purge_step(20).map(|_| ()),
            2 => engine.ctx.revert_step(20).map(|_| ()),
            _ => engine.step(),
        };
        if worked.is_err() {
            break;
        }
    }
    (rows.clone(), rows)
}

fn check_snapshot(rng: &mut SimRng, trx: &mut Trx, table: &Arc<Table>, rows: &Rows) -> Result<()> {
    let tags = [rng.chance(50), rng.chance(50), rng.chance(50)];
    let (mut cursor, all) = (Cursor::default(), Bound::Unbounded);
    trx.seek(&mut cursor, table, 0, all, all, Direction::Forward, ReadMode::Snapshot)?;
    let mut found = Rows::new();
    while trx.next_wanted(&mut cursor, Wanted::Tags(&tags))? {
        let row = Row::parse(cursor.key(), cursor.payload(), Wanted::Tags(&tags));
        found.insert(row.id, row);
    }
    assert_eq!(&found, rows, "an old snapshot");
    Ok(())
}

#[test]
fn long_rows_survive_crashes_anywhere() {
    let seeds = std::env::var("SLUICE_SEEDS").ok().and_then(|s| s.parse().ok()).unwrap_or(30);
    let first = std::env::var("SLUICE_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(0);
    for seed in first..first + seeds {
        crash_run(seed);
    }
}

fn crash_run(seed: u64) {
    let mut rng = SimRng::new(seed);
    let os = SimOs::new(seed);
    let engine = open(&os).unwrap();
    create_table(&engine);
    drop(engine);
    let mut rows = Rows::new();
    for life in 0..5 {
        let context = format!("seed {seed} life {life}");
        let engine = open(&os).unwrap_or_else(|e| panic!("{context}: {e}"));
        os.fail_after(rng.below(800), Fault::PowerCut);
        let (acknowledged, in_doubt) = live(&mut rng, &engine, rows);
        drop(engine);
        os.crash();
        let engine = open(&os).unwrap_or_else(|e| panic!("{context}: {e}"));
        let table = engine.table(TABLE).unwrap().unwrap();
        let mut trx = engine.begin(1);
        let found = scan(&mut trx, &table, Wanted::All);
        assert!(
            found == acknowledged || found == in_doubt,
            "{context}: rows are not what they were"
        );
        rows = found;
        trx.rollback();
        purge(&engine);
        assert_eq!(scan(&mut trx, &table, Wanted::All), rows, "{context}: after purge");
        trx.rollback();
        assert_eq!(chunks(&table), expected_chunks(&table, &engine), "{context}: chunks");
    }
}

/// Chunks that rows refer to.
fn expected_chunks(table: &Arc<Table>, engine: &Arc<Engine>) -> u64 {
    let (mut trx, before) = (engine.begin(3), counters(engine)[0]);
    scan(&mut trx, table, Wanted::All);
    counters(engine)[0] - before
}

#[test]
fn a_row_of_many_short_columns_is_stored_as_a_whole() {
    let (engine, table) = start(5);
    let payload = vec![7; 200 * 60];
    let parts: Vec<Part> = (0..200)
        .map(|i| Part { tag: i, place: 60 * usize::from(i)..60 * usize::from(i) + 60 })
        .collect();
    let write = |f: &mut dyn FnMut(&RowWrite<'_>) -> Result<()>| {
        let entry = Entry { key: b"k", payload: &payload, parts: &parts, unique: true };
        f(&RowWrite { entries: &[entry] })
    };
    let mut trx = engine.begin(1);
    write(&mut |row| trx.insert(&table, row)).unwrap();
    let mut found = Vec::new();
    assert!(trx.get(&table, 0, b"k", LOCK, &mut found).unwrap());
    assert!(found == payload);
    assert!(matches!(write(&mut |row| trx.insert(&table, row)), Err(Error::Duplicate)));
    write(&mut |row| trx.delete(&table, row)).unwrap();
    trx.commit(true).unwrap();
    purge(&engine);
    assert_eq!(chunks(&table), 0);
}
