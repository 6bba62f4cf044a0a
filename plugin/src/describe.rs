//! From the C description of a table to its shape. Part of `abi`. Safety argument: the one there
//! (3: descriptions are valid during the call and as long as their counts say).

use crate::abi_types::{AbiColumn, AbiKey, AbiKeyPart, AbiTable, AbiXid};
use crate::engine::Server;
use crate::shape::{Collator, Column, Index, Kind, Level, Order, Part, Shape};
use sluice_engine::base::codec::Reader;
use sluice_engine::base::{Error, Result};
use sluice_engine::db::{IndexSpec, TableSpec};

/// # Safety
/// The description must be valid as the header says.
pub unsafe fn shape(table: &AbiTable) -> Result<Shape> {
    // SAFETY: the counts belong to the pointers.
    let (columns, keys, defaults) = unsafe {
        (
            slice(table.columns, table.column_count),
            slice(table.keys, table.key_count),
            slice(table.defaults, table.record_bytes),
        )
    };
    if table.primary != 0 && table.primary != u32::MAX {
        return Err(Error::Refused("the primary key is not the first key".into()));
    }
    let columns: Vec<Column> = columns.iter().map(column).collect::<Result<_>>()?;
    // SAFETY: each key's counts belong to its pointer.
    let indexes = keys.iter().map(|k| unsafe { index(k) }).collect();
    let hidden_key = table.primary != 0;
    Shape::new(columns, indexes, hidden_key, defaults.to_vec(), table.null_bytes as usize)
}

/// # Safety
/// `at` points at `n` values, unless `n` is zero.
unsafe fn slice<'a, T>(at: *const T, n: u32) -> &'a [T] {
    if n == 0 {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(at, n as usize) }
}

fn column(c: &AbiColumn) -> Result<Column> {
    let kind = match c.kind {
        1 => Kind::Unsigned,
        2 => Kind::Signed,
        3 => Kind::Float,
        4 => Kind::Double,
        5 => Kind::Ordered,
        6 => Kind::Char,
        7 => Kind::Varchar,
        8 => Kind::Blob,
        other => return Err(Error::Refused(format!("unknown kind of column {other}"))),
    };
    let order = match c.order {
        0 => Order::Binary,
        1 => Order::Pad,
        2 => Order::NoPad,
        _ => Order::Stripped,
    };
    let space = c.space[..usize::from(c.space_bytes).min(4)].to_vec();
    let mut out = Column {
        kind,
        offset: c.offset as usize,
        length: c.length as usize,
        null: (c.null_bit != 0).then_some((c.null_offset as usize, c.null_bit)),
        length_bytes: usize::from(c.length_bytes),
        order,
        space,
        levels: Vec::new(),
        char_bytes_max: c.char_bytes_max as usize,
        expansion: c.expansion as usize,
        collation_id: c.collation_id,
        charset: c.charset as usize,
        fingerprint: c.fingerprint,
        is_virtual: c.flags & 1 != 0,
        spaces_count: c.flags & 2 != 0,
    };
    if out.is_string() && order != Order::Binary {
        let mut flags: Vec<u32> =
            (0..32).map(|bit| c.levels & 1 << bit).filter(|&l| l != 0).collect();
        if flags.is_empty() {
            flags.push(0);
        }
        out.levels = flags.iter().enumerate().map(|(i, flag)| level(&out, i, *flag)).collect();
    }
    Ok(out)
}

/// A NO PAD collation is so at its first level only: at the others a shorter string goes on with
/// spaces, so that the accent of an equal letter has no weight (`strnncollsp_nopad_multilevel` in
/// the server's strings/ctype-uca.inl). Not so for CHAR, of which a number of characters is compared
/// (`strnncollsp_nchars_multilevel`): there the spaces are in the value.
fn level(column: &Column, index: usize, flag: u32) -> Level {
    let mut space_weight = Vec::new();
    Server.weights(column.charset, flag, column.expansion, &column.space, &mut space_weight);
    let is_padded = match column.order {
        // Spaces without a weight change nothing, at the end or elsewhere.
        Order::Pad => !space_weight.is_empty(),
        Order::NoPad => index > 0 && column.kind != Kind::Char,
        Order::Binary | Order::Stripped => false,
    };
    Level { flag, space_weight, is_padded }
}

/// # Safety
/// As for [`slice`].
unsafe fn index(key: &AbiKey) -> Index {
    // SAFETY: the caller's promise.
    let all: &[AbiKeyPart] = unsafe { slice(key.parts, key.extended_count) };
    let (own, more) = all.split_at((key.part_count as usize).min(all.len()));
    let part = |p: &AbiKeyPart| Part {
        column: p.column as usize,
        prefix: (p.flags & 2 != 0).then_some(p.length as usize),
        reverse: p.flags & 1 != 0,
        image_bytes: p.image_bytes as usize,
    };
    Index {
        parts: own.iter().map(part).collect(),
        extended: more.iter().map(|p| (p.column as usize, p.image_bytes as usize)).collect(),
        unique: key.flags & 1 != 0,
        ..Index::default()
    }
}

pub fn spec(shape: &Shape, autoinc_start: u64) -> TableSpec {
    TableSpec {
        indexes: shape.indexes.iter().map(|i| IndexSpec { unique: i.unique }).collect(),
        definition: shape.definition(),
        autoinc_start,
        compression: None,
        is_encrypted: false,
    }
}

/// A transaction's name as the engine keeps it: format, lengths, data.
pub fn xid_bytes(xid: &AbiXid) -> Vec<u8> {
    let n = (xid.gtrid_bytes + xid.bqual_bytes).clamp(0, xid.data.len() as i64) as usize;
    let mut out = xid.format.to_le_bytes().to_vec();
    out.push(xid.gtrid_bytes as u8);
    out.push(xid.bqual_bytes as u8);
    out.extend_from_slice(&xid.data[..n]);
    out
}

pub fn xid_of(bytes: &[u8]) -> Option<AbiXid> {
    let mut rest = Reader::new(bytes, "xid");
    let format = rest.u64().ok()? as i64;
    let (gtrid, bqual) = (rest.u8().ok()?, rest.u8().ok()?);
    let name = rest.take(usize::from(gtrid) + usize::from(bqual)).ok()?;
    let mut data = [0; 128];
    data.get_mut(..name.len())?.copy_from_slice(name);
    rest.finish().ok()?;
    let (gtrid_bytes, bqual_bytes) = (i64::from(gtrid), i64::from(bqual));
    Some(AbiXid { format, gtrid_bytes, bqual_bytes, data })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn xid_round_trip() {
        let mut data = [0; 128];
        data[..5].copy_from_slice(b"abcde");
        let xid = AbiXid { format: -7, gtrid_bytes: 3, bqual_bytes: 2, data };
        let bytes = xid_bytes(&xid);
        let back = xid_of(&bytes).unwrap();
        assert_eq!(xid_bytes(&back), bytes);
        assert_eq!((back.format, back.gtrid_bytes, back.bqual_bytes), (-7, 3, 2));
        assert!(xid_of(&bytes[..bytes.len() - 1]).is_none());
    }
}
