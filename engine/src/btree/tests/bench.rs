//! Nanoseconds per operation, cached, one thread: `cargo test --release bench_ -- --ignored --nocapture`.

use super::support::{new_store, wal_options};
use super::*;
use crate::wal::{Wal, WalOptions};
use std::hint::black_box;
use std::time::Instant;

const ENTRIES: u64 = 1_000_000;

fn key_of(i: u64) -> [u8; 8] {
    i.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes()
}

fn timed(what: &str, count: u64, mut f: impl FnMut(u64)) {
    let start = Instant::now();
    (0..count).for_each(&mut f);
    println!("{what}: {} ns", start.elapsed().as_nanos() / u128::from(count));
}

#[test]
#[ignore = "measures"]
fn bench_change_get_scan() {
    let os = SimOs::new(1);
    let pool = Pool::new(new_store(&os), PoolOptions { capacity_bytes: 1 << 30 });
    let options = WalOptions { segment_bytes: 16 << 20, cache_bytes: 32 << 20, ..wal_options() };
    let wal = Wal::create(os.clone(), options).unwrap();
    let tree = Tree::create(Env::new(pool, wal, PageId(1)), TREE).unwrap();
    let wal = &tree.env.wal;
    let flush = |i: u64| {
        if i % 10_000 == 0 {
            wal.flush_to(wal.end()).unwrap();
            wal.retain_from(wal.end());
        }
    };
    let mut row = [3u8; 200];
    timed("insert, random (log flush to memory included)", ENTRIES, |i| {
        row[..8].copy_from_slice(&i.to_be_bytes());
        put(&tree, &key_of(i), &row);
        flush(i);
    });
    println!("{:?}", tree.check().unwrap());
    let mut rng = SimRng::new(5);
    timed("get, random", 2 * ENTRIES, |_| {
        let key = key_of(rng.below(ENTRIES));
        tree.get(&key, &mut |value| assert!(black_box(value).is_some())).unwrap();
    });
    let mut update = |what: &str, ids: u64| {
        let before = wal.end();
        timed(what, 200_000, |i| {
            row[100..104].copy_from_slice(&(i as u32).to_be_bytes());
            let key = key_of(rng.below(ids));
            tree.change(&key, &mut |_| {
                let note = [1u8; 24][..].to_vec().into();
                EntryEdit::Put { value: stamped(&row), note }
            })
            .unwrap();
        });
        println!("  {} log bytes each", (wal.end().0 - before.0) / 200_000);
        flush(0);
    };
    update("update in place of 200 bytes, random", ENTRIES);
    update("update in place of 200 bytes, 1000 hot keys", 1000);
    let mut entries = 0u64;
    let start = Instant::now();
    let mut fence = Vec::new();
    let mut visit = |key: &[u8], value: &[u8]| {
        entries += black_box(key.len() + value.len() > 0) as u64;
        ControlFlow::Continue(())
    };
    while let LeafEnd::Next(next) =
        tree.scan_leaf(Bound::Included(&fence), Direction::Forward, &mut visit).unwrap()
    {
        fence = next;
    }
    println!(
        "scan: {} ns per entry of {entries}",
        start.elapsed().as_nanos() / u128::from(entries)
    );
}
