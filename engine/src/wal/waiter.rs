//! A thread that sleeps until the flush leader has an answer for it.

use crate::base::Error;
use crate::os::rank::{self, Rank};
use crate::os::sync::{self, Mutex, Ranked, Thread};
use std::sync::atomic::{AtomicU8, Ordering};

const WAITING: u8 = 0;
const SERVED: u8 = 1;
const LEADS: u8 = 2;
const FAILED: u8 = 3;

#[derive(Clone, Debug)]
pub(super) enum Answer {
    Served,
    Leads,
    Failed(Error),
}

pub(super) struct Waiter {
    state: AtomicU8,
    error: Mutex<Option<Error>>,
    thread: Thread,
}

impl Waiter {
    /// Of the calling thread.
    pub fn new() -> Waiter {
        Waiter {
            state: AtomicU8::new(WAITING),
            error: Mutex::ranked(Rank::LogWaiter, None),
            thread: sync::current(),
        }
    }

    pub fn wait(&self) -> Answer {
        loop {
            match self.state.load(Ordering::Acquire) {
                WAITING => {
                    rank::may_wait(Rank::LogFlushWait);
                    sync::park();
                }
                SERVED => return Answer::Served,
                LEADS => return Answer::Leads,
                _ => {
                    let error = self.error.lock().take();
                    return Answer::Failed(error.unwrap_or(Error::Full { what: "log" }));
                }
            }
        }
    }

    /// Once.
    pub fn answer(&self, answer: Answer) {
        let state = match answer {
            Answer::Served => SERVED,
            Answer::Leads => LEADS,
            Answer::Failed(error) => {
                *self.error.lock() = Some(error);
                FAILED
            }
        };
        self.state.store(state, Ordering::Release);
        self.thread.unpark();
    }
}
