//! One session's transaction: its id, snapshot, savepoints, and how it ends.
//!
//! ```text
//! idle --first write (ensure_open)--> active --prepare--> prepared
//! active, prepared --commit_ordered--> published --finish_commit--> idle
//! active, prepared --rollback--> idle (the background reverts its entries)
//! ```

use super::registry::{OpenTxn, PurgeItem, Registry};
use super::reverting::Reverting;
use super::trees::Trees;
use super::versions::{OldVersions, VersionReader};
use super::{Isolation, LockManager, Owner, Snapshot, TxnTable};
use crate::base::codec::put_varint;
use crate::base::{Csn, Error, Lsn, Result, TreeId, TxnId};
use crate::btree::RECORD_TREE;
use crate::os::planted::{self, Bug};
use crate::os::rank::Rank;
use crate::os::sync::{Mutex, Ranked};
use crate::wal::{Appended, ReadAhead, Wal};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

pub const RECORD_COMMIT: u8 = 2;
pub const RECORD_ABORT: u8 = 3;
pub const RECORD_PREPARE: u8 = 4;
pub const RECORD_REVERTED: u8 = 5;
const _: () = assert!(RECORD_TREE == 1);

/// Reports that one session waits for another, to the server.
pub type WaitReport = dyn Fn(u64, u64) + Send + Sync;

/// Decides about background work that met damage, and reports it. Called with no latch held.
pub type PutAside = dyn Fn(Stopped, &Error) -> bool + Send + Sync;

/// Background work that damage stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// In a page of this tree, and to be done before anybody reads it.
    Page(TreeId),
    /// The purge of a delete mark in this tree, which may as well stay.
    Mark(TreeId),
    /// The purge of all marks that an unreadable part of the log tells of.
    Log,
}

/// What all sessions share.
pub struct Context {
    pub wal: Arc<Wal>,
    pub table: Arc<TxnTable>,
    pub locks: Arc<LockManager>,
    pub registry: Registry,
    pub trees: Trees,
    /// Versions below the log's first kept byte.
    pub old: OldVersions,
    /// Rolled back, waiting for the background revert.
    pub to_revert: Mutex<VecDeque<Arc<OpenTxn>>>,
    pub report_wait: Box<WaitReport>,
    /// Whether work that damage stops is put aside.
    pub put_aside: OnceLock<Box<PutAside>>,
    /// Of the threads that purge and revert: each keeps the log that it has just read.
    pub purging: Mutex<ReadAhead>,
    pub reverting: Mutex<Reverting>,
    /// The last step of the revert ended well and left work.
    pub revert_goes_on: AtomicBool,
    /// See [`Context::take_met_rolled_back`].
    pub met_rolled_back: AtomicU32,
    /// Delete marks, or transactions with such, that stay because they were not purged in time.
    pub marks_left: AtomicU64,
}

impl Context {
    /// Appends a record that names only a transaction.
    pub fn append_outcome(&self, kind: u8, id: TxnId) -> Appended {
        let mut payload = Vec::with_capacity(10);
        put_varint(&mut payload, id.0);
        self.wal.append(kind, &[&payload])
    }
}

/// A point in a transaction to roll back to: the LSN of its last record before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[repr(C)]
pub struct Savepoint {
    pub lsn: Lsn,
    /// Tells savepoints of different transactions of one session apart.
    pub txn: TxnId,
}

pub struct Session {
    pub(crate) ctx: Arc<Context>,
    pub(crate) owner: Arc<Owner>,
    pub(crate) open: Option<Arc<OpenTxn>>,
    pub(crate) isolation: Isolation,
    pub(crate) lock_timeout: Duration,
    /// REPLACE and ON DUPLICATE KEY UPDATE: what is in the way of an insert is locked exclusively.
    pub(crate) replaces: bool,
    snapshot: Option<Snapshot>,
    /// A write of this transaction has replaced a version that the snapshot does not see.
    pub(super) overtook: bool,
    published: Option<(Csn, Lsn)>,
    /// Versions written by this transaction.
    pub(crate) writes: u64,
    /// The clustered trees that this transaction wrote, for when it is prepared.
    pub(super) wrote: Vec<TreeId>,
    /// Rows that the present row operation has written and that are locked beside.
    written: Vec<(TreeId, Vec<u8>)>,
    /// Trees in which locks of rows were let go of since the rows are written.
    let_go: Vec<TreeId>,
    /// The last row locked by a read was not locked by this transaction before.
    pub(crate) lock_is_new: bool,
    is_detached: bool,
    /// The first record of the table that is being loaded, until that is taken back.
    pub(super) loads_from: Option<Lsn>,
    /// Where the last older version was read.
    pub(crate) reader: Mutex<VersionReader>,
}

