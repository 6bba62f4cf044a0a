//! Scans, one leaf at a time. A position is a key, so nothing is held between leaves and leaves need
//! no sibling pointers.

use super::descend::{Direction, Goal};
use super::node::Node;
use super::tree::Tree;
use crate::base::Result;
use crate::buffer::{Passing, ReadGuard};
use std::cell::Cell;
use std::ops::{Bound, ControlFlow};

/// How the scan of a leaf ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeafEnd {
    /// The visitor broke off.
    Stopped,
    /// The leaf's fence: go on from it, forward with `Bound::Included`, backward with
    /// `Bound::Excluded`.
    Next(Vec<u8>),
    /// There is nothing further in this direction.
    End,
}

thread_local! {
    static KEY: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

type Visit<'a> = dyn FnMut(&[u8], &[u8]) -> ControlFlow<()> + 'a;

impl Tree {
    /// Visits the entries from the bound to the end of its leaf, in the direction; of the next leaf
    /// that has any if that one has none. `f` gets key and value under the leaf's shared latch: it
    /// must not block.
    pub fn scan_leaf(
        &self,
        from: Bound<&[u8]>,
        direction: Direction,
        f: &mut Visit<'_>,
    ) -> Result<LeafEnd> {
        let scan = &mut Passing::default();
        let (mut end, mut has_any) = self.scan_one_leaf(from, direction, scan, f)?;
        while let (LeafEnd::Next(fence), false) = (&end, has_any) {
            (end, has_any) = self.scan_one_leaf(direction.behind(fence), direction, scan, f)?;
        }
        Ok(end)
    }

    /// As [`Tree::scan_leaf`], but of no other leaf than that of the bound: while `f` runs, its latch
    /// keeps all entries between the bound and the visited one as they are. The answer's second part:
    /// whether the leaf has any. `scan` is the same for all leaves of one scan.
    pub fn scan_one_leaf(
        &self,
        from: Bound<&[u8]>,
        direction: Direction,
        scan: &mut Passing,
        f: &mut Visit<'_>,
    ) -> Result<(LeafEnd, bool)> {
        let mut key = KEY.take();
        let result = match direction {
            Direction::Forward => self.scan_forward(from, &mut key, scan, f),
            Direction::Backward => self.scan_backward(from, &mut key, scan, f),
        };
        KEY.set(key);
        result
    }

    fn scan_forward(
        &self,
        from: Bound<&[u8]>,
        key: &mut Vec<u8>,
        scan: &mut Passing,
        f: &mut Visit<'_>,
    ) -> Result<(LeafEnd, bool)> {
        let start = match from {
            Bound::Included(start) | Bound::Excluded(start) => start,
            Bound::Unbounded => &[],
        };
        let leaf = self.pass_leaf(start, scan)?;
        let node = Node::new(&leaf);
        let first = match (node.search(start), from) {
            (Ok(i), Bound::Excluded(_)) => i + 1,
            (Ok(i) | Err(i), _) => i,
        };
        let has_any = first < node.count();
        if visit(node, first..node.count(), key, f).is_break() {
            self.note_near(leaf.page(), key);
            return Ok((LeafEnd::Stopped, has_any));
        }
        let end = node.high().map_or(LeafEnd::End, |high| LeafEnd::Next(high.to_vec()));
        self.leave(leaf, scan);
        Ok((end, has_any))
    }

    fn scan_backward(
        &self,
        from: Bound<&[u8]>,
        key: &mut Vec<u8>,
        scan: &mut Passing,
        f: &mut Visit<'_>,
    ) -> Result<(LeafEnd, bool)> {
        let leaf = match from {
            Bound::Included(start) => self.pass_leaf(start, scan)?,
            Bound::Excluded(start) => self.pass_leaf_below(start, scan)?,
            Bound::Unbounded => self.pass_leaf_for(Goal::Last, scan)?,
        };
        let node = Node::new(&leaf);
        let end = match from {
            Bound::Included(start) => node.search(start).map_or_else(|i| i, |i| i + 1),
            Bound::Excluded(start) if node.covers(start) => {
                node.search(start).unwrap_or_else(|i| i)
            }
            Bound::Excluded(_) | Bound::Unbounded => node.count(),
        };
        if visit(node, (0..end).rev(), key, f).is_break() {
            self.note_near(leaf.page(), key);
            return Ok((LeafEnd::Stopped, end > 0));
        }
        let low = node.low();
        let next = if low.is_empty() { LeafEnd::End } else { LeafEnd::Next(low.to_vec()) };
        self.leave(leaf, scan);
        Ok((next, end > 0))
    }

    /// The scan has seen the rest of the leaf.
    pub(super) fn leave(&self, leaf: ReadGuard, scan: &mut Passing) {
        let page = leaf.page();
        drop(leaf);
        self.env.pool.pass(page, scan);
    }
}

fn visit(
    node: Node<'_>,
    slots: impl Iterator<Item = usize>,
    key: &mut Vec<u8>,
    f: &mut Visit<'_>,
) -> ControlFlow<()> {
    key.clear();
    key.extend_from_slice(node.prefix());
    for i in slots {
        key.truncate(node.prefix_len());
        key.extend_from_slice(node.suffix(i));
        f(key, node.value(i))?;
    }
    ControlFlow::Continue(())
}
