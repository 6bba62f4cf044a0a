//! Every kind of damage to every file of a small database. A read then gives the right rows or an
//! error that names a file; never wrong ones, never fewer, never a panic. See docs/damage.md.
//!
//! `SLUICE_DAMAGE_STRIDE` (default 12): 1 tries every place, n every n-th.

use crate::base::checksum::checksum;
use crate::base::{Error, Result, BLOCK_BYTES};
use crate::db::inspect::Overlay;
use crate::db::*;
use crate::os::sim::{SimOs, SimRng};
use crate::os::{OpenMode, Os};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

pub(super) const DATA: &str = "/data";
pub(super) const TABLES: [&str; 2] = ["db/first", "db/second"];
const LOG_SEGMENT_BYTES: u64 = 64 << 10;

pub(super) type Rows = BTreeMap<u32, Vec<u8>>;
pub(super) type Files = BTreeMap<PathBuf, Vec<u8>>;

/// Rows of each table.
pub(super) type Contents = BTreeMap<&'static str, Rows>;

#[derive(Default)]
pub(super) struct Listener(pub Mutex<Vec<String>>);

impl Host for Listener {
    fn log(&self, level: Level, message: &str) {
        if level == Level::Error {
            self.0.lock().unwrap().push(message.to_owned());
        }
    }

    fn lock_wait(&self, _waiter_session: u64, _holder_session: u64) {}
}

pub(super) fn open_with(os: Arc<dyn Os>, host: Arc<dyn Host>) -> Result<Arc<Engine>> {
    let mut config = Config::new(DATA);
    config.background = false;
    config.buffer_pool_bytes = 1 << 20;
    config.log_capacity_bytes = 512 << 10;
    let geometry = geometry();
    Engine::open_with(os, config, geometry, host)
}

pub(super) fn geometry() -> Geometry {
    Geometry {
        log_segment_bytes: LOG_SEGMENT_BYTES,
        log_cache_bytes: 64 << 10,
        store_segment_bytes: 64 << 10,
    }
}

fn images(id: u32, body: &[u8]) -> [(Vec<u8>, Vec<u8>); 3] {
    let id = id.to_be_bytes();
    let plain = [&body[..1], &id].concat();
    let unique = [b"u", &id[..]].concat();
    let named = [&[4][..], &id].concat();
    [(id.to_vec(), body.to_vec()), (plain, Vec::new()), (unique, named)]
}

