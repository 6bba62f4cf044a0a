//! What the shim knows: the files below the watched directories and the journal.
//!
//! Invariants:
//! 1. A file is known by its inode from the first call that could change it. It then has a number
//!    and a second name in the side directory, so the inode is not used again and its bytes can be
//!    reached whatever becomes of its names.
//! 2. An entry is in the journal before what it describes is done, except that of a sync, which is
//!    there after the sync would have returned.
//! 3. A file's lock is held from reading the old bytes to the end of the write, the lock of names
//!    from looking at a name to the end of its change. Order: names, file, files, journal.
//!
//! Safety argument: the journal is mapped for the life of the process and only touched under its
//! lock, but for the words of the header, which are atomics.

use crate::journal::*;
use crate::raw;
use std::collections::HashMap;
use std::ffi::{CStr, CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};

pub struct FileState {
    pub id: u64,
    pub lock: Mutex<()>,
    /// Its syncs are ignored, to show that the test notices.
    deaf: bool,
}

/// A piece of a file that is mapped for writing.
pub struct Mapping {
    pub start: usize,
    pub len: usize,
    pub file: Arc<FileState>,
    pub offset: u64,
}

type Known = HashMap<(u64, u64), Option<Arc<FileState>>>;

pub struct Shim {
    roots: Vec<Vec<u8>>,
    /// The side directory's `files/`, and `complaints` in it.
    files_dir: i32,
    complaints: i32,
    map: *mut u8,
    journal: Mutex<()>,
    pub names: Mutex<()>,
    /// By device and inode; None is a regular file of no interest.
    files: RwLock<Known>,
    next_id: AtomicU64,
    pub mappings: Mutex<Vec<Mapping>>,
    ignored: Vec<u8>,
    sync_us: u64,
}

// SAFETY: `map` is never unmapped; see the safety argument above for what protects it.
unsafe impl Send for Shim {}
// SAFETY: as for Send.
unsafe impl Sync for Shim {}

static SHIM: OnceLock<Option<Shim>> = OnceLock::new();

pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// None when the process was not told what to watch.
pub fn shim() -> Option<&'static Shim> {
    SHIM.get_or_init(Shim::open).as_ref()
}

fn variable(name: &str) -> Option<Vec<u8>> {
    std::env::var_os(name).map(|value| value.as_bytes().to_vec())
}

fn c_string(bytes: &[u8]) -> CString {
    CString::new(bytes).unwrap_or_default()
}

fn joined(dir: &[u8], name: &[u8]) -> CString {
    c_string(&[dir, b"/", name].concat())
}

fn proc_path(fd: i32) -> CString {
    c_string(format!("/proc/self/fd/{fd}").as_bytes())
}

impl Shim {
    fn open() -> Option<Shim> {
        let side = variable("SLUICE_SHIM_SIDE")?;
        let roots = variable("SLUICE_SHIM_ROOTS")?;
        let opened = |path: &CStr, flags| {
            let fd = raw::open(libc::AT_FDCWD, path, flags | libc::O_CLOEXEC, 0o600);
            if fd < 0 {
                raw::write(2, b"powershim: the side directory is not usable\n");
                raw::die();
            }
            fd as i32
        };
        let append = libc::O_WRONLY | libc::O_APPEND | libc::O_CREAT;
        let complaints = opened(&joined(&side, b"complaints"), append);
        let files_dir = opened(&joined(&side, b"files"), libc::O_PATH | libc::O_DIRECTORY);
        let journal = opened(&joined(&side, b"journal"), libc::O_RDWR);
        raw::truncate(journal, MAX_BYTES);
        let map = raw::map_shared(journal, MAX_BYTES);
        raw::close(journal);
        if map.is_null() {
            raw::write(2, b"powershim: the journal cannot be mapped\n");
            raw::die();
        }
        let delay = variable("SLUICE_SHIM_SYNC_US").unwrap_or_default();
        let shim = Shim {
            roots: roots.split(|b| *b == b':').map(<[u8]>::to_vec).collect(),
            files_dir,
            complaints,
            map,
            journal: Mutex::new(()),
            names: Mutex::new(()),
            files: RwLock::default(),
            next_id: AtomicU64::new(1),
            mappings: Mutex::default(),
            ignored: variable("SLUICE_SHIM_IGNORE_SYNC").unwrap_or_default(),
            sync_us: String::from_utf8_lossy(&delay).parse().unwrap_or(0),
        };
        shim.start_journal();
        shim.remember_files(&side);
        Some(shim)
    }

