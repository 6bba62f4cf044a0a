//! The directory of one test, and the installation that its servers run from.

use sluice_rig::server::{copy_tree, Prefix};
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::OnceLock;

pub struct Scratch {
    root: PathBuf,
    /// Where the logs go if the test fails.
    logs: PathBuf,
}

static COUNT: AtomicU32 = AtomicU32::new(0);

impl Scratch {
    pub fn new(suite: &str, test: &str) -> Scratch {
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        // Short: the name of a socket has 107 bytes at most.
        let name = format!("sl-{suite}.{}.{number}", std::process::id());
        let root = std::env::temp_dir().join(name);
        fs::create_dir_all(&root).expect("a directory for the test");
        Scratch { root, logs: target_dir().join("test").join(suite).join(test) }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    fn keep_logs(&self) -> io::Result<()> {
        let _ = fs::remove_dir_all(&self.logs);
        fs::create_dir_all(&self.logs)?;
        for dir in fs::read_dir(&self.root)?.flatten().filter(|d| d.path().is_dir()) {
            for file in fs::read_dir(dir.path())?.flatten() {
                let name = file.file_name().to_string_lossy().into_owned();
                if name.ends_with(".log") || name == "stacks" {
                    let kept = format!("{}.{name}", dir.file_name().to_string_lossy());
                    fs::copy(file.path(), self.logs.join(kept))?;
                }
            }
        }
        eprintln!("the logs are in {}", self.logs.display());
        Ok(())
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _ = self.keep_logs();
        }
        let _ = fs::remove_dir_all(&self.root);
    }
}

fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("testing/server of a workspace")
}

fn target_dir() -> PathBuf {
    let other = std::env::var_os("CARGO_TARGET_DIR").map(|dir| workspace().join(dir));
    other.unwrap_or_else(|| workspace().join("target"))
}

/// The private installation of MariaDB, with our plugin.
pub fn prefix() -> Prefix {
    whole_prefix("SLUICE_PREFIX", ".prefix", "make build")
}

/// The installation of the series that [`prefix`] is upgraded to.
pub fn next_prefix() -> Prefix {
    whole_prefix("SLUICE_NEXT_PREFIX", ".prefix-11.8", "make build SERVER=11.8")
}

fn whole_prefix(variable: &str, default: &str, made_by: &str) -> Prefix {
    let root = std::env::var_os(variable).map_or(workspace().join(default), PathBuf::from);
    let root = fs::canonicalize(&root).unwrap_or(root);
    let is_whole = root.join("READY").exists() && root.join("plugin/ha_sluice.so").exists();
    assert!(is_whole, "nothing to test in {}: run {made_by}", root.display());
    Prefix { root }
}

/// Where the repository keeps data directories of formats.
pub fn kept_formats() -> PathBuf {
    workspace().join("testing/formats")
}

/// Makes `data` a data directory as a fresh installation has it.
pub fn install(data: &Path) {
    static MADE: OnceLock<PathBuf> = OnceLock::new();
    let made = MADE.get_or_init(|| installed(&prefix()).expect("an installation"));
    copy_tree(made, data).expect("a copy of the installation");
}

/// A data directory to be copied, made once for each installation of MariaDB.
fn installed(prefix: &Prefix) -> io::Result<PathBuf> {
    let mut hasher = DefaultHasher::new();
    fs::read(prefix.root.join("READY"))?.hash(&mut hasher);
    let dir = target_dir().join("test");
    let made = dir.join(format!("installed.{:016x}", hasher.finish()));
    if !made.exists() {
        // Without a dot: the log of the installation has another extension, and the same name.
        let unfinished = dir.join(format!("unfinished-{}", std::process::id()));
        fs::create_dir_all(&dir)?;
        prefix.install(&unfinished)?;
        // Another process may have been quicker: then its own is there.
        if fs::rename(&unfinished, &made).is_err() {
            fs::remove_dir_all(&unfinished)?;
        }
        fs::remove_file(unfinished.with_extension("install.log"))?;
    }
    Ok(made)
}
