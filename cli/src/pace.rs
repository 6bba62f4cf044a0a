//! How fast a copy is made and verified, and how far it is.

mod balance;
mod reads;

pub use balance::Work;
pub use reads::PacedOs;

use self::balance::{Balance, REST, SETTLE};
use crate::signals;
use clap::builder::RangedU64ValueParser;
use sluice_engine::base::{Error, Result};
use std::io::{stderr, IsTerminal, Write};
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
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

/// A value of the option `--rate-mib` of a backup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rate {
    /// As fast as the server's clients allow.
    Auto,
    /// As fast as it goes.
    Free,
    /// Bytes a second at most.
    Bytes(u64),
}

impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Rate, String> {
        match text {
            "auto" => Ok(Rate::Auto),
            "none" => Ok(Rate::Free),
            _ => match text.parse() {
                Ok(mib @ 1..=RATE_MIB_MAX) => Ok(Rate::Bytes(mib << 20)),
                _ => Err(format!("neither auto, none, nor a number from 1 to {RATE_MIB_MAX}")),
            },
        }
    }
}

/// Several threads may keep one pace together.
pub struct Pace {
    what: &'static str,
    total_bytes: u64,
    begun: Instant,
    state: Mutex<State>,
}

struct State {
    /// A second, if the user has set it.
    rate_bytes: Option<u64>,
    /// It has the rate if nobody has set one.
    balance: Option<Balance>,
    shown: Instant,
    bytes: u64,
    /// When the rate has room for all bytes so far.
    due: Instant,
}

impl Pace {
    pub fn new(what: &'static str, total_bytes: u64, rate_bytes: Option<u64>) -> Pace {
        let now = Instant::now();
        let state = State { rate_bytes, balance: None, shown: now, bytes: 0, due: now };
        Pace { what, total_bytes, begun: now, state: Mutex::new(state) }
    }

    /// A pace that gives way to the clients of the server whose work this is.
    pub fn giving_way(what: &'static str, total_bytes: u64, work: Work) -> Pace {
        let pace = Pace::new(what, total_bytes, None);
        pace.state().balance = Some(Balance::new(work, pace.begun));
        pace
    }

    /// A thread that has panicked leaves numbers behind, which are right or nearly so.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From here on nothing rests: what remains must be copied as fast as it goes.
    pub fn lift_limit(&self) {
        let mut state = self.state();
        state.rate_bytes = None;
        state.balance = None;
    }

    /// Lifts the limit if it is lower than so many bytes a second.
    pub fn lift_limit_below(&self, bytes: u64) {
        if self.state().rate().is_some_and(|rate| rate < bytes) {
            self.lift_limit();
        }
    }

    /// So many bytes more: rests as the rate demands, and shows the progress. True when it is time to look
    /// after the server.
    pub fn step(&self, bytes: u64) -> Result<bool> {
        let (due, looks) = self.state().count(bytes, Instant::now());
        if looks {
            self.look()?;
        }
        // Others count their bytes meanwhile.
        rest(due)?;
        Ok(self.show_progress())
    }

    /// All threads rest, as the others find that theirs is due later.
    fn look(&self) -> Result<()> {
        let beside = self.state().ask();
        rest(Instant::now() + SETTLE)?;
        self.state().ask();
        rest(Instant::now() + REST)?;
        let mut state = self.state();
        let alone = state.ask();
        if let Some(balance) = &mut state.balance {
            balance.judge(beside, alone);
        }
        Ok(())
    }

    fn show_progress(&self) -> bool {
        let mut state = self.state();
        let is_due = state.shown.elapsed() >= SHOWN_EVERY;
        if is_due {
            state.shown = Instant::now();
            print(&self.line(state.bytes), "\r");
        }
        is_due
    }

    /// All of it is done: the last line says so.
    pub fn end(&self) {
        let bytes = self.state().bytes;
        print(&self.line(bytes), "\n");
    }

