//! How fast a copy is made, and how far it is.

use crate::signals;
use sluice_engine::base::{Error, Result};
use std::io::{stderr, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const SHOWN_EVERY: Duration = Duration::from_secs(1);

static SHOWS: AtomicBool = AtomicBool::new(false);

/// From here on progress is shown on standard error, if that is a terminal or the user asks for it.
pub fn show(is_asked: bool) {
    SHOWS.store(is_asked || stderr().is_terminal(), Ordering::Relaxed);
}

/// A phase begins.
pub fn phase(what: &str) {
    print(what, "\n");
}

/// On a terminal the next line takes the place of one that ends with `\r`.
fn print(line: &str, end: &str) {
    if SHOWS.load(Ordering::Relaxed) {
        let _ = match stderr().is_terminal() {
            true => write!(stderr(), "{line}\x1b[K{end}"),
            false => writeln!(stderr(), "{line}"),
        };
    }
}

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
            print(&self.line(), "\r");
        }
        Ok(is_due)
    }

    /// Bytes, part of the whole where it is known, and rate.
    fn line(&self) -> String {
        let rate =
            self.bytes as f64 / self.begun.elapsed().as_secs_f64().max(0.001) / f64::from(1 << 20);
        let done = self.bytes >> 20;
        match self.total_bytes {
            0 => format!("{}: {done} MiB, {rate:.0} MiB/s", self.what),
            total => {
                let total = total.max(self.bytes);
                let percent = self.bytes * 100 / total;
                format!(
                    "{}: {done} of about {} MiB ({percent} %), {rate:.0} MiB/s",
                    self.what,
                    total >> 20
                )
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_bytes_part_and_rate() {
        let mut pace = Pace::new("pages", 8 << 20, None);
        pace.step(2 << 20).unwrap();
        let line = pace.line();
        assert!(
            line.starts_with("pages: 2 of about 8 MiB (25 %), ") && line.ends_with(" MiB/s"),
            "{line}"
        );
        let mut pace = Pace::new("statements", 0, None);
        pace.step(3 << 20).unwrap();
        assert!(pace.line().starts_with("statements: 3 MiB, "));
    }
}
