//! Tasks: threads that wait for the baton.

use super::state::{Baton, On, Pace, State, Status, Task};
use crate::os::bug::Bug;
use std::cell::RefCell;
use std::panic::{self, AssertUnwindSafe};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, Once, PoisonError};
use std::time::Duration;

/// Real time without an end after which a run is taken to block outside the scheduler.
const RUN_TIME_MAX: Duration = Duration::from_secs(300);

pub(super) struct Scheduler {
    state: Mutex<State>,
    over: Condvar,
}

thread_local! {
    static CURRENT: RefCell<Option<(Arc<Scheduler>, usize)>> = const { RefCell::new(None) };
}

/// How a run ended.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Of each choice and of each byte that was written: the same for the same seed.
    pub trace_hash: u64,
    pub points: u64,
    pub clock_ns: u64,
    /// What went wrong, where, and what every thread was doing.
    pub failure: Option<String>,
}

/// Runs `body` and everything that it spawns, to the end of all of it or to the first failure:
/// a panic, or a state in which nobody can run.
pub fn run(seed: u64, pace: Pace, body: impl FnOnce() + Send + 'static) -> Outcome {
    freeze_on_panic();
    let state = Mutex::new(State::new(seed, pace));
    let scheduler = Arc::new(Scheduler { state, over: Condvar::new() });
    let first = scheduler.start("main", Box::new(body));
    if let Err(error) = &first {
        scheduler.lock().failure = Some(format!("cannot start a thread: {error}"));
    } else {
        let baton = Arc::clone(&scheduler.lock().tasks[0].baton);
        baton.give();
    }
    let mut state = scheduler.lock();
    while !state.is_over && state.failure.is_none() {
        let points = state.points;
        let waited = scheduler.over.wait_timeout(state, RUN_TIME_MAX);
        let (again, time) = waited.unwrap_or_else(PoisonError::into_inner);
        state = again;
        if time.timed_out() && state.points == points {
            let tasks = state.describe();
            state.failure = Some(format!("a thread blocks outside the scheduler{tasks}"));
        }
    }
    Outcome {
        trace_hash: state.hash,
        points: state.points,
        clock_ns: state.clock_ns,
        failure: state.failure.clone(),
    }
}

impl Scheduler {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a task that is ready to run.
    fn start(
        self: &Arc<Self>,
        name: &str,
        body: Box<dyn FnOnce() + Send>,
    ) -> std::io::Result<usize> {
        let baton = Arc::new(Baton::default());
        let me = self.lock().tasks.len();
        let (scheduler, own) = (Arc::clone(self), Arc::clone(&baton));
        let thread = std::thread::Builder::new().name(name.into()).spawn(move || {
            own.wait();
            CURRENT.set(Some((Arc::clone(&scheduler), me)));
            // A panic never gets here, see `freeze_on_panic`.
            let _ = panic::catch_unwind(AssertUnwindSafe(body));
            CURRENT.set(None);
            scheduler.end(me);
        })?;
        let _ = baton.thread.set(thread.thread().clone());
        let task = Task {
            name: name.to_string(),
            status: Status::Ready,
            baton,
            token: false,
            timed_out: false,
        };
        self.lock().tasks.push(task);
        Ok(me)
    }

    fn end(&self, me: usize) {
        let mut state = self.lock();
        state.event("ends");
        state.tasks[me].status = Status::Ended;
        state.wake_all(On::EndOf(me));
        for i in 0..state.tasks.len() {
            if state.is_alone(i) {
                state.wake_all(On::Others);
            }
        }
        if state.tasks.iter().all(|t| matches!(t.status, Status::Ended)) {
            state.is_over = true;
            self.over.notify_all();
            return;
        }
        self.pass_on(state, None);
    }

    /// Lets a task run. `me` comes back, unless it has ended.
    fn pass_on(&self, mut state: MutexGuard<'_, State>, me: Option<usize>) {
        let Some(next) = state.choose() else {
            let tasks = state.describe();
            self.fail(state, format!("deadlock: nobody can ever run again{tasks}"));
        };
        if me == Some(next) {
            return;
        }
        state.running = next;
        state.event("runs");
        let to = Arc::clone(&state.tasks[next].baton);
        let own = me.map(|me| Arc::clone(&state.tasks[me].baton));
        drop(state);
        to.give();
        own.into_iter().for_each(|own| own.wait());
    }

