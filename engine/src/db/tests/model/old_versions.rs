//! Versions that outlive their log: snapshots and transactions that stay open while several times
//! the log's capacity is written.

use super::*;
use crate::base::{EntryHeader, Error, PageId};
use crate::txn::OLD_VERSIONS_TREE;

const SEGMENT_BYTES: u64 = 64 << 10;
/// The last batch of the log, which is kept, may be longer than a segment.
const BATCH_BYTES: u64 = 256 << 10;
pub(super) const CAPACITY_BYTES: u64 = 512 << 10;

pub(super) fn kept_log_bytes(engine: &Engine) -> u64 {
    let log = engine.wal.stats();
    log.end.0 - log.oldest.0
}

fn entries_in(engine: &Engine, tree: crate::base::TreeId) -> usize {
    let gate = engine.ctx.trees.get(tree).unwrap();
    let mut from: Bound<Vec<u8>> = Bound::Unbounded;
    let mut count = 0;
    loop {
        let bound = from.as_ref().map(|k| &k[..]);
        let end = gate.tree().scan_leaf(bound, Direction::Forward, &mut |_, _| {
            count += 1;
            std::ops::ControlFlow::Continue(())
        });
        match end.unwrap() {
            crate::btree::LeafEnd::Next(fence) => from = Bound::Included(fence),
            _ => return count,
        }
    }
}

/// A row that no random row collides with.
pub(super) fn apart(n: u16) -> Row {
    Row { id: 1000 + u32::from(n), plain: 9, unique: 1000 + n, filler: 300 }
}

/// The row of [`apart`] with another filler.
pub(super) fn filled(n: u16, filler: usize) -> Row {
    Row { filler, ..apart(n) }
}

pub(super) fn fill(trx: &mut Trx, table: &Table, n: u16, old: usize, new: usize) {
    let (old, new) = (filled(n, old).images(), filled(n, new).images());
    old.with(|old| new.with(|new| trx.update(table, old, new))).unwrap();
}

/// Updates row 0 until the log has grown by twice its capacity, and leaves the row as it was. Versions
/// are moved; nothing is swept.
fn log_moves_on(engine: &Engine, writer: &mut Trx, table: &Table) {
    let end = engine.wal.end().0 + 2 * CAPACITY_BYTES;
    for turn in 0.. {
        fill(writer, table, 0, 300 + turn % 2, 301 - turn % 2);
        writer.commit(true).unwrap();
        if let Some(target) = engine.move_target() {
            engine.ctx.move_step(target, &engine.sweep).unwrap();
        }
        if turn % 50 == 0 {
            engine.checkpoint_now().unwrap();
            engine.release_log();
            while engine.wal.prepare_step().unwrap() {}
        }
        if turn % 2 == 1 && engine.wal.end().0 > end {
            return;
        }
    }
}

/// Writes rows of its own and stays open; answers a savepoint in the middle.
fn stay_open(engine: &Arc<Engine>, table: &Arc<Table>) -> (Trx, Savepoint) {
    let mut trx = engine.begin(50);
    for n in 0..10 {
        apart(n).images().with(|w| trx.insert(table, w)).unwrap();
    }
    let savepoint = trx.savepoint();
    for n in 5..15 {
        let old = apart(n).images();
        match n < 10 {
            true => old.with(|w| trx.delete(table, w)).unwrap(),
            false => old.with(|w| trx.insert(table, w)).unwrap(),
        }
    }
    (trx, savepoint)
}

/// Random transactions until the log has grown by `bytes`, with background steps between. The
/// kept log stays within bounds all the time.
fn write_log(
    rng: &mut SimRng,
    engine: &Arc<Engine>,
    table: &Arc<Table>,
    model: &mut Model,
    in_doubt: &mut Model,
    bytes: u64,
) -> Result<()> {
    let mut writer = engine.begin(1);
    let end = engine.wal.end().0 + bytes;
    while engine.wal.end().0 < end {
        for _ in 0..3 {
            let mut draft = model.clone();
            transaction(rng, &mut writer, table, &mut draft)?;
            if rng.chance(10) {
                writer.rollback();
            } else {
                in_doubt.clone_from(&draft);
                writer.commit(true)?;
                *model = draft;
            }
        }
        engine.step()?;
        let kept = kept_log_bytes(engine);
        assert!(kept <= 2 * CAPACITY_BYTES, "{kept} bytes of log are kept");
    }
    Ok(())
}

