//! The recent log in memory: reservation, parallel copies, sealing, and the chunks that hold it.
//!
//! Safety argument. A [`Chunk`] owns bytes that several threads write and read through its raw
//! pointer; no reference to a range exists while another thread may write that range:
//! 1. The body of a batch is handed out in disjoint ranges, each once, by [`Ring::reserve`] under
//!    the reservation mutex. Only the thread that got a range writes it, in [`Reservation::copy`],
//!    and then adds its length to the batch's `copied` with release ordering.
//! 2. Header, room for an envelope and padding of a sealed batch are written in [`Leading::finish`] only: it needs
//!    `&mut Leading`, of which one exists at a time (it holds a mutex), and the batch must not be
//!    written yet. [`Leading::pieces`] borrows the `Leading`, so no piece outlives the next finish.
//! 3. Bytes below `written` are final: their batches were finished before it moved over them, and
//!    neither 1 nor 2 touches them again. Loading `written` with acquire ordering shows them.
//! 4. Bytes of an unwritten batch's body are read only after `copied` (acquire) equals the number
//!    of bytes reserved in it: in [`Leading::finish`] and [`Ring::settled_batch`].
//! 5. A chunk gets another position only through `Arc::try_unwrap`: nobody else holds it.

use super::format::{
    block_up, BatchHeader, FrameHead, BATCH_HEADER_BYTES, BATCH_TARGET_BYTES, BLOCK,
    ENCRYPTED_HEAD_BYTES,
};
use super::{Appended, RECORD_KINDS};
use crate::base::{Error, Lsn, Result};
use crate::os::rank::Rank;
use crate::os::sync::{self, Mutex, MutexGuard, Ranked, RwLock};
use crate::os::{AlignedBuf, SIMULATED};
use std::collections::VecDeque;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::Duration;

/// Chunks kept for reuse; more are given back to the allocator.
const POOL_CHUNKS_MAX: usize = 4;
/// How often a reader looks for a quiet moment of the open batch before it seals it.
const SETTLE_TRIES: u32 = 100;

/// The bytes of the stream in `base..base + bytes`.
struct Chunk {
    base: u64,
    bytes: u64,
    start: NonNull<u8>,
    _owner: AlignedBuf,
}

// SAFETY: the pointer is into `_owner`, which is Send; access follows the safety argument above.
unsafe impl Send for Chunk {}
// SAFETY: as above.
unsafe impl Sync for Chunk {}

impl Chunk {
    fn new(base: u64, bytes: u64) -> Chunk {
        let mut owner = AlignedBuf::new(bytes as usize);
        assert_eq!(owner.len() as u64, bytes);
        let start = NonNull::from(&mut owner[..]).cast();
        Chunk { base, bytes, start, _owner: owner }
    }

    fn end(&self) -> u64 {
        self.base + self.bytes
    }

    /// Copies as much of `bytes` as fits to position `at`; answers how much.
    ///
    /// # Safety
    /// Nobody else may access the range meanwhile.
    unsafe fn put(&self, at: u64, bytes: &[u8]) -> usize {
        assert!(at >= self.base);
        assert!(at < self.end());
        let n = bytes.len().min((self.end() - at) as usize);
        // SAFETY: in bounds by the asserts; exclusive by the caller's promise.
        unsafe {
            let to = self.start.as_ptr().add((at - self.base) as usize);
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, n);
        }
        n
    }

    /// The bytes in `range`, which must lie in this chunk.
    ///
    /// # Safety
    /// The range must stay unwritten while the slice lives.
    unsafe fn slice(&self, range: Range<u64>) -> &[u8] {
        assert!(range.start >= self.base);
        assert!(range.end <= self.end());
        assert!(range.start <= range.end);
        let len = (range.end - range.start) as usize;
        // SAFETY: in bounds by the asserts; initialised since the buffer was zeroed.
        unsafe {
            let from = self.start.as_ptr().add((range.start - self.base) as usize);
            std::slice::from_raw_parts(from, len)
        }
    }
}

/// Sizes that shape the stream and its cache.
#[derive(Clone, Copy, Debug)]
pub(super) struct RingSizes {
    pub chunk_bytes: u64,
    pub cache_bytes: u64,
    /// Before the records of a batch: its header, and room for an envelope if batches are encrypted.
    pub head_bytes: u64,
}

