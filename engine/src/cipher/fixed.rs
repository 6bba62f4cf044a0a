//! Keys for tests and for the simulator. An engine that ships has none of this.

use super::Keys;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

/// Every key, from an oldest to a newest version: no secret.
pub struct FixedKeys {
    pub newest: AtomicU64,
    /// Older ones were thrown away.
    pub oldest: AtomicU64,
}

impl FixedKeys {
    pub fn new(newest: u32) -> Arc<FixedKeys> {
        Arc::new(FixedKeys { newest: AtomicU64::new(u64::from(newest)), oldest: AtomicU64::new(0) })
    }
}

impl Keys for FixedKeys {
    fn newest(&self, _id: u32) -> Option<u32> {
        match self.newest.load(Ordering::Relaxed) {
            0 => None,
            version => Some(version as u32),
        }
    }

    fn key(&self, id: u32, version: u32) -> Option<Vec<u8>> {
        let known = self.oldest.load(Ordering::Relaxed)..=self.newest.load(Ordering::Relaxed);
        known
            .contains(&u64::from(version))
            .then(|| [id.to_le_bytes(), version.to_le_bytes()].concat().repeat(2))
    }
}
