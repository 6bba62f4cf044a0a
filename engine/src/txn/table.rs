//! The transaction table: which ids are open, prepared, aborted or committed, and in what order.
//!
//! One word per id sits in a ring that starts at the horizon. The ring has a fixed size: what would
//! stop the horizon is either moved into the exception set (ids not committed) or turned into a
//! classical view (snapshots that are too old), so the ring never runs out of room.

use super::view::Registered;
use crate::base::entry::TXN_ID_MAX;
use crate::base::{checked, Csn, Lsn, TxnId};
use crate::os::planted::{self, Bug};
use crate::os::rank::Rank;
use crate::os::sync::{Mutex, Ranked, RwLock};
use crate::os::SIMULATED;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

/// Ids between the horizon and the next id: 8 bytes each, 4 MiB in all. The simulator's are few,
/// so that it sees the ring go round.
const RING_IDS: u64 = if SIMULATED { 1 << 9 } else { 1 << 19 };
/// An open id keeps the horizon back until this many ids follow it; then it becomes an exception.
/// Short transactions never pay for the exception set.
const EXCEPTION_LAG_IDS: u64 = if SIMULATED { 16 } else { 1024 };

/// Where a transaction stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TxnState {
    Active,
    Prepared,
    /// `Csn::ZERO`: committed before everything that still tells commits apart by number.
    Committed(Csn),
    /// Rolled back; its entries may still be on pages until they are reverted.
    Aborted,
}

// Low three bits of a word; a committed word holds its csn above them. An id that was never
// allocated reads as active: nobody sees what a torn or foreign page claims it wrote.
const ACTIVE: u64 = 0;
const PREPARED: u64 = 1;
const ABORTED: u64 = 2;
const FORGOTTEN: u64 = 3;
const COMMITTED: u64 = 4;
const TAG_BITS: u32 = 3;
const TAG_MASK: u64 = (1 << TAG_BITS) - 1;

fn committed_word(csn: u64) -> u64 {
    csn << TAG_BITS | COMMITTED
}

fn decode(word: u64) -> TxnState {
    match word & TAG_MASK {
        ACTIVE => TxnState::Active,
        PREPARED => TxnState::Prepared,
        COMMITTED => TxnState::Committed(Csn(word >> TAG_BITS)),
        _ => TxnState::Aborted,
    }
}

fn is_committed_by(word: u64, csn: u64) -> bool {
    word & TAG_MASK == COMMITTED && word >> TAG_BITS <= csn
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RosterState {
    Active,
    Prepared,
    Aborted,
}

/// A transaction without an outcome, or aborted and not yet reverted.
struct RosterTxn {
    state: RosterState,
    first_lsn: Lsn,
}

/// A transaction that recovery found prepared, or rolled back and not yet reverted.
#[derive(Clone, Copy, Debug)]
pub struct Unsettled {
    pub id: TxnId,
    pub prepared: bool,
    /// Lower bound of its first record.
    pub first_lsn: Lsn,
}

/// The open transactions and the snapshots, with the next numbers: all that changes under the table's
/// mutex.
struct Roster {
    next: u64,
    /// The last csn given out; its state and those of all smaller ones are stored.
    watermark: u64,
    open: BTreeMap<u64, RosterTxn>,
    /// At most the lowest `first_lsn` in `open`; made exact by `oldest_needed_lsn`.
    low_lsn: Lsn,
    /// By registration number, so in order of csn.
    snapshots: BTreeMap<u64, Arc<Registered>>,
    next_snapshot: u64,
}

/// Numbers for the statistics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableStats {
    pub open: u64,
    pub snapshots: u64,
    /// Snapshots that were turned into classical views because they were too old.
    pub views: u64,
    pub exceptions: u64,
    /// Ids between the horizon and the next id.
    pub ring_ids: u64,
}

