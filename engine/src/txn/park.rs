//! The one place of this room where a thread sleeps and where time is read. A simulated scheduler
//! replaces this file.

use crate::os::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};

/// When a wait ends at the latest; `None` waits for ever.
#[derive(Clone, Copy)]
pub(super) struct Deadline(Option<Instant>);

impl Deadline {
    pub(super) fn after(timeout: Duration) -> Deadline {
        Deadline(Instant::now().checked_add(timeout))
    }
}

/// A token that one thread waits for and others give. A token given before the wait is kept, so
/// no wake-up is lost; a token left over makes one wait return early, so callers check and loop.
#[derive(Default)]
pub(super) struct Parker {
    token: Mutex<bool>,
    given: Condvar,
}

impl Parker {
    /// Takes the token; false when the deadline came first.
    pub(super) fn park(&self, deadline: Deadline) -> bool {
        let mut token = self.token.lock();
        while !*token {
            match deadline.0 {
                None => self.given.wait(&mut token),
                Some(at) if self.given.wait_until(&mut token, at).timed_out() => break,
                Some(_) => {}
            }
        }
        std::mem::take(&mut *token)
    }

    pub(super) fn unpark(&self) {
        *self.token.lock() = true;
        self.given.notify_one();
    }
}
