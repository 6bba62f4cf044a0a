//! Tells an observer what threads wait for: at most one observer in a process, which
//! the server's plugin sets. Only what really has to wait asks it, so it costs nothing otherwise.

use std::sync::OnceLock;

/// What a thread waits for; the server's instruments are in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// The flush of the log that another thread leads.
    LogFlush,
    /// A row, or an interval between rows, that another transaction has locked.
    RowLock,
    /// A checkpoint that makes room in the log.
    LogRoom,
    /// A free frame of the buffer pool.
    Frame,
}

/// Each function must call `body` exactly once.
pub trait Observer: Send + Sync {
    fn wait(&self, what: Wait, body: &mut dyn FnMut());
    /// A background thread, from its beginning to its end.
    fn thread(&self, name: &'static str, body: &mut dyn FnMut());
}

static OBSERVER: OnceLock<Box<dyn Observer>> = OnceLock::new();

/// The first one stays.
pub fn set_observer(observer: Box<dyn Observer>) {
    OBSERVER.get_or_init(|| observer);
}

fn observed<T>(body: impl FnOnce() -> T, call: impl FnOnce(&dyn Observer, &mut dyn FnMut())) -> T {
    let Some(observer) = OBSERVER.get() else { return body() };
    let (mut body, mut answer) = (Some(body), None);
    call(&**observer, &mut || answer = body.take().map(|body| body()));
    match answer {
        Some(answer) => answer,
        None => unreachable!("an observer calls the body"),
    }
}

/// Runs `body`, in which this thread waits.
pub fn waiting<T>(what: Wait, body: impl FnOnce() -> T) -> T {
    observed(body, |observer, body| observer.wait(what, body))
}

/// Runs the whole `body` of a background thread.
pub fn thread<T>(name: &'static str, body: impl FnOnce() -> T) -> T {
    observed(body, |observer, body| observer.thread(name, body))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn a_body_runs_once_and_answers() {
        static RUNS: AtomicUsize = AtomicUsize::new(0);
        let body = || RUNS.fetch_add(1, Ordering::SeqCst);
        assert_eq!(waiting(Wait::RowLock, body), 0);
        assert_eq!(thread("t", body), 1);
        assert_eq!(RUNS.load(Ordering::SeqCst), 2);
    }
}
