//! The log as its users see it: append, admission, retention, statistics.

use super::election::Election;
use super::format::{
    Control, BATCH_HEADER_BYTES, BLOCK, ENCRYPTED_HEAD_BYTES, SEGMENT_BYTES_MAX, SEGMENT_BYTES_MIN,
    STREAM_START,
};
use super::pack::Packer;
use super::ring::{Ring, RingSizes};
use super::segments::{create_segment, segment_path, Fresh, Segments};
use super::stats::{value, Counters, WalStats};
use super::waiter::Waiter;
use super::{Appended, Place, WalOptions};
use crate::base::compress::Compression;
use crate::base::{Error, Lsn, Result};
use crate::cipher::{Cipher, Oldest};
use crate::os::planted::{self, Bug};
use crate::os::rank::Rank;
use crate::os::sync::{Mutex, Ranked};
use crate::os::{AlignedBuf, File, OpenMode, Os, OPEN_FILES};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;

/// Appended and not yet written bytes above which [`Wal::admit`] writes before it admits. A commit waits
/// until all before it is written, and until then it is in memory, beyond that of the cache.
const UNWRITTEN_BYTES_MAX: u64 = 8 << 20;
/// Segments that [`Wal::prepare_step`] keeps ready after the one in use.
const SPARE_SEGMENTS: u64 = 2;
const CHUNK_BYTES_MAX: u64 = 1 << 20;
/// The last part of a segment that even owed work leaves to commits and aborts.
const OWED_SHARE: u64 = 4;
/// The last part that is left when work ends that must not find the log full after its outcome.
const ENDING_SHARE: u64 = 16;

/// Known to the flush leader only.
pub(super) struct Io {
    /// Segments with plain writes that no sync has covered yet.
    pub unsynced: Vec<u64>,
    pub packer: Packer,
}

/// The log. See the room's invariants.
pub struct Wal {
    pub(super) os: Arc<dyn Os>,
    pub(super) dir: PathBuf,
    pub(super) capacity_bytes: AtomicU64,
    pub(super) incarnation: u64,
    pub(super) ring: Ring,
    pub(super) segments: Arc<Segments>,
    tail_keys: (Oldest, Lsn),
    pub(super) election: Mutex<Election<Arc<Waiter>>>,
    pub(super) io: Mutex<Io>,
    pub(super) durable: AtomicU64,
    /// The same, with its place.
    pub(super) durable_end: Mutex<(Lsn, Place)>,
    pub(super) counters: Counters,
    poisoned: AtomicBool,
    cause: Mutex<String>,
}

impl Wal {
    /// Makes a new log in an empty or missing directory.
    pub fn create(os: Arc<dyn Os>, options: WalOptions) -> Result<Arc<Wal>> {
        check_options(&options)?;
        os.create_dir(&options.dir)?;
        if !os.list(&options.dir)?.is_empty() {
            return Err(Error::Refused(format!(
                "cannot make a new log in {}: the directory is not empty",
                options.dir.display()
            )));
        }
        let segment_bytes = options.segment_bytes;
        let path = segment_path(&options.dir, 0);
        let file = create_segment(&*os, &path, 0, segment_bytes, Fresh::Zeros)?;
        // The upper half tells this log from all others, the lower one counts openings.
        let identity = os.entropy() >> 1 & !u64::from(u32::MAX);
        let incarnation = identity | 1;
        let encrypted = encrypts(&options).is_some();
        let control = Control { segment_bytes, incarnation, start: STREAM_START, encrypted };
        create_control(&*os, &options.dir, &control)?;
        let segments =
            Segments::new(Arc::clone(&os), options.dir.clone(), segment_bytes, 0, [file].into())
                .with_cipher(options.cipher.clone());
        let tail_keys = (Oldest::None, Lsn(STREAM_START));
        Ok(Wal::assemble(os, options, control, Arc::new(segments), tail_keys))
    }

