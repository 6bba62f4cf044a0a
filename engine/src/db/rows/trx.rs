//! A transaction as the plugin sees it: rows of tables instead of entries of trees.

use super::payload::{is_long, Part, Wanted};
use crate::base::{Error, Payload, Result, TxnId};
use crate::btree::Direction;
use crate::db::engine::Engine;
use crate::db::lease::Purpose;
use crate::db::tables::Table;
use crate::txn::{
    Cursor, Expect, Isolation, Owner, ReadMode, Savepoint, Session, WaitPolicy, Written,
};
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

/// All entries of one row; `entries[i]` belongs to index `i`, `entries[0]` to the clustered one.
#[derive(Clone, Copy)]
pub struct RowWrite<'a> {
    pub entries: &'a [Entry<'a>],
}

#[derive(Clone, Copy)]
pub struct Entry<'a> {
    pub key: &'a [u8],
    pub payload: &'a [u8],
    /// What may be stored out of line if the payload is long.
    pub parts: &'a [Part],
    /// The key must be unique as it is.
    pub unique: bool,
}

/// One session's transaction, reused from one transaction to the next. Used by one thread at a
/// time.
pub struct Trx {
    pub(crate) engine: Arc<Engine>,
    pub(crate) session: Session,
    session_id: u64,
    statement: Savepoint,
    duplicate_index: usize,
    pub(crate) long_sequence: u32,
    pub(super) scratch: Vec<u8>,
}

impl Engine {
    /// A transaction for one session. `session` is whatever the host knows it by.
    pub fn begin(self: &Arc<Self>, session: u64) -> Trx {
        Trx::new(Arc::clone(self), session, self.register_session(session))
    }
}

impl Trx {
    pub(crate) fn new(engine: Arc<Engine>, session_id: u64, owner: Arc<Owner>) -> Self {
        let session = Session::new(Arc::clone(&engine.ctx), owner);
        Trx {
            engine,
            session,
            session_id,
            statement: Savepoint::default(),
            duplicate_index: 0,
            long_sequence: 0,
            scratch: Vec::new(),
        }
    }

    /// A second transaction of the same session. A kill of the session finds this one, until
    /// [`Trx::register`] of the first.
    pub fn beside(&self) -> Trx {
        let mut beside = self.engine.begin(self.session_id);
        beside.set_isolation(self.session.isolation);
        beside.session.lock_timeout = self.session.lock_timeout;
        beside
    }

    /// A kill of the session finds this transaction from now on.
    pub fn register(&self) {
        self.engine.sessions.register(self.session_id, &self.session.owner);
    }

    pub fn set_isolation(&mut self, isolation: Isolation) {
        self.session.isolation = isolation;
    }

    pub fn isolation(&self) -> Isolation {
        self.session.isolation
    }

    pub fn set_lock_timeout(&mut self, timeout: Duration) {
        self.session.lock_timeout = timeout;
    }

    /// REPLACE and ON DUPLICATE KEY UPDATE: a duplicate's row is locked exclusively.
    pub fn set_replace(&mut self, on: bool) {
        self.session.replaces = on;
    }

    /// Marks the place that a failed statement goes back to.
    pub fn statement_start(&mut self) {
        self.statement = self.session.savepoint();
        self.session.begin_epoch();
        let by_statement =
            matches!(self.session.isolation, Isolation::ReadCommitted | Isolation::ReadUncommitted);
        if by_statement {
            self.session.drop_snapshot();
        }
    }

    pub fn statement_rollback(&mut self) -> Result<()> {
        let savepoint = self.statement;
        self.rollback_to(savepoint)
    }

    pub fn savepoint(&self) -> Savepoint {
        self.session.begin_epoch();
        self.session.savepoint()
    }

    pub fn rollback_to(&mut self, savepoint: Savepoint) -> Result<()> {
        self.session.rollback_to(savepoint)
    }

    pub fn open_snapshot(&mut self) {
        self.session.snapshot();
    }

    pub fn has_snapshot(&self) -> bool {
        self.session.has_snapshot()
    }

    pub fn has_writes(&self) -> bool {
        self.session.has_writes()
    }

    pub fn id(&self) -> Option<TxnId> {
        self.session.id()
    }

    /// After [`Error::Duplicate`]: the index whose key was there already.
    pub fn duplicate_index(&self) -> usize {
        self.duplicate_index
    }

