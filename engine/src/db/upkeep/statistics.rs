//! Statistics of tables: taken by ANALYZE, and in the background when enough has changed.
//!
//! Invariants:
//! 1. They are taken a piece at a time, a part of the key of one index, with no lock held in between and
//!    no latch while a page is read for another one. A table may be dropped between two pieces.
//! 2. Statistics count in memory first and are then written to the catalog, under `ddl`, if the table is
//!    still there. A failure to write leaves the old entry.

use crate::base::{Error, Result};
use crate::catalog::TableStatistics;
use crate::db::callbacks::{KeyParts, Killed};
use crate::db::engine::Engine;
use crate::db::lease::Purpose;
use crate::db::tables::{Job, Table, SAMPLE_PAGES_MAX};
use crate::os::SIMULATED;
use std::sync::atomic::Ordering;
use std::sync::Arc;

/// The statistics of one table are refreshed in the background at most so often.
const INTERVAL_NS: u64 = if SIMULATED { 100_000_000 } else { 10_000_000_000 };

impl Table {
    /// Says where the parts of keys end; the first to say it counts. Without it no statistics are taken.
    pub fn name_parts(&self, parts: Arc<dyn KeyParts>) {
        self.key_parts.get_or_init(|| parts);
    }

    /// What is known of the table, and a number that grows with every refresh; `None` when nothing is.
    pub fn statistics(&self) -> (Option<Arc<TableStatistics>>, u64) {
        let known = self.counters.remembered.known();
        (known.statistics, known.version)
    }

    pub(crate) fn restore_statistics(&self, statistics: Option<TableStatistics>) {
        // Of another number of trees they would be another table's.
        let own = statistics.filter(|s| s.trees.len() == self.def.trees().count());
        if let Some(statistics) = own {
            let remembered = &self.counters.remembered;
            remembered.learn(Arc::new(statistics), remembered.mark());
        }
    }
}

impl Engine {
    /// ANALYZE: takes the statistics now and makes them durable. `sample_pages`: leaves read for each
    /// part of a key, 0 for the default. It ends early when `is_killed` says so.
    pub fn analyze_table(
        &self,
        name: &str,
        sample_pages: usize,
        is_killed: &Killed<'_>,
    ) -> Result<()> {
        let table = self.table(name)?.ok_or(Error::NotFound)?;
        let Some(parts) = table.key_parts.get().cloned() else { return Ok(()) };
        let sample_pages = match sample_pages {
            0 => self.recalculation.sample_pages.load(Ordering::Relaxed),
            given => given.min(SAMPLE_PAGES_MAX),
        };
        let mut job = Job::new(table, parts, sample_pages);
        while job.step()? {
            self.check_running()?;
            if is_killed() {
                return Err(Error::Interrupted);
            }
        }
        self.admit(Purpose::Add, is_killed)?;
        self.keep_statistics(job, true)
    }

    /// Whether statistics are refreshed in the background.
    pub fn set_statistics_recalculation(&self, on: bool) {
        self.recalculation.is_on.store(on, Ordering::Relaxed);
    }

    pub fn set_statistics_sample_pages(&self, pages: usize) {
        self.recalculation.sample_pages.store(pages.clamp(1, SAMPLE_PAGES_MAX), Ordering::Relaxed);
    }

    /// A piece of what is due in the background; false: nothing is.
    pub(crate) fn recalculate_some(&self) -> Result<bool> {
        // It logs a little: without room it would only delay the checkpoint.
        if self.is_short_of_room() || self.redo_bytes() >= self.log_capacity() {
            return Ok(false);
        }
        let mut under_way = self.recalculation.job.lock();
        let Some(mut job) = under_way.take().or_else(|| self.next_due()) else { return Ok(false) };
        match job.step() {
            Ok(true) => *under_way = Some(job),
            Ok(false) => self.keep_statistics(job, false)?,
            // Dropped meanwhile.
            Err(Error::NotFound) => {}
            Err(error) => {
                job.table.counters.remembered.give_up(job.begun);
                return Err(error);
            }
        }
        Ok(true)
    }

    fn next_due(&self) -> Option<Job> {
        if !self.recalculation.is_on.load(Ordering::Relaxed) {
            return None;
        }
        let now_ns = self.os.now_ns();
        let tables = self.schema.tables.read();
        let is_due = |table: &&Arc<Table>| {
            table.key_parts.get().is_some() && table.counters.remembered.is_due(now_ns, INTERVAL_NS)
        };
        // By id: a map's own order is another one in each process, and others may run at each look.
        let mut by_id: Vec<&Arc<Table>> = tables.values().collect();
        by_id.sort_unstable_by_key(|table| table.id());
        let table = by_id.into_iter().find(is_due)?;
        table.counters.remembered.take_on(now_ns);
        let sample_pages = self.recalculation.sample_pages.load(Ordering::Relaxed);
        Some(Job::new(Arc::clone(table), Arc::clone(table.key_parts.get()?), sample_pages))
    }

    fn keep_statistics(&self, job: Job, flush: bool) -> Result<()> {
        let (table, statistics, begun) = job.finish();
        if statistics.rows() == 0 && table.statistics().0.is_none() {
            // A new table: nothing is worth a record.
            table.counters.remembered.give_up(begun);
            return Ok(());
        }
        table.counters.remembered.learn(Arc::clone(&statistics), begun);
        if table.counters.is_temporary {
            return Ok(());
        }
        let _ddl = self.schema.ddl.lock();
        self.check_running()?;
        if !table.is_current() {
            return Ok(());
        }
        let mut session = self.system_session();
        let put = self.schema.catalog.put_statistics(&mut session, table.id(), &statistics);
        let end = self.commit_ddl(session, put)?;
        match flush {
            true => self.wal.flush_to(end),
            false => Ok(()),
        }
    }
}
