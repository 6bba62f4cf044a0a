//! Room `db`: what happens when. Opening and recovery, rows and tables, checkpoints, background
//! work. It is the engine's public surface.
//!
//! Invariants:
//! 1. Nothing is acknowledged that is not in the log as durably as `flush_at_commit` promises.
//! 2. A row changes in all its indexes or in none; a statement or transaction that fails leaves
//!    nothing visible.
//! 3. Recovery reads the log from the last checkpoint, for outcomes and for changes of pages
//!    (`analysis`, `redo`). A page change is applied only to a page whose LSN is lower, and before
//!    anybody sees the page; not all are when the engine opens.
//! 4. The redo point, the scan's start and the pins of transactions, purge and snapshots are
//!    computed from what the checkpoint read after the log's end (`checkpoint` says in which
//!    order); a log segment is released only below all of them.
//! 5. A table's trees are closed, and the record that says so is durable, before a page of them
//!    is freed.
//!
//! Lock order: `ddl` before `checkpoints.turn` before everything in the rooms below; `checkpoints.state`,
//! `tables`, `sessions`, `prepared` and `dropped_trees` are leaves, held for a look-up only.

mod analysis;
mod background;
mod bell;
mod binlog;
mod callbacks;
mod check;
#[cfg(test)]
mod check_tests;
mod checkpoint;
mod checkpoints;
mod config;
mod damage;
#[cfg(test)]
mod damage_tests;
mod ddl;
#[cfg(test)]
mod ddl_tests;
mod disk_room;
mod engine;
mod estimate;
#[cfg(test)]
mod fuzz_tests;
mod hidden_key;
mod index_build;
pub mod inspect;
mod lease;
mod long;
mod note;
mod open;
mod overtaken;
mod pace;
mod payload;
mod prepared;
#[cfg(test)]
mod quarantine_tests;
mod recalculation;
mod records;
mod redo;
#[cfg(test)]
mod redo_tests;
mod remembered;
mod schema;
#[cfg(test)]
mod semi_consistent_tests;
#[cfg(feature = "sim")]
mod simulated;
mod sorter;
#[cfg(test)]
mod sorter_tests;
#[cfg(test)]
mod space_tests;
mod statistics;
#[cfg(test)]
mod statistics_tests;
mod status;
#[cfg(test)]
mod stress_tests;
mod table;
#[cfg(test)]
mod tests;
mod trx;
mod unreadable;
#[cfg(test)]
mod wake_tests;
mod workers;

pub use crate::binlog::{Binlog, Completion, Decision, Fallback, Setting, Verdict, Write};
pub use crate::btree::{Direction, RangeEstimate};
pub use crate::catalog::{IndexStatistics, TableStatistics};
pub use crate::txn::{Isolation, ReadMode, Savepoint, WaitPolicy};
pub use callbacks::{KeyParts, Killed, RowNames};
pub use check::{CheckDepth, TableReport};
pub use config::{Compression, Config, FlushAtCommit, Host, Level, NoHost};
pub use engine::Engine;
pub use index_build::{AlteredIndex, FoundTwice, IndexBuild};
pub use open::Geometry;
pub use remembered::TableSize;
#[cfg(feature = "sim")]
pub use simulated::take_ddl_ends;
pub use table::{IndexSpec, Table, TableSpec};
pub use trx::{Entry, RowWrite, TableCursor as Cursor, Trx};
