//! The registration of a snapshot, which the transaction table holds as long as the snapshot lives.
//!
//! A snapshot that holds the horizon back for too long is given a classical view (Berenson et al.,
//! 1995, as most systems build it: next id and the ids not committed then). From then on it no
//! longer needs csns to be told apart, and answers the same.

use crate::base::{checked, Csn, Lsn, TxnId};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::OnceLock;

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
    pub(super) low: TxnId,
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
        checked!(hidden.is_sorted());
        let fresh = self.view.set(View { next: self.next, hidden });
        assert!(fresh.is_ok(), "a snapshot grows old once");
    }
}
