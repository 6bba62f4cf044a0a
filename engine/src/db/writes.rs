//! Bytes written to the engine's files by table and cause, since the engine was opened.
//!
//! The rows add up to what the engine has handed to the operating system, but for records of pages
//! that wait in memory (a few MiB at most), and for what a start, a backup or a new directory writes
//! besides: control file and first superblock. A page counts with the bytes of its record, by its
//! tree. `log_shares` says how the log is shared out. What is no table's stands in rows of its own
//! ([`WritesOf`]).

use super::engine::Engine;
use super::log_shares::Shares;
use crate::base::TreeId;
use crate::catalog::FIRST_USER_TREE;
use crate::os::hash::HashMap;
use crate::store::PageBytes;
use std::collections::BTreeMap;

/// Bytes by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WrittenBytes {
    /// The log of changes. Of the shared row: commits, events of the binlog, padding, new segments.
    pub log: u64,
    /// Indexes and copied tables, built at once: the log of their pages, and the temporary files of
    /// their entries.
    pub build: u64,
    /// Pages that made room in the pool.
    pub eviction: u64,
    /// Pages that made room in the log.
    pub checkpoint: u64,
    /// Pages that were copied by garbage collection.
    pub gc: u64,
    /// The page map, superblocks, padding between pages.
    pub other: u64,
}

impl WrittenBytes {
    pub fn total(&self) -> u64 {
        self.log + self.build + self.eviction + self.checkpoint + self.gc + self.other
    }

    fn add_pages(&mut self, pages: PageBytes) {
        self.eviction += pages.eviction;
        self.checkpoint += pages.checkpoint;
        self.gc += pages.gc;
    }

    fn add_shares(&mut self, shares: &Shares) {
        self.log += shares.changes.stored;
        self.build += shares.built.stored + shares.sorted;
    }
}

/// That of which a row counts the bytes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WritesOf {
    Table(String),
    /// What no table has alone.
    Shared,
    /// The catalog, and versions that left the log.
    System,
    /// Trees of tables and indexes that a statement is making.
    Building,
    /// What was dropped, truncated or given up.
    Dropped,
    Temporary,
}

impl WritesOf {
    /// The name of the table, or a word in parentheses.
    pub fn name(&self) -> &str {
        match self {
            WritesOf::Table(name) => name,
            WritesOf::Shared => "(shared)",
            WritesOf::System => "(system)",
            WritesOf::Building => "(building)",
            WritesOf::Dropped => "(dropped)",
            WritesOf::Temporary => "(temporary)",
        }
    }
}

/// Rows under construction, and whose each tree is.
struct Rows {
    rows: BTreeMap<WritesOf, WrittenBytes>,
    owners: HashMap<TreeId, WritesOf>,
}

impl Rows {
    fn of(&mut self, tree: TreeId) -> &mut WrittenBytes {
        let of = match self.owners.get(&tree) {
            Some(of) => of.clone(),
            None if tree < FIRST_USER_TREE => WritesOf::System,
            None => WritesOf::Dropped,
        };
        self.rows.entry(of).or_default()
    }
}

impl Engine {
    /// Shares out the log that was written, while its compression is about the same.
    pub(crate) fn settle_writes(&self) {
        drop(self.log_shares.settled(&self.wal, &self.ctx.trees));
    }

    /// A row for each table, and those of what is no table's, if there is any.
    pub fn writes_by_table(&self) -> Vec<(WritesOf, WrittenBytes)> {
        let mut rows = Rows { rows: BTreeMap::new(), owners: HashMap::default() };
        for tree in self.ctx.trees.ids().into_iter().filter(|tree| *tree >= FIRST_USER_TREE) {
            rows.owners.insert(tree, WritesOf::Building);
        }
        for table in self.schema.tables.read().values() {
            let of = match table.counters.is_temporary {
                true => WritesOf::Temporary,
                false => WritesOf::Table(table.name.clone()),
            };
            rows.owners.extend(table.def.trees().map(|index| (index.tree, of.clone())));
            rows.rows.entry(of).or_default();
        }
        let log_of_trees = {
            let books = self.log_shares.settled(&self.wal, &self.ctx.trees);
            for (&tree, shares) in &books.trees {
                rows.of(tree).add_shares(shares);
            }
            rows.rows.entry(WritesOf::Dropped).or_default().add_shares(&books.dropped);
            let all = books.trees.values().chain([&books.dropped]);
            all.map(|shares| shares.changes.stored + shares.built.stored).sum::<u64>()
        };
        let pages = self.store.written();
        for (&tree, &bytes) in &pages.by_tree {
            rows.of(tree).add_pages(bytes);
        }
        rows.rows.entry(WritesOf::Dropped).or_default().add_pages(pages.dropped);
        let (log, store) = (self.wal.stats(), self.store.stats());
        let shared = rows.rows.entry(WritesOf::Shared).or_default();
        shared.log = (log.written_bytes + log.made_bytes).saturating_sub(log_of_trees);
        shared.other = store.padding_bytes + store.map_bytes + store.superblock_bytes;
        let is_shown = |(of, bytes): &(WritesOf, WrittenBytes)| {
            matches!(of, WritesOf::Table(_) | WritesOf::Shared) || bytes.total() > 0
        };
        rows.rows.into_iter().filter(is_shown).collect()
    }
}