    /// Appends the prepare record; with `flush` it is as durable as `flush_at_commit` promises.
    pub fn prepare(&mut self, xid: &[u8], flush: bool) -> Result<()> {
        match self.session.prepare(xid) {
            Some(end) if flush => self.engine.flush_for_commit(end),
            _ => Ok(()),
        }
    }

    /// Puts the commit in its place in the order; neither waits nor fails.
    pub fn commit_ordered(&mut self) {
        self.session.commit_ordered();
    }

    /// Commits, if [`Trx::commit_ordered`] did not yet, and ends the transaction. With `flush` it
    /// is as durable as `flush_at_commit` promises when this returns.
    pub fn commit(&mut self, flush: bool) -> Result<()> {
        self.statement = Savepoint::default();
        match self.session.finish_commit() {
            Some(end) if flush => self.engine.flush_for_commit(end),
            _ => Ok(()),
        }
    }

    /// Constant time, whatever the size of the transaction.
    pub fn rollback(&mut self) {
        self.statement = Savepoint::default();
        let wrote = self.session.has_writes();
        self.session.rollback();
        if wrote {
            self.engine.workers.revert_bell.ring();
        }
    }

    /// Leaves a prepared transaction to the session that ends it by its XID.
    pub fn detach(mut self) {
        if let Some((open, owner)) = self.session.detach() {
            self.engine.keep_prepared(open, owner);
        }
    }

    pub fn insert(&mut self, table: &Table, row: &RowWrite<'_>) -> Result<()> {
        self.insert_again(table, row)?;
        table.counters.remembered.row_inserted();
        Ok(())
    }

    /// A row that was inserted, counted and taken back.
    pub(in crate::db) fn insert_again(&mut self, table: &Table, row: &RowWrite<'_>) -> Result<()> {
        self.session.note_table(table.clustered());
        self.row_operation(Purpose::Add, |trx| trx.insert_entries(table, row))
    }

    /// The error of a wait. The victim of a deadlock lets go of everything at once.
    pub(in crate::db) fn end_if_victim(&mut self, error: Error) -> Error {
        if matches!(error, Error::Deadlock) {
            self.rollback();
        }
        error
    }

    pub fn update(&mut self, table: &Table, old: &RowWrite<'_>, new: &RowWrite<'_>) -> Result<()> {
        self.session.note_table(table.clustered());
        self.row_operation(Purpose::Add, |trx| trx.update_entries(table, old, new))?;
        // Other changes leave what is known of the keys as it is.
        if old.entries.iter().zip(new.entries).any(|(before, after)| before.key != after.key) {
            table.counters.remembered.keys_changed();
        }
        Ok(())
    }

    pub fn delete(&mut self, table: &Table, old: &RowWrite<'_>) -> Result<()> {
        self.session.note_table(table.clustered());
        self.row_operation(Purpose::Delete, |trx| trx.delete_entries(table, old))?;
        table.counters.remembered.row_deleted();
        Ok(())
    }

    /// A row changes in all its indexes or in none.
    fn row_operation(
        &mut self,
        purpose: Purpose,
        f: impl FnOnce(&mut Trx) -> Result<()>,
    ) -> Result<()> {
        self.engine.admit(purpose, &|| self.session.is_interrupted())?;
        let before = self.session.savepoint();
        let outcome = f(self);
        if let Err(error) = outcome {
            return Err(self.undo_row(before, error));
        }
        Ok(())
    }

    fn undo_row(&mut self, before: Savepoint, error: Error) -> Error {
        if matches!(error, Error::Deadlock) {
            // The victim lets go of everything at once; others wait for it.
            self.rollback();
            return error;
        }
        if let Err(worse) = self.session.rollback_to(before) {
            return worse;
        }
        error
    }

    fn insert_entries(&mut self, table: &Table, row: &RowWrite<'_>) -> Result<()> {
        assert_eq!(row.entries.len(), table.gates.len(), "one entry for each index");
        for (index, entry) in row.entries.iter().enumerate() {
            self.insert_entry(table, index, entry)?;
        }
        Ok(())
    }

