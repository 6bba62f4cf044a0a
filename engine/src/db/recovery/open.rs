//! Opening: a new directory, or recovery of what a crash or a shutdown left.

use super::analysis::{Analysis, Outcome, Trace};
use super::note::CheckpointNote;
use super::redo::{catalog_damaged, Redo, RedoTail};
use crate::base::{Csn, EntryHeader, Error, Lsn, PageId, Result, TreeId, TxnId};
use crate::binlog::{Binlog, BinlogRecovery};
use crate::btree::{decode_record, Env, Tree, RECORD_TREE};
use crate::buffer::{Pool, PoolOptions};
use crate::catalog::{Catalog, TableDef, CATALOG_TREE, FIRST_USER_TREE};
use crate::cipher::{Cipher, Oldest};
use crate::db::checkpoints::CheckpointState;
use crate::db::config::{Config, Encryption, Host, Level};
use crate::db::ddl::sorter;
use crate::db::engine::{Engine, Parts};
use crate::db::log_keys::LogKeys;
use crate::db::tables::{Counters, HiddenKey, Table};
use crate::db::unreadable::Unreadable;
use crate::os::hash::{HashMap, HashSet};
use crate::os::rank::Rank;
use crate::os::sync::{Mutex, Ranked};
use crate::os::Os;
use crate::store::{Store, StoreOptions};
use crate::txn::{
    Context, LockManager, OldVersions, OpenTxn, PurgeItem, Registry, Reverting, Trees, TxnState,
    TxnTable, Unsettled, OLD_VERSIONS_TREE,
};
use crate::wal::{ReadAhead, Wal, WalAnchor, WalOptions};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

const LOG_SEGMENT_BYTES: u64 = 16 << 20;
const LOG_CACHE_BYTES: u64 = 32 << 20;
const STORE_SEGMENT_BYTES: u64 = 2 << 20;
const FIRST_TXN: TxnId = TxnId(1);
const LOCK_FILE: &str = "lock";

/// Sizes that tests shrink.
#[derive(Clone, Copy, Debug)]
pub struct Geometry {
    pub log_segment_bytes: u64,
    pub log_cache_bytes: u64,
    pub store_segment_bytes: u64,
}

impl Default for Geometry {
    fn default() -> Self {
        Geometry {
            log_segment_bytes: LOG_SEGMENT_BYTES,
            log_cache_bytes: LOG_CACHE_BYTES,
            store_segment_bytes: STORE_SEGMENT_BYTES,
        }
    }
}

/// What opens encrypted bytes, and makes them.
type Keyring = Option<Arc<Cipher>>;

fn keyring(os: &dyn Os, config: &Config) -> Result<Keyring> {
    let make = |e: &Encryption| Cipher::new(os, Arc::clone(&e.keys), e.writes_under);
    config.encryption.as_ref().map(make).transpose()
}

fn wal_options(config: &Config, geometry: Geometry, cipher: &Keyring) -> WalOptions {
    WalOptions {
        dir: config.log_dir(),
        capacity_bytes: config.log_capacity_bytes,
        segment_bytes: geometry.log_segment_bytes,
        cache_bytes: geometry.log_cache_bytes,
        compression: config.log_compression.now(false),
        cipher: cipher.clone(),
    }
}

fn store_options(config: &Config, geometry: Geometry, cipher: &Keyring) -> StoreOptions {
    StoreOptions {
        dir: config.data_dir.clone(),
        segment_bytes: geometry.store_segment_bytes,
        map_bytes: config.map_bytes(),
        cipher: cipher.clone(),
        scope: config.encryption.as_ref().map(|e| e.scope).unwrap_or_default(),
    }
}

impl Engine {
    /// Opens the engine in `config.data_dir`; an empty or missing directory becomes a new one.
    pub fn open(os: Arc<dyn Os>, config: Config, host: Arc<dyn Host>) -> Result<Arc<Engine>> {
        Engine::open_with(os, config, Geometry::default(), host)
    }

    pub fn open_with(
        os: Arc<dyn Os>,
        config: Config,
        geometry: Geometry,
        host: Arc<dyn Host>,
    ) -> Result<Arc<Engine>> {
        let cipher = keyring(&*os, &config)?;
        os.create_dir(&config.data_dir)?;
        os.create_dir(&config.log_dir())?;
        let lock = os.lock_dir(&config.data_dir)?;
        sorter::remove_left(&*os, &config.data_dir)?;
        let opening = Opening { os, config, geometry, host, lock, cipher };
        let engine = match opening.existing_store()? {
            Found::Store(store, note) => opening.recover(store, &note)?,
            Found::Unfinished => opening.restart_creation()?,
            Found::Nothing => opening.create()?,
        };
        engine.note_cached_files();
        engine.start_background();
        Ok(engine)
    }
}

