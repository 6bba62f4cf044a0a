//! Create, drop, rename and truncate. Each is one transaction on the catalog, durable before the
//! call returns (rules M18); the pages of dropped trees are freed in the background.
//!
//! Room for the commit is made sure of before. From the commit on memory follows the log, whatever
//! becomes of the flush: the commit is in the log's order, and a later flush makes it durable. A
//! create whose flush fails is taken back by a second transaction, if there is room for one.

use super::durability::Durability;
use crate::base::codec::put_varint;
use crate::base::{Csn, Error, Lsn, Result, TreeId};
use crate::btree::Tree;
use crate::catalog::{CompressionDef, IndexDef, TableDef};
use crate::db::callbacks::Killed;
use crate::db::engine::Engine;
use crate::db::lease::Purpose;
use crate::db::records::RECORD_DROP_TREES;
use crate::db::tables::{Counters, IndexSpec, Table, TableSpec};
use crate::os::planted::{self, Bug};
use crate::os::sync::sleep;
use crate::store::Compression;
use crate::txn::Session;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::Duration;

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
        self.create_table_unless(&|| false, name, spec, false)
    }

    /// The statement may be killed while it waits for room. A temporary table is one session's. It
    /// may be made in the middle of a transaction, whose snapshot then sees it; the caller drops it
    /// before the session ends, or after a restart.
    pub fn create_table_unless(
        &self,
        killed: &Killed<'_>,
        name: &str,
        spec: TableSpec,
        is_temporary: bool,
    ) -> Result<()> {
        self.check_can_encrypt(spec.is_encrypted)?;
        self.admit(Purpose::Add, killed)?;
        let _ddl = self.schema.ddl.lock();
        if self.schema.tables.read().contains_key(name) {
            return Err(Error::Exists);
        }
        let def = self.new_trees(spec)?;
        self.keep_promise(&def).inspect_err(|_| self.forget_trees(&def))?;
        let mut session = self.system_session();
        let made = self.schema.catalog.insert(&mut session, name, &def);
        let end = self.commit_ddl(session, made).inspect_err(|_| self.forget_trees(&def))?;
        let autoinc = def.autoinc_start;
        let table = self.table_from_def(name, def, self.created(is_temporary), {
            Counters::of_new_trees(autoinc).temporary(is_temporary)
        })?;
        self.schema.tables.write().insert(name.to_owned(), table);
        self.wal.flush_to(end).inspect_err(|_| drop(self.drop_logged(name)))
    }

    /// `false`: there was none.
    pub fn drop_table(&self, name: &str) -> Result<bool> {
        self.check_running()?;
        let _ddl = self.schema.ddl.lock();
        match self.drop_logged(name)? {
            Some(end) => self.wal.flush_to(end).map(|()| true),
            None => Ok(false),
        }
    }

    /// Answers what is to be flushed, if there was such a table.
    fn drop_logged(&self, name: &str) -> Result<Option<Lsn>> {
        let Some(table) = self.schema.tables.read().get(name).cloned() else { return Ok(None) };
        if planted::is(Bug::PagesForgottenEarly) {
            let ids: Vec<TreeId> = table.def.trees().map(|index| index.tree).collect();
            self.store.drop_trees(&ids);
            (0..10).for_each(|_| sleep(Duration::from_millis(10)));
        }
        let mut session = self.system_session();
        let removed = self
            .schema
            .catalog
            .remove(&mut session, name)
            .and_then(|()| self.schema.catalog.remove_statistics(&mut session, &table.def));
        let end = self.commit_ddl(session, removed)?;
        if planted::is(Bug::DropNotInMemory) {
            self.wal.flush_to(end)?;
        }
        self.schema.tables.write().remove(name);
        table.retire();
        self.drop_trees(table.def.trees().map(|index| index.tree).collect());
        Ok(Some(end))
    }

    pub fn rename_table(&self, from: &str, to: &str) -> Result<()> {
        self.rename_table_unless(&|| false, from, to)?.or_error()
    }

    pub fn rename_table_unless(
        &self,
        killed: &Killed<'_>,
        from: &str,
        to: &str,
    ) -> Result<Durability> {
        // A statement that was killed takes back what it renamed, and waits for nothing then.
        let was_killed = killed();
        match self.admit(Purpose::Add, killed) {
            Err(Error::Interrupted) if was_killed => {}
            other => other?,
        }
        let _ddl = self.schema.ddl.lock();
        let end = self.rename_logged(from, to)?;
        // After a failed flush it is not taken back: a crash could keep the one change without the other.
        Ok(self.durability(end))
    }

    /// Answers what is to be flushed.
    fn rename_logged(&self, from: &str, to: &str) -> Result<Lsn> {
        let table = self.schema.tables.read().get(from).cloned().ok_or(Error::NotFound)?;
        if self.schema.tables.read().contains_key(to) {
            return Err(Error::Exists);
        }
        let mut session = self.system_session();
        let renamed = self
            .schema
            .catalog
            .remove(&mut session, from)
            .and_then(|()| self.schema.catalog.insert(&mut session, to, &table.def));
        let end = self.commit_ddl(session, renamed)?;
        let renamed = Arc::new(table.renamed(to));
        let mut tables = self.schema.tables.write();
        tables.remove(from);
        tables.insert(to.to_owned(), renamed);
        Ok(end)
    }

    /// Gives the table new, empty trees. Snapshots from before find it changed.
    pub fn truncate_table(&self, name: &str, autoinc_start: u64) -> Result<()> {
        self.truncate_table_unless(&|| false, name, autoinc_start)?.or_error()
    }

    pub fn truncate_table_unless(
        &self,
        killed: &Killed<'_>,
        name: &str,
        autoinc_start: u64,
    ) -> Result<Durability> {
        self.admit(Purpose::Delete, killed)?;
        let _ddl = self.schema.ddl.lock();
        let old = self.schema.tables.read().get(name).cloned().ok_or(Error::NotFound)?;
        let indexes = old.def.indexes.iter().map(|i| IndexSpec { unique: i.unique }).collect();
        let def = self.new_trees(TableSpec {
            indexes,
            definition: old.def.definition.clone(),
            autoinc_start,
            compression: Some(compression_of(old.def.compression)),
            is_encrypted: old.def.is_encrypted,
        })?;
        let mut session = self.system_session();
        let replaced = self
            .schema
            .catalog
            .replace(&mut session, name, &def)
            .and_then(|()| self.schema.catalog.remove_statistics(&mut session, &old.def));
        let end = self.commit_ddl(session, replaced).inspect_err(|_| self.forget_trees(&def))?;
        let is_temporary = old.counters.is_temporary;
        let table = self.table_from_def(name, def, self.created(is_temporary), {
            Counters::of_new_trees(autoinc_start).temporary(is_temporary)
        })?;
        self.schema.tables.write().insert(name.to_owned(), table);
        old.retire();
        self.drop_trees(old.def.trees().map(|index| index.tree).collect());
        Ok(self.durability(end))
    }

    pub fn table(&self, name: &str) -> Result<Option<Arc<Table>>> {
        self.check_running()?;
        Ok(self.schema.tables.read().get(name).cloned())
    }

    pub fn table_names(&self) -> Vec<String> {
        let mut names: Vec<String> = self.schema.tables.read().keys().cloned().collect();
        names.sort();
        names
    }

    /// The catalog change decides. After an error nothing has happened; else it has, and the
    /// answer is what is to be flushed.
    pub(crate) fn commit_ddl(&self, mut session: Session, outcome: Result<()>) -> Result<Lsn> {
        if let Err(error) = outcome.and_then(|()| self.wal.admit_ending()) {
            session.rollback();
            self.wake_background();
            return Err(error);
        }
        #[cfg(test)]
        crate::db::tests::ddl::commits(self);
        let end = session.finish_commit().unwrap_or(Lsn::ZERO);
        #[cfg(feature = "sim")]
        crate::db::simulated::note_ddl(end);
        Ok(end)
    }

    /// From which snapshot on a new table is known; temporary ones are their session's alone.
    fn created(&self, is_temporary: bool) -> Csn {
        if is_temporary {
            Csn(0)
        } else {
            self.newest_csn()
        }
    }

    pub(super) fn newest_csn(&self) -> Csn {
        self.ctx.table.snapshot(self.wal.end()).csn()
    }

    fn new_trees(&self, spec: TableSpec) -> Result<TableDef> {
        assert!(!spec.indexes.is_empty(), "a table has a clustered index");
        let mut indexes = Vec::with_capacity(spec.indexes.len());
        for index in &spec.indexes {
            indexes.push(self.new_tree(index.unique, spec.is_encrypted)?);
        }
        let long_values = self.new_tree(true, spec.is_encrypted)?;
        let compression = spec.compression.unwrap_or(self.config.compression);
        Ok(TableDef {
            id: self.schema.next_table.fetch_add(1, Ordering::SeqCst),
            indexes,
            long_values,
            autoinc_start: spec.autoinc_start,
            compression: compression_def(compression),
            is_encrypted: spec.is_encrypted,
            definition: spec.definition,
        })
    }

    pub(super) fn new_tree(&self, unique: bool, is_encrypted: bool) -> Result<IndexDef> {
        let id = TreeId(self.schema.next_tree.fetch_add(1, Ordering::SeqCst));
        self.tell_of_tree(id, is_encrypted);
        let tree = Tree::create(Arc::clone(&self.env), id)?;
        let root = tree.root();
        self.ctx.trees.add(tree);
        Ok(IndexDef { tree: id, root, unique })
    }

    /// Trees of a table that did not come to be.
    fn forget_trees(&self, def: &TableDef) {
        self.drop_trees(def.trees().map(|index| index.tree).collect());
    }

    /// Closes trees that no table names any more. Their pages may be freed only when the record
    /// that tells redo to skip them is durable.
    pub(crate) fn drop_trees(&self, ids: Vec<TreeId>) {
        if ids.is_empty() {
            return;
        }
        for &id in &ids {
            if let Some(gate) = self.ctx.trees.remove(id) {
                self.log_shares.drop_tree(id, gate.tree().bytes());
            }
        }
        for &id in &ids {
            self.pool.forget_given_up(id);
            self.store.release_promise(id);
        }
        let mut payload = Vec::with_capacity(4 + ids.len() * 3);
        put_varint(&mut payload, ids.len() as u64);
        ids.iter().for_each(|id| put_varint(&mut payload, u64::from(id.0)));
        let logged = match planted::is(Bug::DropTreesNotLogged) {
            true => Lsn::ZERO,
            false => self.wal.append(RECORD_DROP_TREES, &[&payload]).end,
        };
        self.schema.dropped_trees.lock().extend(ids.into_iter().map(|id| (id, logged)));
        self.wake_background();
    }

    /// Frees some pages of dropped trees. Answers whether any are left.
    pub(crate) fn free_dropped_step(&self) -> Result<bool> {
        let dropped = self.schema.dropped_trees.lock().clone();
        let Some(&(id, _)) = dropped.last() else { return Ok(false) };
        self.wal.flush_to(dropped.iter().map(|&(_, logged)| logged).max().unwrap_or_default())?;
        // What is dirty of them, of all and not only of the next one to be freed, is not written.
        let ids: Vec<TreeId> = dropped.into_iter().map(|(id, _)| id).collect();
        self.store.drop_trees(&ids);
        // Before their pages go: see `Engine::redo_step`.
        self.pool.forget_owed(id);
        self.pool.forget_given_up(id);
        if self.store.free_tree_step(id, FREE_PAGES_PER_STEP) {
            self.schema.dropped_trees.lock().retain(|(other, _)| *other != id);
        }
        Ok(!self.schema.dropped_trees.lock().is_empty())
    }
}
