//! Sessions that change rows in the way of sysbench's oltp_write_only: two updates, of them one of an
//! indexed column, and a row that is deleted and inserted again, in each transaction.

use crate::world::{setting, DATABASE};
use sluice_rig::client::{Client, Fault};
use sluice_rig::rng::Rng;
use sluice_server_tests::site::Site;
use sluice_server_tests::wait_until;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;
use std::thread::JoinHandle;

pub struct Load {
    sessions: Vec<JoinHandle<Result<(), Fault>>>,
    commits: Arc<AtomicU64>,
    must_end: Arc<AtomicBool>,
}

impl Load {
    pub fn start(primary: &Site) -> Load {
        let (commits, must_end) = (Arc::<AtomicU64>::default(), Arc::<AtomicBool>::default());
        let session = |number| {
            let mut client = Client::connect(&primary.socket(), DATABASE).ok().expect("a session");
            let (commits, must_end) = (commits.clone(), must_end.clone());
            let mut rng = Rng::new(number);
            std::thread::spawn(move || {
                while !must_end.load(Ordering::Relaxed) {
                    commits.fetch_add(transaction(&mut client, &mut rng)?, Ordering::Relaxed);
                }
                Ok(())
            })
        };
        let sessions = (1..=setting("THREADS", 4)).map(session).collect();
        Load { sessions, commits, must_end }
    }

    /// Waits until so many transactions more are committed.
    #[track_caller]
    pub fn wait_for(&self, more: u64) {
        let wanted = self.commits.load(Ordering::Relaxed) + more;
        let is_running = || !self.sessions.iter().any(|session| session.is_finished());
        wait_until("commits of the load", || {
            assert!(is_running(), "a session of the load has ended");
            self.commits.load(Ordering::Relaxed) >= wanted
        });
    }

    /// Ends it; nothing may have gone wrong.
    #[track_caller]
    pub fn end(self) {
        self.must_end.store(true, Ordering::Relaxed);
        for session in self.sessions {
            if let Err(fault) = session.join().expect("a session") {
                panic!("the load: {fault}");
            }
        }
    }

    /// Waits for the end of sessions that have lost their server.
    #[track_caller]
    pub fn lose(self) {
        for session in self.sessions {
            match session.join().expect("a session") {
                Err(Fault::Lost(_)) => {}
                Err(fault) => panic!("the load: {fault}"),
                Ok(()) => panic!("the load has not lost its server"),
            }
        }
    }
}

/// Deadlock, lock wait timeout, and a row that changed since the snapshot.
const TRY_AGAIN: [u16; 3] = [1213, 1205, 1020];

/// How many transactions are committed: one, or none if it must be tried again.
fn transaction(client: &mut Client, rng: &mut Rng) -> Result<u64, Fault> {
    match statements(rng).iter().try_for_each(|sql| client.run(sql)) {
        Ok(()) => Ok(1),
        Err(Fault::Sql(code, _)) if TRY_AGAIN.contains(&code) => {
            client.run("ROLLBACK")?;
            Ok(0)
        }
        Err(fault) => Err(fault),
    }
}

fn statements(rng: &mut Rng) -> [String; 6] {
    let (tables, size) = (setting("TABLES", 4) as i64, setting("SIZE", 5000) as i64);
    let mut place = || (rng.between(1, tables), rng.between(1, size));
    let [(t1, id1), (t2, id2), (t3, id3)] = [place(), place(), place()];
    let (k, text) = (rng.between(1, size), rng.next_u64());
    [
        "BEGIN".into(),
        format!("UPDATE sbtest{t1} SET k = k + 1 WHERE id = {id1}"),
        format!("UPDATE sbtest{t2} SET c = REPEAT('{text:016x}', 7) WHERE id = {id2}"),
        format!("DELETE FROM sbtest{t3} WHERE id = {id3}"),
        format!(
            "INSERT INTO sbtest{t3} (id, k, c, pad) \
             VALUES ({id3}, {k}, REPEAT('{text:016x}', 7), SHA1('{text}'))"
        ),
        "COMMIT".into(),
    ]
}
