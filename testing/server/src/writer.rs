//! Sessions that commit one row after the other.

use crate::site::{done, Site};
use crate::wait_until;
use sluice_rig::client::{Client, Fault};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

/// The statements that commit the row of a key.
pub type Row = fn(i64) -> Vec<String>;

pub fn row_of_s(key: i64) -> Vec<String> {
    vec![format!("INSERT INTO test.s VALUES ({key}, '{key}')")]
}

pub fn row_of_i(key: i64) -> Vec<String> {
    vec![format!("INSERT INTO test.i VALUES ({key}, '{key}')")]
}

pub fn row_of_m(key: i64) -> Vec<String> {
    vec![format!("INSERT INTO test.m VALUES ({key}, '{key}')")]
}

/// A transaction with a row in a table of each engine.
pub fn row_of_both(key: i64) -> Vec<String> {
    vec![
        "BEGIN".into(),
        format!("INSERT INTO test.s VALUES ({key}, 'x')"),
        format!("INSERT INTO test.i VALUES ({key}, 'x')"),
        "COMMIT".into(),
    ]
}

fn commit(client: &mut Client, row: Row, key: i64) -> Result<(), Fault> {
    row(key).iter().try_for_each(|sql| client.run(sql))
}

/// Commits the rows of these keys, one by one, on one connection.
#[track_caller]
pub fn insert(site: &Site, keys: std::ops::RangeInclusive<i64>, row: Row) {
    let mut client = site.client();
    for key in keys {
        done(commit(&mut client, row, key), &format!("the row of key {key}"));
    }
}

/// Writes in a thread of its own until it has no more keys, is told to end or loses its server.
pub struct Writer {
    thread: JoinHandle<Option<Fault>>,
    acknowledged: Arc<Mutex<Vec<i64>>>,
    must_end: Arc<AtomicBool>,
}

impl Writer {
    #[track_caller]
    pub fn start(site: &Site, keys: std::ops::RangeInclusive<i64>, row: Row) -> Writer {
        let acknowledged = Arc::new(Mutex::new(Vec::new()));
        let must_end = Arc::new(AtomicBool::new(false));
        let mut client = site.client();
        let (seen, end) = (acknowledged.clone(), must_end.clone());
        let thread = std::thread::spawn(move || {
            for key in keys.take_while(|_| !end.load(Ordering::Relaxed)) {
                if let Err(fault) = commit(&mut client, row, key) {
                    return Some(fault);
                }
                seen.lock().unwrap().push(key);
            }
            None
        });
        Writer { thread, acknowledged, must_end }
    }

    /// How many commits were acknowledged so far.
    pub fn count(&self) -> usize {
        self.acknowledged.lock().unwrap().len()
    }

    /// Waits for its end; the keys that were acknowledged. It may have lost its server, but no
    /// statement may have been refused.
    #[track_caller]
    pub fn join(self) -> Vec<i64> {
        match self.thread.join().expect("a writer") {
            Some(Fault::Sql(code, text)) => panic!("the writer got error {code}: {text}"),
            Some(Fault::Lost(_)) | None => {}
        }
        let keys = self.acknowledged.lock().unwrap();
        keys.clone()
    }

    /// Ends it after the commit that it is at.
    #[track_caller]
    pub fn end(self) -> Vec<i64> {
        self.must_end.store(true, Ordering::Relaxed);
        self.join()
    }
}

/// Several writers with keys that do not meet.
pub struct Writers(Vec<Writer>);

/// So many keys each writer may use: more than it commits in any test, so that it ends only when it is told to.
pub const KEYS_EACH: i64 = 1_000_000;

impl Writers {
    #[track_caller]
    pub fn start(site: &Site, count: i64, first: i64, row: Row) -> Writers {
        let keys = |n| first + n * KEYS_EACH..=first + (n + 1) * KEYS_EACH - 1;
        Writers((0..count).map(|n| Writer::start(site, keys(n), row)).collect())
    }

    pub fn count(&self) -> usize {
        self.counts().iter().sum()
    }

    /// Of each writer.
    pub fn counts(&self) -> Vec<usize> {
        self.0.iter().map(Writer::count).collect()
    }

    /// Waits until so many commits more are acknowledged.
    #[track_caller]
    pub fn wait_for(&self, more: usize) {
        let wanted = self.count() + more;
        wait_until("commits of the writers", || self.count() >= wanted);
    }

    #[track_caller]
    pub fn join(self) -> Vec<i64> {
        self.0.into_iter().flat_map(Writer::join).collect()
    }

    /// Ends each after the commit that it is at.
    #[track_caller]
    pub fn end(self) -> Vec<i64> {
        self.0.into_iter().flat_map(Writer::end).collect()
    }
}
