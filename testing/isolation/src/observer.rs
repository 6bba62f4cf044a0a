//! Does a session's statement wait for a lock? The server says so, and the kernel says that the
//! thread sleeps.
//!
//! 1. InnoDB: SHOW ENGINE INNODB STATUS, which is not cached, has LOCK WAIT from the moment of the
//!    request to the moment of the grant.
//! 2. Sluice: performance_schema has the wait `row_lock` until the thread has woken up.
//! 3. Metadata and table locks: the state in the process list, until the thread has woken up.
//!
//! In all of them a short time exists in which the thread is awake and decides: a deadlock is
//! looked for, or a grant has come. So a session waits only if its thread has slept through two
//! answers of the server: asleep at both, and not once awake between them.

use crate::level::Engine;
use sluice_rig::client::{Answer, Client, Reply};
use sluice_rig::sleeper::asleep;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

pub struct Observer {
    client: Client,
    engine: Engine,
}

/// Between the two looks at a thread.
const SETTLE: Duration = Duration::from_millis(3);

impl Observer {
    pub fn new(socket: &Path, engine: Engine) -> Reply<Observer> {
        Ok(Observer { client: Client::connect(socket, "")?, engine })
    }

    pub fn is_waiting(&mut self, id: u32, thread_id: u32) -> Reply<bool> {
        if !self.server_says_waiting(id)? {
            return Ok(false);
        }
        let Some(switches) = asleep(thread_id) else { return Ok(false) };
        sleep(SETTLE);
        Ok(self.server_says_waiting(id)? && asleep(thread_id) == Some(switches))
    }

    fn server_says_waiting(&mut self, id: u32) -> Reply<bool> {
        let state = format!(
            "SELECT COUNT(*) FROM information_schema.processlist
             WHERE ID={id} AND STATE LIKE 'Waiting for%'"
        );
        if self.count(&state)? {
            return Ok(true);
        }
        match self.engine {
            Engine::InnoDb => self.innodb_says_waiting(id),
            Engine::Sluice => self.count(&format!(
                "SELECT COUNT(*) FROM performance_schema.threads
                 JOIN performance_schema.events_waits_current USING (THREAD_ID)
                 WHERE PROCESSLIST_ID={id} AND END_EVENT_ID IS NULL
                 AND EVENT_NAME='wait/synch/cond/sluice/row_lock'"
            )),
        }
    }

    fn count(&mut self, sql: &str) -> Reply<bool> {
        Ok(self.client.rows::<u64>(sql)?.first() != Some(&0))
    }

    fn innodb_says_waiting(&mut self, id: u32) -> Reply<bool> {
        let Answer::Rows(rows) = self.client.answer("SHOW ENGINE INNODB STATUS")? else {
            return Ok(false);
        };
        let text = rows.first().and_then(|row| row.last()).and_then(|text| text.as_deref());
        Ok(waits_in_status(text.unwrap_or(""), id))
    }
}

/// Whether the list of transactions has one of this connection that waits.
fn waits_in_status(text: &str, id: u32) -> bool {
    let mark = format!("MariaDB thread id {id},");
    let Some(at) = text.find("LIST OF TRANSACTIONS FOR EACH SESSION") else { return false };
    text[at..]
        .split("---TRANSACTION")
        .any(|one| one.contains(&mark) && one.lines().any(|line| line.starts_with("LOCK WAIT")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_waiting_transaction_is_found_in_the_status() {
        let text =
            "LATEST DETECTED DEADLOCK\n---TRANSACTION 1\nLOCK WAIT\nMariaDB thread id 9, x\n\
                    LIST OF TRANSACTIONS FOR EACH SESSION:\n\
                    ---TRANSACTION 5, ACTIVE 1 sec\n2 lock struct(s)\nMariaDB thread id 9, OS\n\
                    ---TRANSACTION 6, ACTIVE 1 sec\nLOCK WAIT 2 lock\nMariaDB thread id 10, OS\n";
        assert!(!waits_in_status(text, 9));
        assert!(waits_in_status(text, 10));
        assert!(!waits_in_status(text, 1));
    }
}