pub(super) fn with_row<R>(id: u32, body: &[u8], f: impl FnOnce(&RowWrite<'_>) -> R) -> R {
    let images = images(id, body);
    let entry =
        |i: usize, unique| Entry { key: &images[i].0, payload: &images[i].1, parts: &[], unique };
    f(&RowWrite { entries: &[entry(0, true), entry(1, false), entry(2, true)] })
}

fn body(rng: &mut SimRng) -> Vec<u8> {
    let len = match rng.below(40) {
        0 => 9_000 + rng.below(9_000),
        1..=4 => 500 + rng.below(2000),
        _ => 1 + rng.below(150),
    };
    let seed = rng.next_u64();
    (0..len).map(|i| (seed.wrapping_mul(i + 7) >> 32) as u8).collect()
}

pub(super) fn spec(name: &str) -> TableSpec {
    let index = |unique| IndexSpec { unique };
    TableSpec {
        indexes: vec![index(true), index(false), index(true)],
        definition: name.as_bytes().to_vec(),
        autoinc_start: 1,
        compression: None,
        is_encrypted: false,
    }
}

/// A database that ended in one way or another, as bytes of files.
struct Db {
    files: Files,
    /// An earlier checkpoint of it.
    older: Files,
    contents: Contents,
    /// Without the last committed transaction.
    before_last: Contents,
    /// Bytes of the log that hold nothing but the last flush.
    last_flush: std::ops::Range<u64>,
}

pub(super) fn read_files(os: &SimOs) -> Files {
    let mut files = Files::new();
    for dir in ["/data", "/data/log"] {
        for path in os.list(Path::new(dir)).unwrap() {
            let file = os.open(&path, OpenMode::default()).unwrap();
            let mut bytes = vec![0; file.len().unwrap() as usize];
            file.read_at(&mut bytes, 0).unwrap();
            files.insert(path, bytes);
        }
    }
    files
}

pub(super) fn machine_with(files: &Files) -> Arc<SimOs> {
    let os = SimOs::new(1);
    os.create_dir(Path::new("/data")).unwrap();
    os.create_dir(Path::new("/data/log")).unwrap();
    for (path, bytes) in files {
        let file = os.open(path, OpenMode { create: true, direct: false }).unwrap();
        file.write_at(bytes, 0).unwrap();
    }
    os
}

pub(super) struct Writer {
    pub engine: Arc<Engine>,
    pub rng: SimRng,
    pub contents: Contents,
}

impl Writer {
    /// A new database with two empty tables.
    pub fn new(os: &Arc<SimOs>, seed: u64) -> Writer {
        let engine = open_with(os.clone(), Arc::new(NoHost)).unwrap();
        for name in TABLES {
            engine.create_table(name, spec(name)).unwrap();
        }
        Writer { engine, rng: SimRng::new(seed), contents: Contents::new() }
    }

    /// A committed transaction that inserts, changes and deletes rows of one table.
    pub fn transaction(&mut self, name: &'static str, changes: usize) {
        let table = self.engine.table(name).unwrap().unwrap();
        let mut trx = self.engine.begin(1);
        let rows = self.contents.entry(name).or_default();
        for _ in 0..changes {
            let id = self.rng.below(160) as u32;
            let new = body(&mut self.rng);
            trx.statement_start();
            match rows.get(&id) {
                None => {
                    with_row(id, &new, |row| trx.insert(&table, row)).unwrap();
                    rows.insert(id, new);
                }
                Some(old) if self.rng.chance(25) => {
                    with_row(id, old, |row| trx.delete(&table, row)).unwrap();
                    rows.remove(&id);
                }
                Some(old) => {
                    let done =
                        with_row(id, old, |a| with_row(id, &new, |b| trx.update(&table, a, b)));
                    done.unwrap();
                    rows.insert(id, new);
                }
            }
        }
        trx.commit(true).unwrap();
    }

    /// Writes that do not become visible.
    pub fn unfinished(&mut self, name: &'static str, session: u64) -> Trx {
        let table = self.engine.table(name).unwrap().unwrap();
        let mut trx = self.engine.begin(session);
        for id in 1000 * session as u32..1000 * session as u32 + 20 {
            let new = body(&mut self.rng);
            trx.statement_start();
            with_row(id, &new, |row| trx.insert(&table, row)).unwrap();
        }
        trx
    }
}

impl Db {
    fn new(seed: u64, clean: bool) -> Db {
        let os = SimOs::new(seed);
        let mut w = Writer::new(&os, seed);
        for round in 0..30 {
            w.transaction(TABLES[round % 2], 8);
        }
        w.engine.checkpoint_now().unwrap();
        let older = read_files(&os);
        for round in 0..20 {
            w.transaction(TABLES[round % 2], 5);
            if round % 7 == 3 {
                w.engine.checkpoint_now().unwrap();
            }
        }
        let aborted = w.unfinished(TABLES[0], 5);
        if clean {
            drop(aborted);
            w.engine.step().unwrap();
            w.engine.shutdown().unwrap();
            let (files, contents) = (read_files(&os), w.contents);
            let before_last = contents.clone();
            return Db { files, older, contents, before_last, last_flush: 0..0 };
        }
        let mut rolled_back = w.unfinished(TABLES[1], 6);
        rolled_back.rollback();
        for round in 0..6 {
            w.transaction(TABLES[round % 2], 3);
        }
        w.engine.flush_log().unwrap();
        let before_last = w.contents.clone();
        let from = w.engine.wal.end().0;
        w.transaction(TABLES[0], 2);
        let (files, to) = (read_files(&os), w.engine.wal.end().0);
        std::mem::forget(aborted);
        Db { files, older, contents: w.contents, before_last, last_flush: from..to }
    }

    /// Whether `range` of `path` touches the last flush: nothing can tell its loss from a crash.
    fn is_last_flush(&self, path: &Path, range: &std::ops::Range<u64>) -> bool {
        let Some(number) = segment_number(path) else { return false };
        let base = number * LOG_SEGMENT_BYTES;
        let block = BLOCK_BYTES as u64;
        let end = base + range.end.saturating_sub(block);
        let start = base + range.start.saturating_sub(block);
        start < self.last_flush.end && self.last_flush.start < end
    }
}

fn segment_number(path: &Path) -> Option<u64> {
    path.file_name()?.to_str()?.strip_suffix(".log")?.parse().ok()
}

/// One way to damage one file.
struct Case {
    what: String,
    path: PathBuf,
    /// Bytes that are not what they were.
    range: std::ops::Range<u64>,
    damage: Damage,
}

enum Damage {
    /// The file has these bytes instead.
    Bytes(Vec<u8>),
    Write(u64, Vec<u8>),
    Length(u64),
    Delete,
    Swap(PathBuf),
}

fn replace(os: &dyn Os, path: &Path, bytes: &[u8]) {
    if os.exists(path).unwrap() {
        os.remove(path).unwrap();
    }
    let file = os.open(path, OpenMode { create: true, direct: false }).unwrap();
    file.write_at(bytes, 0).unwrap();
}

impl Case {
    fn apply(&self, os: &dyn Os, db: &Db) {
        match &self.damage {
            Damage::Bytes(bytes) => replace(os, &self.path, bytes),
            Damage::Write(at, bytes) => {
                os.open(&self.path, OpenMode::default()).unwrap().write_at(bytes, *at).unwrap();
            }
            Damage::Length(len) => {
                os.open(&self.path, OpenMode::default()).unwrap().set_len(*len).unwrap();
            }
            Damage::Delete => os.remove(&self.path).unwrap(),
            Damage::Swap(other) => {
                replace(os, &self.path, &db.files[other]);
                replace(os, other, &db.files[&self.path]);
            }
        }
    }
}

/// Collects cases; most kinds are tried at every n-th place only.
struct Cases {
    stride: usize,
    turn: usize,
    all: Vec<Case>,
}

impl Cases {
    fn add(&mut self, what: String, path: &Path, range: std::ops::Range<u64>, damage: Damage) {
        self.all.push(Case { what, path: path.to_owned(), range, damage });
    }

    fn is_due(&mut self) -> bool {
        self.turn += 1;
        self.turn % self.stride == 0
    }

    fn flip(&mut self, path: &Path, bytes: &[u8], at: usize, bit: u8) {
        let new = vec![bytes[at] ^ 1 << bit];
        let range = at as u64..at as u64 + 1;
        self.add(format!("bit {bit} of byte {at}"), path, range, Damage::Write(at as u64, new));
    }

    fn of_file(&mut self, db: &Db, foreign: &Db, path: &Path, rng: &mut SimRng) {
        let bytes = &db.files[path];
        let whole = 0..bytes.len() as u64;
        self.add("deleted".into(), path, whole.clone(), Damage::Delete);
        self.add("emptied".into(), path, whole.clone(), Damage::Length(0));
        if let Some(other) = foreign.files.get(path) {
            let damage = Damage::Bytes(other.clone());
            self.add("of another database".into(), path, whole.clone(), damage);
        }
        if let Some(older) = db.older.get(path).filter(|older| *older != bytes) {
            self.add("an older copy".into(), path, whole.clone(), Damage::Bytes(older.clone()));
        }
        for other in db.files.keys().filter(|other| *other > path) {
            let what = format!("swapped with {}", other.display());
            self.add(what, path, whole.clone(), Damage::Swap(other.clone()));
        }
        self.blocks(db, path, rng);
        let len = bytes.len() as u64;
        for cut in [1, 511, 512, 4095, 4096, 4097, len / 2, len.saturating_sub(1)] {
            if cut < len {
                self.add(format!("cut to {cut}"), path, cut..len, Damage::Length(cut));
            }
        }
        self.add("a block longer".into(), path, len..len, Damage::Length(len + 4096));
    }

    fn blocks(&mut self, db: &Db, path: &Path, rng: &mut SimRng) {
        let bytes = &db.files[path];
        let count = bytes.len() / BLOCK_BYTES;
        // Headers byte by byte.
        for at in (0..bytes.len().min(2 * BLOCK_BYTES)).filter(|at| at % BLOCK_BYTES < 96) {
            if at % 16 == 0 || self.is_due() {
                self.flip(path, bytes, at, rng.below(8) as u8);
            }
        }
        for block in 0..count {
            let from = block * BLOCK_BYTES;
            let range = from as u64..(from + BLOCK_BYTES) as u64;
            let old = &bytes[from..from + BLOCK_BYTES];
            for class in 0..3 {
                let at = from + [rng.below(40), 40 + rng.below(4000), 4095][class] as usize;
                if self.is_due() {
                    self.flip(path, bytes, at, rng.below(8) as u8);
                }
            }
            if old.iter().any(|&b| b != 0) && self.is_due() {
                let zeros = Damage::Write(from as u64, vec![0; BLOCK_BYTES]);
                self.add(format!("block {block} zeroed"), path, range.clone(), zeros);
            }
            let to = rng.below(count as u64) as usize * BLOCK_BYTES;
            if to != from && bytes[to..to + BLOCK_BYTES] != *old && self.is_due() {
                let damage = Damage::Write(to as u64, old.to_vec());
                let range = to as u64..(to + BLOCK_BYTES) as u64;
                let what = format!("block {block} written at {to}");
                self.add(what, path, range, damage);
            }
            let before = db.older.get(path).and_then(|older| older.get(from..from + BLOCK_BYTES));
            if let Some(before) = before.filter(|before| *before != old) {
                if self.is_due() {
                    let damage = Damage::Write(from as u64, before.to_vec());
                    self.add(format!("lost write of block {block}"), path, range.clone(), damage);
                }
            }
            let end = range.end;
            if self.is_due() {
                let range = end..bytes.len() as u64;
                self.add(format!("cut to {end}"), path, range, Damage::Length(end));
            }
        }
    }
}

/// What a case led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    Right,
    LastFlushLost,
    SomeErrors,
    Refused,
}

