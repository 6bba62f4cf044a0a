//! Create, drop, rename and truncate. Each is one transaction on the catalog, durable before the
//! call returns (rules M18); the pages of dropped trees are freed in the background.

use super::analysis::RECORD_DROP_TREES;
use super::engine::Engine;
use super::hidden_key::HiddenKey;
use super::room::Purpose;
use super::table::{Counters, IndexSpec, Table, TableSpec};
use crate::base::codec::put_varint;
use crate::base::{Csn, Error, Result, TreeId};
use crate::btree::Tree;
use crate::catalog::{CompressionDef, IndexDef, TableDef};
use crate::os::planted::{self, Bug};
use crate::store::Compression;
use crate::txn::Session;
use std::sync::atomic::Ordering;
use std::sync::Arc;

const FREE_PAGES_PER_STEP: usize = 4096;

pub(crate) fn compression_of(def: CompressionDef) -> Compression {
    match def.method {
        1 => Compression::Lz4,
        2 => Compression::Zstd(i32::from(def.level)),
        _ => Compression::None,
    }
}

fn compression_def(compression: Compression) -> CompressionDef {
    match compression {
        Compression::None => CompressionDef { method: 0, level: 0 },
        Compression::Lz4 => CompressionDef { method: 1, level: 0 },
        Compression::Zstd(level) => {
            CompressionDef { method: 2, level: u8::try_from(level.clamp(1, 22)).unwrap_or(1) }
        }
    }
}

impl Engine {
    pub fn create_table(&self, name: &str, spec: TableSpec) -> Result<()> {
        self.create(name, spec, false)
    }

    /// A table of one session. It may be made in the middle of a transaction, whose snapshot
    /// then sees it; the caller drops it before the session ends, or after a restart.
    pub fn create_temporary_table(&self, name: &str, spec: TableSpec) -> Result<()> {
        self.create(name, spec, true)
    }

    fn create(&self, name: &str, spec: TableSpec, is_temporary: bool) -> Result<()> {
        self.admit(Purpose::Add)?;
        let _ddl = self.ddl.lock();
        if self.tables.read().contains_key(name) {
            return Err(Error::Exists);
        }
        let def = self.new_trees(spec)?;
        let mut session = self.system_session();
        let made = self.catalog.insert(&mut session, name, &def);
        self.finish_ddl(session, made).inspect_err(|_| self.forget_trees(&def))?;
        let autoinc = def.autoinc_start;
        let table = self.table_from_def(name, def, self.created(is_temporary), {
            Counters::new(autoinc, HiddenKey::first()).temporary(is_temporary)
        })?;
        self.tables.write().insert(name.to_owned(), table);
        Ok(())
    }

    /// `false`: there was none.
    pub fn drop_table(&self, name: &str) -> Result<bool> {
        self.check_running()?;
        let _ddl = self.ddl.lock();
        let Some(table) = self.tables.read().get(name).cloned() else { return Ok(false) };
        let mut session = self.system_session();
        let removed = self.catalog.remove(&mut session, name);
        self.finish_ddl(session, removed)?;
        self.tables.write().remove(name);
        table.retire();
        self.drop_trees(table.def.trees().map(|index| index.tree).collect())?;
        Ok(true)
    }

    pub fn rename_table(&self, from: &str, to: &str) -> Result<()> {
        self.admit(Purpose::Add)?;
        let _ddl = self.ddl.lock();
        let table = self.tables.read().get(from).cloned().ok_or(Error::NotFound)?;
        if self.tables.read().contains_key(to) {
            return Err(Error::Exists);
        }
        let mut session = self.system_session();
        let renamed = self
            .catalog
            .remove(&mut session, from)
            .and_then(|()| self.catalog.insert(&mut session, to, &table.def));
        self.finish_ddl(session, renamed)?;
        let renamed = Arc::new(table.renamed(to));
        let mut tables = self.tables.write();
        tables.remove(from);
        tables.insert(to.to_owned(), renamed);
        Ok(())
    }

