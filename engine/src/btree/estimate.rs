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
        Ok(between(&low[parted..], &high[parted..]) as u64)
    }

    /// About how many entries the tree has.
    pub fn estimate_len(&self) -> Result<u64> {
        let first = self.path(Goal::At(&[]), |_| 0)?;
        let last = self.path(Goal::Last, |n| n.count())?;
        let middle = self.path_middle()?;
        if first.len() != last.len() || first.len() != middle.len() {
            return Ok(total(&middle) as u64);
        }
        // Each level counts with its median: the last leaf of ascending keys is nearly empty.
        let levels = first.iter().zip(&middle).zip(&last);
        let median = |((a, b), c): ((&Step, &Step), &Step)| {
            let (low, high) = (a.count.min(b.count), a.count.max(b.count));
            c.count.clamp(low, high) as f64
        };
        Ok(levels.map(median).product::<f64>().round() as u64)
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

/// Entries from the first path's end to the second's. They part at their first step.
fn between(low: &[Step], high: &[Step]) -> f64 {
    let (l, h) = (&low[0], &high[0]);
    if l.page == h.page && h.slot <= l.slot {
        return 0.0;
    }
    if low.len() == 1 {
        return if l.page == h.page {
            (h.slot - l.slot) as f64
        } else {
            (l.count - l.slot + h.slot) as f64
        };
    }
    // Entries under a child that neither path entered.
    let typical = |level: usize| -> f64 {
        (level + 1..low.len()).map(|i| low[i].count.max(high[i].count) as f64).product()
    };
    let whole = if l.page == h.page { h.slot - l.slot - 1 } else { l.count - 1 - l.slot + h.slot };
    let mut entries = whole as f64 * typical(0);
    let leaf = low.len() - 1;
    for i in 1..=leaf {
        let right_of_low = low[i].count - low[i].slot - usize::from(i < leaf);
        entries += (right_of_low + high[i].slot) as f64 * typical(i);
    }
    entries
}
