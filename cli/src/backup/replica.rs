//! A restored directory whose server follows another one from its first start on.

use super::gtid::{Gtid, State};
use crate::db::{Client, Dsn, Place};
use crate::Result;

/// The server that is to be followed.
pub struct Primary {
    dsn: Dsn,
    host: String,
    port: u16,
    /// What it has in its binary logs.
    state: State,
}

impl Primary {
    /// Asks the server, by the account that the replica will use.
    pub fn find(dsn: Dsn) -> Result<Primary> {
        let Place::Tcp(host, port) = dsn.place.clone() else {
            return Err("a replica needs the host and port of its primary, not a socket".into());
        };
        let mut client = Client::connect(&dsn)?;
        let state = client.value("SELECT @@GLOBAL.gtid_binlog_state")?.unwrap_or_default();
        Ok(Primary { dsn, host, port, state: State::of(Gtid::parse_list(&state)?) })
    }

    pub fn shown(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    /// Can a replica at `position` go on from there?
    pub fn check(&self, position: &State) -> Result<()> {
        if position.is_empty() {
            return Err(
                "the backup has no GTIDs: a replica of it cannot know where to begin".into()
            );
        }
        let ahead = position.newest_of_all().find(|gtid| {
            self.state.newest(gtid.domain).is_none_or(|newest| newest.sequence < gtid.sequence)
        });
        match ahead {
            None => Ok(()),
            Some(gtid) => Err(format!(
                "{} does not have {gtid} in its binary logs ('{}'): the restored server would be ahead of it",
                self.shown(),
                self.state.position()
            )),
        }
    }

    /// Makes the server a replica that begins at `position`, when it is started the next time.
    pub fn follow(&self, server: &mut Client, position: &str) -> Result<()> {
        server.execute(&format!("SET GLOBAL gtid_slave_pos = '{position}'"))?;
        let password = self.dsn.password()?.unwrap_or_default();
        let mut sql = format!(
            "CHANGE MASTER TO MASTER_HOST={}, MASTER_PORT={}, MASTER_USER={}, MASTER_PASSWORD={}, \
             MASTER_USE_GTID=slave_pos",
            quoted(&self.host),
            self.port,
            quoted(&self.dsn.user),
            quoted(&password)
        );
        for (name, value) in self.dsn.tls.of_replica() {
            sql.push_str(&format!(", {name}={}", value.map_or("1".into(), |path| quoted(&path))));
        }
        // It has a password, so the error does not repeat it.
        server.execute(&sql).map_err(|error| match error.split_once(" (in: ") {
            Some((reason, _)) => format!("CHANGE MASTER: {reason}"),
            None => error,
        })
    }
}

/// As a string of SQL in every `sql_mode`: the server's private one has no NO_BACKSLASH_ESCAPES.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\\', "\\\\").replace('\'', "''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_quoted() {
        assert_eq!(quoted(r"a'b\c"), r"'a''b\\c'");
    }

    #[test]
    fn tls_of_the_address_is_that_of_the_replica() {
        let parts = |query: &str| {
            let dsn = Dsn::parse(&format!("mysql://r@h/?{query}")).unwrap();
            let parts = dsn.tls.of_replica().into_iter();
            parts.map(|(name, value)| format!("{name}={}", value.unwrap_or("1".into()))).collect()
        };
        let parts: &dyn Fn(&str) -> Vec<String> = &parts;
        assert!(parts("").is_empty());
        assert_eq!(
            parts("ssl-ca=/ca"),
            ["MASTER_SSL=1", "MASTER_SSL_CA=/ca", "MASTER_SSL_VERIFY_SERVER_CERT=1"]
        );
        assert_eq!(parts("ssl=1&ssl-verify-server-cert=0"), ["MASTER_SSL=1"]);
    }
}
