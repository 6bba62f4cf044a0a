//! Log records in words.

use crate::base::codec::Reader;
use crate::base::{Lsn, Result, TreeId, TxnId};
use crate::binlog::{describe_record, RECORD_BINLOG, RECORD_BINLOG_STATE};
use crate::btree::{decode_delta, decode_record, describe_change, RECORD_DELTA, RECORD_TREE};
use crate::cipher::Cipher;
use crate::db::records::{RECORD_BAD_PAGE, RECORD_COUNTER, RECORD_DROP_TREES, RECORD_PURGED};
use crate::os::Os;
use crate::txn::{Note, RECORD_ABORT, RECORD_COMMIT, RECORD_PREPARE, RECORD_REVERTED};
use crate::wal::{scan_files, BatchInfo, LogVisitor, RecordRef};
use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;

/// What a log holds, in order.
#[derive(Clone, Debug)]
pub enum LogItem {
    Batch(BatchInfo),
    Record(LogLine),
}

/// One record.
#[derive(Clone, Debug, Default)]
pub struct LogLine {
    pub lsn: Lsn,
    pub kind: u8,
    pub name: &'static str,
    pub payload_bytes: usize,
    pub tree: Option<TreeId>,
    pub txn: Option<TxnId>,
    /// Changes, freed pages, key, XID and so on.
    pub detail: String,
}

struct Listing<'a> {
    visit: &'a mut dyn FnMut(LogItem) -> bool,
    goes_on: bool,
}

impl LogVisitor for Listing<'_> {
    fn batch(&mut self, batch: BatchInfo) -> bool {
        self.goes_on = self.goes_on && (self.visit)(LogItem::Batch(batch));
        self.goes_on
    }

    fn record(&mut self, lsn: Lsn, _end: Lsn, record: RecordRef<'_>) -> Result<()> {
        if self.goes_on {
            self.goes_on = (self.visit)(LogItem::Record(describe(lsn, record)?));
        }
        Ok(())
    }
}

pub(super) fn scan(
    os: &Arc<dyn Os>,
    dir: &Path,
    from: Lsn,
    cipher: Option<Arc<Cipher>>,
    visit: &mut dyn FnMut(LogItem) -> bool,
) -> Result<Lsn> {
    let mut listing = Listing { visit, goes_on: true };
    scan_files(os, dir, from, cipher, &mut listing).map(|end| end.end)
}

/// Decodes a record. One of a kind that this room does not know is "other".
pub(crate) fn describe(lsn: Lsn, record: RecordRef<'_>) -> Result<LogLine> {
    let payload_bytes = record.payload.len();
    let mut line = LogLine { lsn, kind: record.kind, payload_bytes, ..Default::default() };
    let mut r = Reader::new(record.payload, "log record");
    line.name = match record.kind {
        RECORD_TREE => {
            describe_tree(record.payload, &mut line)?;
            "tree"
        }
        RECORD_DELTA => {
            let record = decode_delta(lsn, record.payload)?;
            line.tree = Some(record.tree);
            let (first, last) = (record.delta.first, record.delta.last);
            let count = record.changes.iter().count();
            let _ =
                write!(line.detail, "page {}: {count} changes of {first} to {last}", record.page);
            "delta"
        }
        RECORD_COMMIT | RECORD_ABORT | RECORD_REVERTED => {
            line.txn = Some(TxnId(r.varint()?));
            match record.kind {
                RECORD_COMMIT => "commit",
                RECORD_ABORT => "abort",
                _ => "reverted",
            }
        }
        RECORD_PREPARE => {
            line.txn = Some(TxnId(r.varint()?));
            line.detail = format!("xid {}", hex(r.rest()));
            "prepare"
        }
        RECORD_COUNTER => {
            line.detail = format!("table {} next {}", r.varint()?, r.varint()?);
            "counter"
        }
        RECORD_DROP_TREES => {
            for _ in 0..r.varint()? {
                let _ = write!(line.detail, "tree {} ", r.varint()?);
            }
            "drop-trees"
        }
        RECORD_PURGED => {
            line.detail = format!("below {}", r.varint()?);
            "purged"
        }
        RECORD_BAD_PAGE => {
            line.detail = format!("page {} of tree {}", r.varint()?, r.varint()?);
            "bad-page"
        }
        RECORD_BINLOG | RECORD_BINLOG_STATE => {
            line.detail = describe_record(record)?;
            if record.kind == RECORD_BINLOG {
                "binlog"
            } else {
                "binlog-state"
            }
        }
        // A kind of a later room: its bytes are checked, its meaning is not known here.
        _ => "other",
    };
    Ok(line)
}

fn describe_tree(payload: &[u8], line: &mut LogLine) -> Result<()> {
    let record = decode_record(payload)?;
    line.tree = Some(record.tree);
    if let Some(note) = Note::decode(record.note)? {
        line.txn = Some(note.txn);
        let what = match (note.deletes, note.loads) {
            (true, _) => "delete",
            (false, true) => "load",
            (false, false) => "write",
        };
        let replaced = note.replaced.map_or(0, <[u8]>::len);
        let _ = write!(
            line.detail,
            "{what} key {} previous record {} replaced {replaced} bytes; ",
            hex(note.key),
            note.previous_lsn
        );
    }
    for (page, change) in record.changes() {
        let _ = write!(line.detail, "page {page}: {}; ", describe_change(change)?);
    }
    for page in record.freed() {
        let _ = write!(line.detail, "frees page {page}; ");
    }
    Ok(())
}

pub(super) fn hex(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        let _ = write!(out, "{byte:02x}");
    }
    out
}
