//! Reading the log: single records from memory or disk, and batches in order.

use super::append::Wal;
use super::format::{
    block_down, block_up, corrupt, BatchHeader, Frame, BLOCK, FRAME_HEAD_BYTES_MAX,
};
use super::notes::BatchNote;
use super::scanner::{Scanner, Spot};
use super::stats::count;
use super::{Record, RecordRef};
use crate::base::{Error, Lsn, Result};
use crate::os::AlignedBuf;

/// Read for a single record before its length is known: most records fit.
pub(super) const FIRST_READ_BYTES: u64 = 2 * BLOCK;

pub(super) type Visit<'a> = &'a mut dyn FnMut(Lsn, RecordRef<'_>) -> Result<()>;

impl Wal {
    /// The record that starts at `lsn`, if it is kept.
    pub fn read(&self, lsn: Lsn) -> Result<Record> {
        if lsn < self.oldest() {
            return Err(Error::NotRetained);
        }
        if let Some(record) = self.read_memory(lsn)? {
            return Ok(record);
        }
        count(&self.counters.disk_reads, 1);
        let result = match self.unpacked(lsn)? {
            Some(batch) => batch.record(lsn.0),
            None => self.read_plain(lsn.0),
        };
        self.checked_place(lsn, result)
    }

    /// What was read at `lsn`, if that is still kept: the file may have been given to another segment
    /// meanwhile.
    fn checked_place<T>(&self, lsn: Lsn, result: Result<T>) -> Result<T> {
        if lsn < self.oldest() {
            return Err(Error::NotRetained);
        }
        result.map_err(|error| self.segments.at_place(lsn.0, error))
    }

    /// The batch around `lsn`, which has left the memory, if it is packed.
    pub(super) fn unpacked(&self, lsn: Lsn) -> Result<Option<Unpacked>> {
        if self.segments.positions.find(lsn.0).is_some_and(|note| !note.is_packed) {
            return Ok(None);
        }
        let result = self.read_batch(lsn.0);
        self.checked_place(lsn, result)
    }

    fn read_batch(&self, lsn: u64) -> Result<Option<Unpacked>> {
        let mut scanner = Scanner::single(&self.segments, self.segments.positions.next_place());
        let Spot::Batch(BatchNote { place, .. }) = scanner.find_batch(lsn)? else {
            return Err(corrupt("no batch", lsn));
        };
        let Some(header) = scanner.batch(place)? else { return Err(corrupt("batch damaged", lsn)) };
        if header.packed.is_none() {
            return Ok(None);
        }
        let bytes = scanner.into_bytes(&header)?;
        Ok(Some(Unpacked { start: header.lsn, body_at: header.body_at(), bytes }))
    }

    /// The record, if it has not left the memory yet; `lsn` is kept.
    pub(super) fn read_memory(&self, lsn: Lsn) -> Result<Option<Record>> {
        if lsn >= self.end() {
            let error = corrupt("reference past the end", lsn.0);
            return Err(self.segments.at_place(lsn.0, error));
        }
        let found = self.read_cached(lsn.0)?;
        count(&self.counters.cache_reads, u64::from(found.is_some()));
        Ok(found)
    }

    fn read_cached(&self, lsn: u64) -> Result<Option<Record>> {
        let mut head = [0; FRAME_HEAD_BYTES_MAX];
        let Some(n) = self.ring.read(lsn, &mut head)? else { return Ok(None) };
        let frame = Frame::decode(&head[..n], lsn)?;
        let mut payload = vec![0; frame.payload_bytes];
        if !payload.is_empty() {
            match self.ring.read(lsn + frame.head_bytes as u64, &mut payload)? {
                None => return Ok(None),
                Some(n) if n < payload.len() => return Err(corrupt("record too long", lsn)),
                Some(_) => {}
            }
        }
        checked(frame, payload, lsn).map(Some)
    }

    /// From a plain batch, which is noted.
    fn read_plain(&self, lsn: u64) -> Result<Record> {
        let Some(note) = self.segments.positions.find(lsn) else {
            return Err(corrupt("no batch", lsn));
        };
        let Some(at) = note.plain_place(lsn) else { return Err(corrupt("a packed batch", lsn)) };
        let batch_end = note.place + note.stored_bytes;
        let start = block_down(at);
        let to = (start + FIRST_READ_BYTES).min(batch_end);
        let mut buf = AlignedBuf::new((to - start) as usize);
        self.segments.read(start, &mut buf)?;
        let skip = (at - start) as usize;
        let mut frame = Frame::decode(&buf[skip..], lsn)?;
        let end = at + frame.bytes() as u64;
        if end > batch_end {
            return Err(corrupt("record too long", lsn));
        }
        if end > to {
            buf = AlignedBuf::new((block_up(end) - start) as usize);
            self.segments.read(start, &mut buf)?;
            frame = Frame::decode(&buf[skip..], lsn)?;
        }
        let Some(payload) = buf.get(skip + frame.head_bytes..skip + frame.bytes()) else {
            return Err(corrupt("record changed while it was read", lsn));
        };
        checked(frame, payload.to_vec(), lsn)
    }

    /// Visits the records that start in `from..to`; `from` as in [`Wal::recover`].
    pub fn scan(&self, from: Lsn, to: Lsn, visit: Visit<'_>) -> Result<()> {
        let to = to.min(self.end()).0;
        if from < self.oldest() {
            return Err(Error::NotRetained);
        }
        if from.0 >= to {
            return Ok(());
        }
        self.write_to(Lsn(to))?;
        let mut scanner = Scanner::new(&self.segments, self.segments.positions.next_place());
        let kept = |e: Error| if from < self.oldest() { Error::NotRetained } else { e };
        let (mut at, mut place) = match scanner.find_batch(from.0).map_err(kept)? {
            Spot::Batch(note) => (note.lsn, note.place),
            Spot::End(_) => return Err(kept(corrupt("no batch", from.0))),
        };
        while at < to {
            let Some(header) = scanner.batch(place).map_err(kept)?.filter(|h| h.lsn == at) else {
                return Err(self.segments.at_place(at, kept(corrupt("batch damaged", at))));
            };
            let body = scanner.bytes(&header).map_err(kept)?;
            if from < self.oldest() {
                return Err(Error::NotRetained);
            }
            visit_records(&header, body, from.0, to, visit)?;
            (at, place) = (header.next(), header.next_place());
        }
        Ok(())
    }
}

/// A packed batch as it was in memory.
pub(super) struct Unpacked {
    start: u64,
    body_at: u64,
    bytes: Vec<u8>,
}

impl Unpacked {
    pub fn contains(&self, lsn: u64) -> bool {
        (self.start..self.start + self.bytes.len() as u64).contains(&lsn)
    }

    pub fn record(&self, lsn: u64) -> Result<Record> {
        let at = lsn.checked_sub(self.start).filter(|&at| at >= self.body_at);
        let bytes = at.and_then(|at| self.bytes.get(at as usize..));
        let Some(bytes) = bytes else { return Err(corrupt("reference to no record", lsn)) };
        let frame = Frame::decode(bytes, lsn)?;
        match bytes.get(frame.head_bytes..frame.bytes()) {
            Some(payload) => checked(frame, payload.to_vec(), lsn),
            None => Err(corrupt("record too long", lsn)),
        }
    }
}

pub(super) fn checked(frame: Frame, payload: Vec<u8>, lsn: u64) -> Result<Record> {
    if !frame.verify(&payload, lsn) {
        return Err(corrupt("record check", lsn));
    }
    Ok(Record { kind: frame.kind, payload })
}

/// Visits the records of a verified batch that start in `from..to`.
pub(super) fn visit_records(
    header: &BatchHeader,
    batch: &[u8],
    from: u64,
    to: u64,
    visit: Visit<'_>,
) -> Result<()> {
    let mut at = header.body_at() as usize;
    while at < batch.len() {
        let lsn = header.lsn + at as u64;
        let frame = Frame::decode(&batch[at..], lsn)?;
        let payload = batch.get(at + frame.head_bytes..at + frame.bytes());
        let Some(payload) = payload else { return Err(corrupt("record too long", lsn)) };
        if lsn >= from && lsn < to {
            visit(Lsn(lsn), RecordRef { kind: frame.kind, payload })?;
        }
        at += frame.bytes();
    }
    Ok(())
}
