//! Calls that change names: open with O_CREAT or O_TRUNC, rename, link, unlink, mkdir, rmdir.
//!
//! Safety argument: as in data.rs.

use crate::data::note_length;
use crate::journal::*;
use crate::raw::{self, call, to_libc, Answer};
use crate::state::{lock, shim, Shim};
use libc::{c_char, c_int, c_uint};
use std::ffi::CStr;

/// What is in a name when it is changed.
fn note(shim: &Shim, kind: u64, file: u64, names: &[u8]) {
    shim.note(Entry { kind, file, ..Entry::default() }, names);
}

fn open_at(dir: c_int, path: &CStr, flags: c_int, mode: c_uint) -> c_int {
    let act = || raw::open(dir, path, flags, mode);
    let Some(shim) = shim_for(flags & (libc::O_CREAT | libc::O_TRUNC) != 0) else {
        return to_libc(act()) as c_int;
    };
    let Some(full) = shim.watched(dir, path) else { return to_libc(act()) as c_int };
    let victim = shim.tick();
    shim.point(victim, PHASE_BEFORE);
    let held = lock(&shim.names);
    let answer = match raw::stat(dir, path, true) {
        Some(_) if flags & libc::O_TRUNC != 0 && flags & libc::O_EXCL == 0 => {
            open_truncating(shim, dir, path, &full, act)
        }
        Some(_) => act(),
        None => {
            let id = shim.new_id();
            note(shim, KIND_CREATE, id, &full);
            shim.point(victim, PHASE_NOTED);
            let answer = act();
            if answer >= 0 {
                shim.created(answer as i32, id, &full);
            }
            answer
        }
    };
    drop(held);
    shim.point(victim, PHASE_RETURN);
    to_libc(answer) as c_int
}

fn open_truncating(
    shim: &Shim,
    dir: c_int,
    path: &CStr,
    full: &[u8],
    act: impl FnOnce() -> Answer,
) -> Answer {
    let Some(file) = shim.file_at(dir, path, full) else { return act() };
    let _held = lock(&file.lock);
    let old_len = raw::stat(dir, path, true).map_or(0, |s| s.st_size as u64);
    note_length(shim, &file, old_len, 0);
    act()
}

fn shim_for(wanted: bool) -> Option<&'static Shim> {
    if wanted {
        shim()
    } else {
        None
    }
}

/// # Safety
/// `path` must be NUL-terminated and live for the call.
unsafe fn text<'a>(path: *const c_char) -> &'a CStr {
    match path.is_null() {
        // No call accepts it.
        true => c"",
        // SAFETY: as the caller promised.
        false => unsafe { CStr::from_ptr(path) },
    }
}

#[no_mangle]
pub unsafe extern "C" fn open(path: *const c_char, flags: c_int, mode: c_uint) -> c_int {
    // SAFETY: the contract of open.
    open_at(libc::AT_FDCWD, unsafe { text(path) }, flags, mode)
}

#[no_mangle]
pub unsafe extern "C" fn open64(path: *const c_char, flags: c_int, mode: c_uint) -> c_int {
    // SAFETY: the same contract.
    unsafe { open(path, flags, mode) }
}

#[no_mangle]
pub unsafe extern "C" fn openat(
    dir: c_int,
    path: *const c_char,
    flags: c_int,
    mode: c_uint,
) -> c_int {
    // SAFETY: the contract of openat.
    open_at(dir, unsafe { text(path) }, flags, mode)
}

#[no_mangle]
pub unsafe extern "C" fn openat64(
    dir: c_int,
    path: *const c_char,
    flags: c_int,
    mode: c_uint,
) -> c_int {
    // SAFETY: the same contract.
    unsafe { openat(dir, path, flags, mode) }
}

#[no_mangle]
pub unsafe extern "C" fn creat(path: *const c_char, mode: c_uint) -> c_int {
    // SAFETY: the same contract.
    unsafe { open(path, libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC, mode) }
}

