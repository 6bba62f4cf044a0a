//! The table of segments against a simple model: what holds records, what is free, what the disk has
//! of it, and which reads could still see it.

use super::super::epoch::Epochs;
use super::super::free::Room;
use super::super::segments::{Life, SegmentTable};
use super::*;
use crate::cipher::Oldest;
use std::collections::BTreeSet;

const SEGMENT_BYTES: u64 = 1000;
const STEPS: u64 = 3000;

/// What the model knows of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    /// `reserved`: its blocks surely are; `seen`: a read that is under way began before it was freed.
    Free {
        reserved: bool,
        seen: bool,
    },
    /// Taken out, to be reserved or given back.
    Taken {
        reserved: bool,
    },
    Open {
        live: u64,
    },
    Closed {
        live: u64,
    },
}

struct Run<'a> {
    rng: SimRng,
    table: SegmentTable,
    epochs: &'a Epochs,
    known: Vec<Known>,
    /// An earlier life wrote it, and this one has not taken it into use.
    earlier: BTreeSet<usize>,
    taken: Vec<(usize, Room)>,
    /// How often each segment was freed.
    freed: BTreeMap<usize, u64>,
    /// The segment that GC works on, and how often it had been freed when it began.
    victim: Option<(Life, u64)>,
    punched: u64,
    cut: u64,
    /// Victims that were gone when GC came back to them.
    gone: u64,
}

impl Run<'_> {
    fn some(&mut self, is_it: impl Fn(&Known) -> bool) -> Option<usize> {
        let all: Vec<usize> = (0..self.known.len()).filter(|&i| is_it(&self.known[i])).collect();
        (!all.is_empty()).then(|| all[self.rng.below(all.len() as u64) as usize])
    }

    fn acquire(&mut self) {
        let keep = self.rng.below(3) as usize;
        let there = |k: &&Known| matches!(k, Known::Free { reserved: true, .. });
        let count = self.known.iter().filter(there).count();
        let Some(segment) = self.table.acquire(keep, self.epochs) else { return };
        assert!(count > keep);
        assert_eq!(self.known[segment], Known::Free { reserved: true, seen: false });
        if self.rng.chance(20) {
            self.table.give_back(segment);
            return;
        }
        self.known[segment] = Known::Open { live: 0 };
        self.earlier.remove(&segment);
    }

    fn write(&mut self) {
        let Some(segment) = self.some(|k| matches!(k, Known::Open { live } if *live < 900)) else {
            return;
        };
        self.table.add_live(segment as u64 * SEGMENT_BYTES, 100, Oldest::None);
        let Known::Open { live } = &mut self.known[segment] else { unreachable!() };
        *live += 100;
        if *live > 500 && self.rng.chance(30) {
            self.known[segment] = Known::Closed { live: *live };
            self.table.close(segment);
        }
    }

    fn forget(&mut self) {
        let Some(segment) = self.some(|k| matches!(k, Known::Closed { live } if *live > 0)) else {
            return;
        };
        self.table.sub_live(segment as u64 * SEGMENT_BYTES, 100);
        let Known::Closed { live } = &mut self.known[segment] else { unreachable!() };
        *live -= 100;
    }

    /// As a checkpoint that has captured the map and the changed segments.
    fn release(&mut self, reads: bool) {
        self.table.take_changed(false);
        let releasable = self.table.releasable();
        self.table.release(&releasable, self.epochs.now());
        for segment in releasable {
            assert_eq!(self.known[segment], Known::Closed { live: 0 });
            *self.freed.entry(segment).or_default() += 1;
            let reserved = !self.earlier.contains(&segment);
            self.known[segment] = Known::Free { reserved, seen: reads };
        }
    }

    fn take(&mut self) {
        let (keep, most) = (self.rng.below(6) as usize, self.rng.below(4) as usize);
        let before = self.table.kept();
        for (segment, room) in self.table.take_surplus(keep, most, self.epochs) {
            let Known::Free { reserved, seen: false } = self.known[segment] else {
                panic!("segment {segment}, {:?}, goes back", self.known[segment]);
            };
            assert!(reserved == (room == Room::There));
            self.known[segment] = Known::Taken { reserved };
            self.taken.push((segment, room));
        }
        assert!(self.table.kept() >= before.min(keep));
        if let Some(segment) = self.table.take_lacking(self.epochs) {
            assert_eq!(self.known[segment], Known::Free { reserved: false, seen: false });
            self.known[segment] = Known::Taken { reserved: false };
            self.taken.push((segment, Room::Unknown));
        }
    }

    /// GC begins with a segment, and comes back to it when others had time to free it.
    fn collect(&mut self) {
        let Some((life, freed)) = self.victim.take() else {
            let victim = self.table.victim(1);
            self.victim =
                victim.map(|life| (life, self.freed.get(&life.segment).copied().unwrap_or(0)));
            return;
        };
        let stands = freed == self.freed.get(&life.segment).copied().unwrap_or(0);
        let live = match self.known.get(life.segment) {
            Some(Known::Closed { live }) if stands => Some(*live),
            _ => None,
        };
        assert_eq!(self.table.live_bytes(life), live);
        let before = self.table.totals();
        match self.rng.chance(30) {
            true => self.table.mark_bad(life),
            false => self.table.put_off(life),
        }
        if live.is_none() {
            self.gone += 1;
            assert_eq!(self.table.totals(), before, "another life of the place was put aside");
        }
        if self.rng.chance(50) {
            self.table.take_up();
        }
    }

    fn put(&mut self) {
        let Some((segment, was)) = self.taken.pop() else { return };
        let room = [was, Room::There, Room::Hole][self.rng.below(3) as usize];
        self.punched += u64::from(room == Room::Hole);
        self.table.put_free(segment, room);
        self.known[segment] = Known::Free { reserved: room == Room::There, seen: false };
    }

    fn cut(&mut self) {
        let (keep, most) = (self.rng.below(6) as usize, self.rng.below(4) as usize);
        let count = self.table.cut(keep, most, self.epochs);
        self.earlier.retain(|&segment| segment < count);
        for known in self.known.drain(count..) {
            assert!(matches!(known, Known::Free { seen: false, .. }), "{known:?} is cut off");
            self.cut += 1;
        }
    }
}

