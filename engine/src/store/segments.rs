//! The use of each segment of the pages file.
//!
//! ```text
//!            acquire            close             release (after a checkpoint,
//!   Free  ------------> Open  ---------> Closed   only without live bytes)
//!    ^                                     |
//!    +-------------------------------------+   usable once the readers of that epoch have left
//!    ^                 | of a segment that a backup has pinned
//!    +----- Held <-----+
//!    unpin
//! ```
//! A free one may be a hole of the file: see `free`.

use super::epoch::Epochs;
use super::free::{FreeSegments, Room};
use crate::cipher::Oldest;
use crate::os::planted::{self, Bug};
use std::collections::BTreeMap;
use std::ops::{Add as _, Sub as _};

/// Segments that only GC may take when the disk gives no more: without them a full store could
/// never be cleaned.
pub const RESERVED_SEGMENTS: usize = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    Free,
    Open,
    /// Full, or left behind by an earlier life; `at` counts closings, so a lower one is older.
    Closed {
        at: u64,
        aside: Aside,
    },
    /// No durable map but that of a backup names it.
    Held,
}

/// Whether GC leaves a segment alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Aside {
    No,
    /// Reading failed, which may pass.
    UntilCheckpoint,
    /// Holds a damaged record, or one of a damaged leaf of the map.
    Bad,
}

#[derive(Clone, Copy, Debug)]
struct Segment {
    usage: Use,
    live_bytes: u64,
    /// Bytes of all records that were ever published in it; the rest is padding, which GC would
    /// only pad again. Unknown, so taken for the whole segment, if an earlier life wrote it.
    packed_bytes: u64,
    /// Of its live records, at the least: a newer one may be true.
    oldest: Oldest,
    /// Its live bytes changed since a checkpoint took them.
    changed: bool,
    /// Its blocks were reserved in this life. (Those of an earlier life are, too, unless somebody
    /// copied the file without what was zero.)
    is_reserved: bool,
    /// A backup may read it: it is not free before that has ended.
    pinned: bool,
}

impl Segment {
    fn new(usage: Use) -> Segment {
        Segment {
            usage,
            live_bytes: 0,
            packed_bytes: 0,
            oldest: Oldest::None,
            changed: false,
            is_reserved: false,
            pinned: false,
        }
    }

    /// Of a segment that becomes free.
    fn room(&self) -> Room {
        match self.is_reserved {
            true => Room::There,
            false => Room::Unknown,
        }
    }

    fn totals(&self, segment_bytes: u64) -> SegmentTotals {
        let mut totals =
            SegmentTotals { segments: 1, live_bytes: self.live_bytes, ..Default::default() };
        match self.usage {
            Use::Free => totals.free_bytes = segment_bytes,
            Use::Closed { .. } if self.live_bytes == 0 => totals.releasable_bytes = segment_bytes,
            Use::Closed { aside: Aside::No, .. } => {
                totals.collectable_bytes = self.packed_bytes - self.live_bytes;
            }
            Use::Held => totals.held_bytes = segment_bytes,
            _ => {}
        }
        totals
    }
}

/// A closed segment, until it is free: its place may then hold others, or lie beyond the end of the file.
/// GC works on one without keeping it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Life {
    pub segment: usize,
    closed_at: u64,
}

/// Totals in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SegmentTotals {
    pub segments: u64,
    /// Of all free segments, holes or not.
    pub free_bytes: u64,
    pub live_bytes: u64,
    /// Dead bytes of closed segments that still hold live ones: only GC frees them.
    pub collectable_bytes: u64,
    /// Closed segments without a live byte: the next checkpoint frees them.
    pub releasable_bytes: u64,
    /// Free but for a backup.
    pub held_bytes: u64,
}

impl SegmentTotals {
    /// Field by field.
    fn join(self, other: SegmentTotals, op: fn(u64, u64) -> u64) -> SegmentTotals {
        SegmentTotals {
            segments: op(self.segments, other.segments),
            free_bytes: op(self.free_bytes, other.free_bytes),
            live_bytes: op(self.live_bytes, other.live_bytes),
            collectable_bytes: op(self.collectable_bytes, other.collectable_bytes),
            releasable_bytes: op(self.releasable_bytes, other.releasable_bytes),
            held_bytes: op(self.held_bytes, other.held_bytes),
        }
    }
}

pub struct SegmentTable {
    segment_bytes: u64,
    segments: Vec<Segment>,
    /// Of all segments; kept up by [`SegmentTable::change`].
    totals: SegmentTotals,
    /// Free segments, but for those that are about to be reserved or given back.
    free: FreeSegments,
    closings: u64,
    /// The segments marked so.
    changed: Vec<usize>,
    /// Those that were [`Aside::UntilCheckpoint`] since the last one.
    put_off: Vec<Life>,
}

