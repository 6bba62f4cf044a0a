//! The lock manager against a straightforward reference, and under threads.

use super::tests::{assert_clean, manager, quiet, LONG, T};
use super::*;
use crate::base::Lsn;
use crate::os::sim::SimRng;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::thread;
use Mode::{Exclusive as X, Shared as S};

const OWNERS: usize = 5;
const KEYS: u8 = 3;

#[derive(Default)]
struct Hold {
    explicit: Option<Mode>,
    implicit: bool,
}

impl Hold {
    fn mode(&self) -> Option<Mode> {
        if self.implicit {
            Some(X)
        } else {
            self.explicit
        }
    }
}

#[derive(Clone, Copy)]
struct Waits {
    owner: usize,
    mode: Mode,
    privileged: bool,
}

/// One row: who holds it, and the line of those who wait, in the order of service.
#[derive(Default)]
struct Row {
    holds: BTreeMap<usize, Hold>,
    line: Vec<Waits>,
}

fn clash(a: Mode, b: Mode) -> bool {
    a == X || b == X
}

impl Row {
    fn held(&self, owner: usize) -> Option<Mode> {
        self.holds.get(&owner).and_then(Hold::mode)
    }

    fn holders_against(&self, owner: usize, mode: Mode) -> Vec<usize> {
        let others = self.holds.iter().filter(|(&o, _)| o != owner);
        others.filter(|(_, h)| h.mode().is_some_and(|m| clash(m, mode))).map(|(&o, _)| o).collect()
    }

    /// Everybody in the way of the waiter at place `at`.
    fn blockers(&self, at: usize) -> Vec<usize> {
        let waiter = self.line[at];
        let mut found = self.holders_against(waiter.owner, waiter.mode);
        if !waiter.privileged {
            let ahead = self.line[..at].iter().filter(|w| clash(w.mode, waiter.mode));
            found.extend(ahead.map(|w| w.owner));
        }
        found
    }

    /// None: must wait. Otherwise whether the owner held it already.
    fn admit(&self, owner: usize, mode: Mode) -> Option<Granted> {
        if self.held(owner) >= Some(mode) {
            return Some(Granted::Held);
        }
        let overtakes = self.line.iter().any(|w| clash(w.mode, mode));
        let blocked = !self.holders_against(owner, mode).is_empty()
            || (overtakes && self.held(owner).is_none());
        let how = if self.held(owner).is_none() { Granted::New } else { Granted::Raised };
        (!blocked).then_some(how)
    }

    fn grant(&mut self, owner: usize, mode: Mode) {
        let hold = self.holds.entry(owner).or_default();
        hold.explicit = hold.explicit.max(Some(mode));
    }

    fn join(&mut self, owner: usize, mode: Mode) {
        let privileged = self.held(owner).is_some();
        let ahead = |w: &&Waits| w.privileged || !privileged;
        let at = self.line.iter().take_while(ahead).count();
        self.line.insert(at, Waits { owner, mode, privileged });
    }

    /// Serves whoever can be served, from the front.
    fn serve(&mut self) {
        self.holds.retain(|_, hold| hold.mode().is_some());
        while let Some(at) = (0..self.line.len()).find(|&at| self.blockers(at).is_empty()) {
            let waiter = self.line.remove(at);
            self.grant(waiter.owner, waiter.mode);
        }
    }
}

/// The manager and its reference, side by side.
struct Pair {
    manager: Arc<LockManager>,
    owners: Vec<Arc<Owner>>,
    tickets: Vec<Option<Ticket>>,
    rows: Vec<Row>,
    victims: u64,
}

impl Pair {
    fn waits_for(&self, owner: usize) -> Option<(usize, usize)> {
        let place = |row: &Row| row.line.iter().position(|w| w.owner == owner);
        self.rows.iter().enumerate().find_map(|(key, row)| place(row).map(|at| (key, at)))
    }

