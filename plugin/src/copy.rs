//! Rows that ALTER TABLE and CREATE TABLE ... SELECT copy into a table that no one else can see. If the
//! statement fails the server drops the table.
//!
//! 1. Nobody needs a transaction that holds all rows: its log could not go, and its versions would have to
//!    be moved out of the log's way. (InnoDB writes no undo there.)
//! 2. If the statement stops at the first duplicate, rows go to a [`TableLoad`], which builds the trees at
//!    once. From a row on that it does not take they go in one by one, in transactions one after the other.
//! 3. Nobody reads the table before a load is over. The handler says whether the statement may.
//! 4. At the end all rows are durable, whatever a commit promises: the server notes next in a log of its
//!    own that the copy replaces the table, and does it after a crash.

use crate::engine;
use sluice_engine::base::{Error, Result};
use sluice_engine::db::{Added, Engine, RowWrite, Table, TableLoad, Trx, Twice};
use std::sync::Arc;

/// A copy's transactions take about so many bytes of rows each.
const COPY_BYTES_MAX: usize = 1 << 20;

/// A row whose key was there already, found by a load.
pub struct Duplicate {
    pub table: Arc<Table>,
    pub twice: Twice,
}

enum Load {
    /// No row has come yet.
    Wanted,
    On(Box<TableLoad>),
    /// Rows go in one by one.
    Over,
    /// The table can only be dropped.
    Failed,
}

pub struct Copy {
    engine: Arc<Engine>,
    session_id: u64,
    trx: Trx,
    /// Of the transaction under way.
    bytes: usize,
    load: Load,
    /// More than one: partitions.
    tables: Vec<Arc<Table>>,
    duplicate: Option<Duplicate>,
}

impl Copy {
    /// `beside`: the transaction of the session. `loads`: rows may go to a load.
    pub fn begin(engine: &Arc<Engine>, session_id: u64, beside: &Trx, loads: bool) -> Copy {
        Copy {
            engine: Arc::clone(engine),
            session_id,
            trx: beside.beside(),
            bytes: 0,
            load: if loads { Load::Wanted } else { Load::Over },
            tables: Vec::new(),
            duplicate: None,
        }
    }

    /// Rows come into this table, too.
    pub fn add_table(&mut self, table: &Arc<Table>) {
        self.tables.push(Arc::clone(table));
    }

    pub fn insert(&mut self, table: &Arc<Table>, row: &RowWrite<'_>, replaces: bool) -> Result<()> {
        if let Load::Wanted = self.load {
            let load = if replaces { None } else { self.engine.load_table(table)? };
            self.load = load.map_or(Load::Over, |load| Load::On(Box::new(load)));
        }
        if let Load::Failed = self.load {
            return Err(failed());
        }
        if let Load::On(load) = &mut self.load {
            let session_id = self.session_id;
            assert!(Arc::ptr_eq(load.table(), table), "one table is loaded");
            if load.add(row, &|| engine::is_killed(session_id))? == Added::Done {
                return Ok(());
            }
            self.end_load()?;
        }
        self.trx.set_replace(replaces);
        self.trx.insert(table, row)?;
        self.bytes +=
            row.entries.iter().map(|entry| entry.key.len() + entry.payload.len()).sum::<usize>();
        if self.bytes < COPY_BYTES_MAX {
            return Ok(());
        }
        self.bytes = 0;
        self.trx.commit(false)
    }

    fn end_load(&mut self) -> Result<()> {
        let load = match std::mem::replace(&mut self.load, Load::Failed) {
            Load::On(load) => load,
            Load::Failed => return Err(failed()),
            Load::Wanted | Load::Over => {
                self.load = Load::Over;
                return Ok(());
            }
        };
        let (table, session_id) = (Arc::clone(load.table()), self.session_id);
        if let Some(twice) = load.finish(&|| engine::is_killed(session_id))? {
            self.duplicate = Some(Duplicate { table, twice });
            return Err(Error::Duplicate);
        }
        self.load = Load::Over;
        Ok(())
    }

    pub fn end(&mut self) -> Result<()> {
        let done = self.end_load().and_then(|()| self.trx.commit(false));
        if done.is_err() {
            self.trx.rollback();
            return done;
        }
        match crate::planted::is("copy") {
            true => Ok(()),
            false => self.engine.end_copy(&self.tables),
        }
    }

    /// Takes back the last transaction; the table will be dropped.
    pub fn abort(&mut self) {
        self.load = Load::Failed;
        self.trx.rollback();
    }

    pub fn take_duplicate(&mut self) -> Option<Duplicate> {
        self.duplicate.take()
    }

    /// The index in which the last row that went in by itself was a duplicate.
    pub fn duplicate_index(&self) -> usize {
        self.trx.duplicate_index()
    }
}

#[cold]
fn failed() -> Error {
    Error::Refused("a row of the copy has failed before".into())
}
