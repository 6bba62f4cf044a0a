//! A tree made from its entries in order, bottom up (Graefe, Modern B-Tree Techniques, 2011, on
//! bottom-up index creation): each page is written once and nearly full, by one record that has all
//! of it.
//!
//! A builder of a tree that others may read adds its leaves at the tree's end instead (`append`).
//!
//! Invariants:
//! 1. Nobody else uses the tree until [`Builder::finish`] has returned: its root is empty until then,
//!    and no page that the builder makes is reached from it. A crash in the middle leaves pages of a
//!    tree that no table names. (`append` has rules of its own.)
//! 2. A node is closed when the key after it is known: that key makes its high fence, which is the
//!    low fence of the next one.

use super::admit::Admit;
use super::codec;
use super::node::{entry_bytes, fence_prefix_len, separator, BODY_BYTES, CHILD_BYTES, LEVEL_MAX};
use super::tree::{check_key, check_value, Tree};
use crate::base::{Error, PageId, Result};
use crate::buffer::WriteGuard;
use std::ops::Range;
use std::sync::Arc;

/// Room that is left in a node for what comes later, as InnoDB leaves it.
const FILLED_BYTES: usize = BODY_BYTES / 16 * 15;

/// Entries that wait for a node, in one buffer.
#[derive(Default)]
pub(super) struct Pending {
    bytes: Vec<u8>,
    entries: Vec<(Range<usize>, Range<usize>)>,
}

impl Pending {
    fn push(&mut self, key: &[u8], value: &[u8]) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(key);
        let middle = self.bytes.len();
        self.bytes.extend_from_slice(value);
        self.entries.push((start..middle, middle..self.bytes.len()));
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn key(&self, i: usize) -> &[u8] {
        &self.bytes[self.entries[i].0.clone()]
    }

    fn value(&self, i: usize) -> &[u8] {
        &self.bytes[self.entries[i].1.clone()]
    }

    fn last_key(&self) -> Option<&[u8]> {
        self.entries.last().map(|(key, _)| &self.bytes[key.clone()])
    }

    fn drop_first(&mut self, n: usize) {
        let gone = self.entries.get(n).map_or(self.bytes.len(), |(key, _)| key.start);
        self.bytes.drain(..gone);
        self.entries.drain(..n);
        for (key, value) in &mut self.entries {
            *key = key.start - gone..key.end - gone;
            *value = value.start - gone..value.end - gone;
        }
    }
}

/// The open node of a level, and entries that may come after it.
#[derive(Default)]
pub(super) struct Level {
    pub low: Vec<u8>,
    pub pending: Pending,
    /// Entries in a node of their own, with all of their keys.
    whole_bytes: usize,
    /// A node of this level has been closed.
    has_closed: bool,
}

/// A node that can be closed: so many entries, and the key that ends it.
struct Cut {
    entries: usize,
    high: Vec<u8>,
}

pub struct Builder {
    pub(super) tree: Arc<Tree>,
    /// Only the leaves, if they are added at the end of the tree.
    pub(super) levels: Vec<Level>,
    pub(super) change: Vec<u8>,
    /// Of a tree that others may read.
    pub(super) admit: Option<Box<dyn Admit>>,
}

impl Builder {
    /// Of a tree that was created and has had no entry yet.
    pub fn new(tree: Arc<Tree>) -> Self {
        Builder { tree, levels: vec![Level::default()], change: Vec::new(), admit: None }
    }

    /// Of an empty tree that others may read, and to which nobody else adds: see `append`.
    pub fn appending(tree: Arc<Tree>, admit: Box<dyn Admit>) -> Self {
        Builder { admit: Some(admit), ..Builder::new(tree) }
    }

    /// Adds an entry; its key is above all that came before.
    pub fn push(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        check_key(key)?;
        check_value(value.len())?;
        let last = self.last_key();
        assert!(last.is_none_or(|last| last < key), "entries come in the order of their keys");
        self.push_at(0, key, value)
    }

    /// Of the entry that came last: the open leaf keeps it.
    pub fn last_key(&self) -> Option<&[u8]> {
        self.levels[0].pending.last_key()
    }

    /// The tree has all its entries now.
    pub fn finish(mut self) -> Result<()> {
        if self.admit.is_some() {
            return self.close_all(0);
        }
        let mut level = 0;
        while self.levels[level].has_closed || !self.is_one_node(level) {
            self.close_all(level)?;
            level += 1;
        }
        self.write_root(level)
    }

    fn push_at(&mut self, level: usize, key: &[u8], value: &[u8]) -> Result<()> {
        if level == self.levels.len() {
            if level > usize::from(LEVEL_MAX) {
                return Err(self.tree.corrupt("too many levels", self.tree.root));
            }
            self.levels.push(Level::default());
        }
        let open = &mut self.levels[level];
        open.pending.push(key, value);
        open.whole_bytes += entry_bytes(key.len(), value.len());
        while let Some(cut) = self.levels[level].cut_if_full(level) {
            self.close(level, cut)?;
        }
        Ok(())
    }

