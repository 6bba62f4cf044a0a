//! The lock manager against a straightforward reference, and under threads.

use super::tests::{assert_clean, manager, quiet, LONG, T};
use super::*;
use crate::base::Lsn;
use crate::os::sim::SimRng;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::AtomicBool;
use std::thread;
use LockMode::{Exclusive as X, Shared as S};

const OWNERS: usize = 5;
/// Even keys are rows, odd ones lie in the gaps between them.
const KEYS: u8 = 7;

#[derive(Debug, Default)]
struct Hold {
    explicit: Option<LockMode>,
    implicit: bool,
    epoch: u32,
}

impl Hold {
    fn mode(&self) -> Option<LockMode> {
        if self.implicit {
            Some(X)
        } else {
            self.explicit
        }
    }
}

type Points = BTreeSet<u8>;

#[derive(Clone, Debug, PartialEq)]
enum Asked {
    Row(LockMode),
    Span { points: Points, mode: LockMode, row: bool },
    Insert,
}

#[derive(Clone, Debug)]
struct Waits {
    owner: usize,
    key: u8,
    asked: Asked,
    /// Place in the order of arrival.
    number: u64,
    privileged: bool,
    /// An insert that may go on.
    granted: bool,
}

impl Waits {
    fn row_mode(&self) -> Option<LockMode> {
        match self.asked {
            Asked::Row(mode) | Asked::Span { mode, row: true, .. } => Some(mode),
            _ => None,
        }
    }
}

fn clash(a: LockMode, b: LockMode) -> bool {
    a == X || b == X
}

/// Holders and waiters as plain lists, and the rules of which is in whose way.
#[derive(Default)]
struct World {
    rows: BTreeMap<(u8, usize), Hold>,
    covers: BTreeMap<(usize, LockMode), Points>,
    line: Vec<Waits>,
    next_number: u64,
    epochs: [u32; OWNERS],
}

impl World {
    fn row_of(&self, owner: usize, key: u8) -> Option<LockMode> {
        self.rows.get(&(key, owner)).and_then(Hold::mode)
    }

    fn cover_of(&self, owner: usize, key: u8) -> Option<LockMode> {
        let covers = |m: &LockMode| self.covers.get(&(owner, *m)).is_some_and(|p| p.contains(&key));
        [X, S].into_iter().find(covers)
    }

    fn held(&self, owner: usize, key: u8) -> Option<LockMode> {
        self.row_of(owner, key).max(self.cover_of(owner, key))
    }

    fn others(&self, me: usize) -> impl Iterator<Item = usize> {
        (0..OWNERS).filter(move |&o| o != me)
    }

    fn blockers(&self, asks: &Waits) -> Vec<usize> {
        let (me, key) = (asks.owner, asks.key);
        let mut found = Vec::new();
        if let Some(mode) = asks.row_mode() {
            for w in self.line.iter().filter(|w| w.key == key && w.owner != me && !asks.privileged)
            {
                let is_ahead = w.privileged || w.number < asks.number;
                if is_ahead && w.row_mode().is_some_and(|other| clash(other, mode)) {
                    found.push(w.owner);
                }
            }
            for other in self.others(me) {
                let covers = |m| self.covers.get(&(other, m)).is_some_and(|p| p.contains(&key));
                let by_span = covers(X) || (mode == X && covers(S));
                if by_span || self.row_of(other, key).is_some_and(|m| clash(m, mode)) {
                    found.push(other);
                }
            }
        }
        let earlier = |w: &&Waits| w.owner != me && w.number < asks.number;
        match &asks.asked {
            Asked::Row(_) => {}
            Asked::Span { points, .. } => {
                let inserts = self.line.iter().filter(earlier).filter(|w| w.asked == Asked::Insert);
                let here = inserts.filter(|w| points.contains(&w.key));
                let free = here.filter(|w| self.cover_of(me, w.key).is_none());
                found.extend(free.map(|w| w.owner));
            }
            Asked::Insert => {
                found.extend(self.others(me).filter(|&o| self.cover_of(o, key).is_some()));
                for w in self.line.iter().filter(earlier) {
                    let Asked::Span { points, .. } = &w.asked else { continue };
                    let waits_for_me = self.held(me, w.key).zip(w.row_mode());
                    let passes = waits_for_me.is_some_and(|(a, b)| clash(a, b));
                    if points.contains(&key) && self.cover_of(me, key).is_none() && !passes {
                        found.push(w.owner);
                    }
                }
            }
        }
        found
    }

