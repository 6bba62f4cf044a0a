//! Which sessions wait. InnoDB counts its waits for rows in a status variable and lists those for
//! tables, Sluice names its own in performance_schema, metadata locks are in the process list. And the
//! kernel must say that the thread sleeps: what has been granted to it, or a deadlock that it looks
//! for, keeps it awake.

use crate::session::{Direct, Session};
use sluice_rig::sleeper::asleep;
use std::collections::HashSet;
use std::thread::sleep;
use std::time::{Duration, Instant};

const BETWEEN_LOOKS: Duration = Duration::from_millis(3);
/// InnoDB's counter leaves out waits for a table, as DDL has them for a prepared transaction. They
/// are in a list that InnoDB renews every 100 ms, so it is asked late.
const UNCOUNTED: Duration = Duration::from_millis(250);
/// A session that is not known to wait and does not answer for so long counts as waiting.
const SILENCE: Duration = Duration::from_secs(20);

/// A connection that has not answered, with its thread in the server.
pub struct Waiter {
    id: u32,
    thread: u32,
}

impl Waiter {
    pub fn of(session: &Session) -> Waiter {
        Waiter { id: session.id, thread: session.server_thread }
    }
}

#[derive(Default)]
pub struct Watch {
    /// How often each thread had gone to sleep at the last look, where all waited.
    slept: Option<Vec<u64>>,
    since: Option<Instant>,
}

impl Watch {
    /// True once all of these connections are known to wait, at two looks in a row and between them.
    pub fn all_wait(&mut self, control: &mut Direct, sluice: &[Waiter], innodb: &[Waiter]) -> bool {
        let since = *self.since.get_or_insert_with(Instant::now);
        if since.elapsed() > SILENCE {
            return true;
        }
        let known = metadata_waits(control);
        let rest: HashSet<u32> =
            innodb.iter().map(|w| w.id).filter(|id| !known.contains(id)).collect();
        let uncounted = |control: &mut Direct| {
            since.elapsed() > UNCOUNTED && innodb_listed(control).is_superset(&rest)
        };
        let all = (innodb_waits(control) >= rest.len() as u64 || uncounted(control)) && {
            let rows = sluice_waits(control);
            sluice.iter().all(|w| known.contains(&w.id) || rows.contains(&w.id))
        };
        let sleep_of = |waiter: &Waiter| asleep(waiter.thread);
        let slept: Option<Vec<u64>> = sluice.iter().chain(innodb).map(sleep_of).collect();
        let slept = slept.filter(|_| all);
        if slept.is_some() && slept == self.slept {
            return true;
        }
        self.slept = slept;
        sleep(BETWEEN_LOOKS);
        false
    }
}

fn numbers(control: &mut Direct, sql: &str, column: usize) -> Vec<u64> {
    let outcome = control.run(sql);
    let rows = outcome.sets.first().map(|set| set.rows.clone()).unwrap_or_default();
    let number = |row: &crate::session::Row| {
        let bytes = row.get(column).cloned().flatten()?;
        String::from_utf8_lossy(&bytes).parse().ok()
    };
    rows.iter().filter_map(number).collect()
}

fn innodb_waits(control: &mut Direct) -> u64 {
    let sql = "SHOW GLOBAL STATUS LIKE 'Innodb_row_lock_current_waits'";
    numbers(control, sql, 1).first().copied().unwrap_or(0)
}

fn innodb_listed(control: &mut Direct) -> HashSet<u32> {
    let sql = "SELECT trx_mysql_thread_id FROM information_schema.innodb_trx \
               WHERE trx_state = 'LOCK WAIT'";
    numbers(control, sql, 0).into_iter().map(|id| id as u32).collect()
}

fn sluice_waits(control: &mut Direct) -> HashSet<u32> {
    let sql = "SELECT t.processlist_id FROM performance_schema.events_waits_current e \
               JOIN performance_schema.threads t ON t.thread_id = e.thread_id \
               WHERE e.event_name = 'wait/synch/cond/sluice/row_lock' AND e.end_event_id IS NULL \
               AND t.processlist_id IS NOT NULL";
    numbers(control, sql, 0).into_iter().map(|id| id as u32).collect()
}

fn metadata_waits(control: &mut Direct) -> HashSet<u32> {
    let sql = "SELECT id FROM information_schema.processlist WHERE state LIKE 'Waiting for%lock%'";
    numbers(control, sql, 0).into_iter().map(|id| id as u32).collect()
}

/// Does the connection wait for a metadata lock?
pub fn at_metadata(control: &mut Direct, id: u32) -> bool {
    metadata_waits(control).contains(&id)
}

/// Does the connection wait for InnoDB's lock of a table?
pub fn at_innodb_table(control: &mut Direct, id: u32) -> bool {
    let sql = "SELECT t.trx_mysql_thread_id FROM information_schema.innodb_trx t \
               JOIN information_schema.innodb_locks l ON l.lock_id = t.trx_requested_lock_id \
               WHERE l.lock_type = 'TABLE'";
    numbers(control, sql, 0).contains(&u64::from(id))
}

/// Until connection `id` has left the process list.
pub fn until_gone(control: &mut Direct, id: u32) {
    let sql = format!("SELECT id FROM information_schema.processlist WHERE id = {id}");
    let give_up = Instant::now() + Duration::from_secs(30);
    while !numbers(control, &sql, 0).is_empty() && Instant::now() < give_up {
        sleep(Duration::from_micros(300));
    }
}
