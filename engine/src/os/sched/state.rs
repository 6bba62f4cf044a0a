//! The scheduler's knowledge of its tasks, and its choice of the next one.

use crate::os::bug::Bug;
use crate::os::rng::SimRng;
use std::fmt::Write;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::Thread;

/// Time that passes at a point, at most.
const POINT_NS_MAX: u64 = 2_000;

/// How a run is scheduled; drawn from its seed.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// How many of a thousand points pass the baton on.
    pub switch_permille: u64,
    /// How many of a thousand points end somebody's sleep by letting time pass.
    pub jump_permille: u64,
    /// How long the machine takes for a call that it is slow with, at most.
    pub stall_ns_max: u64,
    /// How many of a thousand times work that may wait is put off.
    pub put_off_permille: u64,
    /// More points than this are taken for a run without end.
    pub points_max: u64,
    /// Print every event.
    pub trace: bool,
    pub planted: Option<Bug>,
}

impl Pace {
    pub fn of_seed(seed: u64) -> Pace {
        let mut rng = SimRng::new(seed ^ 0x70ACE);
        Pace {
            switch_permille: [3, 10, 30, 100][rng.below(4) as usize],
            jump_permille: [1, 3, 10][rng.below(3) as usize],
            stall_ns_max: 400_000,
            put_off_permille: [0, 0, 800, 950][rng.below(4) as usize],
            points_max: 6_000_000,
            trace: false,
            planted: None,
        }
    }
}

/// What makes one thread the running one.
#[derive(Default)]
pub(super) struct Baton {
    given: AtomicBool,
    pub thread: OnceLock<Thread>,
}

impl Baton {
    pub fn give(&self) {
        self.given.store(true, Ordering::Release);
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }

    pub fn wait(&self) {
        while !self.given.swap(false, Ordering::Acquire) {
            std::thread::park();
        }
    }
}

/// For what a task waits: an address, or a small number for what has none.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum On {
    Place(usize),
    Token,
    Time,
    EndOf(usize),
    Others,
}

#[derive(Clone, Copy)]
pub(super) enum Status {
    Ready,
    Waiting { what: &'static str, on: On, until_ns: Option<u64> },
    Ended,
}

pub(super) struct Task {
    pub name: String,
    pub status: Status,
    pub baton: Arc<Baton>,
    /// See `std::thread::park`.
    pub token: bool,
    pub timed_out: bool,
}

pub(super) struct State {
    pub tasks: Vec<Task>,
    pub running: usize,
    pub clock_ns: u64,
    pub points: u64,
    pub pace: Pace,
    pub hash: u64,
    pub failure: Option<String>,
    pub is_over: bool,
    rng: SimRng,
}

impl State {
    pub fn new(seed: u64, pace: Pace) -> State {
        State {
            tasks: Vec::new(),
            running: 0,
            clock_ns: 0,
            points: 0,
            pace,
            hash: 0xcbf2_9ce4_8422_2325,
            failure: None,
            is_over: false,
            rng: SimRng::new(seed ^ 0x5C_4ED),
        }
    }

    /// Each choice that tells one run from another goes through here, through [`State::pass_point`] or
    /// through [`State::wrote`].
    pub fn event(&mut self, what: &str) {
        for byte in what.bytes() {
            self.mix(u64::from(byte));
        }
        self.mix(self.running as u64);
        self.mix(self.clock_ns);
        self.print(what);
    }

    /// Each byte that the run has written.
    pub fn wrote(&mut self, path: &Path, offset: u64, bytes: &[u8]) {
        let sum = crc32c::crc32c(bytes);
        self.mix(offset);
        self.mix(u64::from(sum));
        if self.pace.trace {
            let (path, len) = (path.display(), bytes.len());
            self.print(&format!("{len} bytes at {offset} of {path}: {sum:08x}"));
        }
    }

    fn mix(&mut self, value: u64) {
        self.hash = (self.hash ^ value).wrapping_mul(0x0100_0000_01b3);
    }

