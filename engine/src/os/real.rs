//! The real operating system: Linux files through `pread`/`pwrite`, direct where possible.
//!
//! Safety argument: the raw calls below take only a descriptor owned by a live `std::fs::File`
//! and pointers to slices or zeroed structs that outlive the call.

use super::aligned::AlignedBuf;
use super::{File, OpenMode, Os, OPEN_FILES};
use crate::base::{Error, Result};
use std::ffi::CString;
use std::fs;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

/// The server sets its umask by the variable UMASK (0660 without it), so this is what remains of
/// its mode for files. Never for all the world.
const FILE_MODE: u32 = 0o660;
/// The server's mode for directories, unless the variable UMASK_DIR says more.
const DIR_MODE: u32 = 0o700;
const WORLD: u32 = 0o007;

/// Zeros are written in pieces of so many bytes.
const ZEROS_BYTES: usize = 1 << 20;

/// The mode of new directories, as the server reads UMASK_DIR.
fn dir_mode() -> u32 {
    dir_mode_of(std::env::var("UMASK_DIR").ok().as_deref())
}

fn dir_mode_of(variable: Option<&str>) -> u32 {
    let text = variable.unwrap_or_default().trim();
    let radix = if text.starts_with('0') { 8 } else { 10 };
    (u32::from_str_radix(text, radix).unwrap_or(0) | DIR_MODE) & 0o777 & !WORLD
}

/// Files of the machine this process runs on.
pub struct RealOs {
    start: Instant,
    /// The first file that could not be opened for direct I/O.
    without_direct: OnceLock<PathBuf>,
}

impl RealOs {
    #[allow(clippy::new_ret_no_self, reason = "it is used behind its trait only")]
    pub fn new() -> Arc<dyn Os> {
        Arc::new(RealOs { start: Instant::now(), without_direct: OnceLock::new() })
    }
}

struct RealFile {
    file: Arc<fs::File>,
    path: PathBuf,
}

fn open_with(path: &Path, mode: OpenMode, flags: i32) -> io::Result<fs::File> {
    let mut options = fs::OpenOptions::new();
    options.read(true).write(true).create_new(mode.create).custom_flags(flags | libc::O_CLOEXEC);
    options.mode(FILE_MODE).open(path)
}

impl Os for RealOs {
    fn open(&self, path: &Path, mode: OpenMode) -> Result<Arc<dyn File>> {
        let flags = if mode.direct { libc::O_DIRECT } else { 0 };
        let file = match open_with(path, mode, flags) {
            // Not every file system knows direct I/O (tmpfs): there the page cache serves.
            Err(e) if mode.direct && e.raw_os_error() == Some(libc::EINVAL) => {
                // O_CREAT may have made the file before the flag was refused.
                let _ = self.without_direct.set(path.to_path_buf());
                let retry = OpenMode { create: mode.create && !path.exists(), direct: false };
                open_with(path, retry, 0)
            }
            other => other,
        };
        let file = file.map_err(|e| full_or_io("open", path, e))?;
        Ok(Arc::new(RealFile { file: Arc::new(file), path: path.to_path_buf() }))
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        path.try_exists().map_err(|e| Error::io("look up", path, e))
    }

    fn list(&self, dir: &Path) -> Result<Vec<PathBuf>> {
        let fail = |e| Error::io("list", dir, e);
        let mut names = Vec::new();
        for entry in fs::read_dir(dir).map_err(|e| full_or_io("list", dir, e))? {
            names.push(entry.map_err(fail)?.path());
        }
        names.sort();
        Ok(names)
    }

