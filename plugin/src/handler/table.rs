//! The table of a handler: which trees it has now, whether their order is the server's, and what the
//! optimizer asks of it.
//!
//! 1. An index in which the order of a collation has changed is neither searched nor written ([`check_order`]).
//! 2. `table` is renewed between statements only ([`Handler::refresh`]); no scan goes on over that.
//!
//! [`check_order`]: Handler::check_order

use super::Handler;
use crate::engine;
use crate::entry;
use crate::key;
use crate::shape::Shape;
use sluice_engine::base::{Error, Result};
use sluice_engine::db::{CheckDepth, Engine, Killed, Table, TableReport};
use std::sync::Arc;

/// What is known of an index.
pub struct KeyStatistics {
    pub entries: u64,
    pub leaf_pages: u64,
    pub distinct: Vec<u64>,
}

impl Handler {
    /// TRUNCATE gives a table new trees; handlers that stayed open take them over here.
    pub fn refresh(&mut self, engine: &Engine) -> Result<()> {
        if self.table.is_current() {
            return Ok(());
        }
        let table = engine.table(&self.name)?.ok_or(Error::NotFound)?;
        if table.id() != self.table.id() {
            name_keys(&table, &self.shape);
            self.table = table;
            self.scan_end();
        }
        Ok(())
    }

    /// An index whose collation has changed has its entries in another order than the server
    /// expects: searches in it would miss rows, and writes would spoil it further.
    pub(super) fn check_order(&self, index: usize) -> Result<()> {
        if !self.stale[index] {
            return Ok(());
        }
        let which = if index == 0 { "the primary key".into() } else { format!("index {index}") };
        Err(Error::Refused(format!(
            "{which} of {} was built with another version of its collation: rebuild it with \
             ALTER TABLE ... FORCE",
            self.name
        )))
    }

    pub fn is_stale(&self) -> bool {
        self.stale.contains(&true)
    }

    pub(super) fn check_orders(&self) -> Result<()> {
        (0..self.stale.len()).try_for_each(|index| self.check_order(index))
    }

    /// CHECK TABLE.
    pub fn check(
        &self,
        engine: &Arc<Engine>,
        depth: CheckDepth,
        killed: &Killed<'_>,
    ) -> Result<TableReport> {
        engine.check_table(&self.name, depth, killed)
    }

    /// ANALYZE TABLE of a session, which may be killed. `sample_pages`: 0 for the default.
    pub fn analyze(&self, engine: &Engine, session: u64, sample_pages: usize) -> Result<()> {
        engine.analyze_table(&self.name, sample_pages, &|| engine::is_killed(session))
    }

    /// How many values each prefix of a key has, by the parts of the server; entries and leaf pages of
    /// its index. None: not known.
    pub fn key_statistics(&self, index: usize) -> Option<KeyStatistics> {
        let (statistics, _) = self.table.statistics();
        let of_index = statistics?.trees.get(index)?.clone();
        let prefixes = key::prefix_of_parts(&self.shape, index);
        // After the whole key of a unique index nothing more is told apart.
        let values = |&i: &usize| of_index.distinct.get(i).copied().unwrap_or(of_index.entries);
        Some(KeyStatistics {
            entries: of_index.entries,
            leaf_pages: of_index.leaf_pages,
            distinct: prefixes.iter().map(values).collect(),
        })
    }
}

/// What the engine asks about the bytes of keys, to follow rows through the indexes and to check these: where
/// parts end, and where an entry keeps its row's key. Only the shape of the table says so.
pub fn name_keys(table: &Table, shape: &Shape) {
    table.name_parts(Arc::new(key::PartEnds { shape: shape.clone() }));
    let shape = shape.clone();
    table.name_rows(Arc::new(move |index, key, payload| {
        entry::split(&shape, index, key, payload).map(|(row, _)| row.to_vec())
    }));
}
