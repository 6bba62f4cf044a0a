//! The tables of an engine, and what statements that make or drop some of them change.

use super::table::Table;
use crate::base::{Lsn, PageId, TreeId};
use crate::catalog::Catalog;
use crate::os::hash::HashMap;
use crate::os::sync::{Mutex, RwLock};
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::sync::Arc;

pub(crate) struct Schema {
    pub catalog: Catalog,
    pub catalog_root: PageId,
    pub tables: RwLock<HashMap<String, Arc<Table>>>,
    /// One DDL statement at a time.
    pub ddl: Mutex<()>,
    pub next_tree: AtomicU32,
    pub next_table: AtomicU64,
    /// Trees of dropped tables whose pages are not all free yet, and the end of the log record
    /// that must be durable before.
    pub dropped_trees: Mutex<Vec<(TreeId, Lsn)>>,
}