#[no_mangle]
pub unsafe extern "C" fn creat64(path: *const c_char, mode: c_uint) -> c_int {
    // SAFETY: the same contract.
    unsafe { creat(path, mode) }
}

/// A change of one name, by `act`.
fn change(dir: c_int, path: &CStr, kind: u64, act: impl FnOnce() -> Answer) -> c_int {
    let Some(shim) = shim() else { return to_libc(act()) as c_int };
    let Some(full) = shim.watched(dir, path) else { return to_libc(act()) as c_int };
    let victim = shim.tick();
    shim.point(victim, PHASE_BEFORE);
    let held = lock(&shim.names);
    let exists = raw::stat(dir, path, false).is_some();
    let makes = kind == KIND_MKDIR;
    // A call that will fail changes nothing.
    if exists != makes {
        let file = shim.file_at(dir, path, &full).map_or(0, |f| f.id);
        note(shim, kind, file, &full);
    }
    shim.point(victim, PHASE_NOTED);
    let answer = act();
    drop(held);
    shim.point(victim, PHASE_RETURN);
    to_libc(answer) as c_int
}

fn unlink_at(dir: c_int, path: &CStr, flags: c_int) -> c_int {
    let kind = if flags & libc::AT_REMOVEDIR != 0 { KIND_RMDIR } else { KIND_UNLINK };
    let args = [dir as isize as usize, path.as_ptr() as usize, flags as usize, 0, 0, 0];
    // SAFETY: `path` is NUL-terminated.
    change(dir, path, kind, || unsafe { call(libc::SYS_unlinkat, args) })
}

#[no_mangle]
pub unsafe extern "C" fn unlink(path: *const c_char) -> c_int {
    // SAFETY: the contract of unlink.
    unlink_at(libc::AT_FDCWD, unsafe { text(path) }, 0)
}

#[no_mangle]
pub unsafe extern "C" fn unlinkat(dir: c_int, path: *const c_char, flags: c_int) -> c_int {
    // SAFETY: the contract of unlinkat.
    unlink_at(dir, unsafe { text(path) }, flags)
}

#[no_mangle]
pub unsafe extern "C" fn rmdir(path: *const c_char) -> c_int {
    // SAFETY: the contract of rmdir.
    unlink_at(libc::AT_FDCWD, unsafe { text(path) }, libc::AT_REMOVEDIR)
}

#[no_mangle]
pub unsafe extern "C" fn remove(path: *const c_char) -> c_int {
    // SAFETY: the contract of remove.
    let path = unsafe { text(path) };
    let stat = raw::stat(libc::AT_FDCWD, path, false);
    let directory = stat.is_some_and(|s| s.st_mode & libc::S_IFMT == libc::S_IFDIR);
    unlink_at(libc::AT_FDCWD, path, if directory { libc::AT_REMOVEDIR } else { 0 })
}

#[no_mangle]
pub unsafe extern "C" fn mkdirat(dir: c_int, path: *const c_char, mode: c_uint) -> c_int {
    // SAFETY: the contract of mkdirat.
    let path = unsafe { text(path) };
    let args = [dir as isize as usize, path.as_ptr() as usize, mode as usize, 0, 0, 0];
    // SAFETY: `path` is NUL-terminated.
    change(dir, path, KIND_MKDIR, || unsafe { call(libc::SYS_mkdirat, args) })
}

#[no_mangle]
pub unsafe extern "C" fn mkdir(path: *const c_char, mode: c_uint) -> c_int {
    // SAFETY: the same contract.
    unsafe { mkdirat(libc::AT_FDCWD, path, mode) }
}

