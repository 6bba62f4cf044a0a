//! What the tests on real servers share.
//!
//! 1. A test has a directory of its own. Its servers run below it and end with it. A test that fails
//!    leaves the logs in target/test/<suite>/<test>.
//! 2. A wait is a wait for something. It ends with a panic that names what did not come.
//! 3. Tests share no port and no directory, so that several can run at a time.

pub mod backup;
pub mod binlog;
pub mod builds;
pub mod guide;
pub mod kinds;
pub mod mounted;
pub mod replica;
pub mod scratch;
pub mod site;
pub mod small_disk;
pub mod statements;
pub mod writer;

use std::time::{Duration, Instant};

/// Longer than a slow device under a heavy load needs for anything that a test waits for.
pub const PATIENCE: Duration = Duration::from_secs(180);

/// Waits until `is_so` says yes.
#[track_caller]
pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "not within {} s: {what}", PATIENCE.as_secs());
        std::thread::sleep(Duration::from_millis(20));
    }
}
