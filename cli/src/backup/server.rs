//! The session of a backup: stages, and what the server says of itself.

use crate::db::{Client, Counters, Dsn};
use crate::Result;
use sluice_engine::db::backup::Place;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Beside what a statement may wait for locks.
const ANSWER_LIMIT: Duration = Duration::from_secs(120);
/// While it waits for a lock that holds commits, others wait for it: so it waits for a second at a
/// time, and rests as long.
const COMMIT_WAIT: Duration = Duration::from_secs(1);

const GIVEN_UP: &str =
    "the server has given the backup up, because its disk is full: free space there, and begin again";

/// Schemas of the server itself, of which plain files are copied.
pub const SYSTEM: [&str; 2] = ["mysql", "sys"];

pub struct Server {
    client: Client,
    wait: Duration,
    number: u64,
}

/// Where files are.
pub struct Places {
    pub data_dir: PathBuf,
    pub log_dir: PathBuf,
    pub aria_dir: PathBuf,
}

/// A table of the server that is not copied: as people name it, and the names of its files.
pub struct Foreign {
    pub shown: String,
    pub schema: String,
    pub schema_file: String,
    pub table: String,
    pub table_file: String,
}

impl Foreign {
    /// In a schema of the server itself: InnoDB's statistics and positions of replicas.
    pub fn is_of_server(&self) -> bool {
        SYSTEM.contains(&self.schema.as_str())
    }
}

impl Server {
    pub fn connect(dsn: &Dsn, wait: Duration) -> Result<Server> {
        let mut client = Client::connect_with_limit(dsn, wait + ANSWER_LIMIT)?;
        let variables = client.rows("SHOW VARIABLES LIKE 'sluice\\_hot\\_backup'")?;
        if variables.is_empty() {
            return Err("the server has no Sluice, or one that is too old for a backup".into());
        }
        client.execute("SET SESSION wait_timeout = 86400, max_statement_time = 0")?;
        let mut server = Server { client, wait, number: 0 };
        server.wait_at_most(wait)?;
        Ok(server)
    }

    fn wait_at_most(&mut self, wait: Duration) -> Result<()> {
        let seconds = wait.as_secs();
        self.client.execute(&format!("SET SESSION lock_wait_timeout = {seconds}"))
    }

    pub fn value(&mut self, sql: &str) -> Result<String> {
        Ok(self.client.value(sql)?.unwrap_or_default())
    }

    pub fn places(&mut self) -> Result<Places> {
        let data_dir = PathBuf::from(self.value("SELECT @@datadir")?);
        let below = |name: String, default: &str| match name.is_empty() {
            true => data_dir.join(default),
            false => data_dir.join(name),
        };
        let log_dir = below(self.value("SELECT @@sluice_log_dir")?, "sluice/log");
        let aria_dir = below(self.value("SELECT @@aria_log_dir_path")?, "");
        Ok(Places { log_dir, aria_dir, data_dir })
    }

    fn status(&mut self) -> Result<Counters> {
        let sql = "SHOW GLOBAL STATUS WHERE Variable_name LIKE 'Sluice\\_backup%' \
                   OR Variable_name LIKE 'Sluice\\_log\\_durable%'";
        Ok(Counters::new(self.client.rows(sql)?))
    }

    /// The server keeps its files from here on. Answers from where on it keeps files of the log.
    pub fn start(&mut self, data_dir: &Path) -> Result<Place> {
        self.client.execute("SET SESSION sluice_hot_backup = 1")?;
        let began = self.client.execute("BACKUP STAGE START");
        began.map_err(|error| match error.contains("error 1205") {
            true => format!(
                "another backup of this server did not end within {} s (see --wait): {error}",
                self.wait.as_secs()
            ),
            false => error,
        })?;
        let mark = data_dir.join("sluice/superblock.backup");
        if let Err(error) = std::fs::metadata(&mark) {
            return Err(format!(
                "cannot see {}, which the server has just written: {error}. A backup needs the rights \
                 of the server, on its host",
                mark.display()
            ));
        }
        let status = self.status()?;
        self.number = number(&status, "sluice_backups")?;
        number(&status, "sluice_backup_log_place").map(Place)
    }

    /// Fails if the server does not keep the files any more.
    pub fn check(&mut self) -> Result<()> {
        let status = self.status()?;
        let state = number(&status, "sluice_backup_state")?;
        match (state, number(&status, "sluice_backups")? == self.number) {
            (1, true) => Ok(()),
            (2, true) => Err(GIVEN_UP.into()),
            _ => Err("the server has ended this backup, or was restarted: begin again".into()),
        }
    }

    /// Why a copy has failed. Files that the server does not keep any more cannot be read: that alone says little.
    pub fn explained(&mut self, reason: String) -> String {
        match self.check() {
            Err(why) if why == GIVEN_UP && why != reason => format!("{why} ({reason})"),
            _ => reason,
        }
    }

