//! Estimates for the optimizer, from one or two descents.

use super::descend::Goal;
use super::node::Node;
use super::tree::Tree;
use crate::base::{PageId, Result};
use std::ops::Bound;

/// One node of a descent.
struct Step {
    page: PageId,
    /// Slot of the child taken; in the leaf, entries in front of the bound.
    slot: usize,
    count: usize,
}

impl Tree {
    /// About how many entries lie between the bounds; exact when they lie in one leaf.
    pub fn estimate_range(&self, low: Bound<&[u8]>, high: Bound<&[u8]>) -> Result<u64> {
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
        if low.len() != high.len() {
            // The root grew or shrank in between.
            return Ok(total(&low).max(total(&high)) as u64);
        }
        let parted = low.iter().zip(&high).position(|(l, h)| l.page != h.page || l.slot != h.slot);
        let Some(parted) = parted else { return Ok(0) };
        // Where pages differ at once, another thread changed the tree: count from the root.
        let entries = rank(&high[parted..]) - rank(&low[parted..]);
        Ok(entries.max(0.0).round() as u64)
    }

    /// About how many entries the tree has.
    pub fn estimate_len(&self) -> Result<u64> {
        let first = self.path(Goal::At(&[]), |_| 0)?;
        let last = self.path(Goal::Last, |n| n.count())?;
        let middle = self.path_middle()?;
        if first.len() != last.len() || first.len() != middle.len() {
            return Ok(total(&middle) as u64);
        }
        // Each level counts with its average over the three descents.
        let levels = first.iter().zip(&middle).zip(&last);
        let average = |((a, b), c): ((&Step, &Step), &Step)| {
            if a.page == c.page {
                a.count as f64
            } else {
                (a.count + b.count + c.count) as f64 / 3.0
            }
        };
        Ok(levels.map(average).product::<f64>().round() as u64)
    }

    fn path(&self, goal: Goal<'_>, in_leaf: impl Fn(Node<'_>) -> usize) -> Result<Vec<Step>> {
        self.steps(|node| if node.is_leaf() { in_leaf(node) } else { goal.child_slot(node) })
    }

    fn path_middle(&self) -> Result<Vec<Step>> {
        self.steps(|node| node.count() / 2)
    }

    fn steps(&self, slot_of: impl Fn(Node<'_>) -> usize) -> Result<Vec<Step>> {
        let mut steps = Vec::new();
        let mut guard = self.read_root()?;
        loop {
            let node = Node::new(&guard);
            let slot = slot_of(node);
            steps.push(Step { page: node.page_id(), slot, count: node.count() });
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

/// Entries under the first node if all nodes were like those of the path.
fn total(path: &[Step]) -> f64 {
    path.iter().map(|step| step.count as f64).product()
}

/// Entries under the first node and in front of the path's end.
fn rank(path: &[Step]) -> f64 {
    (0..path.len()).map(|i| path[i].slot as f64 * total(&path[i + 1..])).sum()
}
