//! Wake-ups: a transaction that wrote nothing wakes nobody.

use super::damage::{open_with, spec};
use crate::base::Error;
use crate::db::*;
use crate::os::sim::SimOs;
use crate::store::PAGE_ID_MAX;
use std::sync::Arc;

const TABLE: &str = "db/t";

fn insert(trx: &mut Trx, table: &Table, id: u32, bytes: usize) -> crate::base::Result<()> {
    let key = id.to_be_bytes();
    let (second, third) = ([&[1], &key[..]].concat(), [&[2], &key[..]].concat());
    let payload = vec![id as u8; bytes];
    trx.statement_start();
    let row = Entry { key: &key, payload: &payload, parts: &[], unique: true };
    let entry = |key, unique| Entry { key, payload: b"", parts: &[], unique };
    trx.insert(table, &RowWrite { entries: &[row, entry(&second, false), entry(&third, true)] })
}

fn open() -> (Arc<Engine>, Arc<Table>) {
    let engine = open_with(SimOs::new(1), Arc::new(NoHost)).unwrap();
    engine.create_table(TABLE, spec(TABLE)).unwrap();
    let table = engine.table(TABLE).unwrap().unwrap();
    (engine, table)
}

fn rings(engine: &Engine) -> [u64; 4] {
    [
        &engine.workers.bell,
        &engine.workers.evict_bell,
        &engine.workers.log_bell,
        &engine.workers.revert_bell,
    ]
    .map(|b| b.rings())
}

#[test]
fn a_rollback_wakes_the_revert_if_there_is_anything_to_take_back() {
    let (engine, table) = open();
    let before = rings(&engine);
    let mut trx = engine.begin(1);
    let mut found = Vec::new();
    trx.get(&table, 0, b"none", ReadMode::Snapshot, &mut found).unwrap();
    trx.rollback();
    drop(trx);
    drop(engine.begin(1));
    assert_eq!(rings(&engine), before);
    let mut trx = engine.begin(1);
    insert(&mut trx, &table, 1, 10).unwrap();
    trx.rollback();
    let [all, evict, log, revert] = before;
    assert_eq!(rings(&engine), [all, evict, log, revert + 1]);
}

#[test]
fn the_log_of_a_large_load_is_written_ahead() {
    let (engine, table) = open();
    engine.set_log_capacity_bytes(64 << 20);
    let before = rings(&engine)[2];
    let mut trx = engine.begin(1);
    (0..600).for_each(|id| insert(&mut trx, &table, id, 8000).unwrap());
    let rung = rings(&engine)[2] - before;
    assert!((2..=6).contains(&rung), "{rung} times for 5 MB");
    trx.commit(true).unwrap();
}

#[test]
fn a_checkpoint_of_the_map_does_not_put_off_that_of_an_idle_engine() {
    let (engine, table) = open();
    engine.checkpoint_now().unwrap();
    let last = engine.last_checkpoint_ns();
    let mut trx = engine.begin(1);
    insert(&mut trx, &table, 1, 10).unwrap();
    trx.commit(true).unwrap();
    engine.checkpoint_map().unwrap();
    assert_eq!(engine.last_checkpoint_ns(), last);
    engine.checkpoint_now().unwrap();
    assert!(engine.last_checkpoint_ns() > last);
}

#[test]
fn new_work_is_refused_before_page_ids_run_out() {
    let (engine, table) = open();
    let mut trx = engine.begin(1);
    insert(&mut trx, &table, 1, 10).unwrap();
    trx.commit(true).unwrap();
    engine.env.skip_page_ids(PAGE_ID_MAX - 1000);
    engine.refresh_room();
    let mut trx = engine.begin(1);
    let refused = insert(&mut trx, &table, 2, 10).unwrap_err();
    assert!(matches!(&refused, Error::Refused(why) if why.contains("page ids")), "{refused}");
    assert!(refused.to_string().contains("/data"), "{refused}");
    trx.rollback();
    assert!(engine.create_table("db/other", spec("db/other")).is_err());
    engine.checkpoint_now().unwrap();
    assert!(engine.drop_table(TABLE).unwrap());
}
