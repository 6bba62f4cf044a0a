//! Where the checkpoints of an engine stand (`checkpoint` makes them).

use super::pace::Pace;
use super::window::Leaving;
use crate::base::Lsn;
use crate::os::rank::Rank;
use crate::os::sync::{condition, Condvar, Mutex, Ranked};
use crate::wal::Place;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

/// Longest time that a writer waits for room in the log while checkpoints do not come nearer to it.
const STANDSTILL_MAX: Duration = Duration::from_secs(60);

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
    pub leaving: Mutex<Leaving>,
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
            leaving: Mutex::ranked(Rank::Leaving, Leaving::default()),
            done: Mutex::ranked(Rank::CheckpointDone, ()),
            room_made: condition(Rank::LogRoomWait),
        }
    }
}

/// How far checkpoints are: a slow one writes pages for a long time before redo becomes less.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Progress {
    pub redo_place: u64,
    pub redo_from: u64,
    /// Pages written since the start.
    pub pages: u64,
}

/// A writer that waits for room in the log. A slow disk makes it wait for long. It gives up only when
/// nothing has come nearer to a checkpoint for [`STANDSTILL_MAX`].
pub(crate) struct RoomWait {
    seen: Progress,
    /// Since `seen` was new.
    waited: Duration,
}

impl RoomWait {
    pub fn new(seen: Progress) -> RoomWait {
        RoomWait { seen, waited: Duration::ZERO }
    }

    /// To be asked after each part of the wait, with its length.
    pub fn is_hopeless(&mut self, now: Progress, waited: Duration) -> bool {
        if now != self.seen {
            *self = RoomWait::new(now);
            return false;
        }
        self.waited += waited;
        self.waited > STANDSTILL_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLICE: Duration = Duration::from_millis(20);
    const BEGIN: Progress = Progress { redo_place: 7, redo_from: 9, pages: 11 };

    /// Slices until the wait is given up, at most 60,000 (20 minutes).
    fn slices(progress: impl Fn(u64) -> Progress) -> Option<u64> {
        let mut wait = RoomWait::new(BEGIN);
        (1..60_000).find(|&n| wait.is_hopeless(progress(n), SLICE))
    }

    #[test]
    fn a_slow_checkpoint_is_waited_for() {
        // A page, or a bit less of redo, each 50 s.
        assert_eq!(slices(|n| Progress { pages: 11 + n / 2500, ..BEGIN }), None);
        assert_eq!(slices(|n| Progress { redo_place: 7 + n / 2500, ..BEGIN }), None);
        assert_eq!(slices(|n| Progress { redo_from: 9 + n / 2500, ..BEGIN }), None);
    }

    #[test]
    fn a_standstill_ends_the_wait() {
        assert_eq!(slices(|_| BEGIN), Some(3001));
        // Ten minutes of work, and then none.
        let stops = |n: u64| Progress { pages: 11 + n.min(30_000), ..BEGIN };
        assert_eq!(slices(stops), Some(33_001));
    }
}
