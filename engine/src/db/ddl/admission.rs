//! When a builder of trees asks for room, and whether its statement was killed.

use crate::base::{Error, Result};
use crate::db::callbacks::Killed;
use crate::db::engine::Engine;
use crate::db::lease::Purpose;

/// After so many bytes of entries.
const STEP_BYTES: usize = 64 << 10;

/// Asks before the first entry.
pub(super) struct Admission {
    unasked_bytes: usize,
}

impl Default for Admission {
    fn default() -> Admission {
        Admission { unasked_bytes: STEP_BYTES }
    }
}

impl Admission {
    /// Called with no latch held, before so many bytes of entries.
    pub fn ask(&mut self, engine: &Engine, bytes: usize, killed: &Killed<'_>) -> Result<()> {
        self.unasked_bytes += bytes;
        if self.unasked_bytes < STEP_BYTES {
            return Ok(());
        }
        self.unasked_bytes = 0;
        if killed() {
            return Err(Error::Interrupted);
        }
        engine.admit(Purpose::Add, killed)
    }
}
