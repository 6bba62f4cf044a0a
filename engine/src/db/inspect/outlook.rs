//! What the next start of a stopped directory will find: read, not done.

use super::Directory;
use crate::base::{Lsn, Result};
use crate::db::recovery::{Analysis, CheckpointNote, Outcome};
use crate::store::StoreHeader;
use crate::wal::{self, scan_files, BatchInfo, LogVisitor, RecordRef};

/// The state of a directory in numbers.
#[derive(Clone, Debug)]
pub struct Outlook {
    pub header: StoreHeader,
    /// The next start reads the log from here to its end.
    pub log_from: Lsn,
    pub log_end: Lsn,
    /// Records in that part of the log.
    pub records: u64,
    /// Transactions that the next start rolls back.
    pub open: usize,
    /// Transactions that wait in the state XA PREPARED, or for the binlog's word.
    pub prepared: usize,
    /// Binlog files whose end may be in the log only: the next start completes them.
    pub binlog_files: Vec<String>,
    /// Of all pages that the map names.
    pub live_bytes: u64,
    /// Length of the file of pages; holes in it take no disk space.
    pub pages_bytes: u64,
    /// Length of the log's segments.
    pub log_bytes: u64,
}

impl Outlook {
    /// The last stop wrote everything into the pages, and left the binlog complete.
    pub fn was_clean(&self) -> bool {
        self.records == 0 && self.open == 0 && self.binlog_files.is_empty()
    }
}

impl LogVisitor for Analysis {
    fn batch(&mut self, _batch: BatchInfo) -> bool {
        true
    }

    fn record(&mut self, lsn: Lsn, _end: Lsn, record: RecordRef<'_>) -> Result<()> {
        self.visit(lsn, record)
    }
}

impl Directory {
    /// Goes through the log as recovery does; no page is read.
    pub fn outlook(&self) -> Result<Outlook> {
        let store = self.read_store()?;
        let note = CheckpointNote::decode(&store.note)?;
        let mut analysis = Analysis::new(&note)?;
        let log_end = scan_files(
            &self.os,
            &self.log_dir,
            note.scan_from,
            self.cipher.clone(),
            &mut analysis,
        )?
        .end;
        let of = |outcome| analysis.traces.values().filter(|t| t.outcome == outcome).count();
        let mut live_bytes = 0;
        for place in store.places() {
            live_bytes += place?.bytes as u64;
        }
        let segments = wal::inspect(&*self.os, &self.log_dir)?.segments;
        Ok(Outlook {
            header: store.header,
            log_from: note.scan_from,
            log_end,
            records: analysis.records,
            open: of(Outcome::Open),
            prepared: of(Outcome::Prepared),
            binlog_files: analysis.binlog.owed().map(str::to_owned).collect(),
            live_bytes,
            pages_bytes: store.pages_bytes()?,
            log_bytes: segments.iter().map(|segment| segment.bytes).sum(),
        })
    }
}
