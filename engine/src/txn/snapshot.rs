//! Snapshots: one csn each, registered while alive.

use super::table::{TxnState, TxnTable};
use super::view::Registered;
use crate::base::{checked, Csn, Lsn, TxnId};
use std::sync::Arc;

/// What was committed when it was taken, for as long as it lives.
pub struct Snapshot {
    table: Arc<TxnTable>,
    number: u64,
    shared: Arc<Registered>,
}

impl TxnTable {
    /// A view of everything committed up to now. `log_low` is the log's end, read before the call.
    pub fn snapshot(self: &Arc<Self>, log_low: Lsn) -> Snapshot {
        Snapshot::new(self, self.register(log_low))
    }

    /// A snapshot that sees only what every registered snapshot sees (all of them are nested):
    /// the view of purge.
    pub fn oldest_view(self: &Arc<Self>, log_low: Lsn) -> Snapshot {
        Snapshot::new(self, self.share_oldest().unwrap_or_else(|| self.register(log_low)))
    }

    /// The snapshots that may need a version below `lsn`.
    pub(super) fn snapshots_below(self: &Arc<Self>, lsn: Lsn) -> Vec<Snapshot> {
        self.share_below(lsn).into_iter().map(|one| Snapshot::new(self, one)).collect()
    }
}

impl Snapshot {
    fn new(table: &Arc<TxnTable>, (number, shared): (u64, Arc<Registered>)) -> Snapshot {
        Snapshot { table: Arc::clone(table), number, shared }
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
        checked!(std::ptr::eq(table, &*self.table));
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
        // a thread that saw such a horizon sees the view now.
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
