//! ALTER TABLE in place: new secondary indexes, built from all rows at once, and indexes that go.
//!
//! Invariants:
//! 1. The caller keeps writers from the table, from [`Engine::alter_indexes`] on, and everybody from
//!    it during [`IndexBuild::put`].
//! 2. Until the commit nothing names the new trees: after an error, or a crash, they are dropped.
//!    The commit is one transaction of the catalog (rules M18), and its table id is a new one, by
//!    which the server finds out after a crash whether it happened.
//! 3. An entry of a new index has id 0, which every snapshot sees. An older snapshot than the index
//!    does not get at the table: see `Table::created`.

use super::admission::Admission;
use super::durability::Durability;
use super::sorter::{Sorter, MEMORY_BYTES};
use crate::base::entry::FIRST;
use crate::base::{EntryHeader, Error, Lsn, Result, TreeId, TxnId};
use crate::btree::Builder;
use crate::catalog::{IndexDef, TableDef};
use crate::db::callbacks::Killed;
use crate::db::engine::Engine;
use crate::db::lease::Purpose;
use crate::db::rows::{INLINE, INLINE_BYTES_MAX};
use crate::db::tables::Table;
use crate::os::planted::{self, Bug};
use std::sync::atomic::Ordering;
use std::sync::Arc;

/// The writer of an entry that no transaction wrote.
pub(super) const NOBODY: EntryHeader = EntryHeader { flags: FIRST, txn: TxnId(0), lsn: Lsn::ZERO };

/// An index of the table as it will be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AlteredIndex {
    /// The index with this number now.
    Kept(usize),
    New {
        unique: bool,
    },
}

struct NewIndex {
    def: IndexDef,
    sorter: Option<Sorter>,
}

/// Two entries of a unique index with one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundTwice {
    /// Counted among the new indexes.
    pub index: usize,
    pub payloads: [Vec<u8>; 2],
}

/// New indexes on their way.
pub struct IndexBuild {
    engine: Arc<Engine>,
    name: String,
    def: TableDef,
    new: Vec<NewIndex>,
    dropped: Vec<TreeId>,
    is_committed: bool,
    entry: Vec<u8>,
}

impl Engine {
    /// Begins to change the indexes of a table. `definition`: its description as it will be.
    pub fn alter_indexes(
        self: &Arc<Self>,
        name: &str,
        indexes: &[AlteredIndex],
        definition: Vec<u8>,
        killed: &Killed<'_>,
    ) -> Result<IndexBuild> {
        self.admit(Purpose::Add, killed)?;
        let table = self.table(name)?.ok_or(Error::NotFound)?;
        let kept: Vec<usize> = indexes.iter().filter_map(AlteredIndex::kept).collect();
        let is_known = kept.iter().all(|&i| i < table.def.indexes.len());
        if indexes.first() != Some(&AlteredIndex::Kept(0)) || !is_known {
            return Err(Error::Refused("the clustered index cannot change in place".into()));
        }
        let gone = (0..table.def.indexes.len()).filter(|i| !kept.contains(i));
        let mut build = IndexBuild {
            dropped: gone.map(|i| table.def.indexes[i].tree).collect(),
            engine: Arc::clone(self),
            name: name.to_owned(),
            def: TableDef { indexes: Vec::new(), definition, ..table.def.clone() },
            new: Vec::new(),
            is_committed: false,
            entry: Vec::new(),
        };
        for index in indexes {
            let def = match *index {
                AlteredIndex::Kept(i) => table.def.indexes[i],
                AlteredIndex::New { unique } => build.add_tree(unique)?,
            };
            build.def.indexes.push(def);
        }
        Ok(build)
    }
}

impl AlteredIndex {
    fn kept(&self) -> Option<usize> {
        match *self {
            AlteredIndex::Kept(i) => Some(i),
            AlteredIndex::New { .. } => None,
        }
    }
}

impl IndexBuild {
    fn add_tree(&mut self, unique: bool) -> Result<IndexDef> {
        let engine = &self.engine;
        let def = engine.new_tree(unique, self.def.is_encrypted)?;
        let compression = super::statements::compression_of(self.def.compression);
        engine.pool.set_tree_compression(def.tree, compression);
        let dir = &engine.config.data_dir;
        let gate = engine.ctx.trees.get(def.tree).ok_or(Error::NotFound)?;
        let sorter = Sorter::new(Arc::clone(&engine.os), dir, def.tree.0, MEMORY_BYTES)
            .hiding(engine.encrypts())
            .counted_by(gate.tree().bytes());
        self.new.push(NewIndex { def, sorter: Some(sorter) });
        Ok(def)
    }