    fn insert_entry(&mut self, table: &Table, index: usize, entry: &Entry<'_>) -> Result<()> {
        let mut reference = std::mem::take(&mut self.scratch);
        let stored = self.store_payload(table, entry, &mut reference);
        let outcome = stored.and_then(|stored| self.write_new(table, index, entry, stored));
        self.scratch = reference;
        match outcome? {
            Written::Done => Ok(()),
            Written::Missing => unreachable!("an insert expects nothing"),
            Written::Duplicate if entry.unique => {
                self.duplicate_index = index;
                Err(Error::Duplicate)
            }
            Written::Duplicate => Err(index_fault(table, index, "has an entry too many")),
        }
    }

    /// Writes an entry that must not be there. A duplicate is one only when its row is locked: it
    /// may have gone before that.
    fn write_new(
        &mut self,
        table: &Table,
        index: usize,
        entry: &Entry<'_>,
        stored: Payload<'_>,
    ) -> Result<Written> {
        let gate = &table.gates[index];
        loop {
            let written = self.session.write(gate, entry.key, Some(stored), Expect::Absent)?;
            let is_duplicate = written == Written::Duplicate && entry.unique;
            if !is_duplicate || self.lock_duplicate(table, index, entry.key)? {
                return Ok(written);
            }
        }
    }

    /// The row in the way stays as it is until this transaction is over; others may find it in
    /// their way as well, unless it is to be replaced. False: it is no longer there.
    fn lock_duplicate(&mut self, table: &Table, index: usize, key: &[u8]) -> Result<bool> {
        let mut ignored = Vec::new();
        let gate = &table.gates[index];
        let exclusive = self.session.replaces;
        self.session.get_locked(gate, key, exclusive, WaitPolicy::Wait, &mut ignored)
    }

    fn update_entries(
        &mut self,
        table: &Table,
        old: &RowWrite<'_>,
        new: &RowWrite<'_>,
    ) -> Result<()> {
        assert_eq!(old.entries.len(), table.gates.len(), "one entry for each index");
        assert_eq!(new.entries.len(), table.gates.len(), "one entry for each index");
        for (index, (before, after)) in old.entries.iter().zip(new.entries).enumerate() {
            if before.key != after.key {
                self.delete_entry(table, index, before)?;
                self.insert_entry(table, index, after)?;
            } else if before.payload != after.payload {
                self.replace_entry(table, index, before, after)?;
            }
        }
        Ok(())
    }

    fn replace_entry(
        &mut self,
        table: &Table,
        index: usize,
        before: &Entry<'_>,
        after: &Entry<'_>,
    ) -> Result<()> {
        let mut reference = std::mem::take(&mut self.scratch);
        let stored = self.store_over(table, index, before, after, &mut reference);
        let outcome = stored.and_then(|stored| {
            self.session.write(&table.gates[index], after.key, Some(stored), Expect::Present)
        });
        self.scratch = reference;
        self.expect_done(table, index, outcome?)
    }

    fn delete_entries(&mut self, table: &Table, old: &RowWrite<'_>) -> Result<()> {
        assert_eq!(old.entries.len(), table.gates.len(), "one entry for each index");
        for (index, entry) in old.entries.iter().enumerate() {
            self.delete_entry(table, index, entry)?;
        }
        Ok(())
    }

    fn delete_entry(&mut self, table: &Table, index: usize, entry: &Entry<'_>) -> Result<()> {
        if is_long(entry.payload) {
            self.delete_long(table, index, entry.key)?;
        }
        let gate = &table.gates[index];
        let written = self.session.write(gate, entry.key, None, Expect::Present)?;
        self.expect_done(table, index, written)
    }

    fn expect_done(&self, table: &Table, index: usize, written: Written) -> Result<()> {
        match (written, index) {
            (Written::Done, _) => Ok(()),
            (_, 0) => Err(Error::NotFound),
            _ => Err(index_fault(table, index, "misses an entry")),
        }
    }

    /// Waits, for the lock timeout at most, until no other prepared transaction has changes in the
    /// table. The caller keeps everybody else from it.
    pub fn wait_for_prepared(&mut self, table: &Table) -> Result<()> {
        let done = self.session.wait_for_prepared(table.clustered());
        self.end_victim(done)
    }

    /// Reads the payload under `key` of index `index`.
    pub fn get(
        &mut self,
        table: &Table,
        index: usize,
        key: &[u8],
        mode: ReadMode,
        payload: &mut Vec<u8>,
    ) -> Result<bool> {
        self.get_wanted(table, index, key, mode, Wanted::All, payload)
    }

