//! The pages file: segments, streams, garbage collection, the map's change log. It counts what
//! `store/` of the engine would write, with the same thresholds.

/// The content of a record: an image of a page, or the changes since that image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Image = 0,
    Delta = 1,
}

/// When garbage is collected.
#[derive(Clone, Copy, Debug)]
pub enum Gc {
    /// From `begin` percent of dead bytes in closed segments on, the harder the more there are, at
    /// most `speed` times what is written meanwhile; `limit` percent of dead bytes stop writers.
    Share { begin: u64, limit: u64, speed: u64 },
    /// When a segment is needed and the file has so many percent of the live bytes.
    Space { percent: u64 },
}

#[derive(Clone, Copy, Debug)]
pub struct StorePolicy {
    pub segment_bytes: u64,
    pub gc: Gc,
    /// Records that survived have streams by how often, deltas their own.
    pub by_lifetime: bool,
    /// Victims by benefit and age; else the one with the fewest live bytes.
    pub by_age: bool,
    /// Segments without a live byte that call for a checkpoint, at least, and in percent of the live
    /// bytes.
    pub checkpoint_segments: u64,
    pub checkpoint_percent: u64,
}

impl StorePolicy {
    /// `store/space.rs`, `store/segments.rs`.
    pub fn today() -> StorePolicy {
        StorePolicy {
            segment_bytes: 8 << 20,
            gc: Gc::Share { begin: 30, limit: 80, speed: 1 },
            by_lifetime: false,
            by_age: true,
            checkpoint_segments: 4,
            checkpoint_percent: 12,
        }
    }

    pub fn by_lifetime(percent: u64) -> StorePolicy {
        StorePolicy {
            segment_bytes: 2 << 20,
            gc: Gc::Space { percent },
            by_lifetime: true,
            checkpoint_segments: 2,
            checkpoint_percent: 2,
            ..StorePolicy::today()
        }
    }
}

const BLOCK_BYTES: u64 = 4096;
/// A map entry in the change log: place 8, LSN 5, tree 1, check 4, distance of the page id 2.
const ENTRY_BYTES: u64 = 20;
/// Head of a batch, checkpoint note, sums.
const NOTE_BYTES: u64 = 400;
/// `LOGGED_CHANGE_BYTES_MAX`, and half of what is reserved for the change log.
const LOGGED_CHANGE_BYTES: u64 = 40;
const LOGGED_BYTES_MAX: u64 = 2 << 20;
/// A new snapshot of the map when its change log is so long.
const SNAPSHOT_BYTES: u64 = 8 << 20;
/// The share of a segment that must be dead for GC to take it.
const GAIN_SHARE: u64 = 10;
const STREAMS: usize = 4;
const DELTA_STREAM: usize = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    Free,
    Open,
    Closed(u64),
}

struct Segment {
    usage: Use,
    live: u64,
    packed: u64,
    /// Object and bytes.
    records: Vec<(u32, u32)>,
}

#[derive(Clone, Copy, Default)]
struct Place {
    /// Number of the segment, plus one; 0 = nowhere.
    segment: u32,
    index: u32,
    bytes: u32,
    survived: u8,
    changed: bool,
}

/// Bytes since the start.
#[derive(Clone, Copy, Debug, Default)]
pub struct Written {
    pub images: u64,
    pub image_bytes: u64,
    pub deltas: u64,
    pub delta_bytes: u64,
    pub gc_bytes: u64,
    pub map_bytes: u64,
    pub checkpoints: u64,
    /// Of records whose segment was freed or is to be freed.
    pub reclaimed_bytes: u64,
}

pub struct Store {
    policy: StorePolicy,
    segments: Vec<Segment>,
    free: Vec<usize>,
    open: [Option<usize>; STREAMS],
    places: Vec<Place>,
    closings: u64,
    live: u64,
    live_deltas: u64,
    /// Totals of closed segments, as `SegmentTotals` of the engine.
    collectable: u64,
    releasable: Vec<usize>,
    /// Pages whose entry changed since the last checkpoint.
    changed: Vec<u32>,
    change_log: u64,
    gc_credit: f64,
    collecting: bool,
    pub written: Written,
}

impl Store {
    pub fn new(policy: StorePolicy) -> Store {
        Store {
            policy,
            segments: Vec::new(),
            free: Vec::new(),
            open: [None; STREAMS],
            places: Vec::new(),
            closings: 0,
            live: 0,
            live_deltas: 0,
            collectable: 0,
            releasable: Vec::new(),
            changed: Vec::new(),
            change_log: 0,
            gc_credit: 0.0,
            collecting: false,
            written: Written::default(),
        }
    }

    pub fn live_bytes(&self) -> u64 {
        self.live
    }

    /// Of images alone.
    pub fn image_bytes(&self) -> u64 {
        self.live - self.live_deltas
    }