/// The table of all transactions; shared by every session.
pub struct TxnTable {
    horizon: AtomicU64,
    /// Every excepted id lies in `low..=high`; empty when low > high.
    exception_low: AtomicU64,
    exception_high: AtomicU64,
    /// Live snapshots that answer from a classical view.
    views: AtomicU64,
    words: Box<[AtomicU64]>,
    /// Words of ids below the horizon that are not settled, sorted by id. Locked after `roster`.
    exceptions: RwLock<Vec<(u64, u64)>>,
    roster: Mutex<Roster>,
}

impl TxnTable {
    /// A table in which every id below `next` is committed.
    pub fn new(next: TxnId) -> Arc<TxnTable> {
        Self::with_ring(next, RING_IDS)
    }

    /// For tests that want to see the ring go round.
    pub(super) fn with_ring(next: TxnId, ring_ids: u64) -> Arc<TxnTable> {
        assert!(ring_ids.is_power_of_two());
        assert!(ring_ids >= 8);
        let next = next.0.max(1);
        Arc::new(TxnTable {
            horizon: AtomicU64::new(next),
            exception_low: AtomicU64::new(u64::MAX),
            exception_high: AtomicU64::new(0),
            views: AtomicU64::new(0),
            words: (0..ring_ids).map(|_| AtomicU64::new(ACTIVE)).collect(),
            exceptions: RwLock::ranked(Rank::Exceptions, Vec::new()),
            roster: Mutex::ranked(
                Rank::TableRoster,
                Roster {
                    next,
                    watermark: 0,
                    open: BTreeMap::new(),
                    low_lsn: Lsn(u64::MAX),
                    snapshots: BTreeMap::new(),
                    next_snapshot: 0,
                },
            ),
        })
    }

    /// Begins a transaction that writes. `first_lsn_bound` is the log's end, read before the call.
    pub fn allocate(&self, first_lsn_bound: Lsn) -> TxnId {
        let mut roster = self.roster.lock();
        self.make_room(&mut roster);
        let id = roster.next;
        assert!(id <= TXN_ID_MAX.0, "transaction ids are used up");
        roster.next = id + 1;
        roster.low_lsn = roster.low_lsn.min(first_lsn_bound);
        let open = RosterTxn { state: RosterState::Active, first_lsn: first_lsn_bound };
        roster.open.insert(id, open);
        self.word_of(id).store(ACTIVE, Ordering::Release);
        TxnId(id)
    }

    /// The state of an id; read it while the entry that names the id is under its leaf latch (M9).
    pub fn state(&self, id: TxnId) -> TxnState {
        let id = id.0;
        let horizon = self.horizon.load(Ordering::Acquire);
        if id < horizon {
            return self.state_below_horizon(id);
        }
        if id - horizon >= self.words.len() as u64 {
            return TxnState::Active;
        }
        let word = self.word_of(id).load(Ordering::Acquire);
        // A word is reused only after the horizon has passed its id: a reader of the reused word
        // sees that horizon here.
        if id < self.horizon.load(Ordering::Acquire) {
            return self.state_below_horizon(id);
        }
        decode(word)
    }

    fn state_below_horizon(&self, id: u64) -> TxnState {
        // While an id is excepted it lies between the two, whichever values we read: they are
        // stored before the horizon that passes the id, and leave it only when it is settled.
        if id >= self.exception_low.load(Ordering::Acquire)
            && id <= self.exception_high.load(Ordering::Acquire)
        {
            let exceptions = self.exceptions.read();
            if let Ok(at) = exceptions.binary_search_by_key(&id, |e| e.0) {
                return decode(exceptions[at].1);
            }
        }
        TxnState::Committed(Csn::ZERO)
    }

    pub fn set_prepared(&self, id: TxnId) {
        let mut roster = self.roster.lock();
        let open = roster.open.get_mut(&id.0).expect("an open transaction");
        assert_eq!(open.state, RosterState::Active);
        open.state = RosterState::Prepared;
        self.store(id.0, PREPARED);
    }