    fn request(&self, owner: usize, key: u8, asked: Asked) -> Waits {
        let privileged = asked != Asked::Insert && self.held(owner, key).is_some();
        let mut asks = Waits { owner, key, asked, number: u64::MAX, privileged, granted: false };
        if let Asked::Span { mode, row, .. } = &mut asks.asked {
            *row = *row && self.row_of(owner, key) < Some(*mode);
        }
        if let Some(place) =
            self.line.iter().find(|w| w.granted && w.owner == owner && w.key == key)
        {
            asks.number = place.number;
        }
        asks
    }

    /// None: must wait.
    fn admit(&self, asks: &Waits, mode: Option<LockMode>) -> Option<Granted> {
        let by_row = self.row_of(asks.owner, asks.key);
        let is_row = matches!(asks.asked, Asked::Row(_));
        let goes_on = is_row && by_row >= mode;
        if !goes_on && !self.blockers(asks).is_empty() {
            return None;
        }
        Some(match by_row {
            _ if self.held(asks.owner, asks.key) >= mode => Granted::Held,
            Some(_) => Granted::Raised,
            None => Granted::New,
        })
    }

    fn grant(&mut self, asks: &Waits) {
        match &asks.asked {
            Asked::Row(mode) => {
                let epoch = self.epochs[asks.owner];
                let new = Hold { epoch, ..Hold::default() };
                let hold = self.rows.entry((asks.key, asks.owner)).or_insert(new);
                hold.explicit = hold.explicit.max(Some(*mode));
            }
            Asked::Span { points, mode, .. } => {
                self.covers.entry((asks.owner, *mode)).or_default().extend(points);
            }
            Asked::Insert => {}
        }
    }

    fn write(&mut self, owner: usize, key: u8) {
        let new = Hold { epoch: self.epochs[owner], ..Hold::default() };
        self.rows.entry((key, owner)).or_insert(new).implicit = true;
    }

    fn join(&mut self, mut asks: Waits) {
        let own = |w: &&mut Waits| w.granted && w.owner == asks.owner && w.key == asks.key;
        if let Some(place) = self.line.iter_mut().find(own).filter(|_| asks.asked == Asked::Insert)
        {
            place.granted = false;
            return;
        }
        if let Asked::Span { points, row: false, .. } = &asks.asked {
            let free = |k: &u8| self.cover_of(asks.owner, *k).is_none();
            let insert = |w: &&Waits| w.asked == Asked::Insert && w.owner != asks.owner;
            let keys = self.line.iter().filter(insert).map(|w| w.key);
            asks.key = keys.filter(|k| points.contains(k) && free(k)).min().unwrap();
            asks.privileged = false;
        }
        asks.number = self.next_number;
        self.next_number += 1;
        self.line.push(asks);
    }

    /// Serves all that can be served: key by key, there from the front.
    fn serve(&mut self) {
        self.rows.retain(|_, hold| hold.mode().is_some());
        self.line.sort_by_key(|w| (w.key, !w.privileged, w.number));
        let mut at = 0;
        while at < self.line.len() {
            let waits = self.line[at].clone();
            if waits.granted || !self.blockers(&waits).is_empty() {
                at += 1;
            } else if waits.asked == Asked::Insert {
                self.line[at].granted = true;
            } else {
                self.line.remove(at);
                self.grant(&waits);
            }
        }
    }

    fn waits(&self, owner: usize) -> Option<&Waits> {
        self.line.iter().find(|w| w.owner == owner && !w.granted)
    }

