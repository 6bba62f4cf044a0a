//! How a payload is stored.
//!
//! It starts with one byte: 0, the payload follows; or 1, a reference follows
//! (u64 BE id, u32 BE sequence, varint length) to chunks in the table's tree of long values,
//! whose keys are (id, sequence, u32 BE chunk number).

use crate::base::codec::Reader;
use crate::base::limits::{ROW_BYTES_MAX, VALUE_BYTES_MAX};
use crate::base::{Result, ENTRY_HEADER_BYTES};

pub(in crate::db) const INLINE: u8 = 0;
pub(super) const REFERENCE: u8 = 1;
/// Longest payload that stays in the leaf, so that a leaf holds several rows.
pub(crate) const INLINE_BYTES_MAX: usize = VALUE_BYTES_MAX - ENTRY_HEADER_BYTES - 1;
pub(super) const CHUNK_BYTES: usize = VALUE_BYTES_MAX - ENTRY_HEADER_BYTES;

pub(super) struct Reference {
    pub id: u64,
    pub sequence: u32,
    pub bytes: usize,
}

impl Reference {
    pub fn decode(bytes: &[u8]) -> Result<Reference> {
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
