//! Walks over a tree larger than memory leave in memory what others want.

use super::*;
use crate::buffer::Passing;

fn key(n: u64) -> Vec<u8> {
    n.to_be_bytes().to_vec()
}

const ROWS: u64 = 40_000;
const HOT: u64 = 40;
/// Rows that lie in as many leaves.
const HOT_STEP: u64 = 200;

fn filled() -> (Arc<Env>, Arc<Tree>) {
    let env = new_env(64 * PAGE_BYTES);
    let tree = Tree::create(Arc::clone(&env), TREE).unwrap();
    (0..ROWS).for_each(|n| put(&tree, &key(n), &[7; 100]));
    assert!(env.pool.writeback_before(Lsn(u64::MAX), usize::MAX).unwrap());
    (env, tree)
}

/// Reads rows that are wanted again and again; answers how many pages that had to read.
fn want_hot_rows(env: &Env, tree: &Tree) -> u64 {
    let before = env.pool.stats().misses;
    (0..HOT).for_each(|n| assert!(get(tree, &key(n * HOT_STEP)).is_some()));
    env.pool.stats().misses - before
}

fn walk(tree: &Tree, direction: Direction) -> u64 {
    let (mut passing, mut seen) = (Passing::default(), 0);
    let mut fence: Option<Vec<u8>> = None;
    loop {
        let from = fence.as_ref().map_or(Bound::Unbounded, |fence| direction.behind(fence));
        let visit = &mut |_: &[u8], _: &[u8]| {
            seen += 1;
            ControlFlow::Continue(())
        };
        match tree.scan_one_leaf(from, direction, &mut passing, visit).unwrap().0 {
            LeafEnd::Next(next) => fence = Some(next),
            _ => return seen,
        }
    }
}

/// Each answers how many rows it has seen.
type Walk = fn(&Tree) -> u64;

const WALKS: [(&str, Walk); 3] = [
    ("forward", |tree| walk(tree, Direction::Forward)),
    ("backward", |tree| walk(tree, Direction::Backward)),
    ("check", |tree| tree.check().unwrap().entries),
];

#[test]
fn scans_and_checks_leave_wanted_leaves_in_memory() {
    let (env, tree) = filled();
    for (name, walk) in WALKS {
        want_hot_rows(&env, &tree);
        assert!(want_hot_rows(&env, &tree) <= 4, "memory holds them");
        let before = env.pool.stats();
        assert_eq!(walk(&tree), ROWS, "{name}");
        let now = env.pool.stats();
        assert!(now.misses - before.misses > 150, "{name} reads what memory does not hold");
        let missed = want_hot_rows(&env, &tree);
        assert!(missed <= 12, "{name} pushed out {missed} of {HOT} wanted leaves");
    }
}

#[test]
fn walks_in_both_directions_find_their_leaves_read_ahead() {
    let (env, tree) = filled();
    let pool = Arc::clone(&env.pool);
    // As if the readers were always in time.
    let reader = Arc::downgrade(&pool);
    pool.set_read_waker(Box::new(move || {
        let pool = reader.upgrade().expect("the scan has it");
        std::thread::spawn(move || while pool.read_step() {}).join().unwrap();
    }));
    for (name, walk) in WALKS {
        want_hot_rows(&env, &tree);
        let before = pool.stats();
        assert_eq!(walk(&tree), ROWS, "{name}");
        let now = pool.stats();
        let (ahead, misses) = (now.read_ahead - before.read_ahead, now.misses - before.misses);
        assert!(ahead > 150 && misses < 30, "{name}: {ahead} read ahead, {misses} not");
        let missed = want_hot_rows(&env, &tree);
        assert!(missed <= 16, "{name} pushed out {missed} of {HOT} wanted leaves");
    }
}
