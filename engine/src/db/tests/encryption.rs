//! Encryption at rest: nothing that users wrote is to be read in the files, and no start without the
//! right keys changes any of them.

use super::damage::{geometry, machine_with, read_files, spec, with_row, DATA, TABLES};
use crate::base::formats::{CURRENT, ENCRYPTED};
use crate::base::{Error, Result};
use crate::cipher::{FixedKeys, Keys};
use crate::db::backup::settle;
use crate::db::inspect::Directory;
use crate::db::*;
use crate::os::sim::SimOs;
use crate::os::Os;
use std::sync::atomic::Ordering;
use std::sync::Arc;

/// In rows, keys and XIDs.
const NEEDLE: &[u8] = b"a secret of somebody";

fn under(keys: &Arc<FixedKeys>, id: Option<u32>) -> Option<Encryption> {
    Some(Encryption { keys: Arc::clone(keys) as _, writes_under: id, scope: Scope::AllTables })
}

fn open(os: &Arc<SimOs>, encryption: Option<Encryption>) -> Result<Arc<Engine>> {
    open_with_age(os, encryption, 0)
}

/// Pages are written anew that are so many versions behind.
fn open_with_age(os: &Arc<SimOs>, encryption: Option<Encryption>, age: u32) -> Result<Arc<Engine>> {
    let mut config = Config::new(DATA);
    config.background = false;
    config.buffer_pool_bytes = 1 << 20;
    config.log_capacity_bytes = 512 << 10;
    config.compression = Compression::None;
    config.log_compression = LogCompression::None;
    config.encryption = encryption;
    config.rotate_key_age = age;
    Engine::open_with(Arc::clone(os) as Arc<dyn Os>, config, geometry(), Arc::new(NoHost))
}

fn body(id: u32) -> Vec<u8> {
    [NEEDLE, &id.to_be_bytes(), &NEEDLE.repeat(id as usize % 30)].concat()
}

fn insert(engine: &Arc<Engine>, ids: std::ops::Range<u32>) {
    let table = engine.table(TABLES[0]).unwrap().unwrap();
    for id in ids {
        let mut trx = engine.begin(1);
        trx.statement_start();
        with_row(id, &body(id), |row| trx.insert(&table, row)).unwrap();
        trx.commit(true).unwrap();
    }
}

fn assert_rows(engine: &Arc<Engine>, count: u32) {
    let report = engine.check_table(TABLES[0], CheckDepth::Full, &|| false).unwrap();
    assert_eq!((report.faults, report.rows), (Vec::new(), u64::from(count)));
    let table = engine.table(TABLES[0]).unwrap().unwrap();
    let mut trx = engine.begin(2);
    trx.statement_start();
    let mut found = Vec::new();
    for id in 0..count {
        assert!(trx.get(&table, 0, &id.to_be_bytes(), ReadMode::Snapshot, &mut found).unwrap());
        assert_eq!(found, body(id));
    }
    trx.rollback();
}

fn prepare(engine: &Arc<Engine>, xid: &[u8], id: u32) {
    let table = engine.table(TABLES[0]).unwrap().unwrap();
    let mut trx = engine.begin(3);
    trx.statement_start();
    with_row(id, &body(id), |row| trx.insert(&table, row)).unwrap();
    trx.prepare(xid, false).unwrap();
    trx.detach();
}

/// Files in which the needle is to be read.
fn bare(os: &Arc<SimOs>) -> Vec<String> {
    let has = |bytes: &[u8]| bytes.windows(NEEDLE.len()).any(|part| part == NEEDLE);
    let files = read_files(os).into_iter().filter(|(_, bytes)| has(bytes));
    files.map(|(path, _)| path.display().to_string()).collect()
}

/// A killed machine with rows in pages and others in the log only.
fn killed(encryption: impl Fn() -> Option<Encryption>) -> Arc<SimOs> {
    let os = SimOs::new(5);
    let engine = open(&os, encryption()).unwrap();
    engine.create_table(TABLES[0], spec(TABLES[0])).unwrap();
    insert(&engine, 0..300);
    prepare(&engine, NEEDLE, 1_000_000);
    engine.checkpoint_now().unwrap();
    insert(&engine, 300..400);
    let os = machine_with(&read_files(&os));
    drop(engine);
    os
}

