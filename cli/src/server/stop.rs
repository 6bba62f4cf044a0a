//! `sluice server stop`.
//!
//! Safety argument: `kill` takes numbers; the pid was found to be our server just before.

use super::layout::ServerDir;
use super::lock::DirLock;
use super::process::{self, PidFile};
use super::{Result, StopArgs};
use std::time::{Duration, Instant};

const POLL_INTERVAL: Duration = Duration::from_millis(50);
const LOCK_RELEASE_LIMIT: Duration = Duration::from_secs(10);

pub fn stop(args: &StopArgs) -> Result<()> {
    let dir = ServerDir::new(&args.dir)?;
    let marker = dir.read_marker()?;
    let pid = match process::read_pid_file(&dir) {
        PidFile::Running(pid) => pid,
        // A start that still makes the data directory has no process to be stopped.
        PidFile::Missing | PidFile::Stale(_)
            if marker.is_some() && DirLock::try_take(&dir)?.is_none() =>
        {
            return Err(format!(
                "a server is being started on {}: try again",
                dir.root().display()
            ));
        }
        PidFile::Missing | PidFile::Stale(_) => {
            report!("no server runs on {}", dir.root().display());
            return Ok(());
        }
    };
    terminate(pid)?;
    let begun = Instant::now();
    while process::is_server_of(pid, &dir) {
        if begun.elapsed() >= Duration::from_secs(args.timeout) {
            return Err(format!(
                "the server, pid {pid}, is still shutting down after {} s: wait for it, or repeat with a \
                 longer --timeout. It was not killed",
                args.timeout
            ));
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    wait_for_lock(&dir)?;
    report!("the server on {} has stopped", dir.root().display());
    Ok(())
}

/// A process that is exiting loses its name before its lock. The next start of a server must find
/// the lock free.
fn wait_for_lock(dir: &ServerDir) -> Result<()> {
    let begun = Instant::now();
    while DirLock::try_take(dir)?.is_none() && begun.elapsed() < LOCK_RELEASE_LIMIT {
        std::thread::sleep(POLL_INTERVAL);
    }
    Ok(())
}

/// Asks for a clean shutdown.
fn terminate(pid: i32) -> Result<()> {
    // SAFETY: kill takes two numbers; the pid was just found to be our server.
    if unsafe { libc::kill(pid, libc::SIGTERM) } == 0 {
        return Ok(());
    }
    let error = std::io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::ESRCH) => Ok(()),
        _ => Err(format!("cannot stop the server, pid {pid}: {error}")),
    }
}
