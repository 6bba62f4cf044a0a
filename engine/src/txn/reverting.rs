//! Where the thread that takes back versions stands.

use crate::base::{Lsn, TxnId};
use crate::wal::ReadAhead;

/// A load on its way out.
pub(super) struct LoadSweep {
    pub stands: (TxnId, Lsn),
    /// The leaf of this key is next.
    pub at: Vec<u8>,
    /// Its entries are gone; the empty leaves are merged.
    pub tidies: bool,
}

/// Of the background's revert.
pub struct Reverting {
    /// The log that it has just read.
    pub(super) ahead: ReadAhead,
    pub(super) sweep: Option<LoadSweep>,
}

impl Default for Reverting {
    fn default() -> Reverting {
        Reverting { ahead: ReadAhead::backward(), sweep: None }
    }
}

impl LoadSweep {
    pub fn of(stands: (TxnId, Lsn)) -> LoadSweep {
        LoadSweep { stands, at: Vec::new(), tidies: false }
    }

    /// After the last leaf the merging begins at the first.
    pub fn go_on(&mut self, next: Option<Vec<u8>>) {
        self.tidies |= next.is_none();
        self.at = next.unwrap_or_default();
    }
}
