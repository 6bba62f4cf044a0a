//! Every transaction that has written and whose trace is still needed: open, prepared, or rolled
//! back and not yet reverted; and those committed whose delete marks wait for the purge.
//!
//! A checkpoint carries what stands here (rules M3, M4). It must never see less than the log's
//! tail holds, hence two orders that every caller keeps:
//! 1. `pending_since` is set to the log's end before a record is appended, and cleared after
//!    `last_lsn` (or the outcome) is stored. A checkpoint that meets it set scans from there.
//! 2. A committed transaction enters the purge queue before it leaves the registry.
//!
//! It also counts the log that transactions wrote themselves ([`Registry::own_log_bytes`]): to move all
//! of its versions would write them again, so it may stay where it is.

use crate::base::{Csn, Lsn, TreeId, TxnId};
use crate::os::hash::{HashMap, HashSet};
use crate::os::planted::{self, Bug};
use crate::os::rank::Rank;
use crate::os::sync::{Mutex, Ranked};
use crate::os::SIMULATED;
use crate::wal::Appended;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

const NOT_PENDING: u64 = u64::MAX;
/// The purge does not lag while so few transactions wait for it.
const BACKLOG_SMALL: usize = if SIMULATED { 2 } else { 64 };
/// Committed transactions of less log are not remembered for the sake of older snapshots.
const LARGE_BYTES: u64 = if SIMULATED { 8 << 10 } else { 256 << 10 };

/// A transaction that has written.
pub struct OpenTxn {
    pub id: TxnId,
    /// At or before its first record.
    pub first_lsn: Lsn,
    last_lsn: AtomicU64,
    pending_since: AtomicU64,
    deletes: AtomicBool,
    /// Log that its versions take above what the mover has passed; 0 after a restart.
    own_log_bytes: AtomicU64,
    /// Of these, when they were written: over versions that every snapshot sees.
    over_settled_bytes: AtomicU64,
    xid: Mutex<Option<Vec<u8>>>,
    /// Trees that it wrote, once it is prepared and they are known.
    wrote: OnceLock<Vec<TreeId>>,
    /// It is rolled back, and damage keeps some of its versions from being reverted.
    is_left: AtomicBool,
}

impl OpenTxn {
    pub fn new(id: TxnId, first_lsn: Lsn, last_lsn: Lsn) -> Self {
        OpenTxn {
            id,
            first_lsn,
            last_lsn: AtomicU64::new(last_lsn.0),
            pending_since: AtomicU64::new(NOT_PENDING),
            deletes: AtomicBool::new(false),
            own_log_bytes: AtomicU64::new(0),
            over_settled_bytes: AtomicU64::new(0),
            xid: Mutex::ranked(Rank::OpenXid, None),
            wrote: OnceLock::new(),
            is_left: AtomicBool::new(false),
        }
    }

    pub fn last_lsn(&self) -> Lsn {
        Lsn(self.last_lsn.load(Ordering::SeqCst))
    }

    /// Announces a record at or after `log_end`.
    pub fn begin_record(&self, log_end: Lsn) {
        self.pending_since.store(log_end.0, Ordering::SeqCst);
    }

    pub fn end_record(&self, last_lsn: Lsn) {
        self.last_lsn.store(last_lsn.0, Ordering::SeqCst);
        self.pending_since.store(NOT_PENDING, Ordering::SeqCst);
    }

    /// The announced record is a new version. `over_settled`: of a row that every snapshot sees as it
    /// was before.
    pub fn end_version(&self, record: Appended, over_settled: bool) {
        let bytes = record.end.0 - record.lsn.0;
        self.own_log_bytes.fetch_add(bytes, Ordering::Relaxed);
        if over_settled {
            self.over_settled_bytes.fetch_add(bytes, Ordering::Relaxed);
        }
        self.end_record(record.lsn);
    }

    /// The announced record was not needed.
    pub fn cancel_record(&self) {
        self.pending_since.store(NOT_PENDING, Ordering::SeqCst);
    }

    pub fn pending_since(&self) -> Option<Lsn> {
        let lsn = self.pending_since.load(Ordering::SeqCst);
        (lsn != NOT_PENDING).then_some(Lsn(lsn))
    }

