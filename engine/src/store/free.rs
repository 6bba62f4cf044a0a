//! Free segments, by what the disk has of them.
//!
//! ```text
//!             reserve                      punch
//!   Hole, Unknown  ------>  There  ------------------->  Hole
//!         ^                   |
//!         | next life         | acquire
//!       There  <--------------+
//! ```
//! The lowest one is taken into use first, the highest one given back first: so the file gets
//! shorter by itself.

use super::epoch::Epochs;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64};

/// What the disk has of a free segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// Its blocks were reserved in this life and not given back since.
    There = 0,
    /// An earlier life left it, or reserving it failed: some or all of it may be a hole.
    Unknown = 1,
    /// It was given back to the file system: no better than what lies beyond the end of the file.
    Hole = 2,
}

/// What the steps that give free segments back remember (`room`).
#[derive(Default)]
pub struct GivingBack {
    /// Since when there has been a surplus; 0: there is none.
    pub since_ns: AtomicU64,
    /// The file system punches no holes, or has failed to.
    pub cannot_punch: AtomicBool,
}

#[derive(Default)]
pub struct FreeSegments {
    /// Numbers, each with the epoch from which on no read can see it (0: nobody ever could).
    by_room: [BTreeMap<usize, u64>; 3],
}

fn is_out_of_sight(epoch: u64, epochs: &Epochs) -> bool {
    epoch == 0 || epochs.has_passed(epoch - 1)
}

impl FreeSegments {
    pub fn count(&self, room: Room) -> usize {
        self.by_room[room as usize].len()
    }

    pub fn insert(&mut self, segment: usize, epoch: u64, room: Room) {
        self.by_room[room as usize].insert(segment, epoch);
    }

    /// Takes out the lowest one of its kind that no read can see.
    pub fn take_lowest(&mut self, room: Room, epochs: &Epochs) -> Option<usize> {
        let list = &mut self.by_room[room as usize];
        let unseen = |&(_, &epoch): &(&usize, &u64)| is_out_of_sight(epoch, epochs);
        let segment = *list.iter().find(unseen)?.0;
        list.remove(&segment);
        Some(segment)
    }

    /// As [`FreeSegments::take_lowest`], the highest.
    pub fn take_highest(&mut self, room: Room, epochs: &Epochs) -> Option<usize> {
        let list = &mut self.by_room[room as usize];
        let unseen = |&(_, &epoch): &(&usize, &u64)| is_out_of_sight(epoch, epochs);
        let segment = *list.iter().rev().find(unseen)?.0;
        list.remove(&segment);
        Some(segment)
    }

    /// What the disk has of this segment, if it is free and no read can see it.
    pub fn room_of(&self, segment: usize, epochs: &Epochs) -> Option<Room> {
        let rooms = [Room::There, Room::Unknown, Room::Hole];
        rooms.into_iter().find(|&room| {
            let epoch = self.by_room[room as usize].get(&segment);
            epoch.is_some_and(|&epoch| is_out_of_sight(epoch, epochs))
        })
    }

    pub fn remove(&mut self, segment: usize) {
        for list in &mut self.by_room {
            list.remove(&segment);
        }
    }
}
