//! Writing one entry: conflict with the entry's writer, with explicit locks and with intervals,
//! then the new version and its note in one log record.

use super::registry::OpenTxn;
use super::session::{Savepoint, Session};
use super::trees::TreeGate;
use super::versions::{Note, VersionRecord};
use super::{Enqueued, LockMode, Ticket, TxnState};
use crate::base::entry::{DELETED, FIRST};
use crate::base::{EntryHeader, Error, Payload, Result, TreeId, TxnId};
use crate::btree::{EntryEdit, Value};
use crate::os::planted::{self, Bug};
use crate::wal::ReadAhead;

/// What a write expects to find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// No live entry: an insert.
    Absent,
    /// A live entry: an update or a delete.
    Present,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    Done,
    /// [`Expect::Absent`] met a live entry.
    Duplicate,
    /// [`Expect::Present`] met none.
    Missing,
}

/// Why an attempt under the leaf latch did not write.
enum Obstacle {
    Answer(Written),
    Wait(Ticket),
    /// An insert waits to see what becomes of its key.
    WaitToSee(Ticket),
    /// The entry belongs to an aborted transaction: revert it, then try again.
    Revert(EntryHeader),
    /// The holder ended in between: try again at once.
    Again,
    Fault(Error),
}

impl Session {
    /// Writes `payload` as the new version of `key`, or a delete mark for `None`.
    pub fn write(
        &mut self,
        gate: &TreeGate,
        key: &[u8],
        payload: Option<Payload<'_>>,
        expect: Expect,
    ) -> Result<Written> {
        let written = self.write_in_turn(gate, key, payload, expect);
        // Those who want the gap come next: they will find the entry.
        self.ctx.locks.finish_insert(&self.owner);
        written
    }

    fn write_in_turn(
        &mut self,
        gate: &TreeGate,
        key: &[u8],
        payload: Option<Payload<'_>>,
        expect: Expect,
    ) -> Result<Written> {
        let open = self.ensure_open();
        if payload.is_none() {
            open.note_delete();
        }
        let mut waited = false;
        loop {
            let mut obstacle = None;
            let (mut overtakes, mut over_settled) = (false, false);
            let mut is_locked = false;
            open.begin_record(self.ctx.wal.end());
            let changed = gate.tree().change(key, &mut |current| {
                obstacle =
                    self.find_obstacle(&open, gate.id(), key, current, expect, &mut is_locked);
                if obstacle.is_some() {
                    return EntryEdit::Keep;
                }
                overtakes = self.overtakes(current);
                over_settled = self.is_settled(current);
                new_version(&open, key, payload, current)
            });
            match changed {
                Ok(Some(appended)) => open.end_version(appended, over_settled),
                other => {
                    open.cancel_record();
                    other?;
                }
            }
            match obstacle {
                None => {
                    self.writes += 1;
                    self.overtook |= overtakes;
                    match is_locked {
                        // No row was there that must stay locked if this is undone.
                        true if waited && expect == Expect::Absent => {
                            self.ctx.locks.let_go(&self.owner, gate.id(), key)
                        }
                        true => self.note_written(gate.id(), key),
                        false => {}
                    }
                    self.owner.set_undo_count(self.writes);
                    return Ok(Written::Done);
                }
                Some(Obstacle::Answer(answer)) => return Ok(answer),
                Some(Obstacle::Fault(error)) => return Err(error),
                Some(Obstacle::Wait(ticket)) => {
                    self.wait(ticket)?;
                    waited = true;
                }
                Some(Obstacle::WaitToSee(ticket)) => self.wait_to_see(ticket, gate.id(), key)?,
                Some(Obstacle::Revert(bad)) => {
                    self.ctx.revert_entry(gate, key, bad, &self.reader)?
                }
                Some(Obstacle::Again) => {}
            }
        }
    }

    /// Whether every snapshot sees the version that stands, and so comes back to it when it is replaced.
    fn is_settled(&self, current: Option<&[u8]>) -> bool {
        let horizon = self.ctx.table.horizon();
        current.is_some_and(|entry| EntryHeader::split(entry).is_ok_and(|(h, _)| h.txn < horizon))
    }

    /// All who want the key get the shared lock at once, and give it up again: if it is free, one
    /// of them writes it, and the others wait for that one.
    fn wait_to_see(&self, ticket: Ticket, tree: TreeId, key: &[u8]) -> Result<()> {
        self.wait(ticket)?;
        self.ctx.locks.release_one(&self.owner, tree, key);
        Ok(())
    }

    /// With a timeout of zero nobody stands in line: such a wait could close a circle, and the search
    /// for deadlocks would end a transaction for nothing.
    pub(crate) fn never_waits(&self) -> bool {
        self.lock_timeout.is_zero()
    }

    pub(crate) fn wait(&self, ticket: Ticket) -> Result<()> {
        ticket.wait(self.lock_timeout, &*self.ctx.report_wait)
    }

