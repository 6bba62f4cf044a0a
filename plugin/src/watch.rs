//! What the engine does to its files, for what its threads wait, and the threads themselves, as
//! performance_schema sees them: wait/io/file/sluice/%, wait/synch/cond/sluice/%, thread/sluice/%.

use crate::abi_types::{AbiHost, AbiWatch};
use crate::host::HOST;
use sluice_engine::base::Result;
use sluice_engine::os::observe::{self, Observer, Wait};
use sluice_engine::os::{File, OpenMode, Os, RealOs};
use std::ffi::{c_void, CString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

/// As in `cpp/psi.cc`.
const LOG: u32 = 0;
const LOG_CONTROL: u32 = 1;
const PAGES: u32 = 2;
const PAGE_MAP: u32 = 3;
const SUPERBLOCK: u32 = 4;
const BINLOG: u32 = 5;

/// As in `cpp/sluice_abi.h`.
const READ: u32 = 0;
const WRITE: u32 = 1;
const SYNC: u32 = 2;
const RESIZE: u32 = 3;

/// As in `cpp/psi.cc`.
const THREADS: [&str; 12] = [
    "sluice-log",
    "sluice-check",
    "sluice-gc",
    "sluice-evict",
    "sluice-revert",
    "sluice-purge",
    "sluice-move",
    "sluice-redo",
    "sluice-stats",
    // The handler begins it.
    "sluice-binlog",
    "sluice-age",
    "sluice-read",
];

/// A file that is not the engine's own is one of the binary log.
fn kind_of(path: &Path) -> u32 {
    let name = path.file_name().and_then(|n| n.to_str()).unwrap_or("");
    match name {
        "control" => LOG_CONTROL,
        "pages" => PAGES,
        "superblock" => SUPERBLOCK,
        _ if name.starts_with("map") => PAGE_MAP,
        _ if path.extension().is_some_and(|e| e == "log") => LOG,
        _ => BINLOG,
    }
}

fn c_path(path: &Path) -> Option<CString> {
    CString::new(path.as_os_str().as_bytes()).ok()
}

/// Begins an event, runs `body`, and ends it.
fn watched<T>(
    begin: impl FnOnce(&mut AbiWatch),
    end: impl FnOnce(&mut AbiWatch),
    body: impl FnOnce() -> T,
) -> T {
    let mut watch = AbiWatch { locker: std::ptr::null_mut(), state: [0; 32] };
    begin(&mut watch);
    let answer = body();
    end(&mut watch);
    answer
}

/// The machine's files, watched.
pub struct WatchedOs(Arc<dyn Os>);

impl WatchedOs {
    #[allow(clippy::new_ret_no_self, reason = "it is used behind its trait only")]
    pub fn new() -> Arc<dyn Os> {
        let os = RealOs::new();
        if HOST.get().is_none() {
            return os;
        }
        observe::set_observer(Box::new(Events));
        Arc::new(WatchedOs(os))
    }

    fn gone(&self, path: &Path) {
        if let (Some(host), Some(path)) = (HOST.get(), c_path(path)) {
            (host.file_removed)(path.as_ptr());
        }
    }
}

/// `file`, open under the name `path`, as the server knows it; itself if the server does not ask.
fn watch_file(file: Arc<dyn File>, path: &Path) -> Arc<dyn File> {
    let (Some(host), Some(name)) = (HOST.get(), c_path(path)) else { return file };
    let watched = (host.file_opened)(kind_of(path), name.as_ptr());
    if watched.is_null() {
        return file;
    }
    let renamed = AtomicBool::new(false);
    Arc::new(WatchedFile { file, host, watched: watched as usize, renamed })
}

impl Os for WatchedOs {
    fn open(&self, path: &Path, mode: OpenMode) -> Result<Arc<dyn File>> {
        let file = self.0.open(path, mode)?;
        Ok(watch_file(file, path))
    }

    fn remove(&self, path: &Path) -> Result<()> {
        self.0.remove(path)?;
        self.gone(path);
        Ok(())
    }

    /// The server forgets the old name when the file that was open under it is closed: see
    /// [`WatchedFile::renamed`].
    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.0.rename(from, to)
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        self.0.exists(path)
    }

    fn list(&self, dir: &Path) -> Result<Vec<PathBuf>> {
        self.0.list(dir)
    }

    fn create_dir(&self, dir: &Path) -> Result<()> {
        self.0.create_dir(dir)
    }

    fn sync_dir(&self, dir: &Path) -> Result<()> {
        self.0.sync_dir(dir)
    }

    fn free_bytes(&self, path: &Path) -> Result<u64> {
        self.0.free_bytes(path)
    }

    fn lock_dir(&self, dir: &Path) -> Result<Box<dyn Send + Sync>> {
        self.0.lock_dir(dir)
    }

    fn without_direct(&self) -> Option<PathBuf> {
        self.0.without_direct()
    }

    fn now_ns(&self) -> u64 {
        self.0.now_ns()
    }

    fn random(&self, out: &mut [u8]) -> Result<()> {
        self.0.random(out)
    }

    fn entropy(&self) -> u64 {
        self.0.entropy()
    }
}

