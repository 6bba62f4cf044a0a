//! A table that a statement fills before anybody sees it, as a server does with ALTER TABLE
//! and CREATE TABLE ... SELECT: made under another name, loaded, renamed. Once the rows are loaded the server
//! notes in a log of its own that the table goes to its name, and does that after a crash; before, it
//! drops what is there. And a table that a large INSERT of a transaction fills.

use crate::operator::SESSION_OF_DDL;
use crate::row::{Row, Rows};
use crate::world::Life;
use sluice_engine::base::{Error, Lsn, Result};
use sluice_engine::db::{take_ddl_ends, Added, BulkInsert, Engine, Table, TableLoad, Trx};
use sluice_engine::os::sim::SimRng;
use std::collections::BTreeSet;
use std::sync::Arc;

/// The name of a table while it is filled.
pub const COPIED: &str = "db/#copied";

/// Rows with different keys in all unique indexes.
pub fn random_rows(rng: &mut SimRng, ids: u64, filler_bytes: u64) -> Rows {
    let share = rng.below(100);
    let mut taken = BTreeSet::new();
    let mut rows = Rows::new();
    for id in 0..ids as u32 {
        if rng.chance(share) {
            let row = Row::random(rng, id, ids, filler_bytes);
            if taken.insert(row.unique) {
                rows.insert(id, row);
            }
        }
    }
    rows
}

/// Mostly that of the keys.
pub fn in_some_order<'r>(rng: &mut SimRng, rows: &'r Rows) -> Vec<&'r Row> {
    let mut order: Vec<&Row> = rows.values().collect();
    match rng.below(10) {
        // The first rows tell that they are not in order.
        0 | 1 => order.reverse(),
        2 | 3 if !order.is_empty() => {
            let late = rng.below(order.len() as u64) as usize;
            order[late..].rotate_left(1);
        }
        _ => {}
    }
    order
}

/// As INSERT ... SELECT does, with so many bytes of rows one by one first. After an error the caller takes the statement back.
pub fn insert_all(
    trx: &mut Trx,
    table: &Arc<Table>,
    rows: &[&Row],
    first_bytes: u64,
) -> Result<()> {
    let mut bulk = BulkInsert::new(table, first_bytes as usize);
    for row in rows {
        row.with(|write| bulk.insert(trx, write, &|| false))?;
    }
    bulk.end(trx, &|| false)
}

/// Makes the table `name` of all rows at once, and answers where it came to its name, if it did.
pub fn load(life: &Life, name: &str, rows: &Rows, seed: u64) -> (Result<()>, Vec<Lsn>) {
    let (engine, mut rng) = (&life.engine, SimRng::new(seed));
    let filled = prepare(life, seed).and_then(|()| fill(engine, rows, &mut rng));
    let mut ends = Vec::new();
    let mut done = filled.as_ref().map(drop).map_err(Clone::clone);
    if let Ok(true) = filled {
        life.model().copy_is_noted();
        if rng.chance(35) {
            // Before anything else flushes what the copy has logged.
            life.cut_power_after(rng.below(3));
        }
        take_ddl_ends();
        done = engine.rename_table(COPIED, name);
        ends = take_ddl_ends();
    }
    if ends.is_empty() && !life.is_dark() {
        done = done.and(engine.drop_table(COPIED).map(drop));
    }
    (done, ends)
}

fn prepare(life: &Life, seed: u64) -> Result<()> {
    let engine = &life.engine;
    // An earlier statement may have found no room to drop it.
    engine.drop_table(COPIED)?;
    engine.create_table(COPIED, life.spec(seed))?;
    life.note_promised();
    Ok(())
}

/// False: the statement has given up.
fn fill(engine: &Arc<Engine>, rows: &Rows, rng: &mut SimRng) -> Result<bool> {
    let table = engine.table(COPIED)?.ok_or(Error::NotFound)?;
    let order = in_some_order(rng, rows);
    let mut load = engine.load_table(&table)?.expect("it is empty");
    let gives_up = rng.chance(10);
    let stop = rng.below(1 + order.len() as u64) as usize;
    for (at, row) in order.iter().enumerate() {
        if gives_up && at == stop {
            return Ok(false);
        }
        if row.with(|write| load.add(write, &|| false))? == Added::OutOfOrder {
            end(load)?;
            one_by_one(engine, &table, &order[at..])?;
            return engine.end_copy(&[table]).map(|()| true);
        }
    }
    end(load)?;
    engine.end_copy(&[table]).map(|()| !gives_up)
}

fn end(load: TableLoad) -> Result<()> {
    let twice = load.finish(&|| false)?;
    assert!(twice.is_none(), "{twice:?}");
    Ok(())
}

fn one_by_one(engine: &Arc<Engine>, table: &Arc<Table>, rows: &[&Row]) -> Result<()> {
    let mut trx = engine.begin(SESSION_OF_DDL);
    for row in rows {
        row.with(|write| trx.insert(table, write))?;
    }
    trx.commit(false)
}
