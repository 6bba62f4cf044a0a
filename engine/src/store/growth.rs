//! How the pages file grows and shrinks: segments for the streams, and space that goes back to the file
//! system.
//!
//! The file gives back what is free beyond what the next minutes need: the segments at its end are
//! cut off, others become holes. Both happen in slices, and with no lock held over a hole. Only free
//! segments go: no map names them, that of neither slot, and no read can see them (invariants 3, 4).
//! What is a hole is reserved again before it is used, by the path on which the file grows, so that a
//! full disk says so there. Nothing on disk tells holes from room: each life takes all free segments
//! for possible holes until it has reserved them itself.

use super::counters::add;
use super::engine::Store;
use super::free::Room;
use super::pages::StreamKind;
use super::segments::RESERVED_SEGMENTS;
use crate::base::{Error, Result};
use crate::os::planted::{self, Bug};
use crate::os::SIMULATED;
use std::sync::atomic::Ordering::Relaxed;

/// Bytes that one step gives back, so that readers of the file never wait for long.
const SLICE_BYTES: u64 = 32 << 20;
/// A surplus goes back when it has lasted so long.
const SURPLUS_NS: u64 = if SIMULATED { 1 } else { 5_000_000_000 };

impl Store {
    /// A free segment. The caller holds no stream.
    pub(super) fn acquire_segment(&self, kind: StreamKind) -> Result<usize> {
        let try_acquire = |keep| self.state.write().segments.acquire(keep, &self.epochs);
        let _growth = match try_acquire(RESERVED_SEGMENTS) {
            Some(segment) => return Ok(segment),
            None => self.growth.lock(),
        };
        loop {
            if let Some(segment) = try_acquire(RESERVED_SEGMENTS) {
                return Ok(segment);
            }
            match self.add_room() {
                Ok(()) => self.full.store(false, Relaxed),
                Err(Error::Full { .. }) => {
                    self.full.store(true, Relaxed);
                    let kept = if kind == StreamKind::Survivors { 0 } else { RESERVED_SEGMENTS };
                    return try_acquire(kept).ok_or(Error::Full { what: "page store" });
                }
                Err(error) => return Err(self.poisoned_by(error)),
            }
        }
    }

    /// Reserves a free segment that may be a hole, or the next one beyond the end. The caller holds
    /// `growth`.
    fn add_room(&self) -> Result<()> {
        let lacking = self.state.write().segments.take_lacking(&self.epochs);
        if let Some(segment) = lacking {
            return self.reserve(segment);
        }
        let end = self.state.read().segments.count() as u64 * self.segment_bytes;
        self.pages.reserve(end, self.segment_bytes)?;
        self.state.write().segments.add_free();
        Ok(())
    }

    /// Reserves a free segment that was taken.
    fn reserve(&self, segment: usize) -> Result<()> {
        let done = self.pages.reserve(segment as u64 * self.segment_bytes, self.segment_bytes);
        let room = match &done {
            Ok(()) => Room::There,
            // A full disk may have reserved a part of it, which others need more.
            Err(Error::Full { .. }) => match self.punch(segment) {
                Ok(true) => Room::Hole,
                Ok(false) | Err(_) => Room::Unknown,
            },
            Err(_) => Room::Unknown,
        };
        self.state.write().segments.put_free(segment, room);
        done
    }

    /// On a full disk: free segments go back to it, a slice of them, beyond those that GC needs, so that
    /// the map and the log find room. Answers whether any did.
    pub fn give_back(&self) -> Result<bool> {
        self.give_back_to(RESERVED_SEGMENTS)
    }

    /// As [`Store::give_back`], but leaves only `keep` free segments.
    pub(super) fn give_back_to(&self, keep: usize) -> Result<bool> {
        let cut = self.cut_tail(keep)?;
        let punched = self.punch_some(keep)?;
        // A segment that lies at the end now is no loss.
        Ok(self.cut_tail(keep)? || cut || punched)
    }

