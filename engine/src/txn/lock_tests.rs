use super::*;
use crate::base::Lsn;
use std::thread;
use Bound::{Excluded, Included, Unbounded};
use Mode::{Exclusive as X, Shared as S};

pub(super) const T: TreeId = TreeId(7);
pub(super) const LONG: Duration = Duration::from_secs(20);

pub(super) fn manager() -> (Arc<TxnTable>, Arc<LockManager>) {
    let table = TxnTable::new(TxnId(1));
    (Arc::clone(&table), LockManager::new(table))
}

pub(super) fn quiet(_: u64, _: u64) {}

pub(super) fn ticket(enqueued: Enqueued) -> Ticket {
    match enqueued {
        Enqueued::Waiting(ticket) => ticket,
        other => panic!("expected to wait, not {other:?}"),
    }
}

pub(super) fn assert_clean(m: &LockManager) {
    let stats = m.stats();
    assert_eq!((stats.rows, stats.intervals), (0, 0));
    let locks = m.locks.lock();
    assert!(locks.trees.values().all(|t| t.is_empty()));
    assert!(locks.holders.is_empty());
}

#[test]
fn compatibility_upgrade_and_fairness() {
    let (_, m) = manager();
    let [a, b, c] = [1, 2, 3].map(|s| m.owner(s));
    assert_eq!(m.try_lock(&a, T, b"k", S), Ok(Granted::New));
    assert_eq!(m.try_lock(&a, T, b"k", S), Ok(Granted::Held));
    assert_eq!(m.try_lock(&a, T, b"k", X), Ok(Granted::Raised), "sole holder upgrades");
    assert_eq!(m.try_lock(&b, T, b"k", S), Err(Conflict { session: 1, txn: None }));
    m.release_all(&a);
    m.try_lock(&a, T, b"k", S).unwrap();
    let wait_b = ticket(m.enqueue(&b, T, b"k", X, None));
    assert!(m.try_lock(&c, T, b"k", S).is_err(), "a newcomer stays behind a waiter");
    assert_eq!(m.try_lock(&a, T, b"k", X), Ok(Granted::Raised), "an upgrade does not");
    m.release_all(&a);
    wait_b.wait(LONG, &quiet).unwrap();
    assert!(m.holds(&b, T, b"k", X) && !m.holds(&c, T, b"k", S));
    m.release_all(&b);
    assert_clean(&m);
}

#[test]
fn two_upgraders_are_a_deadlock_and_the_lighter_loses() {
    let (_, m) = manager();
    let [a, b] = [1, 2].map(|s| m.owner(s));
    for o in [&a, &b] {
        m.try_lock(o, T, b"k", S).unwrap();
    }
    b.set_undo_count(5);
    let wait_a = ticket(m.enqueue(&a, T, b"k", X, None));
    let wait_b = ticket(m.enqueue(&b, T, b"k", X, None));
    assert!(matches!(wait_a.wait(LONG, &quiet), Err(Error::Deadlock)));
    m.release_all(&a);
    wait_b.wait(LONG, &quiet).unwrap();
    m.release_all(&b);
    assert_clean(&m);
}

#[test]
fn one_wait_can_close_two_cycles() {
    let (_, m) = manager();
    let [a, b, c] = [1, 2, 3].map(|s| m.owner(s));
    c.set_undo_count(100);
    m.try_lock(&a, T, b"k", S).unwrap();
    m.try_lock(&b, T, b"k", S).unwrap();
    m.try_lock(&c, T, b"own", X).unwrap();
    let wait_a = ticket(m.enqueue(&a, T, b"own", S, None));
    let wait_b = ticket(m.enqueue(&b, T, b"own", S, None));
    let wait_c = ticket(m.enqueue(&c, T, b"k", X, None));
    assert!(matches!(wait_a.wait(LONG, &quiet), Err(Error::Deadlock)));
    assert!(matches!(wait_b.wait(LONG, &quiet), Err(Error::Deadlock)));
    m.release_all(&a);
    m.release_all(&b);
    wait_c.wait(LONG, &quiet).unwrap();
    assert_eq!(m.stats().deadlocks, 2);
    m.release_all(&c);
    assert_clean(&m);
}

