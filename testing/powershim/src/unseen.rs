//! Ways to change a file whose effect is not noted. Each works as ever and is complained about
//! when it touches a watched file.
//!
//! Safety argument: as in data.rs; where libc does more than one system call, its own function is
//! looked up in the libraries after this one and called with the caller's arguments.

use crate::data::complain_about;
use crate::raw::{self, call, to_libc};
use crate::state::shim;
use libc::{c_char, c_int, c_long, c_uint, c_void, off_t, size_t, ssize_t};
use std::ffi::CStr;

/// # Safety
/// `F` must be the type of libc's function `name`.
unsafe fn behind<F: Copy>(name: &CStr) -> F {
    assert_eq!(size_of::<F>(), size_of::<*mut c_void>());
    // SAFETY: `name` is NUL-terminated.
    let address = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    if address.is_null() {
        raw::write(2, b"powershim: a function of libc is missing\n");
        raw::die();
    }
    // SAFETY: a function pointer of the type that the caller vouches for.
    unsafe { std::mem::transmute_copy(&address) }
}

fn complain_about_path(path: *const c_char, what: &str) {
    let Some(shim) = shim().filter(|_| !path.is_null()) else { return };
    // SAFETY: a path given to libc is NUL-terminated.
    let path = unsafe { CStr::from_ptr(path) };
    if let Some(full) = shim.watched(libc::AT_FDCWD, path) {
        shim.complain(what, &full);
    }
}

type Fopen = unsafe extern "C" fn(*const c_char, *const c_char) -> *mut libc::FILE;

unsafe fn stream(name: &CStr, path: *const c_char, mode: *const c_char) -> *mut libc::FILE {
    // SAFETY: a mode given to libc is NUL-terminated.
    let writes = unsafe { CStr::from_ptr(mode) }.to_bytes().iter().any(|b| b"wa+".contains(b));
    // SAFETY: the caller's arguments for libc's function.
    let opened = unsafe { behind::<Fopen>(name)(path, mode) };
    if writes && !opened.is_null() {
        complain_about_path(path, "fopen for writing");
    }
    opened
}

#[no_mangle]
pub unsafe extern "C" fn fopen(path: *const c_char, mode: *const c_char) -> *mut libc::FILE {
    // SAFETY: the same contract.
    unsafe { stream(c"fopen", path, mode) }
}

#[no_mangle]
pub unsafe extern "C" fn fopen64(path: *const c_char, mode: *const c_char) -> *mut libc::FILE {
    // SAFETY: the same contract.
    unsafe { stream(c"fopen64", path, mode) }
}

type Template = unsafe extern "C" fn(*mut c_char) -> c_int;

#[no_mangle]
pub unsafe extern "C" fn mkstemp(template: *mut c_char) -> c_int {
    complain_about_path(template, "mkstemp");
    // SAFETY: the caller's argument for libc's function.
    unsafe { behind::<Template>(c"mkstemp")(template) }
}

#[no_mangle]
pub unsafe extern "C" fn mkstemp64(template: *mut c_char) -> c_int {
    // SAFETY: the same contract.
    unsafe { mkstemp(template) }
}

#[no_mangle]
pub unsafe extern "C" fn symlink(target: *const c_char, path: *const c_char) -> c_int {
    complain_about_path(path, "symlink");
    let args = [target as usize, path as usize, 0, 0, 0, 0];
    // SAFETY: the caller's arguments for the system call.
    to_libc(unsafe { call(libc::SYS_symlink, args) }) as c_int
}

#[no_mangle]
pub unsafe extern "C" fn truncate(path: *const c_char, len: off_t) -> c_int {
    complain_about_path(path, "truncate");
    // SAFETY: the caller's arguments for the system call.
    to_libc(unsafe { call(libc::SYS_truncate, [path as usize, len as usize, 0, 0, 0, 0]) }) as c_int
}

#[no_mangle]
pub unsafe extern "C" fn truncate64(path: *const c_char, len: off_t) -> c_int {
    // SAFETY: the same contract.
    unsafe { truncate(path, len) }
}

