//! Sessions and the threads of the background share these (`background` runs them).

use super::bell::Bell;
use crate::os::rank::Rank;
use crate::os::sync::{JoinHandle, Mutex, Ranked};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::Arc;

pub(crate) struct Workers {
    pub stopped: AtomicBool,
    pub threads: Mutex<Vec<JoinHandle>>,
    /// Of all workers that have no bell of their own.
    pub bell: Arc<Bell>,
    /// Of the worker that evicts: misses ring it often.
    pub evict_bell: Arc<Bell>,
    /// Of the workers that read ahead of scans.
    pub read_bell: Arc<Bell>,
    /// Of the worker that takes back what was rolled back.
    pub revert_bell: Arc<Bell>,
    /// Of the worker that writes the log ahead, and the log's end when it was last rung.
    pub log_bell: Arc<Bell>,
    pub log_rung_at: AtomicU64,
    pub last_log_flush_ns: AtomicU64,
    /// When the rotation of keys may go on.
    pub rotation_due_ns: AtomicU64,
}

impl Default for Workers {
    fn default() -> Workers {
        Workers {
            stopped: AtomicBool::new(false),
            threads: Mutex::ranked(Rank::Threads, Vec::new()),
            bell: Arc::default(),
            evict_bell: Arc::default(),
            read_bell: Arc::default(),
            revert_bell: Arc::default(),
            log_bell: Arc::default(),
            log_rung_at: AtomicU64::new(0),
            last_log_flush_ns: AtomicU64::new(0),
            rotation_due_ns: AtomicU64::new(0),
        }
    }
}
