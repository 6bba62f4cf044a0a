//! Addresses of servers: `mysql://user@host:port/?password-file=PATH`.

use super::tls::Tls;
use crate::Result;
use std::fs;
use std::path::PathBuf;

const DEFAULT_PORT: u16 = 3306;
const FORM: &str = "mysql://USER@HOST[:PORT]/[?password-file=PATH|password-env=NAME|socket=PATH\
                    |ssl=1|ssl-ca=PATH|ssl-cert=PATH|ssl-key=PATH|ssl-verify-server-cert=0], \
                    several joined by '&'";

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    Socket(PathBuf),
    Tcp(String, u16),
}

/// The place of a server and the user. The password is fetched when it is needed and not kept here,
/// so that this can be shown and written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dsn {
    pub user: String,
    pub place: Place,
    pub tls: Tls,
    password: PasswordFrom,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum PasswordFrom {
    Environment(String),
    File(PathBuf),
}

impl Dsn {
    pub fn parse(text: &str) -> Result<Dsn> {
        let rest = ["mysql://", "mariadb://"].iter().find_map(|scheme| text.strip_prefix(scheme));
        // The text itself is not shown: it may hold a password.
        let rest = rest.ok_or_else(|| format!("a server's address has the form {FORM}"))?;
        let (before, query) = rest.split_once('?').unwrap_or((rest, ""));
        let authority = before.split('/').next().unwrap_or_default();
        let (user, host) = authority.rsplit_once('@').unwrap_or(("root", authority));
        if user.contains(':') {
            return Err("a password in the address would be visible in the list of processes: \
                        set MYSQL_PWD, or add ?password-file=PATH or ?password-env=NAME"
                .to_string());
        }
        let mut dsn = Dsn {
            user: decode(user)?,
            place: Place::Tcp(String::new(), DEFAULT_PORT),
            tls: Tls::default(),
            password: PasswordFrom::Environment("MYSQL_PWD".to_string()),
        };
        dsn.place = tcp_place(host)?;
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let value = decode(value)?;
            if dsn.tls.take(key, &value)? {
                continue;
            }
            match key {
                "socket" => dsn.place = Place::Socket(PathBuf::from(value)),
                "password-file" => dsn.password = PasswordFrom::File(PathBuf::from(value)),
                "password-env" => dsn.password = PasswordFrom::Environment(value),
                _ => return Err(format!("unknown part '{key}' in the address; it is {FORM}")),
            }
        }
        dsn.tls.check()?;
        if dsn.tls.is_asked() && matches!(dsn.place, Place::Socket(_)) {
            return Err(
                "a socket needs no TLS: leave socket=PATH or the parts ssl... away".to_string()
            );
        }
        Ok(dsn)
    }

    pub fn socket(path: PathBuf) -> Dsn {
        Dsn {
            user: "root".to_string(),
            place: Place::Socket(path),
            tls: Tls::default(),
            password: PasswordFrom::Environment(String::new()),
        }
    }

    /// `None`: there is none.
    pub fn password(&self) -> Result<Option<String>> {
        match &self.password {
            PasswordFrom::Environment(name) if name.is_empty() => Ok(None),
            PasswordFrom::Environment(name) => Ok(std::env::var(name).ok()),
            PasswordFrom::File(path) => {
                let text = fs::read_to_string(path).map_err(|e| {
                    format!("cannot read the password file {}: {e}", path.display())
                })?;
                Ok(Some(text.trim_end_matches(['\n', '\r']).to_string()))
            }
        }
    }

    /// For people: user and place.
    pub fn shown(&self) -> String {
        match &self.place {
            Place::Socket(path) => format!("{}@{}", self.user, path.display()),
            Place::Tcp(host, port) => format!("{}@{host}:{port}", self.user),
        }
    }
}

