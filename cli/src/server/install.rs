//! Makes a new data directory.

use super::layout::ServerDir;
use super::prefix::Prefix;
use super::start::{last_lines, user_option};
use super::{files, Result};
use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Makes the data directory unless it is there already. It appears in one step,
/// so an interrupted attempt is simply made again.
pub fn ensure_data(dir: &ServerDir, prefix: &Prefix) -> Result<()> {
    if dir.data().exists() {
        return Ok(());
    }
    let unfinished = dir.unfinished_data();
    if unfinished.exists() {
        fs::remove_dir_all(&unfinished)
            .map_err(|e| format!("cannot remove {}: {e}", unfinished.display()))?;
    }
    let accounts = dir.root().join("accounts.sql");
    files::replace(&accounts, &accounts_sql(user_option().is_some()))?;
    run_install_db(dir, prefix, &unfinished, &accounts)?;
    let _ = fs::remove_file(&accounts);
    fs::rename(&unfinished, dir.data())
        .map_err(|e| format!("cannot rename {}: {e}", unfinished.display()))
}

fn run_install_db(dir: &ServerDir, prefix: &Prefix, datadir: &Path, accounts: &Path) -> Result<()> {
    let log_path = dir.install_log();
    let log = files::append_to(&log_path)?;
    let log_for_errors = log.try_clone().map_err(|e| format!("cannot share the log: {e}"))?;
    let option = |name: &str, path: &Path| {
        let mut option = OsString::from(name);
        option.push(path);
        option
    };
    let status = Command::new(prefix.program("mariadb-install-db"))
        .arg("--no-defaults")
        .arg(option("--basedir=", &prefix.basedir()))
        .arg(option("--datadir=", datadir))
        .arg(option("--extra-file=", accounts))
        .args(["--auth-root-authentication-method=normal", "--skip-test-db"])
        .args(user_option())
        // A server that starts removes the temporary tables of all others in its directory.
        .env("TMPDIR", log_path.parent().unwrap_or(Path::new("/tmp")))
        .stdout(log)
        .stderr(log_for_errors)
        .status()
        .map_err(|e| format!("cannot run mariadb-install-db: {e}"))?;
    if status.success() {
        let _ = fs::remove_file(&log_path);
        return Ok(());
    }
    Err(format!(
        "mariadb-install-db failed; the end of {}:\n{}",
        log_path.display(),
        last_lines(&log_path, 0)
    ))
}

/// Leaves root@localhost as the only account that somebody can use, without a
/// password and through the socket only. The server's directory is closed to
/// other users, and name resolution is off, so that no TCP connection comes from
/// "localhost". For a server of the machine's root there is a stronger way: the
/// account is authenticated by the user at the other end of the socket, which no
/// TCP connection can pass whatever options are set.
fn accounts_sql(runs_as_root: bool) -> String {
    let mut sql = "DELETE FROM mysql.global_priv WHERE User <> 'mariadb.sys' \
                   AND NOT (User = 'root' AND Host = 'localhost');\n"
        .to_string();
    if runs_as_root {
        sql += "UPDATE mysql.global_priv SET Priv = JSON_SET(Priv, '$.plugin', 'unix_socket') \
                WHERE User = 'root' AND Host = 'localhost';\n";
    }
    sql
}
