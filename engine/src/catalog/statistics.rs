//! What is known of the contents of a table's indexes, kept beside the definitions.
//!
//! Invariants:
//! 1. The key is a zero byte, the letter s, the table's id (u64 BE) and the index (u16 BE): in front of
//!    every name, and the same after a rename. A truncated table has another id, so it has none.
//! 2. Nothing depends on it but estimates. An entry that is absent, unreadable or of another format
//!    means that nothing is known.

use super::{Catalog, TableDef};
use crate::base::codec::{put_u8, put_varint, Reader};
use crate::base::{formats, Result};
use crate::btree::Direction;
use crate::txn::{Cursor, Expect, ReadMode, Session, WaitPolicy, Written};
use std::collections::BTreeMap;
use std::ops::Bound;

const FORMAT: u8 = formats::CURRENT.statistics;
const FRONT: &[u8] = b"\0s";
const KEY_BYTES: usize = FRONT.len() + 8 + 2;
/// As many as a key of the server has parts, and those of the clustered key after them.
const PREFIXES_MAX: u64 = 256;

/// Statistics of one index, from a sample of its leaves.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IndexStatistics {
    /// Entries that are no delete marks.
    pub entries: u64,
    pub leaf_pages: u64,
    /// With inner nodes.
    pub pages: u64,
    /// How many values each prefix of the key has: of the first part, of the first two, and so on.
    pub distinct: Vec<u64>,
}

/// Statistics of all trees of a table, in the order of [`super::TableDef::trees`]: `[0]` is the
/// clustered index, the last one the long values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableStatistics {
    pub trees: Vec<IndexStatistics>,
}

impl TableStatistics {
    pub fn rows(&self) -> u64 {
        self.trees.first().map_or(0, |clustered| clustered.entries)
    }
}

impl IndexStatistics {
    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(24 + 5 * self.distinct.len());
        put_u8(&mut out, FORMAT);
        put_varint(&mut out, self.entries);
        put_varint(&mut out, self.leaf_pages);
        put_varint(&mut out, self.pages);
        put_varint(&mut out, self.distinct.len() as u64);
        self.distinct.iter().for_each(|&n| put_varint(&mut out, n));
        out
    }

    fn decode(bytes: &[u8]) -> Result<IndexStatistics> {
        let mut r = Reader::new(bytes, "index statistics");
        if r.u8()? != FORMAT {
            return Err(r.fail("unknown format"));
        }
        let (entries, leaf_pages, pages) = (r.varint()?, r.varint()?, r.varint()?);
        let count = r.varint()?;
        if count > PREFIXES_MAX {
            return Err(r.fail("number of prefixes"));
        }
        let distinct = (0..count).map(|_| r.varint()).collect::<Result<Vec<_>>>()?;
        r.finish()?;
        Ok(IndexStatistics { entries, leaf_pages, pages, distinct })
    }
}

fn key_of(table: u64, index: usize) -> Vec<u8> {
    let mut key = FRONT.to_vec();
    key.extend_from_slice(&table.to_be_bytes());
    key.extend_from_slice(&(index as u16).to_be_bytes());
    key
}

fn parse_key(key: &[u8]) -> Option<(u64, usize)> {
    let rest = key.strip_prefix(FRONT).filter(|_| key.len() == KEY_BYTES)?;
    let (table, index) = rest.split_first_chunk::<8>()?;
    let index = u16::from_be_bytes(index.try_into().ok()?);
    Some((u64::from_be_bytes(*table), usize::from(index)))
}

impl Catalog {
    /// Replaces what is kept of the table.
    pub fn put_statistics(
        &self,
        session: &mut Session,
        table: u64,
        statistics: &TableStatistics,
    ) -> Result<()> {
        for (index, of_index) in statistics.trees.iter().enumerate() {
            let (key, bytes) = (key_of(table, index), of_index.encode());
            if session.write(&self.gate, &key, Some(bytes[..].into()), Expect::Absent)?
                == Written::Duplicate
            {
                session.write(&self.gate, &key, Some(bytes[..].into()), Expect::Present)?;
            }
        }
        Ok(())
    }

    /// For a table that is dropped or truncated.
    pub fn remove_statistics(&self, session: &mut Session, def: &TableDef) -> Result<()> {
        for index in 0..def.trees().count() {
            session.write(&self.gate, &key_of(def.id, index), None, Expect::Present)?;
        }
        Ok(())
    }

    /// What is kept of every table, by its id.
    pub fn load_statistics(&self, session: &mut Session) -> Result<BTreeMap<u64, TableStatistics>> {
        let mut cursor = Cursor::default();
        let mode = ReadMode::Lock { exclusive: false, wait: WaitPolicy::NoWait };
        let to = Bound::Excluded(super::FIRST_NAME);
        cursor.start(&self.gate, Bound::Included(FRONT), to, Direction::Forward, mode);
        let mut found: BTreeMap<u64, Option<TableStatistics>> = BTreeMap::new();
        while session.next(&mut cursor)? {
            let Some((table, index)) = parse_key(cursor.key()) else { continue };
            let so_far = found.entry(table).or_insert_with(|| Some(TableStatistics::default()));
            let of_index = IndexStatistics::decode(cursor.payload()).ok();
            // One index that is not known, or that misses, makes the table unknown.
            *so_far = so_far.take().zip(of_index).and_then(|(mut all, of_index)| {
                (all.trees.len() == index).then(|| {
                    all.trees.push(of_index);
                    all
                })
            });
        }
        Ok(found.into_iter().filter_map(|(table, all)| Some((table, all?))).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn index_statistics_round_trip() {
        let distinct = vec![3, 900, 0];
        let known = IndexStatistics { entries: 1 << 40, leaf_pages: 77, pages: 78, distinct };
        let bytes = known.encode();
        assert_eq!(IndexStatistics::decode(&bytes).unwrap(), known);
        for cut in 0..bytes.len() {
            assert!(IndexStatistics::decode(&bytes[..cut]).is_err());
        }
        let mut later = bytes;
        later[0] = FORMAT + 1;
        assert!(IndexStatistics::decode(&later).is_err());
    }

    #[test]
    fn keys_stand_in_front_of_every_name() {
        let key = key_of(u64::MAX, 63);
        assert!(&key[..] < super::super::FIRST_NAME);
        assert_eq!(parse_key(&key), Some((u64::MAX, 63)));
        assert_eq!(parse_key(b"\0s1234"), None);
        assert_eq!(parse_key(b"a name of 12"), None);
    }
}