impl SegmentTable {
    /// The table of a file of `count` segments: what holds live bytes is closed, all others are
    /// free. Nobody knows any more which of those an earlier life gave back.
    /// `oldest`: of all of them together.
    pub fn load(
        segment_bytes: u64,
        count: usize,
        live: &BTreeMap<usize, u64>,
        oldest: Oldest,
    ) -> SegmentTable {
        let mut table = SegmentTable {
            segment_bytes,
            segments: Vec::with_capacity(count),
            totals: SegmentTotals::default(),
            free: FreeSegments::default(),
            closings: 0,
            changed: Vec::new(),
            put_off: Vec::new(),
        };
        let room = match planted::is(Bug::HoleTakenForRoom) {
            true => Room::There,
            false => Room::Unknown,
        };
        for segment in 0..count {
            let live_bytes = live.get(&segment).copied().unwrap_or(0);
            let used = live_bytes > 0;
            let usage = if used { Use::Closed { at: 0, aside: Aside::No } } else { Use::Free };
            let packed_bytes = if used { segment_bytes } else { 0 };
            let oldest = if used { oldest } else { Oldest::None };
            table.push(Segment { live_bytes, packed_bytes, oldest, ..Segment::new(usage) });
            if !used {
                table.free.insert(segment, 0, room);
            }
        }
        table
    }

    fn push(&mut self, segment: Segment) {
        self.totals = self.totals.join(segment.totals(self.segment_bytes), u64::add);
        self.segments.push(segment);
    }

    /// Every change of a segment that the totals see.
    fn change<R>(&mut self, segment: usize, change: impl FnOnce(&mut Segment) -> R) -> R {
        let entry = &mut self.segments[segment];
        let before = entry.totals(self.segment_bytes);
        let answer = change(entry);
        let after = entry.totals(self.segment_bytes);
        self.totals = self.totals.join(before, u64::sub).join(after, u64::add);
        answer
    }

    pub fn count(&self) -> usize {
        self.segments.len()
    }

    pub fn start(&self, segment: usize) -> u64 {
        segment as u64 * self.segment_bytes
    }

    pub fn of(&self, place: u64) -> usize {
        (place / self.segment_bytes) as usize
    }

    /// The file grew by one segment, which is free.
    pub fn add_free(&mut self) {
        // No read can know the new place.
        self.free.insert(self.segments.len(), 0, Room::There);
        self.push(Segment { is_reserved: true, ..Segment::new(Use::Free) });
    }

    /// Opens a free segment that is there and that no read can see any more; leaves `keep` of them.
    pub fn acquire(&mut self, keep: usize, epochs: &Epochs) -> Option<usize> {
        if self.free.count(Room::There) <= keep {
            return None;
        }
        let segment = self.free.take_lowest(Room::There, epochs)?;
        self.change(segment, |entry| {
            assert!(entry.usage == Use::Free);
            assert_eq!(entry.live_bytes, 0);
            entry.usage = Use::Open;
            entry.is_reserved = true;
        });
        Some(segment)
    }

    /// Takes back a segment that was acquired and not written.
    pub fn give_back(&mut self, segment: usize) {
        self.change(segment, |entry| {
            assert!(entry.usage == Use::Open);
            assert_eq!(entry.live_bytes, 0);
            entry.usage = Use::Free;
        });
        self.free.insert(segment, 0, Room::There);
    }

    /// A free segment whose blocks must be reserved before it is used, if there is one that no read
    /// can see. Nobody else gets it until [`SegmentTable::put_free`].
    pub fn take_lacking(&mut self, epochs: &Epochs) -> Option<usize> {
        let unknown = self.free.take_lowest(Room::Unknown, epochs);
        unknown.or_else(|| self.free.take_lowest(Room::Hole, epochs))
    }

    /// As [`SegmentTable::take_lacking`], but none that is a hole for certain.
    pub fn take_unknown(&mut self, epochs: &Epochs) -> Option<usize> {
        self.free.take_lowest(Room::Unknown, epochs)
    }

    /// Takes free segments, with what the disk has of each, that may go back to the file system,
    /// `most` at most and the highest first; leaves `keep` that are not holes. Nobody else gets one
    /// until [`SegmentTable::put_free`].
    pub fn take_surplus(
        &mut self,
        keep: usize,
        most: usize,
        epochs: &Epochs,
    ) -> Vec<(usize, Room)> {
        let count = self.kept().saturating_sub(keep).min(most);
        let mut taken = Vec::new();
        for room in [Room::Unknown, Room::There] {
            while taken.len() < count {
                let Some(segment) = self.free.take_highest(room, epochs) else { break };
                taken.push((segment, room));
            }
        }
        taken
    }

