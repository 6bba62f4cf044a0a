//! Scans over one tree in key order, both ways.
//!
//! A cursor holds no latch between calls: its place is a key. Snapshot scans copy a batch of
//! entries out of one leaf at a time; locking scans take one entry per step, so that nothing is
//! locked which the statement does not look at.

use super::contested::Contested;
use super::cursor_entry::{CursorEntry, Span};
use super::read::{Attempt, Progress, ReadMode, Seen, View, WaitPolicy};
use super::session::Session;
use super::trees::TreeGate;
use super::{Granted, LockMode};
use crate::base::{EntryHeader, Error, Result};
use crate::btree::{Direction, LeafEnd};
use crate::buffer::Passing;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

const BATCH_FIRST: usize = 8;
const BATCH_MAX: usize = 256;
/// A batch ends when it has copied this much.
const BATCH_BYTES_MAX: usize = 64 * 1024;

#[derive(Clone, Copy)]
enum Item {
    Live {
        key: Span,
        payload: Span,
    },
    /// An older version must be looked for in the log.
    Older {
        key: Span,
        head: EntryHeader,
    },
    /// Its row decides which version counts.
    Contested {
        key: Span,
    },
}

/// A place in a scan. Reused from scan to scan to keep its buffers.
pub struct Cursor {
    gate: Option<Arc<TreeGate>>,
    direction: Direction,
    mode: ReadMode,
    from: Bound<Vec<u8>>,
    to: Bound<Vec<u8>>,
    batch: Vec<Item>,
    next_item: usize,
    batch_entries: usize,
    ended: bool,
    entry: CursorEntry,
    /// The reader follows rows that it has overtaken; whether payloads name the rows.
    follows: Option<bool>,
    contested: Option<Contested>,
    /// The scan stands before the entry of `key`, which another transaction holds: the next step
    /// comes to it again, and waits for it.
    peeks: bool,
    passing: Passing,
}

impl Default for Cursor {
    fn default() -> Self {
        Cursor {
            gate: None,
            direction: Direction::Forward,
            mode: ReadMode::Snapshot,
            from: Bound::Unbounded,
            to: Bound::Unbounded,
            batch: Vec::new(),
            next_item: 0,
            batch_entries: BATCH_FIRST,
            ended: true,
            entry: CursorEntry::default(),
            follows: None,
            contested: None,
            peeks: false,
            passing: Passing::default(),
        }
    }
}

impl Cursor {
    /// The key of the entry that the last successful step found.
    pub fn key(&self) -> &[u8] {
        self.entry.key()
    }

    pub fn payload(&self) -> &[u8] {
        self.entry.payload()
    }

    pub fn entry_mut(&mut self) -> &mut CursorEntry {
        &mut self.entry
    }

    pub fn is_backward(&self) -> bool {
        self.direction == Direction::Backward
    }

    /// From now on, where the reader has overtaken its snapshot, steps stop at entries whose row
    /// decides what they show, with [`Cursor::take_contested`]. `names_in_payload`: the keys of
    /// the index do not contain those of the rows.
    pub fn follow_rows(&mut self, names_in_payload: bool) {
        self.follows = Some(names_in_payload);
    }

    pub fn take_contested(&mut self) -> Option<Contested> {
        self.contested.take()
    }

    /// The last step found an entry that another transaction holds: its payload is not read.
    pub fn peeks(&self) -> bool {
        self.peeks
    }

    /// The scan goes on after the entry at which it peeks.
    pub fn pass_peeked(&mut self) {
        if std::mem::take(&mut self.peeks) {
            self.leave_key();
        }
    }

    /// The scan waits for the entry of `key`, from which it starts again.
    pub fn peek_again(&mut self, key: &[u8]) {
        let (at, _) = self.entry.alone_mut();
        at.clear();
        at.extend_from_slice(key);
        self.peeks = true;
    }

    /// From now on the scan waits for whatever is held.
    pub fn wait_always(&mut self) {
        if let ReadMode::Lock { wait, .. } = &mut self.mode {
            if *wait == WaitPolicy::CommittedFirst {
                *wait = WaitPolicy::Wait;
            }
        }
    }

    pub fn mode(&self) -> ReadMode {
        self.mode
    }

    pub fn gate(&self) -> Option<&Arc<TreeGate>> {
        self.gate.as_ref()
    }

