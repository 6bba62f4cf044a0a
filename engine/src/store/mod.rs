//! Room `store`: where a page is and how it is packed.
//!
//! Pages are written as variable-length records into the segments of one log-structured file,
//! never in place. The page map names the newest record of every page by place, length, LSN, tree
//! and checksum, so torn, lost and misdirected writes are all found on read.
//!
//! Invariants:
//! 1. Nothing durable names a record before a checkpoint does. A checkpoint captures the map,
//!    then syncs the pages file, has the log flushed past every LSN the captured map names, syncs
//!    the map changes, and only then writes the superblock, slot by slot.
//! 2. The superblock names the exact end and the chained checksum of the map change log; what
//!    lies after that end does not exist.
//! 3. Between checkpoints both superblock slots hold the same content (opening makes them so).
//!    When [`Store::checkpoint`] has returned `Ok`, no slot needs what an older one named.
//! 4. A segment is reused only if the current map and the map of both slots name nothing in it,
//!    and every read that began before it was retired has ended.
//! 5. A map entry changes only after its record was packed, under the lock of the stream that it
//!    was packed to; a segment is closed only when all its records are published. GC changes
//!    entries by compare-and-swap on the whole old entry.
//! 6. A read is reported [`Corrupt`](crate::base::Error::Corrupt) only if the map entry is
//!    unchanged after it failed.
//! 7. The map lock is never held over I/O. A full disk poisons nothing: what was packed stays
//!    readable in memory and is written later. Any other failed write or sync poisons the store:
//!    reads go on, everything else is refused.
//! 8. A leaf of the map is read without the map's lock, and is brought in only if the snapshot it
//!    was read from is still the current one. An entry changes only in a leaf that is in memory
//!    and pinned. A leaf that cannot be read costs the call that needs it, poisons nothing and
//!    undoes nothing; no snapshot is written without it, and the old one stays.
//! 9. Live bytes by segment and the sums by tree are those of the map, in memory, and in the change
//!    log up to its end.
//! 10. The last [`segments::RESERVED_SEGMENTS`] free segments that are there belong to GC, and the
//!     change log has disk space reserved after its end, so that a full store can be cleaned.
//! 11. Only a free segment becomes a hole or is cut off, under the same rule as invariant 4 has for its
//!     reuse. Nothing is written to a segment that this life has not reserved.
//! 12. While a backup is pinned, no segment that its checkpoint named is reused, punched or cut off, and its
//!     map files stay (`backup.rs`).
//! 13. A segment knows the oldest key of its live records, at the least. A key counts as not needed when a
//!     checkpoint has named the places of the pages that were under it anew, not when they have moved.
//! 14. A record is encrypted, if anything is, unless its tree was said to be plain (`choices.rs`). While some tree
//!     must be encrypted both slots of the superblock say so.
//!
//! Lock order: checkpointer or collector, then growth, then one stream, then state or tail. The
//! writing lock is taken with none of stream, state and tail held.
//!
//! Files: `superblock`, `pages`, `map-<generation>`, `mapchanges-<generation>`.

mod backup;
mod blocks;
mod checkpoint;
mod checkpointer;
mod choices;
mod counters;
mod engine;
mod entry;
mod epoch;
mod free;
#[cfg(test)]
mod fuzz_tests;
mod gc;
mod growth;
mod increment;
mod inspect;
mod leaf;
mod leaves;
mod map;
mod mapfile;
mod pages;
#[cfg(any(test, feature = "sim"))]
mod plainness;
mod policy;
mod promises;
mod read_plan;
mod record;
mod rotate;
mod segments;
mod snapshot;
mod space;
mod state;
mod stats;
mod stretch;
mod sums;
mod superblock;
#[cfg(test)]
mod tests;
mod victim;
mod written;

pub use crate::base::compress::Compression;
pub use backup::{FilePart, PinnedStore};
pub use engine::Store;
pub use entry::PAGE_ID_MAX;
pub use increment::{CopiedStore, PackedPiece};
pub use inspect::{file_names, PagePlace, StoreFiles, StoreHeader};
#[cfg(any(test, feature = "sim"))]
pub use plainness::trees_with_plain_records;
pub use policy::SPACE_PERCENT;
pub use stretch::Stretch;
pub use written::{Cause, PageBytes};

use crate::base::{Lsn, PageId, TreeId};
use crate::cipher::{Cipher, Scope};
use std::path::PathBuf;
use std::sync::Arc;

#[derive(Clone, Debug)]
pub struct StoreOptions {
    pub dir: PathBuf,
    /// The unit of reuse. An existing store keeps the size that it was created with.
    pub segment_bytes: u64,
    /// Memory for the page map, 24 bytes a page, and half of it the most that its change log may
    /// take on disk (or a segment, if that is more).
    pub map_bytes: usize,
    /// Opens what is encrypted, and encrypts, if it does, what is written.
    pub cipher: Option<Arc<Cipher>>,
    /// Of which trees, if the cipher encrypts.
    pub scope: Scope,
}

impl StoreOptions {
    pub const SEGMENT_BYTES_MIN: u64 = 64 << 10;

    #[cfg(test)]
    pub fn new(dir: impl Into<PathBuf>) -> StoreOptions {
        StoreOptions {
            dir: dir.into(),
            segment_bytes: 8 << 20,
            map_bytes: 16 << 20,
            cipher: None,
            scope: Scope::AllTables,
        }
    }
}

/// One page to be written. The store does not look into `bytes`.
#[derive(Clone, Copy)]
pub struct PageWrite<'a> {
    pub page: PageId,
    pub tree: TreeId,
    /// The page's LSN: the log must be durable past it before a checkpoint names this record.
    pub lsn: Lsn,
    /// Exactly `PAGE_BYTES`.
    pub bytes: &'a [u8],
    pub compression: Compression,
}
