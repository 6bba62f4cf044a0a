//! Sessions that go on after errors which say that the disk is full, and a record of what became of their
//! transactions.

use sluice_rig::client::{Client, Fault};
use sluice_server_tests::site::{done, Site};
use sluice_server_tests::wait_until;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::{sleep, JoinHandle};
use std::time::Duration;

pub const TABLES: [&str; 3] = [
    "CREATE TABLE w.random (a BIGINT PRIMARY KEY, session INT NOT NULL, b VARBINARY(4000), KEY (session))",
    "CREATE TABLE w.sums (session INT PRIMARY KEY, n BIGINT NOT NULL)",
    "INSERT INTO w.sums SELECT seq, 0 FROM w.seq_0_to_3",
];
const SESSIONS: i64 = 4;
const KEYS_EACH: i64 = 1_000_000;
/// Disk full; table is full; that of strict mode; error during COMMIT.
const FULL: [u16; 4] = [1021, 1114, 1296, 1180];
/// A server whose own files find the disk full looks once a minute whether there is room.
const PATIENCE: Duration = Duration::from_secs(170);
/// The disk stays full for a while: more tries show nothing more.
const REST: Duration = Duration::from_millis(2);

#[derive(Default)]
struct Tried {
    acknowledged: BTreeSet<i64>,
    refused: usize,
    /// Each once.
    reasons: BTreeSet<String>,
}

/// Sessions at work.
pub struct Commits {
    tried: Arc<Mutex<Tried>>,
    must_end: Arc<AtomicBool>,
    sessions: Vec<JoinHandle<()>>,
}

/// A row that does not compress, and a number that says how many there are of its session.
fn transaction(session: i64, key: i64) -> [String; 4] {
    let random = "RANDOM_BYTES(1000)";
    [
        "BEGIN".into(),
        format!(
            "INSERT INTO w.random VALUES ({key}, {session}, CONCAT({random}, {random}, {random}))"
        ),
        format!("UPDATE w.sums SET n = n + 1 WHERE session = {session}"),
        "COMMIT".into(),
    ]
}

/// The reason of an error that says that the disk is full. Anything else is a panic.
fn reason(fault: Fault) -> String {
    match fault {
        Fault::Sql(code, text) if FULL.contains(&code) && text.to_lowercase().contains("full") => {
            format!("{code}: {text}")
        }
        other => panic!("a session got {other}"),
    }
}

impl Commits {
    /// Keys of another run are other ones.
    #[track_caller]
    pub fn begin(site: &Site, run: i64) -> Commits {
        let (tried, must_end) = (Arc::<Mutex<Tried>>::default(), Arc::<AtomicBool>::default());
        let sessions = (0..SESSIONS).map(|session| {
            let client = site.patient_client(PATIENCE);
            let first = (run * SESSIONS + session) * KEYS_EACH;
            let (tried, must_end) = (tried.clone(), must_end.clone());
            std::thread::spawn(move || work(client, session, first, &tried, &must_end))
        });
        let sessions = sessions.collect();
        Commits { tried, must_end, sessions }
    }

    fn tried(&self) -> MutexGuard<'_, Tried> {
        self.tried.lock().expect("a record")
    }

    pub fn refused(&self) -> usize {
        self.tried().refused
    }

    #[track_caller]
    pub fn wait_for_refusals(&self, more: usize) {
        let wanted = self.refused() + more;
        wait_until("a full disk", || self.goes_on() && self.refused() >= wanted);
    }

    #[track_caller]
    pub fn wait_for_commits(&self, more: usize) {
        let count = || self.tried().acknowledged.len();
        let wanted = count() + more;
        wait_until("commits", || self.goes_on() && count() >= wanted);
    }

    /// Fails if a session has ended by itself.
    fn goes_on(&self) -> bool {
        assert!(self.sessions.iter().all(|session| !session.is_finished()), "a session has ended");
        true
    }

    /// The keys that were acknowledged, and the reasons why others were not.
    #[track_caller]
    pub fn end(self) -> (BTreeSet<i64>, BTreeSet<String>) {
        self.must_end.store(true, Ordering::Relaxed);
        self.sessions.into_iter().for_each(|session| session.join().expect("a session"));
        let tried = std::mem::take(&mut *self.tried.lock().expect("a record"));
        (tried.acknowledged, tried.reasons)
    }
}

fn work(mut client: Client, session: i64, first: i64, tried: &Mutex<Tried>, end: &AtomicBool) {
    for key in (first..).take_while(|_| !end.load(Ordering::Relaxed)) {
        let ended = transaction(session, key).iter().try_for_each(|sql| client.run(sql));
        let mut tried = tried.lock().expect("a record");
        match ended {
            Ok(()) => {
                tried.acknowledged.insert(key);
            }
            Err(fault) => {
                tried.refused += 1;
                tried.reasons.insert(reason(fault));
                drop(tried);
                done(client.run("ROLLBACK"), "ROLLBACK");
                sleep(REST);
            }
        }
    }
}

/// The server has exactly these transactions.
#[track_caller]
pub fn has(site: &Site, acknowledged: &BTreeSet<i64>) {
    let keys = site.rows("SELECT a FROM w.random ORDER BY a").concat();
    let keys: BTreeSet<i64> = keys.iter().map(|key| key.parse().expect("a number")).collect();
    let lost: Vec<_> = acknowledged.difference(&keys).take(10).collect();
    let phantom: Vec<_> = keys.difference(acknowledged).take(10).collect();
    assert!(lost.is_empty() && phantom.is_empty(), "lost {lost:?}, phantom {phantom:?}");
    let short = "SELECT COUNT(*) FROM w.random WHERE COALESCE(LENGTH(b), 0) <> 3000";
    assert_eq!(site.value(short), "0", "values that are not whole");
    let halves = "SELECT COUNT(*) FROM w.sums
                  WHERE n <> (SELECT COUNT(*) FROM w.random WHERE random.session = sums.session)";
    assert_eq!(site.value(halves), "0", "parts of transactions");
}