    /// The entry of a row in the new index of this number, counted among the new ones.
    pub fn add(&mut self, index: usize, key: &[u8], payload: &[u8]) -> Result<()> {
        if payload.len() > INLINE_BYTES_MAX {
            let (bytes, limit) = (payload.len(), INLINE_BYTES_MAX);
            return Err(Error::TooLarge { what: "index entry", bytes, limit });
        }
        self.entry.clear();
        NOBODY.put(&mut self.entry);
        self.entry.push(INLINE);
        self.entry.extend_from_slice(payload);
        match &mut self.new[index].sorter {
            Some(sorter) => sorter.push(key, &self.entry),
            None => unreachable!("rows come before the build"),
        }
    }

    /// All rows are in: makes the trees. Of a key that is there twice nothing is made.
    pub fn build(&mut self, killed: &Killed<'_>) -> Result<Option<FoundTwice>> {
        for index in 0..self.new.len() {
            let Some(sorter) = self.new[index].sorter.take() else { continue };
            if let Some(payloads) = self.build_one(self.new[index].def.tree, sorter, killed)? {
                return Ok(Some(FoundTwice { index, payloads }));
            }
        }
        Ok(None)
    }

    fn build_one(
        &self,
        id: TreeId,
        sorter: Sorter,
        killed: &Killed<'_>,
    ) -> Result<Option<[Vec<u8>; 2]>> {
        // Only this build drops the tree, so its gate need not be held, which would be in the way of
        // waits for room.
        let gate = self.engine.ctx.trees.get(id).ok_or(Error::NotFound)?;
        let mut builder = Builder::new(gate.shared_tree());
        let mut sorted = sorter.finish()?;
        let (mut key, mut value) = (Vec::new(), Vec::new());
        let (mut last_key, mut last_value) = (Vec::new(), Vec::new());
        let mut is_first = true;
        let mut admission = Admission::default();
        while sorted.next(&mut key, &mut value)? {
            if !is_first && key == last_key {
                return Ok(Some([payload_of(&last_value), payload_of(&value)]));
            }
            admission.ask(&self.engine, key.len() + value.len(), killed)?;
            builder.push(&key, &value)?;
            std::mem::swap(&mut key, &mut last_key);
            std::mem::swap(&mut value, &mut last_value);
            is_first = false;
        }
        builder.finish()?;
        Ok(None)
    }

    /// As [`IndexBuild::put`], for callers to which a change that is not durable is a failed one.
    pub fn commit(self) -> Result<Arc<Table>> {
        let (table, durability) = self.put()?;
        durability.or_error().map(|()| table)
    }

    /// Puts the altered table in the place of the old one.
    pub fn put(mut self) -> Result<(Arc<Table>, Durability)> {
        let engine = Arc::clone(&self.engine);
        engine.check_running()?;
        let _ddl = engine.schema.ddl.lock();
        let old = engine.schema.tables.read().get(&self.name).cloned().ok_or(Error::NotFound)?;
        let mut def = self.def.clone();
        def.id = engine.schema.next_table.fetch_add(1, Ordering::SeqCst);
        def.autoinc_start = old.autoinc_kept();
        let mut session = engine.system_session();
        let replaced = engine
            .schema
            .catalog
            .replace(&mut session, &self.name, &def)
            .and_then(|()| engine.schema.catalog.remove_statistics(&mut session, &old.def));
        let end = engine.commit_ddl(session, replaced)?;
        self.is_committed = true;
        let counters = old.counters.of_altered();
        let table = engine.table_from_def(&self.name, def, engine.newest_csn(), counters)?;
        engine.schema.tables.write().insert(self.name.clone(), Arc::clone(&table));
        old.retire();
        engine.drop_trees(std::mem::take(&mut self.dropped));
        let durability = match planted::is(Bug::AlterNotFlushed) {
            true => Durability::Durable,
            false => engine.durability(end),
        };
        Ok((table, durability))
    }
}

impl Drop for IndexBuild {
    fn drop(&mut self) {
        if !self.is_committed {
            self.engine.drop_trees(self.new.iter().map(|index| index.def.tree).collect());
        }
    }
}

fn payload_of(entry: &[u8]) -> Vec<u8> {
    let kept = crate::base::ENTRY_HEADER_BYTES + 1;
    entry.get(kept..).unwrap_or_default().to_vec()
}
