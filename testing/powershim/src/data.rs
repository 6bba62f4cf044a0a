//! Calls that change the bytes or the length of an open file, and calls that make them durable.
//!
//! Safety argument: each function has the contract of the libc function that it replaces and hands
//! its arguments to the same system call; of the caller's memory it reads what that call would.

use crate::journal::*;
use crate::raw::{self, call, to_libc, Answer};
use crate::state::{lock, shim, FileState, Mapping, Shim};
use libc::{c_int, c_void, iovec, off_t, size_t, ssize_t};
use std::sync::Arc;

const WHOLE: (u64, u64) = (0, u64::MAX);

/// The offset argument of calls that write at the descriptor's position.
const POSITION: off_t = -1;

/// Does a write of `len` bytes by `act`, with its entry before it and, if the descriptor or the
/// call asks for it, the sync after it.
fn write(
    fd: c_int,
    len: usize,
    offset: off_t,
    dsync: bool,
    act: impl FnOnce() -> Answer,
) -> ssize_t {
    let Some(shim) = shim() else { return to_libc(act()) };
    let Some(file) = shim.file(fd).filter(|_| len > 0) else { return to_libc(act()) };
    let victim = shim.tick();
    shim.point(victim, PHASE_BEFORE);
    let flags = raw::descriptor_flags(fd);
    let held = lock(&file.lock);
    let old_len = length(fd);
    let offset = match offset {
        _ if flags & libc::O_APPEND != 0 => old_len,
        POSITION => raw::position(fd),
        given => given as u64,
    };
    note_change(shim, &file, offset, len as u64, old_len, old_len.max(offset + len as u64));
    let mark = shim.mark();
    shim.point(victim, PHASE_NOTED);
    let answer = act();
    drop(held);
    shim.point(victim, PHASE_DONE);
    if answer > 0 && (dsync || flags & libc::O_DSYNC != 0) {
        shim.sync_time();
        shim.synced(&file, (offset, answer as u64), mark, flags & libc::O_SYNC == libc::O_SYNC);
    }
    shim.point(victim, PHASE_RETURN);
    to_libc(answer)
}

fn length(fd: c_int) -> u64 {
    raw::fstat(fd).map_or(0, |s| s.st_size as u64)
}

fn note_change(shim: &Shim, file: &FileState, offset: u64, len: u64, old_len: u64, new_len: u64) {
    let readable = old_len.saturating_sub(offset).min(len);
    let old = if readable > 0 { shim.old_bytes(file.id, offset, readable) } else { Vec::new() };
    let kind = KIND_CHANGE;
    shim.note(
        Entry { kind, file: file.id, offset, len, old_len, new_len, ..Entry::default() },
        &old,
    );
}

fn fd_arg(fd: c_int) -> usize {
    fd as isize as usize
}

#[export_name = "write"]
pub unsafe extern "C" fn plain_write(fd: c_int, from: *const c_void, n: size_t) -> ssize_t {
    // SAFETY: as the caller promised for this call.
    let act = || unsafe { call(libc::SYS_write, [fd_arg(fd), from as usize, n, 0, 0, 0]) };
    write(fd, n, POSITION, false, act)
}

#[no_mangle]
pub unsafe extern "C" fn pwrite(fd: c_int, from: *const c_void, n: size_t, at: off_t) -> ssize_t {
    let args = [fd_arg(fd), from as usize, n, at as usize, 0, 0];
    // SAFETY: as the caller promised for this call.
    write(fd, n, at, false, || unsafe { call(libc::SYS_pwrite64, args) })
}

#[no_mangle]
pub unsafe extern "C" fn pwrite64(fd: c_int, from: *const c_void, n: size_t, at: off_t) -> ssize_t {
    // SAFETY: the same contract.
    unsafe { pwrite(fd, from, n, at) }
}

/// # Safety
/// `parts` must point to `count` parts.
unsafe fn total(parts: *const iovec, count: c_int) -> usize {
    let count = usize::try_from(count).unwrap_or(0);
    // SAFETY: as the caller promised.
    (0..count).map(|i| unsafe { (*parts.add(i)).iov_len }).sum()
}

