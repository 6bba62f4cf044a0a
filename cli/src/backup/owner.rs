//! Whose restored files are: those of the user that the target belongs to, or that --owner names. The server
//! must be able to write them.

use super::files;
use crate::Result;
use std::fs;
use std::os::unix::fs::{chown, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;

const PROBE: &str = "sluice-restore.owner";

/// Numbers of a user and a group.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Ids {
    uid: u32,
    gid: u32,
}

impl Ids {
    pub fn of(path: &Path) -> Result<Ids> {
        let meta = fs::metadata(path);
        let meta = meta.map_err(|e| format!("cannot look at {}: {e}", path.display()))?;
        Ok(Ids { uid: meta.uid(), gid: meta.gid() })
    }

    /// Those that `chown` takes `wanted` for: USER (with the group of its login), USER:GROUP, or numbers.
    /// A directory in `dir` is given away and removed, so it also finds out whether we may do that.
    pub fn named(wanted: &str, dir: &Path) -> Result<Ids> {
        let probe = dir.join(PROBE);
        files::make_dir(&probe)?;
        let found = give_by_name(wanted, &probe).and_then(|()| Ids::of(&probe));
        let _ = fs::remove_dir(&probe);
        found
    }

    pub fn is_root(self) -> bool {
        self.uid == 0
    }

    pub fn give(self, path: &Path) -> Result<()> {
        if Ids::of(path)? == self {
            return Ok(());
        }
        let given = chown(path, Some(self.uid), Some(self.gid));
        given.map_err(|e| format!("cannot give {} its owner: {e}", path.display()))
    }

    /// All below `dir`, whose directories get durable.
    pub fn give_below(self, dir: &Path) -> Result<()> {
        for path in files::list(dir)? {
            self.give(&path)?;
            if path.is_dir() {
                self.give_below(&path)?;
            }
        }
        files::sync(dir)
    }
}

fn give_by_name(wanted: &str, path: &Path) -> Result<()> {
    let spec = if wanted.contains(':') { wanted.to_owned() } else { format!("{wanted}:") };
    let said = Command::new("chown").arg("--").arg(&spec).arg(path).output();
    let said = said.map_err(|e| format!("cannot run chown: {e}"))?;
    let words = String::from_utf8_lossy(&said.stderr);
    match said.status.success() {
        true => Ok(()),
        false => Err(format!(
            "--owner {wanted} is to be USER, USER:GROUP or UID:GID, and only root gives files away: {}",
            words.trim_end()
        )),
    }
}

/// `dir` and the directories above it that are not there.
pub fn missing(dir: &Path) -> Vec<PathBuf> {
    let is_missing = |path: &&Path| !path.as_os_str().is_empty() && !path.exists();
    dir.ancestors().take_while(is_missing).map(Path::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dir(name: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("sluice-owner-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir(&dir).unwrap();
        dir
    }

    #[test]
    fn an_owner_that_nobody_knows_is_refused() {
        let dir = dir("unknown");
        for wanted in ["no-such-user", "root:no-such-group", "-R", "1:2:3"] {
            let why = Ids::named(wanted, &dir).err().unwrap_or_default();
            assert!(why.starts_with(&format!("--owner {wanted} is to be USER")), "{why}");
            assert!(files::list(&dir).unwrap().is_empty());
        }
        fs::remove_dir(&dir).unwrap();
    }

    #[test]
    fn an_owner_has_a_name_or_numbers() {
        let dir = dir("known");
        let own = Ids::of(&dir).unwrap();
        let numbers = Ids::named(&format!("{}:{}", own.uid, own.gid), &dir);
        assert!(numbers.is_ok_and(|ids| ids == own));
        if own.is_root() {
            assert!(Ids::named("root", &dir).is_ok_and(Ids::is_root));
            let other = Ids::named("nobody", &dir).unwrap_or_else(|why| panic!("{why}"));
            assert!(other.uid != 0 && other.gid != 0, "the group of its login");
            fs::create_dir(dir.join("a")).unwrap();
            fs::write(dir.join("a/b"), "").unwrap();
            other.give_below(&dir).unwrap();
            assert!(Ids::of(&dir.join("a/b")).is_ok_and(|ids| ids == other));
        }
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn directories_that_are_missing() {
        let dir = dir("missing");
        assert!(missing(&dir).is_empty());
        assert_eq!(missing(&dir.join("a/b")), [dir.join("a/b"), dir.join("a")]);
        assert_eq!(missing(Path::new("no-such-directory")), [PathBuf::from("no-such-directory")]);
        fs::remove_dir(&dir).unwrap();
    }
}
