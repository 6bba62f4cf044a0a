//! How a payload is stored. It starts with one byte, its form:
//!
//! 0. The payload follows.
//! 1. A reference follows to the whole payload.
//! 2. Some parts of the payload are out of line: varint how many; for each of them, in the order of the
//!    payload, varint tag, varint place in the rest, a reference; then the rest of the payload without them.
//!
//! A reference (u64 BE id, u32 BE sequence, varint length) leads to chunks in the table's tree of long
//! values, whose keys are (id, sequence, u32 BE chunk number).
//!
//! Invariants:
//! 1. A payload of at most [`INLINE_BYTES_MAX`] has form 0, a longer one has another: so its length says
//!    whether it has chunks.
//! 2. Chunks are never changed, and their keys are used once. The versions of one row may share them.

use crate::base::codec::{put_varint, Reader};
use crate::base::limits::{ROW_BYTES_MAX, VALUE_BYTES_MAX};
use crate::base::{formats, Result, ENTRY_HEADER_BYTES};
use std::cmp::Reverse;
use std::ops::Range;

pub(in crate::db) const INLINE: u8 = 0;
pub(super) const REFERENCE: u8 = 1;
pub(super) const SPLIT: u8 = 2;
const _: () = assert!(SPLIT <= formats::CURRENT.payload);
/// Longest payload that stays in the leaf, so that a leaf holds several rows.
pub(crate) const INLINE_BYTES_MAX: usize = VALUE_BYTES_MAX - ENTRY_HEADER_BYTES - 1;
pub(in crate::db) const CHUNK_BYTES: usize = VALUE_BYTES_MAX - ENTRY_HEADER_BYTES;
/// What a part out of line leaves in the leaf, at most: tag, place, reference.
const LEFT_BYTES_MAX: usize = 3 + 3 + 12 + 5;
/// The form and the number of parts, at most.
const HEAD_BYTES_MAX: usize = 1 + 3;

/// A shorter part is not worth a reference and a chunk.
pub const PART_BYTES_MIN: usize = 64;

/// What a read puts in the place of a part that is out of line and not wanted: a varint 0 that is one byte
/// too long, which nobody writes.
pub const ABSENT: [u8; 2] = [0x80, 0];

/// A part of a payload that may be stored out of line. Parts follow each other and do not overlap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// By this the host knows it again. A row has one part of a tag at most.
    pub tag: u16,
    pub place: Range<usize>,
}

/// Which parts of payloads a read wants.
#[derive(Clone, Copy, Debug)]
pub enum Wanted<'a> {
    All,
    /// By tag; those beyond its end are not wanted.
    Tags(&'a [bool]),
}

impl Wanted<'_> {
    /// No part that is out of line.
    pub const NONE: Wanted<'static> = Wanted::Tags(&[]);

    pub fn has(&self, tag: u16) -> bool {
        match self {
            Wanted::All => true,
            Wanted::Tags(tags) => tags.get(usize::from(tag)).is_some_and(|&wanted| wanted),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::db) struct Reference {
    pub id: u64,
    pub sequence: u32,
    pub bytes: usize,
}

impl Reference {
    fn read(r: &mut Reader<'_>) -> Result<Reference> {
        let id = r.take(8)?;
        let id = u64::from_be_bytes(id.try_into().map_err(|_| r.fail("id"))?);
        let sequence = r.take(4)?;
        let sequence = u32::from_be_bytes(sequence.try_into().map_err(|_| r.fail("sequence"))?);
        let length = r.varint()?;
        let bytes = usize::try_from(length).ok().filter(|&n| n <= ROW_BYTES_MAX);
        let bytes = bytes.ok_or_else(|| r.fail("length over the limit"))?;
        Ok(Reference { id, sequence, bytes })
    }

    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.key(0)[..12]);
        put_varint(out, self.bytes as u64);
    }

    pub fn chunks(&self) -> u32 {
        self.bytes.div_ceil(CHUNK_BYTES) as u32
    }

    pub fn key(&self, chunk: u32) -> [u8; 16] {
        let mut key = [0; 16];
        key[..8].copy_from_slice(&self.id.to_be_bytes());
        key[8..12].copy_from_slice(&self.sequence.to_be_bytes());
        key[12..].copy_from_slice(&chunk.to_be_bytes());
        key
    }
}

/// A part out of line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Distant {
    pub tag: u16,
    /// Where it belongs in the rest.
    pub at: usize,
    pub value: Reference,
}

/// A stored payload, taken apart.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Stored<'a> {
    Inline,
    Whole(Reference),
    Split { distant: Vec<Distant>, rest: &'a [u8] },
}

