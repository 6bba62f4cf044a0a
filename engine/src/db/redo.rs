//! Second pass over the log's tail: page changes that the page map does not contain yet.

use super::analysis::Analysis;
use crate::base::{Lsn, PageId, Result, TreeId};
use crate::btree::{apply, change_creates_page, decode_record, page_lsn, RECORD_TREE};
use crate::buffer::Pool;
use crate::wal::RecordRef;

pub(crate) struct Redo<'a> {
    pub pool: &'a Pool,
    pub analysis: &'a Analysis,
    pub applied: u64,
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
            if self.analysis.freed_pages.contains(&page) {
                continue;
            }
            self.redo_change(record.tree, page, change, lsn)?;
        }
        Ok(())
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