#[test]
fn the_table_gives_away_only_what_is_free_and_out_of_sight() {
    let mut sums = (0, 0, 0);
    for seed in 0..40 {
        let mut rng = SimRng::new(seed);
        let epochs = Epochs::default();
        let loaded = rng.below(12) as usize;
        let live: BTreeMap<usize, u64> =
            (0..loaded).filter(|i| i % 3 == 0).map(|i| (i, 500)).collect();
        let known = |i: usize| match live.get(&i) {
            Some(&live) => Known::Closed { live },
            None => Known::Free { reserved: false, seen: false },
        };
        let known = (0..loaded).map(known).collect();
        let table = SegmentTable::load(SEGMENT_BYTES, loaded, &live, Oldest::Unknown);
        let earlier = live.keys().copied().collect();
        let mut run = Run {
            rng,
            table,
            epochs: &epochs,
            known,
            earlier,
            taken: Vec::new(),
            freed: BTreeMap::new(),
            victim: None,
            punched: 0,
            cut: 0,
            gone: 0,
        };
        let mut reading = None;
        for _ in 0..STEPS {
            match run.rng.below(13) {
                0 | 1 => run.acquire(),
                2..=4 => run.write(),
                5..=7 => run.forget(),
                8 if run.rng.chance(30) => run.release(reading.is_some()),
                9 => run.take(),
                10 => run.put(),
                12 => run.collect(),
                11 if run.rng.chance(20) => run.cut(),
                11 if run.rng.chance(30) => {
                    run.table.add_free();
                    run.known.push(Known::Free { reserved: true, seen: false });
                }
                11 if reading.is_none() => reading = Some(epochs.enter()),
                11 => {
                    reading = None;
                    for known in &mut run.known {
                        if let Known::Free { seen, .. } = known {
                            *seen = false;
                        }
                    }
                }
                _ => {}
            }
            assert_eq!(run.table.totals(), run.table.counted());
            assert_eq!(run.table.count(), run.known.len());
            let there = |k: &&Known| matches!(k, Known::Free { reserved: true, .. });
            assert_eq!(run.table.there(), run.known.iter().filter(there).count());
        }
        sums = (sums.0 + run.punched, sums.1 + run.cut, sums.2 + run.gone);
    }
    assert!(sums.0 > 1000 && sums.1 > 200 && sums.2 > 50, "{sums:?}");
}
