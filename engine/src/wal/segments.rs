//! The segment files: which exist, and which may go. Where a position of the log lies in them is known by
//! [`Positions`].
//!
//! Life of a file: *spare* (`extend` made it, nothing is in it yet) -> *kept* (the stream reached
//! it) -> *free* (`retire`: every byte lies below what is retained) -> spare again under a higher
//! number (`extend` renames it), or removed (`remove_free`).
//! A file over the log's capacity is soon removed again, and is made without being written.
//!
//! Stale batches in a recycled file carry places of its earlier number and are never valid.

use super::format::{encode_segment_header, BLOCK};
use super::positions::Positions;
use super::stats::{count, value};
use crate::base::{Error, Result};
use crate::cipher::Cipher;
use crate::os::rank::Rank;
use crate::os::sync::{Mutex, Ranked, RwLock};
use crate::os::{AlignedBuf, File, OpenMode, Os, OPEN_FILES};
use std::collections::VecDeque;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

/// Zeros are written in pieces of this size.
const ZERO_BYTES_MAX: u64 = 1 << 20;

/// The part of the capacity by which files may exceed it before free ones are removed. Redo and spares come
/// close to the capacity: a file that is removed at each crossing of it would be filled with zeros at the next one.
const SURPLUS_PART: u64 = 8;

/// What a new segment file holds after its header. It reads as zeros either way.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Fresh {
    /// Zeros that were written.
    Zeros,
    /// Blocks that are only reserved: the file system converts them as they are written.
    Reserved,
}

pub(super) struct Segments {
    os: Arc<dyn Os>,
    dir: PathBuf,
    pub segment_bytes: u64,
    pub positions: Positions,
    set: RwLock<Set>,
    /// One thread makes, renames or removes files at a time.
    maintain: Mutex<()>,
    /// Place after the last file.
    end: AtomicU64,
    created: AtomicU64,
    made_bytes: AtomicU64,
    recycled: AtomicU64,
    removed: AtomicU64,
    pub cipher: Option<Arc<Cipher>>,
}

struct Set {
    /// Number of the first of `files`; the numbers are consecutive.
    first: u64,
    files: VecDeque<Arc<dyn File>>,
    /// No longer needed, lowest number first: so that what stays on disk stays consecutive.
    free: VecDeque<Free>,
}

/// A file that is kept for reuse, and open: its next use needs no new handle.
struct Free {
    number: u64,
    file: Arc<dyn File>,
}

/// Counts for the statistics: kept or spare, free, created, recycled, removed.
pub(super) struct SegmentCounts {
    pub live: u64,
    pub free: u64,
    pub created: u64,
    /// Written to make segments: headers, and the zeros of new ones.
    pub made_bytes: u64,
    pub recycled: u64,
    pub removed: u64,
}

pub(super) fn segment_path(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("{number:012}.log"))
}

/// The number in a segment file's name; `None` for other files.
pub(super) fn segment_number(path: &Path) -> Option<u64> {
    let digits = path.file_name()?.to_str()?.strip_suffix(".log")?;
    let plain = digits.len() == 12 && digits.bytes().all(|b| b.is_ascii_digit());
    plain.then(|| digits.parse().ok())?
}

/// File and offset of a place, which is that of `lsn`, for messages.
pub(super) fn shown(dir: &Path, segment_bytes: u64, place: u64, lsn: u64) -> String {
    let path = segment_path(dir, place / segment_bytes);
    format!("{} offset {} (log position {lsn})", path.display(), BLOCK + place % segment_bytes)
}

impl Segments {
    /// Damage found at or after `lsn` names the file that holds that position.
    pub fn at_place(&self, lsn: u64, error: Error) -> Error {
        match error {
            Error::Corrupt { what, place, page }
                if !place.contains(&*self.dir.to_string_lossy()) =>
            {
                let here =
                    shown(&self.dir, self.segment_bytes, self.positions.place_near(lsn), lsn);
                Error::Corrupt { what, place: format!("{place}, {here}"), page }
            }
            other => other,
        }
    }

    /// `files` have valid headers and consecutive numbers from `first`.
    pub fn new(
        os: Arc<dyn Os>,
        dir: PathBuf,
        segment_bytes: u64,
        first: u64,
        files: VecDeque<Arc<dyn File>>,
    ) -> Segments {
        let numbers = first..first + files.len() as u64;
        let end = numbers.end * segment_bytes;
        let set = Set { first, files, free: VecDeque::new() };
        Segments {
            os,
            dir,
            segment_bytes,
            positions: Positions::new(segment_bytes, numbers),
            set: RwLock::ranked(Rank::SegmentSet, set),
            maintain: Mutex::ranked(Rank::SegmentMaintain, ()),
            end: AtomicU64::new(end),
            created: AtomicU64::new(0),
            made_bytes: AtomicU64::new(0),
            recycled: AtomicU64::new(0),
            removed: AtomicU64::new(0),
            cipher: None,
        }
    }

    /// With what opens encrypted batches.
    pub fn with_cipher(self, cipher: Option<Arc<Cipher>>) -> Segments {
        Segments { cipher, ..self }
    }

