//! One seed: a machine that loses power again and again, and an engine on it that several
//! sessions use in turn. Every loss of power is followed by a recovery, which may lose power too,
//! and by a comparison of all that is there with the model.

use crate::model::{Changes, Row, Rows, State, IDS};
use sluice_engine::base::{Error, Result};
use sluice_engine::db::{
    Config, Cursor, Direction, Engine, Geometry, IndexSpec, NoHost, ReadMode, Savepoint, Table,
    TableSpec, Trx, WaitPolicy,
};
use sluice_engine::os::sim::{Fault, SimOs, SimRng};
use sluice_engine::os::Os;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

const LIVES: usize = 6;
const SESSIONS: usize = 4;
const TABLES: u64 = 3;
const CALLS_PER_LIFE: u64 = 500;
const CALLS_PER_RECOVERY: u64 = 60;

fn open(os: &Arc<SimOs>) -> Result<Arc<Engine>> {
    let mut config = Config::new("/data");
    config.background = false;
    config.buffer_pool_bytes = 1 << 20;
    config.log_capacity_bytes = 512 << 10;
    let geometry = Geometry {
        log_segment_bytes: 64 << 10,
        log_cache_bytes: 256 << 10,
        store_segment_bytes: 64 << 10,
    };
    Engine::open_with(Arc::clone(os) as Arc<dyn Os>, config, geometry, Arc::new(NoHost))
}

fn spec() -> TableSpec {
    let index = |unique| IndexSpec { unique };
    let indexes = vec![index(true), index(false), index(true)];
    TableSpec { indexes, definition: b"sim".to_vec(), autoinc_start: 1, compression: None }
}

/// Power is off: what was under way is in doubt.
struct PowerOff;

type Step = std::result::Result<(), PowerOff>;

struct Session {
    trx: Trx,
    changes: Changes,
    xid: Option<Vec<u8>>,
}

/// A snapshot and what it must show: rows of tables by name and id.
struct Reader {
    trx: Trx,
    seen: BTreeMap<(String, u64), Rows>,
}

struct World {
    rng: SimRng,
    os: Arc<SimOs>,
    state: State,
    /// What the state is if the call under way at the loss of power was done.
    in_doubt: Option<State>,
    power_off_at: u64,
    xids: u64,
}

/// Runs one seed; panics at the first difference.
pub fn run(seed: u64) {
    let mut world = World {
        rng: SimRng::new(seed),
        os: SimOs::new(seed),
        state: State::default(),
        in_doubt: None,
        power_off_at: u64::MAX,
        xids: 0,
    };
    for _ in 0..LIVES {
        world.life();
    }
}

impl World {
    fn life(&mut self) {
        while self.rng.chance(40) {
            self.os.fail_after(self.rng.below(CALLS_PER_RECOVERY), Fault::PowerCut);
            drop(open(&self.os));
            self.os.crash();
        }
        let engine = open(&self.os).unwrap_or_else(|e| panic!("cannot open: {e}"));
        self.settle(&engine);
        self.check(&engine);
        self.end_some_prepared(&engine);
        let after = self.rng.below(CALLS_PER_LIFE);
        self.power_off_at = self.os.mutations() + after;
        self.os.fail_after(after, Fault::PowerCut);
        let mut life = Life { sessions: Vec::new(), reader: None, engine: Arc::clone(&engine) };
        for number in 0..SESSIONS {
            let mut trx = engine.begin(number as u64 + 1);
            trx.set_lock_timeout(Duration::ZERO);
            life.sessions.push(Session { trx, changes: Changes::new(), xid: None });
        }
        while life.step(self).is_ok() {}
        drop((life, engine));
        self.os.crash();
        self.power_off_at = u64::MAX;
    }

