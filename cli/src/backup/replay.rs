//! Applies kept binary logs to a restored directory: mariadb-binlog reads them, mariadb hands the
//! statements to a private server. The first error of either ends it, and the restore has failed.

use super::private::{last_lines, Installation, Private};
use super::until::Replay;
use crate::pace::Pace;
use crate::{signals, Result};
use std::fs::{self, File};
use std::io::{ErrorKind, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

/// The answer to the last statement: all before it were executed.
const APPLIED: &str = "sluice: applied";
/// An error of a statement begins so.
pub const NOT_APPLIED: &str = "the binary logs cannot be applied";
const STOPPED: &str = "stopped: nothing is restored";
const BUFFER_BYTES: usize = 256 << 10;
const REST: Duration = Duration::from_millis(20);

pub fn apply(
    server: &Private<'_>,
    installation: &Installation,
    replay: &Replay,
    work: &Path,
) -> Result<()> {
    let (reads, executes, answers) = ("mariadb-binlog.err", "mariadb.err", "mariadb.out");
    let mut reader = installation.command("mariadb-binlog")?;
    reader.args(["--verify-binlog-checksum", "--skip-gtid-strict-mode"]);
    reader.arg(format!("--local-load={}", work.display()));
    reader.args([
        format!("--start-position={}", replay.start),
        format!("--stop-position={}", replay.stop),
    ]);
    reader.args(&replay.files).stdout(Stdio::piped()).stderr(output(work, reads)?);
    let mut client = server.client("mariadb")?;
    client.args(["--batch", "--skip-column-names", "--binary-mode", "--max-allowed-packet=1G"]);
    client.stdin(Stdio::piped()).stdout(output(work, answers)?).stderr(output(work, executes)?);
    let (mut reader, mut client) = (Running::start(&mut reader)?, Running::start(&mut client)?);
    let moved = match (reader.0.stdout.take(), client.0.stdin.take()) {
        (Some(from), Some(to)) => pass(from, to),
        _ => Err("no pipes to mariadb".into()),
    };
    if moved.is_err() {
        reader.kill();
    }
    let (has_read, has_executed) = (reader.ends_well()?, client.ends_well()?);
    let said = |name: &str| fs::read_to_string(work.join(name)).unwrap_or_default();
    // An error of the client also breaks the pipe of the reader: it is the cause.
    if !has_executed {
        return Err(format!("{NOT_APPLIED}: {}", last_lines(&said(executes))));
    }
    moved?;
    // It also succeeds after an event with a wrong checksum, and where it has not reached the end: it only
    // says so.
    let complaints = said(reads);
    if !has_read || !complaints.trim().is_empty() {
        return Err(format!("the binary logs cannot be read: {}", last_lines(&complaints)));
    }
    match said(answers).lines().last() == Some(APPLIED) {
        true => Ok(()),
        false => Err("mariadb ended before all of the binary logs was applied".into()),
    }
}

fn output(work: &Path, name: &str) -> Result<File> {
    File::create(work.join(name)).map_err(|e| format!("cannot write in {}: {e}", work.display()))
}

/// Hands on all statements.
fn pass(mut from: ChildStdout, mut to: ChildStdin) -> Result<()> {
    let pace = Pace::new("statements of the binary logs", 0, None);
    // The session keeps its rights, and statements on users find the tables that they need.
    let before = "FLUSH NO_WRITE_TO_BINLOG PRIVILEGES;\n".to_owned();
    // It must also be read if the last of the logs has left something open.
    let after = format!("\n/*!*/;\nDELIMITER ;\nSELECT '{APPLIED}';\n");
    let mut put = |bytes: &[u8]| match to.write_all(bytes) {
        Err(e) if e.kind() == ErrorKind::BrokenPipe => {
            Err("mariadb takes no more statements".to_owned())
        }
        other => other.map_err(|e| format!("cannot hand statements to mariadb: {e}")),
    };
    put(before.as_bytes())?;
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let n =
            from.read(&mut buffer).map_err(|e| format!("cannot read from mariadb-binlog: {e}"))?;
        if n == 0 {
            return put(after.as_bytes());
        }
        put(&buffer[..n])?;
        pace.step(n as u64).map_err(|_| STOPPED.to_owned())?;
    }
}

/// A program that is ended with this.
struct Running(Child);

impl Running {
    fn start(command: &mut Command) -> Result<Running> {
        let name = command.get_program().to_string_lossy().into_owned();
        command.spawn().map(Running).map_err(|e| format!("cannot run {name}: {e}"))
    }

    fn kill(&mut self) {
        let _ = self.0.kill();
    }

    /// Waits for its end, or for that of this program.
    fn ends_well(&mut self) -> Result<bool> {
        loop {
            let ended = self.0.try_wait().map_err(|e| format!("cannot wait for a program: {e}"))?;
            match ended {
                Some(status) => return Ok(status.success()),
                None if signals::stopped() => return Err(STOPPED.into()),
                None => std::thread::sleep(REST),
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
