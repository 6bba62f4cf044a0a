//! The changes of one page that its image in the store lacks, gathered in memory.
//!
//! A frame gathers its changes from its first one after an image. With all of them the frame can go
//! without an image: the page then owes them ([`super::owed`]). A frame whose list is not whole, or
//! is worth an image, is written instead. The front of a list may be in a delta ([`super::delta`]):
//! a page without a frame then owes the delta in its place.

use crate::base::Lsn;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::Arc;

/// In front of each change: its LSN and its length.
pub(super) const HEAD_BYTES: usize = 12;
/// A list grows by this part of itself at least: by less than a vector would, because thousands of frames have
/// lists, and what none uses is missed by the others.
const GROWTH_SHARE: usize = 8;

/// Changes of one page in the order of the log.
#[derive(Clone, Default)]
pub struct Changes {
    /// The first change makes the page from nothing.
    pub(super) creates: bool,
    pub(super) last: Lsn,
    bytes: Vec<u8>,
}

impl Changes {
    /// `creates`: the first change will make the page from nothing.
    pub fn new(creates: bool) -> Changes {
        Changes { creates, ..Changes::default() }
    }

    pub fn push(&mut self, lsn: Lsn, change: &[u8]) {
        self.push_growing(lsn, change, GROWTH_SHARE);
    }

    /// Grows by one `share`th of itself at least, if it has to.
    pub(super) fn push_growing(&mut self, lsn: Lsn, change: &[u8], share: usize) {
        assert!(self.last <= lsn, "changes come in the order of the log");
        self.last = lsn;
        let bytes = HEAD_BYTES + change.len();
        if self.bytes.capacity() - self.bytes.len() < bytes {
            self.bytes.reserve_exact(bytes.max(self.bytes.len() / share));
        }
        self.bytes.extend_from_slice(&lsn.0.to_le_bytes());
        self.bytes.extend_from_slice(&(change.len() as u32).to_le_bytes());
        self.bytes.extend_from_slice(change);
    }

    pub fn iter(&self) -> impl Iterator<Item = (Lsn, &[u8])> {
        let mut rest = &self.bytes[..];
        std::iter::from_fn(move || {
            let (lsn, after) = rest.split_first_chunk::<8>()?;
            let (length, after) = after.split_first_chunk::<4>()?;
            let (change, after) = after.split_at_checked(u32::from_le_bytes(*length) as usize)?;
            rest = after;
            Some((Lsn(u64::from_le_bytes(*lsn)), change))
        })
    }

    pub fn first(&self) -> Option<Lsn> {
        self.iter().next().map(|(lsn, _)| lsn)
    }

    /// Adds those that come after all of these.
    pub(super) fn append(&mut self, later: &Changes) {
        later.iter().for_each(|(lsn, change)| self.push(lsn, change));
    }

    /// Without the first so many bytes of whole changes.
    pub(super) fn without_front(mut self, bytes: usize) -> Changes {
        if bytes > 0 {
            self.creates = false;
            self.bytes.drain(..bytes);
        }
        self.shrink();
        self
    }

    /// Those that an image with this LSN lacks.
    pub fn after(&self, image: Lsn) -> Changes {
        let mut kept = Changes::new(self.creates && self.first().is_some_and(|lsn| lsn > image));
        self.iter()
            .filter(|(lsn, _)| *lsn > image)
            .for_each(|(lsn, change)| kept.push(lsn, change));
        kept.shrink();
        kept
    }

    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub fn len_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// The memory that the list takes.
    pub fn memory_bytes(&self) -> usize {
        self.bytes.capacity()
    }

    /// Gives back the memory that growing took ahead.
    pub fn shrink(&mut self) {
        self.bytes.shrink_to_fit();
    }
}

/// A record of the log that has changes of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delta {
    pub at: Lsn,
    /// Its first and its last change.
    pub first: Lsn,
    pub last: Lsn,
    /// The memory of its changes in a list.
    pub bytes: usize,
}

impl Delta {
    /// The record at `at`, which has these changes. None: they are none.
    pub fn of(at: Lsn, changes: &Changes) -> Option<Delta> {
        let first = changes.first()?;
        Some(Delta { at, first, last: changes.last, bytes: changes.len_bytes() })
    }
}

