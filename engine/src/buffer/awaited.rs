//! The frames that wait for their pages.

use crate::base::PageId;
use crate::os::rank::Rank;
use crate::os::sync::{Mutex, Ranked};
use std::collections::VecDeque;
use std::sync::OnceLock;

pub(super) type Waker = Box<dyn Fn() + Send + Sync>;

/// Frames to be filled, in the order of their scans.
pub(super) struct Awaited {
    pub pages: Mutex<VecDeque<PageId>>,
    /// Wakes the threads that call [`super::Pool::read_step`], if there are any.
    pub waker: OnceLock<Waker>,
}

impl Default for Awaited {
    fn default() -> Awaited {
        let pages = Mutex::ranked(Rank::ReadAhead, VecDeque::new());
        Awaited { pages, waker: OnceLock::new() }
    }
}
