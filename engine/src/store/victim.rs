//! The segment that garbage collection is at.

use super::entry::MapEntry;
use super::segments::Life;
use crate::base::PageId;
use crate::os::AlignedBuf;

#[derive(Default)]
pub struct Collector {
    pub(super) victim: Option<Victim>,
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
