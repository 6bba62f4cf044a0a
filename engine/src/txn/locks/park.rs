//! The one place of this room where a thread sleeps and where time is read.

use crate::os::observe::{self, Wait};
use crate::os::rank::Rank;
use crate::os::sync::{condition, now_ns, Condvar, Mutex, MutexGuard, Ranked};
use std::time::Duration;

/// When a wait ends at the latest; `None` waits for ever.
#[derive(Clone, Copy)]
pub(super) struct Deadline(Option<u64>);

impl Deadline {
    pub(super) fn after(timeout: Duration) -> Deadline {
        let timeout_ns = u64::try_from(timeout.as_nanos()).ok();
        Deadline(timeout_ns.and_then(|ns| now_ns().checked_add(ns)))
    }

    /// `None`: there is no end.
    fn left(self) -> Option<Duration> {
        self.0.map(|at_ns| Duration::from_nanos(at_ns.saturating_sub(now_ns())))
    }
}

/// A token that one thread waits for and others give. A token given before the wait is kept, so
/// no wake-up is lost; a token left over makes one wait return early, so callers check and loop.
pub(super) struct Parker {
    token: Mutex<bool>,
    given: Condvar,
}

impl Default for Parker {
    fn default() -> Parker {
        Parker {
            token: Mutex::ranked(Rank::RowLockToken, false),
            given: condition(Rank::RowLockWait),
        }
    }
}

impl Parker {
    /// Takes the token; false when the deadline came first.
    pub(super) fn park(&self, deadline: Deadline) -> bool {
        let mut token = self.token.lock();
        if !*token {
            observe::waiting(Wait::RowLock, || self.wait(&mut token, deadline));
        }
        std::mem::take(&mut *token)
    }

    fn wait(&self, token: &mut MutexGuard<'_, bool>, deadline: Deadline) {
        while !**token {
            match deadline.left() {
                None => self.given.wait(token),
                Some(Duration::ZERO) => break,
                Some(left) => {
                    self.given.wait_for(token, left);
                }
            }
        }
    }

    pub(super) fn unpark(&self) {
        *self.token.lock() = true;
        self.given.notify_one();
    }
}
