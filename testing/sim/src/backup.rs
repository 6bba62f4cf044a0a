//! Backups of an engine at work, each on a machine of its own, and what such a copy must hold: exactly
//! what was committed up to its end. Many are increments, laid over a backup of the same or an earlier life.

use crate::check;
use crate::operator::flushing;
use crate::world::{Life, SESSION_OF_CHECKS};
use sluice_engine::base::{Error, Lsn, Result};
use sluice_engine::db::backup::{check_increment, settle, Copied, Copying, Place, PAGES};
use sluice_engine::db::{Config, Encryption, Engine, FixedKeys, Geometry, Keys, NoHost, Scope};
use sluice_engine::os::sim::{SimOs, SimRng};
use sluice_engine::os::sync::sleep;
use sluice_engine::os::{AlignedBuf, File, OpenMode, Os};
use std::path::Path;
use std::sync::Arc;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

const COPY: &str = "/copy/sluice";
const LOG: &str = "/copy/sluice/log";
/// So many backups of 100 are increments, if there is something to rest on.
const INCREMENT_PERCENT: u64 = 60;

/// A copy that is whole.
pub struct Backup {
    machine: Arc<SimOs>,
    /// What was committed up to here is in it.
    end: Lsn,
}

#[derive(Default)]
pub struct Made {
    pub of_life: Vec<Backup>,
    /// The last one as it was copied, also if that was in an earlier life: its store, without the log.
    last: Option<Arc<SimOs>>,
}

pub type Backups = Arc<Mutex<Made>>;

/// One backup after the other, as long as others work.
pub fn back_up_again_and_again(life: &Life, made: &Backups, seed: u64) {
    let mut rng = SimRng::new(seed);
    let lock = || made.lock().unwrap_or_else(PoisonError::into_inner);
    while life.goes_on() {
        let base = lock().last.clone();
        if let Some(backup) = back_up(life, base, rng.next_u64()) {
            let last = store_of(&backup.machine).expect("a machine that is well");
            let mut made = lock();
            made.last = Some(last);
            made.of_life.push(backup);
        }
    }
}

/// Backs the engine up while others work; `None` if there came nothing of it.
fn back_up(life: &Life, base: Option<Arc<SimOs>>, seed: u64) -> Option<Backup> {
    let mut rng = SimRng::new(seed);
    let base = base.filter(|_| rng.chance(INCREMENT_PERCENT));
    rest(&mut rng, 60_000);
    let begun = life.engine.begin_backup();
    let Ok(from) = begun.map_err(|error| life.power_off(&error)) else { return None };
    if rng.chance(10) {
        let second = life.engine.begin_backup();
        assert!(matches!(second, Err(Error::Refused(_) | Error::Full { .. })), "{second:?}");
    }
    let done = copy(life, from, base.as_ref(), &mut rng);
    // Those who need the room have it at once.
    let is_kept = life.engine.is_backup_kept();
    life.engine.end_backup();
    match done {
        Ok(backup) => backup.filter(|_| is_kept),
        Err(error) => {
            let is_lost = !is_kept && !life.os().met().is_empty();
            assert!(is_lost || life.explains(&error), "the backup failed: {error}");
            None
        }
    }
}

fn rest(rng: &mut SimRng, most_us: u64) {
    sleep(Duration::from_micros(rng.below(most_us)));
}

fn copy(
    life: &Life,
    from: Place,
    base: Option<&Arc<SimOs>>,
    rng: &mut SimRng,
) -> Result<Option<Backup>> {
    let machine = SimOs::new(rng.next_u64());
    let source = Arc::clone(life.os()) as Arc<dyn Os>;
    let target = Arc::clone(&machine) as Arc<dyn Os>;
    target.create_dir(Path::new("/copy"))?;
    let (data, log) = (Path::new("/data"), Path::new("/data/log"));
    let mut copying = Copying::begin((source, data, log), (target, Path::new(COPY)), from)?;
    let mut parts = match base {
        Some(base) => copying.store_parts_since((&**base, Path::new(COPY)))?,
        None => copying.store_parts(),
    };
    while !parts.is_empty() {
        let part = parts.swap_remove(rng.below(parts.len() as u64) as usize);
        copying.copy_store_part(&part, &mut |_| Ok(()))?;
        rest(rng, 20_000);
        if rng.chance(20) {
            copying.copy_log(life.engine.log_durable().1, &mut |_| Ok(()))?;
        }
        if rng.chance(1) || life.is_dark() {
            return Ok(None);
        }
    }
    if flushing(life, Engine::flush_log).is_err() {
        return Ok(None);
    }
    let (end, place) = life.engine.log_durable();
    rest(rng, 20_000);
    copying.copy_log(place, &mut |_| Ok(()))?;
    let copied = copying.finish()?;
    Ok(Some(match base {
        Some(base) => Backup { machine: laid_over(base, &machine, &copied)?, end },
        None => Backup { machine, end },
    }))
}

