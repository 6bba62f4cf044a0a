//! Room `catalog`: which tables and indexes exist. It is a tree like any other, written by
//! ordinary transactions that are durable before a DDL statement returns (rules M18).
//!
//! Invariants:
//! 1. The catalog tree is [`CATALOG_TREE`]; its key is the table's name, its payload a [`TableDef`].
//!    What does not fit an entry stands in further ones: name, a zero byte, u16 BE number from 1.
//!    The first one begins with the number of the others (varint). Names have no zero bytes.
//! 2. Table ids grow with every create and truncate and are never reused; neither are tree ids.
//! 3. `definition` belongs to the caller of the engine and is never interpreted here.
//! 4. Keys that begin with a zero byte name no table; see `statistics`.

mod statistics;

pub use statistics::{IndexStatistics, TableStatistics};

use crate::base::codec::{put_bytes, put_u8, put_varint, Reader};
use crate::base::limits::VALUE_BYTES_MAX;
use crate::base::{formats, Error, PageId, Result, TreeId, ENTRY_HEADER_BYTES};
use crate::txn::{Cursor, Expect, ReadMode, Session, TreeGate, WaitPolicy, Written};
use std::ops::Bound;
use std::sync::Arc;

pub const CATALOG_TREE: TreeId = TreeId(1);
pub const FIRST_USER_TREE: TreeId = TreeId(16);

const FORMAT: u8 = formats::CURRENT.catalog;
/// Of a definition with options, which stand before `definition`.
const FORMAT_WITH_OPTIONS: u8 = formats::ENCRYPTED_TABLES.catalog;
const ENCRYPTED: u8 = 1;
/// No name lies below it.
const FIRST_NAME: &[u8] = &[1];
/// Bytes of a definition in one entry, beside the number in front.
const PIECE_BYTES: usize = VALUE_BYTES_MAX - ENTRY_HEADER_BYTES - 8;
const INDEXES_MAX: u64 = 256;

/// Where a tree is and whether its keys are unique as they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexDef {
    pub tree: TreeId,
    pub root: PageId,
    pub unique: bool,
}

/// Compression of page images as the catalog keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompressionDef {
    /// 0 none, 1 LZ4, 2 zstd.
    pub method: u8,
    pub level: u8,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableDef {
    pub id: u64,
    /// `[0]` is the clustered index.
    pub indexes: Vec<IndexDef>,
    /// Holds the parts of payloads that are too long for a leaf.
    pub long_values: IndexDef,
    pub autoinc_start: u64,
    pub compression: CompressionDef,
    /// The pages of its trees are encrypted, whatever is done with those of other tables.
    pub is_encrypted: bool,
    pub definition: Vec<u8>,
}

fn put_index(out: &mut Vec<u8>, index: &IndexDef) {
    put_varint(out, u64::from(index.tree.0));
    put_varint(out, index.root.0);
    put_u8(out, u8::from(index.unique));
}

fn read_index(r: &mut Reader<'_>) -> Result<IndexDef> {
    let tree = u32::try_from(r.varint()?).map_err(|_| r.fail("tree id over 32 bits"))?;
    let root = PageId(r.varint()?);
    let unique = r.u8()? != 0;
    Ok(IndexDef { tree: TreeId(tree), root, unique })
}

impl TableDef {
    pub fn trees(&self) -> impl Iterator<Item = &IndexDef> {
        self.indexes.iter().chain(std::iter::once(&self.long_values))
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(64 + self.definition.len());
        put_u8(&mut out, if self.is_encrypted { FORMAT_WITH_OPTIONS } else { FORMAT });
        put_varint(&mut out, self.id);
        put_varint(&mut out, self.indexes.len() as u64);
        for index in self.trees() {
            put_index(&mut out, index);
        }
        put_varint(&mut out, self.autoinc_start);
        put_u8(&mut out, self.compression.method);
        put_u8(&mut out, self.compression.level);
        if self.is_encrypted {
            put_u8(&mut out, ENCRYPTED);
        }
        put_bytes(&mut out, &self.definition);
        out
    }

    pub fn decode(bytes: &[u8]) -> Result<TableDef> {
        let mut r = Reader::new(bytes, "table definition");
        let format = r.u8()?;
        if format != FORMAT && format != FORMAT_WITH_OPTIONS {
            return Err(r.fail("unknown format"));
        }
        let id = r.varint()?;
        let count = r.varint()?;
        if count == 0 || count > INDEXES_MAX {
            return Err(r.fail("number of indexes"));
        }
        let indexes = (0..count).map(|_| read_index(&mut r)).collect::<Result<Vec<_>>>()?;
        let long_values = read_index(&mut r)?;
        let autoinc_start = r.varint()?;
        let compression = CompressionDef { method: r.u8()?, level: r.u8()? };
        let is_encrypted = format == FORMAT_WITH_OPTIONS;
        if is_encrypted && r.u8()? != ENCRYPTED {
            return Err(r.fail("unknown options"));
        }
        let definition = r.bytes()?.to_vec();
        r.finish()?;
        Ok(TableDef {
            id,
            indexes,
            long_values,
            autoinc_start,
            compression,
            is_encrypted,
            definition,
        })
    }
}

/// The catalog tree, written through a session of its own for each DDL statement.
pub struct Catalog {
    gate: Arc<TreeGate>,
}

impl Catalog {
    pub fn new(gate: Arc<TreeGate>) -> Self {
        assert_eq!(gate.id(), CATALOG_TREE);
        Catalog { gate }
    }

