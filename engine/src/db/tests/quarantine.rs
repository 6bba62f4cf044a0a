//! Pages that cannot be read while redo, revert or purge needs them (rules S8).

use super::damage::*;
use crate::base::{Error, Lsn, PageId, Result, TreeId, BLOCK_BYTES, PAGE_BYTES};
use crate::db::inspect::Directory;
use crate::db::*;
use crate::os::sim::SimOs;
use crate::os::{OpenMode, Os};
use crate::store::{Cause, PageWrite, Store, StoreOptions};
use crate::txn::TxnState;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Damages the record of every leaf of the first table's rows, or repairs it again.
fn flip_leaves(os: &Arc<SimOs>) -> BTreeSet<PageId> {
    let places = leaf_places(os);
    flip(os, &places);
    places.iter().map(|place| place.0).collect()
}

fn flip(os: &SimOs, places: &[(PageId, u64)]) {
    for (_, offset) in places {
        os.flip_bit(&Path::new(DATA).join("pages"), offset + 30, 2);
    }
}

/// Every leaf of the first table's rows, and where its record begins.
fn leaf_places(os: &Arc<SimOs>) -> Vec<(PageId, u64)> {
    let dir = Directory::open(os.clone(), DATA, None).unwrap();
    let pages = dir.map().unwrap().pages;
    // Trees are numbered in the order of creation: the first table's rows come first.
    let tree = pages.iter().map(|p| p.tree).filter(|t| t.0 >= 16).min().unwrap();
    let of_tree = pages.iter().filter(|place| place.tree == tree);
    let places: Vec<_> = of_tree.map(|place| (place.page, place.offset)).collect();
    assert!(!places.is_empty());
    places
}

/// Blocks that hold leaves of the first table's rows and nothing else.
fn leaf_blocks(os: &Arc<SimOs>) -> BTreeSet<u64> {
    let dir = Directory::open(os.clone(), DATA, None).unwrap();
    let pages = dir.map().unwrap().pages;
    let tree = pages.iter().map(|p| p.tree).filter(|t| t.0 >= 16).min().unwrap();
    let block = BLOCK_BYTES as u64;
    let blocks = |own: bool| -> BTreeSet<u64> {
        let some = pages.iter().filter(|place| (place.tree == tree) == own);
        some.flat_map(|p| p.offset / block..=(p.offset + p.bytes as u64 - 1) / block).collect()
    };
    let own: BTreeSet<u64> = blocks(true).difference(&blocks(false)).copied().collect();
    assert!(!own.is_empty());
    own
}

/// The disk refuses to read the first table's leaves, or gives them again.
fn refuse(os: &SimOs, blocks: &BTreeSet<u64>, is_bad: bool) {
    for block in blocks {
        os.set_bad_place(&Path::new(DATA).join("pages"), block * BLOCK_BYTES as u64, is_bad);
    }
}

/// Background work with tries enough to give up what cannot be read; some of them fail.
fn work_for_long(engine: &Engine) -> usize {
    (0..30).filter(|_| engine.step().is_err()).count()
}

fn filled() -> (Arc<SimOs>, Writer) {
    let os = SimOs::new(7);
    let mut w = Writer::new(&os, 7);
    for round in 0..30 {
        w.transaction(TABLES[round % 2], 8);
    }
    w.engine.checkpoint_now().unwrap();
    (os, w)
}

/// The machine after the process ended here.
fn killed(os: &SimOs) -> Arc<SimOs> {
    machine_with(&read_files(os))
}

/// A machine with changes after the last checkpoint, and what must be there.
fn killed_with_changes() -> (Arc<SimOs>, Writer) {
    let (os, mut w) = filled();
    for round in 0..10 {
        w.transaction(TABLES[round % 2], 8);
    }
    (killed(&os), w)
}

fn open(os: &Arc<SimOs>) -> Result<(Arc<Engine>, Arc<Listener>)> {
    let listener = Arc::new(Listener::default());
    open_with(os.clone(), listener.clone()).map(|engine| (engine, listener))
}