#[no_mangle]
pub unsafe extern "C" fn writev(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t {
    let args = [fd_arg(fd), parts as usize, count as usize, 0, 0, 0];
    // SAFETY: as the caller promised for this call.
    let (n, act) = unsafe { (total(parts, count), || call(libc::SYS_writev, args)) };
    write(fd, n, POSITION, false, act)
}

#[no_mangle]
pub unsafe extern "C" fn pwritev2(
    fd: c_int,
    parts: *const iovec,
    count: c_int,
    at: off_t,
    flags: c_int,
) -> ssize_t {
    let args = [fd_arg(fd), parts as usize, count as usize, at as usize, 0, flags as usize];
    // SAFETY: as the caller promised for this call.
    let (n, act) = unsafe { (total(parts, count), || call(libc::SYS_pwritev2, args)) };
    if flags & libc::RWF_APPEND != 0 {
        complain_about(fd, "pwritev2 with RWF_APPEND");
    }
    write(fd, n, at, flags & (libc::RWF_DSYNC | libc::RWF_SYNC) != 0, act)
}

#[no_mangle]
pub unsafe extern "C" fn pwritev64v2(
    fd: c_int,
    parts: *const iovec,
    count: c_int,
    at: off_t,
    flags: c_int,
) -> ssize_t {
    // SAFETY: the same contract.
    unsafe { pwritev2(fd, parts, count, at, flags) }
}

#[no_mangle]
pub unsafe extern "C" fn pwritev(
    fd: c_int,
    parts: *const iovec,
    count: c_int,
    at: off_t,
) -> ssize_t {
    // SAFETY: the same contract.
    unsafe { pwritev2(fd, parts, count, at, 0) }
}

#[no_mangle]
pub unsafe extern "C" fn pwritev64(
    fd: c_int,
    parts: *const iovec,
    count: c_int,
    at: off_t,
) -> ssize_t {
    // SAFETY: the same contract.
    unsafe { pwritev2(fd, parts, count, at, 0) }
}

pub fn complain_about(fd: c_int, what: &str) {
    let Some(shim) = shim() else { return };
    if shim.file(fd).is_some() {
        shim.complain(what, &shim.path_of(fd));
    }
}

/// Notes that a file gets another length. The caller holds the file's lock.
pub fn note_length(shim: &Shim, file: &FileState, old_len: u64, new_len: u64) {
    // What it grows by are zeros until they are written.
    let taken = old_len.saturating_sub(new_len);
    if old_len != new_len {
        note_change(shim, file, old_len.min(new_len), taken, old_len, new_len);
    }
}

#[no_mangle]
pub unsafe extern "C" fn ftruncate(fd: c_int, len: off_t) -> c_int {
    let act = || raw::truncate(fd, len as u64);
    let Some(shim) = shim() else { return to_libc(act()) as c_int };
    let Some(file) = shim.file(fd).filter(|_| len >= 0) else { return to_libc(act()) as c_int };
    let victim = shim.tick();
    shim.point(victim, PHASE_BEFORE);
    let held = lock(&file.lock);
    note_length(shim, &file, length(fd), len as u64);
    shim.point(victim, PHASE_NOTED);
    let answer = act();
    drop(held);
    shim.point(victim, PHASE_RETURN);
    to_libc(answer) as c_int
}

#[no_mangle]
pub unsafe extern "C" fn ftruncate64(fd: c_int, len: off_t) -> c_int {
    // SAFETY: the same contract.
    unsafe { ftruncate(fd, len) }
}

fn allocate(fd: c_int, mode: c_int, offset: off_t, len: off_t) -> Answer {
    const ERASE: c_int = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_ZERO_RANGE;
    const KNOWN: c_int = ERASE | libc::FALLOC_FL_KEEP_SIZE;
    let args = [fd_arg(fd), mode as usize, offset as usize, len as usize, 0, 0];
    // SAFETY: no pointers.
    let act = || unsafe { call(libc::SYS_fallocate, args) };
    let Some(shim) = shim() else { return act() };
    let Some(file) = shim.file(fd) else { return act() };
    if mode & !KNOWN != 0 {
        shim.complain("fallocate with an unknown mode", &shim.path_of(fd));
    }
    let victim = shim.tick();
    shim.point(victim, PHASE_BEFORE);
    let held = lock(&file.lock);
    let (old_len, end) = (length(fd), (offset + len) as u64);
    let new_len = if mode & libc::FALLOC_FL_KEEP_SIZE != 0 { old_len } else { old_len.max(end) };
    if mode & ERASE != 0 {
        note_change(shim, &file, offset as u64, len as u64, old_len, new_len);
    } else {
        note_length(shim, &file, old_len, new_len);
    }
    shim.point(victim, PHASE_NOTED);
    let answer = act();
    drop(held);
    shim.point(victim, PHASE_RETURN);
    answer
}

#[no_mangle]
pub unsafe extern "C" fn fallocate(fd: c_int, mode: c_int, offset: off_t, len: off_t) -> c_int {
    to_libc(allocate(fd, mode, offset, len)) as c_int
}

#[no_mangle]
pub unsafe extern "C" fn fallocate64(fd: c_int, mode: c_int, offset: off_t, len: off_t) -> c_int {
    to_libc(allocate(fd, mode, offset, len)) as c_int
}

#[no_mangle]
pub unsafe extern "C" fn posix_fallocate(fd: c_int, offset: off_t, len: off_t) -> c_int {
    -allocate(fd, 0, offset, len) as c_int
}

#[no_mangle]
pub unsafe extern "C" fn posix_fallocate64(fd: c_int, offset: off_t, len: off_t) -> c_int {
    -allocate(fd, 0, offset, len) as c_int
}

/// The sync of a file or directory: what was noted before it began is durable when it ends.
fn sync(fd: c_int, number: i64, metadata: bool) -> c_int {
    // SAFETY: no pointers.
    let act = || to_libc(unsafe { call(number, [fd_arg(fd), 0, 0, 0, 0, 0]) }) as c_int;
    let Some(shim) = shim() else { return act() };
    let Some(stat) = raw::fstat(fd) else { return act() };
    let directory = stat.st_mode & libc::S_IFMT == libc::S_IFDIR;
    let file = shim.file(fd);
    let path = if directory { shim.path_of(fd) } else { Vec::new() };
    if file.is_none() && !(directory && shim.watches(&path)) {
        return 0;
    }
    let victim = shim.tick();
    shim.point(victim, PHASE_BEFORE);
    let mark = match &file {
        // Taken under the lock, so that no write is noted before it and done after it.
        Some(file) => {
            let _held = lock(&file.lock);
            shim.mark()
        }
        None => {
            let _held = lock(&shim.names);
            shim.mark()
        }
    };
    shim.sync_time();
    shim.point(victim, PHASE_DONE);
    match &file {
        Some(file) => shim.synced(file, WHOLE, mark, metadata),
        None if shim.deaf(&[&path[..], b"/"].concat()) => {}
        None => shim.note(Entry { kind: KIND_DIR_SYNCED, mark, ..Entry::default() }, &path),
    }
    shim.point(victim, PHASE_RETURN);
    0
}

#[no_mangle]
pub unsafe extern "C" fn fsync(fd: c_int) -> c_int {
    sync(fd, libc::SYS_fsync, true)
}

#[no_mangle]
pub unsafe extern "C" fn fdatasync(fd: c_int) -> c_int {
    sync(fd, libc::SYS_fdatasync, false)
}

/// It promises nothing about the disk's cache, nor about metadata: nothing is durable by it.
#[no_mangle]
pub unsafe extern "C" fn sync_file_range(fd: c_int, at: off_t, n: off_t, flags: u32) -> c_int {
    let args = [fd_arg(fd), at as usize, n as usize, flags as usize, 0, 0];
    // SAFETY: no pointers.
    to_libc(unsafe { call(libc::SYS_sync_file_range, args) }) as c_int
}

fn sync_all() {
    if let Some(shim) = shim() {
        let mark = shim.mark();
        shim.sync_time();
        shim.note(Entry { kind: KIND_SYNCED_ALL, mark, ..Entry::default() }, b"");
    }
}

#[export_name = "sync"]
pub unsafe extern "C" fn plain_sync() {
    sync_all();
}

#[no_mangle]
pub unsafe extern "C" fn syncfs(_: c_int) -> c_int {
    sync_all();
    0
}

/// Writes through a mapping are not seen. The bytes at the time of the mapping are noted as old,
/// and again at every msync; in between any of them may have changed.
#[no_mangle]
pub unsafe extern "C" fn mmap(
    address: *mut c_void,
    len: size_t,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: off_t,
) -> *mut c_void {
    let args =
        [address as usize, len, protection as usize, flags as usize, fd_arg(fd), offset as usize];
    let shared = matches!(flags & 3, libc::MAP_SHARED | 3);
    let watched = fd >= 0 && shared && protection & libc::PROT_WRITE != 0;
    let file = if watched { shim().and_then(|s| s.file(fd)) } else { None };
    if let (Some(shim), Some(file)) = (shim_if(watched), &file) {
        let _held = lock(&file.lock);
        let old_len = length(fd);
        note_change(shim, file, offset as u64, len as u64, old_len, old_len);
    }
    // SAFETY: as the caller promised for this call.
    let answer = to_libc(unsafe { call(libc::SYS_mmap, args) });
    if let (Some(shim), Some(file), true) = (shim_if(watched), file, answer != -1) {
        let start = answer as usize;
        lock(&shim.mappings).push(Mapping { start, len, file, offset: offset as u64 });
    }
    answer as *mut c_void
}

/// Mappings are made before this library is ready, by the allocator: those must not ask for it.
fn shim_if(wanted: bool) -> Option<&'static Shim> {
    if wanted {
        shim()
    } else {
        None
    }
}

