//! Removing many entries of a leaf at once: one descent, one latch, one record.

use super::codec;
use super::descend::Goal;
use super::node::{Node, UNDERFULL_BYTES};
use super::tree::Tree;
use crate::base::Result;
use crate::buffer::Passing;

/// What became of a leaf.
pub struct Swept {
    pub removed: usize,
    /// Where the next leaf begins; `None` after the last.
    pub next: Option<Vec<u8>>,
}

impl Tree {
    /// Removes the entries of the leaf of `key` of which `is_unneeded` says so. It is asked in
    /// key order under the leaf's exclusive latch: it must not block.
    pub fn remove_where(
        &self,
        key: &[u8],
        is_unneeded: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<Swept> {
        self.sweep_leaf(key, is_unneeded, true)
    }

    /// The same, and a leaf that became empty stays: for a caller that empties the leaves beside it, too.
    /// [`Tree::tidy`] merges them then; one by one each merge would log a whole page.
    pub fn remove_only(
        &self,
        key: &[u8],
        is_unneeded: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<Swept> {
        self.sweep_leaf(key, is_unneeded, false)
    }

    /// Merges the leaf of `key` with a neighbour if it has become small. Answers where to go on, if
    /// there is more.
    pub fn tidy(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let look = || -> Result<(bool, Option<Vec<u8>>)> {
            let leaf = self.pass_leaf_for(Goal::At(key), &mut Passing::default())?;
            let node = Node::new(&leaf);
            let is_small = node.used() < UNDERFULL_BYTES || node.count() == 0;
            Ok((is_small, node.high().map(<[u8]>::to_vec)))
        };
        let (is_small, next) = look()?;
        if !is_small {
            return Ok(next);
        }
        self.merge_at(key, 0)?;
        // It may have taken over the next one, and be small still.
        let (_, after) = look()?;
        Ok(if after == next { next } else { Some(key.to_vec()) })
    }

    /// Where the leaf after that of `key` begins, by the node above them: also where the leaf cannot be
    /// read.
    pub fn next_leaf(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let Some(parent) = self.write_at(key, 1)? else { return Ok(None) };
        let node = Node::new(&parent);
        let after = node.child_slot(key) + 1;
        Ok(match after < node.count() {
            true => Some(node.key(after)),
            false => node.high().map(<[u8]>::to_vec),
        })
    }

    fn sweep_leaf(
        &self,
        key: &[u8],
        is_unneeded: &mut dyn FnMut(&[u8], &[u8]) -> bool,
        merges: bool,
    ) -> Result<Swept> {
        self.env.wal.admit_owed()?;
        let mut leaf = self.write_leaf(key)?;
        let node = Node::new(&leaf);
        let next = node.high().map(<[u8]>::to_vec);
        let mut entry_key = Vec::new();
        let mut slots = Vec::new();
        for slot in 0..node.count() {
            entry_key.clear();
            node.key_to(slot, &mut entry_key);
            if is_unneeded(&entry_key, node.value(slot)) {
                slots.push(slot);
            }
        }
        let removed = slots.len();
        if removed == 0 {
            return Ok(Swept { removed, next });
        }
        let mut change = Vec::new();
        codec::put_remove_many(&mut change, &slots);
        self.log_and_apply(&[], &mut [(&mut leaf, &change)], &mut []);
        let node = Node::new(&leaf);
        let underfull = node.used() < UNDERFULL_BYTES || node.count() == 0;
        let is_root = leaf.page() == self.root;
        drop(leaf);
        if merges && underfull && !is_root {
            // The removal itself is done; as in `Tree::change`, tidying up may fail alone.
            let _ = self.merge_at(key, 0);
        }
        Ok(Swept { removed, next })
    }
}
