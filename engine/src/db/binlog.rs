//! The engine's side of the binlog: access to it, and prepares that nobody waits for.

use super::engine::Engine;
use super::rows::Trx;
use crate::base::Result;
use crate::binlog::Binlog;
use std::sync::Arc;

impl Engine {
    pub fn binlog(&self) -> &Arc<Binlog> {
        &self.binlog
    }

    /// What the thread for it does every `sluice_sync_binlog_interval`, then with `is_due`, and
    /// in between.
    pub fn binlog_step(&self, is_due: bool) -> Result<()> {
        match is_due || self.binlog.wants_sync() {
            true => self.binlog.sync_step(),
            false => Ok(()),
        }
    }
}

impl Trx {
    /// Will the hook flush the log for a transaction that is prepared now?
    pub fn is_binlog_in_log(&self) -> bool {
        self.engine.binlog.is_on()
    }

    /// Prepares a transaction that the hook in the server's binlog makes durable.
    pub fn prepare_for_binlog(&mut self, xid: &[u8]) {
        if let Some(end) = self.session.prepare(xid) {
            self.engine.binlog.note_unflushed_prepare(end);
        }
    }
}
