//! Removing many entries of a leaf at once: one descent, one latch, one record.

use super::codec;
use super::node::{Node, UNDERFULL_BYTES};
use super::tree::Tree;
use crate::base::Result;

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
        if underfull && !is_root {
            // The removal itself is done; as in `Tree::change`, tidying up may fail alone.
            let _ = self.merge_at(key, 0);
        }
        Ok(Swept { removed, next })
    }
}