#[no_mangle]
pub unsafe extern "C" fn sendfile(
    out: c_int,
    from: c_int,
    offset: *mut off_t,
    count: size_t,
) -> ssize_t {
    complain_about(out, "sendfile");
    let args = [out as usize, from as usize, offset as usize, count, 0, 0];
    // SAFETY: the caller's arguments for the system call.
    to_libc(unsafe { call(libc::SYS_sendfile, args) })
}

#[no_mangle]
pub unsafe extern "C" fn sendfile64(
    out: c_int,
    from: c_int,
    offset: *mut off_t,
    count: size_t,
) -> ssize_t {
    // SAFETY: the same contract.
    unsafe { sendfile(out, from, offset, count) }
}

#[no_mangle]
pub unsafe extern "C" fn copy_file_range(
    from: c_int,
    from_at: *mut off_t,
    out: c_int,
    out_at: *mut off_t,
    len: size_t,
    flags: c_uint,
) -> ssize_t {
    complain_about(out, "copy_file_range");
    let args =
        [from as usize, from_at as usize, out as usize, out_at as usize, len, flags as usize];
    // SAFETY: the caller's arguments for the system call.
    to_libc(unsafe { call(libc::SYS_copy_file_range, args) })
}

#[no_mangle]
pub unsafe extern "C" fn splice(
    from: c_int,
    from_at: *mut off_t,
    out: c_int,
    out_at: *mut off_t,
    len: size_t,
    flags: c_uint,
) -> ssize_t {
    complain_about(out, "splice");
    let args =
        [from as usize, from_at as usize, out as usize, out_at as usize, len, flags as usize];
    // SAFETY: the caller's arguments for the system call.
    to_libc(unsafe { call(libc::SYS_splice, args) })
}

type IoSubmit = unsafe extern "C" fn(*mut c_void, c_long, *mut *mut c_void) -> c_int;

/// Asynchronous I/O goes past this library, to whatever file: a server under test must not use it.
fn complain_about_asynchronous(what: &str) {
    if let Some(shim) = shim() {
        shim.complain(what, b"is not noted");
    }
}

#[no_mangle]
pub unsafe extern "C" fn io_submit(ctx: *mut c_void, n: c_long, list: *mut *mut c_void) -> c_int {
    complain_about_asynchronous("io_submit");
    // SAFETY: the caller's arguments for libaio's function.
    unsafe { behind::<IoSubmit>(c"io_submit")(ctx, n, list) }
}

#[no_mangle]
pub unsafe extern "C" fn io_uring_submit(ring: *mut c_void) -> c_int {
    complain_about_asynchronous("io_uring_submit");
    // SAFETY: the caller's argument for liburing's function.
    unsafe { behind::<unsafe extern "C" fn(*mut c_void) -> c_int>(c"io_uring_submit")(ring) }
}

/// System calls without a function of their own. Those that take a descriptor first are named when
/// it is that of a watched file.
#[no_mangle]
pub unsafe extern "C" fn syscall(
    number: c_long,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
) -> c_long {
    match number {
        libc::SYS_write
        | libc::SYS_pwrite64
        | libc::SYS_writev
        | libc::SYS_pwritev
        | libc::SYS_pwritev2
        | libc::SYS_ftruncate
        | libc::SYS_fallocate
        | libc::SYS_fsync
        | libc::SYS_fdatasync
        | libc::SYS_sendfile => complain_about(a as c_int, "syscall"),
        libc::SYS_copy_file_range | libc::SYS_splice => complain_about(c as c_int, "syscall"),
        libc::SYS_io_submit | libc::SYS_io_uring_enter => complain_about_asynchronous("syscall"),
        libc::SYS_rename
        | libc::SYS_unlink
        | libc::SYS_truncate
        | libc::SYS_mkdir
        | libc::SYS_rmdir
        | libc::SYS_creat
        | libc::SYS_link => {
            complain_about_path(a as *const c_char, "syscall");
        }
        libc::SYS_renameat
        | libc::SYS_renameat2
        | libc::SYS_unlinkat
        | libc::SYS_mkdirat
        | libc::SYS_linkat => complain_about_path(b as *const c_char, "syscall"),
        _ => {}
    }
    // SAFETY: the caller's arguments for the system call.
    to_libc(unsafe { call(number, [a, b, c, d, e, f]) }) as c_long
}
