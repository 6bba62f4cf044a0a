//! Batches in the files, in order, through a window.

use super::format::{
    block_down, block_up, corrupt, unpack, BatchHeader, BATCH_BYTES_MAX, BLOCK, STREAM_START,
};
use super::notes::BatchNote;
use super::segments::Segments;
use crate::base::{Error, Result};
use crate::cipher::{self, KeyName};
use crate::os::AlignedBuf;

/// Read at a time by a scan.
const SCAN_BYTES: u64 = 1 << 20;
/// Read at a time for a single batch of which nothing is known: most fit.
const SINGLE_BYTES: u64 = 64 << 10;

pub(super) struct Scanner<'a> {
    segments: &'a Segments,
    /// Nothing at or after this place is looked at.
    limit: u64,
    ahead_bytes: u64,
    window: AlignedBuf,
    window_at: u64,
    window_bytes: u64,
    /// The packed batch that was looked at last, as it was in memory.
    unpacked: Vec<u8>,
}

impl<'a> Scanner<'a> {
    /// For many batches, one after the other.
    pub fn new(segments: &'a Segments, limit: u64) -> Self {
        assert!(limit % BLOCK == 0);
        Scanner {
            segments,
            limit,
            ahead_bytes: SCAN_BYTES,
            window: AlignedBuf::new(BLOCK as usize),
            window_at: 0,
            window_bytes: 0,
            unpacked: Vec::new(),
        }
    }

    /// For one batch.
    pub fn single(segments: &'a Segments, limit: u64) -> Self {
        Scanner { ahead_bytes: SINGLE_BYTES, ..Scanner::new(segments, limit) }
    }

    /// Reads nothing ahead.
    pub fn sparing(segments: &'a Segments, limit: u64) -> Self {
        Scanner { ahead_bytes: BLOCK, ..Scanner::new(segments, limit) }
    }

