//! Plugin and program with mistakes that can be switched on (plugin/src/planted.rs, engine/src/os/bug.rs), in a
//! directory of their own.

use crate::place::target_dir;
use crate::server::{expect_success, Prefix};
use crate::tool::checkout;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::process::Command;

/// Builds the plugin for the server in `prefix`; returns its plugin directory.
pub fn build(prefix: &Prefix) -> io::Result<PathBuf> {
    let target = build_crate("ha_sluice", prefix)?;
    let plugins = target.join("plugin");
    fs::create_dir_all(&plugins)?;
    // Renamed into place: a running server keeps the file that it has mapped.
    let new = plugins.join("ha_sluice.so.new");
    fs::copy(target.join("release/libha_sluice.so"), &new)?;
    fs::rename(&new, plugins.join("ha_sluice.so"))?;
    Ok(plugins)
}

/// Builds the program `sluice`; returns its path.
pub fn build_program(prefix: &Prefix) -> io::Result<PathBuf> {
    Ok(build_crate("sluice", prefix)?.join("release/sluice"))
}

/// Returns cargo's directory.
fn build_crate(name: &str, prefix: &Prefix) -> io::Result<PathBuf> {
    let target = target_dir().join("planted");
    println!("cargo build -p {name} --features planted");
    let mut cargo = Command::new("cargo");
    cargo.args(["build", "--release", "--locked", "-p", name, "--features", "planted"]);
    cargo.arg("--target-dir").arg(&target).env("SLUICE_PREFIX", &prefix.root);
    expect_success("cargo build", cargo.current_dir(checkout()).status()?)?;
    Ok(target)
}
