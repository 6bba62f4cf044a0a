//! System calls without libc: libc's functions of these names are the ones that this library
//! replaces, and they would come back to it.
//!
//! Safety argument: `call` is as unsafe as the system call it is given; the wrappers pass
//! descriptors, NUL-terminated strings and buffers that live until the call returns.

use std::ffi::CStr;

/// Result or negative error number, as the kernel gives it.
pub type Answer = isize;

/// # Safety
/// The arguments must be what the system call expects.
pub unsafe fn call(number: i64, a: [usize; 6]) -> Answer {
    let answer: isize;
    // SAFETY: the convention of x86-64 Linux: these registers in, rax out, rcx and r11 destroyed.
    unsafe {
        std::arch::asm!(
            "syscall",
            inlateout("rax") number as isize => answer,
            in("rdi") a[0],
            in("rsi") a[1],
            in("rdx") a[2],
            in("r10") a[3],
            in("r8") a[4],
            in("r9") a[5],
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    answer
}

/// A libc function's way to answer: -1 and errno.
pub fn to_libc(answer: Answer) -> isize {
    if answer >= 0 {
        return answer;
    }
    // SAFETY: errno's address is valid in every thread.
    unsafe { *libc::__errno_location() = -answer as i32 };
    -1
}

fn at(dir: i32) -> usize {
    dir as isize as usize
}

pub fn fstat(fd: i32) -> Option<libc::stat> {
    // SAFETY: all-zero bytes are a valid `stat`.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: `stat` is writable for the call.
    let answer = unsafe { call(libc::SYS_fstat, [at(fd), &raw mut stat as usize, 0, 0, 0, 0]) };
    (answer == 0).then_some(stat)
}

/// The state of the file that a path names, or of a symbolic link itself.
pub fn stat(dir: i32, path: &CStr, follow: bool) -> Option<libc::stat> {
    // SAFETY: all-zero bytes are a valid `stat`.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    let flags = if follow { 0 } else { libc::AT_SYMLINK_NOFOLLOW };
    let to = &raw mut stat as usize;
    // SAFETY: `path` is NUL-terminated and `stat` is writable for the call.
    let answer = unsafe {
        call(libc::SYS_newfstatat, [at(dir), path.as_ptr() as usize, to, flags as usize, 0, 0])
    };
    (answer == 0).then_some(stat)
}

pub fn open(dir: i32, path: &CStr, flags: i32, mode: u32) -> Answer {
    let args = [at(dir), path.as_ptr() as usize, flags as usize, mode as usize, 0, 0];
    // SAFETY: `path` is NUL-terminated.
    unsafe { call(libc::SYS_openat, args) }
}

pub fn close(fd: i32) {
    // SAFETY: the callers pass descriptors that they have opened.
    unsafe { call(libc::SYS_close, [at(fd), 0, 0, 0, 0, 0]) };
}

pub fn link(from_dir: i32, from: &CStr, to_dir: i32, to: &CStr, flags: i32) -> Answer {
    let (from, to) = (from.as_ptr() as usize, to.as_ptr() as usize);
    // SAFETY: both paths are NUL-terminated.
    unsafe { call(libc::SYS_linkat, [at(from_dir), from, at(to_dir), to, flags as usize, 0]) }
}

pub fn read_link(path: &CStr) -> Option<Vec<u8>> {
    let mut target = vec![0u8; 4096];
    let args = [at(libc::AT_FDCWD), path.as_ptr() as usize, target.as_mut_ptr() as usize, 4096];
    // SAFETY: `path` is NUL-terminated, `target` has 4096 writable bytes.
    let n = unsafe { call(libc::SYS_readlinkat, [args[0], args[1], args[2], args[3], 0, 0]) };
    target.truncate(usize::try_from(n).ok()?);
    Some(target)
}

/// Reads until the buffer is full or the file ends; the number of bytes.
pub fn read_at(fd: i32, buffer: &mut [u8], offset: u64) -> usize {
    let mut done = 0;
    while done < buffer.len() {
        let rest = &mut buffer[done..];
        let args = [at(fd), rest.as_mut_ptr() as usize, rest.len(), offset as usize + done, 0, 0];
        // SAFETY: `rest` is writable for its length.
        let n = unsafe { call(libc::SYS_pread64, args) };
        if n <= 0 {
            break;
        }
        done += n as usize;
    }
    done
}

pub fn write(fd: i32, bytes: &[u8]) {
    // SAFETY: `bytes` is readable for its length.
    unsafe { call(libc::SYS_write, [at(fd), bytes.as_ptr() as usize, bytes.len(), 0, 0, 0]) };
}

pub fn position(fd: i32) -> u64 {
    let args = [at(fd), 0, libc::SEEK_CUR as usize, 0, 0, 0];
    // SAFETY: no pointers.
    unsafe { call(libc::SYS_lseek, args) }.max(0) as u64
}

pub fn descriptor_flags(fd: i32) -> i32 {
    // SAFETY: no pointers.
    unsafe { call(libc::SYS_fcntl, [at(fd), libc::F_GETFL as usize, 0, 0, 0, 0]) as i32 }
}

pub fn truncate(fd: i32, len: u64) -> Answer {
    // SAFETY: no pointers.
    unsafe { call(libc::SYS_ftruncate, [at(fd), len as usize, 0, 0, 0, 0]) }
}

/// Maps a file for sharing; null on failure.
pub fn map_shared(fd: i32, len: u64) -> *mut u8 {
    let protection = (libc::PROT_READ | libc::PROT_WRITE) as usize;
    let args = [0, len as usize, protection, libc::MAP_SHARED as usize, at(fd), 0];
    // SAFETY: a new mapping at an address of the kernel's choice.
    let answer = unsafe { call(libc::SYS_mmap, args) };
    if answer < 0 {
        return std::ptr::null_mut();
    }
    answer as *mut u8
}

pub fn sleep_us(us: u64) {
    let time = libc::timespec { tv_sec: 0, tv_nsec: us.min(999_999) as i64 * 1000 };
    // SAFETY: `time` is readable for the call; nothing is written back.
    unsafe { call(libc::SYS_nanosleep, [&raw const time as usize, 0, 0, 0, 0, 0]) };
}

/// The power goes.
pub fn die() -> ! {
    loop {
        // SAFETY: no pointers; SIGKILL to this process.
        unsafe {
            let pid = call(libc::SYS_getpid, [0; 6]) as usize;
            call(libc::SYS_kill, [pid, libc::SIGKILL as usize, 0, 0, 0, 0]);
        }
    }
}
