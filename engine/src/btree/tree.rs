//! A tree as its users see it: change one key, read one key.

use super::codec::{self, Value};
use super::env::Env;
use super::need::{fits, Need};
use super::node::{Found, Node, UNDERFULL_BYTES};
use super::record::log_and_apply;
use super::tree_bytes::TreeBytes;
use crate::base::limits::{KEY_BYTES_MAX, VALUE_BYTES_MAX};
use crate::base::{Error, PageId, Result, TreeId};
use crate::buffer::WriteGuard;
use crate::wal::Appended;
use std::borrow::Cow;
use std::cell::RefCell;
use std::sync::Arc;

/// What is to become of an entry; not its *change*, which is bytes for a page.
pub enum EntryEdit<'a> {
    Keep,
    /// `note`: opaque bytes in front of the record; empty is none.
    Put {
        value: Value<'a>,
        note: Cow<'a, [u8]>,
    },
    /// Removing what is not there is `Keep`.
    Remove {
        note: Cow<'a, [u8]>,
    },
}

impl<'a> EntryEdit<'a> {
    pub fn put(value: impl Into<Cow<'a, [u8]>>, note: impl Into<Cow<'a, [u8]>>) -> Self {
        EntryEdit::Put { value: Value::Plain(value.into()), note: note.into() }
    }

    pub fn remove(note: impl Into<Cow<'a, [u8]>>) -> Self {
        EntryEdit::Remove { note: note.into() }
    }
}

pub struct Tree {
    pub(super) env: Arc<Env>,
    pub(super) id: TreeId,
    pub(super) root: PageId,
    pub(super) bytes: Arc<TreeBytes>,
}

thread_local! {
    /// Change bytes of the operation under way, and the value that is compared with the old one.
    static SCRATCH: RefCell<(Vec<u8>, Vec<u8>)> = const { RefCell::new((Vec::new(), Vec::new())) };
}

impl Tree {
    /// Reads nothing: the root is looked at by the first operation.
    pub fn open(env: Arc<Env>, id: TreeId, root: PageId) -> Arc<Tree> {
        Arc::new(Tree { env, id, root, bytes: Arc::default() })
    }

    /// A new empty tree; its record is in the log, not flushed.
    pub fn create(env: Arc<Env>, id: TreeId) -> Result<Arc<Tree>> {
        env.wal.admit_owed()?;
        let root = env.allocate();
        let mut guard = env.pool.create(root, id)?;
        let tree = Tree::open(env, id, root);
        let mut change = Vec::new();
        codec::put_init(&mut change, id, 0, (&[], None), 0);
        tree.log_and_apply(&[], &mut [(&mut guard, &change)], &mut []);
        drop(guard);
        Ok(tree)
    }

    pub fn id(&self) -> TreeId {
        self.id
    }

    pub fn root(&self) -> PageId {
        self.root
    }

    /// Bytes written for it.
    pub fn bytes(&self) -> &Arc<TreeBytes> {
        &self.bytes
    }

    /// Appends one record for all pages and applies it to them, under their exclusive latches.
    pub(super) fn log_and_apply(
        &self,
        note: &[u8],
        pages: &mut [(&mut WriteGuard, &[u8])],
        freed: &mut [&mut WriteGuard],
    ) -> Appended {
        let appended = log_and_apply(&self.env, self.id, note, pages, freed);
        self.bytes.logged(appended);
        appended
    }

    /// Whether it has no entry, not even one that is deleted.
    pub fn is_empty(&self) -> Result<bool> {
        let root = self.read_root()?;
        let node = Node::new(&root);
        Ok(node.is_leaf() && node.count() == 0)
    }

    /// Calls `f` with the value of `key`, under the leaf's shared latch: `f` must not block.
    pub fn get(&self, key: &[u8], f: &mut dyn FnMut(Option<&[u8]>)) -> Result<()> {
        check_key(key)?;
        let leaf = self.read_leaf(key)?;
        let node = Node::new(&leaf);
        let found = node.search(key);
        if found.is_ok() {
            self.note_near(leaf.page(), key);
        }
        f(found.ok().map(|slot| node.value(slot)));
        Ok(())
    }

    /// Calls `decide` with the value of `key` under the leaf's exclusive latch and makes the change it
    /// asks for, as one record that ends with the returned position. `decide` must not block, and is
    /// called again when room had to be made. None: nothing changed.
    pub fn change<'c>(
        &self,
        key: &[u8],
        decide: &mut dyn FnMut(Option<&[u8]>) -> EntryEdit<'c>,
    ) -> Result<Option<Appended>> {
        check_key(key)?;
        self.env.wal.admit_owed()?;
        loop {
            let mut leaf = self.write_leaf(key)?;
            let node = Node::new(&leaf);
            let found = node.search(key);
            let (value, note) = match decide(found.ok().map(|slot| node.value(slot))) {
                EntryEdit::Keep => return Ok(None),
                EntryEdit::Put { value, note } => (value, note),
                EntryEdit::Remove { note } => {
                    let Ok(slot) = found else { return Ok(None) };
                    return self.remove(leaf, key, slot, &note).map(Some);
                }
            };
            check_value(value.len())?;
            if fits(node, key, found, value.len()) {
                return Ok(Some(self.put(&mut leaf, key, found, &value, &note)));
            }
            drop(leaf);
            self.make_room(&Need { level: 0, key, value_len: value.len() })?;
        }
    }

    fn put(
        &self,
        leaf: &mut WriteGuard,
        key: &[u8],
        found: Found,
        value: &Value<'_>,
        note: &[u8],
    ) -> Appended {
        SCRATCH.with_borrow_mut(|(change, bytes)| {
            change.clear();
            let node = Node::new(leaf);
            match found {
                Ok(slot) => codec::put_replace(change, bytes, node, slot, value),
                Err(slot) => codec::put_insert(change, slot, &key[node.prefix_len()..], value),
            }
            self.log_and_apply(note, &mut [(leaf, change)], &mut [])
        })
    }

    fn remove(
        &self,
        mut leaf: WriteGuard,
        key: &[u8],
        slot: usize,
        note: &[u8],
    ) -> Result<Appended> {
        let mut change = Vec::with_capacity(4);
        codec::put_remove(&mut change, slot);
        let pages = &mut [(&mut leaf, &change[..])];
        let appended = self.log_and_apply(note, pages, &mut []);
        let node = Node::new(&leaf);
        // Not at every removal: the neighbours may be too full to merge with.
        let try_merge = node.used() < UNDERFULL_BYTES && node.count() % 8 == 0;
        let is_root = leaf.page() == self.root;
        drop(leaf);
        if try_merge && !is_root {
            // The change itself is done: a failure to tidy up must not hide that. The next
            // operation that needs that page meets the failure again.
            let _ = self.merge_at(key, 0);
        }
        Ok(appended)
    }

    #[cold]
    pub(super) fn corrupt(&self, what: &str, page: PageId) -> Error {
        let place = self.env.pool.store().place_of(page);
        Error::corrupt(format!("page {page} of tree {}: {what}", self.id), place).of_page(page)
    }
}

pub(super) fn check_key(key: &[u8]) -> Result<()> {
    if key.len() > KEY_BYTES_MAX {
        return Err(Error::TooLarge { what: "key", bytes: key.len(), limit: KEY_BYTES_MAX });
    }
    Ok(())
}

pub(super) fn check_value(bytes: usize) -> Result<()> {
    if bytes > VALUE_BYTES_MAX {
        return Err(Error::TooLarge { what: "value", bytes, limit: VALUE_BYTES_MAX });
    }
    Ok(())
}