    /// Makes `id` visible to every snapshot taken from now on. Takes the next csn, stores the
    /// state and moves the watermark under one short mutex: it does not allocate or fail, and
    /// never waits for I/O, a lock of a row or another commit.
    pub fn commit(&self, id: TxnId) -> Csn {
        let mut roster = self.roster.lock();
        let open = roster.open.remove(&id.0).expect("an open transaction");
        assert_ne!(open.state, RosterState::Aborted);
        if roster.open.is_empty() {
            roster.low_lsn = Lsn(u64::MAX);
        }
        let csn = roster.watermark + 1;
        self.store(id.0, committed_word(csn));
        roster.watermark = csn;
        Csn(csn)
    }

    /// Returns when a snapshot taken now includes `csn`: at once, since `commit` moves the
    /// watermark itself.
    pub fn wait_visible(&self, csn: Csn) {
        checked!(csn.0 <= self.roster.lock().watermark);
    }

    pub fn abort(&self, id: TxnId) {
        let mut roster = self.roster.lock();
        let open = roster.open.get_mut(&id.0).expect("an open transaction");
        open.state = RosterState::Aborted;
        self.store(id.0, ABORTED);
    }

    /// Every entry of the aborted `id` is reverted. No epoch is needed (M9): each reader of an
    /// entry resolves its id under the same leaf latch, so no reader can still ask for this one.
    pub fn forget(&self, id: TxnId) {
        let mut roster = self.roster.lock();
        Self::close_aborted(&mut roster, id);
        if id.0 >= self.horizon.load(Ordering::Relaxed) {
            self.word_of(id.0).store(FORGOTTEN, Ordering::Release);
        } else {
            self.retain_exceptions(|&(other, _)| other != id.0);
        }
    }

    /// No more of the aborted `id` will be reverted, but entries of it stand on pages that were given up.
    /// It stays aborted, as nobody may take these for committed: at last as an exception.
    pub fn leave_aborted(&self, id: TxnId) {
        Self::close_aborted(&mut self.roster.lock(), id);
    }

    fn close_aborted(roster: &mut Roster, id: TxnId) {
        let open = roster.open.remove(&id.0).expect("an aborted transaction");
        assert_eq!(open.state, RosterState::Aborted);
        if roster.open.is_empty() {
            roster.low_lsn = Lsn(u64::MAX);
        }
    }

    /// The log below this is not needed for any transaction that is open, prepared or aborted and
    /// not reverted; `Lsn(u64::MAX)` when there is none.
    pub fn oldest_needed_lsn(&self) -> Lsn {
        let mut roster = self.roster.lock();
        let low = roster.open.values().map(|open| open.first_lsn).min();
        roster.low_lsn = low.unwrap_or(Lsn(u64::MAX));
        roster.low_lsn
    }

    pub fn next_id(&self) -> TxnId {
        TxnId(self.roster.lock().next)
    }

    /// Every snapshot that counts csns sees what ids below it wrote, unless it was rolled back.
    pub fn horizon(&self) -> TxnId {
        TxnId(self.horizon.load(Ordering::Acquire))
    }

    /// Moves the horizon over ids that every snapshot sees, or that become exceptions.
    pub fn advance_horizon(&self) {
        let mut roster = self.roster.lock();
        self.advance(&mut roster);
    }

    pub fn stats(&self) -> TableStats {
        let roster = self.roster.lock();
        TableStats {
            open: roster.open.len() as u64,
            snapshots: roster.snapshots.len() as u64,
            views: self.views.load(Ordering::Relaxed),
            exceptions: self.exceptions.read().len() as u64,
            ring_ids: roster.next - self.horizon.load(Ordering::Relaxed),
        }
    }

    /// The table after a restart: ids below `next` are committed but for the unsettled ones.
    pub fn restore(next: TxnId, unsettled: &[Unsettled]) -> Arc<TxnTable> {
        let table = Self::new(next);
        {
            let mut roster = table.roster.lock();
            let mut exceptions = table.exceptions.write();
            for one in unsettled {
                let (state, word) = match one.prepared {
                    true => (RosterState::Prepared, PREPARED),
                    false => (RosterState::Aborted, ABORTED),
                };
                assert!(one.id < next);
                roster.open.insert(one.id.0, RosterTxn { state, first_lsn: one.first_lsn });
                exceptions.push((one.id.0, word));
                roster.low_lsn = roster.low_lsn.min(one.first_lsn);
            }
            exceptions.sort_unstable();
            table.publish_exception_range(&exceptions);
        }
        table
    }