    pub fn number_of(&self, place: u64) -> u64 {
        self.positions.number_of(place)
    }

    /// Of the files.
    pub fn numbers(&self) -> Range<u64> {
        let set = self.set.read();
        set.first..set.first + set.files.len() as u64
    }

    /// Place of the first file.
    pub fn begin(&self) -> u64 {
        self.set.read().first * self.segment_bytes
    }

    /// Place after the last file, spares included.
    pub fn end(&self) -> u64 {
        self.end.load(Ordering::Acquire)
    }

    /// File and offset of a place, if its segment is there.
    pub fn locate(&self, place: u64) -> Option<(Arc<dyn File>, u64)> {
        let set = self.set.read();
        let file = set.file(self.number_of(place))?;
        Some((Arc::clone(file), BLOCK + place % self.segment_bytes))
    }

    pub fn sync(&self, number: u64) -> Result<()> {
        let Some((file, _)) = self.locate(number * self.segment_bytes) else {
            unreachable!("an unsynced segment is not retired")
        };
        file.sync()
    }

    /// Reads `buf.len()` bytes of the files; the segments must be there.
    pub fn read(&self, place: u64, buf: &mut [u8]) -> Result<()> {
        assert!(place % BLOCK == 0);
        assert!(buf.len() as u64 % BLOCK == 0);
        let (mut at, mut rest) = (place, buf);
        while !rest.is_empty() {
            let Some((file, offset)) = self.locate(at) else { return Err(Error::NotRetained) };
            let in_segment = self.segment_bytes - at % self.segment_bytes;
            let n = in_segment.min(rest.len() as u64);
            let (part, tail) = rest.split_at_mut(n as usize);
            file.read_at(part, offset)?;
            (at, rest) = (at + n, tail);
        }
        Ok(())
    }

    /// Files without anything from the LSN `low` on become free. Makes no change on disk. A durable batch
    /// stays in any case: without one nobody could tell the position of what follows.
    pub fn retire(&self, low: u64, durable: u64) {
        let keep = self.positions.segment_around(low.min(durable.saturating_sub(1)));
        let mut set = self.set.write();
        while set.first < keep && set.files.len() > 1 {
            let number = set.first;
            let Some(file) = set.files.pop_front() else { break };
            set.free.push_back(Free { number, file });
            set.first += 1;
        }
        // Readers look again after reading: the oldest position must move before a file is reused.
        self.positions.forget_before(set.first);
    }

    /// Makes files until the place `to` is covered. `Full` changes nothing for the worse;
    /// any other error leaves the log unusable.
    pub fn ensure(&self, to: u64, capacity_bytes: u64) -> Result<()> {
        while self.end() < to {
            let _sole = self.maintain.lock();
            if self.end() < to {
                self.extend(capacity_bytes)?;
            }
        }
        Ok(())
    }

    /// Adds one spare, or removes one free file when there are too many, or does nothing. `log_end`: the place
    /// that the log has reached at most.
    pub fn prepare_step(&self, log_end: u64, spares: u64, capacity_bytes: u64) -> Result<bool> {
        let Some(_sole) = self.maintain.try_lock() else { return Ok(false) };
        if self.end() < block_of_segment(log_end, self.segment_bytes) + spares * self.segment_bytes
        {
            self.extend(capacity_bytes)?;
            return Ok(true);
        }
        self.remove_free(capacity_bytes)
    }

    fn extend(&self, capacity_bytes: u64) -> Result<()> {
        let (recyclable, files) = {
            let mut set = self.set.write();
            (set.free.pop_front(), set.files.len() as u64)
        };
        let fresh = match files * self.segment_bytes > capacity_bytes {
            true => Fresh::Reserved,
            false => Fresh::Zeros,
        };
        let number = self.number_of(self.end());
        let made = match recyclable {
            Some(free) => self.recycle(free, number),
            None => self.create(number, fresh),
        };
        let file = made?;
        let mut set = self.set.write();
        assert_eq!(set.first + set.files.len() as u64, number);
        set.files.push_back(file);
        self.positions.push(number);
        self.end.store((number + 1) * self.segment_bytes, Ordering::Release);
        Ok(())
    }

    fn create(&self, number: u64, fresh: Fresh) -> Result<Arc<dyn File>> {
        let path = segment_path(&self.dir, number);
        let made = create_segment(&*self.os, &path, number, self.segment_bytes, fresh)
            .and_then(|file| self.os.sync_dir(&self.dir).map(|()| file));
        match made {
            Ok(file) => {
                count(&self.created, 1);
                count(&self.made_bytes, BLOCK);
                if fresh == Fresh::Zeros {
                    count(&self.made_bytes, self.segment_bytes);
                }
                Ok(file)
            }
            Err(e @ Error::Full { .. }) => {
                // Half a file would only keep the disk full. If it cannot be removed, the next
                // attempt removes it first.
                let _ = self.os.remove(&path);
                Err(no_segment(e))
            }
            Err(e) => Err(e),
        }
    }

