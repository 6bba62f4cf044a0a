//! INSERT ... SELECT and LOAD DATA into an empty table: the rows go to a [`TableLoad`], as entries of the
//! statement's transaction (see `txn/load.rs`).
//!
//! Invariants:
//! 1. The statement begins as any other. Once it has inserted some rows it takes them back, finds the trees
//!    empty, and loads them together with the rows that follow. So a short statement locks what it always did,
//!    and fails where it always did.
//! 2. That happens only in a table whose trees are of this life of the engine, and in which nobody ever
//!    inserted a row but this statement: no snapshot wants an older version of any key.
//! 3. Between the first row and [`BulkInsert::end`] the statement writes to no other table, reads nothing of
//!    this one, and no savepoint from between is rolled back to: the caller sees to that. A write to another
//!    table is noticed, and keeps rows from being loaded.
//! 4. After an error the caller takes the statement back, or the whole transaction.

use super::author::Author;
use super::table_load::{has_no_entry, Added, TableLoad, Twice};
use crate::base::{Error, Lsn, Result};
use crate::db::callbacks::Killed;
use crate::db::rows::{Entry, Part, RowWrite, Trx};
use crate::db::tables::{Mark, Table};
use crate::txn::Savepoint;
use std::sync::atomic::Ordering;
use std::sync::Arc;

struct OwnedEntry {
    key: Vec<u8>,
    payload: Vec<u8>,
    parts: Vec<Part>,
    unique: bool,
}

/// The first rows, which are inserted one by one.
struct Trial {
    before: Savepoint,
    rows: Vec<Vec<OwnedEntry>>,
    bytes: usize,
    /// Of the transaction, after the last row.
    writes: u64,
}

enum State {
    /// No row has come yet.
    Wanted,
    Trial(Trial),
    /// It began with this record.
    On(Box<TableLoad>, Lsn),
    /// Rows go in one by one.
    Over,
    Failed,
}

/// The rows of one statement.
pub struct BulkInsert {
    table: Arc<Table>,
    /// Of more bytes a statement counts as a large one.
    trial_bytes: usize,
    state: State,
    duplicate: Option<Twice>,
}

impl BulkInsert {
    /// So many bytes of rows go in one by one first.
    pub fn new(table: &Arc<Table>, trial_bytes: usize) -> BulkInsert {
        let table = Arc::clone(table);
        BulkInsert { table, trial_bytes, state: State::Wanted, duplicate: None }
    }

    pub fn table(&self) -> &Arc<Table> {
        &self.table
    }

    /// Rows are in no tree yet: the transaction must not be prepared or committed.
    pub fn is_loading(&self) -> bool {
        matches!(self.state, State::On(..) | State::Failed)
    }

    /// The row that was a duplicate, if it is not the one that was inserted last.
    pub fn take_duplicate(&mut self) -> Option<Twice> {
        self.duplicate.take()
    }

    pub fn insert(&mut self, trx: &mut Trx, row: &RowWrite<'_>, killed: &Killed<'_>) -> Result<()> {
        if let State::Wanted = self.state {
            self.state = self.first_state(trx)?;
        }
        match &mut self.state {
            State::On(..) => {
                self.load(trx, row, killed)?;
                self.table.counters.remembered.row_inserted();
                Ok(())
            }
            State::Trial(trial) => {
                let is_alone = trial.writes == trx.session.writes;
                trx.insert(&self.table, row)?;
                trial.note(row, trx.session.writes);
                match (is_alone, trial.bytes > self.trial_bytes) {
                    (false, _) => self.state = State::Over,
                    (true, true) => self.begin_load(trx, killed)?,
                    (true, false) => {}
                }
                Ok(())
            }
            State::Over => trx.insert(&self.table, row),
            State::Failed => Err(failed()),
            State::Wanted => unreachable!("it was decided"),
        }
    }

    /// All rows came: they are in the table.
    pub fn end(&mut self, trx: &mut Trx, killed: &Killed<'_>) -> Result<()> {
        match self.state {
            State::On(..) => self.finish(trx, killed),
            State::Failed => Err(failed()),
            _ => Ok(()),
        }
    }

    /// The statement is taken back.
    pub fn give_up(&mut self) {
        if let State::On(..) = self.state {
            self.state = State::Failed;
        }
    }

