//! The page map in memory: an upper level that is always there, and the leaves in use.
//!
//! Page ids are dense and never reused, so the upper level is a plain array. A leaf is
//!
//! ```text
//!            install (after its chunk of the snapshot was read, without the lock)
//!   Out  ------------------------------------------------------------------------>  In
//!    ^                                                                              |
//!    +------------------------------------------------------------------------------+
//!                     shrink (over the budget; second chance; never one that is pinned)
//! ```
//! *Out* keeps the entries that changed since the snapshot, so a leaf can always go, and opening
//! reads no leaf. The budget bounds the memory: the changes take from it as much as they need,
//! whole leaves the rest (at least [`RESIDENT_MIN`] leaves and those that are pinned); a
//! new snapshot is due before the changes outgrow it ([`PageMap::changes_limit_bytes`]).

use super::entry::{MapEntry, PAGE_ID_MAX};
use super::leaf::{MapChange, MapLeaf, LEAF_BITS, LEAF_BYTES, LEAF_PAGES};
use super::snapshot::{Chunk, MapSnapshot};
use crate::base::{PageId, Result};
use crate::os::planted::{self, Bug};
use crate::os::SIMULATED;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Leaves that stay in memory however small the budget is.
const RESIDENT_MIN: usize = if SIMULATED || cfg!(test) { 1 } else { 8 };

/// Most steps of the clock in one call.
const CLOCK_STEPS_MAX: usize = 128;

enum Held {
    Out(Vec<MapChange>),
    In(Box<MapLeaf>),
}

struct Slot {
    /// The leaf in the snapshot; empty if it is not there.
    chunk: Chunk,
    held: Held,
}

impl Slot {
    fn absent() -> Slot {
        Slot { chunk: Chunk::NONE, held: Held::Out(Vec::new()) }
    }

    fn changes(&self) -> usize {
        match &self.held {
            Held::Out(changes) => changes.len(),
            Held::In(_) => 0,
        }
    }
}

/// Where the rest of a leaf is that is not in memory.
#[derive(Clone)]
pub struct Missing {
    pub leaf: usize,
    chunk: Chunk,
    snapshot: Arc<MapSnapshot>,
}

impl Missing {
    /// Reads the leaf as the snapshot has it; takes no lock.
    pub fn read(&self) -> Result<Vec<(usize, MapEntry)>> {
        self.snapshot.read_leaf(self.leaf, self.chunk)
    }
}

/// What the map knows about a page without I/O.
pub enum Lookup {
    Known(Option<MapEntry>),
    Missing(Missing),
}

/// A leaf as it was at one moment; what is in the snapshot is still to be read.
pub struct LeafView {
    missing: Option<Missing>,
    /// All pages, or what to lay over those of the snapshot.
    entries: Vec<(usize, MapEntry)>,
}

impl LeafView {
    /// The pages of the leaf.
    pub fn read(self) -> Result<Vec<(usize, MapEntry)>> {
        let Some(missing) = self.missing else { return Ok(self.entries) };
        let base = missing.read()?;
        let mut whole = [MapEntry::NONE; LEAF_PAGES];
        for (index, entry) in base.into_iter().chain(self.entries) {
            whole[index] = entry;
        }
        Ok(super::leaf::pages_of(&whole))
    }
}

pub struct PageMap {
    slots: Vec<Slot>,
    snapshot: Arc<MapSnapshot>,
    /// The leaves that are in, in no order, and the hand of the clock over them.
    resident: Vec<usize>,
    hand: usize,
    /// Leaves with changes that no checkpoint took, and how many changes.
    changed_leaves: BTreeSet<usize>,
    changes: usize,
    /// Changes kept for leaves that are out.
    kept: usize,
    budget_bytes: usize,
}

pub fn leaf_of(page: PageId) -> usize {
    (page.0 >> LEAF_BITS) as usize
}

fn split(page: PageId) -> (usize, usize) {
    (leaf_of(page), (page.0 as usize) & (LEAF_PAGES - 1))
}

pub fn page_at(leaf: usize, index: usize) -> PageId {
    PageId((leaf as u64) << LEAF_BITS | index as u64)
}

impl PageMap {
    pub fn new(
        snapshot: Arc<MapSnapshot>,
        chunks: &[(usize, Chunk)],
        budget_bytes: usize,
    ) -> PageMap {
        let mut map = PageMap {
            slots: Vec::new(),
            snapshot,
            resident: Vec::new(),
            hand: 0,
            changed_leaves: BTreeSet::new(),
            changes: 0,
            kept: 0,
            budget_bytes,
        };
        for &(leaf, chunk) in chunks {
            map.slot_mut(leaf).chunk = chunk;
        }
        map
    }

    pub fn get(&self, page: PageId) -> Lookup {
        let (leaf, index) = split(page);
        let Some(slot) = self.slots.get(leaf) else { return Lookup::Known(None) };
        match &slot.held {
            Held::In(leaf) => Lookup::Known(leaf.get(index)),
            Held::Out(changes) => match find(changes, index) {
                Ok(at) => Lookup::Known(Some(changes[at].entry).filter(|e| !e.is_none())),
                Err(_) if slot.chunk.is_none() => Lookup::Known(None),
                Err(_) => Lookup::Missing(self.missing(leaf, slot)),
            },
        }
    }