fn tcp_place(host: &str) -> Result<Place> {
    let (name, port) = match host.rsplit_once(':') {
        // The colons of a bare IPv6 address do not begin a port.
        Some((name, port)) if !name.contains(':') || name.ends_with(']') => {
            let port = port.parse().map_err(|_| format!("'{port}' is not a port"))?;
            (name, port)
        }
        _ => (host, DEFAULT_PORT),
    };
    let name = name.trim_start_matches('[').trim_end_matches(']');
    let name = if name.is_empty() { "127.0.0.1" } else { name };
    Ok(Place::Tcp(name.to_string(), port))
}

/// %XX as in URLs.
fn decode(text: &str) -> Result<String> {
    let bad = || format!("'{text}' is not well encoded: % needs two hexadecimal digits");
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || rest.next().and_then(|b| (b as char).to_digit(16)).ok_or_else(bad);
        bytes.push((digit()? * 16 + digit()?) as u8);
    }
    String::from_utf8(bytes).map_err(|_| bad())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_an_address() {
        let dsn = Dsn::parse("mysql://me@db.example:3307/?password-env=PW").unwrap();
        assert_eq!(dsn.user, "me");
        assert_eq!(dsn.place, Place::Tcp("db.example".into(), 3307));
        assert_eq!(dsn.shown(), "me@db.example:3307");
        let dsn = Dsn::parse("mysql://a%40b@localhost/?socket=/tmp/x.sock").unwrap();
        assert_eq!(dsn.user, "a@b");
        assert_eq!(dsn.place, Place::Socket("/tmp/x.sock".into()));
        assert_eq!(Dsn::parse("mysql://[::1]:3309").unwrap().place, Place::Tcp("::1".into(), 3309));
        assert_eq!(Dsn::parse("mysql://u@").unwrap().place, Place::Tcp("127.0.0.1".into(), 3306));
    }

    #[test]
    fn a_password_in_the_address_is_refused_and_not_repeated() {
        for text in ["mysql://me:s3cret@h", "me:s3cret@h", "mysql://me@h:s3cret/?s3=1"] {
            let reason = Dsn::parse(text).unwrap_err();
            assert!(!reason.contains("me:s3cret"), "{reason}");
        }
        assert!(Dsn::parse("mysql://me:x@h").unwrap_err().contains("MYSQL_PWD"));
    }

    #[test]
    fn the_password_comes_from_a_file() {
        let path = std::env::temp_dir().join(format!("sluice-dsn-{}", std::process::id()));
        fs::write(&path, "s3cret\n").unwrap();
        let text = format!("mysql://me@h/?password-file={}", path.display());
        let dsn = Dsn::parse(&text).unwrap();
        assert_eq!(dsn.password().unwrap().as_deref(), Some("s3cret"));
        assert!(!format!("{dsn:?}").contains("s3cret"));
        fs::remove_file(&path).unwrap();
        assert!(dsn.password().is_err());
    }

    #[test]
    fn tls_is_for_who_asks() {
        let asks =
            |query: &str| Dsn::parse(&format!("mysql://u@h/?{query}")).map(|d| d.tls.is_asked());
        assert_eq!(asks(""), Ok(false));
        for query in [
            "ssl",
            "ssl=1",
            "ssl-ca=/ca.pem",
            "ssl-verify-server-cert=0",
            "ssl-verify-server-cert=1",
            "ssl-cert=/c&ssl-key=/k",
        ] {
            assert_eq!(asks(query), Ok(true), "{query}");
        }
        assert_eq!(asks("ssl=0&ssl-ca=/ca.pem"), Ok(false));
        for query in
            ["ssl=maybe", "ssl-cert=/c", "ssl-key=/k", "ssl=1&socket=/s", "ssl-mode=REQUIRED"]
        {
            assert!(asks(query).is_err(), "{query}");
        }
    }

    #[test]
    fn bad_escapes_are_errors() {
        assert!(Dsn::parse("mysql://a%4@h").is_err());
        assert!(Dsn::parse("mysql://a%ff@h").is_err());
        assert!(Dsn::parse("mysql://a@h:99999").is_err());
    }
}