fn end_prepared(engine: &Arc<Engine>) {
    assert_eq!(engine.prepared(), [NEEDLE]);
    engine.rollback_prepared(NEEDLE).unwrap();
    for _ in 0..50 {
        engine.step().unwrap();
    }
}

#[test]
fn nothing_that_was_written_is_to_be_read_in_the_files() {
    let keys = FixedKeys::new(1);
    assert!(bare(&killed(|| None)).len() >= 3, "pages, log and note, without encryption");
    let os = killed(|| under(&keys, Some(1)));
    assert_eq!(bare(&os), Vec::<String>::new());
    let engine = open(&os, under(&keys, Some(1))).unwrap();
    end_prepared(&engine);
    assert_rows(&engine, 400);
    insert(&engine, 400..500);
    engine.shutdown().unwrap();
    drop(engine);
    assert_eq!(bare(&os), Vec::<String>::new());
    assert_rows(&open(&os, under(&keys, None)).unwrap(), 500);
}

#[test]
fn a_start_without_the_right_keys_is_refused_and_changes_nothing() {
    let keys = FixedKeys::new(2);
    let os = killed(|| under(&keys, Some(7)));
    let before = read_files(&os);
    let refused = |encryption| {
        let Err(Error::Refused(why)) = open(&os, encryption) else { panic!("it must be refused") };
        assert_eq!(read_files(&os), before, "{why}");
        why
    };
    assert!(refused(None).contains("encrypted with key 7 version 2, and no keys were given"));
    let lost = FixedKeys::new(1);
    assert!(refused(under(&lost, Some(7))).contains("key 7 version 2 is needed and is not there"));
    assert!(refused(under(&lost, None)).contains("key 7 version 2 is needed"));
    let none = FixedKeys::new(0);
    assert!(refused(under(&none, Some(7))).contains("there is no key 7"));
    struct Wrong;
    impl Keys for Wrong {
        fn newest(&self, _: u32) -> Option<u32> {
            Some(2)
        }
        fn key(&self, _: u32, _: u32) -> Option<Vec<u8>> {
            Some(vec![9; 16])
        }
    }
    let wrong =
        Some(Encryption { keys: Arc::new(Wrong), writes_under: Some(7), scope: Scope::AllTables });
    assert!(refused(wrong).contains("key 7 version 2 is not the one"));
    let engine = open(&os, under(&keys, Some(7))).unwrap();
    end_prepared(&engine);
    assert_rows(&engine, 400);
}

/// The log is written under a version that no checkpoint knows of yet.
#[test]
fn a_key_that_only_the_log_needs_is_missed_at_the_start() {
    let keys = FixedKeys::new(1);
    let os = killed(|| under(&keys, Some(1)));
    keys.newest.store(2, Ordering::Relaxed);
    let engine = open(&os, under(&keys, Some(1))).unwrap();
    insert(&engine, 400..410);
    let os = machine_with(&read_files(&os));
    let before = read_files(&os);
    let Err(Error::Refused(why)) = open(&os, under(&FixedKeys::new(1), Some(1))) else {
        panic!("it must be refused")
    };
    assert!(why.contains("key 1 version 2 is needed"), "{why}");
    assert_eq!(read_files(&os), before);
    let engine = open(&os, under(&keys, Some(1))).unwrap();
    end_prepared(&engine);
    assert_rows(&engine, 410);
}

#[test]
fn encryption_is_turned_on_and_off_between_lives() {
    let keys = FixedKeys::new(1);
    let os = killed(|| None);
    let first_blocks = |os: &Arc<SimOs>| {
        let files = read_files(os);
        let version = |path: &str| files[std::path::Path::new(path)][8];
        (version("/data/superblock"), version("/data/log/control"))
    };
    let (plain, encrypted) = (CURRENT.log as u8, ENCRYPTED.log as u8);
    assert_eq!(first_blocks(&os), (3, plain), "format 2");
    let engine = open(&os, under(&keys, Some(1))).unwrap();
    assert_eq!(first_blocks(&os), (3, encrypted), "the log first");
    end_prepared(&engine);
    insert(&engine, 400..500);
    engine.shutdown().unwrap();
    assert_eq!(first_blocks(&os), (4, encrypted));
    drop(engine);
    let engine = open(&os, under(&keys, None)).unwrap();
    assert_rows(&engine, 500);
    insert(&engine, 500..600);
    let os = machine_with(&read_files(&os));
    drop(engine);
    let engine = open(&os, under(&keys, Some(2))).unwrap();
    assert_rows(&engine, 600);
    engine.shutdown().unwrap();
    drop(engine);
    assert_eq!(first_blocks(&os), (4, encrypted));
    assert!(matches!(open(&os, None), Err(Error::Refused(_))));
    assert_rows(&open(&os, under(&keys, None)).unwrap(), 600);
}