    /// Background: what is free beyond the need of the next minutes goes back to the file system, a
    /// slice of it; answers whether there is more. Segments that an earlier life left free are
    /// reserved up to that need.
    pub fn give_back_step(&self) -> Result<bool> {
        if planted::is(Bug::PunchedTooEarly) {
            self.punch_releasable()?;
        }
        let (kept, (least, most)) = {
            let segments = &self.state.read().segments;
            (segments.kept(), self.kept_segments(&segments.totals()))
        };
        let giving = &self.giving_back.since_ns;
        let now_ns = self.os.now_ns().max(1);
        if kept > most {
            let _ = giving.compare_exchange(0, now_ns, Relaxed, Relaxed);
        } else if kept <= least || now_ns.saturating_sub(giving.load(Relaxed)) < SURPLUS_NS {
            giving.store(0, Relaxed);
        }
        let since_ns = giving.load(Relaxed);
        let is_due = since_ns > 0 && now_ns.saturating_sub(since_ns) >= SURPLUS_NS;
        Ok(is_due && self.give_back_to(least)? || self.reserve_unknown(least)?)
    }

    /// Reserves one of the free segments that an earlier life left, if there are fewer than `least`.
    fn reserve_unknown(&self, least: usize) -> Result<bool> {
        if self.is_full() {
            return Ok(false);
        }
        let unknown = {
            let segments = &mut self.state.write().segments;
            let lacks = segments.there() < least || self.giving_back.cannot_punch.load(Relaxed);
            lacks.then(|| segments.take_unknown(&self.epochs)).flatten()
        };
        let Some(segment) = unknown else { return Ok(false) };
        match self.reserve(segment) {
            Ok(()) => Ok(true),
            Err(Error::Full { .. }) => Ok(false),
            Err(error) => Err(self.poisoned_by(error)),
        }
    }

    fn slice_segments(&self) -> usize {
        (SLICE_BYTES / self.segment_bytes).max(1) as usize
    }

    fn cut_tail(&self, keep: usize) -> Result<bool> {
        let _growth = self.growth.lock();
        let (before, count) = {
            let mut state = self.state.write();
            let before = state.segments.count();
            (before, state.segments.cut(keep, self.slice_segments(), &self.epochs))
        };
        if count == before {
            return Ok(false);
        }
        // Until this is done nobody can use the place again: the file grows under the same lock.
        match self.pages.cut(count as u64 * self.segment_bytes) {
            Ok(()) => {
                add(&self.counters.returned_bytes, (before - count) as u64 * self.segment_bytes);
                Ok(true)
            }
            // A file that is longer than the table of segments does no harm.
            Err(Error::Full { .. }) => Ok(false),
            Err(error) => Err(self.poisoned_by(error)),
        }
    }

    /// Punches a slice of what is free beyond `keep` segments; answers whether any became a hole.
    fn punch_some(&self, keep: usize) -> Result<bool> {
        let cannot_punch = &self.giving_back.cannot_punch;
        if cannot_punch.load(Relaxed) {
            return Ok(false);
        }
        let most = self.slice_segments();
        let taken = self.state.write().segments.take_surplus(keep, most, &self.epochs);
        let (mut outcome, mut goes_on) = (Ok(false), true);
        for (segment, mut room) in taken {
            if goes_on {
                match self.punch(segment) {
                    Ok(true) => {
                        (room, outcome) = (Room::Hole, Ok(true));
                        add(&self.counters.returned_bytes, self.segment_bytes);
                    }
                    Ok(false) => {
                        cannot_punch.store(true, Relaxed);
                        goes_on = false;
                    }
                    // A file system that copies on write needs room for it.
                    Err(Error::Full { .. }) => (room, goes_on) = (Room::Unknown, false),
                    Err(error) => {
                        // Nobody needs its bytes, so nothing is lost; but it is not tried again.
                        cannot_punch.store(true, Relaxed);
                        (room, goes_on, outcome) = (Room::Unknown, false, Err(error));
                    }
                }
            }
            self.state.write().segments.put_free(segment, room);
        }
        outcome
    }

    fn punch(&self, segment: usize) -> Result<bool> {
        self.pages.punch(segment as u64 * self.segment_bytes, self.segment_bytes)
    }

    /// The bug: what the next checkpoint would free, a slot still names.
    fn punch_releasable(&self) -> Result<()> {
        let releasable = self.state.read().segments.releasable();
        for segment in releasable {
            self.punch(segment)?;
            self.pages.reserve(segment as u64 * self.segment_bytes, self.segment_bytes)?;
        }
        Ok(())
    }
}
