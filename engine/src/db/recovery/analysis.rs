//! First pass over the log's tail: what became of every transaction, which ids are taken, which
//! pages and trees are gone.

use super::note::{CheckpointNote, OpenState};
use crate::base::codec::Reader;
use crate::base::{Error, IdMap, Lsn, PageId, Result, TreeId, TxnId};
use crate::binlog::{BinlogRecovery, RECORD_BINLOG, RECORD_BINLOG_STATE};
use crate::btree::{change_creates_page, decode_record, TreeRecord, RECORD_DELTA, RECORD_TREE};
use crate::db::records::{RECORD_BAD_PAGE, RECORD_COUNTER, RECORD_DROP_TREES, RECORD_PURGED};
use crate::os::hash::{HashMap, HashSet};
use crate::txn::{Note, RECORD_ABORT, RECORD_COMMIT, RECORD_PREPARE, RECORD_REVERTED};
use crate::wal::{RecordRef, RECORD_KINDS};
use std::collections::BTreeMap;

/// Every kind of record that any room appends: [`Analysis::visit`] knows each of them.
const ALL_KINDS: [u8; 12] = [
    RECORD_TREE,
    RECORD_DELTA,
    RECORD_COMMIT,
    RECORD_ABORT,
    RECORD_PREPARE,
    RECORD_REVERTED,
    RECORD_COUNTER,
    RECORD_DROP_TREES,
    RECORD_PURGED,
    RECORD_BAD_PAGE,
    RECORD_BINLOG,
    RECORD_BINLOG_STATE,
];

/// Rooms choose the numbers of their records apart from each other: the build fails if two of
/// them choose the same.
const _: () = {
    let mut a = 0;
    while a < ALL_KINDS.len() {
        assert!((ALL_KINDS[a] as usize) < RECORD_KINDS, "a record kind is too large");
        let mut b = 0;
        while b < a {
            assert!(ALL_KINDS[a] != ALL_KINDS[b], "two kinds of log records have one number");
            b += 1;
        }
        a += 1;
    }
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Open,
    Prepared,
    Committed,
    Aborted,
    Reverted,
}

#[derive(Clone, Debug)]
pub(crate) struct Trace {
    pub outcome: Outcome,
    pub first_lsn: Lsn,
    pub last_lsn: Lsn,
    pub deletes: bool,
    pub xid: Option<Vec<u8>>,
    /// `outcome` comes from the tail, not from the checkpoint's note.
    in_tail: bool,
}

/// What the tail says, on top of the checkpoint's note.
#[derive(Default)]
pub(crate) struct Analysis {
    /// Transactions that are not committed, or have deletes to purge.
    pub traces: IdMap<TxnId, Trace>,
    /// The others, which leave nothing to do.
    done: IdRanges,
    /// Committed transactions whose records all lie below are purged.
    pub purged: Lsn,
    pub freed_pages: HashSet<PageId>,
    pub dropped_trees: HashSet<TreeId>,
    pub bad_pages: HashMap<PageId, TreeId>,
    pub counters: HashMap<u64, u64>,
    pub next_page: u64,
    pub next_tree: u64,
    pub next_txn: u64,
    pub records: u64,
    pub binlog: BinlogRecovery,
}

impl Analysis {
    pub fn new(note: &CheckpointNote) -> Result<Self> {
        let mut analysis = Analysis {
            binlog: BinlogRecovery::new(&note.binlog)?,
            next_page: note.next_page,
            next_tree: note.next_tree,
            next_txn: note.next_txn,
            counters: note.counters.iter().copied().collect(),
            bad_pages: note.bad_pages.iter().copied().collect(),
            ..Analysis::default()
        };
        for item in &note.purge {
            analysis.next_txn = analysis.next_txn.max(item.txn.0 + 1);
        }
        for open in &note.open {
            let outcome = match open.state {
                OpenState::Active => Outcome::Open,
                OpenState::Prepared => Outcome::Prepared,
                OpenState::Aborted => Outcome::Aborted,
            };
            let trace = Trace {
                outcome,
                first_lsn: open.first_lsn,
                last_lsn: open.last_lsn,
                deletes: open.deletes,
                xid: open.xid.clone(),
                in_tail: false,
            };
            // It may have begun after the note read the next id, and have no record yet.
            analysis.next_txn = analysis.next_txn.max(open.id.0 + 1);
            analysis.traces.insert(open.id, trace);
        }
        Ok(analysis)
    }

