//! The thresholds of dead space, all from one parameter.

/// What the segments in use may take in the long run, in percent of the live bytes, beside a few
/// segments: see [`Store::set_space_percent`](super::Store::set_space_percent).
/// docs/decisions/0031-space-goes-back.md has the costs.
pub const SPACE_PERCENT: u64 = 160;
pub const SPACE_PERCENT_MIN: u64 = 110;
pub const SPACE_PERCENT_MAX: u64 = 400;

/// Shares in percent of the live bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpacePolicy {
    /// Collectable bytes from which on GC works, and from which on it does not rest.
    pub gc_percent: u64,
    pub gc_hard_percent: u64,
    /// Releasable bytes that call for a checkpoint.
    pub checkpoint_percent: u64,
    /// Dead bytes of both stages that writers keep away from.
    pub limit_percent: u64,
}

impl SpacePolicy {
    pub fn of(space_percent: u64) -> SpacePolicy {
        let dead = space_percent - 100;
        let checkpoint_percent = (dead / 8).clamp(1, 12);
        // An image that is being written is not dead yet, and takes room as well.
        let gc_hard_percent = dead - checkpoint_percent - dead / 16;
        SpacePolicy {
            gc_percent: gc_hard_percent * 3 / 4,
            gc_hard_percent,
            checkpoint_percent,
            limit_percent: dead + 25,
        }
    }
}