pub(super) fn settle(engine: &Engine) {
    for _ in 0..20 {
        engine.step().unwrap();
        while engine.ctx.revert_step(100).unwrap() {}
        while engine.ctx.purge_step(100).unwrap() {}
        while engine.ctx.sweep_step(&engine.sweep).unwrap() {}
        engine.checkpoint_now().unwrap();
    }
}

/// Nothing is left but the rows: no moved version and no delete mark.
pub(super) fn assert_tidy(engine: &Engine, table: &Table, rows: usize) {
    assert_eq!(entries_in(engine, OLD_VERSIONS_TREE), 0, "old versions");
    for gate in &table.gates {
        assert_eq!(entries_in(engine, gate.id()), rows, "entries of {:?}", gate.id());
    }
    assert!(kept_log_bytes(engine) <= 3 * SEGMENT_BYTES + BATCH_BYTES);
}

fn hold(seed: u64) {
    let os = SimOs::new(seed);
    let mut rng = SimRng::new(seed);
    let engine = open(&os).unwrap();
    engine.create_table(TABLE, spec()).unwrap();
    let table = engine.table(TABLE).unwrap().unwrap();
    let mut model = Model::new();
    write_log(&mut rng, &engine, &table, &mut model, &mut Model::new(), 100 << 10).unwrap();
    let mut readers: Vec<(Trx, Model)> = Vec::new();
    let (mut open, savepoint) = stay_open(&engine, &table);
    for round in 0..6 {
        let mut reader = engine.begin(100 + round);
        reader.open_snapshot();
        readers.push((reader, model.clone()));
        write_log(&mut rng, &engine, &table, &mut model, &mut Model::new(), CAPACITY_BYTES)
            .unwrap();
        for (reader, seen) in &mut readers {
            assert_is(reader, &table, seen, "old snapshot");
        }
        if rng.chance(40) {
            let at = rng.below(readers.len() as u64) as usize;
            readers.remove(at);
        }
    }
    let stats = engine.ctx.old.stats();
    assert!(stats.moved > 0 && stats.reads > 0, "{stats:?}");
    assert!(engine.ctx.registry.oldest_lsn().unwrap() < engine.wal.oldest());
    open.rollback_to(savepoint).unwrap();
    let mut with_own = model.clone();
    with_own.extend((0..10).map(|n| (apart(n).id, apart(n))));
    assert_is(&mut open, &table, &with_own, "after the partial rollback");
    if rng.chance(50) {
        open.rollback();
    } else {
        open.commit(true).unwrap();
        model = with_own;
    }
    for (reader, seen) in &mut readers {
        assert_is(reader, &table, seen, "old snapshot at the end");
    }
    drop((readers, open));
    settle(&engine);
    assert_is(&mut engine.begin(7), &table, &model, "at the end");
    assert_tidy(&engine, &table, model.len());
}

#[test]
fn the_log_stays_bounded_under_an_old_snapshot_and_an_open_transaction() {
    for seed in 0..6 {
        hold(seed);
    }
}

