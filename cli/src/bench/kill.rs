//! The end of a private server by SIGKILL.

use super::target::Target;
use crate::Result;
use std::process::Command;
use std::time::{Duration, Instant};

const DEATH_LIMIT: Duration = Duration::from_secs(120);

impl Target {
    /// Kills a private server, and waits until it is gone.
    pub fn kill(&mut self) -> Result<()> {
        if self.dir.is_none() {
            return Err("only private servers are killed".to_string());
        }
        let pid = self.pid.take().ok_or("the server's process is not known")?;
        let killed = Command::new("kill").args(["-KILL", &pid.to_string()]).status();
        if !killed.is_ok_and(|status| status.success()) {
            return Err(format!("cannot kill the server, pid {pid}"));
        }
        wait_for_death(pid)
    }
}

/// A killed process keeps its files, and the lock of its directory, until it is gone or a zombie.
fn wait_for_death(pid: u32) -> Result<()> {
    let begun = Instant::now();
    while begun.elapsed() < DEATH_LIMIT {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let state = stat.rsplit_once(')').and_then(|(_, rest)| rest.trim_start().chars().next());
        // The first thread may be a zombie while others still hold the files of all.
        let threads = std::fs::read_dir(format!("/proc/{pid}/task")).map_or(0, |dir| dir.count());
        if matches!(state, None | Some('Z' | 'X')) && threads <= 1 {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Err(format!("the killed server, pid {pid}, is still there"))
}