    fn missing(&self, leaf: usize, slot: &Slot) -> Missing {
        Missing { leaf, chunk: slot.chunk, snapshot: Arc::clone(&self.snapshot) }
    }

    fn slot_mut(&mut self, leaf: usize) -> &mut Slot {
        assert!(leaf <= (PAGE_ID_MAX >> LEAF_BITS) as usize);
        if leaf >= self.slots.len() {
            self.slots.resize_with(leaf + 1, Slot::absent);
        }
        &mut self.slots[leaf]
    }

    /// Keeps a leaf in memory until [`PageMap::unpin`]; false if it is not there.
    pub fn pin(&self, leaf: usize) -> bool {
        match self.slots.get(leaf).map(|slot| &slot.held) {
            Some(Held::In(leaf)) => {
                leaf.pin();
                true
            }
            _ => false,
        }
    }

    pub fn unpin(&self, leaf: usize) {
        match &self.slots[leaf].held {
            Held::In(leaf) => leaf.unpin(),
            Held::Out(_) => unreachable!("a pinned leaf stays in memory"),
        }
    }

    /// What has to be read before the leaf can be brought in; none if nothing has to.
    pub fn to_read(&self, leaf: usize) -> Option<Missing> {
        let slot = self.slots.get(leaf)?;
        let is_out = matches!(slot.held, Held::Out(_));
        (is_out && !slot.chunk.is_none()).then(|| self.missing(leaf, slot))
    }

    /// Brings a leaf in that is not in the snapshot.
    pub fn install_new(&mut self, leaf: usize) {
        if self.slot_mut(leaf).chunk.is_none() {
            self.bring_in(leaf, &[]);
        }
    }

    /// Brings in what was read; nothing happens if a newer snapshot has been written meanwhile:
    /// what was kept for the leaf is then no longer what this one lacks.
    pub fn install(&mut self, from: &Missing, entries: &[(usize, MapEntry)]) {
        let is_current = self.slots[from.leaf].chunk == from.chunk
            && Arc::ptr_eq(&self.snapshot, &from.snapshot);
        if is_current {
            self.bring_in(from.leaf, entries);
        }
    }

    fn bring_in(&mut self, leaf: usize, entries: &[(usize, MapEntry)]) {
        let Held::Out(changes) = &self.slots[leaf].held else { return };
        self.kept -= changes.len();
        self.slots[leaf].held = Held::In(MapLeaf::new(entries, changes));
        self.resident.push(leaf);
    }

    /// Drops leaves until the budget holds.
    pub fn shrink(&mut self) {
        self.shrink_to(self.resident_max());
    }

    /// Every leaf may have a second chance or be pinned, so the search ends after two rounds; and
    /// after some steps in any case, for the lock is held. The next call goes on.
    pub fn shrink_to(&mut self, leaves: usize) {
        let mut steps = (2 * self.resident.len()).min(CLOCK_STEPS_MAX);
        while self.resident.len() > leaves && steps > 0 {
            steps -= 1;
            self.hand %= self.resident.len();
            let leaf = self.resident[self.hand];
            let Held::In(held) = &self.slots[leaf].held else {
                unreachable!("listed leaves are in memory")
            };
            if held.is_pinned() || held.take_reference() {
                self.hand += 1;
                continue;
            }
            let mut changes = held.changes();
            if planted::is(Bug::MapLeafForgetsChanges) {
                changes.retain(|change| change.is_new);
            }
            self.kept += changes.len();
            self.slots[leaf].held = Held::Out(changes);
            self.resident.swap_remove(self.hand);
        }
    }

    fn kept_bytes(&self) -> usize {
        self.kept * std::mem::size_of::<MapChange>()
    }

    fn resident_max(&self) -> usize {
        (self.budget_bytes.saturating_sub(self.kept_bytes()) / LEAF_BYTES).max(RESIDENT_MIN)
    }

    /// Memory of the map, its upper level included.
    pub fn memory_bytes(&self) -> usize {
        let upper = self.slots.len() * std::mem::size_of::<Slot>();
        upper + self.kept_bytes() + self.resident.len() * LEAF_BYTES
    }

    /// Bytes of the change log from which on a new snapshot is due: they are read when the store
    /// is opened, and become changes in memory.
    pub fn changes_limit_bytes(&self) -> u64 {
        self.budget_bytes as u64 / 2
    }

    /// Changes the entry of a page whose leaf is pinned ([`MapEntry::NONE`] removes it); answers the
    /// old one. The next checkpoint writes it.
    pub fn set(&mut self, page: PageId, entry: MapEntry) -> MapEntry {
        let (leaf, index) = split(page);
        let Held::In(held) = &mut self.slots[leaf].held else {
            unreachable!("an entry changes only in a leaf that is in memory")
        };
        let old = std::mem::replace(&mut held.entries[index], entry);
        held.moved.set(index);
        if held.changed.set(index) {
            self.changes += 1;
            self.changed_leaves.insert(leaf);
        }
        old
    }