    fn is_one_node(&self, level: usize) -> bool {
        let open = &self.levels[level];
        open.whole_bytes + open.low.len() <= BODY_BYTES
    }

    /// Closes all of a level: nothing comes after it.
    fn close_all(&mut self, level: usize) -> Result<()> {
        while !self.is_one_node(level) {
            let Some(cut) = self.levels[level].cut(level) else {
                return Err(self.tree.corrupt("no position to cut at", self.tree.root));
            };
            self.close(level, cut)?;
        }
        let entries = self.levels[level].pending.len();
        self.write_node(level, entries, None)
    }

    fn close(&mut self, level: usize, cut: Cut) -> Result<()> {
        self.write_node(level, cut.entries, Some(&cut.high))?;
        let open = &mut self.levels[level];
        let bytes = |i: usize| entry_bytes(open.pending.key(i).len(), open.pending.value(i).len());
        open.whole_bytes -= (0..cut.entries).map(bytes).sum::<usize>();
        open.pending.drop_first(cut.entries);
        open.low = cut.high;
        Ok(())
    }

    /// Makes a page of the first entries of a level and tells the level above.
    fn write_node(&mut self, level: usize, entries: usize, high: Option<&[u8]>) -> Result<()> {
        if self.admit.is_some() {
            return self.append_leaf(entries, high);
        }
        let env = Arc::clone(&self.tree.env);
        env.wal.admit_owed()?;
        let page: PageId = env.allocate();
        let mut guard = env.pool.create(page, self.tree.id)?;
        self.put_node(level, entries, high)?;
        self.log_and_apply(&mut guard);
        drop(guard);
        self.levels[level].has_closed = true;
        let low = self.levels[level].low.clone();
        self.push_at(level + 1, &low, &page.0.to_le_bytes())
    }

    fn write_root(&mut self, level: usize) -> Result<()> {
        let tree = Arc::clone(&self.tree);
        tree.env.wal.admit_owed()?;
        let mut root = tree.write_root()?;
        self.put_node(level, self.levels[level].pending.len(), None)?;
        self.log_and_apply(&mut root);
        Ok(())
    }

    fn log_and_apply(&self, page: &mut WriteGuard) {
        let pages = &mut [(page, &self.change[..])];
        let appended = self.tree.log_and_apply(&[], pages, &mut []);
        self.tree.bytes.built(appended);
    }

    pub(super) fn put_node(
        &mut self,
        level: usize,
        entries: usize,
        high: Option<&[u8]>,
    ) -> Result<()> {
        let Builder { tree, levels, change, .. } = self;
        let open = &levels[level];
        change.clear();
        let number = u8::try_from(level).map_err(|_| Error::Refused("too many levels".into()))?;
        codec::put_init(change, tree.id, number, (&open.low, high), entries);
        let prefix = fence_prefix_len(&open.low, high);
        for i in 0..entries {
            let implied = i == 0 && level > 0;
            let suffix = if implied { &[] } else { &open.pending.key(i)[prefix..] };
            codec::put_entry(change, suffix, open.pending.value(i));
        }
        Ok(())
    }
}

impl Level {
    /// Where the open node ends, if its entries surely fill it.
    fn cut_if_full(&self, level: usize) -> Option<Cut> {
        let last = self.pending.last_key()?;
        let shared = fence_prefix_len(&self.low, Some(last));
        let least = self.whole_bytes - shared * self.pending.len();
        (least + self.low.len() > FILLED_BYTES).then(|| self.cut(level)).flatten()
    }

    /// The longest node within `FILLED_BYTES`, with the fence that the entry after it gives it; if there
    /// is none, one of a single entry.
    fn cut(&self, level: usize) -> Option<Cut> {
        let mut best = None;
        let mut whole = 0;
        for i in 0..self.pending.len().saturating_sub(1) {
            whole += entry_bytes(self.pending.key(i).len(), self.pending.value(i).len());
            let high = self.high_behind(level, i);
            let shared = fence_prefix_len(&self.low, Some(high));
            let bytes = whole - shared * (i + 1) + self.low.len() + high.len();
            if bytes <= FILLED_BYTES {
                best = Some(i);
            } else if best.is_none() && bytes <= BODY_BYTES {
                best = Some(i);
                break;
            }
        }
        best.map(|i| Cut { entries: i + 1, high: self.high_behind(level, i).to_vec() })
    }

    /// The fence between an entry and the next.
    fn high_behind(&self, level: usize, i: usize) -> &[u8] {
        let next = self.pending.key(i + 1);
        match level {
            0 => separator(self.pending.key(i), next),
            _ => next,
        }
    }
}

const _: () = assert!(CHILD_BYTES == size_of::<u64>());
