//! CHECK TABLE: every tree of a table node by node, and every index against the rows.
//!
//! Pages come through the buffer pool, so a page that is not in memory is read from disk and its
//! checksum verified. Index and rows are read with one snapshot, so sessions may go on meanwhile.

use super::engine::Engine;
use super::table::Table;
use super::trx::{TableCursor, Trx};
use super::{Direction, ReadMode};
use crate::base::codec::Reader;
use crate::base::{Error, Result};
use std::collections::hash_map::DefaultHasher;
use std::hash::Hasher;
use std::ops::Bound;
use std::sync::Arc;

/// How much of a table is verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckDepth {
    /// Pages and the structure of trees.
    Quick,
    /// And every row is read, and every index holds exactly the rows.
    Full,
}

/// What a check of one table counted and found.
#[derive(Clone, Debug, Default)]
pub struct TableReport {
    pub name: String,
    pub rows: u64,
    pub pages: u64,
    pub faults: Vec<String>,
}

/// A clustered key in 8 bytes: two different sets of keys have equal sorted digests by an accident
/// of one in 2^64 only.
fn digest(key: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(key);
    hasher.finish()
}

impl Engine {
    /// Verifies one table. [`Table::name_rows`] makes the comparison of indexes exact; without it
    /// the clustered key is looked for in the entry, by what the rows' keys are.
    pub fn check_table(self: &Arc<Self>, name: &str, depth: CheckDepth) -> Result<TableReport> {
        let table = self.table(name)?.ok_or(Error::NotFound)?;
        let mut report = TableReport { name: name.to_owned(), ..Default::default() };
        self.check_trees(&table, &mut report);
        // A damaged tree cannot be compared; what is wrong with it is known by now.
        if depth == CheckDepth::Full && report.faults.is_empty() {
            let mut trx = self.begin(0);
            let found = check_rows(&mut trx, &table, &mut report);
            trx.rollback();
            if let Err(error) = found {
                self.report_damage(&error);
                report.faults.push(error.to_string());
            }
        }
        Ok(report)
    }

    fn check_trees(&self, table: &Table, report: &mut TableReport) {
        let trees = table.gates.iter().chain([&table.long_values]).enumerate();
        for (i, gate) in trees {
            let Some(_inside) = gate.enter() else { continue };
            let mut faults = Vec::new();
            let shape = gate.tree().check_all(&mut faults);
            report.pages += shape.inner_nodes + shape.leaves;
            let part = match i {
                0 => "rows".to_owned(),
                _ if i == table.gates.len() => "long values".to_owned(),
                _ => format!("secondary index {i}"),
            };
            for error in faults {
                self.report_damage(&error);
                report.faults.push(format!("{part}: {error}"));
            }
        }
    }
}

/// Gets key and payload of an entry.
type Visit<'a> = dyn FnMut(&[u8], &[u8]) -> Result<()> + 'a;

/// Calls `f` with every entry of an index that the transaction's snapshot sees.
fn visit(trx: &mut Trx, table: &Arc<Table>, index: usize, f: &mut Visit<'_>) -> Result<()> {
    let mut cursor = TableCursor::default();
    let all = Bound::Unbounded;
    trx.seek(&mut cursor, table, index, all, all, Direction::Forward, ReadMode::Snapshot)?;
    while trx.next(&mut cursor)? {
        f(cursor.key(), cursor.payload())?;
    }
    Ok(())
}

fn check_rows(trx: &mut Trx, table: &Arc<Table>, report: &mut TableReport) -> Result<()> {
    let mut rows = Vec::new();
    visit(trx, table, 0, &mut |key, _| {
        rows.push(digest(key));
        Ok(())
    })?;
    rows.sort_unstable();
    report.rows = rows.len() as u64;
    for index in 1..table.gates.len() {
        let mut named = Vec::with_capacity(rows.len());
        let mut lost = 0u64;
        visit(trx, table, index, &mut |key, payload| {
            let of_row = match table.row_names() {
                Some(row_key) => Some(digest(&row_key(index, key, payload)?)),
                None => guess_row(&rows, key, payload),
            };
            match of_row.filter(|row| rows.binary_search(row).is_ok()) {
                Some(row) => named.push(row),
                None => lost += 1,
            }
            Ok(())
        })?;
        named.sort_unstable();
        let entries = named.len();
        named.dedup();
        let faults = [
            (lost, "entries have no row"),
            ((entries - named.len()) as u64, "entries name a row that another one names"),
            ((rows.len() - named.len()) as u64, "rows have no entry"),
        ];
        for (count, what) in faults.into_iter().filter(|fault| fault.0 > 0) {
            report.faults.push(format!("secondary index {index}: {count} {what}"));
        }
    }
    Ok(())
}

/// Where a secondary entry keeps the clustered key: in front of its payload (unique, no NULL), or
/// at the end of its key.
fn guess_row(rows: &[u64], key: &[u8], payload: &[u8]) -> Option<u64> {
    let known = |key: &[u8]| Some(digest(key)).filter(|row| rows.binary_search(row).is_ok());
    let in_payload = Reader::new(payload, "secondary entry").bytes().ok().and_then(known);
    in_payload.or_else(|| (0..=key.len()).find_map(|from| known(&key[from..])))
}
