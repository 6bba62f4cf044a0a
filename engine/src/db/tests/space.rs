//! Larger than memory, full disks, and every single call failing: the engine on a simulated
//! machine against a model.

use crate::base::{Error, Result};
use crate::db::*;
use crate::os::sim::{Fault, SimOs, SimRng};
use crate::os::{OpenMode, Os};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

const TABLE: &str = "db/t";
const OTHER: &str = "db/other";
const POOL_BYTES: usize = 1 << 20;

fn open(os: &Arc<SimOs>) -> Result<Arc<Engine>> {
    open_with_log(os, 1 << 20)
}

fn open_with_log(os: &Arc<SimOs>, log_capacity_bytes: u64) -> Result<Arc<Engine>> {
    let mut config = Config::new("/data");
    config.background = false;
    config.buffer_pool_bytes = POOL_BYTES as u64;
    config.log_capacity_bytes = log_capacity_bytes;
    config.compression = Compression::None;
    let geometry = Geometry {
        log_segment_bytes: 128 << 10,
        log_cache_bytes: 256 << 10,
        store_segment_bytes: 256 << 10,
    };
    Engine::open_with(Arc::clone(os) as Arc<dyn Os>, config, geometry, Arc::new(NoHost))
}

fn spec() -> TableSpec {
    TableSpec {
        is_encrypted: false,
        indexes: vec![IndexSpec { unique: true }],
        definition: b"rows".to_vec(),
        autoinc_start: 1,
        compression: Some(Compression::None),
    }
}

/// The rows by key: a number from which the payload follows, and its length.
type Model = BTreeMap<u32, (u32, usize)>;

fn payload(version: (u32, usize)) -> Vec<u8> {
    let mut bytes = vec![version.0 as u8; version.1];
    bytes[..4].copy_from_slice(&version.0.to_be_bytes());
    bytes
}

