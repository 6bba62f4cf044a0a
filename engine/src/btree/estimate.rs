//! Estimates for the optimizer, from a few descents.
//!
//! No latch is held between two descents, so the tree may change in between: then the answer is
//! about as far off as the change is large.

use super::descend::Goal;
use super::node::Node;
use super::sample::spread;
use super::tree::Tree;
use crate::base::{PageId, Result};
use std::ops::Bound;

/// Descents that look at what lies inside of a range or tree.
const LOOKS_MAX: usize = 8;

/// What a range holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RangeEstimate {
    pub entries: u64,
    /// The leaves of the two bounds.
    pub first_leaf: PageId,
    pub last_leaf: PageId,
}

/// How large a tree is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TreeSize {
    /// With those that are delete marks.
    pub entries: u64,
    pub leaf_pages: u64,
    /// With inner nodes.
    pub pages: u64,
}

/// One node of a descent.
struct PathNode {
    page: PageId,
    level: u8,
    /// Slot of the child taken; in the leaf, entries in front of the bound.
    slot: usize,
    count: usize,
}

impl Tree {
    /// About how many entries lie between the bounds; exact when they lie in one leaf, or in a few
    /// leaves under one parent.
    pub fn estimate_range(&self, low: Bound<&[u8]>, high: Bound<&[u8]>) -> Result<RangeEstimate> {
        let from = match low {
            Bound::Included(key) | Bound::Excluded(key) => key,
            Bound::Unbounded => &[],
        };
        let low = match low {
            Bound::Included(key) => self.path(Goal::At(key), |n| position(n, key, false))?,
            Bound::Excluded(key) => self.path(Goal::At(key), |n| position(n, key, true))?,
            Bound::Unbounded => self.path(Goal::At(&[]), |_| 0)?,
        };
        let high = match high {
            Bound::Included(key) => self.path(Goal::At(key), |n| position(n, key, true))?,
            Bound::Excluded(key) => self.path(Goal::At(key), |n| position(n, key, false))?,
            Bound::Unbounded => self.path(Goal::Last, |n| n.count())?,
        };
        let entries = self.entries_between(from, &low, &high)?;
        let leaf = |path: &[PathNode]| path.last().map_or(self.root, |step| step.page);
        Ok(RangeEstimate { entries, first_leaf: leaf(&low), last_leaf: leaf(&high) })
    }

    fn entries_between(&self, from: &[u8], low: &[PathNode], high: &[PathNode]) -> Result<u64> {
        if low.len() != high.len() {
            // The root grew or shrank in between.
            return Ok(total(low).max(total(high)) as u64);
        }
        let parted = low.iter().zip(high).position(|(l, h)| l.page != h.page || l.slot != h.slot);
        let Some(parted) = parted else { return Ok(0) };
        let (low, high) = (&low[parted..], &high[parted..]);
        let (l, h) = (&low[0], &high[0]);
        if l.page == h.page && h.slot <= l.slot {
            return Ok(0);
        }
        if l.page != h.page || low.len() == 1 || h.slot - l.slot < 2 {
            return Ok(between(low, high, None));
        }
        let inside = self.look_inside(from, l.level, l.slot + 1..h.slot)?;
        Ok(between(low, high, inside))
    }

    /// The mean counts, by level from the children down, of nodes under these slots of the node of
    /// `key` at `level`. None: the node has changed.
    fn look_inside(
        &self,
        key: &[u8],
        level: u8,
        slots: std::ops::Range<usize>,
    ) -> Result<Option<Vec<f64>>> {
        let Some(children) = self.children_at(key, level, slots)? else { return Ok(None) };
        let chosen = spread(children.len(), LOOKS_MAX);
        let paths = chosen.iter().enumerate().map(|(i, &child)| {
            let low = &children[child];
            self.steps(|node| match node.level() >= level {
                true => node.child_slot(low),
                false => middle_slot(node, i, chosen.len()),
            })
        });
        let mut paths = paths.collect::<Result<Vec<_>>>()?;
        paths.iter_mut().for_each(|path| path.retain(|step| step.level < level));
        Ok(mean_counts(&paths, usize::from(level)))
    }

