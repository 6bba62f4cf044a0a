//! Payloads that are too long for a leaf.
//!
//! A stored payload starts with one byte: 0, the payload follows; or 1, a reference follows
//! (u64 BE id, u32 BE sequence, varint length) to chunks in the table's tree of long values,
//! whose keys are (id, sequence, u32 BE chunk number). Chunks are entries like any other, with
//! versions, so snapshots, rollback and purge need no rule of their own for them.

use super::room::Purpose;
use super::table::Table;
use super::trx::Trx;
use crate::base::codec::{put_varint, Reader};
use crate::base::limits::{ROW_BYTES_MAX, VALUE_BYTES_MAX};
use crate::base::{Error, Result, ENTRY_HEADER_BYTES};
use crate::txn::{Expect, Isolation, ReadMode, WaitPolicy, Written};

const INLINE: u8 = 0;
const REFERENCE: u8 = 1;
/// Longest payload that stays in the leaf, so that a leaf holds several rows.
pub(crate) const INLINE_BYTES_MAX: usize = VALUE_BYTES_MAX - ENTRY_HEADER_BYTES - 1;
const CHUNK_BYTES: usize = VALUE_BYTES_MAX - ENTRY_HEADER_BYTES;
/// Four MiB of log.
const CHUNKS_PER_ADMISSION: usize = 1024;

struct Reference {
    id: u64,
    sequence: u32,
    bytes: usize,
}

impl Reference {
    fn decode(bytes: &[u8]) -> Result<Reference> {
        let mut r = Reader::new(bytes, "long value reference");
        let id = r.take(8)?;
        let id = u64::from_be_bytes(id.try_into().map_err(|_| r.fail("id"))?);
        let sequence = r.take(4)?;
        let sequence = u32::from_be_bytes(sequence.try_into().map_err(|_| r.fail("sequence"))?);
        let length = r.varint()?;
        let bytes = usize::try_from(length).ok().filter(|&n| n <= ROW_BYTES_MAX);
        let bytes = bytes.ok_or_else(|| r.fail("length over the limit"))?;
        r.finish()?;
        Ok(Reference { id, sequence, bytes })
    }

    fn chunks(&self) -> u32 {
        self.bytes.div_ceil(CHUNK_BYTES) as u32
    }

    fn key(&self, chunk: u32) -> [u8; 16] {
        let mut key = [0; 16];
        key[..8].copy_from_slice(&self.id.to_be_bytes());
        key[8..12].copy_from_slice(&self.sequence.to_be_bytes());
        key[12..].copy_from_slice(&chunk.to_be_bytes());
        key
    }
}

/// Decodes what may be a reference.
#[cfg(test)]
pub(crate) fn fuzz_reference(bytes: &[u8]) {
    if let Ok(reference) = Reference::decode(bytes) {
        assert!(reference.bytes <= ROW_BYTES_MAX);
        reference.key(reference.chunks());
    }
}

/// Whether a payload of this length lives out of line.
pub(crate) fn is_long(payload: &[u8]) -> bool {
    payload.len() > INLINE_BYTES_MAX
}

