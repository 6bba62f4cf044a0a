//! Entries that are not what the snapshot sees, because their row is this transaction's.
//!
//! A write goes to the newest version. Where that was committed after the transaction's snapshot
//! the write overtakes the snapshot. From then on the row is the transaction's, while some of the
//! entries that lead to it in other indexes are of writers that the snapshot does not see. For such
//! a row the newest entries are the true ones; for all other rows those that the snapshot sees.
//! Only the row of an entry tells which of the two holds, so this module hands out both versions
//! and the caller decides.
//!
//! Invariant: while a transaction owns a row (the newest version of its clustered entry is its
//! own), nobody else changes what entries say about that row. So the newest version that names
//! the row stands still, under whatever others write over it and take back.

use super::read::Progress;
use super::session::Session;
use super::trees::TreeGate;
use super::TxnState;
use crate::base::{EntryHeader, Error, Result};

/// The payloads of an entry's live versions that may count.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Contested {
    /// The newest version that is this transaction's or committed.
    pub newest: Option<Vec<u8>>,
    /// The version that the snapshot sees, this transaction's own ones left aside.
    pub seen: Option<Vec<u8>>,
}

/// An entry as it stands, judged under its latch.
struct Standing {
    header: EntryHeader,
    payload: Vec<u8>,
    is_settled: bool,
    is_seen: bool,
}

impl Session {
    /// Has a write of this transaction replaced a version that its snapshot does not see?
    pub fn has_overtaken(&self) -> bool {
        self.overtook
    }

    /// Would a write over `current` overtake the snapshot?
    pub(super) fn overtakes(&self, current: Option<&[u8]>) -> bool {
        let Some(Ok((header, _))) = current.map(EntryHeader::split) else { return false };
        self.has_snapshot() && !self.sees(header.txn)
    }

    /// Whether the entry's versions must be looked at one by one. A version that the snapshot sees
    /// is the newest one, too, whose row it ever is. In an index whose keys contain the row's key
    /// an own version hides none of another row.
    pub(super) fn is_contested(&self, entry: &[u8], names_in_payload: bool) -> Result<bool> {
        let (header, _) = EntryHeader::split(entry)?;
        Ok(match self.id() == Some(header.txn) {
            true => names_in_payload && !header.is_first(),
            false => !self.sees(header.txn),
        })
    }

    pub fn contested(&mut self, gate: &TreeGate, key: &[u8]) -> Result<Contested> {
        self.snapshot();
        let mut progress = Progress::default();
        loop {
            let mut found = None;
            gate.tree().get(key, &mut |current| found = current.map(|entry| self.stand(entry)))?;
            let Some(standing) = found.transpose()? else { return Ok(Contested::default()) };
            let header = standing.header;
            match self.versions_of(gate, key, standing) {
                // Reverted meanwhile.
                Err(Error::NotRetained) => progress.meet(gate.id(), key, header)?,
                other => return other,
            }
        }
    }

    fn stand(&self, entry: &[u8]) -> Result<Standing> {
        let (header, payload) = EntryHeader::split(entry)?;
        let is_own = self.id() == Some(header.txn);
        let state = self.ctx.table.state(header.txn);
        Ok(Standing {
            header,
            payload: payload.to_vec(),
            is_settled: is_own || matches!(state, TxnState::Committed(_)),
            is_seen: !is_own && self.sees(header.txn),
        })
    }

    fn versions_of(&mut self, gate: &TreeGate, key: &[u8], top: Standing) -> Result<Contested> {
        let newest = match top.is_settled {
            true => (!top.header.is_deleted()).then_some(top.payload),
            false => self.below_writer(top.header)?,
        };
        let seen = match top.is_seen {
            true => newest.clone(),
            false => {
                let view = self.view();
                self.older_version(view, gate, key, top.header)?
            }
        };
        Ok(Contested { newest, seen })
    }

    /// The version before that of `head`, whose writer has not committed. Nobody writes over a
    /// version that is not settled, so it was settled.
    fn below_writer(&self, head: EntryHeader) -> Result<Option<Vec<u8>>> {
        let mut header = head;
        while !header.is_first() {
            let Some(replaced) = self.ctx.version_record(header.lsn)?.replaced else { break };
            let (older, payload) = EntryHeader::split(&replaced)?;
            if older.txn != head.txn {
                return Ok((!older.is_deleted()).then(|| payload.to_vec()));
            }
            header = older;
        }
        Ok(None)
    }

    /// Is the row under `key` of a clustered index this transaction's, live or deleted?
    pub fn owns(&self, gate: &TreeGate, key: &[u8]) -> Result<bool> {
        let mut owns = Ok(false);
        gate.tree().get(key, &mut |current| {
            if let Some(entry) = current {
                owns = EntryHeader::split(entry).map(|(h, _)| self.id() == Some(h.txn));
            }
        })?;
        owns
    }
}