impl Stored<'_> {
    pub fn decode(bytes: &[u8]) -> Result<Stored<'_>> {
        let mut r = Reader::new(bytes, "stored payload");
        Ok(match r.u8()? {
            INLINE => Stored::Inline,
            REFERENCE => {
                let value = Reference::read(&mut r)?;
                r.finish()?;
                Stored::Whole(value)
            }
            SPLIT => decode_split(r)?,
            _ => return Err(r.fail("unknown payload form")),
        })
    }
}

fn decode_split(mut r: Reader<'_>) -> Result<Stored<'_>> {
    let count = r.varint()?;
    if count > r.rest().len() as u64 {
        return Err(r.fail("too many parts out of line"));
    }
    let mut distant: Vec<Distant> = Vec::with_capacity(count as usize);
    let mut bytes = 0;
    for _ in 0..count {
        let tag = u16::try_from(r.varint()?).map_err(|_| r.fail("tag"))?;
        let at = r.varint()? as usize;
        let value = Reference::read(&mut r)?;
        if distant.last().is_some_and(|last| last.at > at) {
            return Err(r.fail("parts out of order"));
        }
        bytes += value.bytes;
        distant.push(Distant { tag, at, value });
    }
    let rest = r.rest();
    let is_inside = distant.last().is_none_or(|last| last.at <= rest.len());
    if !is_inside || bytes + rest.len() > ROW_BYTES_MAX {
        return Err(r.fail("parts beyond the payload"));
    }
    Ok(Stored::Split { distant, rest })
}

pub(super) fn put_whole(value: &Reference, out: &mut Vec<u8>) {
    out.push(REFERENCE);
    value.put(out);
}

/// `parts` of `payload` are out of line, where `values` says.
pub(super) fn put_split(payload: &[u8], parts: &[&Part], values: &[Reference], out: &mut Vec<u8>) {
    out.push(SPLIT);
    put_varint(out, parts.len() as u64);
    let mut gone = 0;
    for (part, value) in parts.iter().zip(values) {
        put_varint(out, u64::from(part.tag));
        put_varint(out, (part.place.start - gone) as u64);
        value.put(out);
        gone += part.place.len();
    }
    let mut from = 0;
    for part in parts {
        out.extend_from_slice(&payload[from..part.place.start]);
        from = part.place.end;
    }
    out.extend_from_slice(&payload[from..]);
}

/// The parts that go out of line, in their order: those that are there already and stay as they are, then
/// the longest until the rest fits a leaf. None: it does not fit without all of them.
pub(super) fn choose<'p>(
    payload: &[u8],
    parts: &'p [Part],
    is_kept: impl Fn(&Part) -> bool,
) -> Option<Vec<&'p Part>> {
    let mut order: Vec<(bool, &Part)> = parts.iter().map(|part| (is_kept(part), part)).collect();
    order.retain(|(is_kept, part)| *is_kept || part.place.len() >= PART_BYTES_MIN);
    order.sort_by_key(|(is_kept, part)| (!is_kept, Reverse(part.place.len())));
    let mut left = HEAD_BYTES_MAX + payload.len();
    let mut chosen = Vec::new();
    for (is_kept, part) in order {
        if !is_kept && left <= CHUNK_BYTES {
            break;
        }
        left = left + LEFT_BYTES_MAX - part.place.len();
        chosen.push(part);
    }
    chosen.sort_by_key(|part| part.place.start);
    (left <= CHUNK_BYTES && !chosen.is_empty()).then_some(chosen)
}

/// Do the parts follow each other inside of the payload?
pub(super) fn are_in_order(payload: &[u8], parts: &[Part]) -> bool {
    let mut from = 0;
    parts.iter().all(|part| {
        let is_next = from <= part.place.start && part.place.start <= part.place.end;
        from = part.place.end;
        is_next
    }) && from <= payload.len()
}

/// Decodes what may be a stored payload.
#[cfg(test)]
pub(crate) fn fuzz_stored(bytes: &[u8]) {
    match Stored::decode(bytes) {
        Ok(Stored::Whole(value)) => {
            assert!(value.bytes <= ROW_BYTES_MAX);
            value.key(value.chunks());
        }
        Ok(Stored::Split { distant, rest }) => {
            assert!(distant.iter().all(|d| d.at <= rest.len() && d.value.bytes <= ROW_BYTES_MAX));
        }
        _ => {}
    }
}

