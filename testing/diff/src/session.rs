//! One connection of one engine, in a thread of its own: a statement that waits for a lock must not
//! stop the controller.

use crate::load;
use mysql::prelude::Queryable;
use mysql::{Conn, LocalInfileHandler, OptsBuilder, Value};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{channel, Receiver, RecvTimeoutError, Sender, TryRecvError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    Sluice,
    InnoDb,
}

pub const SIDES: [Side; 2] = [Side::Sluice, Side::InnoDb];

impl Side {
    pub fn engine(self) -> &'static str {
        match self {
            Side::Sluice => "Sluice",
            Side::InnoDb => "InnoDB",
        }
    }

    pub fn database(self) -> &'static str {
        match self {
            Side::Sluice => "d_sluice",
            Side::InnoDb => "d_innodb",
        }
    }

    /// Names that are global in the server (XA) need one letter for the side.
    fn letter(self) -> &'static str {
        match self {
            Side::Sluice => "s",
            Side::InnoDb => "i",
        }
    }

    fn cache(self) -> &'static str {
        match self {
            Side::Sluice => "ON",
            Side::InnoDb => "OFF",
        }
    }
}

/// Stands in a statement where a name must differ between the sides.
pub const SIDE_MARK: &str = "@side@";

/// Stands for ON and OFF of the query cache. Sluice must answer with it as InnoDB does without it: what
/// InnoDB answers from the cache locks nothing, and holds no metadata lock.
pub const CACHE_MARK: &str = "@cache@";

pub type Row = Vec<Option<Vec<u8>>>;

#[derive(Clone, Default, Debug, PartialEq)]
pub struct ResultSet {
    pub columns: usize,
    pub names: Vec<String>,
    pub rows: Vec<Row>,
}

#[derive(Clone, Default, Debug)]
pub struct Outcome {
    pub sets: Vec<ResultSet>,
    pub affected_rows: u64,
    pub insert_id: u64,
    /// How many rows were matched, changed, duplicates, and so on, as the server puts it.
    pub info: String,
    pub error: Option<(u16, String)>,
    /// Level, code and text, as SHOW WARNINGS gives them.
    pub warnings: Vec<(String, u16, String)>,
    /// The connection is gone, for this reason.
    pub lost: Option<String>,
}

impl Outcome {
    pub fn is_ok(&self) -> bool {
        self.error.is_none() && self.lost.is_none()
    }

    pub fn error_code(&self) -> u16 {
        self.error.as_ref().map_or(0, |e| e.0)
    }

    fn fail(&mut self, error: mysql::Error) {
        match error {
            mysql::Error::MySqlError(e) => self.error = Some((e.code, e.message)),
            other => self.lost = Some(other.to_string()),
        }
    }
}

/// Longer than any wait that is not a hang.
const ANSWER_LIMIT: Duration = Duration::from_secs(90);

pub struct Direct {
    conn: Conn,
    side: Side,
    /// What LOAD DATA reads, on the server or from here.
    file: PathBuf,
}

impl Direct {
    pub fn connect(socket: &Path, side: Side, database: &str) -> mysql::Result<Direct> {
        let opts = OptsBuilder::new()
            .socket(Some(socket.to_string_lossy()))
            .user(Some("root"))
            .db_name(Some(database).filter(|d| !d.is_empty()))
            .read_timeout(Some(ANSWER_LIMIT))
            .write_timeout(Some(ANSWER_LIMIT))
            .local_infile_handler(Some(LocalInfileHandler::new(|name, to| {
                let name = String::from_utf8_lossy(name).into_owned();
                to.write_all(&std::fs::read(name)?)
            })))
            .stmt_cache_size(0usize);
        let conn = Conn::new(opts)?;
        let file = socket.with_file_name(format!("load-{}.txt", conn.connection_id()));
        Ok(Direct { conn, side, file })
    }

    pub fn id(&self) -> u32 {
        self.conn.connection_id()
    }

    /// 0 if the server does not say.
    fn server_thread(&mut self) -> u32 {
        let id = self.id();
        let sql = format!("SELECT TID FROM information_schema.processlist WHERE ID={id}");
        let outcome = self.run(&sql);
        let cell = outcome.sets.first().and_then(|set| set.rows.first()?.first()?.clone());
        cell.and_then(|bytes| String::from_utf8_lossy(&bytes).parse().ok()).unwrap_or(0)
    }

