//! System calls that the standard library does not offer.
//!
//! Safety argument: between fork and exec only `prctl` runs, which takes numbers; `mktime` is given a
//! structure of its own that outlives the call.

use std::os::unix::process::CommandExt;
use std::process::Command;

/// What the command starts is killed when the thread that starts it ends.
pub fn die_with_us(command: &mut Command) {
    // SAFETY: between fork and exec only prctl is called, which is async-signal-safe.
    unsafe {
        command.pre_exec(|| {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            Ok(())
        });
    }
}

/// Seconds since 1970 of year, month, day, hour, minute and second in the time zone of this host.
pub fn local_seconds([year, month, day, hour, minute, second]: [i32; 6]) -> Option<i64> {
    // SAFETY: all-zero bytes are a valid tm.
    let mut tm: libc::tm = unsafe { std::mem::zeroed() };
    (tm.tm_year, tm.tm_mon, tm.tm_mday) = (year - 1900, month - 1, day);
    (tm.tm_hour, tm.tm_min, tm.tm_sec, tm.tm_isdst) = (hour, minute, second, -1);
    // SAFETY: the structure is valid for the call.
    let seconds = unsafe { libc::mktime(&mut tm) };
    (seconds != -1).then_some(seconds)
}
