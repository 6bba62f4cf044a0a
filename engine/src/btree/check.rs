//! Verification of one page and of a whole tree.

use super::descend::Direction;
use super::node::Node;
use super::tree::Tree;
use super::verify::check_page;
use crate::base::{Error, Result};
use crate::buffer::{Passing, ReadGuard};

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

/// Faults that one check of a tree collects: a damaged disk needs no longer list.
const FAULTS_MAX: usize = 100;

/// What the check of the nodes on the way to one leaf found.
enum PathCheck {
    /// The leaf was verified; the next one begins here, if there is one.
    Verified(Option<Vec<u8>>),
    /// A node could not be verified; what lies under it ends here.
    Fault(Error, Option<Vec<u8>>),
}

impl Tree {
    /// Verifies every node, its place under its parent, and the order of all keys; answers the first
    /// fault.
    #[cfg(test)]
    pub fn check(&self) -> Result<TreeShape> {
        let mut faults = Vec::new();
        let shape = self.check_all(&mut faults, &mut || false)?;
        match faults.into_iter().next() {
            None => Ok(shape),
            Some(error) => Err(error),
        }
    }

    /// As [`Tree::check`], and goes on after a fault with what can still be reached. The shape
    /// counts what was verified. Answers an error only when `stop` says so, which is asked at each
    /// leaf.
    ///
    /// Other threads may go on: no latch is held from one leaf to the next, and each node is compared
    /// with its parent while both are latched. A leaf's place is its low fence. An inner node is
    /// verified on the way to its leftmost leaf; entries that a split or merge moves to
    /// where the walk has been were verified where they stood before.
    pub fn check_all(
        &self,
        faults: &mut Vec<Error>,
        stop: &mut dyn FnMut() -> bool,
    ) -> Result<TreeShape> {
        let mut shape = TreeShape::default();
        let (mut at, mut scan) = (Vec::new(), Passing::default());
        while faults.len() < FAULTS_MAX {
            if stop() {
                return Err(Error::Interrupted);
            }
            self.bring_in(&at, &mut scan);
            let next = match self.check_path(&at, &mut shape, &mut scan) {
                Ok(PathCheck::Verified(next)) => next,
                Ok(PathCheck::Fault(error, next)) => {
                    faults.push(error);
                    next
                }
                Err(error) => {
                    faults.push(error);
                    break;
                }
            };
            let Some(next) = next else { break };
            if next <= at {
                faults.push(self.corrupt("fences do not ascend", self.root));
                break;
            }
            at = next;
        }
        Ok(shape)
    }

    /// Loads the nodes on the way to a leaf, none of them with the latch of another held: the
    /// walk that follows finds them in memory. A read that fails here fails there too, or was a race.
    fn bring_in(&self, at: &[u8], scan: &mut Passing) {
        let mut page = self.root;
        let mut above = None;
        loop {
            let pool = &self.env.pool;
            let guard = match above {
                Some(1) => pool.read_passing(page, scan),
                _ => pool.read(page),
            };
            let Ok(guard) = guard else { return };
            let node = Node::new(&guard);
            if node.is_leaf() || above.is_some_and(|level| node.level() >= level) {
                return;
            }
            above = Some(node.level());
            page = node.child(node.child_slot(at));
        }
    }

    /// Verifies the leaf of `at`, and all nodes above it that begin there. An error is the root's.
    fn check_path(
        &self,
        at: &[u8],
        shape: &mut TreeShape,
        scan: &mut Passing,
    ) -> Result<PathCheck> {
        let mut guard = self.read_root()?;
        let root = Node::new(&guard);
        if at.is_empty() {
            shape.height = u64::from(root.level()) + 1;
        }
        if !root.low().is_empty() || root.high().is_some() {
            return Err(self.corrupt("the root does not cover all keys", self.root));
        }
        let mut end = None;
        loop {
            let node = Node::new(&guard);
            let begins_here = node.low() == at;
            if node.is_leaf() || begins_here {
                if let Err(error) = check_page(&guard) {
                    return Ok(PathCheck::Fault(error.of_page(guard.page()), end));
                }
            }
            if node.is_leaf() {
                shape.count_leaf(node, at);
                let next = node.high().map(<[u8]>::to_vec);
                self.leave(guard, scan);
                return Ok(PathCheck::Verified(next));
            }
            shape.inner_nodes += u64::from(begins_here);
            let slot = node.child_slot(at);
            end = high_of(node, slot);
            self.read_ahead(node, slot, Direction::Forward, scan);
            guard = match self.check_child(node, slot, scan) {
                Ok(child) => child,
                Err(error) => return Ok(PathCheck::Fault(error, end)),
            };
        }
    }

    fn check_child(&self, node: Node<'_>, slot: usize, scan: &mut Passing) -> Result<ReadGuard> {
        let child = self.pass_child(node, slot, scan)?;
        let below = Node::new(&child);
        if below.low() != node.key(slot) || below.high() != high_of(node, slot).as_deref() {
            return Err(self.corrupt("fences differ from the parent's", below.page_id()));
        }
        Ok(child)
    }
}

impl TreeShape {
    /// Entries before `at` were counted in the leaf that has been merged with this one.
    fn count_leaf(&mut self, node: Node<'_>, at: &[u8]) {
        let counted = node.search(at).unwrap_or_else(|slot| slot);
        self.leaves += 1;
        self.entries += (node.count() - counted) as u64;
        self.leaf_used_bytes += node.used() as u64;
    }
}

/// Where the child in a slot ends.
fn high_of(node: Node<'_>, slot: usize) -> Option<Vec<u8>> {
    match slot + 1 < node.count() {
        true => Some(node.key(slot + 1)),
        false => node.high().map(<[u8]>::to_vec),
    }
}
