//! Rows out: from an entry to the row, and into the server's record.
//!
//! 1. `row_key` is the clustered key of the row in the record.
//! 2. A locking read locks the row, also where an entry of another index has all that the statement wants.
//! 3. BLOBs of the record point into `row` or into the cursor, so these stay as they are until the next
//!    read of the handler.
//! 4. A column that is not wanted may not have been read. So the columns that are wanted do not change between
//!    the read of a row and `put_row`.
//! 5. `fresh_locks` are those of the last read, and only these may be given back.

use super::Handler;
use crate::entry;
use crate::key;
use crate::row;
use crate::session::Session;
use crate::shape::{Part, Shape};
use sluice_engine::base::Result;
use sluice_engine::db::{ReadMode, Table, Wanted};
use std::sync::Arc;

/// Does the statement do with what an index entry has?
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub enum Keyread {
    #[default]
    Off,
    On,
    /// Other scans of an index merge share the record: what they put in it stays.
    KeepOthers,
}

#[derive(Clone, Copy, Default)]
pub(super) struct FreshLocks {
    pub entry: bool,
    pub row: bool,
}

/// Where rows are read: their table, as which reads, in which transaction.
pub(super) struct Source<'a> {
    pub shape: &'a Shape,
    pub table: &'a Arc<Table>,
    pub mode: ReadMode,
    pub session: &'a mut Session,
}

impl Source<'_> {
    /// The payload of an entry. False: there is none.
    fn get(
        &mut self,
        index: usize,
        key: &[u8],
        wanted: Wanted<'_>,
        payload: &mut Vec<u8>,
    ) -> Result<bool> {
        self.session.trx.get_wanted(self.table, index, key, self.mode, wanted, payload)
    }

    fn is_locking(&self) -> bool {
        self.mode != ReadMode::Snapshot
    }

    pub fn took_lock(&self) -> bool {
        self.is_locking() && self.session.trx.lock_is_new()
    }
}

/// Reads rows as the statement wants them, and keeps the one that it read last.
#[derive(Default)]
pub(super) struct RowReader {
    pub keyread: Keyread,
    /// Columns that reads must give; empty: all.
    wanted: Vec<bool>,
    /// By index: the statement wants a column of which an entry has a prefix only. Of the primary
    /// key, because positions are made from it; of the index itself, because the server compares
    /// the record with the end of a range. Empty: none.
    wants_row: Vec<bool>,
    /// Clustered key of the row in the record.
    pub row_key: Vec<u8>,
    /// The entry and the row of the last read whose locks may be given back.
    pub fresh_locks: FreshLocks,
    /// Payload of the last row that no cursor has.
    row: Vec<u8>,
}

impl RowReader {
    pub fn want_all(&mut self) {
        self.wanted.clear();
        self.wants_row.clear();
    }

    /// As [`Handler::want`].
    fn want(&mut self, shape: &Shape, bits: &[u8], all: bool) {
        let primary = &shape.indexes[0].parts;
        let is_set = |c: usize| bits.get(c / 8).is_none_or(|b| b >> (c % 8) & 1 == 1);
        // The server computes a virtual column from others.
        let is_read = |c: usize| is_set(c) || shape.columns[c].is_virtual;
        let is_cut = |p: &Part| !p.is_whole(&shape.columns) && is_read(p.column);
        let is_cut_primary = primary.iter().any(is_cut) && !crate::planted::is("A1");
        let wants_row = shape.indexes.iter().map(|i| is_cut_primary || i.parts.iter().any(is_cut));
        self.want_all();
        self.wants_row.extend(wants_row);
        if !all {
            self.wanted.extend((0..shape.columns.len()).map(is_set));
            primary.iter().for_each(|part| self.wanted[part.column] = true);
        }
    }

