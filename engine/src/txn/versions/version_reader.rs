//! Reading the versions of neighbouring entries: a scan of the rows of one large transaction asks
//! for one record after the other, and shall not pay a read of the disk for each.

use crate::base::{Lsn, Result};
use crate::wal::{ReadAhead, Record, Wal};

/// Records that lie no further apart than this follow each other.
const NEAR_BYTES: u64 = 64 << 10;
/// After so many in a row the log is read in pieces.
const STREAK: u32 = 4;

#[derive(Default)]
pub(crate) struct VersionReader {
    last: Lsn,
    is_backward: bool,
    streak: u32,
    ahead: Option<ReadAhead>,
}

impl VersionReader {
    pub fn read(&mut self, wal: &Wal, lsn: Lsn) -> Result<Record> {
        let is_backward = lsn < self.last;
        let is_near = lsn.0.abs_diff(self.last.0) <= NEAR_BYTES;
        if !is_near || is_backward != self.is_backward {
            self.release();
        }
        self.last = lsn;
        self.is_backward = is_backward;
        self.streak = self.streak.saturating_add(1);
        if self.streak <= STREAK {
            return wal.read(lsn);
        }
        let ahead = self.ahead.get_or_insert_with(|| match is_backward {
            true => ReadAhead::backward(),
            false => ReadAhead::forward(),
        });
        wal.read_along(lsn, ahead)
    }

    /// Gives the memory back.
    pub fn release(&mut self) {
        self.streak = 0;
        self.ahead = None;
    }
}
