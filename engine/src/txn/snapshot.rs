//! Snapshots: one csn each, registered while alive.
//!
//! A snapshot that holds the horizon back for too long is given a classical view (Berenson et al.,
//! 1995, as most systems build it: next id and the ids not committed then). From then on it no
//! longer needs csns to be told apart, and answers the same.

use super::table::{TxnState, TxnTable};
use crate::base::{Csn, Lsn, TxnId};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// The ids that an old snapshot does not see.
pub(super) struct View {
    next: TxnId,
    /// Sorted.
    hidden: Vec<u64>,
}

impl View {
    pub(super) fn sees(&self, id: TxnId) -> bool {
        id < self.next && self.hidden.binary_search(&id.0).is_err()
    }
}

/// The part of a snapshot that the table knows.
pub(super) struct Registered {
    pub(super) csn: Csn,
    pub(super) pin: Lsn,
    /// Everything below was committed when the snapshot was taken.
    low: TxnId,
    /// Everything from here on began after it.
    pub(super) next: TxnId,
    view: OnceLock<View>,
    /// Snapshots that share this registration; changed under the table's mutex.
    holders: AtomicU64,
}

impl Registered {
    pub(super) fn new(csn: Csn, pin: Lsn, low: TxnId, next: TxnId) -> Registered {
        let holders = AtomicU64::new(1);
        Registered { csn, pin, low, next, view: OnceLock::new(), holders }
    }

    pub(super) fn hold(&self) {
        self.holders.fetch_add(1, Ordering::Relaxed);
    }

    /// True when that was the last holder.
    pub(super) fn release(&self) -> bool {
        self.holders.fetch_sub(1, Ordering::Relaxed) == 1
    }

    pub(super) fn view(&self) -> Option<&View> {
        self.view.get()
    }

    pub(super) fn set_view(&self, hidden: Vec<u64>) {
        debug_assert!(hidden.is_sorted());
        let fresh = self.view.set(View { next: self.next, hidden });
        assert!(fresh.is_ok(), "a snapshot grows old once");
    }
}

/// What was committed when it was taken, for as long as it lives.
pub struct Snapshot {
    table: Arc<TxnTable>,
    number: u64,
    shared: Arc<Registered>,
}

impl Snapshot {
    pub(super) fn new(table: Arc<TxnTable>, number: u64, shared: Arc<Registered>) -> Snapshot {
        Snapshot { table, number, shared }
    }

    /// Names the registration as long as it lives.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    pub fn csn(&self) -> Csn {
        self.shared.csn
    }

    /// Lower bound of the log records that hold versions this snapshot may need.
    #[cfg(test)]
    pub fn pin(&self) -> Lsn {
        self.shared.pin
    }

    /// Every id below is visible without a look-up (S2).
    #[cfg(test)]
    pub fn low(&self) -> TxnId {
        self.shared.low
    }

    /// Whether this snapshot, in the transaction `own`, sees what `id` wrote.
    pub fn sees(&self, table: &TxnTable, id: TxnId, own: Option<TxnId>) -> bool {
        debug_assert!(std::ptr::eq(table, &*self.table));
        if own == Some(id) || id < self.shared.low {
            return true;
        }
        if id >= self.shared.next {
            return false;
        }
        if let Some(view) = self.shared.view() {
            return view.sees(id);
        }
        let TxnState::Committed(csn) = table.state(id) else { return false };
        // The horizon moves past what this snapshot does not see only after the view is there:
        // whoever saw such a horizon sees the view now.
        match self.shared.view() {
            Some(view) => view.sees(id),
            None => csn <= self.shared.csn,
        }
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        self.table.unregister(self.number);
    }
}

impl std::fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Snapshot({:?}, {:?})", self.shared.csn, self.shared.pin)
    }
}
