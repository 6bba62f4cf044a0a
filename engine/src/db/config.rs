//! What the host of the engine chooses, and what the engine asks of its host.

pub use crate::cipher::{Keys, Scope};
pub use crate::store::Compression;
use crate::store::SPACE_PERCENT;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

/// When a commit is durable (MariaDB users know the numbers from `innodb_flush_log_at_trx_commit`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlushAtCommit {
    /// 0: written and synced about once a second; a crash of the server can lose that second.
    EverySecond = 0,
    /// 1: durable before the commit is answered.
    AtCommit = 1,
    /// 2: handed to the operating system at commit, synced about once a second; a power cut can
    /// lose that second.
    WriteOnly = 2,
}

/// How batches of the log are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogCompression {
    None = 0,
    Lz4 = 1,
    /// At its level 1, where each commit waits for it.
    Zstd = 2,
    /// LZ4 while memory could hold most pages; zstd while it holds a part of them only. There pages
    /// and log share the device, and zstd took no more processor time (decision 0029).
    Auto = 3,
}

impl LogCompression {
    /// `gathers`: memory holds a part of the pages only.
    pub(super) fn now(self, gathers: bool) -> Compression {
        match self {
            LogCompression::None => Compression::None,
            LogCompression::Zstd => Compression::Zstd(1),
            LogCompression::Auto if gathers => Compression::Zstd(1),
            LogCompression::Lz4 | LogCompression::Auto => Compression::Lz4,
        }
    }
}

/// What the page map takes beside the pool unless told otherwise.
const MAP_SHARE: u64 = 16;
const MAP_BYTES_MIN: u64 = 16 << 20;

/// Encryption at rest.
#[derive(Clone)]
pub struct Encryption {
    pub keys: Arc<dyn Keys>,
    /// The key that everything is written under from now on; `None`: it is written plain. What is
    /// there stays as it is until it is written anew ([`Config::rotate_key_age`]).
    pub writes_under: Option<u32>,
    /// Means nothing if all is written plain.
    pub scope: Scope,
}

impl fmt::Debug for Encryption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Encryption of {:?} under {:?}", self.scope, self.writes_under)
    }
}

#[derive(Clone, Debug)]
pub struct Config {
    /// Page store, superblock and, unless `log_dir` says otherwise, the log.
    pub data_dir: PathBuf,
    pub log_dir: Option<PathBuf>,
    pub buffer_pool_bytes: u64,
    /// Memory for the page map, beside the pool; see [`Config::map_bytes`].
    pub page_map_bytes: Option<u64>,
    /// Checkpoints keep the log that redo needs below this.
    pub log_capacity_bytes: u64,
    pub flush_at_commit: FlushAtCommit,
    /// Of pages, for tables that do not say otherwise.
    pub compression: Compression,
    /// Of batches of the log.
    pub log_compression: LogCompression,
    /// What the page store may take in the long run, in percent of its live bytes: less space costs
    /// more writes. 110 to 400.
    pub space_percent: u64,
    /// Whether pages leave deltas in the log where memory for their changes is scarce: fewer bytes written, and
    /// a second read of a page that is not in memory (docs/decisions/0047-deltas-in-the-log.md).
    pub page_deltas: bool,
    /// Without keys a directory that is encrypted is refused.
    pub encryption: Option<Encryption>,
    /// Pages that are so many versions of the key behind, or more, are written anew in the background, and so
    /// are those that are plain though they should not be, or encrypted; 0: none are.
    pub rotate_key_age: u32,
    /// Start the background threads. Without them the owner calls [`super::Engine::step`].
    pub background: bool,
}

impl Config {
    pub fn new(data_dir: impl Into<PathBuf>) -> Self {
        Config {
            data_dir: data_dir.into(),
            log_dir: None,
            buffer_pool_bytes: 128 << 20,
            page_map_bytes: None,
            log_capacity_bytes: 512 << 20,
            flush_at_commit: FlushAtCommit::AtCommit,
            compression: Compression::Lz4,
            log_compression: LogCompression::Auto,
            space_percent: SPACE_PERCENT,
            page_deltas: false,
            encryption: None,
            rotate_key_age: 1,
            background: true,
        }
    }

    /// A 16th of the pool if nothing else is said, and enough for a few 100,000 pages: an entry of
    /// the map is a small part of its page, but pages of the map must not be missed all the time.
    pub fn map_bytes(&self) -> usize {
        let share = (self.buffer_pool_bytes / MAP_SHARE).max(MAP_BYTES_MIN);
        usize::try_from(self.page_map_bytes.unwrap_or(share)).unwrap_or(usize::MAX)
    }

    pub fn log_dir(&self) -> PathBuf {
        self.log_dir.clone().unwrap_or_else(|| self.data_dir.join("log"))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    Note,
    Warning,
    Error,
}

/// The server around the engine.
pub trait Host: Send + Sync {
    /// A line for the error log.
    fn log(&self, level: Level, message: &str);
    /// One session waits for another; called with no engine mutex held (rules N10).
    fn lock_wait(&self, waiter_session: u64, holder_session: u64);
}

/// A host that is not interested.
pub struct NoHost;

impl Host for NoHost {
    fn log(&self, _level: Level, _message: &str) {}
    fn lock_wait(&self, _waiter_session: u64, _holder_session: u64) {}
}
