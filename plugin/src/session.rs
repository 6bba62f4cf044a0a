//! One transaction of one connection, and where it stands between statements.

use sluice_engine::base::Result;
use sluice_engine::db::{Engine, Isolation, Savepoint, Trx};
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
            autoinc_rows: 0,
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

    pub fn statement_end(&mut self) {
        self.autoinc_rows = 0;
        self.in_statement = false;
    }

    pub fn statement_rollback(&mut self) -> Result<()> {
        self.autoinc_rows = 0;
        let done = if self.in_statement { self.trx.statement_rollback() } else { Ok(()) };
        self.in_statement = false;
        done
    }

    /// Nothing to prepare for a transaction that wrote nothing.
    /// `hooked`: the server chose the XID, the binlog decides, and the hook in it will see the
    /// transaction's events; if it then flushes the log, nobody waits here (rules M11).
    pub fn prepare(&mut self, xid: &[u8], hooked: bool) -> Result<()> {
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
        self.forget();
        self.trx.commit(flush)
    }

    pub fn rollback(&mut self) {
        self.forget();
        self.trx.rollback();
    }

    fn forget(&mut self) {
        self.autoinc_rows = 0;
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