fn names_a_file(error: &Error) -> bool {
    error.to_string().contains(DATA)
}

/// Reads a table through one index; the content, or an error.
pub(super) fn scan(
    engine: &Arc<Engine>,
    table: &Arc<Table>,
    index: usize,
) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut trx = engine.begin(9);
    let mut cursor = Cursor::default();
    let all = Bound::Unbounded;
    trx.seek(&mut cursor, table, index, all, all, Direction::Forward, ReadMode::Snapshot)?;
    let mut out = Vec::new();
    while trx.next(&mut cursor)? {
        out.push((cursor.key().to_vec(), cursor.payload().to_vec()));
    }
    Ok(out)
}

pub(super) fn expected(rows: &Rows, index: usize) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut all: Vec<_> = rows.iter().map(|(&id, body)| images(id, body)[index].clone()).collect();
    all.sort();
    all
}

/// Everything that can be read, against what must be read.
fn judge(engine: &Arc<Engine>, contents: &Contents) -> std::result::Result<Outcome, String> {
    let mut outcome = Outcome::Right;
    for (name, rows) in contents {
        let table = engine.table(name).map_err(|e| e.to_string())?;
        let table = table.ok_or(format!("table {name} is gone"))?;
        for index in 0..3 {
            match scan(engine, &table, index) {
                Ok(found) if found == expected(rows, index) => {}
                Ok(found) => {
                    let (have, want) = (found.len(), rows.len());
                    return Err(format!(
                        "{name} index {index}: {have} entries, not {want}, or wrong"
                    ));
                }
                Err(error) if names_a_file(&error) => outcome = Outcome::SomeErrors,
                Err(error) => return Err(format!("{name} index {index}: no file in: {error}")),
            }
        }
        for (&id, body) in rows.iter().step_by(9) {
            let mut payload = Vec::new();
            let mut trx = engine.begin(9);
            let key = id.to_be_bytes();
            match trx.get(&table, 0, &key, ReadMode::Snapshot, &mut payload) {
                Ok(true) if payload == *body => {}
                Ok(_) => return Err(format!("{name}: row {id} is wrong or gone")),
                Err(error) if names_a_file(&error) => outcome = Outcome::SomeErrors,
                Err(error) => return Err(format!("{name} row {id}: no file in: {error}")),
            }
        }
    }
    Ok(outcome)
}