    fn first_state(&self, trx: &Trx) -> Result<State> {
        let is_new = self.table.counters.trees_are_new && !self.table.has_changed();
        Ok(match is_new && has_no_entry(&self.table)? {
            true => State::Trial(Trial {
                before: trx.session.savepoint(),
                rows: Vec::new(),
                bytes: 0,
                writes: trx.session.writes,
            }),
            false => State::Over,
        })
    }

    /// Takes the first rows back and loads them.
    fn begin_load(&mut self, trx: &mut Trx, killed: &Killed<'_>) -> Result<()> {
        let State::Trial(trial) = std::mem::replace(&mut self.state, State::Over) else {
            unreachable!("the first rows are over")
        };
        let own = Mark::of_inserts(trial.rows.len() as u64);
        let is_alone = || self.table.counters.remembered.mark() == own;
        // A row of others begins in one of these.
        let first = [&self.table.gates[0], &self.table.long_values];
        let is_locked = is_alone() && first.iter().all(|gate| trx.session.lock_all(gate));
        if !is_locked || !is_alone() {
            return Ok(());
        }
        self.state = State::Failed;
        trx.session.rollback_to(trial.before)?;
        if has_no_entry(&self.table)? {
            let author = Author::of(trx, &self.table)?;
            let from = trx.session.loads_from().ok_or_else(failed)?;
            let load = TableLoad::new(&trx.engine, &self.table, author)?;
            self.state = State::On(Box::new(load), from);
            trx.engine.bulk_inserts.fetch_add(1, Ordering::Relaxed);
        } else {
            self.state = State::Over;
        }
        for row in &trial.rows {
            let entries: Vec<Entry<'_>> = row.iter().map(OwnedEntry::as_entry).collect();
            self.put_again(trx, &RowWrite { entries: &entries }, killed)?;
        }
        Ok(())
    }

    fn put_again(&mut self, trx: &mut Trx, row: &RowWrite<'_>, killed: &Killed<'_>) -> Result<()> {
        match self.state {
            State::On(..) => self.load(trx, row, killed),
            _ => trx.insert_again(&self.table, row),
        }
    }

    /// A row that comes out of order ends the load.
    fn load(&mut self, trx: &mut Trx, row: &RowWrite<'_>, killed: &Killed<'_>) -> Result<()> {
        let State::On(load, from) = &mut self.state else { return Err(failed()) };
        if trx.session.loads_from() != Some(*from) {
            self.state = State::Failed;
            return Err(failed());
        }
        let taken = load.take(row, killed);
        trx.long_sequence = trx.long_sequence.max(load.long_sequence());
        match taken {
            Ok(Added::Done) => Ok(()),
            Ok(Added::OutOfOrder) => {
                self.finish(trx, killed)?;
                trx.insert_again(&self.table, row)
            }
            Err(error) => {
                self.state = State::Failed;
                Err(trx.end_if_victim(error))
            }
        }
    }

    fn finish(&mut self, trx: &mut Trx, killed: &Killed<'_>) -> Result<()> {
        let State::On(load, from) = std::mem::replace(&mut self.state, State::Failed) else {
            return Err(failed());
        };
        if trx.session.loads_from() != Some(from) {
            return Err(failed());
        }
        let entries = load.came() * self.table.gates.len() as u64;
        match load.finish(killed) {
            Ok(None) => {
                trx.session.note_loaded(entries);
                trx.session.end_load();
                self.state = State::Over;
                Ok(())
            }
            Ok(Some(twice)) => {
                self.duplicate = Some(twice);
                Err(Error::Duplicate)
            }
            Err(error) => Err(trx.end_if_victim(error)),
        }
    }
}

impl Trial {
    fn note(&mut self, row: &RowWrite<'_>, writes: u64) {
        let own = |entry: &Entry<'_>| OwnedEntry {
            key: entry.key.to_vec(),
            payload: entry.payload.to_vec(),
            parts: entry.parts.to_vec(),
            unique: entry.unique,
        };
        let bytes = |e: &Entry<'_>| e.key.len() + e.payload.len() + size_of::<OwnedEntry>();
        self.bytes += row.entries.iter().map(bytes).sum::<usize>();
        self.rows.push(row.entries.iter().map(own).collect());
        self.writes = writes;
    }
}

impl OwnedEntry {
    fn as_entry(&self) -> Entry<'_> {
        Entry { key: &self.key, payload: &self.payload, parts: &self.parts, unique: self.unique }
    }
}

#[cold]
fn failed() -> Error {
    Error::Refused("a row of the statement has failed before".into())
}
