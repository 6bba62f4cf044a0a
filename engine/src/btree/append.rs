//! Leaves that a [`Builder`] adds at the end of a tree that others may read: each is one record, full, and
//! in the tree from then on. So a crash in the middle leaves a sound tree, with the entries that came until
//! then; their headers say whose they are.
//!
//! Invariants:
//! 1. The tree was empty, and nobody else adds an entry to it before the builder is through. Its last leaf is
//!    empty until the builder fills it, and makes the next one in the same record.
//! 2. [`Admit`](super::Admit) is asked for each key under the exclusive latch of the leaf that the key goes to, as an
//!    insert of it alone would be.

use super::bulk::Builder;
use super::codec::{self, Value};
use super::need::Need;
use super::node::{Node, CHILD_BYTES};
use super::tree::Tree;
use crate::base::{Error, Result};
use crate::buffer::WriteGuard;
use std::sync::Arc;

/// The last leaf, and its parent if it gets a neighbour.
enum End {
    Leaf(WriteGuard),
    Under { parent: WriteGuard, slot: usize, leaf: WriteGuard },
}

impl Builder {
    /// Adds a leaf of the first entries. Without `high` it is the last one.
    pub(super) fn append_leaf(&mut self, entries: usize, high: Option<&[u8]>) -> Result<()> {
        if entries == 0 {
            return Ok(());
        }
        self.put_node(0, entries, high)?;
        let tree = Arc::clone(&self.tree);
        loop {
            tree.env.wal.admit_owed()?;
            let pending = &self.levels[0].pending;
            let Some(mut end) = tree.last_leaf(pending.key(0), high)? else { continue };
            let leaf = Node::new(end.leaf());
            let is_ours = leaf.count() == 0 && leaf.high().is_none();
            if !is_ours || leaf.low() != self.levels[0].low {
                return Err(Error::Refused("a table that is loaded was changed by others".into()));
            }
            let Some(admit) = &mut self.admit else { unreachable!("a builder that appends") };
            if !(0..entries).all(|i| admit.admits(pending.key(i))) {
                drop(end);
                admit.wait()?;
                continue;
            }
            self.put_leaf(&mut end, high)?;
            drop(end);
            if let Some(admit) = &mut self.admit {
                admit.done();
            }
            return Ok(());
        }
    }

    fn put_leaf(&mut self, end: &mut End, high: Option<&[u8]>) -> Result<()> {
        let tree = &self.tree;
        let appended = match end {
            End::Leaf(leaf) => tree.log_and_apply(&[], &mut [(leaf, &self.change)], &mut []),
            End::Under { parent, slot, leaf } => {
                let fence = high.unwrap_or_default();
                let next_id = tree.env.allocate();
                let mut next = tree.env.pool.create(next_id, tree.id)?;
                let (mut above, mut empty) = (Vec::new(), Vec::new());
                let suffix = &fence[Node::new(parent).prefix_len()..];
                let child = next_id.0.to_le_bytes();
                codec::put_insert(&mut above, *slot + 1, suffix, &Value::Plain(child[..].into()));
                codec::put_init(&mut empty, tree.id, 0, (fence, None), 0);
                let pages =
                    &mut [(parent, &above[..]), (leaf, &self.change[..]), (&mut next, &empty[..])];
                tree.log_and_apply(&[], pages, &mut [])
            }
        };
        tree.bytes.built(appended);
        Ok(())
    }
}

impl End {
    fn leaf(&self) -> &WriteGuard {
        match self {
            End::Leaf(leaf) | End::Under { leaf, .. } => leaf,
        }
    }
}

impl Tree {
    /// The leaf of `key`, which is above all others. With `high` it has a parent with room for that
    /// fence. None: room was made, look again.
    fn last_leaf(&self, key: &[u8], high: Option<&[u8]>) -> Result<Option<End>> {
        let Some(high) = high else {
            return self.write_leaf(key).map(|leaf| Some(End::Leaf(leaf)));
        };
        let Some(parent) = self.write_at(key, 1)? else {
            let mut root = self.write_root()?;
            if Node::new(&root).is_leaf() {
                self.grow_root(&mut root)?;
            }
            return Ok(None);
        };
        let slot = Node::new(&parent).child_slot(key);
        let above = Need { level: 1, key: high, value_len: CHILD_BYTES };
        if !above.fits(&parent) {
            drop(parent);
            self.make_room(&above)?;
            return Ok(None);
        }
        let leaf = self.write_child(Node::new(&parent), slot)?;
        Ok(Some(End::Under { parent, slot, leaf }))
    }

    /// Appends a record that changes no page: it has a note only.
    pub fn note(&self, note: &[u8]) -> Result<crate::wal::Appended> {
        self.env.wal.admit_owed()?;
        Ok(self.log_and_apply(note, &mut [], &mut []))
    }
}