fn rename_at(from: (c_int, &CStr), to: (c_int, &CStr), flags: c_uint) -> c_int {
    let args = [
        from.0 as isize as usize,
        from.1.as_ptr() as usize,
        to.0 as isize as usize,
        to.1.as_ptr() as usize,
        flags as usize,
        0,
    ];
    // SAFETY: both paths are NUL-terminated.
    let act = || unsafe { call(libc::SYS_renameat2, args) };
    let Some(shim) = shim() else { return to_libc(act()) as c_int };
    let (old, new) = match (shim.watched(from.0, from.1), shim.watched(to.0, to.1)) {
        (Some(old), Some(new)) => (old, new),
        (None, None) => return to_libc(act()) as c_int,
        (old, new) => {
            shim.complain(
                "rename over a watched directory's border",
                &old.or(new).unwrap_or_default(),
            );
            return to_libc(act()) as c_int;
        }
    };
    if flags & !libc::RENAME_NOREPLACE != 0 {
        shim.complain("renameat2 with unknown flags", &old);
    }
    let victim = shim.tick();
    shim.point(victim, PHASE_BEFORE);
    let held = lock(&shim.names);
    if let Some(stat) = raw::stat(from.0, from.1, false) {
        let file = shim.file_at(from.0, from.1, &old).map_or(0, |f| f.id);
        let replaced = shim.file_at(to.0, to.1, &new).map_or(0, |f| f.id);
        let kind = KIND_RENAME;
        let (offset, len) = (replaced, stat.st_ino);
        let names = [&old[..], &new].join(&0);
        shim.note(Entry { kind, file, offset, len, ..Entry::default() }, &names);
    }
    shim.point(victim, PHASE_NOTED);
    let answer = act();
    drop(held);
    shim.point(victim, PHASE_RETURN);
    to_libc(answer) as c_int
}

#[no_mangle]
pub unsafe extern "C" fn rename(from: *const c_char, to: *const c_char) -> c_int {
    // SAFETY: the contract of rename.
    let (from, to) = unsafe { (text(from), text(to)) };
    rename_at((libc::AT_FDCWD, from), (libc::AT_FDCWD, to), 0)
}

#[no_mangle]
pub unsafe extern "C" fn renameat(
    from_dir: c_int,
    from: *const c_char,
    to_dir: c_int,
    to: *const c_char,
) -> c_int {
    // SAFETY: the contract of renameat.
    let (from, to) = unsafe { (text(from), text(to)) };
    rename_at((from_dir, from), (to_dir, to), 0)
}

#[no_mangle]
pub unsafe extern "C" fn renameat2(
    from_dir: c_int,
    from: *const c_char,
    to_dir: c_int,
    to: *const c_char,
    flags: c_uint,
) -> c_int {
    // SAFETY: the contract of renameat2.
    let (from, to) = unsafe { (text(from), text(to)) };
    rename_at((from_dir, from), (to_dir, to), flags)
}

#[no_mangle]
pub unsafe extern "C" fn linkat(
    from_dir: c_int,
    from: *const c_char,
    to_dir: c_int,
    to: *const c_char,
    flags: c_int,
) -> c_int {
    // SAFETY: the contract of linkat.
    let (from, to) = unsafe { (text(from), text(to)) };
    let act = || raw::link(from_dir, from, to_dir, to, flags);
    let Some(shim) = shim() else { return to_libc(act()) as c_int };
    let Some(new) = shim.watched(to_dir, to) else { return to_libc(act()) as c_int };
    let victim = shim.tick();
    shim.point(victim, PHASE_BEFORE);
    let held = lock(&shim.names);
    match shim.file_at(from_dir, from, &new) {
        Some(file) if raw::stat(to_dir, to, false).is_none() => {
            note(shim, KIND_LINK, file.id, &new);
        }
        Some(_) => {}
        None => shim.complain("link of something that is not a file", &new),
    }
    let answer = act();
    drop(held);
    shim.point(victim, PHASE_RETURN);
    to_libc(answer) as c_int
}

#[no_mangle]
pub unsafe extern "C" fn link(from: *const c_char, to: *const c_char) -> c_int {
    // SAFETY: the same contract.
    unsafe { linkat(libc::AT_FDCWD, from, libc::AT_FDCWD, to, 0) }
}
