//! The holds of one tree in one order: a B+ tree by the low end, in which a locked row is a span of
//! one key. Inner nodes know which span below each child reaches furthest, so the spans over a key
//! are found in a time logarithmic in the number of holds, however they nest. Pure data.
//!
//! The rows of an owner are known by leaf: its end takes them out a leaf at a time. A leaf goes when
//! it is empty; leaves are not joined. What is taken out is handed to the caller, to be freed with
//! no mutex held.

use super::lock_key::{Cut, Key, Side};
use super::lock_leaf::{At, Entry, Hold, Kind, Leaf, Member, Position, SpanId, LEAF_ENTRIES};
use super::lock_queue::{Grant, Mode};
use super::lock_slab::{Id, Slab, NONE};
use crate::os::planted::{self, Bug};
use std::cell::Cell;
use std::ops::ControlFlow;

const CHILDREN: usize = 32;

/// Spans that end last: of all, and of the exclusive ones.
type Reach = [SpanId; 2];

fn kinds(mode: Mode) -> std::ops::RangeInclusive<usize> {
    0..=usize::from(mode == Mode::Exclusive)
}

struct Child {
    /// Nothing in it comes before this. Of a first child it says nothing.
    low: Position,
    node: Id,
    own: Reach,
    /// Of this child and those before it in the node.
    until: Reach,
}

/// The leaf that was looked into last, and its bounds: a node and a child in it.
#[derive(Clone, Copy)]
struct Finger {
    leaf: Id,
    low: Option<(Id, u32)>,
    high: Option<(Id, u32)>,
}

const NOWHERE: Finger = Finger { leaf: NONE, low: None, high: None };

pub(super) struct LockTree {
    leaves: Slab<Leaf>,
    inners: Slab<Vec<Child>>,
    /// The high ends of the spans.
    ends: Slab<Cut>,
    root: Id,
    /// Levels of inner nodes.
    depth: u32,
    len: usize,
    spans: usize,
    /// The leaves in which an owner has rows.
    rows_of: Vec<Vec<Id>>,
    finger: Cell<Finger>,
}

impl Default for LockTree {
    fn default() -> LockTree {
        let mut leaves: Slab<Leaf> = Slab::default();
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

fn child_of(children: &[Child], at: &At<'_>) -> usize {
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
        visit: &mut dyn FnMut(u32, Mode) -> ControlFlow<()>,
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

    /// Visits the owners of the spans over `key`, of all modes or of the exclusive ones.
    pub(super) fn spans_over(
        &self,
        key: &[u8],
        exclusive: bool,
        visit: &mut dyn FnMut(u32) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        if self.spans == 0 {
            return ControlFlow::Continue(());
        }
        self.stab(self.root, self.depth, key, usize::from(exclusive), visit)
    }

    fn stab(
        &self,
        node: Id,
        depth: u32,
        key: &[u8],
        kind: usize,
        visit: &mut dyn FnMut(u32) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let reaches = |id: SpanId| id != NONE && !self.ends[id].is_below(key);
        if depth > 0 {
            let children = &self.inners[node];
            let last = child_of(children, &At::after(key));
            for child in children[..=last].iter().rev() {
                if !reaches(child.until[kind]) {
                    break;
                }
                if reaches(child.own[kind]) {
                    self.stab(child.node, depth - 1, key, kind, visit)?;
                }
            }
            return ControlFlow::Continue(());
        }
        let entries = self.leaves[node].entries();
        let before = entries.partition_point(|entry| entry.at() <= At::after(key));
        for entry in entries[..before].iter().rev() {
            let Hold::Span { mode, end, reach, .. } = entry.hold else { continue };
            if !reaches(reach) {
                break;
            }
            let unseen = planted::is(Bug::EqualKeyNotChecked)
                && entry.at().side == Side::Below
                && *entry.key == *key;
            if kinds(mode).contains(&kind) && reaches(end) && !unseen {
                visit(entry.owner)?;
            }
        }
        ControlFlow::Continue(())
    }

    fn bound(&self, (node, child): (Id, u32)) -> At<'_> {
        self.inners[node][child as usize].low.at()
    }

    /// The leaf in which `at` is, or would be. Who asks for a lock looks for its place more than
    /// once, and scans go on next to it.
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
        let entry = Entry::row(key, owner, grant);
        let leaf = self.leaf_of(&entry.at());
        if self.leaves[leaf].is_full() {
            self.insert(entry);
        } else {
            self.put(leaf, entry);
        }
        self.len += 1;
    }

    /// The owner must have no span of this mode with this low end.
    pub(super) fn insert_span(&mut self, low: &Cut, high: Cut, mode: Mode, owner: u32) -> SpanId {
        let end = self.ends.make();
        self.ends[end] = high;
        self.insert(Entry::span(low, mode, owner, end));
        self.len += 1;
        self.spans += 1;
        end
    }

