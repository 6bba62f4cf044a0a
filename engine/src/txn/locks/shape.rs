//! How the nodes of a tree of holds come, join and go. A node that is full is split; one that is
//! nearly empty joins a neighbour, so that memory follows the locks that are held. Pure data.

use super::leaf::{At, LockEntry, LEAF_ENTRIES};
use super::slab::{Id, NONE};
use super::tree::{child_of, Child, Gone, LockTree, NOWHERE};

pub(super) const CHILDREN: usize = 32;

/// A node that is at most a quarter full joins a neighbour if a quarter then stays free: so the next
/// lock does not undo the join.
const FEW: usize = LEAF_ENTRIES / 4;
const JOINED: usize = LEAF_ENTRIES * 3 / 4;
const _: () = assert!(LEAF_ENTRIES == CHILDREN, "one limit for both");

/// What comes.
impl LockTree {
    pub(super) fn insert(&mut self, entry: LockEntry) {
        let Some(right) = self.insert_below(self.root, self.depth, entry) else { return };
        let low = At::row(&[], 0).to_position();
        let left = Child { low, node: self.root, own: [NONE; 2], until: [NONE; 2] };
        self.root = self.inners.make();
        self.inners[self.root].extend([left, right]);
        self.depth += 1;
        self.settle(self.root, self.depth, 0);
    }

    /// Answers what a split has put to the right of the node.
    fn insert_below(&mut self, node: Id, depth: u32, entry: LockEntry) -> Option<Child> {
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

    fn insert_in_leaf(&mut self, leaf: Id, entry: LockEntry) -> Option<Child> {
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
        self.leaves.with_two(leaf, right, |leaf, right| leaf.hand_over(from, right));
        self.note_moved(leaf, right, 0);
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
}

/// What goes.
impl LockTree {
    /// The leaf, in which `at` was, has lost entries.
    pub(super) fn shrink(&mut self, leaf: Id, at: &At<'_>, gone: &mut Gone) {
        if self.depth == 0 || self.leaves[leaf].entries().len() > FEW {
            return;
        }
        self.shrink_below(self.root, self.depth, at, gone);
        while self.depth > 0 && self.inners[self.root].len() <= 1 {
            let mut children = self.inners.take(self.root);
            self.depth -= 1;
            self.root = match children.pop() {
                Some(Child { low, node, .. }) => {
                    gone.lows.push(low);
                    node
                }
                None => {
                    self.depth = 0;
                    self.leaves.make()
                }
            };
            gone.inners.push(children);
        }
    }

    fn shrink_below(&mut self, node: Id, depth: u32, at: &At<'_>, gone: &mut Gone) {
        let index = child_of(&self.inners[node], at);
        let child = self.inners[node][index].node;
        if depth > 1 {
            self.shrink_below(child, depth - 1, at, gone);
        }
        match self.size(child, depth - 1) {
            // It had no spans: what comes after it reaches as far as before.
            0 => self.remove_child(node, depth, index, gone),
            1..=FEW => {}
            _ => return,
        }
        let mut at = index;
        while let Some(left) = self.pair_at(node, depth, at) {
            self.join(node, depth, left, gone);
            at = left;
        }
    }

    fn size(&self, node: Id, height: u32) -> usize {
        match height {
            0 => self.leaves[node].entries().len(),
            _ => self.inners[node].len(),
        }
    }

    /// The child is empty.
    fn remove_child(&mut self, node: Id, depth: u32, index: usize, gone: &mut Gone) {
        self.finger.set(NOWHERE);
        let Child { low, node: child, .. } = self.inners[node].remove(index);
        gone.lows.push(low);
        match depth {
            1 => gone.leaves.extend(self.leaves.free(child)),
            _ => gone.inners.push(self.inners.take(child)),
        }
    }

    /// The left one of two children that should be one: this child and a neighbour.
    fn pair_at(&self, node: Id, depth: u32, index: usize) -> Option<usize> {
        let children = &self.inners[node];
        let size = |at: usize| self.size(children[at].node, depth - 1);
        let is_pair = |&left: &usize| {
            let (a, b) = (size(left), size(left + 1));
            a.min(b) <= FEW && a + b <= JOINED
        };
        let mut lefts = [Some(index), index.checked_sub(1)].into_iter().flatten();
        lefts.find(|left| left + 1 < children.len() && is_pair(left))
    }

    /// Joins a child with the next one.
    fn join(&mut self, node: Id, depth: u32, index: usize, gone: &mut Gone) {
        let [left, right] = [index, index + 1].map(|at| self.inners[node][at].node);
        let first = self.size(left, depth - 1);
        if depth == 1 {
            self.leaves.with_two(left, right, |left, right| right.hand_over(0, left));
            self.note_moved(right, left, first);
            self.settle_leaf(left, first);
        } else {
            // The right node began at its own low end, not at that of its first child.
            let low = self.inners[node][index + 1].low.clone();
            let mut moved = std::mem::take(&mut self.inners[right]);
            gone.lows.push(std::mem::replace(&mut moved[0].low, low));
            self.inners[left].append(&mut moved);
            self.spread(left, first);
            self.inners[right] = moved;
        }
        self.remove_child(node, depth, index + 1, gone);
        self.settle(node, depth, index);
    }
}