    fn leave(&mut self, owner: usize, granted: bool) {
        self.line.retain(|w| w.owner != owner || w.granted != granted);
        self.serve();
    }

    fn is_on_cycle(&self, start: usize) -> bool {
        let next = |owner| self.waits(owner).map_or(Vec::new(), |w| self.blockers(w));
        let (mut open, mut seen) = (next(start), [false; OWNERS]);
        while let Some(owner) = open.pop() {
            if owner == start {
                return true;
            }
            if !std::mem::replace(&mut seen[owner], true) {
                open.extend(next(owner));
            }
        }
        false
    }
}

/// The manager and its reference, side by side.
struct Pair {
    manager: Arc<LockManager>,
    owners: Vec<Arc<Owner>>,
    tickets: Vec<Option<Ticket>>,
    world: World,
    victims: u64,
    /// Waits begun: for a row, a row and its gap, a gap, an insert.
    waits: [u64; 4],
    /// It holds rows between those of the others, so that the tree has many nodes.
    crowd: Arc<Owner>,
    crowd_rows: u64,
}

type Range = (Bound<[u8; 1]>, Bound<[u8; 1]>);

fn as_slices(range: &Range) -> (Bound<&[u8]>, Bound<&[u8]>) {
    (range.0.as_ref().map(|k| &k[..]), range.1.as_ref().map(|k| &k[..]))
}

fn points(range: &Range) -> Points {
    let range = as_slices(range);
    (0..KEYS).filter(|k| std::ops::RangeBounds::<[u8]>::contains(&range, &[*k][..])).collect()
}

/// The row of `key` and the gap on one side of it.
fn next_key(rng: &mut SimRng, key: u8) -> Range {
    let at = Bound::Included([key]);
    match (rng.chance(50), key) {
        (true, 0) => (Bound::Unbounded, at),
        (true, _) => (Bound::Excluded([key - 2]), at),
        (false, _) => (at, Bound::Excluded([key + 2])),
    }
}

impl Pair {
    fn new(manager: Arc<LockManager>) -> Pair {
        let owners: Vec<_> = (0..OWNERS as u64).map(|s| manager.owner(s)).collect();
        let tickets = (0..OWNERS).map(|_| None).collect();
        let (crowd, world) = (manager.owner(OWNERS as u64), World::default());
        Pair { manager, owners, tickets, world, victims: 0, waits: [0; 4], crowd, crowd_rows: 0 }
    }

    /// The crowd takes rows where no interval of others lies, or gives all up. Nobody notices.
    fn crowd(&mut self, rng: &mut SimRng) {
        if rng.chance(20) {
            self.manager.release_all(&self.crowd);
            self.crowd_rows = 0;
        }
        for _ in 0..20 {
            let tail = rng.below(1 << 40).to_be_bytes();
            let key = [&[rng.below(u64::from(KEYS)) as u8, 1], &[7; 30][..], &tail].concat();
            let mode = if rng.chance(50) { X } else { S };
            let granted = self.manager.try_lock(&self.crowd, T, &key, mode);
            self.crowd_rows += u64::from(granted == Ok(Granted::New));
        }
    }

    fn try_lock(&mut self, rng: &mut SimRng, owner: usize, key: u8, mode: LockMode) {
        let (m, who) = (&self.manager, &self.owners[owner]);
        let (found, asked) = match rng.below(3) {
            0 => (m.try_lock(who, T, &[key], mode), Asked::Row(mode)),
            1 => {
                let range = next_key(rng, key);
                let found = m.try_lock_next(who, T, as_slices(&range), &[key], mode);
                (found, Asked::Span { points: points(&range), mode, row: true })
            }
            _ => {
                let gap = (Bound::Excluded([key]), Bound::Excluded([key + 2]));
                let found = m.try_lock_range(who, T, as_slices(&gap), mode);
                (found, Asked::Span { points: points(&gap), mode, row: false })
            }
        };
        let gap_only = matches!(asked, Asked::Span { row: false, .. });
        let asks = self.world.request(owner, key, asked);
        let expected = self.world.admit(&asks, Some(mode));
        match gap_only {
            true => assert_eq!(found.is_ok(), expected.is_some()),
            false => assert_eq!(found.ok(), expected),
        }
        if expected.is_some_and(|how| how != Granted::Held || !matches!(asks.asked, Asked::Row(_)))
        {
            self.world.grant(&asks);
        }
    }

