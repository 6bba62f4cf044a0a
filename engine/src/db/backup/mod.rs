//! Copies of a running engine, and what makes an engine's directory of one.
//!
//! The engine that runs keeps what a copy needs ([`Engine::begin_backup`](super::Engine::begin_backup)).
//! The copying side sees files only: it may be another process.
//!
//! Invariants:
//! 1. A copy is the directory of a crash: the checkpoint that was pinned, and the log from what that needs
//!    to a position that was durable while the engine kept all of it. The rest of the last segment is
//!    zeros.
//! 2. The superblock comes last, after all else is durable: a copy that is not whole does not open.
//! 3. An increment has of the store what a copy made before lacks: all of the page map, and each image that the
//!    map does not name as that of the copy does. Laid over the copy, piece by piece at their places in
//!    the file, it is a copy again. Nothing else of the copy is used.
//! 4. A copy becomes a directory for work by recovery alone ([`settle`]); nothing in it is changed before.

mod copy;
mod settle;

pub use crate::store::FilePart;
pub use crate::wal::Place;
pub use copy::{check_increment, Copied, CopiedPart, Copying, Pause, PAGES};
pub use settle::{key_id, settle, Settled};
