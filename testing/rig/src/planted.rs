//! The plugin with mistakes that can be switched on (plugin/src/planted.rs), in a directory of its own.

use crate::place::target_dir;
use crate::server::{expect_success, Prefix};
use crate::tool::checkout;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::process::Command;

/// Builds it for the server in `prefix`; returns its plugin directory.
pub fn build(prefix: &Prefix) -> io::Result<PathBuf> {
    let target = target_dir().join("planted");
    println!("cargo build --features planted");
    let mut cargo = Command::new("cargo");
    cargo.args(["build", "--release", "--locked", "-p", "ha_sluice", "--features", "planted"]);
    cargo.arg("--target-dir").arg(&target).env("SLUICE_PREFIX", &prefix.root);
    expect_success("cargo build", cargo.current_dir(checkout()).status()?)?;
    let plugins = target.join("plugin");
    fs::create_dir_all(&plugins)?;
    // Renamed into place: a running server keeps the file that it has mapped.
    let new = plugins.join("ha_sluice.so.new");
    fs::copy(target.join("release/libha_sluice.so"), &new)?;
    fs::rename(&new, plugins.join("ha_sluice.so"))?;
    Ok(plugins)
}