/// The copies done in one batch.
#[derive(Default)]
struct Copies {
    copied: AtomicU64,
}

/// A sealed batch.
#[derive(Clone)]
pub(super) struct Sealed {
    pub start: u64,
    pub end: u64,
    head_bytes: u64,
    copies: Arc<Copies>,
}

impl Sealed {
    pub fn next(&self) -> u64 {
        block_up(self.end)
    }

    /// Its records.
    pub fn body_bytes(&self) -> u64 {
        self.end - self.start - self.head_bytes
    }

    /// What its records take in the file.
    pub fn stored_bytes(&self, header: &BatchHeader) -> u64 {
        header.packed.map_or(self.body_bytes(), |packed| packed.bytes - self.head_bytes)
    }
}

struct Reserve {
    head_bytes: u64,
    /// Where the next record starts.
    next: u64,
    /// Where the open batch starts.
    start: u64,
    open: Arc<Copies>,
    /// Sealed and not yet written, in order and without gaps up to `start`.
    sealed: VecDeque<Sealed>,
    /// The chunk of the latest reservation's end.
    tail: Arc<Chunk>,
    appended_bytes: [u64; RECORD_KINDS],
    records: u64,
    padding_bytes: u64,
}

struct Cache {
    /// Consecutive; the last one holds the end of the stream.
    chunks: VecDeque<Arc<Chunk>>,
    /// First position whose bytes are really in the chunks.
    low: u64,
    pool: Vec<Chunk>,
}

pub(super) struct Ring {
    geometry: RingSizes,
    reserve: Mutex<Reserve>,
    cache: RwLock<Cache>,
    written: AtomicU64,
    /// [`Reserve::end`]: stored under the mutex of `reserve`, loaded without it.
    end: AtomicU64,
    leader: Mutex<()>,
}

/// Sole right to write `lsn..end` of the stream, once.
struct Reservation {
    lsn: u64,
    end: u64,
    first: Arc<Chunk>,
    rest: Vec<Arc<Chunk>>,
    copies: Arc<Copies>,
}

impl Reservation {
    fn copy(self, head: &[u8], parts: &[&[u8]]) {
        let mut at = self.lsn;
        let mut chunks = std::iter::once(&self.first).chain(&self.rest);
        let mut chunk = chunks.next();
        for mut bytes in std::iter::once(head).chain(parts.iter().copied()) {
            while let (Some(c), false) = (chunk, bytes.is_empty()) {
                if at == c.end() {
                    chunk = chunks.next();
                    continue;
                }
                // SAFETY: `at..` up to `end` is this reservation's own range (argument 1).
                let n = unsafe { c.put(at, bytes) };
                at += n as u64;
                bytes = &bytes[n..];
            }
        }
        assert_eq!(at, self.end);
        self.copies.copied.fetch_add(self.end - self.lsn, Ordering::Release);
    }
}

impl Ring {
    /// An empty ring whose next batch starts at `start`.
    pub fn new(start: u64, geometry: RingSizes) -> Ring {
        assert!(start % BLOCK == 0);
        assert!(geometry.chunk_bytes % BLOCK == 0);
        let base = start - start % geometry.chunk_bytes;
        let tail = Arc::new(Chunk::new(base, geometry.chunk_bytes));
        let reserve = Reserve {
            head_bytes: geometry.head_bytes,
            next: start + geometry.head_bytes,
            start,
            open: Arc::default(),
            sealed: VecDeque::new(),
            tail: Arc::clone(&tail),
            appended_bytes: [0; RECORD_KINDS],
            records: 0,
            padding_bytes: 0,
        };
        Ring {
            geometry,
            reserve: Mutex::ranked(Rank::RingReserve, reserve),
            cache: RwLock::ranked(
                Rank::RingCache,
                Cache { chunks: [tail].into(), low: start, pool: Vec::new() },
            ),
            written: AtomicU64::new(start),
            end: AtomicU64::new(start),
            leader: Mutex::ranked(Rank::RingLeader, ()),
        }
    }

    pub fn append(&self, kind: u8, parts: &[&[u8]]) -> Appended {
        let (mut head, payload_bytes) = FrameHead::new(kind, parts);
        let reservation = self.reserve(kind, (head.len() + payload_bytes) as u64);
        let appended = Appended { lsn: Lsn(reservation.lsn), end: Lsn(reservation.end) };
        reservation.copy(head.finish(appended.lsn.0), parts);
        appended
    }

