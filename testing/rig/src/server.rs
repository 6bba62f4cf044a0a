//! A private server on a directory of its own, as a child of this process: it dies with the
//! harness, and it is killed by its process id and nothing else.
//!
//! Safety argument: `geteuid`, `kill` and `prctl` take no pointers to memory; between fork and exec
//! only `prctl` runs; a pid is used while its child has not been waited for.

use crate::client::Client;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime};

/// The files of one MariaDB installation.
#[derive(Clone)]
pub struct Prefix {
    pub root: PathBuf,
}

impl Prefix {
    pub fn program(&self, name: &str) -> PathBuf {
        let dir = if name == "mariadbd" { "usr/sbin" } else { "usr/bin" };
        self.root.join(dir).join(name)
    }

    /// A data directory as a fresh installation has it, made once and copied for every use.
    pub fn install(&self, data: &Path) -> io::Result<()> {
        let log = File::create(data.with_extension("install.log"))?;
        let status = Command::new(self.program("mariadb-install-db"))
            .arg("--no-defaults")
            .arg(format!("--basedir={}", self.root.join("usr").display()))
            .arg(format!("--datadir={}", data.display()))
            .args(["--auth-root-authentication-method=normal", "--skip-test-db"])
            .args(user_option())
            // A server that starts removes the temporary tables of all others in its directory.
            .env("TMPDIR", data.parent().unwrap_or(Path::new("/tmp")))
            .stdout(log.try_clone()?)
            .stderr(log)
            .status()?;
        expect_success("mariadb-install-db", status)
    }
}

pub(crate) fn is_root() -> bool {
    // SAFETY: geteuid has no arguments and cannot fail.
    unsafe { libc::geteuid() == 0 }
}

/// The server refuses to run as root unless told to.
fn user_option() -> Option<&'static str> {
    is_root().then_some("--user=root")
}

/// What the command starts is killed when the thread that starts it ends.
pub fn die_with_parent(command: &mut Command) {
    // SAFETY: between fork and exec only prctl is called, which is async-signal-safe.
    unsafe {
        command.pre_exec(|| {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            Ok(())
        });
    }
}

pub fn expect_success(what: &str, status: ExitStatus) -> io::Result<()> {
    match status.success() {
        true => Ok(()),
        false => Err(io::Error::other(format!("{what}: {status}"))),
    }
}

pub fn copy_tree(from: &Path, to: &Path) -> io::Result<()> {
    expect_success("cp", Command::new("cp").arg("-a").arg(from).arg(to).status()?)
}

/// What becomes of the binlog at a commit.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Binlog {
    Off,
    /// Sluice's log has it, and completes the file at a start: what the file's end holds may be lost.
    InLog,
    /// The server syncs its file.
    Synced,
}

/// How the server of one data directory is started, every time.
#[derive(Clone)]
pub struct Launch {
    pub prefix: Prefix,
    /// Holds data/, the socket and the error log.
    pub dir: PathBuf,
    pub engine: String,
    pub binlog: Binlog,
    /// Small sizes, so that checkpoints and binlog rotations happen within seconds.
    pub log_mib: i64,
    pub binlog_rotation_kib: i64,
    pub extra: Vec<String>,
    /// Added to this process's own environment.
    pub environment: Vec<(String, OsString)>,
}

impl Launch {
    pub fn data(&self) -> PathBuf {
        self.dir.join("data")
    }

    pub fn socket(&self) -> PathBuf {
        self.dir.join("s.sock")
    }

    pub fn error_log(&self) -> PathBuf {
        self.dir.join("error.log")
    }

    fn options(&self) -> Vec<String> {
        let usr = self.prefix.root.join("usr");
        let mut options = vec![
            "--no-defaults".into(),
            format!("--basedir={}", usr.display()),
            format!("--lc-messages-dir={}", usr.join("share/mysql").display()),
            format!("--plugin-dir={}", self.prefix.root.join("plugin").display()),
            format!("--datadir={}", self.data().display()),
            // A server that starts removes the temporary tables of all others in its directory.
            format!("--tmpdir={}", self.dir.display()),
            format!("--socket={}", self.socket().display()),
            format!("--pid-file={}", self.dir.join("pid").display()),
            "--skip-networking".into(),
            "--innodb-buffer-pool-size=32M".into(),
            format!("--innodb-log-file-size={}M", self.log_mib),
            "--innodb-flush-log-at-trx-commit=1".into(),
            "--innodb-lock-wait-timeout=2".into(),
        ];
        options.extend(user_option().map(String::from));
        options.extend(self.binlog_options());
        options.extend(self.sluice_options());
        options.extend(self.extra.iter().cloned());
        options
    }

    /// The same settings as InnoDB's; "loose" so that one that is not there yet is no obstacle.
    fn sluice_options(&self) -> Vec<String> {
        if !self.engine.eq_ignore_ascii_case("sluice") {
            return Vec::new();
        }
        vec![
            "--plugin-maturity=experimental".into(),
            "--plugin-load-add=ha_sluice.so".into(),
            "--loose-sluice=FORCE_PLUS_PERMANENT".into(),
            "--loose-sluice-buffer-pool-size=32M".into(),
            format!("--loose-sluice-log-capacity={}M", self.log_mib),
            "--loose-sluice-flush-log-at-trx-commit=1".into(),
            "--loose-sluice-lock-wait-timeout=2".into(),
        ]
    }