/// The first table cannot be read, the second one is right.
fn assert_first_is_damaged(engine: &Arc<Engine>, contents: &Contents) {
    let table = |name| engine.table(name).unwrap().unwrap();
    let error = scan(engine, &table(TABLES[0]), 0).unwrap_err();
    assert!(matches!(error, Error::Corrupt { .. }), "{error}");
    let told = engine.describe_damage(&error);
    assert!(told.contains(TABLES[0]) && told.contains("/data/pages"), "{told}");
    assert!(told.contains("DROP or TRUNCATE"), "{told}");
    for index in 0..3 {
        let found = scan(engine, &table(TABLES[1]), index).unwrap();
        assert_eq!(found, expected(&contents[TABLES[1]], index));
    }
}

/// Even if the page can be read again, in a state that work is owed to.
fn assert_stays_given_up_until_dropped(os: &Arc<SimOs>, contents: &Contents) {
    flip_leaves(os);
    let (engine, listener) = open(os).unwrap();
    assert_first_is_damaged(&engine, contents);
    assert!(listener.0.lock().unwrap().iter().any(|line| line.contains("given up")));
    engine.drop_table(TABLES[0]).unwrap();
    assert!(engine.pool.given_up().is_empty());
    engine.create_table(TABLES[0], spec(TABLES[0])).unwrap();
    let table = engine.table(TABLES[0]).unwrap().unwrap();
    assert!(scan(&engine, &table, 0).unwrap().is_empty());
    drop((engine, table));
    let (engine, listener) = open(os).unwrap();
    assert!(engine.pool.given_up().is_empty());
    assert_eq!(*listener.0.lock().unwrap(), Vec::<String>::new());
}

#[test]
fn redo_of_a_damaged_page_is_put_aside_and_the_redo_point_moves_on() {
    let (os, w) = killed_with_changes();
    let flipped = flip_leaves(&os);
    let (engine, listener) = open(&os).unwrap();
    engine.step().unwrap();
    let lines = listener.0.lock().unwrap().join("\n");
    assert!(lines.contains("/data/pages offset") && lines.contains("page "), "{lines}");
    assert_first_is_damaged(&engine, &w.contents);
    let given_up = engine.pool.given_up();
    assert!(!given_up.is_empty() && given_up.iter().all(|bad| flipped.contains(&bad.0)));
    engine.checkpoint_now().unwrap();
    assert!(engine.redo_bytes() < 8 << 10, "{}", engine.redo_bytes());
    drop(engine);
    assert_stays_given_up_until_dropped(&os, &w.contents);
}

#[test]
fn a_page_given_up_by_redo_stays_so_without_a_checkpoint() {
    let (os, w) = killed_with_changes();
    flip_leaves(&os);
    let engine = open(&os).unwrap().0;
    // It is damaged, and what is owed to it stays owed until the background comes to it.
    assert_first_is_damaged(&engine, &w.contents);
    assert!(engine.pool.given_up().is_empty() && engine.pool.owed_pages() > 0);
    engine.step().unwrap();
    assert!(!engine.pool.given_up().is_empty());
    drop(engine);
    assert_stays_given_up_until_dropped(&os, &w.contents);
}

#[test]
fn a_page_that_is_repaired_before_redo_gave_it_up_gets_its_changes() {
    let (os, w) = killed_with_changes();
    let places = leaf_places(&os);
    flip(&os, &places);
    let engine = open(&os).unwrap().0;
    assert_first_is_damaged(&engine, &w.contents);
    flip(&os, &places);
    for name in TABLES {
        let found = scan(&engine, &engine.table(name).unwrap().unwrap(), 0).unwrap();
        assert_eq!(found, expected(&w.contents[name], 0));
    }
}

