//! Makes a new data directory.

use super::Result;
use super::layout::ServerDir;
use super::prefix::Prefix;
use super::start::{last_lines, user_option};
use std::ffi::{CStr, OsString};
use std::fs::{self, File};
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
    fs::write(&accounts, accounts_sql(&os_user_name()?))
        .map_err(|e| format!("cannot write {}: {e}", accounts.display()))?;
    run_install_db(dir, prefix, &unfinished, &accounts)?;
    let _ = fs::remove_file(&accounts);
    fs::rename(&unfinished, dir.data())
        .map_err(|e| format!("cannot rename {}: {e}", unfinished.display()))
}

fn run_install_db(
    dir: &ServerDir,
    prefix: &Prefix,
    datadir: &Path,
    accounts: &Path,
) -> Result<()> {
    let log_path = dir.install_log();
    let log = File::create(&log_path)
        .map_err(|e| format!("cannot create {}: {e}", log_path.display()))?;
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

/// Leaves root@localhost as the only account that somebody can use. It is
/// authenticated by the user id of the process at the other end of a Unix
/// socket, so no connection over TCP can pass, whatever options are set:
/// the user of the server may, and the machine's root.
fn accounts_sql(os_user: &str) -> String {
    let os_user = os_user.replace('\\', "\\\\").replace('\'', "''");
    format!(
        "DELETE FROM mysql.global_priv WHERE User <> 'mariadb.sys' AND NOT (User = 'root' AND Host = 'localhost');\n\
         UPDATE mysql.global_priv SET Priv = JSON_SET(Priv, '$.plugin', 'unix_socket', \
         '$.authentication_string', '{os_user}', \
         '$.auth_or', JSON_ARRAY(JSON_OBJECT(), JSON_OBJECT('plugin', 'unix_socket', 'authentication_string', 'root'))) \
         WHERE User = 'root' AND Host = 'localhost';\n"
    )
}

/// The login name of the effective user.
fn os_user_name() -> Result<String> {
    // SAFETY: no other thread runs, so the static buffer that getpwuid returns stays valid
    // until its name is copied below.
    let entry = unsafe { libc::getpwuid(libc::geteuid()) };
    if entry.is_null() {
        return Err("the current user id has no name".to_string());
    }
    // SAFETY: a non-null entry has a zero-terminated name.
    let name = unsafe { CStr::from_ptr((*entry).pw_name) };
    Ok(name.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_in_a_user_name_stay_inside_the_string() {
        assert!(accounts_sql("o'neil").contains("'o''neil'"));
    }
}