    fn is_on_cycle(&self, start: usize) -> bool {
        let next =
            |owner| self.waits_for(owner).map_or(Vec::new(), |(k, at)| self.rows[k].blockers(at));
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

    fn leave(&mut self, owner: usize) {
        let (key, at) = self.waits_for(owner).expect("it waits");
        self.rows[key].line.remove(at);
        self.rows[key].serve();
    }

    fn enqueue(&mut self, rng: &mut SimRng, owner: usize, key: u8, mode: Mode) {
        let row = &self.rows[usize::from(key)];
        let writer = rng.below(OWNERS as u64) as usize;
        // Only who holds the row alone, and does not wait for it, can have written the entry.
        let alone =
            row.holds.keys().all(|&o| o == writer) && row.line.iter().all(|w| w.owner != writer);
        let txn = self.owners[writer].txn().filter(|_| alone && writer != owner);
        let row = &mut self.rows[usize::from(key)];
        if txn.is_some() {
            row.holds.entry(writer).or_default().implicit = true;
        }
        let admitted = row.admit(owner, mode);
        match (self.manager.enqueue(&self.owners[owner], T, &[key], mode, txn), admitted) {
            (Enqueued::Granted, Some(Granted::New | Granted::Raised)) => row.grant(owner, mode),
            (Enqueued::Granted, Some(Granted::Held)) => {}
            (Enqueued::Waiting(ticket), None) => {
                row.join(owner, mode);
                self.tickets[owner] = Some(ticket);
            }
            (found, expected) => panic!("{found:?}, but the reference says {expected:?}"),
        }
        let is_victim =
            |&o: &usize| self.tickets[o].is_some() && self.owners[o].outcome() == Outcome::Deadlock;
        let victims: Vec<usize> = (0..OWNERS).filter(is_victim).collect();
        assert!(victims.iter().all(|&o| self.is_on_cycle(o)), "a victim without a deadlock");
        for victim in victims {
            self.victims += 1;
            let ticket = self.tickets[victim].take().unwrap();
            assert!(matches!(ticket.wait(LONG, &quiet), Err(Error::Deadlock)));
            self.leave(victim);
        }
        assert!((0..OWNERS).all(|o| !self.is_on_cycle(o)), "a deadlock stays");
    }

    fn step(&mut self, rng: &mut SimRng) {
        let owner = rng.below(OWNERS as u64) as usize;
        let (key, mode) = (rng.below(u64::from(KEYS)) as u8, if rng.chance(50) { X } else { S });
        let (who, row) = (Arc::clone(&self.owners[owner]), usize::from(key));
        if self.tickets[owner].is_some() {
            if rng.chance(20) {
                self.tickets[owner] = None;
                self.leave(owner);
            }
            return;
        }
        match rng.below(10) {
            0..=2 => {
                let expected = self.rows[row].admit(owner, mode);
                assert_eq!(self.manager.try_lock(&who, T, &[key], mode).ok(), expected);
                if expected.is_some_and(|how| how != Granted::Held) {
                    self.rows[row].grant(owner, mode);
                }
            }
            3..=6 => self.enqueue(rng, owner, key, mode),
            7 => {
                self.manager.release_one(&who, T, &[key]);
                self.rows[row].holds.entry(owner).or_default().explicit = None;
                self.rows[row].serve();
            }
            8 => {
                self.manager.wake_keys(&who, T, [&[key][..]]);
                self.rows[row].holds.entry(owner).or_default().implicit = false;
                self.rows[row].serve();
            }
            _ => {
                self.manager.release_all(&who);
                for row in &mut self.rows {
                    row.holds.remove(&owner);
                    row.serve();
                }
            }
        }
    }

    fn assert_equal(&mut self) {
        for owner in 0..OWNERS {
            let waits = self.waits_for(owner).is_some();
            if let Some(ticket) = self.tickets[owner].take() {
                if waits {
                    assert_eq!(self.owners[owner].outcome(), Outcome::Waiting);
                    self.tickets[owner] = Some(ticket);
                } else {
                    ticket.wait(Duration::ZERO, &quiet).expect("the reference has granted it");
                }
            }
            for key in 0..KEYS {
                let held = self.rows[usize::from(key)].held(owner);
                for mode in [S, X] {
                    let holds = self.manager.holds(&self.owners[owner], T, &[key], mode);
                    assert_eq!(holds, held >= Some(mode), "owner {owner} key {key} {mode:?}");
                }
            }
        }
        let used = self.rows.iter().filter(|r| !r.holds.is_empty() || !r.line.is_empty()).count();
        assert_eq!(self.manager.stats().rows, used as u64);
    }
}

#[test]
fn random_histories_agree_with_the_reference() {
    let mut victims = 0;
    for seed in 0..300 {
        let mut rng = SimRng::new(seed);
        let (table, manager) = manager();
        let owners: Vec<_> = (0..OWNERS as u64).map(|s| manager.owner(s)).collect();
        let tickets = (0..OWNERS).map(|_| None).collect();
        let rows = (0..KEYS).map(|_| Row::default()).collect();
        let mut pair = Pair { manager, owners, tickets, rows, victims: 0 };
        for _ in 0..200 {
            for owner in &pair.owners {
                if owner.txn().is_none() && rng.chance(30) {
                    pair.manager.register_holder(owner, table.allocate(Lsn(1)));
                }
            }
            pair.step(&mut rng);
            pair.assert_equal();
        }
        pair.tickets.clear();
        pair.owners.iter().for_each(|owner| pair.manager.release_all(owner));
        assert_clean(&pair.manager);
        victims += pair.victims;
    }
    assert!(victims > 100, "the histories hardly deadlock: {victims}");
}

fn lock(
    m: &Arc<LockManager>,
    owner: &Arc<Owner>,
    key: u8,
    mode: Mode,
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
    fn use_as(&self, mode: Mode) -> u64 {
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