#[test]
fn revert_of_a_damaged_page_is_put_aside_and_no_dirty_version_comes_back() {
    let (os, mut w) = filled();
    let trx = w.unfinished(TABLES[0], 3);
    w.engine.checkpoint_now().unwrap();
    let os = killed(&os);
    std::mem::forget(trx);
    flip_leaves(&os);
    let (engine, _) = open(&os).unwrap();
    assert!(engine.pool.given_up().is_empty(), "redo owes nothing");
    for _ in 0..10 {
        engine.step().unwrap();
    }
    assert!(!engine.pool.given_up().is_empty());
    assert!(engine.ctx.to_revert.lock().is_empty(), "the work ends");
    assert!(engine.ctx.registry.oldest_lsn().is_none(), "and its pin goes");
    assert_first_is_damaged(&engine, &w.contents);
    engine.checkpoint_now().unwrap();
    drop(engine);
    assert_stays_given_up_until_dropped(&os, &w.contents);
}

#[test]
fn purge_of_a_damaged_page_is_put_aside() {
    let (os, mut w) = filled();
    // Deletes among them; their marks wait for the purge.
    for _ in 0..6 {
        w.transaction(TABLES[0], 8);
    }
    w.engine.checkpoint_now().unwrap();
    assert!(w.engine.ctx.registry.purge_backlog() > 0);
    let os = killed(&os);
    flip_leaves(&os);
    let (engine, _) = open(&os).unwrap();
    for _ in 0..10 {
        engine.step().unwrap();
    }
    assert_eq!(engine.ctx.registry.purge_backlog(), 0);
    assert!(!engine.pool.given_up().is_empty());
    assert_first_is_damaged(&engine, &w.contents);
}

#[test]
fn truncate_repairs_a_damaged_table() {
    let (os, mut w) = filled();
    w.transaction(TABLES[0], 8);
    let os = killed(&os);
    flip_leaves(&os);
    let (engine, _) = open(&os).unwrap();
    assert_first_is_damaged(&engine, &w.contents);
    engine.truncate_table(TABLES[0], 1).unwrap();
    let table = engine.table(TABLES[0]).unwrap().unwrap();
    assert!(scan(&engine, &table, 0).unwrap().is_empty());
    assert!(engine.pool.given_up().is_empty());
}

#[test]
fn a_damaged_catalog_is_refused_with_a_message() {
    let (os, w) = filled();
    drop(w);
    let os = killed(&os);
    let dir = Directory::open(os.clone(), DATA, None).unwrap();
    for place in dir.map().unwrap().pages.iter().filter(|p| p.tree.0 == 1) {
        os.flip_bit(&Path::new(DATA).join("pages"), place.offset + 30, 2);
    }
    drop(dir);
    let error = open(&os).err().expect("no table can be found").to_string();
    assert!(error.contains("catalog") && error.contains("backup"), "{error}");
    assert!(error.contains("/data/pages"), "{error}");
}

#[test]
fn inspect_finds_damage_and_changes_nothing() {
    let (os, w) = filled();
    w.engine.checkpoint_now().unwrap();
    let os = killed(&os);
    let geometry = Geometry {
        log_segment_bytes: 64 << 10,
        log_cache_bytes: 64 << 10,
        store_segment_bytes: 64 << 10,
    };
    let before = read_files(&os);
    let verify = || Directory::open(os.clone(), DATA, None).unwrap().verify(geometry).unwrap();
    let faults = |report: inspect::Report| -> Vec<String> {
        report.checks.into_iter().flat_map(|check| check.faults).collect()
    };
    let clean = verify();
    // The model's entries are not laid out as the plugin's; the clustered keys are found anyway.
    assert!(clean.checks.iter().any(|check| check.name.contains(TABLES[0]) && check.items > 0));
    assert_eq!(faults(clean), Vec::<String>::new());
    assert!(read_files(&os) == before, "inspect wrote to a file");
    let flipped = flip_leaves(&os);
    let found = faults(verify());
    assert!(found.iter().filter(|fault| fault.contains("checksum")).count() >= flipped.len());
    assert!(found.iter().any(|fault| fault.contains("/data/pages")), "{found:?}");
    // A page, the log.
    flip_leaves(&os);
    let dir = Directory::open(os.clone(), DATA, None).unwrap();
    let page = dir.page(*flipped.first().unwrap()).unwrap();
    assert!(!page.entries.is_empty());
    assert!(matches!(dir.page(PageId(1 << 30)), Err(Error::NotFound)));
    let mut records = 0;
    dir.log(Some(crate::base::Lsn(4096)), &mut |item| {
        records += usize::from(matches!(item, inspect::LogItem::Record(_)));
        true
    })
    .unwrap();
    assert!(records > 100, "{records}");
    assert!(open(&os).is_err(), "closed to engines meanwhile");
    let superblock = Path::new(DATA).join("superblock");
    let file = os.open(&superblock, OpenMode::default()).unwrap();
    file.write_at(&vec![0; file.len().unwrap() as usize], 0).unwrap();
    assert!(dir.map().is_err());
}

