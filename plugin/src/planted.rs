//! Mistakes on purpose, to see that the differential test finds them: each takes one mended defect's
//! mend out again. Only a build with the feature `planted` has them; there the environment
//! variable SLUICE_PLANTED names one.

#[cfg(feature = "planted")]
pub fn is(name: &str) -> bool {
    use std::sync::OnceLock;
    static CHOSEN: OnceLock<Option<String>> = OnceLock::new();
    CHOSEN.get_or_init(|| std::env::var("SLUICE_PLANTED").ok()).as_deref() == Some(name)
}

#[cfg(not(feature = "planted"))]
#[inline(always)]
pub fn is(_name: &str) -> bool {
    false
}
