//! Which blocks of a segment a batch takes, whether it is packed there, and which of the blocks then
//! have it: so that one record is read without a search, and no more is read than that.
//!
//! Invariants:
//! 1. A block is noted for the batch that the log has there now: when the batch was written, or when
//!    a walk from batch to batch has come to it. A mere search does not do: what a packed batch leaves
//!    of its blocks may hold an intact batch of an earlier life of the log, at the same position.
//! 2. The notes of a batch are there before [`Wal::read`](super::Wal::read) may look for it in the file.

use super::format::BLOCK;
use std::sync::atomic::{AtomicU8, Ordering};

const UNKNOWN: u8 = 0;
const PLAIN: u8 = 1;
const PACKED: u8 = 2;
/// With one of the others: the batch's first block.
const START: u8 = 4;
/// With `PACKED`: the batch ends before this block.
const LEFT_OVER: u8 = 8;

/// Of one segment.
pub(super) struct Forms(Box<[AtomicU8]>);

impl Forms {
    pub fn new(segment_bytes: u64) -> Forms {
        Forms((0..segment_bytes / BLOCK).map(|_| AtomicU8::new(UNKNOWN)).collect())
    }

    /// The part of a batch that lies in this segment, as offsets in it. `stored_to`: the file has it up to
    /// there.
    pub fn note(&self, from: u64, to: u64, starts: bool, stored_to: Option<u64>) {
        let form = if stored_to.is_some() { PACKED } else { PLAIN };
        for at in (from..to).step_by(BLOCK as usize) {
            let start = if starts && at == from { START } else { 0 };
            let left_over = if stored_to.is_some_and(|to| at >= to) { LEFT_OVER } else { 0 };
            self.0[(at / BLOCK) as usize].store(form | start | left_over, Ordering::Relaxed);
        }
    }

    fn form(&self, offset: u64) -> u8 {
        self.0.get((offset / BLOCK) as usize).map_or(UNKNOWN, |block| block.load(Ordering::Relaxed))
    }

    pub fn is_plain(&self, offset: u64) -> bool {
        self.form(offset) & !START == PLAIN
    }

    /// Bytes that the file has of the packed batch which starts at this offset, if that is known. Those in
    /// the next segment do not count.
    pub fn stored_bytes(&self, start: u64) -> Option<u64> {
        let is_first = self.form(start) == PACKED | START;
        let rest = (start + BLOCK..).step_by(BLOCK as usize);
        let blocks = rest.take_while(|&at| self.form(at) == PACKED).count() as u64;
        is_first.then_some((1 + blocks) * BLOCK)
    }

    /// Where the batch around an offset starts, if it is known and starts in this segment.
    pub fn start(&self, offset: u64) -> Option<u64> {
        let last = (offset / BLOCK) as usize;
        let forms = self.0[..=last].iter().map(|block| block.load(Ordering::Relaxed)).rev();
        let known = forms.take_while(|&form| form != UNKNOWN);
        let back = known.into_iter().position(|form| form & START != 0)?;
        Some((last - back) as u64 * BLOCK)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_is_found_from_its_own_batch_only() {
        let forms = Forms::new(10 * BLOCK);
        forms.note(0, BLOCK, false, None);
        forms.note(BLOCK, 4 * BLOCK, true, Some(3 * BLOCK));
        forms.note(4 * BLOCK, 5 * BLOCK, true, None);
        assert_eq!(forms.start(0), None, "it starts in the segment before");
        assert_eq!(forms.start(3 * BLOCK + 17), Some(BLOCK));
        assert_eq!(forms.start(4 * BLOCK), Some(4 * BLOCK));
        assert_eq!(forms.start(5 * BLOCK), None);
        let plain = |block: u64| forms.is_plain(block * BLOCK + 9);
        assert_eq!([0, 1, 3, 4, 5].map(plain), [true, false, false, true, false]);
        let stored = |block: u64| forms.stored_bytes(block * BLOCK);
        assert_eq!([0, 1, 2, 3, 4, 5].map(stored), [None, Some(2 * BLOCK), None, None, None, None]);
        forms.note(5 * BLOCK, 10 * BLOCK, true, Some(12 * BLOCK));
        assert_eq!(stored(5), Some(5 * BLOCK), "the rest is in the next segment");
    }
}
