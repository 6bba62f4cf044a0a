//! `sluice server status`.

use super::layout::ServerDir;
use super::process::{self, PidFile};
use super::{Result, StatusArgs};
use std::process::ExitCode;
use std::time::Duration;

/// The code that init scripts use for "not running".
const NOT_RUNNING: u8 = 3;

pub fn status(args: &StatusArgs) -> Result<ExitCode> {
    let dir = ServerDir::new(&args.dir)?;
    let root = dir.root().display();
    let Some(marker) = dir.read_marker()? else {
        report!("not running: no server was ever started on {root}");
        return Ok(ExitCode::from(NOT_RUNNING));
    };
    let pid = match process::read_pid_file(&dir) {
        PidFile::Running(pid) => pid,
        PidFile::Missing => {
            report!("not running: {root}");
            return Ok(ExitCode::from(NOT_RUNNING));
        }
        PidFile::Stale(why) => {
            report!("not running: {root} (stale pid file: {why})");
            return Ok(ExitCode::from(NOT_RUNNING));
        }
    };
    let version = process::greeting(&dir).unwrap_or("does not answer yet".to_string());
    report!("running: {root}");
    report!("pid:     {pid}");
    report!("version: {version}");
    report!("engine:  {}", if marker.engine { "Sluice" } else { "none" });
    report!("socket:  {}", dir.socket().display());
    if let Some(port) = marker.port {
        report!("port:    127.0.0.1:{port}");
    }
    if let Some(uptime) = process::uptime(pid) {
        report!("uptime:  {}", in_words(uptime));
    }
    Ok(ExitCode::SUCCESS)
}

fn in_words(uptime: Duration) -> String {
    let seconds = uptime.as_secs();
    match (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60, seconds % 60) {
        (0, 0, 0, seconds) => format!("{seconds} s"),
        (0, 0, minutes, seconds) => format!("{minutes} min {seconds} s"),
        (0, hours, minutes, _) => format!("{hours} h {minutes} min"),
        (days, hours, _, _) => format!("{days} d {hours} h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uptime_shows_its_two_largest_units() {
        assert_eq!(in_words(Duration::from_secs(59)), "59 s");
        assert_eq!(in_words(Duration::from_secs(61)), "1 min 1 s");
        assert_eq!(in_words(Duration::from_secs(3660)), "1 h 1 min");
        assert_eq!(in_words(Duration::from_secs(90_000)), "1 d 1 h");
    }
}