#[test]
fn an_implicit_holder_is_waited_for() {
    let (table, m) = manager();
    let [a, b, c] = [1, 2, 3].map(|s| m.owner(s));
    let id = table.allocate(Lsn(1));
    m.register_holder(&a, id);
    let reports = Mutex::new(Vec::new());
    let wait_b = ticket(m.enqueue(&b, T, b"k", X, Some(id)));
    let wait_c = ticket(m.enqueue(&c, T, b"k", X, Some(id)));
    assert!(m.holds(&a, T, b"k", X));
    table.commit(id);
    m.release_all(&a);
    let report = |w, h| {
        assert!(m.locks.try_lock().is_some(), "no mutex during a report (N10)");
        reports.lock().push((w, h));
    };
    wait_b.wait(LONG, &report).unwrap();
    assert!(reports.lock().is_empty(), "nobody in the way any more");
    let timeout = wait_c.wait(Duration::from_millis(5), &report);
    assert!(matches!(timeout, Err(Error::LockTimeout)));
    assert_eq!(*reports.lock(), [(3, 2)]);
    assert!(matches!(m.enqueue(&c, T, b"j", X, Some(id)), Enqueued::HolderGone));
    m.release_all(&b);
    assert_clean(&m);
}

#[test]
fn partial_rollback_frees_what_rested_on_the_entries() {
    let (table, m) = manager();
    let [a, b, c] = [1, 2, 3].map(|s| m.owner(s));
    let id = table.allocate(Lsn(1));
    m.register_holder(&a, id);
    m.try_lock(&a, T, b"both", S).unwrap();
    let wait_b = ticket(m.enqueue(&b, T, b"entry", X, Some(id)));
    let wait_c = ticket(m.enqueue(&c, T, b"both", S, Some(id)));
    m.wake_keys(&a, T, [&b"entry"[..], b"both", b"none"]);
    wait_b.wait(LONG, &quiet).unwrap();
    wait_c.wait(LONG, &quiet).unwrap();
    assert!(!m.holds(&a, T, b"entry", S));
    assert!(m.holds(&a, T, b"both", S) && !m.holds(&a, T, b"both", X));
    m.release_one(&a, T, b"both");
    assert!(!m.holds(&a, T, b"both", S));
    for o in [&a, &b, &c] {
        m.release_all(o);
    }
    assert_clean(&m);
}

#[test]
fn recovered_prepared_transactions_are_taken_over() {
    let (table, m) = manager();
    let id = table.allocate(Lsn(1));
    table.set_prepared(id);
    let [a, b] = [1, 2].map(|s| m.owner(s));
    let wait_b = ticket(m.enqueue(&b, T, b"k", X, Some(id)));
    assert_eq!(m.owner_of(id).unwrap().session(), 0);
    m.register_holder(&a, id);
    assert!(m.holds(&a, T, b"k", X));
    table.commit(id);
    m.release_all(&a);
    wait_b.wait(LONG, &quiet).unwrap();
    m.release_all(&b);
    assert_clean(&m);
}