    /// The files' bytes in `at..at + len`; `None` when they reach beyond the limit.
    fn fetch(&mut self, at: u64, len: u64) -> Result<Option<&[u8]>> {
        if at + len > self.limit {
            return Ok(None);
        }
        let inside = at >= self.window_at && at + len <= self.window_at + self.window_bytes;
        if !inside {
            let start = block_down(at);
            let need = block_up(at + len) - start;
            let n = need.max(self.ahead_bytes).min(self.limit - start);
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

    /// The header at the place `at`, if there is one; its check is still to be verified.
    fn header(&mut self, at: u64) -> Result<Option<BatchHeader>> {
        Ok(self.fetch(at, BLOCK)?.and_then(|block| BatchHeader::decode(block, at)))
    }

    /// The header of the intact batch at the place `at`.
    pub fn batch(&mut self, at: u64) -> Result<Option<BatchHeader>> {
        assert!(at % BLOCK == 0);
        let Some(header) = self.header(at)? else { return Ok(None) };
        if header.next_place() > self.limit {
            return Ok(None);
        }
        let Some(bytes) = self.fetch(at, header.stored_bytes())? else { return Ok(None) };
        Ok(header.verify(bytes).then_some(header))
    }

    /// The bytes of a batch found before as they were in memory, without padding. Nobody looks at
    /// those of its header.
    pub fn bytes(&mut self, header: &BatchHeader) -> Result<&[u8]> {
        if header.packed.is_none() {
            return self.stored(header);
        }
        let mut unpacked = std::mem::take(&mut self.unpacked);
        unpacked.clear();
        self.add_bytes(header, &mut unpacked)?;
        self.unpacked = unpacked;
        Ok(&self.unpacked)
    }

    /// Adds them to `out`.
    pub fn add_bytes(&mut self, header: &BatchHeader, out: &mut Vec<u8>) -> Result<()> {
        let segments = self.segments;
        let stored = self.stored(header)?;
        match header.packed {
            Some(packed) => unpack(header, packed, stored, segments.cipher.as_deref(), out),
            None => {
                out.extend_from_slice(stored);
                Ok(())
            }
        }
    }

    /// The key that a batch found before is encrypted under.
    pub fn key(&mut self, header: &BatchHeader) -> Result<Option<KeyName>> {
        if !header.packed.is_some_and(|packed| packed.is_encrypted) {
            return Ok(None);
        }
        let form = self.stored(header)?.get(header.header_bytes() as usize..).unwrap_or_default();
        Ok(form.first_chunk().map(cipher::name_of))
    }

    /// As [`Scanner::bytes`], for good.
    pub fn into_bytes(mut self, header: &BatchHeader) -> Result<Vec<u8>> {
        self.bytes(header)?;
        Ok(self.unpacked)
    }

    fn stored(&mut self, header: &BatchHeader) -> Result<&[u8]> {
        let found = self.fetch(header.place, header.stored_bytes())?;
        found.ok_or_else(|| corrupt("batch went away", header.lsn))
    }

    /// The batch that holds the record at `from`, or that starts there.
    pub fn find_batch(&mut self, from: u64) -> Result<Spot> {
        if let Some(note) = self.segments.positions.find(from) {
            if self.ahead_bytes == SINGLE_BYTES {
                self.ahead_bytes = note.stored_bytes;
            }
            return Ok(Spot::Batch(note));
        }
        let walked_to = self.walk(from)?;
        if let Some(note) = self.segments.positions.find(from) {
            return Ok(Spot::Batch(note));
        }
        match walked_to {
            Some((end, place)) if end == from => Ok(Spot::End(place)),
            None if from == STREAM_START => Ok(Spot::End(STREAM_START)),
            Some(_) => Err(corrupt("gap before a record", from)),
            None => Err(corrupt("no batch around a record", from)),
        }
    }

    /// Notes the batches of the segment in which the batch around `from` starts, once for all that is asked
    /// about it; answers where the last one that does not start after `from` ends: LSN and place. None: there
    /// is none. A batch that is damaged is passed over.
    fn walk(&mut self, from: u64) -> Result<Option<(u64, u64)>> {
        let Some(mut at) = self.segments.positions.start_before(from) else { return Ok(None) };
        let to = (self.segments.number_of(at) + 1) * self.segments.segment_bytes;
        let to = self.limit.min(to);
        let mut end = None;
        let mut incarnation = 0;
        while at < to {
            match self.batch(at)? {
                Some(header) if header.incarnation >= incarnation => {
                    incarnation = header.incarnation;
                    self.segments.positions.note(&header);
                    if header.lsn <= from {
                        end = Some((header.next(), header.next_place()));
                    }
                    at = header.next_place();
                }
                _ => at += BLOCK,
            }
        }
        Ok(end)
    }
}

/// Finds the first batch of each segment: for files that hold a log.
pub(super) fn find_starts(segments: &Segments) -> Result<()> {
    for number in segments.numbers() {
        if let Some(header) = first_batch(segments, number)? {
            segments.positions.add_start(&header);
        }
    }
    segments.positions.set_oldest();
    Ok(())
}

fn first_batch(segments: &Segments, number: u64) -> Result<Option<BatchHeader>> {
    let begin = number * segments.segment_bytes;
    // What is before it is the end of a batch that starts earlier.
    let to = begin + segments.segment_bytes.min(BATCH_BYTES_MAX + BLOCK);
    let first = |mut scanner: Scanner<'_>| {
        let places = (begin.max(STREAM_START)..to).step_by(BLOCK as usize);
        places.map(|place| scanner.batch(place)).find_map(Result::transpose).transpose()
    };
    match first(Scanner::single(segments, segments.end())) {
        // What cannot be read may lie after it.
        Err(Error::Io { .. }) => first(Scanner::sparing(segments, segments.end())),
        other => other,
    }
}

/// Where a position of the log lies.
pub(super) enum Spot {
    /// In this batch.
    Batch(BatchNote),
    /// Nothing is there, an end of the log: the place where the next batch would be.
    End(u64),
}
