//! One connection to the server under test. What matters here is the difference between "the
//! server said no" (the statement did not happen) and "the connection is gone" (nobody knows).

use mysql::consts::CapabilityFlags;
use mysql::prelude::{FromRow, Queryable};
use mysql::{Conn, OptsBuilder, Row};
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::time::Duration;

pub enum Fault {
    /// The server answered with this error.
    Sql(u16, String),
    /// No answer, or an answer that says that the server is going down.
    Lost(String),
}

impl fmt::Display for Fault {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Fault::Sql(code, text) => write!(out, "error {code}: {text}"),
            Fault::Lost(text) => write!(out, "connection lost: {text}"),
        }
    }
}

pub type Reply<T> = Result<T, Fault>;

pub const DUPLICATE: u16 = 1062;
/// Of a statement only; the connection goes on.
const INTERRUPTED: u16 = 1317;

/// What any statement gives: rows as text, or how many rows it matched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    Rows(Vec<Vec<Option<String>>>),
    Done(u64),
}

/// Longer than any wait that is not a hang.
const ANSWER_LIMIT: Duration = Duration::from_secs(60);

/// Errors by which a server says goodbye: shutdown in progress, interrupted, connection killed,
/// and the network errors it reports about itself.
const GOING_DOWN: [u16; 9] = [1053, 1152, 1158, 1159, 1160, 1161, 1184, 1317, 1927];

impl From<mysql::Error> for Fault {
    fn from(error: mysql::Error) -> Fault {
        match error {
            mysql::Error::MySqlError(e) if !GOING_DOWN.contains(&e.code) => {
                Fault::Sql(e.code, e.message)
            }
            other => Fault::Lost(other.to_string()),
        }
    }
}

pub struct Client {
    conn: Conn,
}

impl Client {
    pub fn connect(socket: &Path, database: &str) -> Reply<Client> {
        Client::connect_with_limit(socket, database, ANSWER_LIMIT)
    }

    /// For statements whose answer may take longer.
    pub fn connect_with_limit(socket: &Path, database: &str, limit: Duration) -> Reply<Client> {
        let opts = OptsBuilder::new()
            .socket(Some(socket.to_string_lossy()))
            .user(Some("root"))
            .db_name(Some(database).filter(|d| !d.is_empty()))
            .read_timeout(Some(limit))
            .write_timeout(Some(limit))
            .additional_capabilities(CapabilityFlags::CLIENT_FOUND_ROWS)
            .stmt_cache_size(0usize);
        Ok(Client { conn: Conn::new(opts)? })
    }

    pub fn run(&mut self, sql: &str) -> Reply<()> {
        Ok(self.conn.query_drop(sql)?)
    }

    pub fn rows<T: FromRow>(&mut self, sql: &str) -> Reply<Vec<T>> {
        Ok(self.conn.query(sql)?)
    }

    /// For statements of any kind. One that was killed has failed with error 1317: here the server
    /// is expected to go on.
    pub fn answer(&mut self, sql: &str) -> Reply<Answer> {
        let result = self.conn.query_iter(sql);
        let mut result = match result {
            Err(mysql::Error::MySqlError(e)) if e.code == INTERRUPTED => {
                return Err(Fault::Sql(e.code, e.message));
            }
            other => other?,
        };
        if result.columns().as_ref().is_empty() {
            return Ok(Answer::Done(result.affected_rows()));
        }
        let mut rows = Vec::new();
        for row in result.by_ref() {
            rows.push(row?.unwrap().into_iter().map(as_text).collect());
        }
        Ok(Answer::Rows(rows))
    }

    /// The first row by the names of its columns, without those that are NULL.
    pub fn first_by_name(&mut self, sql: &str) -> Reply<Option<BTreeMap<String, String>>> {
        let row: Option<Row> = self.conn.query_first(sql)?;
        Ok(row.map(|row| {
            let names: Vec<_> = row.columns_ref().iter().map(|c| c.name_str().into()).collect();
            let values = row.unwrap().into_iter().map(as_text);
            names.into_iter().zip(values).filter_map(|(n, v)| Some((n, v?))).collect()
        }))
    }

    /// The server's number of this connection.
    pub fn id(&self) -> u32 {
        self.conn.connection_id()
    }

    /// Rows matched by the last statement (not only those that changed).
    pub fn matched(&self) -> u64 {
        self.conn.affected_rows()
    }

    pub fn last_insert_id(&self) -> i64 {
        self.conn.last_insert_id() as i64
    }
}

fn as_text(value: mysql::Value) -> Option<String> {
    match value {
        mysql::Value::NULL => None,
        mysql::Value::Bytes(bytes) => Some(String::from_utf8_lossy(&bytes).into_owned()),
        other => Some(other.as_sql(true)),
    }
}