    /// Finds out what became of the call that was under way.
    fn settle(&mut self, engine: &Arc<Engine>) {
        let Some(other) = self.in_doubt.take() else { return };
        let mut found = engine.prepared();
        found.sort();
        let is = |state: &State| {
            state.prepared.keys().eq(&found)
                && state.tables.keys().eq(&engine.table_names())
                && state.tables.iter().all(|(name, rows)| rows_of(engine, name) == payloads(rows))
        };
        if !is(&self.state) && is(&other) {
            self.state = other;
        }
    }

    fn check(&self, engine: &Arc<Engine>) {
        let mut prepared = engine.prepared();
        prepared.sort();
        assert!(self.state.prepared.keys().eq(&prepared), "prepared: {prepared:?}");
        assert!(self.state.tables.keys().eq(&engine.table_names()), "tables differ");
        for (name, rows) in &self.state.tables {
            let table = table(engine, name);
            check_rows(&mut engine.begin(99), &table, rows).expect("a scan");
        }
        for _ in 0..20 {
            engine.step().expect("background work after a recovery");
        }
        for (name, rows) in &self.state.tables {
            let table = table(engine, name);
            check_rows(&mut engine.begin(99), &table, rows).expect("a scan");
            let faults = engine
                .check_table(name, sluice_engine::db::CheckDepth::Quick, None)
                .expect("the table is there")
                .faults;
            assert!(faults.is_empty(), "{faults:?}");
        }
    }

    fn end_some_prepared(&mut self, engine: &Arc<Engine>) {
        for (xid, changes) in self.state.prepared.clone() {
            match self.rng.below(3) {
                0 => {
                    assert!(engine.commit_prepared(&xid).unwrap(), "an XID is gone");
                    self.state.commit(&changes);
                }
                1 => assert!(engine.rollback_prepared(&xid).unwrap(), "an XID is gone"),
                _ => continue,
            }
            self.state.prepared.remove(&xid);
        }
    }

    /// An error is fine only when the power is off.
    fn powered<R>(&self, outcome: Result<R>) -> std::result::Result<R, PowerOff> {
        outcome.map_err(|error| {
            let fits = matches!(error, Error::Io { .. } | Error::Poisoned { .. });
            assert!(fits && self.os.mutations() > self.power_off_at, "{error}");
            PowerOff
        })
    }

    /// A call that must be durable when it returns.
    fn durable<R>(&mut self, after: State, outcome: Result<R>) -> Step {
        match self.powered(outcome) {
            Ok(_) => self.state = after,
            Err(off) => {
                self.in_doubt = Some(after);
                return Err(off);
            }
        }
        Ok(())
    }
}

/// An engine between two losses of power.
struct Life {
    engine: Arc<Engine>,
    sessions: Vec<Session>,
    reader: Option<Reader>,
}

impl Life {
    fn step(&mut self, world: &mut World) -> Step {
        let number = world.rng.below(SESSIONS as u64) as usize;
        match world.rng.below(100) {
            0..=59 => self.row(world, number),
            60..=67 => self.nested(world, number),
            68..=79 => self.end(world, number),
            80..=82 => self.prepare(world, number),
            83..=85 => self.ddl(world),
            86..=89 => self.read(world),
            90 => world.powered(self.engine.checkpoint_now()),
            91..=95 => world.powered(self.engine.step()),
            _ => world.powered(self.engine.flush_log()),
        }
    }

    fn is_in_use(&self, world: &World, table: &str, but: Option<usize>, id: Option<u32>) -> bool {
        let own = but.and_then(|number| self.sessions[number].xid.clone());
        let sessions = self.sessions.iter().enumerate().filter(|(n, _)| Some(*n) != but);
        let prepared = world.state.prepared.iter().filter(|(xid, _)| Some(*xid) != own.as_ref());
        let mut all = sessions.map(|(_, s)| &s.changes).chain(prepared.map(|(_, c)| c));
        all.any(|c| c.keys().any(|(name, i)| name == table && id.is_none_or(|id| id == *i)))
    }