struct WatchedFile {
    file: Arc<dyn File>,
    host: &'static AbiHost,
    /// Address of what the server knows it by.
    watched: usize,
    /// It has another name now.
    renamed: AtomicBool,
}

impl WatchedFile {
    /// An operation of `bytes` bytes.
    fn watch<T>(&self, operation: u32, bytes: usize, body: impl FnOnce() -> T) -> T {
        let (host, file) = (self.host, self.watched as *mut c_void);
        let begin = |watch: &mut AbiWatch| (host.file_begin)(file, operation, bytes, watch);
        watched(begin, |watch| (host.file_end)(bytes, watch), body)
    }
}

impl Drop for WatchedFile {
    fn drop(&mut self) {
        (self.host.file_closed)(self.watched as *mut c_void);
        if self.renamed.load(Ordering::Relaxed) {
            if let Some(path) = c_path(self.file.path()) {
                (self.host.file_removed)(path.as_ptr());
            }
        }
    }
}

impl File for WatchedFile {
    fn path(&self) -> &Path {
        self.file.path()
    }

    fn len(&self) -> Result<u64> {
        self.file.len()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.watch(READ, buf.len(), || self.file.read_at(buf, offset))
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.watch(WRITE, buf.len(), || self.file.write_at(buf, offset))
    }

    fn write_durable(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.watch(WRITE, buf.len(), || self.file.write_durable(buf, offset))
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.watch(RESIZE, 0, || self.file.set_len(len))
    }

    fn allocate_range(&self, from: u64, len: u64) -> Result<()> {
        self.watch(RESIZE, 0, || self.file.allocate_range(from, len))
    }

    fn punch(&self, from: u64, len: u64) -> Result<bool> {
        self.watch(RESIZE, 0, || self.file.punch(from, len))
    }

    fn sync(&self) -> Result<()> {
        self.watch(SYNC, 0, || self.file.sync())
    }

    fn renamed(&self, to: &Path) -> Arc<dyn File> {
        self.renamed.store(true, Ordering::Relaxed);
        watch_file(self.file.renamed(to), to)
    }
}

/// Waits and threads.
struct Events;

impl Observer for Events {
    fn wait(&self, what: Wait, body: &mut dyn FnMut()) {
        let Some(host) = HOST.get() else { return body() };
        watched(
            |watch| (host.pause_begin)(what as u32, watch),
            |watch| (host.pause_end)(watch),
            body,
        );
    }

    fn thread(&self, name: &'static str, body: &mut dyn FnMut()) {
        let which = THREADS.iter().position(|&thread| thread == name);
        let (Some(host), Some(which)) = (HOST.get(), which) else { return body() };
        (host.thread_begin)(which as u32);
        body();
        (host.thread_end)();
    }
}
