//! `sluice server start`.
//!
//! Safety argument: `geteuid`, `setsid` and `fcntl` take no pointers, and what runs between fork
//! and exec makes such calls only.

use super::layout::{Marker, ServerDir};
use super::lock::DirLock;
use super::prefix::{version_key, Prefix};
use super::process::{self, PidFile};
use super::{checks, files, install, Result, StartArgs};
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::os::fd::RawFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Longest that a server which is ending is waited for.
const LOCK_WAIT: Duration = Duration::from_secs(30);
const SHOWN_LOG_LINES: usize = 20;

pub fn start(args: &StartArgs) -> Result<()> {
    let prefix = Prefix::find(args.prefix.as_deref())?;
    if !args.without_engine {
        prefix.require_plugin()?;
    }
    let dir = ServerDir::new(&args.dir)?;
    checks::options_are_ours_to_pass(&args.options, user_option().is_some())?;
    checks::socket_path_fits(&dir.socket())?;
    let old_marker = dir.read_marker()?;
    let marker = next_marker(old_marker.as_ref(), &prefix, args)?;
    files::create_directory(dir.root())?;
    files::require_own(dir.root())?;
    // From here on the path exists, so it has its final, resolved form.
    let dir = ServerDir::new(&args.dir)?;
    let lock = take_lock(&dir, LOCK_WAIT)?;
    remove_stale_pid_file(&dir)?;
    checks::port_is_free(args.port)?;
    checks::enough_free_disk(dir.root(), args.min_free_mib)?;
    dir.write_marker(&marker)?;
    files::create_directory(&dir.tmp())?;
    install::ensure_data(&dir, &prefix)?;
    run_server(&dir, &prefix, &lock, args)
}

/// The settings to be noted, or the reason why this server must not run on them.
fn next_marker(old: Option<&Marker>, prefix: &Prefix, args: &StartArgs) -> Result<Marker> {
    if let Some(old) = old {
        // After a crash the log of the engine may hold the end of the binlog:
        // a server without the plugin would start from a binlog cut short.
        if old.engine && args.without_engine {
            return Err("this directory has run with the Sluice engine: it cannot be started \
                        without it. Leave out --without-engine"
                .to_string());
        }
        if version_key(&old.server_version) > version_key(&prefix.version) {
            return Err(format!(
                "this directory was used by MariaDB {}, and {} is older: use a prefix with that \
                 release or a newer one",
                old.server_version, prefix.version
            ));
        }
    }
    Ok(Marker {
        server_version: prefix.version.clone(),
        engine: !args.without_engine,
        port: args.port,
    })
}