    pub fn own_log_bytes(&self) -> u64 {
        self.own_log_bytes.load(Ordering::Relaxed)
    }

    /// Its records after `last_lsn` were taken back: the rest is no longer than the log up to there.
    pub fn shorten_own_log(&self, last_lsn: Lsn) {
        let most = last_lsn.0.saturating_sub(self.first_lsn.0);
        self.own_log_bytes.fetch_min(most, Ordering::Relaxed);
    }

    fn pass_own_log(&self, bytes: u64) {
        let less = |own: u64| Some(own.saturating_sub(bytes));
        let _ = self.own_log_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }

    pub fn note_delete(&self) {
        self.deletes.store(true, Ordering::SeqCst);
    }

    pub fn has_deletes(&self) -> bool {
        self.deletes.load(Ordering::SeqCst)
    }

    pub fn note_left(&self) {
        self.is_left.store(true, Ordering::Relaxed);
    }

    pub fn is_left(&self) -> bool {
        self.is_left.load(Ordering::Relaxed)
    }

    pub fn set_wrote(&self, trees: Vec<TreeId>) {
        let _ = self.wrote.set(trees);
    }

    pub fn wrote(&self) -> Option<&[TreeId]> {
        self.wrote.get().map(Vec::as_slice)
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
struct Purge {
    /// In order of commit.
    queue: VecDeque<PurgeItem>,
    /// Those of them at which a thread is at work.
    claimed: Vec<TxnId>,
    ids: HashSet<TxnId>,
    /// Large ones, in order of commit: older snapshots may read the versions that they replaced.
    large: VecDeque<(Csn, Arc<OpenTxn>)>,
}

pub struct Registry {
    open: Mutex<HashMap<TxnId, Arc<OpenTxn>>>,
    purge: Mutex<Purge>,
    /// Length of the purge's queue, for callers that only ask whether it is long.
    backlog: AtomicUsize,
}

impl Default for Registry {
    fn default() -> Registry {
        Registry {
            open: Mutex::ranked(Rank::OpenTransactions, HashMap::default()),
            purge: Mutex::ranked(Rank::PurgeQueue, Purge::default()),
            backlog: AtomicUsize::default(),
        }
    }
}

impl Registry {
    pub fn add(&self, open: Arc<OpenTxn>) {
        self.open.lock().insert(open.id, open);
    }

    pub fn remove(&self, id: TxnId) {
        self.open.lock().remove(&id);
    }

    /// In order of id.
    pub fn list(&self) -> Vec<Arc<OpenTxn>> {
        let mut all: Vec<Arc<OpenTxn>> = self.open.lock().values().cloned().collect();
        all.sort_unstable_by_key(|open| open.id);
        all
    }

    pub fn push_purge(&self, item: PurgeItem) {
        let mut purge = self.purge.lock();
        purge.ids.insert(item.txn);
        purge.queue.push_back(item);
        self.backlog.store(purge.queue.len(), Ordering::Relaxed);
    }

    pub fn contains(&self, id: TxnId) -> bool {
        self.open.lock().contains_key(&id)
    }

    /// Whether delete marks of `id`, which is committed, may still be waiting for the purge.
    pub fn awaits_purge(&self, id: TxnId) -> bool {
        // In this order: it enters the one before it leaves the other.
        self.open.lock().contains_key(&id) || self.purge.lock().ids.contains(&id)
    }

    /// Remembers a committed transaction that the snapshots before `csn` do not see, if the part of its
    /// log that they can come back to is worth that.
    pub fn note_committed(&self, csn: Csn, open: &Arc<OpenTxn>) {
        open.own_log_bytes
            .fetch_min(open.over_settled_bytes.load(Ordering::Relaxed), Ordering::Relaxed);
        if open.own_log_bytes() >= LARGE_BYTES {
            self.purge.lock().large.push_back((csn, Arc::clone(open)));
        }
    }

    /// Log that is the own of transactions without an end, of rolled back ones until they are reverted,
    /// and of large committed ones that the snapshot of `oldest` does not see; without what the mover
    /// has passed.
    pub fn own_log_bytes(&self, oldest: Csn) -> u64 {
        // In this order: a commit in between is met twice rather than not at all.
        let open: u64 = self.open.lock().values().map(|open| open.own_log_bytes()).sum();
        let large = &mut self.purge.lock().large;
        large.retain(|(csn, open)| *csn > oldest && open.own_log_bytes() > 0);
        open + large.iter().map(|(_, open)| open.own_log_bytes()).sum::<u64>()
    }

    /// The mover has passed so many bytes of these transactions.
    pub fn pass_own_log(&self, passed: &HashMap<TxnId, u64>) {
        let pass = |open: &OpenTxn| {
            if let Some(&bytes) = passed.get(&open.id) {
                open.pass_own_log(bytes);
            }
        };
        self.open.lock().values().for_each(|open| pass(open));
        self.purge.lock().large.iter().for_each(|(_, open)| pass(open));
    }

    /// Forgets transactions whose records all lie below `moved_to`: their delete marks were moved,
    /// and the sweep of moved versions purges them.
    pub fn drop_purge_below(&self, moved_to: Lsn) {
        let Purge { queue, ids, .. } = &mut *self.purge.lock();
        queue.retain(|item| {
            let kept = item.last_lsn >= moved_to;
            if !kept {
                ids.remove(&item.txn);
            }
            kept
        });
        self.backlog.store(queue.len(), Ordering::Relaxed);
    }

    /// The oldest item at which nobody is at work, if every snapshot at or after `oldest` sees it. It
    /// is the caller's until [`Registry::shorten_purge`] or [`Registry::pop_purge`], and stays in the
    /// queue (and in checkpoints) until the latter.
    pub fn claim_purge(&self, oldest: Csn) -> Option<PurgeItem> {
        let Purge { queue, claimed, .. } = &mut *self.purge.lock();
        let free = queue.iter().find(|item| !claimed.contains(&item.txn));
        let item = *free.filter(|item| item.csn <= oldest)?;
        claimed.push(item.txn);
        Some(item)
    }

    /// The claimed item is purged but for its records up to `last_lsn`.
    pub fn shorten_purge(&self, txn: TxnId, last_lsn: Lsn) {
        let Purge { queue, claimed, .. } = &mut *self.purge.lock();
        claimed.retain(|&other| other != txn);
        if let Some(item) = queue.iter_mut().find(|item| item.txn == txn) {
            item.last_lsn = last_lsn;
        }
    }

    /// The claimed item is purged.
    pub fn pop_purge(&self, txn: TxnId) {
        let Purge { queue, claimed, ids, .. } = &mut *self.purge.lock();
        claimed.retain(|&other| other != txn);
        // Near the front: those before it are claimed.
        let popped = match planted::is(Bug::PurgePopsAnother) {
            true => queue.front().map(|item| item.txn),
            false => Some(txn),
        };
        if let Some(i) = queue.iter().position(|item| Some(item.txn) == popped) {
            queue.remove(i);
            ids.remove(&txn);
        }
        self.backlog.store(queue.len(), Ordering::Relaxed);
    }

    pub fn purge_items(&self) -> Vec<PurgeItem> {
        self.purge.lock().queue.iter().copied().collect()
    }

    /// Whether the purge is late: the oldest delete mark that waits lies below `low` and every
    /// snapshot from `oldest` on sees it, or very many wait.
    pub fn purge_lags(&self, low: Lsn, most: usize, oldest: impl FnOnce() -> Csn) -> bool {
        if self.backlog.load(Ordering::Relaxed) < BACKLOG_SMALL {
            return false;
        }
        let (front, len) = {
            let purge = self.purge.lock();
            (purge.queue.front().copied(), purge.queue.len())
        };
        front.is_some_and(|item| (item.first_lsn < low || len > most) && item.csn <= oldest())
    }

    pub fn purge_backlog(&self) -> usize {
        self.purge.lock().queue.len()
    }

    /// The lowest LSN that any transaction here still needs.
    pub fn oldest_lsn(&self) -> Option<Lsn> {
        // In this order: a commit in between is met twice rather than not at all.
        let open = self.open.lock().values().map(|o| o.first_lsn).min();
        [open, self.oldest_purge_lsn()].into_iter().flatten().min()
    }

    pub fn oldest_purge_lsn(&self) -> Option<Lsn> {
        self.purge.lock().queue.iter().map(|p| p.first_lsn).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrote(id: u64, bytes: u64) -> Arc<OpenTxn> {
        let open = Arc::new(OpenTxn::new(TxnId(id), Lsn(1000), Lsn::ZERO));
        open.begin_record(Lsn(1000));
        open.end_version(Appended { lsn: Lsn(1000), end: Lsn(1000 + bytes) }, true);
        open.end_version(Appended { lsn: Lsn(5000), end: Lsn(5010) }, false);
        open
    }

    #[test]
    fn own_log_counts_until_nobody_can_want_it() {
        let registry = Registry::default();
        let (small, large) = (wrote(1, 10), wrote(2, LARGE_BYTES));
        registry.add(Arc::clone(&small));
        registry.add(Arc::clone(&large));
        assert_eq!(registry.own_log_bytes(Csn(4)), LARGE_BYTES + 30);
        for (csn, open) in [(5, &small), (6, &large)] {
            registry.note_committed(Csn(csn), open);
            registry.remove(open.id);
        }
        // A small one is not worth a place in the list; what replaced nothing that they see is not read.
        assert_eq!(registry.own_log_bytes(Csn(4)), LARGE_BYTES);
        registry.pass_own_log(&HashMap::from_iter([(TxnId(2), 100), (TxnId(1), 100)]));
        assert_eq!(registry.own_log_bytes(Csn(5)), LARGE_BYTES - 100);
        assert_eq!(registry.own_log_bytes(Csn(6)), 0, "every snapshot sees it");
        assert_eq!(registry.own_log_bytes(Csn(4)), 0, "it is forgotten");
    }

    #[test]
    fn each_item_of_the_purge_has_one_thread_and_leaves_when_that_is_done() {
        let registry = Registry::default();
        let item =
            |n| PurgeItem { txn: TxnId(n), csn: Csn(n), first_lsn: Lsn(n), last_lsn: Lsn(9) };
        (1..=3).for_each(|n| registry.push_purge(item(n)));
        let claim = || registry.claim_purge(Csn(2)).map(|item| item.txn.0);
        assert_eq!([claim(), claim(), claim()], [Some(1), Some(2), None], "a snapshot sees 3 not");
        registry.pop_purge(TxnId(2));
        assert_eq!(registry.purge_items(), [item(1), item(3)], "checkpoints have it still");
        assert_eq!(registry.oldest_purge_lsn(), Some(Lsn(1)));
        registry.shorten_purge(TxnId(1), Lsn(5));
        assert_eq!(registry.claim_purge(Csn(3)).map(|item| item.last_lsn), Some(Lsn(5)));
        assert_eq!(registry.claim_purge(Csn(3)), Some(item(3)));
        // The mover forgets items that are claimed, too.
        registry.drop_purge_below(Lsn(6));
        registry.pop_purge(TxnId(1));
        assert!(!registry.awaits_purge(TxnId(1)) && registry.awaits_purge(TxnId(3)));
        registry.pop_purge(TxnId(3));
        assert_eq!((registry.purge_backlog(), registry.claim_purge(Csn(9))), (0, None));
    }

    #[test]
    fn own_log_is_passed_once_and_shortened_by_a_partial_rollback() {
        let registry = Registry::default();
        let open = wrote(1, 4990);
        registry.add(Arc::clone(&open));
        registry.pass_own_log(&HashMap::from_iter([(TxnId(1), 3000)]));
        assert_eq!(registry.own_log_bytes(Csn(0)), 2000);
        open.shorten_own_log(Lsn(1500));
        assert_eq!(registry.own_log_bytes(Csn(0)), 500);
        registry.pass_own_log(&HashMap::from_iter([(TxnId(1), 3000)]));
        assert_eq!(registry.own_log_bytes(Csn(0)), 0);
    }
}
