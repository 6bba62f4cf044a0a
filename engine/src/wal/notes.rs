//! Where the batches of a segment stand, and whether they are packed: so that one record is read without a
//! search, and no more is read than its batch.
//!
//! Invariants:
//! 1. A batch is noted when it was written, or when a walk from batch to batch has come to it.
//! 2. The note of a batch is there before [`Wal::read`](super::Wal::read) may look for it in the file.
//! 3. Notes are in the order of places, which is that of LSNs.

use super::format::{block_up, BatchHeader, BLOCK};
use crate::os::rank::Rank;
use crate::os::sync::{Mutex, Ranked};

/// A batch in the files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BatchNote {
    pub lsn: u64,
    /// LSN of the next batch.
    pub next: u64,
    pub place: u64,
    /// Bytes there, with padding.
    pub stored_bytes: u64,
    pub is_packed: bool,
}

impl BatchNote {
    /// The place of a record in it, if it is plain: those of a packed one have none of their own.
    pub fn plain_place(&self, lsn: u64) -> Option<u64> {
        (!self.is_packed).then(|| self.place + (lsn - self.lsn))
    }

    /// The first LSN in it or after it that lies at `place` or later.
    pub fn lsn_from(&self, place: u64) -> u64 {
        let end = self.place + self.stored_bytes;
        match place {
            _ if place <= self.place => self.lsn,
            _ if place >= end => self.next + (place - end),
            _ if self.is_packed => self.next,
            _ => self.lsn + (place - self.place),
        }
    }

    pub fn of(header: &BatchHeader) -> BatchNote {
        BatchNote {
            lsn: header.lsn,
            next: header.next(),
            place: header.place,
            stored_bytes: block_up(header.stored_bytes()),
            is_packed: header.packed.is_some(),
        }
    }
}

/// A note in less memory: there may be one for each 4 KiB of the log.
#[derive(Clone, Copy)]
struct Short {
    lsn: u64,
    /// In the segment, in blocks.
    block: u32,
    /// In memory and in the file.
    blocks: u16,
    stored_blocks: u16,
}

const _: () = assert!(super::format::BATCH_BYTES_MAX / BLOCK < PACKED as u64);
/// Of `stored_blocks`: the batch is packed.
const PACKED: u16 = 1 << 15;

/// Of one segment, of the batches that start in it.
pub(super) struct Notes {
    /// The segment's place.
    begin: u64,
    list: Mutex<Vec<Short>>,
}

impl Notes {
    pub fn new(begin: u64) -> Notes {
        Notes { begin, list: Mutex::ranked(Rank::SegmentNotes, Vec::new()) }
    }

    pub fn add(&self, note: &BatchNote) {
        let packed = if note.is_packed { PACKED } else { 0 };
        let short = Short {
            lsn: note.lsn,
            block: self.block(note.place),
            blocks: ((note.next - note.lsn) / BLOCK) as u16,
            stored_blocks: (note.stored_bytes / BLOCK) as u16 | packed,
        };
        let mut list = self.list.lock();
        let at = list.partition_point(|other| other.block < short.block);
        match list.get_mut(at).filter(|other| other.block == short.block) {
            Some(same) => *same = short,
            None => list.insert(at, short),
        }
    }

    /// The batch around `lsn`.
    pub fn around(&self, lsn: u64) -> Option<BatchNote> {
        self.last(|short| short.lsn <= lsn).filter(|note| lsn < note.next)
    }

    /// The last batch that does not start after `place`.
    pub fn at_place(&self, place: u64) -> Option<BatchNote> {
        let block = self.block(place);
        self.last(|short| short.block <= block)
    }

    fn last(&self, is_before: impl Fn(&Short) -> bool) -> Option<BatchNote> {
        let list = self.list.lock();
        let at = list.partition_point(is_before).checked_sub(1)?;
        list.get(at).map(|short| short.long(self.begin))
    }

    /// Forgets batches at `place` and after it: they are of an earlier life of the log.
    pub fn forget_from(&self, place: u64) {
        let block = self.block(place);
        let mut list = self.list.lock();
        let keep = list.partition_point(|short| short.block < block);
        list.truncate(keep);
    }

    /// Of a place in the segment, or after it; the first one of those before it.
    fn block(&self, place: u64) -> u32 {
        u32::try_from(place.saturating_sub(self.begin) / BLOCK).unwrap_or(u32::MAX)
    }
}

impl Short {
    fn long(&self, begin: u64) -> BatchNote {
        BatchNote {
            lsn: self.lsn,
            next: self.lsn + u64::from(self.blocks) * BLOCK,
            place: begin + u64::from(self.block) * BLOCK,
            stored_bytes: u64::from(self.stored_blocks & !PACKED) * BLOCK,
            is_packed: self.stored_blocks & PACKED != 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_found_by_any_lsn_in_it_and_by_its_place() {
        let notes = Notes::new(100 * BLOCK);
        let batch = |lsn: u64, place: u64, blocks: u64, stored: u64| BatchNote {
            lsn: lsn * BLOCK,
            next: (lsn + blocks) * BLOCK,
            place: place * BLOCK,
            stored_bytes: stored * BLOCK,
            is_packed: stored < blocks,
        };
        let (first, second, third) =
            (batch(300, 101, 4, 2), batch(304, 103, 1, 1), batch(305, 104, 512, 3));
        // A walk may come to them in any order, and more than once.
        for note in [&third, &first, &second, &first] {
            notes.add(note);
        }
        let around = |block: u64| notes.around(block * BLOCK + 17);
        assert_eq!(around(299), None);
        assert_eq!([300, 303].map(around), [Some(first); 2]);
        assert_eq!(around(304), Some(second));
        assert_eq!([305, 816].map(around), [Some(third); 2]);
        assert_eq!(around(817), None);
        let at_place = |block: u64| notes.at_place(block * BLOCK);
        assert_eq!(at_place(100), None, "a batch of the segment before");
        assert_eq!([101, 102, 103].map(at_place), [Some(first), Some(first), Some(second)]);
        notes.forget_from(103 * BLOCK);
        assert_eq!([303, 304, 305].map(around), [Some(first), None, None]);
    }
}
