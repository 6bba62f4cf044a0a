//! Descents by latch coupling: a child is latched before its parent is released.

use super::node::Node;
use super::tree::Tree;
use crate::base::Result;
use crate::buffer::{Passing, ReadGuard, WriteGuard};
use std::ops::Bound;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    Forward,
    Backward,
}

impl Direction {
    /// Where a scan goes on after a leaf's fence.
    pub fn behind(self, fence: &[u8]) -> Bound<&[u8]> {
        match self {
            Direction::Forward => Bound::Included(fence),
            Direction::Backward => Bound::Excluded(fence),
        }
    }
}

/// Which leaf a descent is for.
#[derive(Clone, Copy)]
pub(super) enum Goal<'a> {
    /// The one whose range holds the key.
    At(&'a [u8]),
    /// The one that holds the keys right below.
    Below(&'a [u8]),
    Last,
}

impl Goal<'_> {
    pub fn child_slot(self, node: Node<'_>) -> usize {
        match self {
            Goal::At(key) => node.child_slot(key),
            Goal::Below(key) => node.child_slot_below(key),
            Goal::Last => node.count() - 1,
        }
    }

    /// In which the leaves lie that a scan goes to after this one.
    fn direction(self) -> Direction {
        match self {
            Goal::At(_) => Direction::Forward,
            Goal::Below(_) | Goal::Last => Direction::Backward,
        }
    }
}

impl Tree {
    /// The leaf of `key`, shared.
    pub(super) fn read_leaf(&self, key: &[u8]) -> Result<ReadGuard> {
        self.pass_leaf(key, &mut Passing::default())
    }

    /// The same for a scan, as the next two.
    pub(super) fn pass_leaf(&self, key: &[u8], scan: &mut Passing) -> Result<ReadGuard> {
        match self.read_near(key, scan) {
            Some(leaf) => Ok(leaf),
            None => self.pass_leaf_for(Goal::At(key), scan),
        }
    }

    /// The leaf of the keys right below `key`, shared.
    pub(super) fn pass_leaf_below(&self, key: &[u8], scan: &mut Passing) -> Result<ReadGuard> {
        match self.read_near(key, scan) {
            Some(leaf) if Node::new(&leaf).low() < key => Ok(leaf),
            near => {
                drop(near);
                self.pass_leaf_for(Goal::Below(key), scan)
            }
        }
    }

    pub(super) fn pass_leaf_for(&self, goal: Goal<'_>, scan: &mut Passing) -> Result<ReadGuard> {
        let mut guard = self.read_root()?;
        loop {
            let node = Node::new(&guard);
            if node.is_leaf() {
                return Ok(guard);
            }
            let slot = goal.child_slot(node);
            self.read_ahead(node, slot, goal.direction(), scan);
            guard = self.pass_child(node, slot, scan)?;
        }
    }

    /// A scan goes to the child in `slot`: those that follow are read meanwhile, if they are leaves.
    pub(super) fn read_ahead(
        &self,
        node: Node<'_>,
        slot: usize,
        direction: Direction,
        scan: &mut Passing,
    ) {
        if node.level() != 1 {
            return;
        }
        self.env.pool.read_ahead(scan, |n| {
            let next = match direction {
                Direction::Forward => Some(slot + n).filter(|&next| next < node.count()),
                Direction::Backward => slot.checked_sub(n),
            };
            next.map(|next| node.child(next))
        });
    }

    /// The child, shared; a leaf is one that the scan will leave.
    pub(super) fn pass_child(
        &self,
        node: Node<'_>,
        slot: usize,
        scan: &mut Passing,
    ) -> Result<ReadGuard> {
        let (pool, child) = (&self.env.pool, node.child(slot));
        let child = match node.level() {
            1 => pool.read_passing(child, scan)?,
            _ => pool.read(child)?,
        };
        self.check_node(Node::new(&child), Some(node.level() - 1))?;
        Ok(child)
    }

    pub(super) fn read_root(&self) -> Result<ReadGuard> {
        let guard = self.env.pool.read(self.root)?;
        self.check_node(Node::new(&guard), None)?;
        Ok(guard)
    }

    pub(super) fn read_child(&self, node: Node<'_>, slot: usize) -> Result<ReadGuard> {
        self.pass_child(node, slot, &mut Passing::default())
    }

    pub(super) fn write_child(&self, node: Node<'_>, slot: usize) -> Result<WriteGuard> {
        let child = self.env.pool.write(node.child(slot))?;
        self.check_node(Node::new(&child), Some(node.level() - 1))?;
        Ok(child)
    }

    /// The leaf of `key`, exclusive.
    pub(super) fn write_leaf(&self, key: &[u8]) -> Result<WriteGuard> {
        if let Some(leaf) = self.write_near(key) {
            return Ok(leaf);
        }
        match self.write_at(key, 0)? {
            Some(leaf) => Ok(leaf),
            None => unreachable!("every tree has a level 0"),
        }
    }

    /// The node of `key` at `level`, exclusive; what lies above is passed with shared latches.
    /// None: the tree is not that high.
    pub(super) fn write_at(&self, key: &[u8], level: u8) -> Result<Option<WriteGuard>> {
        loop {
            let mut guard = self.read_root()?;
            let root_level = Node::new(&guard).level();
            if root_level < level {
                return Ok(None);
            }
            if root_level == level {
                drop(guard);
                let root = self.write_root()?;
                // It may have grown or shrunk in between.
                if Node::new(&root).level() == level {
                    return Ok(Some(root));
                }
                continue;
            }
            loop {
                let node = Node::new(&guard);
                let slot = node.child_slot(key);
                if node.level() == level + 1 {
                    return self.write_child(node, slot).map(Some);
                }
                guard = self.read_child(node, slot)?;
            }
        }
    }

    pub(super) fn write_root(&self) -> Result<WriteGuard> {
        let guard = self.env.pool.write(self.root)?;
        self.check_node(Node::new(&guard), None)?;
        Ok(guard)
    }

    /// The reference led to a node of this tree at the right level, so that every descent ends.
    fn check_node(&self, node: Node<'_>, level: Option<u8>) -> Result<()> {
        if node.tree() != self.id {
            return Err(self.corrupt("a page of another tree", node.page_id()));
        }
        if level.is_some_and(|level| level != node.level()) {
            return Err(self.corrupt("a node of another level", node.page_id()));
        }
        if !node.is_leaf() && node.count() == 0 {
            return Err(self.corrupt("an inner node without children", node.page_id()));
        }
        Ok(())
    }
}