struct Opening {
    os: Arc<dyn Os>,
    config: Config,
    geometry: Geometry,
    host: Arc<dyn Host>,
    lock: Box<dyn Send + Sync>,
    cipher: Keyring,
}

/// What is in the directories.
enum Found {
    Nothing,
    /// A creation that never saw its first checkpoint: nothing was acknowledged yet.
    Unfinished,
    Store(Arc<Store>, Vec<u8>),
}

/// Where a new or recovered engine goes on.
struct Start {
    next_tree: u32,
    next_table: u64,
    checkpoint: CheckpointState,
    binlog: BinlogRecovery,
}

/// The rooms, connected.
struct Rooms {
    wal: Arc<Wal>,
    store: Arc<Store>,
    pool: Arc<Pool>,
    env: Arc<Env>,
}

impl Rooms {
    /// Pages that an earlier life gave up stay so.
    fn give_up(&self, analysis: &Analysis) {
        for (&page, &tree) in &analysis.bad_pages {
            self.pool.give_up(page, tree);
        }
    }

    /// Pages that records of the tail freed.
    fn free(&self, analysis: &Analysis) {
        let mut freed: Vec<PageId> = analysis.freed_pages.iter().copied().collect();
        freed.sort_unstable();
        freed.into_iter().for_each(|page| self.pool.free(page));
    }
}

impl Opening {
    fn existing_store(&self) -> Result<Found> {
        if self.os.exists(&self.superblock())? {
            let options = store_options(&self.config, self.geometry, &self.cipher);
            return match Store::open(Arc::clone(&self.os), options) {
                Ok((store, note)) if !note.is_empty() => Ok(Found::Store(store, note)),
                Ok(_) => Ok(Found::Unfinished),
                // The log is created after the store: without one there are no data to lose.
                Err(Error::Corrupt { .. }) if self.is_store_unfinished()? => Ok(Found::Unfinished),
                Err(error) => Err(error),
            };
        }
        for dir in [self.config.data_dir.clone(), self.config.log_dir()] {
            for path in self.os.list(&dir)? {
                if path.file_name().is_some_and(|n| n != LOCK_FILE) && !self.is_dir(&path) {
                    return Err(Error::Refused(format!(
                        "{} holds {} but there is no superblock in {}: restore the missing file, \
                         or empty both directories to start anew",
                        dir.display(),
                        path.display(),
                        self.config.data_dir.display(),
                    )));
                }
            }
        }
        Ok(Found::Nothing)
    }

    fn superblock(&self) -> PathBuf {
        self.config.data_dir.join("superblock")
    }

    fn is_store_unfinished(&self) -> Result<bool> {
        let has_log = !self.os.list(&self.config.log_dir())?.is_empty();
        Ok(!has_log && !Store::exists(&*self.os, &self.config.data_dir)?)
    }

    fn is_dir(&self, path: &Path) -> bool {
        path == self.config.log_dir() || self.os.list(path).is_ok_and(|names| !names.is_empty())
    }

    /// Starts again from nothing. A crash at any point leaves an unfinished creation behind: the
    /// log goes first, then the superblock is blanked, then the rest goes; the blank superblock stays
    /// for the new store.
    fn restart_creation(self) -> Result<Arc<Engine>> {
        self.remove_files(&self.config.log_dir())?;
        Store::blank(&*self.os, &self.config.data_dir)?;
        self.remove_files(&self.config.data_dir)?;
        self.create()
    }

    fn remove_files(&self, dir: &Path) -> Result<()> {
        let superblock = self.superblock();
        for path in self.os.list(dir)? {
            let kept = path == superblock || path.file_name().is_some_and(|n| n == LOCK_FILE);
            if !kept && !self.is_dir(&path) {
                self.os.remove(&path)?;
            }
        }
        self.os.sync_dir(dir)
    }

    fn create(self) -> Result<Arc<Engine>> {
        let options = store_options(&self.config, self.geometry, &self.cipher);
        let store = Store::create(Arc::clone(&self.os), options)?;
        let wal = Wal::create(
            Arc::clone(&self.os),
            wal_options(&self.config, self.geometry, &self.cipher),
        )?;
        let rooms = self.connect(wal, store, PageId(1));
        let table = TxnTable::new(FIRST_TXN);
        let ctx = self.context(&rooms, table);
        let tree = Tree::create(Arc::clone(&rooms.env), CATALOG_TREE)?;
        let old_versions = Tree::create(Arc::clone(&rooms.env), OLD_VERSIONS_TREE)?;
        let checkpoint = CheckpointState::default();
        let binlog = BinlogRecovery::default();
        let start = Start { next_tree: FIRST_USER_TREE.0, next_table: 1, checkpoint, binlog };
        let engine = self.assemble(rooms, ctx, (tree, old_versions), start);
        engine.checkpoint_now()?;
        Ok(engine)
    }

