//! The engine with real files, real threads and everything too small: checkpoints, eviction, GC,
//! revert and purge run all the time while sessions move money between accounts.

use crate::base::{Error, Result};
use crate::db::*;
use crate::os::sim::SimRng;
use crate::os::RealOs;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

const TABLE: &str = "bank/accounts";
const THREADS: u64 = 8;
const ACCOUNTS: u32 = 400;
/// Accounts move between ids below this.
const IDS: u32 = 600;
/// Where sessions meet, wait and deadlock.
const HOT_IDS: u32 = 12;
const HOT_PERCENT: u64 = 30;
const START: i64 = 1_000;
const TOTAL: i64 = START * ACCOUNTS as i64;
const RUN: Duration = Duration::from_secs(4);
const TURNS_MAX: u64 = 15;

/// A directory of its own, removed at the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let target = std::env::current_exe().unwrap().parent().unwrap().join("../../tmp");
        let dir = target.join(format!("sluice-stress-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        Scratch(dir)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Background errors would otherwise pass unseen.
struct StrictHost(AtomicU64);

impl Host for StrictHost {
    fn log(&self, level: Level, message: &str) {
        if level == Level::Error {
            self.0.fetch_add(1, Ordering::Relaxed);
            eprintln!("{message}");
        }
    }

    fn lock_wait(&self, _waiter: u64, _holder: u64) {}
}

fn open(dir: &Path, host: &Arc<StrictHost>, background: bool) -> Arc<Engine> {
    let geometry = Geometry {
        log_segment_bytes: 512 << 10,
        log_cache_bytes: 512 << 10,
        store_segment_bytes: 512 << 10,
    };
    let give_up = Instant::now() + Duration::from_secs(5);
    loop {
        let mut config = Config::new(dir);
        config.background = background;
        config.buffer_pool_bytes = 1 << 20;
        config.log_capacity_bytes = 4 << 20;
        let host = Arc::clone(host) as Arc<dyn Host>;
        match Engine::open_with(RealOs::new(), config, geometry, host) {
            // A background thread of the engine before may be in the middle of its last step.
            Err(Error::Refused(_)) if Instant::now() < give_up => {
                thread::sleep(Duration::from_millis(5));
            }
            outcome => return outcome.unwrap(),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Account {
    id: u32,
    balance: i64,
    filler: usize,
}

impl Account {
    fn keys(&self) -> [Vec<u8>; 3] {
        let id = self.id.to_be_bytes();
        let by_bucket = [&[(self.balance % 7) as u8][..], &id].concat();
        let by_name = [b"name of ", &id[..]].concat();
        [id.to_vec(), by_bucket, by_name]
    }

    fn payload(&self) -> Vec<u8> {
        let mut payload = self.balance.to_be_bytes().to_vec();
        payload.resize(8 + self.filler, self.id as u8);
        payload
    }

    fn read(key: &[u8], payload: &[u8]) -> Account {
        let id = u32::from_be_bytes(key.try_into().unwrap());
        assert!(payload[8..].iter().all(|&b| b == id as u8), "a filler of another row");
        let balance = i64::from_be_bytes(payload[..8].try_into().unwrap());
        Account { id, balance, filler: payload.len() - 8 }
    }

    fn with<R>(&self, f: impl FnOnce(&RowWrite<'_>) -> R) -> R {
        let (keys, payload) = (self.keys(), self.payload());
        let entry =
            |i: usize, payload, unique| Entry { key: &keys[i], payload, parts: &[], unique };
        let entries = [entry(0, &payload, true), entry(1, &[], false), entry(2, &keys[0], true)];
        f(&RowWrite { entries: &entries })
    }
}

struct Client {
    rng: SimRng,
    trx: Trx,
    table: Arc<Table>,
    committed: u64,
}

impl Client {
    fn account(&mut self) -> Result<Account> {
        let mode = ReadMode::Lock { exclusive: true, wait: WaitPolicy::Wait };
        loop {
            let ids = if self.rng.chance(HOT_PERCENT) { HOT_IDS } else { IDS };
            let key = (self.rng.below(u64::from(ids)) as u32).to_be_bytes();
            let mut payload = Vec::new();
            if self.trx.get(&self.table, 0, &key, mode, &mut payload)? {
                return Ok(Account::read(&key, &payload));
            }
        }
    }

    fn replace(&mut self, old: &Account, new: &Account) -> Result<()> {
        old.with(|o| new.with(|n| self.trx.update(&self.table, o, n)))
    }

    fn random_filler(&mut self) -> usize {
        match self.rng.below(12) {
            0 => 20_000,
            1 => 3_000,
            _ => self.rng.below(300) as usize,
        }
    }

    fn transfer(&mut self) -> Result<()> {
        let from = self.account()?;
        let to = self.account()?;
        if from.id == to.id {
            return Ok(());
        }
        let amount = self.rng.below(from.balance.max(1) as u64) as i64;
        let filler = self.random_filler();
        self.replace(&from, &Account { balance: from.balance - amount, filler, ..from })?;
        self.replace(&to, &Account { balance: to.balance + amount, ..to })
    }

    /// The account goes to another id: a delete and an insert in every index.
    fn relocate(&mut self) -> Result<()> {
        let old = self.account()?;
        let id = self.rng.below(u64::from(IDS)) as u32;
        let new = Account { id, filler: self.random_filler(), ..old };
        let before = self.trx.savepoint();
        old.with(|w| self.trx.delete(&self.table, w))?;
        match new.with(|w| self.trx.insert(&self.table, w)) {
            Err(Error::Duplicate) => self.trx.rollback_to(before),
            outcome => outcome,
        }
    }

    fn transaction(&mut self) -> Result<()> {
        for _ in 0..1 + self.rng.below(3) {
            let savepoint = self.trx.savepoint();
            match self.rng.chance(30) {
                true => self.relocate()?,
                false => self.transfer()?,
            }
            if self.rng.chance(15) {
                self.trx.rollback_to(savepoint)?;
            }
        }
        Ok(())
    }

    /// A snapshot is whole: no money is under way in it, in whatever index one looks.
    fn audit(&mut self) {
        self.trx.set_isolation(Isolation::RepeatableRead);
        let first = contents(&mut self.trx, &self.table);
        assert_sound(&first);
        if self.rng.chance(30) {
            thread::sleep(Duration::from_millis(self.rng.below(60)));
            assert_eq!(contents(&mut self.trx, &self.table), first, "a snapshot changed");
        }
        self.trx.commit(true).unwrap();
    }

    fn run(&mut self, until: Instant) {
        while Instant::now() < until {
            if self.rng.chance(4) {
                self.audit();
                continue;
            }
            match self.transaction() {
                Ok(()) if self.rng.chance(85) => {
                    self.trx.commit(true).unwrap();
                    self.committed += 1;
                }
                Ok(()) | Err(Error::Deadlock | Error::LockTimeout) => self.trx.rollback(),
                Err(error) => panic!("{error}"),
            }
        }
    }
}

/// Accounts by id, and the keys of the other indexes.
type Contents = (BTreeMap<u32, Account>, [Vec<Vec<u8>>; 2]);

fn scan(trx: &mut Trx, table: &Arc<Table>, index: usize) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut cursor = Cursor::default();
    let (all, way) = (Bound::Unbounded, Direction::Forward);
    trx.seek(&mut cursor, table, index, all, all, way, ReadMode::Snapshot).unwrap();
    let mut found = Vec::new();
    while trx.next(&mut cursor).unwrap() {
        found.push((cursor.key().to_vec(), cursor.payload().to_vec()));
    }
    found
}

fn contents(trx: &mut Trx, table: &Arc<Table>) -> Contents {
    let rows = scan(trx, table, 0).into_iter().map(|(k, p)| Account::read(&k, &p));
    let rows = rows.map(|account| (account.id, account)).collect();
    let keys = [1, 2].map(|i| scan(trx, table, i).into_iter().map(|e| e.0).collect());
    (rows, keys)
}

/// Where the entries of the test's table keep the primary key.
fn row_key_of(index: usize, key: &[u8], payload: &[u8]) -> Result<Vec<u8>> {
    Ok(if index == 1 { key[key.len() - 4..].to_vec() } else { payload.to_vec() })
}

fn assert_sound((rows, keys): &Contents) {
    assert_eq!(rows.values().map(|a| a.balance).sum::<i64>(), TOTAL, "money was made or lost");
    assert_eq!(rows.len(), ACCOUNTS as usize);
    for (index, found) in keys.iter().enumerate() {
        let mut expected: Vec<_> = rows.values().map(|a| a.keys()[index + 1].clone()).collect();
        expected.sort();
        assert_eq!(found, &expected, "index {}", index + 1);
    }
}

fn check(engine: &Arc<Engine>) -> Contents {
    let table = engine.table(TABLE).unwrap().unwrap();
    table.name_rows(Arc::new(row_key_of));
    let found = contents(&mut engine.begin(99), &table);
    assert_sound(&found);
    assert_eq!(
        engine.check_table(TABLE, CheckDepth::Full, &|| false).unwrap().faults,
        Vec::<String>::new()
    );
    found
}

fn fill(engine: &Arc<Engine>) {
    let index = |unique| IndexSpec { unique };
    let spec = TableSpec {
        indexes: vec![index(true), index(false), index(true)],
        definition: Vec::new(),
        autoinc_start: 1,
        compression: None,
        is_encrypted: false,
    };
    engine.create_table(TABLE, spec).unwrap();
    let table = engine.table(TABLE).unwrap().unwrap();
    let mut trx = engine.begin(1);
    for id in 0..ACCOUNTS {
        let account = Account { id, balance: START, filler: 100 };
        account.with(|w| trx.insert(&table, w)).unwrap();
    }
    trx.commit(true).unwrap();
}

/// All clients at once; answers how many transactions they committed.
fn work(engine: &Arc<Engine>, seed: u64) -> u64 {
    let until = Instant::now() + RUN;
    let client = |session: u64| {
        let mut trx = engine.begin(session);
        trx.set_lock_timeout(Duration::from_secs(20));
        let (rng, table) = (SimRng::new(seed + session), engine.table(TABLE).unwrap().unwrap());
        let mut client = Client { rng, trx, table, committed: 0 };
        client.run(until);
        client.committed
    };
    let client = &client;
    thread::scope(|scope| {
        let threads: Vec<_> = (1..=THREADS).map(|s| scope.spawn(move || client(s))).collect();
        threads.into_iter().map(|t| t.join().unwrap()).sum()
    })
}

/// Two sessions that lock two accounts crosswise: on a slow machine chance alone may not bring a
/// deadlock about. One of the two is the victim, the other goes on.
fn cross(engine: &Arc<Engine>) {
    let barrier = std::sync::Barrier::new(2);
    let lock_both = |ids: [u32; 2]| {
        let mut trx = engine.begin(50 + u64::from(ids[0]));
        let table = engine.table(TABLE).unwrap().unwrap();
        let mode = ReadMode::Lock { exclusive: true, wait: WaitPolicy::Wait };
        let mut payload = Vec::new();
        assert!(trx.get(&table, 0, &ids[0].to_be_bytes(), mode, &mut payload).unwrap());
        barrier.wait();
        let second = trx.get(&table, 0, &ids[1].to_be_bytes(), mode, &mut payload);
        trx.rollback();
        matches!(second, Err(Error::Deadlock))
    };
    let lock_both = &lock_both;
    let victims = thread::scope(|scope| {
        let threads = [[0, 1], [1, 0]].map(|ids| scope.spawn(move || lock_both(ids)));
        threads.map(|t| t.join().unwrap()).into_iter().filter(|&victim| victim).count()
    });
    assert_eq!(victims, 1, "one deadlock, one victim");
}

/// The kinds of background work and of lock waits that have not yet had their turn.
fn idle_parts(engine: &Engine, committed: u64) -> Vec<&'static str> {
    let status: BTreeMap<_, _> = engine.status().into_iter().collect();
    println!("{committed} commits; {status:?}");
    let least = [
        ("buffer_pool_evictions", 1),
        ("page_gc_bytes", 1),
        ("lock_deadlocks", 1),
        ("lock_waits", 1),
        ("checkpoints", 3),
    ];
    let idle = least.into_iter().filter(|&(name, least)| status[name] < least);
    let mut parts: Vec<_> = idle.map(|(name, _)| name).collect();
    if committed <= 100 {
        parts.push("commits");
    }
    parts
}

/// Works until everything had its turn: how soon that is depends on the machine.
fn work_until_busy(engine: &Arc<Engine>, seed: u64) {
    let mut committed = 0;
    for turn in 0..TURNS_MAX {
        committed += work(engine, seed + 1000 * turn);
        let idle = idle_parts(engine, committed);
        if idle.is_empty() {
            return;
        }
        assert!(turn + 1 < TURNS_MAX, "never had their turn: {idle:?}");
    }
}

fn stress(name: &str, seed: u64, shut_down: bool) {
    let scratch = Scratch::new(name);
    let host = Arc::new(StrictHost(AtomicU64::new(0)));
    let engine = open(&scratch.0, &host, true);
    fill(&engine);
    cross(&engine);
    work_until_busy(&engine, seed);
    let before = check(&engine);
    if shut_down {
        engine.shutdown().unwrap();
    }
    drop(engine);
    let engine = open(&scratch.0, &host, true);
    assert_eq!(check(&engine), before, "the reopened engine holds something else");
    engine.shutdown().unwrap();
    assert_eq!(host.0.load(Ordering::Relaxed), 0, "background work failed");
}

#[test]
fn threads_move_money_and_none_is_lost() {
    stress("shutdown", 1, true);
}

#[test]
fn an_engine_dropped_without_shutdown_recovers_all_of_it() {
    stress("dropped", 100, false);
}

/// Marks of transactions that are longer than what a thread does at a time.
#[test]
fn threads_that_purge_beside_each_other_leave_no_mark() {
    let scratch = Scratch::new("purge");
    let engine = open(&scratch.0, &Arc::new(StrictHost(AtomicU64::new(0))), false);
    fill(&engine);
    let table = engine.table(TABLE).unwrap().unwrap();
    let (mut old, mut trx) = (engine.begin(1), engine.begin(2));
    old.open_snapshot();
    for first in (0..ACCOUNTS).step_by(20) {
        for id in first..first + 20 {
            let account = Account { id, balance: START, filler: 100 };
            account.with(|w| trx.delete(&table, w)).unwrap();
        }
        trx.commit(true).unwrap();
    }
    assert!(!engine.ctx.purge_beside(8).unwrap(), "a snapshot sees the rows");
    assert_eq!(contents(&mut old, &table).0.len(), ACCOUNTS as usize);
    old.commit(true).unwrap();
    let backlog = || engine.ctx.registry.purge_backlog();
    assert_eq!(backlog() as u32, ACCOUNTS / 20);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while backlog() > 0 {
                    engine.ctx.purge_beside(8).unwrap();
                }
            });
        }
    });
    for gate in &table.gates {
        let mut marks = 0;
        let visit = &mut |_: &[u8], _: &[u8]| {
            marks += 1;
            std::ops::ControlFlow::Continue(())
        };
        gate.tree().scan_leaf(Bound::Unbounded, Direction::Forward, visit).unwrap();
        assert_eq!(marks, 0);
    }
    engine.shutdown().unwrap();
}
