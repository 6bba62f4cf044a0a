//! The rows of a table that nobody else can see yet, built at once: the tree of long values, and the clustered
//! tree if rows come in order (`row_tree`), bottom up as rows come; the other trees from sorted entries at
//! the end. A statement that inserts into an empty table loads it in the same way, with leaves that others may
//! read (`bulk_insert`): then the entries are its transaction's, and 1, 3, 4 and 5 do not hold.
//!
//! Invariants:
//! 1. The caller has made the table in this statement, keeps everybody from it until [`Engine::end_copy`] has
//!    returned, and drops it after an error or a crash before that: until then its trees do not agree.
//! 2. If the first rows come in the order of their keys, the others must. One that does not is
//!    left out: [`Added::OutOfOrder`]. What came before may be finished all the same, and the rows that are
//!    left go in as any others.
//! 3. Entries have id 0, which every snapshot sees. Older snapshots than the end of the load do not
//!    get at the table (see `Table::created`).
//! 4. Chunks of long values have id 0 in their keys. No transaction has that id, and a table is
//!    loaded once, so keys of chunks are used once (rules M22).
//! 5. After [`Engine::end_copy`] the rows are durable (rules M18).

use super::admission::Admission;
use super::author::Author;
use super::row_tree::{RowTree, ARRIVAL_BYTES};
use super::sorter::{Sorter, MEMORY_BYTES};
use crate::base::{EntryHeader, Error, Result, ENTRY_HEADER_BYTES};
use crate::btree::Builder;
use crate::db::callbacks::Killed;
use crate::db::engine::Engine;
use crate::db::rows::{place_new, Reference, RowWrite, CHUNK_BYTES};
use crate::db::tables::Table;
use crate::os::planted::{self, Bug};
use std::sync::atomic::Ordering;
use std::sync::Arc;

/// Of all sorters of a table.
const SORTERS_BYTES: usize = 4 * MEMORY_BYTES;

/// What became of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Added {
    Done,
    /// Its key is not above that of the row before. It was left out.
    OutOfOrder,
}

/// The first row whose key was there already.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Twice {
    pub index: usize,
    pub key: Vec<u8>,
    /// As it is stored: see [`Trx::read_stored`](crate::db::Trx::read_stored).
    pub stored: Vec<u8>,
    /// Counted from the first row.
    arrival: u64,
}

/// Long values on their way into their tree.
struct LongValues {
    engine: Arc<Engine>,
    builder: Builder,
    header: EntryHeader,
    sequence: u32,
    entry: Vec<u8>,
}

/// A table on its way.
pub struct TableLoad {
    engine: Arc<Engine>,
    table: Arc<Table>,
    rows: RowTree,
    long: LongValues,
    /// One for each other index.
    sorters: Vec<Sorter>,
    came: u64,
    author: Author,
    admission: Admission,
    entry: Vec<u8>,
    scratch: Vec<u8>,
    has_failed: bool,
}

impl Engine {
    /// Begins to fill a table. None: it has had rows, so they go in one by one.
    pub fn load_table(self: &Arc<Self>, table: &Arc<Table>) -> Result<Option<TableLoad>> {
        if table.has_changed() || !has_no_entry(table)? {
            return Ok(None);
        }
        TableLoad::new(self, table, Author::nobody(table.gates.len())).map(Some)
    }

    /// A copy into these tables has come to its end: its rows are durable. From now on snapshots that
    /// began before get an error, as those do that began before the table was made. They would see a
    /// part of the rows.
    pub fn end_copy(&self, tables: &[Arc<Table>]) -> Result<()> {
        let newest = self.newest_csn();
        for table in tables.iter().filter(|table| !table.counters.is_temporary) {
            table.created.fetch_max(newest.0, Ordering::AcqRel);
        }
        match planted::is(Bug::CopyNotFlushed) {
            true => Ok(()),
            false => self.flush_log(),
        }
    }
}

