//! The holds of one tree in one order: a treap by the low end, in which a locked row is a span of
//! one key. Each node knows which span below it reaches furthest, so the spans over a key are
//! found in a time logarithmic in the number of holds, however they nest. Pure data.
//!
//! Nodes lie in chunks that never move: growth copies nothing, and what is taken out is handed to
//! the caller, to be freed with no mutex held.

use super::lock_key::{Cut, Key, Side};
use super::lock_queue::{Grant, Mode};
use crate::os::planted::{self, Bug};
use std::cmp::Ordering;
use std::ops::ControlFlow;

pub(super) type NodeId = u32;
pub(super) const NONE: NodeId = NodeId::MAX;

const CHUNK_NODES: usize = 256;

pub(super) struct Node {
    low: Cut,
    /// `None`: a row, the one key at the low end.
    high: Option<Box<Cut>>,
    left: NodeId,
    right: NodeId,
    priority: u32,
    /// Of the spans from here down, those that end last: of all, and of the exclusive ones.
    reach: [NodeId; 2],
    /// A span has one grant, a row one for each owner.
    first: Grant,
    more: Vec<Grant>,
}

impl Node {
    pub(super) fn is_span(&self) -> bool {
        self.high.is_some()
    }

    pub(super) fn key(&self) -> Key {
        self.low.key().clone()
    }

    pub(super) fn low(&self) -> &Cut {
        &self.low
    }

    pub(super) fn high(&self) -> Option<&Cut> {
        self.high.as_deref()
    }

    pub(super) fn grants(&self) -> impl Iterator<Item = &Grant> {
        std::iter::once(&self.first).chain(&self.more)
    }

    pub(super) fn grant_of(&self, owner: u32) -> Option<&Grant> {
        self.grants().find(|g| g.owner == owner)
    }

    pub(super) fn grant_of_mut(&mut self, owner: u32) -> Option<&mut Grant> {
        std::iter::once(&mut self.first).chain(&mut self.more).find(|g| g.owner == owner)
    }

    pub(super) fn push(&mut self, grant: Grant) {
        self.more.push(grant);
    }

    /// Takes the owner's grant out; false: it was the last one, and the node must go.
    pub(super) fn revoke(&mut self, owner: u32) -> bool {
        if self.first.owner == owner {
            return self.more.pop().map(|last| self.first = last).is_some();
        }
        self.more.retain(|g| g.owner != owner);
        true
    }

    fn mode(&self) -> Mode {
        self.first.mode()
    }
}

#[derive(Default)]
pub(super) struct LockTree {
    chunks: Vec<Vec<Node>>,
    root: Root,
    free: Vec<NodeId>,
    made: u64,
    len: usize,
}

struct Root(NodeId);

impl Default for Root {
    fn default() -> Root {
        Root(NONE)
    }
}

impl LockTree {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Nodes for which there is memory.
    pub(super) fn capacity(&self) -> usize {
        self.chunks.len() * CHUNK_NODES
    }

    pub(super) fn node(&self, id: NodeId) -> &Node {
        &self.chunks[id as usize / CHUNK_NODES][id as usize % CHUNK_NODES]
    }

    pub(super) fn node_mut(&mut self, id: NodeId) -> &mut Node {
        &mut self.chunks[id as usize / CHUNK_NODES][id as usize % CHUNK_NODES]
    }

    pub(super) fn insert(&mut self, low: Cut, high: Option<Cut>, first: Grant) -> NodeId {
        let high = high.map(Box::new);
        self.made += 1;
        let priority = scatter(self.made);
        let node = Node {
            low,
            high,
            left: NONE,
            right: NONE,
            priority,
            reach: [NONE; 2],
            first,
            more: Vec::new(),
        };
        let id = self.place(node);
        self.pull(id);
        self.root.0 = self.link(self.root.0, id);
        self.len += 1;
        id
    }

    fn place(&mut self, node: Node) -> NodeId {
        if let Some(id) = self.free.pop() {
            *self.node_mut(id) = node;
            return id;
        }
        if self.chunks.last().is_none_or(|chunk| chunk.len() == CHUNK_NODES) {
            self.chunks.push(Vec::with_capacity(CHUNK_NODES));
        }
        let at = self.chunks.len() - 1;
        self.chunks[at].push(node);
        let id = at * CHUNK_NODES + self.chunks[at].len() - 1;
        NodeId::try_from(id).expect("fewer than 2^32 locks in a tree")
    }

    /// Takes a node out; drop it with no mutex held.
    pub(super) fn remove(&mut self, id: NodeId) -> Node {
        self.root.0 = self.unlink(self.root.0, id);
        self.len -= 1;
        self.free.push(id);
        let empty = Node {
            low: Cut::below(&[]),
            high: None,
            left: NONE,
            right: NONE,
            priority: 0,
            reach: [NONE; 2],
            first: Grant::default(),
            more: Vec::new(),
        };
        std::mem::replace(self.node_mut(id), empty)
    }

    /// Moves the high end of a span.
    pub(super) fn set_high(&mut self, id: NodeId, high: Cut) -> Option<Cut> {
        let before = self.node_mut(id).high.as_deref_mut().map(|old| std::mem::replace(old, high));
        self.refresh(self.root.0, id);
        before
    }

