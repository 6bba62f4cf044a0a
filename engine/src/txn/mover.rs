//! Moves versions out of the log before it goes, and drops the moved ones that nobody needs any
//! more. See `versions::old_versions` for what must hold.

use super::revert::Met;
use super::session::Context;
use super::versions::{
    lsn_key, parse_first_part, parse_key_key, parse_lsn_key, replaced_header, Moved, Note, BY_KEY,
};
use super::{Snapshot, TxnState};
use crate::base::{EntryHeader, Error, Lsn, Result, TxnId};
use crate::btree::{decode_record, Direction, LeafEnd, RECORD_TREE};
use crate::os::hash::{HashMap, HashSet};
use crate::os::planted::{self, Bug};
use crate::os::sync::Mutex;
use crate::wal::RecordRef;
use std::ops::{Bound, ControlFlow};
use std::sync::atomic::Ordering;

/// Log that one step reads.
const STEP_BYTES: u64 = 1 << 20;
/// More than a batch and a record.
const BEHIND_BYTES: u64 = 4 << 20;

/// So many versions moved since the last sweep, and as many as it kept, call for another: some were
/// needed only until a revert, or until a committed version stood above them.
const GROWN_MIN: u64 = 500;

/// A need of a moved version: of a snapshot by its registration, of a transaction by its id.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Pin {
    Snapshot(u64),
    Transaction(TxnId),
}

/// Where the sweep of the tree stands.
#[derive(Default)]
pub(crate) struct Sweep {
    /// Everybody for whose sake something was moved or kept since the last sweep began.
    pins: HashSet<Pin>,
    /// The next key; `None` while no sweep is under way.
    at: Option<Vec<u8>>,
    /// Versions at or after this were not looked at.
    limit: Lsn,
    /// There were some that an earlier life of the engine had moved, after the `moved_to` that it
    /// noted. Nobody's departure calls for a sweep of those.
    left_behind: bool,
    /// Kept by this sweep, ascending.
    kept: Vec<u64>,
    dropped: u64,
    /// The log's end at the first sweep, which looks at what an earlier life left: all of that
    /// lies below.
    inherited_to: Option<Lsn>,
    /// After a sweep that found little: the log's end before which another would too.
    not_before: Lsn,
    /// What the last sweep kept, and how many versions had been moved when it began.
    kept_last: u64,
    moved_before: u64,
}

/// The use of a version to later readers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// Needed: its writer has no outcome, or its revert walks the chain of its records.
    Open,
    Committed,
    /// Wholly reverted: in nobody's chain.
    Reverted,
}

/// A version in the log that may have to move.
struct Candidate {
    version: Moved,
    fate: Fate,
    awaits_purge: bool,
    note: Vec<u8>,
    log_bytes: u64,
}

impl Context {
    /// Moves needed versions below `target` to the tree, a piece of the log at a time. Answers
    /// whether something is left.
    pub(crate) fn move_step(&self, target: Lsn, sweep: &Mutex<Sweep>) -> Result<bool> {
        // A transaction that registers after this end was read writes after it.
        let target = target.min(self.wal.end());
        let from = self.move_from(target);
        if from >= target {
            return Ok(false);
        }
        let (candidates, next) = match self.read_candidates(from, target) {
            // Its holder is gone, and so may be the log, or the key that it is under: nobody needs them.
            Err(_) if from < self.wal.oldest().max(self.move_from(target)) => return Ok(true),
            read => read?,
        };
        let mut needed_by = HashSet::default();
        let moved = self.move_needed(&candidates, next, &mut needed_by);
        // Also of those that were moved before a failure. A holder that is gone by the next sweep
        // was not necessarily there at the last one. A transaction that only waited for the purge
        // counts as gone: the sweep purges from here on.
        sweep.lock().pins.extend(needed_by);
        moved?;
        self.old.set_moved_to(next);
        self.registry.drop_purge_below(next);
        let mut passed = HashMap::default();
        for Candidate { version, log_bytes, .. } in &candidates {
            *passed.entry(version.txn).or_default() += log_bytes;
        }
        self.registry.pass_own_log(&passed);
        Ok(next < target)
    }

    /// The first version below `target` that may have to move.
    fn move_from(&self, target: Lsn) -> Lsn {
        let low = self.lowest_pin().unwrap_or(target).min(target);
        self.old.moved_to().max(low)
    }