impl Session {
    pub fn new(ctx: Arc<Context>, owner: Arc<Owner>) -> Self {
        Session {
            ctx,
            owner,
            open: None,
            isolation: Isolation::RepeatableRead,
            lock_timeout: Duration::from_secs(50),
            replaces: false,
            snapshot: None,
            overtook: false,
            published: None,
            writes: 0,
            wrote: Vec::new(),
            written: Vec::new(),
            let_go: Vec::new(),
            lock_is_new: false,
            is_detached: false,
            loads_from: None,
            reader: Mutex::ranked(Rank::SessionReadAhead, VersionReader::default()),
        }
    }

    /// Takes over a transaction that survived its session or a crash, to end it.
    pub fn adopt(ctx: Arc<Context>, owner: Arc<Owner>, open: Arc<OpenTxn>) -> Self {
        let mut session = Session::new(ctx, owner);
        session.open = Some(open);
        session
    }

    pub fn id(&self) -> Option<TxnId> {
        self.open.as_ref().map(|o| o.id)
    }

    pub fn has_writes(&self) -> bool {
        self.open.is_some()
    }

    pub(crate) fn sees(&self, id: TxnId) -> bool {
        let snapshot = self.snapshot.as_ref();
        snapshot.is_some_and(|s| s.sees(&self.ctx.table, id, self.id()))
    }

    pub fn has_snapshot(&self) -> bool {
        self.snapshot.is_some()
    }

    /// The snapshot of this transaction (or statement), taken at the first use.
    pub fn snapshot(&mut self) -> &Snapshot {
        let ctx = &self.ctx;
        self.snapshot.get_or_insert_with(|| ctx.table.snapshot(ctx.wal.end()))
    }

    /// Reads until the next swap see what is committed when they begin; for one with the answer,
    /// what the session saw before.
    pub(crate) fn swap_snapshot(&mut self, other: Option<Snapshot>) -> Option<Snapshot> {
        std::mem::replace(&mut self.snapshot, other)
    }

    pub fn drop_snapshot(&mut self) {
        self.snapshot = None;
        self.overtook = false;
        self.reader.lock().release();
    }

    /// The transaction's id, made at its first write.
    pub(crate) fn ensure_open(&mut self) -> Arc<OpenTxn> {
        if let Some(open) = &self.open {
            return Arc::clone(open);
        }
        let first_lsn = self.ctx.wal.end();
        let id = self.ctx.table.allocate(first_lsn);
        self.ctx.locks.register_holder(&self.owner, id);
        let open = Arc::new(OpenTxn::new(id, first_lsn, Lsn::ZERO));
        self.ctx.registry.add(Arc::clone(&open));
        self.open = Some(Arc::clone(&open));
        open
    }

    pub fn savepoint(&self) -> Savepoint {
        match &self.open {
            Some(open) => Savepoint { lsn: open.last_lsn(), txn: open.id },
            None => Savepoint::default(),
        }
    }

    /// From now on the transaction can be rolled back to here: locks taken before are kept for
    /// that, also when their rows are written.
    pub fn begin_epoch(&self) {
        self.owner.begin_epoch();
    }

    /// The row is written: when the row operation is over, the id in the entry is its lock.
    pub(super) fn note_written(&mut self, tree: TreeId, key: &[u8]) {
        self.written.push((tree, key.to_vec()));
    }

    /// Called before the next row is locked. Until then the row operation may be undone, and its
    /// rows stay locked then.
    pub(super) fn let_written_go(&mut self) {
        for (tree, key) in self.written.drain(..) {
            self.ctx.locks.let_go(&self.owner, tree, &key);
            if !self.let_go.contains(&tree) {
                self.let_go.push(tree);
            }
        }
    }

    /// Did the transaction ask for locks in this tree that only its id in the entries stands for
    /// now?
    pub(super) fn has_let_go(&self, tree: TreeId) -> bool {
        self.let_go.contains(&tree)
    }

    pub(super) fn keep_written(&mut self) {
        self.written.clear();
    }

