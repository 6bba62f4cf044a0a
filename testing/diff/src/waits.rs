//! Which sessions wait. InnoDB counts its waits in a status variable, Sluice names them in
//! performance_schema, metadata locks are in the process list.

use crate::session::Direct;
use std::collections::HashSet;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Two looks in a row must agree: a deadlock's victim waits for a moment, too.
const LOOKS: u32 = 2;
const BETWEEN_LOOKS: Duration = Duration::from_millis(3);
/// A session that is not known to wait and does not answer for so long counts as waiting.
const SILENCE: Duration = Duration::from_secs(20);

#[derive(Default)]
pub struct Watch {
    agreed: u32,
    since: Option<Instant>,
}

impl Watch {
    /// True once all of these connections are known to wait.
    pub fn all_wait(&mut self, control: &mut Direct, sluice: &[u32], innodb: &[u32]) -> bool {
        let since = *self.since.get_or_insert_with(Instant::now);
        if since.elapsed() > SILENCE {
            return true;
        }
        let known = metadata_waits(control);
        let rest: Vec<u32> = innodb.iter().copied().filter(|id| !known.contains(id)).collect();
        let all = innodb_waits(control) >= rest.len() as u64 && {
            let rows = sluice_waits(control);
            sluice.iter().all(|id| known.contains(id) || rows.contains(id))
        };
        self.agreed = if all { self.agreed + 1 } else { 0 };
        if self.agreed >= LOOKS {
            return true;
        }
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

/// Until connection `id` has left the process list.
pub fn until_gone(control: &mut Direct, id: u32) {
    let sql = format!("SELECT id FROM information_schema.processlist WHERE id = {id}");
    let give_up = Instant::now() + Duration::from_secs(30);
    while !numbers(control, &sql, 0).is_empty() && Instant::now() < give_up {
        sleep(Duration::from_micros(300));
    }
}
