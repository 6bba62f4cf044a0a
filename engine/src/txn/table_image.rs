//! What a checkpoint remembers of the transaction table (M3), and how the log's tail changes it.

use crate::base::codec::{put_u8, put_varint, Reader};
use crate::base::entry::TXN_ID_MAX;
use crate::base::{Lsn, Result, TxnId};

/// States that an image can hold: whatever is not in it is committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImageState {
    Active,
    Prepared,
    Aborted,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageEntry {
    pub id: TxnId,
    pub state: ImageState,
    /// Lower bound of its first record.
    pub first_lsn: Lsn,
}

/// The transaction table at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableImage {
    pub next: TxnId,
    /// No id below is excepted.
    pub horizon: TxnId,
    /// Sorted by id.
    pub exceptions: Vec<ImageEntry>,
    /// A state-changing record was being appended: recovery must scan from here, or lower.
    pub scan_low: Option<Lsn>,
    /// Ids from here on are younger than the image: their records in the tail are news.
    pub tail_from: TxnId,
}

impl TableImage {
    /// The image of a new database.
    pub fn empty() -> TableImage {
        let next = TxnId(1);
        let exceptions = Vec::new();
        TableImage { next, horizon: next, exceptions, scan_low: None, tail_from: next }
    }

    /// A record of `id` was met in the tail; call it in order of LSN. An id older than the image
    /// and not excepted had its outcome before: its records change nothing.
    pub fn saw_record(&mut self, id: TxnId, lsn: Lsn) {
        match self.position(id) {
            Ok(at) => self.exceptions[at].first_lsn = self.exceptions[at].first_lsn.min(lsn),
            Err(at) if id >= self.tail_from => {
                let entry = ImageEntry { id, state: ImageState::Active, first_lsn: lsn };
                self.exceptions.insert(at, entry);
                self.next = self.next.max(TxnId(id.0 + 1));
            }
            Err(_) => {}
        }
    }

    pub fn saw_prepare(&mut self, id: TxnId, lsn: Lsn) {
        self.set(id, lsn, ImageState::Prepared);
    }

    pub fn saw_abort(&mut self, id: TxnId, lsn: Lsn) {
        self.set(id, lsn, ImageState::Aborted);
    }

    /// A commit or a "reverted" record: nothing is left to remember.
    pub fn saw_end(&mut self, id: TxnId, lsn: Lsn) {
        self.saw_record(id, lsn);
        if let Ok(at) = self.position(id) {
            self.exceptions.remove(at);
        }
    }

    fn set(&mut self, id: TxnId, lsn: Lsn, state: ImageState) {
        self.saw_record(id, lsn);
        if let Ok(at) = self.position(id) {
            self.exceptions[at].state = state;
        }
    }

    fn position(&self, id: TxnId) -> std::result::Result<usize, usize> {
        self.exceptions.binary_search_by_key(&id, |e| e.id)
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.next.0);
        put_varint(out, self.horizon.0);
        put_varint(out, self.scan_low.map_or(0, |lsn| lsn.0 + 1));
        put_varint(out, self.exceptions.len() as u64);
        for entry in &self.exceptions {
            put_varint(out, entry.id.0);
            put_u8(out, entry.state as u8);
            put_varint(out, entry.first_lsn.0);
        }
    }

    pub fn decode(r: &mut Reader<'_>) -> Result<TableImage> {
        let next = TxnId(r.varint()?);
        let horizon = TxnId(r.varint()?);
        let scan_low = r.varint()?.checked_sub(1).map(Lsn);
        let count = r.varint()?;
        if horizon > next || next.0 > TXN_ID_MAX.0 + 1 || next == TxnId::ZERO {
            return Err(r.fail("transaction ids out of order"));
        }
        let exceptions = Vec::new();
        let mut image = TableImage { next, horizon, exceptions, scan_low, tail_from: next };
        let mut floor = horizon;
        for _ in 0..count {
            let id = TxnId(r.varint()?);
            if id < floor || id >= next {
                return Err(r.fail("excepted transaction out of order"));
            }
            floor = TxnId(id.0 + 1);
            let state = match r.u8()? {
                0 => ImageState::Active,
                1 => ImageState::Prepared,
                2 => ImageState::Aborted,
                _ => return Err(r.fail("unknown transaction state")),
            };
            image.exceptions.push(ImageEntry { id, state, first_lsn: Lsn(r.varint()?) });
        }
        Ok(image)
    }
}