    fn create_dir(&self, dir: &Path) -> Result<()> {
        match fs::DirBuilder::new().mode(dir_mode()).create(dir) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists && dir.is_dir() => Ok(()),
            other => other.map_err(|e| full_or_io("create directory", dir, e)),
        }
    }

    fn remove(&self, path: &Path) -> Result<()> {
        fs::remove_file(path).map_err(|e| Error::io("remove", path, e))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        fs::rename(from, to).map_err(|e| full_or_io("rename", from, e))
    }

    fn sync_dir(&self, dir: &Path) -> Result<()> {
        // Without a handle nothing was synced, and the same call may succeed later.
        let opened = fs::File::open(dir).map_err(|e| full_or_io("open", dir, e))?;
        opened.sync_all().map_err(|e| Error::io("sync", dir, e))
    }

    fn free_bytes(&self, path: &Path) -> Result<u64> {
        let name = CString::new(path.as_os_str().as_bytes())
            .map_err(|e| Error::io("look up", path, e.into()))?;
        // SAFETY: all-zero bytes are a valid `statvfs`.
        let mut stat: libc::statvfs = unsafe { std::mem::zeroed() };
        // SAFETY: `name` is NUL-terminated and `stat` is writable for the call.
        if unsafe { libc::statvfs(name.as_ptr(), &mut stat) } != 0 {
            return Err(Error::io("look up free space of", path, io::Error::last_os_error()));
        }
        Ok(stat.f_bavail * stat.f_frsize)
    }

    fn lock_dir(&self, dir: &Path) -> Result<Box<dyn Send + Sync>> {
        let path = dir.join("lock");
        let mut options = fs::OpenOptions::new();
        options.mode(FILE_MODE).custom_flags(libc::O_NOFOLLOW);
        let file = options.read(true).write(true).create(true).truncate(false).open(&path);
        let file = file.map_err(|e| full_or_io("open", &path, e))?;
        // SAFETY: the descriptor belongs to `file`.
        if unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } != 0 {
            return Err(Error::Refused(format!(
                "{} is in use by another server process",
                dir.display()
            )));
        }
        Ok(Box::new(file))
    }

    fn without_direct(&self) -> Option<PathBuf> {
        self.without_direct.get().cloned()
    }

    fn now_ns(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn random(&self, out: &mut [u8]) -> Result<()> {
        use std::io::Read;
        let path = Path::new("/dev/urandom");
        let mut device = std::fs::File::open(path).map_err(|e| Error::io("open", path, e))?;
        device.read_exact(out).map_err(|e| Error::io("read", path, e))
    }

    fn entropy(&self) -> u64 {
        use std::hash::{BuildHasher, Hasher};
        std::collections::hash_map::RandomState::new().build_hasher().finish()
    }
}

impl File for RealFile {
    fn path(&self) -> &Path {
        &self.path
    }

    fn len(&self) -> Result<u64> {
        let meta = self.file.metadata().map_err(|e| Error::io("stat", &self.path, e))?;
        Ok(meta.len())
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.file.read_exact_at(buf, offset).map_err(|e| {
            if e.kind() == io::ErrorKind::UnexpectedEof {
                let place = format!("{} offset {offset}", self.path.display());
                return Error::corrupt("file is too short", place);
            }
            Error::io("read", &self.path, e)
        })
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.file.write_all_at(buf, offset).map_err(|e| self.write_error(e))
    }

    fn write_durable(&self, buf: &[u8], offset: u64) -> Result<()> {
        let mut done = 0usize;
        while done < buf.len() {
            let rest = &buf[done..];
            let part = libc::iovec { iov_base: rest.as_ptr() as *mut _, iov_len: rest.len() };
            let at = (offset + done as u64) as i64;
            // SAFETY: one iovec over a live slice; the kernel only reads from it.
            let n = unsafe { libc::pwritev2(self.file.as_raw_fd(), &part, 1, at, libc::RWF_DSYNC) };
            match n {
                0 => return Err(self.write_error(io::ErrorKind::WriteZero.into())),
                1.. => done += n as usize,
                _ => match io::Error::last_os_error() {
                    error if error.kind() == io::ErrorKind::Interrupted => {}
                    // A sandbox or an emulator that does not know the call.
                    error if is_unsupported(&error) => {
                        self.write_at(&buf[done..], offset + done as u64)?;
                        return self.sync();
                    }
                    error => return Err(self.write_error(error)),
                },
            }
        }
        Ok(())
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.file.set_len(len).map_err(|e| full_or_io("truncate", &self.path, e))
    }

