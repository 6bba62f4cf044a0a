//! Payloads that are too long for a leaf: their chunks are entries of the table's tree of long
//! values (see `payload`), with versions like any other, so snapshots, rollback and purge need no rule
//! of their own for them.

use super::payload::{is_long, Reference, CHUNK_BYTES, INLINE, REFERENCE};
use super::trx::Trx;
use crate::base::codec::put_varint;
use crate::base::limits::ROW_BYTES_MAX;
use crate::base::{Error, Payload, Result};
use crate::db::lease::Purpose;
use crate::db::tables::Table;
use crate::txn::{Expect, Isolation, ReadMode, WaitPolicy, Written};

/// Four MiB of log.
const CHUNKS_PER_ADMISSION: usize = 1024;

impl Trx {
    /// The stored form of `payload`. A long one leaves its chunks in the table's tree for them, and a
    /// reference in `out`.
    pub(crate) fn store_payload<'p>(
        &mut self,
        table: &Table,
        payload: &'p [u8],
        out: &'p mut Vec<u8>,
    ) -> Result<Payload<'p>> {
        if !is_long(payload) {
            return Ok(Payload(&[INLINE], payload));
        }
        out.clear();
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
                self.session.write(&table.long_values, &key, Some(bytes.into()), Expect::Absent)?;
            assert_eq!(written, Written::Done, "keys of long values are used once");
        }
        out.push(REFERENCE);
        out.extend_from_slice(&reference.key(0)[..12]);
        put_varint(out, payload.len() as u64);
        Ok(Payload::from(&out[..]))
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
