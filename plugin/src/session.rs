//! One transaction of one connection, and where it stands between statements.

use crate::copy::{Copy, Duplicate};
use crate::engine;
use sluice_engine::base::{Error, Result};
use sluice_engine::db::{BulkInsert, Engine, Isolation, RowWrite, Savepoint, Table, Trx};
use std::sync::Arc;
use std::time::Duration;

pub struct Session {
    pub id: u64,
    engine: Arc<Engine>,
    pub trx: Trx,
    /// commit_ordered ran: the commit record is in the log, in the order of the coordinator; and
    /// the hook in the binlog had seen the events.
    ordered: bool,
    covered: bool,
    prepared: bool,
    /// The server has asked for `prepare`, also where there was nothing to do.
    sealed: bool,
    in_statement: bool,
    copying: Option<Copy>,
    /// The statement inserts into a table that may be empty.
    bulk: Option<BulkInsert>,
    /// Of a copy or load that has come to its end.
    duplicate: Option<Duplicate>,
    /// Rows with AUTO_INCREMENT that the statement is still thought to insert.
    pub autoinc_rows: u64,
}

impl Session {
    pub fn new(engine: &Arc<Engine>, id: u64) -> Self {
        let trx = engine.begin(id);
        Session {
            id,
            engine: Arc::clone(engine),
            trx,
            ordered: false,
            covered: false,
            prepared: false,
            sealed: false,
            in_statement: false,
            copying: None,
            bulk: None,
            duplicate: None,
            autoinc_rows: 0,
        }
    }

    /// From now on rows come that are copied into this table, which no one else can see. `loads`: the
    /// statement stops at the first duplicate, and reads nothing of the table.
    pub fn copy_begin(&mut self, table: &Arc<Table>, loads: bool) {
        self.duplicate = None;
        let copying = self
            .copying
            .get_or_insert_with(|| Copy::begin(&self.engine, self.id, &self.trx, loads));
        copying.add_table(table);
    }

    /// Inserts a row of a table that is copied to.
    pub fn copy_row(
        &mut self,
        table: &Arc<Table>,
        row: &RowWrite<'_>,
        replaces: bool,
    ) -> Result<()> {
        let Some(copying) = &mut self.copying else {
            self.trx.set_replace(replaces);
            return self.trx.insert(table, row);
        };
        let done = copying.insert(table, row, replaces);
        self.duplicate = copying.take_duplicate();
        done
    }

    /// All rows are copied: they are durable then.
    pub fn copy_end(&mut self) -> Result<()> {
        let Some(mut copying) = self.copying.take() else { return Ok(()) };
        let done = copying.end();
        self.duplicate = copying.take_duplicate();
        self.copy_is_over(copying);
        done
    }

    /// The table will be dropped.
    pub fn copy_abort(&mut self) {
        let Some(mut copying) = self.copying.take() else { return };
        copying.abort();
        self.copy_is_over(copying);
    }

    fn copy_is_over(&self, copying: Copy) {
        drop(copying);
        // The copy's transaction was the one that a kill finds.
        self.trx.register();
    }

    /// From now on rows come of a statement that stops at the first duplicate, reads nothing of the table, and
    /// writes to no other one. If there are more bytes they may be loaded.
    pub fn bulk_begin(&mut self, table: &Arc<Table>, bytes: usize) {
        self.duplicate = None;
        self.bulk = Some(BulkInsert::new(table, bytes));
    }

    pub fn bulk_row(&mut self, table: &Arc<Table>, row: &RowWrite<'_>) -> Result<()> {
        self.trx.set_replace(false);
        let Some(bulk) = self.bulk.as_mut().filter(|bulk| Arc::ptr_eq(bulk.table(), table)) else {
            return self.trx.insert(table, row);
        };
        let session_id = self.id;
        let done = bulk.insert(&mut self.trx, row, &|| engine::is_killed(session_id));
        self.keep_duplicate();
        done
    }

    /// `keep`: no row has failed. Else the statement is taken back next.
    pub fn bulk_end(&mut self, keep: bool) -> Result<()> {
        let Some(bulk) = &mut self.bulk else { return Ok(()) };
        if !keep {
            bulk.give_up();
            return Ok(());
        }
        let session_id = self.id;
        let done = bulk.end(&mut self.trx, &|| engine::is_killed(session_id));
        self.keep_duplicate();
        if done.is_ok() {
            self.bulk = None;
        }
        done
    }

    fn keep_duplicate(&mut self) {
        let Some(bulk) = &mut self.bulk else { return };
        let Some(twice) = bulk.take_duplicate() else { return };
        self.duplicate = Some(Duplicate { table: Arc::clone(bulk.table()), twice });
    }

