//! Making room: dead entries first, then a split; the root grows by a level. Each is one record.

use super::codec::{self, Value};
use super::need::Need;
use super::node::{
    common_prefix_len, entry_bytes, fence_prefix_len, separator, Found, Node, BODY_BYTES,
    CHILD_BYTES,
};
use super::tree::Tree;
use crate::base::{checked, PageId, Result};
use crate::buffer::WriteGuard;
use std::ops::Range;

/// Where to split: the left node keeps so many entries, the right one begins at the separator.
struct Split {
    keep: usize,
    separator: Vec<u8>,
}

impl Tree {
    /// Returns when the entry fits (or did at that moment: the caller looks again).
    pub(super) fn make_room(&self, need: &Need<'_>) -> Result<()> {
        loop {
            self.env.wal.admit_owed()?;
            let Some(mut parent) = self.write_at(need.key, need.level + 1)? else {
                if self.make_room_in_root(need)? {
                    return Ok(());
                }
                continue;
            };
            let slot = Node::new(&parent).child_slot(need.key);
            let mut child = self.write_child(Node::new(&parent), slot)?;
            if need.fits(&child) || (self.drop_dead(&mut child) && need.fits(&child)) {
                return Ok(());
            }
            let Some(split) = plan_split(Node::new(&child), need) else {
                return Err(self.corrupt("no position to split at", child.page()));
            };
            let above =
                Need { level: need.level + 1, key: &split.separator, value_len: CHILD_BYTES };
            if above.fits(&parent) {
                self.split(&mut parent, slot, &mut child, &split)?;
            } else {
                drop(child);
                drop(parent);
                self.make_room(&above)?;
            }
        }
    }

    /// True: the entry fits now, or the root is no longer the node in question.
    fn make_room_in_root(&self, need: &Need<'_>) -> Result<bool> {
        let mut root = self.write_root()?;
        if Node::new(&root).level() != need.level {
            return Ok(false);
        }
        if need.fits(&root) || (self.drop_dead(&mut root) && need.fits(&root)) {
            return Ok(true);
        }
        self.grow_root(&mut root)?;
        Ok(false)
    }

    /// The root's content moves to a new only child.
    pub(super) fn grow_root(&self, root: &mut WriteGuard) -> Result<()> {
        let child_id = self.env.allocate();
        let mut child = self.env.pool.create(child_id, self.id)?;
        let node = Node::new(root);
        let (mut moved, mut grown) = (Vec::new(), Vec::new());
        put_part(&mut moved, node, 0..node.count(), (node.low(), node.high()));
        codec::put_init(&mut grown, self.id, node.level() + 1, (&[], None), 1);
        codec::put_entry(&mut grown, &[], &child_id.0.to_le_bytes());
        let pages = &mut [(root, &grown[..]), (&mut child, &moved[..])];
        self.log_and_apply(&[], pages, &mut []);
        Ok(())
    }

    fn split(
        &self,
        parent: &mut WriteGuard,
        slot: usize,
        left: &mut WriteGuard,
        split: &Split,
    ) -> Result<()> {
        let right_id: PageId = self.env.allocate();
        let mut right = self.env.pool.create(right_id, self.id)?;
        let (mut above, mut kept, mut moved) = (Vec::new(), Vec::new(), Vec::new());
        let separator = &split.separator[..];
        let suffix = &separator[Node::new(parent).prefix_len()..];
        let child = right_id.0.to_le_bytes();
        codec::put_insert(&mut above, slot + 1, suffix, &Value::Plain(child[..].into()));
        codec::put_truncate(&mut kept, split.keep, separator);
        let node = Node::new(left);
        put_part(&mut moved, node, split.keep..node.count(), (separator, node.high()));
        let pages = &mut [(parent, &above[..]), (left, &kept[..]), (&mut right, &moved[..])];
        self.log_and_apply(&[], pages, &mut []);
        Ok(())
    }

    /// Removes entries of a leaf that nobody can need. True: there were some.
    fn drop_dead(&self, leaf: &mut WriteGuard) -> bool {
        let Some(is_dead) = self.env.dead.get() else { return false };
        let node = Node::new(leaf);
        if !node.is_leaf() {
            return false;
        }
        let dead: Vec<usize> = (0..node.count()).filter(|&i| is_dead(node.value(i))).collect();
        if dead.is_empty() {
            return false;
        }
        let mut change = Vec::new();
        codec::put_remove_many(&mut change, &dead);
        self.log_and_apply(&[], &mut [(leaf, &change)], &mut []);
        true
    }
}

/// Writes an INIT with a part of a node's entries under new fences.
pub(super) fn put_part(
    out: &mut Vec<u8>,
    node: Node<'_>,
    part: Range<usize>,
    fences: (&[u8], Option<&[u8]>),
) {
    codec::put_init(out, node.tree(), node.level(), fences, part.len());
    put_entries(out, node, part, fence_prefix_len(fences.0, fences.1), true);
}

