//! A directory of plugins as a package has it: the loader as ha_sluice.so, and builds of the plugin
//! for several releases of the server beside it (docs/decisions/0040).

use sluice_rig::server::Prefix;
use sluice_rig::tool::{checkout, run};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

pub struct Builds {
    pub dir: PathBuf,
}

impl Builds {
    /// The loader without a build, in a new directory.
    pub fn new(dir: PathBuf) -> Builds {
        fs::create_dir_all(dir.join("sluice")).expect("a directory for plugins");
        let mut script = Command::new(checkout().join("scripts/build-loader"));
        run(script.arg(dir.join("ha_sluice.so"))).ok();
        Builds { dir }
    }

    pub fn path(&self, release: &str) -> PathBuf {
        self.dir.join(format!("sluice/ha_sluice-{release}.so"))
    }

    /// The build of an installation, under the name of `release`.
    pub fn add_as(&self, release: &str, prefix: &Prefix) {
        symlink(plugin_of(prefix), self.path(release)).expect("a new name");
    }

    pub fn add(&self, prefix: &Prefix) {
        self.add_as(&release_of(prefix), prefix);
    }

    /// A file in place of the build for `release`.
    pub fn put(&self, release: &str, bytes: &[u8]) {
        let _ = fs::remove_file(self.path(release));
        fs::write(self.path(release), bytes).expect("a file");
    }

    /// The option by which a server uses this directory.
    pub fn option(&self) -> String {
        format!("--plugin-dir={}", self.dir.display())
    }
}

pub fn plugin_of(prefix: &Prefix) -> PathBuf {
    prefix.root.join("plugin/ha_sluice.so")
}

/// As 10.11.18.
pub fn release_of(prefix: &Prefix) -> String {
    setting(&prefix.root, "MARIADB_VERSION=")
}

fn setting(root: &Path, name: &str) -> String {
    let build = fs::read_to_string(root.join("build.env")).expect("in the prefix");
    build.lines().find_map(|line| line.strip_prefix(name)).expect("a setting").to_owned()
}

/// The build of an installation as if it had been compiled for the first release of its series.
pub fn of_another_release(prefix: &Prefix) -> Vec<u8> {
    let version = release_of(prefix);
    let (series, patch) = version.rsplit_once('.').expect("three numbers");
    let other = format!("{series}.{}-MariaDB", "0".repeat(patch.len()));
    let id: u32 = setting(&prefix.root, "MARIADB_VERSION_ID=").parse().expect("a number");
    let mut plugin = fs::read(plugin_of(prefix)).expect("the plugin");
    replace_all(&mut plugin, format!("{version}-MariaDB").as_bytes(), other.as_bytes());
    // What the server compares: of the handlerton, MYSQL_VERSION_ID << 8.
    replace_all(&mut plugin, &(id << 8).to_le_bytes(), &((id / 100 * 100) << 8).to_le_bytes());
    // Another series lacks functions that the plugin calls.
    replace_all(&mut plugin, b"_Z17trans_register_ha", b"_Z17trans_register_hb");
    plugin
}

/// The build of an installation as if its server had been compiled with other options: `at` counts the sizes
/// of plugin/src/cpp/server_release.cc.
pub fn of_other_layouts(prefix: &Prefix, at: usize) -> Vec<u8> {
    let mut plugin = fs::read(plugin_of(prefix)).expect("the plugin");
    let mark = b"SLUICE_SIZES_OF\0";
    let found = plugin.windows(mark.len()).position(|bytes| bytes == mark).expect("its sizes");
    plugin[found + mark.len() + 8 * at] ^= 8;
    plugin
}

fn replace_all(bytes: &mut [u8], from: &[u8], to: &[u8]) {
    let places: Vec<_> =
        (0..=bytes.len() - from.len()).filter(|&at| bytes[at..].starts_with(from)).collect();
    assert!(!places.is_empty(), "the plugin does not have {from:x?}");
    places.into_iter().for_each(|at| bytes[at..at + to.len()].copy_from_slice(to));
}
