//! Redo on first touch: what opens at once, what is owed, and what a checkpoint makes of it.

use super::damage::*;
use crate::base::TreeId;
use crate::catalog::FIRST_USER_TREE;
use crate::db::*;
use crate::os::sim::SimOs;
use crate::os::Os;
use std::sync::Arc;

/// A machine that was killed with changes of many pages after the last checkpoint.
fn killed() -> (Arc<SimOs>, Contents) {
    let os = SimOs::new(3);
    let mut w = Writer::new(&os, 3);
    for round in 0..40 {
        w.transaction(TABLES[round % 2], 30);
    }
    w.engine.checkpoint_now().unwrap();
    for round in 0..40 {
        w.transaction(TABLES[round % 2], 30);
    }
    (machine_with(&read_files(&os)), w.contents)
}

pub(super) fn open(os: &Arc<SimOs>, pool_bytes: u64) -> Arc<Engine> {
    let mut config = Config::new(DATA);
    config.background = false;
    config.buffer_pool_bytes = pool_bytes;
    config.log_capacity_bytes = 8 << 20;
    let os = Arc::clone(os) as Arc<dyn Os>;
    Engine::open_with(os, config, geometry(), Arc::new(NoHost)).unwrap()
}

pub(super) fn assert_contents(engine: &Arc<Engine>, contents: &Contents) {
    for name in TABLES {
        let table = engine.table(name).unwrap().unwrap();
        for index in 0..3 {
            let found = scan(engine, &table, index).unwrap();
            assert_eq!(found, expected(&contents[name], index));
        }
        let report = engine.check_table(name, CheckDepth::Full, &|| false).unwrap();
        assert_eq!(report.faults, Vec::<String>::new());
    }
}

#[test]
fn what_is_owed_is_applied_on_first_touch_and_holds_the_redo_point() {
    let (os, contents) = killed();
    let engine = open(&os, 16 << 20);
    let (owed, redo) = (engine.pool.owed_pages(), engine.redo_bytes());
    assert!(owed > 10, "{owed} pages are owed");
    // The map becomes durable, without what is owed: recovery would begin at the same place.
    engine.checkpoint_map().unwrap();
    assert!(engine.redo_bytes() > redo / 2, "{} of {redo}", engine.redo_bytes());
    let again = machine_with(&read_files(&os));
    assert_contents(&engine, &contents);
    assert!(engine.pool.owed_pages() < owed);
    drop(engine);
    assert_contents(&open(&again, 16 << 20), &contents);
}

#[test]
fn a_checkpoint_applies_all_that_is_owed() {
    let (os, contents) = killed();
    let engine = open(&os, 16 << 20);
    engine.checkpoint_now().unwrap();
    assert_eq!(engine.pool.owed_pages(), 0);
    assert!(engine.redo_bytes() < 8 << 10, "{}", engine.redo_bytes());
    drop(engine);
    let engine = open(&os, 16 << 20);
    assert_eq!(engine.pool.owed_pages(), 0);
    assert_contents(&engine, &contents);
}

#[test]
fn a_tail_that_does_not_fit_the_memory_is_applied_in_parts() {
    let (os, contents) = killed();
    for pool_bytes in [8 << 10, 64 << 10, 300 << 10] {
        let os = machine_with(&read_files(&os));
        let engine = open(&os, pool_bytes);
        assert!(engine.pool.owed_applied() > 0, "some of it at once");
        assert_contents(&engine, &contents);
    }
}

/// After a crash the purge goes on where it was, and not where the log's tail begins.
#[test]
fn a_start_purges_what_was_not_purged() {
    let os = SimOs::new(4);
    let mut w = Writer::new(&os, 4);
    for round in 0..60 {
        w.transaction(TABLES[round % 2], 30);
        // A checkpoint's note has some of them.
        if round == 20 {
            w.engine.checkpoint_now().unwrap();
        }
    }
    while w.engine.ctx.purge_step(1000).unwrap() {}
    let again = || open(&machine_with(&read_files(&os)), 16 << 20);
    let backlog = |engine: &Arc<Engine>| engine.ctx.registry.purge_backlog();
    assert!(backlog(&w.engine) == 0 && backlog(&again()) > 30);
    w.engine.note_purged();
    w.transaction(TABLES[0], 30);
    let engine = again();
    assert_eq!((backlog(&w.engine), backlog(&engine)), (1, 1));
    assert_contents(&engine, &w.contents);
    while engine.ctx.purge_step(1000).unwrap() {}
    assert_eq!(backlog(&engine), 0);
    assert_contents(&engine, &w.contents);
}

#[test]
fn a_table_that_is_dropped_takes_what_is_owed_to_it_along() {
    let (os, contents) = killed();
    let engine = open(&os, 16 << 20);
    engine.drop_table(TABLES[0]).unwrap();
    let left = engine.pool.owed_pages();
    assert!(left > 0, "of the other table");
    for _ in 0..100 {
        engine.step().unwrap();
    }
    assert_eq!((engine.pool.owed_pages(), engine.pool.given_up()), (0, Vec::new()));
    let table = engine.table(TABLES[1]).unwrap().unwrap();
    assert_eq!(scan(&engine, &table, 0).unwrap(), expected(&contents[TABLES[1]], 0));
}

/// As above, but memory holds a part of the pages only.
#[test]
fn pages_of_tables_stay_owed_where_evicted_ones_do() {
    let (os, contents) = killed();
    let engine = open(&os, 512 << 10);
    assert!(engine.pool.gathers());
    let left = |end| engine.pool.next_owed(usize::MAX, end).len();
    let owed = left(TreeId(u32::MAX)) - left(FIRST_USER_TREE);
    assert!(owed > 10, "{owed} pages of tables are owed");
    while engine.redo_step().unwrap() {}
    // Those of the engine's own trees were read, the rest is as after an eviction.
    assert_eq!((engine.pool.owed_pages(), engine.pool.recovered_pages()), (owed, 0));
    // A crash before any of it is paid loses nothing, and the first touch pays.
    let again = open(&machine_with(&read_files(&os)), 512 << 10);
    assert_contents(&again, &contents);
    assert_contents(&engine, &contents);
}