    /// One row operation, compared with what the model says.
    fn row(&mut self, world: &mut World, number: usize) -> Step {
        if self.sessions[number].xid.is_some() || world.state.tables.is_empty() {
            return Ok(());
        }
        let names: Vec<String> = world.state.tables.keys().cloned().collect();
        let name = names[world.rng.below(names.len() as u64) as usize].clone();
        let table = table(&self.engine, &name);
        let id = world.rng.below(IDS) as u32;
        let new = Row::random(&mut world.rng, id);
        let locked = self.is_in_use(world, &name, Some(number), Some(id));
        let session = &mut self.sessions[number];
        let rows = world.state.rows_with(&name, &session.changes);
        let old = rows.get(&id);
        let taken = rows.values().any(|r| r.unique == new.unique && r.id != id);
        let delete = old.is_some() && world.rng.chance(30);
        let outcome = change(&mut session.trx, &table, old, (!delete).then_some(&new), id);
        match outcome {
            Err(Error::LockTimeout) => return Ok(()),
            Err(Error::Duplicate) => assert!(taken && !delete, "no duplicate, but refused"),
            outcome => {
                world.powered(outcome)?;
                assert!(!locked, "a row of another transaction was changed");
                assert!(delete || !taken, "a duplicate went in");
                session.changes.insert((name, id), (!delete).then_some(new));
            }
        }
        Ok(())
    }

    /// Some rows, and back to the savepoint before them.
    fn nested(&mut self, world: &mut World, number: usize) -> Step {
        if self.sessions[number].xid.is_some() {
            return Ok(());
        }
        let before = self.sessions[number].changes.clone();
        let savepoint: Savepoint = self.sessions[number].trx.savepoint();
        for _ in 0..world.rng.below(4) {
            self.row(world, number)?;
        }
        world.powered(self.sessions[number].trx.rollback_to(savepoint))?;
        self.sessions[number].changes = before;
        Ok(())
    }

    fn end(&mut self, world: &mut World, number: usize) -> Step {
        let session = &mut self.sessions[number];
        let changes = std::mem::take(&mut session.changes);
        let xid = session.xid.take();
        let mut after = world.state.clone();
        if let Some(xid) = &xid {
            after.prepared.remove(xid);
        }
        if world.rng.chance(70) {
            after.commit(&changes);
            return world.durable(after, session.trx.commit(true));
        }
        session.trx.rollback();
        match xid {
            // A rollback of a prepared transaction is only sure when it is flushed.
            Some(_) => world.durable(after, self.engine.flush_log()),
            None => Ok(()),
        }
    }

    fn prepare(&mut self, world: &mut World, number: usize) -> Step {
        let session = &mut self.sessions[number];
        if session.xid.is_some() || !session.trx.has_writes() {
            return Ok(());
        }
        world.xids += 1;
        let xid = format!("xid-{}", world.xids).into_bytes();
        let mut after = world.state.clone();
        after.prepared.insert(xid.clone(), session.changes.clone());
        session.xid = Some(xid.clone());
        world.durable(after, session.trx.prepare(&xid, true))
    }

    fn ddl(&mut self, world: &mut World) -> Step {
        let name = format!("db/t{}", world.rng.below(TABLES));
        if self.is_in_use(world, &name, None, None)
            || self.sessions.iter().any(|s| s.trx.has_writes())
        {
            return Ok(());
        }
        let mut after = world.state.clone();
        let rows = after.tables.remove(&name);
        let spare =
            (0..TABLES).map(|n| format!("db/t{n}")).find(|n| !world.state.tables.contains_key(n));
        let outcome = match (rows, spare, world.rng.below(4)) {
            (None, ..) => {
                after.tables.insert(name.clone(), Rows::new());
                self.engine.create_table(&name, spec())
            }
            (Some(_), _, 0) => self.engine.drop_table(&name).map(|found| assert!(found)),
            (Some(rows), Some(to), 1) => {
                after.tables.insert(to.clone(), rows);
                self.engine.rename_table(&name, &to)
            }
            (Some(_), _, 2) => {
                after.tables.insert(name.clone(), Rows::new());
                self.engine.truncate_table(&name, 1)
            }
            _ => return Ok(()),
        };
        world.durable(after, outcome)
    }