    /// Registers a snapshot of everything committed up to now; answers its number too.
    pub(super) fn register(&self, log_low: Lsn) -> (u64, Arc<Registered>) {
        let mut roster = self.roster.lock();
        let pin = roster.low_lsn.min(log_low);
        // Nothing happened since the newest one: both are the same, and taking this one costs
        // neither an allocation nor a place in the map.
        if let Some((&number, newest)) = roster.snapshots.last_key_value() {
            let same = (newest.csn.0, newest.next.0) == (roster.watermark, roster.next);
            if same && newest.pin <= pin {
                newest.hold();
                return (number, Arc::clone(newest));
            }
        }
        let low = self.horizon.load(Ordering::Relaxed);
        let shared = Arc::new(Registered::new(
            Csn(roster.watermark),
            pin,
            TxnId(low.min(self.exception_low.load(Ordering::Relaxed))),
            TxnId(roster.next),
        ));
        let number = roster.next_snapshot;
        roster.next_snapshot += 1;
        roster.snapshots.insert(number, Arc::clone(&shared));
        (number, shared)
    }

    /// The oldest registration, with one hold more.
    pub(super) fn share_oldest(&self) -> Option<(u64, Arc<Registered>)> {
        let roster = self.roster.lock();
        let (&number, oldest) = roster.snapshots.iter().next()?;
        oldest.hold();
        Some((number, Arc::clone(oldest)))
    }

    /// Those that may need a version below `lsn`, each with one hold more.
    pub(super) fn share_below(&self, lsn: Lsn) -> Vec<(u64, Arc<Registered>)> {
        let roster = self.roster.lock();
        let low = roster.snapshots.iter().filter(|(_, s)| s.pin < lsn);
        low.map(|(&number, s)| {
            s.hold();
            (number, Arc::clone(s))
        })
        .collect()
    }

    pub(super) fn unregister(&self, number: u64) {
        let mut roster = self.roster.lock();
        let shared = roster.snapshots.get(&number).expect("a registered snapshot");
        if !shared.release() {
            return;
        }
        if shared.view().is_some() {
            self.views.fetch_sub(1, Ordering::Relaxed);
        }
        roster.snapshots.remove(&number);
    }

    /// The csn of the oldest snapshot; the watermark when there is none.
    pub fn oldest_snapshot_csn(&self) -> Csn {
        let roster = self.roster.lock();
        roster.snapshots.values().next().map_or(Csn(roster.watermark), |s| s.csn)
    }

    /// The log below this is not needed by any snapshot.
    pub fn oldest_snapshot_pin(&self) -> Option<Lsn> {
        self.roster.lock().snapshots.values().map(|s| s.pin).min()
    }

    /// Whether a registered snapshot of `snapshot_csn` sees what `id` wrote. Prefer
    /// `Snapshot::sees`, which knows its own view when the snapshot is an old one.
    #[cfg(test)]
    pub fn visible(&self, snapshot_csn: Csn, id: TxnId, own: Option<TxnId>) -> bool {
        if own == Some(id) {
            return true;
        }
        let TxnState::Committed(csn) = self.state(id) else { return false };
        if csn == Csn::ZERO && self.views.load(Ordering::Acquire) > 0 {
            let roster = self.roster.lock();
            let same = roster.snapshots.values().find(|s| s.csn == snapshot_csn);
            if let Some(view) = same.and_then(|s| s.view()) {
                return view.sees(id);
            }
        }
        csn <= snapshot_csn
    }

    fn word_of(&self, id: u64) -> &AtomicU64 {
        &self.words[id as usize & (self.words.len() - 1)]
    }

    /// Stores the state of an open id, wherever it lives. Never allocates. Under the roster.
    fn store(&self, id: u64, word: u64) {
        if id >= self.horizon.load(Ordering::Relaxed) {
            self.word_of(id).store(word, Ordering::Release);
            return;
        }
        let mut exceptions = self.exceptions.write();
        let at = exceptions.binary_search_by_key(&id, |e| e.0).expect("an excepted id");
        exceptions[at].1 = word;
    }

