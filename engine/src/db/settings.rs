//! Settings that change while the engine runs and belong to none of its rooms.

use super::config::{Config, FlushAtCommit};
use std::sync::atomic::{AtomicU64, AtomicU8, Ordering::Relaxed};

pub(crate) struct Settings {
    log_capacity_bytes: AtomicU64,
    flush_at_commit: AtomicU8,
}

impl Settings {
    pub fn new(config: &Config) -> Settings {
        Settings {
            log_capacity_bytes: AtomicU64::new(config.log_capacity_bytes),
            flush_at_commit: AtomicU8::new(config.flush_at_commit as u8),
        }
    }

    pub fn log_capacity_bytes(&self) -> u64 {
        self.log_capacity_bytes.load(Relaxed)
    }

    pub fn set_log_capacity_bytes(&self, bytes: u64) {
        self.log_capacity_bytes.store(bytes, Relaxed);
    }

    pub fn flush_at_commit(&self) -> FlushAtCommit {
        match self.flush_at_commit.load(Relaxed) {
            0 => FlushAtCommit::EverySecond,
            2 => FlushAtCommit::WriteOnly,
            _ => FlushAtCommit::AtCommit,
        }
    }

    pub fn set_flush_at_commit(&self, mode: FlushAtCommit) {
        self.flush_at_commit.store(mode as u8, Relaxed);
    }
}