    /// The free file under the number `number`. A failure for want of room leaves it free,
    /// perhaps under its new name already.
    fn recycle(&self, free: Free, number: u64) -> Result<Arc<dyn File>> {
        let to = segment_path(&self.dir, number);
        let mut file = free.file;
        let full = |number, file, error| {
            self.set.write().free.push_front(Free { number, file });
            Err(no_segment(error))
        };
        if free.number != number {
            match self.os.rename(file.path(), &to) {
                Ok(()) => file = file.renamed(&to),
                Err(e @ Error::Full { .. }) => return full(free.number, file, e),
                Err(e) => return Err(e),
            }
        }
        let mut header = AlignedBuf::new(BLOCK as usize);
        encode_segment_header(&mut header, number, self.segment_bytes);
        // Here even a full disk is a failed write: the block was there before.
        file.write_durable(&header, 0).map_err(|e| match e {
            Error::Full { .. } => Error::io("write", &to, std::io::ErrorKind::StorageFull.into()),
            other => other,
        })?;
        match self.os.sync_dir(&self.dir) {
            Ok(()) => {
                count(&self.recycled, 1);
                count(&self.made_bytes, BLOCK);
            }
            Err(e @ Error::Full { .. }) => return full(number, file, e),
            Err(e) => return Err(e),
        }
        Ok(file)
    }

    fn remove_free(&self, capacity_bytes: u64) -> Result<bool> {
        let surplus = {
            let mut set = self.set.write();
            let files = (set.files.len() + set.free.len()) as u64;
            let over = files * self.segment_bytes > capacity_bytes + capacity_bytes / SURPLUS_PART;
            over.then(|| set.free.pop_front()).flatten()
        };
        self.remove(surplus)
    }

    /// On a full disk: removes one free file, if after that the stream still has `keep_bytes` to grow.
    /// Answers whether it did.
    pub fn give_back_step(&self, log_end: u64, keep_bytes: u64) -> Result<bool> {
        let Some(_sole) = self.maintain.try_lock() else { return Ok(false) };
        let surplus = {
            let mut set = self.set.write();
            let files = set.free.len() as u64;
            let room = self.end().saturating_sub(log_end) + files * self.segment_bytes;
            let has_surplus = room >= keep_bytes + self.segment_bytes;
            has_surplus.then(|| set.free.pop_front()).flatten()
        };
        self.remove(surplus)
    }

    fn remove(&self, surplus: Option<Free>) -> Result<bool> {
        let Some(Free { file, .. }) = surplus else { return Ok(false) };
        self.os.remove(file.path())?;
        count(&self.removed, 1);
        Ok(true)
    }

    pub fn counts(&self) -> SegmentCounts {
        let set = self.set.read();
        SegmentCounts {
            live: set.files.len() as u64,
            free: set.free.len() as u64,
            created: value(&self.created),
            made_bytes: value(&self.made_bytes),
            recycled: value(&self.recycled),
            removed: value(&self.removed),
        }
    }

    /// (number, path, free) of every file.
    pub fn list(&self) -> Vec<(u64, PathBuf, bool)> {
        let set = self.set.read();
        let live = (set.first..).zip(&set.files);
        let free = set.free.iter().map(|f| (f.number, f.file.path().to_path_buf(), true));
        let mut out: Vec<_> = free.collect();
        out.extend(live.map(|(n, _)| (n, segment_path(&self.dir, n), false)));
        out
    }
}

impl Set {
    fn file(&self, number: u64) -> Option<&Arc<dyn File>> {
        self.files.get(number.checked_sub(self.first)? as usize)
    }
}

/// Why there is no further segment: no room for one on the disk, or in the table of open files.
fn no_segment(error: Error) -> Error {
    match error {
        Error::Full { what: OPEN_FILES } => error,
        _ => Error::Full { what: "log" },
    }
}

/// End of the segment that `place` lies in.
fn block_of_segment(place: u64, segment_bytes: u64) -> u64 {
    (place / segment_bytes + 1) * segment_bytes
}

/// Makes a segment file with header and what `fresh` says, all durable but for its name.
pub(super) fn create_segment(
    os: &dyn Os,
    path: &Path,
    number: u64,
    segment_bytes: u64,
    fresh: Fresh,
) -> Result<Arc<dyn File>> {
    if os.exists(path)? {
        // Left by an attempt that failed: it was never part of the log.
        os.remove(path)?;
    }
    let file = os.open(path, OpenMode { create: true, direct: true })?;
    file.allocate(BLOCK + segment_bytes)?;
    let mut block = AlignedBuf::new(BLOCK as usize);
    encode_segment_header(&mut block, number, segment_bytes);
    file.write_at(&block, 0)?;
    // Written once now, so that no later write makes the file system convert an extent.
    let zeros = AlignedBuf::new(segment_bytes.min(ZERO_BYTES_MAX) as usize);
    let mut at = 0;
    while at < segment_bytes && fresh == Fresh::Zeros {
        let n = (segment_bytes - at).min(zeros.len() as u64);
        file.write_at(&zeros[..n as usize], BLOCK + at)?;
        at += n;
    }
    file.sync()?;
    Ok(file)
}
