//! Plain reads by other indexes than the clustered one, of a transaction that has overtaken its
//! snapshot (see `txn::contested`).
//!
//! Invariants:
//! 1. A row that the transaction owns is found under exactly those keys that its newest version
//!    has; any other row under those of the version that the snapshot sees.
//! 2. In an index whose keys do not contain the row's key, one entry may stand for two rows: one
//!    that the snapshot knows, and one of the transaction's that took its key. Both are found, in
//!    the order of their clustered keys.

use super::long::RowVersion;
use super::trx::{TableCursor, Trx};
use crate::base::{Error, Result};
use crate::db::callbacks::RowNames;
use crate::db::tables::Table;
use crate::txn::{Contested, Isolation, ReadMode};
use std::sync::Arc;

impl Table {
    /// Says where the table's entries keep the keys of their rows; the first to say it counts.
    /// Without it, reads by an index other than the clustered one do not follow rows that overtook
    /// the reader's snapshot, and a check of the table has to guess.
    pub fn name_rows(&self, names: Arc<RowNames>) {
        self.row_names.get_or_init(|| names);
    }

    pub(crate) fn row_names(&self) -> Option<&Arc<RowNames>> {
        self.row_names.get()
    }
}

impl Trx {
    /// May entries of the index be contested for this reader?
    pub(crate) fn follows_rows(&self, table: &Table, index: usize, mode: ReadMode) -> bool {
        index > 0
            && mode == ReadMode::Snapshot
            && self.isolation() != Isolation::ReadUncommitted
            && table.row_names().is_some()
    }

    /// The entry under `key` for a transaction that has overtaken its snapshot.
    pub(crate) fn get_contested(
        &mut self,
        table: &Table,
        index: usize,
        key: &[u8],
        payload: &mut Vec<u8>,
    ) -> Result<bool> {
        let contested = self.session.contested(&table.gates[index], key)?;
        let found = self.settle(table, index, key, contested)?;
        let is_there = found.is_some();
        if let Some((first, _)) = found {
            *payload = first;
        }
        Ok(is_there)
    }

    /// Settles the entry on which the cursor stands; false: it shows no row.
    pub(crate) fn settle_at(
        &mut self,
        table: &Table,
        cursor: &mut TableCursor,
        contested: Contested,
    ) -> Result<bool> {
        let found = self.settle(table, cursor.index, cursor.entries.key(), contested)?;
        let Some((mut first, mut second)) = found else { return Ok(false) };
        if let (Some(last), true) = (&mut second, cursor.entries.is_backward()) {
            std::mem::swap(&mut first, last);
        }
        *cursor.entries.entry_mut().payload_mut() = first;
        cursor.second = second;
        Ok(true)
    }

    /// The payloads under which `key` shows rows.
    #[allow(clippy::type_complexity, reason = "one or two payloads")]
    fn settle(
        &mut self,
        table: &Table,
        index: usize,
        key: &[u8],
        contested: Contested,
    ) -> Result<Option<(Vec<u8>, Option<Vec<u8>>)>> {
        let Some(names) = table.row_names() else {
            return Err(Error::Refused(format!("nobody has named the rows of {}", table.name)));
        };
        let mut own = None;
        if let Some(mut payload) = contested.newest {
            if self.load_contested(table, RowVersion::Newest, &mut payload)? {
                let row = names(index, key, &payload)?;
                own = self.session.owns(&table.gates[0], &row)?.then_some((row, payload));
            }
        }
        let mut seen = None;
        if let Some(mut payload) = contested.seen {
            if self.load_contested(table, RowVersion::Seen, &mut payload)? {
                let row = names(index, key, &payload)?;
                seen = (!self.session.owns(&table.gates[0], &row)?).then_some((row, payload));
            }
        }
        Ok(match (own, seen) {
            (Some((a, own)), Some((b, seen))) if a < b => Some((own, Some(seen))),
            (Some((_, own)), Some((_, seen))) => Some((seen, Some(own))),
            (own, seen) => own.or(seen).map(|(_, payload)| (payload, None)),
        })
    }
}
