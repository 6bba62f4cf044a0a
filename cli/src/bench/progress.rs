//! How far a run is: one line that renews itself on a terminal, one per step elsewhere.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

const BAR_WIDTH: usize = 24;

pub struct Progress {
    guessed_total_s: f64,
    guessed_done_s: f64,
    begun: Instant,
    terminal: bool,
}

impl Progress {
    pub fn new(guessed_total_s: f64) -> Progress {
        let terminal = std::io::stderr().is_terminal();
        Progress { guessed_total_s, guessed_done_s: 0.0, begun: Instant::now(), terminal }
    }

    pub fn begin(&self, what: &str) {
        let line = line(self.guessed_done_s, self.guessed_total_s, self.begun.elapsed());
        if self.terminal {
            eprint!("\r\x1b[K{line}  {what}");
            let _ = std::io::stderr().flush();
        } else {
            eprintln!("{line}  {what}");
        }
    }

    /// A result that stays on the screen.
    pub fn note(&self, text: &str) {
        if self.terminal {
            eprint!("\r\x1b[K");
        }
        eprintln!("{text}");
    }

    pub fn end(&mut self, guessed_s: f64) {
        self.guessed_done_s += guessed_s;
    }
}

fn line(done_s: f64, total_s: f64, elapsed: Duration) -> String {
    let part = if total_s > 0.0 { (done_s / total_s).clamp(0.0, 1.0) } else { 1.0 };
    let full = (part * BAR_WIDTH as f64) as usize;
    // The cost of a guessed second so far; at first nothing is known and the guess is trusted.
    let pace = if done_s > 20.0 { elapsed.as_secs_f64() / done_s } else { 1.0 };
    let left = ((total_s - done_s).max(0.0) * pace) as u64;
    let bar = "#".repeat(full) + &".".repeat(BAR_WIDTH - full);
    format!("[{bar}] {:3.0} %  {} left", part * 100.0, clock(left))
}

pub fn clock(seconds: u64) -> String {
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, minutes, seconds) => format!("{minutes}:{seconds:02}"),
        (hours, minutes, seconds) => format!("{hours}:{minutes:02}:{seconds:02}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_left_follows_the_pace() {
        assert!(line(0.0, 100.0, Duration::ZERO).contains("0 %  1:40 left"));
        assert!(line(50.0, 100.0, Duration::from_secs(100)).contains("50 %  1:40 left"));
        assert!(line(100.0, 100.0, Duration::from_secs(1)).contains("100 %  0:00 left"));
        assert_eq!(clock(3661), "1:01:01");
    }
}
