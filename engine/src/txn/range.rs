//! Interval locks (M16): ranges of key bytes, independent of entries and pages. Pure data.

use super::interrupt::Owner;
use super::lock_queue::Mode;
use crate::os::planted::{self, Bug};
use std::cmp::Ordering;
use std::ops::Bound;
use std::sync::Arc;

pub(super) type KeyBound = Bound<Box<[u8]>>;

pub(super) fn owned(bound: Bound<&[u8]>) -> KeyBound {
    bound.map(Box::from)
}

pub(super) fn borrowed(bound: &KeyBound) -> Bound<&[u8]> {
    match bound {
        Bound::Included(key) => Bound::Included(key),
        Bound::Excluded(key) => Bound::Excluded(key),
        Bound::Unbounded => Bound::Unbounded,
    }
}

pub(super) fn is_empty_range(low: Bound<&[u8]>, high: Bound<&[u8]>) -> bool {
    match (low, high) {
        (Bound::Unbounded, _) | (_, Bound::Unbounded) => false,
        (Bound::Included(low), Bound::Included(high)) => low > high,
        (Bound::Included(low) | Bound::Excluded(low), Bound::Included(h) | Bound::Excluded(h)) => {
            low >= h
        }
    }
}

/// Order of two low bounds: which one begins first.
fn compare_low(a: Bound<&[u8]>, b: Bound<&[u8]>) -> Ordering {
    match (a, b) {
        (Bound::Unbounded, Bound::Unbounded) => Ordering::Equal,
        (Bound::Unbounded, _) => Ordering::Less,
        (_, Bound::Unbounded) => Ordering::Greater,
        (Bound::Included(a), Bound::Excluded(b)) => a.cmp(b).then(Ordering::Less),
        (Bound::Excluded(a), Bound::Included(b)) => a.cmp(b).then(Ordering::Greater),
        (Bound::Included(a) | Bound::Excluded(a), Bound::Included(b) | Bound::Excluded(b)) => {
            a.cmp(b)
        }
    }
}

/// Order of two high bounds: which one ends first.
fn compare_high(a: Bound<&[u8]>, b: Bound<&[u8]>) -> Ordering {
    match (a, b) {
        (Bound::Unbounded, Bound::Unbounded) => Ordering::Equal,
        (Bound::Unbounded, _) => Ordering::Greater,
        (_, Bound::Unbounded) => Ordering::Less,
        (Bound::Included(a), Bound::Excluded(b)) => a.cmp(b).then(Ordering::Greater),
        (Bound::Excluded(a), Bound::Included(b)) => a.cmp(b).then(Ordering::Less),
        (Bound::Included(a) | Bound::Excluded(a), Bound::Included(b) | Bound::Excluded(b)) => {
            a.cmp(b)
        }
    }
}

/// Whether a range that ends with `high` and one that begins with `low` leave no key between.
fn reaches(high: Bound<&[u8]>, low: Bound<&[u8]>) -> bool {
    match (high, low) {
        (Bound::Unbounded, _) | (_, Bound::Unbounded) => true,
        (Bound::Excluded(h), Bound::Excluded(l)) => h > l,
        (Bound::Included(h) | Bound::Excluded(h), Bound::Included(l) | Bound::Excluded(l)) => {
            h >= l
        }
    }
}

pub(super) struct Interval {
    pub(super) owner: Arc<Owner>,
    pub(super) low: KeyBound,
    pub(super) high: KeyBound,
    pub(super) mode: Mode,
}

impl Interval {
    pub(super) fn contains(&self, key: &[u8]) -> bool {
        let above = match &self.low {
            Bound::Included(low) => key >= &**low,
            Bound::Excluded(low) => key > &**low,
            Bound::Unbounded => true,
        };
        above
            && match &self.high {
                Bound::Included(high) => key <= &**high,
                Bound::Excluded(high) => key < &**high,
                Bound::Unbounded => true,
            }
    }

    fn touches(&self, low: Bound<&[u8]>, high: Bound<&[u8]>) -> bool {
        reaches(borrowed(&self.high), low) && reaches(high, borrowed(&self.low))
    }
}

/// All intervals of one tree.
#[derive(Default)]
pub(super) struct Intervals {
    list: Vec<Interval>,
}

impl Intervals {
    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    /// Others' intervals over `key` that keep it from inserts, or from row locks of `mode`.
    pub(super) fn against<'a>(
        &'a self,
        owner: &'a Owner,
        key: &'a [u8],
        row_mode: Option<Mode>,
    ) -> impl Iterator<Item = &'a Arc<Owner>> {
        let in_the_way = move |i: &&Interval| {
            row_mode.is_none_or(|mode| i.mode.conflicts(mode))
                && *i.owner != *owner
                && i.contains(key)
                && !planted::is(Bug::IntervalNotChecked)
        };
        self.list.iter().filter(in_the_way).map(|i| &i.owner)
    }

    /// The strongest mode in which the owner's intervals cover `key`.
    pub(super) fn covering(&self, owner: &Owner, key: &[u8]) -> Option<Mode> {
        let own = self.list.iter().filter(|i| *i.owner == *owner && i.contains(key));
        own.map(|i| i.mode).max()
    }

    /// Adds the range to the owner's intervals of the same mode, joining all that it touches.
    pub(super) fn grow(
        &mut self,
        owner: &Arc<Owner>,
        low: Bound<&[u8]>,
        high: Bound<&[u8]>,
        mode: Mode,
    ) {
        let is_own = |i: &Interval| i.owner == *owner && i.mode == mode;
        let mut joined = Vec::new();
        // Own intervals never touch each other, so what the range touches it touches at once.
        let mut at = 0;
        while at < self.list.len() {
            let interval = &self.list[at];
            if is_own(interval) && interval.touches(low, high) {
                if compare_low(borrowed(&interval.low), low).is_le()
                    && compare_high(borrowed(&interval.high), high).is_ge()
                    && joined.is_empty()
                {
                    return;
                }
                joined.push(self.list.swap_remove(at));
            } else {
                at += 1;
            }
        }
        let (mut low, mut high) = (low, high);
        for interval in &joined {
            if compare_low(borrowed(&interval.low), low).is_lt() {
                low = borrowed(&interval.low);
            }
            if compare_high(borrowed(&interval.high), high).is_gt() {
                high = borrowed(&interval.high);
            }
        }
        let (low, high) = (owned(low), owned(high));
        self.list.push(Interval { owner: Arc::clone(owner), low, high, mode });
    }

    /// Takes the owner's intervals out.
    pub(super) fn remove(&mut self, owner: &Owner) -> Vec<Interval> {
        let mut removed = Vec::new();
        let mut at = 0;
        while at < self.list.len() {
            if *self.list[at].owner == *owner {
                removed.push(self.list.swap_remove(at));
            } else {
                at += 1;
            }
        }
        removed
    }
}

#[cfg(test)]
#[path = "range_tests.rs"]
mod tests;
