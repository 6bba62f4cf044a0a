//! The bell wakes an idle worker of the background.

use crate::os::rank::Rank;
use crate::os::sync::{condition, Condvar, Mutex, Ranked};
use std::time::Duration;

/// Wakes idle workers. It is not a part of the engine, so that an idle worker does not keep the
/// engine alive: several workers in turn would do so for ever.
pub(crate) struct Bell {
    /// How often it was rung: a ring during a step counts when the step is done.
    rings: Mutex<u64>,
    heard: Condvar,
}

impl Default for Bell {
    fn default() -> Bell {
        Bell { rings: Mutex::ranked(Rank::Bell, 0), heard: condition(Rank::BellWait) }
    }
}

impl Bell {
    pub fn ring(&self) {
        *self.rings.lock() += 1;
        self.heard.notify_all();
    }

    #[cfg(test)]
    pub fn rings(&self) -> u64 {
        *self.rings.lock()
    }

    /// Returns at the first ring since `seen`, or after `idle`.
    pub fn wait(&self, seen: &mut u64, idle: Duration) {
        let mut rings = self.rings.lock();
        if *rings == *seen {
            self.heard.wait_for(&mut rings, idle);
        }
        *seen = *rings;
    }
}
