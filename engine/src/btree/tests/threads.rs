//! Many threads on one tree with a pool that is far too small.

use super::*;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;

const THREADS: u64 = 8;
const STEPS: u64 = 3000;

/// Keys of all threads lie mixed in the same leaves; the last byte says whose it is.
fn own_key(rng: &mut SimRng, thread: u64) -> Vec<u8> {
    let number = rng.below(900) as u16;
    let mut key = number.to_be_bytes().to_vec();
    key.resize(2 + usize::from(number % 50), 3);
    key.push(thread as u8);
    key
}

fn work(tree: &Tree, thread: u64) -> Model {
    let (mut rng, mut model) = (SimRng::new(thread + 77), Model::new());
    for step in 0..STEPS {
        let key = own_key(&mut rng, thread);
        let removes = if step / 500 % 2 == 0 { 20 } else { 80 };
        match rng.below(100) {
            0..=19 => assert_eq!(get(tree, &key), model.get(&key).cloned()),
            20..=22 => {
                let from = Bound::Included(&key[..]);
                let own = |k: &[u8]| k.last() == Some(&(thread as u8));
                let mut found = Vec::new();
                let end = tree.scan_leaf(from, Direction::Forward, &mut |k, v| {
                    if own(k) {
                        found.push((k.to_vec(), v.to_vec()));
                    }
                    ControlFlow::Continue(())
                });
                let LeafEnd::Next(fence) = end.unwrap() else { continue };
                let expected = model.range(key..fence).map(|(k, v)| (k.clone(), v.clone()));
                assert_eq!(found, expected.collect::<Vec<_>>());
            }
            n if n < 23 + removes * 77 / 100 => {
                assert_eq!(super::remove(tree, &key), model.remove(&key).is_some());
            }
            _ => {
                let value = vec![rng.next_u64() as u8; rng.below(600) as usize];
                if rng.below(2) == 0 {
                    // The leaf is noted, and may be another one by the time of the write.
                    assert_eq!(get(tree, &key), model.get(&key).cloned());
                    thread::yield_now();
                }
                put(tree, &key, &value);
                model.insert(key, value);
            }
        }
    }
    model
}

#[test]
fn threads_agree_with_their_models() {
    let env = new_env(0);
    let tree = Tree::create(Arc::clone(&env), TREE).unwrap();
    let done = AtomicBool::new(false);
    let model: Model = thread::scope(|scope| {
        let workers: Vec<_> = (0..THREADS)
            .map(|n| {
                scope.spawn({
                    let tree = &tree;
                    move || work(tree, n)
                })
            })
            .collect();
        let background = scope.spawn(|| {
            while !done.load(SeqCst) {
                env.pool.evict_step(16).unwrap();
                let end = env.wal.end();
                env.pool.writeback_before(Lsn(end.0.saturating_sub(200_000)), 64).unwrap();
                assert!(env.pool.redo_point(end) <= end);
                env.pool.store().gc_step(1 << 20).unwrap();
                tree.check().unwrap();
                thread::yield_now();
            }
        });
        let models: Vec<Model> = workers.into_iter().map(|w| w.join().unwrap()).collect();
        done.store(true, SeqCst);
        background.join().unwrap();
        models.into_iter().flatten().collect()
    });
    assert_same(&tree, &model, &mut Draw::new(5));
    assert_replay_gives_same_pages(&env);
    let end = env.wal.end();
    env.pool.want_images_before(end);
    for (page, _) in env.pool.owed_before(end, usize::MAX) {
        env.pool.pay(page).unwrap();
    }
    while !env.pool.writeback_before(end, 1000).unwrap() {}
    assert_eq!(env.pool.redo_point(end), end);
    let stats = env.pool.stats();
    assert!(stats.evictions > 0 && stats.writebacks > 0 && stats.dirty == 0, "{stats:?}");
}