#[test]
fn inspect_foresees_the_next_start() {
    let outlook = |os: &Arc<SimOs>| Directory::open(os.clone(), DATA, None).unwrap().outlook();
    let (os, mut w) = filled();
    w.transaction(TABLES[0], 8);
    let crashed = killed(&os);
    let before = read_files(&crashed);
    let found = outlook(&crashed).unwrap();
    assert!(found.records > 0 && found.log_end > found.log_from, "{found:?}");
    assert!(!found.was_clean());
    assert!(found.live_bytes > 0 && found.live_bytes <= found.pages_bytes, "{found:?}");
    assert_eq!((found.open, found.prepared), (0, 0), "{found:?}");
    assert!(read_files(&crashed) == before, "inspect wrote to a file");
    w.engine.shutdown().unwrap();
    drop(w);
    let found = outlook(&killed(&os)).unwrap();
    assert!(found.was_clean(), "{found:?}");
}

#[test]
fn inspect_lists_a_map_around_its_damaged_leaves() {
    const LEAVES: u64 = 12;
    let os = SimOs::new(5);
    let options = StoreOptions { segment_bytes: 64 << 10, ..StoreOptions::new(DATA) };
    let store = Store::create(os.clone(), options).unwrap();
    let bytes = [7; PAGE_BYTES];
    for leaf in 0..LEAVES {
        let (page, tree, lsn) = (PageId(leaf * 512 + 1), TreeId(1), Lsn(1 + leaf));
        let write = PageWrite { page, tree, lsn, bytes: &bytes, compression: Compression::Lz4 };
        assert!(store.write(Cause::Eviction, &[write]).unwrap().is_empty());
    }
    let first = Path::new(DATA).join("map-1");
    while os.exists(&first).unwrap() {
        store.checkpoint(&[1; 9000], &mut |_| Ok(())).unwrap();
    }
    drop(store);
    let list = || Directory::open(os.clone(), DATA, None).unwrap().map().unwrap();
    assert_eq!((list().pages.len(), list().faults.len()), (LEAVES as usize, 0));
    // Leaves of one entry each lie back to back.
    let is_map = |path: &PathBuf| path.to_string_lossy().contains("/map-");
    let map = os.list(Path::new(DATA)).unwrap().into_iter().find(is_map).unwrap();
    os.flip_bit(&map, 4096 + 2, 1);
    os.flip_bit(&map, 4096 + 8 * 16, 1);
    let found = list();
    assert_eq!((found.pages.len(), found.faults.len()), (LEAVES as usize - 2, 2));
    assert!(found.faults.iter().all(|fault| fault.contains("/data/map-")), "{:?}", found.faults);
}

/// The first table's rows cannot be read, and the text says why and what to do.
fn assert_first_is_unreadable(engine: &Arc<Engine>, contents: &Contents) {
    let table = |name| engine.table(name).unwrap().unwrap();
    let error = scan(engine, &table(TABLES[0]), 0).unwrap_err();
    assert!(matches!(error, Error::Io { page: Some(_), .. }), "{error:?}");
    let told = engine.describe_damage(&error);
    for part in [TABLES[0], "/data/pages", "rows", "page ", "os error 5", "kernel", "DROP"] {
        assert!(told.contains(part), "{part}: {told}");
    }
    let found = scan(engine, &table(TABLES[1]), 0).unwrap();
    assert_eq!(found, expected(&contents[TABLES[1]], 0));
}

