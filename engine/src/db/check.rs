//! CHECK TABLE: every tree of a table node by node, and every index against the rows.
//!
//! Pages come through the buffer pool, so a page that is not in memory is read from disk and its
//! checksum verified. Index and rows are read with one snapshot, so sessions may go on meanwhile.
//!
//! Rows and entries are compared by sums that do not depend on the order, so the memory does not
//! grow with the table. Where the sums differ, the keys are compared, a share of them at a time.

use super::callbacks::Killed;
use super::engine::Engine;
use super::rows::{TableCursor, Trx};
use super::tables::Table;
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

/// Keys that are compared at a time, in 8 bytes each, rows and entries.
const COMPARED_KEYS: u64 = if cfg!(test) { 64 } else { 4 << 20 };
/// Entries that are read before the session is asked whether it was killed.
const ENTRIES_PER_ASKING: u64 = 256;

/// A clustered key in 8 bytes.
fn digest(key: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(key);
    hasher.finish()
}

/// Digests, each as often as it was added: two different collections are equal by an accident of
/// one in 2^128 only.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Sums {
    count: u64,
    plain: u64,
    mixed: u64,
}

impl Sums {
    fn add(&mut self, digest: u64) {
        let folded = (digest ^ digest >> 31).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.count += 1;
        self.plain = self.plain.wrapping_add(digest);
        self.mixed = self.mixed.wrapping_add((folded ^ folded >> 29).wrapping_mul(digest | 1));
    }
}

impl Engine {
    /// Verifies one table. [`Table::name_rows`] makes the comparison of indexes exact; without it
    /// the clustered key is looked for in the entry, by what the rows' keys are, all of which are
    /// then in memory at once.
    pub fn check_table(
        self: &Arc<Self>,
        name: &str,
        depth: CheckDepth,
        killed: &Killed<'_>,
    ) -> Result<TableReport> {
        let table = self.table(name)?.ok_or(Error::NotFound)?;
        let mut report = TableReport { name: name.to_owned(), ..Default::default() };
        self.check_trees(&table, killed, &mut report)?;
        // A damaged tree cannot be compared; what is wrong with it is known by now.
        if depth == CheckDepth::Full && report.faults.is_empty() {
            let mut trx = self.begin(0);
            let found = Comparison { trx: &mut trx, table: &table, killed }.run(&mut report);
            trx.rollback();
            match found {
                Err(Error::Interrupted) => return Err(Error::Interrupted),
                Err(error) => {
                    self.report_damage(&error);
                    report.faults.push(error.to_string());
                }
                Ok(()) => {}
            }
        }
        Ok(report)
    }

    fn check_trees(
        &self,
        table: &Table,
        killed: &Killed<'_>,
        report: &mut TableReport,
    ) -> Result<()> {
        let trees = table.gates.iter().chain([&table.long_values]).enumerate();
        for (i, gate) in trees {
            let Some(_inside) = gate.enter() else { continue };
            let mut faults = Vec::new();
            let shape = gate.tree().check_all(&mut faults, &mut || killed())?;
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
        Ok(())
    }
}

/// Gets key and payload of an entry.
type Visit<'a> = dyn FnMut(&[u8], &[u8]) -> Result<()> + 'a;

/// What is wrong with an index, each kind counted.
#[derive(Default)]
struct Differences {
    /// Entries that name no row.
    lost: u64,
    doubled: u64,
    /// Rows that no entry names.
    missed: u64,
}

/// Every index against the rows, with one snapshot.
struct Comparison<'a> {
    trx: &'a mut Trx,
    table: &'a Arc<Table>,
    killed: &'a Killed<'a>,
}

