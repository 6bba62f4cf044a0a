//! The side record: what the server has acknowledged, kept in this process, which survives.
//!
//! Invariants:
//! 1. A session writes only keys of its own range, so its record alone says what the range holds.
//! 2. `committed` changes only when the server acknowledges a commit, or when verification has
//!    found the one doubtful transaction of the session to be there.
//! 3. A transaction is doubtful only between sending its commit and the answer. One whose commit
//!    was never sent must be absent after a crash, one that was answered must be present.

use crate::history::History;
use sluice_rig::rng::Rng;
use std::collections::{BTreeMap, BTreeSet};

/// Keys of session `slot` are `slot * RANGE + 0..KEYS`.
pub const RANGE: i64 = 1_000_000;
pub const KEYS: i64 = 300;
pub const SLOTS: usize = 16;
pub const ACCOUNTS: i64 = 8;
pub const OPENING_BALANCE: i64 = 10_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Table {
    /// In the engine under test.
    Main,
    /// The same columns in InnoDB: transactions over both engines.
    Other,
}

impl Table {
    pub fn name(self) -> &'static str {
        match self {
            Table::Main => "main_rows",
            Table::Other => "other_rows",
        }
    }
}

/// A long value, by the seed that makes its bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct Blob {
    pub seed: u64,
    pub len_bytes: usize,
}

impl Blob {
    pub fn bytes(&self) -> Vec<u8> {
        let mut rng = Rng::new(self.seed);
        let mut out = Vec::with_capacity(self.len_bytes + 8);
        while out.len() < self.len_bytes {
            // Half of the words repeat, so that compression has something to find.
            let word = rng.next_u64();
            out.extend_from_slice(&if word & 1 == 0 { [b'x'; 8] } else { word.to_le_bytes() });
        }
        out.truncate(self.len_bytes);
        out
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    pub k: i64,
    pub u: Option<i64>,
    pub pad: String,
    pub big: Option<Blob>,
}

/// A row as read back from the server.
pub struct Stored {
    pub k: i64,
    pub u: Option<i64>,
    pub pad: Vec<u8>,
    pub big: Option<Vec<u8>>,
}

impl Row {
    pub fn matches(&self, stored: &Stored) -> bool {
        self.k == stored.k
            && self.u == stored.u
            && self.pad.as_bytes() == stored.pad
            && self.big.as_ref().map(Blob::bytes) == stored.big
    }
}

pub type Rows = BTreeMap<(Table, i64), Row>;

/// Rows of the table that makes the data larger than a small pool, with so many bytes each: 7 MiB.
pub const WIDE_ROWS: i64 = 7_000;
pub const WIDE_BYTES: i64 = 1_000;

/// A table of numbers that all sessions add to: one of the two account tables, or the wide one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ledger {
    A,
    B,
    Wide,
}

#[derive(Clone, Debug)]
pub enum RowChange {
    Put(Table, i64, Row),
    Delete(Table, i64),
    Auto(i64),
    AutoDelete(i64),
    Journal(i64),
    Transfer(Ledger, i64, i64),
}

/// What a set of transactions of one session amounts to.
#[derive(Clone, Default)]
pub struct State {
    pub rows: Rows,
    pub autos: BTreeSet<i64>,
    pub journal: BTreeSet<i64>,
    pub transfers: BTreeMap<(Ledger, i64), i64>,
}

pub fn apply_to_rows(rows: &mut Rows, change: &RowChange) {
    match change {
        RowChange::Put(table, id, row) => drop(rows.insert((*table, *id), row.clone())),
        RowChange::Delete(table, id) => drop(rows.remove(&(*table, *id))),
        _ => {}
    }
}

impl State {
    pub fn apply(&mut self, changes: &[RowChange]) {
        for change in changes {
            apply_to_rows(&mut self.rows, change);
            match change {
                RowChange::Auto(id) => drop(self.autos.insert(*id)),
                RowChange::AutoDelete(id) => drop(self.autos.remove(id)),
                RowChange::Journal(txn) => drop(self.journal.insert(*txn)),
                RowChange::Transfer(ledger, id, amount) => {
                    *self.transfers.entry((*ledger, *id)).or_default() += amount
                }
                RowChange::Put(..) | RowChange::Delete(..) => {}
            }
        }
    }

    /// Every way in which the server's rows differ from this state; empty when they agree.
    pub fn differences(&self, actual: &Actual) -> Vec<String> {
        let mut found = Vec::new();
        for (key, row) in &self.rows {
            match actual.rows.get(key) {
                None => found.push(format!("lost row {key:?}")),
                Some(stored) if !row.matches(stored) => {
                    found.push(format!("wrong row {key:?}: {}", describe(row, stored)))
                }
                Some(_) => {}
            }
        }
        for key in actual.rows.keys().filter(|key| !self.rows.contains_key(key)) {
            found.push(format!("phantom row {key:?}"));
        }
        compare_sets("auto_rows", &self.autos, &actual.autos, &mut found);
        compare_sets("journal", &self.journal, &actual.journal, &mut found);
        found
    }
}

