//! Kinds of log records that this room appends. `analysis` knows the kinds of all rooms.

/// Varint table id, varint next AUTO_INCREMENT value.
pub(crate) const RECORD_COUNTER: u8 = 6;
/// Varint count, then varint tree ids, of trees that a committed DDL dropped.
pub(crate) const RECORD_DROP_TREES: u8 = 7;
/// Varint LSN: committed transactions whose records all lie below it have no delete mark left to purge.
pub(crate) const RECORD_PURGED: u8 = 9;
/// Varint page id, varint tree id, of a page that was given up.
pub(crate) const RECORD_BAD_PAGE: u8 = 16;
