use super::apply::apply;
use super::node::Node;
use super::*;
use crate::base::limits::{KEY_BYTES_MAX, VALUE_BYTES_MAX};
use crate::base::{Error, Lsn, PageId, Result, TreeId, TxnId, PAGE_BYTES};
use crate::buffer::{Pool, PoolOptions};
use crate::os::sim::{SimOs, SimRng};
use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

mod bench;
mod bulk;
mod crash;
mod near;
mod passing;
mod sample;
mod support;
mod threads;
use support::{new_store, new_wal};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

const TREE: TreeId = TreeId(7);

fn new_env(capacity_bytes: usize) -> Arc<Env> {
    let os = SimOs::new(1);
    let pool = Pool::new(new_store(&os), PoolOptions { capacity_bytes });
    Env::new(pool, new_wal(&os), PageId(1))
}

fn get(tree: &Tree, key: &[u8]) -> Option<Vec<u8>> {
    let mut found = None;
    tree.get(key, &mut |value| found = value.map(<[u8]>::to_vec)).unwrap();
    found
}

/// A new version with these bytes but the LSN, which the tree gives it.
fn stamped(entry: &[u8]) -> Value<'_> {
    let txn = entry[1..7].iter().rev().fold(0, |txn, byte| txn << 8 | u64::from(*byte));
    Value::Version { flags: entry[0], txn: TxnId(txn), payload: entry[15..].into() }
}

fn put(tree: &Tree, key: &[u8], value: &[u8]) {
    let done = tree.change(key, &mut |_| EntryEdit::put(value, &b""[..])).unwrap();
    assert!(done.is_some());
}

fn remove(tree: &Tree, key: &[u8]) -> bool {
    tree.change(key, &mut |_| EntryEdit::remove(&b"note"[..])).unwrap().is_some()
}

/// All entries by `scan_leaf`, in the direction.
fn scan(tree: &Tree, from: Bound<&[u8]>, direction: Direction) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut out = Vec::new();
    let mut fence: Option<Vec<u8>> = None;
    loop {
        let bound = match (&fence, direction) {
            (None, _) => from,
            (Some(key), Direction::Forward) => Bound::Included(&key[..]),
            (Some(key), Direction::Backward) => Bound::Excluded(&key[..]),
        };
        let visit = &mut |k: &[u8], v: &[u8]| {
            out.push((k.to_vec(), v.to_vec()));
            ControlFlow::Continue(())
        };
        match tree.scan_leaf(bound, direction, visit).unwrap() {
            LeafEnd::Next(next) => fence = Some(next),
            LeafEnd::End => return out,
            LeafEnd::Stopped => unreachable!(),
        }
    }
}

/// How keys and values of a run are drawn.
struct Draw {
    rng: SimRng,
    key_bytes_max: u64,
    value_bytes_max: u64,
    alphabet: u64,
    counter: u64,
    ascending: bool,
}

impl Draw {
    fn new(seed: u64) -> Draw {
        let mut rng = SimRng::new(seed);
        let key_bytes_max = [8, 40, 300, KEY_BYTES_MAX as u64][rng.below(4) as usize];
        let value_bytes_max = [0, 30, 400, VALUE_BYTES_MAX as u64][rng.below(4) as usize];
        let alphabet = [2, 5, 256][rng.below(3) as usize];
        let ascending = rng.chance(20);
        Draw { rng, key_bytes_max, value_bytes_max, alphabet, counter: 0, ascending }
    }

    fn length(&mut self, max: u64) -> usize {
        match self.rng.below(10) {
            0 => max as usize,
            1 => 0,
            _ => self.rng.below(max + 1) as usize,
        }
    }

    fn new_key(&mut self) -> Vec<u8> {
        self.counter += 1;
        if self.ascending {
            return self.counter.to_be_bytes().to_vec();
        }
        // Long common beginnings, some of them whole other keys.
        let len = self.length(self.key_bytes_max);
        let same = if self.rng.chance(50) { self.rng.below(len as u64 + 1) as usize } else { 0 };
        let letter = |rng: &mut SimRng, alphabet| rng.below(alphabet) as u8;
        (0..len).map(|i| if i < same { 1 } else { letter(&mut self.rng, self.alphabet) }).collect()
    }

    fn key(&mut self, model: &Model) -> Vec<u8> {
        if !model.is_empty() && self.rng.chance(60) {
            let near = self.new_key();
            let next = model.range(near..).next().or_else(|| model.iter().next());
            return next.map(|(key, _)| key.clone()).unwrap();
        }
        self.new_key()
    }

