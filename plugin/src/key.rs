//! The key codec: column values to bytes that `memcmp` orders as the server does, and back.
//!
//! A part is: a marker byte if the column is nullable (0 NULL, 1 value), then the value; DESC
//! complements all of it. See [`crate::order`] for strings, `entry` for what follows the parts of an index.

use crate::order;
use crate::record::{put_length, Record};
use crate::shape::{Collator, Column, Index, Kind, Order, Part, Shape};
use sluice_engine::base::codec::Reader;
use sluice_engine::base::{Error, Result};
use sluice_engine::db::KeyParts;

pub const HIDDEN_KEY_BYTES: usize = 8;

/// Encodes keys of one table; keeps scratch space between calls.
pub struct KeyMaker<'a> {
    pub shape: &'a Shape,
    pub collator: &'a dyn Collator,
    pub scratch: &'a mut Vec<u8>,
}

impl KeyMaker<'_> {
    /// The declared parts of `index`. True if one of them is NULL.
    pub fn put_parts(&mut self, index: usize, record: Record<'_>, out: &mut Vec<u8>) -> bool {
        let shape = self.shape;
        let mut has_null = false;
        for part in &shape.indexes[index].parts {
            let column = &shape.columns[part.column];
            let value = (!record.is_null(column)).then(|| record.value(column));
            has_null |= value.is_none();
            self.put_part(part, value, out);
        }
        has_null
    }

    /// The first `parts` parts of a key image of the server, extended parts included.
    pub fn put_image(
        &mut self,
        index: usize,
        image: &[u8],
        parts: usize,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let shape = self.shape;
        let Index { parts: own, extended, .. } = &shape.indexes[index];
        let mut rest = Reader::new(image, "key image");
        let mut seen: Vec<(usize, Option<&[u8]>)> = Vec::with_capacity(parts);
        for part in own.iter().take(parts) {
            let value = take_image(&shape.columns[part.column], part.image_bytes, &mut rest)?;
            if part.prefix.is_none() {
                seen.push((part.column, value));
            }
            self.put_part(part, value, out);
        }
        if parts <= own.len() {
            return Ok(());
        }
        for &(column, image_bytes) in extended.iter().take(parts - own.len()) {
            let value = take_image(&shape.columns[column], image_bytes, &mut rest)?;
            seen.push((column, value));
        }
        // The clustered key follows whole, also with columns that the index has already.
        for part in &shape.indexes[0].parts {
            let Some(&(_, value)) = seen.iter().find(|(c, _)| *c == part.column) else { break };
            self.put_part(part, value, out);
        }
        Ok(())
    }

    fn put_part(&mut self, part: &Part, value: Option<&[u8]>, out: &mut Vec<u8>) {
        let column = &self.shape.columns[part.column];
        let start = out.len();
        if column.null.is_some() {
            out.push(u8::from(value.is_some()));
        }
        if let Some(value) = value {
            self.put_value(column, part.prefix, value, out);
        }
        if part.reverse {
            out[start..].iter_mut().for_each(|b| *b = !*b);
        }
    }

    fn put_value(
        &mut self,
        column: &Column,
        prefix: Option<usize>,
        value: &[u8],
        out: &mut Vec<u8>,
    ) {
        match column.kind {
            Kind::Unsigned => out.extend(value.iter().rev()),
            Kind::Signed => {
                let start = out.len();
                out.extend(value.iter().rev());
                out[start] ^= 0x80;
            }
            Kind::Float => {
                let bits = f32::from_le_bytes(value.try_into().expect("4 bytes"));
                out.extend_from_slice(&float_order(bits).to_be_bytes());
            }
            Kind::Double => {
                let bits = f64::from_le_bytes(value.try_into().expect("8 bytes"));
                out.extend_from_slice(&double_order(bits).to_be_bytes());
            }
            Kind::Ordered => out.extend_from_slice(&value[..prefix.unwrap_or(value.len())]),
            // Compared as if filled with spaces: with characters that weigh nothing, or after the
            // spaces, it tells how many there are.
            Kind::Char if column.order == Order::NoPad || column.spaces_count => {
                let chars = prefix.unwrap_or(column.length) / column.char_bytes_max.max(1);
                let n = self.collator.prefix(column.charset, value, chars);
                self.put_weights(column, &value[..n.min(value.len())], out);
            }
            Kind::Char => {
                let value = column.trim(self.cut(column, prefix, column.trim(value)));
                self.put_weights(column, value, out);
            }
            Kind::Varchar | Kind::Blob => {
                let value = self.cut(column, prefix, value);
                match column.order {
                    Order::Binary => order::put_escaped(value, out),
                    Order::NoPad => self.put_weights(column, value, out),
                    Order::Pad if column.spaces_count => self.put_weights(column, value, out),
                    Order::Pad | Order::Stripped => {
                        self.put_weights(column, column.trim(value), out);
                    }
                }
            }
        }
    }

    fn put_weights(&mut self, column: &Column, value: &[u8], out: &mut Vec<u8>) {
        for level in &column.levels {
            let (charset, expansion) = (column.charset, column.expansion);
            self.scratch.clear();
            self.collator.weights(charset, level.flag, expansion, value, self.scratch);
            match level.is_padded {
                true => order::put_padded(self.scratch, &level.space_weight, out),
                false => order::put_escaped(self.scratch, out),
            }
        }
    }

    fn cut<'v>(&self, column: &Column, prefix: Option<usize>, value: &'v [u8]) -> &'v [u8] {
        let Some(bytes) = prefix else { return value };
        let chars = bytes / column.char_bytes_max.max(1);
        if value.len() <= chars {
            return value;
        }
        let n = match column.order {
            Order::Binary => bytes,
            _ if column.char_bytes_max == 1 => chars,
            _ => self.collator.prefix(column.charset, value, chars),
        };
        &value[..n.min(value.len())]
    }
}