fn judge_either(
    engine: &Arc<Engine>,
    db: &Db,
    lossy: bool,
) -> std::result::Result<Outcome, String> {
    match judge(engine, &db.contents) {
        Err(_) if lossy => judge(engine, &db.before_last).map(|_| Outcome::LastFlushLost),
        other => other,
    }
}

/// Opens, reads, works in the background, checkpoints, opens again, reads.
fn try_case(os: Arc<dyn Os>, db: &Db, lossy: bool) -> std::result::Result<Outcome, String> {
    let mut outcome = Outcome::Right;
    for life in 0..2 {
        let engine = match open_with(Arc::clone(&os), Arc::new(Listener::default())) {
            Ok(engine) => engine,
            Err(error) if names_a_file(&error) => return Ok(Outcome::Refused.max(outcome)),
            Err(error) => return Err(format!("life {life}: no file in: {error}")),
        };
        let context = |why| format!("life {life}: {why}");
        outcome = outcome.max(judge_either(&engine, db, lossy).map_err(context)?);
        for _ in 0..3 {
            // A step that damage stops reports it; the rest goes on.
            let _ = engine.step();
        }
        outcome = outcome.max(judge_either(&engine, db, lossy).map_err(context)?);
        let _ = engine.checkpoint_now();
    }
    Ok(outcome)
}

