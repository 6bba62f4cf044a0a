//! The log record of a delta: changes of a page that records before it have one by one.
//!
//! ```text
//! tree id varint, page varint
//! (gap to the LSN of the change before varint, length varint, change)*    the first gap is from zero
//! ```

use crate::base::codec::{put_varint, Reader};
use crate::base::{Error, Lsn, PageId, Result, TreeId};
use crate::buffer::{Changes, Delta, DeltaLog};
use crate::wal::Wal;
use std::sync::Arc;

/// Log record kind of a delta.
pub const RECORD_DELTA: u8 = 8;

/// A decoded record.
pub struct DeltaRecord {
    pub tree: TreeId,
    pub page: PageId,
    pub delta: Delta,
    pub changes: Changes,
}

/// Decodes the record at `at`.
pub fn decode_delta(at: Lsn, payload: &[u8]) -> Result<DeltaRecord> {
    let mut r = Reader::new(payload, "delta record");
    let tree = r.varint()?;
    let tree = TreeId(u32::try_from(tree).map_err(|_| r.fail("tree id"))?);
    let page = PageId(r.varint()?);
    let mut changes = Changes::default();
    let mut last = 0;
    while !r.rest().is_empty() {
        let lsn = r.varint()?.checked_add(last).filter(|lsn| (last + 1..at.0).contains(lsn));
        last = lsn.ok_or_else(|| r.fail("LSN of a change"))?;
        changes.push(Lsn(last), r.bytes()?);
    }
    let delta = Delta::of(at, &changes).filter(|_| page != PageId::ZERO);
    let delta = delta.ok_or_else(|| r.fail("no change, or page id zero"))?;
    Ok(DeltaRecord { tree, page, delta, changes })
}

fn encode_delta(tree: TreeId, page: PageId, changes: &Changes) -> Vec<u8> {
    let mut out = Vec::with_capacity(changes.len_bytes());
    put_varint(&mut out, u64::from(tree.0));
    put_varint(&mut out, page.0);
    let mut last = 0;
    for (lsn, change) in changes.iter() {
        put_varint(&mut out, lsn.0 - last);
        put_varint(&mut out, change.len() as u64);
        out.extend_from_slice(change);
        last = lsn.0;
    }
    out
}

/// The log, for the pool.
pub(super) struct LoggedDeltas(pub Arc<Wal>);

impl DeltaLog for LoggedDeltas {
    fn append(&self, tree: TreeId, page: PageId, changes: &Changes) -> Lsn {
        self.0.append(RECORD_DELTA, &[&encode_delta(tree, page, changes)]).lsn
    }

    fn read(&self, page: PageId, at: Lsn) -> Result<Changes> {
        let fail = |what: &str| Error::corrupt(what, format!("log position {at}"));
        let record = match self.0.read(at) {
            Err(Error::NotRetained) => return Err(fail("the log does not have a delta any more")),
            record => record?,
        };
        if record.kind != RECORD_DELTA {
            return Err(fail("another record in place of a delta"));
        }
        let found = decode_delta(at, &record.payload)?;
        if found.page != page {
            return Err(fail("a delta of another page"));
        }
        Ok(found.changes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Changes {
        let mut changes = Changes::default();
        changes.push(Lsn(5), b"one");
        changes.push(Lsn(700), b"");
        changes.push(Lsn(701), &[9; 300]);
        changes
    }

    #[test]
    fn a_delta_round_trips() {
        let payload = encode_delta(TreeId(7), PageId(1 << 40), &sample());
        let found = decode_delta(Lsn(702), &payload).unwrap();
        assert_eq!((found.tree, found.page), (TreeId(7), PageId(1 << 40)));
        assert!(found.changes.iter().eq(sample().iter()));
        let bytes = sample().len_bytes();
        let (at, first, last) = (Lsn(702), Lsn(5), Lsn(701));
        assert_eq!(found.delta, Delta { at, first, last, bytes });
    }

    #[test]
    fn bad_bytes_are_refused() {
        let good = encode_delta(TreeId(7), PageId(3), &sample());
        assert!(decode_delta(Lsn(701), &good).is_err(), "a change from after the record");
        for end in 0..good.len() {
            let cut = decode_delta(Lsn(702), &good[..end]);
            // Between two changes a cut is a shorter delta; the check of the record finds it.
            assert!(cut.is_err() || cut.is_ok_and(|d| d.changes.iter().count() < 3));
        }
        let none = encode_delta(TreeId(7), PageId(3), &Changes::default());
        assert!(decode_delta(Lsn(702), &none).is_err());
        assert!(decode_delta(Lsn(702), &encode_delta(TreeId(7), PageId::ZERO, &sample())).is_err());
        let mut same_lsn = encode_delta(TreeId(7), PageId(3), &Changes::default());
        same_lsn.extend_from_slice(&[0, 0]);
        assert!(decode_delta(Lsn(702), &same_lsn).is_err());
        let mut huge = encode_delta(TreeId(7), PageId(3), &sample());
        huge.extend_from_slice(&[0xff; 9]);
        huge.extend_from_slice(&[1, 0]);
        assert!(decode_delta(Lsn(702), &huge).is_err(), "LSNs overflow");
    }
}
