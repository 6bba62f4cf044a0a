//! A rate of reading that leaves the clients of a busy server most of what they do without it.
//!
//! 1. From time to time nothing is read for a second. The work that the server does then, beside what it does
//!    while bytes are read, says what the reading costs it.
//! 2. The cost is taken as proportional to the rate, and the rate moves towards the one that costs `AIM`.
//! 3. A server that does hardly anything, or answers no more, has nobody to give way to.

use std::time::{Duration, Instant};

/// Begin, and what no load pushes the rate below: a backup keeps old pages and log of the server until it ends.
const BEGIN_BYTES: u64 = 32 << 20;
const LEAST_BYTES: u64 = 16 << 20;
/// More than any disk reads.
pub const FREE_BYTES: u64 = 1 << 40;
/// The part of its work that a server is to lose: below the tenth that is promised, as a single look errs.
const AIM: f64 = 0.07;
/// One look is never trusted for more than this.
const CHANGE_MIN: f64 = 0.5;
const CHANGE_MAX: f64 = 2.0;
/// Work a second of a server that is idle. The session of the backup is some of it.
const IDLE_WORK: f64 = 100.0;
/// Writes that were begun before still go to the disk.
pub const SETTLE: Duration = Duration::from_millis(200);
pub const REST: Duration = Duration::from_secs(1);
/// From look to look: short at first, while the rate is a guess.
const EVERY_MIN_S: u64 = 2;
const EVERY_MAX_S: u64 = 10;
/// Of the newest look in the mean of all.
const NEWEST: f64 = 0.5;

/// Statements and commits of a server since its start; none once it does not answer.
pub type Work = Box<dyn FnMut() -> Option<u64> + Send>;

pub struct Balance {
    work: Work,
    rate_bytes: u64,
    looks: u64,
    due: Instant,
    /// When the server was asked last, and its work then.
    mark: Option<(Instant, u64)>,
    alone: Option<f64>,
    beside: Option<f64>,
}

impl Balance {
    pub fn new(work: Work, now: Instant) -> Balance {
        let due = now + Duration::from_secs(EVERY_MIN_S);
        let mut balance = Balance {
            work,
            rate_bytes: BEGIN_BYTES,
            looks: 0,
            due,
            mark: None,
            alone: None,
            beside: None,
        };
        balance.ask(now);
        balance
    }

    pub fn rate_bytes(&self) -> u64 {
        self.rate_bytes
    }

    /// Is it time to rest and look? Only one of several threads is told so.
    pub fn begins_look(&mut self, now: Instant) -> bool {
        let is_due = now >= self.due;
        if is_due {
            self.looks += 1;
            let every = (EVERY_MIN_S + self.looks).min(EVERY_MAX_S);
            self.due = now + SETTLE + REST + Duration::from_secs(every);
        }
        is_due
    }

    /// Work a second since it was asked last.
    pub fn ask(&mut self, now: Instant) -> Option<f64> {
        let before = self.mark;
        self.mark = (self.work)().map(|work| (now, work));
        let ((then, before), (now, work)) = (before?, self.mark?);
        let seconds = now.saturating_duration_since(then).as_secs_f64().max(0.001);
        Some(work.saturating_sub(before) as f64 / seconds)
    }

    /// Work a second beside the reading since the look before, and during the rest after it.
    pub fn judge(&mut self, beside: Option<f64>, alone: Option<f64>) {
        let (Some(beside), Some(alone)) = (beside, alone) else {
            self.rate_bytes = FREE_BYTES;
            return;
        };
        let mean =
            |old: Option<f64>, new: f64| old.map_or(new, |old| old * (1.0 - NEWEST) + new * NEWEST);
        let (beside, alone) = (mean(self.beside, beside), mean(self.alone, alone));
        (self.beside, self.alone) = (Some(beside), Some(alone));
        if alone < IDLE_WORK {
            self.rate_bytes = FREE_BYTES;
            return;
        }
        let lost = (1.0 - beside / alone).max(AIM / CHANGE_MAX);
        let change = (AIM / lost).clamp(CHANGE_MIN, CHANGE_MAX);
        // Where it was free nobody knows what rate the disk gave.
        let begin = if self.rate_bytes == FREE_BYTES { BEGIN_BYTES } else { self.rate_bytes };
        self.rate_bytes = ((begin as f64 * change) as u64).clamp(LEAST_BYTES, FREE_BYTES - 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn balance() -> Balance {
        Balance::new(Box::new(|| Some(0)), Instant::now())
    }

    /// A server that does `alone` a second, and loses a tenth of that for each `tenth_bytes` a second.
    fn rates(balance: &mut Balance, alone: f64, tenth_bytes: u64, looks: u64) -> Vec<u64> {
        let look = |n: u64| {
            let lost = balance.rate_bytes() as f64 / tenth_bytes as f64 / 10.0;
            // Its work goes up and down.
            let noise = 1.0 + 0.03 * (n as f64 * 2.4).sin();
            balance.judge(Some(alone * (1.0 - lost.min(0.9)) * noise), Some(alone));
            balance.rate_bytes()
        };
        (0..looks).map(look).collect()
    }

    #[test]
    fn writers_lose_less_than_a_tenth_whatever_the_disk_gives() {
        for tenth_mib in [40, 100, 400] {
            let mut balance = balance();
            let rates = rates(&mut balance, 10_000.0, tenth_mib << 20, 40);
            let late: Vec<u64> = rates[15..].iter().map(|bytes| bytes >> 20).collect();
            let mean = late.iter().sum::<u64>() / late.len() as u64;
            assert!(mean > tenth_mib / 2 && mean <= tenth_mib, "{tenth_mib}: {late:?}");
        }
    }

    #[test]
    fn a_backup_ends_however_busy_the_server_is() {
        let mut balance = balance();
        assert_eq!(rates(&mut balance, 10_000.0, 1 << 20, 20)[10..], [LEAST_BYTES; 10]);
    }

    #[test]
    fn an_idle_server_gives_all_until_somebody_comes() {
        let mut balance = balance();
        assert_eq!(rates(&mut balance, 5.0, 100 << 20, 1), [FREE_BYTES]);
        let rates = rates(&mut balance, 20_000.0, 100 << 20, 3);
        assert!(rates.iter().all(|&rate| rate < 200 << 20), "{rates:?}");
    }

    #[test]
    fn a_server_that_answers_no_more_has_no_claim() {
        let mut balance = balance();
        balance.judge(Some(1000.0), None);
        assert_eq!(balance.rate_bytes(), FREE_BYTES);
    }

    #[test]
    fn work_is_counted_by_time_and_looks_get_rarer() {
        let begun = Instant::now();
        let mut total = 0;
        let work: Work = Box::new(move || {
            total += 500;
            Some(total)
        });
        let mut balance = Balance::new(work, begun);
        assert_eq!(balance.ask(begun + Duration::from_secs(2)), Some(250.0));
        let looks: Vec<u64> = (1..=80)
            .filter(|&second| balance.begins_look(begun + Duration::from_secs(second)))
            .collect();
        assert_eq!(looks[..3], [2, 7, 13]);
        assert_eq!(looks[looks.len() - 1] - looks[looks.len() - 2], 12, "{looks:?}");
    }
}
