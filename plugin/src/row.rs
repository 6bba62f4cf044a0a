//! The row codec: the stored columns of a record, compact.
//!
//! ```text
//! byte    format version
//! bytes   one bit for each nullable stored column, set for NULL
//! bytes   fixed columns that are not NULL, as they stand in the record
//! bytes   variable columns that are not NULL: varint length, value (CHAR without padding)
//! ```
//! No stored columns, no bytes. Columns follow the order of the table.
//!
//! Of a long row the engine may keep variable columns out of line, each with its length. Where a read does
//! not want one of them, [`ABSENT`] stands in its place.

use crate::record::{put_variable, Record};
use crate::shape::{Column, Kind, Shape};
use sluice_engine::base::codec::{put_bytes, Reader};
use sluice_engine::base::{formats, Result};
use sluice_engine::db::{Part, Wanted, ABSENT, PART_BYTES_MIN};

const ROW_VERSION: u8 = formats::CURRENT.row;

/// What the engine is to read of entries of an index. `wanted`: as [`unpack`] takes it.
pub fn wanted_parts(index: usize, wanted: &[bool]) -> Wanted<'_> {
    match (index, wanted) {
        (0, tags) if !tags.is_empty() => Wanted::Tags(tags),
        // Entries of other indexes are stored as a whole.
        _ => Wanted::All,
    }
}

/// `parts`: gets the columns that the engine may keep out of line, by their numbers.
pub fn pack(
    shape: &Shape,
    index: usize,
    record: Record<'_>,
    out: &mut Vec<u8>,
    mut parts: Option<&mut Vec<Part>>,
) {
    let stored = &shape.indexes[index].stored;
    if stored.is_empty() {
        return;
    }
    out.push(ROW_VERSION);
    let column = |&at: &usize| &shape.columns[at];
    for (i, column) in stored.nullable.iter().map(column).enumerate() {
        if i % 8 == 0 {
            out.push(0);
        }
        if record.is_null(column) {
            *out.last_mut().expect("just pushed") |= 1 << (i % 8);
        }
    }
    for column in stored.fixed.iter().map(column).filter(|c| !record.is_null(c)) {
        out.extend_from_slice(record.value(column));
    }
    for &at in &stored.variable {
        let column = &shape.columns[at];
        if record.is_null(column) {
            continue;
        }
        let (start, value) = (out.len(), record.value(column));
        put_bytes(out, if column.kind == Kind::Char { column.trim(value) } else { value });
        if let Some(parts) = parts.as_mut().filter(|_| out.len() - start >= PART_BYTES_MIN) {
            parts.push(Part { tag: at as u16, place: start..out.len() });
        }
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
    let bits = rest.take(stored.nullable.len().div_ceil(8))?;
    for (i, &at) in stored.nullable.iter().enumerate() {
        let (at, bit) = shape.columns[at].null.expect("it may be NULL");
        if bits[i / 8] >> (i % 8) & 1 == 1 {
            record[at] |= bit;
        } else {
            record[at] &= !bit;
        }
    }
    let is_wanted = |at: usize| wanted.get(at).is_none_or(|&wanted| wanted);
    for &at in &stored.fixed {
        let (column, is_wanted) = (&shape.columns[at], is_wanted(at));
        if take_null(shape, column, is_wanted, record) {
            continue;
        }
        let value = rest.take(column.length)?;
        if is_wanted {
            record[column.place()].copy_from_slice(value);
        }
    }
    for &at in &stored.variable {
        let (column, is_wanted) = (&shape.columns[at], is_wanted(at));
        if take_null(shape, column, is_wanted, record) {
            continue;
        }
        let Some(value) = take_variable(&mut rest, is_wanted)? else { continue };
        if value.len() as u64 > room(column) {
            return Err(rest.fail("value longer than its column"));
        }
        match column.kind {
            Kind::Char => {
                let (to, padding) = record[column.place()].split_at_mut(value.len());
                to.copy_from_slice(value);
                column.put_spaces(padding);
            }
            _ => put_variable(column, value, record),
        }
    }
    rest.finish()
}

/// The longest value of a variable column.
fn room(column: &Column) -> u64 {
    match column.kind {
        Kind::Blob => (1 << (8 * column.length_bytes)) - 1,
        _ => column.length as u64,
    }
}

/// Is the column NULL by the record's bits? Then, if it is wanted, it gets its default's bytes.
fn take_null(shape: &Shape, column: &Column, is_wanted: bool, record: &mut [u8]) -> bool {
    let is_null = column.null.is_some_and(|(at, bit)| record[at] & bit != 0);
    if is_null && is_wanted {
        shape.put_null(column, record);
    }
    is_null
}

/// The next variable column, if it is wanted.
fn take_variable<'a>(rest: &mut Reader<'a>, is_wanted: bool) -> Result<Option<&'a [u8]>> {
    if !rest.rest().starts_with(&ABSENT) {
        let value = rest.bytes()?;
        return Ok(is_wanted.then_some(value));
    }
    if is_wanted {
        return Err(rest.fail("a wanted column was not read"));
    }
    rest.take(ABSENT.len())?;
    Ok(None)
}