    fn start_journal(&self) {
        if self.word(WORD_MAGIC).load(Ordering::Acquire) != MAGIC {
            self.word(WORD_END).store(HEADER_BYTES, Ordering::Release);
            self.word(WORD_MAGIC).store(MAGIC, Ordering::Release);
        }
    }

    /// A process before this one has ended without a cut: what it left unsynced is still unsynced.
    fn remember_files(&self, side: &[u8]) {
        let dir = joined(side, b"files");
        let Ok(entries) = std::fs::read_dir(OsStr::from_bytes(dir.as_bytes())) else { return };
        let mut files = self.files.write().unwrap_or_else(PoisonError::into_inner);
        for entry in entries.flatten() {
            let name = entry.file_name();
            let id = name.to_string_lossy().parse().unwrap_or(0);
            if let Some(stat) = raw::stat(self.files_dir, &c_string(name.as_bytes()), false) {
                let state = FileState { id, lock: Mutex::new(()), deaf: false };
                files.insert((stat.st_dev, stat.st_ino), Some(Arc::new(state)));
                self.next_id.fetch_max(id + 1, Ordering::Relaxed);
            }
        }
    }

    fn word(&self, index: usize) -> &AtomicU64 {
        // SAFETY: the header's words are aligned, mapped for ever and used as atomics only.
        unsafe { &*self.map.cast::<AtomicU64>().add(index) }
    }

    /// Says what the shim could not see or does not model: the run does not count.
    pub fn complain(&self, what: &str, path: &[u8]) {
        let line = [b"powershim: ", what.as_bytes(), b" ", path, b"\n"].concat();
        raw::write(self.complaints, &line);
        raw::write(2, &line);
    }

    /// Counts a call; true when it is the one not to be survived.
    pub fn tick(&self) -> bool {
        let call = self.word(WORD_CALLS).fetch_add(1, Ordering::Relaxed) + 1;
        let cut_at = self.word(WORD_CUT_AT).load(Ordering::Relaxed);
        cut_at != 0 && call >= cut_at
    }

    pub fn point(&self, victim: bool, phase: u64) {
        if victim && self.word(WORD_CUT_PHASE).load(Ordering::Relaxed) <= phase {
            raw::die();
        }
    }

    pub fn mark(&self) -> u64 {
        self.word(WORD_END).load(Ordering::Acquire)
    }

    pub fn note(&self, mut entry: Entry, payload: &[u8]) {
        let payload = if payload.iter().all(|b| *b == 0) { &[] } else { payload };
        entry.payload_bytes = payload.len() as u64;
        let _held = lock(&self.journal);
        let end = self.mark();
        if end + entry.total_bytes() > MAX_BYTES {
            self.complain("the journal is full", b"");
            raw::die();
        }
        let words = entry.words();
        // SAFETY: within the mapping, by the check above; nobody else writes after the end while
        // the lock is held.
        unsafe {
            let to = self.map.add(end as usize);
            to.copy_from_nonoverlapping(words.as_ptr().cast(), ENTRY_BYTES as usize);
            to.add(ENTRY_BYTES as usize).copy_from_nonoverlapping(payload.as_ptr(), payload.len());
        }
        self.word(WORD_END).store(end + entry.total_bytes(), Ordering::Release);
    }

    /// How long a sync takes. The real one is not done: nothing here loses power in earnest.
    pub fn sync_time(&self) {
        if self.sync_us > 0 {
            raw::sleep_us(self.sync_us);
        }
    }

    pub fn watches(&self, path: &[u8]) -> bool {
        let below = |root: &Vec<u8>| {
            path.strip_prefix(&root[..]).is_some_and(|r| r.is_empty() || r[0] == b'/')
        };
        self.roots.iter().any(below)
    }

    /// The absolute path of a name in a watched directory.
    pub fn watched(&self, dir: i32, path: &CStr) -> Option<Vec<u8>> {
        let bytes = path.to_bytes();
        let trimmed = bytes.strip_suffix(b"/").unwrap_or(bytes);
        let cut = trimmed.iter().rposition(|b| *b == b'/');
        let (parent, name) = match cut {
            None => (&b"."[..], trimmed),
            Some(0) => (&b"/"[..], &trimmed[1..]),
            Some(at) => (&trimmed[..at], &trimmed[at + 1..]),
        };
        let flags = libc::O_PATH | libc::O_DIRECTORY | libc::O_CLOEXEC;
        let fd = raw::open(dir, &c_string(parent), flags, 0);
        if fd < 0 {
            return None;
        }
        let parent = raw::read_link(&proc_path(fd as i32));
        raw::close(fd as i32);
        let full = [&parent?[..], b"/", name].concat();
        self.watches(&full).then_some(full)
    }

