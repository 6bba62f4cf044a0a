//! The thresholds of dead space.

/// Shares in percent of the live bytes. Measured: docs/decisions/0018-dead-space.md.
#[derive(Clone, Copy, Debug)]
pub struct SpacePolicy {
    /// Collectable bytes from which on GC works.
    pub gc_percent: u64,
    /// Releasable bytes that call for a checkpoint.
    pub checkpoint_percent: u64,
    /// Dead bytes of both stages that writers keep away from.
    pub limit_percent: u64,
}

impl Default for SpacePolicy {
    fn default() -> SpacePolicy {
        SpacePolicy { gc_percent: 30, checkpoint_percent: 12, limit_percent: 80 }
    }
}
