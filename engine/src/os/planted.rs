//! Bugs on purpose: what the simulator must find. `bug` lists all of them; each place in the engine
//! that can misbehave asks [`is`].
//! Without the feature `sim` the answers are a constant no, and nothing of this remains in the program.

pub use super::bug::Bug;

/// Is this bug planted in the run that this thread belongs to?
#[cfg(feature = "sim")]
pub fn is(bug: Bug) -> bool {
    super::sched::planted(bug)
}

#[cfg(not(feature = "sim"))]
#[inline(always)]
pub const fn is(_bug: Bug) -> bool {
    false
}
