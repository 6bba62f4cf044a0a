//! What a table holds.

use sluice_engine::base::Result;
use sluice_engine::db::{
    Entry, IndexSpec, KeyParts, Part, RowWrite, TableSpec, Wanted, ABSENT, PART_BYTES_MIN,
};
use sluice_engine::os::sim::SimRng;
use std::collections::BTreeMap;

/// Plain, unique, stamp; then of each value its length and its byte.
const HEAD_BYTES: usize = 7 + VALUES * 5;
const VALUES: usize = 2;

/// How long a value is, and the byte that it is made of.
type Value = (usize, u8);

/// A row: primary key, a column with a plain index, one with a unique index, a stamp that tells
/// versions apart, and values that may be long. A row without its values says what they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    pub id: u32,
    plain: u8,
    pub unique: u16,
    stamp: u32,
    values: [Value; VALUES],
}

pub type Rows = BTreeMap<u32, Row>;

/// The description that a table is made with.
pub const FIRST_DEFINITION: &[u8] = b"sim";

pub fn spec() -> TableSpec {
    let index = |unique| IndexSpec { unique };
    let indexes = vec![index(true), index(false), index(true)];
    TableSpec {
        indexes,
        definition: FIRST_DEFINITION.to_vec(),
        autoinc_start: 1,
        compression: None,
        is_encrypted: false,
    }
}

/// Where the entries of the indexes keep the primary key.
pub fn name_of(index: usize, key: &[u8], payload: &[u8]) -> Result<Vec<u8>> {
    Ok(if index == 1 { key[1..].to_vec() } else { payload.to_vec() })
}

/// Where the parts of the indexes' keys end.
pub struct Parts;

impl KeyParts for Parts {
    fn count(&self, index: usize) -> usize {
        [1, 2, 1][index]
    }

    fn ends(&self, index: usize, key: &[u8], ends: &mut Vec<usize>) {
        let all: &[usize] = [&[4][..], &[1, 5], &[2]][index];
        ends.extend(all.iter().copied().filter(|&end| end <= key.len()));
    }
}

impl Row {
    pub fn random(rng: &mut SimRng, id: u32, ids: u64, filler_bytes: u64) -> Row {
        let first = match rng.below(40) {
            0 => 5_000 + rng.below(20_000) as usize,
            1..=3 => rng.below(3_000) as usize,
            _ => rng.below(filler_bytes) as usize,
        };
        let second = match rng.below(60) {
            0 => 2_000 + rng.below(4_000) as usize,
            _ => rng.below(20) as usize,
        };
        Row {
            id,
            plain: rng.below(8) as u8,
            unique: rng.below(ids + ids / 2) as u16,
            stamp: rng.next_u64() as u32,
            values: [(first, rng.next_u64() as u8), (second, rng.next_u64() as u8)],
        }
    }

    /// The row in the place of `old`, of which some values stay.
    pub fn in_place_of(mut self, old: &Row, rng: &mut SimRng) -> Row {
        for (value, old) in self.values.iter_mut().zip(old.values) {
            if rng.chance(60) {
                *value = old;
            }
        }
        self
    }

    /// The keys of the row in the three indexes.
    pub fn keys(&self) -> [Vec<u8>; 3] {
        let id = self.id.to_be_bytes();
        [id.to_vec(), [&[self.plain][..], &id].concat(), self.unique.to_be_bytes().to_vec()]
    }

    fn payload(&self) -> (Vec<u8>, Vec<Part>) {
        let mut payload = Vec::new();
        payload.push(self.plain);
        payload.extend_from_slice(&self.unique.to_be_bytes());
        payload.extend_from_slice(&self.stamp.to_be_bytes());
        for (bytes, fill) in self.values {
            payload.extend_from_slice(&(bytes as u32).to_be_bytes());
            payload.push(fill);
        }
        let mut parts = Vec::new();
        for (tag, (bytes, fill)) in (0..).zip(self.values) {
            let start = payload.len();
            payload.resize(start + bytes, fill);
            parts.push(Part { tag, place: start..payload.len() });
        }
        (payload, parts)
    }

    /// The row of an entry of the clustered index; panics if it is none, or lacks a value that was wanted.
    pub fn parse(key: &[u8], payload: &[u8], wanted: Wanted<'_>) -> Row {
        let id = u32::from_be_bytes(key.try_into().expect("a key of four bytes"));
        assert!(payload.len() >= HEAD_BYTES, "row {id} is too short");
        let stamp = u32::from_be_bytes(payload[3..7].try_into().expect("four bytes"));
        let value = |i: usize| {
            let at = 7 + i * 5;
            let bytes = u32::from_be_bytes(payload[at..at + 4].try_into().expect("four bytes"));
            (bytes as usize, payload[at + 4])
        };
        let values = [value(0), value(1)];
        let mut rest = &payload[HEAD_BYTES..];
        for (tag, (bytes, fill)) in (0..).zip(values) {
            let is_absent = rest.starts_with(&ABSENT) && bytes >= PART_BYTES_MIN;
            assert!(!is_absent || !wanted.has(tag), "row {id} lacks value {tag}");
            let found = rest.split_at_checked(if is_absent { ABSENT.len() } else { bytes });
            let (found, left) = found.unwrap_or_else(|| panic!("value {tag} of row {id} is short"));
            assert!(is_absent || found.iter().all(|&b| b == fill), "row {id} is made of two");
            rest = left;
        }
        assert!(rest.is_empty(), "row {id} is too long");
        Row {
            id,
            plain: payload[0],
            unique: u16::from_be_bytes([payload[1], payload[2]]),
            stamp,
            values,
        }
    }

    pub fn with<R>(&self, f: impl FnOnce(&RowWrite<'_>) -> R) -> R {
        let (keys, (payload, parts)) = (self.keys(), self.payload());
        let entry =
            |i: usize, payload, unique| Entry { key: &keys[i], payload, parts: &[], unique };
        let row = Entry { parts: &parts, ..entry(0, &payload, true) };
        let entries = [row, entry(1, &[], false), entry(2, &keys[0], true)];
        f(&RowWrite { entries: &entries })
    }
}
