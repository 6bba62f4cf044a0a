//! Encryption of single tables: their pages, and everything that is of no table, cannot be read without the key,
//! whatever happens; and no start writes plain what was promised to be encrypted.

use super::damage::{geometry, machine_with, read_files, spec, with_row, DATA};
use super::encryption::{self, steps, value};
use crate::base::{Error, Result, TreeId};
use crate::cipher::FixedKeys;
use crate::db::*;
use crate::os::sim::Spell;
use crate::os::sim::{Fault, SimOs, Trouble};
use crate::os::Os;
use crate::store::trees_with_plain_records;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::Arc;

const OPEN: &str = "db/open";
const SECRET: &str = "db/secret";
/// In the rows of each.
const OF_OPEN: &[u8] = b"for everybody to read";
const OF_SECRET: &[u8] = b"a secret of somebody";

#[derive(Clone, Copy, Debug, PartialEq)]
enum Mode {
    Off,
    Tables,
    On,
}
use Mode::{Off, On, Tables};

fn open(os: &Arc<SimOs>, keys: &Arc<FixedKeys>, mode: Mode) -> Result<Arc<Engine>> {
    let mut config = Config::new(DATA);
    config.background = false;
    config.buffer_pool_bytes = 1 << 20;
    config.log_capacity_bytes = 512 << 10;
    config.compression = Compression::None;
    config.log_compression = LogCompression::None;
    config.encryption = Some(Encryption {
        keys: Arc::clone(keys) as _,
        writes_under: (mode != Off).then_some(1),
        scope: if mode == Tables { Scope::NamedTables } else { Scope::AllTables },
    });
    Engine::open_with(Arc::clone(os) as Arc<dyn Os>, config, geometry(), Arc::new(NoHost))
}

fn create(engine: &Engine, name: &str) -> Result<()> {
    engine.create_table(name, TableSpec { is_encrypted: name == SECRET, ..spec(name) })
}

fn body(name: &str, id: u32, turn: u8) -> Vec<u8> {
    let needle = if name == OPEN { OF_OPEN } else { OF_SECRET };
    [needle, &id.to_be_bytes(), &[turn], &needle.repeat(id as usize % 30)].concat()
}

fn change(engine: &Arc<Engine>, name: &str, ids: std::ops::Range<u32>, turn: u8) {
    let table = engine.table(name).unwrap().unwrap();
    for id in ids {
        let mut trx = engine.begin(1);
        trx.statement_start();
        with_row(id, &body(name, id, turn), |new| match turn {
            0 => trx.insert(&table, new),
            _ => with_row(id, &body(name, id, turn - 1), |old| trx.update(&table, old, new)),
        })
        .unwrap();
        trx.commit(true).unwrap();
    }
}

fn create_both(engine: &Arc<Engine>) {
    for name in [OPEN, SECRET] {
        create(engine, name).unwrap();
        change(engine, name, 0..300, 0);
    }
}

fn assert_rows(engine: &Arc<Engine>, name: &str, count: u32, turn: u8) {
    let report = engine.check_table(name, CheckDepth::Full, &|| false).unwrap();
    assert_eq!((report.faults, report.rows), (Vec::new(), u64::from(count)));
    let table = engine.table(name).unwrap().unwrap();
    let mut trx = engine.begin(2);
    trx.statement_start();
    let mut found = Vec::new();
    for id in 0..count {
        assert!(trx.get(&table, 0, &id.to_be_bytes(), ReadMode::Snapshot, &mut found).unwrap());
        assert_eq!(found, body(name, id, turn));
    }
    trx.rollback();
}

fn trees(engine: &Engine, name: &str) -> Vec<TreeId> {
    let table = engine.table(name).unwrap().unwrap();
    table.def.trees().map(|index| index.tree).collect()
}

fn with_needle(os: &Arc<SimOs>, needle: &[u8]) -> Vec<String> {
    let has = |bytes: &[u8]| bytes.windows(needle.len()).any(|part| part == needle);
    let files = read_files(os).into_iter().filter(|(_, bytes)| has(bytes));
    files.map(|(path, _)| path.display().to_string()).collect()
}