    /// Bytes, part of the whole where it is known, and rate.
    fn line(&self, bytes: u64) -> String {
        let rate =
            bytes as f64 / self.begun.elapsed().as_secs_f64().max(0.001) / f64::from(1 << 20);
        let done = bytes >> 20;
        match self.total_bytes {
            0 => format!("{}: {done} MiB, {rate:.0} MiB/s", self.what),
            total => {
                let total = total.max(bytes);
                let percent = bytes * 100 / total;
                format!(
                    "{}: {done} of about {} MiB ({percent} %), {rate:.0} MiB/s",
                    self.what,
                    total >> 20
                )
            }
        }
    }
}

impl State {
    /// Bytes a second.
    fn rate(&self) -> Option<u64> {
        self.balance.as_ref().map(Balance::rate_bytes).or(self.rate_bytes)
    }

    /// Answers until when these bytes have to rest, and whether this thread has to look after the server
    /// meanwhile.
    fn count(&mut self, bytes: u64, now: Instant) -> (Instant, bool) {
        self.bytes += bytes;
        if let Some(rate) = self.rate() {
            let earliest = now.checked_sub(MADE_UP_MAX).unwrap_or(now);
            let needed = Duration::from_secs_f64(bytes as f64 / rate as f64);
            self.due = self.due.max(earliest) + needed;
        }
        let looks = self.balance.as_mut().is_some_and(|balance| balance.begins_look(now));
        if looks {
            self.due = self.due.max(now) + SETTLE + REST;
        }
        (self.due, looks)
    }

    fn ask(&mut self) -> Option<f64> {
        self.balance.as_mut()?.ask(Instant::now())
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
        let pace = Pace::new("pages", 0, Some(4 << 20));
        let (begun, quarter) = (pace.begun, Duration::from_millis(250));
        let count = |bytes, now| pace.state().count(bytes, now).0;
        for n in 1..=4 {
            assert_eq!(count(1 << 20, begun + quarter * (n - 1)), begun + quarter * n);
        }
        // A delay that is made up for.
        let now = begun + quarter * 4 + MADE_UP_MAX / 2;
        assert_eq!(count(1 << 20, now), begun + quarter * 5);
        // Several threads: each gets a time of its own.
        assert_eq!(count(1 << 20, now), begun + quarter * 6);
        let late = begun + quarter * 600;
        assert_eq!(count(1 << 20, late), late - MADE_UP_MAX + quarter);
        pace.lift_limit_below(4 << 20);
        assert!(pace.state().rate().is_some(), "it is not lower");
        pace.lift_limit_below((4 << 20) + 1);
        assert!(count(1 << 30, late + quarter) <= late + quarter);
    }

    #[test]
    fn one_of_several_threads_looks_and_all_rest_meanwhile() {
        let pace = Pace::giving_way("pages", 0, Box::new(|| Some(0)));
        let later = pace.begun + Duration::from_secs(60);
        let (due, looks) = pace.state().count(1, later);
        assert!(looks && due >= later + SETTLE + REST);
        let (due, looks) = pace.state().count(1, later);
        assert!(!looks && due >= later + SETTLE + REST);
        pace.look().unwrap();
        assert!(pace.state().rate().unwrap() > 1 << 30, "the server does nothing");
    }

    #[test]
    fn a_backup_takes_words_for_its_rate() {
        assert_eq!("auto".parse(), Ok(Rate::Auto));
        assert_eq!("none".parse(), Ok(Rate::Free));
        assert_eq!("7".parse(), Ok(Rate::Bytes(7 << 20)));
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
        let pace = Pace::new("pages", 8 << 20, None);
        pace.step(2 << 20).unwrap();
        let line = pace.line(2 << 20);
        assert!(
            line.starts_with("pages: 2 of about 8 MiB (25 %), ") && line.ends_with(" MiB/s"),
            "{line}"
        );
        let pace = Pace::new("statements", 0, None);
        assert!(pace.line(3 << 20).starts_with("statements: 3 MiB, "));
    }
}