    fn assemble(
        self,
        rooms: Rooms,
        ctx: Arc<Context>,
        (catalog_tree, old_versions): (Arc<Tree>, Arc<Tree>),
        start: Start,
    ) -> Arc<Engine> {
        let catalog_root = catalog_tree.root();
        let catalog = Catalog::new(ctx.trees.add(catalog_tree));
        let binlog = Binlog::new(Arc::clone(&self.os), Arc::clone(&rooms.wal), start.binlog);
        let old_versions_root = old_versions.root();
        let now = (Oldest::Version(rooms.store.refresh_key()), rooms.wal.end());
        let log_keys = LogKeys::new(rooms.store.log_claim(), rooms.wal.tail_keys(), now);
        ctx.old.open(ctx.trees.add(old_versions), start.checkpoint.moved_to);
        let engine = Engine::new(Parts {
            config: self.config,
            host: self.host,
            os: self.os,
            wal: rooms.wal,
            store: rooms.store,
            pool: rooms.pool,
            env: rooms.env,
            ctx,
            catalog,
            catalog_root,
            old_versions_root,
            next_tree: start.next_tree,
            next_table: start.next_table,
            checkpoint: start.checkpoint,
            log_keys,
            binlog,
            lock: self.lock,
        });
        engine.watch_damage();
        engine
    }

    fn connect(&self, wal: Arc<Wal>, store: Arc<Store>, next_page: PageId) -> Rooms {
        let capacity = usize::try_from(self.config.buffer_pool_bytes).unwrap_or(usize::MAX);
        store.set_space_percent(self.config.space_percent);
        let pool = Pool::new(Arc::clone(&store), PoolOptions { capacity_bytes: capacity });
        pool.set_first_owing_tree(FIRST_USER_TREE);
        pool.set_deltas(self.config.page_deltas);
        let env = Env::new(Arc::clone(&pool), Arc::clone(&wal), next_page);
        Rooms { wal, store, pool, env }
    }

    fn context(&self, rooms: &Rooms, table: Arc<TxnTable>) -> Arc<Context> {
        let host = Arc::clone(&self.host);
        let for_dead = Arc::downgrade(&table);
        let fresh = rooms.env.dead.set(Box::new(move |entry| {
            for_dead.upgrade().is_some_and(|table| is_dead_entry(&table, entry))
        }));
        assert!(fresh.is_ok(), "the rooms are connected once");
        Arc::new(Context {
            wal: Arc::clone(&rooms.wal),
            locks: LockManager::new(Arc::clone(&table)),
            table,
            registry: Registry::default(),
            trees: Trees::default(),
            old: OldVersions::default(),
            to_revert: Mutex::ranked(Rank::ToRevert, Default::default()),
            purging: Mutex::ranked(Rank::PurgeReadAhead, ReadAhead::forward()),
            reverting: Mutex::ranked(Rank::RevertReadAhead, Reverting::default()),
            revert_goes_on: Default::default(),
            met_rolled_back: Default::default(),
            marks_left: Default::default(),
            report_wait: Box::new(move |waiter, holder| host.lock_wait(waiter, holder)),
            put_aside: Default::default(),
        })
    }

