//! The answer of a statement whose caller cannot ask for it again: has it happened, and is it durable?

use crate::base::{Error, Lsn, Result};
use crate::db::engine::Engine;

/// A statement has happened: all sessions see its change, and the log has it in its order. An error in
/// the place of this says that nothing has happened.
#[must_use]
#[derive(Debug)]
pub enum Durability {
    Durable,
    /// The flush has failed so. A later one makes the change durable, if the log goes on; after a crash
    /// before that the change is there or is not.
    NotYet(Error),
}

impl Durability {
    /// For callers to which a change that is not durable is a failed one.
    pub fn or_error(self) -> Result<()> {
        match self {
            Durability::Durable => Ok(()),
            Durability::NotYet(error) => Err(error),
        }
    }
}

impl Engine {
    /// The answer of a statement whose change the log has up to `end`.
    pub(super) fn durability(&self, end: Lsn) -> Durability {
        match self.wal.flush_to(end) {
            Ok(()) => Durability::Durable,
            Err(error) => Durability::NotYet(error),
        }
    }
}
