//! The pages file: records packed into chunks, chunks written in large sequential writes.
//!
//! A record is in exactly one of three places, and moves through them in this order: the open
//! chunk of a stream (under the stream's lock), a sealed chunk in the tail (shared, immutable),
//! the file. A reader that looks in the same order cannot miss it.

use super::entry::RECORD_BYTES_MAX;
use super::record::Packed;
use crate::base::{Error, Result, BLOCK_BYTES};
use crate::os::rank::Rank;
use crate::os::sync::{Mutex, MutexGuard, Ranked, RwLock};
use crate::os::{AlignedBuf, File};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::*};
use std::sync::Arc;

/// Records are kept apart by how long they are likely to live. (Lee, Ziegler, Leis: How to Write
/// to SSDs, 2026.)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamKind {
    Fresh = 0,
    Survivors = 1,
}

const STREAMS: usize = 2;
/// Sealed chunks that may wait for a disk that refuses them, before packing refuses too.
const TAIL_CHUNKS_MAX: usize = 2 * STREAMS;
const CHUNK_BYTES_MAX: u64 = 1 << 20;
/// A record touches at most this many blocks, wherever it begins.
const SPAN_BYTES_MAX: usize =
    (RECORD_BYTES_MAX + 2 * (BLOCK_BYTES - 1)) / BLOCK_BYTES * BLOCK_BYTES;
const NOWHERE: u64 = u64::MAX;

struct Chunk {
    bytes: AlignedBuf,
    /// Whole blocks; what lies after the last record is zero.
    len: usize,
}

#[derive(Default)]
pub struct Stream {
    /// The open segment, if any, and where it ends.
    segment: Option<usize>,
    end: u64,
    /// Where the open chunk begins, or the next one will.
    start: u64,
    used: usize,
    chunk: Option<AlignedBuf>,
}

impl Stream {
    pub fn segment(&self) -> Option<usize> {
        self.segment
    }

    pub fn open_segment(&mut self, segment: usize, start: u64, segment_bytes: u64) {
        assert!(self.segment.is_none() && self.chunk.is_none());
        self.segment = Some(segment);
        self.start = start;
        self.end = start + segment_bytes;
    }
}

pub struct PagesFile {
    file: Arc<dyn File>,
    chunk_bytes: u64,
    streams: [Mutex<Stream>; STREAMS],
    /// Where the open chunk of each stream begins: spares readers of other places the lock.
    open_start: [AtomicU64; STREAMS],
    tail: RwLock<BTreeMap<u64, Arc<Chunk>>>,
    /// Held while chunks of the tail are written.
    writing: Mutex<()>,
    written_since_sync: AtomicU64,
    pub written_bytes: AtomicU64,
    /// Of `written_bytes`, what is no record. It counts before it is written.
    pub padding_bytes: AtomicU64,
    pub read_bytes: AtomicU64,
    pub memory_reads: AtomicU64,
}

thread_local! {
    static SPAN: RefCell<AlignedBuf> = RefCell::new(AlignedBuf::new(SPAN_BYTES_MAX));
}

impl PagesFile {
    pub fn new(file: Arc<dyn File>, segment_bytes: u64) -> PagesFile {
        // At least two records, so that not every chunk ends half empty.
        let least = (2 * RECORD_BYTES_MAX).next_multiple_of(BLOCK_BYTES) as u64;
        // At the end of each, half a record is lost on the average.
        let quarter = (segment_bytes / 4).next_multiple_of(BLOCK_BYTES as u64);
        PagesFile {
            file,
            chunk_bytes: quarter.clamp(least, CHUNK_BYTES_MAX),
            streams: std::array::from_fn(|_| Mutex::ranked(Rank::StoreStream, Stream::default())),
            open_start: [AtomicU64::new(NOWHERE), AtomicU64::new(NOWHERE)],
            tail: RwLock::ranked(Rank::StoreTail, BTreeMap::new()),
            writing: Mutex::ranked(Rank::StoreWriting, ()),
            written_since_sync: AtomicU64::new(0),
            written_bytes: AtomicU64::new(0),
            padding_bytes: AtomicU64::new(0),
            read_bytes: AtomicU64::new(0),
            memory_reads: AtomicU64::new(0),
        }
    }

    pub fn file(&self) -> &Arc<dyn File> {
        &self.file
    }

