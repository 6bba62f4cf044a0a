//! Checks before a server is started, so that a mistake gives one clear line
//! instead of a server that dies.
//!
//! Safety argument: `statvfs` is given a name that ends with a zero byte and a structure of its
//! own, both of which outlive the call.

use super::Result;
use std::ffi::CString;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// `sun_path` of a Unix socket address has 108 bytes including the final zero.
const MAX_SOCKET_PATH: usize = 107;

/// Options that decide where we find the server again.
const OWN_PATHS: [&str; 4] = ["datadir", "socket", "pid-file", "log-error"];

pub fn socket_path_fits(socket: &Path) -> Result<()> {
    let length = socket.as_os_str().len();
    if length <= MAX_SOCKET_PATH {
        return Ok(());
    }
    Err(format!(
        "the socket path {} has {length} bytes, a Unix socket allows {MAX_SOCKET_PATH}: use a \
         shorter directory",
        socket.display()
    ))
}

pub fn port_is_free(port: Option<u16>) -> Result<()> {
    let Some(port) = port else { return Ok(()) };
    match TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
        Ok(_) => Ok(()),
        Err(e) => Err(format!("port {port} cannot be used: {e}")),
    }
}

pub fn enough_free_disk(path: &Path, min_free_mib: u64) -> Result<()> {
    let free_mib = free_mib(path)?;
    if free_mib >= min_free_mib {
        return Ok(());
    }
    Err(format!(
        "only {free_mib} MiB are free at {}, less than {min_free_mib} (see --min-free-mib)",
        path.display()
    ))
}

fn free_mib(path: &Path) -> Result<u64> {
    let name = CString::new(path.as_os_str().as_bytes())
        .map_err(|_| format!("{} contains a zero byte", path.display()))?;
    // SAFETY: all-zero bytes are a valid statvfs.
    let mut stat: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are valid for the call; the name is zero-terminated.
    if unsafe { libc::statvfs(name.as_ptr(), &mut stat) } != 0 {
        let error = std::io::Error::last_os_error();
        return Err(format!("cannot tell the free space at {}: {error}", path.display()));
    }
    Ok(stat.f_bavail * stat.f_frsize / (1024 * 1024))
}

/// Refuses options with which the server would start but not be found again, and
/// those with which it would be open: see `install::accounts_sql`.
pub fn options_are_ours_to_pass(options: &[String], runs_as_root: bool) -> Result<()> {
    for option in options {
        let name = option.trim_start_matches('-').split('=').next().unwrap_or_default();
        let name = name.replace('_', "-");
        if OWN_PATHS.contains(&name.as_str()) {
            return Err(format!("--{name} follows from --dir and cannot be given to mariadbd"));
        }
        if name.ends_with("skip-name-resolve") && !runs_as_root {
            return Err(format!("--{name} could open the server's root account to TCP"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn socket_path_limit_is_107_bytes() {
        let path = |length: usize| Path::new("/").join("x".repeat(length - 1));
        assert!(socket_path_fits(&path(107)).is_ok());
        assert!(socket_path_fits(&path(108)).unwrap_err().contains("108 bytes"));
    }

    #[test]
    fn used_port_is_refused() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        assert!(port_is_free(Some(port)).is_err());
        drop(listener);
        assert!(port_is_free(Some(port)).is_ok());
        assert!(port_is_free(None).is_ok());
    }

    #[test]
    fn free_disk_is_compared_with_the_limit() {
        assert!(enough_free_disk(Path::new("/"), 0).is_ok());
        let reason = enough_free_disk(Path::new("/"), u64::MAX).unwrap_err();
        assert!(reason.contains("--min-free-mib"), "{reason}");
        assert!(enough_free_disk(Path::new("/no/such/place"), 0).is_err());
    }

    #[test]
    fn own_options_are_refused_in_every_spelling() {
        for option in ["--socket=/x", "--pid_file=/x", "--datadir", "--log-error=/x"] {
            assert!(options_are_ours_to_pass(&[option.to_string()], true).is_err(), "{option}");
        }
        assert!(options_are_ours_to_pass(&["--sync-binlog=0".to_string()], true).is_ok());
    }

    #[test]
    fn name_resolution_stays_off_unless_the_account_is_tied_to_the_socket() {
        for option in ["--skip-name-resolve=0", "--disable_skip_name_resolve"] {
            assert!(options_are_ours_to_pass(&[option.to_string()], false).is_err(), "{option}");
            assert!(options_are_ours_to_pass(&[option.to_string()], true).is_ok(), "{option}");
        }
    }
}
