//! Those who are no sessions: one for DDL, one for everything else that somebody asks an engine
//! for while others work.

use crate::loading;
use crate::model::{altered_definition, Ddl};
use crate::profile::{Habits, SESSIONS_MAX};
use crate::row::Row;
use crate::session::{Flow, PowerOff};
use crate::world::{Life, TABLES};
use sluice_engine::base::{Error, Result};
use sluice_engine::db::{
    take_ddl_ends, AlteredIndex, Cursor, Direction, Engine, FixedKeys, ReadMode, Wanted,
};
use sluice_engine::os::sim::{SimRng, Trouble};
use sluice_engine::os::sync::sleep;
use std::ops::Bound;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::Duration;

pub const SESSION_OF_DDL: u64 = 98;
/// So often a look at the keys makes a new version.
const NEW_KEY_PERCENT: u64 = 10;
/// So many times a table's end is tried while others use it.
const TRIES_MAX: u64 = 50;

/// Creates, drops, renames, truncates, builds indexes.
pub fn change_tables(life: &Arc<Life>, seed: u64) {
    let mut rng = SimRng::new(seed);
    while life.goes_on() && (one_ddl(life, &mut rng).is_ok() || !life.is_dark()) {
        sleep(Duration::from_micros(rng.below(30_000)));
    }
}

fn one_ddl(life: &Life, rng: &mut SimRng) -> Flow {
    if !rng.chance(life.habits.ddl_percent) {
        return Ok(());
    }
    if rng.chance(life.habits.drop_percent) {
        return drop_between_checkpoints(life, rng);
    }
    let name = format!("db/t{}", rng.below(TABLES));
    let names = life.model().names.clone();
    let spare = (0..TABLES).map(|n| format!("db/t{n}")).find(|n| !names.contains_key(n));
    let make: Box<dyn Fn(u64) -> Ddl> = match (names.contains_key(&name), spare, rng.below(5)) {
        (false, _, 0 | 1) => {
            let Habits { ids, filler_bytes, .. } = life.habits;
            let rows = Arc::new(loading::random_rows(rng, ids, filler_bytes));
            let seed = rng.next_u64();
            let load = move |key| Ddl::Load { name: name.clone(), key, rows: rows.clone(), seed };
            Box::new(load)
        }
        (false, ..) => Box::new(|key| Ddl::Create { name: name.clone(), key }),
        (true, _, 0 | 1) => Box::new(|_| Ddl::Drop { name: name.clone() }),
        (true, Some(to), 2) => {
            Box::new(move |_| Ddl::Rename { from: name.clone(), to: to.clone() })
        }
        (true, _, 3) => Box::new(|key| Ddl::Truncate { name: name.clone(), key }),
        (true, _, 4) => {
            let seed = rng.next_u64();
            Box::new(move |_| Ddl::Alter { name: name.clone(), seed })
        }
        _ => return Ok(()),
    };
    let name = match make(0) {
        Ddl::Create { name, .. }
        | Ddl::Load { name, .. }
        | Ddl::Drop { name }
        | Ddl::Truncate { name, .. }
        | Ddl::Alter { name, .. } => name,
        Ddl::Rename { from, .. } => from,
    };
    let Some(ddl) = life.model().begin_ddl(&name, make) else { return Ok(()) };
    if !wait_for_prepared(life, &name, rng)? {
        return Ok(());
    }
    trouble_ddl(life, rng);
    run_ddl(life, &ddl)?;
    if let Ddl::Alter { seed, .. } = ddl {
        let mut own = SimRng::new(seed ^ 0xA17E);
        if own.chance(35) {
            // Before anything else flushes what the statement has logged.
            life.cut_power_after(own.below(3));
            return Ok(());
        }
    }
    if rng.chance(life.habits.sudden_percent) {
        // The map without the pages of a dropped table, and a log that still tells of them.
        sleep(Duration::from_micros(rng.below(20_000)));
        flushing(life, Engine::checkpoint_map_now)?;
        life.cut_power_after(rng.below(4));
    }
    Ok(())
}

/// Pages that are in the store before the redo point, and changes of them after it; then the table
/// goes, the map forgets the pages, and the redo point stays.
fn drop_between_checkpoints(life: &Life, rng: &mut SimRng) -> Flow {
    flushing(life, Engine::checkpoint_now)?;
    sleep(Duration::from_micros(rng.below(40_000)));
    let names: Vec<String> = life.model().names.keys().cloned().collect();
    if names.is_empty() {
        return Ok(());
    }
    let name = names[rng.below(names.len() as u64) as usize].clone();
    let truncates = rng.chance(50);
    let make = |key| match truncates {
        true => Ddl::Truncate { name: name.clone(), key },
        false => Ddl::Drop { name: name.clone() },
    };
    life.model().await_table(Some(&name));
    let mut begun = None;
    for _ in 0..TRIES_MAX {
        begun = life.model().begin_ddl(&name, make);
        if begun.is_some() || !life.goes_on() {
            break;
        }
        sleep(Duration::from_micros(rng.below(2_000)));
    }
    life.model().await_table(None);
    let Some(ddl) = begun else { return Ok(()) };
    if !wait_for_prepared(life, &name, rng)? {
        return Ok(());
    }
    trouble_ddl(life, rng);
    run_ddl(life, &ddl)?;
    sleep(Duration::from_micros(rng.below(20_000)));
    flushing(life, Engine::checkpoint_map_now)?;
    if rng.chance(80) {
        life.cut_power_after(rng.below(4));
    }
    Ok(())
}