impl LongValues {
    fn write(
        &mut self,
        value: &[u8],
        admission: &mut Admission,
        killed: &Killed<'_>,
    ) -> Result<Reference> {
        self.sequence = self.sequence.checked_add(1).ok_or_else(too_many)?;
        let (id, sequence) = (self.header.txn.0, self.sequence);
        let reference = Reference { id, sequence, bytes: value.len() };
        for (chunk, bytes) in (0..).zip(value.chunks(CHUNK_BYTES)) {
            admission.ask(&self.engine, bytes.len(), killed)?;
            self.entry.clear();
            self.header.put(&mut self.entry);
            self.entry.extend_from_slice(bytes);
            self.builder.push(&reference.key(chunk), &self.entry)?;
            self.engine.long_values.written.fetch_add(1, Ordering::Relaxed);
        }
        Ok(reference)
    }
}

impl TableLoad {
    /// Of a table whose trees have no entry.
    pub(super) fn new(
        engine: &Arc<Engine>,
        table: &Arc<Table>,
        mut author: Author,
    ) -> Result<TableLoad> {
        let memory_bytes = MEMORY_BYTES.min(SORTERS_BYTES / table.gates.len());
        let mut sorters = table.def.indexes.iter().zip(&table.gates).map(|(index, gate)| {
            let dir = &engine.config.data_dir;
            Sorter::new(Arc::clone(&engine.os), dir, index.tree.0, memory_bytes)
                .hiding(engine.encrypts())
                .counted_by(gate.tree().bytes())
        });
        let of_rows = sorters.next().ok_or(Error::NotFound)?;
        let long = LongValues {
            engine: Arc::clone(engine),
            builder: author.builder(&table.long_values),
            header: author.of_long_values,
            sequence: author.long_sequence,
            entry: Vec::new(),
        };
        Ok(TableLoad {
            rows: RowTree::new(author.builder(&table.gates[0]), of_rows, memory_bytes),
            long,
            sorters: sorters.collect(),
            engine: Arc::clone(engine),
            table: Arc::clone(table),
            came: 0,
            author,
            admission: Admission::default(),
            entry: Vec::new(),
            scratch: Vec::new(),
            has_failed: false,
        })
    }

    pub fn table(&self) -> &Arc<Table> {
        &self.table
    }

    /// After an error the table can only be dropped.
    pub fn add(&mut self, row: &RowWrite<'_>, killed: &Killed<'_>) -> Result<Added> {
        let added = self.take(row, killed)?;
        if added == Added::Done {
            self.table.counters.remembered.row_inserted();
        }
        Ok(added)
    }

    /// A row that was counted.
    pub(super) fn take(&mut self, row: &RowWrite<'_>, killed: &Killed<'_>) -> Result<Added> {
        assert_eq!(row.entries.len(), self.table.gates.len(), "one entry for each index");
        self.check()?;
        let key = row.entries[0].key;
        if !self.rows.takes(key) {
            return Ok(Added::OutOfOrder);
        }
        let added = self.add_entries(row, killed);
        self.has_failed = added.is_err();
        added.map(|()| {
            self.came += 1;
            Added::Done
        })
    }

    /// So many rows came.
    pub(super) fn came(&self) -> u64 {
        self.came
    }

    /// Of the last long value.
    pub(super) fn long_sequence(&self) -> u32 {
        self.long.sequence
    }

    fn check(&self) -> Result<()> {
        match self.has_failed {
            true => Err(Error::Refused("a row of the copy has failed".into())),
            false => Ok(()),
        }
    }

    fn add_entries(&mut self, row: &RowWrite<'_>, killed: &Killed<'_>) -> Result<()> {
        let TableLoad {
            engine,
            table,
            rows,
            long,
            sorters,
            came,
            author,
            admission,
            entry,
            scratch,
            ..
        } = self;
        let bytes = row.entries.iter().map(|entry| entry.key.len() + entry.payload.len()).sum();
        admission.ask(engine, bytes, killed)?;
        for (index, new) in row.entries.iter().enumerate() {
            entry.clear();
            author.of_entries[index].put(entry);
            place_new(new, scratch, &mut |value| long.write(value, admission, killed))?.put(entry);
            if index == 0 {
                let ask = &mut |bytes| admission.ask(engine, bytes, killed);
                rows.add(new.key, entry, *came, ask)?;
                continue;
            }
            if table.def.indexes[index].unique {
                entry.extend_from_slice(&came.to_be_bytes());
            }
            sorters[index - 1].push(new.key, entry)?;
        }
        Ok(())
    }