    /// A change that was taken is new again: the next checkpoint writes the entry, whatever it
    /// is then.
    pub fn mark(&mut self, page: PageId) {
        let (leaf, index) = split(page);
        let is_new = match &mut self.slots[leaf].held {
            Held::In(held) => held.moved.has(index) && held.changed.set(index),
            Held::Out(changes) => find(changes, index)
                .is_ok_and(|at| !std::mem::replace(&mut changes[at].is_new, true)),
        };
        if is_new {
            self.changes += 1;
            self.changed_leaves.insert(leaf);
        }
    }

    /// Loading: an entry of the change log.
    pub fn load_change(&mut self, page: PageId, entry: MapEntry) {
        let (leaf, index) = split(page);
        let slot = self.slot_mut(leaf);
        let Held::Out(changes) = &mut slot.held else { unreachable!("loading brings no leaf in") };
        match find(changes, index) {
            Ok(at) => changes[at].entry = entry,
            Err(at) => {
                changes.insert(at, MapChange { index: index as u16, is_new: false, entry });
                self.kept += 1;
            }
        }
    }

    /// Loading is done: everything in the change log.
    pub fn loaded_changes(&mut self) -> impl Iterator<Item = (PageId, MapEntry)> + '_ {
        self.slots.iter_mut().enumerate().flat_map(|(leaf, slot)| {
            let changes: &[MapChange] = match &mut slot.held {
                Held::Out(changes) => {
                    changes.shrink_to_fit();
                    changes
                }
                Held::In(_) => &[],
            };
            changes.iter().map(move |c| (page_at(leaf, usize::from(c.index)), c.entry))
        })
    }

    /// Takes all changes since the last call, in page order.
    pub fn take_changes(&mut self) -> Vec<(PageId, MapEntry)> {
        let mut out = Vec::with_capacity(self.changes);
        for leaf in std::mem::take(&mut self.changed_leaves) {
            match &mut self.slots[leaf].held {
                Held::In(held) => {
                    let changed = std::mem::take(&mut held.changed);
                    out.extend(changed.iter().map(|i| (page_at(leaf, i), held.entries[i])));
                }
                Held::Out(changes) => {
                    for change in changes.iter_mut().filter(|c| c.is_new) {
                        change.is_new = false;
                        out.push((page_at(leaf, usize::from(change.index)), change.entry));
                    }
                }
            }
        }
        assert_eq!(out.len(), self.changes);
        self.changes = 0;
        out
    }

    /// Changes that no checkpoint took yet.
    pub fn changes(&self) -> usize {
        self.changes
    }

    /// Number of slots of the upper level.
    pub fn leaf_slots(&self) -> usize {
        self.slots.len()
    }

    pub fn view(&self, leaf: usize) -> LeafView {
        let Some(slot) = self.slots.get(leaf) else {
            return LeafView { missing: None, entries: Vec::new() };
        };
        match &slot.held {
            Held::In(leaf) => LeafView { missing: None, entries: leaf.pages() },
            Held::Out(changes) => {
                let all = changes.iter().map(|c| (usize::from(c.index), c.entry));
                let Some(missing) = self.to_read(leaf) else {
                    let entries = all.filter(|(_, entry)| !entry.is_none()).collect();
                    return LeafView { missing: None, entries };
                };
                LeafView { missing: Some(missing), entries: all.collect() }
            }
        }
    }

    /// A new snapshot holds the map: all that was changed before its leaf was written. What
    /// changed after that was either `taken` by the checkpoint that names the snapshot, or it is
    /// new still; only that much is kept from now on.
    pub fn rebase(
        &mut self,
        snapshot: Arc<MapSnapshot>,
        chunks: &[(usize, Chunk)],
        taken: &[(PageId, MapEntry)],
    ) {
        self.snapshot = snapshot;
        let (mut chunks, mut taken) = (chunks.iter().peekable(), taken.iter().peekable());
        for (leaf, slot) in self.slots.iter_mut().enumerate() {
            let chunk = chunks.next_if(|(of, _)| *of == leaf);
            slot.chunk = chunk.map_or(Chunk::NONE, |(_, chunk)| *chunk);
            let mut stays = super::leaf::Marks::default();
            while let Some((page, _)) = taken.next_if(|(page, _)| leaf_of(*page) == leaf) {
                stays.set(split(*page).1);
            }
            self.kept -= slot.changes();
            match &mut slot.held {
                Held::In(held) => {
                    for index in held.changed.iter() {
                        stays.set(index);
                    }
                    held.moved = stays;
                }
                Held::Out(changes) => {
                    changes.retain(|c| c.is_new || stays.has(usize::from(c.index)));
                    changes.shrink_to_fit();
                }
            }
            self.kept += slot.changes();
        }
        assert!(chunks.next().is_none() && taken.next().is_none());
    }
}

fn find(changes: &[MapChange], index: usize) -> std::result::Result<usize, usize> {
    changes.binary_search_by_key(&index, |change| usize::from(change.index))
}