    /// Takes a snapshot, or looks whether the one taken earlier still shows the same.
    fn read(&mut self, world: &World) -> Step {
        if let Some(mut reader) = self.reader.take() {
            for ((name, id), rows) in &reader.seen {
                let table = self.engine.table(name).ok().flatten();
                if let Some(table) = table.filter(|table| table.id() == *id) {
                    world.powered(check_rows(&mut reader.trx, &table, rows))?;
                }
            }
            return Ok(());
        }
        let mut trx = self.engine.begin(50);
        trx.open_snapshot();
        let tables = world.state.tables.iter();
        let seen = tables.map(|(n, rows)| ((n.clone(), table(&self.engine, n).id()), rows.clone()));
        self.reader = Some(Reader { trx, seen: seen.collect() });
        Ok(())
    }
}

/// Locks the row as a statement does, and changes it.
fn change(
    trx: &mut Trx,
    table: &Arc<Table>,
    old: Option<&Row>,
    new: Option<&Row>,
    id: u32,
) -> Result<()> {
    let mode = ReadMode::Lock { exclusive: true, wait: WaitPolicy::Wait };
    let mut payload = Vec::new();
    let found = trx.get(table, 0, &id.to_be_bytes(), mode, &mut payload)?;
    assert_eq!(found.then_some(payload), old.map(Row::payload), "a locked read of row {id}");
    match (old, new) {
        (None, Some(new)) => new.with(|w| trx.insert(table, w)),
        (Some(old), Some(new)) => old.with(|o| new.with(|n| trx.update(table, o, n))),
        (Some(old), None) => old.with(|w| trx.delete(table, w)),
        (None, None) => Ok(()),
    }
}

fn table(engine: &Engine, name: &str) -> Arc<Table> {
    engine.table(name).ok().flatten().unwrap_or_else(|| panic!("{name} is gone"))
}

type Entries = Vec<(Vec<u8>, Vec<u8>)>;

fn scan(trx: &mut Trx, table: &Arc<Table>, index: usize, way: Direction) -> Result<Entries> {
    let (mut cursor, all) = (Cursor::default(), Bound::Unbounded);
    trx.seek(&mut cursor, table, index, all, all, way, ReadMode::Snapshot)?;
    let mut found = Vec::new();
    while trx.next(&mut cursor)? {
        found.push((cursor.key().to_vec(), cursor.payload().to_vec()));
    }
    Ok(found)
}

fn rows_of(engine: &Arc<Engine>, name: &str) -> Entries {
    scan(&mut engine.begin(98), &table(engine, name), 0, Direction::Forward).expect("a scan")
}

fn payloads(rows: &Rows) -> Entries {
    rows.values().map(|row| (row.id.to_be_bytes().to_vec(), row.payload())).collect()
}

fn check_rows(trx: &mut Trx, table: &Arc<Table>, rows: &Rows) -> Result<()> {
    let found = scan(trx, table, 0, Direction::Forward)?;
    assert!(found == payloads(rows), "{}: {} rows, not {}", table.name(), found.len(), rows.len());
    for index in 1..3 {
        let mut keys: Vec<_> = rows.values().map(|row| row.keys()[index].clone()).collect();
        keys.sort();
        let forward = scan(trx, table, index, Direction::Forward)?;
        assert!(forward.iter().map(|e| &e.0).eq(&keys), "{} index {index}", table.name());
        let backward = scan(trx, table, index, Direction::Backward)?;
        assert!(backward.iter().rev().eq(&forward), "{} index {index} backwards", table.name());
    }
    Ok(())
}