fn float_order(v: f32) -> u32 {
    let bits = if v == 0.0 { 0 } else { v.to_bits() };
    if bits >> 31 == 1 {
        !bits
    } else {
        bits ^ 1 << 31
    }
}

fn double_order(v: f64) -> u64 {
    let bits = if v == 0.0 { 0 } else { v.to_bits() };
    if bits >> 63 == 1 {
        !bits
    } else {
        bits ^ 1 << 63
    }
}

/// One part of a key image: null byte, 2-byte length for variable columns, room for the value.
fn take_image<'a>(
    column: &Column,
    image_bytes: usize,
    rest: &mut Reader<'a>,
) -> Result<Option<&'a [u8]>> {
    let mut part = Reader::new(rest.take(image_bytes)?, "key image");
    if column.null.is_some() && part.u8()? != 0 {
        return Ok(None);
    }
    match column.kind {
        Kind::Varchar | Kind::Blob => {
            let n = usize::from(part.u16()?);
            part.take(n).map(Some)
        }
        _ => Ok(Some(part.rest())),
    }
}

/// Length of an encoded part at the front of `bytes`, and whether it is NULL.
fn part_len(shape: &Shape, part: &Part, bytes: &[u8]) -> Result<(usize, bool)> {
    let column = &shape.columns[part.column];
    let mask = if part.reverse { 0xff } else { 0 };
    let mut marker = 0;
    if column.null.is_some() {
        let b = bytes.first().ok_or_else(ends_early)?;
        marker = 1;
        if b ^ mask == 0 {
            return Ok((1, true));
        }
    }
    let rest = &bytes[marker..];
    let n = match part.fixed_bytes(&shape.columns) {
        Some(bytes) => bytes,
        None if column.order == Order::Binary => order::escaped_len(rest, mask)?,
        None => weights_len(column, rest, mask)?,
    };
    if n > rest.len() {
        return Err(ends_early());
    }
    Ok((marker + n, false))
}

fn ends_early() -> Error {
    Error::corrupt("key ends early", "key")
}

fn weights_len(column: &Column, bytes: &[u8], mask: u8) -> Result<usize> {
    let mut at = 0;
    for level in &column.levels {
        at += match level.is_padded {
            true => order::padded_len(&bytes[at..], level.space_weight.len(), mask)?,
            false => order::escaped_len(&bytes[at..], mask)?,
        };
    }
    Ok(at)
}

/// Length of the declared parts at the front of a key, and whether one is NULL.
pub fn parts_len(shape: &Shape, index: usize, key: &[u8]) -> Result<(usize, bool)> {
    let Index { parts, fixed_ends, .. } = &shape.indexes[index];
    let (mut at, mut has_null) = (fixed_ends.last().copied().unwrap_or(0), false);
    if at > key.len() {
        return Err(ends_early());
    }
    for part in &parts[fixed_ends.len()..] {
        let (n, null) = part_len(shape, part, &key[at..])?;
        at += n;
        has_null |= null;
    }
    Ok((at, has_null))
}

/// Where the parts of encoded keys end, for statistics: the declared parts, and after them those of
/// the clustered key, if the keys go on with it.
pub struct PartEnds {
    pub shape: Shape,
}