    pub fn visit(&mut self, lsn: Lsn, record: RecordRef<'_>) -> Result<()> {
        if record.kind == RECORD_TREE {
            return self.visit_tree(lsn, &decode_record(record.payload)?);
        }
        self.records += 1;
        let mut r = Reader::new(record.payload, "log record");
        match record.kind {
            RECORD_COMMIT => self.outcome(lsn, TxnId(r.varint()?), Outcome::Committed),
            RECORD_ABORT => self.outcome(lsn, TxnId(r.varint()?), Outcome::Aborted),
            RECORD_REVERTED => self.outcome(lsn, TxnId(r.varint()?), Outcome::Reverted),
            RECORD_PREPARE => {
                let id = TxnId(r.varint()?);
                self.outcome(lsn, id, Outcome::Prepared)?;
                self.trace(lsn, id).xid = Some(r.rest().to_vec());
                Ok(())
            }
            RECORD_COUNTER => {
                let (table, next) = (r.varint()?, r.varint()?);
                self.counters.insert(table, next);
                Ok(())
            }
            RECORD_DROP_TREES => {
                for _ in 0..r.varint()? {
                    let id = u32::try_from(r.varint()?).map_err(|_| r.fail("tree id"))?;
                    self.dropped_trees.insert(TreeId(id));
                    self.bad_pages.retain(|_, tree| tree.0 != id);
                }
                Ok(())
            }
            RECORD_PURGED => {
                self.drop_purged(Lsn(r.varint()?));
                Ok(())
            }
            RECORD_BAD_PAGE => {
                let page = PageId(r.varint()?);
                let tree = u32::try_from(r.varint()?).map_err(|_| r.fail("tree id"))?;
                self.bad_pages.insert(page, TreeId(tree));
                Ok(())
            }
            // Its changes were seen one by one, now or before the checkpoint.
            RECORD_DELTA => Ok(()),
            kind if BinlogRecovery::owns(kind) => self.binlog.visit(lsn, record),
            kind => {
                let what = format!("log record of unknown kind {kind}");
                Err(Error::corrupt(what, format!("log {lsn:?}")))
            }
        }
    }

    fn trace(&mut self, lsn: Lsn, id: TxnId) -> &mut Trace {
        self.next_txn = self.next_txn.max(id.0.saturating_add(1));
        self.traces.entry(id).or_insert(Trace {
            outcome: Outcome::Open,
            first_lsn: lsn,
            last_lsn: Lsn::ZERO,
            deletes: false,
            xid: None,
            in_tail: false,
        })
    }

    fn drop_purged(&mut self, low: Lsn) {
        self.purged = self.purged.max(low);
        self.traces.retain(|&id, trace| {
            let is_purged = trace.outcome == Outcome::Committed && trace.last_lsn < low;
            if is_purged {
                self.done.insert(id.0);
            }
            !is_purged
        });
    }

    fn outcome(&mut self, lsn: Lsn, id: TxnId, outcome: Outcome) -> Result<()> {
        let is_done = self.done.contains(id.0);
        if is_done && outcome == Outcome::Committed {
            return Ok(());
        }
        let trace = self.trace(lsn, id);
        // A commit is final; an abort is only followed by its revert. The note may be ahead of the
        // tail's first records: it was written after them.
        let legal = match trace.outcome {
            _ if is_done => false,
            _ if !trace.in_tail => true,
            Outcome::Committed | Outcome::Reverted => outcome == trace.outcome,
            Outcome::Aborted => matches!(outcome, Outcome::Aborted | Outcome::Reverted),
            Outcome::Open | Outcome::Prepared => true,
        };
        if !legal {
            let what = format!("transaction {id} ends twice");
            return Err(Error::corrupt(what, format!("log {lsn:?}")));
        }
        trace.outcome = outcome;
        trace.in_tail = true;
        if outcome == Outcome::Committed {
            trace.xid = None;
            if !trace.deletes {
                self.traces.remove(&id);
                self.done.insert(id.0);
            }
        }
        Ok(())
    }

    /// A record of kind [`RECORD_TREE`].
    pub fn visit_tree(&mut self, lsn: Lsn, record: &TreeRecord<'_>) -> Result<()> {
        self.records += 1;
        self.next_tree = self.next_tree.max(u64::from(record.tree.0) + 1);
        let note = Note::decode(record.note)?;
        if let Some(note) = note.filter(|note| !self.done.contains(note.txn.0)) {
            let trace = self.trace(lsn, note.txn);
            trace.last_lsn = trace.last_lsn.max(lsn);
            trace.deletes |= note.deletes;
        }
        self.freed_pages.extend(record.freed());
        for (page, change) in record.changes() {
            if change_creates_page(change) {
                self.next_page = self.next_page.max(page.0.saturating_add(1));
            }
        }
        Ok(())
    }
}

/// Ids in ranges that do not touch: ids are given one after the other, so these are few.
#[derive(Default)]
struct IdRanges {
    /// First id, and one after the last.
    ranges: BTreeMap<u64, u64>,
}

