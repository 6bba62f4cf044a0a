//! The segment that garbage collection is at.

use super::entry::MapEntry;
use super::segments::Life;
use crate::base::PageId;
use crate::os::AlignedBuf;

#[derive(Default)]
pub struct Collector {
    pub(super) victim: Option<Victim>,
    /// Of the rotation of keys.
    pub(super) rotating: Option<Victim>,
    /// The version of the key that is in use, and the epoch of packing in which that was seen first.
    pub(super) key_seen: (u32, u64),
}

pub(super) struct Victim {
    pub(super) life: Life,
    pub(super) start: u64,
    pub(super) bytes: AlignedBuf,
    /// Records that were live when the segment was read; the last is moved first.
    pub(super) live: Live,
}

pub(super) type Live = Vec<(PageId, MapEntry)>;

impl Victim {
    pub(super) fn record(&self, entry: MapEntry) -> &[u8] {
        let from = (entry.place() - self.start) as usize;
        &self.bytes[from..from + entry.record_bytes()]
    }
}