    fn print(&self, what: &str) {
        if self.pace.trace {
            let task = &self.tasks[self.running];
            println!("{:>9} {:>12} {:<14} {what}", self.points, self.clock_ns, task.name);
        }
    }

    /// Counts a point; true if the baton is to be passed on.
    pub fn pass_point(&mut self, what: &str) -> bool {
        self.points += 1;
        self.clock_ns += self.rng.below(POINT_NS_MAX);
        self.mix(self.clock_ns);
        self.print(what);
        if self.draw(self.pace.jump_permille) {
            self.jump();
        }
        self.draw(self.pace.switch_permille)
    }

    pub fn draw(&mut self, permille: u64) -> bool {
        self.rng.below(1000) < permille
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.rng.below(n)
    }

    /// Lets time pass until some sleeper's time has come.
    fn jump(&mut self) {
        let ends: Vec<u64> = self.tasks.iter().filter_map(Task::until_ns).collect();
        if !ends.is_empty() {
            let end = ends[self.rng.below(ends.len() as u64) as usize];
            self.advance_to(end);
        }
    }

    fn advance_to(&mut self, ns: u64) {
        self.clock_ns = self.clock_ns.max(ns);
        for task in &mut self.tasks {
            if task.until_ns().is_some_and(|end| end <= self.clock_ns) {
                task.status = Status::Ready;
                task.timed_out = true;
            }
        }
    }

    /// The task that runs next; none if none ever can.
    pub fn choose(&mut self) -> Option<usize> {
        let now_ns = self.clock_ns;
        self.advance_to(now_ns);
        if !self.tasks.iter().any(Task::is_ready) {
            let first = self.tasks.iter().filter_map(Task::until_ns).min()?;
            self.advance_to(first);
        }
        let ready = self.tasks.iter().filter(|t| t.is_ready()).count() as u64;
        let nth = self.rng.below(ready) as usize;
        self.tasks.iter().enumerate().filter(|(_, t)| t.is_ready()).nth(nth).map(|(i, _)| i)
    }

    pub fn wake_all(&mut self, on: On) {
        self.tasks.iter_mut().filter(|t| t.waits_on(on)).for_each(|t| t.status = Status::Ready);
    }

    pub fn wake_one(&mut self, on: On) {
        let waiting = self.tasks.iter().filter(|t| t.waits_on(on)).count() as u64;
        if waiting > 0 {
            let nth = self.rng.below(waiting) as usize;
            let task = self.tasks.iter_mut().filter(|t| t.waits_on(on)).nth(nth);
            task.into_iter().for_each(|t| t.status = Status::Ready);
        }
    }

    pub fn is_alone(&self, me: usize) -> bool {
        self.tasks.iter().enumerate().all(|(i, t)| i == me || matches!(t.status, Status::Ended))
    }

    /// Every task and what it does, for the report of a failure.
    pub fn describe(&self) -> String {
        let mut text = String::new();
        for (i, task) in self.tasks.iter().enumerate() {
            let is = match task.status {
                Status::Ended => continue,
                Status::Ready if i == self.running => "runs".to_string(),
                Status::Ready => "could run".to_string(),
                Status::Waiting { what, until_ns, .. } => {
                    let holder = match until_ns {
                        Some(end) => format!(" until {end} ns"),
                        None => String::new(),
                    };
                    format!("waits: {what}{holder}")
                }
            };
            let _ = write!(text, "\n    {} {is}", task.name);
        }
        text
    }
}

impl Task {
    pub fn is_ready(&self) -> bool {
        matches!(self.status, Status::Ready)
    }

    fn until_ns(&self) -> Option<u64> {
        match self.status {
            Status::Waiting { until_ns, .. } => until_ns,
            _ => None,
        }
    }

    fn waits_on(&self, place: On) -> bool {
        matches!(self.status, Status::Waiting { on, .. } if on == place)
    }
}