/// Steps until no old key is needed, and each tree is as its table says.
fn rest(os: &SimOs, engine: &Engine) {
    encryption::rest(os, engine);
    assert_eq!(value(engine, "old_page_bytes"), 0);
    assert_eq!(engine.store.badly_kept_trees().unwrap(), []);
}

fn crashed(os: &Arc<SimOs>) -> Arc<SimOs> {
    machine_with(&read_files(os))
}

/// Nothing of the secret table, and nothing that is of no table, can be read; all pages of the open one can.
fn assert_kept(os: &Arc<SimOs>, engine: &Engine, context: &str) {
    assert_eq!(with_needle(os, OF_SECRET), Vec::<String>::new(), "{context}");
    assert_eq!(with_needle(os, OF_OPEN), ["/data/pages"], "{context}");
    let open = trees(engine, OPEN);
    for (tree, is_plain) in engine.store.trees_by_plainness().unwrap() {
        assert_eq!(is_plain, open.contains(&tree), "{context}: {tree:?}");
    }
    assert_eq!(engine.store.badly_kept_trees().unwrap(), [], "{context}");
}

#[test]
fn pages_are_plain_or_encrypted_as_their_tables_say() {
    let keys = FixedKeys::new(1);
    let os = SimOs::new(5);
    let engine = open(&os, &keys, Tables).unwrap();
    create_both(&engine);
    // Until here the log has it all.
    assert_eq!(with_needle(&os, OF_SECRET), Vec::<String>::new());
    engine.checkpoint_now().unwrap();
    assert_kept(&os, &engine, "a checkpoint");
    let mut old = engine.begin(9);
    old.open_snapshot();
    for turn in 1..4 {
        for name in [OPEN, SECRET] {
            change(&engine, name, 0..300, turn);
        }
        engine.checkpoint_now().unwrap();
        steps(&os, &engine, 20);
    }
    assert_kept(&os, &engine, "old versions");
    drop(old);
    while engine.store.gc_step(1 << 20).unwrap() > 0 {}
    engine.checkpoint_now().unwrap();
    assert_kept(&os, &engine, "garbage collection");
    rest(&os, &engine);
    keys.newest.store(2, Ordering::Relaxed);
    engine.store.refresh_key();
    steps(&os, &engine, 2);
    engine.set_rotate_key_age(1);
    rest(&os, &engine);
    assert!(value(&engine, "rewritten_pages") > 0);
    assert_kept(&os, &engine, "a rotation");
    engine.shutdown().unwrap();
    drop(engine);
    let engine = open(&os, &keys, Tables).unwrap();
    assert_eq!(value(&engine, "unknown_page_bytes"), 0, "the claim is believed");
    assert_kept(&os, &engine, "a restart");
    change(&engine, SECRET, 0..300, 4);
    change(&engine, OPEN, 0..300, 4);
    let os = crashed(&os);
    drop(engine);
    let engine = open(&os, &keys, Tables).unwrap();
    assert_rows(&engine, OPEN, 300, 4);
    assert_rows(&engine, SECRET, 300, 4);
    engine.checkpoint_now().unwrap();
    assert_eq!(with_needle(&os, OF_SECRET), Vec::<String>::new(), "a recovery");
    assert_eq!(engine.store.badly_kept_trees().unwrap(), []);
    rest(&os, &engine);
}

/// A recovery encrypts all pages before it has read the catalog; their next images are plain.
#[test]
fn an_encrypted_page_of_a_plain_table_is_no_fault() {
    let keys = FixedKeys::new(1);
    let os = SimOs::new(6);
    let engine = open(&os, &keys, On).unwrap();
    create(&engine, OPEN).unwrap();
    change(&engine, OPEN, 0..300, 0);
    rest(&os, &engine);
    engine.shutdown().unwrap();
    drop(engine);
    let engine = open(&os, &keys, Tables).unwrap();
    let of_rows = trees(&engine, OPEN)[0];
    let is_plain = |is| engine.store.trees_by_plainness().unwrap().contains(&(of_rows, is));
    assert!(is_plain(false) && !is_plain(true));
    assert_eq!(value(&engine, "old_keys_needed"), 0, "what encrypts all has encrypted these");
    rest(&os, &engine);
    assert_eq!(value(&engine, "rewritten_pages"), 0);
    change(&engine, OPEN, 0..300, 1);
    engine.checkpoint_now().unwrap();
    assert!(is_plain(true) && !is_plain(false));
}