    /// Everything below is durable: the position in the log, and its place in the files.
    pub fn durable(&mut self) -> Result<(u64, Place)> {
        let status = self.status()?;
        let place = number(&status, "sluice_log_durable_place")?;
        Ok((number(&status, "sluice_log_durable_lsn")?, Place(place)))
    }

    pub fn flush_log(&mut self) -> Result<(u64, Place)> {
        self.client.execute("FLUSH NO_WRITE_TO_BINLOG ENGINE LOGS")?;
        self.durable()
    }

    /// New DDL statements wait from here on.
    pub fn block_ddl(&mut self) -> Result<()> {
        let blocked = self.client.execute("BACKUP STAGE BLOCK_DDL");
        blocked.map_err(|error| {
            format!(
                "statements of others did not end within {} s (see --wait): {error}",
                self.wait.as_secs()
            )
        })
    }

    /// Commits wait from here on. Answers since when.
    pub fn block_commit(&mut self) -> Result<Instant> {
        let given_up = Instant::now() + self.wait;
        self.wait_at_most(COMMIT_WAIT)?;
        loop {
            let begun = Instant::now();
            match self.client.execute("BACKUP STAGE BLOCK_COMMIT") {
                Ok(()) => return Ok(begun),
                Err(error) if Instant::now() > given_up => {
                    return Err(format!(
                        "commits of others did not end in time (see --wait): {error}"
                    ))
                }
                Err(error) if error.contains("error 1205") => std::thread::sleep(COMMIT_WAIT),
                Err(error) => return Err(error),
            }
        }
    }

    pub fn end(&mut self) -> Result<()> {
        self.client.execute("BACKUP STAGE END")
    }

    /// Where the binary log stands: names and values.
    pub fn position(&mut self) -> Result<Vec<(String, String)>> {
        let mut facts = Vec::new();
        if let Some(mut row) = self.client.rows("SHOW MASTER STATUS")?.into_iter().next() {
            let mut take = |name: &str| row.remove(name).unwrap_or_default();
            facts.push(("binlog_file".into(), take("file")));
            facts.push(("binlog_position".into(), take("position")));
        }
        for name in ["gtid_binlog_pos", "gtid_binlog_state", "gtid_slave_pos"] {
            facts.push((name.into(), self.value(&format!("SELECT @@GLOBAL.{name}"))?));
        }
        Ok(facts)
    }

    /// Directories of databases.
    pub fn databases(&mut self) -> Result<Vec<String>> {
        let sql = "SELECT HEX(CONVERT(schema_name USING filename)) AS f \
                   FROM information_schema.schemata WHERE schema_name <> 'information_schema'";
        self.client.rows(sql)?.into_iter().map(|mut row| unhex(row.remove("f"))).collect()
    }

    /// Tables of which this backup has no rows: those of other engines. Of the server's own schemas it
    /// copies what lies in plain files.
    pub fn foreign(&mut self) -> Result<Vec<Foreign>> {
        let sql = "SELECT table_schema AS s, table_name AS t, COALESCE(engine, 'an unknown engine') AS e, \
                   HEX(CONVERT(table_schema USING filename)) AS sf, \
                   HEX(CONVERT(table_name USING filename)) AS tf FROM information_schema.tables \
                   WHERE table_type NOT IN ('VIEW', 'SYSTEM VIEW') AND COALESCE(engine, '') <> 'Sluice' \
                   AND table_schema NOT IN ('information_schema', 'performance_schema') \
                   AND NOT (table_schema IN ('mysql', 'sys') \
                   AND COALESCE(engine, '') IN ('Aria', 'MyISAM', 'CSV'))";
        let mut found = Vec::new();
        for mut row in self.client.rows(sql)? {
            let (schema_file, table_file) = (unhex(row.remove("sf"))?, unhex(row.remove("tf"))?);
            let mut take = |name: &str| row.remove(name).unwrap_or_default();
            let (schema, table, engine) = (take("s"), take("t"), take("e"));
            let shown = format!("{schema}.{table} ({engine})");
            found.push(Foreign { shown, schema, schema_file, table, table_file });
        }
        Ok(found)
    }
}

fn number(status: &Counters, name: &str) -> Result<u64> {
    let text = status.text(name).ok_or_else(|| format!("the server has no counter {name}"))?;
    text.parse().map_err(|_| format!("{name} is {text}"))
}

fn unhex(text: Option<String>) -> Result<String> {
    let text = text.unwrap_or_default();
    let byte = |at: usize| text.get(at..at + 2).and_then(|two| u8::from_str_radix(two, 16).ok());
    let bytes: Option<Vec<u8>> = (0..text.len()).step_by(2).map(byte).collect();
    let name = bytes.and_then(|bytes| String::from_utf8(bytes).ok());
    name.ok_or_else(|| format!("the server gives a name as {text}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_as_bytes() {
        assert_eq!(unhex(Some("61403030326462".into())), Ok("a@002db".into()));
        assert!(unhex(Some("616".into())).is_err());
        assert!(unhex(Some("xy".into())).is_err());
    }
}
