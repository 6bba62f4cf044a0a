//! The use of each segment of the pages file.
//!
//! ```text
//!            acquire            close             release (after a checkpoint,
//!   Free  ------------> Open  ---------> Closed   only without live bytes)
//!    ^                                     |
//!    +-------------------------------------+   usable once the readers of that epoch have left
//! ```

use super::epoch::Epochs;
use std::collections::{BTreeMap, VecDeque};

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
    /// Its live bytes changed since a checkpoint took them.
    changed: bool,
}

/// Totals in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct SegmentTotals {
    pub segments: u64,
    pub free_bytes: u64,
    pub live_bytes: u64,
    /// Dead bytes of closed segments that still hold live ones: only GC frees them.
    pub collectable_bytes: u64,
    /// Closed segments without a live byte: the next checkpoint frees them.
    pub releasable_bytes: u64,
}

pub struct SegmentTable {
    segment_bytes: u64,
    segments: Vec<Segment>,
    /// Free segments, the one retired in the lowest epoch first.
    free: VecDeque<(usize, u64)>,
    closings: u64,
    /// The segments marked so.
    changed: Vec<usize>,
    /// Those that were [`Aside::UntilCheckpoint`] since the last one.
    put_off: Vec<usize>,
}

impl SegmentTable {
    /// The table of a file of `count` segments: what holds live bytes is closed, all others are
    /// free.
    pub fn load(segment_bytes: u64, count: usize, live: &BTreeMap<usize, u64>) -> SegmentTable {
        let mut table = SegmentTable {
            segment_bytes,
            segments: Vec::with_capacity(count),
            free: VecDeque::new(),
            closings: 0,
            changed: Vec::new(),
            put_off: Vec::new(),
        };
        for segment in 0..count {
            let live_bytes = live.get(&segment).copied().unwrap_or(0);
            let used = live_bytes > 0;
            let usage = if used { Use::Closed { at: 0, aside: Aside::No } } else { Use::Free };
            let packed_bytes = if used { segment_bytes } else { 0 };
            table.segments.push(Segment { usage, live_bytes, packed_bytes, changed: false });
            if !used {
                table.free.push_back((segment, 0));
            }
        }
        table
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
        // No read can know the new place, so it goes to the front with the oldest epoch.
        self.free.push_front((self.segments.len(), 0));
        let (live_bytes, packed_bytes) = (0, 0);
        self.segments.push(Segment { usage: Use::Free, live_bytes, packed_bytes, changed: false });
    }

    /// Opens a free segment that no read can see any more; leaves `keep` of them.
    pub fn acquire(&mut self, keep: usize, epochs: &Epochs) -> Option<usize> {
        let &(segment, epoch) = self.free.front()?;
        if self.free.len() <= keep || (epoch > 0 && !epochs.has_passed(epoch - 1)) {
            return None;
        }
        self.free.pop_front();
        let entry = &mut self.segments[segment];
        assert!(entry.usage == Use::Free);
        assert_eq!(entry.live_bytes, 0);
        entry.usage = Use::Open;
        Some(segment)
    }

    /// Takes back a segment that was acquired and not written.
    pub fn give_back(&mut self, segment: usize) {
        assert!(self.segments[segment].usage == Use::Open);
        assert_eq!(self.segments[segment].live_bytes, 0);
        self.segments[segment].usage = Use::Free;
        self.free.push_front((segment, 0));
    }

    /// Takes free segments off the end of the file, which no read can see any more; leaves `keep`
    /// free ones. Answers how many segments are left.
    pub fn cut(&mut self, keep: usize, epochs: &Epochs) -> usize {
        while self.free.len() > keep {
            let last = self.segments.len() - 1;
            let Some(at) = self.free.iter().position(|&(segment, _)| segment == last) else {
                break;
            };
            let (_, epoch) = self.free[at];
            let seen = epoch > 0 && !epochs.has_passed(epoch - 1);
            if seen || self.segments[last].changed {
                break;
            }
            self.free.remove(at);
            self.segments.pop();
        }
        self.segments.len()
    }