    /// Runs one statement and reads everything that it gives, its warnings too.
    pub fn run(&mut self, sql: &str) -> Outcome {
        let mut text =
            sql.replace(SIDE_MARK, self.side.letter()).replace(CACHE_MARK, self.side.cache());
        if let Some(bytes) = load::file(sql) {
            text = text.replace(load::FILE_MARK, &self.file.to_string_lossy());
            if let Err(error) = std::fs::write(&self.file, bytes) {
                return Outcome { lost: Some(error.to_string()), ..Outcome::default() };
            }
        }
        let mut outcome = Outcome::default();
        let warned = self.query(&text, &mut outcome);
        if outcome.lost.is_none() && (warned || outcome.error.is_some()) && !is_show(sql) {
            let mut shown = Outcome::default();
            self.query("SHOW WARNINGS", &mut shown);
            outcome.warnings = shown.sets.first().map(warnings_of).unwrap_or_default();
        }
        outcome
    }

    /// True if the statement has left warnings.
    fn query(&mut self, text: &str, outcome: &mut Outcome) -> bool {
        if let Err(error) = self.query_sets(text, outcome) {
            outcome.fail(error);
            return false;
        }
        self.conn.warnings() > 0
    }

    fn query_sets(&mut self, text: &str, outcome: &mut Outcome) -> mysql::Result<()> {
        let mut result = self.conn.query_iter(text)?;
        while let Some(set) = result.iter() {
            let names: Vec<String> =
                set.columns().as_ref().iter().map(|c| c.name_str().into_owned()).collect();
            let columns = names.len();
            let mut rows = Vec::new();
            for row in set {
                rows.push(row?.unwrap().into_iter().map(bytes_of).collect());
            }
            if columns > 0 {
                outcome.sets.push(ResultSet { columns, names, rows });
            }
        }
        drop(result);
        outcome.affected_rows = self.conn.affected_rows();
        outcome.insert_id = self.conn.last_insert_id();
        outcome.info = self.conn.info_str().into_owned();
        Ok(())
    }
}

fn is_show(sql: &str) -> bool {
    sql.starts_with("SHOW ")
}

fn bytes_of(value: Value) -> Option<Vec<u8>> {
    match value {
        Value::NULL => None,
        Value::Bytes(bytes) => Some(bytes),
        other => Some(other.as_sql(true).into_bytes()),
    }
}

fn warnings_of(set: &ResultSet) -> Vec<(String, u16, String)> {
    let text = |row: &Row, at: usize| {
        let bytes = row.get(at).cloned().flatten().unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    };
    let warning = |row| (text(row, 0), text(row, 1).parse().unwrap_or(0), text(row, 2));
    set.rows.iter().map(warning).collect()
}

/// A `Direct` on a thread of its own.
pub struct Session {
    requests: Option<Sender<String>>,
    replies: Receiver<Outcome>,
    thread: Option<JoinHandle<()>>,
    pub id: u32,
    /// The server's thread, as the kernel names it.
    pub server_thread: u32,
}

impl Session {
    pub fn start(mut direct: Direct) -> Session {
        let (requests, inbox) = channel::<String>();
        let (outbox, replies) = channel();
        let id = direct.id();
        let server_thread = direct.server_thread();
        let body = move || {
            while let Ok(sql) = inbox.recv() {
                if outbox.send(direct.run(&sql)).is_err() {
                    break;
                }
            }
        };
        Session {
            requests: Some(requests),
            replies,
            thread: Some(thread::spawn(body)),
            id,
            server_thread,
        }
    }

    pub fn send(&self, sql: &str) {
        if let Some(requests) = &self.requests {
            // A thread that is gone is noticed by the missing reply.
            let _ = requests.send(sql.to_owned());
        }
    }

    pub fn wait(&self) -> Outcome {
        self.replies.recv().unwrap_or_else(|_| gone())
    }

    /// The reply, if there is one within `limit`.
    pub fn poll(&self, limit: Duration) -> Option<Outcome> {
        if limit.is_zero() {
            return match self.replies.try_recv() {
                Ok(outcome) => Some(outcome),
                Err(TryRecvError::Empty) => None,
                Err(TryRecvError::Disconnected) => Some(gone()),
            };
        }
        match self.replies.recv_timeout(limit) {
            Ok(outcome) => Some(outcome),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => Some(gone()),
        }
    }

    pub fn run(&self, sql: &str) -> Outcome {
        self.send(sql);
        self.wait()
    }
}

fn gone() -> Outcome {
    Outcome { lost: Some("the session's thread is gone".into()), ..Outcome::default() }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.requests = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
