//! Room `wal`: when bytes become durable.
//!
//! One endless stream of bytes; an LSN is a position in it as it is in memory. The stream is cut into
//! *batches*, each of which starts at a block boundary with a header and ends with zeros up to the next
//! block. The files hold the batches one after the other, packed where that pays, and so a batch has a
//! *place* there, too; notes of each segment file lead from an LSN to its batch ([`notes`]), so that any
//! record can be read alone.
//!
//! Invariants:
//! 1. Every byte of the stream below [`Wal::end`] belongs to exactly one batch: header, records,
//!    padding. A block that holds acknowledged records is never written again.
//! 2. Batches follow each other in the files without a gap, whatever segments they begin and end in. The
//!    segment in which the batch of a kept position begins is kept. Batches that an older release has
//!    written stand at places equal to their LSNs, with gaps after packed ones.
//! 3. `oldest <= durable <= written <= end`. `durable` and `written` lie on batch boundaries.
//! 4. `durable` passes a batch only after a data-sync write of all of it, or after a sync of each
//!    file it lies in that began when its writes had returned.
//! 5. A batch carries its LSN, its place, its incarnation (a number new at every open, which seeds its
//!    checksum) and the durable LSN at its writing. At or above the LSN where the newest
//!    incarnation began only its own batches are valid; below it incarnations never decrease.
//!    The upper half of the number is drawn at creation: a batch of another log is never valid.
//! 6. An incarnation is durable in the control file before anything of it is appended; when it is
//!    written, everything below its start is durable.
//! 7. A recovered end below what is known durable (anchor, control file, or the header of a batch
//!    after it) is [`Corrupt`](crate::base::Error::Corrupt): never a shorter log.
//! 8. A segment's file is fully allocated, reads as zeros (written, unless it is over the capacity and
//!    soon goes), has its header and its name durable before the first batch in it is written. No room
//!    for one, on the disk or in the table of open files, is [`Full`](crate::base::Error::Full) and may
//!    be tried again. Any other failed write or sync poisons the log for ever.
//! 9. A batch takes no more room in the files than in memory. So what is appended and not written has room
//!    where its bytes in memory would have.
//! 10. Nobody waits in [`Wal::append`]: it takes the reservation mutex for arithmetic only.
//!
//! Life of a batch: *open* (`Ring::append` reserves and copies into it) -> *sealed* (`Ring::seal`,
//! or an append that finds it large enough; no more reservations) -> *finished* (`Leading::finish`:
//! all copies done, header and padding in place) -> *written* (`Leading::written`) -> *durable*
//! (`Wal::publish`). One thread, the flush leader, makes the last three steps at a time.
//!
//! Lock order: election, io, ring leader, reservation, cache, segments' maintenance, segments' set, segments' notes.

mod ahead;
mod append;
mod chain;
mod election;
mod flush;
mod format;
#[cfg(test)]
mod fuzz_tests;
mod inspect;
mod notes;
mod pack;
mod pinned;
mod positions;
mod read;
mod recover;
mod ring;
mod scanner;
mod segments;
mod starts;
mod stats;
mod waiter;

#[cfg(test)]
mod bench;
#[cfg(test)]
mod chain_tests;
#[cfg(test)]
mod crash_tests;
#[cfg(test)]
mod pack_tests;
#[cfg(test)]
mod tests;

pub use ahead::ReadAhead;
pub use append::Wal;
pub use format::WalAnchor;
pub use inspect::{
    damaged_control_copies, inspect, scan_files, BatchInfo, LogVisitor, SegmentState,
};
pub use pinned::PinnedLog;

use crate::base::compress::Compression;
use crate::base::Lsn;
use crate::cipher::Cipher;
use std::path::PathBuf;
use std::sync::Arc;

/// Kinds of records are below this, so that bytes can be counted by kind.
pub const RECORD_KINDS: usize = 32;

/// Where the log lives and how large its parts are.
#[derive(Clone, Debug)]
pub struct WalOptions {
    pub dir: PathBuf,
    /// Size the log's files may reach before unneeded ones are removed instead of kept for reuse.
    /// A soft limit: pinned segments are kept whatever their number.
    pub capacity_bytes: u64,
    /// Fixed when the log is created; an existing log keeps its own.
    pub segment_bytes: u64,
    /// Recent log kept in memory.
    pub cache_bytes: u64,
    /// How batches are packed; those that are in the log stay as they are.
    pub compression: Compression,
    /// Opens what is encrypted, and encrypts, if it does, what is written.
    pub cipher: Option<Arc<Cipher>>,
}

impl WalOptions {
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        WalOptions {
            dir: dir.into(),
            capacity_bytes: 1 << 30,
            segment_bytes: 16 << 20,
            cache_bytes: 32 << 20,
            compression: Compression::Lz4,
            cipher: None,
        }
    }
}

/// A position in the files of the log, of all that ever were, one after the other. Packed batches take less
/// there than in memory, so it grows more slowly than the LSN.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place(pub u64);

/// What an append returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// The record's start, which is its name for ever.
    pub lsn: Lsn,
    /// [`Wal::flush_to`] this makes the record durable.
    pub end: Lsn,
}

/// A record in somebody else's buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordRef<'a> {
    pub kind: u8,
    pub payload: &'a [u8],
}

impl RecordRef<'_> {
    /// What it takes in the log: from its LSN to its end.
    pub fn log_bytes(&self) -> u64 {
        format::record_bytes(self.payload.len())
    }
}

/// A record of one's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    pub kind: u8,
    pub payload: Vec<u8>,
}
