//! What a rollback costs, then and later. `SLUICE_BENCH_ROWS=1000000` with `--release` and
//! `--nocapture` makes `revert_against_its_transaction` a benchmark.

use super::*;
use crate::os::RealOs;
use crate::txn::Mode;
use std::time::Instant;

const PAGE_TOUCHES_MAX: u64 = 4;

fn plain_row(id: u32, value: u8) -> Row {
    Row { id, plain: value, unique: 0, filler: 100 }
}

/// One clustered and one secondary index.
fn bench_spec() -> TableSpec {
    TableSpec { indexes: vec![IndexSpec { unique: true }, IndexSpec { unique: false }], ..spec() }
}

fn with_two<R>(row: &Row, f: impl FnOnce(&RowWrite<'_>) -> R) -> R {
    let images = row.images();
    let entry =
        |i: usize, unique| Entry { key: &images.keys[i], payload: &images.payloads[i], unique };
    f(&RowWrite { entries: &[entry(0, true), entry(1, false)] })
}

fn insert_all(trx: &mut Trx, table: &Table, rows: u32) {
    for id in 0..rows {
        with_two(&plain_row(id, 1), |w| trx.insert(table, w)).unwrap();
    }
}

fn update_all(trx: &mut Trx, table: &Table, rows: u32) {
    for id in 0..rows {
        let (old, new) = (plain_row(id, 1), plain_row(id, 2));
        with_two(&old, |o| with_two(&new, |n| trx.update(table, o, n))).unwrap();
    }
}

/// Records logged and pages touched.
fn work(engine: &Engine) -> (u64, u64) {
    let pool = engine.pool.stats();
    (engine.wal.stats().records, pool.hits + pool.misses)
}

#[test]
fn a_rollback_does_the_same_work_whatever_was_written() {
    let os = SimOs::new(3);
    let engine = open(&os).unwrap();
    engine.create_table(TABLE, bench_spec()).unwrap();
    let table = engine.table(TABLE).unwrap().unwrap();
    for rows in [1, 3000] {
        let mut trx = engine.begin(1);
        insert_all(&mut trx, &table, rows);
        let before = work(&engine);
        trx.rollback();
        let after = work(&engine);
        assert_eq!(after.0 - before.0, 1, "one record for {rows} rows");
        assert!(after.1 - before.1 <= PAGE_TOUCHES_MAX, "pages touched for {rows} rows");
        assert_eq!(scan(&mut engine.begin(2), &table, 0, Direction::Forward), []);
        while engine.ctx.revert_step(100).unwrap() {}
    }
}

/// An engine with a transaction of `rows` updates that was rolled back and is not yet reverted;
/// most of its log is no longer in memory.
fn rolled_back(rows: u32, log_capacity_bytes: u64) -> (Arc<Engine>, Arc<Table>) {
    let mut config = Config::new("/data");
    config.background = false;
    config.buffer_pool_bytes = 8 << 20;
    config.log_capacity_bytes = log_capacity_bytes;
    let geometry = Geometry {
        log_segment_bytes: 64 << 10,
        log_cache_bytes: 256 << 10,
        store_segment_bytes: 64 << 10,
    };
    let engine = Engine::open_with(SimOs::new(5), config, geometry, Arc::new(NoHost)).unwrap();
    engine.create_table(TABLE, bench_spec()).unwrap();
    let table = engine.table(TABLE).unwrap().unwrap();
    let mut trx = engine.begin(1);
    insert_all(&mut trx, &table, rows);
    trx.commit(true).unwrap();
    update_all(&mut trx, &table, rows);
    trx.rollback();
    engine.flush_log().unwrap();
    (engine, table)
}

#[test]
fn a_scan_of_rolled_back_rows_reads_the_log_in_pieces() {
    const ROWS: u32 = 5000;
    for direction in [Direction::Forward, Direction::Backward] {
        for locks in [false, true] {
            let (engine, table) = rolled_back(ROWS, 64 << 20);
            let before = engine.wal.stats();
            let mut trx = engine.begin(2);
            let mode = match locks {
                false => ReadMode::Snapshot,
                true => ReadMode::Lock { exclusive: true, wait: WaitPolicy::Wait },
            };
            let mut cursor = Cursor::default();
            let all = (Bound::Unbounded, Bound::Unbounded);
            trx.seek(&mut cursor, &table, 0, all.0, all.1, direction, mode).unwrap();
            let mut seen = 0;
            while trx.next(&mut cursor).unwrap() {
                seen += 1;
            }
            assert_eq!(seen, ROWS);
            let after = engine.wal.stats();
            let single = after.disk_reads - before.disk_reads;
            let pieces = after.ahead_reads - before.ahead_reads;
            assert!(pieces > 0, "nothing was read from the disk");
            assert!(single + pieces <= 100, "{single} reads and {pieces} of pieces, {direction:?}");
        }
    }
}

#[test]
fn what_is_being_reverted_is_not_moved() {
    let (engine, table) = rolled_back(3000, 1 << 20);
    assert!(engine.move_target().is_some(), "there is more log than it should keep");
    assert!(engine.ctx.revert_step(10).unwrap());
    let mut reader = engine.begin(2);
    reader.open_snapshot();
    assert_eq!(engine.move_target(), None, "the revert goes on");
    while engine.ctx.revert_step(100).unwrap() {}
    assert_eq!(scan(&mut reader, &table, 0, Direction::Forward).len(), 3000);
    assert_eq!(engine.ctx.old.stats().moved, 0);
}

#[test]
fn the_revert_rests_for_sessions_unless_it_falls_behind() {
    let (engine, table) = rolled_back(3000, 64 << 20);
    assert_eq!(engine.revert_rests(), 0, "nobody is there to rest for");
    let mut reader = engine.begin(2);
    reader.open_snapshot();
    assert_eq!(engine.revert_rests(), 8, "a reader");
    assert_eq!(scan(&mut reader, &table, 0, Direction::Forward).len(), 3000);
    assert_eq!(engine.revert_rests(), 0, "it came across all of it");
    assert_eq!(engine.revert_rests(), 8, "and no more");
    drop(reader);
    let mut writer = engine.begin(3);
    with_two(&plain_row(5000, 1), |w| writer.insert(&table, w)).unwrap();
    assert_eq!(engine.revert_rests(), 8, "a writer");
    let (old, new) = (plain_row(7, 1), plain_row(7, 3));
    with_two(&old, |o| with_two(&new, |n| writer.update(&table, o, n))).unwrap();
    assert!(engine.revert_rests() < 8, "it took a row back");
    writer.rollback();
    let mut reader = engine.begin(4);
    reader.open_snapshot();
    assert_eq!(engine.revert_rests(), 0, "a second one waits");

    let (engine, _) = rolled_back(3000, 512 << 10);
    let mut reader = engine.begin(2);
    reader.open_snapshot();
    assert_eq!(engine.revert_rests(), 0, "the log is full");
    while engine.ctx.revert_step(100).unwrap() {}
    drop(reader);
    engine.checkpoint_now().unwrap();
    assert!(!engine.versions_fill_log());
}

/// Seconds since `begin`.
fn seconds(begin: Instant) -> f64 {
    begin.elapsed().as_secs_f64()
}

fn count_rows(engine: &Arc<Engine>, table: &Arc<Table>) -> usize {
    scan(&mut engine.begin(3), table, 0, Direction::Forward).len()
}

#[test]
fn revert_against_its_transaction() {
    let rows = std::env::var("SLUICE_BENCH_ROWS").ok().and_then(|s| s.parse().ok()).unwrap_or(3000);
    let dir = std::env::current_exe().unwrap().parent().unwrap().join("../../tmp");
    let dir = dir.join(format!("sluice-revert-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let mut config = Config::new(&dir);
    config.buffer_pool_bytes = 512 << 20;
    let engine = Engine::open(RealOs::new(), config, Arc::new(NoHost)).unwrap();
    engine.create_table(TABLE, bench_spec()).unwrap();
    let table = engine.table(TABLE).unwrap().unwrap();
    for kind in ["insert", "update"] {
        let begin = Instant::now();
        let mut trx = engine.begin(1);
        match kind {
            "insert" => insert_all(&mut trx, &table, rows),
            _ => {
                insert_all(&mut trx, &table, rows);
                trx.commit(true).unwrap();
            }
        }
        let mut wrote = seconds(begin);
        if kind == "update" {
            let begin = Instant::now();
            update_all(&mut trx, &table, rows);
            wrote = seconds(begin);
        }
        let begin = Instant::now();
        trx.rollback();
        let rolled_back = begin.elapsed();
        let begin = Instant::now();
        let found = count_rows(&engine, &table);
        let scanned = seconds(begin);
        assert_eq!(found, if kind == "update" { rows as usize } else { 0 });
        let begin_wait = Instant::now();
        while !engine.ctx.to_revert.lock().is_empty() {
            assert!(begin_wait.elapsed().as_secs() < 600, "the revert does not end");
            std::thread::sleep(Duration::from_millis(1));
        }
        let reverted = scanned + seconds(begin_wait);
        println!(
            "{kind} of {rows} rows: {wrote:.2} s, rollback {rolled_back:?}, scan right after \
             {scanned:.2} s, reverted {reverted:.2} s after the rollback"
        );
    }
    assert_eq!(count_rows(&engine, &table), rows as usize);
    engine.shutdown().unwrap();
    drop((table, engine));
    std::fs::remove_dir_all(&dir).unwrap();
}

const LOCK: ReadMode = ReadMode::Lock { exclusive: true, wait: WaitPolicy::Wait };

/// The ids that a locking scan of the clustered index finds.
fn locked_ids(trx: &mut Trx, table: &Arc<Table>) -> Result<Vec<u32>> {
    let mut cursor = Cursor::default();
    let all = Bound::Unbounded;
    trx.seek(&mut cursor, table, 0, all, all, Direction::Forward, LOCK)?;
    let mut out = Vec::new();
    while trx.next(&mut cursor)? {
        out.push(Row::read(cursor.key(), cursor.payload()).id);
    }
    Ok(out)
}

/// Rows that are rolled back and not reverted yet are no fault, however many follow each other.
#[test]
fn a_locking_scan_passes_any_number_of_rolled_back_rows() {
    let os = SimOs::new(4);
    let engine = open(&os).unwrap();
    engine.create_table(TABLE, bench_spec()).unwrap();
    let table = engine.table(TABLE).unwrap().unwrap();
    let mut trx = engine.begin(1);
    insert_all(&mut trx, &table, 3000);
    trx.rollback();
    with_two(&plain_row(5000, 1), |w| trx.insert(&table, w)).unwrap();
    trx.commit(true).unwrap();
    assert_eq!(locked_ids(&mut engine.begin(2), &table).unwrap(), [5000]);
}

/// A statement that is undone leaves the transaction's earlier versions. Waiters for their rows
/// go on waiting.
#[test]
fn an_undone_statement_keeps_the_rows_that_the_transaction_still_has() {
    let os = SimOs::new(5);
    let engine = open(&os).unwrap();
    engine.create_table(TABLE, bench_spec()).unwrap();
    let table = engine.table(TABLE).unwrap().unwrap();
    let mut writer = engine.begin(1);
    with_two(&plain_row(7, 1), |w| writer.insert(&table, w)).unwrap();
    let savepoint = writer.savepoint();
    let (old, new) = (plain_row(7, 1), plain_row(7, 2));
    with_two(&old, |o| with_two(&new, |n| writer.update(&table, o, n))).unwrap();
    let waits = || engine.ctx.locks.stats().waits;
    let before = waits();
    let scan = std::thread::spawn({
        let (engine, table) = (Arc::clone(&engine), Arc::clone(&table));
        move || locked_ids(&mut engine.begin(2), &table)
    });
    let begin = Instant::now();
    while waits() == before {
        assert!(begin.elapsed().as_secs() < 60, "the scan does not wait");
        std::thread::yield_now();
    }
    writer.rollback_to(savepoint).unwrap();
    let waiter = engine.ctx.locks.owner_of(writer.id().unwrap()).unwrap();
    assert!(engine.ctx.locks.holds(
        &waiter,
        table.gates[0].id(),
        &7u32.to_be_bytes(),
        Mode::Exclusive
    ));
    writer.commit(true).unwrap();
    assert_eq!(scan.join().unwrap().unwrap(), [7]);
}
