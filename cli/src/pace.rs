//! How fast a copy is made and verified, and how far it is.

mod reads;

pub use reads::PacedOs;

use crate::signals;
use clap::builder::RangedU64ValueParser;
use sluice_engine::base::{Error, Result};
use std::io::{stderr, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const SHOWN_EVERY: Duration = Duration::from_secs(1);
/// A TiB a second.
const RATE_MIB_MAX: u64 = 1 << 20;
/// A delay of the disk or of this program is made up for, but no more of it than this: else a second after a
/// long one would see much more than the rate.
const MADE_UP_MAX: Duration = Duration::from_millis(100);

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

/// Values that the option `--rate-mib` takes.
pub fn rate_mib() -> RangedU64ValueParser {
    clap::value_parser!(u64).range(1..=RATE_MIB_MAX)
}

pub fn rate_bytes(rate_mib: Option<u64>) -> Option<u64> {
    rate_mib.map(|mib| mib << 20)
}

pub struct Pace {
    what: &'static str,
    /// A second.
    rate_bytes: Option<u64>,
    total_bytes: u64,
    begun: Instant,
    shown: Instant,
    bytes: u64,
    /// When the rate has room for all bytes so far.
    due: Instant,
}

impl Pace {
    pub fn new(what: &'static str, total_bytes: u64, rate_bytes: Option<u64>) -> Pace {
        let now = Instant::now();
        Pace { what, rate_bytes, total_bytes, begun: now, shown: now, bytes: 0, due: now }
    }

    /// From here on nothing rests: what remains must be copied as fast as it goes.
    pub fn lift_limit(&mut self) {
        self.rate_bytes = None;
    }

    /// So many bytes more: rests as the rate demands, and shows the progress. True when it is time to look
    /// after the server.
    pub fn step(&mut self, bytes: u64) -> Result<bool> {
        rest(self.count(bytes, Instant::now()))?;
        Ok(self.show_progress())
    }

    /// Answers until when these bytes have to rest.
    fn count(&mut self, bytes: u64, now: Instant) -> Instant {
        self.bytes += bytes;
        if let Some(rate) = self.rate_bytes {
            let earliest = now.checked_sub(MADE_UP_MAX).unwrap_or(now);
            let needed = Duration::from_secs_f64(bytes as f64 / rate as f64);
            self.due = self.due.max(earliest) + needed;
        }
        self.due
    }

    fn show_progress(&mut self) -> bool {
        let is_due = self.shown.elapsed() >= SHOWN_EVERY;
        if is_due {
            self.shown = Instant::now();
            print(&self.line(), "\r");
        }
        is_due
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

/// A signal ends it.
fn rest(until: Instant) -> Result<()> {
    signals::sleep_until(until);
    match signals::stopped() {
        true => Err(Error::Interrupted),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[test]
    fn a_rate_is_kept_and_a_delay_is_made_up_for_in_part() {
        let mut pace = Pace::new("pages", 0, Some(4 << 20));
        let (begun, quarter) = (pace.begun, Duration::from_millis(250));
        for n in 1..=4 {
            assert_eq!(pace.count(1 << 20, begun + quarter * (n - 1)), begun + quarter * n);
        }
        // A delay that is made up for.
        let now = begun + quarter * 4 + MADE_UP_MAX / 2;
        assert_eq!(pace.count(1 << 20, now), begun + quarter * 5);
        // Several threads: each gets a time of its own.
        assert_eq!(pace.count(1 << 20, now), begun + quarter * 6);
        let late = begun + quarter * 600;
        assert_eq!(pace.count(1 << 20, late), late - MADE_UP_MAX + quarter);
        pace.lift_limit();
        assert!(pace.count(1 << 30, late + quarter) <= late + quarter);
    }

    #[test]
    fn a_rate_that_is_none_is_refused() {
        let inspect: &[&str] = &["sluice", "inspect", "dir", "verify"];
        let backup: &[&str] = &["sluice", "backup", "mysql://root@localhost/?socket=s", "--to=dir"];
        for command in [inspect, backup] {
            let parse = |value: &str| {
                let option = format!("--rate-mib={value}");
                crate::Cli::try_parse_from(command.iter().copied().chain([&*option]))
            };
            for value in ["1", "1048576"] {
                assert!(parse(value).is_ok(), "{command:?} {value}");
            }
            for value in ["0", "-1", "1.5", "1M", "", "1048577", "17592186044416"] {
                let Err(error) = parse(value) else { panic!("{command:?} takes {value}") };
                assert!(error.to_string().contains("--rate-mib"), "{error}");
            }
        }
    }

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
