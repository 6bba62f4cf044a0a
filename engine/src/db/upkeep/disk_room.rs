//! Room on the disk: new work is refused while what is under way can still be ended (rules M12).
//!
//! Room for these must always be left: in the page store every dirty page once, so that a checkpoint can write
//! them all, and GC's reserve; in the log a segment for outcomes, and as much as the transactions
//! under way have logged, so that all of them can be taken back, and the purge be done. For all
//! but deletes every page counts that the pool may make dirty: so deletes, which make room, find
//! some left.
//!
//! A measurement is good for some bytes of log and until the next background step, so that an
//! ordinary row operation pays one comparison.

use crate::base::{Error, Result, BLOCK_BYTES, PAGE_BYTES};
use crate::db::callbacks::Killed;
use crate::db::engine::Engine;
use crate::db::lease::Purpose;
use crate::store::PAGE_ID_MAX;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// A measurement is good for this share of what it found beyond the reserve.
const LEASE_SHARE: u64 = 8;
const LEASE_BYTES_MAX: u64 = 32 << 20;
/// Rest of a row operation for each percent that GC is behind, and its limit.
const GC_REST_PER_PERCENT: Duration = Duration::from_micros(40);
const GC_REST_MAX: Duration = Duration::from_millis(40);
/// Longest that a delete waits for room.
const DELETE_WAIT_MAX: Duration = Duration::from_secs(4);
/// Page ids left for what is under way, and for deletes.
const PAGE_IDS_KEPT: u64 = 1 << 24;
const GC_WAIT_SLICE: Duration = Duration::from_millis(10);

/// Bytes that are there and bytes that must stay.
struct Measured {
    what: &'static str,
    have: u64,
    need: u64,
}

impl Engine {
    /// Refuses work for which there is no room; called with no latch held.
    pub(crate) fn check_room(&self, purpose: Purpose, killed: &Killed<'_>) -> Result<()> {
        if self.wal.end().0 < self.lease.end.load(Relaxed) {
            return Ok(());
        }
        let refused = self.measure_room(purpose, killed);
        if refused.is_err() {
            self.lease.refused.fetch_add(1, Relaxed);
        }
        refused
    }

    /// Whether the last measurement found too little for new work.
    pub(crate) fn is_short_of_room(&self) -> bool {
        self.lease.short.load(Relaxed)
    }

    /// Background: the disk may have changed, and nobody may be writing.
    pub(crate) fn refresh_room(&self) {
        self.lease.end.store(0, Relaxed);
        // The next writer is told.
        let _ = self.measure_room(Purpose::Add, &|| false);
    }

    /// Ids are never used twice. Without one, pages that are made could not be written: new work is
    /// refused before.
    fn check_page_ids(&self) -> Result<()> {
        if self.env.next_page().0 < PAGE_ID_MAX - PAGE_IDS_KEPT {
            return Ok(());
        }
        Err(Error::Refused(format!(
            "nearly all {PAGE_ID_MAX} page ids of {} have been used: dump its tables and load them \
             into a new data directory",
            self.config.data_dir.display()
        )))
    }

    fn measure_room(&self, purpose: Purpose, killed: &Killed<'_>) -> Result<()> {
        if purpose == Purpose::Add {
            self.check_page_ids()?;
        }
        let mut tightest = self.tightest(Purpose::Add);
        // Nobody is refused for the sake of a backup.
        if (tightest.have < tightest.need || self.store.is_full()) && self.give_up_backup() {
            tightest = self.tightest(Purpose::Add);
        }
        let spare = tightest.have.saturating_sub(tightest.need);
        let short = tightest.have < tightest.need;
        self.lease.short.store(short, Relaxed);
        self.store.set_short(short);
        if !short {
            let lease = (spare / LEASE_SHARE).min(LEASE_BYTES_MAX);
            self.lease.end.store(self.wal.end().0 + lease, Relaxed);
            return Ok(());
        }
        if purpose == Purpose::Delete {
            return self.make_room_for_delete(killed);
        }
        Err(Error::Full { what: tightest.what })
    }

