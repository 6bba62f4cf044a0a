//! What a rollback costs, then and later. `SLUICE_BENCH_ROWS=1000000` with `--release` and
//! `--nocapture` makes `revert_against_its_transaction` a benchmark.

use super::*;
use crate::os::RealOs;
use crate::txn::LockMode;
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
    let entry = |i: usize, unique| Entry {
        key: &images.keys[i],
        payload: &images.payloads[i],
        parts: &[],
        unique,
    };
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

/// Others log so much, in another table.
fn others_log(engine: &Arc<Engine>, bytes: u64) {
    engine.create_table("db/other", bench_spec()).unwrap();
    let table = engine.table("db/other").unwrap().unwrap();
    let mut trx = engine.begin(9);
    let end = engine.wal.end().0 + bytes;
    for id in 0.. {
        with_two(&plain_row(id, 1), |w| trx.insert(&table, w)).unwrap();
        trx.commit(false).unwrap();
        if engine.wal.end().0 > end {
            return;
        }
    }
}

/// A packed log holds more versions in the same bytes of its files, which are what its capacity bounds.
#[test]
fn versions_move_by_the_bytes_of_the_files() {
    const CAPACITY_BYTES: u64 = 4 << 20;
    let (engine, table) = rolled_back(10, CAPACITY_BYTES);
    while engine.ctx.revert_step(100).unwrap() {}
    engine.set_log_compression(LogCompression::Lz4);
    engine.step().unwrap();
    let mut reader = engine.begin(2);
    reader.open_snapshot();
    let low = engine.ctx.lowest_pin().unwrap();
    let kept = || engine.wal.end().0 - low.0;
    let mut writer = engine.begin(3);
    let (mut most_in_memory, mut ids) = (0, 10..);
    let target = loop {
        for id in ids.by_ref().take(100) {
            with_two(&plain_row(id, 1), |w| writer.insert(&table, w)).unwrap();
        }
        writer.commit(true).unwrap();
        if let Some(target) = engine.move_target() {
            break target;
        }
        most_in_memory = kept();
        assert!(engine.wal.file_bytes_from(low) <= CAPACITY_BYTES, "nothing is to move ever");
    };
    assert!(most_in_memory > CAPACITY_BYTES / 2, "they would move at {most_in_memory} bytes");
    let left = engine.wal.file_bytes_from(target);
    assert!((CAPACITY_BYTES / 16..=CAPACITY_BYTES / 8).contains(&left), "{left} bytes are left");
    assert_eq!(scan(&mut reader, &table, 0, Direction::Forward).len(), 10);
}

#[test]
fn what_is_being_reverted_is_not_moved() {
    let (engine, table) = rolled_back(3000, 1 << 20);
    assert_eq!(engine.move_target(), None, "it is nearly all its own");
    others_log(&engine, 4 << 20);
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
    assert_eq!(engine.revert_rests(), 8, "the log holds what is to be reverted");
    others_log(&engine, 4 << 20);
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
        LockMode::Exclusive
    ));
    writer.commit(true).unwrap();
    assert_eq!(scan.join().unwrap().unwrap(), [7]);
}

/// The row's id and `plain` if it can be locked at once.
fn try_row(engine: &Arc<Engine>, table: &Table, id: u32, exclusive: bool) -> Option<u8> {
    let mut trx = engine.begin(9);
    trx.set_lock_timeout(std::time::Duration::ZERO);
    let mode = ReadMode::Lock { exclusive, wait: WaitPolicy::Wait };
    let (key, mut payload) = (id.to_be_bytes(), Vec::new());
    match trx.get(table, 0, &key, mode, &mut payload) {
        Ok(true) => Some(Row::read(&key, &payload).plain),
        Ok(false) => panic!("row {id} is not there"),
        Err(error) => {
            assert!(matches!(error, Error::LockTimeout), "{error:?}");
            None
        }
    }
}

/// A transaction at READ COMMITTED, in a table with the rows 0 to 19.
fn in_a_statement() -> (Arc<Engine>, Arc<Table>, Trx) {
    let engine = open(&SimOs::new(6)).unwrap();
    engine.create_table(TABLE, bench_spec()).unwrap();
    let table = engine.table(TABLE).unwrap().unwrap();
    let mut trx = engine.begin(1);
    insert_all(&mut trx, &table, 20);
    trx.commit(true).unwrap();
    trx.set_isolation(Isolation::ReadCommitted);
    trx.statement_start();
    (engine, table, trx)
}

