//! The election of the flush leader: a pure state machine without threads and I/O. `flush` runs it
//! under one mutex and tells it how far the log is.
//!
//! Invariants:
//! 1. At most one caller leads, and one leads while any waits.
//! 2. Each that waits is answered once: served, failed, or called to lead.
//! 3. One is served only when the log has reached its need. Of the rest the one that has waited
//!    longest leads next, unless the round failed: then all of them fail.

/// How far a leader goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// Write sealed batches only, sync nothing.
    Ahead,
    /// Seal and write, sync nothing.
    Write,
    /// Seal, write and make durable.
    Sync,
}

/// All bytes below `end` are to be written, or durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Need {
    pub end: u64,
    pub mode: Mode,
}

/// How far the log is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Progress {
    pub written: u64,
    pub durable: u64,
}

impl Progress {
    pub fn reaches(self, need: Need) -> bool {
        match need.mode {
            Mode::Sync => self.durable >= need.end,
            Mode::Ahead | Mode::Write => self.written >= need.end,
        }
    }
}

/// The leader and those that wait, each known by a `W`.
#[derive(Debug)]
pub(super) struct Election<W> {
    leading: bool,
    /// In order of arrival.
    waiting: Vec<(Need, W)>,
}

/// The answers at the end of a round.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct HandOver<W> {
    pub leads: Option<W>,
    pub served: Vec<W>,
    pub failed: Vec<W>,
}

impl<W> Default for Election<W> {
    fn default() -> Election<W> {
        Election { leading: false, waiting: Vec::new() }
    }
}

impl<W: Clone> Election<W> {
    /// Makes the caller the leader, if there is none.
    pub fn try_lead(&mut self) -> bool {
        !std::mem::replace(&mut self.leading, true)
    }

    /// Makes the caller the leader, or puts it in the queue as the `W` that is made and answered.
    pub fn join(&mut self, need: Need, waiter: impl FnOnce() -> W) -> Option<W> {
        if self.try_lead() {
            return None;
        }
        let waiter = waiter();
        self.waiting.push((need, waiter.clone()));
        Some(waiter)
    }

    /// The leader's round is over.
    pub fn hand_over(&mut self, progress: Progress, has_failed: bool) -> HandOver<W> {
        assert!(self.leading, "only the leader hands over");
        let mut answers = HandOver { leads: None, served: Vec::new(), failed: Vec::new() };
        let waiting = std::mem::take(&mut self.waiting);
        for (need, waiter) in waiting {
            if progress.reaches(need) {
                answers.served.push(waiter);
            } else if has_failed {
                answers.failed.push(waiter);
            } else if answers.leads.is_none() {
                answers.leads = Some(waiter);
            } else {
                self.waiting.push((need, waiter));
            }
        }
        self.leading = answers.leads.is_some();
        assert!(self.leading || self.waiting.is_empty());
        answers
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::sim::SimRng;
    use std::collections::BTreeMap;

    /// Callers with all their needs, and how each got on.
    #[derive(Default)]
    struct Model {
        leader: Option<u32>,
        waiting: BTreeMap<u32, Need>,
        served: u32,
        failed: u32,
        led: u32,
    }

    impl Model {
        /// A caller comes that was not there before; callers come in order of their numbers.
        fn join(&mut self, election: &mut Election<u32>, caller: u32, need: Need) {
            match election.join(need, || caller) {
                None => assert_eq!(self.leader.replace(caller), None, "two lead"),
                Some(waiter) => {
                    assert!(self.leader.is_some(), "{waiter} waits, and none leads");
                    assert_eq!(waiter, caller);
                    self.waiting.insert(caller, need);
                }
            }
        }

        fn hand_over(&mut self, election: &mut Election<u32>, at: Progress, has_failed: bool) {
            self.leader.take().expect("a leader");
            let answers = election.hand_over(at, has_failed);
            for waiter in &answers.served {
                let need = self.waiting.remove(waiter).expect("it waits");
                assert!(at.reaches(need), "{waiter} was served too early");
            }
            self.served += answers.served.len() as u32;
            assert!(self.waiting.values().all(|&need| !at.reaches(need)), "one was forgotten");
            for waiter in &answers.failed {
                assert!(has_failed && self.waiting.remove(waiter).is_some());
            }
            self.failed += answers.failed.len() as u32;
            assert!(!has_failed || self.waiting.is_empty(), "a failure is everybody's");
            let oldest = self.waiting.pop_first().map(|(caller, _)| caller);
            assert_eq!(answers.leads, oldest, "the longest waiting leads");
            self.leader = oldest;
            self.led += u32::from(oldest.is_some());
        }
    }

    #[test]
    fn every_caller_is_answered_once_and_in_order() {
        let (mut served, mut failed, mut led) = (0, 0, 0);
        for seed in 0..200 {
            let mut rng = SimRng::new(seed);
            let (mut election, mut model) = (Election::default(), Model::default());
            let mut at = Progress { written: 0, durable: 0 };
            for caller in 0..500 {
                if model.leader.is_none() || rng.below(3) > 0 {
                    let mode = [Mode::Ahead, Mode::Write, Mode::Sync][rng.below(3) as usize];
                    let end = at.durable + rng.below(60);
                    model.join(&mut election, caller, Need { end, mode });
                    continue;
                }
                at.written += rng.below(40);
                if rng.below(2) > 0 {
                    at.durable = at.written;
                }
                model.hand_over(&mut election, at, rng.below(10) == 0);
            }
            while model.leader.is_some() {
                at = Progress { written: at.written + 10, durable: at.durable + 10 };
                model.hand_over(&mut election, at, false);
            }
            assert!(model.waiting.is_empty(), "seed {seed}: {:?} wait for ever", model.waiting);
            (served, failed, led) = (served + model.served, failed + model.failed, led + model.led);
        }
        assert!(served > 1000 && failed > 1000 && led > 1000, "{served} {failed} {led}");
    }
}