#[test]
fn tools_need_the_keys() {
    let keys = FixedKeys::new(1);
    let os = killed(|| under(&keys, Some(1)));
    let dir = || Directory::open(Arc::clone(&os) as Arc<dyn Os>, DATA, None).unwrap();
    let Err(Error::Refused(why)) = dir().verify(geometry()) else { panic!("it must be refused") };
    assert!(why.contains("encrypted with key 1 version 1"), "{why}");
    assert!(dir().log(None, &mut |_| true).is_err());
    let report = dir().with_keys(Arc::clone(&keys) as _).unwrap().verify(geometry()).unwrap();
    assert_eq!(
        report.checks.into_iter().flat_map(|check| check.faults).collect::<Vec<_>>(),
        Vec::<String>::new()
    );
    let settled = |encryption| {
        let os = machine_with(&read_files(&os));
        let to = Arc::clone(&os) as Arc<dyn Os>;
        settle(to, DATA.as_ref(), geometry(), Arc::new(NoHost), encryption, &|_| true)
            .map(|settled| (settled.tables, bare(&os)))
    };
    assert!(matches!(settled(None), Err(Error::Refused(_))));
    let done = settled(under(&keys, Some(1))).unwrap();
    assert_eq!(done, (vec![TABLES[0].to_owned()], Vec::new()));
}

pub(super) fn value(engine: &Engine, name: &str) -> u64 {
    let name = format!("encryption_{name}");
    engine.status().into_iter().find(|value| value.0 == name).unwrap().1
}

/// One after the other, as often as the background looks for work.
pub(super) fn steps(os: &SimOs, engine: &Engine, count: u32) {
    for _ in 0..count {
        engine.step().unwrap();
        os.advance_ns(100_000_000);
    }
}

/// Steps until no old key is needed.
pub(super) fn rest(os: &SimOs, engine: &Engine) {
    for _ in 0..3000 {
        steps(os, engine, 1);
        if value(engine, "old_keys_needed") == 0 {
            return;
        }
    }
    panic!("old keys stay needed: {}", engine.status_text());
}

fn crashed(os: &Arc<SimOs>) -> Arc<SimOs> {
    machine_with(&read_files(os))
}

#[test]
fn pages_under_an_old_key_are_written_anew_until_it_may_go() {
    let keys = FixedKeys::new(1);
    let os = killed(|| under(&keys, Some(1)));
    let engine = open_with_age(&os, under(&keys, Some(1)), 1).unwrap();
    end_prepared(&engine);
    rest(&os, &engine);
    assert_eq!(value(&engine, "rewritten_pages"), 0, "none is old yet");
    keys.newest.store(2, Ordering::Relaxed);
    assert_eq!(engine.store.refresh_key(), 2);
    assert_eq!((value(&engine, "key_version"), value(&engine, "oldest_key_version")), (2, 1));
    assert!(value(&engine, "old_keys_needed") == 1 && value(&engine, "old_page_bytes") > 0);
    rest(&os, &engine);
    assert_eq!(value(&engine, "oldest_key_version"), 2);
    assert_eq!(value(&engine, "old_page_bytes") + value(&engine, "old_log_bytes"), 0);
    let pages = engine.store.stats().pages;
    let moved = value(&engine, "rewritten_pages");
    assert!(moved * 2 > pages, "{moved} of {pages} pages were moved");
    let os = crashed(&os);
    drop(engine);
    keys.oldest.store(2, Ordering::Relaxed);
    let engine = open_with_age(&os, under(&keys, Some(1)), 1).unwrap();
    assert_rows(&engine, 400);
    rest(&os, &engine);
    assert_eq!(value(&engine, "rewritten_pages"), 0, "a start knows what the last life has done");
    assert_eq!(value(&engine, "unknown_page_bytes"), 0);
}