    fn value(&mut self) -> Vec<u8> {
        let len = self.length(self.value_bytes_max);
        let fill = self.rng.next_u64() as u8;
        (0..len).map(|i| if i % 5 == 0 { fill } else { i as u8 }).collect()
    }
}

fn random_step(tree: &Tree, model: &mut Model, draw: &mut Draw, remove_percent: u64) {
    let key = draw.key(model);
    if draw.rng.chance(remove_percent) {
        assert_eq!(remove(tree, &key), model.remove(&key).is_some());
    } else {
        let value = draw.value();
        let expected = model.get(&key).cloned();
        let decide = &mut |old: Option<&[u8]>| {
            assert_eq!(old, expected.as_deref());
            EntryEdit::put(&value[..], &b"n"[..])
        };
        tree.change(&key, decide).unwrap();
        model.insert(key, value);
    }
}

fn assert_same(tree: &Tree, model: &Model, draw: &mut Draw) {
    let shape = tree.check().unwrap();
    assert_eq!(shape.entries, model.len() as u64);
    let all: Vec<_> = model.iter().map(|(k, v)| (k.clone(), v.clone())).collect();
    assert_eq!(scan(tree, Bound::Unbounded, Direction::Forward), all);
    let reversed: Vec<_> = all.iter().rev().cloned().collect();
    assert_eq!(scan(tree, Bound::Unbounded, Direction::Backward), reversed);
    for _ in 0..10 {
        let key = draw.key(model);
        assert_eq!(get(tree, &key), model.get(&key).cloned());
        for bound in [Bound::Included(&key[..]), Bound::Excluded(&key[..])] {
            let owned = bound.map(<[u8]>::to_vec);
            let up = model.range((owned.clone(), Bound::Unbounded));
            let up: Vec<_> = up.map(|(k, v)| (k.clone(), v.clone())).collect();
            assert_eq!(scan(tree, bound, Direction::Forward), up);
            let down = model.range((Bound::Unbounded, owned)).rev();
            let down: Vec<_> = down.map(|(k, v)| (k.clone(), v.clone())).collect();
            assert_eq!(scan(tree, bound, Direction::Backward), down);
        }
    }
}

/// Replays every record over empty pages and compares each page still in the tree.
fn assert_replay_gives_same_pages(env: &Env) {
    let mut pages: BTreeMap<PageId, Vec<u8>> = BTreeMap::new();
    let mut visit = |lsn: Lsn, record: crate::wal::RecordRef<'_>| -> Result<()> {
        if record.kind != RECORD_TREE {
            return Ok(());
        }
        let record = decode_record(record.payload)?;
        assert_eq!(record.tree, TREE);
        for (page, change) in record.changes() {
            assert!(pages.contains_key(&page) || change_creates_page(change));
            let bytes = pages.entry(page).or_insert_with(|| vec![0; PAGE_BYTES]);
            if Node::new(bytes).lsn() < lsn {
                apply(bytes, page, change, lsn)?;
                check_page(bytes)?;
            }
        }
        record.freed().for_each(|page| assert!(pages.remove(&page).is_some()));
        Ok(())
    };
    env.wal.flush_to(env.wal.end()).unwrap();
    env.wal.scan(env.wal.oldest(), env.wal.end(), &mut visit).unwrap();
    for (page, bytes) in &pages {
        let guard = env.pool.read(*page).unwrap();
        assert!(guard[..] == bytes[..], "{page} differs after replay");
    }
    assert_eq!(pages.keys().next_back().map(|p| p.0 < env.next_page().0), Some(true));
}

#[test]
fn agrees_with_a_model_and_replays_to_identical_pages() {
    for seed in 0..40 {
        let env = new_env(1 << 20);
        let tree = Tree::create(Arc::clone(&env), TREE).unwrap();
        let (mut draw, mut model) = (Draw::new(seed), Model::new());
        for phase in [15, 50, 90, 30, 95] {
            for _ in 0..400 {
                random_step(&tree, &mut model, &mut draw, phase);
            }
            assert_same(&tree, &model, &mut draw);
        }
        assert_replay_gives_same_pages(&env);
        for key in model.keys() {
            assert!(remove(&tree, key));
        }
        let shape = tree.check().unwrap();
        assert_eq!(shape.entries, 0, "seed {seed}");
        assert!(shape.leaves < 4, "seed {seed}: {shape:?}");
    }
}