impl Trx {
    /// Writes the stored form of `payload` to `out`, and its chunks if it is long.
    pub(crate) fn store_payload(
        &mut self,
        table: &Table,
        payload: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<()> {
        out.clear();
        if !is_long(payload) {
            out.push(INLINE);
            out.extend_from_slice(payload);
            return Ok(());
        }
        if payload.len() > ROW_BYTES_MAX {
            return Err(Error::TooLarge {
                what: "row",
                bytes: payload.len(),
                limit: ROW_BYTES_MAX,
            });
        }
        self.long_sequence += 1;
        let id = self.session.ensure_id().0;
        let reference = Reference { id, sequence: self.long_sequence, bytes: payload.len() };
        for (chunk, bytes) in payload.chunks(CHUNK_BYTES).enumerate() {
            if chunk % CHUNKS_PER_ADMISSION == CHUNKS_PER_ADMISSION - 1 {
                // A value may be longer than the log: checkpoints go on while it is written.
                self.engine.admit(Purpose::Add, &|| self.session.is_interrupted())?;
            }
            let key = reference.key(chunk as u32);
            self.engine.check_room(Purpose::Add, &|| self.session.is_interrupted())?;
            let written =
                self.session.write(&table.long_values, &key, Some(bytes), Expect::Absent)?;
            assert_eq!(written, Written::Done, "keys of long values are used once");
        }
        out.push(REFERENCE);
        out.extend_from_slice(&reference.key(0)[..12]);
        put_varint(out, payload.len() as u64);
        Ok(())
    }

    /// Replaces a stored payload, as read from an entry, by the payload itself. `false`: a part of
    /// it is gone; only READ UNCOMMITTED may see that, whose rows nothing protects.
    pub(crate) fn load_payload(
        &mut self,
        table: &Table,
        mode: ReadMode,
        stored: &mut Vec<u8>,
    ) -> Result<bool> {
        let may_miss = self.isolation() == Isolation::ReadUncommitted;
        self.load(table, mode, may_miss, stored)
    }

    /// The payload of an entry's newest version. `false`: a part of it is gone, so the row is not
    /// this transaction's.
    pub(crate) fn load_newest(&mut self, table: &Table, stored: &mut Vec<u8>) -> Result<bool> {
        let newest = ReadMode::Lock { exclusive: false, wait: WaitPolicy::Wait };
        self.load(table, newest, true, stored)
    }

    /// The payload of a version that the snapshot sees. `false`: this transaction has deleted
    /// parts of it, so the row is its own.
    pub(crate) fn load_seen(&mut self, table: &Table, stored: &mut Vec<u8>) -> Result<bool> {
        self.load(table, ReadMode::Snapshot, true, stored)
    }

    fn load(
        &mut self,
        table: &Table,
        mode: ReadMode,
        may_miss: bool,
        stored: &mut Vec<u8>,
    ) -> Result<bool> {
        match stored.first() {
            Some(&INLINE) => {
                stored.drain(..1);
                Ok(true)
            }
            Some(&REFERENCE) => {
                let reference = Reference::decode(&stored[1..])?;
                self.load_chunks(table, mode, may_miss, &reference, stored)
            }
            _ => Err(Error::corrupt("unknown payload form", table.name.clone())),
        }
    }

    fn load_chunks(
        &mut self,
        table: &Table,
        mode: ReadMode,
        may_miss: bool,
        reference: &Reference,
        out: &mut Vec<u8>,
    ) -> Result<bool> {
        out.clear();
        if out.try_reserve_exact(reference.bytes).is_err() {
            return Err(Error::TooLarge {
                what: "row for the memory there is",
                bytes: reference.bytes,
                limit: out.capacity(),
            });
        }
        let mut bytes = Vec::new();
        for chunk in 0..reference.chunks() {
            let key = reference.key(chunk);
            let found = match mode {
                ReadMode::Snapshot => self.session.get(&table.long_values, &key, &mut bytes)?,
                // The row is locked: its newest chunks are the ones.
                ReadMode::Lock { .. } => {
                    self.session.get_newest(&table.long_values, &key, &mut bytes)?
                }
            };
            if !found && may_miss {
                return Ok(false);
            }
            if !found {
                let place = format!("{} chunk {chunk}", table.name);
                return Err(Error::corrupt("part of a long value is missing", place));
            }
            out.extend_from_slice(&bytes);
        }
        if out.len() != reference.bytes {
            let place = table.name.clone();
            return Err(Error::corrupt("long value has another length", place));
        }
        Ok(true)
    }

    /// Deletes the chunks of the value stored under `key` of index `index`, which is locked.
    pub(crate) fn delete_long(&mut self, table: &Table, index: usize, key: &[u8]) -> Result<()> {
        let mut stored = Vec::new();
        if !self.session.get_newest(&table.gates[index], key, &mut stored)? {
            return Ok(());
        }
        if stored.first() != Some(&REFERENCE) {
            return Ok(());
        }
        let reference = Reference::decode(&stored[1..])?;
        for chunk in 0..reference.chunks() {
            let key = reference.key(chunk);
            self.session.write(&table.long_values, &key, None, Expect::Present)?;
        }
        Ok(())
    }
}
