//! Bytes by table and cause: they add up to what the machine was given to write, to the byte.

use crate::btree::RECORD_TREE;
use crate::db::*;
use crate::os::sim::{SimOs, SimRng};
use crate::os::Os;
use std::collections::BTreeMap;
use std::sync::Arc;

const LARGE: &str = "db/large";
const SMALL: &str = "db/small";
const GONE: &str = "db/gone";

fn open(os: &Arc<SimOs>) -> Arc<Engine> {
    let mut config = Config::new("/data");
    config.background = false;
    config.buffer_pool_bytes = 1 << 20;
    config.log_capacity_bytes = 1 << 20;
    let geometry = Geometry {
        log_segment_bytes: 128 << 10,
        log_cache_bytes: 256 << 10,
        store_segment_bytes: 256 << 10,
    };
    Engine::open_with(Arc::clone(os) as Arc<dyn Os>, config, geometry, Arc::new(NoHost)).unwrap()
}

fn create(engine: &Engine, name: &str) {
    let index = |unique| IndexSpec { unique };
    let indexes = vec![index(true), index(false)];
    let spec = TableSpec {
        indexes,
        definition: vec![1],
        autoinc_start: 1,
        compression: None,
        is_encrypted: false,
    };
    engine.create_table(name, spec).unwrap();
}

/// One committed transaction of `rows` new rows, which hardly compress.
fn fill(engine: &Arc<Engine>, name: &str, rng: &mut SimRng, first: u32, rows: u32) {
    let table = engine.table(name).unwrap().unwrap();
    let mut trx = engine.begin(1);
    for id in first..first + rows {
        let key = (id.wrapping_mul(0x9e37_79b1)).to_be_bytes();
        let second = [&[id as u8][..], &key].concat();
        let body: Vec<u8> =
            (0..900).map(|i| if i < 90 { 0 } else { rng.below(256) as u8 }).collect();
        let entries = [
            Entry { key: &key, payload: &body, parts: &[], unique: true },
            Entry { key: &second, payload: &[], parts: &[], unique: false },
        ];
        trx.insert(&table, &RowWrite { entries: &entries }).unwrap();
    }
    trx.commit(true).unwrap();
}

fn rows(engine: &Engine) -> BTreeMap<WritesOf, WrittenBytes> {
    engine.writes_by_table().into_iter().collect()
}

fn table(name: &str) -> WritesOf {
    WritesOf::Table(name.to_owned())
}

fn total(engine: &Engine) -> u64 {
    rows(engine).values().map(WrittenBytes::total).sum()
}

/// What trees say that they have logged is what the log says of trees.
fn assert_log_of_trees(engine: &Engine, dropped: u64) {
    let bytes = engine.ctx.trees.all().into_iter().map(|gate| gate.tree().bytes().now());
    let logged: u64 = bytes.map(|bytes| bytes.changes + bytes.built).sum();
    let appended = engine.wal.stats().appended_bytes[usize::from(RECORD_TREE)];
    assert_eq!(logged + dropped, appended);
}

fn logged(engine: &Engine, name: &str) -> u64 {
    let table = engine.table(name).unwrap().unwrap();
    let bytes =
        table.gates.iter().chain([&table.long_values]).map(|gate| gate.tree().bytes().now());
    bytes.map(|bytes| bytes.changes + bytes.built).sum()
}

#[test]
fn bytes_by_table_add_up_to_what_was_written() {
    let os = SimOs::new(5);
    let engine = open(&os);
    engine.checkpoint_now().unwrap();
    // A new directory, and the control file of the log, are nobody's.
    let besides = os.written_bytes() - total(&engine);
    [LARGE, SMALL, GONE].iter().for_each(|name| create(&engine, name));
    let mut rng = SimRng::new(5);
    let mut last = rows(&engine);
    for round in 0..120 {
        fill(&engine, LARGE, &mut rng, round * 40, 40);
        fill(&engine, SMALL, &mut rng, round * 10, 10);
        fill(&engine, GONE, &mut rng, round * 10, 10);
        engine.step().unwrap();
        let now = rows(&engine);
        for (of, bytes) in &now {
            let before = last.get(of).copied().unwrap_or_default();
            assert!(bytes.log >= before.log && bytes.total() >= before.total(), "{of:?}");
        }
        last = now;
    }
    engine.checkpoint_now().unwrap();
    assert_eq!(total(&engine) + besides, os.written_bytes());
    assert_log_of_trees(&engine, 0);
    let before = rows(&engine);
    let (large, small) = (before[&table(LARGE)], before[&table(SMALL)]);
    assert!(large.eviction > 1 << 20 && large.checkpoint > 1 << 20 && large.gc > 0, "{large:?}");
    // Four times the rows; the same rows in the log.
    assert!((3.5..4.5).contains(&(large.log as f64 / small.log as f64)), "{large:?}, {small:?}");
    assert!(large.log > 120 * 40 * 900 * 8 / 10, "{large:?}");
    assert_eq!((large.build, large.other), (0, 0));

    let dropped = logged(&engine, GONE);
    engine.drop_table(GONE).unwrap();
    engine.step().unwrap();
    engine.checkpoint_now().unwrap();
    assert_eq!(total(&engine) + besides, os.written_bytes());
    assert_log_of_trees(&engine, dropped);
    let after = rows(&engine);
    assert!(!after.contains_key(&table(GONE)));
    assert!(after[&WritesOf::Dropped].total() >= before[&table(GONE)].total());

    engine.rename_table(SMALL, "db/other").unwrap();
    assert_eq!(rows(&engine)[&table("db/other")].eviction, after[&table(SMALL)].eviction);
    drop(engine);
    let engine = open(&os);
    assert_eq!(rows(&engine)[&table(LARGE)], WrittenBytes::default());
}

