//! The one error type of the engine.
//!
//! An error is logged where it is consumed, not where it passes.

use super::ids::PageId;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

pub type Result<T> = std::result::Result<T, Error>;

/// What went wrong, in the terms of the caller of the engine.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Error {
    /// A system call failed. `op` is the call in the infinitive ("write", "sync", "open"); `page`,
    /// if it is known which page could not be read.
    Io { op: &'static str, path: PathBuf, source: Arc<std::io::Error>, page: Option<PageId> },
    /// Bytes from disk are not what was written there; `page`, if it is known which page that is.
    Corrupt { what: String, place: String, page: Option<PageId> },
    /// No room: "log", "page store", "disk", "table of open files". Freeing some is enough to go on.
    Full { what: &'static str },
    /// An earlier write or sync failed; the engine refuses everything that needs durability.
    Poisoned { cause: String },
    /// The directory or file must not be touched by this version; says why and what to do.
    Refused(String),
    /// A key that must be unique is already there.
    Duplicate,
    /// The wait for a lock took longer than the caller allowed.
    LockTimeout,
    /// This transaction was chosen to end a deadlock; the whole of it must be rolled back.
    Deadlock,
    /// The session was killed while it waited.
    Interrupted,
    /// The lock is held and the caller asked not to wait.
    WouldWait,
    /// No such table, tree or record.
    NotFound,
    /// A table of this name exists.
    Exists,
    /// A key or a row over a limit of [`super::limits`].
    TooLarge { what: &'static str, bytes: usize, limit: usize },
    /// The log record at an LSN is no longer kept.
    NotRetained,
    /// The table was created or changed after the snapshot was taken.
    TableChanged,
}

impl Error {
    pub fn io(op: &'static str, path: impl Into<PathBuf>, source: std::io::Error) -> Self {
        Error::Io { op, path: path.into(), source: Arc::new(source), page: None }
    }

    pub fn corrupt(what: impl Into<String>, place: impl Into<String>) -> Self {
        Error::Corrupt { what: what.into(), place: place.into(), page: None }
    }

    /// Names the page that cannot be used, unless the error does so already.
    pub fn of_page(mut self, id: PageId) -> Self {
        if let Error::Corrupt { page, .. } | Error::Io { op: "read", page, .. } = &mut self {
            page.get_or_insert(id);
        }
        self
    }

    /// The page that a failed read is about.
    pub fn damaged_page(&self) -> Option<PageId> {
        match self {
            Error::Corrupt { page, .. } | Error::Io { page, .. } => *page,
            _ => None,
        }
    }

    /// Bytes that are wanted cannot be had: they are not what was written, or the disk does not
    /// give them, now or for ever.
    pub fn is_bad_read(&self) -> bool {
        matches!(self, Error::Corrupt { .. } | Error::Io { op: "read", .. })
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Io { op, path, source, page: None } => {
                write!(f, "cannot {op} {}: {source}", path.display())
            }
            Error::Io { op, path, source, page: Some(page) } => {
                write!(f, "cannot {op} page {page} in {}: {source}", path.display())
            }
            Error::Corrupt { what, place, .. } => write!(f, "corrupt: {what} at {place}"),
            Error::Full { what } => write!(f, "the {what} is full"),
            Error::Poisoned { cause } => {
                write!(f, "writes are stopped since an earlier failure: {cause}")
            }
            Error::Refused(why) => f.write_str(why),
            Error::Duplicate => f.write_str("duplicate key"),
            Error::LockTimeout => f.write_str("lock wait timeout"),
            Error::Deadlock => f.write_str("deadlock"),
            Error::Interrupted => f.write_str("interrupted"),
            Error::WouldWait => f.write_str("lock is held by another transaction"),
            Error::NotFound => f.write_str("not found"),
            Error::Exists => f.write_str("exists already"),
            Error::TooLarge { what, bytes, limit } => {
                write!(f, "{what} of {bytes} bytes is over the limit of {limit}")
            }
            Error::NotRetained => f.write_str("log record is no longer kept"),
            Error::TableChanged => f.write_str("table was changed after the snapshot was taken"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Io { source, .. } => Some(&**source),
            _ => None,
        }
    }
}
