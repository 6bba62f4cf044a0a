//! Which process is the server of a directory, and how to talk to it.
//!
//! Safety argument: `sysconf` takes a number and answers one.

use super::layout::ServerDir;
use std::fs;
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::time::Duration;

#[derive(Debug, PartialEq, Eq)]
pub enum PidFile {
    Missing,
    /// The pid of a live server of this very directory.
    Running(i32),
    /// Left behind by a server that was killed; the text says what is known.
    Stale(String),
}

/// Judges the pid file of a directory. A pid is not proof: after a crash another
/// process may have it. Ours is a mariadbd whose working directory is the data.
pub fn read_pid_file(dir: &ServerDir) -> PidFile {
    let Ok(text) = fs::read_to_string(dir.pid_file()) else {
        return PidFile::Missing;
    };
    let Ok(pid) = text.trim().parse::<i32>() else {
        return PidFile::Stale("it holds no process id".to_string());
    };
    if is_server_of(pid, dir) {
        return PidFile::Running(pid);
    }
    PidFile::Stale(match process_name(pid) {
        None => format!("its server, pid {pid}, was killed"),
        Some(name) => format!("pid {pid} is now another process ({name}), which is left alone"),
    })
}

pub fn is_server_of(pid: i32, dir: &ServerDir) -> bool {
    // The links of a process that has exited but was not reaped cannot be read.
    let working_directory = fs::read_link(format!("/proc/{pid}/cwd"));
    let is_mariadbd = process_name(pid).is_some_and(|name| name == "mariadbd");
    is_mariadbd && working_directory.is_ok_and(|path| path == dir.data())
}

/// `None` when there is no such process, or only one that is dead but whose
/// parent has not asked for its exit status yet.
fn process_name(pid: i32) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (before, after) = stat.rsplit_once(')')?;
    if matches!(after.trim_start().chars().next()?, 'Z' | 'X') {
        return None;
    }
    Some(before.split_once('(')?.1.to_string())
}

/// Killed, and not gone yet: a SIGKILL is on its way, or the process gives back what it has.
pub fn is_dying(pid: i32) -> bool {
    let Ok(status) = fs::read_to_string(format!("/proc/{pid}/status")) else { return true };
    let value = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.map(str::trim)
    };
    let has_kill = |name| {
        let pending = value(name).and_then(|mask| u64::from_str_radix(mask, 16).ok());
        pending.is_some_and(|mask| mask >> (libc::SIGKILL - 1) & 1 == 1)
    };
    // A process that exits has no memory of its own any more.
    has_kill("SigPnd") || has_kill("ShdPnd") || value("VmSize").is_none()
}

/// Time since the process started.
pub fn uptime(pid: i32) -> Option<Duration> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // Field 22, counted after the process name, which may contain blanks.
    let started_ticks: f64 = stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()?;
    let machine = fs::read_to_string("/proc/uptime").ok()?;
    let machine_seconds: f64 = machine.split_whitespace().next()?.parse().ok()?;
    // SAFETY: sysconf reads a constant of the system.
    let ticks_per_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) } as f64;
    let seconds = machine_seconds - started_ticks / ticks_per_second;
    Duration::try_from_secs_f64(seconds.max(0.0)).ok()
}

/// The version by which the server greets on its socket; `None` while it does not
/// answer. A greeting proves that recovery is over: the server listens only then.
pub fn greeting(dir: &ServerDir) -> Option<String> {
    let mut stream = UnixStream::connect(dir.socket()).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
    let mut packet = [0u8; 256];
    let length = stream.read(&mut packet).ok()?;
    parse_greeting(&packet[..length])
}

/// A greeting is a 4-byte packet header, the protocol version 10 and the server
/// version up to a zero byte. Anything else, such as the packet "too many
/// connections", still comes from a live server.
fn parse_greeting(packet: &[u8]) -> Option<String> {
    const HEADER: usize = 4;
    match packet.get(HEADER)? {
        10 => {
            let version = packet[HEADER + 1..].split(|byte| *byte == 0).next()?;
            let version = String::from_utf8_lossy(version);
            // Compatibility prefix that MariaDB puts before versions from 10 on.
            Some(version.strip_prefix("5.5.5-").unwrap_or(&version).to_string())
        }
        _ => Some("unknown version".to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn greeting_gives_the_version() {
        let packet = b"\x5d\0\0\0\x0a5.5.5-10.11.18-MariaDB\0\x01\0\0\0";
        assert_eq!(parse_greeting(packet).unwrap(), "10.11.18-MariaDB");
        assert_eq!(parse_greeting(b"\x10\0\0\0\xff\x10\x04Too many").unwrap(), "unknown version");
        assert_eq!(parse_greeting(b"\x10\0"), None);
    }

    #[test]
    fn pid_of_another_process_is_stale() {
        let path = std::env::temp_dir().join(format!("sluice-pid-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        let dir = ServerDir::new(&path).unwrap();
        assert_eq!(read_pid_file(&dir), PidFile::Missing);
        fs::write(dir.pid_file(), format!("{}\n", std::process::id())).unwrap();
        assert!(matches!(read_pid_file(&dir), PidFile::Stale(why) if why.contains("another")));
        fs::write(dir.pid_file(), "nonsense").unwrap();
        assert!(matches!(read_pid_file(&dir), PidFile::Stale(_)));
        fs::remove_dir_all(&path).unwrap();
    }

    #[test]
    fn a_killed_process_is_dying_until_it_is_gone() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let pid = child.id() as i32;
        assert!(!is_dying(pid));
        child.kill().unwrap();
        // Nobody has asked for its exit status: it is still listed.
        let begun = std::time::Instant::now();
        while !is_dying(pid) {
            assert!(begun.elapsed() < Duration::from_secs(20));
            std::thread::sleep(Duration::from_millis(5));
        }
        child.wait().unwrap();
        assert!(is_dying(pid));
    }

    #[test]
    fn uptime_of_this_process_is_known() {
        assert!(uptime(std::process::id() as i32).unwrap() < Duration::from_secs(86_400));
    }
}
