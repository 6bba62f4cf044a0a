//! The holds of one tree in one order: a B+ tree by the low end, in which a locked row is a span of
//! one key. Inner nodes know which span below each child reaches furthest, so the spans over a key
//! are found in a time logarithmic in the number of holds, however they nest. Pure data.
//!
//! The rows of an owner are known by leaf: its end takes them out a leaf at a time. How nodes come,
//! join and go is in `shape.rs`, how far spans reach in `reach.rs`.

use super::key::{Cut, Key};
use super::leaf::{At, Hold, Leaf, LockEntry, Member, Position, Reach, SpanId, LEAF_ENTRIES};
use super::queue::{Grant, LockMode};
use super::slab::{Boxes, Id, Slab, NONE};
use std::cell::Cell;
use std::ops::ControlFlow;

/// The list of an owner with more leaves than this goes with the owner.
const LIST_KEPT: usize = 64;

pub(super) struct Child {
    /// Nothing in it comes before this. Of a first child it says nothing.
    pub(super) low: Position,
    pub(super) node: Id,
    pub(super) own: Reach,
    /// Of this child and those before it in the node.
    pub(super) until: Reach,
}

/// The leaf that was looked into last, and its bounds: a node and a child in it.
#[derive(Clone, Copy)]
pub(super) struct Finger {
    leaf: Id,
    low: Option<(Id, u32)>,
    high: Option<(Id, u32)>,
}

pub(super) const NOWHERE: Finger = Finger { leaf: NONE, low: None, high: None };

/// What was taken out: to be dropped with no mutex held.
#[derive(Default)]
pub(super) struct Gone {
    pub(super) keys: Vec<Key>,
    pub(super) cuts: Vec<Cut>,
    pub(super) lows: Vec<Position>,
    #[allow(clippy::vec_box, reason = "a leaf leaves the tree in its box: no bytes move")]
    pub(super) leaves: Vec<Box<Leaf>>,
    pub(super) inners: Vec<Vec<Child>>,
    lists: Vec<Vec<Id>>,
}

pub(super) struct LockTree {
    pub(super) leaves: Boxes<Leaf>,
    pub(super) inners: Slab<Vec<Child>>,
    /// The high ends of the spans.
    pub(super) ends: Slab<Cut>,
    pub(super) root: Id,
    /// Levels of inner nodes.
    pub(super) depth: u32,
    len: usize,
    spans: usize,
    /// The leaves in which an owner has rows.
    rows_of: Vec<Vec<Id>>,
    pub(super) finger: Cell<Finger>,
}

impl Default for LockTree {
    fn default() -> LockTree {
        let mut leaves: Boxes<Leaf> = Boxes::default();
        let root = leaves.make();
        LockTree {
            leaves,
            inners: Slab::default(),
            ends: Slab::default(),
            root,
            depth: 0,
            len: 0,
            spans: 0,
            rows_of: Vec::new(),
            finger: Cell::new(NOWHERE),
        }
    }
}

pub(super) fn child_of(children: &[Child], at: &At<'_>) -> usize {
    children[1..].partition_point(|child| child.low.at() <= *at)
}

/// What is there.
impl LockTree {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn spans(&self) -> usize {
        self.spans
    }

    /// Holds for which there is memory.
    pub(super) fn capacity(&self) -> usize {
        self.leaves.capacity() * LEAF_ENTRIES
    }

    /// The owner's hold of the row.
    pub(super) fn row(&self, key: &[u8], owner: u32) -> Option<&Grant> {
        let at = At::row(key, owner);
        let leaf = &self.leaves[self.leaf_of(&at)];
        leaf.find(&at).ok().and_then(|index| leaf.entries()[index].grant())
    }

    pub(super) fn row_mut(&mut self, key: &[u8], owner: u32) -> Option<&mut Grant> {
        let at = At::row(key, owner);
        let leaf = self.leaf_of(&at);
        let leaf = &mut self.leaves[leaf];
        let index = leaf.find(&at).ok()?;
        match &mut leaf.entries_mut()[index].hold {
            Hold::Row(grant) => Some(grant),
            Hold::Span { .. } => None,
        }
    }

