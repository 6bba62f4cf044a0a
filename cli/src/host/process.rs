//! Counters of a server's process.

use crate::db::Counters;
use std::fs;
use std::path::PathBuf;

/// As the kernel counts them for every process on Linux: USER_HZ.
const TICKS_PER_SECOND: f64 = 100.0;

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ProcessCounters {
    pub cpu_s: f64,
    /// Absent without the right to read /proc/PID/io.
    pub read_bytes: Option<u64>,
    pub written_bytes: Option<u64>,
    /// Handed to write calls: without what the page cache rounds up, and without asynchronous I/O.
    pub write_call_bytes: Option<u64>,
}

impl ProcessCounters {
    pub fn read(pid: u32) -> Option<ProcessCounters> {
        let cpu_s = parse_cpu(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)?;
        let io = fs::read_to_string(format!("/proc/{pid}/io")).unwrap_or_default();
        let field = |name: &str| {
            io.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": ")?.parse().ok())
        };
        Some(ProcessCounters {
            cpu_s,
            read_bytes: field("read_bytes"),
            written_bytes: field("write_bytes"),
            write_call_bytes: field("wchar"),
        })
    }
}

fn parse_cpu(stat: &str) -> Option<f64> {
    // The name in parentheses may hold anything.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = |at: usize| fields.get(at)?.parse::<f64>().ok();
    Some((ticks(11)? + ticks(12)?) / TICKS_PER_SECOND)
}

/// The process of the server with these variables, if it runs on this machine: a pid alone is not
/// proof, its working directory is.
pub fn process_of(variables: &Counters) -> Option<u32> {
    let data = PathBuf::from(variables.text("datadir")?);
    let pid_file = data.join(variables.text("pid_file")?);
    let pid = fs::read_to_string(pid_file).ok()?.trim().parse().ok()?;
    let cwd = fs::read_link(format!("/proc/{pid}/cwd")).ok()?;
    (cwd == fs::canonicalize(data).ok()?).then_some(pid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_of_a_process_with_an_odd_name() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194560 1 0 0 0 250 50 0 0 20 0 30 0 100 0 0";
        assert_eq!(parse_cpu(stat), Some(3.0));
        assert_eq!(parse_cpu("7 (x) S 1"), None);
    }

    #[test]
    fn counters_of_ourselves() {
        let counters = ProcessCounters::read(std::process::id()).unwrap();
        assert!(counters.cpu_s >= 0.0);
        assert_eq!(ProcessCounters::read(u32::MAX), None);
    }
}