/// Locks the row by its entry in one index, or in both, and updates it.
fn ask_and_update(trx: &mut Trx, table: &Table, id: u32, by: &[usize], value: u8) {
    let mut payload = Vec::new();
    let images = plain_row(id, 1).images();
    for &index in by {
        assert!(trx.get(table, index, &images.keys[index], LOCK, &mut payload).unwrap());
    }
    let (old, new) = (plain_row(id, 1), plain_row(id, value));
    with_two(&old, |o| with_two(&new, |n| trx.update(table, o, n))).unwrap();
}

/// As InnoDB: a statement that fails keeps the rows that it had locked, although their locks were
/// let go of when its id came into their entries. Rows that it inserted are free.
#[test]
fn an_undone_statement_keeps_the_locks_that_it_had_asked_for() {
    let (engine, table, mut trx) = in_a_statement();
    let inserted = plain_row(50, 1);
    with_two(&inserted, |w| trx.insert(&table, w)).unwrap();
    (3..7).for_each(|id| ask_and_update(&mut trx, &table, id, &[0], 2));
    assert!(engine.ctx.locks.stats().rows <= 1, "{:?}", engine.ctx.locks.stats());
    trx.statement_rollback().unwrap();
    assert_eq!(engine.ctx.locks.stats().rows, 4, "one for each row, none for other entries");
    for id in 0..20 {
        let is_free = !(3..7).contains(&id);
        assert_eq!(try_row(&engine, &table, id, true), is_free.then_some(1), "row {id}");
        assert_eq!(try_row(&engine, &table, id, false), is_free.then_some(1), "row {id}");
    }
    with_two(&inserted, |w| engine.begin(3).insert(&table, w)).unwrap();
    trx.commit(true).unwrap();
    assert_eq!(try_row(&engine, &table, 5, true), Some(1));
    assert_eq!(engine.ctx.locks.stats().rows, 0);
}

/// A waiter for a row of the statement goes on waiting, for the lock that has come back.
#[test]
fn who_waits_for_a_row_of_an_undone_statement_goes_on_waiting() {
    let (engine, table, mut trx) = in_a_statement();
    ask_and_update(&mut trx, &table, 3, &[0], 2);
    ask_and_update(&mut trx, &table, 4, &[0], 2);
    let waits = || engine.ctx.locks.stats().waits;
    let before = waits();
    let waiter = std::thread::spawn({
        let (engine, table) = (Arc::clone(&engine), Arc::clone(&table));
        move || locked_ids(&mut engine.begin(2), &table).map(|ids| ids.len())
    });
    while waits() == before {
        std::thread::yield_now();
    }
    trx.statement_rollback().unwrap();
    let owner = engine.ctx.locks.owner_of(trx.id().unwrap()).unwrap();
    let (tree, key) = (table.gates[0].id(), 3_u32.to_be_bytes());
    assert!(engine.ctx.locks.holds(&owner, tree, &key, LockMode::Exclusive));
    assert!(!waiter.is_finished());
    trx.commit(true).unwrap();
    assert_eq!(waiter.join().unwrap().unwrap(), 20);
}

/// So does ROLLBACK TO SAVEPOINT, over several statements. Entries of other indexes are locked
/// again if the statement had come by them.
#[test]
fn a_rollback_to_a_savepoint_keeps_the_locks_that_were_asked_for() {
    for by_index in [false, true] {
        let (engine, table, mut trx) = in_a_statement();
        let savepoint = trx.savepoint();
        let by: &[usize] = if by_index { &[1, 0] } else { &[0] };
        for statement in 0..3 {
            trx.statement_start();
            (0..4).for_each(|row| ask_and_update(&mut trx, &table, statement * 4 + row, by, 2));
        }
        trx.rollback_to(savepoint).unwrap();
        assert_eq!(engine.ctx.locks.stats().rows, if by_index { 24 } else { 12 });
        for id in 0..20 {
            assert_eq!(try_row(&engine, &table, id, true), (id >= 12).then_some(1), "row {id}");
        }
        trx.rollback();
        assert_eq!(engine.ctx.locks.stats().rows, 0);
        assert_eq!(try_row(&engine, &table, 2, true), Some(1));
    }
}