    /// Reads the payload under `key` of index `index`, with [`ABSENT`](super::ABSENT) in the place of
    /// parts that are out of line and not wanted.
    pub fn get_wanted(
        &mut self,
        table: &Table,
        index: usize,
        key: &[u8],
        mode: ReadMode,
        wanted: Wanted<'_>,
        payload: &mut Vec<u8>,
    ) -> Result<bool> {
        let gate = &table.gates[index];
        self.check_age(table, mode)?;
        let found = match mode {
            ReadMode::Snapshot => {
                if self.session.has_overtaken() && self.follows_rows(table, index, mode) {
                    return self.get_contested(table, index, key, payload);
                }
                self.session.get(gate, key, payload)
            }
            ReadMode::Lock { exclusive, wait } => {
                self.session.get_locked(gate, key, exclusive, wait, payload)
            }
        };
        let found = self.end_victim(found)?;
        if found && !self.load_payload(table, mode, wanted, payload)? {
            return self.get_committed(table, index, key, wanted, payload);
        }
        Ok(found)
    }

    /// READ UNCOMMITTED met a long value that was taken away meanwhile: the committed row then.
    fn get_committed(
        &mut self,
        table: &Table,
        index: usize,
        key: &[u8],
        wanted: Wanted<'_>,
        payload: &mut Vec<u8>,
    ) -> Result<bool> {
        self.session.isolation = Isolation::ReadCommitted;
        let found = self.get_wanted(table, index, key, ReadMode::Snapshot, wanted, payload);
        self.session.isolation = Isolation::ReadUncommitted;
        found
    }

    /// The last committed version of a row that another transaction holds. False: there is none.
    fn get_last_committed(
        &mut self,
        table: &Table,
        index: usize,
        key: &[u8],
        wanted: Wanted<'_>,
        payload: &mut Vec<u8>,
    ) -> Result<bool> {
        let isolation = std::mem::replace(&mut self.session.isolation, Isolation::ReadCommitted);
        let snapshot = self.session.swap_snapshot(None);
        let found = self.get_wanted(table, index, key, ReadMode::Snapshot, wanted, payload);
        self.session.swap_snapshot(snapshot);
        self.session.isolation = isolation;
        found
    }

    /// Starts a scan of index `index` from `from`; `to` is its far end in the scan's direction.
    #[allow(clippy::too_many_arguments, reason = "what a range scan is, each named")]
    pub fn seek(
        &mut self,
        cursor: &mut TableCursor,
        table: &Arc<Table>,
        index: usize,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        direction: Direction,
        mode: ReadMode,
    ) -> Result<()> {
        self.check_age(table, mode)?;
        cursor.table = Some(Arc::clone(table));
        cursor.index = index;
        cursor.second = None;
        cursor.entries.start(&table.gates[index], from, to, direction, mode);
        if self.follows_rows(table, index, mode) {
            cursor.entries.follow_rows(table.def.indexes[index].unique);
        }
        Ok(())
    }

    /// Moves to the next entry; `false` at the end.
    pub fn next(&mut self, cursor: &mut TableCursor) -> Result<bool> {
        self.next_wanted(cursor, Wanted::All)
    }

    /// [`Trx::next`], with [`ABSENT`](super::ABSENT) in the place of parts that are out of line and not
    /// wanted.
    pub fn next_wanted(&mut self, cursor: &mut TableCursor, wanted: Wanted<'_>) -> Result<bool> {
        let Some(table) = cursor.table.take() else { return Ok(false) };
        let found = self.next_of(&table, cursor, wanted);
        cursor.table = Some(table);
        found
    }