#[no_mangle]
pub unsafe extern "C" fn mmap64(
    address: *mut c_void,
    len: size_t,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: off_t,
) -> *mut c_void {
    // SAFETY: the same contract.
    unsafe { mmap(address, len, protection, flags, fd, offset) }
}

#[no_mangle]
pub unsafe extern "C" fn munmap(address: *mut c_void, len: size_t) -> c_int {
    if let Some(shim) = shim() {
        lock(&shim.mappings).retain(|m| m.start != address as usize);
    }
    // SAFETY: as the caller promised for this call.
    to_libc(unsafe { call(libc::SYS_munmap, [address as usize, len, 0, 0, 0, 0]) }) as c_int
}

#[no_mangle]
pub unsafe extern "C" fn msync(address: *mut c_void, len: size_t, flags: c_int) -> c_int {
    let start = address as usize;
    let found = shim().and_then(|shim| {
        let mappings = lock(&shim.mappings);
        let hit = mappings.iter().find(|m| (m.start..m.start + m.len).contains(&start))?;
        let piece = (Arc::clone(&hit.file), hit.offset + (start - hit.start) as u64);
        Some((shim, piece))
    });
    let Some((shim, (file, offset))) = found else {
        let args = [start, len, flags as usize, 0, 0, 0];
        // SAFETY: as the caller promised for this call.
        return to_libc(unsafe { call(libc::SYS_msync, args) }) as c_int;
    };
    let victim = shim.tick();
    shim.point(victim, PHASE_BEFORE);
    let mark = shim.mark();
    {
        // What is there now is what this sync saves, and the old bytes of what comes.
        let _held = lock(&file.lock);
        note_change(shim, &file, offset, len as u64, u64::MAX, u64::MAX);
    }
    shim.sync_time();
    shim.point(victim, PHASE_DONE);
    if flags & libc::MS_SYNC != 0 {
        shim.synced(&file, (offset, len as u64), mark, false);
    }
    shim.point(victim, PHASE_RETURN);
    0
}
