//! Which reads may still look at a place that the map no longer names.
//!
//! Two counters of readers, for the current epoch and the one before it. The epoch moves on only
//! when nobody of the one before is left, so what was retired in epoch `e` is out of every
//! reader's sight once the epoch is `e + 2`. (Epoch-based reclamation: Fraser, 2004.)

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

#[derive(Default)]
pub struct Epochs {
    current: AtomicU64,
    readers: [AtomicU64; 2],
}

/// A read under way.
pub struct Reading<'a> {
    readers: &'a AtomicU64,
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        self.readers.fetch_sub(1, SeqCst);
    }
}

impl Epochs {
    /// Call before looking at the map; drop the guard after the bytes have been read.
    pub fn enter(&self) -> Reading<'_> {
        loop {
            let epoch = self.current.load(SeqCst);
            let readers = &self.readers[(epoch % 2) as usize];
            readers.fetch_add(1, SeqCst);
            let reading = Reading { readers };
            // Publish, then recheck: a move in between may not have seen this reader.
            if self.current.load(SeqCst) == epoch {
                return reading;
            }
        }
    }

    /// The epoch in which something is retired now.
    pub fn now(&self) -> u64 {
        self.current.load(SeqCst)
    }

    /// Whether every read has ended that could see a place retired in `epoch`; moves the epoch on
    /// as far as that is possible without waiting. Callers exclude each other.
    pub fn has_passed(&self, epoch: u64) -> bool {
        while self.now() < epoch + 2 {
            let now = self.now();
            if self.readers[((now + 1) % 2) as usize].load(SeqCst) > 0 {
                return false;
            }
            self.current.store(now + 1, SeqCst);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_holds_back_what_was_retired_under_it() {
        let epochs = Epochs::default();
        let reading = epochs.enter();
        let retired = epochs.now();
        assert!(!epochs.has_passed(retired));
        let later = epochs.enter();
        assert!(!epochs.has_passed(retired));
        drop(reading);
        assert!(epochs.has_passed(retired), "later readers do not matter");
        drop(later);
        assert!(epochs.has_passed(epochs.now()));
    }
}
