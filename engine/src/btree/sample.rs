//! A sample of leaves for statistics: how many entries and pages a tree has, and how many values a
//! prefix of its keys.
//!
//! Invariants:
//! 1. Each node is reached by a descent of its own, and what is wanted of it is copied: no latch is held
//!    between two nodes.
//! 2. A value of a prefix is counted once, in the last leaf that has it: there the leaf's high fence does
//!    not begin with it.
//! 3. A node whose fences share a whole prefix holds one value of it, which does not end there. Such nodes
//!    are left out, so that few values among many rows are counted and not estimated.
//! 4. The same tree gives the same sample.

use super::node::{common_prefix_len, Node};
use super::tree::Tree;
use crate::base::Result;
use crate::buffer::ReadGuard;
use std::ops::Range;

/// Puts the ends of the parts of a key that stand whole at the front of the bytes into the vector.
pub type PartEnds<'a> = dyn Fn(&[u8], &mut Vec<usize>) + 'a;

/// Whether an entry with this value counts.
pub type IsAlive<'a> = dyn Fn(&[u8]) -> bool + 'a;

/// Nodes kept of one level, in leaves to be sampled.
const KEPT_PER_LEAF: usize = 16;

/// What a sample says of a whole tree.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sampled {
    pub entries: f64,
    pub leaf_pages: f64,
    /// With inner nodes.
    pub pages: f64,
}

/// `count` numbers below `len`, or all, evenly spread.
pub(super) fn spread(len: usize, count: usize) -> Vec<usize> {
    let n = count.min(len);
    (0..n).map(|i| (2 * i + 1) * len / (2 * n)).collect()
}

/// Keeps at most `limit` to twice `limit` of many, evenly spread.
struct Thinned {
    kept: Vec<Vec<u8>>,
    limit: usize,
    seen: usize,
    stride: usize,
}

impl Thinned {
    fn new(limit: usize) -> Thinned {
        Thinned { kept: Vec::new(), limit, seen: 0, stride: 1 }
    }

    fn push(&mut self, low: impl FnOnce() -> Vec<u8>) {
        if self.seen % self.stride == 0 {
            if self.kept.len() == 2 * self.limit {
                let mut at = 0;
                self.kept.retain(|_| {
                    at += 1;
                    at % 2 == 1
                });
                self.stride *= 2;
            }
            if self.seen % self.stride == 0 {
                self.kept.push(low());
            }
        }
        self.seen += 1;
    }
}

/// Low fences of nodes of one level, and of how many each one is an example.
struct Nodes {
    lows: Vec<Vec<u8>>,
    weight: f64,
    /// All that were wanted from the root on.
    pages: f64,
}

impl Nodes {
    fn thin_to(&mut self, count: usize) {
        let chosen = spread(self.lows.len(), count);
        if !chosen.is_empty() {
            self.weight *= self.lows.len() as f64 / chosen.len() as f64;
        }
        self.lows = chosen.into_iter().map(|i| std::mem::take(&mut self.lows[i])).collect();
    }
}

impl Tree {
    /// Entries and leaf pages, from `leaves` leaves.
    pub fn sample_size(&self, leaves: usize, is_alive: &IsAlive<'_>) -> Result<Sampled> {
        let mut nodes = self.leaves_where(leaves, &|_| true)?;
        let leaf_pages = nodes.lows.len() as f64 * nodes.weight;
        nodes.thin_to(leaves);
        let mut entries = 0;
        for low in &nodes.lows {
            let leaf = self.read_leaf(low)?;
            let node = Node::new(&leaf);
            entries += (0..node.count()).filter(|&i| is_alive(node.value(i))).count();
        }
        Ok(Sampled { entries: entries as f64 * nodes.weight, leaf_pages, pages: nodes.pages })
    }

