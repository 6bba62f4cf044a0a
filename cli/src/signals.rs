//! Ctrl-C and SIGTERM: a flag that long work looks at, so that it can clean up.
//!
//! Safety argument: the handler stores into an atomic and calls nothing else; `signal` is given
//! valid signal numbers and a function of the C ABI that lives as long as the process.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

static STOP: AtomicBool = AtomicBool::new(false);

extern "C" fn on_signal(_: libc::c_int) {
    STOP.store(true, Ordering::SeqCst);
}

/// From here on the signals set the flag instead of ending the process.
pub fn catch() {
    let handler = on_signal as extern "C" fn(libc::c_int) as libc::sighandler_t;
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: a valid signal number and a handler that only stores into an atomic.
        unsafe { libc::signal(signal, handler) };
    }
}

pub fn stopped() -> bool {
    STOP.load(Ordering::SeqCst)
}

/// Sleeps until `until`; false when a signal came first.
pub fn sleep_until(until: Instant) -> bool {
    while !stopped() {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return true;
        }
        std::thread::sleep(left.min(Duration::from_millis(50)));
    }
    false
}
