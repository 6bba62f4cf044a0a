//! Settings that change while the engine runs and belong to none of its rooms.

use super::config::{Config, FlushAtCommit, LogCompression};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicU8};

pub(crate) struct Settings {
    log_capacity_bytes: AtomicU64,
    flush_at_commit: AtomicU8,
    log_compression: AtomicU8,
    /// The log does not know of the last setting yet.
    has_news: AtomicBool,
    /// Whether frames gathered their changes when the log was told last.
    gathers: AtomicBool,
    rotate_key_age: AtomicU32,
}

impl Settings {
    pub fn new(config: &Config) -> Settings {
        Settings {
            log_capacity_bytes: AtomicU64::new(config.log_capacity_bytes),
            flush_at_commit: AtomicU8::new(config.flush_at_commit as u8),
            log_compression: AtomicU8::new(config.log_compression as u8),
            has_news: AtomicBool::new(false),
            gathers: AtomicBool::new(false),
            rotate_key_age: AtomicU32::new(config.rotate_key_age),
        }
    }

    pub fn log_capacity_bytes(&self) -> u64 {
        self.log_capacity_bytes.load(Relaxed)
    }

    pub fn set_log_capacity_bytes(&self, bytes: u64) {
        self.log_capacity_bytes.store(bytes, Relaxed);
    }

    pub fn rotate_key_age(&self) -> u32 {
        self.rotate_key_age.load(Relaxed)
    }

    pub fn set_rotate_key_age(&self, versions: u32) {
        self.rotate_key_age.store(versions, Relaxed);
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

    fn log_compression(&self) -> LogCompression {
        match self.log_compression.load(Relaxed) {
            0 => LogCompression::None,
            1 => LogCompression::Lz4,
            2 => LogCompression::Zstd,
            _ => LogCompression::Auto,
        }
    }

    /// The setting, if it or `gathers` has changed since the last call.
    pub fn new_log_compression(&self, gathers: bool) -> Option<LogCompression> {
        let is_set = self.has_news.swap(false, Acquire);
        let has_turned = self.gathers.swap(gathers, Relaxed) != gathers;
        (is_set || has_turned).then(|| self.log_compression())
    }

    pub fn set_log_compression(&self, how: LogCompression) {
        self.log_compression.store(how as u8, Relaxed);
        self.has_news.store(true, Release);
    }
}
