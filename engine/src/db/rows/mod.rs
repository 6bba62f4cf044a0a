//! Rows: what a session reads and writes, made of entries of a table's trees.
//!
//! 1. A row changes in all indexes of its table or in none.
//! 2. Room on the disk and in the log is asked for before a row operation, with no latch held.
//! 3. Of a payload that is too long for a leaf the longest parts lie in chunks in the table's tree of long
//!    values, with versions of their own; its entry refers to them. A version of a row takes over the chunks
//!    of parts that have not changed.

mod long;
mod overtaken;
mod payload;
mod trx;

pub(super) use long::place_new;
#[cfg(test)]
pub(super) use payload::fuzz_stored;
pub use payload::{Part, Wanted, ABSENT, PART_BYTES_MIN};
pub(super) use payload::{Reference, CHUNK_BYTES, INLINE, INLINE_BYTES_MAX};
pub use trx::{Entry, RowWrite, TableCursor, Trx};