fn run(seed: u64, clean: bool) -> BTreeMap<Outcome, usize> {
    let stride = std::env::var("SLUICE_DAMAGE_STRIDE").ok().and_then(|s| s.parse().ok());
    let (db, foreign) = (Db::new(seed, clean), Db::new(seed + 1000, clean));
    let mut cases = Cases { stride: stride.unwrap_or(12), turn: 0, all: Vec::new() };
    let mut rng = SimRng::new(seed);
    for path in db.files.keys().filter(|path| !path.ends_with("lock")) {
        cases.of_file(&db, &foreign, path, &mut rng);
    }
    cases.newer_versions(&db);
    cases.live_pages(&db, &mut rng);
    let base = machine_with(&db.files);
    let pristine = try_case(Overlay::new(base.clone()), &db, false);
    assert_eq!(pristine, Ok(Outcome::Right), "without damage");
    let (mut counts, mut failures) = (BTreeMap::new(), Vec::new());
    for case in &cases.all {
        let os: Arc<dyn Os> = Overlay::new(base.clone());
        case.apply(&*os, &db);
        let lossy = db.is_last_flush(&case.path, &case.range)
            || matches!(&case.damage, Damage::Swap(other)
                if db.is_last_flush(other, &(0..u64::MAX / 2)));
        let tried = catch_unwind(AssertUnwindSafe(|| try_case(os, &db, lossy)));
        let tried = tried.unwrap_or_else(|_| Err("panic".to_owned()));
        match tried {
            Ok(outcome) => *counts.entry(outcome).or_insert(0) += 1,
            Err(why) => failures.push(format!("{}: {}: {why}", case.path.display(), case.what)),
        }
    }
    println!(
        "damage, {}: {} cases: {counts:?}",
        if clean { "clean" } else { "crashed" },
        cases.all.len()
    );
    let first: Vec<_> = failures.iter().take(40).collect();
    assert!(failures.is_empty(), "{} failures, the first: {first:#?}", failures.len());
    counts
}