    /// A free segment that was taken is reserved, given back, or neither.
    pub fn put_free(&mut self, segment: usize, room: Room) {
        assert!(self.segments[segment].usage == Use::Free);
        self.free.insert(segment, 0, room);
    }

    /// Free segments that are not holes, as far as anybody knows.
    pub fn kept(&self) -> usize {
        self.free.count(Room::There) + self.free.count(Room::Unknown)
    }

    /// Free segments that are there for certain.
    pub fn there(&self) -> usize {
        self.free.count(Room::There)
    }

    /// Takes free segments off the end of the file, which no read can see any more: holes, and `most`
    /// others; leaves `keep` of those. Answers how many segments are left.
    pub fn cut(&mut self, keep: usize, most: usize, epochs: &Epochs) -> usize {
        let mut others = self.kept().saturating_sub(keep).min(most);
        while let Some(last) = self.segments.len().checked_sub(1) {
            let Some(room) = self.free.room_of(last, epochs) else { break };
            if self.segments[last].changed || (room != Room::Hole && others == 0) {
                break;
            }
            others -= usize::from(room != Room::Hole);
            self.free.remove(last);
            let gone = self.segments.pop().map(|segment| segment.totals(self.segment_bytes));
            self.totals = self.totals.join(gone.unwrap_or_default(), u64::sub);
        }
        self.segments.len()
    }

    pub fn close(&mut self, segment: usize) {
        self.closings += 1;
        let at = self.closings;
        self.change(segment, |entry| {
            assert!(entry.usage == Use::Open);
            entry.usage = Use::Closed { at, aside: Aside::No };
        });
    }

    pub fn add_live(&mut self, place: u64, bytes: usize, oldest: Oldest) {
        let (segment, segment_bytes) = (self.of(place), self.segment_bytes);
        self.change(segment, |entry| {
            assert!(!matches!(entry.usage, Use::Free | Use::Held), "a record in a free segment");
            entry.live_bytes += bytes as u64;
            entry.packed_bytes += bytes as u64;
            entry.oldest = entry.oldest.min(oldest);
            assert!(entry.packed_bytes <= segment_bytes);
        });
        self.mark_changed([&segment]);
    }

    pub fn sub_live(&mut self, place: u64, bytes: usize) {
        let segment = self.of(place);
        self.change(segment, |entry| {
            assert!(entry.live_bytes >= bytes as u64);
            entry.live_bytes -= bytes as u64;
        });
        self.mark_changed([&segment]);
    }

