//! A server of its own on a directory that is not in its place: nobody else can reach it, and it ends
//! with this program.
//!
//! It runs without the grant tables, so it has no TCP, its socket lies in a directory of the caller's
//! alone, and it takes no events and no replication of its own accord.

use super::files;
use crate::db::{Client, Dsn};
use crate::host::calls;
use crate::{signals, Result};
use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// InnoDB makes its files, and recovery ends.
const START_LIMIT: Duration = Duration::from_secs(600);
const STOP_LIMIT: Duration = Duration::from_secs(3600);
/// For a statement of ours.
const ANSWER_LIMIT: Duration = Duration::from_secs(3600);
const REST: Duration = Duration::from_millis(50);
const SHOWN_LINES: usize = 15;
const PACKET_MAX: &str = "--max-allowed-packet=1G";
/// Its files are removed with the server's.
const RELAY_LOG: &str = "sluice-restore-relay";

/// Programs of MariaDB, and how its server is started.
#[derive(Clone, Debug)]
pub struct Installation {
    mariadbd: PathBuf,
    basedir: Option<PathBuf>,
    options: Vec<String>,
}

impl Installation {
    /// `basedir`: where it is installed, unless in the directories of the system. `options` are those of
    /// the user.
    pub fn find(basedir: Option<&Path>, options: &[String]) -> Result<Installation> {
        let dirs = match basedir {
            Some(dir) => vec![dir.join("sbin"), dir.join("bin"), dir.join("libexec")],
            None => system_dirs(),
        };
        let mariadbd = search(&dirs, "mariadbd")
            .ok_or_else(|| format!("no program mariadbd in {}: see --basedir", shown(&dirs)))?;
        let basedir = basedir.map(|dir| fs::canonicalize(dir).unwrap_or(dir.to_owned()));
        let found = Installation { mariadbd, basedir, options: options.to_vec() };
        for name in ["mariadb", "mariadb-binlog", "mariadb-upgrade"] {
            found.program(name)?;
        }
        Ok(found)
    }

    /// A program that reads no configuration.
    pub fn command(&self, name: &str) -> Result<Command> {
        let mut command = Command::new(self.program(name)?);
        command.arg("--no-defaults").stdin(Stdio::null());
        calls::die_with_us(&mut command);
        Ok(command)
    }

    fn program(&self, name: &str) -> Result<PathBuf> {
        let dirs = match &self.basedir {
            Some(dir) => vec![dir.join("bin")],
            None => system_dirs(),
        };
        search(&dirs, name)
            .ok_or_else(|| format!("no program {name} in {}: see --basedir", shown(&dirs)))
    }
}

fn system_dirs() -> Vec<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let fixed = ["/usr/sbin", "/usr/bin", "/usr/local/sbin", "/usr/local/bin"].map(PathBuf::from);
    std::env::split_paths(&path).chain(fixed).collect()
}

fn search(dirs: &[PathBuf], name: &str) -> Option<PathBuf> {
    dirs.iter().map(|dir| dir.join(name)).find(|path| path.is_file())
}

fn shown(dirs: &[PathBuf]) -> String {
    dirs.iter().map(|dir| dir.display().to_string()).collect::<Vec<_>>().join(", ")
}

/// A new directory that only its owner may enter; it is removed when this is dropped.
struct Scratch(PathBuf);

impl Scratch {
    fn make() -> Result<Scratch> {
        let base = std::env::temp_dir();
        for n in 0..1000 {
            let path = base.join(format!("sluice-{}.{n}", std::process::id()));
            // One that is there may be another user's.
            match fs::DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => return Ok(Scratch(path)),
                Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
                Err(e) => return Err(format!("cannot make the directory {}: {e}", path.display())),
            }
        }
        Err(format!("cannot make a directory in {}", base.display()))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

pub struct Private<'a> {
    child: Child,
    installation: &'a Installation,
    /// Has every right, also after the grant tables were loaded.
    control: Client,
    data: PathBuf,
    /// Of the socket: its name must be short.
    scratch: Scratch,
    log: PathBuf,
}