    pub fn insert(&self, session: &mut Session, name: &str, def: &TableDef) -> Result<()> {
        let bytes = def.encode();
        let mut pieces = bytes.chunks(PIECE_BYTES);
        let mut first = Vec::with_capacity(PIECE_BYTES + 8);
        put_varint(&mut first, bytes.len().div_ceil(PIECE_BYTES) as u64 - 1);
        first.extend_from_slice(pieces.next().expect("a definition is not empty"));
        if bytes.len().div_ceil(PIECE_BYTES) > usize::from(u16::MAX) {
            let limit = PIECE_BYTES * usize::from(u16::MAX);
            return Err(Error::TooLarge { what: "table definition", bytes: bytes.len(), limit });
        }
        self.put(session, name.as_bytes(), &first)?;
        for (i, piece) in pieces.enumerate() {
            self.put(session, &piece_key(name, i as u16 + 1), piece)?;
        }
        Ok(())
    }

    fn put(&self, session: &mut Session, key: &[u8], bytes: &[u8]) -> Result<()> {
        match session.write(&self.gate, key, Some(bytes.into()), Expect::Absent)? {
            Written::Duplicate => Err(Error::Exists),
            _ => Ok(()),
        }
    }

    pub fn replace(&self, session: &mut Session, name: &str, def: &TableDef) -> Result<()> {
        self.remove(session, name)?;
        self.insert(session, name, def)
    }

    pub fn remove(&self, session: &mut Session, name: &str) -> Result<()> {
        let mut first = Vec::new();
        if !session.get_newest(&self.gate, name.as_bytes(), &mut first)? {
            return Err(Error::NotFound);
        }
        let more = Reader::new(&first, "table definition").varint()?;
        self.delete(session, name.as_bytes())?;
        (1..=more).try_for_each(|i| self.delete(session, &piece_key(name, i as u16)))
    }

    fn delete(&self, session: &mut Session, key: &[u8]) -> Result<()> {
        match session.write(&self.gate, key, None, Expect::Present)? {
            Written::Missing => Err(Error::NotFound),
            _ => Ok(()),
        }
    }

    /// Every table, in the order of names.
    pub fn load(&self, session: &mut Session) -> Result<Vec<(String, TableDef)>> {
        let mut cursor = Cursor::default();
        let all = (Bound::Included(FIRST_NAME), Bound::Unbounded);
        let forward = crate::btree::Direction::Forward;
        let mode = ReadMode::Lock { exclusive: false, wait: WaitPolicy::NoWait };
        cursor.start(&self.gate, all.0, all.1, forward, mode);
        let mut tables = Vec::new();
        while session.next(&mut cursor)? {
            let name = std::str::from_utf8(cursor.key())
                .map_err(|_| Error::corrupt("table name is not UTF-8", "catalog"))?
                .to_owned();
            let mut first = Reader::new(cursor.payload(), "table definition");
            let more = first.varint()?;
            let mut bytes = first.rest().to_vec();
            for i in 1..=more {
                if !session.next(&mut cursor)? || cursor.key() != piece_key(&name, i as u16) {
                    return Err(Error::corrupt("part of a table definition is missing", name));
                }
                bytes.extend_from_slice(cursor.payload());
            }
            tables.push((name, TableDef::decode(&bytes)?));
        }
        Ok(tables)
    }
}

fn piece_key(name: &str, number: u16) -> Vec<u8> {
    let mut key = name.as_bytes().to_vec();
    key.push(0);
    key.extend_from_slice(&number.to_be_bytes());
    key
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::sim::SimRng;

    fn def(is_encrypted: bool) -> TableDef {
        let index =
            |n| IndexDef { tree: TreeId(n), root: PageId(u64::from(n) * 7), unique: n == 1 };
        TableDef {
            id: 300,
            indexes: vec![index(1), index(2)],
            long_values: index(3),
            autoinc_start: 5,
            compression: CompressionDef { method: 2, level: 3 },
            is_encrypted,
            definition: b"columns".to_vec(),
        }
    }

    #[test]
    fn definition_round_trip() {
        for def in [def(false), def(true)] {
            assert_eq!(TableDef::decode(&def.encode()).unwrap(), def);
            let bytes = def.encode();
            for cut in 0..bytes.len() {
                assert!(TableDef::decode(&bytes[..cut]).is_err());
            }
        }
        assert_eq!(piece_key("db/t", 258), b"db/t\0\x01\x02");
    }

    #[test]
    fn a_table_without_options_has_the_bytes_that_it_always_had() {
        let bytes = b"\x02\xac\x02\x02\x01\x07\x01\x02\x0e\x00\x03\x15\x00\x05\x02\x03\x07columns";
        assert_eq!(def(false).encode(), bytes);
        let more =
            b"\x03\xac\x02\x02\x01\x07\x01\x02\x0e\x00\x03\x15\x00\x05\x02\x03\x01\x07columns";
        assert_eq!(def(true).encode(), more);
    }

    /// Each definition has one form, so what is read is what would be written; all else is damage, also
    /// options that this release does not know.
    #[test]
    fn fuzz_definitions() {
        let mut rng = SimRng::new(7);
        let (mut read, mut refused) = (0, 0);
        for turn in 0..20_000 {
            let mut bytes = def(turn % 2 == 0).encode();
            for _ in 0..1 + rng.below(3) {
                let at = rng.below(bytes.len() as u64) as usize;
                bytes[at] = rng.next_u64() as u8;
            }
            match TableDef::decode(&bytes) {
                Ok(def) => {
                    assert_eq!(TableDef::decode(&def.encode()).unwrap(), def);
                    read += 1;
                }
                Err(error) => {
                    assert!(matches!(error, Error::Corrupt { .. }), "{error}");
                    refused += 1;
                }
            }
        }
        assert!(read > 100 && refused > 100, "{read} and {refused}");
        let mut unknown = def(true).encode();
        let options = unknown.len() - b"\x07columns".len() - 1;
        unknown[options] = 2;
        assert!(TableDef::decode(&unknown).is_err());
    }
}