    fn enqueue(&mut self, rng: &mut SimRng, owner: usize, key: u8, mode: LockMode) {
        let writer = rng.below(OWNERS as u64) as usize;
        // Only who holds the row alone, and does not wait for it, can have written the entry.
        let alone = (0..OWNERS).all(|o| o == writer || self.world.held(o, key).is_none())
            && self.world.waits(writer).is_none_or(|w| w.key != key);
        let txn = self.owners[writer].txn().filter(|_| alone && writer != owner);
        let (m, who) = (&self.manager, &self.owners[owner]);
        let (found, asked, kind) = match rng.below(3) {
            0 => (m.enqueue(who, T, &[key], mode, txn), Asked::Row(mode), 0),
            1 => {
                let range = next_key(rng, key);
                let found = m.enqueue_next(who, T, as_slices(&range), &[key], mode, txn);
                (found, Asked::Span { points: points(&range), mode, row: true }, 1)
            }
            _ => {
                let gap = (Bound::Excluded([key]), Bound::Excluded([key + 2]));
                let found = m.enqueue_range(who, T, as_slices(&gap), mode);
                (found, Asked::Span { points: points(&gap), mode, row: false }, 2)
            }
        };
        if txn.is_some() && kind < 2 {
            self.world.write(writer, key);
        }
        let asks = self.world.request(owner, key, asked);
        self.queued(found, asks, Some(mode), kind);
    }

    fn insert(&mut self, owner: usize, key: u8) {
        let who = Arc::clone(&self.owners[owner]);
        let kept = |w: &Waits| w.owner == owner && w.granted && w.key != key;
        if self.world.line.iter().any(kept) {
            self.world.leave(owner, true);
        }
        let found = self.manager.enqueue_insert(&who, T, &[key]);
        let asks = self.world.request(owner, key, Asked::Insert);
        self.queued(found, asks, None, 3);
    }

    fn queued(&mut self, found: Enqueued, asks: Waits, mode: Option<LockMode>, kind: usize) {
        let owner = asks.owner;
        let is_row = matches!(asks.asked, Asked::Row(_));
        match (found, self.world.admit(&asks, mode)) {
            (Enqueued::Granted, Some(how)) => {
                if how != Granted::Held || !is_row {
                    self.world.grant(&asks);
                }
            }
            (Enqueued::Waiting(ticket), None) => {
                self.waits[kind] += 1;
                self.world.join(asks);
                self.tickets[owner] = Some(ticket);
            }
            (found, expected) => panic!("{found:?}, but the reference says {expected:?}"),
        }
        self.end_victims();
    }

    fn end_victims(&mut self) {
        let is_victim =
            |&o: &usize| self.tickets[o].is_some() && self.owners[o].outcome() == Outcome::Deadlock;
        let victims: Vec<usize> = (0..OWNERS).filter(is_victim).collect();
        assert!(victims.iter().all(|&o| self.world.is_on_cycle(o)), "a victim without a deadlock");
        for victim in victims {
            self.victims += 1;
            let ticket = self.tickets[victim].take().unwrap();
            assert!(matches!(ticket.wait(LONG, &quiet), Err(Error::Deadlock)));
            self.world.line.retain(|w| w.owner != victim || w.granted);
        }
        self.world.serve();
        assert!((0..OWNERS).all(|o| !self.world.is_on_cycle(o)), "a deadlock stays");
    }

