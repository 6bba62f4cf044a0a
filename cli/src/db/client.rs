//! One connection, and answers as text.

use super::counters::Counters;
use super::dsn::{Dsn, Place};
use crate::Result;
use mysql::prelude::Queryable;
use mysql::{Conn, OptsBuilder, Value};
use std::collections::BTreeMap;
use std::time::Duration;

const CONNECT_LIMIT: Duration = Duration::from_secs(10);
/// Longer than a statement of ours may last on a busy server.
const ANSWER_LIMIT: Duration = Duration::from_secs(120);

/// A row: column names in lower case; NULL is absent.
pub type Row = BTreeMap<String, String>;
pub type Table = Vec<Row>;

pub struct Client {
    conn: Conn,
    shown: String,
}

impl Client {
    pub fn connect(dsn: &Dsn) -> Result<Client> {
        Self::connect_with_limit(dsn, ANSWER_LIMIT)
    }

    /// A statement that lasts longer than `limit` ends the connection.
    pub fn connect_with_limit(dsn: &Dsn, limit: Duration) -> Result<Client> {
        let mut opts = OptsBuilder::new()
            .user(Some(dsn.user.as_str()))
            .pass(dsn.password()?)
            .prefer_socket(false)
            .tcp_connect_timeout(Some(CONNECT_LIMIT))
            .read_timeout(Some(limit))
            .write_timeout(Some(limit))
            .stmt_cache_size(0usize);
        opts = match &dsn.place {
            Place::Socket(path) => opts.socket(Some(path.to_string_lossy().into_owned())),
            Place::Tcp(host, port) => opts.ip_or_hostname(Some(host.as_str())).tcp_port(*port),
        };
        if dsn.tls.is_asked() {
            opts = opts.ssl_opts(dsn.tls.options()?);
        }
        let shown = dsn.shown();
        let conn = Conn::new(opts).map_err(|e| no_connection(&shown, dsn, &e))?;
        Ok(Client { conn, shown })
    }

    pub fn rows(&mut self, sql: &str) -> Result<Table> {
        let failed = |shown: &str, e: mysql::Error| match e {
            mysql::Error::MySqlError(e) => {
                format!("{shown}: error {}: {} (in: {})", e.code, e.message, shortened(sql))
            }
            other => format!("{shown}: the connection broke: {other}"),
        };
        let result = self.conn.query_iter(sql).map_err(|e| failed(&self.shown, e))?;
        let names: Vec<String> =
            result.columns().as_ref().iter().map(|c| c.name_str().to_lowercase()).collect();
        let mut table = Table::new();
        for row in result {
            let values = row.map_err(|e| failed(&self.shown, e))?.unwrap();
            let pairs = names.iter().cloned().zip(values);
            table.push(pairs.filter_map(|(name, v)| Some((name, text_of(v)?))).collect());
        }
        Ok(table)
    }

    pub fn execute(&mut self, sql: &str) -> Result<()> {
        self.rows(sql).map(|_| ())
    }

    /// The first column of the first row, under whatever name.
    pub fn value(&mut self, sql: &str) -> Result<Option<String>> {
        Ok(self.rows(sql)?.into_iter().next().and_then(|row| row.into_values().next()))
    }

    pub fn status(&mut self) -> Result<Counters> {
        Ok(Counters::new(self.rows("SHOW GLOBAL STATUS")?))
    }

    pub fn variables(&mut self) -> Result<Counters> {
        Ok(Counters::new(self.rows("SHOW GLOBAL VARIABLES")?))
    }
}

fn no_connection(shown: &str, dsn: &Dsn, error: &mysql::Error) -> String {
    let text = error.to_string();
    // For accounts and servers that require TLS, MariaDB 10.11 only says that access is denied.
    let wants_tls = matches!(error, mysql::Error::MySqlError(e) if e.code == 1045)
        || text.contains("insecure transport");
    let is_plain = matches!(dsn.place, Place::Tcp(..)) && !dsn.tls.is_asked();
    let hint = if wants_tls && is_plain {
        "; if the account or the server wants TLS, add ssl-ca=PATH to the address, or ssl=1 if this host \
         trusts who signed the server's certificate"
    } else if text.contains("invalid peer certificate") {
        "; ssl-ca=PATH names the authority that signed the server's certificate, which must be made out \
         to the host in the address"
    } else {
        ""
    };
    format!("cannot connect to {shown}: {text}{hint}")
}

fn text_of(value: Value) -> Option<String> {
    match value {
        Value::NULL => None,
        Value::Bytes(bytes) => Some(String::from_utf8_lossy(&bytes).into_owned()),
        Value::Int(i) => Some(i.to_string()),
        Value::UInt(u) => Some(u.to_string()),
        Value::Float(f) => Some(f.to_string()),
        Value::Double(d) => Some(d.to_string()),
        other => Some(other.as_sql(true)),
    }
}

fn shortened(sql: &str) -> String {
    let line: String = sql.split_whitespace().collect::<Vec<_>>().join(" ");
    line.chars().take(80).collect()
}