    fn recover(self, store: Arc<Store>, note: &[u8]) -> Result<Arc<Engine>> {
        let begin_ns = self.os.now_ns();
        let note = CheckpointNote::decode(note)?;
        let mut analysis = Analysis::new(&note)?;
        store.check_keys_of_log(note.needs_from())?;
        let anchor = WalAnchor { scan_from: note.scan_from, durable: note.durable };
        let options = wal_options(&self.config, self.geometry, &self.cipher);
        let mut tail = RedoTail::new(note.redo_from, self.config.buffer_pool_bytes, &store);
        let wal = Wal::recover(Arc::clone(&self.os), options, anchor, &mut |lsn, record| {
            if record.kind != RECORD_TREE {
                analysis.visit(lsn, record)?;
                return tail.visit(lsn, record);
            }
            // Nearly all records: decoded once for both.
            let record = decode_record(record.payload)?;
            tail.visit_tree(lsn, &record);
            analysis.visit_tree(lsn, &record)
        })?;
        let scan_ns = self.os.now_ns() - begin_ns;
        let next_page = analysis.next_page.max(store.max_page().0 + 1);
        let rooms = self.connect(wal, store, PageId(next_page));
        rooms.give_up(&analysis);
        let unreadable = Unreadable::new(Arc::clone(&self.os), Arc::clone(&rooms.store));
        let redo = Redo::new(&rooms.pool, &rooms.wal, &analysis, unreadable);
        let damage = redo.run(tail)?;
        rooms.free(&analysis);
        let ctx = self.restore_transactions(&rooms, &note, &analysis);
        let catalog_tree = Tree::open(Arc::clone(&rooms.env), CATALOG_TREE, note.catalog_root);
        let old_root = note.old_versions_root;
        let old_versions = Tree::open(Arc::clone(&rooms.env), OLD_VERSIONS_TREE, old_root);
        let scanned = rooms.wal.end().0.saturating_sub(note.scan_from.0);
        let next_tree = u32::try_from(analysis.next_tree).unwrap_or(u32::MAX);
        let checkpoint = CheckpointState::of(&note);
        let binlog = analysis.binlog.clone();
        let start = Start { next_tree, next_table: note.next_table, checkpoint, binlog };
        let engine = self.assemble(rooms, ctx, (catalog_tree, old_versions), start);
        engine.keep_recovered_prepared();
        engine.load_tables(&analysis)?;
        engine.record_redo_damage(&damage)?;
        engine.report_given_up();
        let ms = (engine.os.now_ns() - begin_ns) / 1_000_000;
        engine.host.log(
            Level::Note,
            &format!(
                "recovered in {ms} ms: {} log records in {scanned} bytes read in {} ms, \
                 {} page changes redone, {} pages left to redo later",
                analysis.records,
                scan_ns / 1_000_000,
                engine.pool.owed_applied(),
                engine.pool.recovered_pages(),
            ),
        );
        Ok(engine)
    }

    /// Transactions without an outcome are rolled back; prepared ones wait for their coordinator.
    fn restore_transactions(
        &self,
        rooms: &Rooms,
        note: &CheckpointNote,
        analysis: &Analysis,
    ) -> Arc<Context> {
        let mut unsettled = Vec::new();
        for (&id, trace) in &analysis.traces {
            let prepared = match trace.outcome {
                Outcome::Committed | Outcome::Reverted => continue,
                Outcome::Prepared => true,
                Outcome::Open | Outcome::Aborted => false,
            };
            unsettled.push(Unsettled { id, prepared, first_lsn: trace.first_lsn });
        }
        let table = TxnTable::restore(TxnId(analysis.next_txn), &unsettled);
        let ctx = self.context(rooms, table);
        let mut ordered: Vec<(&TxnId, &Trace)> = analysis.traces.iter().collect();
        ordered.sort_by_key(|(id, _)| **id);
        let queued: HashSet<TxnId> = note.purge.iter().map(|item| item.txn).collect();
        for (&id, trace) in ordered.into_iter().filter(|(id, _)| !queued.contains(id)) {
            restore_one(&ctx, id, trace);
        }
        for item in note.purge.iter().filter(|item| item.last_lsn >= analysis.purged) {
            let (first_lsn, last_lsn) = (item.first_lsn, item.last_lsn);
            ctx.registry.push_purge(PurgeItem { txn: item.txn, csn: Csn(0), first_lsn, last_lsn });
        }
        ctx
    }
}

fn restore_one(ctx: &Context, id: TxnId, trace: &Trace) {
    let (first_lsn, last_lsn) = (trace.first_lsn, trace.last_lsn);
    match trace.outcome {
        Outcome::Reverted => {}
        Outcome::Committed => {
            if trace.deletes {
                let item = PurgeItem { txn: id, csn: Csn(0), first_lsn, last_lsn };
                ctx.registry.push_purge(item);
            }
        }
        Outcome::Prepared | Outcome::Open | Outcome::Aborted => {
            let open = Arc::new(OpenTxn::new(id, first_lsn, last_lsn));
            if trace.deletes {
                open.note_delete();
            }
            if let Some(xid) = &trace.xid {
                open.set_xid(xid.clone());
            }
            ctx.registry.add(Arc::clone(&open));
            if trace.outcome != Outcome::Prepared {
                ctx.to_revert.lock().push_back(open);
            }
        }
    }
}

