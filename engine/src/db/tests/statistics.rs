//! Statistics: when they are taken, what becomes of them, and what a crash leaves.

use crate::catalog::CATALOG_TREE;
use crate::db::*;
use crate::os::sim::SimOs;
use crate::os::Os;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

const TABLE: &str = "db/t";
const SECOND_NS: u64 = 1_000_000_000;

/// The clustered key is a number of four bytes, the second index a group of one byte and that number.
struct Parts;

impl KeyParts for Parts {
    fn count(&self, index: usize) -> usize {
        1 + index
    }

    fn ends(&self, index: usize, key: &[u8], ends: &mut Vec<usize>) {
        let all: &[usize] = if index == 0 { &[4] } else { &[1, 5] };
        ends.extend(all.iter().copied().filter(|&end| end <= key.len()));
    }
}

fn open(os: &Arc<SimOs>) -> Arc<Engine> {
    let mut config = Config::new("/data");
    config.background = false;
    let os = Arc::clone(os) as Arc<dyn Os>;
    Engine::open(os, config, Arc::new(NoHost)).unwrap()
}

fn create(engine: &Engine, name: &str) {
    let index = |unique| IndexSpec { unique };
    let indexes = vec![index(true), index(false)];
    let spec = TableSpec {
        indexes,
        definition: vec![],
        autoinc_start: 1,
        compression: None,
        is_encrypted: false,
    };
    engine.create_table(name, spec).unwrap();
}

/// The table as its caller opens it.
fn opened(engine: &Engine, name: &str) -> Arc<Table> {
    let table = engine.table(name).unwrap().unwrap();
    table.name_parts(Arc::new(Parts));
    table
}

fn fill(engine: &Arc<Engine>, table: &Table, ids: std::ops::Range<u32>) {
    let mut trx = engine.begin(1);
    for id in ids {
        let key = id.to_be_bytes();
        let second = [&[(id % 3) as u8][..], &key].concat();
        let entries = [
            Entry { key: &key, payload: &[7; 30], parts: &[], unique: true },
            Entry { key: &second, payload: &[], parts: &[], unique: false },
        ];
        trx.insert(table, &RowWrite { entries: &entries }).unwrap();
    }
    trx.commit(true).unwrap();
}

fn known(table: &Table) -> Option<Vec<Vec<u64>>> {
    let (statistics, _) = table.statistics();
    Some(statistics?.trees.iter().map(|tree| tree.distinct.clone()).collect())
}

/// Background work until nothing is left to do.
fn settle(engine: &Engine) {
    while engine.recalculate_some().unwrap() {}
}

#[test]
fn analyze_keeps_what_it_found() {
    let os = SimOs::new(1);
    let engine = open(&os);
    create(&engine, TABLE);
    let table = opened(&engine, TABLE);
    fill(&engine, &table, 0..2_000);
    assert_eq!(known(&table), None);
    let killed = engine.analyze_table(TABLE, 0, &|| true);
    assert!(matches!(killed, Err(crate::base::Error::Interrupted)));
    assert_eq!(known(&table), None);
    engine.analyze_table(TABLE, 0, &|| false).unwrap();
    let exact = vec![vec![2_000], vec![3, 2_000], vec![]];
    assert_eq!(known(&table), Some(exact.clone()));
    assert_eq!(table.size().rows, 2_000);
    let size = table.size();
    drop((table, engine));
    os.crash();
    let engine = open(&os);
    let table = opened(&engine, TABLE);
    assert_eq!((known(&table), table.size()), (Some(exact.clone()), size));
    // A renamed table is the same table, a truncated one is not.
    engine.rename_table(TABLE, "db/u").unwrap();
    assert_eq!(known(&opened(&engine, "db/u")), Some(exact));
    engine.truncate_table("db/u", 1).unwrap();
    assert_eq!(known(&opened(&engine, "db/u")), None);
    drop((table, engine));
    assert_eq!(known(&opened(&open(&os), "db/u")), None);
}