impl Cases {
    /// Every page that the last checkpoint names: a bit of its record, and its front zeroed.
    fn live_pages(&mut self, db: &Db, rng: &mut SimRng) {
        let os = machine_with(&db.files);
        let map = crate::db::inspect::Directory::open(os, DATA, None).unwrap().map().unwrap();
        let path = Path::new(DATA).join("pages");
        for place in map.pages {
            let range = place.offset..place.offset + place.bytes as u64;
            let at = place.offset + rng.below(place.bytes as u64);
            self.flip(&path, &db.files[&path], at as usize, rng.below(8) as u8);
            let front = vec![0; 20.min(place.bytes)];
            let what = format!("front of page {} zeroed", place.page);
            self.add(what, &path, range, Damage::Write(place.offset, front));
        }
    }

    /// Files of a later version, sound otherwise: refused by their number.
    fn newer_versions(&mut self, db: &Db) {
        for (path, bytes) in &db.files {
            let name = path.file_name().and_then(|n| n.to_str()).unwrap_or_default();
            let mut new = bytes.clone();
            match name {
                "superblock" => {
                    for block in new.chunks_mut(BLOCK_BYTES) {
                        block[8] += NEWER;
                        let check = checksum(checksum(0, &block[..12]), &block[16..]);
                        block[12..16].copy_from_slice(&check.to_le_bytes());
                    }
                }
                "control" => {
                    new.chunks_mut(BLOCK_BYTES).for_each(|block| raise_log_version(block, 32));
                }
                _ if name.ends_with(".log") => raise_log_version(&mut new, 24),
                _ => continue,
            }
            let range = 0..bytes.len() as u64;
            self.add("a newer version".into(), path, range, Damage::Bytes(new));
        }
    }
}

/// One more, or two, is the version of encrypted directories.
const NEWER: u8 = 3;

fn raise_log_version(block: &mut [u8], body_bytes: usize) {
    block[8] += NEWER;
    let magic = u32::from_le_bytes(block[..4].try_into().unwrap());
    let check = checksum(magic, &block[8..8 + body_bytes]);
    block[4..8].copy_from_slice(&check.to_le_bytes());
}

#[test]
fn damage_to_a_cleanly_closed_database_is_found() {
    let counts = run(1, true);
    assert!(counts[&Outcome::SomeErrors] > 20 && counts[&Outcome::Refused] > 50, "{counts:?}");
}

#[test]
fn damage_to_a_crashed_database_is_found() {
    let counts = run(2, false);
    assert!(counts[&Outcome::SomeErrors] > 20 && counts[&Outcome::Refused] > 50, "{counts:?}");
}

/// What no check can find, an older copy of the whole directory, the oracle does not let pass.
#[test]
fn the_oracle_sees_an_older_state() {
    let db = Db::new(3, false);
    let tried = try_case(machine_with(&db.older), &db, true);
    assert!(tried.as_ref().is_err_and(|why| why.contains("wrong")), "{tried:?}");
}

/// The error log spoke of a refusal at a shutdown that went well.
#[test]
fn what_the_shutdown_breaks_off_is_no_news() {
    let listener = Arc::new(Listener::default());
    let engine = open_with(SimOs::new(7), listener.clone()).unwrap();
    let full = Error::Full { what: "disk" };
    upkeep::report(&engine, "sluice-stats", &full);
    assert_eq!(listener.0.lock().unwrap().len(), 1);
    engine.shutdown().unwrap();
    let ended = engine.check_running().unwrap_err();
    upkeep::report(&engine, "sluice-stats", &ended);
    assert_eq!(listener.0.lock().unwrap().len(), 1);
    upkeep::report(&engine, "sluice-stats", &full);
    assert_eq!(listener.0.lock().unwrap().len(), 2);
}
