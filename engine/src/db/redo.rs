//! Second pass over the log's tail: page changes that the page map does not contain yet.

use super::analysis::Analysis;
use crate::base::{Error, Lsn, PageId, Result, TreeId};
use crate::btree::{apply, change_creates_page, decode_record, page_lsn, RECORD_TREE};
use crate::buffer::Pool;
use crate::catalog::FIRST_USER_TREE;
use crate::wal::RecordRef;

pub(crate) struct Redo<'a> {
    pub pool: &'a Pool,
    pub analysis: &'a Analysis,
    pub applied: u64,
    /// Pages that could not be brought up to date, for the first reason met.
    pub damage: Vec<GivenUp>,
}

pub(crate) struct GivenUp {
    pub page: PageId,
    pub tree: TreeId,
    pub error: Error,
}

impl Redo<'_> {
    pub fn visit(&mut self, lsn: Lsn, record: RecordRef<'_>) -> Result<()> {
        if record.kind != RECORD_TREE {
            return Ok(());
        }
        let record = decode_record(record.payload)?;
        if self.analysis.dropped_trees.contains(&record.tree) {
            return Ok(());
        }
        for (page, change) in record.changes() {
            if self.analysis.freed_pages.contains(&page) || self.pool.is_given_up(page) {
                continue;
            }
            let done = self.redo_change(record.tree, page, change, lsn);
            self.unless_given_up(record.tree, page, done)?;
        }
        Ok(())
    }

    /// The changes of a damaged page are put aside with it (rules S8): the engine opens, and
    /// those who need the page get an error. Without the catalog there is nothing to open.
    fn unless_given_up(&mut self, tree: TreeId, page: PageId, done: Result<()>) -> Result<()> {
        match done {
            Err(error @ Error::Corrupt { .. }) if tree >= FIRST_USER_TREE => {
                self.pool.give_up(page, tree);
                self.damage.push(GivenUp { page, tree, error: error.of_page(page) });
                Ok(())
            }
            Err(error @ Error::Corrupt { .. }) => Err(catalog_damaged(&error)),
            other => other,
        }
    }

    fn redo_change(&mut self, tree: TreeId, page: PageId, change: &[u8], lsn: Lsn) -> Result<()> {
        let mut guard = match change_creates_page(change) {
            true => self.pool.write_or_create(page, tree)?,
            false => self.pool.write(page)?,
        };
        if page_lsn(&guard) >= lsn {
            return Ok(());
        }
        guard.will_change(lsn);
        apply(guard.bytes_mut(), page, change, lsn)?;
        self.applied += 1;
        Ok(())
    }
}

/// Names of tables and places of trees stand in the catalog alone.
pub(crate) fn catalog_damaged(error: &Error) -> Error {
    Error::Refused(format!(
        "the catalog of tables is damaged ({error}): no table can be found without it; restore \
         the data directory from a backup"
    ))
}