    /// The next checkpoint writes the live bytes of these segments.
    pub fn mark_changed<'a>(&mut self, segments: impl IntoIterator<Item = &'a usize>) {
        for &segment in segments {
            let entry = &mut self.segments[segment];
            if !std::mem::replace(&mut entry.changed, true) {
                self.changed.push(segment);
            }
        }
    }

    /// The live bytes of the segments that changed since the last call; `whole`: of all that have
    /// any, too.
    pub fn take_changed(&mut self, whole: bool) -> BTreeMap<usize, u64> {
        let mut taken = std::mem::take(&mut self.changed);
        taken.iter().for_each(|&segment| self.segments[segment].changed = false);
        if whole {
            taken.extend((0..self.count()).filter(|&i| self.segments[i].live_bytes > 0));
        }
        taken.into_iter().map(|i| (i, self.segments[i].live_bytes)).collect()
    }

    /// Closed segments of which the map, as it is now, names nothing.
    pub fn releasable(&self) -> Vec<usize> {
        let all = self.segments.iter().enumerate();
        all.filter(|(_, s)| matches!(s.usage, Use::Closed { .. }) && s.live_bytes == 0)
            .map(|(i, _)| i)
            .collect()
    }

    /// Frees segments that no durable map names any more.
    pub fn release(&mut self, segments: &[usize], epoch: u64) {
        for &segment in segments {
            let room = self.change(segment, |entry| {
                assert!(matches!(entry.usage, Use::Closed { .. }));
                assert_eq!(entry.live_bytes, 0, "nothing is ever added to a closed segment");
                entry.usage = if entry.pinned { Use::Held } else { Use::Free };
                entry.packed_bytes = 0;
                entry.oldest = Oldest::None;
                (!entry.pinned).then(|| entry.room())
            });
            if let Some(room) = room {
                self.free.insert(segment, epoch + 1, room);
            }
        }
    }

    /// Nothing that holds records now is reused before [`SegmentTable::unpin`].
    pub fn pin(&mut self) {
        self.segments.iter_mut().for_each(|entry| entry.pinned = entry.usage != Use::Free);
    }

    /// What a backup held back is free; answers the number of segments.
    pub fn unpin(&mut self, epoch: u64) -> usize {
        let mut freed = 0;
        for segment in 0..self.count() {
            let was_held = self.change(segment, |entry| {
                entry.pinned = false;
                let was_held = entry.usage == Use::Held;
                if was_held {
                    entry.usage = Use::Free;
                }
                was_held.then(|| entry.room())
            });
            if let Some(room) = was_held {
                self.free.insert(segment, epoch + 1, room);
                freed += 1;
            }
        }
        freed
    }

    /// The live bytes of a segment that is still what it was.
    pub fn live_bytes(&self, life: Life) -> Option<u64> {
        let entry = self.segments.get(life.segment)?;
        matches!(entry.usage, Use::Closed { at, .. } if at == life.closed_at)
            .then_some(entry.live_bytes)
    }

    /// Changes how GC looks at a segment that is still what it was; answers whether it did.
    fn set_aside(&mut self, life: Life, from: &[Aside], to: Aside) -> bool {
        self.live_bytes(life).is_some()
            && self.change(life.segment, |entry| match &mut entry.usage {
                Use::Closed { aside, .. } if from.contains(aside) => {
                    *aside = to;
                    true
                }
                _ => false,
            })
    }

    /// GC leaves this segment alone until it is free again.
    pub fn mark_bad(&mut self, life: Life) {
        self.set_aside(life, &[Aside::No, Aside::UntilCheckpoint], Aside::Bad);
    }

    /// GC leaves this segment alone until the next checkpoint.
    pub fn put_off(&mut self, life: Life) {
        if self.set_aside(life, &[Aside::No], Aside::UntilCheckpoint) {
            self.put_off.push(life);
        }
    }

    /// Segments that were put off may be tried again.
    pub fn take_up(&mut self) {
        for life in std::mem::take(&mut self.put_off) {
            self.set_aside(life, &[Aside::UntilCheckpoint], Aside::No);
        }
    }

    /// The closed segment whose cleaning pays best: benefit over cost, where old segments count
    /// more because their live rest will stay. (Rosenblum and Ousterhout: The Design and
    /// Implementation of a Log-Structured File System, 1992.)
    /// `least_gain_bytes`: fewer dead bytes are not worth it.
    pub fn victim(&self, least_gain_bytes: u64) -> Option<Life> {
        let score = |s: &Segment| -> Option<(u64, f64)> {
            let Use::Closed { at, aside: Aside::No } = s.usage else { return None };
            let live = s.live_bytes as f64 / self.segment_bytes as f64;
            if s.live_bytes == 0 || s.packed_bytes - s.live_bytes < least_gain_bytes.max(1) {
                return None;
            }
            let age = (self.closings - at + 1) as f64;
            Some((at, (1.0 - live) * age / (1.0 + live)))
        };
        let all = self.segments.iter().enumerate();
        all.filter_map(|(segment, s)| {
            score(s).map(|(closed_at, score)| (Life { segment, closed_at }, score))
        })
        .max_by(|a, b| a.1.total_cmp(&b.1))
        .map(|(life, _)| life)
    }

    fn with_live(&self) -> impl Iterator<Item = &Segment> {
        self.segments.iter().filter(|entry| entry.live_bytes > 0)
    }

    /// Of all live records.
    pub fn oldest(&self) -> Oldest {
        self.with_live().map(|entry| entry.oldest).min().unwrap_or_default()
    }

    /// Of those of one segment.
    pub fn oldest_in(&self, segment: usize) -> Oldest {
        self.segments[segment].oldest
    }

    /// Live bytes of segments with a record that is older than `least`; and of those that nobody has
    /// looked at.
    pub fn older_bytes(&self, least: Oldest) -> (u64, u64) {
        let sum = |least: Oldest| {
            let older = self.with_live().filter(|entry| entry.oldest < least);
            older.map(|entry| entry.live_bytes).sum()
        };
        (sum(least), sum(Oldest::Foreign))
    }

    /// A closed segment that may have a live record that is older than `least`.
    pub fn with_older(&self, least: Oldest) -> Option<Life> {
        self.segments.iter().enumerate().find_map(|(segment, entry)| match entry.usage {
            Use::Closed { at, aside: Aside::No }
                if entry.live_bytes > 0 && entry.oldest < least =>
            {
                Some(Life { segment, closed_at: at })
            }
            _ => None,
        })
    }

    /// Somebody has looked at all live records of a segment that is still what it was.
    pub fn looked_at(&mut self, life: Life, oldest: Oldest) {
        if self.live_bytes(life).is_some() {
            self.segments[life.segment].oldest = oldest;
        }
    }

    pub fn totals(&self) -> SegmentTotals {
        self.totals
    }

    /// The totals, counted anew.
    #[cfg(test)]
    pub fn counted(&self) -> SegmentTotals {
        let each = self.segments.iter().map(|segment| segment.totals(self.segment_bytes));
        each.fold(SegmentTotals::default(), |sum, totals| sum.join(totals, u64::add))
    }
}