#[test]
fn a_dropped_table_leaves_nothing_in_the_catalog() {
    let os = SimOs::new(2);
    let engine = open(&os);
    create(&engine, TABLE);
    let table = opened(&engine, TABLE);
    fill(&engine, &table, 0..100);
    engine.analyze_table(TABLE, 0, &|| false).unwrap();
    engine.drop_table(TABLE).unwrap();
    for _ in 0..100 {
        engine.step().unwrap();
    }
    let gate = engine.ctx.trees.get(CATALOG_TREE).unwrap();
    let mut left = 0;
    let visit = &mut |_: &[u8], _: &[u8]| {
        left += 1;
        ControlFlow::Continue(())
    };
    gate.tree().scan_leaf(Bound::Unbounded, Direction::Forward, visit).unwrap();
    assert_eq!(left, 0, "entries in the catalog");
}

#[test]
fn the_background_takes_them_when_enough_has_changed() {
    let os = SimOs::new(3);
    let engine = open(&os);
    create(&engine, TABLE);
    // Nobody has opened it, so nobody has said where parts end.
    fill(&engine, &engine.table(TABLE).unwrap().unwrap(), 0..1_000);
    settle(&engine);
    let table = opened(&engine, TABLE);
    assert_eq!(known(&table), None);
    settle(&engine);
    let first = Some(vec![vec![1_000], vec![3, 1_000], vec![]]);
    assert_eq!(known(&table), first);
    os.advance_ns(60 * SECOND_NS);
    fill(&engine, &table, 1_000..1_116);
    settle(&engine);
    assert_eq!(known(&table), first, "a tenth and 16 are not enough");
    assert_eq!(table.size().rows, 1_116);
    fill(&engine, &table, 1_116..1_117);
    settle(&engine);
    assert_eq!(known(&table).unwrap()[0], [1_117]);
    fill(&engine, &table, 2_000..4_000);
    settle(&engine);
    assert_eq!(known(&table).unwrap()[0], [1_117], "not again so soon");
    os.advance_ns(60 * SECOND_NS);
    engine.set_statistics_recalculation(false);
    settle(&engine);
    assert_eq!(known(&table).unwrap()[0], [1_117]);
    engine.set_statistics_recalculation(true);
    settle(&engine);
    assert_eq!(known(&table).unwrap()[0], [3_117]);
}

#[test]
fn a_table_may_be_dropped_while_it_is_looked_at() {
    let os = SimOs::new(4);
    let engine = open(&os);
    create(&engine, TABLE);
    let table = opened(&engine, TABLE);
    fill(&engine, &table, 0..500);
    assert!(engine.recalculate_some().unwrap());
    engine.drop_table(TABLE).unwrap();
    settle(&engine);
    assert_eq!(engine.table_names(), Vec::<String>::new());
    create(&engine, TABLE);
    assert_eq!(known(&opened(&engine, TABLE)), None);
}

#[test]
fn an_entry_of_another_format_means_that_nothing_is_known() {
    let os = SimOs::new(5);
    let engine = open(&os);
    for name in [TABLE, "db/u"] {
        create(&engine, name);
        fill(&engine, &opened(&engine, name), 0..50);
        engine.analyze_table(name, 0, &|| false).unwrap();
    }
    let id = opened(&engine, TABLE).id();
    let gate = engine.ctx.trees.get(CATALOG_TREE).unwrap();
    let mut session = engine.system_session();
    let key = [&b"\0s"[..], &id.to_be_bytes(), &[0, 1]].concat();
    let put = |session: &mut crate::txn::Session, bytes: &[u8]| {
        session.write(&gate, &key, Some(bytes.into()), crate::txn::Expect::Present).unwrap()
    };
    assert_eq!(put(&mut session, &[99, 1, 2]), crate::txn::Written::Done);
    session.finish_commit();
    engine.flush_log().unwrap();
    drop((gate, engine));
    let engine = open(&os);
    assert_eq!(known(&opened(&engine, TABLE)), None);
    assert!(known(&opened(&engine, "db/u")).is_some());
    settle(&engine);
    assert_eq!(known(&opened(&engine, TABLE)).unwrap()[0], [50]);
}
