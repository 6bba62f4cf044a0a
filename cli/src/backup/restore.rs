//! `sluice restore`: a data directory made of a backup.
//!
//! Everything goes to a directory inside of the target first: each file by its checksums, and then the
//! engine is recovered there. If the user asks for it, a private server applies binary logs, or makes a
//! replica (`finish`). Only then its parts get their places, the schema `mysql` last: without it no server
//! starts.

use super::files;
use super::finish::{Finish, Plan};
use super::make::{verify, ENGINE};
use super::manifest::{Listed, Manifest, Piece, DATA};
use super::pace::{self, Pace};
use super::stream;
use crate::Result;
use sluice_engine::base::checksum::checksum;
use sluice_engine::base::Error;
use sluice_engine::db::backup::{key_id, settle, Settled};
use sluice_engine::db::{Encryption, Geometry, Host, Keys, Level};
use sluice_engine::os::{OpenMode, Os, RealOs};
use std::fs::{self, File};
use std::os::unix::fs::{chown, FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const STAGE: &str = "sluice-restore.tmp";
/// Files of programs that help.
const WORK: &str = "sluice-restore.work";
const LAST: &str = "mysql";
const BUFFER_BYTES: usize = 1 << 20;

/// Where the backup is.
pub enum Source {
    Dir(PathBuf),
    /// A stream in a file, or on standard input.
    Stream(Option<PathBuf>),
}

impl Source {
    pub fn of(path: &Path) -> Source {
        match path {
            path if path == Path::new("-") => Source::Stream(None),
            path if path.is_file() => Source::Stream(Some(path.to_owned())),
            path => Source::Dir(path.to_owned()),
        }
    }
}

pub struct Options {
    pub finish: Finish,
    /// Verify pages and tables that come by a stream: nobody has done that before.
    pub verifies: bool,
    /// Of an encrypted backup.
    pub keys: Option<Arc<dyn Keys>>,
}

pub fn run(from: &Source, to: &Path, options: &Options) -> Result<()> {
    match from {
        Source::Dir(from) => {
            let manifest = Manifest::read(from)?;
            let source = from.join(DATA);
            manifest.files.iter().try_for_each(|file| check_size(&source, file))?;
            // What cannot be done is refused before anything is written.
            let mut plan = options.finish.plan(&manifest)?;
            restore(to, &options.keys, &mut |stage| {
                fill(&manifest, &source, stage)?;
                Ok((manifest.clone(), plan.take()))
            })
        }
        Source::Stream(path) => restore(to, &options.keys, &mut |stage| {
            let manifest = unpack(path.as_deref(), stage)?;
            let plan = options.finish.plan(&manifest)?;
            if options.verifies {
                pace::phase("verifying the copy");
                verify(&stage.join(ENGINE), options.keys.clone())?;
            }
            Ok((manifest, plan))
        }),
    }
}

/// Puts the files into a directory. Answers their list, and what else is to be done.
type Fill<'a> = dyn FnMut(&Path) -> Result<(Manifest, Option<Plan>)> + 'a;

fn restore(to: &Path, keys: &Option<Arc<dyn Keys>>, fill: &mut Fill<'_>) -> Result<()> {
    files::take_empty_dir(to)?;
    let (stage, work) = (to.join(STAGE), to.join(WORK));
    files::make_dir(&stage)?;
    let staged = fill(&stage).and_then(|(manifest, plan)| {
        let settled = recover(&stage, keys.clone())?;
        if let Some(plan) = &plan {
            plan.run(&manifest, &stage, &work)?;
        }
        let _ = fs::remove_dir_all(&work);
        place(&stage, to)?;
        Ok((manifest, plan, settled))
    });
    let _ = fs::remove_dir_all(&work);
    if staged.is_err() {
        let _ = fs::remove_dir_all(&stage);
    }
    let (manifest, plan, settled) = staged?;
    say(&manifest, &settled, plan.as_ref(), to);
    Ok(())
}

fn unpack(path: Option<&Path>, stage: &Path) -> Result<Manifest> {
    let mut pace = Pace::new("restoring files", 0, None);
    match path {
        None => stream::unpack(std::io::stdin().lock(), stage, &mut pace),
        Some(path) => {
            let file =
                File::open(path).map_err(|e| format!("cannot read {}: {e}", path.display()))?;
            stream::unpack(file, stage, &mut pace)
        }
    }
}

fn check_size(source: &Path, file: &Listed) -> Result<()> {
    let path = source.join(&file.name);
    let found = fs::metadata(&path);
    let found = found.map_err(|e| format!("the backup is damaged: {}: {e}", path.display()))?;
    match found.len() == file.bytes {
        true => Ok(()),
        false => Err(format!(
            "the backup is damaged: {} has {} bytes, not {}",
            path.display(),
            found.len(),
            file.bytes
        )),
    }
}

fn fill(manifest: &Manifest, source: &Path, stage: &Path) -> Result<()> {
    let os = RealOs::new();
    let mut pace = Pace::new("restoring files", manifest.bytes(), None);
    manifest.files.iter().try_for_each(|file| copy(&*os, file, source, stage, &mut pace))
}

fn recover(stage: &Path, keys: Option<Arc<dyn Keys>>) -> Result<Settled> {
    pace::phase("recovering the engine");
    let keeps = |name: &str| has_definition(stage, name);
    let dir = stage.join(ENGINE);
    let (os, words) = (RealOs::new(), Arc::new(Words));
    // What the restore writes is as what it was given.
    let writes_under = key_id(&*os, &dir);
    let encryption = keys.map(|keys| Encryption { keys, writes_under });
    let settled = settle(os, &dir, Geometry::default(), words, encryption, &keeps);
    let settled = settled.map_err(|e| format!("the backup cannot be recovered: {e}"))?;
    let _ = fs::remove_file(dir.join("lock"));
    Ok(settled)
}

/// Does a definition of the table lie beside? One that the server had under way has none.
fn has_definition(stage: &Path, name: &str) -> bool {
    let table = name.split_once('/').map_or("", |(_, table)| table);
    // A partition is a table of its own; a name of a user has no `#` in a file's name.
    let whole = match table.strip_prefix('#') {
        Some(_) => name,
        None => name.split('#').next().unwrap_or(name),
    };
    name.contains('/') && stage.join(format!("{whole}.frm")).exists()
}

/// Takes the engine's messages while it recovers.
struct Words;

impl Host for Words {
    fn log(&self, level: Level, message: &str) {
        if level != Level::Note {
            eprintln!("sluice: {message}");
        }
    }

    fn lock_wait(&self, _waiter_session: u64, _holder_session: u64) {}
}

fn copy(os: &dyn Os, file: &Listed, from: &Path, to: &Path, pace: &mut Pace) -> Result<()> {
    let (path, target) = (from.join(&file.name), to.join(&file.name));
    if let Some(dir) = target.parent() {
        files::make_dir(dir)?;
    }
    let source = File::open(&path).map_err(|e| format!("cannot read {}: {e}", path.display()))?;
    let plain = |e: Error| match e {
        Error::Full { .. } => format!("{}: the disk is full", target.display()),
        Error::Interrupted => "stopped: nothing is restored".into(),
        other => other.to_string(),
    };
    let made = os.open(&target, OpenMode { create: true, direct: false }).map_err(plain)?;
    // Also what lies between the pieces: the engine relies on it.
    if file.bytes > 0 {
        made.allocate(file.bytes).map_err(plain)?;
    }
    let mut buffer = vec![0; BUFFER_BYTES];
    for Piece { offset, bytes, check } in &file.pieces {
        let (mut done, mut found) = (0, 0);
        while done < *bytes {
            let piece = &mut buffer[..(bytes - done).min(BUFFER_BYTES as u64) as usize];
            let read = source.read_exact_at(piece, offset + done);
            read.map_err(|e| format!("cannot read {}: {e}", path.display()))?;
            found = checksum(found, piece);
            made.write_at(piece, offset + done).map_err(plain)?;
            done += piece.len() as u64;
            pace.step(piece.len() as u64).map_err(plain)?;
        }
        if found != *check {
            return Err(format!(
                "the backup is damaged: {} has a wrong checksum at offset {offset}",
                path.display()
            ));
        }
    }
    made.sync().map_err(plain)
}

/// All of it is there: it gets its names in the data directory, and belongs to whom that belongs.
fn place(stage: &Path, to: &Path) -> Result<()> {
    let owner = fs::metadata(to).map_err(|e| format!("cannot look at {}: {e}", to.display()))?;
    settle_owner(stage, (owner.uid(), owner.gid()))?;
    let mut entries = files::list(stage)?;
    if !entries.iter().any(|path| path.ends_with(LAST)) {
        return Err(format!("the backup has no schema {LAST}"));
    }
    entries.sort_by_key(|path| path.ends_with(LAST));
    for path in entries {
        if path.ends_with(LAST) {
            files::sync(to)?;
        }
        let target = to.join(path.file_name().unwrap_or_default());
        let renamed = fs::rename(&path, &target);
        renamed.map_err(|e| format!("cannot rename {}: {e}", path.display()))?;
    }
    fs::remove_dir(stage).map_err(|e| format!("cannot remove {}: {e}", stage.display()))?;
    files::sync(to)
}

/// Directories durable, and all with this owner.
fn settle_owner(dir: &Path, owner: (u32, u32)) -> Result<()> {
    let own = |path: &PathBuf| {
        let is = fs::symlink_metadata(path).map(|meta| (meta.uid(), meta.gid()));
        let set = match is {
            Ok(is) if is == owner => Ok(()),
            _ => chown(path, Some(owner.0), Some(owner.1)),
        };
        set.map_err(|e| format!("cannot give {} its owner: {e}", path.display()))
    };
    for path in files::list(dir)? {
        own(&path)?;
        if path.is_dir() {
            settle_owner(&path, owner)?;
        }
    }
    files::sync(dir)
}

fn say(manifest: &Manifest, settled: &Settled, plan: Option<&Plan>, to: &Path) {
    let tables = settled.tables.len();
    report!("{} is a data directory with {tables} Sluice tables", to.display());
    match plan {
        Some(plan) => plan.say(manifest),
        None => say_next(manifest),
    }
    if settled.prepared > 0 {
        report!("{} XA transactions are prepared: see XA RECOVER", settled.prepared);
    }
    if settled.rolled_back > 0 {
        report!(
            "{} transactions that were not in the binary log are rolled back",
            settled.rolled_back
        );
    }
    let user = |name: &&String| name.contains('/');
    settled
        .dropped
        .iter()
        .filter(user)
        .for_each(|name| report!("without a definition, dropped: {name}"));
    // The private server of a plan has made those of `mysql` anew.
    let is_missing = |name: &&str| plan.is_none() || !name.starts_with("mysql.");
    let missing = manifest.facts_of("not_copied").filter(is_missing);
    missing.for_each(|name| report!("not in the backup: {name}"));
}

/// Without a private server, the user makes the tables that are missing.
fn say_next(manifest: &Manifest) {
    let version = manifest.fact("server_version").unwrap_or("the same release");
    report!("Start a server of {version} in it, run mariadb-upgrade, and start the server again:");
    report!(
        "only then does it have InnoDB's tables in mysql, and only then may it become a replica"
    );
    manifest.positions().for_each(|(name, value)| report!("{name} {value}"));
}
