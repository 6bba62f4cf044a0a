//! How fast a backup reads the disk of a server that goes on.

use crate::db::{Client, Counters, Dsn};
use crate::pace::{Pace, Rate, Work};

/// Counters of a server's work for its clients, and for a primary that it follows.
const WORK: [&str; 2] = ["questions", "handler_commit"];

pub struct Pacing<'a> {
    pub dsn: &'a Dsn,
    pub rate: Rate,
}

impl Pacing<'_> {
    pub fn pace(&self, what: &'static str, total_bytes: u64) -> Pace {
        match self.rate {
            Rate::Free => Pace::new(what, total_bytes, None),
            Rate::Bytes(bytes) => Pace::new(what, total_bytes, Some(bytes)),
            Rate::Auto => Pace::giving_way(what, total_bytes, self.work()),
        }
    }

    /// By a session of its own: that of the backup may wait for locks. A server that takes none has ended, and
    /// while its files are copied the backup finds that out elsewhere.
    fn work(&self) -> Work {
        let connected = Client::connect(self.dsn).ok().and_then(|mut client| {
            client.execute("SET SESSION wait_timeout = 86400").ok()?;
            Some(client)
        });
        match connected {
            Some(mut client) => Box::new(move || work_of(&mut client)),
            None => Box::new(|| None),
        }
    }
}

fn work_of(client: &mut Client) -> Option<u64> {
    let sql = format!("SHOW GLOBAL STATUS WHERE Variable_name IN ('{}')", WORK.join("', '"));
    let status = Counters::new(client.rows(&sql).ok()?);
    Some(WORK.iter().map(|name| status.count(name) as u64).sum())
}