fn describe(row: &Row, stored: &Stored) -> String {
    format!(
        "k {} is {}, u {:?} is {:?}, pad {:?} is {:?}, big {:?} bytes is {:?} bytes{}",
        row.k,
        stored.k,
        row.u,
        stored.u,
        row.pad,
        String::from_utf8_lossy(&stored.pad),
        row.big.as_ref().map(|b| b.len_bytes),
        stored.big.as_ref().map(Vec::len),
        if row.big.as_ref().map(Blob::bytes) == stored.big { "" } else { " (contents differ)" },
    )
}

fn compare_sets(
    what: &str,
    wanted: &BTreeSet<i64>,
    actual: &BTreeSet<i64>,
    found: &mut Vec<String>,
) {
    found.extend(wanted.difference(actual).map(|id| format!("lost row {what}({id})")));
    found.extend(actual.difference(wanted).map(|id| format!("phantom row {what}({id})")));
}

/// What the server holds in the range of one session.
#[derive(Default)]
pub struct Actual {
    pub rows: BTreeMap<(Table, i64), Stored>,
    pub autos: BTreeSet<i64>,
    pub journal: BTreeSet<i64>,
}

pub enum Resolution {
    /// No commit was on its way.
    Nothing,
    Committed,
    Absent,
}

/// The record of one session.
pub struct Session {
    pub slot: usize,
    pub committed: State,
    /// Changes of the open transaction, in order.
    pub pending: Vec<RowChange>,
    /// The commit of `pending` was sent and not answered.
    pub doubtful: bool,
    pub acknowledged: u64,
    /// Every transaction since a moment, where somebody asks for more than the last state.
    pub history: Option<History>,
    /// What went wrong while the session ran.
    pub violations: Vec<String>,
}

impl Session {
    pub fn new(slot: usize) -> Session {
        Session {
            slot,
            committed: State::default(),
            pending: Vec::new(),
            doubtful: false,
            acknowledged: 0,
            history: None,
            violations: Vec::new(),
        }
    }

    pub fn base(&self) -> i64 {
        self.slot as i64 * RANGE
    }

    pub fn acknowledge(&mut self) {
        self.commit();
        self.acknowledged += 1;
    }

    fn commit(&mut self) {
        self.committed.apply(&self.pending);
        let changes = std::mem::take(&mut self.pending);
        if let Some(history) = &mut self.history {
            history.push(changes);
        }
        self.doubtful = false;
    }

    /// Keeps each transaction from here on.
    pub fn begin_history(&mut self) {
        let count = self.history.as_ref().map_or(0, History::count);
        self.history = Some(History::new(self.committed.clone(), count));
    }

    pub fn forget(&mut self) {
        self.pending.clear();
        self.doubtful = false;
    }

    /// Compares the record with what the server holds after a restart. The doubtful transaction
    /// may be there or not, as a whole; everything else has no choice.
    pub fn resolve(&mut self, actual: &Actual) -> Result<Resolution, Vec<String>> {
        let without = self.committed.differences(actual);
        if !self.doubtful {
            self.pending.clear();
            return if without.is_empty() { Ok(Resolution::Nothing) } else { Err(without) };
        }
        let mut with_pending = self.committed.clone();
        with_pending.apply(&self.pending);
        let with = with_pending.differences(actual);
        if with.is_empty() {
            self.commit();
            return Ok(Resolution::Committed);
        }
        if without.is_empty() {
            self.forget();
            return Ok(Resolution::Absent);
        }
        Err(vec![format!(
            "neither without the doubtful transaction ({without:?}) nor with it ({with:?})"
        )])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(k: i64) -> Row {
        Row { k, u: None, pad: "p".into(), big: None }
    }

    fn actual_of(rows: &[(i64, i64)]) -> Actual {
        let stored =
            |&(id, k)| ((Table::Main, id), Stored { k, u: None, pad: b"p".to_vec(), big: None });
        Actual { rows: rows.iter().map(stored).collect(), ..Actual::default() }
    }

    fn session_with_doubt() -> Session {
        let mut session = Session::new(0);
        session.pending = vec![RowChange::Put(Table::Main, 1, row(10))];
        session.acknowledge();
        session.pending =
            vec![RowChange::Put(Table::Main, 2, row(20)), RowChange::Put(Table::Main, 3, row(30))];
        session.doubtful = true;
        session
    }

    #[test]
    fn a_doubtful_transaction_is_whole_or_absent() {
        let mut session = session_with_doubt();
        let there = session.resolve(&actual_of(&[(1, 10), (2, 20), (3, 30)]));
        assert!(matches!(there, Ok(Resolution::Committed)));
        assert!(session.pending.is_empty(), "it must not be applied again by the next commit");
        let absent = session_with_doubt().resolve(&actual_of(&[(1, 10)]));
        assert!(matches!(absent, Ok(Resolution::Absent)));
        assert!(session_with_doubt().resolve(&actual_of(&[(1, 10), (2, 20)])).is_err());
    }

    #[test]
    fn losses_phantoms_and_wrong_values_are_found() {
        for rows in [&[][..], &[(1, 11)], &[(1, 10), (9, 9)]] {
            let mut session = session_with_doubt();
            session.forget();
            assert!(session.resolve(&actual_of(rows)).is_err(), "{rows:?}");
        }
    }

    #[test]
    fn a_transaction_whose_commit_was_not_sent_must_be_absent() {
        let mut session = session_with_doubt();
        session.doubtful = false;
        assert!(session.resolve(&actual_of(&[(1, 10), (2, 20), (3, 30)])).is_err());
    }
}