#[test]
fn an_old_key_is_needed_until_a_checkpoint_names_the_new_places() {
    let keys = FixedKeys::new(1);
    let os = killed(|| under(&keys, Some(1)));
    let engine = open(&os, under(&keys, Some(1))).unwrap();
    end_prepared(&engine);
    keys.newest.store(2, Ordering::Relaxed);
    rest_of_pages(&engine, 2);
    assert_eq!(value(&engine, "old_page_bytes"), 0);
    assert_eq!((value(&engine, "old_keys_needed"), value(&engine, "oldest_key_version")), (1, 1));
    engine.checkpoint_now().unwrap();
    engine.step().unwrap();
    assert_eq!((value(&engine, "old_keys_needed"), value(&engine, "oldest_key_version")), (0, 2));
    let _ = os;
}

/// Moves all pages, without a checkpoint.
fn rest_of_pages(engine: &Engine, version: u32) {
    assert_eq!(engine.store.refresh_key(), version);
    while engine.store.rotate_step(1, 64 << 10).unwrap() > 0 {}
}

#[test]
fn encryption_that_is_turned_on_or_off_is_for_what_is_there_too() {
    let keys = FixedKeys::new(3);
    let os = killed(|| None);
    let engine = open_with_age(&os, under(&keys, Some(1)), 1).unwrap();
    assert_eq!(value(&engine, "old_keys_needed"), 1);
    end_prepared(&engine);
    rest(&os, &engine);
    assert_eq!(value(&engine, "oldest_key_version"), 3);
    let os = crashed(&os);
    drop(engine);
    assert!(matches!(open(&os, None), Err(Error::Refused(_))));
    let engine = open_with_age(&os, under(&keys, None), 1).unwrap();
    assert_rows(&engine, 400);
    assert_eq!((value(&engine, "key_version"), value(&engine, "old_keys_needed")), (0, 1));
    rest(&os, &engine);
    assert_rows(&engine, 400);
    let os = crashed(&os);
    drop(engine);
    // No key is needed any more, not even to say that it is there.
    let engine = open(&os, None).unwrap();
    assert_rows(&engine, 400);
    insert(&engine, 400..410);
    let os = crashed(&os);
    drop(engine);
    let dir = Directory::open(Arc::clone(&os) as Arc<dyn Os>, DATA, None).unwrap();
    let checks = dir.verify(geometry()).unwrap().checks;
    assert!(checks.into_iter().all(|check| check.faults.is_empty()));
    drop(dir);
    let engine = open_with_age(&os, under(&keys, Some(2)), 1).unwrap();
    rest(&os, &engine);
    assert_rows(&engine, 410);
}

/// The log is plain from the claim on only; a checkpoint that needs log from before it needs the key.
#[test]
fn a_key_that_only_older_log_needs_is_missed_at_the_start() {
    let keys = FixedKeys::new(1);
    let os = killed(|| under(&keys, Some(1)));
    let engine = open_with_age(&os, under(&keys, None), 1).unwrap();
    steps(&os, &engine, 300);
    engine.checkpoint_now().unwrap();
    assert_eq!(value(&engine, "old_page_bytes"), 0);
    assert_eq!(value(&engine, "old_keys_needed"), 1, "of the prepared transaction");
    let os = crashed(&os);
    drop(engine);
    let before = read_files(&os);
    assert!(matches!(open(&os, None), Err(Error::Refused(_))));
    assert_eq!(read_files(&os), before);
    end_prepared(&open(&os, under(&keys, None)).unwrap());
}

