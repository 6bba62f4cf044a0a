//! Pool, store, log and tree together: crashes at random moments, redo, comparison with a model of
//! what was logged before the recovered end.

use super::support::{new_store, new_wal, store_options, wal_options};
use super::*;
use crate::base::codec::{put_u64, Reader};
use crate::base::Error;
use crate::buffer::Tail;
use crate::os::sim::{Fault, SimOs};
use crate::store::Store;
use crate::wal::{Wal, WalAnchor};
use std::collections::BTreeSet;

/// One logged operation: its record's LSN and what it did.
type Logged = (Lsn, Vec<u8>, Option<Vec<u8>>);

struct World {
    os: Arc<SimOs>,
    draw: Draw,
    root: PageId,
    /// What survived the last crash, and what was logged since.
    base: Model,
    steps: Vec<Logged>,
    flushed: Lsn,
}

fn checkpoint(env: &Env) -> Result<()> {
    let end = env.wal.end();
    let redo = env.pool.redo_point(end);
    env.wal.flush_to(end)?;
    let anchor = WalAnchor { scan_from: redo, durable: env.wal.durable() };
    let mut note = Vec::new();
    anchor.encode(&mut note);
    put_u64(&mut note, env.next_page().0);
    env.pool.store().checkpoint(&note, &mut |_| env.wal.flush_to(env.wal.end()))?;
    env.wal.retain_from(redo);
    Ok(())
}

fn recover(os: &Arc<SimOs>) -> Result<Arc<Env>> {
    let (store, note) = Store::open(os.clone(), store_options())?;
    let mut note = Reader::new(&note, "note");
    let (anchor, next) = (WalAnchor::decode(&mut note)?, note.u64()?);
    let mut tail: Vec<(Lsn, u8, Vec<u8>)> = Vec::new();
    let mut visit = |lsn, record: crate::wal::RecordRef<'_>| {
        tail.push((lsn, record.kind, record.payload.to_vec()));
        Ok(())
    };
    let wal = Wal::recover(os.clone(), wal_options(), anchor, &mut visit)?;
    let pool = Pool::new(store, PoolOptions { capacity_bytes: 0 });
    let mut next = next.max(pool.store().max_page().0 + 1);
    let mut freed = BTreeSet::new();
    let is_tree = |record: &&(Lsn, u8, Vec<u8>)| record.1 == RECORD_TREE;
    for (_, _, payload) in tail.iter().filter(is_tree) {
        let record = decode_record(payload)?;
        freed.extend(record.freed());
        next = record.changes().fold(next, |next, (page, _)| next.max(page.0 + 1));
    }
    let env = Env::new(pool, wal, PageId(next));
    let mut owed = Tail::default();
    for (lsn, kind, payload) in &tail {
        if *kind == RECORD_DELTA {
            let record = decode_delta(*lsn, payload)?;
            owed.add_delta(record.tree, record.page, record.delta);
            continue;
        }
        let record = decode_record(payload)?;
        for (page, change) in record.changes().filter(|(page, _)| !freed.contains(page)) {
            owed.add(record.tree, page, *lsn, change, change_creates_page(change));
        }
    }
    env.pool.owe(owed);
    freed.into_iter().for_each(|page| env.pool.free(page));
    Ok(env)
}

impl World {
    fn new(seed: u64) -> World {
        let os = SimOs::new(seed);
        let pool = Pool::new(new_store(&os), PoolOptions { capacity_bytes: 0 });
        let env = Env::new(pool, new_wal(&os), PageId(1));
        let root = Tree::create(Arc::clone(&env), TREE).unwrap().root();
        checkpoint(&env).unwrap();
        os.crash();
        let (base, steps) = (Model::new(), Vec::new());
        let mut draw = Draw::new(seed);
        draw.value_bytes_max = draw.value_bytes_max.max(100);
        World { os, draw, root, base, steps, flushed: Lsn::ZERO }
    }

    fn life(&mut self, env: &Arc<Env>) -> Result<()> {
        let tree = Tree::open(Arc::clone(env), TREE, self.root);
        let mut model = self.base.clone();
        for round in 0.. {
            let removes = if round % 700 > 350 { 75 } else { 20 };
            match self.draw.rng.below(100) {
                0 => checkpoint(env)?,
                1..=4 => {
                    env.wal.flush_to(env.wal.end())?;
                    self.flushed = env.wal.end();
                }
                5..=7 => {
                    let low = env.pool.redo_point(env.wal.end());
                    let before = Lsn(low.0 + self.draw.rng.below(100_000));
                    env.pool.writeback_before(before, self.draw.rng.below(20) as usize)?;
                }
                8 => drop(env.pool.evict_step(self.draw.rng.below(20) as usize)?),
                9 => drop(env.pool.store().gc_step(100_000)?),
                10 => {
                    for (page, _) in env.pool.next_owed(2, TreeId(u32::MAX)) {
                        env.pool.pay(page)?;
                    }
                }
                _ => self.change(&tree, &mut model, removes)?,
            }
        }
        Ok(())
    }

    fn change(&mut self, tree: &Tree, model: &mut Model, removes: u64) -> Result<()> {
        let key = self.draw.key(model);
        let value = (!self.draw.rng.chance(removes)).then(|| self.draw.value());
        let expected = model.get(&key).cloned();
        let done = tree.change(&key, &mut |old| {
            assert_eq!(old, expected.as_deref());
            match &value {
                Some(value) => EntryEdit::put(value.clone(), &b""[..]),
                None => EntryEdit::remove(&b""[..]),
            }
        })?;
        if let Some(appended) = done {
            self.steps.push((appended.lsn, key.clone(), value.clone()));
        }
        match value {
            Some(value) => model.insert(key, value),
            None => model.remove(&key),
        };
        Ok(())
    }

    /// After recovery: the operations logged before the recovered end, and no others.
    fn compare(&mut self, env: &Arc<Env>) {
        let end = env.wal.end();
        assert!(self.flushed <= end);
        for (lsn, key, value) in self.steps.drain(..).filter(|step| step.0 < end) {
            assert!(lsn < end);
            match value {
                Some(value) => self.base.insert(key, value),
                None => self.base.remove(&key),
            };
        }
        self.flushed = Lsn::ZERO;
        let tree = Tree::open(Arc::clone(env), TREE, self.root);
        assert_same(&tree, &self.base, &mut self.draw);
    }
}

/// Recovers, sometimes losing power on the way.
fn recover_at_last(world: &mut World) -> Arc<Env> {
    if world.draw.rng.chance(30) {
        world.os.fail_after(world.draw.rng.below(30), Fault::PowerCut);
        if let Err(e) = recover(&world.os) {
            assert!(!matches!(e, Error::Corrupt { .. }), "{e}");
        }
        world.os.crash();
    }
    recover(&world.os).unwrap()
}

#[test]
fn survives_crashes_with_everything_logged_before_the_recovered_end() {
    for seed in 0..SEEDS {
        let mut world = World::new(seed);
        for _ in 0..4 {
            let env = recover_at_last(&mut world);
            world.compare(&env);
            world.os.fail_after(world.draw.rng.below(400), Fault::PowerCut);
            let Err(e) = world.life(&env) else { unreachable!("a life ends with the power") };
            assert!(!matches!(e, Error::Corrupt { .. }), "seed {seed}: {e}");
            world.os.crash();
        }
    }
}

const SEEDS: u64 = 40;