/// Sums over all frames of a pool and its owed pages.
#[derive(Default)]
pub(super) struct Tally {
    /// Frames that have gathered changes.
    pub gathered: AtomicUsize,
    /// Memory of all changes, those of frames and those that are owed.
    pub change_bytes: AtomicUsize,
}

/// The changes of a frame since its image.
pub(super) struct Gathered {
    /// None: some are missing, so that only an image can hold them.
    changes: Option<Changes>,
    /// The front of the list is in this delta.
    delta: Option<Delta>,
    /// A change was announced and is not in the list yet.
    pending: bool,
    tally: Arc<Tally>,
}

impl Gathered {
    /// Of a page as it is in the store.
    pub fn new(tally: Arc<Tally>) -> Gathered {
        Gathered { changes: Some(Changes::default()), delta: None, pending: false, tally }
    }

    /// A change will be made: until [`Gathered::push`] the list is not whole.
    pub fn announce(&mut self) {
        self.pending = true;
    }

    /// Adds a change, if with it the list takes at most `max_bytes`. One that makes the page from
    /// nothing begins the list anew.
    pub fn push(&mut self, lsn: Lsn, change: &[u8], creates: bool, max_bytes: usize) {
        self.pending = false;
        if creates {
            self.set(Some(Changes::new(creates)));
        }
        let Some(changes) = &mut self.changes else { return };
        if changes.len_bytes() + HEAD_BYTES + change.len() > max_bytes {
            self.lose();
            return;
        }
        let before = changes.memory_bytes();
        if changes.is_empty() {
            self.tally.gathered.fetch_add(1, Relaxed);
        }
        changes.push(lsn, change);
        let grown = changes.memory_bytes() - before;
        if grown > 0 {
            self.tally.change_bytes.fetch_add(grown, Relaxed);
        }
    }

    /// Replaces the list, keeping the tally. No delta has any of the new one.
    fn set(&mut self, changes: Option<Changes>) -> Option<Changes> {
        self.delta = None;
        let count = |changes: &Option<Changes>| {
            changes.as_ref().filter(|c| !c.is_empty()).map_or((0, 0), |c| (1, c.memory_bytes()))
        };
        let ((old, old_bytes), (new, new_bytes)) = (count(&self.changes), count(&changes));
        self.tally.gathered.fetch_add(new, Relaxed);
        self.tally.gathered.fetch_sub(old, Relaxed);
        self.tally.change_bytes.fetch_add(new_bytes, Relaxed);
        self.tally.change_bytes.fetch_sub(old_bytes, Relaxed);
        std::mem::replace(&mut self.changes, changes)
    }

    /// An image holds all changes so far: the list begins anew.
    pub fn restart(&mut self) {
        self.pending = false;
        self.set(Some(Changes::default()));
    }

    /// Some changes are in no list any more: the page needs an image.
    pub fn lose(&mut self) {
        self.set(None);
    }

    /// Takes over what was owed to the page, all of which it now contains. `delta` has the front of it.
    pub fn adopt(&mut self, changes: Changes, delta: Option<Delta>) {
        self.pending = false;
        self.set(Some(changes));
        self.delta = delta;
    }

    /// The list. None: it is not whole, or empty.
    pub fn whole(&self) -> Option<&Changes> {
        self.changes.as_ref().filter(|changes| !self.pending && !changes.is_empty())
    }

    /// The delta that has the front of the list.
    pub fn delta(&self) -> Option<Delta> {
        self.delta
    }

    /// Takes the list of a frame that goes.
    pub fn take(&mut self) -> Option<Changes> {
        self.whole()?;
        self.set(None)
    }
}

impl Drop for Gathered {
    fn drop(&mut self) {
        self.set(None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_takes_little_more_memory_than_its_changes() {
        let mut changes = Changes::new(false);
        for n in 1..=60 {
            changes.push(Lsn(n), &[7; 128]);
            let (memory, wanted) = (changes.memory_bytes(), changes.len_bytes());
            assert!(memory <= wanted + wanted / GROWTH_SHARE, "{memory} for {wanted}");
        }
        assert_eq!(changes.iter().count(), 60);
    }
}
