//! The `sluice` program as its users run it: commands and their answers, a work directory, and the
//! servers that `sluice server` keeps below it.
//!
//! Such a server outlives its starter. So a janitor, a process of its own, waits until the test has
//! ended in whatever way, stops the servers of the work directory and removes it.

use crate::client::{Answer, Client, Fault};
use crate::place;
use crate::server::Prefix;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// A command that has ended, with its output as text.
pub struct Ended {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl From<Output> for Ended {
    fn from(output: Output) -> Ended {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ended { code: output.status.code(), out: text(&output.stdout), err: text(&output.stderr) }
    }
}

impl Ended {
    pub fn text(&self) -> String {
        format!("{}{}", self.out, self.err)
    }

    /// Its standard output, if it has succeeded.
    #[track_caller]
    pub fn ok(self) -> String {
        self.with_code(0)
    }

    /// Its standard output, if it has ended with this code.
    #[track_caller]
    pub fn with_code(self, code: i32) -> String {
        assert_eq!(self.code, Some(code), "the exit code of a command that said:\n{}", self.text());
        self.out
    }

    /// It has failed and has given this reason.
    #[track_caller]
    pub fn refuses(&self, reason: &str) {
        assert_ne!(self.code, Some(0), "it should refuse: {reason}\n{}", self.text());
        says(reason, &self.text());
    }
}

/// Runs a command to its end.
#[track_caller]
pub fn run(command: &mut Command) -> Ended {
    command.stdin(Stdio::null());
    match command.output() {
        Ok(output) => output.into(),
        Err(error) => panic!("{}: {error}", command.get_program().to_string_lossy()),
    }
}

/// Starts a command that is looked at later with [`wait`].
#[track_caller]
pub fn spawn(command: &mut Command) -> Child {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    match command.spawn() {
        Ok(child) => child,
        Err(error) => panic!("{}: {error}", command.get_program().to_string_lossy()),
    }
}

#[track_caller]
pub fn wait(child: Child) -> Ended {
    child.wait_with_output().expect("a child that was not waited for").into()
}

/// Sends a signal by name, such as KILL.
pub fn signal(name: &str, pid: u32) {
    run(Command::new("kill").args(["-s", name, &pid.to_string()])).ok();
}

#[track_caller]
pub fn says(wanted: &str, text: &str) {
    assert!(text.contains(wanted), "{text}\nshould say: {wanted}");
}

#[track_caller]
pub fn is_silent_about(unwanted: &str, text: &str) {
    assert!(!text.contains(unwanted), "{text}\nshould not say: {unwanted}");
}

/// Looks every 50 ms until `found` is true, for `limit` at most.
#[track_caller]
pub fn wait_until(what: &str, limit: Duration, mut found: impl FnMut() -> bool) {
    let give_up = Instant::now() + limit;
    while !found() {
        assert!(Instant::now() < give_up, "{what}: not within {limit:?}");
        sleep(Duration::from_millis(50));
    }
}

/// Whether Debian package `name` is there now; installs it where root or sudo can.
pub fn ensure_package(name: &str) -> bool {
    let script = ". scripts/lib/common.sh; . scripts/lib/debian.sh; ensure_packages \"$1\"";
    let args = ["-ec", script, "ensure", name];
    run(Command::new("bash").args(args).current_dir(checkout())).code == Some(0)
}

pub fn checkout() -> PathBuf {
    let rig = Path::new(env!("CARGO_MANIFEST_DIR"));
    rig.ancestors().nth(2).unwrap_or(rig).to_owned()
}

/// A program that `make build` makes, by its name; for tests.
pub fn built(name: &str) -> Result<PathBuf, String> {
    let test = std::env::current_exe().map_err(|e| e.to_string())?;
    let program = test.ancestors().nth(2).unwrap_or(&test).join(name);
    if !program.exists() {
        let program = program.display();
        return Err(format!("no {program}: run `make build`, and the test with --release"));
    }
    Ok(program)
}

/// The program, the installation of MariaDB that it works with, and a directory for one run.
pub struct Tool {
    pub program: PathBuf,
    pub prefix: Prefix,
    pub work: PathBuf,
    janitor: Child,
}

/// Reads its input until every writer is gone: then the test has ended.
const JANITOR: &str = r#"
cat >/dev/null
find "$2" -xdev -name sluice.server -printf '%h\0' | xargs -0 -r -n 1 "$1" server stop --dir
grep -F " $2/" /proc/mounts | cut -d ' ' -f 2 | while read -r mount; do
  "$1" server stop --dir "$mount/d"
  umount "$mount"
done
rm -rf "$2"
"#;

impl Tool {
    /// What `make build` makes, and a new directory of the run called `name`.
    pub fn new(name: &str) -> Result<Tool, String> {
        let program = built("sluice")?;
        let prefix = place::prefix(None)?;
        let made = place::make(&std::env::temp_dir(), name);
        let work = made.map_err(|e| format!("mktemp: {e}"))?;
        let janitor = janitor(&program, &work).map_err(|e| format!("sh: {e}"))?;
        Ok(Tool { program, prefix, work, janitor })
    }

