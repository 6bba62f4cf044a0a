//! How far the spans of a tree of holds reach: each leaf, and each child of an inner node, knows
//! the span that ends last. Pure data.

use super::key::{Cut, Side};
use super::leaf::{At, Hold, Kind, LockEntry, Reach, SpanId};
use super::queue::LockMode;
use super::slab::{Id, NONE};
use super::tree::{child_of, LockTree};
use crate::os::planted::{self, Bug};
use std::ops::{ControlFlow, RangeInclusive};

fn kinds(mode: LockMode) -> RangeInclusive<usize> {
    0..=usize::from(mode == LockMode::Exclusive)
}

impl LockTree {
    /// Visits the owners of the spans over `key`, of all modes or of the exclusive ones.
    pub(super) fn spans_over(
        &self,
        key: &[u8],
        exclusive: bool,
        visit: &mut dyn FnMut(u32) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        if self.spans() == 0 {
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
        if depth == 0 {
            return self.stab_leaf(node, key, kind, visit);
        }
        let children = &self.inners[node];
        let last = child_of(children, &At::after(key));
        for child in children[..=last].iter().rev() {
            if !self.reaches(child.until[kind], key) {
                break;
            }
            if self.reaches(child.own[kind], key) {
                self.stab(child.node, depth - 1, key, kind, visit)?;
            }
        }
        ControlFlow::Continue(())
    }

    fn stab_leaf(
        &self,
        leaf: Id,
        key: &[u8],
        kind: usize,
        visit: &mut dyn FnMut(u32) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let entries = self.leaves[leaf].entries();
        let before = entries.partition_point(|entry| entry.at() <= At::after(key));
        for entry in entries[..before].iter().rev() {
            let Hold::Span { mode, end, reach, .. } = entry.hold else { continue };
            if !self.reaches(reach, key) {
                break;
            }
            let unseen = planted::is(Bug::EqualKeyNotChecked)
                && entry.at().side == Side::Below
                && *entry.key == *key;
            if kinds(mode).contains(&kind) && self.reaches(end, key) && !unseen {
                visit(entry.owner)?;
            }
        }
        ControlFlow::Continue(())
    }

    fn reaches(&self, span: SpanId, key: &[u8]) -> bool {
        span != NONE && !self.ends[span].is_below(key)
    }

    pub(super) fn further(&self, a: SpanId, b: SpanId) -> SpanId {
        match (a, b) {
            (NONE, other) | (other, NONE) => other,
            _ if self.ends[a] > self.ends[b] => a,
            _ => b,
        }
    }

    /// Of a node at a height above the leaves.
    pub(super) fn reach_of(&self, node: Id, height: u32) -> Reach {
        if height > 0 {
            return self.inners[node].last().map_or([NONE; 2], |child| child.until);
        }
        let mut reach = [NONE; 2];
        for (end, mode) in self.leaves[node].entries().iter().filter_map(LockEntry::end) {
            for kind in kinds(mode) {
                reach[kind] = self.further(end, reach[kind]);
            }
        }
        reach
    }

    /// Makes the reach of a child true again, and that of those after it.
    pub(super) fn settle(&mut self, node: Id, depth: u32, index: usize) {
        let own = self.reach_of(self.inners[node][index].node, depth - 1);
        self.inners[node][index].own = own;
        self.spread(node, index);
    }

    pub(super) fn spread(&mut self, node: Id, from: usize) {
        let before = from.checked_sub(1).map(|at| self.inners[node][at].until);
        let mut until = before.unwrap_or([NONE; 2]);
        for index in from..self.inners[node].len() {
            let own = self.inners[node][index].own;
            until = [0, 1].map(|kind| self.further(until[kind], own[kind]));
            self.inners[node][index].until = until;
        }
    }

    /// The span, in this child, is new or has grown.
    pub(super) fn raise(&mut self, node: Id, index: usize, end: SpanId, mode: LockMode) {
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

    /// Moves the high end of a span up; answers the span and where its end was.
    pub(super) fn raise_below(
        &mut self,
        node: Id,
        depth: u32,
        at: &At<'_>,
        high: Cut,
    ) -> (SpanId, Cut) {
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

    /// Takes a span out. No node names it any more.
    pub(super) fn remove_below(&mut self, node: Id, depth: u32, at: &At<'_>) -> LockEntry {
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

    /// Makes the reach of the spans from `from` on true again.
    pub(super) fn settle_leaf(&mut self, leaf: Id, from: usize) {
        let reach_of = |entry: &LockEntry| match entry.hold {
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