impl IdRanges {
    fn contains(&self, id: u64) -> bool {
        self.ranges.range(..=id).next_back().is_some_and(|(_, &end)| id < end)
    }

    fn insert(&mut self, id: u64) {
        if self.contains(id) {
            return;
        }
        let next = self.ranges.remove(&(id + 1));
        let end = next.unwrap_or(id + 1);
        match self.ranges.range_mut(..id).next_back() {
            Some((_, last)) if *last == id => *last = end,
            _ => {
                self.ranges.insert(id, end);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn varints(values: &[u64]) -> Vec<u8> {
        let mut out = Vec::new();
        values.iter().for_each(|&v| crate::base::codec::put_varint(&mut out, v));
        out
    }

    fn visit(analysis: &mut Analysis, lsn: u64, kind: u8, payload: &[u8]) -> Result<()> {
        analysis.visit(Lsn(lsn), RecordRef { kind, payload })
    }

    /// A tail of many transactions leaves of the committed ones no trace and no XID.
    #[test]
    fn committed_transactions_take_no_memory() {
        let mut analysis = Analysis::default();
        let mut payload = varints(&[0]);
        for id in 1..=50_000 {
            // Every tenth stays prepared; commits come in another order.
            payload.clear();
            payload.extend(varints(&[id]));
            payload.extend_from_slice(&[7; 100]);
            visit(&mut analysis, 3 * id, RECORD_PREPARE, &payload).unwrap();
            let other = id ^ 1;
            if id > 2 && id % 10 != 0 && other % 10 != 0 && other < id {
                for id in [id, other] {
                    visit(&mut analysis, 3 * id, RECORD_COMMIT, &varints(&[id])).unwrap();
                }
            }
        }
        let open = analysis.traces.values().filter(|t| t.outcome == Outcome::Prepared).count();
        assert_eq!(open, analysis.traces.len(), "traces of committed transactions");
        assert!(open < 25_000 && analysis.done.ranges.len() <= open + 1, "{open}");
        assert_eq!(analysis.next_txn, 50_001);
        // A committed one stays committed, and cannot end otherwise.
        assert!(analysis.done.contains(5) && !analysis.done.contains(10));
        visit(&mut analysis, 1 << 20, RECORD_COMMIT, &varints(&[5])).unwrap();
        assert!(visit(&mut analysis, 1 << 20, RECORD_ABORT, &varints(&[5])).is_err());
    }

    /// A record of a transaction that deletes.
    fn deletes(id: u64) -> Vec<u8> {
        let (txn, previous_lsn, replaced) = (TxnId(id), Lsn::ZERO, Some(&b"old"[..]));
        let note = Note { txn, previous_lsn, key: b"key", replaced, deletes: true, loads: false };
        let mut payload = Vec::new();
        crate::base::codec::put_bytes(&mut payload, &note.encode());
        payload.extend(varints(&[16, 0, 0]));
        payload
    }

    #[test]
    fn purged_transactions_leave_no_trace() {
        let mut analysis = Analysis::default();
        for (id, lsn, end) in [(5, 10, Some(11)), (6, 12, None), (7, 20, Some(21))] {
            visit(&mut analysis, lsn, RECORD_TREE, &deletes(id)).unwrap();
            if let Some(end) = end {
                visit(&mut analysis, end, RECORD_COMMIT, &varints(&[id])).unwrap();
            }
        }
        let left = |analysis: &Analysis| {
            let mut left: Vec<u64> = analysis.traces.keys().map(|id| id.0).collect();
            left.sort_unstable();
            left
        };
        assert_eq!(left(&analysis), [5, 6, 7]);
        visit(&mut analysis, 22, RECORD_PURGED, &varints(&[20])).unwrap();
        assert_eq!((left(&analysis), analysis.purged), (vec![6, 7], Lsn(20)));
        // One that ended later was not purged then.
        visit(&mut analysis, 24, RECORD_COMMIT, &varints(&[6])).unwrap();
        visit(&mut analysis, 25, RECORD_PURGED, &varints(&[10])).unwrap();
        assert_eq!((left(&analysis), analysis.purged), (vec![6, 7], Lsn(20)));
        assert!(visit(&mut analysis, 26, RECORD_ABORT, &varints(&[5])).is_err(), "committed");
    }

    #[test]
    fn ranges_grow_together() {
        let mut ranges = IdRanges::default();
        for id in [4, 2, 9, 3, 3, 8, 1] {
            ranges.insert(id);
        }
        assert_eq!(ranges.ranges, BTreeMap::from([(1, 5), (8, 10)]));
        let found: Vec<u64> = (0..12).filter(|&id| ranges.contains(id)).collect();
        assert_eq!(found, [1, 2, 3, 4, 8, 9]);
    }
}