/// A sweep that a fault stops goes on where it stopped: nothing else may ever begin another one.
#[test]
fn a_sweep_goes_on_after_a_fault() {
    let os = SimOs::new(4);
    let mut rng = SimRng::new(4);
    let engine = open(&os).unwrap();
    engine.create_table(TABLE, spec()).unwrap();
    let table = engine.table(TABLE).unwrap().unwrap();
    let mut model = Model::new();
    let write = |rng: &mut SimRng, model: &mut Model| {
        write_log(rng, &engine, &table, model, &mut Model::new(), 3 * CAPACITY_BYTES).unwrap();
    };
    write(&mut rng, &mut model);
    let mut reader = engine.begin(100);
    reader.open_snapshot();
    write(&mut rng, &mut model);
    assert!(entries_in(&engine, OLD_VERSIONS_TREE) > 0);
    drop(reader);
    let mut faults = 0;
    for n in 0..1000 {
        let fails = n % 2 == 1 && faults < 3;
        if fails {
            // Nothing is in memory only.
            engine.checkpoint_now().unwrap();
            (1..engine.env.next_page().0).for_each(|page| engine.pool.discard(PageId(page)));
        }
        os.fail_reads_of(fails.then_some("pages"));
        faults += usize::from(engine.ctx.sweep_step(&engine.sweep).is_err());
    }
    os.fail_reads_of(None);
    assert!(faults > 0, "no page was read");
    settle(&engine);
    assert_is(&mut engine.begin(7), &table, &model, "at the end");
    assert_tidy(&engine, &table, model.len());
}

/// Rows that exist, and keys that come and go after an old snapshot: it keeps what it sees, not
/// what was never there for it. Some changes are rolled back, over marks that are purged meanwhile.
fn churn_keys(seed: u64) {
    const ROWS: u16 = 30;
    let os = SimOs::new(seed);
    let mut rng = SimRng::new(seed);
    let engine = open(&os).unwrap();
    engine.create_table(TABLE, spec()).unwrap();
    let table = engine.table(TABLE).unwrap().unwrap();
    let mut writer = engine.begin(1);
    let mut model = Model::new();
    for n in 0..ROWS {
        let row = Row { id: u32::from(n), plain: 0, unique: n, filler: 100 };
        row.images().with(|w| writer.insert(&table, w)).unwrap();
        model.insert(row.id, row);
    }
    writer.commit(true).unwrap();
    let (mut reader, seen) = (engine.begin(2), model.clone());
    reader.open_snapshot();
    let mut second: Option<(Trx, Model)> = None;
    let mut fresh = ROWS;
    for round in 0..15 {
        let end = engine.wal.end().0 + CAPACITY_BYTES;
        while engine.wal.end().0 < end {
            let old = model[&(rng.below(u64::from(ROWS)) as u32)].clone();
            fresh = if fresh == u16::MAX { ROWS } else { fresh + 1 };
            let new = Row { unique: fresh, plain: rng.below(8) as u8, ..old.clone() };
            old.images().with(|o| new.images().with(|n| writer.update(&table, o, n))).unwrap();
            if rng.chance(10) {
                engine.step().unwrap();
                writer.rollback();
            } else {
                writer.commit(true).unwrap();
                model.insert(new.id, new);
            }
            if rng.chance(20) {
                engine.step().unwrap();
                engine.ctx.revert_step(100).unwrap();
            }
        }
        assert!(kept_log_bytes(&engine) <= 2 * CAPACITY_BYTES);
        assert_is(&mut reader, &table, &seen, "old snapshot");
        if let Some((reader, seen)) = &mut second {
            assert_is(reader, &table, seen, "younger snapshot");
        }
        if round % 4 == 1 {
            let mut trx = engine.begin(3);
            trx.open_snapshot();
            second = Some((trx, model.clone()));
        }
        // Each key, as each snapshot sees it, twice: the tree grows to that before it is swept.
        let bound = 40 * usize::from(ROWS);
        let kept = [OLD_VERSIONS_TREE].into_iter().chain(table.gates.iter().map(|g| g.id()));
        for tree in kept {
            let entries = entries_in(&engine, tree);
            assert!(entries <= bound, "seed {seed} round {round}: {entries} entries of {tree:?}");
        }
    }
    drop((reader, second, writer));
    settle(&engine);
    assert_is(&mut engine.begin(7), &table, &model, "at the end");
    assert_tidy(&engine, &table, model.len());
}

#[test]
fn an_old_snapshot_keeps_what_it_sees() {
    for seed in 0..4 {
        churn_keys(seed);
    }
}