    /// Gives the table new, empty trees. Snapshots from before find it changed.
    pub fn truncate_table(&self, name: &str, autoinc_start: u64) -> Result<()> {
        self.admit(Purpose::Delete)?;
        let _ddl = self.ddl.lock();
        let old = self.tables.read().get(name).cloned().ok_or(Error::NotFound)?;
        let indexes = old.def.indexes.iter().map(|i| IndexSpec { unique: i.unique }).collect();
        let def = self.new_trees(TableSpec {
            indexes,
            definition: old.def.definition.clone(),
            autoinc_start,
            compression: Some(compression_of(old.def.compression)),
        })?;
        let mut session = self.system_session();
        let replaced = self.catalog.replace(&mut session, name, &def);
        self.finish_ddl(session, replaced).inspect_err(|_| self.forget_trees(&def))?;
        let is_temporary = old.counters.is_temporary;
        let table = self.table_from_def(name, def, self.created(is_temporary), {
            Counters::new(autoinc_start, HiddenKey::first()).temporary(is_temporary)
        })?;
        self.tables.write().insert(name.to_owned(), table);
        old.retire();
        self.drop_trees(old.def.trees().map(|index| index.tree).collect())
    }

    pub fn table(&self, name: &str) -> Result<Option<Arc<Table>>> {
        self.check_running()?;
        Ok(self.tables.read().get(name).cloned())
    }

    pub fn table_names(&self) -> Vec<String> {
        let mut names: Vec<String> = self.tables.read().keys().cloned().collect();
        names.sort();
        names
    }

    /// The catalog change decides; it is durable when this returns.
    fn finish_ddl(&self, mut session: Session, outcome: Result<()>) -> Result<()> {
        if let Err(error) = outcome {
            session.rollback();
            self.wake_background();
            return Err(error);
        }
        match session.finish_commit() {
            Some(end) => self.wal.flush_to(end),
            None => Ok(()),
        }
    }

    /// From which snapshot on a new table is known; temporary ones are their session's alone.
    fn created(&self, is_temporary: bool) -> Csn {
        if is_temporary {
            Csn(0)
        } else {
            self.newest_csn()
        }
    }

    fn newest_csn(&self) -> Csn {
        self.ctx.table.snapshot(self.wal.end()).csn()
    }

    fn new_trees(&self, spec: TableSpec) -> Result<TableDef> {
        assert!(!spec.indexes.is_empty(), "a table has a clustered index");
        let mut indexes = Vec::with_capacity(spec.indexes.len());
        for index in &spec.indexes {
            indexes.push(self.new_tree(index.unique)?);
        }
        let long_values = self.new_tree(true)?;
        let compression = spec.compression.unwrap_or(self.config.compression);
        Ok(TableDef {
            id: self.next_table.fetch_add(1, Ordering::SeqCst),
            indexes,
            long_values,
            autoinc_start: spec.autoinc_start,
            compression: compression_def(compression),
            definition: spec.definition,
        })
    }

    fn new_tree(&self, unique: bool) -> Result<IndexDef> {
        let id = TreeId(self.next_tree.fetch_add(1, Ordering::SeqCst));
        let tree = Tree::create(Arc::clone(&self.env), id)?;
        let root = tree.root();
        self.ctx.trees.add(tree);
        Ok(IndexDef { tree: id, root, unique })
    }

    /// Trees of a table that did not come to be.
    fn forget_trees(&self, def: &TableDef) {
        // A failure leaves pages that the next open frees.
        let _ = self.drop_trees(def.trees().map(|index| index.tree).collect());
    }

    /// Closes trees that no table names any more. Their pages may be freed only when the record
    /// that tells redo to skip them is durable.
    pub(crate) fn drop_trees(&self, ids: Vec<TreeId>) -> Result<()> {
        if ids.is_empty() {
            return Ok(());
        }
        ids.iter().for_each(|&id| self.ctx.trees.remove(id));
        ids.iter().for_each(|&id| self.pool.forget_given_up(id));
        let mut payload = Vec::with_capacity(4 + ids.len() * 3);
        put_varint(&mut payload, ids.len() as u64);
        ids.iter().for_each(|id| put_varint(&mut payload, u64::from(id.0)));
        if !planted::is(Bug::DropTreesNotLogged) {
            let appended = self.wal.append(RECORD_DROP_TREES, &[&payload]);
            self.wal.flush_to(appended.end)?;
        }
        // Before their pages go: see `Engine::redo_step`.
        ids.iter().for_each(|&id| self.pool.forget_owed(id));
        self.dropped_trees.lock().extend(ids);
        self.wake_background();
        Ok(())
    }

    /// Frees some pages of dropped trees. Answers whether any are left.
    pub(crate) fn free_dropped_step(&self) -> bool {
        let Some(id) = self.dropped_trees.lock().last().copied() else { return false };
        if self.store.free_tree_step(id, FREE_PAGES_PER_STEP) {
            self.dropped_trees.lock().retain(|&other| other != id);
        }
        !self.dropped_trees.lock().is_empty()
    }
}