    pub(super) fn high(&self, id: SpanId) -> &Cut {
        &self.ends[id]
    }

    /// Visits the holds of a row: owners and modes.
    pub(super) fn holds_of_row(
        &self,
        key: &[u8],
        visit: &mut dyn FnMut(u32, LockMode) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let mut from = At::row(key, 0);
        loop {
            let leaf = &self.leaves[self.leaf_of(&from)];
            let next = self.finger.get().high.map(|bound| self.bound(bound));
            let first = leaf.find(&from).unwrap_or_else(|index| index);
            for entry in &leaf.entries()[first..] {
                match entry.grant() {
                    Some(grant) if *entry.key == *key => visit(entry.owner, grant.mode())?,
                    _ => return ControlFlow::Continue(()),
                }
            }
            match next.filter(|next| *next <= At::row(key, u32::MAX)) {
                Some(next) => from = next,
                None => return ControlFlow::Continue(()),
            }
        }
    }

    fn bound(&self, (node, child): (Id, u32)) -> At<'_> {
        self.inners[node][child as usize].low.at()
    }

    /// The leaf in which `at` is, or would be. A request for a lock looks for its place more
    /// than once, and scans go on next to it.
    fn leaf_of(&self, at: &At<'_>) -> Id {
        let Finger { leaf, low, high } = self.finger.get();
        let is_within = low.is_none_or(|low| self.bound(low) <= *at)
            && high.is_none_or(|high| *at < self.bound(high));
        if leaf != NONE && is_within {
            return leaf;
        }
        let mut finger = Finger { leaf: self.root, ..NOWHERE };
        for _ in 0..self.depth {
            let (node, children) = (finger.leaf, &self.inners[finger.leaf]);
            let index = child_of(children, at);
            if index > 0 {
                finger.low = Some((node, index as u32));
            }
            if index + 1 < children.len() {
                finger.high = Some((node, index as u32 + 1));
            }
            finger.leaf = children[index].node;
        }
        self.finger.set(finger);
        finger.leaf
    }
}

/// What comes.
impl LockTree {
    /// The owner must not hold the row.
    pub(super) fn insert_row(&mut self, key: &[u8], owner: u32, grant: Grant) {
        let entry = LockEntry::row(key, owner, grant);
        let leaf = self.leaf_of(&entry.at());
        if self.leaves[leaf].is_full() {
            self.insert(entry);
        } else {
            self.put(leaf, entry);
        }
        self.len += 1;
    }

    /// The owner must have no span of this mode with this low end.
    pub(super) fn insert_span(
        &mut self,
        low: &Cut,
        high: Cut,
        mode: LockMode,
        owner: u32,
    ) -> SpanId {
        let end = self.ends.make();
        self.ends[end] = high;
        self.insert(LockEntry::span(low, mode, owner, end));
        self.len += 1;
        self.spans += 1;
        end
    }

    /// Moves the high end of a span up; answers where it was.
    pub(super) fn set_high(&mut self, low: &Cut, mode: LockMode, owner: u32, high: Cut) -> Cut {
        self.raise_below(self.root, self.depth, &At::span(low, mode, owner), high).1
    }

    /// Puts an entry into a leaf that has room for it.
    pub(super) fn put(&mut self, leaf: Id, entry: LockEntry) {
        let index = self.leaves[leaf].find(&entry.at()).unwrap_or_else(|index| index);
        let (owner, span) = (entry.owner, entry.end());
        self.leaves[leaf].insert(index, entry);
        match span {
            Some(_) => self.settle_leaf(leaf, index),
            None => self.note_row(leaf, owner),
        }
    }

