//! Which part of the written log is whose. The log is compressed by batches, whose records are of many
//! trees: each tree gets the share of the bytes of written records that its own records had of those
//! that waited for it ([`Books::settle`]). The shares of all trees never are more than was written.

use crate::base::TreeId;
use crate::btree::{TreeBytes, TreeBytesNow};
use crate::os::hash::HashMap;
use crate::os::rank::Rank;
use crate::os::sync::{Mutex, MutexGuard, Ranked};
use crate::txn::Trees;
use crate::wal::Wal;

/// Of log records of one kind: how many of their bytes were counted, how many of those wait to be
/// written, and what the others take in the files.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Share {
    seen: u64,
    waiting: u64,
    pub stored: u64,
}

impl Share {
    fn see(&mut self, now: u64) {
        self.waiting += now.saturating_sub(self.seen);
        self.seen = now;
    }

    /// Of `waiting` bytes, some of them its own, `written` were written and take `stored`.
    fn settle(&mut self, waiting: u64, written: u64, stored: u64) {
        let part = |bytes: u64| {
            let part = u128::from(self.waiting) * u128::from(bytes) / u128::from(waiting.max(1));
            u64::try_from(part).unwrap_or(u64::MAX)
        };
        self.stored += part(stored);
        self.waiting = self.waiting.saturating_sub(part(written));
    }

    fn inherit(&mut self, other: Share) {
        self.waiting += other.waiting;
        self.stored += other.stored;
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Shares {
    pub changes: Share,
    pub built: Share,
    /// Temporary files, which are not in the log.
    pub sorted: u64,
}

impl Shares {
    fn see(&mut self, now: TreeBytesNow) {
        self.changes.see(now.changes);
        self.built.see(now.built);
        self.sorted = now.sorted;
    }

    fn settle(&mut self, waiting: u64, written: u64, stored: u64) {
        self.changes.settle(waiting, written, stored);
        self.built.settle(waiting, written, stored);
    }
}

#[derive(Default)]
pub(crate) struct Books {
    /// Bytes of records that were written, and what they take, as they were settled last.
    written: u64,
    stored: u64,
    pub trees: HashMap<TreeId, Shares>,
    pub dropped: Shares,
}

impl Books {
    /// Shares out what was written since the last time.
    fn settle(&mut self, wal: &Wal, trees: &Trees) {
        // Each number is read before those that it is a part of.
        let log = wal.stats();
        for gate in trees.all() {
            self.trees.entry(gate.id()).or_default().see(gate.tree().bytes().now());
        }
        let appended: u64 = wal.stats().appended_bytes.iter().sum();
        let waiting = appended.saturating_sub(self.written);
        let (written, stored) =
            (log.record_bytes - self.written, log.record_stored_bytes - self.stored);
        for shares in self.trees.values_mut() {
            shares.settle(waiting, written, stored);
        }
        self.dropped.settle(waiting, written, stored);
        (self.written, self.stored) = (log.record_bytes, log.record_stored_bytes);
    }

    fn drop_tree(&mut self, id: TreeId, bytes: &TreeBytes) {
        let mut shares = self.trees.remove(&id).unwrap_or_default();
        shares.see(bytes.now());
        self.dropped.changes.inherit(shares.changes);
        self.dropped.built.inherit(shares.built);
        self.dropped.sorted += shares.sorted;
    }
}

pub(crate) struct LogShares {
    books: Mutex<Books>,
}

impl Default for LogShares {
    fn default() -> LogShares {
        LogShares { books: Mutex::ranked(Rank::LogShares, Books::default()) }
    }
}

impl LogShares {
    /// With all that was written so far.
    pub fn settled(&self, wal: &Wal, trees: &Trees) -> MutexGuard<'_, Books> {
        let mut books = self.books.lock();
        books.settle(wal, trees);
        books
    }

    /// To be called when nobody writes to the tree any more.
    pub fn drop_tree(&self, id: TreeId, bytes: &TreeBytes) {
        self.books.lock().drop_tree(id, bytes);
    }
}