    /// Starts a scan from `from` towards `to` (the far end in the direction of the scan).
    pub fn start(
        &mut self,
        gate: &Arc<TreeGate>,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        direction: Direction,
        mode: ReadMode,
    ) {
        self.gate = Some(Arc::clone(gate));
        self.direction = direction;
        self.mode = mode;
        self.from = from.map(<[u8]>::to_vec);
        self.to = to.map(<[u8]>::to_vec);
        self.batch.clear();
        self.next_item = 0;
        self.batch_entries = BATCH_FIRST;
        self.ended = false;
        self.follows = None;
        self.contested = None;
        self.peeks = false;
        self.passing = Passing::default();
    }

    /// The scan goes on after the key on which it stands.
    fn leave_key(&mut self) {
        if let Bound::Excluded(from) = &mut self.from {
            from.clear();
            from.extend_from_slice(self.entry.key());
        } else {
            self.from = Bound::Excluded(self.key().to_vec());
        }
    }

    /// The scan has come to this key: it shows nothing that comes before it meanwhile, as in
    /// InnoDB. Where gaps are locked, nothing can come.
    fn stay_at_key(&mut self) {
        self.from = Bound::Included(self.key().to_vec());
    }

    pub fn stop(&mut self) {
        self.ended = true;
        self.batch.clear();
        self.next_item = 0;
        self.gate = None;
    }
}

fn past(key: &[u8], to: &Bound<Vec<u8>>, direction: Direction) -> bool {
    match (direction, to) {
        (_, Bound::Unbounded) => false,
        (Direction::Forward, Bound::Included(end)) => key > &end[..],
        (Direction::Forward, Bound::Excluded(end)) => key >= &end[..],
        (Direction::Backward, Bound::Included(end)) => key < &end[..],
        (Direction::Backward, Bound::Excluded(end)) => key <= &end[..],
    }
}

fn as_slice(bound: &Bound<Vec<u8>>) -> Bound<&[u8]> {
    bound.as_ref().map(|key| &key[..])
}

impl Session {
    /// Moves to the next entry that the cursor's mode sees; `false` at the end.
    pub fn next(&mut self, cursor: &mut Cursor) -> Result<bool> {
        match cursor.mode {
            ReadMode::Snapshot => self.next_seen(cursor),
            ReadMode::Lock { exclusive, wait } => self.next_locked(cursor, exclusive, wait),
        }
    }

    /// A killed session reads no further.
    pub(crate) fn check_interrupt(&self) -> Result<()> {
        match self.is_interrupted() {
            true => Err(Error::Interrupted),
            false => Ok(()),
        }
    }

    pub(crate) fn is_interrupted(&self) -> bool {
        self.owner.is_interrupted()
    }

    fn next_seen(&mut self, cursor: &mut Cursor) -> Result<bool> {
        let view = self.view();
        loop {
            if cursor.next_item < cursor.batch.len() {
                let item = cursor.batch[cursor.next_item];
                cursor.next_item += 1;
                if self.take_item(view, cursor, item)? {
                    return Ok(true);
                }
            } else if cursor.ended {
                return Ok(false);
            } else {
                self.fill_batch(view, cursor)?;
            }
        }
    }

    fn take_item(&mut self, view: View, cursor: &mut Cursor, item: Item) -> Result<bool> {
        match item {
            Item::Live { key, payload } => {
                cursor.entry.stand_at(key, payload);
                Ok(true)
            }
            Item::Older { key, head } => {
                cursor.entry.take_key(key);
                let Some(gate) = cursor.gate.clone() else { return Ok(false) };
                let (key, out) = cursor.entry.alone_mut();
                match self.older_version(view, &gate, key, head) {
                    Ok(Some(payload)) => {
                        *out = payload;
                        Ok(true)
                    }
                    Ok(None) => Ok(false),
                    Err(Error::NotRetained) => self.get(&gate, key, out),
                    Err(error) => Err(error),
                }
            }
            Item::Contested { key } => {
                cursor.entry.take_key(key);
                let Some(gate) = cursor.gate.clone() else { return Ok(false) };
                cursor.contested = Some(self.contested(&gate, cursor.key())?);
                Ok(true)
            }
        }
    }

