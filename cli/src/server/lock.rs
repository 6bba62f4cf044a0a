//! The lock of a server directory. It is taken by `start`, inherited by the
//! server and therefore held until the server is gone, however it goes: no pid
//! can be reused, and no clean-up is needed after a crash.
//!
//! Safety argument: `flock` takes a descriptor that a live `File` owns, and no pointer.

use super::layout::ServerDir;
use super::{files, Result};
use std::fs::File;
use std::os::fd::{AsRawFd, RawFd};

pub struct DirLock {
    file: File,
}

impl DirLock {
    /// `None` when a server, or another `start`, holds the lock.
    pub fn try_take(dir: &ServerDir) -> Result<Option<DirLock>> {
        let path = dir.lock_file();
        let file = files::open_lock(&path)?;
        // SAFETY: flock only uses the descriptor, which `file` keeps open.
        if unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } == 0 {
            return Ok(Some(DirLock { file }));
        }
        let error = std::io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::EWOULDBLOCK) => Ok(None),
            _ => Err(format!("cannot lock {}: {error}", path.display())),
        }
    }

    /// The descriptor to be inherited by the server.
    pub fn descriptor(&self) -> RawFd {
        self.file.as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn second_taker_gets_nothing_until_the_first_is_gone() {
        let path = std::env::temp_dir().join(format!("sluice-lock-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        let dir = ServerDir::new(&path).unwrap();
        let first = DirLock::try_take(&dir).unwrap().expect("free");
        assert!(DirLock::try_take(&dir).unwrap().is_none());
        drop(first);
        assert!(DirLock::try_take(&dir).unwrap().is_some());
        std::fs::remove_dir_all(&path).unwrap();
    }
}