#[test]
fn redo_of_a_page_that_the_disk_refuses_is_put_aside() {
    let (os, w) = killed_with_changes();
    let blocks = leaf_blocks(&os);
    refuse(&os, &blocks, true);
    let (engine, listener) = open(&os).unwrap();
    assert_first_is_unreadable(&engine, &w.contents);
    assert!(engine.step().is_err() && engine.pool.given_up().is_empty(), "not at once");
    assert!(work_for_long(&engine) > 1);
    assert!(!engine.pool.given_up().is_empty());
    let lines = listener.0.lock().unwrap().join("\n");
    assert!(lines.contains(TABLES[0]) && lines.contains("os error 5"), "{lines}");
    assert_first_is_damaged(&engine, &w.contents);
    engine.checkpoint_now().unwrap();
    assert!(engine.redo_bytes() < 8 << 10, "{}", engine.redo_bytes());
    let (mut trx, table) = (engine.begin(1), engine.table(TABLES[1]).unwrap().unwrap());
    trx.statement_start();
    with_row(5000, &[1; 50], |row| trx.insert(&table, row)).unwrap();
    trx.commit(true).unwrap();
}

/// Changes that do not fit the memory set aside are applied before the engine opens.
#[test]
fn a_page_that_the_disk_refuses_does_not_keep_the_engine_from_opening() {
    let (os, mut w) = filled();
    w.engine.set_log_capacity_bytes(16 << 20);
    while w.engine.redo_bytes() < 4 << 20 {
        w.transaction(TABLES[0], 8);
    }
    let os = killed(&os);
    let blocks = leaf_blocks(&os);
    refuse(&os, &blocks, true);
    let (engine, listener) = open(&os).unwrap();
    assert!(!engine.pool.given_up().is_empty());
    assert!(listener.0.lock().unwrap().iter().any(|line| line.contains("os error 5")));
}

#[test]
fn a_page_that_can_be_read_again_in_time_gets_its_changes() {
    let (os, w) = killed_with_changes();
    let blocks = leaf_blocks(&os);
    refuse(&os, &blocks, true);
    let engine = open(&os).unwrap().0;
    assert_first_is_unreadable(&engine, &w.contents);
    assert!(engine.step().is_err());
    refuse(&os, &blocks, false);
    assert_eq!(work_for_long(&engine), 0);
    assert!(engine.pool.given_up().is_empty());
    for name in TABLES {
        let found = scan(&engine, &engine.table(name).unwrap().unwrap(), 0).unwrap();
        assert_eq!(found, expected(&w.contents[name], 0));
    }
}

/// A disk that gives nothing is not the fault of a page: what is owed stays owed.
#[test]
fn a_disk_that_is_away_costs_no_page() {
    let (os, w) = killed_with_changes();
    let engine = open(&os).unwrap().0;
    os.fail_reads_of(Some(""));
    assert_eq!(work_for_long(&engine), 30);
    assert!(engine.pool.given_up().is_empty());
    os.fail_reads_of(None);
    assert_eq!(work_for_long(&engine), 0);
    for name in TABLES {
        let found = scan(&engine, &engine.table(name).unwrap().unwrap(), 0).unwrap();
        assert_eq!(found, expected(&w.contents[name], 0));
    }
}

#[test]
fn revert_and_purge_of_a_page_that_the_disk_refuses_are_put_aside() {
    let (os, mut w) = filled();
    for _ in 0..6 {
        w.transaction(TABLES[0], 8);
    }
    let trx = w.unfinished(TABLES[0], 3);
    w.engine.checkpoint_now().unwrap();
    assert!(w.engine.ctx.registry.purge_backlog() > 0);
    let os = killed(&os);
    std::mem::forget(trx);
    refuse(&os, &leaf_blocks(&os), true);
    let (engine, _) = open(&os).unwrap();
    assert!(work_for_long(&engine) > 1);
    work_for_long(&engine);
    assert!(engine.ctx.to_revert.lock().is_empty(), "the work ends");
    assert_eq!(engine.ctx.registry.purge_backlog(), 0);
    assert!(engine.ctx.registry.oldest_lsn().is_none(), "and its pin goes");
    assert_first_is_damaged(&engine, &w.contents);
    engine.checkpoint_now().unwrap();
}

