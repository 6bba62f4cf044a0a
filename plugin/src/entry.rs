//! Entries of indexes: the one place where they are made of a row, and taken apart. [`crate::key`] and
//! [`crate::row`] make what they consist of.
//!
//! ```text
//! clustered            key: parts, or the hidden key, 8 bytes big-endian    payload: stored
//! unique without NULL  key: parts                  payload: varint length, clustered key, stored
//! other secondary      key: parts, clustered key   payload: stored
//! ```
//! 1. Two rows have the same key in an index only if it is unique and neither has a NULL there (rules M17).
//! 2. The bytes of an entry and the shape of its table say where the row's key is: [`split`] gives back what
//!    [`make_secondary`] was given.

use crate::key::{self, KeyMaker};
use crate::record::Record;
use crate::row;
use crate::shape::Shape;
use sluice_engine::base::codec::{put_bytes, Reader};
use sluice_engine::base::Result;
use sluice_engine::db::{Entry, Part};

/// An entry, in memory that is used again and again.
#[derive(Default)]
pub struct EntryBuffer {
    pub key: Vec<u8>,
    pub payload: Vec<u8>,
    /// Columns in the payload that may be stored out of line.
    pub parts: Vec<Part>,
    /// Says nothing of an entry that is empty.
    pub unique: bool,
}

impl EntryBuffer {
    pub fn clear(&mut self) {
        self.key.clear();
        self.payload.clear();
        self.parts.clear();
    }

    pub fn as_entry(&self) -> Entry<'_> {
        Entry { key: &self.key, payload: &self.payload, parts: &self.parts, unique: self.unique }
    }
}

/// The clustered key of a row. `hidden`: what it is in a table without a primary key.
pub fn put_clustered_key(
    maker: &mut KeyMaker<'_>,
    record: Record<'_>,
    hidden: &[u8],
    out: &mut Vec<u8>,
) {
    match maker.shape.hidden_key {
        true => out.extend_from_slice(hidden),
        false => _ = maker.put_parts(0, record, out),
    }
}

pub fn make_clustered(
    maker: &mut KeyMaker<'_>,
    record: Record<'_>,
    hidden: &[u8],
    entry: &mut EntryBuffer,
) {
    entry.clear();
    entry.unique = true;
    put_clustered_key(maker, record, hidden, &mut entry.key);
    row::pack(maker.shape, 0, record, &mut entry.payload, Some(&mut entry.parts));
}

/// `clustered`: the clustered key of the same row.
pub fn make_secondary(
    maker: &mut KeyMaker<'_>,
    index: usize,
    record: Record<'_>,
    clustered: &[u8],
    entry: &mut EntryBuffer,
) {
    entry.clear();
    let has_null = maker.put_parts(index, record, &mut entry.key);
    entry.unique = maker.shape.indexes[index].unique && !has_null;
    if entry.unique {
        put_bytes(&mut entry.payload, clustered);
    } else {
        entry.key.extend_from_slice(clustered);
    }
    row::pack(maker.shape, index, record, &mut entry.payload, None);
}

/// An entry taken apart: the clustered key and the stored columns.
pub fn split<'a>(
    shape: &Shape,
    index: usize,
    key: &'a [u8],
    payload: &'a [u8],
) -> Result<(&'a [u8], &'a [u8])> {
    if shape.indexes[index].parts.is_empty() {
        return Ok((key, payload));
    }
    let (n, has_null) = key::parts_len(shape, index, key)?;
    if index != 0 && shape.indexes[index].unique && !has_null {
        return split_unique(payload);
    }
    Ok((&key[n..], payload))
}

/// The payload of a unique secondary entry: the clustered key and the stored columns.
pub fn split_unique(payload: &[u8]) -> Result<(&[u8], &[u8])> {
    let mut rest = Reader::new(payload, "secondary entry");
    let clustered = rest.bytes()?;
    Ok((clustered, rest.rest()))
}