    /// The program with these arguments.
    pub fn sluice<S: AsRef<std::ffi::OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Command {
        let mut command = Command::new(&self.program);
        command.args(args).env("SLUICE_PREFIX", &self.prefix.root);
        command
    }

    /// A program of the server, such as `mariadb`, that reads no configuration.
    pub fn mariadb(&self, program: &str) -> Command {
        let mut command = Command::new(self.prefix.program(program));
        command.arg("--no-defaults");
        command
    }

    pub fn has_plugin(&self, name: &str) -> bool {
        self.prefix.root.join("plugin").join(name).exists()
    }

    /// The server directory `name` of the work directory.
    pub fn home(&self, name: &str) -> Home {
        self.home_at(self.work.join(name))
    }

    pub fn home_at(&self, dir: PathBuf) -> Home {
        Home { program: self.program.clone(), prefix: self.prefix.clone(), dir }
    }
}

fn janitor(program: &Path, work: &Path) -> std::io::Result<Child> {
    use std::os::unix::process::CommandExt;
    Command::new("sh")
        .args(["-c", JANITOR, "janitor"])
        .args([program, work])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        // What the terminal sends to end the test must not end the janitor.
        .process_group(0)
        .spawn()
}

impl Drop for Tool {
    fn drop(&mut self) {
        drop(self.janitor.stdin.take());
        let _ = self.janitor.wait();
    }
}

/// The directory of one server of `sluice server`.
#[derive(Clone)]
pub struct Home {
    program: PathBuf,
    prefix: Prefix,
    pub dir: PathBuf,
}

/// Longer than any statement of a test on a busy machine.
const PATIENCE: Duration = Duration::from_secs(600);

impl Home {
    /// `sluice server VERB` on this directory.
    pub fn server(&self, verb: &str, args: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(["server", verb, "--dir"]).arg(&self.dir).args(args);
        command.env("SLUICE_PREFIX", &self.prefix.root);
        command
    }

    /// Starts the server with `options` of mariadbd.
    #[track_caller]
    pub fn start(&self, options: &[&str]) -> String {
        let args = [&["--min-free-mib", "256", "--timeout", "120", "--"], options].concat();
        run(&mut self.server("start", &args)).ok()
    }

    #[track_caller]
    pub fn stop(&self) -> String {
        run(&mut self.server("stop", &[])).ok()
    }

    pub fn is_running(&self) -> bool {
        run(&mut self.server("status", &[])).code == Some(0)
    }

    /// SIGKILL, and waits until the server has let go of its directory: its lock goes with it.
    pub fn kill(&self) {
        signal("KILL", self.pid());
        run(Command::new("flock").arg(self.dir.join("sluice.lock")).arg("true")).ok();
    }

    #[track_caller]
    pub fn pid(&self) -> u32 {
        let text = fs::read_to_string(self.dir.join("mariadbd.pid")).expect("a pid file");
        text.trim().parse().expect("a process id")
    }

    pub fn socket(&self) -> PathBuf {
        self.dir.join("mysql.sock")
    }

    /// The address of the server for user root.
    pub fn address(&self) -> String {
        self.address_of("root")
    }

    pub fn address_of(&self, user: &str) -> String {
        format!("mysql://{user}@localhost/?socket={}", self.socket().display())
    }

    pub fn error_log(&self) -> String {
        let bytes = fs::read(self.dir.join("error.log")).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    #[track_caller]
    pub fn connect(&self) -> Client {
        let connected = Client::connect_with_limit(&self.socket(), "", PATIENCE);
        connected.unwrap_or_else(|fault| panic!("{}: {fault}", self.dir.display()))
    }

    /// The rows of these statements, which a semicolon ends and none contains: a line for each,
    /// with tabs between the columns.
    #[track_caller]
    pub fn sql(&self, statements: &str) -> String {
        self.try_sql(statements).unwrap_or_else(|fault| panic!("{fault}\nby {statements}"))
    }

    #[track_caller]
    pub fn try_sql(&self, statements: &str) -> Result<String, Fault> {
        self.connect().script(statements)
    }
}

impl Client {
    /// See [`Home::sql`].
    pub fn script(&mut self, statements: &str) -> Result<String, Fault> {
        let mut lines = Vec::new();
        for statement in statements.split(';').map(str::trim).filter(|s| !s.is_empty()) {
            if let Answer::Rows(rows) = self.answer(statement)? {
                lines.extend(rows.into_iter().map(as_line));
            }
        }
        Ok(lines.join("\n"))
    }
}

fn as_line(row: Vec<Option<String>>) -> String {
    let values: Vec<_> = row.into_iter().map(|v| v.unwrap_or_else(|| "NULL".into())).collect();
    values.join("\t")
}