#[test]
fn what_is_made_of_a_table_is_encrypted_as_it() {
    let keys = FixedKeys::new(1);
    let os = SimOs::new(7);
    let engine = open(&os, &keys, Tables).unwrap();
    for name in [OPEN, SECRET] {
        create(&engine, name).unwrap();
        change(&engine, name, 0..200, 0);
        let indexes =
            [AlteredIndex::Kept(0), AlteredIndex::Kept(1), AlteredIndex::New { unique: true }];
        let mut build = engine.alter_indexes(name, &indexes, vec![1], &|| false).unwrap();
        for id in 0..200 {
            with_row(id, &body(name, id, 0), |row| {
                build.add(0, row.entries[2].key, row.entries[2].payload).unwrap();
            });
        }
        assert!(build.build(&|| false).unwrap().is_none());
        build.commit().unwrap();
    }
    engine.checkpoint_now().unwrap();
    steps(&os, &engine, 20);
    assert_kept(&os, &engine, "an index");
    for name in [OPEN, SECRET] {
        engine.rename_table(name, "db/other").unwrap();
        engine.rename_table("db/other", name).unwrap();
        engine.truncate_table(name, 1).unwrap();
        change(&engine, name, 0..100, 0);
    }
    engine.checkpoint_now().unwrap();
    steps(&os, &engine, 20);
    assert_kept(&os, &engine, "TRUNCATE and RENAME");
    for name in [OPEN, SECRET] {
        engine.truncate_table(name, 1).unwrap();
        let table = engine.table(name).unwrap().unwrap();
        let mut load = engine.load_table(&table).unwrap().unwrap();
        for id in 0..200 {
            with_row(id, &body(name, id, 0), |row| load.add(row, &|| false)).unwrap();
        }
        assert!(load.finish(&|| false).unwrap().is_none());
        engine.end_copy(&[table]).unwrap();
        assert_rows(&engine, name, 200, 0);
    }
    engine.checkpoint_now().unwrap();
    steps(&os, &engine, 20);
    assert_kept(&os, &engine, "a copy");
    let secret = trees(&engine, SECRET);
    let plain = trees_with_plain_records(&*os, Path::new(DATA)).unwrap();
    assert!(!plain.is_empty() && secret.iter().all(|tree| !plain.contains(tree)));
    let os = crashed(&os);
    drop(engine);
    let engine = open(&os, &keys, Tables).unwrap();
    let is_encrypted = |name: &str| engine.table(name).unwrap().unwrap().def.is_encrypted;
    assert!(is_encrypted(SECRET) && !is_encrypted(OPEN));
}

fn refusal(os: &Arc<SimOs>, keys: &Arc<FixedKeys>) -> String {
    let before = read_files(os);
    let Err(Error::Refused(why)) = open(os, keys, Off) else { panic!("it must be refused") };
    assert!(read_files(os) == before, "a refused start changes nothing");
    why
}

#[test]
fn a_start_without_encryption_is_refused_while_a_table_must_have_it() {
    let keys = FixedKeys::new(1);
    for mode in [Tables, On] {
        let os = SimOs::new(8);
        let engine = open(&os, &keys, Off).unwrap();
        let Err(Error::Refused(why)) = create(&engine, SECRET) else { panic!("it was made") };
        assert!(why.contains("sluice_encrypt has to be TABLES or ON"), "{why}");
        create(&engine, OPEN).unwrap();
        engine.shutdown().unwrap();
        drop(engine);
        let engine = open(&os, &keys, mode).unwrap();
        change(&engine, OPEN, 0..9, 0);
        drop(engine);
        drop(open(&os, &keys, Off).unwrap());
        let engine = open(&os, &keys, mode).unwrap();
        create(&engine, SECRET).unwrap();
        let os = crashed(&os);
        drop(engine);
        assert!(refusal(&os, &keys).contains("tables were made with ENCRYPTED=YES"));
        let engine = open(&os, &keys, if mode == On { Tables } else { On }).unwrap();
        engine.drop_table(SECRET).unwrap();
        engine.shutdown().unwrap();
        drop(engine);
        let engine = open(&os, &keys, Off).unwrap();
        assert_rows(&engine, OPEN, 9, 0);
    }
}

