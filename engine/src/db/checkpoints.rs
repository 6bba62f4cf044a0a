//! Where the checkpoints of an engine stand (`checkpoint` makes them).

use super::pace::Pace;
use crate::base::Lsn;
use crate::os::rank::Rank;
use crate::os::sync::{condition, Condvar, Mutex, Ranked};
use crate::wal::Place;
use std::sync::atomic::AtomicU64;

/// Positions in the log that the last checkpoints left.
#[derive(Clone, Copy, Default)]
pub(crate) struct CheckpointState {
    /// Below it, recovery from this checkpoint reads nothing: not to scan, to revert or to purge.
    pub needs_from: Lsn,
    pub redo_from: Lsn,
    /// Versions needed below it are in the tree of old versions, and durable there.
    pub moved_to: Lsn,
}

pub(crate) struct Checkpoints {
    /// One at a time.
    pub turn: Mutex<()>,
    pub state: Mutex<CheckpointState>,
    /// The redo point of the last one, for those who wait for room in the log.
    pub redo_from: AtomicU64,
    /// Its place in the files of the log.
    pub redo_place: AtomicU64,
    /// When the last whole one ended, how many records had been logged then, and up to where.
    pub last_ns: AtomicU64,
    pub records: AtomicU64,
    pub log_end: AtomicU64,
    pub pace: Mutex<Pace>,
    /// Pages from before this position left the redo window.
    pub aged_to: AtomicU64,
    /// Held for a moment at the end of each, before `room_made` is told.
    pub done: Mutex<()>,
    pub room_made: Condvar,
}

impl Checkpoints {
    pub fn new(state: CheckpointState, redo_place: Place) -> Checkpoints {
        Checkpoints {
            turn: Mutex::ranked(Rank::Checkpointing, ()),
            redo_from: AtomicU64::new(state.redo_from.0),
            redo_place: AtomicU64::new(redo_place.0),
            state: Mutex::ranked(Rank::CheckpointState, state),
            last_ns: AtomicU64::new(0),
            records: AtomicU64::new(0),
            log_end: AtomicU64::new(0),
            pace: Mutex::ranked(Rank::Pace, Pace::default()),
            aged_to: AtomicU64::new(0),
            done: Mutex::ranked(Rank::CheckpointDone, ()),
            room_made: condition(Rank::LogRoomWait),
        }
    }
}