    pub(super) fn assemble(
        os: Arc<dyn Os>,
        options: WalOptions,
        control: Control,
        segments: Arc<Segments>,
        tail_keys: (Oldest, Lsn),
    ) -> Arc<Wal> {
        let chunk_bytes = (options.cache_bytes / 8).clamp(2 * BLOCK, CHUNK_BYTES_MAX);
        let geometry = RingSizes {
            chunk_bytes: chunk_bytes.next_multiple_of(BLOCK),
            cache_bytes: options.cache_bytes,
            head_bytes: match encrypts(&options) {
                Some(_) => ENCRYPTED_HEAD_BYTES,
                None => BATCH_HEADER_BYTES,
            },
        };
        let packer = Packer::new(options.compression, encrypts(&options).cloned());
        Arc::new(Wal {
            os,
            dir: options.dir,
            capacity_bytes: AtomicU64::new(options.capacity_bytes),
            incarnation: control.incarnation,
            ring: Ring::new(control.start, geometry),
            tail_keys,
            election: Mutex::ranked(Rank::LogElection, Election::default()),
            io: Mutex::ranked(Rank::LogIo, Io { unsynced: Vec::new(), packer }),
            durable: AtomicU64::new(control.start),
            durable_end: Mutex::ranked(
                Rank::LogDurableEnd,
                (Lsn(control.start), Place(segments.positions.next_place())),
            ),
            segments,
            counters: Counters::default(),
            poisoned: AtomicBool::new(false),
            cause: Mutex::ranked(Rank::LogCause, String::new()),
        })
    }

    /// The oldest key that the start has read the log with, and from where on.
    pub fn tail_keys(&self) -> (Oldest, Lsn) {
        self.tail_keys
    }

    /// Appends one record. Never waits for I/O or room and never fails, so it may be called under
    /// latches; [`Wal::admit`] is where the log pushes back. The payload is the parts in a row,
    /// at most `RECORD_BYTES_MAX` bytes.
    pub fn append(&self, kind: u8, parts: &[&[u8]]) -> Appended {
        self.ring.append(kind, parts)
    }

    /// Asks whether new work may be logged; called before any latch is taken. Waits while very
    /// much is unwritten, and while it has to make a segment itself. `Full` when less than a
    /// segment is left and no other can be made: what is left is for work that is owed
    /// ([`Wal::admit_owed`]), and for commits, aborts and checkpoints, which do not ask.
    pub fn admit(&self) -> Result<()> {
        self.admit_with(self.segments.segment_bytes)
    }

    /// As [`Wal::admit`] for the steps of work that was admitted, and for reverts and purge,
    /// without which no room comes back: leaves only a quarter of a segment.
    pub fn admit_owed(&self) -> Result<()> {
        self.admit_with(self.segments.segment_bytes / OWED_SHARE)
    }

    /// As [`Wal::admit_owed`] for what ends work that was admitted, or gives room back, in a few
    /// records: nothing that was appended so far is left without room.
    pub fn admit_ending(&self) -> Result<()> {
        self.admit_with(self.segments.segment_bytes / ENDING_SHARE)
    }

    fn admit_with(&self, least_bytes: u64) -> Result<()> {
        self.check_poison()?;
        let end = self.ring.end();
        if end.saturating_sub(self.ring.written()) > UNWRITTEN_BYTES_MAX {
            self.write_to(Lsn(end))?;
        }
        let end = self.place_at_most(end);
        let reserve_end = end + self.segments.segment_bytes;
        if self.segments.end() < reserve_end {
            let made =
                self.poison_unless_full(self.segments.ensure(reserve_end, self.capacity_bytes()));
            if self.segments.end() < end + least_bytes {
                return made;
            }
        }
        Ok(())
    }

    /// The place that `lsn` has at most: what is not written yet may not get shorter by packing.
    pub(super) fn place_at_most(&self, lsn: u64) -> u64 {
        // In this order: the place moves first.
        let written = self.ring.written();
        self.segments.positions.next_place() + lsn.saturating_sub(written)
    }

    /// The place that the log's end has at most.
    pub fn end_place(&self) -> Place {
        Place(self.place_at_most(self.ring.end()))
    }