    /// A delete waits for what GC and checkpoints can do for it.
    fn make_room_for_delete(&self, killed: &Killed<'_>) -> Result<()> {
        let mut waited = Duration::ZERO;
        loop {
            let tightest = self.tightest(Purpose::Delete);
            if tightest.have >= tightest.need {
                return Ok(());
            }
            if waited >= DELETE_WAIT_MAX {
                return Err(Error::Full { what: tightest.what });
            }
            self.check_running()?;
            if killed() {
                return Err(Error::Interrupted);
            }
            if self.config.background {
                self.wake_background();
                waited += self.wait_for_announcement(GC_WAIT_SLICE);
            } else {
                // A failure here is seen in the next measurement.
                let _ = self.step();
                waited += DELETE_WAIT_MAX / 16;
            }
        }
    }

    /// On a full disk: the log and the page store, of which one may have what the other lacks, give back
    /// to it what they do not need themselves. GC comes later: it would use up what the log needs for
    /// the checkpoint that frees what GC has moved.
    pub(crate) fn share_room(&self) -> Result<()> {
        if !self.is_short_of_room() {
            return Ok(());
        }
        self.wal.give_back(self.log_need_bytes() + self.wal.segment_bytes())?;
        self.store.give_back().map(drop)
    }

    fn tightest(&self, purpose: Purpose) -> Measured {
        let store = Measured {
            what: "page store",
            have: self.store.free_bytes(),
            need: self.store_need_bytes(purpose),
        };
        let log =
            Measured { what: "log", have: self.wal.room_bytes(), need: self.log_need_bytes() };
        // A look-up that fails must not stop writes: a full disk will be noticed.
        let free = |path| self.os.free_bytes(path).unwrap_or(u64::MAX / 2);
        let data_free = free(&self.config.data_dir);
        if self.config.log_dir.is_some() {
            let log_free = free(&self.config.log_dir());
            let store = Measured { have: store.have.saturating_add(data_free), ..store };
            let log = Measured { have: log.have.saturating_add(log_free), ..log };
            let slack = |m: &Measured| m.have as i128 - m.need as i128;
            return if slack(&log) < slack(&store) { log } else { store };
        }
        // Both grow on one disk: each first uses its own.
        let lacks = |m: &Measured| m.need.saturating_sub(m.have);
        Measured { what: "disk", have: data_free, need: lacks(&store) + lacks(&log) }
    }

    /// The pages at the usual size of a record, with a margin, and as much as GC and the page map
    /// keep; for all but deletes also what checkpoints append to the change log of the page map until
    /// it is replaced.
    fn store_need_bytes(&self, purpose: Purpose) -> u64 {
        let pool = self.pool.stats();
        let store = self.store.stats();
        let record_bytes = match store.pages {
            0 => PAGE_BYTES as u64,
            pages => (store.live_bytes / pages).clamp(BLOCK_BYTES as u64, PAGE_BYTES as u64),
        };
        let (may_be_dirty, map_bytes) = match purpose {
            Purpose::Add => {
                (store.pages.min(self.pool.dirty_max()), self.store.changes_reserve_bytes())
            }
            Purpose::Delete => (0, 0),
        };
        (pool.owed_pages + pool.dirty.max(may_be_dirty)) * record_bytes * 5 / 4
            + 2 * store.segment_bytes
            + map_bytes
    }

    /// One segment for outcomes, and what taking back and purging can need at most.
    fn log_need_bytes(&self) -> u64 {
        let end = self.wal.end();
        let owed = self.ctx.registry.oldest_lsn().map_or(0, |lsn| end.0.saturating_sub(lsn.0));
        owed + self.wal.segment_bytes()
    }

    /// Rests as long as the dead bytes in the store ask for: so GC keeps up, and nobody waits for long.
    pub(crate) fn wait_for_gc(&self) {
        let debt_percent = self.store.debt_percent();
        if debt_percent == 0 || !self.config.background {
            return;
        }
        self.lease.gc_waits.fetch_add(1, Relaxed);
        self.wait_for_announcement(GC_REST_MAX.min(GC_REST_PER_PERCENT * debt_percent as u32));
    }
}
