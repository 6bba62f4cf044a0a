//! Questions that only the caller of the engine can answer.

use crate::base::Result;

/// Whether the session that waits was killed.
pub type Killed<'a> = dyn Fn() -> bool + 'a;

/// Finds the clustered key in (index, key, payload) of a secondary entry.
pub type RowNames = dyn Fn(usize, &[u8], &[u8]) -> Result<Vec<u8>> + Send + Sync;

/// Where the parts of keys end.
pub trait KeyParts: Send + Sync {
    /// How many prefixes of the keys of an index are counted. The last one is the whole key.
    fn count(&self, index: usize) -> usize;
    /// The ends of those parts that stand whole at the front of the bytes.
    fn ends(&self, index: usize, key: &[u8], ends: &mut Vec<usize>);
}