    /// The place of `lsn`, or of something before it.
    pub fn place_of(&self, lsn: Lsn) -> Place {
        match lsn.0 >= self.ring.written() {
            true => Place(self.place_at_most(lsn.0)),
            false => Place(self.segments.positions.place_near(lsn.0)),
        }
    }

    /// Bytes of the files from `from` to the end; bytes that are not written count as they are in memory.
    pub fn file_bytes_from(&self, from: Lsn) -> u64 {
        self.end_place().0.saturating_sub(self.place_of(from).0)
    }

    /// The LSN of something that lies so many bytes of the files before the end, or a little less. Never more:
    /// who wants less redo than there is would wait for ever.
    pub fn lsn_before_end(&self, file_bytes: u64) -> Lsn {
        let end = self.end();
        Lsn(self.segments.positions.lsn_from(self.end_place().0.saturating_sub(file_bytes)))
            .min(end)
    }

    /// Bytes that can be appended without a new file: spare and free segments.
    pub fn room_bytes(&self) -> u64 {
        let free_bytes = self.segments.counts().free * self.segments.segment_bytes;
        self.segments.end().saturating_sub(self.end_place().0) + free_bytes
    }

    pub fn segment_bytes(&self) -> u64 {
        self.segments.segment_bytes
    }

    /// Background work: keeps segments ready so that no flush has to make one, and removes what
    /// is over the capacity. Answers whether it did something.
    pub fn prepare_step(&self) -> Result<bool> {
        self.check_poison()?;
        let end = self.end_place().0;
        let done = self.segments.prepare_step(end, SPARE_SEGMENTS, self.capacity_bytes());
        self.poison_unless_full(done)
    }

    /// On a full disk: gives files back that are kept for reuse, all but `keep_bytes` of room.
    pub fn give_back(&self, keep_bytes: u64) -> Result<()> {
        self.check_poison()?;
        loop {
            let given = self.segments.give_back_step(self.end_place().0, keep_bytes);
            if !self.poison_unless_full(given)? {
                return Ok(());
            }
        }
    }

    /// From the next [`Wal::prepare_step`] on; see [`WalOptions::capacity_bytes`].
    pub fn set_capacity_bytes(&self, bytes: u64) {
        self.capacity_bytes.store(bytes, Ordering::Relaxed);
    }

    pub(super) fn capacity_bytes(&self) -> u64 {
        self.capacity_bytes.load(Ordering::Relaxed)
    }

    /// For the batches that are written from now on; see [`WalOptions::compression`]. Waits for a flush
    /// that is under way.
    pub fn set_compression(&self, how: Compression) {
        self.io.lock().packer.how = how;
    }

    #[cfg(test)]
    pub fn compression(&self) -> Compression {
        self.io.lock().packer.how
    }

    fn poison_unless_full<T>(&self, result: Result<T>) -> Result<T> {
        match result {
            Err(e) if !matches!(e, Error::Full { .. }) || is_planted_failure(&e) => {
                self.poison(&e.to_string());
                Err(e)
            }
            other => other,
        }
    }

    /// Position after the last appended record, and where the next scan may start. Takes no lock, so
    /// it may be asked at every row.
    pub fn end(&self) -> Lsn {
        Lsn(self.ring.end())
    }

    /// Everything below is at least handed to the operating system.
    pub fn written_estimate(&self) -> Lsn {
        Lsn(self.ring.written())
    }

    /// Everything below is durable.
    pub fn durable(&self) -> Lsn {
        Lsn(self.durable.load(Ordering::Acquire))
    }

    /// Everything below is durable, and the place where it ends.
    pub fn durable_end(&self) -> (Lsn, Place) {
        *self.durable_end.lock()
    }

    /// Where the files that `from` needs begin.
    pub fn segment_place(&self, from: Lsn) -> Place {
        Place(self.segments.positions.segment_around(from.0) * self.segments.segment_bytes)
    }

    /// First position that is kept.
    pub fn oldest(&self) -> Lsn {
        Lsn(self.segments.positions.oldest())
    }

    /// Nothing below `low` is needed any more: segments wholly below may be recycled.
    pub fn retain_from(&self, low: Lsn) {
        let durable = self.durable().0;
        self.segments.retire(low.0.min(durable), durable);
    }

