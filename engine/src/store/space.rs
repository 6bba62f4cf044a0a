//! How much dead space the store puts up with, and what it does about more.
//!
//! Dead bytes pass through two stages: *collectable*, in segments that hold live records too,
//! until GC has moved those; then *releasable*, until a checkpoint has forgotten the segment. Each
//! stage has its share of the live bytes. GC begins at its share and works the harder the closer
//! it comes to the limit; a checkpoint is due at its share; when both together come near the limit,
//! writers rest after each change, the longer the more dead bytes there are ([`Store::debt_percent`]).

use super::engine::Store;
use super::entry::MapEntry;
use super::policy::{SpacePolicy, SPACE_PERCENT_MAX, SPACE_PERCENT_MIN};
use super::segments::{SegmentTotals, RESERVED_SEGMENTS};
use crate::os::SIMULATED;
use std::sync::atomic::Ordering::Relaxed;

/// A change of the map in the change log takes no more.
const LOGGED_CHANGE_BYTES_MAX: u64 = 40;

/// Fewer dead segments than this are not worth a checkpoint: the constant beside the shares.
const CHECKPOINT_SEGMENTS_MIN: u64 = 4;
const LIMIT_SEGMENTS_MIN: u64 = 12;
const KEPT_SEGMENTS_MIN: u64 = if SIMULATED { 1 } else { CHECKPOINT_SEGMENTS_MIN };
/// Share of the limit of dead bytes from which on writers rest.
const DEBT_BEGIN_PERCENT: u64 = 80;
const GAIN_SHARE: u64 = 10;
const GAIN_SHARE_FULL: u64 = 64;

impl Store {
    /// From now on the segments in use are to take at most so many percent of the live bytes. GC
    /// copies more the fewer they are. Values out of range are taken for the next one within.
    pub fn set_space_percent(&self, percent: u64) {
        let percent = percent.clamp(SPACE_PERCENT_MIN, SPACE_PERCENT_MAX);
        self.space_percent.store(percent, Relaxed);
        self.debt_bytes_eased.store(u64::MAX, Relaxed);
        self.refresh_debt();
    }

    fn policy(&self) -> SpacePolicy {
        SpacePolicy::of(self.space_percent.load(Relaxed))
    }

    /// How many free segments the store keeps for the next minutes, and how many are a surplus: the
    /// next checkpoint frees as many again as its share.
    pub(super) fn kept_segments(&self, totals: &SegmentTotals) -> (usize, usize) {
        let share = totals.live_bytes / 100 * self.policy().checkpoint_percent;
        let turn = (share / self.segment_bytes).max(KEPT_SEGMENTS_MIN) as usize;
        let least = RESERVED_SEGMENTS + turn + turn / 2;
        (least, least + turn)
    }

    fn totals(&self) -> SegmentTotals {
        self.state.read().segments.totals()
    }

    /// Dead bytes that only a checkpoint turns into free ones have grown large.
    /// Or the changes of the map that no checkpoint took take much of its memory, or of the room
    /// that is reserved for them in the change log: a disk that others fill must not keep the
    /// checkpoint from being written.
    pub fn wants_checkpoint(&self) -> bool {
        let (totals, changes, limit_bytes) = {
            let state = self.state.read();
            (state.segments.totals(), state.map.changes() as u64, state.map.changes_limit_bytes())
        };
        let changed_bytes = changes * std::mem::size_of::<MapEntry>() as u64;
        let logged_bytes = changes * LOGGED_CHANGE_BYTES_MAX;
        if changed_bytes > limit_bytes.max(self.segment_bytes)
            || logged_bytes > self.changes_reserve_bytes() / 2
        {
            return true;
        }
        let share = totals.live_bytes / 100 * self.policy().checkpoint_percent;
        totals.releasable_bytes > share.max(CHECKPOINT_SEGMENTS_MIN * self.segment_bytes)
            || (self.is_full() && totals.releasable_bytes > 0)
    }

    /// How hard GC should work: 0 not at all, 100 without any rest.
    pub fn gc_pressure_percent(&self) -> u64 {
        let totals = self.totals();
        if self.is_full() && totals.collectable_bytes >= self.least_gain_bytes() {
            return 100;
        }
        let (policy, live) = (self.policy(), totals.live_bytes);
        let reserve = RESERVED_SEGMENTS as u64 * self.segment_bytes;
        let begin = (live / 100 * policy.gc_percent).max(reserve);
        let flat_out = (live / 100 * policy.gc_hard_percent).max(begin + self.segment_bytes);
        match totals.collectable_bytes {
            dead if dead <= begin => 0,
            dead if dead >= flat_out => 100,
            dead => ((dead - begin) * 100 / (flat_out - begin)).max(1),
        }
    }

    /// Dead bytes that make a segment worth cleaning. On a full disk nearly all do: pages of a
    /// small pool, spread over all segments, would otherwise never be collected.
    pub(super) fn least_gain_bytes(&self) -> u64 {
        let share = if self.is_full() { GAIN_SHARE_FULL } else { GAIN_SHARE };
        self.segment_bytes / share
    }

    /// Enough dead bytes lie in segments that only GC can free.
    #[cfg(test)]
    pub fn wants_gc(&self) -> bool {
        self.gc_pressure_percent() > 0
    }

    /// Dead bytes that writers keep away from. There may be more of them when the store is opened, or
    /// a tighter target is set: then writers rest only if there come to be more yet.
    fn dead_limit_bytes(&self, totals: &SegmentTotals) -> u64 {
        let constant = LIMIT_SEGMENTS_MIN * self.segment_bytes;
        let dead = totals.collectable_bytes + totals.releasable_bytes;
        let eased = dead + dead / 4 + constant;
        let eased = self.debt_bytes_eased.fetch_min(eased, Relaxed).min(eased);
        eased.max(totals.live_bytes / 100 * self.policy().limit_percent + constant)
    }

    /// How far GC and checkpoints are behind: writers, who make more dead bytes, rest in proportion.
    /// 0: not at all; 100: the dead bytes are at their limit. What GC and checkpoints cannot free
    /// (damaged segments, padding) does not count.
    pub fn debt_percent(&self) -> u64 {
        self.debt_percent.load(Relaxed)
    }

    /// To be called whenever dead bytes became more, by about a segment, or fewer.
    pub(super) fn refresh_debt(&self) {
        let totals = self.totals();
        let dead = totals.collectable_bytes + totals.releasable_bytes;
        let limit = self.dead_limit_bytes(&totals);
        // 0 at this share of the limit, 100 at the limit, and more beyond.
        let begin = limit / 100 * DEBT_BEGIN_PERCENT;
        let percent = dead.saturating_sub(begin) * 100 / (limit - begin).max(1);
        self.debt_percent.store(percent, Relaxed);
    }

    /// The owner found that the disk has no room to spare (or that it has again): then all dead
    /// space is worth collecting.
    pub fn set_short(&self, short: bool) {
        self.short.store(short, Relaxed);
    }

    /// As [`Store::set_short`] said; or the last attempt to grow found no room and nothing became
    /// free since.
    pub fn is_full(&self) -> bool {
        self.full.load(Relaxed) || self.short.load(Relaxed)
    }

    /// Bytes for ordinary writes that the file system has reserved already.
    pub fn free_bytes(&self) -> u64 {
        let reserve = RESERVED_SEGMENTS as u64 * self.segment_bytes;
        let there = self.state.read().segments.there() as u64 * self.segment_bytes;
        there.saturating_sub(reserve)
    }
}