    /// Of segments that are not free.
    pub fn used_bytes(&self) -> u64 {
        (self.segments.len() - self.free.len()) as u64 * self.policy.segment_bytes
    }

    /// With segments that are free: a file that never shrinks.
    #[cfg(test)]
    pub fn file_bytes(&self) -> u64 {
        self.segments.len() as u64 * self.policy.segment_bytes
    }

    pub fn has(&self, page: u32, kind: Kind) -> bool {
        self.places.get(object(page, kind) as usize).is_some_and(|place| place.segment > 0)
    }

    pub fn write(&mut self, page: u32, kind: Kind, bytes: u32) {
        let stream = match kind {
            Kind::Delta if self.policy.by_lifetime => DELTA_STREAM,
            _ => 0,
        };
        match kind {
            Kind::Image => {
                self.written.images += 1;
                self.written.image_bytes += u64::from(bytes);
            }
            Kind::Delta => {
                self.written.deltas += 1;
                self.written.delta_bytes += u64::from(bytes);
            }
        }
        self.append(stream, object(page, kind), bytes, 0);
        self.pace_gc(u64::from(bytes));
        if self.wants_checkpoint() {
            self.checkpoint();
        }
    }

    /// The record is not wanted any more.
    pub fn forget(&mut self, page: u32, kind: Kind) {
        let object = object(page, kind);
        if (object as usize) < self.places.len() {
            self.kill(object);
            self.note_changed(object);
        }
    }

    fn append(&mut self, stream: usize, object: u32, bytes: u32, survived: u8) {
        if self.places.len() <= object as usize {
            // Both kinds of a page.
            self.places.resize((object as usize | 1) + 1, Place::default());
        }
        self.kill(object);
        let segment = self.segment_for(stream, bytes);
        let index = self.segments[segment].records.len() as u32;
        self.segments[segment].records.push((object, bytes));
        self.segments[segment].live += u64::from(bytes);
        self.segments[segment].packed += u64::from(bytes);
        self.live += u64::from(bytes);
        self.live_deltas += u64::from(bytes) * u64::from(object & 1);
        let changed = self.places[object as usize].changed;
        let segment = segment as u32 + 1;
        self.places[object as usize] = Place { segment, index, bytes, survived, changed };
        self.note_changed(object);
    }

    fn note_changed(&mut self, object: u32) {
        // One entry names both records of a page.
        let place = &mut self.places[(object & !1) as usize];
        if !std::mem::replace(&mut place.changed, true) {
            self.changed.push(object & !1);
        }
    }

    fn kill(&mut self, object: u32) {
        let place = std::mem::take(&mut self.places[object as usize].segment);
        if place == 0 {
            return;
        }
        let bytes = u64::from(self.places[object as usize].bytes);
        let segment = &mut self.segments[place as usize - 1];
        segment.live -= bytes;
        self.live -= bytes;
        self.live_deltas -= bytes * u64::from(object & 1);
        if let Use::Closed(_) = segment.usage {
            self.collectable += bytes;
            if segment.live == 0 {
                self.collectable -= segment.packed;
                self.releasable.push(place as usize - 1);
            }
        }
    }

    fn segment_for(&mut self, stream: usize, bytes: u32) -> usize {
        let fits = |s: &Segment| s.packed + u64::from(bytes) <= self.policy.segment_bytes;
        if let Some(open) = self.open[stream] {
            if fits(&self.segments[open]) {
                return open;
            }
            self.close(open);
            self.open[stream] = None;
        }
        self.make_space();
        // GC may have opened one for this stream.
        if let Some(open) = self.open[stream] {
            if self.segments[open].packed + u64::from(bytes) <= self.policy.segment_bytes {
                return open;
            }
            self.close(open);
        }
        let segment = self.free.pop().unwrap_or_else(|| {
            let (live, packed, records) = (0, 0, Vec::new());
            self.segments.push(Segment { usage: Use::Free, live, packed, records });
            self.segments.len() - 1
        });
        self.segments[segment].usage = Use::Open;
        self.open[stream] = Some(segment);
        segment
    }

    fn close(&mut self, segment: usize) {
        self.closings += 1;
        let closed = &mut self.segments[segment];
        closed.usage = Use::Closed(self.closings);
        if closed.live == 0 {
            self.releasable.push(segment);
        } else {
            self.collectable += closed.packed - closed.live;
        }
    }

    /// GC by space: before a segment is taken.
    fn make_space(&mut self) {
        let Gc::Space { percent } = self.policy.gc else { return };
        if self.collecting {
            return;
        }
        self.collecting = true;
        let segment_bytes = self.policy.segment_bytes;
        while self.used_bytes() + segment_bytes > (self.live * percent / 100).max(8 * segment_bytes)
        {
            if !self.releasable.is_empty() {
                self.checkpoint();
                continue;
            }
            let Some(victim) = self.victim() else { break };
            self.collect(victim);
        }
        self.collecting = false;
    }

