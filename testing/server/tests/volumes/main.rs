//! Servers on file systems of their own: one that gets full under a backup, and one that makes snapshots.
//!
//! `cargo test --release --workspace --test volumes [NAME]`, after `make build`. Where file systems cannot be
//! mounted the tests are skipped.

mod commits;
mod full_disk;
mod snapshot;

use sluice_rig::suite;
use sluice_rig::tests;
use sluice_rig::tool::Tool;
use sluice_server_tests::site::Site;
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

struct World {
    tool: Tool,
}

fn main() -> ExitCode {
    let tests = tests![
        full_disk::a_server_that_fills_its_disk_gives_the_backup_up,
        full_disk::a_disk_that_others_fill_ends_the_backup,
        snapshot::a_snapshot_of_a_running_server_is_a_crash,
    ];
    suite::run(&tests, || Ok(World { tool: Tool::new("volumes")? }))
}

/// The name of a server's data directory. It need not exist.
fn data_dir(site: &Site) -> PathBuf {
    // Without the slash at its end.
    site.data("").components().collect()
}

/// Takes the fresh installation of a server away; returns where it is.
fn taken_away(site: &Site) -> PathBuf {
    let kept = data_dir(site).with_extension("installed");
    fs::rename(data_dir(site), &kept).expect("an installation");
    kept
}
