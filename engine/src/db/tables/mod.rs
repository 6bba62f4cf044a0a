//! What the engine knows of a table: its trees, its counters and how large it is. This room does not know
//! the engine.
//!
//! 1. An open table is shared by all sessions. DDL that changes its trees puts another one in its place
//!    (`schema`); the old one is not current any more ([`Table::is_current`]).
//! 2. A hidden key is given once, also after a crash (`hidden_key`).
//! 3. Sizes are for the optimizer alone: they may be old, and nothing that must be right depends on them.
//!    But a row that went in is counted before its transaction can commit, and the count of changes never
//!    goes back: so a table without changes has had no committed row since it was opened.

mod estimate;
mod hidden_key;
mod recalculation;
mod remembered;
mod schema;
mod table;

pub(super) use hidden_key::HiddenKey;
pub(super) use recalculation::{Job, Recalculation, SAMPLE_PAGES_MAX};
pub(super) use remembered::Mark;
pub use remembered::TableSize;
pub(super) use schema::Schema;
pub(super) use table::Counters;
pub use table::{IndexSpec, Table, TableSpec};