    /// The columns that the engine reads of an entry of an index.
    pub fn wanted(&self, index: usize) -> Wanted<'_> {
        row::wanted_parts(index, &self.wanted)
    }

    /// Lets go of a buffer of more than this.
    pub fn keep(&mut self, bytes_max: usize) {
        if self.row.capacity() > bytes_max {
            self.row = Vec::new();
        }
    }

    /// The entry with this key, which is unique, to the record. False: there is none, or its row is gone.
    /// `payload` gets an entry of another index than the clustered one.
    pub fn look_up(
        &mut self,
        source: &mut Source<'_>,
        index: usize,
        key: &[u8],
        payload: &mut Vec<u8>,
        record: &mut [u8],
    ) -> Result<bool> {
        self.fresh_locks = FreshLocks::default();
        if index == 0 {
            return self.fetch_row(source, key, record);
        }
        let found = source.get(index, key, self.wanted(index), payload);
        self.fresh_locks.entry = source.took_lock();
        Ok(found? && self.put_entry(source, index, key, payload, record)?)
    }

    /// An entry of an index to the record. False: its row is gone.
    pub fn put_entry(
        &mut self,
        source: &mut Source<'_>,
        index: usize,
        entry_key: &[u8],
        payload: &[u8],
        record: &mut [u8],
    ) -> Result<bool> {
        let shape = source.shape;
        if index == 0 {
            self.stand_at(entry_key);
            return self.put_row(shape, payload, record).map(|()| true);
        }
        let (clustered, stored) = entry::split(shape, index, entry_key, payload)?;
        let wants_row = self.wants_row.get(index) == Some(&true);
        if self.keyread != Keyread::Off && !wants_row {
            if source.is_locking() && !self.lock_row(source, clustered)? {
                return Ok(false);
            }
            self.stand_at(clustered);
            self.clear_nulls(shape, record);
            self.put_columns(shape, index, entry_key, stored, record)?;
            key::take_columns(shape, 0, clustered, record)?;
            return Ok(true);
        }
        if !self.fetch_row(source, clustered, record)? {
            return Ok(false);
        }
        if self.keyread != Keyread::Off {
            // The server does not compute virtual columns that the index has.
            self.put_columns(shape, index, entry_key, stored, record)?;
        }
        Ok(true)
    }

    /// What an entry of an index has to the record.
    pub fn put_columns(
        &self,
        shape: &Shape,
        index: usize,
        key: &[u8],
        stored: &[u8],
        record: &mut [u8],
    ) -> Result<()> {
        row::unpack(shape, index, stored, &self.wanted, record)?;
        key::take_columns(shape, index, key, record)
    }

    /// The row with this clustered key to the record. False: there is none.
    pub fn fetch_row(
        &mut self,
        source: &mut Source<'_>,
        clustered: &[u8],
        record: &mut [u8],
    ) -> Result<bool> {
        let wanted = row::wanted_parts(0, &self.wanted);
        let found = source.get(0, clustered, wanted, &mut self.row);
        self.fresh_locks.row = source.took_lock();
        if !found? {
            return Ok(false);
        }
        self.stand_at(clustered);
        self.put_row(source.shape, &self.row, record).map(|()| true)
    }

    /// An index entry alone does not keep others from changing the rest of its row.
    fn lock_row(&mut self, source: &mut Source<'_>, clustered: &[u8]) -> Result<bool> {
        let found = source.get(0, clustered, Wanted::NONE, &mut self.row);
        self.fresh_locks.row = source.took_lock();
        found
    }

    fn stand_at(&mut self, clustered: &[u8]) {
        self.row_key.clear();
        self.row_key.extend_from_slice(clustered);
    }

    pub fn clear_nulls(&self, shape: &Shape, record: &mut [u8]) {
        if self.keyread != Keyread::KeepOthers {
            shape.put_null_bytes(record);
        }
    }

    /// The row of `row_key` to the record, whose BLOBs point into `payload`.
    fn put_row(&self, shape: &Shape, payload: &[u8], record: &mut [u8]) -> Result<()> {
        self.clear_nulls(shape, record);
        self.put_columns(shape, 0, &self.row_key, payload, record)
    }
}

impl Handler {
    pub fn set_keyread(&mut self, keyread: Keyread) {
        self.rows.keyread = keyread;
    }

    /// The statement reads the columns of `bits`, one bit each. With `all` it gets every column;
    /// else those and the ones of the primary key.
    pub fn want(&mut self, bits: &[u8], all: bool) {
        self.rows.want(&self.shape, bits, all);
    }

    /// A row by its reference: a key image of the primary key, or the hidden key.
    pub fn fetch(
        &mut self,
        session: &mut Session,
        image: &[u8],
        record: &mut [u8],
    ) -> Result<bool> {
        let key = self.encode_ref(image)?;
        self.fetch_clustered(session, &key, record)
    }

    /// The row with this clustered key.
    pub fn fetch_clustered(
        &mut self,
        session: &mut Session,
        clustered: &[u8],
        record: &mut [u8],
    ) -> Result<bool> {
        let Handler { shape, table, mode, rows, .. } = self;
        rows.fresh_locks = FreshLocks::default();
        rows.fetch_row(&mut Source { shape, table, mode: *mode, session }, clustered, record)
    }

    pub fn hidden_ref(&self) -> &[u8] {
        &self.rows.row_key
    }
}
