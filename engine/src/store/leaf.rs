//! A leaf of the page map: the entries of [`LEAF_PAGES`] consecutive page ids. In memory it is
//! whole or only the list of what changed since the map's snapshot was written.

use super::entry::MapEntry;
use crate::os::SIMULATED;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

/// Small in the simulator, so that a small database has many leaves. Else a leaf is about as
/// large as a page: what a miss of the map reads.
pub const LEAF_BITS: u32 = if SIMULATED { 4 } else { 9 };
pub const LEAF_PAGES: usize = 1 << LEAF_BITS;
const WORDS: usize = LEAF_PAGES.div_ceil(64);

/// Memory of a whole leaf.
pub const LEAF_BYTES: usize = std::mem::size_of::<MapLeaf>();

/// A set of pages of one leaf.
#[derive(Clone, Default)]
pub struct Marks {
    bits: [u64; WORDS],
}

impl Marks {
    /// Answers whether it is new.
    pub fn set(&mut self, index: usize) -> bool {
        let bit = 1 << (index % 64);
        let word = &mut self.bits[index / 64];
        let is_new = *word & bit == 0;
        *word |= bit;
        is_new
    }

    pub fn has(&self, index: usize) -> bool {
        self.bits[index / 64] & (1 << (index % 64)) != 0
    }

    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.bits.iter().enumerate().flat_map(|(w, &word)| {
            let mut bits = word;
            std::iter::from_fn(move || {
                let index = (bits != 0).then(|| w * 64 + bits.trailing_zeros() as usize)?;
                bits &= bits - 1;
                Some(index)
            })
        })
    }
}

/// An entry that is not, or not so, in the snapshot. [`MapEntry::NONE`] means removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapChange {
    pub index: u16,
    /// Not yet taken by a checkpoint.
    pub is_new: bool,
    pub entry: MapEntry,
}

pub struct MapLeaf {
    pub entries: [MapEntry; LEAF_PAGES],
    /// Changed since the snapshot was written.
    pub moved: Marks,
    /// Changed since a checkpoint took the changes: a subset of `moved`.
    pub changed: Marks,
    /// Count of threads that need it in memory. It grows only under the map's lock, shared or not.
    pins: AtomicU32,
    referenced: AtomicBool,
}

impl MapLeaf {
    /// The entries of the snapshot with `changes` on top.
    pub fn new(entries: &[(usize, MapEntry)], changes: &[MapChange]) -> Box<MapLeaf> {
        let mut leaf = Box::new(MapLeaf {
            entries: [MapEntry::NONE; LEAF_PAGES],
            moved: Marks::default(),
            changed: Marks::default(),
            pins: AtomicU32::new(0),
            referenced: AtomicBool::new(true),
        });
        for &(index, entry) in entries {
            leaf.entries[index] = entry;
        }
        for change in changes {
            let index = usize::from(change.index);
            leaf.entries[index] = change.entry;
            leaf.moved.set(index);
            if change.is_new {
                leaf.changed.set(index);
            }
        }
        leaf
    }

    pub fn get(&self, index: usize) -> Option<MapEntry> {
        // No write to a shared line unless it says something new.
        if !self.referenced.load(Relaxed) {
            self.referenced.store(true, Relaxed);
        }
        let entry = self.entries[index];
        (!entry.is_none()).then_some(entry)
    }

    /// Its changes alone, to be kept when its entries go: the inverse of [`MapLeaf::new`].
    pub fn changes(&self) -> Vec<MapChange> {
        let count = self.moved.bits.iter().map(|word| word.count_ones() as usize).sum();
        let mut out = Vec::with_capacity(count);
        out.extend(self.moved.iter().map(|index| MapChange {
            index: index as u16,
            is_new: self.changed.has(index),
            entry: self.entries[index],
        }));
        out
    }

    pub fn pages(&self) -> Vec<(usize, MapEntry)> {
        pages_of(&self.entries)
    }

    pub fn pin(&self) {
        self.pins.fetch_add(1, Relaxed);
    }

    pub fn unpin(&self) {
        let before = self.pins.fetch_sub(1, Relaxed);
        assert!(before > 0, "unpinned more often than pinned");
    }

    /// Called with the map's lock held exclusively, so that nobody pins it meanwhile.
    pub fn is_pinned(&self) -> bool {
        self.pins.load(Relaxed) > 0
    }

    /// Takes its second chance away; answers whether it had one.
    pub fn take_reference(&self) -> bool {
        self.referenced.swap(false, Relaxed)
    }
}

pub fn pages_of(entries: &[MapEntry]) -> Vec<(usize, MapEntry)> {
    entries.iter().copied().enumerate().filter(|(_, entry)| !entry.is_none()).collect()
}
