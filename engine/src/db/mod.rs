//! Room `db`: what happens when. Opening and recovery, rows and tables, checkpoints, background
//! work. It is the engine's public surface.
//!
//! Inner rooms: `tables`, `rows`, `ddl`, `recovery`, `upkeep`, `inspect`, `backup`. Each imports only
//! those named before it, and files of this directory; `engine` holds what they share.
//!
//! Invariants:
//! 1. Nothing is acknowledged that is not in the log as durably as `flush_at_commit` promises.
//! 2. A row changes in all its indexes or in none; a statement or transaction that fails leaves
//!    nothing visible.
//! 3. Recovery reads the log from the last checkpoint, for outcomes and for changes of pages
//!    (`analysis`, `redo`). A page change is applied only to a page whose LSN is lower, and before
//!    anybody sees the page. Many changes still wait for that when the engine opens.
//! 4. The redo point, the scan's start and the pins of transactions, purge and snapshots are
//!    computed from what the checkpoint read after the log's end (`checkpoint` says in which
//!    order); a log segment is released only below all of them.
//! 5. A table's trees are closed, and the record that says so is durable, before a page of them
//!    is freed.
//!
//! Lock order: `ddl` before `checkpoints.turn` before everything in the rooms below; `checkpoints.state`,
//! `tables`, the two of `sessions` and `dropped_trees` are leaves, held for a look-up only.

pub mod backup;
mod backups;
mod bell;
mod binlog;
mod callbacks;
mod check;
mod checkpoints;
mod config;
mod ddl;
mod engine;
pub mod inspect;
mod lease;
mod log_keys;
mod log_shares;
mod long_counters;
mod pace;
mod purge_notes;
mod records;
mod recovery;
mod rows;
mod sessions;
mod settings;
#[cfg(feature = "sim")]
mod simulated;
mod status;
mod tables;
#[cfg(test)]
mod tests;
mod unreadable;
mod upkeep;
mod window;
mod workers;
mod writes;

pub use crate::binlog::{Binlog, Completion, Decision, Fallback, Setting, Verdict, Write};
pub use crate::btree::{Direction, RangeEstimate};
pub use crate::catalog::{IndexStatistics, TableStatistics};
#[cfg(feature = "sim")]
pub use crate::cipher::FixedKeys;
#[cfg(feature = "sim")]
pub use crate::store::trees_with_plain_records;
pub use crate::txn::{Isolation, ReadMode, Savepoint, WaitPolicy};
pub use callbacks::{KeyParts, Killed, RowNames};
pub use check::{CheckDepth, TableReport};
pub use config::{
    Compression, Config, Encryption, FlushAtCommit, Host, Keys, Level, LogCompression, NoHost,
    Scope,
};
pub use ddl::{
    Added, AlteredIndex, BulkInsert, Durability, FoundTwice, IndexBuild, TableLoad, Twice,
};
pub use engine::Engine;
pub use recovery::Geometry;
pub use rows::{Entry, Part, RowWrite, TableCursor as Cursor, Trx, Wanted, ABSENT, PART_BYTES_MIN};
#[cfg(feature = "sim")]
pub use simulated::take_ddl_ends;
pub use tables::{IndexSpec, Table, TableSize, TableSpec};
pub use writes::{WritesOf, WrittenBytes};
