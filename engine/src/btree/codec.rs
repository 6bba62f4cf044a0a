//! The bytes of a change. A code's number and meaning are fixed for ever: a new behaviour is a new
//! code (rules S9).

use super::node::Node;
use crate::base::codec::{put_bytes, put_u8, put_varint, Reader};
use crate::base::entry::LSN_RANGE;
use crate::base::{EntryHeader, Lsn, Payload, Result, TreeId, TxnId, ENTRY_HEADER_BYTES};
use std::borrow::Cow;

/// Whole content of a node: tree, level, fences, entries.
pub(super) const INIT: u8 = 1;
/// Keep the first n entries and make this key the high fence (left side of a split).
pub(super) const TRUNCATE: u8 = 2;
/// New entry at a slot: suffix and value.
pub(super) const INSERT: u8 = 3;
/// As INSERT, and the value's LSN becomes the record's.
pub(super) const INSERT_STAMPED: u8 = 4;
/// New value of a slot.
pub(super) const REPLACE: u8 = 5;
pub(super) const REPLACE_STAMPED: u8 = 6;
/// New bytes in a slot's value: (gap since the last range's end, bytes)*.
pub(super) const PATCH: u8 = 7;
pub(super) const PATCH_STAMPED: u8 = 8;
/// Remove one slot.
pub(super) const REMOVE: u8 = 9;
/// Remove several: ascending, each as the distance from the one before.
pub(super) const REMOVE_MANY: u8 = 10;