    /// All rows that came are in the table.
    fn check_bulk(&self) -> Result<()> {
        match self.bulk.as_ref().is_some_and(BulkInsert::is_loading) {
            true => Err(Error::Refused("rows of the statement are not in their table".into())),
            false => Ok(()),
        }
    }

    /// The row that was a duplicate, if it is not the one that was inserted last.
    pub fn copied_duplicate(&self) -> Option<&Duplicate> {
        self.duplicate.as_ref()
    }

    /// The index in which the last row to be inserted was a duplicate.
    pub fn duplicate_index(&self, copies: bool) -> usize {
        match (&self.duplicate, &self.copying) {
            (Some(duplicate), _) => duplicate.twice.index,
            (None, Some(copying)) if copies => copying.duplicate_index(),
            _ => self.trx.duplicate_index(),
        }
    }

    /// Called for each table that a statement uses; the first call marks the statement.
    /// False if the transaction is prepared: it reads and writes no more.
    pub fn statement_start(&mut self, isolation: Isolation, timeout: Duration) -> bool {
        if self.sealed {
            return false;
        }
        self.trx.set_lock_timeout(timeout);
        if !self.in_statement {
            self.in_statement = true;
            self.duplicate = None;
            self.bulk = None;
            // A kill that is meant for this statement is seen when it waits: engine.rs asks.
            self.trx.clear_interrupt();
            self.trx.set_isolation(isolation);
            self.trx.statement_start();
            let gaps = matches!(isolation, Isolation::RepeatableRead | Isolation::Serializable);
            if gaps && crate::planted::is("L3") {
                self.trx.open_snapshot();
                self.trx.set_isolation(Isolation::ReadCommitted);
            }
        }
        true
    }

    pub fn statement_end(&mut self) -> Result<()> {
        self.check_bulk()?;
        self.bulk = None;
        self.autoinc_rows = 0;
        self.in_statement = false;
        Ok(())
    }

    pub fn statement_rollback(&mut self) -> Result<()> {
        self.autoinc_rows = 0;
        self.bulk = None;
        let done = if self.in_statement { self.trx.statement_rollback() } else { Ok(()) };
        self.in_statement = false;
        done
    }

    /// Nothing to prepare for a transaction that wrote nothing.
    /// `hooked`: the server chose the XID, the binlog decides, and the hook in it will see the
    /// transaction's events; if it then flushes the log, nobody waits here (rules M11).
    pub fn prepare(&mut self, xid: &[u8], hooked: bool) -> Result<()> {
        self.check_bulk()?;
        self.in_statement = false;
        self.sealed = true;
        if !self.trx.has_writes() {
            return Ok(());
        }
        if hooked && self.trx.is_binlog_in_log() {
            self.trx.prepare_for_binlog(xid);
        } else {
            self.trx.prepare(xid, true)?;
        }
        self.prepared = true;
        Ok(())
    }

    /// DDL on a table waits for prepared transactions, of which no session may be left.
    pub fn wait_for_prepared(&mut self, name: &str, timeout: Duration) -> Result<()> {
        if crate::planted::is("A4") {
            return Ok(());
        }
        let Some(table) = self.engine.table(name)? else { return Ok(()) };
        self.trx.set_lock_timeout(timeout);
        self.trx.clear_interrupt();
        self.trx.wait_for_prepared(&table)
    }

    pub fn commit_ordered(&mut self, covered: bool) {
        self.trx.commit_ordered();
        self.ordered = true;
        self.covered = covered;
    }

    /// After commit_ordered the binary log decides this transaction at recovery; if the hook saw
    /// its events there is nothing left to wait for. Else this commit makes itself durable. The coordinator of a
    /// server without binary log (tc.log) decides nothing: 10.11 rolls back at recovery whatever
    /// it finds prepared (`xarecover_handlerton` never looks at its list).
    pub fn commit(&mut self, binlog_decides: bool) -> Result<()> {
        let flush = !(self.ordered && self.covered && binlog_decides);
        // After `commit_ordered` it cannot fail any more: that comes after `prepare`.
        self.check_bulk()?;
        self.copy_end()?;
        self.forget();
        self.trx.commit(flush)
    }

    pub fn rollback(&mut self) {
        self.copy_abort();
        self.forget();
        self.trx.rollback();
    }

    fn forget(&mut self) {
        self.autoinc_rows = 0;
        self.bulk = None;
        self.duplicate = None;
        self.ordered = false;
        self.covered = false;
        self.prepared = false;
        self.sealed = false;
        self.in_statement = false;
    }

    pub fn savepoint(&self) -> Savepoint {
        self.trx.savepoint()
    }

    /// The connection ends: a prepared transaction outlives it.
    pub fn close(mut self) {
        if self.prepared {
            self.trx.detach();
        } else {
            self.trx.rollback();
        }
    }
}
