//! Reading entries: from a snapshot, without locks; or the newest committed version, with one.
//!
//! Invariants:
//! 1. The state of an entry's writer is looked up under the latch under which the entry was read.
//!    While the entry stands, a rolled back writer is not forgotten, so an id below the horizon
//!    that is met there is truly committed (rules M9). After a restart that holds for entries that can
//!    be reached: those of a page that was given up, and below one, cannot.
//! 2. The log is read with no latch held (rules M8). A record that is gone by then means that the
//!    entry was reverted meanwhile: the entry is read again.

use super::session::Session;
use super::trees::TreeGate;
use super::versions::VersionRecord;
use super::{Enqueued, Granted, Isolation, LockMode, Ticket, TxnState};
use crate::base::{EntryHeader, Error, Lsn, Result, TreeId, TxnId};
use crate::os::planted::{self, Bug};
use std::ops::Bound;

/// How often a read looks again at one and the same version before it says that it is stuck.
const RETRIES_MAX: usize = 1000;

/// Tells a read that goes on, however long, from one that meets the same version for ever.
#[derive(Default)]
pub(crate) struct Progress {
    last: Option<(Vec<u8>, EntryHeader)>,
    retries: usize,
}

impl Progress {
    /// The entry of `key` is in the way with this version, and will be looked at again.
    pub(crate) fn meet(&mut self, tree: TreeId, key: &[u8], header: EntryHeader) -> Result<()> {
        if self.last.as_ref().is_some_and(|(at, seen)| at == key && *seen == header) {
            self.retries += 1;
        } else {
            *self = Progress { last: Some((key.to_vec(), header)), retries: 0 };
        }
        if self.retries < RETRIES_MAX {
            return Ok(());
        }
        let place = format!("{tree:?}, transaction {}, log {:?}", header.txn.0, header.lsn);
        Err(Error::corrupt("a version stays in the way of a read", place))
    }
}

/// From where to where.
pub(crate) type KeyRange<'a> = (Bound<&'a [u8]>, Bound<&'a [u8]>);

/// What to do at a lock that another transaction holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitPolicy {
    Wait,
    NoWait,
    SkipLocked,
    /// A scan shows a row that another transaction holds without locking it, for the caller to
    /// judge by its last committed version; the next step comes to it again and waits
    /// (semi-consistent read). Where gaps are locked, and outside scans, it is `Wait`.
    CommittedFirst,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadMode {
    /// What the transaction's snapshot sees.
    Snapshot,
    /// The newest committed version, locked until the transaction ends.
    Lock { exclusive: bool, wait: WaitPolicy },
}

/// Whom a snapshot read sees.
#[derive(Clone, Copy)]
pub(crate) struct View {
    /// READ UNCOMMITTED: every newest version of any transaction.
    dirty: bool,
}

/// An entry as a snapshot finds it under the latch.
pub(crate) enum Seen<'a> {
    Live(&'a [u8]),
    Nothing,
    /// The version is not visible; an older one may be.
    Older(EntryHeader),
}

impl Session {
    pub(crate) fn view(&mut self) -> View {
        self.snapshot();
        View { dirty: self.isolation == Isolation::ReadUncommitted }
    }