/// Each sweep goes through all that was moved: it must not come back while nobody is gone.
#[test]
fn what_a_snapshot_needs_is_not_swept_again_and_again() {
    const ROWS: u16 = 1500;
    let os = SimOs::new(2);
    let engine = open(&os).unwrap();
    engine.create_table(TABLE, spec()).unwrap();
    let table = engine.table(TABLE).unwrap().unwrap();
    let mut writer = engine.begin(1);
    let of = |n: u16, turn: usize| Row { filler: 100 + turn % 2, ..apart(n) };
    for n in 0..ROWS {
        of(n, 0).images().with(|w| writer.insert(&table, w)).unwrap();
    }
    writer.commit(true).unwrap();
    let mut reader = engine.begin(2);
    reader.open_snapshot();
    for turn in 0..12 {
        for n in 0..ROWS {
            let (old, new) = (of(n, turn).images(), of(n, turn + 1).images());
            old.with(|o| new.with(|n| writer.update(&table, o, n))).unwrap();
            writer.commit(true).unwrap();
            if n % 8 == 0 {
                engine.step().unwrap();
            }
        }
    }
    let stats = engine.ctx.old.stats();
    assert_eq!((stats.moved, stats.dropped), (u64::from(ROWS), 0));
    assert!(stats.sweeps <= 4, "{stats:?}: at first, and as it doubles from 500");
    let seen: Model = (0..ROWS).map(|n| (apart(n).id, of(n, 0))).collect();
    assert_is(&mut reader, &table, &seen, "old snapshot");
    drop((reader, writer));
    settle(&engine);
    assert_tidy(&engine, &table, usize::from(ROWS));
}

#[test]
fn rows_younger_than_every_snapshot_are_not_moved_and_not_seen() {
    const ROWS: u16 = 200;
    let os = SimOs::new(1);
    let engine = open(&os).unwrap();
    engine.create_table(TABLE, spec()).unwrap();
    let table = engine.table(TABLE).unwrap().unwrap();
    let mut reader = engine.begin(2);
    reader.open_snapshot();
    let mut writer = engine.begin(1);
    for n in 0..ROWS {
        filled(n, 300).images().with(|w| writer.insert(&table, w)).unwrap();
        writer.commit(true).unwrap();
    }
    // Each has several versions, most of them below the log in the end.
    let first_kept = engine.wal.oldest();
    let mut turn = 0;
    while engine.wal.oldest().0 < first_kept.0 + 2 * CAPACITY_BYTES {
        for n in 0..ROWS {
            fill(&mut writer, &table, n, 300 + turn % 2, 300 + (turn + 1) % 2);
            writer.commit(true).unwrap();
            engine.step().unwrap();
        }
        turn += 1;
    }
    assert_eq!(engine.ctx.old.stats().moved, 0);
    assert_is(&mut reader, &table, &Model::new(), "old snapshot");
    let all: Model = (0..ROWS).map(|n| (apart(n).id, filled(n, 300 + turn % 2))).collect();
    assert_is(&mut engine.begin(3), &table, &all, "new snapshot");
}

/// Versions of a key that were moved before its purge are no part of the chain of a later key: its
/// first version ends that chain, and is kept for snapshots that do not see it.
#[test]
fn a_key_that_came_again_shows_nothing_of_its_life_before() {
    let os = SimOs::new(3);
    let engine = open(&os).unwrap();
    engine.create_table(TABLE, spec()).unwrap();
    let table = engine.table(TABLE).unwrap().unwrap();
    let (mut writer, mut oldest) = (engine.begin(1), engine.begin(2));
    for n in 0..2 {
        apart(n).images().with(|w| writer.insert(&table, w)).unwrap();
    }
    writer.commit(true).unwrap();
    oldest.open_snapshot();
    fill(&mut writer, &table, 1, 300, 301);
    writer.commit(true).unwrap();
    log_moves_on(&engine, &mut writer, &table);
    // Seen by everybody, and purged from the log.
    filled(1, 301).images().with(|w| writer.delete(&table, w)).unwrap();
    writer.commit(true).unwrap();
    drop(oldest);
    while engine.ctx.purge_step(100).unwrap() {}
    let mut reader = engine.begin(3);
    reader.open_snapshot();
    apart(1).images().with(|w| writer.insert(&table, w)).unwrap();
    writer.commit(true).unwrap();
    let again = engine.wal.end();
    fill(&mut writer, &table, 1, 300, 301);
    writer.commit(true).unwrap();
    log_moves_on(&engine, &mut writer, &table);
    assert!(engine.wal.oldest() > again, "the chain ends below the log");
    let left = engine.ctx.old.all_below(table.gates[0].id(), &apart(1).id.to_be_bytes(), again);
    assert!(!left.unwrap().is_empty(), "something of the life before is there");
    assert_is(&mut reader, &table, &Model::from([(apart(0).id, apart(0))]), "after the purge");
}