    fn allocate_range(&self, from: u64, len: u64) -> Result<()> {
        match self.fallocate(0, from, len) {
            Ok(()) => Ok(()),
            // Not `posix_fallocate`: it would write single bytes, which direct I/O refuses.
            Err(error) if is_unsupported(&error) => self.lengthen_with_zeros(from + len),
            Err(error) => Err(self.write_error(error)),
        }
    }

    fn punch(&self, from: u64, len: u64) -> Result<bool> {
        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        match self.fallocate(mode, from, len) {
            Ok(()) => Ok(true),
            Err(error) if is_unsupported(&error) => Ok(false),
            Err(error) => match error.raw_os_error() {
                Some(libc::EINVAL | libc::EPERM) => Ok(false),
                _ => Err(full_or_io("punch a hole into", &self.path, error)),
            },
        }
    }

    fn sync(&self) -> Result<()> {
        self.file.sync_data().map_err(|e| Error::io("sync", &self.path, e))
    }

    fn renamed(&self, to: &Path) -> Arc<dyn File> {
        Arc::new(RealFile { file: Arc::clone(&self.file), path: to.to_path_buf() })
    }
}

fn is_unsupported(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::ENOSYS))
}

impl RealFile {
    fn fallocate(&self, mode: i32, from: u64, len: u64) -> io::Result<()> {
        let fd = self.file.as_raw_fd();
        loop {
            // SAFETY: the descriptor belongs to `self.file`.
            if unsafe { libc::fallocate(fd, mode, from as i64, len as i64) } == 0 {
                return Ok(());
            }
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
    }

    /// For a file system that cannot reserve blocks: the file gets those beyond its end by being written.
    /// It has no holes there, because such a file system does not punch any.
    fn lengthen_with_zeros(&self, to: u64) -> Result<()> {
        let zeros = AlignedBuf::new(ZEROS_BYTES);
        let mut at = self.len()?;
        while at < to {
            let bytes = (to - at).min(ZEROS_BYTES as u64);
            self.write_at(&zeros[..bytes as usize], at)?;
            at += bytes;
        }
        Ok(())
    }

    fn write_error(&self, error: io::Error) -> Error {
        full_or_io("write", &self.path, error)
    }
}

/// No room is an error of its own: it can be cured, and the engine goes on. Quotas and limits of
/// the file size are no different, nor is it when this process (`EMFILE`) or the machine (`ENFILE`)
/// has as many files open as it may.
fn full_or_io(op: &'static str, path: &Path, error: io::Error) -> Error {
    match error.raw_os_error() {
        Some(libc::ENOSPC | libc::EDQUOT | libc::EFBIG) => Error::Full { what: "disk" },
        Some(libc::EMFILE | libc::ENFILE) => Error::Full { what: OPEN_FILES },
        _ => Error::io(op, path, error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A fault that can be cured is told apart from a failed write, which stops the engine.
    #[test]
    fn no_room_and_no_handle_are_full() {
        let error = |code| full_or_io("open", Path::new("/x"), io::Error::from_raw_os_error(code));
        for code in [libc::EMFILE, libc::ENFILE] {
            assert!(matches!(error(code), Error::Full { what: OPEN_FILES }), "{code}");
        }
        assert!(matches!(error(libc::ENOSPC), Error::Full { what: "disk" }));
        assert!(matches!(error(libc::EIO), Error::Io { .. }));
    }

    /// Where the file system of the temporary directory cannot, nothing happens.
    #[test]
    fn a_punched_range_takes_no_room_until_it_is_allocated_again() {
        use std::os::unix::fs::MetadataExt;
        let dir = std::env::temp_dir().join(format!("sluice-punched-{}", std::process::id()));
        let os = RealOs::new();
        os.create_dir(&dir).unwrap();
        let path = dir.join("pages");
        let file = os.open(&path, OpenMode { create: true, direct: false }).unwrap();
        file.write_at(&[1; 1 << 20], 0).unwrap();
        file.sync().unwrap();
        let used = || fs::metadata(&path).unwrap().blocks() * 512;
        let before = used();
        if file.punch(256 << 10, 512 << 10).unwrap() {
            assert!(used() + (512 << 10) <= before, "{} of {before}", used());
            let mut bytes = vec![7; 1 << 20];
            file.read_at(&mut bytes, 0).unwrap();
            assert!(bytes[256 << 10..768 << 10].iter().all(|&b| b == 0));
            assert!(bytes[..256 << 10].iter().chain(&bytes[768 << 10..]).all(|&b| b == 1));
            file.allocate_range(256 << 10, 512 << 10).unwrap();
            assert!(used() >= before);
        }
        assert_eq!(file.len().unwrap(), 1 << 20);
        fs::remove_dir_all(&dir).unwrap();
    }

    /// With direct I/O, if the temporary directory has it: only whole blocks may be written.
    #[test]
    fn a_file_gets_its_blocks_without_fallocate() {
        let dir = std::env::temp_dir().join(format!("sluice-zeros-{}", std::process::id()));
        let os = RealOs::new();
        os.create_dir(&dir).unwrap();
        let path = dir.join("pages");
        os.open(&path, OpenMode { create: true, direct: true }).unwrap();
        let open = |flags| open_with(&path, OpenMode { create: false, direct: true }, flags);
        let file = open(libc::O_DIRECT).or_else(|_| open(0)).unwrap();
        let file = RealFile { file: Arc::new(file), path: path.clone() };
        let mut ones = AlignedBuf::new(8192);
        ones.fill(1);
        file.write_at(&ones, 0).unwrap();
        let len = 2 * ZEROS_BYTES as u64 + 4096;
        for to in [4096, 8192, len] {
            file.lengthen_with_zeros(to).unwrap();
        }
        let bytes = fs::read(&path).unwrap();
        assert_eq!(bytes.len() as u64, len);
        assert!(bytes[..8192].iter().all(|&b| b == 1) && bytes[8192..].iter().all(|&b| b == 0));
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn a_renamed_file_is_the_same_open_file() {
        let dir = std::env::temp_dir().join(format!("sluice-renamed-{}", std::process::id()));
        let os = RealOs::new();
        os.create_dir(&dir).unwrap();
        let (from, to) = (dir.join("from"), dir.join("to"));
        let old = os.open(&from, OpenMode { create: true, direct: false }).unwrap();
        os.rename(&from, &to).unwrap();
        let new = old.renamed(&to);
        new.write_at(b"x", 0).unwrap();
        assert_eq!((new.path(), old.len().unwrap()), (&*to, 1));
        assert_eq!(fs::read(&to).unwrap(), b"x");
        fs::remove_dir_all(&dir).unwrap();
    }
}

#[cfg(test)]
mod mode_tests {
    use super::*;
    use std::os::unix::fs::{symlink, MetadataExt};

    #[test]
    fn nothing_is_made_for_all_the_world() {
        let os = RealOs::new();
        let dir = std::env::temp_dir().join(format!("sluice-modes-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        os.create_dir(&dir).unwrap();
        for (name, direct) in [("direct", true), ("plain", false)] {
            os.open(&dir.join(name), OpenMode { create: true, direct }).unwrap();
        }
        drop(os.lock_dir(&dir).unwrap());
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
        assert_eq!(mode(&dir) & WORLD, 0, "{:o}", mode(&dir));
        for name in ["direct", "plain", "lock"] {
            assert_eq!(mode(&dir.join(name)) & !0o660, 0, "{name} {:o}", mode(&dir.join(name)));
        }
        fs::remove_file(dir.join("lock")).unwrap();
        symlink(dir.join("plain"), dir.join("lock")).unwrap();
        assert!(os.lock_dir(&dir).is_err(), "a link is not followed");
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn directories_have_the_mode_that_the_server_is_told() {
        let modes =
            [(None, 0o700), (Some("0750"), 0o750), (Some("0777"), 0o770), (Some("x"), 0o700)];
        for (variable, mode) in modes {
            assert_eq!(dir_mode_of(variable), mode, "{variable:?}");
        }
    }
}