pub(super) enum Decoded<'a> {
    Init(Init<'a>),
    Truncate { keep: usize, high: &'a [u8] },
    Insert { slot: usize, suffix: &'a [u8], value: &'a [u8], stamp: bool },
    Replace { slot: usize, value: &'a [u8], stamp: bool },
    Patch { slot: usize, ranges: Reader<'a>, stamp: bool },
    Remove { slot: usize },
    RemoveMany { slots: Reader<'a> },
}

/// Content of a node; `entries` are (suffix, value) after the prefix that the fences imply.
pub(super) struct Init<'a> {
    pub tree: TreeId,
    pub level: u8,
    pub low: &'a [u8],
    pub high: Option<&'a [u8]>,
    pub count: usize,
    pub entries: Reader<'a>,
}

pub(super) fn decode(change: &[u8]) -> Result<Decoded<'_>> {
    let mut r = Reader::new(change, "page change");
    let code = r.u8()?;
    let decoded = match code {
        INIT => return decode_init(r),
        TRUNCATE => Decoded::Truncate { keep: index(&mut r)?, high: r.bytes()? },
        INSERT | INSERT_STAMPED => {
            let (slot, suffix, value) = (index(&mut r)?, r.bytes()?, r.bytes()?);
            Decoded::Insert { slot, suffix, value, stamp: code == INSERT_STAMPED }
        }
        REPLACE | REPLACE_STAMPED => {
            let (slot, value) = (index(&mut r)?, r.bytes()?);
            Decoded::Replace { slot, value, stamp: code == REPLACE_STAMPED }
        }
        PATCH | PATCH_STAMPED => {
            let slot = index(&mut r)?;
            return Ok(Decoded::Patch { slot, ranges: r, stamp: code == PATCH_STAMPED });
        }
        REMOVE => Decoded::Remove { slot: index(&mut r)? },
        REMOVE_MANY => return Ok(Decoded::RemoveMany { slots: r }),
        _ => return Err(r.fail(&format!("unknown code {code}"))),
    };
    r.finish()?;
    Ok(decoded)
}

fn decode_init(mut r: Reader<'_>) -> Result<Decoded<'_>> {
    let (tree, level, has_high) = (TreeId(r.u32()?), r.u8()?, r.u8()?);
    let low = r.bytes()?;
    let high = match has_high {
        0 => None,
        1 => Some(r.bytes()?),
        _ => return Err(r.fail("fence flag")),
    };
    let count = index(&mut r)?;
    Ok(Decoded::Init(Init { tree, level, low, high, count, entries: r }))
}

/// A number that fits in a u16, as slots and offsets do.
pub(super) fn index(r: &mut Reader<'_>) -> Result<usize> {
    let v = r.varint()?;
    u16::try_from(v).map(usize::from).map_err(|_| r.fail("index over 16 bits"))
}

/// Head of an INIT; the entries follow with [`put_entry`].
pub(super) fn put_init(
    out: &mut Vec<u8>,
    tree: TreeId,
    level: u8,
    fences: (&[u8], Option<&[u8]>),
    count: usize,
) {
    put_u8(out, INIT);
    out.extend_from_slice(&tree.0.to_le_bytes());
    put_u8(out, level);
    put_u8(out, u8::from(fences.1.is_some()));
    put_bytes(out, fences.0);
    if let Some(high) = fences.1 {
        put_bytes(out, high);
    }
    put_varint(out, count as u64);
}

pub(super) fn put_entry(out: &mut Vec<u8>, suffix: &[u8], value: &[u8]) {
    put_bytes(out, suffix);
    put_bytes(out, value);
}

pub(super) fn put_truncate(out: &mut Vec<u8>, keep: usize, high: &[u8]) {
    put_u8(out, TRUNCATE);
    put_varint(out, keep as u64);
    put_bytes(out, high);
}

/// The value that an entry is to have.
pub enum Value<'a> {
    /// These bytes, whatever they are.
    Plain(Cow<'a, [u8]>),
    /// A new version. Its LSN becomes that of the record: until then it is zero, in the log too.
    Version { flags: u8, txn: TxnId, payload: Payload<'a> },
}

impl Value<'_> {
    pub(super) fn len(&self) -> usize {
        match self {
            Value::Plain(bytes) => bytes.len(),
            Value::Version { payload, .. } => ENTRY_HEADER_BYTES + payload.len(),
        }
    }

    fn is_stamped(&self) -> bool {
        matches!(self, Value::Version { .. })
    }

    fn put(&self, out: &mut Vec<u8>) {
        match *self {
            Value::Plain(ref bytes) => out.extend_from_slice(bytes),
            Value::Version { flags, txn, payload } => {
                EntryHeader { flags, txn, lsn: Lsn::ZERO }.put(out);
                payload.put(out);
            }
        }
    }
}

pub(super) fn put_insert(out: &mut Vec<u8>, slot: usize, suffix: &[u8], value: &Value<'_>) {
    put_u8(out, if value.is_stamped() { INSERT_STAMPED } else { INSERT });
    put_varint(out, slot as u64);
    put_bytes(out, suffix);
    put_varint(out, value.len() as u64);
    value.put(out);
}

pub(super) fn put_remove(out: &mut Vec<u8>, slot: usize) {
    put_u8(out, REMOVE);
    put_varint(out, slot as u64);
}

pub(super) fn put_remove_many(out: &mut Vec<u8>, slots: &[usize]) {
    put_u8(out, REMOVE_MANY);
    let mut last = 0;
    for &slot in slots {
        put_varint(out, (slot - last) as u64);
        last = slot;
    }
}

/// New value of a slot: only the bytes that differ where that is shorter. `bytes` is room for the value.
pub(super) fn put_replace(
    out: &mut Vec<u8>,
    bytes: &mut Vec<u8>,
    node: Node<'_>,
    slot: usize,
    value: &Value<'_>,
) {
    let (old, stamp) = (node.value(slot), value.is_stamped());
    let start = out.len();
    if old.len() == value.len() {
        bytes.clear();
        value.put(bytes);
        put_u8(out, if stamp { PATCH_STAMPED } else { PATCH });
        put_varint(out, slot as u64);
        put_ranges(out, old, bytes, stamp);
        if out.len() - start <= bytes.len() {
            return;
        }
        out.truncate(start);
    }
    put_u8(out, if stamp { REPLACE_STAMPED } else { REPLACE });
    put_varint(out, slot as u64);
    put_varint(out, value.len() as u64);
    value.put(out);
}

/// Ranges closer than this are one: a range costs about two bytes.
const RANGE_GAP_MIN: usize = 4;

fn put_ranges(out: &mut Vec<u8>, old: &[u8], new: &[u8], stamp: bool) {
    let skip = if stamp { LSN_RANGE } else { 0..0 };
    let differs = |i: usize| old[i] != new[i] && !skip.contains(&i);
    let (mut i, mut written) = (0, 0);
    while i < new.len() {
        i += equal_run(&old[i..], &new[i..]);
        if i == new.len() {
            return;
        }
        if !differs(i) {
            i += 1;
            continue;
        }
        let from = i;
        let mut end = i + 1;
        while i < new.len() && i < end + RANGE_GAP_MIN {
            if differs(i) {
                end = i + 1;
            }
            i += 1;
        }
        put_varint(out, (from - written) as u64);
        put_bytes(out, &new[from..end]);
        written = end;
        i = end;
    }
}

/// Length of the equal beginning, eight bytes at a time.
fn equal_run(a: &[u8], b: &[u8]) -> usize {
    let word = |bytes: &[u8], at: usize| bytes[at..].first_chunk().map(|w| u64::from_le_bytes(*w));
    let mut at = 0;
    while let (Some(x), Some(y)) = (word(a, at), word(b, at)) {
        if x != y {
            return at + (x ^ y).trailing_zeros() as usize / 8;
        }
        at += 8;
    }
    at + a[at..].iter().zip(&b[at..]).take_while(|(x, y)| x == y).count()
}