    /// Runs under the leaf's exclusive latch: must not block. `is_locked`: the row has a lock of
    /// this transaction beside the id in its entry.
    fn find_obstacle(
        &self,
        open: &OpenTxn,
        tree: TreeId,
        key: &[u8],
        current: Option<&[u8]>,
        expect: Expect,
        is_locked: &mut bool,
    ) -> Option<Obstacle> {
        let (mut live, mut own) = (false, false);
        if let Some(entry) = current {
            let header = match EntryHeader::split(entry) {
                Ok((header, _)) => header,
                Err(error) => return Some(Obstacle::Fault(error)),
            };
            if let Some(obstacle) = self.foreign_writer(open, tree, key, header, expect) {
                return Some(obstacle);
            }
            (live, own) = (!header.is_deleted(), header.txn == open.id);
        }
        // The caller locks it, as far as its statement wants it.
        if live && expect == Expect::Absent {
            return Some(Obstacle::Answer(Written::Duplicate));
        }
        // An own version is its own exclusive lock.
        if !own {
            match self.ctx.locks.check(&self.owner, tree, key, LockMode::Exclusive) {
                Ok(held) => *is_locked = held,
                Err(_) => return Some(self.queue(tree, key, LockMode::Exclusive, None)),
            }
        }
        match (expect, live) {
            (Expect::Present, false) => Some(Obstacle::Answer(Written::Missing)),
            (Expect::Present, true) => None,
            (Expect::Absent, _) => self.queue_insert(tree, key),
        }
    }

    /// An insert waits for those who have locked the interval that it falls into.
    fn queue_insert(&self, tree: TreeId, key: &[u8]) -> Option<Obstacle> {
        self.ctx.locks.insert_conflict(&self.owner, tree, key)?;
        if self.never_waits() {
            return Some(Obstacle::Fault(Error::LockTimeout));
        }
        match self.ctx.locks.enqueue_insert(&self.owner, tree, key) {
            Enqueued::Waiting(ticket) => Some(Obstacle::Wait(ticket)),
            Enqueued::Granted | Enqueued::HolderGone => None,
        }
    }

    fn foreign_writer(
        &self,
        open: &OpenTxn,
        tree: TreeId,
        key: &[u8],
        header: EntryHeader,
        expect: Expect,
    ) -> Option<Obstacle> {
        if header.txn == open.id {
            return None;
        }
        match self.ctx.table.state(header.txn) {
            TxnState::Committed(_) => None,
            TxnState::Aborted => Some(Obstacle::Revert(header)),
            TxnState::Active | TxnState::Prepared if expect == Expect::Absent && !self.replaces => {
                Some(match self.queue(tree, key, LockMode::Shared, Some(header.txn)) {
                    Obstacle::Wait(ticket) => Obstacle::WaitToSee(ticket),
                    other => other,
                })
            }
            TxnState::Active | TxnState::Prepared => {
                Some(self.queue(tree, key, LockMode::Exclusive, Some(header.txn)))
            }
        }
    }

    fn queue(&self, tree: TreeId, key: &[u8], mode: LockMode, holder: Option<TxnId>) -> Obstacle {
        if self.never_waits() {
            return Obstacle::Fault(Error::LockTimeout);
        }
        match self.ctx.locks.enqueue(&self.owner, tree, key, mode, holder) {
            Enqueued::Waiting(ticket) => Obstacle::Wait(ticket),
            Enqueued::Granted | Enqueued::HolderGone => Obstacle::Again,
        }
    }

    /// Undoes, now, what this transaction wrote after `savepoint` (rules M7). Locks that it asked
    /// for stay: those that it has let go of, because its id was in the entry, come back.
    pub fn rollback_to(&mut self, savepoint: Savepoint) -> Result<()> {
        let target = self.check_rollback_target(savepoint)?;
        self.keep_written();
        let Some(open) = self.open.clone() else { return Ok(()) };
        let mut lsn = open.last_lsn();
        let mut ahead = ReadAhead::backward();
        let mut freed = Vec::new();
        if self.loads_from.is_some_and(|from| target < from) {
            self.loads_from = None;
        }
        while lsn > target {
            let record = self.ctx.own_version(open.id, lsn, &mut ahead)?;
            if self.replaced_row(open.id, &record)? {
                let had_asked = self.has_let_go(record.tree) && !planted::is(Bug::UndoneLetsGo);
                self.ctx.locks.hold_written(&self.owner, record.tree, &record.key, had_asked);
            }
            let step = self.ctx.revert_own(open.id, lsn, record)?;
            freed.extend(step.reverted);
            lsn = step.previous;
            // The next record chains to what is left, also if a later step fails.
            open.begin_record(self.ctx.wal.end());
            open.end_record(lsn);
        }
        assert!(lsn <= target, "record chains lead backwards");
        open.shorten_own_log(lsn);
        for (tree, key) in &freed {
            self.ctx.locks.wake_keys(&self.owner, *tree, [&key[..]]);
        }
        Ok(())
    }

    /// Was a row there before, not of this transaction? When its entry is back, its other parts
    /// may still be as this transaction made them: nobody gets it before all is undone, although
    /// the lock that was taken to write it may be gone.
    fn replaced_row(&self, own: TxnId, record: &VersionRecord) -> Result<bool> {
        let Some(replaced) = &record.replaced else { return Ok(false) };
        let (older, _) = EntryHeader::split(replaced)?;
        Ok(older.txn != own && !older.is_deleted())
    }
}

/// The new version and its note.
fn new_version<'p>(
    open: &OpenTxn,
    key: &[u8],
    payload: Option<Payload<'p>>,
    current: Option<&[u8]>,
) -> EntryEdit<'p> {
    let mut flags = 0;
    if payload.is_none() {
        flags |= DELETED;
    }
    if current.is_none() {
        flags |= FIRST;
    }
    let payload = payload.unwrap_or(Payload(&[], &[]));
    let note = Note {
        txn: open.id,
        previous_lsn: open.last_lsn(),
        key,
        replaced: current,
        deletes: flags & DELETED != 0,
        loads: false,
    };
    let value = Value::Version { flags, txn: open.id, payload };
    EntryEdit::Put { value, note: note.encode().into() }
}
