//! How fast a copy is made, and how far it is.

use crate::signals;
use sluice_engine::base::{Error, Result};
use std::io::{stderr, IsTerminal, Write};
use std::time::{Duration, Instant};

const SHOWN_EVERY: Duration = Duration::from_secs(2);

pub struct Pace {
    what: &'static str,
    rate_bytes: Option<u64>,
    total_bytes: u64,
    begun: Instant,
    shown: Instant,
    bytes: u64,
}

impl Pace {
    pub fn new(what: &'static str, total_bytes: u64, rate_bytes: Option<u64>) -> Pace {
        let now = Instant::now();
        Pace { what, rate_bytes, total_bytes, begun: now, shown: now, bytes: 0 }
    }

    /// From here on nothing rests: what remains must be copied as fast as it goes.
    pub fn lift_limit(&mut self) {
        self.rate_bytes = None;
    }

    /// So many bytes more were copied: rests as the rate demands, and shows the progress. True when it
    /// is time to look after the server.
    pub fn step(&mut self, bytes: u64) -> Result<bool> {
        self.bytes += bytes;
        if let Some(rate) = self.rate_bytes {
            let due = Duration::from_secs_f64(self.bytes as f64 / rate as f64);
            signals::sleep_until(self.begun + due);
        }
        if signals::stopped() {
            return Err(Error::Interrupted);
        }
        let is_due = self.shown.elapsed() >= SHOWN_EVERY;
        if is_due {
            self.shown = Instant::now();
            let (done, total) = (self.bytes >> 20, self.total_bytes.max(self.bytes) >> 20);
            let end = if stderr().is_terminal() { "\r" } else { "\n" };
            let _ = write!(stderr(), "{} {done} of about {total} MiB{end}", self.what);
        }
        Ok(is_due)
    }
}
