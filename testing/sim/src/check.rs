//! Reading whole tables, and comparing what all indexes of one say.

use crate::loading::COPIED;
use crate::model::Found;
use crate::row::{Row, Rows};
use sluice_engine::base::{Error, Result};
use sluice_engine::db::{CheckDepth, Cursor, Direction, Engine, ReadMode, Table, Trx, Wanted};
use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;

type Entries = Vec<(Vec<u8>, Vec<u8>)>;

/// All entries of an index.
pub fn scan(trx: &mut Trx, table: &Arc<Table>, index: usize, way: Direction) -> Result<Entries> {
    let (mut cursor, all) = (Cursor::default(), Bound::Unbounded);
    trx.seek(&mut cursor, table, index, all, all, way, ReadMode::Snapshot)?;
    let mut found = Vec::new();
    while trx.next(&mut cursor)? {
        found.push((cursor.key().to_vec(), cursor.payload().to_vec()));
    }
    if way == Direction::Backward {
        found.reverse();
    }
    Ok(found)
}

/// The rows of the clustered index.
pub fn rows(trx: &mut Trx, table: &Arc<Table>, way: Direction) -> Result<Rows> {
    let entries = scan(trx, table, 0, way)?;
    let count = entries.len();
    let rows: Rows = entries
        .iter()
        .map(|(key, payload)| Row::parse(key, payload, Wanted::All))
        .map(|row| (row.id, row))
        .collect();
    assert_eq!(rows.len(), count, "a scan of {} found a row twice", table.name());
    Ok(rows)
}

/// What one index other than the clustered one must hold.
pub fn index_fits(
    trx: &mut Trx,
    table: &Arc<Table>,
    index: usize,
    way: Direction,
    rows: &Rows,
) -> Result<()> {
    let found = scan(trx, table, index, way)?;
    let mut keys: Vec<_> = rows.values().map(|row| row.keys()[index].clone()).collect();
    keys.sort();
    assert!(
        found.iter().map(|entry| &entry.0).eq(&keys),
        "index {index} of {} does not agree with {} rows: {} entries",
        table.name(),
        rows.len(),
        found.len()
    );
    Ok(())
}

/// All rows of all tables, as a new snapshot sees them; every index must agree. Of a table that lost
/// pages, the rows below `ids` that can be read.
pub fn everything(engine: &Arc<Engine>, session: u64, ids: u64) -> Found {
    let mut trx = engine.begin(session);
    let mut all = Found::default();
    // One that is being filled is nobody's yet.
    for name in engine.table_names().into_iter().filter(|name| name != COPIED) {
        let table = table(engine, &name);
        all.definitions.insert(name.clone(), table.definition().to_vec());
        if engine.given_up_in(&name).expect("a table") > 0 {
            let (rows, unreadable) = readable(&mut trx, &table, ids);
            all.tables.insert(name.clone(), rows);
            all.unreadable.insert(name, unreadable);
            continue;
        }
        let found = rows(&mut trx, &table, Direction::Forward).expect("a scan");
        for index in 1..table.index_count() {
            for way in [Direction::Forward, Direction::Backward] {
                index_fits(&mut trx, &table, index, way, &found).expect("a scan");
            }
        }
        let faults = engine
            .check_table(&name, CheckDepth::Quick, &|| false)
            .expect("the table is there")
            .faults;
        assert!(faults.is_empty(), "{faults:?}");
        all.tables.insert(name, found);
    }
    all
}

/// A row of a table that lost pages is right, or there is an error.
fn readable(trx: &mut Trx, table: &Arc<Table>, ids: u64) -> (Rows, BTreeSet<u32>) {
    let (mut rows, mut unreadable) = (Rows::new(), BTreeSet::new());
    for id in 0..ids as u32 {
        let (key, mut payload) = (id.to_be_bytes(), Vec::new());
        match trx.get(table, 0, &key, ReadMode::Snapshot, &mut payload) {
            Ok(true) => drop(rows.insert(id, Row::parse(&key, &payload, Wanted::All))),
            Ok(false) => {}
            Err(Error::Corrupt { .. }) => drop(unreadable.insert(id)),
            Err(error) => panic!("{error}"),
        }
    }
    (rows, unreadable)
}

pub fn table(engine: &Engine, name: &str) -> Arc<Table> {
    engine.table(name).ok().flatten().unwrap_or_else(|| panic!("{name} is gone"))
}
