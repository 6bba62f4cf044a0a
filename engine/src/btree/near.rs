//! The leaf in which this thread found a key last. The next step of a scan, and the write of a row
//! that was read, start from that key: they need no way down from the root.
//!
//! The note is a guess. It is followed to a page in memory whose latch is then held, and only if
//! that page is a leaf of the tree, is not being freed, and has the key between its fences: then it
//! is the leaf of the key (invariants 1 and 5 of this room), however it came there. While any page is
//! given up no note is followed: work on leaves below an inner page may have been put aside with it, and
//! then nobody may come to them.

use super::node::Node;
use super::tree::Tree;
use crate::base::{PageId, TreeId};
use crate::buffer::{Passing, Pool, ReadGuard, WriteGuard};
use std::cell::RefCell;
use std::ops::Deref;

/// The trees of one table mostly have ids in a row, and each gets a place of its own.
const PLACES: usize = 4;
/// A longer key is not noted.
const KEY_BYTES: usize = 46;

#[derive(Clone, Copy)]
struct Place {
    /// Of another engine nothing is noted: a simulated run follows from its seed alone.
    env: u64,
    tree: TreeId,
    page: PageId,
    len: u8,
    key: [u8; KEY_BYTES],
}

const NOWHERE: Place =
    Place { env: 0, tree: TreeId(0), page: PageId::ZERO, len: 0, key: [0; KEY_BYTES] };

thread_local! {
    static PLACE: RefCell<[Place; PLACES]> = const { RefCell::new([NOWHERE; PLACES]) };
}

impl Tree {
    /// The key is in this leaf.
    pub(super) fn note_near(&self, leaf: PageId, key: &[u8]) {
        let (Ok(len), true) = (u8::try_from(key.len()), key.len() <= KEY_BYTES) else { return };
        PLACE.with_borrow_mut(|places| {
            let place = &mut places[self.id.0 as usize % PLACES];
            (place.env, place.tree, place.page) = (self.env.number, self.id, leaf);
            place.len = len;
            place.key[..key.len()].copy_from_slice(key);
        });
    }

    fn noted(&self, key: &[u8]) -> Option<PageId> {
        PLACE.with_borrow(|places| {
            let place = &places[self.id.0 as usize % PLACES];
            let is_here = place.env == self.env.number
                && place.tree == self.id
                && place.key[..usize::from(place.len)] == *key;
            is_here.then_some(place.page)
        })
    }

    /// The leaf of the key, shared, if it was noted and still is one.
    pub(super) fn read_near(&self, key: &[u8], scan: &mut Passing) -> Option<ReadGuard> {
        self.near(key, |pool, page| pool.read_resident(page, scan))
    }

    /// The same, exclusive.
    pub(super) fn write_near(&self, key: &[u8]) -> Option<WriteGuard> {
        self.near(key, Pool::write_resident)
    }

    fn near<G: Deref<Target = [u8]>>(
        &self,
        key: &[u8],
        latch: impl FnOnce(&Pool, PageId) -> Option<G>,
    ) -> Option<G> {
        let leaf = latch(&self.env.pool, self.noted(key)?)?;
        let node = Node::new(&leaf);
        let is_it = node.tree() == self.id && node.is_leaf() && node.covers(key);
        let is_cut_off = self.env.pool.has_given_up();
        (is_it && !is_cut_off).then_some(leaf)
    }
}