    /// `None`: the entry is contested.
    fn judge_item<'a>(
        &self,
        view: View,
        follows: Option<bool>,
        entry: &'a [u8],
    ) -> Result<Option<Seen<'a>>> {
        match follows {
            Some(in_payload) if self.is_contested(entry, in_payload)? => Ok(None),
            _ => self.judge(view, entry).map(Some),
        }
    }

    /// Copies the next entries of one leaf, which may be none.
    fn fill_batch(&mut self, view: View, cursor: &mut Cursor) -> Result<()> {
        self.check_interrupt()?;
        let Some(gate) = cursor.gate.clone() else {
            cursor.ended = true;
            return Ok(());
        };
        cursor.batch.clear();
        cursor.next_item = 0;
        let (limit, direction) = (cursor.batch_entries, cursor.direction);
        let follows = cursor.follows.filter(|_| self.has_overtaken());
        let Cursor { batch, entry, from, to, passing, .. } = cursor;
        let bytes = entry.next_batch();
        let mut fault = None;
        let mut reached_end = false;
        let mut last = (0, 0);
        let mut visited = 0usize;
        let (end, _) =
            gate.tree().scan_one_leaf(as_slice(from), direction, passing, &mut |key, entry| {
                if past(key, to, direction) {
                    reached_end = true;
                    return ControlFlow::Break(());
                }
                visited += 1;
                let at = bytes.len();
                bytes.extend_from_slice(key);
                last = (at, bytes.len());
                match self.judge_item(view, follows, entry) {
                    Ok(None) => batch.push(Item::Contested { key: last }),
                    Ok(Some(Seen::Live(payload))) => {
                        bytes.extend_from_slice(payload);
                        batch.push(Item::Live { key: last, payload: (last.1, bytes.len()) });
                    }
                    Ok(Some(Seen::Older(head))) => batch.push(Item::Older { key: last, head }),
                    Ok(Some(Seen::Nothing)) => {}
                    Err(error) => {
                        fault = Some(error);
                        return ControlFlow::Break(());
                    }
                }
                if batch.len() >= limit || bytes.len() >= BATCH_BYTES_MAX {
                    ControlFlow::Break(())
                } else {
                    ControlFlow::Continue(())
                }
            })?;
        if let Some(error) = fault {
            return Err(error);
        }
        match end {
            _ if reached_end => cursor.ended = true,
            LeafEnd::Stopped => {
                assert!(visited > 0, "a scan stops at an entry");
                cursor.from = Bound::Excluded(cursor.entry.batch(last).to_vec());
            }
            LeafEnd::Next(fence) => cursor.from = direction.behind(&fence).map(<[u8]>::to_vec),
            LeafEnd::End => cursor.ended = true,
        }
        cursor.batch_entries = (limit * 2).min(BATCH_MAX);
        Ok(())
    }

    fn next_locked(
        &mut self,
        cursor: &mut Cursor,
        exclusive: bool,
        wait: WaitPolicy,
    ) -> Result<bool> {
        let mode = if exclusive { LockMode::Exclusive } else { LockMode::Shared };
        let mut progress = Progress::default();
        let mut waited = false;
        self.lock_is_new = false;
        self.let_written_go();
        let wanted = std::mem::take(&mut cursor.peeks).then(|| cursor.key().to_vec());
        while !cursor.ended {
            self.check_interrupt()?;
            let Some(gate) = cursor.gate.clone() else { return Ok(false) };
            let policy = |found: &[u8]| match wait {
                WaitPolicy::CommittedFirst if wanted.as_deref() == Some(found) => WaitPolicy::Wait,
                other => other,
            };
            let (attempt, one_leaf) = self.lock_next_entry(cursor, &gate, mode, &policy)?;
            let Some(attempt) = attempt else {
                cursor.ended = self.close_range(cursor, &gate, mode, wait)?;
                continue;
            };
            match attempt {
                Attempt::Locked(_) | Attempt::Missing
                    if !one_leaf && self.was_passed(cursor, &gate)? => {}
                Attempt::Locked(granted) => {
                    self.lock_is_new = waited || granted == Granted::New;
                    cursor.leave_key();
                    return Ok(true);
                }
                Attempt::Missing | Attempt::Skip => {
                    cursor.leave_key();
                    waited = false;
                }
                Attempt::Held => {
                    cursor.peeks = true;
                    cursor.stay_at_key();
                    return Ok(true);
                }
                Attempt::Wait(ticket) => {
                    waited |= !self.holds_any(gate.id(), cursor.key());
                    self.wait(ticket)?;
                    if !self.locks_gaps() {
                        cursor.stay_at_key();
                    }
                }
                Attempt::Revert(bad) => {
                    progress.meet(gate.id(), cursor.key(), bad)?;
                    self.ctx.revert_entry(&gate, cursor.key(), bad, &self.reader)?;
                }
                Attempt::Again(header) => progress.meet(gate.id(), cursor.key(), header)?,
                Attempt::Fault(error) => return Err(error),
            }
        }
        Ok(false)
    }

    /// Tries to lock the next entry and, where gaps are locked, the gap before it, under the latch
    /// under which it is found. `None`: there is no next entry. Also answers whether that latch
    /// covers all of the gap.
    fn lock_next_entry(
        &mut self,
        cursor: &mut Cursor,
        gate: &TreeGate,
        mode: LockMode,
        policy: &dyn Fn(&[u8]) -> WaitPolicy,
    ) -> Result<(Option<Attempt>, bool)> {
        let Cursor { from, to, direction, entry, passing, .. } = cursor;
        let (key, payload) = entry.alone_mut();
        let mut attempt = None;
        let near = as_slice(from);
        let one_leaf = first_entry(gate, near, *direction, passing, &mut |found, entry| {
            if past(found, to, *direction) {
                return;
            }
            key.clear();
            key.extend_from_slice(found);
            let far = Bound::Included(found);
            let range = match direction {
                Direction::Forward => (near, far),
                Direction::Backward => (far, near),
            };
            let range = self.locks_gaps().then_some(range);
            let wait = policy(found);
            attempt = Some(self.lock_entry(gate.id(), found, range, entry, mode, wait, payload));
        })?;
        Ok((attempt, one_leaf))
    }

    /// Whether somebody has inserted an entry before the one just locked: the gap reaches over
    /// leaves whose latches were not held when it was locked.
    fn was_passed(&self, cursor: &mut Cursor, gate: &TreeGate) -> Result<bool> {
        if !self.locks_gaps() {
            return Ok(false);
        }
        let mut same = false;
        let passing = &mut cursor.passing;
        first_entry(gate, as_slice(&cursor.from), cursor.direction, passing, &mut |found, _| {
            same = found == cursor.entry.key();
        })?;
        Ok(!same)
    }

    /// Locks the rest of the range after the last entry. `false`: an entry may have come
    /// meanwhile.
    fn close_range(
        &self,
        cursor: &Cursor,
        gate: &TreeGate,
        mode: LockMode,
        wait: WaitPolicy,
    ) -> Result<bool> {
        if !self.locks_gaps() {
            return Ok(true);
        }
        let (near, far) = (as_slice(&cursor.from), as_slice(&cursor.to));
        let (low, high) = match cursor.direction {
            Direction::Forward => (near, far),
            Direction::Backward => (far, near),
        };
        if let Some(ticket) = self.lock_gap(gate.id(), (low, high), mode, wait)? {
            self.wait(ticket)?;
            return Ok(false);
        }
        let mut nothing = true;
        let passing = &mut Passing::default();
        first_entry(gate, near, cursor.direction, passing, &mut |found, _| {
            nothing = past(found, &cursor.to, cursor.direction);
        })?;
        Ok(nothing)
    }
}

/// Calls `f` with the first entry from the bound on, if there is one, under its leaf's latch.
/// Answers whether it is in the leaf of the bound.
fn first_entry(
    gate: &TreeGate,
    from: Bound<&[u8]>,
    direction: Direction,
    passing: &mut Passing,
    f: &mut dyn FnMut(&[u8], &[u8]),
) -> Result<bool> {
    let mut visit = |key: &[u8], entry: &[u8]| {
        f(key, entry);
        ControlFlow::Break(())
    };
    let (mut end, _) = gate.tree().scan_one_leaf(from, direction, passing, &mut visit)?;
    let mut one_leaf = true;
    while let LeafEnd::Next(fence) = end {
        one_leaf = false;
        let next = direction.behind(&fence);
        (end, _) = gate.tree().scan_one_leaf(next, direction, passing, &mut visit)?;
    }
    Ok(one_leaf)
}
