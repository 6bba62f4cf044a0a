//! One entry of the page map: identity and place of a page's newest record.

use crate::base::codec::{put_u32, put_u64, put_varint, Reader};
use crate::base::{Lsn, Result, TreeId, PAGE_BYTES};
use crate::cipher::ENVELOPE_BYTES;

/// Bounds the upper level, also for ids that a caller or a file got wrong (1 PiB of pages).
pub const PAGE_ID_MAX: u64 = (1 << 36) - 1;
const PLACE_BITS: u32 = 48;
/// First offset that an entry cannot name.
pub const PLACE_END: u64 = 1 << PLACE_BITS;

/// Before the payload of a record, which is at most a page and an envelope: `record.rs` has the layout.
pub const HEADER_BYTES: usize = 28;
pub const RECORD_BYTES_MAX: usize = HEADER_BYTES + PAYLOAD_BYTES_MAX;
pub const PAYLOAD_BYTES_MAX: usize = ENVELOPE_BYTES + PAGE_BYTES;

/// Identity and place of a page's newest record. The record must match all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapEntry {
    /// Offset in the low 48 bits, record bytes in the high 16. All zero: no such page.
    packed: u64,
    lsn: u64,
    tree: u32,
    checksum: u32,
}

const _: () = assert!(std::mem::size_of::<MapEntry>() == 24);

impl MapEntry {
    pub const NONE: MapEntry = MapEntry { packed: 0, lsn: 0, tree: 0, checksum: 0 };

    pub fn new(place: u64, record_bytes: usize, lsn: Lsn, tree: TreeId, checksum: u32) -> MapEntry {
        assert!(place < PLACE_END);
        assert!(record_bytes > 0 && record_bytes <= usize::from(u16::MAX));
        let packed = place | (record_bytes as u64) << PLACE_BITS;
        MapEntry { packed, lsn: lsn.0, tree: tree.0, checksum }
    }

    /// The parts as they are persisted: (place and length, LSN, tree, checksum).
    pub fn parts(&self) -> (u64, u64, u32, u32) {
        (self.packed, self.lsn, self.tree, self.checksum)
    }

    /// The inverse of [`MapEntry::parts`]; any bits are accepted, the loader checks them.
    pub fn from_parts(packed: u64, lsn: u64, tree: u32, checksum: u32) -> MapEntry {
        MapEntry { packed, lsn, tree, checksum }
    }

    /// Whether a record can lie there: in one of `segments` segments, and of a possible length.
    pub fn is_possible(&self, segment_bytes: u64, segments: u64) -> bool {
        let bytes = self.record_bytes();
        let segment = self.place() / segment_bytes;
        (HEADER_BYTES + 1..=RECORD_BYTES_MAX).contains(&bytes)
            && segment < segments
            && (self.place() + bytes as u64 - 1) / segment_bytes == segment
    }

    pub fn is_none(&self) -> bool {
        self.packed == 0
    }

    pub fn place(&self) -> u64 {
        self.packed & (PLACE_END - 1)
    }

    pub fn record_bytes(&self) -> usize {
        (self.packed >> PLACE_BITS) as usize
    }

    pub fn lsn(&self) -> Lsn {
        Lsn(self.lsn)
    }

    pub fn tree(&self) -> TreeId {
        TreeId(self.tree)
    }

    pub fn checksum(&self) -> u32 {
        self.checksum
    }
}

pub(super) fn put_entry(out: &mut Vec<u8>, entry: MapEntry) {
    let (packed, lsn, tree, check) = entry.parts();
    put_u64(out, packed);
    put_varint(out, lsn);
    put_varint(out, u64::from(tree));
    put_u32(out, check);
}

pub(super) fn take_entry(r: &mut Reader<'_>) -> Result<MapEntry> {
    let packed = r.u64()?;
    let lsn = r.varint()?;
    let tree = u32::try_from(r.varint()?).map_err(|_| r.fail("tree id over 32 bits"))?;
    let entry = MapEntry::from_parts(packed, lsn, tree, r.u32()?);
    if entry.is_none() || entry.record_bytes() == 0 {
        return Err(r.fail("entry without a record"));
    }
    Ok(entry)
}