/// An inner page cannot be read, and the thread knows a leaf below it: the version there that is not to be
/// taken back any more is nobody's committed row.
#[test]
fn a_version_below_a_page_that_was_given_up_stays_rolled_back() {
    let (os, w) = filled();
    let table = w.engine.table(TABLES[0]).unwrap().unwrap();
    let (&id, old) = w.contents[TABLES[0]].iter().find(|(_, body)| body.len() < 100).unwrap();
    let mut trx = w.engine.begin(5);
    trx.statement_start();
    with_row(id, old, |a| with_row(id, &[9; 90], |b| trx.update(&table, a, b))).unwrap();
    let get = || {
        let (mut reader, mut payload) = (w.engine.begin(6), Vec::new());
        let key = id.to_be_bytes();
        reader.get_wanted(&table, 0, &key, ReadMode::Snapshot, Wanted::All, &mut payload)?;
        Ok(payload)
    };
    w.engine.checkpoint_now().unwrap();
    trx.rollback();
    assert_eq!(get().unwrap(), *old, "the thread knows the leaf now");
    let root = table.gates[0].tree().root();
    w.engine.pool.discard(root);
    let places = leaf_places(&killed(&os));
    let (_, offset) = places.iter().find(|(page, _)| *page == root).unwrap();
    refuse(&os, &BTreeSet::from([offset / BLOCK_BYTES as u64]), true);
    // Another thread, which knows no leaf.
    let engine = Arc::clone(&w.engine);
    let failed = std::thread::spawn(move || work_for_long(&engine)).join().unwrap();
    assert!(failed > 1);
    assert_eq!(w.engine.pool.given_up(), [(root, table.gates[0].id())]);
    assert!(w.engine.ctx.to_revert.lock().is_empty(), "the work ends");
    let error: Error = get().expect_err("nobody can tell");
    assert!(error.to_string().contains("given up"), "{error}");
    let txn = w.engine.ctx.table.next_id().0 - 1;
    for _ in 0..5000 {
        let id = w.engine.ctx.table.allocate(w.engine.wal.end());
        w.engine.ctx.table.commit(id);
    }
    w.engine.ctx.table.advance_horizon();
    assert_eq!(w.engine.ctx.table.state(crate::base::TxnId(txn)), TxnState::Aborted);
}

/// A log record that cannot be read costs the purge of its transaction, and others nothing.
#[test]
fn purge_goes_on_behind_log_that_the_disk_refuses() {
    let (os, mut w) = filled();
    for _ in 0..6 {
        w.transaction(TABLES[0], 8);
    }
    w.engine.checkpoint_now().unwrap();
    let os = killed(&os);
    let (engine, _) = open(&os).unwrap();
    assert!(engine.ctx.registry.purge_backlog() > 0);
    // Segments have names of digits; each gets its tries.
    os.fail_reads_of(Some("0"));
    let steps = (0..5).map(|_| work_for_long(&engine)).sum::<usize>();
    assert!(steps > 1);
    assert_eq!(engine.ctx.registry.purge_backlog(), 0);
}

#[test]
fn a_table_whose_last_rows_cannot_be_read_does_not_keep_the_engine_from_opening() {
    let (os, w) = filled();
    w.engine.checkpoint_now().unwrap();
    let os = killed(&os);
    let blocks = leaf_blocks(&os);
    refuse(&os, &blocks, true);
    let engine = open(&os).unwrap().0;
    assert_first_is_unreadable(&engine, &w.contents);
    let table = engine.table(TABLES[0]).unwrap().unwrap();
    assert!(table.next_hidden_key().is_err());
    refuse(&os, &blocks, false);
    table.next_hidden_key().unwrap();
}

/// A transaction that has inserted a thousand rows and goes on.
fn inserting() -> (Arc<SimOs>, Arc<Engine>, Arc<Table>, Trx) {
    let os = SimOs::new(7);
    let engine = Writer::new(&os, 7).engine;
    let table = engine.table(TABLES[0]).unwrap().unwrap();
    let mut trx = engine.begin(1);
    for id in 0..1000 {
        with_row(id, &[7; 100], |row| trx.insert(&table, row)).unwrap();
    }
    (os, engine, table, trx)
}