    fn reserve(&self, kind: u8, bytes: u64) -> Reservation {
        let mut reserve = self.reserve.lock();
        let r = &mut *reserve;
        let end = r.next + bytes;
        let too_long = end - r.start > BATCH_TARGET_BYTES;
        if !r.is_empty() && too_long {
            r.seal();
        }
        let (lsn, end) = (r.next, r.next + bytes);
        r.next = end;
        let mut first = Arc::clone(&r.tail);
        let mut rest = Vec::new();
        if lsn >= first.end() || end > first.end() {
            (first, rest) = self.chunks_for(lsn, end);
            r.tail = Arc::clone(rest.last().unwrap_or(&first));
        }
        let copies = Arc::clone(&r.open);
        r.appended_bytes[kind as usize] += bytes;
        r.records += 1;
        self.publish_end(r);
        Reservation { lsn, end, first, rest, copies }
    }

    /// The chunks of `from..to` at the end of the stream, new ones where there are none yet.
    fn chunks_for(&self, from: u64, to: u64) -> (Arc<Chunk>, Vec<Arc<Chunk>>) {
        let mut cache = self.cache.write();
        let mut end =
            cache.chunks.back().map_or(from - from % self.geometry.chunk_bytes, |c| c.end());
        while end < to {
            let chunk = match cache.pool.pop() {
                Some(mut chunk) => {
                    chunk.base = end;
                    chunk
                }
                None => Chunk::new(end, self.geometry.chunk_bytes),
            };
            end = chunk.end();
            cache.chunks.push_back(Arc::new(chunk));
        }
        let mut found = cache.chunks_of(from..to).cloned();
        let first = found.next().unwrap_or_else(|| unreachable!("chunks cover the range"));
        (first, found.collect())
    }

    /// Position after the last record; where the next batch will start if none is open. It is exact
    /// and takes no lock: a record that was appended before is below it, and one that is appended
    /// after it is not.
    pub fn end(&self) -> u64 {
        sync::may_switch("end of the log");
        self.end.load(Ordering::Acquire)
    }

    /// With release ordering, so that one that sees this end sees what came before the append.
    fn publish_end(&self, reserve: &Reserve) {
        self.end.store(reserve.end(), Ordering::Release);
    }

    pub fn written(&self) -> u64 {
        self.written.load(Ordering::Acquire)
    }

    /// Whether a batch is waiting to be written ahead of any flush.
    pub fn has_sealed(&self) -> bool {
        !self.reserve.lock().sealed.is_empty()
    }

    /// Seals the open batch, unless it is empty.
    pub fn seal(&self) {
        let mut reserve = self.reserve.lock();
        if !reserve.is_empty() {
            reserve.seal();
            self.publish_end(&reserve);
        }
    }

    /// (bytes by kind, records, padding and batch header bytes)
    pub fn counts(&self) -> ([u64; RECORD_KINDS], u64, u64) {
        let r = self.reserve.lock();
        (r.appended_bytes, r.records, r.padding_bytes)
    }

    pub fn cache_low(&self) -> u64 {
        self.cache.read().low
    }

