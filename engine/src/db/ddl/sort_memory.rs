//! The run of a sorter that is in memory: its entries from the front of a mapping, and their places, which are what
//! is sorted, in another.
//!
//! Not in the heap: that would keep megabytes of each index build for as long as the server runs, in each thread's
//! own arena (seen: 106 MiB after four builds).
//!
//! ```text
//! entry   key, varint length of the value, value
//! place   8 bytes: where the entry begins << 32 | length of the key
//! ```

use crate::base::codec::{put_varint, Reader};
use crate::os::AlignedBuf;

const PLACE_BYTES: usize = 8;
/// A varint at its longest.
const LENGTH_BYTES_MAX: usize = 10;

pub(super) struct SortMemory {
    memory_bytes: usize,
    bytes: AlignedBuf,
    end: usize,
    places: AlignedBuf,
    count: usize,
    /// For a length.
    scratch: Vec<u8>,
}

/// Invariant: where an entry begins is below `memory_bytes`, so that it fits into its place.
impl SortMemory {
    pub fn new(memory_bytes: usize) -> SortMemory {
        let memory_bytes = memory_bytes.min(u32::MAX as usize);
        SortMemory {
            memory_bytes,
            bytes: AlignedBuf::new(memory_bytes),
            end: 0,
            places: AlignedBuf::new(memory_bytes),
            count: 0,
            scratch: Vec::with_capacity(LENGTH_BYTES_MAX),
        }
    }

    pub fn count(&self) -> usize {
        self.count
    }

    pub fn is_full(&self) -> bool {
        self.end + self.count * PLACE_BYTES >= self.memory_bytes
    }

    /// Whether the entry has room beside the others. Alone, it may be larger than the memory.
    pub fn has_room(&self, key: &[u8], value: &[u8]) -> bool {
        self.end + key.len() + LENGTH_BYTES_MAX + value.len() <= self.bytes.len() || self.count == 0
    }

    /// Of an entry that has room.
    pub fn push(&mut self, key: &[u8], value: &[u8]) {
        self.scratch.clear();
        put_varint(&mut self.scratch, value.len() as u64);
        let end = self.end + key.len() + self.scratch.len() + value.len();
        if end > self.bytes.len() {
            assert_eq!(self.count, 0, "an entry without room beside others");
            self.bytes = AlignedBuf::new(end);
        }
        let mut to = &mut self.bytes[self.end..end];
        for part in [key, &self.scratch, value] {
            let (front, rest) = to.split_at_mut(part.len());
            front.copy_from_slice(part);
            to = rest;
        }
        self.places.words_mut()[self.count] = (self.end as u64) << 32 | key.len() as u64;
        (self.end, self.count) = (end, self.count + 1);
    }

    pub fn sort(&mut self) {
        let SortMemory { bytes, places, count, .. } = self;
        let key = |place: u64| key_of(bytes, place);
        places.words_mut()[..*count].sort_unstable_by(|a, b| key(*a).cmp(key(*b)));
    }

    pub fn key(&self, at: usize) -> &[u8] {
        key_of(&self.bytes, self.places.words()[at])
    }

    pub fn value(&self, at: usize) -> &[u8] {
        let place = self.places.words()[at];
        let key = key_of(&self.bytes, place);
        let mut rest = Reader::new(&self.bytes[start_of(place) + key.len()..], "sorted entry");
        rest.bytes().expect("as it was put")
    }

    pub fn clear(&mut self) {
        (self.end, self.count) = (0, 0);
    }
}

fn start_of(place: u64) -> usize {
    (place >> 32) as usize
}

fn key_of(bytes: &[u8], place: u64) -> &[u8] {
    let start = start_of(place);
    &bytes[start..start + (place & u64::from(u32::MAX)) as usize]
}