#[test]
fn garbage_changes_are_corrupt_or_leave_a_valid_node() {
    let env = new_env(1 << 20);
    let tree = Tree::create(Arc::clone(&env), TREE).unwrap();
    let mut draw = Draw::new(3);
    (0..60).for_each(|i| put(&tree, &[b"key", &[i][..]].concat(), &draw.value()));
    let page = env.pool.read(tree.root()).unwrap().to_vec();
    let mut rng = SimRng::new(9);
    for round in 0..60_000 {
        let mut change = vec![1 + (round % 11) as u8];
        (0..rng.below(24)).for_each(|_| {
            let small = rng.chance(70);
            change.push(if small { rng.below(12) as u8 } else { rng.next_u64() as u8 });
        });
        let mut bytes = page.clone();
        match apply(&mut bytes, tree.root(), &change, Lsn(u64::MAX - 9)) {
            Ok(()) => check_page(&bytes).unwrap(),
            Err(_) => assert!(bytes == page, "a refused change leaves the page alone"),
        }
        assert!(decode_record(&change).is_err() || change.len() > 3);
    }
    assert!(apply(&mut vec![0; PAGE_BYTES], PageId(1), &[9, 0], Lsn(1)).is_err());
}

#[test]
fn damaged_pages_are_found_before_use() {
    let env = new_env(1 << 20);
    let tree = Tree::create(Arc::clone(&env), TREE).unwrap();
    (0..200u32).for_each(|i| put(&tree, &i.to_be_bytes(), b"value"));
    let page = env.pool.read(tree.root()).unwrap().to_vec();
    let mut rng = SimRng::new(4);
    for _ in 0..20_000 {
        let mut bytes = page.clone();
        for _ in 0..=rng.below(3) {
            bytes[16 + rng.below(300) as usize] = rng.next_u64() as u8;
        }
        if check_page(&bytes).is_ok() {
            let node = Node::new(&bytes);
            (0..node.count()).for_each(|i| assert!(node.key(i).len() + node.value(i).len() > 0));
        }
    }
    assert!(check_page(&[0; PAGE_BYTES]).is_err());
    assert!(check_page(&[0; 100]).is_err());
}

#[test]
fn a_stamped_value_holds_the_lsn_of_its_record() {
    use crate::base::EntryHeader;
    let env = new_env(1 << 20);
    let tree = Tree::create(Arc::clone(&env), TREE).unwrap();
    let mut last = Lsn::ZERO;
    for round in 0..4u8 {
        let mut entry = Vec::new();
        let lsn = Lsn(u64::MAX);
        EntryHeader { flags: 0, txn: TxnId(u64::from(round) + 5), lsn }.put(&mut entry);
        entry.extend_from_slice(&[round; 150][..if round == 2 { 100 } else { 150 }]);
        entry.extend_from_slice(&[9; 50]);
        let decide = &mut |_: Option<&[u8]>| EntryEdit::Put {
            value: stamped(&entry),
            note: b"undo"[..].into(),
        };
        let appended = tree.change(b"row", decide).unwrap().unwrap();
        let stored = get(&tree, b"row").unwrap();
        let (header, payload) = EntryHeader::split(&stored).unwrap();
        assert_eq!((header.lsn, header.txn.0), (appended.lsn, u64::from(round) + 5));
        assert_eq!(payload, &entry[15..]);
        assert!(appended.lsn > last);
        last = appended.lsn;
        let record = env.wal.read(appended.lsn).unwrap();
        assert_eq!(decode_record(&record.payload).unwrap().note, b"undo");
    }
    assert_replay_gives_same_pages(&env);
}

#[test]
fn an_update_in_place_logs_only_what_differs() {
    let env = new_env(1 << 20);
    let tree = Tree::create(Arc::clone(&env), TREE).unwrap();
    let mut row = [7u8; 200];
    put(&tree, b"row", &row);
    row[120..124].fill(8);
    let decide =
        &mut |_: Option<&[u8]>| EntryEdit::Put { value: stamped(&row), note: b""[..].into() };
    let appended = tree.change(b"row", decide).unwrap().unwrap();
    let record = env.wal.read(appended.lsn).unwrap();
    assert!(record.payload.len() < 20, "{} bytes", record.payload.len());
}