    /// The row of `key`.
    pub(super) fn row(&self, key: &[u8]) -> Option<NodeId> {
        let mut at = self.root.0;
        while at != NONE {
            let node = self.node(at);
            // At one low end rows come before spans.
            at = match node.low.compare(key, Side::Below) {
                Ordering::Equal if !node.is_span() => return Some(at),
                Ordering::Equal | Ordering::Greater => node.left,
                Ordering::Less => node.right,
            };
        }
        None
    }

    /// Visits the spans over `key`, of all modes or of the exclusive ones.
    pub(super) fn spans_over<'a>(
        &'a self,
        key: &[u8],
        exclusive: bool,
        visit: &mut dyn FnMut(&'a Grant) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        self.stab(self.root.0, key, usize::from(exclusive), visit)
    }

    fn stab<'a>(
        &'a self,
        at: NodeId,
        key: &[u8],
        kind: usize,
        visit: &mut dyn FnMut(&'a Grant) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        if at == NONE {
            return ControlFlow::Continue(());
        }
        let node = self.node(at);
        let reaches = |id: NodeId| id != NONE && !self.high_of(id).is_below(key);
        if !reaches(node.reach[kind]) {
            return ControlFlow::Continue(());
        }
        self.stab(node.left, key, kind, visit)?;
        if !node.low.is_below(key) {
            return ControlFlow::Continue(());
        }
        let counts = node.is_span() && (kind == 0 || node.mode() == Mode::Exclusive);
        let unseen = planted::is(Bug::EqualKeyNotChecked)
            && node.low.compare(key, Side::Below) == Ordering::Equal;
        if counts && reaches(at) && !unseen {
            visit(&node.first)?;
        }
        self.stab(node.right, key, kind, visit)
    }

    fn high_of(&self, id: NodeId) -> &Cut {
        let node = self.node(id);
        node.high.as_deref().unwrap_or(&node.low)
    }

    fn is_less(&self, a: NodeId, b: NodeId) -> bool {
        let (x, y) = (self.node(a), self.node(b));
        x.low.cmp(&y.low).then(x.is_span().cmp(&y.is_span())).then(a.cmp(&b)).is_lt()
    }

    /// Makes `reach` of a node true again, after that of its children.
    fn pull(&mut self, id: NodeId) {
        let node = self.node(id);
        let mut reach = [NONE; 2];
        for (kind, reach) in reach.iter_mut().enumerate() {
            let counts = node.is_span() && (kind == 0 || node.mode() == Mode::Exclusive);
            let below = [node.left, node.right].into_iter().filter(|&child| child != NONE);
            let spans = below.map(|child| self.node(child).reach[kind]);
            let spans = spans.chain(counts.then_some(id)).filter(|&span| span != NONE);
            if let Some(last) = spans.max_by(|&a, &b| self.high_of(a).cmp(self.high_of(b))) {
                *reach = last;
            }
        }
        self.node_mut(id).reach = reach;
    }

    fn link(&mut self, at: NodeId, new: NodeId) -> NodeId {
        if at == NONE {
            return new;
        }
        if self.node(new).priority > self.node(at).priority {
            let (left, right) = self.split(at, new);
            let node = self.node_mut(new);
            (node.left, node.right) = (left, right);
            self.pull(new);
            return new;
        }
        if self.is_less(new, at) {
            let left = self.link(self.node(at).left, new);
            self.node_mut(at).left = left;
        } else {
            let right = self.link(self.node(at).right, new);
            self.node_mut(at).right = right;
        }
        self.pull(at);
        at
    }

    /// The nodes below `at` that come before `by`, and the others.
    fn split(&mut self, at: NodeId, by: NodeId) -> (NodeId, NodeId) {
        if at == NONE {
            return (NONE, NONE);
        }
        let parts;
        if self.is_less(at, by) {
            let (left, right) = self.split(self.node(at).right, by);
            self.node_mut(at).right = left;
            parts = (at, right);
        } else {
            let (left, right) = self.split(self.node(at).left, by);
            self.node_mut(at).left = right;
            parts = (left, at);
        }
        self.pull(at);
        parts
    }

    fn unlink(&mut self, at: NodeId, id: NodeId) -> NodeId {
        if at == id {
            let node = self.node(id);
            return self.merge(node.left, node.right);
        }
        if self.is_less(id, at) {
            let left = self.unlink(self.node(at).left, id);
            self.node_mut(at).left = left;
        } else {
            let right = self.unlink(self.node(at).right, id);
            self.node_mut(at).right = right;
        }
        self.pull(at);
        at
    }

    fn merge(&mut self, left: NodeId, right: NodeId) -> NodeId {
        if left == NONE || right == NONE {
            return if left == NONE { right } else { left };
        }
        let top;
        if self.node(left).priority > self.node(right).priority {
            let below = self.merge(self.node(left).right, right);
            self.node_mut(left).right = below;
            top = left;
        } else {
            let below = self.merge(left, self.node(right).left);
            self.node_mut(right).left = below;
            top = right;
        }
        self.pull(top);
        top
    }

    fn refresh(&mut self, at: NodeId, id: NodeId) {
        if at != id {
            let node = self.node(at);
            let child = if self.is_less(id, at) { node.left } else { node.right };
            self.refresh(child, id);
        }
        self.pull(at);
    }
}

/// The order of insertion says nothing about the priority, yet the same run takes the same course.
fn scatter(n: u64) -> u32 {
    let mut x = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((x ^ x >> 31) >> 32) as u32
}

#[cfg(test)]
#[path = "lock_tree_tests.rs"]
mod tests;
