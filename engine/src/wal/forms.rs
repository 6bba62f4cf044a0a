//! Which blocks of a segment a batch takes, and whether it is packed there: so that one record is
//! read without a search.
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

/// Of one segment.
pub(super) struct Forms(Box<[AtomicU8]>);

impl Forms {
    pub fn new(segment_bytes: u64) -> Forms {
        Forms((0..segment_bytes / BLOCK).map(|_| AtomicU8::new(UNKNOWN)).collect())
    }

    /// The part of a batch that lies in this segment, as offsets in it.
    pub fn note(&self, from: u64, to: u64, starts: bool, is_packed: bool) {
        let form = if is_packed { PACKED } else { PLAIN };
        let blocks = &self.0[(from / BLOCK) as usize..(to / BLOCK) as usize];
        for (i, block) in blocks.iter().enumerate() {
            let start = if starts && i == 0 { START } else { 0 };
            block.store(form | start, Ordering::Relaxed);
        }
    }

    pub fn is_plain(&self, offset: u64) -> bool {
        self.0[(offset / BLOCK) as usize].load(Ordering::Relaxed) & !START == PLAIN
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
        forms.note(0, BLOCK, false, false);
        forms.note(BLOCK, 4 * BLOCK, true, true);
        forms.note(4 * BLOCK, 5 * BLOCK, true, false);
        assert_eq!(forms.start(0), None, "it starts in the segment before");
        assert_eq!(forms.start(3 * BLOCK + 17), Some(BLOCK));
        assert_eq!(forms.start(4 * BLOCK), Some(4 * BLOCK));
        assert_eq!(forms.start(5 * BLOCK), None);
        let plain = |block: u64| forms.is_plain(block * BLOCK + 9);
        assert_eq!([0, 1, 3, 4, 5].map(plain), [true, false, false, true, false]);
    }
}
