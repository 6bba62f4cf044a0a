//! Where a test program works: the private installation of MariaDB, and a directory of its own.
//!
//! The directory goes with the program, however that ends; it stays if the program says so. For this a
//! janitor, a process of its own, waits until every writer of its input is gone.

use crate::server::{copy_tree, die_with_parent, is_root, Prefix};
use crate::tool::{checkout, run};
use std::ffi::OsStr;
use std::fs;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};

/// The installation at `named`, else at $SLUICE_PREFIX, else that of the checkout.
pub fn prefix(named: Option<PathBuf>) -> Result<Prefix, String> {
    let variable = || std::env::var_os("SLUICE_PREFIX").filter(|v| !v.is_empty());
    let root = named.or_else(|| variable().map(PathBuf::from));
    let root = root.unwrap_or_else(|| checkout().join(".prefix"));
    match fs::canonicalize(&root) {
        Ok(root) if root.join("READY").exists() => Ok(Prefix { root }),
        _ => Err(format!("no server in {}: run `make build`", root.display())),
    }
}

/// Cargo's directory, which has this program in `release`.
pub fn target_dir() -> PathBuf {
    let program = std::env::current_exe().unwrap_or_default();
    program.ancestors().nth(2).unwrap_or(Path::new("target")).to_owned()
}

/// A directory for one run.
pub struct WorkDir {
    path: PathBuf,
    /// None on a file system that goes with this process.
    janitor: Option<Child>,
}

/// A server that dies with the program can still make files for a moment.
const JANITOR: &str = r#"
read -r word
[ "$word" = keep ] || rm -rf "$1" || { sleep 2 && rm -rf "$1"; }
"#;

impl WorkDir {
    pub fn new(name: &str) -> io::Result<WorkDir> {
        WorkDir::below(&std::env::temp_dir(), name)
    }

    /// In memory, where there is enough of it: nothing in the directory has to survive.
    pub fn in_memory(name: &str) -> io::Result<WorkDir> {
        let memory = Path::new("/dev/shm");
        match free_kib(memory) > 2_000_000 {
            true => WorkDir::below(memory, name),
            false => WorkDir::new(name),
        }
    }

    fn below(base: &Path, name: &str) -> io::Result<WorkDir> {
        let path = make(base, name)?;
        let janitor = Command::new("sh")
            .args([OsStr::new("-c"), JANITOR.as_ref(), "janitor".as_ref(), path.as_ref()])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // The terminal's signal that ends the program must not end the janitor.
            .process_group(0)
            .spawn()?;
        Ok(WorkDir { path, janitor: Some(janitor) })
    }

    /// For the server and its files; does not exist yet.
    pub fn run(&self) -> PathBuf {
        self.path.join("run")
    }

    /// The directory stays, or a copy of it where it cannot; returns what [`WorkDir::run`] is there.
    pub fn keep(mut self) -> io::Result<PathBuf> {
        let kept = match &mut self.janitor {
            Some(janitor) => {
                if let Some(mut input) = janitor.stdin.take() {
                    input.write_all(b"keep\n")?;
                }
                self.path.clone()
            }
            None => {
                let kept = make(&std::env::temp_dir(), "kept")?;
                copy_tree(&self.path.join("."), &kept)?;
                kept
            }
        };
        Ok(kept.join("run"))
    }
}

impl Drop for WorkDir {
    fn drop(&mut self) {
        if let Some(janitor) = &mut self.janitor {
            drop(janitor.stdin.take());
            let _ = janitor.wait();
        }
    }
}

/// A new directory below `base` of the run called `name`.
pub fn make(base: &Path, name: &str) -> io::Result<PathBuf> {
    let mut command = Command::new("mktemp");
    command.args(["-d", "-p"]).arg(base).arg(format!("sluice-{name}.XXXXXX"));
    let made = run(&mut command);
    match made.code {
        Some(0) => Ok(made.out.trim().into()),
        _ => Err(io::Error::other(made.err)),
    }
}

fn free_kib(dir: &Path) -> u64 {
    let told = run(Command::new("df").args(["--output=avail", "-k"]).arg(dir));
    told.out.lines().last().and_then(|line| line.trim().parse().ok()).unwrap_or(0)
}