    pub fn path_of(&self, fd: i32) -> Vec<u8> {
        raw::read_link(&proc_path(fd)).unwrap_or_default()
    }

    /// Whether syncs of this path are to be ignored: `SLUICE_SHIM_IGNORE_SYNC` is a list of parts
    /// of paths, separated by colons; a part that ends in `$` must be the path's end.
    pub fn deaf(&self, path: &[u8]) -> bool {
        let matches = |part: &[u8]| match part.strip_suffix(b"$") {
            Some(end) => path.ends_with(end),
            None => path.windows(part.len()).any(|w| w == part),
        };
        self.ignored.split(|b| *b == b':').any(|part| !part.is_empty() && matches(part))
    }

    /// The state of a descriptor, if it is a regular file below a watched directory.
    pub fn file(&self, fd: i32) -> Option<Arc<FileState>> {
        let stat = raw::fstat(fd).filter(|s| s.st_mode & libc::S_IFMT == libc::S_IFREG)?;
        let key = (stat.st_dev, stat.st_ino);
        {
            let files = self.files.read().unwrap_or_else(PoisonError::into_inner);
            if let Some(known) = files.get(&key) {
                return known.clone();
            }
        }
        let path = self.path_of(fd);
        if !self.watches(&path) || path.ends_with(b" (deleted)") {
            let mut files = self.files.write().unwrap_or_else(PoisonError::into_inner);
            return files.entry(key).or_default().clone();
        }
        let link = proc_path(fd);
        self.remember(key, &path, 0, |to| {
            raw::link(libc::AT_FDCWD, &link, self.files_dir, to, libc::AT_SYMLINK_FOLLOW)
        })
    }

    /// The state of a regular file by its name.
    pub fn file_at(&self, dir: i32, path: &CStr, full: &[u8]) -> Option<Arc<FileState>> {
        let stat = raw::stat(dir, path, false)?;
        if stat.st_mode & libc::S_IFMT != libc::S_IFREG {
            return None;
        }
        let key = (stat.st_dev, stat.st_ino);
        {
            let files = self.files.read().unwrap_or_else(PoisonError::into_inner);
            if let Some(Some(known)) = files.get(&key) {
                return Some(known.clone());
            }
        }
        self.remember(key, full, 0, |to| raw::link(dir, path, self.files_dir, to, 0))
    }

    pub fn new_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    /// A file that was just made: whatever had this inode before is gone.
    pub fn created(&self, fd: i32, id: u64, full: &[u8]) {
        let Some(stat) = raw::fstat(fd) else { return };
        let key = (stat.st_dev, stat.st_ino);
        self.files.write().unwrap_or_else(PoisonError::into_inner).remove(&key);
        let link = proc_path(fd);
        self.remember(key, full, id, |to| {
            raw::link(libc::AT_FDCWD, &link, self.files_dir, to, libc::AT_SYMLINK_FOLLOW)
        });
    }

    fn remember(
        &self,
        key: (u64, u64),
        full: &[u8],
        id: u64,
        link: impl FnOnce(&CStr) -> raw::Answer,
    ) -> Option<Arc<FileState>> {
        let mut files = self.files.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(Some(known)) = files.get(&key) {
            return Some(known.clone());
        }
        let id = if id == 0 { self.new_id() } else { id };
        if link(&c_string(id.to_string().as_bytes())) < 0 {
            self.complain("no second name for", full);
            return None;
        }
        let state = Arc::new(FileState { id, lock: Mutex::new(()), deaf: self.deaf(full) });
        files.insert(key, Some(state.clone()));
        Some(state)
    }

    /// The bytes of a file now; shorter where the file ends.
    pub fn old_bytes(&self, id: u64, offset: u64, len: u64) -> Vec<u8> {
        let name = c_string(id.to_string().as_bytes());
        let fd = raw::open(self.files_dir, &name, libc::O_RDONLY | libc::O_CLOEXEC, 0);
        if fd < 0 {
            self.complain("cannot read", name.as_bytes());
            return Vec::new();
        }
        let mut bytes = vec![0; len as usize];
        let got = raw::read_at(fd as i32, &mut bytes, offset);
        raw::close(fd as i32);
        bytes.truncate(got);
        bytes
    }

    /// A sync of `file` that began at `mark` is over.
    pub fn synced(&self, file: &FileState, range: (u64, u64), mark: u64, metadata: bool) {
        if file.deaf {
            return;
        }
        let entry = Entry {
            kind: KIND_SYNCED,
            file: file.id,
            offset: range.0,
            len: range.1,
            old_len: metadata as u64,
            mark,
            ..Entry::default()
        };
        self.note(entry, b"");
    }
}