/// Those in other leaves stayed, and counted as committed when the rollback was over.
#[test]
fn rolled_back_inserts_beside_a_damaged_leaf_are_taken_back() {
    let (_os, engine, table, mut trx) = inserting();
    engine.checkpoint_now().unwrap();
    let gate = &table.gates[0];
    let is_leaf =
        |page| engine.store.tree_of(page) == Some(gate.id()) && page != gate.tree().root();
    let leaves: Vec<PageId> = (0..1000).map(PageId).filter(|&page| is_leaf(page)).collect();
    assert!(leaves.len() > 3);
    engine.pool.give_up(leaves[0], gate.id());
    trx.rollback();
    (0..100).for_each(|_| engine.step().unwrap());
    assert!(engine.ctx.to_revert.lock().is_empty(), "the rollback is over");
    let mut reader = engine.begin(2);
    let mut refused = 0;
    for id in 0..1000_u32 {
        match reader.get(&table, 0, &id.to_be_bytes(), ReadMode::Snapshot, &mut Vec::new()) {
            Ok(found) => assert!(!found, "row {id} was rolled back"),
            Err(error) => refused += usize::from(matches!(error, Error::Corrupt { .. })),
        }
    }
    assert!((1..500).contains(&refused), "{refused}");
}

/// Each failed try was judged twice, the second time as if the log could not be read: then the
/// marks of the whole transaction stayed, for ever.
#[test]
fn delete_marks_beside_a_leaf_that_the_disk_refuses_are_purged() {
    let (os, engine, table, mut trx) = inserting();
    trx.commit(true).unwrap();
    for id in 0..1000 {
        with_row(id, &[7; 100], |row| trx.delete(&table, row)).unwrap();
    }
    trx.commit(true).unwrap();
    engine.checkpoint_now().unwrap();
    let os = killed(&os);
    let (page, blocks) = one_leaf(&os);
    refuse(&os, &blocks, true);
    let (engine, _) = open(&os).unwrap();
    assert!(engine.ctx.registry.purge_backlog() > 0);
    let failed = (0..50).filter(|_| engine.ctx.purge_step(5000).is_err()).count();
    assert_eq!(failed, 9, "each try counts once");
    assert_eq!(engine.ctx.registry.purge_backlog(), 0);
    let given_up: Vec<PageId> = engine.pool.given_up().into_iter().map(|bad| bad.0).collect();
    assert_eq!(given_up, [page]);
    let table = engine.table(TABLES[0]).unwrap().unwrap();
    let mut refused = 0;
    for id in 0..1000_u32 {
        let stays = &mut |entry: Option<&[u8]>| assert!(entry.is_none(), "the mark of {id}");
        refused += usize::from(table.gates[0].tree().get(&id.to_be_bytes(), stays).is_err());
    }
    assert!((1..500).contains(&refused), "{refused}");
}

/// A leaf of the first table's rows, and the blocks that hold nothing else.
fn one_leaf(os: &Arc<SimOs>) -> (PageId, BTreeSet<u64>) {
    let dir = Directory::open(os.clone(), DATA, None).unwrap();
    let pages = dir.map().unwrap().pages;
    let tree = pages.iter().map(|p| p.tree).filter(|t| t.0 >= 16).min().unwrap();
    let block = BLOCK_BYTES as u64;
    let blocks = |leaf: PageId, own: bool| -> BTreeSet<u64> {
        let some = pages.iter().filter(|place| (place.page == leaf) == own);
        some.flat_map(|p| p.offset / block..=(p.offset + p.bytes as u64 - 1) / block).collect()
    };
    let is_leaf = |page| dir.page(page).unwrap().node.level == 0;
    let of_tree = pages.iter().filter(|p| p.tree == tree && is_leaf(p.page));
    let own = of_tree.map(|p| {
        let others = blocks(p.page, false);
        (p.page, blocks(p.page, true).difference(&others).copied().collect::<BTreeSet<u64>>())
    });
    own.into_iter().find(|(_, blocks)| !blocks.is_empty()).unwrap()
}
