//! Programs that a run needs: sysbench, and children with enough file descriptors.

use crate::Result;
use std::fs;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Instant;

/// Installs sysbench if it is not there, as root or through a sudo that asks nothing.
pub fn ensure_sysbench() -> Result<()> {
    let works = || {
        let child = Command::new("sysbench").arg("--version").stdout(Stdio::null()).status();
        child.is_ok_and(|status| status.success())
    };
    if works() {
        return Ok(());
    }
    eprintln!("sluice: installing sysbench");
    let install = "if [ $(id -u) = 0 ]; then S=; else S='sudo -n'; fi; \
                   I=\"$S env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq \
                   --no-install-recommends sysbench\"; \
                   $I >/dev/null 2>&1 || { $S apt-get update -qq && $I; } >/dev/null 2>&1";
    let _ = Command::new("sh").args(["-c", install]).status();
    if works() {
        return Ok(());
    }
    Err("sysbench is missing: run 'apt-get install sysbench' as root".to_string())
}

/// A command in a process group of its own, so that Ctrl-C reaches only us, with at least
/// `descriptors` open files allowed if the hard limit permits; `check_descriptors` says if not.
pub fn command(words: &[String], descriptors: u64) -> Command {
    let mut command = Command::new("sh");
    let raise =
        "n=$1; shift; [ \"$(ulimit -Sn)\" = unlimited ] || [ \"$(ulimit -Sn)\" -ge \"$n\" ] \
                 || ulimit -Sn \"$n\"; exec \"$@\"";
    command.args(["-c", raise, "sluice"]).arg(descriptors.to_string()).args(words);
    command.process_group(0);
    command
}

/// Runs to the end and returns the seconds it took, or what it said.
pub fn run_with_descriptors(words: &[String], descriptors: u64) -> Result<f64> {
    let begun = Instant::now();
    let output = command(words, descriptors)
        .stdin(Stdio::null())
        .output()
        .map_err(|e| format!("cannot run {}: {e}", words[0]))?;
    if output.status.success() {
        return Ok(begun.elapsed().as_secs_f64());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    Err(text.trim().trim_start_matches("sluice: error: ").to_string())
}

/// A client and a server thread need a descriptor each.
pub fn check_descriptors(threads: u32) -> Result<()> {
    let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let needed = u64::from(threads) * 2 + 4096;
    match hard_limit(&limits) {
        Some(hard) if hard < needed => Err(format!(
            "{threads} threads need {needed} open files, the hard limit is {hard}: raise it \
             (ulimit -Hn), or use fewer threads"
        )),
        _ => Ok(()),
    }
}

fn hard_limit(limits: &str) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read() {
        let text = "Max processes   100  200  processes\nMax open files  1024  4096  files\n";
        assert_eq!(hard_limit(text), Some(4096));
        assert_eq!(hard_limit("Max open files  1024  unlimited  files\n"), None);
        assert!(
            check_descriptors(u32::MAX / 4).is_err()
                || hard_limit(&fs::read_to_string("/proc/self/limits").unwrap())
                    .is_none_or(|hard| hard > 1 << 31)
        );
    }

    #[test]
    fn what_a_program_says_is_reported() {
        let words = ["sh", "-c", "echo no >&2; exit 3"].map(String::from);
        assert_eq!(run_with_descriptors(&words, 0).unwrap_err(), "no");
        assert!(run_with_descriptors(&["true".to_string()], 0).is_ok());
    }
}
