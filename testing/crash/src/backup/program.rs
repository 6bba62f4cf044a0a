//! The program under test: `sluice backup` and `sluice restore`, each as a process that can be ended.

use super::end::To;
use sluice_rig::server::die_with_parent;
use sluice_rig::tool::signal;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The account that makes the backups has the rights that docs/backup.md names, and no others.
pub const ACCOUNT: &str = "backup";
/// Longer than any backup or restore that is not a hang.
const LIMIT: Duration = Duration::from_secs(600);
const LOOK_EVERY: Duration = Duration::from_micros(500);

#[derive(Clone)]
pub struct Program {
    pub sluice: PathBuf,
    /// Takes what the program says.
    pub said: PathBuf,
}

pub struct Running {
    child: Child,
    said: PathBuf,
}

/// How the program ended, and its words.
pub struct Ended {
    pub status: ExitStatus,
    pub text: String,
}

impl Program {
    pub fn backup(&self, socket: &Path, to: &To, options: &[String]) -> io::Result<Running> {
        let address = format!("mysql://{ACCOUNT}@localhost/?socket={}", socket.display());
        let mut command = Command::new(&self.sluice);
        // So long it waits for DDL and commits: a machine may be slow.
        command.args(["backup", &address, "--wait", "180"]).args(options).arg("--to");
        match to {
            To::Dir(dir) => self.start(command.arg(dir), None),
            To::Stream(file) => self.start(command.arg("-"), Some(File::create(file)?)),
        }
    }

    /// Of a backup, and of increments on it.
    pub fn restore(&self, from: &[PathBuf], to: &Path, options: &[&str]) -> io::Result<Ended> {
        let mut command = Command::new(&self.sluice);
        command.args(["restore", "--to"]).arg(to).args(options);
        for (number, path) in from.iter().enumerate() {
            command.arg(if number == 0 { "--from" } else { "--with" }).arg(path);
        }
        self.start(&mut command, None)?.end()
    }

    /// Its standard output goes to `out`, or to its words.
    fn start(&self, command: &mut Command, out: Option<File>) -> io::Result<Running> {
        let said = File::create(&self.said)?;
        let out = out.map_or_else(|| said.try_clone(), Ok)?;
        command.stdin(Stdio::null()).stdout(out).stderr(said);
        die_with_parent(command);
        Ok(Running { child: command.spawn()?, said: self.said.clone() })
    }
}

impl Running {
    pub fn has_ended(&mut self) -> io::Result<bool> {
        Ok(self.child.try_wait()?.is_some())
    }

    /// Until `is_time`; false if the program ended before.
    pub fn wait_until(&mut self, mut is_time: impl FnMut() -> bool) -> io::Result<bool> {
        while !is_time() {
            if self.has_ended()? {
                return Ok(false);
            }
            sleep(LOOK_EVERY);
        }
        Ok(!self.has_ended()?)
    }

    pub fn kill(&mut self) -> io::Result<()> {
        self.child.kill()
    }

    pub fn terminate(&self) {
        signal("TERM", self.child.id());
    }

    pub fn end(mut self) -> io::Result<Ended> {
        let give_up = Instant::now() + LIMIT;
        if self.wait_until(|| Instant::now() > give_up)? {
            return Err(io::Error::other(format!("it hangs: no end within {LIMIT:?}")));
        }
        let status = self.child.wait()?;
        let text = fs::read(&self.said)?;
        Ok(Ended { status, text: String::from_utf8_lossy(&text).into_owned() })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // After end() this finds it gone, which is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