    /// Moves the candidates that are needed, and notes by which pins.
    fn move_needed(
        &self,
        candidates: &[Candidate],
        next: Lsn,
        needed_by: &mut HashSet<Pin>,
    ) -> Result<()> {
        let pins = self.table.snapshots_below(next);
        needed_by.extend(pins.iter().map(|s| Pin::Snapshot(s.number())));
        for Candidate { version, fate, awaits_purge, note, .. } in candidates {
            if self.is_needed(&pins, version, *fate, *awaits_purge)? {
                let is_seen = || pins.iter().all(|s| s.sees(&self.table, version.txn, None));
                if *fate == Fate::Open || is_seen() {
                    needed_by.insert(Pin::Transaction(version.txn));
                }
                self.old.insert(version.lsn, version.tree, &version.key, note)?;
            }
        }
        Ok(())
    }

    /// The registry is asked after the state: a commit publishes itself before it leaves it, and what
    /// is reverted leaves it last.
    fn fate(&self, txn: TxnId) -> Fate {
        match self.table.state(txn) {
            TxnState::Committed(_) => Fate::Committed,
            TxnState::Aborted if !self.registry.contains(txn) => Fate::Reverted,
            _ => Fate::Open,
        }
    }

    /// Whether somebody may come back to a version. One that waits for the purge is purged if it can be.
    fn is_needed(
        &self,
        pins: &[Snapshot],
        version: &Moved,
        fate: Fate,
        awaits_purge: bool,
    ) -> Result<bool> {
        Ok(match fate {
            Fate::Open => true,
            Fate::Reverted => false,
            Fate::Committed => {
                self.lies_between(pins, version)?
                    || (awaits_purge && !self.purge_hidden(pins, version)?)
            }
        })
    }

    /// Whether a snapshot needs a version of a committed writer: it sees what the version replaced, and
    /// not the version.
    fn lies_between(&self, pins: &[Snapshot], version: &Moved) -> Result<bool> {
        let sees = |s: &Snapshot, id| s.sees(&self.table, id, None);
        let mut blind = pins.iter().filter(|s| !sees(s, version.txn));
        let Some(replaced) = version.replaced else {
            return Ok(blind.next().is_some() && self.ends_chain(version)?);
        };
        Ok(blind.any(|s| sees(s, replaced.txn)))
    }

    /// Whether a first version is what keeps the chain of its key from going on with what was moved
    /// before the key was purged. None of that is moved later: the mover and the sweep go in the order
    /// of the log.
    fn ends_chain(&self, first: &Moved) -> Result<bool> {
        let before = self.old.below(first.tree, &first.key, first.lsn)?;
        if before.is_none() || planted::is(Bug::LivesNotKeptApart) {
            return Ok(false);
        }
        Ok(self.look_at(first.tree, &first.key, (first.txn, first.lsn))? != Met::Nothing)
    }

    /// Purges a committed delete mark below which no snapshot sees anything. Answers whether
    /// nobody needs to come back to it. While a rollback may bring it back, that is so only if
    /// every snapshot sees it: such a one the rollback itself puts away.
    fn purge_hidden(&self, pins: &[Snapshot], mark: &Moved) -> Result<bool> {
        let stands = (mark.txn, mark.lsn);
        let hides_nothing = self.hides_nothing(pins, mark)?;
        let met = match hides_nothing {
            true => self.purge_mark(mark.tree, &mark.key, stands)?,
            false => self.look_at(mark.tree, &mark.key, stands)?,
        };
        if hides_nothing && matches!(met, Met::Itself | Met::Nothing) {
            self.forget_settled(mark)?;
        }
        Ok(match met {
            Met::Itself => hides_nothing,
            Met::Nothing | Met::Committed => true,
            Met::Open => pins.iter().all(|s| s.sees(&self.table, mark.txn, None)),
        })
    }

    /// Drops what was moved of a key that is gone; but a version that was taken back on touch is
    /// needed by the revert, which walks the chain of its writer.
    fn forget_settled(&self, mark: &Moved) -> Result<()> {
        for (lsn, record) in self.old.all_below(mark.tree, &mark.key, mark.lsn)? {
            if self.fate(record.txn) != Fate::Open {
                self.old.forget(mark.tree, &mark.key, lsn)?;
            }
        }
        Ok(())
    }

