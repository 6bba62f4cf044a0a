//! Files of a server directory: nobody but its user may read them, and none is written through a
//! symbolic link, which somebody else may have put there.

use super::start::user_id;
use super::Result;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

const FILE_MODE: u32 = 0o600;
const DIRECTORY_MODE: u32 = 0o700;
const WRITABLE_BY_ALL: u32 = 0o002;

/// Only the user of the server may look into the directory.
pub fn create_directory(path: &Path) -> Result<()> {
    DirBuilder::new()
        .recursive(true)
        .mode(DIRECTORY_MODE)
        .create(path)
        .map_err(|e| format!("cannot create {}: {e}", path.display()))
}

/// A directory in which everybody may write, or that is another user's, can be changed under us.
pub fn require_own(path: &Path) -> Result<()> {
    let found =
        fs::metadata(path).map_err(|e| format!("cannot look at {}: {e}", path.display()))?;
    let me = user_id();
    if found.uid() != me && me != 0 {
        return Err(format!(
            "{} belongs to user {}, this is user {me}: choose a directory of your own",
            path.display(),
            found.uid()
        ));
    }
    if found.mode() & WRITABLE_BY_ALL != 0 {
        return Err(format!(
            "all users may write in {}: forbid that (chmod o-w) or choose another directory",
            path.display()
        ));
    }
    Ok(())
}

/// Replaces a file in one step. A link of this name is replaced, not followed.
pub fn replace(path: &Path, text: &str) -> Result<()> {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(".new");
    let temporary = Path::new(&temporary);
    let written = match fs::remove_file(temporary) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(e),
        _ => options().create_new(true).write(true).open(temporary),
    };
    written
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .and_then(|()| fs::rename(temporary, path))
        .map_err(|e| format!("cannot write {}: {e}", path.display()))
}

/// Opens a file to be appended to; it is made if it is missing. A link is refused.
pub fn append_to(path: &Path) -> Result<File> {
    open(path, options().create(true).append(true))
}

/// Opens a file for its lock; it is made if it is missing. A link is refused.
pub fn open_lock(path: &Path) -> Result<File> {
    open(path, options().create(true).truncate(false).write(true))
}

fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.mode(FILE_MODE).custom_flags(libc::O_NOFOLLOW);
    options
}

fn open(path: &Path, options: &OpenOptions) -> Result<File> {
    options.open(path).map_err(|e| match e.raw_os_error() {
        Some(libc::ELOOP) => format!("{} is a symbolic link: remove it", path.display()),
        _ => format!("cannot open {}: {e}", path.display()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{symlink, PermissionsExt};
    use std::path::PathBuf;

    fn scratch(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("sluice-files-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        create_directory(&path).unwrap();
        path
    }

    fn mode(path: &Path) -> u32 {
        fs::symlink_metadata(path).unwrap().mode() & 0o777
    }

    #[test]
    fn files_and_directories_are_their_user_s_alone() {
        let dir = scratch("modes");
        replace(&dir.join("pid"), "1\n").unwrap();
        append_to(&dir.join("log")).unwrap();
        open_lock(&dir.join("lock")).unwrap();
        assert_eq!(mode(&dir), 0o700);
        for name in ["pid", "log", "lock"] {
            assert_eq!(mode(&dir.join(name)), 0o600, "{name}");
        }
        require_own(&dir).unwrap();
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn links_are_replaced_or_refused_and_never_followed() {
        let dir = scratch("links");
        let precious = dir.join("precious");
        fs::write(&precious, "precious").unwrap();
        for name in ["pid", "log", "lock", "pid.new"] {
            symlink(&precious, dir.join(name)).unwrap();
        }
        replace(&dir.join("pid"), "1\n").unwrap();
        assert_eq!(fs::read_to_string(dir.join("pid")).unwrap(), "1\n");
        assert!(!fs::symlink_metadata(dir.join("pid")).unwrap().is_symlink());
        assert!(append_to(&dir.join("log")).unwrap_err().contains("symbolic link"));
        assert!(open_lock(&dir.join("lock")).unwrap_err().contains("symbolic link"));
        assert_eq!(fs::read_to_string(&precious).unwrap(), "precious");
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn a_directory_that_others_may_change_is_refused() {
        let dir = scratch("shared");
        for mode in [0o777, 0o702, 0o1777] {
            fs::set_permissions(&dir, fs::Permissions::from_mode(mode)).unwrap();
            assert!(require_own(&dir).unwrap_err().contains("all users may write"), "{mode:o}");
        }
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o755)).unwrap();
        require_own(&dir).unwrap();
        fs::remove_dir_all(&dir).unwrap();
    }
}
