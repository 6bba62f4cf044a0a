//! Reading along chains of records: what has left the ring is fetched in large pieces, so that a
//! consumer of the log pays one read per piece, or per packed batch, and not one per record.

use super::append::Wal;
use super::format::{block_down, block_up, Frame, BLOCK};
use super::read::{checked, Unpacked, FIRST_READ_BYTES};
use super::segments::Segments;
use super::stats::count;
use super::Record;
use crate::base::{Error, Lsn, Result};
use crate::os::AlignedBuf;

/// One read of the disk.
const PIECE_BYTES: u64 = 1 << 20;

/// The piece of the log that was read last. A piece is only ever used for positions that are
/// still kept, so what was recycled while it was read is never looked at.
pub struct ReadAhead {
    backward: bool,
    piece: AlignedBuf,
    /// Place of the piece.
    at: u64,
    bytes: u64,
    /// The packed batch that was read last.
    batch: Option<Unpacked>,
}

impl ReadAhead {
    /// For chains from young to old.
    pub fn backward() -> ReadAhead {
        let piece = AlignedBuf::new(BLOCK as usize);
        ReadAhead { backward: true, piece, at: 0, bytes: 0, batch: None }
    }

    /// For short chains, each younger than the one before.
    pub fn forward() -> ReadAhead {
        ReadAhead { backward: false, ..ReadAhead::backward() }
    }

    fn record(&self, segments: &Segments, lsn: u64) -> Result<Option<Record>> {
        if let Some(batch) = self.batch.as_ref().filter(|batch| batch.contains(lsn)) {
            return batch.record(lsn).map(Some);
        }
        let Some(place) = plain_place(segments, lsn) else { return Ok(None) };
        let Some(skip) = place.checked_sub(self.at).filter(|&skip| skip < self.bytes) else {
            return Ok(None);
        };
        let bytes = &self.piece[skip as usize..self.bytes as usize];
        // A frame head that is cut off by the piece's end does not decode.
        let Ok(frame) = Frame::decode(bytes, lsn) else { return Ok(None) };
        match bytes.get(frame.head_bytes..frame.bytes()) {
            Some(payload) => checked(frame, payload.to_vec(), lsn).map(Some),
            None => Ok(None),
        }
    }
}

/// The place of a record in a plain batch, if that is noted.
fn plain_place(segments: &Segments, lsn: u64) -> Option<u64> {
    segments.positions.find(lsn)?.plain_place(lsn)
}

impl Wal {
    /// As [`Wal::read`], with a piece of the log around the record kept for the next call.
    pub fn read_along(&self, lsn: Lsn, ahead: &mut ReadAhead) -> Result<Record> {
        if lsn < self.oldest() {
            return Err(Error::NotRetained);
        }
        if let Some(record) = ahead.record(&self.segments, lsn.0)? {
            return Ok(record);
        }
        if let Some(record) = self.read_memory(lsn)? {
            return Ok(record);
        }
        if let Some(batch) = self.unpacked(lsn)? {
            count(&self.counters.ahead_reads, 1);
            let record = batch.record(lsn.0);
            ahead.batch = Some(batch);
            return record;
        }
        let Some(place) = plain_place(&self.segments, lsn.0) else { return self.read(lsn) };
        let (from, to) = match ahead.backward {
            true => {
                let to = block_up(place + FIRST_READ_BYTES);
                (to.saturating_sub(PIECE_BYTES).max(self.segments.begin()), to)
            }
            false => (block_down(place), block_down(place) + PIECE_BYTES),
        };
        let to = to.min(self.segments.positions.next_place());
        if from <= place && place < to {
            let bytes = to - from;
            if bytes > ahead.piece.len() as u64 {
                ahead.piece = AlignedBuf::new(PIECE_BYTES as usize);
            }
            ahead.bytes = 0;
            // It can fail where the record is not: the log may let go of the piece's beginning at
            // this moment. Then the record is read alone.
            if self.segments.read(from, &mut ahead.piece[..bytes as usize]).is_ok() {
                (ahead.at, ahead.bytes) = (from, bytes);
                count(&self.counters.ahead_reads, 1);
                if lsn < self.oldest() {
                    return Err(Error::NotRetained);
                }
                if let Some(record) = ahead.record(&self.segments, lsn.0)? {
                    return Ok(record);
                }
            }
        }
        self.read(lsn)
    }
}