/// A transaction's versions are moved while it is open, then it is rolled back, reverted and
/// forgotten. What was moved is no part of any chain, even if no sweep has come yet.
#[test]
fn moved_versions_of_a_rolled_back_transaction_are_seen_by_nobody() {
    let os = SimOs::new(4);
    let engine = open(&os).unwrap();
    engine.create_table(TABLE, spec()).unwrap();
    let table = engine.table(TABLE).unwrap().unwrap();
    let (mut writer, mut failed, mut reader) = (engine.begin(1), engine.begin(2), engine.begin(3));
    filled(0, 300).images().with(|w| writer.insert(&table, w)).unwrap();
    writer.commit(true).unwrap();
    // Begun before the snapshot, which does not know later ids.
    filled(2, 300).images().with(|w| failed.insert(&table, w)).unwrap();
    let id = failed.id().unwrap();
    reader.open_snapshot();
    filled(1, 300).images().with(|w| writer.insert(&table, w)).unwrap();
    writer.commit(true).unwrap();
    fill(&mut failed, &table, 1, 300, 305);
    fill(&mut failed, &table, 1, 305, 306);
    log_moves_on(&engine, &mut writer, &table);
    failed.rollback();
    while engine.ctx.revert_step(100).unwrap() {}
    engine.ctx.table.advance_horizon();
    assert!(engine.ctx.table.horizon() > id, "the id is forgotten");
    let reverted = engine.wal.end();
    fill(&mut writer, &table, 1, 300, 301);
    writer.commit(true).unwrap();
    fill(&mut writer, &table, 1, 301, 302);
    writer.commit(true).unwrap();
    let changed = engine.wal.end();
    log_moves_on(&engine, &mut writer, &table);
    assert!(engine.wal.oldest() > changed, "the chain ends below the log");
    let left =
        engine.ctx.old.all_below(table.gates[0].id(), &filled(1, 0).id.to_be_bytes(), reverted);
    assert!(!left.unwrap().is_empty(), "what was moved is there");
    assert_is(
        &mut reader,
        &table,
        &Model::from([(filled(0, 0).id, filled(0, 300))]),
        "old snapshot",
    );
}

