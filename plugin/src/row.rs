//! The row codec: the stored columns of a record, compact.
//!
//! ```text
//! byte    format version
//! bytes   one bit for each nullable stored column, set for NULL
//! bytes   fixed columns that are not NULL, as they stand in the record
//! bytes   variable columns that are not NULL: varint length, value (CHAR without padding)
//! ```
//! No stored columns, no bytes. Columns follow the order of the table.

use crate::record::{put_variable, Record};
use crate::shape::{Column, Kind, Shape};
use sluice_engine::base::codec::{put_bytes, Reader};
use sluice_engine::base::{formats, Result};

const ROW_VERSION: u8 = formats::CURRENT.row;

fn is_variable(column: &Column) -> bool {
    column.is_string()
}

pub fn pack(shape: &Shape, index: usize, record: Record<'_>, out: &mut Vec<u8>) {
    let stored = &shape.indexes[index].stored;
    if stored.is_empty() {
        return;
    }
    out.push(ROW_VERSION);
    let columns = || stored.iter().map(|&c| &shape.columns[c]);
    for (i, column) in columns().filter(|c| c.null.is_some()).enumerate() {
        if i % 8 == 0 {
            out.push(0);
        }
        if record.is_null(column) {
            *out.last_mut().expect("just pushed") |= 1 << (i % 8);
        }
    }
    for column in columns().filter(|c| !is_variable(c) && !record.is_null(c)) {
        out.extend_from_slice(record.value(column));
    }
    for column in columns().filter(|c| is_variable(c) && !record.is_null(c)) {
        let value = record.value(column);
        put_bytes(out, if column.kind == Kind::Char { column.trim(value) } else { value });
    }
}

/// Puts the stored columns back, of `wanted` (by column, empty: all) only; NULLs are always told,
/// and wanted ones have their default's bytes.
/// BLOB columns point into `packed` afterwards.
pub fn unpack(
    shape: &Shape,
    index: usize,
    packed: &[u8],
    wanted: &[bool],
    record: &mut [u8],
) -> Result<()> {
    let stored = &shape.indexes[index].stored;
    if stored.is_empty() {
        return Ok(());
    }
    let mut rest = Reader::new(packed, "row");
    if rest.u8()? != ROW_VERSION {
        return Err(rest.fail("unknown format version"));
    }
    let columns = || stored.iter().map(|&c| &shape.columns[c]);
    let nullable = columns().filter(|c| c.null.is_some()).count();
    let bits = rest.take(nullable.div_ceil(8))?;
    for (i, column) in columns().filter(|c| c.null.is_some()).enumerate() {
        let (at, bit) = column.null.expect("filtered");
        if bits[i / 8] >> (i % 8) & 1 == 1 {
            record[at] |= bit;
        } else {
            record[at] &= !bit;
        }
    }
    let is_wanted = |&c: &usize| wanted.get(c).is_none_or(|&w| w);
    for (at, column) in stored.iter().zip(columns()).filter(|(_, c)| !is_variable(c)) {
        if is_null(column, record) {
            if is_wanted(at) {
                shape.put_null(column, record);
            }
            continue;
        }
        let value = rest.take(column.length)?;
        if is_wanted(at) {
            record[column.offset..column.offset + column.length].copy_from_slice(value);
        }
    }
    for (at, column) in stored.iter().zip(columns()).filter(|(_, c)| is_variable(c)) {
        if is_null(column, record) {
            if is_wanted(at) {
                shape.put_null(column, record);
            }
            continue;
        }
        let value = rest.bytes()?;
        if !is_wanted(at) {
            continue;
        }
        let room = match column.kind {
            Kind::Blob => (1u64 << (8 * column.length_bytes)) - 1,
            _ => column.length as u64,
        };
        if value.len() as u64 > room {
            return Err(rest.fail("value longer than its column"));
        }
        match column.kind {
            Kind::Char => {
                let place = &mut record[column.offset..column.offset + column.length];
                place[..value.len()].copy_from_slice(value);
                let pad = place[value.len()..].iter_mut();
                pad.zip(column.space.iter().cycle()).for_each(|(to, from)| *to = *from);
            }
            _ => put_variable(column, value, record),
        }
    }
    rest.finish()
}

fn is_null(column: &Column, record: &[u8]) -> bool {
    column.null.is_some_and(|(at, bit)| record[at] & bit != 0)
}