    /// Waits for nobody: elections happen before. Only the flush leader calls this.
    pub fn lead(&self) -> Leading<'_> {
        Leading { ring: self, _sole: self.leader.lock() }
    }

    /// The range of readable bytes around `lsn`, which is not below the cache.
    fn readable(&self, lsn: u64) -> Result<Range<u64>> {
        let written = self.written();
        if lsn < written {
            return Ok(0..written);
        }
        let body = self.settled_batch(lsn)?;
        if body.contains(&lsn) {
            return Ok(body);
        }
        Err(Error::corrupt("reference to no record", format!("log position {lsn}")))
    }

    /// The body of the unwritten batch around `lsn`, after all copies into it are done.
    fn settled_batch(&self, lsn: u64) -> Result<Range<u64>> {
        for attempt in 0.. {
            let (sealed, quiet) = self.batch_around(lsn);
            let Some(batch) = sealed else {
                return Err(Error::corrupt(
                    "reference past the end",
                    format!("log position {lsn}"),
                ));
            };
            if quiet {
                return Ok(batch.start + batch.head_bytes..batch.end);
            }
            if attempt == SETTLE_TRIES {
                // Ever new appends: a sealed batch gets no more of them.
                self.seal();
            }
            back_off(attempt);
        }
        unreachable!("the loop has no end of its own")
    }

    fn batch_around(&self, lsn: u64) -> (Option<Sealed>, bool) {
        let r = self.reserve.lock();
        let batch = if lsn >= r.start {
            let open = r.open_batch();
            (lsn < r.next).then_some(open)
        } else {
            let at = r.sealed.partition_point(|b| b.start <= lsn);
            // Written meanwhile: the bytes are as settled as can be.
            at.checked_sub(1).and_then(|i| r.sealed.get(i)).cloned()
        };
        let quiet = batch
            .as_ref()
            .is_some_and(|b| b.copies.copied.load(Ordering::Acquire) == b.body_bytes());
        (batch, quiet)
    }

    /// Copies `lsn..` into `out`, at most to the end of what is readable; answers how much.
    /// `None`: the position is below the cache.
    pub fn read(&self, lsn: u64, out: &mut [u8]) -> Result<Option<usize>> {
        if lsn < self.cache.read().low {
            return Ok(None);
        }
        let range = match self.readable(lsn) {
            // A batch can be written between the look at `written` and that at the queue.
            Err(_) if lsn < self.written() => 0..self.written(),
            other => other?,
        };
        let to = range.end.min(lsn + out.len() as u64);
        let chunks: Vec<_> = {
            let cache = self.cache.read();
            if lsn < cache.low {
                return Ok(None);
            }
            cache.chunks_of(lsn..to).cloned().collect()
        };
        let mut done = 0;
        for chunk in chunks {
            let part = lsn.max(chunk.base)..to.min(chunk.end());
            // SAFETY: all of `lsn..to` is final (arguments 3 and 4).
            let bytes = unsafe { chunk.slice(part) };
            out[done..done + bytes.len()].copy_from_slice(bytes);
            done += bytes.len();
        }
        assert_eq!(done as u64, to - lsn);
        Ok(Some(done))
    }
}

impl Reserve {
    fn is_empty(&self) -> bool {
        self.next == self.start + self.head_bytes
    }

    fn end(&self) -> u64 {
        match self.is_empty() {
            true => self.start,
            false => self.next,
        }
    }

    fn open_batch(&self) -> Sealed {
        let copies = Arc::clone(&self.open);
        Sealed { start: self.start, end: self.next, head_bytes: self.head_bytes, copies }
    }

    fn seal(&mut self) {
        assert!(!self.is_empty());
        let sealed = self.open_batch();
        self.open = Arc::default();
        self.start = sealed.next();
        self.next = self.start + self.head_bytes;
        self.padding_bytes += self.start - sealed.end + self.head_bytes;
        self.sealed.push_back(sealed);
    }
}

impl Cache {
    fn chunks_of(&self, range: Range<u64>) -> impl Iterator<Item = &Arc<Chunk>> {
        let skip = self.chunks.partition_point(move |c| c.end() <= range.start);
        self.chunks.iter().skip(skip).take_while(move |c| c.base < range.end)
    }
}

/// Spins a moment, then lets others run: a copy under way takes well under a microsecond
/// unless its thread has lost the processor.
fn back_off(attempt: u32) {
    match attempt {
        0..=15 if !SIMULATED => std::hint::spin_loop(),
        0..=200 => sync::yield_now(),
        _ => sync::sleep(Duration::from_micros(50)),
    }
}

/// What the flush leader may do with the ring.
pub(super) struct Leading<'a> {
    ring: &'a Ring,
    _sole: MutexGuard<'a, ()>,
}

/// Finished bytes that lie in one chunk.
pub(super) struct Piece<'a> {
    pub lsn: u64,
    end: u64,
    chunk: Arc<Chunk>,
    _leading: std::marker::PhantomData<&'a ()>,
}

impl Piece<'_> {
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: made from finished batches only, and no finish while this lives (argument 2).
        unsafe { self.chunk.slice(self.lsn..self.end) }
    }
}

