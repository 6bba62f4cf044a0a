//! The private MariaDB prefix that `scripts/fetch-mariadb` fills.

use super::Result;
use std::fs;
use std::path::{Path, PathBuf};

pub struct Prefix {
    root: PathBuf,
    pub version: String,
}

impl Prefix {
    /// The prefix that was named, else $SLUICE_PREFIX, else `.prefix` of the
    /// checkout that this binary was built in.
    pub fn find(named: Option<&Path>) -> Result<Prefix> {
        let root = match named {
            Some(path) => path.to_path_buf(),
            None => match std::env::var_os("SLUICE_PREFIX") {
                Some(path) => PathBuf::from(path),
                None => checkout_prefix(),
            },
        };
        let root = fs::canonicalize(&root).unwrap_or(root);
        let version = read_version(&root).ok_or_else(|| {
            format!("no MariaDB in the prefix {}: run `make build` first", root.display())
        })?;
        Ok(Prefix { root, version })
    }

    pub fn basedir(&self) -> PathBuf {
        self.root.join("usr")
    }
    pub fn program(&self, name: &str) -> PathBuf {
        self.root.join("usr/bin").join(name)
    }
    pub fn mariadbd(&self) -> PathBuf {
        self.root.join("usr/sbin/mariadbd")
    }
    pub fn messages_dir(&self) -> PathBuf {
        self.root.join("usr/share/mysql")
    }
    pub fn plugin_dir(&self) -> PathBuf {
        self.root.join("plugin")
    }

    pub fn require_plugin(&self) -> Result<()> {
        let plugin = self.plugin_dir().join("ha_sluice.so");
        if plugin.exists() {
            return Ok(());
        }
        Err(format!("the plugin {} is not built: run `make build` first", plugin.display()))
    }
}

/// The binary is in <checkout>/target/release unless it was copied elsewhere; then the prefix is here.
fn checkout_prefix() -> PathBuf {
    let executable = std::env::current_exe().unwrap_or_default();
    executable
        .ancestors()
        .skip(1)
        .map(|dir| dir.join(".prefix"))
        .find(|prefix| prefix.join("READY").exists())
        .unwrap_or_else(|| ".prefix".into())
}

/// READY is written last, so without it the prefix is missing or half made.
fn read_version(root: &Path) -> Option<String> {
    fs::metadata(root.join("READY")).ok()?;
    fs::metadata(root.join("usr/sbin/mariadbd")).ok()?;
    let build_env = fs::read_to_string(root.join("build.env")).ok()?;
    let version = build_env.lines().find_map(|line| line.strip_prefix("MARIADB_VERSION="))?;
    Some(version.to_string())
}

/// Orders dotted version numbers: 10.11.9 is older than 10.11.18.
pub fn version_key(version: &str) -> Vec<u32> {
    version.split('.').map(|part| part.parse().unwrap_or(0)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_order_by_number() {
        assert!(version_key("10.11.9") < version_key("10.11.18"));
        assert!(version_key("10.11.18") == version_key("10.11.18"));
    }

    #[test]
    fn half_made_prefix_is_refused() {
        let root = std::env::temp_dir().join(format!("sluice-prefix-{}", std::process::id()));
        fs::create_dir_all(root.join("usr/sbin")).unwrap();
        fs::write(root.join("usr/sbin/mariadbd"), "").unwrap();
        fs::write(root.join("build.env"), "MARIADB_VERSION=10.11.18\n").unwrap();
        assert!(Prefix::find(Some(&root)).is_err());
        fs::write(root.join("READY"), "").unwrap();
        assert_eq!(Prefix::find(Some(&root)).unwrap().version, "10.11.18");
        fs::remove_dir_all(&root).unwrap();
    }
}
