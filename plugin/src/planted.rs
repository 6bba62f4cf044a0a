//! Mistakes on purpose, to see that the tests find them: each takes one mended defect's mend out again,
//! or brings a failure about. Only a build with the feature `planted` has them; there the environment
//! variable SLUICE_PLANTED names them, with commas between. It may name bugs of the engine as well
//! (engine/src/os/bug.rs).

use sluice_engine::base::{Error, Result};
use std::path::Path;

#[cfg(feature = "planted")]
pub fn is(name: &str) -> bool {
    use std::sync::OnceLock;
    static CHOSEN: OnceLock<String> = OnceLock::new();
    let chosen = CHOSEN.get_or_init(|| std::env::var("SLUICE_PLANTED").unwrap_or_default());
    chosen.split(',').any(|one| one == name)
}

#[cfg(not(feature = "planted"))]
#[inline(always)]
pub fn is(_name: &str) -> bool {
    false
}

/// As long as this file is in the data directory, the server's requests to flush the log are refused.
const REFUSES_FLUSH: &str = "refuse-flush";

/// The error of a flush of the log that has no room and may be tried again.
pub fn flush() -> Result<()> {
    match is("flush-refused") && Path::new(REFUSES_FLUSH).exists() {
        true => Err(Error::Full { what: "log" }),
        false => Ok(()),
    }
}

/// The answer of a DDL statement whose change is durable, as if its flush had failed.
pub fn ddl() -> Result<()> {
    match (is("ddl-full"), is("ddl-stopped")) {
        (true, _) => Err(Error::Full { what: "log" }),
        (_, true) => Err(Error::Poisoned { cause: "a planted mistake".into() }),
        _ => Ok(()),
    }
}