impl Comparison<'_> {
    fn run(mut self, report: &mut TableReport) -> Result<()> {
        let mut rows = Sums::default();
        self.visit(0, &mut |key, _| {
            rows.add(digest(key));
            Ok(())
        })?;
        report.rows = rows.count;
        for index in 1..self.table.gates.len() {
            let differences = self.compare(index, rows)?;
            let faults = [
                (differences.lost, "entries have no row"),
                (differences.doubled, "entries name a row that another one names"),
                (differences.missed, "rows have no entry"),
            ];
            for (count, what) in faults.into_iter().filter(|fault| fault.0 > 0) {
                report.faults.push(format!("secondary index {index}: {count} {what}"));
            }
        }
        Ok(())
    }

    /// Calls `f` with every entry of an index that the snapshot sees.
    fn visit(&mut self, index: usize, f: &mut Visit<'_>) -> Result<()> {
        let mut cursor = TableCursor::default();
        let (all, forward) = (Bound::Unbounded, Direction::Forward);
        let mut visited = 0u64;
        self.trx.seek(&mut cursor, self.table, index, all, all, forward, ReadMode::Snapshot)?;
        while self.trx.next(&mut cursor)? {
            if visited % ENTRIES_PER_ASKING == 0 && (self.killed)() {
                return Err(Error::Interrupted);
            }
            visited += 1;
            f(cursor.key(), cursor.payload())?;
        }
        Ok(())
    }

    fn compare(&mut self, index: usize, rows: Sums) -> Result<Differences> {
        let Some(row_key) = self.table.row_names() else {
            return self.compare_share(index, (0, 1));
        };
        let mut named = Sums::default();
        self.visit(index, &mut |key, payload| {
            named.add(digest(&row_key(index, key, payload)?));
            Ok(())
        })?;
        let mut found = Differences::default();
        if named == rows {
            return Ok(found);
        }
        let shares = named.count.max(rows.count) / COMPARED_KEYS + 1;
        for share in 0..shares {
            let part = self.compare_share(index, (share, shares))?;
            found.lost += part.lost;
            found.doubled += part.doubled;
            found.missed += part.missed;
        }
        Ok(found)
    }

    /// Compares the keys of one share of many, by their digests.
    fn compare_share(&mut self, index: usize, (share, shares): (u64, u64)) -> Result<Differences> {
        let is_of_share = |digest: u64| digest % shares == share;
        let mut rows = RowDigests::default();
        self.visit(0, &mut |key, _| {
            rows.add(key, is_of_share);
            Ok(())
        })?;
        let rows = rows.into_sorted();
        let names = self.table.row_names();
        let mut named = Vec::with_capacity(rows.sorted.len());
        let mut lost = 0;
        self.visit(index, &mut |key, payload| {
            let of_row = match &names {
                Some(row_key) => Some(digest(&row_key(index, key, payload)?)),
                None => rows.guess(key, payload),
            };
            match of_row.filter(|row| rows.has(*row)) {
                Some(row) => named.push(row),
                None => lost += u64::from(of_row.is_none_or(is_of_share)),
            }
            Ok(())
        })?;
        named.sort_unstable();
        let entries = named.len();
        named.dedup();
        let doubled = (entries - named.len()) as u64;
        Ok(Differences { lost, doubled, missed: (rows.sorted.len() - named.len()) as u64 })
    }
}

/// Digests of clustered keys.
#[derive(Default)]
struct RowDigests {
    sorted: Vec<u64>,
    /// Of the keys in bytes, the shortest and the longest.
    lens: Option<(usize, usize)>,
}

impl RowDigests {
    fn add(&mut self, key: &[u8], is_wanted: impl Fn(u64) -> bool) {
        let row = digest(key);
        if is_wanted(row) {
            let (least, most) = self.lens.unwrap_or((key.len(), key.len()));
            self.lens = Some((least.min(key.len()), most.max(key.len())));
            self.sorted.push(row);
        }
    }

    fn into_sorted(mut self) -> RowDigests {
        self.sorted.sort_unstable();
        self
    }

    fn has(&self, row: u64) -> bool {
        self.sorted.binary_search(&row).is_ok()
    }

    /// Where a secondary entry keeps the clustered key: in front of its payload (unique, no NULL), or
    /// at the end of its key. Mostly all keys have one length.
    fn guess(&self, key: &[u8], payload: &[u8]) -> Option<u64> {
        let known = |key: &[u8]| Some(digest(key)).filter(|row| self.has(*row));
        let (least, most) = self.lens?;
        let in_payload = Reader::new(payload, "secondary entry").bytes().ok().and_then(known);
        let at_end = || {
            let lens = (least..=most.min(key.len())).rev();
            lens.map(|len| &key[key.len() - len..]).find_map(known)
        };
        in_payload.or_else(at_end)
    }
}
