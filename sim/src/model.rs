//! What the engine must hold: rows of tables, and what every session has changed on top.

use sluice_engine::db::{Entry, RowWrite};
use sluice_engine::os::sim::SimRng;
use std::collections::BTreeMap;

pub const IDS: u64 = 40;

/// A row: primary key, a value with a plain index, one with a unique index, and a filler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    pub id: u32,
    plain: u8,
    pub unique: u16,
    filler: usize,
}

impl Row {
    pub fn random(rng: &mut SimRng, id: u32) -> Row {
        let filler = match rng.below(20) {
            0 => 10_000 + rng.below(20_000) as usize,
            1..=3 => rng.below(3_000) as usize,
            _ => rng.below(200) as usize,
        };
        Row { id, plain: rng.below(8) as u8, unique: rng.below(60) as u16, filler }
    }

    /// The keys of the row in the three indexes.
    pub fn keys(&self) -> [Vec<u8>; 3] {
        let id = self.id.to_be_bytes();
        [id.to_vec(), [&[self.plain][..], &id].concat(), self.unique.to_be_bytes().to_vec()]
    }

    pub fn payload(&self) -> Vec<u8> {
        let mut payload = vec![self.plain];
        payload.extend_from_slice(&self.unique.to_be_bytes());
        payload.resize(3 + self.filler, self.id as u8);
        payload
    }

    pub fn with<R>(&self, f: impl FnOnce(&RowWrite<'_>) -> R) -> R {
        let (keys, payload) = (self.keys(), self.payload());
        let entry = |i: usize, payload, unique| Entry { key: &keys[i], payload, unique };
        let entries = [entry(0, &payload, true), entry(1, &[], false), entry(2, &keys[0], true)];
        f(&RowWrite { entries: &entries })
    }
}

pub type Rows = BTreeMap<u32, Row>;

/// Changes of one transaction: (table, id) and what is there now.
pub type Changes = BTreeMap<(String, u32), Option<Row>>;

/// Everything that must survive a crash.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    pub tables: BTreeMap<String, Rows>,
    /// Prepared transactions by XID.
    pub prepared: BTreeMap<Vec<u8>, Changes>,
}

impl State {
    pub fn commit(&mut self, changes: &Changes) {
        for ((table, id), row) in changes {
            let rows = self.tables.get_mut(table).expect("a table in use is not dropped");
            match row {
                Some(row) => drop(rows.insert(*id, row.clone())),
                None => drop(rows.remove(id)),
            }
        }
    }

    /// The rows of a table as a transaction with these changes finds them.
    pub fn rows_with(&self, table: &str, changes: &Changes) -> Rows {
        let mut rows = self.tables[table].clone();
        for ((_, id), row) in changes.iter().filter(|(key, _)| key.0 == table) {
            match row {
                Some(row) => drop(rows.insert(*id, row.clone())),
                None => drop(rows.remove(id)),
            }
        }
        rows
    }
}