    /// Ends the run as failed and freezes the thread that found it.
    fn fail(&self, mut state: MutexGuard<'_, State>, why: String) -> ! {
        state.failure.get_or_insert(why);
        self.over.notify_all();
        drop(state);
        loop {
            std::thread::park();
        }
    }
}

/// Calls `f` if this thread is a task.
fn with<R>(f: impl FnOnce(&Arc<Scheduler>, usize) -> R) -> Option<R> {
    let current = CURRENT.try_with(|current| current.try_borrow().ok()?.clone());
    let (scheduler, me) = current.ok().flatten()?;
    Some(f(&scheduler, me))
}

/// The first panic of a task is the run's failure; its thread stops where it is.
fn freeze_on_panic() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let others = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            let frozen = with(|scheduler, me| {
                let state = scheduler.lock();
                let name = state.tasks[me].name.clone();
                let why = info.to_string().replace('\n', " ");
                let tasks = state.describe();
                scheduler.fail(state, format!("{name}: {why}{tasks}"));
            });
            if frozen.is_none() {
                others(info);
            }
        }));
    });
}

/// A place where the baton may be passed on. False: this thread is no task.
pub(crate) fn point(what: &'static str) -> bool {
    with(|scheduler, me| {
        let mut state = scheduler.lock();
        let switch = state.pass_point(what);
        if state.points > state.pace.points_max {
            let tasks = state.describe();
            scheduler.fail(state, format!("no end after many points{tasks}"));
        }
        if switch {
            scheduler.pass_on(state, Some(me));
        }
    })
    .is_some()
}

/// Waits until woken, or until the time is over: then false. Only for tasks.
pub(super) fn wait(what: &'static str, on: On, time: Option<Duration>) -> bool {
    with(|scheduler, me| {
        let mut state = scheduler.lock();
        state.points += 1;
        state.event(what);
        let until_ns = time.map(|time| {
            let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
            state.clock_ns.saturating_add(ns)
        });
        state.tasks[me].timed_out = false;
        state.tasks[me].status = Status::Waiting { what, on, until_ns };
        if state.points > state.pace.points_max {
            let tasks = state.describe();
            scheduler.fail(state, format!("no end after many points{tasks}"));
        }
        scheduler.pass_on(state, Some(me));
        let timed_out = scheduler.lock().tasks[me].timed_out;
        !timed_out
    })
    .unwrap_or(true)
}

pub(super) fn wake_all(on: On) {
    with(|scheduler, _| scheduler.lock().wake_all(on));
}

fn wake_one(on: On) {
    with(|scheduler, _| scheduler.lock().wake_one(on));
}

/// As [`wait`], for a condition at this address.
pub(crate) fn wait_at(place: usize, time: Option<Duration>) -> bool {
    wait("a condition", On::Place(place), time)
}

pub(crate) fn wake_all_at(place: usize) {
    wake_all(On::Place(place));
}

pub(crate) fn wake_one_at(place: usize) {
    wake_one(On::Place(place));
}

/// A decision of the seed.
pub(super) fn coin() -> bool {
    with(|scheduler, _| scheduler.lock().draw(500)).unwrap_or(false)
}

/// Keys of a hash table.
pub(crate) fn hash_key() -> u64 {
    with(|scheduler, _| scheduler.lock().below(u64::MAX)).unwrap_or(0)
}

/// A file has these bytes there: a part of what tells one run from another.
pub(crate) fn wrote(path: &Path, offset: u64, bytes: &[u8]) {
    with(|scheduler, _| scheduler.lock().wrote(path, offset, bytes));
}

pub(crate) fn is_task() -> bool {
    with(|_, _| ()).is_some()
}

pub(crate) fn now_ns() -> Option<u64> {
    with(|scheduler, _| {
        let mut state = scheduler.lock();
        state.clock_ns += 1;
        state.clock_ns
    })
}

/// False: this thread is no task, and nothing was done.
pub(crate) fn sleep(time: Duration) -> bool {
    is_task() && {
        wait("sleep", On::Time, Some(time));
        true
    }
}

