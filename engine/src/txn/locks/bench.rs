//! What a lock costs, by kind and by how many there are already:
//! `make bench KIND=locks`, or `cargo test --release -p sluice-engine manager::bench -- --ignored
//! --nocapture`.

use super::tests::{assert_clean, manager, T};
use super::*;
use std::ops::Bound::{Excluded, Included};
use std::time::Instant;
use LockMode::{Exclusive as X, Shared as S};

/// Locks are taken by scans, in the order of keys, and by statements that jump.
#[derive(Clone, Copy)]
enum Order {
    ByKey,
    Scattered,
}

impl Order {
    /// The `n`th key of `count`, each once: a step that shares no factor with a power of ten.
    fn key(self, n: u64, count: u64) -> [u8; 8] {
        let at = match self {
            Order::ByKey => n,
            Order::Scattered => n * 7_368_787 % count,
        };
        (at * 4).to_be_bytes()
    }
}

fn ns_per_lock(began: Instant, count: u64) -> f64 {
    began.elapsed().as_nanos() as f64 / count as f64
}

/// Takes `count` locks, then releases them. Answers ns per lock of both.
fn take(count: u64, lock: &dyn Fn(&LockManager, &Arc<Owner>, u64)) -> [f64; 2] {
    let (_, m) = manager();
    let owner = m.owner(1);
    let began = Instant::now();
    (0..count).for_each(|n| lock(&m, &owner, n));
    let taken = ns_per_lock(began, count);
    let began = Instant::now();
    m.release_all(&owner);
    let released = ns_per_lock(began, count);
    assert_clean(&m);
    [taken, released]
}

/// Each owner locks a span around those before it: all lie over one key.
fn take_nested(count: u64) -> [f64; 2] {
    let (_, m) = manager();
    let owners: Vec<_> = (0..count).map(|n| m.owner(n + 1)).collect();
    let began = Instant::now();
    for (owner, n) in owners.iter().zip(1..) {
        let (low, high) = ((count - n).to_be_bytes(), (count + n).to_be_bytes());
        let range = (Excluded(&low[..]), Excluded(&high[..]));
        m.try_lock_range(owner, T, range, S).unwrap();
    }
    let taken = ns_per_lock(began, count);
    let began = Instant::now();
    owners.iter().for_each(|owner| m.release_all(owner));
    let released = ns_per_lock(began, count);
    assert_clean(&m);
    [taken, released]
}

/// Inserts between `count` spans of another, which they do not meet; and into them, which they do.
fn check_inserts(count: u64) -> [f64; 2] {
    let (_, m) = manager();
    let [holder, writer] = [1, 2].map(|s| m.owner(s));
    for n in 0..count {
        let (low, high) = ((n * 4).to_be_bytes(), (n * 4 + 2).to_be_bytes());
        m.try_lock_range(&holder, T, (Excluded(&low[..]), Included(&high[..])), X).unwrap();
    }
    let checks = count;
    let key = |n: u64, offset: u64| ((n * 7_368_787 % count) * 4 + offset).to_be_bytes();
    let mut answers = [0.0; 2];
    for (answer, (offset, meets)) in answers.iter_mut().zip([(3, false), (1, true)]) {
        let began = Instant::now();
        for n in 0..checks {
            assert_eq!(m.insert_conflict(&writer, T, &key(n, offset)).is_some(), meets);
        }
        *answer = ns_per_lock(began, checks);
    }
    m.release_all(&holder);
    assert_clean(&m);
    answers
}

fn row(order: Order, mode: LockMode, count: u64) -> [f64; 2] {
    take(count, &move |m, owner, n| {
        m.try_lock(owner, T, &order.key(n, count), mode).unwrap();
    })
}

fn spans(order: Order, count: u64) -> [f64; 2] {
    take(count, &move |m, owner, n| {
        let low = order.key(n, count);
        let high = (u64::from_be_bytes(low) + 2).to_be_bytes();
        m.try_lock_range(owner, T, (Excluded(&low[..]), Included(&high[..])), X).unwrap();
    })
}

/// As a scan does it: one span grows over row after row.
fn growing(count: u64) -> [f64; 2] {
    take(count, &|m, owner, n| {
        let (low, high) = ((n * 4).to_be_bytes(), (n * 4 + 4).to_be_bytes());
        let range = (Excluded(&low[..]), Included(&high[..]));
        m.try_lock_next(owner, T, range, &high, X).unwrap();
    })
}

/// As an UPDATE at READ COMMITTED does it: each row is locked, written and let go.
fn written(count: u64) -> [f64; 2] {
    take(count, &|m, owner, n| {
        let key = (n * 4).to_be_bytes();
        m.try_lock(owner, T, &key, X).unwrap();
        m.let_go(owner, T, &key);
    })
}