fn with<R>(key: u32, version: (u32, usize), f: impl FnOnce(&RowWrite<'_>) -> R) -> R {
    let (key, payload) = (key.to_be_bytes(), payload(version));
    f(&RowWrite { entries: &[Entry { key: &key, payload: &payload, parts: &[], unique: true }] })
}

/// Writes a row, whether it is there or not.
fn put(
    trx: &mut Trx,
    table: &Arc<Table>,
    model: &mut Model,
    key: u32,
    new: (u32, usize),
) -> Result<()> {
    match model.get(&key) {
        Some(&old) => with(key, old, |o| with(key, new, |n| trx.update(table, o, n)))?,
        None => with(key, new, |w| trx.insert(table, w))?,
    }
    model.insert(key, new);
    Ok(())
}

fn delete(trx: &mut Trx, table: &Arc<Table>, model: &mut Model, key: u32) -> Result<()> {
    let Some(&old) = model.get(&key) else { return Ok(()) };
    with(key, old, |w| trx.delete(table, w))?;
    model.remove(&key);
    Ok(())
}

fn rows(engine: &Arc<Engine>, name: &str) -> Result<Option<Model>> {
    let Some(table) = engine.table(name)? else { return Ok(None) };
    let mut trx = engine.begin(99);
    let mut cursor = Cursor::default();
    let (all, way) = (Bound::Unbounded, Direction::Forward);
    trx.seek(&mut cursor, &table, 0, all, all, way, ReadMode::Snapshot)?;
    let mut found = Model::new();
    while trx.next(&mut cursor)? {
        let (key, bytes) = (cursor.key(), cursor.payload());
        let key = u32::from_be_bytes(key.try_into().unwrap());
        let number = u32::from_be_bytes(bytes[..4].try_into().unwrap());
        let version = (number, bytes.len());
        assert!(bytes == payload(version), "payload of {key}");
        found.insert(key, version);
    }
    Ok(Some(found))
}

fn assert_rows(engine: &Arc<Engine>, model: &Model, context: &str) {
    let found = rows(engine, TABLE).unwrap_or_else(|e| panic!("{context}: {e}"));
    assert!(found.as_ref() == Some(model), "{context}: other rows than acknowledged");
}

/// Background work until nothing is left to do; only its end must succeed.
fn settle(engine: &Engine) -> Result<()> {
    for _ in 0..30 {
        if engine.wal.is_poisoned() || engine.store.is_poisoned() {
            break;
        }
        let _ = engine.step();
    }
    engine.step()
}

#[test]
fn a_table_of_twenty_pools_is_right_and_comes_back_after_a_crash() {
    let os = SimOs::new(3);
    let mut engine = open(&os).unwrap();
    engine.create_table(TABLE, spec()).unwrap();
    let mut rng = SimRng::new(3);
    let mut model = Model::new();
    for life in 0..2 {
        let table = engine.table(TABLE).unwrap().unwrap();
        let mut trx = engine.begin(1);
        for n in 0..20_000_u32 {
            let key = if life == 0 { n } else { rng.below(20_000) as u32 };
            match rng.below(10) {
                0 if life == 1 => delete(&mut trx, &table, &mut model, key).unwrap(),
                _ => put(&mut trx, &table, &mut model, key, (n, 900 + n as usize % 300)).unwrap(),
            }
            if n % 50 == 49 {
                trx.commit(true).unwrap();
                engine.step().unwrap();
            }
        }
        drop(trx);
        let (store, pool) = (engine.store.stats(), engine.pool.stats());
        assert!(store.live_bytes > 20 << 20, "{store:?}");
        assert!(pool.frames <= 64 + 64 / 4 + 33, "{pool:?}");
        assert_rows(&engine, &model, "before the crash");
        drop(engine);
        os.crash();
        engine = open(&os).unwrap();
        assert_rows(&engine, &model, "after the crash");
        assert_eq!(
            engine.check_table(TABLE, CheckDepth::Quick, &|| false).unwrap().faults,
            Vec::<String>::new()
        );
    }
    // The file follows the live bytes: twenty segments for the constant parts.
    let size_bytes = os.open(Path::new("/data/pages"), OpenMode::default());
    let size_bytes = size_bytes.unwrap().len().unwrap();
    let live_bytes = engine.store.stats().live_bytes;
    assert!(size_bytes < live_bytes * 19 / 10 + 20 * (256 << 10), "{size_bytes} for {live_bytes}");
}

/// The log has room for the changes of all pages, memory for those of a few: other pages are written.
#[test]
fn a_pool_too_small_for_what_pages_owe_goes_on() {
    let os = SimOs::new(9);
    let engine = open_with_log(&os, 64 << 20).unwrap();
    engine.create_table(TABLE, spec()).unwrap();
    let table = engine.table(TABLE).unwrap().unwrap();
    let (mut rng, mut model, mut trx) = (SimRng::new(9), Model::new(), engine.begin(1));
    for n in 0..30_000_u32 {
        let key = if n < 10_000 { n } else { rng.below(10_000) as u32 };
        put(&mut trx, &table, &mut model, key, (n, 900 + n as usize % 300)).unwrap();
        if n % 50 == 49 {
            trx.commit(true).unwrap();
            engine.step().unwrap();
            let pool = engine.pool.stats();
            assert!(pool.change_bytes < POOL_BYTES as u64 / 5 * 3, "{pool:?}");
            assert!(pool.frames <= 64 + 64 / 4 + 33, "{pool:?}");
        }
    }
    drop(trx);
    let pool = engine.pool.stats();
    assert!(pool.owed_evictions > 100 && pool.writebacks > 1000, "{pool:?}");
    assert_rows(&engine, &model, "with changes that are owed");
}

/// Inserts rows until the disk is full; answers the error.
fn fill_up(engine: &Arc<Engine>, model: &mut Model, rng: &mut SimRng) -> Error {
    let table = engine.table(TABLE).unwrap().unwrap();
    let mut trx = engine.begin(1);
    let mut key = model.keys().next_back().map_or(0, |k| k + 1);
    for round in 0..100_000 {
        let mut draft = model.clone();
        let outcome = (0..20).try_for_each(|_| {
            key += 1;
            let bytes = if rng.chance(3) { 20_000 } else { 700 };
            put(&mut trx, &table, &mut draft, key, (key, bytes))
        });
        if let Err(error) = outcome {
            // A refused transaction can roll back, or keep its changes.
            if rng.chance(50) {
                trx.rollback();
            } else {
                trx.commit(true).unwrap();
                *model = draft;
            }
            return error;
        }
        trx.commit(true).unwrap();
        *model = draft;
        if round % 5 == 0 {
            // The background meets the full disk as well, and goes on.
            let _ = engine.step();
        }
    }
    panic!("the disk is never full");
}

fn assert_sound(engine: &Engine, context: &str) {
    assert!(!engine.wal.is_poisoned(), "{context}: the log is poisoned");
    assert!(!engine.store.is_poisoned(), "{context}: the store is poisoned");
}

#[test]
fn a_full_disk_refuses_writes_and_deleting_is_enough_to_go_on() {
    // Those from 6 on once had no room left for the checkpoint that would have made some.
    for seed in (0..7).chain([35, 75, 85, 113, 136, 179]) {
        let context = format!("seed {seed}");
        let os = SimOs::new(seed);
        let mut rng = SimRng::new(seed);
        os.set_capacity_bytes(Some((6 << 20) + rng.below(6 << 20)));
        let mut engine = open(&os).unwrap();
        engine.create_table(TABLE, spec()).unwrap();
        let mut model = Model::new();
        for round in 0..3 {
            let error = fill_up(&engine, &mut model, &mut rng);
            assert!(matches!(error, Error::Full { .. }), "{context}: {error}");
            assert_sound(&engine, &context);
            assert_rows(&engine, &model, &context);
            assert!(!model.is_empty(), "{context}: nothing fitted");
            if rng.chance(30) {
                drop(engine);
                os.crash();
                engine = open(&os).unwrap_or_else(|e| panic!("{context}: {e}"));
                assert_rows(&engine, &model, &context);
            }
            if round == 1 && rng.chance(50) {
                engine.truncate_table(TABLE, 1).unwrap();
                model.clear();
            } else {
                // Half of the rows, in small transactions.
                let table = engine.table(TABLE).unwrap().unwrap();
                let mut trx = engine.begin(1);
                let half: Vec<u32> = model.keys().copied().take(model.len() / 2).collect();
                for keys in half.chunks(20) {
                    keys.iter().for_each(|&key| {
                        let deleted = delete(&mut trx, &table, &mut model, key);
                        deleted.unwrap_or_else(|e| panic!("{context}: delete: {e}"));
                    });
                    trx.commit(true).unwrap();
                    let _ = engine.step();
                }
            }
            settle(&engine).unwrap_or_else(|e| panic!("{context}: {e}"));
            let table = engine.table(TABLE).unwrap().unwrap();
            let mut trx = engine.begin(1);
            put(&mut trx, &table, &mut model, 1_000_000 + round, (round, 3000))
                .unwrap_or_else(|e| panic!("{context} round {round}: {e}"));
            trx.commit(true).unwrap();
        }
        engine.shutdown().unwrap();
        drop(engine);
        assert_rows(&open(&os).unwrap(), &model, &context);
    }
}

/// Somebody else fills the disk to the last byte, and empties it again.
#[test]
fn a_disk_filled_by_others_stops_writes_only_while_it_is_full() {
    for seed in 0..6 {
        let context = format!("seed {seed}");
        let os = SimOs::new(seed);
        let mut rng = SimRng::new(seed);
        let engine = open(&os).unwrap();
        engine.create_table(TABLE, spec()).unwrap();
        let table = engine.table(TABLE).unwrap().unwrap();
        let mut model = Model::new();
        for key in 0..3000 {
            let mut trx = engine.begin(1);
            put(&mut trx, &table, &mut model, key, (key, 500)).unwrap();
            trx.commit(true).unwrap();
            if key % 20 == 0 {
                engine.step().unwrap();
            }
        }
        // A transaction is under way when it happens.
        let mut trx = engine.begin(1);
        let mut draft = model.clone();
        for _ in 0..rng.below(200) {
            put(&mut trx, &table, &mut draft, rng.below(3000) as u32, (7, 600)).unwrap();
        }
        os.set_capacity_bytes(Some(os.used_bytes()));
        let mut refused = 0;
        for _ in 0..3000 {
            match put(&mut trx, &table, &mut draft, rng.below(6000) as u32, (8, 600)) {
                Ok(()) => {}
                Err(Error::Full { .. }) => refused += 1,
                Err(error) => panic!("{context}: {error}"),
            }
            if rng.chance(2) {
                let _ = engine.step();
            }
        }
        assert!(refused > 0, "{context}");
        if rng.chance(50) {
            trx.commit(true).unwrap();
            model = draft;
        } else {
            trx.rollback();
        }
        assert_sound(&engine, &context);
        assert_rows(&engine, &model, &context);
        os.set_capacity_bytes(None);
        settle(&engine).unwrap();
        for key in 0..500 {
            put(&mut trx, &table, &mut model, key, (9, 800)).unwrap();
        }
        trx.commit(true).unwrap();
        drop((trx, table, engine));
        os.crash();
        assert_rows(&open(&os).unwrap(), &model, &context);
    }
}

/// What a run acknowledged, and what its last commit would have made of it.
#[derive(Default)]
struct Ledger {
    acknowledged: Model,
    in_doubt: Option<Model>,
    has_table: bool,
}

/// A bit of everything that writes to files. Ends at the first error.
fn workload(engine: &Arc<Engine>, ledger: &mut Ledger) -> Result<()> {
    let mut rng = SimRng::new(11);
    if !ledger.has_table {
        engine.create_table(TABLE, spec())?;
        ledger.has_table = true;
    }
    let table = engine.table(TABLE)?.ok_or(Error::NotFound)?;
    let mut trx = engine.begin(1);
    for round in 0..30_u32 {
        if let Some(certain) = ledger.in_doubt.take() {
            ledger.acknowledged = certain;
        }
        let mut draft = ledger.acknowledged.clone();
        for n in 0..40 {
            let key = rng.below(800) as u32;
            let bytes = if n == 0 { 12_000 } else { 100 + rng.below(900) as usize };
            if rng.chance(20) {
                delete(&mut trx, &table, &mut draft, key)?;
            } else {
                put(&mut trx, &table, &mut draft, key, (round, bytes))?;
            }
        }
        if rng.chance(20) {
            trx.rollback();
        } else {
            ledger.in_doubt = Some(draft);
            trx.commit(true)?;
            ledger.acknowledged = ledger.in_doubt.take().unwrap_or_default();
        }
        engine.step()?;
        match round % 10 {
            3 => engine.checkpoint_now()?,
            5 => match engine.create_table(OTHER, spec()) {
                Err(Error::Exists) => {}
                other => other?,
            },
            8 => drop(engine.drop_table(OTHER)?),
            _ => drop(engine.store.gc_step(64 << 10)?),
        }
    }
    settle(engine)
}

/// Calls that change something in an undisturbed run: (when it was open, at its end).
fn undisturbed() -> (u64, u64) {
    let os = SimOs::new(5);
    let engine = open(&os).unwrap();
    let opened = os.mutations();
    workload(&engine, &mut Ledger::default()).unwrap();
    engine.shutdown().unwrap();
    (opened, os.mutations())
}

/// Numbers of the calls to fail: as many as `SLUICE_FAULTS` says, evenly spread.
fn fault_points(from: u64, to: u64) -> impl Iterator<Item = u64> {
    let wanted = std::env::var("SLUICE_FAULTS").ok().and_then(|s| s.parse().ok()).unwrap_or(150);
    let step = ((to - from) / wanted).max(1);
    (from..to).step_by(step as usize)
}

fn assert_survives(os: &Arc<SimOs>, ledger: &Ledger, context: &str) {
    os.clear_fault();
    os.crash();
    let engine = open(os).unwrap_or_else(|e| panic!("{context}: reopening: {e}"));
    let found = rows(&engine, TABLE).unwrap_or_else(|e| panic!("{context}: {e}"));
    let Some(found) = found else {
        assert!(!ledger.has_table, "{context}: the table is gone");
        return;
    };
    let certain = ledger.in_doubt.as_ref() == Some(&found);
    assert!(certain || found == ledger.acknowledged, "{context}: other rows than acknowledged");
    assert_eq!(
        engine.check_table(TABLE, CheckDepth::Quick, &|| false).unwrap().faults,
        Vec::<String>::new(),
        "{context}"
    );
}

#[test]
fn a_failed_call_anywhere_loses_nothing_and_acknowledges_nothing_false() {
    let (from, to) = undisturbed();
    assert!(to - from > 120, "{from} to {to}: too little to fail");
    let mut poisoned = 0;
    for k in fault_points(from, to) {
        let context = format!("call {k} fails");
        let os = SimOs::new(5);
        let engine = open(&os).unwrap();
        assert_eq!(os.mutations(), from, "an undisturbed run is always the same");
        os.fail_after(k - from, Fault::IoError);
        let mut ledger = Ledger::default();
        let outcome = workload(&engine, &mut ledger).and_then(|()| engine.shutdown());
        // Only what nobody needs any more may fail without an error.
        let stopped = engine.wal.is_poisoned() || engine.store.is_poisoned();
        poisoned += u64::from(stopped);
        if let Err(error) = &outcome {
            assert!(
                matches!(error, Error::Io { .. } | Error::Poisoned { .. }),
                "{context}: {error}"
            );
        }
        if stopped {
            let again = workload(&engine, &mut Ledger { has_table: true, ..Ledger::default() });
            assert!(again.is_err(), "{context}: a poisoned engine works on");
        }
        drop(engine);
        assert_survives(&os, &ledger, &context);
    }
    assert!(poisoned > 50, "{poisoned}");
}

#[test]
fn a_disk_full_from_any_call_on_poisons_nothing() {
    let (from, to) = undisturbed();
    for k in fault_points(from, to) {
        let context = format!("full from call {k} on");
        let os = SimOs::new(5);
        let engine = open(&os).unwrap();
        os.fail_after(k - from, Fault::DiskFull);
        let mut ledger = Ledger::default();
        if let Err(error) = workload(&engine, &mut ledger) {
            assert!(matches!(error, Error::Full { .. }), "{context}: {error}");
        }
        assert_sound(&engine, &context);
        os.clear_fault();
        // The commit that was refused is in the log's memory; it may still become durable.
        let mut ledger = Ledger { has_table: ledger.has_table, ..ledger };
        if let (Some(draft), Ok(Some(found))) = (ledger.in_doubt.take(), rows(&engine, TABLE)) {
            if found == draft {
                ledger.acknowledged = draft;
            }
        }
        workload(&engine, &mut ledger).unwrap_or_else(|e| panic!("{context}: afterwards: {e}"));
        drop(engine);
        assert_survives(&os, &ledger, &context);
    }
}
