//! What a version of an entry says, and where it is read when its log is gone.
//!
//! 1. A version is named by the LSN of its record, and that name never changes: entries and records keep it
//!    when the version moves from the log to the tree of old versions.
//! 2. The same note is in the log record and in that tree (`note`), so both give the same `version`.
//! 3. `old_versions` says which versions are kept, and what must be durable before log may go (rules M5).

mod note;
mod old_versions;
mod version;
mod version_reader;

pub use note::Note;
pub(super) use old_versions::{
    lsn_key, parse_first_part, parse_key_key, parse_lsn_key, replaced_header, Moved, BY_KEY,
};
pub use old_versions::{OldVersions, OLD_VERSIONS_TREE};
pub(super) use version::VersionRecord;
pub(super) use version_reader::VersionReader;