impl PartEnds {
    fn has_clustered_key(&self, index: usize) -> bool {
        let own = &self.shape.indexes[index];
        let is_nullable = |part: &Part| self.shape.columns[part.column].null.is_some();
        index > 0 && (!own.unique || own.parts.iter().any(is_nullable))
    }

    /// Parts of the clustered key; the hidden one is one.
    fn clustered_count(&self) -> usize {
        self.shape.indexes[0].parts.len().max(1)
    }
}

impl KeyParts for PartEnds {
    fn count(&self, index: usize) -> usize {
        match self.has_clustered_key(index) {
            _ if index == 0 => self.clustered_count(),
            true => self.shape.indexes[index].parts.len() + self.clustered_count(),
            false => self.shape.indexes[index].parts.len(),
        }
    }

    fn ends(&self, index: usize, key: &[u8], ends: &mut Vec<usize>) {
        let Shape { indexes, hidden_key, .. } = &self.shape;
        let with_clustered = self.has_clustered_key(index);
        let behind: &[Part] = if with_clustered { &indexes[0].parts } else { &[] };
        let mut at = 0;
        for part in indexes[index].parts.iter().chain(behind) {
            let Ok((n, _)) = part_len(&self.shape, part, &key[at..]) else { return };
            at += n;
            ends.push(at);
        }
        let hidden = *hidden_key && (index == 0 || with_clustered);
        if hidden && key.len() >= at + HIDDEN_KEY_BYTES {
            ends.push(at + HIDDEN_KEY_BYTES);
        }
    }
}

/// Which prefix of an index's keys belongs to each key part of the server, extended ones included: as
/// a number from 0 in what [`PartEnds`] counts.
pub fn prefix_of_parts(shape: &Shape, index: usize) -> Vec<usize> {
    let Index { parts: own, extended, .. } = &shape.indexes[index];
    let clustered = |&(column, _): &(usize, usize)| {
        let at = shape.indexes[0].parts.iter().position(|p| p.column == column);
        own.len() + at.unwrap_or(0)
    };
    (0..own.len()).chain(extended.iter().map(clustered)).collect()
}

/// Puts the columns that the bytes of a key give back into the record.
pub fn take_columns(shape: &Shape, index: usize, key: &[u8], record: &mut [u8]) -> Result<()> {
    let Index { parts, fixed_ends, .. } = &shape.indexes[index];
    let mut at = 0;
    for (i, part) in parts.iter().enumerate() {
        let (n, null) = match fixed_ends.get(i) {
            Some(end) => (end - at, false),
            None => part_len(shape, part, key.get(at..).unwrap_or_default())?,
        };
        let bytes = key.get(at..at + n).ok_or_else(ends_early)?;
        at += n;
        if part.is_invertible(&shape.columns) {
            take_column(shape, part, null, bytes, record);
        }
    }
    Ok(())
}

/// `sign`: the bits of the highest byte that the key has the other way around.
fn take_integer(value: &[u8], mask: u8, sign: u8, to: &mut [u8]) {
    match to.len() {
        4 => reverse::<4>(value, to),
        8 => reverse::<8>(value, to),
        _ => to.iter_mut().rev().zip(value).for_each(|(to, from)| *to = *from),
    }
    if mask != 0 {
        to.iter_mut().for_each(|byte| *byte ^= mask);
    }
    if let Some(highest) = to.last_mut() {
        *highest ^= sign;
    }
}

/// One instruction for the usual lengths.
fn reverse<const BYTES: usize>(from: &[u8], to: &mut [u8]) {
    if let (Some(from), Some(to)) = (from.first_chunk::<BYTES>(), to.first_chunk_mut::<BYTES>()) {
        *to = *from;
        to.reverse();
    }
}

fn take_column(shape: &Shape, part: &Part, null: bool, bytes: &[u8], record: &mut [u8]) {
    let column = &shape.columns[part.column];
    let mask = if part.reverse { 0xff } else { 0 };
    if let Some((at, bit)) = column.null {
        if null {
            record[at] |= bit;
            shape.put_null(column, record);
            return;
        }
        record[at] &= !bit;
    }
    let value = &bytes[usize::from(column.null.is_some())..];
    let place = &mut record[column.place()];
    match column.kind {
        Kind::Unsigned | Kind::Signed => {
            let sign = if column.kind == Kind::Signed { 0x80 } else { 0 };
            take_integer(value, mask, sign, place);
        }
        Kind::Ordered => {
            for (to, from) in place.iter_mut().zip(value) {
                *to = from ^ mask;
            }
        }
        _ => {
            let (length, room) = place.split_at_mut(column.length_bytes);
            put_length(order::take_escaped(value, mask, room), length);
        }
    }
}
