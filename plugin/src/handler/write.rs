//! Rows in: the entries of a row, and which of them a change touches.
//!
//! 1. A write names every index, in the order of the shape. An entry that an UPDATE does not touch is empty
//!    on both sides, which the engine takes for unchanged.
//! 2. A change of the clustered key touches every index: every entry names its row by it.
//! 3. The hidden key of a new row comes from the table; of a row that is changed or deleted it is that of the
//!    row that was read last (`row_key`).

use super::rows::Source;
use super::Handler;
use crate::copy::Duplicate;
use crate::entry::{self, EntryBuffer};
use crate::errors::HA_ERR_RECORD_IS_THE_SAME;
use crate::key::KeyMaker;
use crate::record::Record;
use crate::session::Session;
use crate::shape::Index;
use sluice_engine::base::Result;
use sluice_engine::db::{Entry, ReadMode, RowWrite};
use std::sync::Arc;

/// Of a row's UPDATE.
pub enum UpdateOutcome {
    Done,
    Failed(i32),
}

impl Handler {
    pub fn insert(&mut self, session: &mut Session, record: Record<'_>) -> Result<()> {
        self.check_orders()?;
        self.touch_all();
        if self.shape.hidden_key {
            self.rows.row_key = self.table.next_hidden_key()?.to_be_bytes().to_vec();
        }
        self.make_entries(0, record);
        let entries = as_entries(&self.entries[0]);
        let row = RowWrite { entries: &entries };
        if self.copies {
            return session.copy_row(&self.table, &row, self.replace);
        }
        if self.bulk {
            return session.bulk_row(&self.table, &row);
        }
        session.trx.set_replace(self.replace);
        session.trx.insert(&self.table, &row)
    }

    pub fn update(
        &mut self,
        session: &mut Session,
        before: Record<'_>,
        after: Record<'_>,
    ) -> Result<UpdateOutcome> {
        self.check_orders()?;
        self.note_touched(before, after);
        self.make_entries(0, before);
        self.make_entries(1, after);
        let [old, new] = &self.entries;
        if old.iter().zip(new).all(|(a, b)| a.key == b.key && a.payload == b.payload) {
            return Ok(UpdateOutcome::Failed(HA_ERR_RECORD_IS_THE_SAME));
        }
        let (old, new) = (as_entries(old), as_entries(new));
        let (old, new) = (RowWrite { entries: &old }, RowWrite { entries: &new });
        session.trx.set_replace(self.replace);
        session.trx.update(&self.table, &old, &new).map(|()| UpdateOutcome::Done)
    }

    pub fn delete(&mut self, session: &mut Session, record: Record<'_>) -> Result<()> {
        self.check_orders()?;
        self.touch_all();
        self.make_entries(0, record);
        let entries = as_entries(&self.entries[0]);
        session.trx.delete(&self.table, &RowWrite { entries: &entries })
    }

    /// The key of the last duplicate. The transaction knows it: a row that moves to another partition
    /// fails in another handler than the one that the server asks.
    pub fn duplicate_key(&self, session: &Session) -> usize {
        self.shape.key_of_index(session.duplicate_index(self.copies))
    }

    /// A duplicate that a copy has found later than its row was inserted, to the record.
    pub fn put_duplicate(&mut self, session: &mut Session, record: &mut [u8]) -> Result<()> {
        let Some(Duplicate { table, twice }) = session.copied_duplicate() else { return Ok(()) };
        let (of, key, index) = (Arc::clone(table), twice.key.clone(), twice.index);
        let mut payload = twice.stored.clone();
        session.trx.read_stored(&of, &mut payload)?;
        let Handler { shape, table, rows, .. } = self;
        let (clustered, stored) = entry::split(shape, index, &key, &payload)?;
        rows.clear_nulls(shape, record);
        if index > 0 {
            // Of a key with a part of a column the entry has no more than that.
            let mut source = Source { shape, table, mode: ReadMode::Snapshot, session };
            rows.fetch_row(&mut source, clustered, record)?;
        }
        let done = rows.put_columns(shape, index, &key, stored, record);
        // BLOBs of the record point into it.
        self.entries[1].resize_with(1, EntryBuffer::default);
        self.entries[1][0].payload = payload;
        done
    }

    fn touch_all(&mut self) {
        self.touched.clear();
        self.touched.resize(self.shape.indexes.len(), true);
    }

    /// Which indexes does the change from `before` to `after` touch?
    fn note_touched(&mut self, before: Record<'_>, after: Record<'_>) {
        let shape = &self.shape;
        let differs = |&column: &usize| {
            let column = &shape.columns[column];
            // The server leaves a virtual BLOB that it did not need as it was, maybe an address
            // of nothing.
            if column.is_virtual && before.has_same_bytes(&after, column) {
                return false;
            }
            let nulls = (before.is_null(column), after.is_null(column));
            nulls.0 != nulls.1 || !nulls.0 && before.value(column) != after.value(column)
        };
        let index_differs = |index: &Index| {
            index.parts.iter().map(|p| p.column).chain(index.stored.columns()).any(|c| differs(&c))
        };
        let key_differs = shape.indexes[0].parts.iter().any(|p| differs(&p.column));
        self.touched.clear();
        self.touched.extend(shape.indexes.iter().map(|index| key_differs || index_differs(index)));
    }

    /// One pass from the record to the bytes of every touched index; the entries of the others
    /// stay empty.
    fn make_entries(&mut self, which: usize, record: Record<'_>) {
        let shape = &self.shape;
        let entries = &mut self.entries[which];
        entries.resize_with(shape.indexes.len(), EntryBuffer::default);
        let mut maker = KeyMaker { shape, collator: self.collator, scratch: &mut self.scratch };
        let (clustered, others) = entries.split_first_mut().expect("a clustered index");
        entry::make_clustered(&mut maker, record, &self.rows.row_key, clustered);
        for (index, other) in (1..).zip(others) {
            if self.touched[index] {
                entry::make_secondary(&mut maker, index, record, &clustered.key, other);
            } else {
                other.clear();
            }
        }
    }
}

fn as_entries(buffers: &[EntryBuffer]) -> Vec<Entry<'_>> {
    buffers.iter().map(EntryBuffer::as_entry).collect()
}
