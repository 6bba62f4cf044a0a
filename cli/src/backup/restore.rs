//! `sluice restore`: a data directory made of a backup.
//!
//! Everything goes to a directory inside of the target first: each file by its checksums, those of increments
//! over those of the backup (`layers`), and then the engine is recovered there. If the user asks for it, a
//! private server applies binary logs, or makes a replica (`finish`). Only then its parts get their places,
//! the schema `mysql` last: without it no server starts.

use super::files;
use super::finish::{Finish, Plan};
use super::identity;
use super::layers::{self, Layer, Layers};
use super::make::{verify, ENGINE};
use super::manifest::Manifest;
use super::owner::{self, Ids};
use super::stream;
use crate::pace::{self, Pace, PacedOs};
use crate::{signals, Result};
use sluice_engine::db::backup::{key_id, settle, Settled};
use sluice_engine::db::{Encryption, Geometry, Host, Keys, Level, Scope};
use sluice_engine::os::RealOs;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const STAGE: &str = "sluice-restore.tmp";
/// Files of programs that help.
const WORK: &str = "sluice-restore.work";
const LAST: &str = "mysql";

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
    /// Increments on the backup, in their order.
    pub increments: Vec<Source>,
    pub finish: Finish,
    /// Verify pages and tables that come by a stream or by increments: nobody has done that before.
    pub verifies: bool,
    /// Of an encrypted backup.
    pub keys: Option<Arc<dyn Keys>>,
    /// Of the directory and all in it, by name. None: that of the directory.
    pub owner: Option<String>,
}

pub fn run(from: &Source, to: &Path, options: &Options) -> Result<()> {
    match from {
        Source::Dir(from) => restore_dir(from, to, options),
        Source::Stream(_) if !options.increments.is_empty() => Err(
            "--from is a stream, on which no increment rests: it takes the directory of a backup"
                .into(),
        ),
        Source::Stream(path) => restore(to, options, &mut |stage, _| {
            let Layer { shown, manifest, .. } = unpack(path.as_deref(), stage)?;
            layers::check_full(&shown, &manifest)?;
            let plan = options.finish.plan(&manifest)?;
            verify_stage(stage, options)?;
            Ok((manifest, plan))
        }),
    }
}

fn restore_dir(from: &Path, to: &Path, options: &Options) -> Result<()> {
    let gather = |work: &Path| {
        let layer = |(number, source): (usize, &Source)| match source {
            Source::Dir(dir) => Layer::open(dir),
            Source::Stream(path) => unpack(path.as_deref(), &work.join(number.to_string())),
        };
        let increments = options.increments.iter().enumerate().map(layer);
        let layers = Layers::new(Layer::open(from)?, increments.collect::<Result<_>>()?)?;
        let plan = options.finish.plan(layers.manifest())?;
        Result::Ok((layers, plan))
    };
    // Refuses before it writes anything, unless a stream is to be unpacked.
    let is_known = options.increments.iter().all(|source| matches!(source, Source::Dir(_)));
    let mut known = is_known.then(|| gather(Path::new(""))).transpose()?;
    restore(to, options, &mut |stage, work| {
        let (layers, plan) = match known.take() {
            Some(known) => known,
            None => gather(work)?,
        };
        layers.fill(stage)?;
        if layers.has_increments() {
            verify_stage(stage, options)?;
        }
        Ok((layers.manifest().clone(), plan))
    })
}

fn verify_stage(stage: &Path, options: &Options) -> Result<()> {
    if options.verifies {
        pace::phase("verifying the copy");
        let os = PacedOs::new(Pace::new("read to verify", 0, None));
        let verified = verify(os, &stage.join(ENGINE), options.keys.clone());
        // It may take the end of its reads for damage.
        if signals::stopped() {
            return Err("stopped: nothing is restored".into());
        }
        verified?;
    }
    Ok(())
}

/// Puts the files into a directory, and files that help into another. Answers their list, and what else is
/// to be done.
type Fill<'a> = dyn FnMut(&Path, &Path) -> Result<(Manifest, Option<Plan>)> + 'a;

fn restore(to: &Path, options: &Options, fill: &mut Fill<'_>) -> Result<()> {
    let mut dirs = owner::missing(to);
    files::take_empty_dir(to)?;
    let owner = match &options.owner {
        Some(name) => {
            dirs.push(to.to_owned());
            Ids::named(name, to)?
        }
        None => Ids::of(to)?,
    };
    let (stage, work) = (to.join(STAGE), to.join(WORK));
    files::make_dir(&stage)?;
    let staged = fill(&stage, &work).and_then(|(manifest, plan)| {
        let _ = fs::remove_dir_all(&work);
        let settled = recover(&stage, options.keys.clone())?;
        if let Some(plan) = &plan {
            plan.run(&manifest, &stage, &work)?;
        }
        let _ = fs::remove_dir_all(&work);
        identity::mark(&stage, &manifest)?;
        owner.give_below(&stage)?;
        dirs.iter().try_for_each(|dir| owner.give(dir))?;
        place(&stage, to)?;
        Ok((manifest, plan, settled))
    });
    let _ = fs::remove_dir_all(&work);
    if staged.is_err() {
        let _ = fs::remove_dir_all(&stage);
    }
    let (manifest, plan, settled) = staged?;
    say(&manifest, &settled, plan.as_ref(), to);
    if owner.is_root() {
        say_of_root(to);
    }
    Ok(())
}

fn unpack(path: Option<&Path>, data: &Path) -> Result<Layer> {
    files::make_dir(data)?;
    let pace = Pace::new("restoring files", 0, None);
    let (shown, manifest) = match path {
        None => ("the stream".into(), stream::unpack(std::io::stdin().lock(), data, &pace)?),
        Some(path) => {
            let shown = path.display().to_string();
            let file = File::open(path).map_err(|e| format!("cannot read {shown}: {e}"))?;
            (shown, stream::unpack(file, data, &pace)?)
        }
    };
    Ok(Layer { shown, manifest, data: data.to_owned() })
}

fn recover(stage: &Path, keys: Option<Arc<dyn Keys>>) -> Result<Settled> {
    pace::phase("recovering the engine");
    let keeps = |name: &str| has_definition(stage, name);
    let dir = stage.join(ENGINE);
    let (os, words) = (RealOs::new(), Arc::new(Words));
    // What the restore writes is as what it was given.
    let writes_under = key_id(&*os, &dir);
    let encryption = keys.map(|keys| Encryption { keys, writes_under, scope: Scope::AllTables });
    let settled = settle(os, &dir, Geometry::default(), words, encryption, &keeps);
    let settled = settled
        .map_err(|e| format!("the backup cannot be recovered: {}", files::shown(&dir, e)))?;
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

/// All of it is there: it gets its names in the data directory.
fn place(stage: &Path, to: &Path) -> Result<()> {
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

/// A server that root starts runs as another user.
fn say_of_root(to: &Path) {
    report!(
        "All files belong to root: no server that runs as another user starts on them. For the user mysql: \
         chown -R mysql: {} (or restore with --owner mysql)",
        to.display()
    );
}