fn open(os: &SimOs, name: &Path, create: bool) -> Result<Arc<dyn File>> {
    os.open(&Path::new(COPY).join(name), OpenMode { create, direct: false })
}

/// Copies bytes of a file of one machine, from the first place, to the second place of another's.
fn copy_bytes(from: &dyn File, to: &dyn File, (at, target): (u64, u64), bytes: u64) -> Result<()> {
    let mut buffer = AlignedBuf::new(bytes as usize);
    from.read_at(&mut buffer[..bytes as usize], at)?;
    to.write_at(&buffer[..bytes as usize], target)
}

fn new_machine() -> Result<Arc<SimOs>> {
    let machine = SimOs::new(0);
    ["/copy", COPY, LOG].iter().try_for_each(|dir| machine.create_dir(Path::new(dir)))?;
    Ok(machine)
}

/// What an increment needs of the copy that it rests on, apart from that one, which is opened in the end.
fn store_of(machine: &SimOs) -> Result<Arc<SimOs>> {
    let kept = new_machine()?;
    for path in machine.list(Path::new(COPY))? {
        let Some(name) = path.file_name().map(Path::new).filter(|name| *name != Path::new("log"))
        else {
            continue;
        };
        let from = open(machine, name, false)?;
        copy_bytes(&*from, &*open(&kept, name, true)?, (0, 0), from.len()?)?;
    }
    Ok(kept)
}

/// The copy that an increment is together with what it rests on.
fn laid_over(base: &SimOs, increment: &SimOs, copied: &Copied) -> Result<Arc<SimOs>> {
    increment.crash();
    check_increment(increment, Path::new(COPY), (base, Path::new(COPY)), copied)?;
    let machine = new_machine()?;
    for (name, bytes) in &copied.files {
        let (to, from) = (open(&machine, name, true)?, open(increment, name, false)?);
        if name == Path::new(PAGES) {
            let below = open(base, name, false)?;
            copy_bytes(&*below, &*to, (0, 0), below.len()?)?;
        }
        to.set_len(*bytes)?;
        let mut at = 0;
        for part in copied.parts.iter().filter(|part| part.name == *name) {
            copy_bytes(&*from, &*to, (at, part.offset), part.bytes)?;
            at += part.bytes;
        }
        to.sync()?;
    }
    [LOG, COPY, "/copy"].iter().try_for_each(|dir| machine.sync_dir(Path::new(dir)))?;
    Ok(machine)
}

impl Backup {
    /// Opens the copy, which is all on the disk, and answers what it holds and who is prepared in it.
    pub fn found(
        &self,
        geometry: Geometry,
        ids: u64,
        keys: &Option<Arc<FixedKeys>>,
        rng: &mut SimRng,
    ) -> Found {
        self.machine.crash();
        let os = || Arc::clone(&self.machine) as Arc<dyn Os>;
        let encryption = || {
            let keys = Arc::clone(keys.as_ref()?) as Arc<dyn Keys>;
            Some(Encryption { keys, writes_under: Some(1), scope: Scope::AllTables })
        };
        if rng.chance(50) {
            let settled =
                settle(os(), Path::new(COPY), geometry, Arc::new(NoHost), encryption(), &|_| true);
            settled.unwrap_or_else(|error| panic!("the backup cannot be settled: {error}"));
        }
        let mut config = Config::new(COPY);
        config.background = false;
        config.encryption = encryption();
        let opened = Engine::open_with(os(), config, geometry, Arc::new(NoHost));
        let engine = opened.unwrap_or_else(|error| panic!("the backup does not open: {error}"));
        let rows = check::everything(&engine, SESSION_OF_CHECKS, ids);
        let prepared = engine.prepared();
        engine.shutdown().expect("a shutdown of the backup");
        Found { rows, prepared, end: self.end.0 }
    }
}

pub struct Found {
    pub rows: crate::model::Found,
    pub prepared: Vec<Vec<u8>>,
    pub end: u64,
}