    /// All rows are in: makes the trees. With an answer the table can only be dropped: it is the row
    /// at which an insert of one after the other would have stopped.
    pub fn finish(self, killed: &Killed<'_>) -> Result<Option<Twice>> {
        self.check()?;
        let TableLoad { engine, table, rows, long, sorters, came, mut author, admission, .. } =
            self;
        // These and the rows come first: the row of a duplicate is read, for the message.
        long.builder.finish()?;
        let count = author.counter(&engine);
        let mut making = Making { engine: &engine, table: &table, twice: None, admission, killed };
        if let Some((sorter, builder)) = rows.finish()? {
            making.index(0, sorter, builder)?;
        }
        for (index, sorter) in (1..).zip(sorters) {
            let builder = author.builder(&table.gates[index]);
            making.index(index, sorter, builder)?;
        }
        if making.twice.is_some() {
            return Ok(making.twice);
        }
        count.fetch_add(came, Ordering::Relaxed);
        Ok(None)
    }
}

/// Trees that are made of sorted entries, and what is known of keys that are there twice.
struct Making<'a> {
    engine: &'a Engine,
    table: &'a Table,
    twice: Option<Twice>,
    admission: Admission,
    killed: &'a Killed<'a>,
}

impl Making<'_> {
    /// Makes the tree of an index. Of rows with one key the clustered one has the first that came; the
    /// others are not made once a key was there twice.
    fn index(&mut self, index: usize, sorter: Sorter, mut builder: Builder) -> Result<()> {
        let is_unique = self.table.def.indexes[index].unique;
        if self.twice.is_some() && !is_unique {
            return Ok(());
        }
        let arrival_bytes = if is_unique { ARRIVAL_BYTES } else { 0 };
        let mut sorted = sorter.finish()?;
        let (mut key, mut value) = (Vec::new(), Vec::new());
        // The first of the rows with the last key.
        let (mut first_key, mut first) = (Vec::new(), Vec::new());
        let mut goes_on = sorted.next(&mut first_key, &mut first)?;
        while goes_on {
            self.admission.ask(self.engine, first_key.len() + first.len(), self.killed)?;
            goes_on = sorted.next(&mut key, &mut value)?;
            if goes_on && key == first_key {
                if !is_unique {
                    let fault = format!("index {index} has an entry too many");
                    return Err(Error::corrupt(fault, self.table.name.clone()));
                }
                if arrival(&value) < arrival(&first) {
                    std::mem::swap(&mut first, &mut value);
                }
                self.note(Twice::of(index, &key, &value));
                continue;
            }
            if self.twice.is_none() || index == 0 {
                builder.push(&first_key, &first[..first.len() - arrival_bytes])?;
            }
            std::mem::swap(&mut first_key, &mut key);
            std::mem::swap(&mut first, &mut value);
        }
        match self.twice {
            Some(_) if index > 0 => Ok(()),
            _ => builder.finish(),
        }
    }

    /// Of two rows the one that came before counts; of one row the index that comes before.
    fn note(&mut self, found: Twice) {
        let place = |twice: &Twice| (twice.arrival, twice.index);
        if self.twice.as_ref().is_none_or(|twice| place(&found) < place(twice)) {
            self.twice = Some(found);
        }
    }
}

impl Twice {
    fn of(index: usize, key: &[u8], value: &[u8]) -> Twice {
        let stored = value[ENTRY_HEADER_BYTES..value.len() - ARRIVAL_BYTES].to_vec();
        Twice { index, key: key.to_vec(), stored, arrival: arrival(value) }
    }
}

/// When the row of an entry of a sorter came.
fn arrival(value: &[u8]) -> u64 {
    value.last_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes))
}

/// No tree of the table has an entry, not even one that is deleted.
pub(super) fn has_no_entry(table: &Table) -> Result<bool> {
    let mut gates = table.gates.iter().chain([&table.long_values]);
    gates.try_fold(true, |all, gate| Ok(all && gate.tree().is_empty()?))
}

#[cold]
fn too_many() -> Error {
    Error::Refused("a table is not copied with more than 4294967295 long values".into())
}