/// Between its look at an entry and its look into the log a reader may sleep. Meanwhile the entry's
/// writer is rolled back, reverted and forgotten, and its log is gone: what was moved of the key
/// belongs below the entry that is back, not below the one that the reader has seen.
#[test]
fn a_reader_that_comes_from_a_reverted_version_starts_again() {
    let os = SimOs::new(4);
    let engine = open(&os).unwrap();
    engine.create_table(TABLE, spec()).unwrap();
    let table = engine.table(TABLE).unwrap().unwrap();
    let (mut writer, mut oldest, mut reader) = (engine.begin(1), engine.begin(2), engine.begin(3));
    for n in 0..2 {
        filled(n, 300).images().with(|w| writer.insert(&table, w)).unwrap();
    }
    writer.commit(true).unwrap();
    oldest.open_snapshot();
    fill(&mut writer, &table, 1, 300, 301);
    writer.commit(true).unwrap();
    reader.open_snapshot();
    fill(&mut writer, &table, 1, 301, 302);
    let (gate, key) = (&table.gates[0], apart(1).id.to_be_bytes());
    let header = || {
        let mut found = None;
        let split = |entry: &[u8]| EntryHeader::split(entry).unwrap().0;
        gate.tree().get(&key, &mut |entry| found = entry.map(split)).unwrap();
        found.unwrap()
    };
    let seen = header();
    writer.rollback();
    for turn in 0.. {
        fill(&mut writer, &table, 0, 300 + turn % 2, 301 - turn % 2);
        writer.commit(true).unwrap();
        engine.step().unwrap();
        if turn % 2 == 1 && engine.wal.oldest() > seen.lsn {
            break;
        }
    }
    assert!(header() != seen, "it is reverted");
    let kept = engine.ctx.old.all_below(gate.id(), &key, seen.lsn).unwrap();
    assert_eq!(kept.len(), 1, "for the oldest snapshot");
    for isolation in [Isolation::RepeatableRead, Isolation::ReadUncommitted] {
        reader.set_isolation(isolation);
        let view = reader.session.view();
        let gone = reader.session.older_version(view, gate, &key, seen);
        assert!(matches!(gone, Err(Error::NotRetained)), "{isolation:?}: {gone:?}");
    }
    reader.set_isolation(Isolation::RepeatableRead);
    let rows =
        |filler| Model::from([(apart(0).id, filled(0, 300)), (apart(1).id, filled(1, filler))]);
    assert_is(&mut reader, &table, &rows(301), "the reader");
    assert_is(&mut oldest, &table, &rows(300), "the oldest snapshot");
}

/// A transaction stays open across many checkpoints, its first records moved, and power fails.
fn hold_and_crash(seed: u64) {
    let os = SimOs::new(seed);
    let mut rng = SimRng::new(seed);
    open(&os).unwrap().create_table(TABLE, spec()).unwrap();
    let mut model = Model::new();
    for life in 0..3 {
        let context = format!("seed {seed} life {life}");
        let engine = open(&os).unwrap_or_else(|e| panic!("{context}: {e}"));
        let table = engine.table(TABLE).unwrap().unwrap();
        let (mut open_trx, _) = stay_open(&engine, &table);
        let prepared = rng.chance(50);
        if prepared {
            open_trx.prepare(b"held", true).unwrap();
        }
        let mut reader = engine.begin(8);
        reader.open_snapshot();
        let mut written = model.clone();
        let bytes = 2 * CAPACITY_BYTES;
        let none = &mut Model::new();
        write_log(&mut rng, &engine, &table, &mut written, none, bytes).unwrap();
        assert!(engine.ctx.old.stats().moved > 0);
        assert_is(&mut reader, &table, &model, "old snapshot");
        os.fail_after(rng.below(300), Fault::PowerCut);
        let mut in_doubt = written.clone();
        // Power fails somewhere in it, or after it.
        let _ = write_log(&mut rng, &engine, &table, &mut written, &mut in_doubt, bytes);
        drop((open_trx, reader, table, engine));
        os.crash();
        let engine = open(&os).unwrap_or_else(|e| panic!("{context}: {e}"));
        let table = engine.table(TABLE).unwrap().unwrap();
        if prepared {
            assert_eq!(engine.prepared(), vec![b"held".to_vec()]);
            assert!(engine.rollback_prepared(b"held").unwrap());
        }
        let found = rows(&mut engine.begin(1), &table);
        assert!(found == written || found == in_doubt, "{context}");
        settle(&engine);
        assert_is(&mut engine.begin(1), &table, &found, &context);
        assert_tidy(&engine, &table, found.len());
        assert_eq!(
            engine.check_table(TABLE, CheckDepth::Quick, &|| false).unwrap().faults,
            Vec::<String>::new(),
            "{context}"
        );
        model = found;
        engine.shutdown().unwrap();
    }
}

#[test]
fn moved_versions_survive_crashes() {
    for seed in 0..8 {
        hold_and_crash(seed);
    }
}