    fn binlog_options(&self) -> Vec<String> {
        if self.binlog == Binlog::Off {
            return vec!["--skip-log-bin".into()];
        }
        let in_log = if self.binlog == Binlog::InLog { "ON" } else { "OFF" };
        vec![
            format!("--loose-sluice-persist-binlog-to-redo={in_log}"),
            "--log-bin=binlog".into(),
            "--binlog-format=ROW".into(),
            "--sync-binlog=1".into(),
            "--server-id=1".into(),
            format!("--max-binlog-size={}K", self.binlog_rotation_kib),
        ]
    }

    pub fn spawn(&self) -> io::Result<Server> {
        let log = File::options().create(true).append(true).open(self.error_log())?;
        let mut command = Command::new(self.prefix.program("mariadbd"));
        command.args(self.options()).stdin(Stdio::null());
        command.stdout(log.try_clone()?).stderr(log);
        command.envs(self.environment.iter().cloned());
        let started = SystemTime::now();
        die_with_parent(&mut command);
        Ok(Server { child: command.spawn()?, launch: self.clone(), started })
    }

    /// Starts the server and waits until it answers.
    pub fn start(&self) -> io::Result<Server> {
        let mut server = self.spawn()?;
        server.wait_for_answer()?;
        Ok(server)
    }
}

pub struct Server {
    child: Child,
    launch: Launch,
    pub started: SystemTime,
}

/// How long after the switch the power may still be on: an idle server makes few file calls.
const CUT_LIMIT: Duration = Duration::from_secs(5);

/// For a start or a shutdown, on a slow machine too.
const PATIENCE: Duration = Duration::from_secs(180);

impl Server {
    pub fn wait_for_answer(&mut self) -> io::Result<()> {
        let give_up = Instant::now() + PATIENCE;
        while Instant::now() < give_up {
            if let Some(status) = self.child.try_wait()? {
                return Err(io::Error::other(format!("the server did not start: {status}")));
            }
            if Client::connect(&self.socket(), "").is_ok() {
                return Ok(());
            }
            sleep(Duration::from_millis(20));
        }
        Err(io::Error::other(format!("the server did not answer within {PATIENCE:?}")))
    }

    /// Waits for the cut that is armed. A server that does nothing more is cut off anyway.
    pub fn cut_off(mut self, may_stop: bool) -> io::Result<()> {
        let give_up = Instant::now() + CUT_LIMIT;
        while Instant::now() < give_up {
            if let Some(status) = self.child.try_wait()? {
                return match status.signal() {
                    Some(libc::SIGKILL) => Ok(()),
                    None if may_stop && status.success() => Ok(()),
                    _ => Err(io::Error::other(format!("the server has ended by itself: {status}"))),
                };
            }
            sleep(Duration::from_millis(1));
        }
        self.kill()
    }

    /// Waits until the server answers, or the cut that is armed has come; true if it answers.
    pub fn answers_before_cut(&mut self) -> io::Result<bool> {
        match self.wait_for_answer() {
            Ok(()) => Ok(true),
            Err(error) => match self.child.try_wait()?.and_then(|s| s.signal()) {
                Some(libc::SIGKILL) => Ok(false),
                _ => Err(error),
            },
        }
    }

    /// Waits until the server has aborted by itself.
    pub fn wait_for_abort(mut self) -> io::Result<()> {
        let give_up = Instant::now() + CUT_LIMIT;
        while Instant::now() < give_up {
            if let Some(status) = self.child.try_wait()? {
                return match status.signal() {
                    Some(libc::SIGABRT) => Ok(()),
                    _ => Err(io::Error::other(format!("the server has not aborted: {status}"))),
                };
            }
            sleep(Duration::from_millis(1));
        }
        self.kill()?;
        Err(io::Error::other("the server has not ended"))
    }

    /// SIGKILL. An error when the server was dead already: nobody but us may end it.
    pub fn kill(mut self) -> io::Result<()> {
        if let Some(status) = self.child.try_wait()? {
            return Err(io::Error::other(format!("the server had ended by itself: {status}")));
        }
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Asks for a shutdown, and kills the server while it is at it.
    pub fn kill_in_shutdown(mut self, after: Duration) -> io::Result<()> {
        self.terminate();
        sleep(after);
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Shuts down as an administrator would.
    pub fn stop(mut self) -> io::Result<()> {
        self.terminate();
        let give_up = Instant::now() + PATIENCE;
        while Instant::now() < give_up {
            if let Some(status) = self.child.try_wait()? {
                return expect_success("shutdown", status);
            }
            sleep(Duration::from_millis(20));
        }
        let stacks = self.launch.dir.join("stacks");
        let seen = self.write_stacks(&stacks).is_ok_and(|status| status.success());
        let look = if seen { format!(", see {}", stacks.display()) } else { String::new() };
        Err(io::Error::other(format!("the server did not shut down within {PATIENCE:?}{look}")))
    }

    /// What each thread of a server that hangs is doing, where gdb is installed.
    fn write_stacks(&self, file: &Path) -> io::Result<ExitStatus> {
        let pid = self.child.id().to_string();
        let mut gdb = Command::new("gdb");
        gdb.args(["-p", &pid, "-batch", "-ex", "thread apply all backtrace"]);
        gdb.stdin(Stdio::null()).stdout(File::create(file)?).stderr(Stdio::null()).status()
    }

    pub fn terminate(&self) {
        // SAFETY: the child has not been waited for, so its process id is still its own.
        unsafe { libc::kill(self.child.id() as i32, libc::SIGTERM) };
    }

    pub fn socket(&self) -> PathBuf {
        self.launch.socket()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // After kill() or stop() this finds the child gone, which is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn last_lines(file: &Path, count: usize) -> String {
    let text = fs::read(file).map(|b| String::from_utf8_lossy(&b).into_owned()).unwrap_or_default();
    let lines: Vec<_> = text.lines().collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}