    /// How many values the first `parts` parts of the keys have, from `leaves` leaves.
    pub fn sample_distinct(
        &self,
        parts: usize,
        ends: &PartEnds<'_>,
        leaves: usize,
        is_alive: &IsAlive<'_>,
    ) -> Result<f64> {
        let mut nodes = self.leaves_where(leaves, &|shared| {
            let mut found = Vec::new();
            ends(shared, &mut found);
            found.len() < parts
        })?;
        nodes.thin_to(leaves);
        let mut ended = 0;
        for low in &nodes.lows {
            ended += ended_in(Node::new(&self.read_leaf(low)?), parts, ends, is_alive);
        }
        Ok(ended as f64 * nodes.weight)
    }

    /// The leaves of which the bytes that their fences share are wanted, level by level from the root.
    fn leaves_where(&self, leaves: usize, is_wanted: &dyn Fn(&[u8]) -> bool) -> Result<Nodes> {
        let mut level = Node::new(&self.read_root()?).level();
        let mut nodes = Nodes { lows: vec![Vec::new()], weight: 1.0, pages: 1.0 };
        while level > 0 {
            nodes.thin_to(leaves);
            let mut children = Thinned::new(leaves * KEPT_PER_LEAF);
            for low in &nodes.lows {
                let Some(guard) = self.read_at(low, level)? else { continue };
                keep_children(Node::new(&guard), is_wanted, &mut children);
            }
            nodes.pages += children.seen as f64 * nodes.weight;
            if !children.kept.is_empty() {
                nodes.weight *= children.seen as f64 / children.kept.len() as f64;
            }
            nodes.lows = children.kept;
            level -= 1;
        }
        Ok(nodes)
    }

    /// The node of `key` at `level`, shared. None: the tree is not that high.
    fn read_at(&self, key: &[u8], level: u8) -> Result<Option<ReadGuard>> {
        let mut guard = self.read_root()?;
        loop {
            let node = Node::new(&guard);
            if node.level() <= level {
                return Ok((node.level() == level).then_some(guard));
            }
            guard = self.read_child(node, node.child_slot(key))?;
        }
    }

    /// Low fences of the children in these slots of the node of `key` at `level`. None: it has changed.
    pub(super) fn children_at(
        &self,
        key: &[u8],
        level: u8,
        slots: Range<usize>,
    ) -> Result<Option<Vec<Vec<u8>>>> {
        let Some(guard) = self.read_at(key, level)? else { return Ok(None) };
        let node = Node::new(&guard);
        Ok((slots.end <= node.count()).then(|| slots.map(|slot| node.key(slot)).collect()))
    }
}

fn keep_children(node: Node<'_>, is_wanted: &dyn Fn(&[u8]) -> bool, to: &mut Thinned) {
    let mut low = Vec::new();
    let mut high = Vec::new();
    node.key_to(0, &mut high);
    for slot in 0..node.count() {
        std::mem::swap(&mut low, &mut high);
        high.clear();
        let has_high = match slot + 1 < node.count() {
            true => {
                node.key_to(slot + 1, &mut high);
                true
            }
            false => node.high().map(|fence| high.extend_from_slice(fence)).is_some(),
        };
        let shared = if has_high { common_prefix_len(&low, &high) } else { 0 };
        if is_wanted(&low[..shared]) {
            to.push(|| low.clone());
        }
    }
}

/// Values of the prefix that have their last entry in this leaf.
fn ended_in(leaf: Node<'_>, parts: usize, ends: &PartEnds<'_>, is_alive: &IsAlive<'_>) -> usize {
    let mut found = Vec::new();
    let mut key = Vec::new();
    let mut value: Option<Vec<u8>> = None;
    let mut values = 0;
    for slot in (0..leaf.count()).filter(|&slot| is_alive(leaf.value(slot))) {
        key.clear();
        leaf.key_to(slot, &mut key);
        // Parts are prefix-free: what begins with the value has it.
        if value.as_ref().is_some_and(|value| key.starts_with(value)) {
            continue;
        }
        found.clear();
        ends(&key, &mut found);
        let end = parts.checked_sub(1).and_then(|last| found.get(last)).copied();
        value = Some(key[..end.unwrap_or(key.len())].to_vec());
        values += 1;
    }
    let goes_on = leaf.high().zip(value).is_some_and(|(high, value)| high.starts_with(&value));
    values - usize::from(goes_on)
}
