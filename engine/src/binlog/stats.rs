//! Counters of the room.

use std::sync::atomic::{AtomicU64, Ordering};

/// Why a group was made durable by a sync of the binlog file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Fallback {
    /// The bytes did not continue where the last ones ended.
    Gap = 0,
    /// The bytes are not events.
    Events = 1,
    /// The server's own write failed.
    Write = 2,
    /// The server writes to a file that is not hooked.
    Unhooked = 3,
    /// Another component took the server's callbacks.
    Callbacks = 4,
}

impl Fallback {
    pub const ALL: [(Fallback, &'static str); 5] = [
        (Fallback::Gap, "binlog_fallbacks_gap"),
        (Fallback::Events, "binlog_fallbacks_events"),
        (Fallback::Write, "binlog_fallbacks_write"),
        (Fallback::Unhooked, "binlog_fallbacks_unhooked"),
        (Fallback::Callbacks, "binlog_fallbacks_callbacks"),
    ];

    pub fn from_number(number: u32) -> Fallback {
        let found = Fallback::ALL.iter().find(|(reason, _)| *reason as u32 == number);
        found.map_or(Fallback::Unhooked, |(reason, _)| *reason)
    }
}

const BUCKETS: usize = 128;

/// Times by size: four buckets for each power of two of microseconds.
pub(super) struct Histogram {
    counts: [AtomicU64; BUCKETS],
}

impl Default for Histogram {
    fn default() -> Self {
        Histogram { counts: std::array::from_fn(|_| AtomicU64::new(0)) }
    }
}

fn bucket(us: u64) -> usize {
    if us < 4 {
        return us as usize;
    }
    let power = 63 - us.leading_zeros() as usize;
    let quarter = (us >> (power - 2)) as usize & 3;
    (power * 4 - 4 + quarter).min(BUCKETS - 1)
}

/// The largest time of a bucket.
fn upper_us(bucket: usize) -> u64 {
    if bucket < 4 {
        return bucket as u64;
    }
    let (power, quarter) = (bucket / 4 + 1, bucket as u64 % 4);
    ((4 + quarter + 1) << (power - 2)) - 1
}

impl Histogram {
    pub fn add_ns(&self, ns: u64) {
        add(&self.counts[bucket(ns / 1000)], 1);
    }

    /// The time that `percent` of all do not exceed; rounded up to the end of its bucket.
    pub fn percentile_us(&self, percent: u64) -> u64 {
        let counts: Vec<u64> = self.counts.iter().map(value).collect();
        let total: u64 = counts.iter().sum();
        let mut left = (total * percent).div_ceil(100);
        for (bucket, count) in counts.into_iter().enumerate() {
            if left <= count {
                return if total == 0 { 0 } else { upper_us(bucket) };
            }
            left -= count;
        }
        0
    }
}

pub(super) fn add(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Ordering::Relaxed);
}

pub(super) fn value(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

#[derive(Default)]
pub(super) struct Counters {
    pub groups: AtomicU64,
    pub transactions: AtomicU64,
    pub group_transactions_max: AtomicU64,
    pub copied_bytes: AtomicU64,
    pub large_groups: AtomicU64,
    pub plain_groups: AtomicU64,
    pub file_syncs: AtomicU64,
    pub uncovered_commits: AtomicU64,
    pub completed_bytes: AtomicU64,
    pub cut_bytes: AtomicU64,
    pub fallbacks: [AtomicU64; Fallback::ALL.len()],
    pub waits: Histogram,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_follow_each_other_and_hold_their_times() {
        let mut last = 0;
        for us in 0..100_000 {
            let at = bucket(us);
            assert!(at == last || at == last + 1, "{us}");
            assert!(us <= upper_us(at) && (at == 0 || us > upper_us(at - 1)), "{us} in {at}");
            last = at;
        }
        let waits = Histogram::default();
        (1..=100).for_each(|us| waits.add_ns(us * 1000));
        assert_eq!((waits.percentile_us(50), waits.percentile_us(99)), (55, 111));
    }
}