    fn next_of(
        &mut self,
        table: &Table,
        cursor: &mut TableCursor,
        wanted: Wanted<'_>,
    ) -> Result<bool> {
        if let Some(payload) = cursor.second.take() {
            *cursor.entries.entry_mut().payload_mut() = payload;
            return Ok(true);
        }
        loop {
            let found = self.session.next(&mut cursor.entries);
            if !self.end_victim(found)? {
                return Ok(false);
            }
            if let Some(contested) = cursor.entries.take_contested() {
                if self.settle_at(table, cursor, contested)? {
                    return Ok(true);
                }
                continue;
            }
            if cursor.entries.peeks() {
                let (key, payload) = cursor.entries.entry_mut().alone_mut();
                if self.get_last_committed(table, cursor.index, key, wanted, payload)? {
                    return Ok(true);
                }
                cursor.entries.pass_peeked();
                continue;
            }
            let mode = cursor.entries.mode();
            let entry = cursor.entries.entry_mut();
            if self.load_entry(table, mode, wanted, entry)? {
                return Ok(true);
            }
            let (key, payload) = entry.alone_mut();
            if self.get_committed(table, cursor.index, key, wanted, payload)? {
                return Ok(true);
            }
        }
    }

    /// Gives back the row lock of the last entry read, which the statement does not want
    /// (READ COMMITTED).
    pub fn unlock_last(&mut self, cursor: &TableCursor) {
        if let Some(gate) = cursor.entries.gate() {
            self.session.unlock(gate, cursor.key());
        }
    }

    /// Gives back the row lock on `key` that [`Trx::get`] took.
    pub fn unlock(&mut self, table: &Table, index: usize, key: &[u8]) {
        self.session.unlock(&table.gates[index], key);
    }

    /// Did the last locking [`Trx::get`] or [`Trx::next`] take its row lock, rather than find it
    /// held already? Only such a lock may be given back.
    pub fn lock_is_new(&self) -> bool {
        self.session.lock_is_new()
    }

    /// No lock of a row or range is held, write locks aside.
    pub fn holds_no_locks(&self) -> bool {
        self.session.holds_no_locks()
    }

    /// A kill was for an earlier statement: waits of this one begin undisturbed.
    pub fn clear_interrupt(&self) {
        self.session.clear_interrupt();
    }

    #[inline]
    fn end_victim<R>(&mut self, outcome: Result<R>) -> Result<R> {
        if let Err(Error::Deadlock) = outcome {
            self.rollback();
        }
        outcome
    }

    /// A table that was created after the snapshot has another past than the snapshot thinks.
    /// Locking reads do not look at that past; but a transaction that has a snapshot must not
    /// write, by what it read there, to a table that is another one now.
    fn check_age(&mut self, table: &Table, mode: ReadMode) -> Result<()> {
        let by_statement =
            matches!(self.session.isolation, Isolation::ReadCommitted | Isolation::ReadUncommitted);
        if by_statement || mode != ReadMode::Snapshot && !self.session.has_snapshot() {
            return Ok(());
        }
        if self.session.snapshot().csn() < table.created() {
            return Err(Error::TableChanged);
        }
        Ok(())
    }
}

impl Drop for Trx {
    fn drop(&mut self) {
        self.engine.sessions.forget(self.session_id);
    }
}

fn index_fault(table: &Table, index: usize, what: &str) -> Error {
    Error::corrupt(format!("index {index} {what}"), table.name.clone())
}

/// A scan of one index of one table.
#[derive(Default)]
pub struct TableCursor {
    table: Option<Arc<Table>>,
    pub(crate) index: usize,
    pub(crate) entries: Cursor,
    /// The other row of the entry on which the cursor stands.
    pub(crate) second: Option<Vec<u8>>,
}

impl TableCursor {
    pub fn key(&self) -> &[u8] {
        self.entries.key()
    }

    pub fn payload(&self) -> &[u8] {
        self.entries.payload()
    }

    pub fn index(&self) -> usize {
        self.index
    }

    /// The row on which the cursor stands is another transaction's, read as it was committed last
    /// ([`WaitPolicy::CommittedFirst`]): the next step locks it, or [`TableCursor::pass_peeked`]
    /// comes first.
    pub fn peeks(&self) -> bool {
        self.entries.peeks()
    }

    /// The caller does not want the row at which the cursor peeks.
    pub fn pass_peeked(&mut self) {
        self.entries.pass_peeked();
    }

    /// A scan that starts at a row at which another one peeked waits for that row.
    pub fn peek_again(&mut self, key: &[u8]) {
        self.entries.peek_again(key);
    }

    /// From now on the scan waits for rows that others hold.
    pub fn wait_always(&mut self) {
        self.entries.wait_always();
    }

    pub fn stop(&mut self) {
        self.entries.stop();
        self.second = None;
        self.table = None;
    }
}
