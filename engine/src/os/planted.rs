//! Bugs on purpose: what the simulator must find. `bug` lists all of them; each place in the engine
//! that can misbehave asks [`is`].
//! With the feature `sim` a simulated run plants one. With the feature `planted` the environment variable
//! SLUICE_PLANTED names them, with commas between: for tests of real servers and programs that must fail.
//! Without either the answers are a constant no, and nothing of this remains in the program.

pub use super::bug::Bug;

/// Is this bug planted in the run that this thread belongs to?
#[cfg(feature = "sim")]
pub fn is(bug: Bug) -> bool {
    super::sched::planted(bug)
}

#[cfg(all(feature = "planted", not(feature = "sim")))]
pub fn is(bug: Bug) -> bool {
    use std::sync::OnceLock;
    static CHOSEN: OnceLock<Vec<Bug>> = OnceLock::new();
    let chosen = || {
        let names = std::env::var("SLUICE_PLANTED").unwrap_or_default();
        let is_named = |bug: &Bug| names.split(',').any(|name| name == format!("{bug:?}"));
        Bug::ALL.into_iter().filter(is_named).collect()
    };
    CHOSEN.get_or_init(chosen).contains(&bug)
}

#[cfg(not(any(feature = "sim", feature = "planted")))]
#[inline(always)]
pub const fn is(_bug: Bug) -> bool {
    false
}
