//! The first batch of each segment in which one starts: leads from an LSN to the segment that holds it.
//!
//! Invariants:
//! 1. Starts are in the order of places, which is that of LSNs; a segment has one at most.
//! 2. All are batches of the log as it is now: a start of the engine forgets what an earlier life left.

use super::format::BatchHeader;
use std::collections::VecDeque;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SegmentStart {
    pub lsn: u64,
    pub place: u64,
}

pub(super) struct Starts {
    segment_bytes: u64,
    list: VecDeque<SegmentStart>,
}

impl Starts {
    pub fn new(segment_bytes: u64) -> Starts {
        Starts { segment_bytes, list: VecDeque::new() }
    }

    pub fn first(&self) -> Option<SegmentStart> {
        self.list.front().copied()
    }

    /// The last one of which `is_before` holds, which holds of all before it.
    fn last(&self, is_before: impl Fn(&SegmentStart) -> bool) -> Option<SegmentStart> {
        let at = self.list.partition_point(is_before).checked_sub(1)?;
        self.list.get(at).copied()
    }

    /// That of the segment in which the batch around `lsn` starts.
    pub fn around(&self, lsn: u64) -> Option<SegmentStart> {
        self.last(|start| start.lsn <= lsn)
    }

    /// The last one that does not lie after `place`.
    pub fn at_place(&self, place: u64) -> Option<SegmentStart> {
        self.last(|start| start.place <= place)
    }

    pub fn has(&self, number: u64) -> bool {
        let found = self.last(|start| start.place / self.segment_bytes <= number);
        found.is_some_and(|start| start.place / self.segment_bytes == number)
    }

    /// The first batch of a segment that has no start yet.
    pub fn add(&mut self, header: &BatchHeader) {
        if !self.has(header.place / self.segment_bytes) {
            let at = self.list.partition_point(|start| start.place < header.place);
            self.list.insert(at, SegmentStart { lsn: header.lsn, place: header.place });
        }
    }

    pub fn forget_before(&mut self, place: u64) {
        let gone = self.list.partition_point(|start| start.place < place);
        self.list.drain(..gone);
    }

    pub fn forget_from(&mut self, place: u64) {
        let keep = self.list.partition_point(|start| start.place < place);
        self.list.truncate(keep);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(lsn: u64, place: u64) -> BatchHeader {
        let (incarnation, durable_before) = (1, 0);
        BatchHeader {
            lsn,
            place,
            is_dense: true,
            incarnation,
            durable_before,
            length: 50,
            packed: None,
        }
    }

    #[test]
    fn a_segment_is_found_by_any_lsn_after_its_first_batch() {
        let mut starts = Starts::new(100);
        // Segment 3 is the middle of a batch; segment 2 is looked at last.
        for (lsn, place) in [(10, 110), (900, 401), (950, 460), (40, 205)] {
            starts.add(&header(lsn, place));
        }
        let place = |lsn| starts.around(lsn).map(|start| start.place);
        assert_eq!(
            [9, 10, 39, 40, 899, 900, 950, 2000].map(place),
            [None, Some(110), Some(110), Some(205), Some(205), Some(401), Some(401), Some(401)]
        );
        assert_eq!(
            [0, 1, 2, 3, 4, 5].map(|n| starts.has(n)),
            [false, true, true, false, true, false]
        );
        let lsn = |place| starts.at_place(place).map(|start| start.lsn);
        assert_eq!([109, 204, 399, 500].map(lsn), [None, Some(10), Some(40), Some(900)]);
        starts.forget_from(401);
        assert_eq!(starts.around(2000).map(|start| start.place), Some(205));
        starts.forget_before(200);
        assert_eq!(starts.first(), Some(SegmentStart { lsn: 40, place: 205 }));
    }
}