    fn step(&mut self, rng: &mut SimRng) {
        let owner = rng.below(OWNERS as u64) as usize;
        let row = rng.below(u64::from(KEYS / 2 + 1)) as u8 * 2;
        let mode = if rng.chance(50) { X } else { S };
        let who = Arc::clone(&self.owners[owner]);
        if self.tickets[owner].is_some() {
            if rng.chance(20) {
                self.tickets[owner] = None;
                self.world.leave(owner, false);
            }
            return;
        }
        match rng.below(16) {
            0..=2 => self.try_lock(rng, owner, row, mode),
            3..=7 => self.enqueue(rng, owner, row, mode),
            8 | 9 => self.insert(owner, ((row + 1) % KEYS) | 1),
            10 => {
                self.manager.finish_insert(&who);
                self.world.leave(owner, true);
            }
            11 => {
                self.manager.release_one(&who, T, &[row]);
                self.world.rows.entry((row, owner)).or_default().explicit = None;
                self.world.serve();
            }
            12 => {
                self.manager.wake_keys(&who, T, [&[row][..]]);
                self.world.rows.entry((row, owner)).or_default().implicit = false;
                self.world.serve();
            }
            13 => self.let_go(owner, row),
            14 => {
                who.begin_epoch();
                self.world.epochs[owner] += 1;
            }
            _ => self.release_all(owner),
        }
    }

    fn let_go(&mut self, owner: usize, row: u8) {
        self.manager.let_go(&self.owners[owner], T, &[row]);
        let awaited = self.world.line.iter().any(|w| w.key == row);
        let epoch = self.world.epochs[owner];
        if let Some(hold) = self.world.rows.get_mut(&(row, owner)).filter(|h| h.epoch == epoch) {
            hold.explicit = None;
            hold.implicit |= awaited;
        }
        self.world.serve();
    }

    fn release_all(&mut self, owner: usize) {
        self.manager.release_all(&self.owners[owner]);
        self.world.line.retain(|w| w.owner != owner);
        self.world.rows.retain(|(_, o), _| *o != owner);
        self.world.covers.retain(|(o, _), _| *o != owner);
        self.world.serve();
    }

    fn assert_equal(&mut self) {
        for owner in 0..OWNERS {
            let waits = self.world.waits(owner).is_some();
            if let Some(ticket) = self.tickets[owner].take() {
                if waits {
                    assert_eq!(self.owners[owner].outcome(), Outcome::Waiting);
                    self.tickets[owner] = Some(ticket);
                } else {
                    ticket.wait(Duration::ZERO, &quiet).expect("the reference has granted it");
                }
            }
            let who = &self.owners[owner];
            for key in 0..KEYS {
                let held = self.world.held(owner, key);
                for mode in [S, X] {
                    let holds = self.manager.holds(who, T, &[key], mode);
                    assert_eq!(holds, held >= Some(mode), "owner {owner} key {key} {mode:?}");
                }
                let asks = self.world.request(owner, key, Asked::Insert);
                let conflict = self.manager.insert_conflict(who, T, &[key]).is_some();
                let expected = !self.world.blockers(&asks).is_empty();
                assert_eq!(conflict, expected, "insert by {owner} at {key}");
            }
            let has_insert = self.world.line.iter().any(|w| w.owner == owner && w.granted);
            assert_eq!(who.has_insert.load(Ordering::Relaxed), has_insert);
        }
        let waits = self.world.line.iter().filter(|w| w.row_mode().is_some()).count();
        let rows = (self.world.rows.len() + waits) as u64;
        assert_eq!(self.manager.stats().rows, rows + self.crowd_rows);
    }
}

#[test]
fn random_histories_agree_with_the_reference() {
    let (mut victims, mut waits) = (0, [0; 4]);
    for seed in 0..1000 {
        let mut rng = SimRng::new(seed);
        let (table, manager) = manager();
        let mut pair = Pair::new(manager);
        for _ in 0..200 {
            for owner in &pair.owners {
                if owner.txn().is_none() && rng.chance(30) {
                    pair.manager.register_holder(owner, table.allocate(Lsn(1)));
                }
            }
            pair.step(&mut rng);
            if seed % 2 == 1 && rng.chance(20) {
                pair.crowd(&mut rng);
            }
            pair.assert_equal();
        }
        pair.tickets.clear();
        pair.manager.release_all(&pair.crowd);
        pair.owners.iter().for_each(|owner| pair.manager.release_all(owner));
        assert_clean(&pair.manager);
        victims += pair.victims;
        waits.iter_mut().zip(pair.waits).for_each(|(sum, n)| *sum += n);
    }
    assert!(victims > 100, "the histories hardly deadlock: {victims}");
    assert!(waits.iter().all(|&n| n > 100), "some kind hardly waits: {waits:?}");
}