    /// About how large the tree is.
    pub fn estimate_size(&self) -> Result<TreeSize> {
        let first = self.steps(|node| middle_slot(node, 0, 1))?;
        let height = first.len();
        if height == 1 {
            return Ok(TreeSize { entries: first[0].count as u64, leaf_pages: 1, pages: 1 });
        }
        let chosen = spread(first[0].count, LOOKS_MAX);
        let paths = chosen.iter().enumerate().map(|(i, &child)| {
            self.steps(|node| match usize::from(node.level()) + 1 >= height {
                true => child.min(node.count() - 1),
                false => middle_slot(node, i, chosen.len()),
            })
        });
        let paths = paths.collect::<Result<Vec<_>>>()?;
        let counts = match mean_counts(&paths, height) {
            Some(counts) => counts,
            None => first.iter().map(|step| step.count as f64).collect(),
        };
        let (mut pages, mut level_pages) = (1.0, 1.0);
        for count in &counts[..height - 1] {
            level_pages *= count;
            pages += level_pages;
        }
        Ok(TreeSize {
            entries: (level_pages * counts[height - 1]).round() as u64,
            leaf_pages: level_pages.round() as u64,
            pages: pages.round() as u64,
        })
    }

    fn path(&self, goal: Goal<'_>, in_leaf: impl Fn(Node<'_>) -> usize) -> Result<Vec<PathNode>> {
        self.steps(|node| if node.is_leaf() { in_leaf(node) } else { goal.child_slot(node) })
    }

    fn steps(&self, slot_of: impl Fn(Node<'_>) -> usize) -> Result<Vec<PathNode>> {
        let mut steps = Vec::new();
        let mut guard = self.read_root()?;
        loop {
            let node = Node::new(&guard);
            let slot = slot_of(node);
            let (page, level) = (node.page_id(), node.level());
            steps.push(PathNode { page, level, slot, count: node.count() });
            if node.is_leaf() {
                return Ok(steps);
            }
            guard = self.read_child(node, slot)?;
        }
    }
}

fn position(node: Node<'_>, key: &[u8], after: bool) -> usize {
    node.search(key).map_or_else(|i| i, |i| i + usize::from(after))
}

/// The slot where the `i`th of `n` looks goes on, so that each sees another part of its nodes.
fn middle_slot(node: Node<'_>, i: usize, n: usize) -> usize {
    node.count() * (2 * i + 1) / (2 * n)
}

/// Entries under the first node if all nodes were like those of the path.
fn total(path: &[PathNode]) -> f64 {
    path.iter().map(|step| step.count as f64).product()
}

/// None: there is no path, or not all have this length.
fn mean_counts(paths: &[Vec<PathNode>], len: usize) -> Option<Vec<f64>> {
    if paths.is_empty() || paths.iter().any(|path| path.len() != len) {
        return None;
    }
    let mean = |i: usize| paths.iter().map(|p| p[i].count as f64).sum::<f64>() / paths.len() as f64;
    Some((0..len).map(mean).collect())
}

/// Entries from the first path's end to the second's. They part at their first step. `inside`: the
/// mean counts of nodes between them, from the children of the first step down.
fn between(low: &[PathNode], high: &[PathNode], inside: Option<Vec<f64>>) -> u64 {
    let (l, h) = (&low[0], &high[0]);
    let leaf = low.len() - 1;
    if leaf == 0 {
        return if l.page == h.page { h.slot - l.slot } else { l.count - l.slot + h.slot } as u64;
    }
    let counts = inside
        .filter(|counts| counts.len() == leaf)
        .unwrap_or_else(|| (1..=leaf).map(|i| low[i].count.max(high[i].count) as f64).collect());
    // Entries under a child of a node at step `i` that neither path entered.
    let typical = |i: usize| counts[i..].iter().product::<f64>();
    let whole = if l.page == h.page { h.slot - l.slot - 1 } else { l.count - 1 - l.slot + h.slot };
    let mut entries = whole as f64 * typical(0);
    for i in 1..=leaf {
        let right_of_low = low[i].count - low[i].slot - usize::from(i < leaf);
        entries += (right_of_low + high[i].slot) as f64 * typical(i);
    }
    entries.round() as u64
}