impl Engine {
    fn note_cached_files(&self) {
        if let Some(path) = self.os.without_direct() {
            let text = format!(
                "the file system of {} does not know O_DIRECT: pages and log go through the page \
                 cache, which takes memory beside the buffer pool",
                path.display()
            );
            self.host.log(Level::Warning, &text);
        }
    }

    fn keep_recovered_prepared(&self) {
        for open in self.ctx.registry.list() {
            if self.ctx.table.state(open.id) == TxnState::Prepared {
                let owner = self.ctx.locks.owner(0);
                self.ctx.locks.register_holder(&owner, open.id);
                self.keep_prepared(open, owner);
            }
        }
    }

    /// Opens every table of the catalog. A DDL statement that the crash interrupted is undone
    /// first, and pages of trees that no table names are freed.
    fn load_tables(&self, analysis: &Analysis) -> Result<()> {
        let mut session = self.system_session();
        let counters = &analysis.counters;
        let mut tables = HashMap::default();
        let mut newest_table = 0;
        let load = self.schema.catalog.load(&mut session).map_err(|error| match error {
            error if error.is_bad_read() => catalog_damaged(&error),
            other => other,
        });
        // Without statistics there are estimates.
        let mut statistics = self.schema.catalog.load_statistics(&mut session).unwrap_or_default();
        for (name, def) in load? {
            newest_table = newest_table.max(def.id);
            // Only in a copy of a directory may the superblock not have said it already.
            self.check_can_encrypt(def.is_encrypted)?;
            let autoinc = counters.get(&def.id).copied().unwrap_or(0).max(def.autoinc_start);
            let table = self.open_table(&name, def, autoinc)?;
            table.restore_statistics(statistics.remove(&table.id()));
            tables.insert(name, table);
        }
        session.rollback();
        self.schema.next_table.fetch_max(newest_table + 1, std::sync::atomic::Ordering::SeqCst);
        *self.schema.tables.write() = tables;
        self.store.trees_are_known();
        let known = self.ctx.trees.ids();
        // Pages that redo made are not in the store yet.
        let mut orphans = self.store.trees();
        orphans.extend(self.pool.trees());
        orphans.retain(|id| !known.contains(id));
        orphans.sort_unstable();
        orphans.dedup();
        if orphans.is_empty() {
            return Ok(());
        }
        self.drop_trees(orphans.clone());
        // Before any page is written: this life may write plain, and orphans may be of a table that had to be
        // encrypted.
        match self.flush_log() {
            // There is room for it later.
            Err(Error::Full { .. }) => return Ok(()),
            flushed => flushed?,
        }
        self.store.drop_trees(&orphans);
        Ok(())
    }

    fn open_table(&self, name: &str, def: TableDef, autoinc: u64) -> Result<Arc<Table>> {
        for index in def.trees() {
            self.tell_of_tree(index.tree, def.is_encrypted);
            let tree = Tree::open(Arc::clone(&self.env), index.tree, index.root);
            self.ctx.trees.add(tree);
        }
        self.table_from_def(name, def, Csn(0), Counters::new(autoinc, HiddenKey::of_rows()))
    }

    pub(crate) fn table_from_def(
        &self,
        name: &str,
        def: TableDef,
        created: Csn,
        counters: Counters,
    ) -> Result<Arc<Table>> {
        let gate = |tree: TreeId| {
            self.ctx.trees.get(tree).ok_or_else(|| Error::corrupt("unknown tree", name.to_owned()))
        };
        let gates = def.indexes.iter().map(|i| gate(i.tree)).collect::<Result<Vec<_>>>()?;
        let long_values = gate(def.long_values.tree)?;
        for index in def.trees() {
            let compression = crate::db::ddl::compression_of(def.compression);
            self.pool.set_tree_compression(index.tree, compression);
        }
        Ok(Arc::new(Table {
            name: name.to_owned(),
            def,
            gates,
            long_values,
            counters: Arc::new(counters),
            row_names: OnceLock::new(),
            key_parts: OnceLock::new(),
            created: std::sync::atomic::AtomicU64::new(created.0),
            wal: Arc::clone(&self.wal),
            store: Arc::clone(&self.store),
        }))
    }
}

/// A delete mark that every snapshot sees: a split of its leaf may drop it (rules S10).
fn is_dead_entry(table: &Arc<TxnTable>, entry: &[u8]) -> bool {
    match EntryHeader::split(entry) {
        Ok((header, _)) if header.is_deleted() => {
            matches!(table.state(header.txn), TxnState::Committed(_))
                && table.oldest_view(Lsn(u64::MAX)).sees(table, header.txn, None)
        }
        _ => false,
    }
}
