//! The common ground of all trees of an engine: pages, log, page ids.

use super::apply::apply;
use super::delta::LoggedDeltas;
use super::verify::check_page;
use crate::base::PageId;
use crate::buffer::Pool;
use crate::wal::Wal;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};

/// Says of a value that no one can need its entry any more.
pub type DeadTest = Box<dyn Fn(&[u8]) -> bool + Send + Sync>;

/// All trees of an engine share it.
pub struct Env {
    /// No two in a process have the same.
    pub(super) number: u64,
    pub pool: Arc<Pool>,
    pub wal: Arc<Wal>,
    next_page: AtomicU64,
    /// Entries that may be dropped before a leaf is split. Called under the leaf's exclusive latch:
    /// must not block.
    pub dead: OnceLock<DeadTest>,
}

static ENVS: AtomicU64 = AtomicU64::new(0);

impl Env {
    /// `next_page` lies above every page id that the store or the log ever named.
    pub fn new(pool: Arc<Pool>, wal: Arc<Wal>, next_page: PageId) -> Arc<Env> {
        pool.set_page_check(check_page);
        pool.set_apply(apply);
        pool.set_delta_log(Box::new(LoggedDeltas(Arc::clone(&wal))));
        let next_page = AtomicU64::new(next_page.0.max(1));
        let number = ENVS.fetch_add(1, Relaxed) + 1;
        Arc::new(Env { number, pool, wal, next_page, dead: OnceLock::new() })
    }

    /// A page id never used before.
    pub fn allocate(&self) -> PageId {
        PageId(self.next_page.fetch_add(1, SeqCst))
    }

    /// The lowest id not allocated yet.
    #[cfg(test)]
    pub fn skip_page_ids(&self, next: u64) {
        self.next_page.store(next, SeqCst);
    }

    pub fn next_page(&self) -> PageId {
        PageId(self.next_page.load(SeqCst))
    }
}