    fn retain_exceptions(&self, keep: impl FnMut(&(u64, u64)) -> bool) {
        let mut exceptions = self.exceptions.write();
        exceptions.retain(keep);
        self.publish_exception_range(&exceptions);
    }

    fn publish_exception_range(&self, exceptions: &[(u64, u64)]) {
        let low = exceptions.first().map_or(u64::MAX, |e| e.0);
        let high = exceptions.last().map_or(0, |e| e.0);
        self.exception_low.store(low, Ordering::Release);
        self.exception_high.store(high, Ordering::Release);
    }

    /// The csn up to which commits need not be told apart: every snapshot that is not a view
    /// sees them.
    fn settled_csn(roster: &Roster) -> u64 {
        let oldest = roster.snapshots.values().find(|s| s.view().is_none());
        oldest.map_or(roster.watermark, |s| s.csn.0)
    }

    fn advance(&self, roster: &mut Roster) {
        let settled = Self::settled_csn(roster);
        if !self.exceptions.read().is_empty() {
            self.retain_exceptions(|&(_, word)| !is_committed_by(word, settled));
        }
        let lag = EXCEPTION_LAG_IDS.min(self.words.len() as u64 / 4);
        let old = self.horizon.load(Ordering::Relaxed);
        let mut horizon = old;
        let mut excepted = Vec::new();
        while horizon < roster.next {
            let word = self.word_of(horizon).load(Ordering::Relaxed);
            match word & TAG_MASK {
                FORGOTTEN => {}
                COMMITTED if word >> TAG_BITS <= settled => {}
                COMMITTED => break,
                _ if planted::is(Bug::HorizonTooHigh) => {}
                _ if roster.next - horizon > lag => excepted.push((horizon, word)),
                _ => break,
            }
            horizon += 1;
        }
        if !excepted.is_empty() {
            // Ids leave the ring in order, so the set stays sorted.
            let mut exceptions = self.exceptions.write();
            exceptions.extend(excepted);
            self.publish_exception_range(&exceptions);
        }
        self.horizon.store(horizon, Ordering::Release);
        for id in old..horizon {
            self.word_of(id).store(ACTIVE, Ordering::Release);
        }
    }

    /// Keeps the ring from filling: moves the horizon now and then, and when old snapshots hold
    /// it back turns the oldest of them into views.
    fn make_room(&self, roster: &mut Roster) {
        let ring = self.words.len() as u64;
        let used = |roster: &Roster| roster.next - self.horizon.load(Ordering::Relaxed);
        if roster.next % EXCEPTION_LAG_IDS.min(ring / 8) == 0 {
            self.advance(roster);
        }
        if used(roster) < ring / 4 * 3 {
            return;
        }
        self.advance(roster);
        while used(roster) > ring / 2 && self.age_oldest(roster) {
            self.advance(roster);
        }
        // Without numbered snapshots only ids within the lag, a quarter, can be left.
        assert!(used(roster) < ring);
    }

    /// Gives the oldest numbered snapshot a classical view; false when there is none.
    fn age_oldest(&self, roster: &mut Roster) -> bool {
        let oldest = roster.snapshots.values().find(|s| s.view().is_none());
        let Some(oldest) = oldest.map(Arc::clone) else { return false };
        let is_hidden = |word: u64| !is_committed_by(word, oldest.csn.0);
        let exceptions = self.exceptions.read();
        let mut hidden: Vec<u64> =
            exceptions.iter().filter(|e| is_hidden(e.1)).map(|e| e.0).collect();
        let horizon = self.horizon.load(Ordering::Relaxed);
        let ring = horizon..oldest.next.0;
        hidden.extend(ring.filter(|&id| is_hidden(self.word_of(id).load(Ordering::Relaxed))));
        oldest.set_view(hidden);
        // Before the horizon moves over what only the view still hides.
        self.views.fetch_add(1, Ordering::Release);
        true
    }
}

#[cfg(test)]
#[path = "table_tests.rs"]
mod tests;
