//! Every transaction that has written and whose trace is still needed: open, prepared, or rolled
//! back and not yet reverted; and those committed whose delete marks wait for the purge.
//!
//! A checkpoint carries what stands here (rules M3, M4). It must never see less than the log's
//! tail holds, hence two orders that every caller keeps:
//! 1. `pending_since` is set to the log's end before a record is appended, and cleared after
//!    `last_lsn` (or the outcome) is stored. A checkpoint that meets it set scans from there.
//! 2. A committed transaction enters the purge queue before it leaves the registry.

use crate::base::{Csn, Lsn, TxnId};
use crate::os::sync::Mutex;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;

const NOT_PENDING: u64 = u64::MAX;

/// A transaction that has written.
pub struct Open {
    pub id: TxnId,
    /// At or before its first record.
    pub first_lsn: Lsn,
    last_lsn: AtomicU64,
    pending_since: AtomicU64,
    deletes: AtomicBool,
    xid: Mutex<Option<Vec<u8>>>,
}

impl Open {
    pub fn new(id: TxnId, first_lsn: Lsn, last_lsn: Lsn) -> Self {
        Open {
            id,
            first_lsn,
            last_lsn: AtomicU64::new(last_lsn.0),
            pending_since: AtomicU64::new(NOT_PENDING),
            deletes: AtomicBool::new(false),
            xid: Mutex::new(None),
        }
    }

    pub fn last_lsn(&self) -> Lsn {
        Lsn(self.last_lsn.load(Ordering::SeqCst))
    }

    /// Announces a record at or behind `log_end`.
    pub fn begin_record(&self, log_end: Lsn) {
        self.pending_since.store(log_end.0, Ordering::SeqCst);
    }

    pub fn end_record(&self, last_lsn: Lsn) {
        self.last_lsn.store(last_lsn.0, Ordering::SeqCst);
        self.pending_since.store(NOT_PENDING, Ordering::SeqCst);
    }

    /// The announced record was not needed.
    pub fn cancel_record(&self) {
        self.pending_since.store(NOT_PENDING, Ordering::SeqCst);
    }

    pub fn pending_since(&self) -> Option<Lsn> {
        let lsn = self.pending_since.load(Ordering::SeqCst);
        (lsn != NOT_PENDING).then_some(Lsn(lsn))
    }

    pub fn note_delete(&self) {
        self.deletes.store(true, Ordering::SeqCst);
    }

    pub fn has_deletes(&self) -> bool {
        self.deletes.load(Ordering::SeqCst)
    }

    pub fn set_xid(&self, xid: Vec<u8>) {
        *self.xid.lock() = Some(xid);
    }

    pub fn xid(&self) -> Option<Vec<u8>> {
        self.xid.lock().clone()
    }
}

/// A committed transaction whose delete marks may go once every snapshot sees them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PurgeItem {
    pub txn: TxnId,
    pub csn: Csn,
    pub first_lsn: Lsn,
    pub last_lsn: Lsn,
}

#[derive(Default)]
pub struct Registry {
    open: Mutex<HashMap<TxnId, Arc<Open>>>,
    purge: Mutex<VecDeque<PurgeItem>>,
}

impl Registry {
    pub fn add(&self, open: Arc<Open>) {
        self.open.lock().insert(open.id, open);
    }

    pub fn remove(&self, id: TxnId) {
        self.open.lock().remove(&id);
    }

    /// In order of id.
    pub fn list(&self) -> Vec<Arc<Open>> {
        let mut all: Vec<Arc<Open>> = self.open.lock().values().cloned().collect();
        all.sort_unstable_by_key(|open| open.id);
        all
    }

    pub fn push_purge(&self, item: PurgeItem) {
        self.purge.lock().push_back(item);
    }

    /// The oldest item, if every snapshot at or behind `oldest` sees it. It stays in the queue
    /// (and in checkpoints) until [`Registry::pop_purge`].
    pub fn peek_purge(&self, oldest: Csn) -> Option<PurgeItem> {
        self.purge.lock().front().filter(|item| item.csn <= oldest).copied()
    }

    pub fn pop_purge(&self, txn: TxnId) {
        let mut queue = self.purge.lock();
        if queue.front().is_some_and(|item| item.txn == txn) {
            queue.pop_front();
        }
    }

    pub fn purge_items(&self) -> Vec<PurgeItem> {
        self.purge.lock().iter().copied().collect()
    }

    pub fn purge_backlog(&self) -> usize {
        self.purge.lock().len()
    }

    /// The lowest LSN that any transaction here still needs.
    pub fn oldest_lsn(&self) -> Option<Lsn> {
        let open = self.open.lock().values().map(|o| o.first_lsn).min();
        let purge = self.purge.lock().iter().map(|p| p.first_lsn).min();
        [open, purge].into_iter().flatten().min()
    }
}