    pub fn stream(&self, kind: StreamKind) -> MutexGuard<'_, Stream> {
        self.streams[kind as usize].lock()
    }

    /// Packs a record into the open segment; None if there is none or it has no room left.
    pub fn push(&self, kind: StreamKind, stream: &mut Stream, record: &Packed) -> Option<u64> {
        stream.segment?;
        let len = record.bytes.len();
        let fits = |s: &Stream| s.used + len <= (s.end - s.start).min(self.chunk_bytes) as usize;
        if stream.chunk.is_some() && !fits(stream) {
            self.seal(kind, stream);
        }
        if !fits(stream) {
            return None;
        }
        let chunk = stream.chunk.get_or_insert_with(|| {
            // Before any map entry can name a place in it.
            self.open_start[kind as usize].store(stream.start, Release);
            AlignedBuf::new(self.chunk_bytes as usize)
        });
        chunk[stream.used..stream.used + len].copy_from_slice(&record.bytes);
        let place = stream.start + stream.used as u64;
        stream.used += len;
        Some(place)
    }

    /// Hands the open chunk to the tail, padded to whole blocks.
    fn seal(&self, kind: StreamKind, stream: &mut Stream) {
        let Some(bytes) = stream.chunk.take() else { return };
        let len = stream.used.next_multiple_of(BLOCK_BYTES);
        assert!(len <= bytes.len());
        assert!(stream.start + len as u64 <= stream.end);
        self.padding_bytes.fetch_add((len - stream.used) as u64, Relaxed);
        // Readers look at the open chunk first, then at the tail.
        self.tail.write().insert(stream.start, Arc::new(Chunk { bytes, len }));
        self.open_start[kind as usize].store(NOWHERE, Release);
        stream.start += len as u64;
        stream.used = 0;
    }

    /// Ends the open segment of a stream.
    pub fn close_segment(&self, kind: StreamKind, stream: &mut Stream) -> Option<usize> {
        self.seal(kind, stream);
        stream.segment.take()
    }

    /// Hands everything packed so far to the tail.
    pub fn seal_all(&self) {
        for kind in [StreamKind::Fresh, StreamKind::Survivors] {
            self.seal(kind, &mut self.stream(kind));
        }
    }

    fn tail_is_empty(&self) -> bool {
        self.tail.read().is_empty()
    }

    /// Whether the disk has refused so much that packing must wait for it.
    pub fn tail_is_long(&self) -> bool {
        self.tail.read().len() >= TAIL_CHUNKS_MAX
    }

    /// Hands all chunks of the tail to the OS. A failed chunk stays readable and is tried again.
    pub fn write_tail(&self) -> Result<()> {
        self.write_chunks(self.writing.lock())
    }

    /// As [`PagesFile::write_tail`], but leaves it to a thread that is writing already.
    pub fn write_tail_if_idle(&self) -> Result<()> {
        if self.tail_is_empty() {
            return Ok(());
        }
        self.writing.try_lock().map_or(Ok(()), |writing| self.write_chunks(writing))
    }

    fn write_chunks(&self, _writing: MutexGuard<'_, ()>) -> Result<()> {
        loop {
            let next = self.tail.read().first_key_value().map(|(&at, c)| (at, Arc::clone(c)));
            let Some((at, chunk)) = next else { return Ok(()) };
            self.file.write_at(&chunk.bytes[..chunk.len], at)?;
            self.written_since_sync.fetch_add(chunk.len as u64, Relaxed);
            self.written_bytes.fetch_add(chunk.len as u64, Relaxed);
            self.tail.write().remove(&at);
        }
    }

    pub fn sync(&self) -> Result<()> {
        let written = self.written_since_sync.load(Relaxed);
        if written > 0 {
            self.file.sync()?;
            self.written_since_sync.fetch_sub(written, Relaxed);
        }
        Ok(())
    }

    /// Gives `use_record` a copy of the bytes `[place, place + len)`, from wherever they are.
    pub fn fetch<R>(
        &self,
        place: u64,
        len: usize,
        use_record: impl FnOnce(&mut [u8]) -> R,
    ) -> Result<R> {
        assert!(len <= RECORD_BYTES_MAX);
        SPAN.with_borrow_mut(|span| {
            if self.copy_from_memory(place, len, span) {
                self.memory_reads.fetch_add(1, Relaxed);
                return Ok(use_record(&mut span[..len]));
            }
            let skip = (place % BLOCK_BYTES as u64) as usize;
            let span = &mut span[..(skip + len).next_multiple_of(BLOCK_BYTES)];
            self.file.read_at(span, place - skip as u64)?;
            self.read_bytes.fetch_add(span.len() as u64, Relaxed);
            Ok(use_record(&mut span[skip..skip + len]))
        })
    }

    /// The bytes of the file from a block's begin on, as they are: what waits in memory is not in them.
    pub fn read_blocks(&self, out: &mut [u8], from: u64) -> Result<()> {
        self.file.read_at(out, from)?;
        self.read_bytes.fetch_add(out.len() as u64, Relaxed);
        Ok(())
    }

    fn copy_from_memory(&self, place: u64, len: usize, out: &mut [u8]) -> bool {
        for (start, stream) in self.open_start.iter().zip(&self.streams) {
            let start = start.load(Acquire);
            if start == NOWHERE || place < start || place - start >= self.chunk_bytes {
                continue;
            }
            let stream = stream.lock();
            if let (Some(chunk), true) = (&stream.chunk, place >= stream.start) {
                let from = (place - stream.start) as usize;
                if from + len <= stream.used {
                    out[..len].copy_from_slice(&chunk[from..from + len]);
                    return true;
                }
            }
        }
        let tail = self.tail.read();
        let Some((&start, chunk)) = tail.range(..=place).next_back() else { return false };
        let from = (place - start) as usize;
        let Some(bytes) = chunk.bytes[..chunk.len].get(from..from + len) else { return false };
        out[..len].copy_from_slice(bytes);
        true
    }

    /// Gives the space beyond `len` back to the file system.
    pub fn cut(&self, len: u64) -> Result<()> {
        self.file.set_len(len)?;
        self.written_since_sync.fetch_add(1, Relaxed);
        Ok(())
    }

    /// Reserves room for `[from, from + len)`, beyond the end or in a hole.
    pub fn reserve(&self, from: u64, len: u64) -> Result<()> {
        if from + len >= super::entry::PLACE_END {
            return Err(Error::Full { what: "page store" });
        }
        self.file.allocate_range(from, len)?;
        // The new length must be made durable with the records in it.
        self.written_since_sync.fetch_add(1, Relaxed);
        Ok(())
    }

    /// Makes `[from, from + len)` a hole; false: the file system cannot.
    pub fn punch(&self, from: u64, len: u64) -> Result<bool> {
        self.file.punch(from, len)
    }
}