/// Whenever the machine loses power: a start that writes plain either finds no such table, or is refused.
#[test]
fn a_promise_is_kept_wherever_a_crash_comes() {
    let keys = FixedKeys::new(1);
    let (mut refused, mut opened) = (0, 0);
    for after in 0..400 {
        let os = SimOs::new(after);
        let engine = open(&os, &keys, Tables).unwrap();
        create(&engine, OPEN).unwrap();
        change(&engine, OPEN, 0..20, 0);
        engine.checkpoint_now().unwrap();
        os.fail_after(after, Fault::PowerCut);
        let made = create(&engine, SECRET);
        let is_dropped = made.is_ok() && after % 2 == 0 && engine.drop_table(SECRET).is_ok();
        if is_dropped {
            let _ = engine.checkpoint_now();
        }
        let is_over = !os.is_dark();
        drop(engine);
        os.crash();
        match open(&os, &keys, Off) {
            Err(Error::Refused(why)) => {
                assert!(why.contains("tables were made with ENCRYPTED=YES"), "{why}");
                assert!(!(is_dropped && is_over), "the table is gone");
                refused += 1;
            }
            Err(error) => panic!("{error}"),
            Ok(engine) => {
                assert!(made.is_err() || is_dropped, "after {after}: it was acknowledged");
                assert_eq!(engine.table_names(), [OPEN]);
                opened += 1;
            }
        }
        if is_over && after % 2 == 1 {
            break;
        }
        assert!(after < 399, "the power never stays on");
    }
    assert!(refused > 3 && opened > 3, "{refused} and {opened}");
}

/// Without the checkpoint that tells of it there is no table.
#[test]
fn a_table_whose_promise_cannot_be_written_is_not_made() {
    let keys = FixedKeys::new(1);
    let os = SimOs::new(9);
    let engine = open(&os, &keys, Tables).unwrap();
    let from_ns = os.now_ns();
    os.add_spell(Spell { trouble: Trouble::Overwrite, from_ns, to_ns: u64::MAX });
    assert!(create(&engine, SECRET).is_err());
    assert_eq!(engine.table_names(), Vec::<String>::new());
    drop(engine);
    os.heal();
    let os = crashed(&os);
    // The superblock may have it or not; the table is in no case there.
    let engine = open(&os, &keys, Tables).unwrap();
    assert_eq!(engine.table_names(), Vec::<String>::new());
    create(&engine, SECRET).unwrap();
    drop(engine);
    refusal(&os, &keys);
}

#[test]
fn tables_that_were_not_asked_are_encrypted_too_when_all_are() {
    let keys = FixedKeys::new(1);
    let os = SimOs::new(10);
    let engine = open(&os, &keys, Tables).unwrap();
    create_both(&engine);
    rest(&os, &engine);
    engine.shutdown().unwrap();
    drop(engine);
    let engine = open(&os, &keys, On).unwrap();
    assert_eq!(value(&engine, "old_keys_needed"), 1, "plain pages are there");
    assert!(value(&engine, "unknown_page_bytes") > 0);
    rest(&os, &engine);
    let plain: BTreeSet<_> = engine.store.trees_by_plainness().unwrap();
    assert!(plain.iter().all(|(_, is_plain)| !is_plain));
    let os = crashed(&os);
    drop(engine);
    let engine = open(&os, &keys, Tables).unwrap();
    rest(&os, &engine);
    assert_rows(&engine, OPEN, 300, 0);
    change(&engine, OPEN, 0..300, 1);
    change(&engine, SECRET, 0..300, 1);
    engine.checkpoint_now().unwrap();
    rest(&os, &engine);
    assert_rows(&engine, SECRET, 300, 1);
    assert_eq!(with_needle(&os, OF_SECRET), Vec::<String>::new());
}

