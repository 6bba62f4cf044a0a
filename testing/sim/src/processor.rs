//! One run keeps to one processor. Its threads run in turns, and to wake a thread of another processor
//! takes longer than most turns do.

use rustix::thread::{sched_getaffinity, sched_setaffinity, CpuSet};
use std::sync::{Mutex, PoisonError};

/// How many runs of this process keep to each processor.
static RUNS: Mutex<Vec<usize>> = Mutex::new(Vec::new());

/// While it lives, the calling thread and those that it starts keep to one processor: that with the fewest
/// other runs. Where the system does not allow it, they go where they like.
pub struct Processor {
    number: usize,
    before: CpuSet,
}

impl Processor {
    pub fn keep_to_one() -> Option<Processor> {
        let before = sched_getaffinity(None).ok()?;
        let mut runs = RUNS.lock().unwrap_or_else(PoisonError::into_inner);
        runs.resize(CpuSet::MAX_CPU, 0);
        let allowed = (0..CpuSet::MAX_CPU).filter(|number| before.is_set(*number));
        let number = allowed.min_by_key(|number| runs[*number])?;
        let mut one = CpuSet::new();
        one.set(number);
        sched_setaffinity(None, &one).ok()?;
        runs[number] += 1;
        Some(Processor { number, before })
    }
}

impl Drop for Processor {
    fn drop(&mut self) {
        // A mask that the thread had can be had again, unless the administrator has narrowed it: it
        // stays as it is then.
        let _ = sched_setaffinity(None, &self.before);
        RUNS.lock().unwrap_or_else(PoisonError::into_inner)[self.number] -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_at_the_same_time_are_spread_and_masks_come_back() {
        let before = sched_getaffinity(None).unwrap();
        let first = Processor::keep_to_one().unwrap();
        let inherited = std::thread::spawn(|| sched_getaffinity(None).unwrap()).join().unwrap();
        assert_eq!(inherited.count(), 1);
        let second = std::thread::spawn(|| Processor::keep_to_one().map(|own| own.number));
        // The thread had one processor to choose from.
        assert_eq!(second.join().unwrap(), Some(first.number));
        drop(first);
        assert_eq!(sched_getaffinity(None).unwrap(), before);
        assert!(RUNS.lock().unwrap().iter().all(|runs| *runs == 0));
    }
}
