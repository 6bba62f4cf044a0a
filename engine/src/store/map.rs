//! The page map: where every page lies, 24 bytes a page, in two levels.
//!
//! Page ids are dense and never reused, so the upper level is a plain array of leaves of
//! [`LEAF_PAGES`] pages each. A leaf also remembers which of its pages changed since the last
//! checkpoint took them; a leaf without pages and without such changes is dropped.

use crate::base::{Lsn, PageId, TreeId};

pub const LEAF_BITS: u32 = 12;
pub const LEAF_PAGES: usize = 1 << LEAF_BITS;
/// Bounds the upper level, also for ids that a caller or a file got wrong (1 PiB of pages).
pub const PAGE_ID_MAX: u64 = (1 << 36) - 1;
const PLACE_BITS: u32 = 48;
/// First offset that an entry cannot name.
pub const PLACE_END: u64 = 1 << PLACE_BITS;

/// Identity and place of a page's newest record. The record must match all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Offset in the low 48 bits, record bytes in the high 16. All zero: no such page.
    packed: u64,
    lsn: u64,
    tree: u32,
    checksum: u32,
}

const _: () = assert!(std::mem::size_of::<Entry>() == 24);

impl Entry {
    pub const NONE: Entry = Entry { packed: 0, lsn: 0, tree: 0, checksum: 0 };

    pub fn new(place: u64, record_bytes: usize, lsn: Lsn, tree: TreeId, checksum: u32) -> Entry {
        assert!(place < PLACE_END);
        assert!(record_bytes > 0 && record_bytes <= usize::from(u16::MAX));
        let packed = place | (record_bytes as u64) << PLACE_BITS;
        Entry { packed, lsn: lsn.0, tree: tree.0, checksum }
    }

    /// The parts as they are persisted: (place and length, LSN, tree, checksum).
    pub fn parts(&self) -> (u64, u64, u32, u32) {
        (self.packed, self.lsn, self.tree, self.checksum)
    }

    /// The inverse of [`Entry::parts`]; any bits are accepted, the loader checks them.
    pub fn from_parts(packed: u64, lsn: u64, tree: u32, checksum: u32) -> Entry {
        Entry { packed, lsn, tree, checksum }
    }

    pub fn is_none(&self) -> bool {
        self.packed == 0
    }

    pub fn place(&self) -> u64 {
        self.packed & (PLACE_END - 1)
    }

    pub fn record_bytes(&self) -> usize {
        (self.packed >> PLACE_BITS) as usize
    }

    pub fn lsn(&self) -> Lsn {
        Lsn(self.lsn)
    }

    pub fn tree(&self) -> TreeId {
        TreeId(self.tree)
    }

    pub fn checksum(&self) -> u32 {
        self.checksum
    }
}

struct Leaf {
    entries: Box<[Entry]>,
    pages: usize,
    /// One bit a page: changed since the last checkpoint took the changes.
    changed: Box<[u64]>,
    changes: usize,
}

impl Leaf {
    fn new() -> Box<Leaf> {
        Box::new(Leaf {
            entries: vec![Entry::NONE; LEAF_PAGES].into_boxed_slice(),
            pages: 0,
            changed: vec![0; LEAF_PAGES / 64].into_boxed_slice(),
            changes: 0,
        })
    }

    fn mark(&mut self, index: usize) {
        let bit = 1 << (index % 64);
        let word = &mut self.changed[index / 64];
        self.changes += usize::from(*word & bit == 0);
        *word |= bit;
    }

    /// Moves the changes of this leaf to `out` in page order.
    fn take_changes(&mut self, first: u64, out: &mut Vec<(PageId, Entry)>) {
        for (w, word) in self.changed.iter_mut().enumerate() {
            let mut bits = std::mem::take(word);
            while bits != 0 {
                let index = w * 64 + bits.trailing_zeros() as usize;
                bits &= bits - 1;
                out.push((PageId(first + index as u64), self.entries[index]));
            }
        }
        self.changes = 0;
    }
}

#[derive(Default)]
pub struct PageMap {
    leaves: Vec<Option<Box<Leaf>>>,
    pages: u64,
}