#[test]
fn an_index_that_is_built_counts_as_that() {
    let os = SimOs::new(6);
    let engine = open(&os);
    engine.checkpoint_now().unwrap();
    let besides = os.written_bytes() - total(&engine);
    create(&engine, LARGE);
    let indexes = [AlteredIndex::Kept(0), AlteredIndex::New { unique: false }];
    let mut build = engine.alter_indexes(LARGE, &indexes, vec![2], &|| false).unwrap();
    for id in 0..2_000_u32 {
        build.add(0, &id.to_be_bytes(), &[7; 40]).unwrap();
    }
    assert!(build.build(&|| false).unwrap().is_none());
    engine.checkpoint_now().unwrap();
    let building = rows(&engine)[&WritesOf::Building];
    // Each entry in the log and in a sorted run.
    assert!(building.build > 2_000 * 44 && building.eviction + building.checkpoint > 0);
    assert_eq!(total(&engine) + besides, os.written_bytes());
    build.commit().unwrap();
    engine.checkpoint_now().unwrap();
    let after = rows(&engine);
    assert!(after[&table(LARGE)].build >= building.build);
    assert!(!after.contains_key(&WritesOf::Building), "{after:?}");
    assert_eq!(total(&engine) + besides, os.written_bytes());
}

#[test]
fn the_log_is_packed_by_whether_memory_could_hold_most_pages() {
    let engine = open(&SimOs::new(8));
    create(&engine, LARGE);
    let now = |engine: &Arc<Engine>| {
        // Twice: the workers take turns, and the log's asks what another one found.
        engine.step().unwrap();
        engine.step().unwrap();
        engine.wal.compression()
    };
    assert_eq!(now(&engine), Compression::Lz4);
    let mut rng = SimRng::new(8);
    for first in (1..4000).step_by(100) {
        fill(&engine, LARGE, &mut rng, first, 100);
        engine.step().unwrap();
    }
    assert_eq!(now(&engine), Compression::Zstd(1));
    engine.set_log_compression(LogCompression::None);
    assert_eq!(now(&engine), Compression::None);
    engine.set_log_compression(LogCompression::Auto);
    assert_eq!(now(&engine), Compression::Zstd(1));
    engine.set_buffer_pool_bytes(64 << 20);
    assert_eq!(now(&engine), Compression::Lz4);
}

/// Of all tables that were dropped, though the pages of one tree go after those of the other.
#[test]
fn nothing_is_written_of_a_table_after_its_drop() {
    let engine = open(&SimOs::new(9));
    engine.set_buffer_pool_bytes(64 << 20);
    engine.set_log_capacity_bytes(8 << 20);
    let mut rng = SimRng::new(9);
    for name in [LARGE, SMALL, GONE] {
        create(&engine, name);
        fill(&engine, name, &mut rng, 0, 400);
    }
    engine.checkpoint_now().unwrap();
    let table = |name| engine.table(name).unwrap().unwrap();
    let trees: Vec<_> = [LARGE, GONE].map(table).iter().map(|t| t.def.trees().count()).collect();
    for name in [LARGE, SMALL, GONE] {
        fill(&engine, name, &mut rng, 400, 400);
    }
    let dirty = engine.pool.stats().dirty;
    engine.drop_table(LARGE).unwrap();
    engine.truncate_table(GONE, 1).unwrap();
    let waiting = engine.schema.dropped_trees.lock().len();
    assert_eq!(waiting, trees.iter().sum::<usize>());
    engine.free_dropped_step().unwrap();
    assert!(!engine.schema.dropped_trees.lock().is_empty(), "one tree a step");
    let now = || (engine.store.written(), engine.store.stats().images, engine.pool.stats().dirty);
    let (before, images_before, dirty_before) = now();
    assert!(dirty > 100 && dirty_before + 10 > dirty, "{dirty_before} of {dirty}");
    engine.checkpoint_now().unwrap();
    let (after, images, dirty) = now();
    assert_eq!((after.dropped, dirty), (before.dropped, 0));
    let images = images - images_before;
    assert!(0 < images && images < dirty_before * 2 / 3, "{images} of {dirty_before}");
}