impl<'a> Private<'a> {
    /// Starts a server on `data`. Its temporary files and its error log are in `work`; `settings` are
    /// those of the server that the data is from.
    pub fn start(
        installation: &'a Installation,
        data: &Path,
        work: &Path,
        settings: &[String],
    ) -> Result<Private<'a>> {
        let scratch = Scratch::make()?;
        files::make_dir(work)?;
        let log = work.join("error.log");
        let _ = fs::remove_file(&log);
        let socket = scratch.0.join("s");
        let mut command = Command::new(&installation.mariadbd);
        command.args(options(installation, data, work, &scratch.0)?);
        command.args(settings).args(&installation.options);
        let output = File::create(work.join("output.log"))
            .map_err(|e| format!("cannot write in {}: {e}", work.display()))?;
        let errors = output.try_clone().map_err(|e| format!("cannot share a file: {e}"))?;
        command.stdin(Stdio::null()).stdout(output).stderr(errors);
        calls::die_with_us(&mut command);
        let child = command.spawn();
        let mut child =
            child.map_err(|e| format!("cannot run {}: {e}", installation.mariadbd.display()))?;
        match answer(&mut child, &socket, &log) {
            Ok(control) => {
                Ok(Private { child, installation, control, data: data.to_owned(), scratch, log })
            }
            Err(reason) => {
                let _ = child.kill();
                let _ = child.wait();
                Err(reason)
            }
        }
    }

    pub fn control(&mut self) -> &mut Client {
        &mut self.control
    }

    /// A program that talks to the server.
    pub fn client(&self, name: &str) -> Result<Command> {
        let mut command = self.installation.command(name)?;
        command.arg(format!("--socket={}", self.scratch.0.join("s").display())).arg("--user=root");
        Ok(command)
    }

    /// Makes the tables of the server itself that are missing. The server uses them after its next start.
    pub fn upgrade(&mut self) -> Result<()> {
        let said = self
            .client("mariadb-upgrade")?
            .output()
            .map_err(|e| format!("cannot run mariadb-upgrade: {e}"))?;
        match said.status.success() {
            true => Ok(()),
            false => Err(format!(
                "mariadb-upgrade failed: {}",
                last_lines(&String::from_utf8_lossy(&[said.stdout, said.stderr].concat()))
            )),
        }
    }

    /// A clean end. Files that only this server was to have in its directory are removed.
    pub fn stop(mut self) -> Result<()> {
        self.control.execute("SHUTDOWN")?;
        let give_up = Instant::now() + STOP_LIMIT;
        loop {
            if let Some(status) =
                self.child.try_wait().map_err(|e| format!("cannot watch the server: {e}"))?
            {
                if !status.success() {
                    return Err(format!(
                        "the server for the restore ended with {status}: {}",
                        log_lines(&self.log)
                    ));
                }
                break;
            }
            if Instant::now() > give_up || signals::stopped() {
                return Err("the server for the restore does not end, or was to be stopped".into());
            }
            std::thread::sleep(REST);
        }
        for path in files::list(&self.data)? {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if name.starts_with(RELAY_LOG) || name == "relay-log.info" {
                fs::remove_file(&path)
                    .map_err(|e| format!("cannot remove {}: {e}", path.display()))?;
            }
        }
        Ok(())
    }

    pub fn log_lines(&self) -> String {
        log_lines(&self.log)
    }
}

impl Drop for Private<'_> {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn options(
    installation: &Installation,
    data: &Path,
    work: &Path,
    scratch: &Path,
) -> Result<Vec<String>> {
    let absolute = |path: &Path| {
        std::path::absolute(path)
            .map(|path| path.display().to_string())
            .map_err(|e| format!("{}: {e}", path.display()))
    };
    let mut options = vec!["--no-defaults".to_owned()];
    if let Some(basedir) = &installation.basedir {
        options.push(format!("--basedir={}", basedir.display()));
        options.push(format!("--lc-messages-dir={}", basedir.join("share/mysql").display()));
    }
    options.extend([
        format!("--datadir={}", absolute(data)?),
        format!("--tmpdir={}", absolute(work)?),
        format!("--log-error={}", absolute(&work.join("error.log"))?),
        format!("--socket={}", scratch.join("s").display()),
        format!("--pid-file={}", scratch.join("pid").display()),
        format!("--relay-log={RELAY_LOG}"),
    ]);
    let fixed = [
        "--skip-networking",
        "--skip-grant-tables",
        "--skip-log-bin",
        "--skip-slave-start",
        "--event-scheduler=OFF",
        "--plugin-maturity=experimental",
        "--plugin-load-add=ha_sluice.so",
        "--sluice=FORCE_PLUS_PERMANENT",
        // Nothing counts before all of it is done, and the server has ended well.
        "--sluice-flush-log-at-trx-commit=0",
        PACKET_MAX,
    ];
    options.extend(fixed.map(String::from));
    let meta =
        fs::metadata("/proc/self").map_err(|e| format!("cannot look at this process: {e}"))?;
    if meta.uid() == 0 {
        options.push("--user=root".into());
    }
    Ok(options)
}

fn answer(child: &mut Child, socket: &Path, log: &Path) -> Result<Client> {
    let give_up = Instant::now() + START_LIMIT;
    let dsn = Dsn::socket(socket.to_owned());
    loop {
        if let Ok(client) = Client::connect_with_limit(&dsn, ANSWER_LIMIT) {
            return Ok(client);
        }
        if let Some(status) =
            child.try_wait().map_err(|e| format!("cannot watch the server: {e}"))?
        {
            return Err(format!(
                "the server for the restore did not start ({status}): {}",
                log_lines(log)
            ));
        }
        if signals::stopped() {
            return Err("stopped: nothing is restored".into());
        }
        if Instant::now() > give_up {
            return Err(format!("the server for the restore does not answer: {}", log_lines(log)));
        }
        std::thread::sleep(REST);
    }
}

fn log_lines(log: &Path) -> String {
    last_lines(&String::from_utf8_lossy(&fs::read(log).unwrap_or_default()))
}

pub fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    format!("\n{}", lines[lines.len().saturating_sub(SHOWN_LINES)..].join("\n"))
}