/// A call of the machine: it takes a while, sometimes long enough for others to run.
pub(crate) fn stall(what: &'static str) {
    let time = with(|scheduler, _| {
        let mut state = scheduler.lock();
        let slow = state.draw(300);
        let most_ns = state.pace.stall_ns_max;
        slow.then(|| Duration::from_nanos(10_000 + state.below(most_ns)))
    });
    match time.flatten() {
        Some(time) => {
            wait(what, On::Time, Some(time));
        }
        None => {
            point(what);
        }
    }
}

/// Whether this bug is planted in the run of this thread.
pub(crate) fn planted(bug: Bug) -> bool {
    with(|scheduler, _| scheduler.lock().pace.planted == Some(bug)).unwrap_or(false)
}

/// Whether work that may wait is put off in this run. On a large machine such work is often late; a
/// small world would hardly see it undone.
pub(crate) fn puts_off() -> bool {
    let drawn = with(|scheduler, _| {
        let mut state = scheduler.lock();
        let permille = state.pace.put_off_permille;
        permille > 0 && state.draw(permille)
    });
    drawn.unwrap_or(false)
}

/// From here on no work is put off: a wait for the end of all of it would take too long.
pub fn put_nothing_off() {
    with(|scheduler, _| scheduler.lock().pace.put_off_permille = 0);
}

/// Lets others run: for a task that looks again and again.
pub fn yield_now() {
    if !sleep(Duration::from_micros(1)) {
        std::thread::yield_now();
    }
}

/// Waits until every other task has ended.
pub fn join_others() {
    let alone = || with(|scheduler, me| scheduler.lock().is_alone(me)).unwrap_or(true);
    while !alone() {
        wait("others to end", On::Others, None);
    }
}

pub fn park() {
    let taken = with(|scheduler, me| std::mem::take(&mut scheduler.lock().tasks[me].token));
    match taken {
        None => std::thread::park(),
        Some(true) => {}
        Some(false) => {
            wait("park", On::Token, None);
            with(|scheduler, me| scheduler.lock().tasks[me].token = false);
        }
    }
}

/// A thread that can be woken from [`park`].
#[derive(Clone)]
pub struct Thread(Inner);

#[derive(Clone)]
enum Inner {
    Task(Arc<Scheduler>, usize),
    Real(std::thread::Thread),
}

pub fn current() -> Thread {
    let task = with(|scheduler, me| Inner::Task(Arc::clone(scheduler), me));
    Thread(task.unwrap_or_else(|| Inner::Real(std::thread::current())))
}

impl Thread {
    pub fn unpark(&self) {
        match &self.0 {
            Inner::Real(thread) => thread.unpark(),
            Inner::Task(scheduler, task) => {
                let mut state = scheduler.lock();
                let task = &mut state.tasks[*task];
                task.token = true;
                if matches!(task.status, Status::Waiting { on: On::Token, .. }) {
                    task.status = Status::Ready;
                }
            }
        }
    }
}

/// A thread that runs until its body returns.
pub struct JoinHandle(Handle);

enum Handle {
    Task(usize),
    Real(std::thread::JoinHandle<()>),
}

/// Starts a thread; a task if the caller is one.
pub fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> std::io::Result<JoinHandle> {
    let body = Box::new(body);
    if is_task() {
        let started = with(|scheduler, _| scheduler.start(name, body));
        let task = started.unwrap_or_else(|| unreachable!("the caller is a task"))?;
        return Ok(JoinHandle(Handle::Task(task)));
    }
    let thread = std::thread::Builder::new().name(name.into()).spawn(body)?;
    Ok(JoinHandle(Handle::Real(thread)))
}

impl JoinHandle {
    /// Is it the thread that asks?
    pub fn is_current(&self) -> bool {
        match &self.0 {
            Handle::Task(task) => with(|_, me| me == *task).unwrap_or(false),
            Handle::Real(thread) => thread.thread().id() == std::thread::current().id(),
        }
    }

    /// Waits for its end. A panic in it has already been reported.
    pub fn join(self) {
        match self.0 {
            Handle::Real(thread) => drop(thread.join()),
            Handle::Task(task) => {
                let ended = || {
                    with(|s, _| matches!(s.lock().tasks[task].status, Status::Ended))
                        .unwrap_or(true)
                };
                while !ended() {
                    wait("join", On::EndOf(task), None);
                }
            }
        }
    }
}
