//! Reading the log: single records from memory or disk, and batches in order.

use super::append::Wal;
use super::format::{
    block_down, block_up, BatchHeader, Frame, BATCH_BYTES_MAX, BATCH_HEADER_BYTES, BLOCK,
    FRAME_HEAD_BYTES_MAX, STREAM_START,
};
use super::segments::Segments;
use super::stats::count;
use super::{Record, RecordRef};
use crate::base::{Error, Lsn, Result};
use crate::os::AlignedBuf;

/// Read for a single record before its length is known: most records fit.
pub(super) const FIRST_READ_BYTES: u64 = 2 * BLOCK;
/// Read ahead by a scan.
const WINDOW_BYTES: u64 = 1 << 20;

pub(super) type Visit<'a> = &'a mut dyn FnMut(Lsn, RecordRef<'_>) -> Result<()>;

fn corrupt(what: &str, lsn: u64) -> Error {
    Error::corrupt(what, format!("log position {lsn}"))
}

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
        let result = self.read_disk(lsn.0);
        // The file may have been given to another segment meanwhile.
        if lsn < self.oldest() {
            return Err(Error::NotRetained);
        }
        result.map_err(|error| self.segments.at_place(lsn.0, error))
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

    fn read_disk(&self, lsn: u64) -> Result<Record> {
        let start = block_down(lsn);
        let to = (start + FIRST_READ_BYTES).min(self.ring.written());
        let mut buf = AlignedBuf::new((to - start) as usize);
        self.segments.read(start, &mut buf)?;
        let skip = (lsn - start) as usize;
        let mut frame = Frame::decode(&buf[skip..], lsn)?;
        let end = lsn + frame.bytes() as u64;
        if end > self.ring.written() {
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
        let mut scanner = Scanner::new(&self.segments, self.ring.written());
        let kept = |e: Error| if from < self.oldest() { Error::NotRetained } else { e };
        let mut at = match scanner.find_batch(from.0).map_err(kept)? {
            Some(at) => at,
            None => return Err(kept(corrupt("no batch", from.0))),
        };
        while at < to {
            let Some(header) = scanner.batch(at).map_err(kept)? else {
                return Err(self.segments.at_place(at, kept(corrupt("batch damaged", at))));
            };
            let body = scanner.bytes(&header).map_err(kept)?;
            if from < self.oldest() {
                return Err(Error::NotRetained);
            }
            visit_records(&header, body, from.0, to, visit)?;
            at = header.next();
        }
        Ok(())
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
    let mut at = BATCH_HEADER_BYTES as usize;
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

/// Reads batches from the files through a window.
pub(super) struct Scanner<'a> {
    segments: &'a Segments,
    /// Nothing at or after this is looked at.
    limit: u64,
    window: AlignedBuf,
    window_at: u64,
    window_bytes: u64,
}

impl<'a> Scanner<'a> {
    pub fn new(segments: &'a Segments, limit: u64) -> Self {
        assert!(limit % BLOCK == 0);
        let window = AlignedBuf::new(BLOCK as usize);
        Scanner { segments, limit, window, window_at: 0, window_bytes: 0 }
    }

    /// The stream's bytes in `at..at + len`; `None` when they reach beyond the limit.
    fn fetch(&mut self, at: u64, len: u64) -> Result<Option<&[u8]>> {
        if at + len > self.limit {
            return Ok(None);
        }
        let inside = at >= self.window_at && at + len <= self.window_at + self.window_bytes;
        if !inside {
            let start = block_down(at);
            let need = block_up(at + len) - start;
            let n = need.max(WINDOW_BYTES).min(self.limit - start);
            if n > self.window.len() as u64 {
                self.window = AlignedBuf::new(n as usize);
            }
            self.window_bytes = 0;
            self.segments.read(start, &mut self.window[..n as usize])?;
            (self.window_at, self.window_bytes) = (start, n);
        }
        let skip = (at - self.window_at) as usize;
        Ok(Some(&self.window[skip..skip + len as usize]))
    }

    /// The header of the intact batch at `at`.
    pub fn batch(&mut self, at: u64) -> Result<Option<BatchHeader>> {
        assert!(at % BLOCK == 0);
        let Some(block) = self.fetch(at, BLOCK)? else { return Ok(None) };
        let Some(header) = BatchHeader::decode(block, at) else { return Ok(None) };
        let Some(bytes) = self.fetch(at, header.length)? else { return Ok(None) };
        Ok(header.verify(bytes).then_some(header))
    }

    /// The bytes of a batch found before, without padding.
    pub fn bytes(&mut self, header: &BatchHeader) -> Result<&[u8]> {
        let found = self.fetch(header.lsn, header.length)?;
        found.ok_or_else(|| corrupt("batch went away", header.lsn))
    }

    /// Where the batch starts that holds the record at `from`, or starts at or after `from`
    /// when that is the end of another. `None`: nothing is at `from`, an end of the log.
    pub fn find_batch(&mut self, from: u64) -> Result<Option<u64>> {
        let boundary = from % BLOCK == 0;
        if boundary && self.batch(from)?.is_some() {
            return Ok(Some(from));
        }
        // Never in an earlier segment: invariant 2.
        let segment = from - from % self.segments.segment_bytes;
        let low = segment.max(STREAM_START).max(from.saturating_sub(BATCH_BYTES_MAX));
        let mut at = block_down(from);
        let window = block_up(low).min(at);
        self.fetch(window, (at + BLOCK).min(self.limit).saturating_sub(window))?;
        loop {
            if let Some(header) = self.batch(at)? {
                return match from {
                    _ if from < header.next() => Ok(Some(at)),
                    _ if from == header.next() => Ok(None),
                    _ => Err(corrupt("gap before a record", from)),
                };
            }
            if at < low + BLOCK {
                break;
            }
            at -= BLOCK;
        }
        match boundary {
            true => Ok(None),
            false => Err(corrupt("no batch around a record", from)),
        }
    }
}