    pub fn stats(&self) -> WalStats {
        let (appended_bytes, records, padding_bytes) = self.ring.counts();
        let segments = self.segments.counts();
        let c = &self.counters;
        let end = self.end();
        let spare = (self.segments.end() - 1) / self.segments.segment_bytes;
        let spare =
            spare.saturating_sub(self.segments.number_of(self.segments.positions.next_place()));
        WalStats {
            appended_bytes,
            records,
            padding_bytes,
            flushes: value(&c.flushes),
            flushes_by_one_write: value(&c.flushes_by_one_write),
            flush_waits: value(&c.flush_waits),
            flush_wait_ns: value(&c.flush_wait_ns),
            writes: value(&c.writes),
            written_bytes: value(&c.written_bytes),
            record_bytes: value(&c.record_bytes),
            record_stored_bytes: value(&c.record_stored_bytes),
            made_bytes: segments.made_bytes,
            segments_kept: segments.live.saturating_sub(spare),
            segments_spare: spare.min(segments.live),
            segments_free: segments.free,
            segments_created: segments.created,
            segments_recycled: segments.recycled,
            segments_removed: segments.removed,
            segments_late: value(&c.segments_late),
            cache_reads: value(&c.cache_reads),
            disk_reads: value(&c.disk_reads),
            ahead_reads: value(&c.ahead_reads),
            incarnation: self.incarnation,
            oldest: self.oldest(),
            durable: self.durable(),
            written: Lsn(self.ring.written()),
            end,
        }
    }

    /// Stops all writing for ever. The first cause stays.
    pub fn poison(&self, cause: &str) {
        let mut kept = self.cause.lock();
        if !self.poisoned.load(Ordering::Acquire) {
            *kept = cause.to_string();
            self.poisoned.store(true, Ordering::Release);
        }
        // The leader tells the waiters for a flush: there is one whenever somebody waits.
    }

    pub fn is_poisoned(&self) -> bool {
        self.poisoned.load(Ordering::Acquire)
    }

    pub fn check_poison(&self) -> Result<()> {
        if self.is_poisoned() {
            return Err(Error::Poisoned { cause: self.cause.lock().clone() });
        }
        Ok(())
    }
}

/// The cipher of the batches that are written, if they are encrypted.
pub(super) fn encrypts(options: &WalOptions) -> Option<&Arc<Cipher>> {
    options.cipher.as_ref().filter(|cipher| cipher.encrypts())
}

fn is_planted_failure(error: &Error) -> bool {
    matches!(error, Error::Full { what: OPEN_FILES }) && planted::is(Bug::NoHandlePoisons)
}

pub(super) fn check_options(options: &WalOptions) -> Result<()> {
    let bytes = options.segment_bytes;
    if bytes % BLOCK != 0 || !(SEGMENT_BYTES_MIN..=SEGMENT_BYTES_MAX).contains(&bytes) {
        return Err(Error::Refused(format!(
            "a log segment cannot have {bytes} bytes: it must be a multiple of {BLOCK} from \
             {SEGMENT_BYTES_MIN} to {SEGMENT_BYTES_MAX}"
        )));
    }
    Ok(())
}

pub(super) fn control_path(dir: &Path) -> PathBuf {
    dir.join("control")
}

fn create_control(os: &dyn Os, dir: &Path, control: &Control) -> Result<()> {
    let file = os.open(&control_path(dir), OpenMode { create: true, direct: true })?;
    file.allocate(2 * BLOCK)?;
    write_control(&*file, control)?;
    file.sync()?;
    os.sync_dir(dir)?;
    match dir.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => os.sync_dir(parent),
        _ => Ok(()),
    }
}

/// Writes both copies, one after the other: at every moment one of them is whole.
pub(super) fn write_control(file: &dyn File, control: &Control) -> Result<()> {
    let mut block = AlignedBuf::new(BLOCK as usize);
    control.encode(&mut block);
    assert_eq!(Control::decode(&block)?, *control);
    file.write_durable(&block, 0)?;
    file.write_durable(&block, BLOCK)
}