    /// Moves the high end of a span up; answers where it was.
    pub(super) fn set_high(&mut self, low: &Cut, mode: Mode, owner: u32, high: Cut) -> Cut {
        let at = At::span(low, mode, owner);
        self.raise_below(self.root, self.depth, &at, high).1
    }

    fn insert(&mut self, entry: Entry) {
        let Some(right) = self.insert_below(self.root, self.depth, entry) else { return };
        let low = At::row(&[], 0).to_position();
        let left = Child { low, node: self.root, own: [NONE; 2], until: [NONE; 2] };
        self.root = self.inners.make();
        self.inners[self.root].extend([left, right]);
        self.depth += 1;
        self.settle(self.root, self.depth, 0);
    }

    /// Answers what a split has put to the right of the node.
    fn insert_below(&mut self, node: Id, depth: u32, entry: Entry) -> Option<Child> {
        if depth == 0 {
            return self.insert_in_leaf(node, entry);
        }
        let index = child_of(&self.inners[node], &entry.at());
        let (child, span) = (self.inners[node][index].node, entry.end());
        let right = self.insert_below(child, depth - 1, entry);
        if let Some(right) = right {
            self.inners[node].insert(index + 1, right);
            self.settle(node, depth, index);
            return self.split_inner(node, index + 1);
        }
        if let Some((end, mode)) = span {
            self.raise(node, index, end, mode);
        }
        None
    }

    fn insert_in_leaf(&mut self, leaf: Id, entry: Entry) -> Option<Child> {
        if !self.leaves[leaf].is_full() {
            self.put(leaf, entry);
            return None;
        }
        self.finger.set(NOWHERE);
        let index = self.leaves[leaf].find(&entry.at()).unwrap_or_else(|index| index);
        // Scans lock row after row: they leave full leaves.
        let from = match index {
            0 | LEAF_ENTRIES => index,
            _ => LEAF_ENTRIES / 2,
        };
        let right = self.leaves.make();
        let mut moved = std::mem::take(&mut self.leaves[right]);
        self.leaves[leaf].split(from, &mut moved);
        self.leaves[right] = moved;
        for at in 0..self.leaves[right].entries().len() {
            let entry = &self.leaves[right].entries()[at];
            if let (Some(_), owner) = (entry.grant(), entry.owner) {
                self.forget_row(leaf, owner);
                self.note_row(right, owner);
            }
        }
        self.settle_leaf(right, 0);
        self.put(if index > from || from == LEAF_ENTRIES { right } else { leaf }, entry);
        let low = self.leaves[right].entries()[0].at().to_position();
        let own = self.reach_of(right, 0);
        Some(Child { low, node: right, own, until: [NONE; 2] })
    }

    fn split_inner(&mut self, node: Id, new: usize) -> Option<Child> {
        let children = &mut self.inners[node];
        if children.len() <= CHILDREN {
            return None;
        }
        let from = if new == CHILDREN { CHILDREN } else { CHILDREN / 2 };
        let moved = children.split_off(from);
        let (right, low) = (self.inners.make(), moved[0].low.clone());
        self.inners[right] = moved;
        self.spread(right, 0);
        let own = self.reach_of(right, 1);
        Some(Child { low, node: right, own, until: [NONE; 2] })
    }

    /// Puts an entry into a leaf that has room for it.
    fn put(&mut self, leaf: Id, entry: Entry) {
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
}

/// What goes.
impl LockTree {
    /// The owner must hold the row. Drop the answer with no mutex held.
    pub(super) fn remove_row(&mut self, key: &[u8], owner: u32) -> Key {
        let at = At::row(key, owner);
        let leaf = self.leaf_of(&at);
        let index = self.leaves[leaf].find(&at).expect("a held row");
        let entry = self.leaves[leaf].remove(index);
        self.forget_row(leaf, owner);
        self.len -= 1;
        self.prune(leaf, &at);
        entry.key
    }

    /// Takes out what the owner has in one of the leaves in which it has rows. False: there is none.
    pub(super) fn take_rows(&mut self, owner: u32, keys: &mut Vec<Key>) -> bool {
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
        self.prune(leaf, &At::row(&keys[before], owner));
        true
    }

    /// The owner must hold the span. Drop the answer with no mutex held.
    pub(super) fn remove_span(&mut self, low: &Cut, mode: Mode, owner: u32) -> (Key, Cut) {
        let at = At::span(low, mode, owner);
        let entry = self.remove_below(self.root, self.depth, &at);
        let leaf = self.leaf_of(&at);
        self.len -= 1;
        self.spans -= 1;
        self.prune(leaf, &at);
        let (end, _) = entry.end().expect("a span");
        let high = std::mem::take(&mut self.ends[end]);
        self.ends.free(end);
        (entry.key, high)
    }