    /// GC by share: between writes, by the pressure of `Store::gc_pressure_percent` and the rests
    /// of `Engine::gc_step`.
    fn pace_gc(&mut self, written: u64) {
        let Gc::Share { begin, limit, speed } = self.policy.gc else { return };
        let segment_bytes = self.policy.segment_bytes;
        let begin = (self.live / 100 * begin).max(2 * segment_bytes) as f64;
        let limit = (self.live / 100 * limit + 12 * segment_bytes) as f64;
        let flat_out = begin.max((begin + limit) / 2.0);
        let dead = self.collectable as f64;
        let pressure = ((dead - begin) / (flat_out - begin)).clamp(0.0, 1.0);
        // It rests after its work; what it did not do while nothing was to be done is not made up.
        let share = 1.0 / (1.0 + 3.0 * (1.0 - pressure));
        self.gc_credit = (self.gc_credit + written as f64 * speed as f64 * share).min(1.0);
        let behind = dead + self.releasable_bytes() as f64 > limit;
        if dead <= begin || (self.gc_credit <= 0.0 && !behind) {
            return;
        }
        if let Some(victim) = self.victim() {
            self.gc_credit -= self.segments[victim].live as f64;
            self.collect(victim);
        }
    }

    fn releasable_bytes(&self) -> u64 {
        self.releasable.len() as u64 * self.policy.segment_bytes
    }

    fn victim(&self) -> Option<usize> {
        let least = self.policy.segment_bytes / GAIN_SHARE;
        let score = |s: &Segment| {
            let Use::Closed(at) = s.usage else { return None };
            if s.live == 0 || s.packed - s.live < least {
                return None;
            }
            let live = s.live as f64 / self.policy.segment_bytes as f64;
            let age = if self.policy.by_age { (self.closings - at + 1) as f64 } else { 1.0 };
            Some((1.0 - live) * age / (1.0 + live))
        };
        let all = self.segments.iter().enumerate();
        all.filter_map(|(i, s)| score(s).map(|score| (i, score)))
            .max_by(|a, b| a.1.total_cmp(&b.1))
            .map(|(i, _)| i)
    }

    /// Copies what is live; a checkpoint frees the segment.
    fn collect(&mut self, victim: usize) {
        let records = std::mem::take(&mut self.segments[victim].records);
        for (index, &(object, bytes)) in records.iter().enumerate() {
            let place = self.places[object as usize];
            if place.segment as usize != victim + 1 || place.index as usize != index {
                continue;
            }
            let survived = place.survived.saturating_add(1);
            let stream = match self.policy.by_lifetime {
                true if object & 1 == Kind::Delta as u32 => DELTA_STREAM,
                true => usize::from(survived.min(2)),
                false => 1,
            };
            self.written.gc_bytes += u64::from(bytes);
            self.append(stream, object, bytes, survived);
        }
    }

    fn wants_checkpoint(&self) -> bool {
        let share = self.live / 100 * self.policy.checkpoint_percent;
        let least = self.policy.checkpoint_segments * self.policy.segment_bytes;
        self.releasable_bytes() > share.max(least)
            || self.changed.len() as u64 * LOGGED_CHANGE_BYTES > LOGGED_BYTES_MAX
    }

    /// Writes what changed in the map, and both superblock slots; frees dead segments.
    pub fn checkpoint(&mut self) {
        let entries = self.changed.len() as u64;
        let batch = (NOTE_BYTES + entries * ENTRY_BYTES).next_multiple_of(BLOCK_BYTES);
        self.written.map_bytes += batch + 2 * BLOCK_BYTES;
        self.written.checkpoints += 1;
        self.change_log += batch;
        if self.change_log > SNAPSHOT_BYTES {
            self.written.map_bytes += self.places.len() as u64 / 2 * ENTRY_BYTES;
            self.change_log = 0;
        }
        for object in self.changed.drain(..) {
            self.places[object as usize].changed = false;
        }
        for segment in std::mem::take(&mut self.releasable) {
            let freed = &mut self.segments[segment];
            self.written.reclaimed_bytes += freed.packed;
            (freed.usage, freed.packed) = (Use::Free, 0);
            freed.records.clear();
            self.free.push(segment);
        }
    }

    /// Dead bytes of closed segments that hold live ones, counted anew.
    #[cfg(test)]
    fn collectable_bytes(&self) -> u64 {
        let closed = |s: &&Segment| matches!(s.usage, Use::Closed(_)) && s.live > 0;
        self.segments.iter().filter(closed).map(|s| s.packed - s.live).sum()
    }

    /// Bytes of records that are dead and not reclaimed.
    #[cfg(test)]
    fn dead_bytes(&self) -> u64 {
        self.segments.iter().map(|s| s.packed - s.live).sum()
    }
}

fn object(page: u32, kind: Kind) -> u32 {
    page * 2 + kind as u32
}

#[cfg(test)]
#[path = "store_tests.rs"]
mod tests;
