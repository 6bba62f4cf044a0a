//! Batches in the files, in order, through a window.

use super::format::{
    block_down, block_up, corrupt, unpack, BatchHeader, BATCH_HEADER_BYTES, BLOCK, STREAM_START,
};
use super::segments::Segments;
use crate::base::Result;
use crate::cipher::{self, KeyName};
use crate::os::AlignedBuf;

/// Read at a time by a scan.
const SCAN_BYTES: u64 = 1 << 20;
/// Read at a time for a single batch of which nothing is known: most fit.
const SINGLE_BYTES: u64 = 64 << 10;

pub(super) struct Scanner<'a> {
    segments: &'a Segments,
    /// Nothing at or after this is looked at.
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

    /// The stream's bytes in `at..at + len`; `None` when they reach beyond the limit.
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

    /// The header at `at`, if there is one; its check is still to be verified.
    fn header(&mut self, at: u64) -> Result<Option<BatchHeader>> {
        Ok(self.fetch(at, BLOCK)?.and_then(|block| BatchHeader::decode(block, at)))
    }

    /// The header of the intact batch at `at`.
    pub fn batch(&mut self, at: u64) -> Result<Option<BatchHeader>> {
        assert!(at % BLOCK == 0);
        let Some(header) = self.header(at)? else { return Ok(None) };
        if header.next() > self.limit {
            return Ok(None);
        }
        let Some(bytes) = self.fetch(at, header.stored_bytes())? else { return Ok(None) };
        Ok(header.verify(bytes).then_some(header))
    }

    /// The bytes of a batch found before as they were in memory, without padding. Nobody looks at
    /// those of its header.
    pub fn bytes(&mut self, header: &BatchHeader) -> Result<&[u8]> {
        let Some(packed) = header.packed else { return self.stored(header) };
        let mut unpacked = std::mem::take(&mut self.unpacked);
        let cipher = self.segments.cipher.clone();
        unpack(header, packed, self.stored(header)?, cipher.as_deref(), &mut unpacked)?;
        self.unpacked = unpacked;
        Ok(&self.unpacked)
    }

    /// The key that a batch found before is encrypted under.
    pub fn key(&mut self, header: &BatchHeader) -> Result<Option<KeyName>> {
        if !header.packed.is_some_and(|packed| packed.is_encrypted) {
            return Ok(None);
        }
        let form = self.stored(header)?.get(BATCH_HEADER_BYTES as usize..).unwrap_or_default();
        Ok(form.first_chunk().map(cipher::name_of))
    }

    /// As [`Scanner::bytes`], for good.
    pub fn into_bytes(mut self, header: &BatchHeader) -> Result<Vec<u8>> {
        self.bytes(header)?;
        Ok(self.unpacked)
    }

    fn stored(&mut self, header: &BatchHeader) -> Result<&[u8]> {
        let found = self.fetch(header.lsn, header.stored_bytes())?;
        found.ok_or_else(|| corrupt("batch went away", header.lsn))
    }

    /// Where the batch starts that holds the record at `from`, or starts at or after `from`
    /// when that is the end of another. `None`: nothing is at `from`, an end of the log.
    pub fn find_batch(&mut self, from: u64) -> Result<Option<u64>> {
        if let Some(start) = self.segments.batch_start(from) {
            if let (SINGLE_BYTES, Some(bytes)) =
                (self.ahead_bytes, self.segments.stored_bytes(start))
            {
                self.ahead_bytes = bytes;
            }
            return Ok(Some(start));
        }
        let walked_to = self.walk(from)?;
        let found = self.segments.batch_start(from);
        match (from % BLOCK == 0, walked_to) {
            _ if found.is_some() => Ok(found),
            (true, None) => Ok(None),
            (_, Some(end)) if end == from => Ok(None),
            (_, Some(_)) => Err(corrupt("gap before a record", from)),
            (false, None) => Err(corrupt("no batch around a record", from)),
        }
    }

    /// Notes the batches of `from`'s segment, once for all that is asked about it; answers where the
    /// last one that does not start after `from` ends, `None` if there is none. A batch that is damaged
    /// is passed over.
    fn walk(&mut self, from: u64) -> Result<Option<u64>> {
        // Never in an earlier segment: invariant 2.
        let segment = from - from % self.segments.segment_bytes;
        let to = self.limit.min(segment + self.segments.segment_bytes);
        let mut at = segment.max(STREAM_START);
        let mut end = None;
        let mut incarnation = 0;
        while at < to {
            match self.batch(at)? {
                Some(header) if header.incarnation >= incarnation => {
                    incarnation = header.incarnation;
                    self.segments.note(&header);
                    if at <= from {
                        end = Some(header.next());
                    }
                    at = header.next();
                }
                _ => at += BLOCK,
            }
        }
        Ok(end)
    }
}
