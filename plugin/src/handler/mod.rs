//! One open table of one connection: rows in, rows out, and where its scan stands.
//!
//! `table` is its table, `write` makes the entries of rows, `bounds` turns what the server searches
//! for into ranges of keys, `scan` is where the scan stands, and `rows` puts rows into the server's record.
//!
//! 1. A handler serves one statement of one connection at a time; only the table is shared.
//! 2. What a statement asks for (columns, `keyread`, `replace`, semi-consistent reads) holds until `reset`.
//! 3. Buffers are kept from row to row, so that a row costs no allocation; `reset` lets the long ones go.

mod bounds;
mod rows;
mod scan;
mod table;
mod write;

use crate::autoinc::Autoinc;
use crate::entry::EntryBuffer;
use crate::shape::{Collator, Shape};
use rows::RowReader;
use scan::Scan;
use sluice_engine::base::{Error, Result};
use sluice_engine::db::{Cursor, Engine, ReadMode, Table};
use std::ops::Bound;
use std::sync::Arc;

pub use bounds::ImageBound;
pub use rows::Keyread;
pub use scan::Find;
pub use table::{name_keys, KeyStatistics};
pub use write::UpdateOutcome;

pub struct Handler {
    name: String,
    pub shape: Shape,
    pub table: Arc<Table>,
    /// Indexes built with other weights of a collation than the server has now.
    stale: Vec<bool>,
    collator: &'static (dyn Collator + Sync),
    pub mode: ReadMode,
    pub replace: bool,
    /// Rows are copied into the table: [`copy_begin`](crate::session::Session::copy_begin).
    pub copies: bool,
    /// The table may be loaded: [`bulk_begin`](crate::session::Session::bulk_begin).
    pub bulk: bool,
    /// Scans of rows show a held one as it was committed last, before they wait for it.
    semi_consistent: bool,
    pub autoinc: Autoinc,
    range_end: Option<Bound<Vec<u8>>>,
    cursor: Cursor,
    scan: Scan,
    rows: RowReader,
    entries: [Vec<EntryBuffer>; 2],
    /// Indexes that the present write changes.
    touched: Vec<bool>,
    scratch: Vec<u8>,
}

impl Handler {
    pub fn open(
        engine: &Engine,
        name: &str,
        shape: Shape,
        collator: &'static (dyn Collator + Sync),
    ) -> Result<Handler> {
        let table = engine.table(name)?.ok_or(Error::NotFound)?;
        let Some(stale) = shape.stale_indexes(table.definition()) else {
            return Err(Error::Refused(format!(
                "the server's definition of {name} is not the one it was created with: restore its .frm \
                 file"
            )));
        };
        name_keys(&table, &shape);
        Ok(Handler {
            stale,
            name: name.to_owned(),
            shape,
            table,
            collator,
            mode: ReadMode::Snapshot,
            replace: false,
            copies: false,
            bulk: false,
            semi_consistent: false,
            autoinc: Autoinc::default(),
            range_end: None,
            cursor: Cursor::default(),
            scan: Scan::default(),
            rows: RowReader::default(),
            entries: [Vec::new(), Vec::new()],
            touched: Vec::new(),
            scratch: Vec::new(),
        })
    }

    pub fn reset(&mut self) {
        const KEEP_BYTES: usize = 1 << 20;
        self.set_keyread(Keyread::Off);
        self.replace = false;
        self.bulk = false;
        self.semi_consistent = false;
        self.rows.want_all();
        self.rows.keep(KEEP_BYTES);
        self.scan_end();
        self.autoinc.statement_end(&self.table);
        // One long value must not hold its memory as long as the table is open.
        let entries = self.entries.iter_mut().flatten().map(|entry| &mut entry.payload);
        for buffer in entries {
            if buffer.capacity() > KEEP_BYTES {
                *buffer = Vec::new();
            }
        }
        if self.cursor.payload().len() > KEEP_BYTES {
            self.cursor = Cursor::default();
        }
    }

    pub fn collator(&self) -> &'static (dyn Collator + Sync) {
        self.collator
    }
}