    /// No snapshot sees anything under the key if this delete mark is its newest version. If a snapshot
    /// sees a version that the mark did not replace, a version that was moved replaced it.
    fn hides_nothing(&self, pins: &[Snapshot], mark: &Moved) -> Result<bool> {
        let blind = |s: &&Snapshot| !s.sees(&self.table, mark.txn, None);
        let blind: Vec<&Snapshot> = pins.iter().filter(blind).collect();
        let sees = |h: EntryHeader| blind.iter().any(|s| s.sees(&self.table, h.txn, None));
        if blind.is_empty() {
            return Ok(true);
        }
        let Some(replaced) = mark.replaced else { return Ok(false) };
        if sees(replaced) {
            return Ok(false);
        }
        if replaced.is_first() {
            return Ok(true);
        }
        let kept = self.old.all_below(mark.tree, &mark.key, mark.lsn)?;
        for older in kept.iter().filter_map(|(_, record)| record.replaced.as_deref()) {
            if sees(EntryHeader::split(older)?.0) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The lowest position that a transaction, the purge or a snapshot holds, moved or not.
    pub fn lowest_pin(&self) -> Option<Lsn> {
        let pins = [self.registry.oldest_lsn(), self.table.oldest_snapshot_pin()];
        pins.into_iter().flatten().min()
    }

    /// The first record of what is being reverted, while that goes on. From there on the log is
    /// about to be free: to move it first would cost as much as the revert, and slow it down.
    pub fn reverting_from(&self) -> Option<Lsn> {
        self.revert_goes_on.load(Ordering::Relaxed).then(|| self.oldest_open_lsns().1)?
    }

    /// The first records of open and prepared transactions, and of those being reverted.
    pub fn oldest_open_lsns(&self) -> (Option<Lsn>, Option<Lsn>) {
        let (mut open, mut reverting) = (None, None);
        for one in self.registry.list() {
            let aborted = self.table.state(one.id) == TxnState::Aborted;
            let low = if aborted { &mut reverting } else { &mut open };
            *low = Some(low.map_or(one.first_lsn, |lsn: Lsn| lsn.min(one.first_lsn)));
        }
        (open, reverting)
    }

    /// Versions from `from` on, and the start of the first record not looked at.
    fn read_candidates(&self, from: Lsn, target: Lsn) -> Result<(Vec<Candidate>, Lsn)> {
        let stop = target.min(Lsn(from.0 + STEP_BYTES));
        // The first record after `stop` starts before this, unless the log ends.
        let end = self.wal.end().min(Lsn(stop.0 + BEHIND_BYTES));
        let mut out = Vec::new();
        let mut next = None;
        let scanned = self.wal.scan(from, end, &mut |lsn, record| {
            if lsn >= stop {
                next = Some(lsn);
                return Err(Error::NotRetained);
            }
            if let Some(candidate) = self.candidate(lsn, record)? {
                out.push(candidate);
            }
            Ok(())
        });
        match next {
            Some(next) => Ok((out, next)),
            None => scanned.map(|()| (out, end)),
        }
    }

    fn candidate(&self, lsn: Lsn, record: RecordRef<'_>) -> Result<Option<Candidate>> {
        if record.kind != RECORD_TREE {
            return Ok(None);
        }
        let decoded = decode_record(record.payload)?;
        let Some(note) = Note::decode(decoded.note)? else { return Ok(None) };
        let fate = self.fate(note.txn);
        let awaits_purge = note.deletes && self.registry.awaits_purge(note.txn);
        let version = Moved {
            lsn,
            tree: decoded.tree,
            txn: note.txn,
            replaced: replaced_header(&note)?,
            deletes: note.deletes,
            key: note.key.to_vec(),
        };
        let (note, log_bytes) = (decoded.note.to_vec(), record.log_bytes());
        Ok(Some(Candidate { version, fate, awaits_purge, note, log_bytes }))
    }

    /// Drops moved versions that nobody needs any more, a leaf at a time, and purges the delete
    /// marks among them. Answers whether a sweep is under way.
    pub(crate) fn sweep_step(&self, sweep: &Mutex<Sweep>) -> Result<bool> {
        let mut sweep = sweep.lock();
        if sweep.at.is_none() && !self.begin_sweep(&mut sweep) {
            return Ok(false);
        }
        let Some(at) = sweep.at.take() else { return Ok(false) };
        let kept_before = sweep.kept.len();
        let swept = match at.first() {
            Some(&BY_KEY) => self.sweep_keys(&mut sweep, &at),
            _ => self.sweep_lsns(&mut sweep, &at),
        };
        let next = match swept {
            Ok(next) => next,
            Err(error) => {
                // The next step repeats this leaf, as perhaps no news ever begins another sweep. It
                // adds what it keeps of the leaf once more, and the list must stay in order.
                sweep.kept.truncate(kept_before);
                sweep.at = Some(at);
                return Err(error);
            }
        };
        if next.is_none() {
            let kept = sweep.kept.len() as u64;
            let pause = if sweep.dropped * 4 < kept { kept * 64 } else { 0 };
            sweep.not_before = Lsn(self.wal.end().0 + pause);
            sweep.kept_last = kept;
            sweep.kept = Vec::new();
        }
        sweep.at = next;
        Ok(sweep.at.is_some())
    }

    /// A sweep begins when a snapshot or transaction is gone that may have needed versions, and
    /// when the tree has grown to twice its size.
    fn begin_sweep(&self, sweep: &mut Sweep) -> bool {
        let limit = self.old.moved_to();
        let pins = self.pins_below(limit);
        let someone_left = sweep.pins.iter().any(|pin| !pins.contains(pin));
        let due = pins.is_empty() || self.wal.end() >= sweep.not_before;
        let moved = self.old.moved.load(Ordering::Relaxed);
        let grown = moved - sweep.moved_before >= sweep.kept_last.max(GROWN_MIN);
        let news = someone_left || grown || (sweep.left_behind && limit > sweep.limit);
        if sweep.inherited_to.is_some() && !(news && due) {
            sweep.pins.extend(pins);
            return false;
        }
        let inherited_to = sweep.inherited_to.or(Some(self.wal.end()));
        self.old.sweeps.fetch_add(1, Ordering::Relaxed);
        *sweep = Sweep {
            pins,
            at: Some(lsn_key(Lsn::ZERO, 0).to_vec()),
            limit,
            inherited_to,
            moved_before: moved,
            ..Sweep::default()
        };
        true
    }

    fn pins_below(&self, limit: Lsn) -> HashSet<Pin> {
        let snapshots = self.table.snapshots_below(limit);
        let snapshots = snapshots.iter().map(|s| Pin::Snapshot(s.number()));
        let open = self.registry.list();
        let open = open.iter().filter(|o| o.first_lsn < limit);
        snapshots.chain(open.map(|o| Pin::Transaction(o.id))).collect()
    }

    /// One leaf of versions by LSN.
    fn sweep_lsns(&self, sweep: &mut Sweep, at: &[u8]) -> Result<Option<Vec<u8>>> {
        let Some(tree) = self.old.tree() else { return Ok(None) };
        let mut found: Vec<Result<Moved>> = Vec::new();
        let mut seen: Option<(Vec<u8>, Lsn)> = None;
        let end = tree.scan_leaf(Bound::Included(at), Direction::Forward, &mut |key, value| {
            let Some((lsn, part)) = parse_lsn_key(key) else { return ControlFlow::Break(()) };
            if lsn >= sweep.limit {
                sweep.left_behind = sweep.inherited_to.is_some_and(|end| lsn < end);
                return ControlFlow::Break(());
            }
            if part == 0 {
                found.push(parse_first_part(lsn, value));
            }
            seen.get_or_insert_with(|| (key.to_vec(), lsn)).1 = lsn;
            ControlFlow::Continue(())
        })?;
        let found = found.into_iter().collect::<Result<Vec<Moved>>>()?;
        let fates: Vec<Fate> = found.iter().map(|m| self.fate(m.txn)).collect();
        let mut pins = self.table.snapshots_below(sweep.limit);
        if planted::is(Bug::SweepIgnoresSnapshots) {
            pins.clear();
        }
        for (version, fate) in found.iter().zip(fates) {
            if self.is_needed(&pins, version, fate, version.deletes)? {
                sweep.kept.push(version.lsn.0);
            }
        }
        let Some((first, last)) = seen else { return Ok(Some(vec![BY_KEY])) };
        let kept = &sweep.kept;
        // A part whose beginning was dropped with the leaf before goes as well.
        let swept = tree.remove_where(&first, &mut |key, _| {
            let parsed = parse_lsn_key(key).filter(|&(lsn, _)| lsn <= last);
            parsed.is_some_and(|(lsn, _)| kept.binary_search(&lsn.0).is_err())
        })?;
        sweep.dropped += swept.removed as u64;
        self.old.dropped.fetch_add(swept.removed as u64, Ordering::Relaxed);
        Ok(Some(match end {
            LeafEnd::Next(fence) => fence,
            LeafEnd::Stopped | LeafEnd::End => vec![BY_KEY],
        }))
    }

    /// One leaf of references by key.
    fn sweep_keys(&self, sweep: &mut Sweep, at: &[u8]) -> Result<Option<Vec<u8>>> {
        let Some(tree) = self.old.tree() else { return Ok(None) };
        let (kept, limit) = (&sweep.kept, sweep.limit);
        let swept = tree.remove_where(at, &mut |key, _| {
            let lsn = parse_key_key(key).filter(|&lsn| lsn < limit);
            lsn.is_some_and(|lsn| kept.binary_search(&lsn.0).is_err())
        })?;
        Ok(swept.next)
    }
}
