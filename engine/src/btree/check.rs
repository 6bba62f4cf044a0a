//! Verification of one page and of a whole tree.

use super::node::{
    at, fence_prefix_len, head_of, Node, CHILD_BYTES, ENTRY_PREFIX_BYTES, FORMAT, HAS_HIGH,
    HEADER_BYTES, LEVEL_MAX, SLOT_BYTES,
};
use super::tree::Tree;
use crate::base::limits::{KEY_BYTES_MAX, VALUE_BYTES_MAX};
use crate::base::{Error, PageId, Result, PAGE_BYTES};
use crate::buffer::ReadGuard;

/// What a whole-tree verification counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TreeShape {
    /// Levels; a tree of one leaf has one.
    pub height: u64,
    pub inner_nodes: u64,
    pub leaves: u64,
    pub entries: u64,
    /// Of all leaves: fences, slots, entries.
    pub leaf_used_bytes: u64,
}

/// Verifies the structure of a page: afterwards no access to the node can go out of bounds.
pub fn check_page(page: &[u8]) -> Result<()> {
    if page.len() != PAGE_BYTES {
        return Err(Error::corrupt("page size", "node"));
    }
    let node = Node::new(page);
    match verify(node) {
        Ok(()) => Ok(()),
        Err(what) => Err(Error::corrupt(what, format!("page {}", node.page_id()))),
    }
}

fn verify(node: Node<'_>) -> std::result::Result<(), &'static str> {
    let ensure = |holds: bool, what| if holds { Ok(()) } else { Err(what) };
    ensure(node.page_id() != PageId::ZERO, "page id zero")?;
    ensure(node.flags() & !HAS_HIGH == FORMAT, "node format")?;
    ensure(node.level() <= LEVEL_MAX, "node level")?;
    let (slots_end, heap) = (HEADER_BYTES + node.count() * SLOT_BYTES, node.heap_start());
    ensure(slots_end <= heap && heap <= PAGE_BYTES, "slots over heap")?;
    ensure(node.is_leaf() || node.count() > 0, "inner node without children")?;
    for i in [at::LOW, at::HIGH] {
        let (from, len) = (node.u16_at(i), node.u16_at(i + 2));
        ensure(from >= heap && from + len <= PAGE_BYTES && len <= KEY_BYTES_MAX, "fence place")?;
    }
    let (low, high) = (node.low(), node.high());
    ensure(high.is_none_or(|high| low < high), "fence order")?;
    ensure(node.prefix_len() == fence_prefix_len(low, high), "prefix length")?;
    let mut heap_bytes = node.garbage() + node.u16_at(at::LOW + 2) + node.u16_at(at::HIGH + 2);
    for i in 0..node.count() {
        verify_entry(node, i)?;
        heap_bytes += node.entry_bytes(i) - SLOT_BYTES;
    }
    ensure(heap + heap_bytes == PAGE_BYTES, "heap size")
}

fn verify_entry(node: Node<'_>, i: usize) -> std::result::Result<(), &'static str> {
    let ensure = |holds: bool, what| if holds { Ok(()) } else { Err(what) };
    let (offset, suffix_len) = (node.slot_offset(i), node.suffix_len(i));
    ensure(offset >= node.heap_start(), "entry place")?;
    let value_from = offset + ENTRY_PREFIX_BYTES + suffix_len;
    ensure(value_from <= PAGE_BYTES, "entry place")?;
    ensure(node.prefix_len() + suffix_len <= KEY_BYTES_MAX, "key length")?;
    let (_, value_len) = node.value_span(i);
    ensure(value_from + value_len <= PAGE_BYTES, "value place")?;
    ensure(value_len <= VALUE_BYTES_MAX, "value length")?;
    ensure(node.head(i) == head_of(node.suffix(i)), "key head")?;
    if node.is_leaf() {
        ensure(i == 0 || node.suffix(i - 1) < node.suffix(i), "key order")?;
    } else {
        ensure(value_len == CHILD_BYTES, "child reference")?;
        ensure(i > 0 || suffix_len == 0, "first child's key")?;
        ensure(i < 2 || node.suffix(i - 1) < node.suffix(i), "key order")?;
    }
    if i + 1 < node.count() && i > 0 {
        return Ok(());
    }
    // The ends lie between the fences, so all between them do.
    ensure(node.covers(&node.key(i)), "key outside of its fences")
}

/// Faults that one check of a tree collects: a damaged disk needs no longer list.
const FAULTS_MAX: usize = 100;

impl Tree {
    /// Verifies every node, its place under its parent, and the order of all keys; answers the first
    /// fault. Other threads may go on; each subtree is verified as it is when its parent is latched.
    pub fn check(&self) -> Result<TreeShape> {
        let mut faults = Vec::new();
        let shape = self.check_all(&mut faults);
        match faults.into_iter().next() {
            None => Ok(shape),
            Some(error) => Err(error),
        }
    }

    /// As [`Tree::check`], and goes on behind a fault with what can still be reached. The shape
    /// counts what was verified.
    pub fn check_all(&self, faults: &mut Vec<Error>) -> TreeShape {
        let mut shape = TreeShape::default();
        let root = match self.read_root() {
            Ok(root) => root,
            Err(error) => {
                faults.push(error);
                return shape;
            }
        };
        let node = Node::new(&root);
        shape.height = u64::from(node.level()) + 1;
        if !node.low().is_empty() || node.high().is_some() {
            faults.push(self.corrupt("the root does not cover all keys", self.root));
        }
        self.check_subtree(&root, &mut shape, faults);
        shape
    }

    fn check_subtree(&self, guard: &ReadGuard, shape: &mut TreeShape, faults: &mut Vec<Error>) {
        if let Err(error) = check_page(guard) {
            return faults.push(error.of_page(guard.page()));
        }
        let node = Node::new(guard);
        if node.is_leaf() {
            shape.leaves += 1;
            shape.entries += node.count() as u64;
            shape.leaf_used_bytes += node.used() as u64;
            return;
        }
        shape.inner_nodes += 1;
        for i in 0..node.count() {
            if faults.len() >= FAULTS_MAX {
                return;
            }
            match self.check_child(node, i) {
                Ok(child) => self.check_subtree(&child, shape, faults),
                Err(error) => faults.push(error),
            }
        }
    }

    fn check_child(&self, node: Node<'_>, i: usize) -> Result<ReadGuard> {
        let child = self.read_child(node, i)?;
        let below = Node::new(&child);
        let low = node.key(i);
        let high = if i + 1 < node.count() {
            Some(node.key(i + 1))
        } else {
            node.high().map(<[u8]>::to_vec)
        };
        if below.low() != low || below.high() != high.as_deref() {
            return Err(self.corrupt("fences differ from the parent's", below.page_id()));
        }
        Ok(child)
    }
}