/// As a server does before a table goes, of which it has the metadata lock: a prepared transaction
/// with changes there may have no session any more. False: the statement is refused.
fn wait_for_prepared(
    life: &Life,
    name: &str,
    rng: &mut SimRng,
) -> std::result::Result<bool, PowerOff> {
    let Some(key) = life.model().names.get(name).copied() else { return Ok(true) };
    let table = life.engine.table(name).map_err(|error| life.power_off(&error))?;
    let table = table.unwrap_or_else(|| panic!("no {name}"));
    let before = life.model().perhaps_prepared_in(key);
    let mut trx = life.engine.begin(SESSION_OF_DDL);
    trx.set_lock_timeout(Duration::from_millis([0, 1, 20, 1000][rng.below(4) as usize]));
    match trx.wait_for_prepared(&table) {
        Ok(()) => {
            let open = life.model().prepared_in(key);
            assert!(open.is_empty(), "{name} is about to go beside prepared {}", open.len());
            Ok(true)
        }
        Err(Error::LockTimeout) => {
            assert!(!before.is_empty(), "DDL on {name} waits for nobody");
            life.model().ddl_refused();
            Ok(false)
        }
        Err(error) => {
            let off = life.power_off(&error);
            life.model().ddl_refused();
            Err(off)
        }
    }
}

/// Some statements meet what is wrong with a machine at its worst moment.
fn trouble_ddl(life: &Life, rng: &mut SimRng) {
    if !rng.chance(life.habits.ddl_trouble_percent) {
        return;
    }
    let trouble = match rng.below(10) {
        0 => [Trouble::Write, Trouble::Names][rng.below(2) as usize],
        1 | 2 => Trouble::Overwrite,
        3 | 4 => Trouble::OpenFiles,
        n => Trouble::Space { one_of: 1 + n % 3 },
    };
    life.suffer(trouble, 1 + rng.below(2_000_000));
}

pub fn run_ddl(life: &Life, ddl: &Ddl) -> Flow {
    let engine = &life.engine;
    let before = |name: &String| engine.table(name).ok().flatten();
    let before = match ddl {
        Ddl::Truncate { name, .. } | Ddl::Alter { name, .. } => before(name),
        _ => None,
    };
    take_ddl_ends();
    let mut loaded = None;
    let done = match ddl {
        Ddl::Create { name, key } => engine.create_table(name, life.spec(*key)),
        Ddl::Drop { name } => engine.drop_table(name).map(|found| assert!(found, "no {name}")),
        Ddl::Rename { from, to } => engine.rename_table(from, to),
        Ddl::Truncate { name, .. } => engine.truncate_table(name, 1),
        Ddl::Alter { name, seed } => alter(engine, name, *seed),
        Ddl::Load { name, rows, seed, .. } => {
            let (done, ends) = loading::load(life, name, rows, *seed);
            loaded = Some(ends);
            done
        }
    };
    life.note_promised();
    let ends = loaded.unwrap_or_else(take_ddl_ends);
    let ends: Vec<u64> = ends.into_iter().map(|end| end.0).collect();
    if let Err(error) = &done {
        let off = life.power_off(error);
        if life.is_dark() {
            // In doubt.
            return Err(off);
        }
    }
    life.model().ddl_over(&ends, done.is_ok());
    let names: Vec<String> = life.model().names.keys().cloned().collect();
    let there: Vec<_> = engine.table_names();
    let there: Vec<_> = there.into_iter().filter(|name| name != loading::COPIED).collect();
    assert_eq!(there, names, "tables after {ddl:?}, which answered {done:?}");
    if let (Ddl::Truncate { name, .. } | Ddl::Alter { name, .. }, Some(before)) = (ddl, before) {
        let now = engine.table(name).ok().flatten();
        let is_new = now.is_some_and(|now| !Arc::ptr_eq(&now, &before));
        assert_eq!(is_new, !ends.is_empty(), "{name} after {ddl:?}, which answered {done:?}");
    }
    done.map_err(|error| life.power_off(&error))
}