/// Writes entries for a node whose prefix has `prefix_len` bytes. `first`: they are its first ones,
/// so the first key of an inner node is implied.
pub(super) fn put_entries(
    out: &mut Vec<u8>,
    node: Node<'_>,
    part: Range<usize>,
    prefix_len: usize,
    first: bool,
) {
    let mut key = Vec::new();
    for i in part.clone() {
        key.clear();
        node.key_to(i, &mut key);
        let implied = first && i == part.start && !node.is_leaf();
        codec::put_entry(out, if implied { &[] } else { &key[prefix_len..] }, node.value(i));
    }
}

fn plan_split(node: Node<'_>, need: &Need<'_>) -> Option<Split> {
    if node.is_leaf() {
        Planner::new(node, need, node.search(need.key)).plan()
    } else {
        plan_inner(node, need)
    }
}

/// The first of `start`, `start` - 1, `start` + 1, ... within `range` for which `f` answers.
fn nearest<T>(start: usize, range: Range<usize>, f: impl Fn(usize) -> Option<T>) -> Option<T> {
    (0..range.len()).find_map(|d| {
        let below = start.checked_sub(d).filter(|s| range.contains(s)).and_then(&f);
        below.or_else(|| (range.contains(&(start + d)) && d > 0).then(|| f(start + d))?)
    })
}

/// Inner nodes split at an entry of their own, since ranges of children must stay adjacent.
fn plan_inner(node: Node<'_>, need: &Need<'_>) -> Option<Split> {
    let count = node.count();
    let appends = node.search(need.key) == Err(count);
    let half: usize = (0..count).map(|i| node.entry_bytes(i)).sum::<usize>() / 2;
    let mut sum = 0;
    let middle = (0..count).find(|&i| {
        sum += node.entry_bytes(i);
        sum > half
    });
    let start = if appends { count - 1 } else { middle.unwrap_or(1).max(1) };
    nearest(start, 1..count, |keep| {
        let separator = node.key(keep);
        parts_fit(node, keep, &separator).then_some(Split { keep, separator })
    })
}

/// Whether both parts fit their pages with the fences they get.
fn parts_fit(node: Node<'_>, keep: usize, separator: &[u8]) -> bool {
    let part = |range: Range<usize>, low: &[u8], high: Option<&[u8]>| {
        let shorter = fence_prefix_len(low, high).saturating_sub(node.prefix_len());
        let entries = |i| node.entry_bytes(i) - shorter.min(node.suffix_len(i));
        let fences = low.len() + high.map_or(0, <[u8]>::len);
        range.map(entries).sum::<usize>() + fences <= BODY_BYTES
    };
    part(0..keep, node.low(), Some(separator)) && part(keep..node.count(), separator, node.high())
}

/// Leaves split as if the new entry were in already; it may come to stand alone on either side.
struct Planner<'a> {
    node: Node<'a>,
    need: &'a Need<'a>,
    found: Found,
}

impl<'a> Planner<'a> {
    fn new(node: Node<'a>, need: &'a Need<'a>, found: Found) -> Self {
        Planner { node, need, found }
    }

    fn count(&self) -> usize {
        self.node.count() + usize::from(self.found.is_err())
    }

    /// Entry of the node at a position counted with the new one; None is the new one itself.
    fn existing(&self, i: usize) -> Option<usize> {
        match self.found {
            Ok(slot) | Err(slot) if i == slot => None,
            Err(slot) if i > slot => Some(i - 1),
            _ => Some(i),
        }
    }

    fn bytes(&self, i: usize) -> usize {
        let own = self.need.key.len() - self.node.prefix_len();
        let new = || entry_bytes(own, self.need.value_len);
        self.existing(i).map_or_else(new, |slot| self.node.entry_bytes(slot))
    }

    fn key(&self, i: usize) -> Vec<u8> {
        self.existing(i).map_or_else(|| self.need.key.to_vec(), |slot| self.node.key(slot))
    }

    fn plan(&self) -> Option<Split> {
        // Ascending keys fill their pages: only the new entry goes to the right.
        let appends = self.found == Err(self.node.count());
        let start = if appends { self.count() - 1 } else { self.balanced() };
        nearest(start, 1..self.count(), |at| self.split_at(at))
    }

    fn balanced(&self) -> usize {
        let total: usize = (0..self.count()).map(|i| self.bytes(i)).sum();
        let (mut left, mut best) = (0, (usize::MAX, 1));
        for at in 1..self.count() {
            left += self.bytes(at - 1);
            best = best.min((left.max(total - left), at));
        }
        best.1
    }

    fn split_at(&self, at: usize) -> Option<Split> {
        let (below, first) = (self.key(at - 1), self.key(at));
        let separator = separator(&below, &first).to_vec();
        checked!(common_prefix_len(&separator, &first) == separator.len());
        let keep = match self.found {
            Err(slot) if at > slot => at - 1,
            _ => at,
        };
        parts_fit(self.node, keep, &separator).then_some(Split { keep, separator })
    }
}
