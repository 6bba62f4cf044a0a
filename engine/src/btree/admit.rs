//! What a builder asks whose tree others may read.

use crate::base::Result;

/// Whether an entry may go into a tree.
pub trait Admit: Send {
    /// Called under a latch: must not block. Of a key that may not go in yet it remembers why.
    fn admits(&mut self, key: &[u8]) -> bool;
    /// Waits for the last key that was not admitted; all keys are asked for again afterwards.
    fn wait(&mut self) -> Result<()>;
    /// The keys are in.
    fn done(&mut self);
}
