//! Where the backup of an engine stands (`upkeep` begins and ends it).

use crate::base::Lsn;
use crate::os::rank::Rank;
use crate::os::sync::{Mutex, Ranked};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// At most one backup at a time.
pub(crate) struct Backups {
    /// Held while one begins, ends or is given up.
    pub turn: Mutex<()>,
    /// Somebody has begun one and not ended it, though it may be lost.
    pub taken: AtomicBool,
    /// The log is kept from here on; 0: nothing is kept.
    from: AtomicU64,
    /// Its room was needed: what was kept is gone.
    pub lost: AtomicBool,
    /// Backups that were begun since the engine was opened.
    pub begun: AtomicU64,
}

impl Default for Backups {
    fn default() -> Backups {
        Backups {
            turn: Mutex::ranked(Rank::Backup, ()),
            taken: AtomicBool::new(false),
            from: AtomicU64::new(0),
            lost: AtomicBool::new(false),
            begun: AtomicU64::new(0),
        }
    }
}

impl Backups {
    pub fn log_from(&self) -> Option<Lsn> {
        Some(Lsn(self.from.load(Ordering::SeqCst))).filter(|lsn| *lsn > Lsn(0))
    }

    pub fn keep_log(&self, from: Lsn) {
        self.from.store(from.0, Ordering::SeqCst);
    }

    /// Answers whether log was kept.
    pub fn let_log_go(&self) -> bool {
        self.from.swap(0, Ordering::SeqCst) > 0
    }

    /// For status: 0 none, 1 under way, 2 given up.
    pub fn state(&self) -> u64 {
        match (self.taken.load(Ordering::SeqCst), self.lost.load(Ordering::SeqCst)) {
            (false, _) => 0,
            (true, false) => 1,
            (true, true) => 2,
        }
    }
}