fn split(page: PageId) -> (usize, usize) {
    ((page.0 >> LEAF_BITS) as usize, (page.0 as usize) & (LEAF_PAGES - 1))
}

impl PageMap {
    pub fn pages(&self) -> u64 {
        self.pages
    }

    pub fn get(&self, page: PageId) -> Option<Entry> {
        let (leaf, index) = split(page);
        let entry = self.leaves.get(leaf)?.as_ref()?.entries[index];
        (!entry.is_none()).then_some(entry)
    }

    fn leaf_mut(&mut self, leaf: usize) -> &mut Leaf {
        assert!(leaf <= (PAGE_ID_MAX >> LEAF_BITS) as usize);
        if leaf >= self.leaves.len() {
            self.leaves.resize_with(leaf + 1, || None);
        }
        self.leaves[leaf].get_or_insert_with(Leaf::new)
    }

    /// Sets an entry ([`Entry::NONE`] removes it) without marking it changed; answers the old one.
    pub fn load(&mut self, page: PageId, entry: Entry) -> Entry {
        let (leaf, index) = split(page);
        let leaf = self.leaf_mut(leaf);
        let old = std::mem::replace(&mut leaf.entries[index], entry);
        let (was, is) = (usize::from(!old.is_none()), usize::from(!entry.is_none()));
        leaf.pages = leaf.pages + is - was;
        self.pages = self.pages + is as u64 - was as u64;
        old
    }

    /// As [`PageMap::load`], and the next checkpoint writes it.
    pub fn set(&mut self, page: PageId, entry: Entry) -> Entry {
        let old = self.load(page, entry);
        self.mark(page);
        old
    }

    /// The next checkpoint writes the entry of `page`, whatever it is then.
    pub fn mark(&mut self, page: PageId) {
        let (leaf, index) = split(page);
        self.leaf_mut(leaf).mark(index);
    }

    /// Takes all changes since the last call, in page order, and drops leaves without pages.
    pub fn take_changes(&mut self) -> Vec<(PageId, Entry)> {
        let mut out = Vec::with_capacity(self.changes());
        for (i, slot) in self.leaves.iter_mut().enumerate() {
            let Some(leaf) = slot else { continue };
            if leaf.changes > 0 {
                leaf.take_changes((i as u64) << LEAF_BITS, &mut out);
            }
            if leaf.pages == 0 {
                *slot = None;
            }
        }
        out
    }

    pub fn changes(&self) -> usize {
        self.leaves.iter().flatten().map(|leaf| leaf.changes).sum()
    }

    /// Number of slots of the upper level.
    pub fn leaf_slots(&self) -> usize {
        self.leaves.len()
    }

    /// The pages of one leaf with their index in it.
    pub fn leaf_entries(&self, leaf: usize) -> impl Iterator<Item = (usize, Entry)> + '_ {
        let entries = self.leaves.get(leaf).and_then(|l| l.as_ref()).map(|l| &l.entries[..]);
        let entries = entries.unwrap_or_default().iter().copied().enumerate();
        entries.filter(|(_, entry)| !entry.is_none())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_taken_once_and_empty_leaves_go() {
        let mut map = PageMap::default();
        let entry = Entry::new(4096, 100, Lsn(5), TreeId(1), 77);
        assert_eq!(Entry::from_parts(entry.packed, 5, 1, 77), entry);
        assert_eq!((entry.place(), entry.record_bytes()), (4096, 100));
        map.set(PageId(3), entry);
        map.set(PageId(5000), entry);
        map.set(PageId(5000), entry);
        assert_eq!(map.pages(), 2);
        assert_eq!(map.take_changes(), vec![(PageId(3), entry), (PageId(5000), entry)]);
        assert!(map.take_changes().is_empty());
        map.set(PageId(5000), Entry::NONE);
        assert!(map.get(PageId(5000)).is_none());
        assert!(map.leaves[1].is_some(), "kept until the checkpoint took the removal");
        assert_eq!(map.take_changes(), vec![(PageId(5000), Entry::NONE)]);
        assert!(map.leaves[1].is_none());
        assert_eq!(map.leaf_entries(0).collect::<Vec<_>>(), vec![(3, entry)]);
    }
}