#[test]
fn the_age_says_what_is_old() {
    let keys = FixedKeys::new(1);
    let os = killed(|| under(&keys, Some(1)));
    let engine = open_with_age(&os, under(&keys, Some(1)), 3).unwrap();
    end_prepared(&engine);
    for (newest, is_moved) in [(2, false), (3, false), (4, true)] {
        keys.newest.store(newest, Ordering::Relaxed);
        steps(&os, &engine, 300);
        assert_eq!(value(&engine, "rewritten_pages") > 0, is_moved, "version {newest}");
    }
    engine.checkpoint_now().unwrap();
    assert!(value(&engine, "oldest_key_version") >= 2, "2 is two versions behind, 1 is three");
    let before = value(&engine, "rewritten_pages");
    engine.set_rotate_key_age(0);
    keys.newest.store(9, Ordering::Relaxed);
    steps(&os, &engine, 300);
    assert_eq!(value(&engine, "rewritten_pages"), before, "0 turns it off");
    assert_eq!(value(&engine, "old_keys_needed"), 1);
    engine.set_rotate_key_age(1);
    rest(&os, &engine);
    assert_rows(&engine, 400);
}

/// What the age bears is not put off: nothing has failed, so nothing rests.
#[test]
fn an_age_that_is_set_and_a_version_that_comes_count_at_once() {
    let keys = FixedKeys::new(1);
    let os = killed(|| under(&keys, Some(1)));
    let engine = open_with_age(&os, under(&keys, Some(1)), 0).unwrap();
    end_prepared(&engine);
    let at_once = |what: &str| {
        let before = value(&engine, "rewritten_pages");
        steps(&os, &engine, 10);
        assert!(value(&engine, "rewritten_pages") > before, "{what}");
    };
    keys.newest.store(2, Ordering::Relaxed);
    steps(&os, &engine, 10);
    engine.set_rotate_key_age(1);
    at_once("an age");
    rest(&os, &engine);
    engine.set_rotate_key_age(3);
    keys.newest.store(3, Ordering::Relaxed);
    steps(&os, &engine, 10);
    keys.newest.store(5, Ordering::Relaxed);
    at_once("a version");
}

#[test]
fn a_rotation_that_a_crash_ended_goes_on_where_it_was() {
    let keys = FixedKeys::new(1);
    let os = killed(|| under(&keys, Some(1)));
    let engine = open(&os, under(&keys, Some(1))).unwrap();
    end_prepared(&engine);
    let all = engine.store.stats().live_bytes;
    keys.newest.store(2, Ordering::Relaxed);
    engine.store.refresh_key();
    let mut done = 0;
    while done < all {
        done += engine.store.rotate_step(1, 1).unwrap();
    }
    let first = value(&engine, "rewritten_bytes");
    assert!(first > 0 && value(&engine, "old_page_bytes") > 0, "{first} of {all}");
    engine.checkpoint_now().unwrap();
    let os = crashed(&os);
    drop(engine);
    let engine = open_with_age(&os, under(&keys, Some(1)), 1).unwrap();
    rest(&os, &engine);
    let second = value(&engine, "rewritten_bytes");
    assert!(first + second < all + all / 4, "{first} and {second} bytes of {all}");
    assert_rows(&engine, 400);
}

/// While writers leave garbage behind without an end, GC is never idle.
#[test]
fn a_rotation_goes_on_beside_the_collection_of_garbage_at_its_own_pace() {
    let keys = FixedKeys::new(1);
    let os = SimOs::new(6);
    let engine = open_with_age(&os, under(&keys, Some(1)), 1).unwrap();
    engine.create_table(TABLES[0], spec(TABLES[0])).unwrap();
    insert(&engine, 0..3000);
    let mut ids = (3000..).step_by(40);
    for turn in 0..20 {
        while engine.store.gc_pressure_percent() == 0 {
            let first = ids.next().unwrap();
            insert(&engine, first..first + 40);
            engine.checkpoint_now().unwrap();
        }
        if turn == 0 {
            keys.newest.store(2, Ordering::Relaxed);
        }
        steps(&os, &engine, 1);
    }
    assert!(value(&engine, "rewritten_bytes") > 0, "{}", engine.status_text());
    // Without rests all of it would be done at once.
    keys.newest.store(3, Ordering::Relaxed);
    steps(&os, &engine, 1);
    let moved = value(&engine, "rewritten_bytes");
    (0..50).for_each(|_| engine.step().unwrap());
    assert_eq!(value(&engine, "rewritten_bytes"), moved);
    assert!(value(&engine, "old_page_bytes") > 0);
}