    /// Appends the prepare record; the caller flushes to the answer.
    pub fn prepare(&mut self, xid: &[u8]) -> Option<Lsn> {
        let open = self.open.as_ref()?;
        let log_end = self.ctx.wal.end();
        open.begin_record(log_end);
        open.set_wrote(std::mem::take(&mut self.wrote));
        open.set_xid(xid.to_vec());
        let mut payload = Vec::with_capacity(12 + xid.len());
        put_varint(&mut payload, open.id.0);
        payload.extend_from_slice(xid);
        let appended = self.ctx.wal.append(RECORD_PREPARE, &[&payload]);
        self.ctx.table.set_prepared(open.id);
        open.cancel_record();
        Some(appended.end)
    }

    /// Appends the commit record and publishes the commit sequence number. It neither waits nor
    /// fails: it may run in another session's thread under the server's commit mutex (rules M10).
    pub fn commit_ordered(&mut self) {
        let Some(open) = &self.open else { return };
        if self.published.is_some() {
            return;
        }
        open.begin_record(self.ctx.wal.end());
        let appended = self.ctx.append_outcome(RECORD_COMMIT, open.id);
        let csn = self.ctx.table.commit(open.id);
        self.published = Some((csn, appended.end));
    }

    /// The place in the order of commits that [`Session::commit_ordered`] took, until the commit
    /// is finished: its number, and the end of its record.
    #[cfg(feature = "sim")]
    pub fn published(&self) -> Option<(Csn, Lsn)> {
        self.published
    }

    /// Ends a commit in the session's own thread. Answers the log position that makes it durable.
    pub fn finish_commit(&mut self) -> Option<Lsn> {
        self.commit_ordered();
        let mut end = None;
        if let (Some(open), Some((csn, lsn))) = (self.open.take(), self.published.take()) {
            self.ctx.table.wait_visible(csn);
            if open.has_deletes() && !planted::is(Bug::LostDeleteMark) {
                let (first_lsn, last_lsn) = (open.first_lsn, open.last_lsn());
                self.ctx.registry.push_purge(PurgeItem { txn: open.id, csn, first_lsn, last_lsn });
            }
            self.ctx.registry.note_committed(csn, &open);
            self.ctx.registry.remove(open.id);
            end = Some(lsn);
        }
        self.end();
        end
    }

    /// Rolls the whole transaction back in constant time: its id is marked aborted, what it
    /// wrote is skipped from now on and reverted in the background and on touch
    /// (Antonopoulos et al., Constant Time Recovery, VLDB 2019).
    pub fn rollback(&mut self) {
        assert!(self.published.is_none(), "a published commit cannot be rolled back");
        if let Some(open) = self.open.take() {
            self.ctx.append_outcome(RECORD_ABORT, open.id);
            self.ctx.table.abort(open.id);
            self.ctx.to_revert.lock().push_back(open);
        }
        self.end();
    }

    /// Gives the prepared transaction away, with its locks: it outlives this session, which is
    /// of no further use.
    pub fn detach(&mut self) -> Option<(Arc<OpenTxn>, Arc<Owner>)> {
        let open = self.open.take()?;
        self.drop_snapshot();
        self.is_detached = true;
        self.owner.leave_session();
        Some((open, Arc::clone(&self.owner)))
    }

    fn end(&mut self) {
        self.drop_snapshot();
        self.keep_written();
        self.let_go.clear();
        self.loads_from = None;
        self.writes = 0;
        self.wrote.clear();
        self.ctx.locks.release_all(&self.owner);
    }

    /// The id under which this transaction writes.
    pub fn ensure_id(&mut self) -> TxnId {
        self.ensure_open().id
    }

    pub fn clear_interrupt(&self) {
        self.owner.clear_interrupt();
    }

    /// No lock of a row or range; write locks are entries' ids and not counted.
    pub fn holds_no_locks(&self) -> bool {
        self.owner.locks.load(Ordering::Relaxed) == 0
    }

    /// Did the last locking read take its row lock, rather than find it held already?
    pub fn lock_is_new(&self) -> bool {
        self.lock_is_new
    }

    /// Gives up a row lock that the statement does not need, unless the row was written.
    pub fn unlock(&self, gate: &super::TreeGate, key: &[u8]) {
        self.ctx.locks.release_one(&self.owner, gate.id(), key);
    }

    pub(crate) fn check_rollback_target(&self, savepoint: Savepoint) -> Result<Lsn> {
        let same = self.id().is_none_or(|id| savepoint.txn == id || savepoint.lsn == Lsn::ZERO);
        assert!(same, "savepoint of another transaction");
        Ok(savepoint.lsn)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if self.published.is_some() {
            self.finish_commit();
        } else if !self.is_detached {
            self.rollback();
        }
    }
}
