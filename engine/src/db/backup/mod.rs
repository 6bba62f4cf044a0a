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
//! 3. A copy becomes a directory for work by recovery alone ([`settle`]); nothing in it is changed before.

mod copy;
mod settle;

pub use copy::{Copied, CopiedPart, Copying, Pause};
pub use settle::{key_id, settle, Settled};