#[test]
fn interrupt_ends_the_wait_and_frees_the_place() {
    let (_, m) = manager();
    let [a, b, c] = [1, 2, 3].map(|s| m.owner(s));
    m.try_lock(&a, T, b"k", S).unwrap();
    let wait_b = ticket(m.enqueue(&b, T, b"k", X, None));
    let wait_c = ticket(m.enqueue(&c, T, b"k", S, None));
    thread::scope(|scope| {
        let b = &b;
        let waiter = scope.spawn(move || wait_b.wait(LONG, &quiet));
        thread::sleep(Duration::from_millis(5));
        m.interrupt(b);
        assert!(matches!(waiter.join().unwrap(), Err(Error::Interrupted)));
    });
    wait_c.wait(LONG, &quiet).expect("it was only behind the killed one");
    // The next wait ends too, until the flag is cleared.
    let again = ticket(m.enqueue(&b, T, b"k", X, None)).wait(LONG, &quiet);
    assert!(matches!(again, Err(Error::Interrupted)));
    b.clear_interrupt();
    let again = ticket(m.enqueue(&b, T, b"k", X, None)).wait(Duration::from_millis(3), &quiet);
    assert!(matches!(again, Err(Error::LockTimeout)));
    drop(ticket(m.enqueue(&b, T, b"k", X, None)));
    m.release_all(&a);
    m.release_all(&c);
    assert_clean(&m);
}

#[test]
fn phantom_inserts_wait_for_the_interval() {
    let (_, m) = manager();
    let [a, b, c] = [1, 2, 3].map(|s| m.owner(s));
    assert!(m.insert_conflict(&b, T, b"c").is_none());
    let range = (Excluded(&b"a"[..]), Included(&b"d"[..]));
    m.try_lock_next(&a, T, range, b"d", S).unwrap();
    m.lock_range(&c, T, Included(b"c"), Unbounded, S);
    for key in [b"b", b"c", b"d"] {
        assert!(m.insert_conflict(&b, T, key).is_some());
    }
    assert!(m.insert_conflict(&b, T, b"a").is_none());
    assert!(m.insert_conflict(&b, TreeId(T.0 + 256), b"c").is_none(), "another tree of the slot");
    assert_eq!(m.try_lock(&b, T, b"d", S), Ok(Granted::New));
    assert!(m.check(&b, T, b"d", X).is_err());
    assert!(m.holds(&a, T, b"d", S) && !m.holds(&a, T, b"d", X));
    let wait_b = ticket(m.enqueue_insert(&b, T, b"c"));
    m.release_all(&a);
    assert_eq!(b.outcome(), Outcome::Waiting, "the other interval is still there");
    m.release_all(&c);
    wait_b.wait(LONG, &quiet).unwrap();
    assert!(matches!(m.enqueue_insert(&b, T, b"c"), Enqueued::Granted));
    m.release_all(&b);
    assert_clean(&m);
}

#[test]
fn two_gap_owners_that_insert_are_a_deadlock() {
    let (_, m) = manager();
    let [a, b] = [1, 2].map(|s| m.owner(s));
    m.lock_range(&a, T, Unbounded, Unbounded, X);
    m.lock_range(&b, T, Excluded(b"a"), Excluded(b"z"), X);
    let wait_a = ticket(m.enqueue_insert(&a, T, b"m"));
    let wait_b = ticket(m.enqueue_insert(&b, T, b"n"));
    assert!(matches!(wait_b.wait(LONG, &quiet), Err(Error::Deadlock)), "a tie: the newcomer");
    m.release_all(&b);
    wait_a.wait(LONG, &quiet).unwrap();
    m.release_all(&a);
    assert_clean(&m);
}

#[test]
fn rows_under_an_interval_wait_for_its_end() {
    let (_, m) = manager();
    let [a, b, c] = [1, 2, 3].map(|s| m.owner(s));
    m.try_lock_next(&a, T, (Excluded(b"a"), Included(b"k")), b"k", X).unwrap();
    let wait_b = ticket(m.enqueue(&b, T, b"k", X, None));
    assert_eq!(m.try_lock(&a, T, b"k", X), Ok(Granted::Held));
    assert!(m.try_lock_next(&c, T, (Excluded(b"a"), Included(b"k")), b"k", S).is_err());
    m.release_all(&a);
    wait_b.wait(LONG, &quiet).unwrap();
    m.release_all(&b);
    assert_clean(&m);
}