/// An interval that the statement has over its rows is their lock: no others come beside it.
#[test]
fn an_undone_statement_takes_no_locks_that_its_intervals_are() {
    let (engine, table, mut trx) = in_a_statement();
    trx.rollback();
    trx.set_isolation(Isolation::RepeatableRead);
    trx.statement_start();
    ask_and_update(&mut trx, &table, 19, &[0], 2);
    assert_eq!(locked_ids(&mut trx, &table).unwrap().len(), 20);
    (0..10).for_each(|id| ask_and_update(&mut trx, &table, id, &[0], 2));
    trx.statement_rollback().unwrap();
    let locks = engine.ctx.locks.stats();
    assert!(locks.rows == 0 && locks.intervals == 1, "{locks:?}");
    assert_eq!(try_row(&engine, &table, 3, false), None);
}

/// Waits until one more session stands in line than `before`.
fn in_line(engine: &Engine, before: u64) {
    while engine.ctx.locks.stats().waits == before {
        std::thread::yield_now();
    }
}

/// The answer of an insert that waits until `other` is rolled back.
fn insert_in_turn(
    engine: &Engine,
    other: &mut Trx,
    insert: impl FnOnce() -> Result<()> + Send,
) -> Result<()> {
    let before = engine.ctx.locks.stats().waits;
    std::thread::scope(|scope| {
        let insert = scope.spawn(insert);
        in_line(engine, before);
        other.rollback();
        insert.join().unwrap()
    })
}

/// An insert that waited for a gap leaves no more behind than one that did not: those who wait for
/// its row go on when it is undone.
#[test]
fn waiters_for_an_undone_row_go_on_also_if_its_insert_had_waited() {
    for index in [0, 1] {
        let (engine, table, mut writer) = in_a_statement();
        with_two(&plain_row(61, 1), |w| writer.insert(&table, w)).unwrap();
        let savepoint = writer.savepoint();
        let row = plain_row(50, 2);
        let key = row.images().keys[index].clone();
        let at = (Bound::Included(&key[..]), Bound::Included(&key[..]));
        let (locks, tree) = (&engine.ctx.locks, table.gates[index].id());
        let mut other = engine.begin(2);
        locks.try_lock_range(&other.session.owner, tree, at, LockMode::Shared).unwrap();
        let insert = || with_two(&row, |w| writer.insert(&table, w));
        insert_in_turn(&engine, &mut other, insert).unwrap();
        let before = locks.stats().waits;
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let mut reader = engine.begin(3);
                reader.set_lock_timeout(Duration::from_secs(10));
                let mut cursor = Cursor::default();
                reader.seek(&mut cursor, &table, index, at.0, at.1, Direction::Forward, LOCK)?;
                reader.next(&mut cursor)
            });
            in_line(&engine, before);
            writer.rollback_to(savepoint).unwrap();
            assert!(!reader.join().unwrap().expect("the row is free"), "index {index}");
        });
        assert_eq!(locks.stats().rows, 0, "index {index}");
    }
}

/// The same where a later index refuses the row, and where a REPLACE waited for another insert.
#[test]
fn an_insert_that_waited_and_is_undone_holds_no_row() {
    for replaces in [false, true] {
        let engine = open(&SimOs::new(6)).unwrap();
        engine.create_table(TABLE, spec()).unwrap();
        let table = engine.table(TABLE).unwrap().unwrap();
        insert_rows(&engine, &table, 0..3, 10);
        let (mut writer, mut other) = (engine.begin(1), engine.begin(2));
        writer.set_replace(replaces);
        writer.statement_start();
        let row = Row { id: 50, plain: 0, unique: if replaces { 50 } else { 2 }, filler: 10 };
        let key = &row.images().keys[0][..];
        let (locks, tree) = (&engine.ctx.locks, table.gates[0].id());
        if replaces {
            row.images().with(|w| other.insert(&table, w)).unwrap();
        } else {
            let at = (Bound::Included(key), Bound::Included(key));
            locks.try_lock_range(&other.session.owner, tree, at, LockMode::Shared).unwrap();
        }
        let insert = || row.images().with(|w| writer.insert(&table, w));
        let answer = insert_in_turn(&engine, &mut other, insert);
        assert_eq!(answer.is_ok(), replaces, "{answer:?}");
        if replaces {
            writer.statement_rollback().unwrap();
        }
        assert!(!locks.holds(&writer.session.owner, tree, key, LockMode::Shared), "{replaces}");
    }
}