#[test]
fn ascending_keys_fill_their_leaves() {
    let env = new_env(16 << 20);
    let tree = Tree::create(Arc::clone(&env), TREE).unwrap();
    (0..60_000u64).for_each(|i| put(&tree, &i.to_be_bytes(), &[5; 100]));
    let shape = tree.check().unwrap();
    let fill = shape.leaf_used_bytes * 100 / (shape.leaves * PAGE_BYTES as u64);
    // They were full when split; then the fence of the left part shortens its keys.
    assert!(fill >= 93, "{fill} % of {shape:?}");
    let size = tree.estimate_size().unwrap();
    assert!((57_000..=63_000).contains(&size.entries), "{size:?}");
    assert!(size.leaf_pages.abs_diff(shape.leaves) <= 2, "{size:?} of {shape:?}");
    assert!(size.pages.abs_diff(shape.leaves + shape.inner_nodes) <= 2, "{size:?} of {shape:?}");
    for (from, to) in [(100u64, 105u64), (10_000, 40_000), (59_000, 59_999), (7, 7)] {
        let (low, high) = (from.to_be_bytes(), to.to_be_bytes());
        let range = (Bound::Included(&low[..]), Bound::Excluded(&high[..]));
        let estimate = tree.estimate_range(range.0, range.1).unwrap().entries as f64;
        let exact = (to - from) as f64;
        assert!((estimate - exact).abs() <= exact * 0.02, "{estimate} for {exact}");
    }
    let backwards = tree.estimate_range(Bound::Excluded(b"z"), Bound::Included(b"a")).unwrap();
    assert_eq!(backwards.entries, 0);
}

#[test]
fn dead_entries_go_before_a_leaf_is_split() {
    let env = new_env(16 << 20);
    let _ = env.dead.set(Box::new(|value| value[0] == b'd'));
    let tree = Tree::create(Arc::clone(&env), TREE).unwrap();
    for i in 0..5_000u64 {
        let value = if i % 100 == 0 { [b'a'; 100] } else { [b'd'; 100] };
        put(&tree, &i.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes(), &value);
    }
    let shape = tree.check().unwrap();
    assert!(shape.leaves <= 2, "{shape:?}");
    let alive = scan(&tree, Bound::Unbounded, Direction::Forward);
    assert_eq!(alive.iter().filter(|(_, value)| value[0] == b'a').count(), 50);
    assert_replay_gives_same_pages(&env);
}

#[test]
fn keys_and_values_over_the_limit_are_refused() {
    let env = new_env(1 << 20);
    let tree = Tree::create(env, TREE).unwrap();
    let put = |key: &[u8], value: &[u8]| {
        tree.change(key, &mut |_| EntryEdit::put(value, &b""[..])).map(|_| ())
    };
    put(&[1; KEY_BYTES_MAX], &[2; VALUE_BYTES_MAX]).unwrap();
    assert!(put(&[1; KEY_BYTES_MAX + 1], &[]).is_err());
    assert!(put(&[1], &[2; VALUE_BYTES_MAX + 1]).is_err());
    assert_eq!(tree.check().unwrap().entries, 1);
}

/// At each leaf others change what they like: they find no latch held, and the check no fault.
#[test]
fn a_check_holds_no_latch_between_leaves() {
    let env = new_env(16 << 20);
    let tree = Tree::create(Arc::clone(&env), TREE).unwrap();
    (0..40_000u64).for_each(|i| put(&tree, &(2 * i).to_be_bytes(), &[5; 100]));
    for seed in 0..3u64 {
        let mut rng = SimRng::new(seed);
        let (mut faults, mut leaves) = (Vec::new(), 0u64);
        let shape = tree.check_all(&mut faults, &mut || {
            leaves += 1;
            drop(env.pool.write(tree.root()).unwrap());
            // Around the walk, after it and before it: splits, and leaves that become empty.
            let place = [leaves * 130, rng.below(40_000), 20_000][rng.below(3) as usize];
            for i in 0..80 {
                let key = 2 * (place + i) + rng.below(2);
                match seed {
                    0 => drop(remove(&tree, &key.to_be_bytes())),
                    _ => put(&tree, &key.to_be_bytes(), &[seed as u8; 100]),
                }
            }
            false
        });
        assert_eq!(faults.len(), 0, "{:?}", faults.first());
        assert_eq!(shape.unwrap().leaves, leaves);
        let after = tree.check().unwrap();
        let all = scan(&tree, Bound::Unbounded, Direction::Forward).len();
        assert_eq!(after.entries, all as u64);
    }
}

#[test]
fn a_check_is_stopped_at_any_leaf() {
    let env = new_env(16 << 20);
    let tree = Tree::create(Arc::clone(&env), TREE).unwrap();
    (0..5_000u64).for_each(|i| put(&tree, &i.to_be_bytes(), &[5; 100]));
    let mut left = 5;
    let stopped = tree.check_all(&mut Vec::new(), &mut || {
        left -= 1;
        left == 0
    });
    assert!(matches!(stopped, Err(Error::Interrupted)));
}
