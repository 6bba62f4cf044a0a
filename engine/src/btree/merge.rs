//! Merging underfull nodes with a neighbour, and lowering the root. Each is one record, which also
//! names the freed page.

use super::codec;
use super::node::{fence_prefix_len, Node, BODY_BYTES, MERGED_BYTES_MAX, UNDERFULL_BYTES};
use super::split::{put_entries, put_part};
use super::tree::Tree;
use crate::base::{PageId, Result};
use crate::buffer::WriteGuard;

/// How one attempt to merge ended.
enum Outcome {
    /// Nothing to do, or no neighbour has room.
    Stay,
    /// A page was taken out of the tree; its parent may be underfull now.
    Merged { freed: PageId, parent_underfull: bool },
    /// The only child of its parent: the parent must merge first.
    OnlyChild,
}

impl Tree {
    /// Merges the node of `key` at `level` with a neighbour if it is underfull, then those above it.
    pub(super) fn merge_at(&self, key: &[u8], level: u8) -> Result<()> {
        let mut level = level;
        loop {
            self.env.wal.admit_owed()?;
            let Some(parent) = self.write_at(key, level + 1)? else { return Ok(()) };
            let is_root = parent.page() == self.root;
            match self.merge_child(parent, key)? {
                Outcome::Stay => return Ok(()),
                Outcome::Merged { freed, parent_underfull } => {
                    self.env.pool.free(freed);
                    if !parent_underfull {
                        return Ok(());
                    }
                }
                Outcome::OnlyChild => {}
            }
            if is_root {
                return self.shrink_root();
            }
            level += 1;
        }
    }

    fn merge_child(&self, mut parent: WriteGuard, key: &[u8]) -> Result<Outcome> {
        let node = Node::new(&parent);
        if node.count() == 1 {
            return Ok(Outcome::OnlyChild);
        }
        let slot = node.child_slot(key);
        for left_slot in [Some(slot), slot.checked_sub(1)].into_iter().flatten() {
            let node = Node::new(&parent);
            if left_slot + 1 == node.count() {
                continue;
            }
            let mut left = self.write_child(node, left_slot)?;
            let mut right = self.write_child(node, left_slot + 1)?;
            let own = if left_slot == slot { &left } else { &right };
            if Node::new(own).used() >= UNDERFULL_BYTES && Node::new(own).count() > 0 {
                return Ok(Outcome::Stay);
            }
            if !merge_fits(Node::new(&left), Node::new(&right)) {
                continue;
            }
            let freed = right.page();
            self.merge(&mut parent, left_slot, &mut left, &mut right);
            let node = Node::new(&parent);
            let parent_underfull = node.count() == 1 || node.used() < UNDERFULL_BYTES;
            return Ok(Outcome::Merged { freed, parent_underfull });
        }
        Ok(Outcome::Stay)
    }

    fn merge(
        &self,
        parent: &mut WriteGuard,
        left_slot: usize,
        left: &mut WriteGuard,
        right: &mut WriteGuard,
    ) {
        let (a, b) = (Node::new(left), Node::new(right));
        let (mut above, mut merged) = (Vec::new(), Vec::new());
        codec::put_remove(&mut above, left_slot + 1);
        let prefix_len = fence_prefix_len(a.low(), b.high());
        let count = a.count() + b.count();
        codec::put_init(&mut merged, self.id, a.level(), (a.low(), b.high()), count);
        put_entries(&mut merged, a, 0..a.count(), prefix_len, true);
        put_entries(&mut merged, b, 0..b.count(), prefix_len, a.count() == 0);
        let pages = &mut [(parent, &above[..]), (left, &merged[..])];
        self.log_and_apply(&[], pages, &mut [right]);
    }

    /// While the root has one child, it takes over that child's content.
    fn shrink_root(&self) -> Result<()> {
        loop {
            self.env.wal.admit_owed()?;
            let mut root = self.write_root()?;
            let node = Node::new(&root);
            if node.is_leaf() || node.count() > 1 {
                return Ok(());
            }
            let mut child = self.write_child(node, 0)?;
            let (freed, mut change) = (child.page(), Vec::new());
            let content = Node::new(&child);
            put_part(&mut change, content, 0..content.count(), (content.low(), content.high()));
            let pages = &mut [(&mut root, &change[..])];
            self.log_and_apply(&[], pages, &mut [&mut child]);
            drop(child);
            drop(root);
            self.env.pool.free(freed);
        }
    }
}

/// Whether both nodes' entries fit one node with room to spare. An empty node's neighbour only has
/// to fit: it is not getting fuller by entries, only by a shorter prefix.
fn merge_fits(left: Node<'_>, right: Node<'_>) -> bool {
    let prefix_len = fence_prefix_len(left.low(), right.high());
    let part = |node: Node<'_>| {
        let longer = node.prefix_len() - prefix_len;
        (0..node.count()).map(|i| node.entry_bytes(i) + longer).sum::<usize>()
    };
    // The first key of a right inner node is stored now.
    let first_key = if left.is_leaf() { 0 } else { right.low().len() };
    let fences = left.low().len() + right.high().map_or(0, <[u8]>::len);
    let merged = fences + part(left) + part(right) + first_key;
    let either_empty = left.count() == 0 || right.count() == 0;
    merged <= if either_empty { BODY_BYTES } else { MERGED_BYTES_MAX }
}