    fn note_row(&mut self, leaf: Id, owner: u32) {
        if let Some((_, member)) = self.leaves[leaf].member(owner) {
            member.rows += 1;
            return;
        }
        if self.rows_of.len() <= owner as usize {
            self.rows_of.resize_with(owner as usize + 1, Vec::new);
        }
        let list = &mut self.rows_of[owner as usize];
        let member = Member { owner, rows: 1, place: list.len() as u32 };
        list.push(leaf);
        self.leaves[leaf].members.push(member);
    }

    /// The entries of the leaf `to` that begin at `first` came from the leaf `from`.
    pub(super) fn note_moved(&mut self, from: Id, to: Id, first: usize) {
        for index in first..self.leaves[to].entries().len() {
            let entry = &self.leaves[to].entries()[index];
            if let (Some(_), owner) = (entry.grant(), entry.owner) {
                self.forget_row(from, owner);
                self.note_row(to, owner);
            }
        }
    }
}

/// What goes.
impl LockTree {
    /// The owner must hold the row.
    pub(super) fn remove_row(&mut self, key: &[u8], owner: u32, gone: &mut Gone) {
        let at = At::row(key, owner);
        let leaf = self.leaf_of(&at);
        let index = self.leaves[leaf].find(&at).expect("a held row");
        gone.keys.push(self.leaves[leaf].remove(index).key);
        self.forget_row(leaf, owner);
        self.len -= 1;
        self.shrink(leaf, &at, gone);
    }

    /// Takes out what the owner has in one of the leaves in which it has rows. False: there is none.
    pub(super) fn take_rows(&mut self, owner: u32, keys: &mut Vec<Key>, gone: &mut Gone) -> bool {
        let Some(&leaf) = self.rows_of.get(owner as usize).and_then(|list| list.last()) else {
            return false;
        };
        let before = keys.len();
        self.leaves[leaf].take_rows(owner, keys);
        let taken = keys.len() - before;
        self.len -= taken;
        let (index, member) = self.leaves[leaf].member(owner).expect("in the owner's list");
        assert!(member.rows as usize == taken, "all rows of an owner in a leaf are counted");
        self.leave(leaf, index);
        self.shrink(leaf, &At::row(&keys[before], owner), gone);
        true
    }

    /// The owner, which has no row any more, has left.
    pub(super) fn forget_owner(&mut self, owner: u32, gone: &mut Gone) {
        let Some(list) = self.rows_of.get_mut(owner as usize) else { return };
        assert!(list.is_empty(), "rows of an owner that has left");
        if list.capacity() > LIST_KEPT {
            gone.lists.push(std::mem::take(list));
        }
    }

    /// The owner must hold the span. Answers its high end.
    pub(super) fn remove_span(
        &mut self,
        low: &Cut,
        mode: LockMode,
        owner: u32,
        gone: &mut Gone,
    ) -> Cut {
        let at = At::span(low, mode, owner);
        let entry = self.remove_below(self.root, self.depth, &at);
        self.len -= 1;
        self.spans -= 1;
        let leaf = self.leaf_of(&at);
        self.shrink(leaf, &at, gone);
        let (end, _) = entry.end().expect("a span");
        gone.keys.push(entry.key);
        self.ends.take(end)
    }

    fn forget_row(&mut self, leaf: Id, owner: u32) {
        let (index, member) = self.leaves[leaf].member(owner).expect("an owner with rows");
        member.rows -= 1;
        if member.rows == 0 {
            self.leave(leaf, index);
        }
    }

    fn leave(&mut self, leaf: Id, index: usize) {
        let Member { owner, place, .. } = self.leaves[leaf].members.swap_remove(index);
        let list = &mut self.rows_of[owner as usize];
        list.swap_remove(place as usize);
        if let Some(&moved) = list.get(place as usize) {
            let (_, member) = self.leaves[moved].member(owner).expect("in the owner's list");
            member.place = place;
        }
    }
}

#[cfg(test)]
#[path = "tree_tests.rs"]
mod tests;
