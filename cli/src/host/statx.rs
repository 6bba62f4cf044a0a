//! System calls that the standard library lacks: free space and atomic write units.
//!
//! Safety argument: each call gets a zero-terminated name and a zeroed buffer of at least the size
//! that the kernel writes, both of which outlive the call.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Free bytes for ordinary users, and all bytes.
pub fn space(path: &Path) -> Option<(u64, u64)> {
    let name = CString::new(path.as_os_str().as_bytes()).ok()?;
    // SAFETY: all-zero bytes are a valid statvfs.
    let mut stat: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are valid for the call; the name is zero-terminated.
    let failed = unsafe { libc::statvfs(name.as_ptr(), &mut stat) } != 0;
    (!failed).then_some((stat.f_bavail * stat.f_frsize, stat.f_blocks * stat.f_frsize))
}

const STATX_WRITE_ATOMIC: u32 = 0x0001_0000;
/// The structure that statx(2) fills has 256 bytes on every architecture; these are its places
/// for the largest atomic write, since Linux 6.11.
const STATX_BYTES: usize = 256;
const MASK_AT: usize = 0;
const UNIT_MAX_AT: usize = 172;

/// The largest write that this file takes atomically (with direct I/O and RWF_ATOMIC); `None` when
/// kernel, file system or device cannot say.
pub fn atomic_write_max_bytes(path: &Path) -> Option<u32> {
    let name = CString::new(path.as_os_str().as_bytes()).ok()?;
    let mut buffer = [0u64; STATX_BYTES / 8];
    // SAFETY: the name is zero-terminated and the buffer has the 256 bytes that statx writes.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_statx,
            libc::AT_FDCWD,
            name.as_ptr(),
            0,
            STATX_WRITE_ATOMIC,
            buffer.as_mut_ptr(),
        )
    };
    if answer != 0 {
        return None;
    }
    let bytes: Vec<u8> = buffer.iter().flat_map(|word| word.to_ne_bytes()).collect();
    let field = |at: usize| Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    let known = field(MASK_AT)? & STATX_WRITE_ATOMIC != 0;
    field(UNIT_MAX_AT).filter(|max| known && *max > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn space_of_the_root() {
        let (free, all) = space(Path::new("/")).unwrap();
        assert!(free <= all && all > 0);
        assert_eq!(space(Path::new("/no/such/place")), None);
        assert_eq!(atomic_write_max_bytes(Path::new("/no/such/place")), None);
    }
}
