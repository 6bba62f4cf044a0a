//! Prepared transactions without a session: after a crash, or after XA PREPARE and a disconnect.

use crate::base::{Lsn, Result};
use crate::db::engine::Engine;
use crate::db::sessions::Detached;
use crate::txn::{OpenTxn, Owner, Session};
use std::sync::Arc;

impl Engine {
    pub(crate) fn keep_prepared(&self, open: Arc<OpenTxn>, owner: Arc<Owner>) {
        let xid = open.xid().unwrap_or_default();
        self.sessions.prepared.lock().insert(xid, Detached { open, owner });
    }

    /// The XIDs, as given to [`crate::db::Trx::prepare`], of prepared transactions without a session.
    pub fn prepared(&self) -> Vec<Vec<u8>> {
        let mut xids: Vec<Vec<u8>> = self.sessions.prepared.lock().keys().cloned().collect();
        xids.sort_unstable();
        xids
    }

    /// No prepare record of them lies before.
    pub fn oldest_prepared(&self) -> Lsn {
        let lsns = self.sessions.prepared.lock();
        lsns.values().map(|detached| detached.open.last_lsn()).min().unwrap_or(Lsn(u64::MAX))
    }

    fn adopt(&self, xid: &[u8]) -> Option<Session> {
        let Detached { open, owner } = self.sessions.prepared.lock().remove(xid)?;
        Some(Session::adopt(Arc::clone(&self.ctx), owner, open))
    }

    /// Commits a prepared transaction; durable when it returns. `false`: no such XID here.
    pub fn commit_prepared(&self, xid: &[u8]) -> Result<bool> {
        self.commit_adopted(xid, |_| {})
    }

    /// `publish` runs between the commit's place in the order and the release of its locks.
    pub(in crate::db) fn commit_adopted(
        &self,
        xid: &[u8],
        publish: impl FnOnce(&Session),
    ) -> Result<bool> {
        let Some(mut session) = self.adopt(xid) else { return Ok(false) };
        session.commit_ordered();
        publish(&session);
        if let Some(end) = session.finish_commit() {
            self.wal.flush_to(end)?;
        }
        Ok(true)
    }

    /// Rolls a prepared transaction back; durable when it returns.
    pub fn rollback_prepared(&self, xid: &[u8]) -> Result<bool> {
        let Some(mut session) = self.adopt(xid) else { return Ok(false) };
        session.rollback();
        self.flush_log()?;
        self.wake_background();
        Ok(true)
    }
}