/// Whether a payload of this length lives out of line, at least in part.
pub(crate) fn is_long(payload: &[u8]) -> bool {
    payload.len() > INLINE_BYTES_MAX
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::sim::SimRng;

    fn parts_of(lengths: &[usize]) -> (usize, Vec<Part>) {
        let mut at = 10;
        let mut parts = Vec::new();
        for (tag, &n) in lengths.iter().enumerate() {
            parts.push(Part { tag: tag as u16, place: at..at + n });
            at += n + 1;
        }
        (at, parts)
    }

    fn chosen(lengths: &[usize], kept: &[u16]) -> Option<Vec<u16>> {
        let (bytes, parts) = parts_of(lengths);
        let chosen = choose(&vec![0; bytes], &parts, |part| kept.contains(&part.tag))?;
        Some(chosen.iter().map(|part| part.tag).collect())
    }

    #[test]
    fn the_longest_parts_go_until_the_rest_fits() {
        assert_eq!(chosen(&[2000, 2500], &[]), Some(vec![1]));
        assert_eq!(chosen(&[1800, 2500, 30_000, 1900], &[]), Some(vec![1, 2]));
        assert_eq!(chosen(&[3000, 3000, 3000, 3000], &[]), Some(vec![0, 1, 2]));
        assert_eq!(chosen(&[PART_BYTES_MIN - 1; 300], &[]), None);
        assert_eq!(chosen(&[200; 300], &[]), None);
        assert!(chosen(&[200; 100], &[]).is_some_and(|chosen| chosen.len() > 80));
    }

    #[test]
    fn parts_that_stay_as_they_are_stay_out_of_line() {
        assert_eq!(chosen(&[2000, 2500], &[0]), Some(vec![0]));
        assert_eq!(chosen(&[100, 2500, 9000], &[0]), Some(vec![0, 2]));
        assert_eq!(chosen(&[10, 4500], &[0]), Some(vec![0, 1]));
        assert_eq!(chosen(&[2000, 2500], &[0, 1]), Some(vec![0, 1]));
    }

    /// Whatever is chosen, the stored form fits a leaf and leads back to the payload.
    #[test]
    fn a_split_payload_is_put_together_again() {
        let mut rng = SimRng::new(16);
        for round in 0..2000 {
            let count = rng.below(12) as usize;
            let lengths: Vec<usize> =
                (0..count).map(|_| rng.below([100, 2000, 9000][round % 3]) as usize).collect();
            let (bytes, parts) = parts_of(&lengths);
            let payload: Vec<u8> = (0..bytes + 7).map(|_| rng.next_u64() as u8).collect();
            let kept = rng.below(12) as u16;
            assert!(are_in_order(&payload, &parts));
            let Some(chosen) = choose(&payload, &parts, |part| part.tag == kept) else { continue };
            let value = |(i, part): (usize, &&Part)| Reference {
                id: u64::MAX - i as u64,
                sequence: i as u32,
                bytes: part.place.len(),
            };
            let values: Vec<Reference> = chosen.iter().enumerate().map(value).collect();
            let mut out = Vec::new();
            put_split(&payload, &chosen, &values, &mut out);
            assert!(out.len() <= CHUNK_BYTES, "{} bytes do not fit", out.len());
            let Ok(Stored::Split { distant, rest }) = Stored::decode(&out) else {
                panic!("no split payload")
            };
            let mut back = Vec::new();
            let mut from = 0;
            for ((d, part), value) in distant.iter().zip(&chosen).zip(&values) {
                assert_eq!((d.tag, d.value), (part.tag, *value));
                back.extend_from_slice(&rest[from..d.at]);
                back.extend_from_slice(&payload[part.place.clone()]);
                from = d.at;
            }
            back.extend_from_slice(&rest[from..]);
            assert!(back == payload);
        }
    }

    #[test]
    fn damaged_forms_are_told() {
        let (bytes, parts) = parts_of(&[5000, 6000]);
        let payload = vec![1; bytes];
        let chosen: Vec<&Part> = parts.iter().collect();
        let value = |bytes| Reference { id: 7, sequence: 1, bytes };
        let mut out = Vec::new();
        put_split(&payload, &chosen, &[value(5000), value(6000)], &mut out);
        let good = out.clone();
        assert!(Stored::decode(&good).is_ok());
        // The place of the first part comes after that of the second.
        out[3] = 12;
        assert!(Stored::decode(&out).is_err());
        assert!(Stored::decode(&good[..20]).is_err());
        assert!(Stored::decode(&[SPLIT, 255]).is_err());
        assert!(Stored::decode(&[3]).is_err());
        assert!(Stored::decode(&[]).is_err());
    }
}