    pub fn close(&mut self, segment: usize) {
        assert!(self.segments[segment].usage == Use::Open);
        self.closings += 1;
        self.segments[segment].usage = Use::Closed { at: self.closings, aside: Aside::No };
    }

    pub fn add_live(&mut self, place: u64, bytes: usize) {
        let segment = self.of(place);
        let entry = &mut self.segments[segment];
        assert!(entry.usage != Use::Free, "a record in a free segment");
        entry.live_bytes += bytes as u64;
        entry.packed_bytes += bytes as u64;
        assert!(entry.packed_bytes <= self.segment_bytes);
        self.mark_changed([&segment]);
    }

    pub fn sub_live(&mut self, place: u64, bytes: usize) {
        let segment = self.of(place);
        let entry = &mut self.segments[segment];
        assert!(entry.live_bytes >= bytes as u64);
        entry.live_bytes -= bytes as u64;
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

    pub fn live_bytes(&self, segment: usize) -> u64 {
        self.segments[segment].live_bytes
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
            let entry = &mut self.segments[segment];
            assert!(matches!(entry.usage, Use::Closed { .. }));
            assert_eq!(entry.live_bytes, 0, "nothing is ever added to a closed segment");
            entry.usage = Use::Free;
            entry.packed_bytes = 0;
            self.free.push_back((segment, epoch + 1));
        }
    }

    /// GC leaves this segment alone until it is free again.
    pub fn mark_bad(&mut self, segment: usize) {
        if let Use::Closed { aside, .. } = &mut self.segments[segment].usage {
            *aside = Aside::Bad;
        }
    }

    /// GC leaves this segment alone until the next checkpoint.
    pub fn put_off(&mut self, segment: usize) {
        if let Use::Closed { aside: aside @ Aside::No, .. } = &mut self.segments[segment].usage {
            *aside = Aside::UntilCheckpoint;
            self.put_off.push(segment);
        }
    }

    /// What was put off may be tried again.
    pub fn take_up(&mut self) {
        for segment in std::mem::take(&mut self.put_off) {
            let usage = &mut self.segments[segment].usage;
            if let Use::Closed { aside: aside @ Aside::UntilCheckpoint, .. } = usage {
                *aside = Aside::No;
            }
        }
    }

    /// The closed segment whose cleaning pays best: benefit over cost, where old segments count
    /// more because their live rest will stay. (Rosenblum and Ousterhout: The Design and
    /// Implementation of a Log-Structured File System, 1992.)
    /// `least_gain_bytes`: fewer dead bytes are not worth it.
    pub fn victim(&self, least_gain_bytes: u64) -> Option<usize> {
        let score = |s: &Segment| -> Option<f64> {
            let Use::Closed { at, aside: Aside::No } = s.usage else { return None };
            let live = s.live_bytes as f64 / self.segment_bytes as f64;
            if s.live_bytes == 0 || s.packed_bytes - s.live_bytes < least_gain_bytes.max(1) {
                return None;
            }
            let age = (self.closings - at + 1) as f64;
            Some((1.0 - live) * age / (1.0 + live))
        };
        let all = self.segments.iter().enumerate();
        all.filter_map(|(i, s)| score(s).map(|score| (i, score)))
            .max_by(|a, b| a.1.total_cmp(&b.1))
            .map(|(i, _)| i)
    }

    pub fn free_bytes(&self) -> u64 {
        self.free.len() as u64 * self.segment_bytes
    }

    pub fn totals(&self) -> SegmentTotals {
        let mut totals = SegmentTotals {
            segments: self.segments.len() as u64,
            free_bytes: self.free.len() as u64 * self.segment_bytes,
            ..Default::default()
        };
        for s in &self.segments {
            totals.live_bytes += s.live_bytes;
            match s.usage {
                Use::Closed { .. } if s.live_bytes == 0 => {
                    totals.releasable_bytes += self.segment_bytes;
                }
                Use::Closed { aside: Aside::No, .. } => {
                    totals.collectable_bytes += s.packed_bytes - s.live_bytes;
                }
                _ => {}
            }
        }
        totals
    }
}