    /// Judges an entry; to be called under the latch that protects it.
    pub(crate) fn judge<'a>(&self, view: View, entry: &'a [u8]) -> Result<Seen<'a>> {
        let (header, payload) = EntryHeader::split(entry)?;
        let visible = if view.dirty {
            self.ctx.table.state(header.txn) != TxnState::Aborted
        } else {
            self.sees(header.txn)
        };
        Ok(match (visible, header.is_deleted()) {
            (true, false) => Seen::Live(payload),
            (true, true) => Seen::Nothing,
            (false, _) if header.is_first() => Seen::Nothing,
            (false, _) => Seen::Older(header),
        })
    }

    /// The newest visible payload older than the version that `head` names. `Err(NotRetained)` asks
    /// the caller to read the entry again.
    pub(crate) fn older_version(
        &self,
        view: View,
        gate: &TreeGate,
        key: &[u8],
        head: EntryHeader,
    ) -> Result<Option<Vec<u8>>> {
        // Without the latch: only how fast the revert goes depends on it.
        if self.ctx.table.state(head.txn) == TxnState::Aborted {
            self.ctx.meet_rolled_back();
        }
        let mut header = head;
        loop {
            if header.is_first() {
                return Ok(None);
            }
            let read = match header.lsn == head.lsn {
                true => self.ctx.version_near(header.lsn, &self.reader),
                false => self.ctx.version_record(header.lsn),
            };
            let record = match read {
                // Not kept because no snapshot lies between it and its neighbours: the next
                // older one that was kept leads on.
                // A dirty read looks only for versions of a writer that is not wholly reverted, and
                // those are kept: the entry is another one by now.
                Err(Error::NotRetained) if view.dirty => return Err(Error::NotRetained),
                Err(Error::NotRetained) => {
                    match self.kept_below(gate, key, header.lsn)? {
                        Some(older) => older,
                        // Below the log everything that this snapshot sees was kept.
                        None if self.ctx.stands(gate, key, head)? => return Ok(None),
                        None => return Err(Error::NotRetained),
                    }
                }
                other => other?,
            };
            // A chain may be as long as the row was changed often.
            if self.owner.is_interrupted() {
                return Err(Error::Interrupted);
            }
            let Some(replaced) = record.replaced else { return Ok(None) };
            let (older, payload) = EntryHeader::split(&replaced)?;
            // Earlier versions by the same writer are as invisible as its newest one, whatever
            // has become of it since the latch was released.
            let same_writer = older.txn == head.txn;
            if !same_writer && (view.dirty || self.sees(older.txn)) {
                return Ok((!older.is_deleted()).then(|| payload.to_vec()));
            }
            header = older;
        }
    }

    /// The next version below `lsn` that was kept, of which the snapshot sees nothing. One that it
    /// sees is not in the chain: what replaced it there would have been kept, and found first. It was
    /// moved before its writer was rolled back, and ids that are reverted and forgotten count as seen.
    fn kept_below(&self, gate: &TreeGate, key: &[u8], lsn: Lsn) -> Result<Option<VersionRecord>> {
        let takes_all = planted::is(Bug::LivesNotKeptApart);
        let mut at = lsn;
        while let Some((older, record)) = self.ctx.old.next_below(gate.id(), key, at)? {
            if takes_all || !self.sees(record.txn) {
                return Ok(Some(record));
            }
            at = older;
        }
        Ok(None)
    }

    /// The payload that the snapshot sees under `key`.
    pub fn get(&mut self, gate: &TreeGate, key: &[u8], out: &mut Vec<u8>) -> Result<bool> {
        let view = self.view();
        let mut progress = Progress::default();
        loop {
            let mut found = Ok(false);
            let mut head = None;
            gate.tree().get(key, &mut |current| {
                let Some(entry) = current else { return };
                match self.judge(view, entry) {
                    Ok(Seen::Live(payload)) => {
                        out.clear();
                        out.extend_from_slice(payload);
                        found = Ok(true);
                    }
                    Ok(Seen::Nothing) => {}
                    Ok(Seen::Older(header)) => head = Some(header),
                    Err(error) => found = Err(error),
                }
            })?;
            let Some(head) = head else { return found };
            match self.older_version(view, gate, key, head) {
                Ok(Some(payload)) => {
                    *out = payload;
                    return Ok(true);
                }
                Ok(None) => return Ok(false),
                Err(Error::NotRetained) => progress.meet(gate.id(), key, head)?,
                Err(error) => return Err(error),
            }
        }
    }

    /// Locks `key` and reads its newest committed version. A key that is not there is locked
    /// against insertion under REPEATABLE READ.
    pub fn get_locked(
        &mut self,
        gate: &TreeGate,
        key: &[u8],
        exclusive: bool,
        wait: WaitPolicy,
        out: &mut Vec<u8>,
    ) -> Result<bool> {
        let mode = if exclusive { LockMode::Exclusive } else { LockMode::Shared };
        let wait = if wait == WaitPolicy::CommittedFirst { WaitPolicy::Wait } else { wait };
        let mut progress = Progress::default();
        let mut waited = false;
        self.lock_is_new = false;
        self.let_written_go();
        loop {
            let mut attempt = Attempt::Missing;
            gate.tree().get(key, &mut |current| {
                attempt = match current {
                    None => Attempt::Missing,
                    Some(entry) => self.lock_entry(gate.id(), key, None, entry, mode, wait, out),
                };
                if matches!(attempt, Attempt::Missing) {
                    let at = Bound::Included(key);
                    attempt = match self.lock_gap(gate.id(), (at, at), mode, wait) {
                        Ok(None) => Attempt::Missing,
                        Ok(Some(ticket)) => Attempt::Wait(ticket),
                        Err(error) => Attempt::Fault(error),
                    };
                }
            })?;
            match attempt {
                Attempt::Locked(granted) => {
                    self.lock_is_new = waited || granted == Granted::New;
                    return Ok(true);
                }
                Attempt::Missing | Attempt::Skip | Attempt::Held => return Ok(false),
                Attempt::Wait(ticket) => {
                    waited |= !self.holds_any(gate.id(), key);
                    self.wait(ticket)?;
                }
                Attempt::Revert(bad) => {
                    progress.meet(gate.id(), key, bad)?;
                    self.ctx.revert_entry(gate, key, bad, &self.reader)?;
                }
                Attempt::Again(header) => progress.meet(gate.id(), key, header)?,
                Attempt::Fault(error) => return Err(error),
            }
        }
    }

    pub(crate) fn holds_any(&self, tree: TreeId, key: &[u8]) -> bool {
        self.ctx.locks.holds(&self.owner, tree, key, LockMode::Shared)
    }

    pub(crate) fn locks_gaps(&self) -> bool {
        matches!(self.isolation, Isolation::RepeatableRead | Isolation::Serializable)
    }

    /// Keeps others from inserting into the range, in which nothing was found. An insert that
    /// waits there already comes first; SKIP LOCKED leaves the gap to it.
    pub(crate) fn lock_gap(
        &self,
        tree: TreeId,
        range: KeyRange<'_>,
        mode: LockMode,
        wait: WaitPolicy,
    ) -> Result<Option<Ticket>> {
        let locks = &self.ctx.locks;
        if !self.locks_gaps() || locks.try_lock_range(&self.owner, tree, range, mode).is_ok() {
            return Ok(None);
        }
        match wait {
            WaitPolicy::NoWait => Err(Error::WouldWait),
            WaitPolicy::SkipLocked => Ok(None),
            _ if self.never_waits() => Err(Error::LockTimeout),
            WaitPolicy::Wait | WaitPolicy::CommittedFirst => {
                match locks.enqueue_range(&self.owner, tree, range, mode) {
                    Enqueued::Waiting(ticket) => Ok(Some(ticket)),
                    Enqueued::Granted | Enqueued::HolderGone => Ok(None),
                }
            }
        }
    }

    /// The payload of the newest version that is not rolled back, of what the caller has locked.
    pub fn get_newest(&mut self, gate: &TreeGate, key: &[u8], out: &mut Vec<u8>) -> Result<bool> {
        loop {
            let mut found = Ok(false);
            let mut aborted = None;
            gate.tree().get(key, &mut |current| {
                let Some(entry) = current else { return };
                found = EntryHeader::split(entry).map(|(header, payload)| {
                    if self.ctx.table.state(header.txn) == TxnState::Aborted {
                        aborted = Some(header);
                    }
                    out.clear();
                    out.extend_from_slice(payload);
                    !header.is_deleted()
                });
            })?;
            match aborted {
                Some(bad) => self.ctx.revert_entry(gate, key, bad, &self.reader)?,
                None => return found,
            }
        }
    }

    /// Under the entry's latch: takes the lock and copies the payload, or says what is in the way.
    /// With a `range`, which ends at the key, the lock is an interval over all of it.
    #[allow(clippy::too_many_arguments)]
    pub(crate) fn lock_entry(
        &self,
        tree: TreeId,
        key: &[u8],
        range: Option<KeyRange<'_>>,
        entry: &[u8],
        mode: LockMode,
        wait: WaitPolicy,
        out: &mut Vec<u8>,
    ) -> Attempt {
        let (header, payload) = match EntryHeader::split(entry) {
            Ok(parts) => parts,
            Err(error) => return Attempt::Fault(error),
        };
        let own = self.id() == Some(header.txn);
        if !own {
            match self.ctx.table.state(header.txn) {
                TxnState::Committed(_) => {}
                TxnState::Aborted => return Attempt::Revert(header),
                TxnState::Active | TxnState::Prepared => {
                    let holder = Some(header.txn);
                    return self.blocked(tree, key, range, mode, wait, header, holder);
                }
            }
        }
        let locks = &self.ctx.locks;
        let granted = match range {
            // An own version is its own exclusive lock; the gap before it is not.
            Some(range) if own => match self.lock_gap(tree, range, mode, wait) {
                Ok(None) => Ok(Granted::Held),
                Ok(Some(ticket)) => return Attempt::Wait(ticket),
                Err(error) => return Attempt::Fault(error),
            },
            Some(range) => locks.try_lock_next(&self.owner, tree, range, key, mode),
            None if header.is_deleted() => return Attempt::Missing,
            None if own => Ok(Granted::Held),
            None => locks.try_lock(&self.owner, tree, key, mode),
        };
        let granted = match granted {
            Ok(granted) => granted,
            // Only the gap may be awaited: by an insert, to which SKIP LOCKED leaves it.
            Err(_) if range.is_some() && wait == WaitPolicy::SkipLocked => {
                match locks.try_lock(&self.owner, tree, key, mode) {
                    Ok(granted) => granted,
                    Err(_) => return Attempt::Skip,
                }
            }
            Err(_) => return self.blocked(tree, key, range, mode, wait, header, None),
        };
        if header.is_deleted() {
            return Attempt::Missing;
        }
        out.clear();
        out.extend_from_slice(payload);
        Attempt::Locked(granted)
    }

    #[allow(clippy::too_many_arguments)]
    fn blocked(
        &self,
        tree: TreeId,
        key: &[u8],
        range: Option<KeyRange<'_>>,
        mode: LockMode,
        wait: WaitPolicy,
        header: EntryHeader,
        holder: Option<TxnId>,
    ) -> Attempt {
        let (locks, owner) = (&self.ctx.locks, &self.owner);
        match wait {
            WaitPolicy::NoWait => Attempt::Fault(Error::WouldWait),
            WaitPolicy::SkipLocked => Attempt::Skip,
            WaitPolicy::CommittedFirst if range.is_none() => Attempt::Held,
            _ if self.never_waits() => Attempt::Fault(Error::LockTimeout),
            WaitPolicy::Wait | WaitPolicy::CommittedFirst => {
                let enqueued = match range {
                    Some(range) => locks.enqueue_next(owner, tree, range, key, mode, holder),
                    None => locks.enqueue(owner, tree, key, mode, holder),
                };
                match enqueued {
                    Enqueued::Waiting(ticket) => Attempt::Wait(ticket),
                    Enqueued::Granted | Enqueued::HolderGone => Attempt::Again(header),
                }
            }
        }
    }
}

/// What came of locking an entry under its latch.
pub(crate) enum Attempt {
    Locked(Granted),
    Missing,
    Skip,
    /// Another transaction holds it, and the caller would rather not wait.
    Held,
    Wait(Ticket),
    Revert(EntryHeader),
    /// What was in the way of this version is gone.
    Again(EntryHeader),
    Fault(Error),
}