/// Turned on late: pages of no table become encrypted, those of tables stay as they are.
#[test]
fn a_directory_that_was_plain_comes_to_rest() {
    let keys = FixedKeys::new(1);
    let os = SimOs::new(11);
    let engine = open(&os, &keys, Off).unwrap();
    create(&engine, OPEN).unwrap();
    change(&engine, OPEN, 0..2000, 0);
    engine.shutdown().unwrap();
    drop(engine);
    let engine = open(&os, &keys, Tables).unwrap();
    assert_eq!(value(&engine, "old_keys_needed"), 1);
    rest(&os, &engine);
    let all: BTreeSet<_> = engine.store.trees_by_plainness().unwrap();
    let open_trees = trees(&engine, OPEN);
    assert!(all.iter().all(|(tree, is_plain)| *is_plain == open_trees.contains(tree)), "{all:?}");
    let (moved, pages) = (value(&engine, "rewritten_pages"), engine.store.stats().pages);
    assert!(moved < pages, "{moved} of {pages} pages were moved");
    let os = crashed(&os);
    drop(engine);
    let engine = open(&os, &keys, Tables).unwrap();
    assert_eq!(value(&engine, "old_keys_needed"), 0);
    steps(&os, &engine, 100);
    assert_eq!(value(&engine, "rewritten_pages"), 0, "what is known needs no look");
    drop(engine);
    let engine = open(&os, &keys, Off).unwrap();
    rest(&os, &engine);
    drop(engine);
    let engine = open(&os, &keys, Tables).unwrap();
    rest(&os, &engine);
    assert_rows(&engine, OPEN, 2000, 0);
}

/// A table that is dropped beside others leaves nothing that keeps a key needed.
#[test]
fn a_dropped_table_is_forgotten() {
    let keys = FixedKeys::new(1);
    let os = SimOs::new(12);
    let engine = open(&os, &keys, Tables).unwrap();
    create_both(&engine);
    engine.checkpoint_now().unwrap();
    for name in [OPEN, SECRET] {
        engine.drop_table(name).unwrap();
        steps(&os, &engine, 5);
        assert_eq!(engine.store.badly_kept_trees().unwrap(), []);
    }
    rest(&os, &engine);
    engine.shutdown().unwrap();
    drop(engine);
    drop(open(&os, &keys, Off).unwrap());
}

/// A backup that was begun before the first such table was made has it in its log, and no promise.
#[test]
fn a_copy_whose_superblock_is_older_than_the_table_is_encrypted_too() {
    let keys = FixedKeys::new(1);
    let os = SimOs::new(13);
    let engine = open(&os, &keys, Tables).unwrap();
    create(&engine, OPEN).unwrap();
    engine.checkpoint_now().unwrap();
    let mut files = read_files(&os);
    create(&engine, SECRET).unwrap();
    change(&engine, SECRET, 0..50, 0);
    engine.flush_log().unwrap();
    let is_log = |path: &Path| path.starts_with("/data/log");
    files.extend(read_files(&os).into_iter().filter(|(path, _)| is_log(path)));
    drop(engine);
    let copy = || machine_with(&files);
    let Err(Error::Refused(why)) = open(&copy(), &keys, Off) else { panic!("it must be refused") };
    assert!(why.contains("a table cannot be encrypted while encryption is off"), "{why}");
    let dir = inspect::Directory::open(copy() as Arc<dyn Os>, DATA, None).unwrap();
    let report = dir.with_keys(Arc::clone(&keys) as _).unwrap().verify(geometry()).unwrap();
    assert!(report.is_clean(), "{:?}", report.checks);
    for mode in [Tables, On] {
        let os = copy();
        let engine = open(&os, &keys, mode).unwrap();
        assert_rows(&engine, SECRET, 50, 0);
        engine.shutdown().unwrap();
        drop(engine);
        assert_eq!(with_needle(&os, OF_SECRET), Vec::<String>::new());
        assert!(refusal(&os, &keys).contains("ENCRYPTED=YES"));
        let dir = inspect::Directory::open(Arc::clone(&os) as Arc<dyn Os>, DATA, None).unwrap();
        let report = dir.with_keys(Arc::clone(&keys) as _).unwrap().verify(geometry()).unwrap();
        assert!(report.is_clean(), "{:?}", report.checks);
    }
}