/// A server that was killed keeps the lock while its memory is given back, which takes seconds with
/// a large pool: such a one is waited for. One that runs is not.
fn take_lock(dir: &ServerDir, limit: Duration) -> Result<DirLock> {
    let root = dir.root().display();
    let begun = Instant::now();
    let mut told = false;
    loop {
        if let Some(lock) = DirLock::try_take(dir)? {
            return Ok(lock);
        }
        if let PidFile::Running(pid) = process::read_pid_file(dir) {
            if !process::is_dying(pid) {
                return Err(runs_already(dir, pid));
            }
        }
        if begun.elapsed() >= limit {
            return Err(format!(
                "another server is starting or stopping on {root}, and has not ended in {} s: try \
                 again later",
                limit.as_secs()
            ));
        }
        if !told {
            report!(
                "sluice: waiting for another server on {root} to end, at most {} s",
                limit.as_secs()
            );
            told = true;
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

fn runs_already(dir: &ServerDir, pid: i32) -> String {
    let root = dir.root().display();
    format!("a server already runs on {root}, pid {pid}: `sluice server stop --dir {root}` ends it")
}

fn remove_stale_pid_file(dir: &ServerDir) -> Result<()> {
    match process::read_pid_file(dir) {
        PidFile::Missing => return Ok(()),
        // Started by hand on our data, without our lock.
        PidFile::Running(pid) => {
            return Err(runs_already(dir, pid));
        }
        PidFile::Stale(why) => report!("sluice: removing a stale pid file: {why}"),
    }
    fs::remove_file(dir.pid_file())
        .map_err(|e| format!("cannot remove {}: {e}", dir.pid_file().display()))
}

fn run_server(dir: &ServerDir, prefix: &Prefix, lock: &DirLock, args: &StartArgs) -> Result<()> {
    let log = files::append_to(&dir.error_log())?;
    let log_start = log.metadata().map(|m| m.len()).unwrap_or(0);
    let begun = Instant::now();
    let mut child = spawn(dir, prefix, lock, args, log)?;
    write_pid_file(dir, child.id())?;
    let version = wait_until_it_answers(dir, &mut child, args.timeout, log_start)?;
    report!(
        "MariaDB {version} answers, pid {}, {:.1} s",
        child.id(),
        begun.elapsed().as_secs_f64()
    );
    report!("log:     {}", dir.error_log().display());
    if let Some(port) = args.port {
        report!("port:    127.0.0.1:{port} (no account can use TCP until you create one)");
    }
    let client = prefix.program("mariadb");
    report!("connect: {} --no-defaults -uroot -S {}", client.display(), dir.socket().display());
    Ok(())
}

/// The server writes the same file, but only after recovery: until then it could
/// not be found by `stop` and `status`.
fn write_pid_file(dir: &ServerDir, pid: u32) -> Result<()> {
    files::replace(&dir.pid_file(), &format!("{pid}\n"))
}

fn spawn(
    dir: &ServerDir,
    prefix: &Prefix,
    lock: &DirLock,
    args: &StartArgs,
    log: File,
) -> Result<Child> {
    let lock_descriptor = lock.descriptor();
    let log_for_errors = log.try_clone().map_err(|e| format!("cannot share the log: {e}"))?;
    let mut command = Command::new(prefix.mariadbd());
    command
        .args(server_options(dir, prefix, args))
        .args(&args.options)
        .current_dir(dir.data())
        .stdin(Stdio::null())
        .stdout(log)
        .stderr(log_for_errors);
    // SAFETY: the closure runs between fork and exec and makes only two system calls.
    unsafe { command.pre_exec(move || detach_with_lock(lock_descriptor)) };
    command.spawn().map_err(|e| format!("cannot run {}: {e}", prefix.mariadbd().display()))
}

/// In the child: a session of its own, so that no terminal's signal reaches the
/// server, and the lock kept open across exec.
fn detach_with_lock(lock_descriptor: RawFd) -> std::io::Result<()> {
    // SAFETY: setsid and fcntl take no pointers; the descriptor is open in the child as well.
    let failed =
        unsafe { libc::setsid() == -1 || libc::fcntl(lock_descriptor, libc::F_SETFD, 0) == -1 };
    if failed {
        Err(std::io::Error::last_os_error())
    } else {
        Ok(())
    }
}

fn server_options(dir: &ServerDir, prefix: &Prefix, args: &StartArgs) -> Vec<OsString> {
    let mut options: Vec<OsString> = vec!["--no-defaults".into()];
    let mut add_path = |name: &str, path: &Path| {
        let mut option = OsString::from(name);
        option.push(path);
        options.push(option);
    };
    add_path("--basedir=", &prefix.basedir());
    add_path("--lc-messages-dir=", &prefix.messages_dir());
    add_path("--plugin-dir=", &prefix.plugin_dir());
    add_path("--datadir=", &dir.data());
    add_path("--tmpdir=", &dir.tmp());
    add_path("--socket=", &dir.socket());
    add_path("--pid-file=", &dir.pid_file());
    add_path("--log-error=", &dir.error_log());
    let mut add = |option: &str| options.push(option.into());
    add("--log-bin=sluice-bin");
    add("--sync-binlog=1");
    add("--server-id=1");
    add("--skip-name-resolve");
    for option in network_options(args.port) {
        add(&option);
    }
    for option in engine_options(args.without_engine) {
        add(option);
    }
    options.extend(user_option().map(OsString::from));
    options
}

fn network_options(port: Option<u16>) -> Vec<String> {
    match port {
        Some(port) => vec![format!("--port={port}"), "--bind-address=127.0.0.1".to_string()],
        None => vec!["--skip-networking".to_string()],
    }
}

/// FORCE_PLUS_PERMANENT: without the plugin the server must not start, and a
/// running server must not lose it.
fn engine_options(without_engine: bool) -> &'static [&'static str] {
    if without_engine {
        return &["--default-storage-engine=InnoDB"];
    }
    &[
        "--plugin-maturity=experimental",
        "--plugin-load-add=ha_sluice.so",
        "--sluice=FORCE_PLUS_PERMANENT",
        "--default-storage-engine=Sluice",
    ]
}

/// MariaDB refuses to run as root unless it is told to.
pub fn user_option() -> Option<&'static str> {
    (user_id() == 0).then_some("--user=root")
}

pub fn user_id() -> u32 {
    // SAFETY: geteuid takes nothing and cannot fail.
    unsafe { libc::geteuid() }
}

fn wait_until_it_answers(
    dir: &ServerDir,
    child: &mut Child,
    timeout: u64,
    log_start: u64,
) -> Result<String> {
    let deadline = Instant::now() + Duration::from_secs(timeout);
    loop {
        if let Some(version) = process::greeting(dir) {
            return Ok(version);
        }
        let exit = child.try_wait().map_err(|e| format!("cannot watch the server: {e}"))?;
        if let Some(exit) = exit {
            let _ = fs::remove_file(dir.pid_file());
            return Err(format!(
                "the server died at start ({exit}); the end of {}:\n{}",
                dir.error_log().display(),
                last_lines(&dir.error_log(), log_start)
            ));
        }
        if Instant::now() >= deadline {
            return Err(format!(
                "the server, pid {}, does not answer after {timeout} s; it goes on, see {}",
                child.id(),
                dir.error_log().display()
            ));
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// The last lines of a log, of those written from byte `from` on.
pub fn last_lines(path: &Path, from: u64) -> String {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|mut file| {
        file.seek(SeekFrom::Start(from))?;
        file.read_to_end(&mut bytes)
    });
    if let Err(e) = read {
        return format!("(cannot read it: {e})");
    }
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.lines().collect();
    let shown = lines.len().saturating_sub(SHOWN_LOG_LINES);
    lines[shown..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scratch(name: &str) -> ServerDir {
        let path = std::env::temp_dir().join(format!("sluice-start-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        files::create_directory(&path).unwrap();
        ServerDir::new(&path).unwrap()
    }

    #[test]
    fn a_server_that_is_ending_is_waited_for() {
        let dir = scratch("ending");
        let held = DirLock::try_take(&dir).unwrap().expect("free");
        let ending = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(300));
            drop(held);
        });
        let begun = Instant::now();
        take_lock(&dir, Duration::from_secs(30)).unwrap();
        assert!(begun.elapsed() >= Duration::from_millis(250), "{:?}", begun.elapsed());
        ending.join().unwrap();
        fs::remove_dir_all(dir.root()).unwrap();
    }

    #[test]
    fn one_that_does_not_end_is_named_after_the_limit() {
        let dir = scratch("endless");
        let _held = DirLock::try_take(&dir).unwrap().expect("free");
        let refused = take_lock(&dir, Duration::from_millis(200)).err().expect("it is held");
        assert!(refused.contains("starting or stopping"), "{refused}");
        fs::remove_dir_all(dir.root()).unwrap();
    }
}