    fn remove_below(&mut self, node: Id, depth: u32, at: &At<'_>) -> Entry {
        if depth == 0 {
            let index = self.leaves[node].find(at).expect("a held span");
            let entry = self.leaves[node].remove(index);
            self.settle_leaf(node, index);
            return entry;
        }
        let index = child_of(&self.inners[node], at);
        let entry = self.remove_below(self.inners[node][index].node, depth - 1, at);
        let (end, _) = entry.end().expect("a span");
        let mut later = self.inners[node][index..].iter();
        if later.any(|child| child.own.contains(&end) || child.until.contains(&end)) {
            self.settle(node, depth, index);
        }
        entry
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

    /// Takes a leaf out that may be empty now, in which `at` was.
    fn prune(&mut self, leaf: Id, at: &At<'_>) {
        if self.depth == 0 || !self.leaves[leaf].entries().is_empty() {
            return;
        }
        self.finger.set(NOWHERE);
        self.prune_below(self.root, self.depth, at);
        while self.depth > 0 && self.inners[self.root].len() <= 1 {
            let only = self.inners[self.root].pop();
            self.inners.free(self.root);
            self.depth -= 1;
            self.root = match only {
                Some(child) => child.node,
                None => {
                    self.depth = 0;
                    self.leaves.make()
                }
            };
        }
    }

    fn prune_below(&mut self, node: Id, depth: u32, at: &At<'_>) {
        let index = child_of(&self.inners[node], at);
        let child = self.inners[node][index].node;
        if depth > 1 {
            self.prune_below(child, depth - 1, at);
            if !self.inners[child].is_empty() {
                return;
            }
            self.inners.free(child);
        } else {
            self.leaves.free(child);
        }
        // It had no spans: what comes after it reaches as far as before.
        self.inners[node].remove(index);
    }
}

/// How far spans reach.
impl LockTree {
    fn further(&self, a: SpanId, b: SpanId) -> SpanId {
        match (a, b) {
            (NONE, other) | (other, NONE) => other,
            _ if self.ends[a] > self.ends[b] => a,
            _ => b,
        }
    }

    /// Of a node at a height above the leaves.
    fn reach_of(&self, node: Id, height: u32) -> Reach {
        if height > 0 {
            return self.inners[node].last().map_or([NONE; 2], |child| child.until);
        }
        let mut reach = [NONE; 2];
        for (end, mode) in self.leaves[node].entries().iter().filter_map(Entry::end) {
            for kind in kinds(mode) {
                reach[kind] = self.further(end, reach[kind]);
            }
        }
        reach
    }

    /// Makes the reach of a child true again, and that of those after it.
    fn settle(&mut self, node: Id, depth: u32, index: usize) {
        let own = self.reach_of(self.inners[node][index].node, depth - 1);
        self.inners[node][index].own = own;
        self.spread(node, index);
    }

    fn spread(&mut self, node: Id, from: usize) {
        let before = from.checked_sub(1).map(|at| self.inners[node][at].until);
        let mut until = before.unwrap_or([NONE; 2]);
        for index in from..self.inners[node].len() {
            let own = self.inners[node][index].own;
            until = [0, 1].map(|kind| self.further(until[kind], own[kind]));
            self.inners[node][index].until = until;
        }
    }

    /// The span, in this child, is new or has grown.
    fn raise(&mut self, node: Id, index: usize, end: SpanId, mode: Mode) {
        for kind in kinds(mode) {
            let own = self.inners[node][index].own[kind];
            self.inners[node][index].own[kind] = self.further(end, own);
            for at in index..self.inners[node].len() {
                let until = self.inners[node][at].until[kind];
                if until != end && self.further(end, until) == until {
                    break;
                }
                self.inners[node][at].until[kind] = end;
            }
        }
    }

    fn raise_below(&mut self, node: Id, depth: u32, at: &At<'_>, high: Cut) -> (SpanId, Cut) {
        if depth == 0 {
            let index = self.leaves[node].find(at).expect("a held span");
            let (end, _) = self.leaves[node].entries()[index].end().expect("a span");
            let before = std::mem::replace(&mut self.ends[end], high);
            self.settle_leaf(node, index);
            return (end, before);
        }
        let index = child_of(&self.inners[node], at);
        let child = self.inners[node][index].node;
        let (end, before) = self.raise_below(child, depth - 1, at, high);
        if let Kind::Span(mode) = at.kind {
            self.raise(node, index, end, mode);
        }
        (end, before)
    }

    /// Makes the reach of the spans from `from` on true again.
    fn settle_leaf(&mut self, leaf: Id, from: usize) {
        let reach_of = |entry: &Entry| match entry.hold {
            Hold::Span { reach, .. } => Some(reach),
            Hold::Row(_) => None,
        };
        let before = self.leaves[leaf].entries()[..from].iter().rev().find_map(reach_of);
        let mut furthest = before.unwrap_or(NONE);
        for index in from..self.leaves[leaf].entries().len() {
            if let Some((end, _)) = self.leaves[leaf].entries()[index].end() {
                furthest = self.further(furthest, end);
            }
            if let Hold::Span { reach, .. } = &mut self.leaves[leaf].entries_mut()[index].hold {
                *reach = furthest;
            }
        }
    }
}

#[cfg(test)]
#[path = "lock_tree_tests.rs"]
mod tests;