/// The yardstick: what it costs to put the same keys into a map of the standard library, and to take
/// them out in the order in which they came.
fn mapped<M: Default>(
    order: Order,
    count: u64,
    put: fn(&mut M, [u8; 8]),
    take: fn(&mut M, &[u8; 8]) -> bool,
) -> [f64; 2] {
    let mut map = M::default();
    let began = Instant::now();
    (0..count).for_each(|n| put(&mut map, order.key(n, count)));
    let put_ns = ns_per_lock(began, count);
    let began = Instant::now();
    (0..count).for_each(|n| assert!(take(&mut map, &order.key(n, count))));
    [put_ns, ns_per_lock(began, count)]
}

type Tree = std::collections::BTreeMap<[u8; 8], u64>;
#[allow(clippy::disallowed_types, reason = "the table that is compared")]
type Hash = std::collections::HashMap<[u8; 8], u64>;

fn in_tree(order: Order, count: u64) -> [f64; 2] {
    let put = |map: &mut Tree, key| assert!(map.insert(key, 0).is_none());
    mapped::<Tree>(order, count, put, |map, key| map.remove(key).is_some())
}

fn in_hash(order: Order, count: u64) -> [f64; 2] {
    let put = |map: &mut Hash, key| assert!(map.insert(key, 0).is_none());
    mapped::<Hash>(order, count, put, |map, key| map.remove(key).is_some())
}

type Kind = (&'static str, [&'static str; 2], fn(u64) -> [f64; 2]);

const TAKEN: [&str; 2] = ["take", "release"];
const KINDS: [Kind; 12] = [
    ("rows, shared, by key", TAKEN, |n| row(Order::ByKey, S, n)),
    ("rows, exclusive, by key", TAKEN, |n| row(Order::ByKey, X, n)),
    ("rows, exclusive, scattered", TAKEN, |n| row(Order::Scattered, X, n)),
    ("spans apart, by key", TAKEN, |n| spans(Order::ByKey, n)),
    ("spans apart, scattered", TAKEN, |n| spans(Order::Scattered, n)),
    ("one span that grows", TAKEN, growing),
    ("spans of all owners, nested", TAKEN, take_nested),
    ("rows written and let go", TAKEN, written),
    ("insert checks, scattered", ["free", "in way"], check_inserts),
    ("BTreeMap, by key", ["put", "remove"], |n| in_tree(Order::ByKey, n)),
    ("BTreeMap, scattered", ["put", "remove"], |n| in_tree(Order::Scattered, n)),
    ("HashMap, scattered", ["put", "remove"], |n| in_hash(Order::Scattered, n)),
];

fn measure(counts: &[u64]) {
    println!(
        "{:32}{}",
        "ns per lock; locks:",
        counts.iter().fold(String::new(), |line, count| { line + &format!("{count:>12}") })
    );
    for (kind, columns, run) in KINDS {
        let figures: Vec<[f64; 2]> = counts.iter().map(|&count| best_of(run, count)).collect();
        for (at, column) in columns.into_iter().enumerate() {
            print!("{:32}", format!("{kind}: {column}"));
            figures.iter().for_each(|figure| print!("{:12.0}", figure[at]));
            let (first, last) = (figures[0][at], figures[figures.len() - 1][at]);
            println!("   x{:.1}", last / first);
        }
    }
}

/// Small numbers of locks are over before the processor is warm: they are repeated.
fn best_of(run: fn(u64) -> [f64; 2], count: u64) -> [f64; 2] {
    let rounds = (1_000_000 / count).clamp(2, 50);
    let figures = (0..rounds).map(|_| run(count));
    figures.reduce(|a, b| [a[0].min(b[0]), a[1].min(b[1])]).expect("some rounds")
}

#[test]
#[ignore = "a measurement, not a check"]
fn ns_by_kind_and_number() {
    measure(&[1_000, 10_000, 100_000, 1_000_000]);
}

/// One kind, a million locks in all, for a profiler: `LOCKS_KIND` is its name, `LOCKS` how many there
/// are at a time. Both must be the same work but for the size of the tree.
#[test]
#[ignore = "for valgrind --tool=cachegrind"]
fn one_kind_for_a_profiler() {
    let wanted = std::env::var("LOCKS_KIND").expect("LOCKS_KIND");
    let count: u64 = std::env::var("LOCKS").expect("LOCKS").parse().expect("a number");
    let kind = KINDS.iter().find(|(name, ..)| *name == wanted);
    let (.., run) = kind.unwrap_or_else(|| panic!("no kind {wanted}"));
    for _ in 0..1_000_000 / count {
        run(count);
    }
}

/// Keeps the measurement itself alive.
#[test]
fn a_moment_of_locks() {
    measure(&[100, 1_000]);
}
