//! Which records of the pages file one read brings: those that lie close to each other.

use super::entry::RECORD_BYTES_MAX;
use crate::base::BLOCK_BYTES;
use std::ops::Range;

/// A read that is planned record by record.
pub struct ReadPlan {
    /// A record that begins at most so far after the end of those before is read with them.
    gap_bytes_max: u64,
    bytes_max: usize,
    /// From the beginning of a block to the end of the last record.
    range: Range<u64>,
}

impl ReadPlan {
    pub fn new(gap_bytes_max: u64, bytes_max: usize) -> ReadPlan {
        assert!(bytes_max % BLOCK_BYTES == 0 && bytes_max >= RECORD_BYTES_MAX + BLOCK_BYTES);
        ReadPlan { gap_bytes_max, bytes_max, range: 0..0 }
    }

    pub fn clear(&mut self) {
        self.range = 0..0;
    }

    /// Takes the record in, unless it lies elsewhere or is longer than records are. In a damaged map records
    /// may overlap.
    pub fn takes(&mut self, place: u64, bytes: usize) -> bool {
        let is_first = self.range.is_empty();
        let start = if is_first { place - place % BLOCK_BYTES as u64 } else { self.range.start };
        let end = self.range.end.max(place + bytes as u64);
        let gap = place.saturating_sub(self.range.end);
        let follows = is_first || place >= start && gap <= self.gap_bytes_max;
        let fits = bytes <= RECORD_BYTES_MAX && end - start <= self.bytes_max as u64;
        if follows && fits {
            self.range = start..end;
        }
        follows && fits
    }

    /// Where in the file the read begins.
    pub fn start(&self) -> u64 {
        self.range.start
    }

    /// Whole blocks: as many bytes are read.
    pub fn bytes(&self) -> usize {
        (self.range.end - self.range.start).next_multiple_of(BLOCK_BYTES as u64) as usize
    }

    /// Where in the bytes of the read a record is.
    pub fn find(&self, place: u64, bytes: usize) -> Option<Range<usize>> {
        let is_in = place >= self.range.start && place + bytes as u64 <= self.range.end;
        let skip = place.saturating_sub(self.range.start) as usize;
        is_in.then(|| skip..skip + bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GAP: u64 = 1000;
    const BYTES: usize = 32 << 10;

    fn begun(place: u64, bytes: usize) -> ReadPlan {
        let mut plan = ReadPlan::new(GAP, BYTES);
        assert!(plan.takes(place, bytes));
        plan
    }

    #[test]
    fn records_are_read_together_that_lie_close() {
        let mut plan = begun(5000, 100);
        assert_eq!((plan.start(), plan.bytes()), (4096, 4096));
        assert!(plan.takes(5100 + GAP, 3000), "the widest gap");
        assert!(!plan.takes(9100 + GAP + 1, 10), "a wider one");
        assert_eq!((plan.start(), plan.bytes()), (4096, 8192));
        assert_eq!(plan.find(5000, 100), Some(904..1004));
        assert_eq!(plan.find(5100 + GAP, 3000), Some(2004..5004));
        for (place, bytes) in [(4000, 100), (5100 + GAP, 3001), (20_000, 1)] {
            assert_eq!(plan.find(place, bytes), None);
        }
        plan.clear();
        assert_eq!(plan.bytes(), 0);
        assert!(plan.takes(100, 10), "after that the first may lie anywhere");
    }

    #[test]
    fn a_read_has_a_bound_and_goes_forward() {
        let mut plan = begun(4096, 16_000);
        assert!(!plan.takes(4095, 10), "before the read");
        assert!(plan.takes(21_000, 4096 + BYTES - 21_000));
        assert_eq!(plan.bytes(), BYTES);
        assert!(!plan.takes(4096 + BYTES as u64, 1), "more than a read has");
        // As a damaged map may have it.
        assert!(plan.takes(21_000, 50));
        assert_eq!(plan.bytes(), BYTES);
        let mut plan = ReadPlan::new(GAP, BYTES);
        assert!(!plan.takes(0, RECORD_BYTES_MAX + 1));
        assert_eq!(plan.bytes(), 0);
    }
}
