//! Rows out: from an entry to the row, and into the server's record.
//!
//! 1. `row_key` is the clustered key of the row in the record.
//! 2. A locking read locks the row, also where an entry of another index has all that the statement wants.
//! 3. BLOBs of the record point into `payload` or into the cursor, so these stay as they are until the next
//!    read of the handler.
//! 4. A column that is not wanted may not have been read. So the columns that are wanted do not change between
//!    the read of a row and `put_row`.
//! 5. `fresh_locks` are those of the last read, and only these may be given back.

use super::Handler;
use crate::entry;
use crate::key;
use crate::row;
use crate::session::Session;
use crate::shape::Part;
use sluice_engine::base::Result;
use sluice_engine::db::{ReadMode, Wanted};

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

impl Handler {
    pub fn set_keyread(&mut self, keyread: Keyread) {
        self.keyread = keyread;
    }

    pub(super) fn want_all(&mut self) {
        self.wanted.clear();
        self.wants_row.clear();
    }

    /// The statement reads the columns of `bits`, one bit each. With `all` it gets every column;
    /// else those and the ones of the primary key.
    pub fn want(&mut self, bits: &[u8], all: bool) {
        let Handler { shape, wanted, wants_row, .. } = self;
        let is_set = |c: usize| bits.get(c / 8).is_none_or(|b| b >> (c % 8) & 1 == 1);
        let primary = &shape.indexes[0].parts;
        // The server computes a virtual column from others.
        let is_read = |c: usize| is_set(c) || shape.columns[c].is_virtual;
        let is_cut = |p: &Part| !p.is_whole(&shape.columns) && is_read(p.column);
        let is_cut_primary = primary.iter().any(is_cut) && !crate::planted::is("A1");
        wants_row.clear();
        wants_row
            .extend(shape.indexes.iter().map(|i| is_cut_primary || i.parts.iter().any(is_cut)));
        wanted.clear();
        if !all {
            wanted.extend((0..shape.columns.len()).map(is_set));
            primary.iter().for_each(|part| wanted[part.column] = true);
        }
    }

    pub(super) fn took_lock(&self, session: &Session) -> bool {
        self.mode != ReadMode::Snapshot && session.trx.lock_is_new()
    }

    /// A row by its reference: a key image of the primary key, or the hidden key.
    pub fn fetch(
        &mut self,
        session: &mut Session,
        image: &[u8],
        record: &mut [u8],
    ) -> Result<bool> {
        let key = self.encode_ref(image)?;
        self.fresh_locks = FreshLocks::default();
        let wanted = row::wanted_parts(0, &self.wanted);
        let (table, payload) = (&self.table, &mut self.payload);
        if !session.trx.get_wanted(table, 0, &key, self.mode, wanted, payload)? {
            return Ok(false);
        }
        self.fresh_locks.row = self.took_lock(session);
        self.row_key = key;
        let payload = std::mem::take(&mut self.payload);
        let done = self.put_row(&payload, record);
        self.payload = payload;
        done.map(|()| true)
    }

    /// The row with this clustered key, for a message about it.
    pub fn fetch_clustered(
        &mut self,
        session: &mut Session,
        clustered: &[u8],
        record: &mut [u8],
    ) -> Result<bool> {
        self.row_key = clustered.to_vec();
        self.fetch_row(session, clustered, record)
    }

    pub fn hidden_ref(&self) -> &[u8] {
        &self.row_key
    }

    /// An entry of the scanned index to the record. False: its row is gone.
    pub(super) fn put_entry(
        &mut self,
        session: &mut Session,
        entry_key: &[u8],
        payload: &[u8],
        record: &mut [u8],
    ) -> Result<bool> {
        let index = self.scan.index;
        if index == 0 {
            self.row_key.clear();
            self.row_key.extend_from_slice(entry_key);
            return self.put_row(payload, record).map(|()| true);
        }
        let (clustered, stored) = entry::split(&self.shape, index, entry_key, payload)?;
        self.row_key.clear();
        self.row_key.extend_from_slice(clustered);
        let wants_row = self.wants_row.get(self.scan.index) == Some(&true);
        if self.keyread != Keyread::Off && !wants_row {
            let is_locking = self.mode != ReadMode::Snapshot;
            if is_locking && !self.lock_row(session)? {
                return Ok(false);
            }
            self.clear_nulls(record);
            self.put_columns(index, entry_key, stored, record)?;
            key::take_columns(&self.shape, 0, clustered, &mut self.variable, record)?;
            return Ok(true);
        }
        if !self.fetch_row(session, clustered, record)? {
            return Ok(false);
        }
        if self.keyread != Keyread::Off {
            // The server does not compute virtual columns that the index has.
            self.put_columns(index, entry_key, stored, record)?;
        }
        Ok(true)
    }

    /// What an entry of an index has to the record.
    pub(super) fn put_columns(
        &mut self,
        index: usize,
        key: &[u8],
        stored: &[u8],
        record: &mut [u8],
    ) -> Result<()> {
        let shape = &self.shape;
        row::unpack(shape, index, stored, &self.wanted, record)?;
        key::take_columns(shape, index, key, &mut self.variable, record)
    }

    /// The row of an entry to the record. False: it is gone.
    fn fetch_row(
        &mut self,
        session: &mut Session,
        clustered: &[u8],
        record: &mut [u8],
    ) -> Result<bool> {
        let mut row = std::mem::take(&mut self.payload);
        let wanted = row::wanted_parts(0, &self.wanted);
        let found = session.trx.get_wanted(&self.table, 0, clustered, self.mode, wanted, &mut row);
        self.fresh_locks.row = self.took_lock(session);
        let done = match found {
            Ok(true) => self.put_row(&row, record).map(|()| true),
            other => other,
        };
        self.payload = row;
        done
    }

    /// An index entry alone does not keep others from changing the rest of its row.
    fn lock_row(&mut self, session: &mut Session) -> Result<bool> {
        let mut row = std::mem::take(&mut self.payload);
        let (key, none) = (&self.row_key, Wanted::NONE);
        let found = session.trx.get_wanted(&self.table, 0, key, self.mode, none, &mut row);
        self.payload = row;
        self.fresh_locks.row = self.took_lock(session);
        found
    }

    pub(super) fn clear_nulls(&self, record: &mut [u8]) {
        if self.keyread != Keyread::KeepOthers {
            self.shape.put_null_bytes(record);
        }
    }

    /// The row of `row_key` to the record. BLOB columns point into `payload`.
    pub(super) fn put_row(&mut self, payload: &[u8], record: &mut [u8]) -> Result<()> {
        self.clear_nulls(record);
        let shape = &self.shape;
        row::unpack(shape, 0, payload, &self.wanted, record)?;
        key::take_columns(shape, 0, &self.row_key, &mut self.variable, record)
    }
}
