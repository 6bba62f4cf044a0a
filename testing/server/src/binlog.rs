//! mariadb-binlog.

use crate::scratch::prefix;
use std::ffi::OsStr;
use std::fmt::Debug;
use std::process::Command;

/// The output of mariadb-binlog; it must succeed.
#[track_caller]
pub fn mariadb_binlog<A: AsRef<OsStr> + Debug>(arguments: &[A]) -> String {
    let mut command = Command::new(prefix().program("mariadb-binlog"));
    let output = command.arg("--no-defaults").args(arguments).output().expect("mariadb-binlog");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "mariadb-binlog {arguments:?}: {errors}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}