/// Builds secondary indexes of a table anew, in place; some statements give up in the middle.
fn alter(engine: &Arc<Engine>, name: &str, seed: u64) -> Result<()> {
    let mut rng = SimRng::new(seed);
    let table = engine.table(name)?.unwrap_or_else(|| panic!("no {name}"));
    let is_new = [rng.chance(60), rng.chance(60)];
    let index = |i: usize| match is_new[i - 1] {
        true => AlteredIndex::New { unique: i == 2 },
        false => AlteredIndex::Kept(i),
    };
    let indexes = [AlteredIndex::Kept(0), index(1), index(2)];
    let mut build = engine.alter_indexes(name, &indexes, altered_definition(seed), &|| false)?;
    let (mut trx, mut cursor) = (engine.begin(SESSION_OF_DDL), Cursor::default());
    let (all, forward) = (Bound::Unbounded, Direction::Forward);
    trx.seek(&mut cursor, &table, 0, all, all, forward, ReadMode::Snapshot)?;
    while trx.next(&mut cursor)? {
        let row = Row::parse(cursor.key(), cursor.payload(), Wanted::All);
        row.with(|write| {
            let new = (1..3).filter(|i| is_new[i - 1]).enumerate();
            new.map(|(n, i)| (n, write.entries[i]))
                .try_for_each(|(n, entry)| build.add(n, entry.key, entry.payload))
        })?;
    }
    drop(trx);
    if rng.chance(10) {
        return Ok(());
    }
    let twice = build.build(&|| false)?;
    assert!(twice.is_none(), "{name}: {twice:?}");
    match rng.chance(90) {
        true => build.commit().map(drop),
        false => Ok(()),
    }
}

/// Checkpoints of both kinds, garbage collection, flushes, kills of waiting sessions.
pub fn operate(life: &Arc<Life>, seed: u64) {
    let mut rng = SimRng::new(seed);
    while life.goes_on() && (one_order(life, &mut rng).is_ok() || !life.is_dark()) {
        sleep(Duration::from_micros(rng.below(40_000)));
    }
}

/// An order that no session needs to hear of.
pub fn look_after(engine: &Engine, rng: &mut SimRng) -> Result<()> {
    sleep(Duration::from_micros(rng.below(5_000)));
    match rng.below(6) {
        0 => engine.checkpoint_now(),
        1..=4 => engine.checkpoint_map_now(),
        _ => engine.collect_garbage(1 << 18).map(|_| ()),
    }
}

/// Keys get new versions while the engine is at work, and old ones go when it says that it needs them no more.
pub fn keep_keys(life: &Arc<Life>, keys: &FixedKeys, seed: u64) {
    let mut rng = SimRng::new(seed);
    while life.goes_on() {
        if rng.chance(NEW_KEY_PERCENT) {
            keys.newest.fetch_add(1, Ordering::Relaxed);
        }
        let status = life.engine.status();
        let oldest = status.iter().find(|(name, _)| *name == "encryption_oldest_key_version");
        let oldest = oldest.map_or(0, |value| value.1);
        if oldest > keys.oldest.fetch_max(oldest, Ordering::Relaxed) && rng.chance(50) {
            life.cut_power_after(rng.below(4));
        }
        sleep(Duration::from_micros(rng.below(20_000)));
    }
}

fn one_order(life: &Life, rng: &mut SimRng) -> Flow {
    if rng.chance(life.habits.drop_percent) {
        // No checkpoint but those around a table's end.
        return Ok(());
    }
    if rng.chance(life.habits.image_trouble_percent) {
        // Pages change meanwhile: after a write that failed, and before the next one.
        life.suffer(Trouble::Images, 1 + rng.below(20_000_000));
    }
    match rng.below(10) {
        _ if life.habits.never_flushes => flushing(life, Engine::checkpoint_map_now)?,
        0..=2 => flushing(life, Engine::checkpoint_now)?,
        3..=4 => flushing(life, Engine::checkpoint_map_now)?,
        5..=6 => {
            let done = life.engine.collect_garbage(1 << 18);
            done.map_err(|error| life.power_off(&error))?;
        }
        7..=8 => flushing(life, Engine::flush_log)?,
        _ => {
            life.engine.interrupt(1 + rng.below(SESSIONS_MAX));
            return Ok(());
        }
    }
    // What a checkpoint leaves behind shows when nothing comes after it.
    if rng.chance(life.habits.sudden_percent) {
        life.cut_power_after(rng.below(4));
    }
    Ok(())
}

/// Does what flushes the log: all that was logged before is durable then.
pub fn flushing(life: &Life, order: impl FnOnce(&Engine) -> Result<()>) -> Flow {
    let told = life.model().told_lsn();
    order(&life.engine).map_err(|error| life.power_off(&error))?;
    life.model().durable_up_to(told);
    Ok(())
}

impl Life {
    /// An error is fine only if something explains it.
    #[track_caller]
    pub fn power_off(&self, error: &Error) -> PowerOff {
        assert!(self.explains(error), "{error}");
        PowerOff
    }
}
