//! The leaf that a thread has noted saves the way down, and never leads to another leaf.

use super::*;

fn looks(env: &Env) -> u64 {
    let stats = env.pool.stats();
    stats.hits + stats.misses
}

fn key(n: u64) -> Vec<u8> {
    n.to_be_bytes().to_vec()
}

fn filled(keys: std::ops::Range<u64>) -> (Arc<Env>, Arc<Tree>, Model) {
    let env = new_env(4 << 20);
    let tree = Tree::create(Arc::clone(&env), TREE).unwrap();
    let mut model = Model::new();
    for n in keys {
        put(&tree, &key(n), &[7; 100]);
        model.insert(key(n), vec![7; 100]);
    }
    (env, tree, model)
}

/// The first entry on the other side of a bound, as locking scans take it.
fn step(tree: &Tree, from: Bound<&[u8]>, direction: Direction) -> Option<Vec<u8>> {
    let mut found = None;
    let visit = &mut |k: &[u8], _: &[u8]| {
        found = Some(k.to_vec());
        ControlFlow::Break(())
    };
    tree.scan_leaf(from, direction, visit).unwrap();
    found
}

#[test]
fn a_scan_that_writes_each_row_goes_down_once_for_each_leaf() {
    const ROWS: u64 = 5000;
    let (env, tree, _) = filled(0..ROWS);
    let shape = tree.check().unwrap();
    assert!(shape.height == 2 && shape.leaves > 20, "{} leaves", shape.leaves);
    for direction in [Direction::Forward, Direction::Backward] {
        let before = looks(&env);
        let (mut from, mut rows) = (Bound::Unbounded, 0);
        while let Some(found) = step(&tree, from.as_ref().map(|k: &Vec<u8>| &k[..]), direction) {
            put(&tree, &found, &[8; 100]);
            from = Bound::Excluded(found);
            rows += 1;
        }
        assert_eq!(rows, ROWS);
        // A step and a write look at the leaf alone; at its end the scan comes from the root.
        let most = 2 * ROWS + 4 * shape.leaves;
        assert!(looks(&env) - before <= most, "{} looks", looks(&env) - before);
    }
    assert!(scan(&tree, Bound::Unbounded, Direction::Forward)
        .iter()
        .all(|(_, v)| v[..] == [8; 100]));
}

/// This thread notes a key, another one changes the tree, then this one goes on from the key.
fn goes_on_after(rows: std::ops::Range<u64>, noted: u64, change: fn(&Tree, &mut Model)) {
    let (_env, tree, mut model) = filled(rows);
    assert!(get(&tree, &key(noted)).is_some());
    std::thread::scope(|scope| scope.spawn(|| change(&tree, &mut model)).join().unwrap());
    let is_there = model.contains_key(&key(noted));
    assert_eq!(get(&tree, &key(noted)).is_some(), is_there);
    put(&tree, &key(noted), b"mine");
    model.insert(key(noted), b"mine".to_vec());
    for direction in [Direction::Forward, Direction::Backward] {
        let found = step(&tree, Bound::Excluded(&key(noted)), direction);
        let expected = match direction {
            Direction::Forward => {
                let from = (Bound::Excluded(key(noted)), Bound::Unbounded);
                model.range(from).next()
            }
            Direction::Backward => model.range(..key(noted)).next_back(),
        };
        assert_eq!(found.as_ref(), expected.map(|(k, _)| k));
        assert!(get(&tree, &key(noted)).is_some());
    }
    tree.check().unwrap();
    let found: Model = scan(&tree, Bound::Unbounded, Direction::Forward).into_iter().collect();
    assert!(found == model);
}

fn insert_between(tree: &Tree, model: &mut Model, from: u64) {
    for n in 0..400 {
        let key = [&key(from)[..], &[1, n as u8, (n >> 8) as u8]].concat();
        put(tree, &key, &[9; 100]);
        model.insert(key, vec![9; 100]);
    }
}

fn remove_rows(tree: &Tree, model: &mut Model, rows: std::ops::Range<u64>) {
    for n in rows {
        assert!(remove(tree, &key(n)));
        model.remove(&key(n));
    }
}

#[test]
fn a_leaf_that_was_split_meanwhile() {
    for noted in 300..310 {
        goes_on_after(0..1000, noted, |tree, model| insert_between(tree, model, 304));
    }
}

#[test]
fn leaves_that_were_joined_meanwhile() {
    for noted in [0, 200, 350, 500, 999] {
        goes_on_after(0..1000, noted, |tree, model| remove_rows(tree, model, 1..999));
    }
}

#[test]
fn a_root_that_grew_or_shrank_meanwhile() {
    goes_on_after(0..20, 10, |tree, model| insert_between(tree, model, 5));
    goes_on_after(0..1000, 500, |tree, model| {
        remove_rows(tree, model, 0..500);
        remove_rows(tree, model, 501..1000);
    });
    goes_on_after(0..1000, 500, |tree, model| remove_rows(tree, model, 0..1000));
}
