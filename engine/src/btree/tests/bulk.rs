//! Trees that are built bottom up, against the entries that went in.

use super::*;
use crate::btree::bulk::Builder;

fn build(env: &Arc<Env>, entries: &Model) -> Arc<Tree> {
    let tree = Tree::create(Arc::clone(env), TREE).unwrap();
    let mut builder = Builder::new(Arc::clone(&tree));
    for (key, value) in entries {
        builder.push(key, value).unwrap();
    }
    builder.finish().unwrap();
    tree
}

fn assert_has(tree: &Tree, entries: &Model) {
    let wanted: Vec<_> = entries.iter().map(|(k, v)| (k.clone(), v.clone())).collect();
    assert!(scan(tree, Bound::Unbounded, Direction::Forward) == wanted);
    let backward: Vec<_> = wanted.into_iter().rev().collect();
    assert!(scan(tree, Bound::Unbounded, Direction::Backward) == backward);
}

/// Keys with a long common beginning, with none, and in groups that change in the middle of a page.
fn random_key(rng: &mut SimRng, kind: u64) -> Vec<u8> {
    let group = rng.below(1 + kind * 7);
    let mut key = match kind {
        0 => Vec::new(),
        1 => vec![b'p'; 40],
        _ => vec![group as u8; 1 + 30 * group as usize],
    };
    let more = rng.below(12) as usize;
    key.extend((0..more).map(|_| rng.below(4) as u8));
    key.extend_from_slice(&(rng.below(1 << 20) as u32).to_be_bytes());
    if rng.chance(2) {
        key.resize(KEY_BYTES_MAX - rng.below(100) as usize, b'z');
    }
    key
}

#[test]
fn a_built_tree_has_its_entries_and_is_sound() {
    for seed in 0..60 {
        let mut rng = SimRng::new(seed);
        let env = new_env(1 << 20);
        let (count, kind) = (rng.below(1 << (1 + seed % 13)), rng.below(3));
        let mut entries = Model::new();
        for _ in 0..count {
            let bytes =
                if rng.chance(3) { rng.below(VALUE_BYTES_MAX as u64) } else { rng.below(40) };
            entries.insert(random_key(&mut rng, kind), vec![rng.below(256) as u8; bytes as usize]);
        }
        let tree = build(&env, &entries);
        assert_eq!(tree.check().unwrap().entries, entries.len() as u64, "seed {seed}");
        assert_has(&tree, &entries);
        // It goes on as any other.
        for _ in 0..200 {
            let key = random_key(&mut rng, kind);
            if rng.chance(50) {
                put(&tree, &key, b"new");
                entries.insert(key, b"new".to_vec());
            } else {
                assert_eq!(remove(&tree, &key), entries.remove(&key).is_some());
            }
        }
        tree.check().unwrap();
        assert_has(&tree, &entries);
    }
}

#[test]
fn pages_of_a_built_tree_are_nearly_full() {
    let env = new_env(8 << 20);
    let key = |i: u32| [&b"a prefix of some length"[..], &i.to_be_bytes()].concat();
    let entries: Model = (0..50_000).map(|i| (key(i), vec![7; 15])).collect();
    let tree = build(&env, &entries);
    let leaves = tree.check().unwrap().leaves;
    // Slot and lengths of an entry, the last bytes of its key, its value.
    let bytes = entries.len() * (8 + 2 + 3 + 15);
    let least = bytes / PAGE_BYTES;
    assert!(leaves as usize <= least + least / 8, "{leaves} leaves, at least {least}");
}
