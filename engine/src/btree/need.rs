//! The room that an entry needs in a node.

use super::node::{entry_bytes, Found, Node};

/// An entry that must find room in the node of its key at a level.
pub(super) struct Need<'a> {
    pub level: u8,
    pub key: &'a [u8],
    pub value_len: usize,
}

impl Need<'_> {
    pub fn fits(&self, page: &[u8]) -> bool {
        let node = Node::new(page);
        fits(node, self.key, node.search(self.key), self.value_len)
    }
}

/// Whether the entry fits its leaf or inner node, counting the one it replaces as free.
pub(super) fn fits(node: Node<'_>, key: &[u8], found: Found, value_len: usize) -> bool {
    let replaced = found.map_or(0, |slot| node.entry_bytes(slot));
    entry_bytes(key.len() - node.prefix_len(), value_len) <= node.room() + replaced
}