/// `args` with the directory `run` of a new work directory as `--dir`, unless they name one.
pub fn with_dir(
    mut args: Vec<String>,
    new: impl FnOnce() -> io::Result<WorkDir>,
) -> io::Result<(Vec<String>, Option<WorkDir>)> {
    if args.iter().any(|arg| arg == "--dir") {
        return Ok((args, None));
    }
    let work = new()?;
    args.extend(["--dir".into(), work.run().to_string_lossy().into_owned()]);
    Ok((args, Some(work)))
}

/// The process whose turn it is.
pub enum Turn {
    /// This one, in that directory.
    Ours(WorkDir),
    /// None any more: the program ran a second time, in memory, and ended like this.
    Ended(ExitCode),
}

/// Tells a program that runs in a file system in memory where that is.
const VARIABLE: &str = "SLUICE_RUN_DIR";
const NEEDED_KIB: u64 = 6 << 20;
const MOUNT: &str = r#"mount -t tmpfs -o size=5g tmpfs "$0" && exec "$@""#;

/// A file system of its own in memory for this program, if the machine has the memory and lets us mount
/// it: runs the program once more, in a mount namespace that ends with it. Not in /dev/shm: there InnoDB
/// takes its log for persistent memory, which has no syncs.
pub fn on_tmpfs(name: &str) -> io::Result<Turn> {
    if let Some(dir) = std::env::var_os(VARIABLE) {
        return Ok(Turn::Ours(WorkDir { path: dir.into(), janitor: None }));
    }
    let work = WorkDir::new(name)?;
    let can_mount = || run(unshare(&work.path).arg("true")).code == Some(0);
    if available_kib() < NEEDED_KIB || !can_mount() {
        println!(
            "{name}: no file system in memory (no right to mount one, or less than 6 GiB free): \
             slower, in {}",
            work.path.display()
        );
        return Ok(Turn::Ours(work));
    }
    let mut again = unshare(&work.path);
    again.arg(std::env::current_exe()?).args(std::env::args_os().skip(1));
    again.env(VARIABLE, &work.path);
    die_with_parent(&mut again);
    let code = again.status()?.code().and_then(|code| u8::try_from(code).ok());
    Ok(Turn::Ended(code.map_or(ExitCode::FAILURE, ExitCode::from)))
}

/// Runs a command in a mount namespace with a file system in memory on `dir`.
fn unshare(dir: &Path) -> Command {
    let mut command = Command::new("unshare");
    command.arg("--mount");
    if !is_root() {
        command.arg("--map-root-user");
    }
    command.args(["sh", "-c", MOUNT]).arg(dir);
    command
}

fn available_kib() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_work_directory_goes_unless_it_is_kept() {
        let work = WorkDir::new("place-test").unwrap();
        let gone = work.run();
        fs::create_dir(&gone).unwrap();
        drop(work);
        assert!(!gone.parent().unwrap().exists());

        let work = WorkDir::new("place-test").unwrap();
        fs::create_dir(work.run()).unwrap();
        let kept = work.keep().unwrap();
        assert!(kept.is_dir());
        fs::remove_dir_all(kept.parent().unwrap()).unwrap();
    }

    #[test]
    fn a_directory_without_a_janitor_is_kept_as_a_copy() {
        let outer = WorkDir::new("place-test").unwrap();
        fs::create_dir(outer.run()).unwrap();
        let inner = WorkDir { path: outer.path.clone(), janitor: None };
        let kept = inner.keep().unwrap();
        assert!(kept.is_dir() && !kept.starts_with(&outer.path));
        fs::remove_dir_all(kept.parent().unwrap()).unwrap();
    }

    #[test]
    fn a_directory_that_is_named_is_taken() {
        let named = ["--dir", "/d"].map(String::from).to_vec();
        let (args, work) = with_dir(named, || unreachable!("no other one")).unwrap();
        assert!(args == ["--dir", "/d"] && work.is_none());
        let (args, work) = with_dir(vec!["run".into()], || WorkDir::new("place-test")).unwrap();
        assert_eq!(args[1..], ["--dir".to_owned(), work.unwrap().run().display().to_string()]);
    }
}