fn lock(
    m: &Arc<LockManager>,
    owner: &Arc<Owner>,
    key: u8,
    mode: LockMode,
    most: Duration,
) -> Result<()> {
    match m.enqueue(owner, T, &[key], mode, None) {
        Enqueued::Waiting(ticket) => ticket.wait(most, &quiet),
        _ => Ok(()),
    }
}

/// Counters that only a row lock protects: an update that is not alone gets lost.
#[derive(Default)]
struct Guarded {
    count: AtomicU64,
    writing: AtomicBool,
}

impl Guarded {
    fn use_as(&self, mode: LockMode) -> u64 {
        let seen = self.count.load(Ordering::Relaxed);
        assert!(!self.writing.load(Ordering::Relaxed), "a writer beside {mode:?}");
        if mode == S {
            thread::yield_now();
            assert_eq!(self.count.load(Ordering::Relaxed), seen, "changed under a shared lock");
            return 0;
        }
        assert!(!self.writing.swap(true, Ordering::Relaxed));
        thread::yield_now();
        self.count.store(seen + 1, Ordering::Relaxed);
        self.writing.store(false, Ordering::Relaxed);
        1
    }
}

#[test]
fn threads_exclude_each_other_and_deadlocks_end() {
    let (_, m) = manager();
    let guarded: [Guarded; 4] = Default::default();
    let work = |session: u64| {
        let (owner, mut rng, mut done) = (m.owner(session), SimRng::new(session), 0);
        for _ in 0..2_000 {
            for _ in 0..1 + rng.below(3) {
                let (key, mode) = (rng.below(4) as u8, if rng.chance(60) { X } else { S });
                match lock(&m, &owner, key, mode, LONG) {
                    Ok(()) => done += guarded[usize::from(key)].use_as(mode),
                    Err(Error::Deadlock) => break,
                    Err(error) => panic!("{error}"),
                }
            }
            m.release_all(&owner);
        }
        done
    };
    let done = thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> = (1..=6).map(|s| scope.spawn(move || work(s))).collect();
        threads.into_iter().map(|t| t.join().unwrap()).sum::<u64>()
    });
    assert_eq!(done, guarded.iter().map(|g| g.count.load(Ordering::Relaxed)).sum::<u64>());
    assert!(m.stats().deadlocks > 0, "the threads never deadlocked");
    assert_clean(&m);
}

#[test]
fn nobody_sleeps_past_a_grant() {
    let (_, m) = manager();
    let work = |session: u64| {
        let (owner, mut rng) = (m.owner(session), SimRng::new(session));
        for _ in 0..3_000 {
            let patient = rng.chance(60);
            let most = if patient { LONG } else { Duration::from_micros(rng.below(200)) };
            match lock(&m, &owner, 0, X, most) {
                Ok(()) => assert!(m.holds(&owner, T, &[0], X)),
                Err(Error::LockTimeout) => {
                    assert!(!patient, "a wake-up was lost");
                    assert!(!m.holds(&owner, T, &[0], X), "granted to one who has left");
                }
                Err(error) => panic!("{error}"),
            }
            if rng.chance(10) {
                thread::yield_now();
            }
            m.release_all(&owner);
        }
    };
    thread::scope(|scope| {
        let work = &work;
        (1..=4).for_each(|session| drop(scope.spawn(move || work(session))));
    });
    assert!(m.stats().timeouts > 0, "no wait was cut short");
    assert_clean(&m);
}