impl Leading<'_> {
    /// All sealed batches that are not written, in order.
    pub fn sealed(&self) -> Vec<Sealed> {
        self.ring.reserve.lock().sealed.iter().cloned().collect()
    }

    /// Waits for the copies into `batch`, then puts its header and padding in place. It will stand at
    /// `place` in the files.
    pub fn finish(&mut self, batch: &Sealed, place: u64, incarnation: u64, durable_before: u64) {
        assert!(batch.start >= self.ring.written());
        let mut attempt = 0;
        while batch.copies.copied.load(Ordering::Acquire) != batch.body_bytes() {
            back_off(attempt);
            attempt += 1;
        }
        let chunks: Vec<_> =
            self.ring.cache.read().chunks_of(batch.start..batch.next()).cloned().collect();
        let (Some(first), Some(last)) = (chunks.first(), chunks.last()) else {
            unreachable!("unwritten bytes are in the cache")
        };
        let room = [0; (ENCRYPTED_HEAD_BYTES - BATCH_HEADER_BYTES) as usize];
        let room = &room[..(batch.head_bytes - BATCH_HEADER_BYTES) as usize];
        if !room.is_empty() {
            // SAFETY: the room for an envelope is the leader's as the header is (argument 2), and lies in
            // the same block.
            let put = unsafe { first.put(batch.start + BATCH_HEADER_BYTES, room) };
            assert_eq!(put, room.len());
        }
        let body = batch.start + BATCH_HEADER_BYTES..batch.end;
        let pieces = chunks.iter().map(|chunk| {
            let part = body.start.max(chunk.base)..body.end.min(chunk.end());
            // SAFETY: the copies are done (argument 4).
            unsafe { chunk.slice(part) }
        });
        let header = BatchHeader {
            lsn: batch.start,
            place,
            is_dense: true,
            incarnation,
            durable_before,
            length: batch.end - batch.start,
            packed: None,
        };
        let header = header.encode(pieces);
        let padding = [0; BLOCK as usize];
        let padding = &padding[..(batch.next() - batch.end) as usize];
        // SAFETY: header and padding of an unwritten batch are the leader's (argument 2); both
        // lie inside one block and so inside one chunk.
        let put = unsafe { first.put(batch.start, &header) };
        assert_eq!(put, header.len());
        if !padding.is_empty() {
            // SAFETY: as above.
            let put = unsafe { last.put(batch.end, padding) };
            assert_eq!(put, padding.len());
        }
    }

    /// The bytes of finished batches in `from..to`, cut at chunk boundaries.
    pub fn pieces(&self, from: u64, to: u64) -> Vec<Piece<'_>> {
        let cache = self.ring.cache.read();
        let piece = |chunk: &Arc<Chunk>| Piece {
            lsn: from.max(chunk.base),
            end: to.min(chunk.end()),
            chunk: Arc::clone(chunk),
            _leading: std::marker::PhantomData,
        };
        cache.chunks_of(from..to).map(piece).collect()
    }

    /// Batches below `lsn` are in the files: their memory may go when the cache is over its size.
    pub fn written(&mut self, lsn: u64) {
        let mut reserve = self.ring.reserve.lock();
        while reserve.sealed.front().is_some_and(|b| b.next() <= lsn) {
            reserve.sealed.pop_front();
        }
        assert!(reserve.sealed.front().map_or(reserve.start, |b| b.start) == lsn);
        // Before the batch can be missed in the queue, see `Ring::read`.
        self.ring.written.store(lsn, Ordering::Release);
        drop(reserve);
        self.trim(lsn);
    }

    fn trim(&mut self, written: u64) {
        let RingSizes { cache_bytes, chunk_bytes, .. } = self.ring.geometry;
        let over = |cache: &Cache| {
            let bytes = cache.chunks.len() as u64 * chunk_bytes;
            bytes > cache_bytes && cache.chunks.front().is_some_and(|c| c.end() <= written)
        };
        if !over(&self.ring.cache.read()) {
            return;
        }
        let mut cache = self.ring.cache.write();
        // The last chunk stays: the reservation holds it as its tail.
        while cache.chunks.len() > 1 && over(&cache) {
            let Some(chunk) = cache.chunks.pop_front() else { break };
            cache.low = cache.low.max(chunk.end());
            if let (true, Ok(chunk)) = (cache.pool.len() < POOL_CHUNKS_MAX, Arc::try_unwrap(chunk))
            {
                cache.pool.push(chunk);
            }
        }
    }
}
