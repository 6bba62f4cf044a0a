//! What a table holds.

use sluice_engine::base::Result;
use sluice_engine::db::{Entry, IndexSpec, KeyParts, RowWrite, TableSpec};
use sluice_engine::os::sim::SimRng;
use std::collections::BTreeMap;

const HEAD_BYTES: usize = 7;

/// A row: primary key, a value with a plain index, one with a unique index, a stamp that tells
/// versions apart, and a filler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    pub id: u32,
    plain: u8,
    pub unique: u16,
    stamp: u32,
    filler: usize,
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
        let filler = match rng.below(40) {
            0 => 5_000 + rng.below(20_000) as usize,
            1..=3 => rng.below(3_000) as usize,
            _ => rng.below(filler_bytes) as usize,
        };
        Row {
            id,
            plain: rng.below(8) as u8,
            unique: rng.below(ids + ids / 2) as u16,
            stamp: rng.next_u64() as u32,
            filler,
        }
    }

    /// The keys of the row in the three indexes.
    pub fn keys(&self) -> [Vec<u8>; 3] {
        let id = self.id.to_be_bytes();
        [id.to_vec(), [&[self.plain][..], &id].concat(), self.unique.to_be_bytes().to_vec()]
    }

    pub fn payload(&self) -> Vec<u8> {
        let mut payload = Vec::with_capacity(HEAD_BYTES + self.filler);
        payload.push(self.plain);
        payload.extend_from_slice(&self.unique.to_be_bytes());
        payload.extend_from_slice(&self.stamp.to_be_bytes());
        payload.resize(HEAD_BYTES + self.filler, self.stamp as u8);
        payload
    }

    /// The row of an entry of the clustered index; panics if it is none.
    pub fn parse(key: &[u8], payload: &[u8]) -> Row {
        let id = u32::from_be_bytes(key.try_into().expect("a key of four bytes"));
        assert!(payload.len() >= HEAD_BYTES, "row {id} is too short");
        let stamp = u32::from_be_bytes(payload[3..HEAD_BYTES].try_into().expect("four bytes"));
        let filler = &payload[HEAD_BYTES..];
        assert!(filler.iter().all(|&b| b == stamp as u8), "row {id} is made of two");
        Row {
            id,
            plain: payload[0],
            unique: u16::from_be_bytes([payload[1], payload[2]]),
            stamp,
            filler: filler.len(),
        }
    }

    pub fn with<R>(&self, f: impl FnOnce(&RowWrite<'_>) -> R) -> R {
        let (keys, payload) = (self.keys(), self.payload());
        let entry = |i: usize, payload, unique| Entry { key: &keys[i], payload, unique };
        let entries = [entry(0, &payload, true), entry(1, &[], false), entry(2, &keys[0], true)];
        f(&RowWrite { entries: &entries })
    }
}
