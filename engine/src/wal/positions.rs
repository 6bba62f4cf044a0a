//! Where a position of the log lies in its files, as far as batches are known.
//!
//! A *place* is a position in the sequence of all segments; an LSN is one in the log as it is in memory. They are
//! the same until batches are packed ([`Notes`]).
//!
//! Invariants:
//! 1. Segments are known from the first file that is kept to the last one, spares included.
//! 2. An answer is about the log as it was: its segment may be gone, and its file in use again. A reader asks
//!    for [`Positions::oldest`] once more when it has read, which moves before a file is reused.

use super::format::{BatchHeader, STREAM_START};
use super::notes::{BatchNote, Notes};
use super::starts::Starts;
use crate::os::rank::Rank;
use crate::os::sync::{Ranked, RwLock};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

pub(super) struct Positions {
    segment_bytes: u64,
    known: RwLock<KnownBatches>,
    /// First LSN that is kept.
    oldest: AtomicU64,
    /// Place of the next batch. It moves before what is written does, so that what lies between that and the
    /// log's end never seems to need less room than it may take.
    next_place: AtomicU64,
}

struct KnownBatches {
    /// Number of the first segment; the numbers are consecutive.
    first: u64,
    notes: VecDeque<Notes>,
    starts: Starts,
}

impl KnownBatches {
    fn notes(&self, number: u64) -> Option<&Notes> {
        self.notes.get(number.checked_sub(self.first)? as usize)
    }
}

impl Positions {
    pub fn new(segment_bytes: u64, numbers: Range<u64>) -> Positions {
        let begin = (numbers.start * segment_bytes).max(STREAM_START);
        let known = KnownBatches {
            first: numbers.start,
            notes: numbers.map(|number| Notes::new(number * segment_bytes)).collect(),
            starts: Starts::new(segment_bytes),
        };
        Positions {
            segment_bytes,
            known: RwLock::ranked(Rank::LogPositions, known),
            oldest: AtomicU64::new(begin),
            next_place: AtomicU64::new(begin),
        }
    }

    /// The segment of a place.
    pub fn number_of(&self, place: u64) -> u64 {
        place / self.segment_bytes
    }

    /// First kept LSN.
    pub fn oldest(&self) -> u64 {
        self.oldest.load(Ordering::Acquire)
    }

    /// Where the next batch will stand.
    pub fn next_place(&self) -> u64 {
        self.next_place.load(Ordering::Acquire)
    }

    /// To be called before what is written moves over the batches before `place`.
    pub fn set_next_place(&self, place: u64) {
        self.next_place.store(place, Ordering::Release);
    }

    /// The log ends at `place`: what was found there and after it is of an earlier life of the log.
    pub fn begin_at(&self, place: u64) {
        let mut known = self.known.write();
        known.starts.forget_from(place);
        known.notes.iter().for_each(|notes| notes.forget_from(place));
        self.set_next_place(place);
    }

    /// A segment comes after the last one.
    pub fn push(&self, number: u64) {
        let mut known = self.known.write();
        assert_eq!(known.first + known.notes.len() as u64, number);
        known.notes.push_back(Notes::new(number * self.segment_bytes));
    }

    /// Segments below this number are not kept any more.
    pub fn forget_before(&self, number: u64) {
        let mut known = self.known.write();
        while known.first < number && known.notes.pop_front().is_some() {
            known.first += 1;
        }
        known.starts.forget_before(number * self.segment_bytes);
        if let Some(start) = known.starts.first() {
            self.oldest.fetch_max(start.lsn, Ordering::AcqRel);
        }
    }

    /// A segment's first batch.
    pub fn add_start(&self, header: &BatchHeader) {
        let mut known = self.known.write();
        if known.notes(self.number_of(header.place)).is_some() {
            known.starts.add(header);
        }
    }

    /// The starts of all segments are known now.
    pub fn set_oldest(&self) {
        if let Some(start) = self.known.read().starts.first() {
            self.oldest.store(start.lsn, Ordering::Release);
        }
    }

    /// Notes where a batch stands: one that was written, or that a walk has come to.
    pub fn note(&self, header: &BatchHeader) {
        let note = BatchNote::of(header);
        let number = self.number_of(note.place);
        {
            let known = self.known.read();
            let Some(notes) = known.notes(number) else { return };
            notes.add(&note);
            if known.starts.has(number) {
                return;
            }
        }
        self.add_start(header);
    }

    /// The batch around `lsn`, if it is noted.
    pub fn find(&self, lsn: u64) -> Option<BatchNote> {
        let known = self.known.read();
        known.notes(self.number_of(known.starts.around(lsn)?.place))?.around(lsn)
    }

    /// The first batch of the segment in which the batch around `lsn` starts: its place.
    pub fn start_before(&self, lsn: u64) -> Option<u64> {
        self.known.read().starts.around(lsn).map(|start| start.place)
    }

    /// Number of the segment in which the batch around `lsn` starts.
    pub fn segment_around(&self, lsn: u64) -> u64 {
        let known = self.known.read();
        known.starts.around(lsn).map_or(known.first, |start| self.number_of(start.place))
    }

    /// The place of `lsn`, or of something before it.
    pub fn place_near(&self, lsn: u64) -> u64 {
        let known = self.known.read();
        let Some(start) = known.starts.around(lsn) else {
            return known.first * self.segment_bytes;
        };
        let noted = known.notes(self.number_of(start.place)).and_then(|notes| notes.around(lsn));
        noted.map_or(start.place, |note| note.plain_place(lsn).unwrap_or(note.place))
    }

    /// The first LSN that has a place at or after this one. Records of a packed batch have no place of their own:
    /// of a place in it that is the next batch. Bytes that are not written lie as they are in memory.
    pub fn lsn_from(&self, place: u64) -> u64 {
        let known = self.known.read();
        let Some(start) = known.starts.at_place(place) else {
            return self.oldest();
        };
        let notes = known.notes(self.number_of(start.place));
        let noted = notes.and_then(|notes| notes.at_place(place));
        noted.map_or(start.lsn, |note| note.lsn_from(place))
    }
}
