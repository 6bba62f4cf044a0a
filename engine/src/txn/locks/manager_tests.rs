use super::*;
use crate::base::Lsn;
use std::thread;
use Bound::{Excluded, Included, Unbounded};
use LockMode::{Exclusive as X, Shared as S};

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

pub(super) fn is_unlocked(m: &LockManager) -> bool {
    m.waits.try_lock().is_some() && m.shards.iter().all(|shard| shard.trees.try_lock().is_some())
}

pub(super) fn assert_clean(m: &LockManager) {
    let stats = m.stats();
    assert_eq!((stats.rows, stats.intervals), (0, 0));
    for shard in &m.shards {
        assert!(shard.trees.lock().values().all(|locks| locks.is_empty()));
    }
    assert!(m.holders.iter().all(|holders| holders.lock().is_empty()));
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
    assert!(m.try_lock(&c, T, b"k", S).is_err(), "a newcomer queues after a waiter");
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
        assert!(is_unlocked(&m), "no mutex during a report (N10)");
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
fn recovered_prepared_transactions_are_waited_for() {
    let (table, m) = manager();
    let id = table.allocate(Lsn(1));
    table.set_prepared(id);
    let [a, b] = [0, 2].map(|s| m.owner(s));
    m.register_holder(&a, id);
    let wait_b = ticket(m.enqueue(&b, T, b"k", X, Some(id)));
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
    wait_c.wait(LONG, &quiet).expect("it waited only for the killed one");
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
    m.try_lock_range(&c, T, (Included(b"c"), Unbounded), S).unwrap();
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
    assert!(m.insert_conflict(&b, T, b"c").is_none());
    assert!(matches!(m.enqueue_insert(&b, T, b"c"), Enqueued::Granted));
    m.release_all(&b);
    assert_clean(&m);
}

#[test]
fn two_gap_owners_that_insert_are_a_deadlock() {
    let (_, m) = manager();
    let [a, b] = [1, 2].map(|s| m.owner(s));
    m.try_lock_range(&a, T, (Unbounded, Unbounded), X).unwrap();
    m.try_lock_range(&b, T, (Excluded(b"a"), Excluded(b"z")), X).unwrap();
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

#[test]
fn later_readers_of_the_gap_wait_behind_an_insert() {
    let (_, m) = manager();
    let [a, b, c, d] = [1, 2, 3, 4].map(|s| m.owner(s));
    let gap = (Excluded(&b"a"[..]), Excluded(&b"k"[..]));
    let next = (Excluded(&b"a"[..]), Included(&b"k"[..]));
    m.try_lock_range(&a, T, gap, S).unwrap();
    let insert = ticket(m.enqueue_insert(&b, T, b"c"));
    assert!(m.try_lock_range(&c, T, gap, S).is_err());
    assert!(m.try_lock_next(&c, T, next, b"k", S).is_err());
    assert_eq!(m.try_lock_next(&c, T, (Excluded(b"c"), Included(b"k")), b"k", S), Ok(Granted::New));
    let wait_c = ticket(m.enqueue_range(&c, T, gap, S));
    let wait_d = ticket(m.enqueue_next(&d, T, next, b"k", S, None));
    m.try_lock_range(&a, T, gap, X).expect("its own gap grows stronger");
    m.release_all(&a);
    insert.wait(LONG, &quiet).unwrap();
    assert_eq!((c.outcome(), d.outcome()), (Outcome::Waiting, Outcome::Waiting));
    assert!(m.insert_conflict(&b, T, b"c").is_none(), "it keeps its place until it is done");
    m.finish_insert(&b);
    wait_c.wait(LONG, &quiet).unwrap();
    wait_d.wait(LONG, &quiet).unwrap();
    assert!(m.insert_conflict(&b, T, b"c").is_some());
    for owner in [&b, &c, &d] {
        m.release_all(owner);
    }
    assert_clean(&m);
}

/// An insert waits for spans that were asked for before it, unless their owner waits for it.
#[test]
fn an_insert_passes_those_that_wait_for_its_owner() {
    let (_, m) = manager();
    let [a, b, c] = [1, 2, 3].map(|s| m.owner(s));
    let next = (Excluded(&b"a"[..]), Included(&b"k"[..]));
    m.try_lock(&a, T, b"k", X).unwrap();
    let wait_b = ticket(m.enqueue_next(&b, T, next, b"k", X, None));
    assert!(m.insert_conflict(&a, T, b"c").is_none(), "else it would be a deadlock");
    let wait_c = ticket(m.enqueue_insert(&c, T, b"c"));
    m.release_all(&a);
    wait_b.wait(LONG, &quiet).unwrap();
    assert_eq!(c.outcome(), Outcome::Waiting);
    m.release_all(&b);
    wait_c.wait(LONG, &quiet).unwrap();
    m.release_all(&c);
    assert_clean(&m);
}

#[test]
fn a_holder_that_comes_later_is_reported() {
    let (table, m) = manager();
    let [a, b, c, d] = [1, 2, 3, 4].map(|s| m.owner(s));
    m.try_lock(&a, T, b"k", S).unwrap();
    let reports = Mutex::new(Vec::new());
    let report = |w, h| {
        assert!(is_unlocked(&m), "no mutex during a report (N10)");
        reports.lock().push((w, h));
    };
    let seen = |what: (u64, u64)| {
        let begin = std::time::Instant::now();
        while !reports.lock().contains(&what) {
            assert!(begin.elapsed() < LONG, "{what:?} is not reported");
            thread::sleep(Duration::from_millis(1));
        }
    };
    let wait_b = ticket(m.enqueue(&b, T, b"k", X, None));
    thread::scope(|scope| {
        let waiter = scope.spawn(|| wait_b.wait(LONG, &report));
        seen((2, 1));
        // Its id in the entry becomes visible.
        let id = table.allocate(Lsn(1));
        m.register_holder(&c, id);
        let wait_d = ticket(m.enqueue(&d, T, b"k", S, Some(id)));
        seen((2, 3));
        drop(wait_d);
        table.commit(id);
        m.release_all(&c);
        m.release_all(&a);
        waiter.join().unwrap().unwrap();
    });
    assert_eq!(*reports.lock(), [(2, 1), (2, 3)], "each once");
    m.release_all(&b);
    assert_clean(&m);
}

/// Its session may be another's by now.
#[test]
fn a_transaction_without_its_session_is_reported_as_nobodys() {
    let (_, m) = manager();
    let [a, b] = [1, 2].map(|s| m.owner(s));
    m.try_lock(&a, T, b"k", X).unwrap();
    a.leave_session();
    assert_eq!(m.try_lock(&b, T, b"k", X), Err(Conflict { session: 0, txn: None }));
    let reports = Mutex::new(Vec::new());
    let wait_b = ticket(m.enqueue(&b, T, b"k", X, None));
    let timeout = wait_b.wait(Duration::from_millis(3), &|w, h| reports.lock().push((w, h)));
    assert!(matches!(timeout, Err(Error::LockTimeout)));
    assert_eq!(*reports.lock(), [(2, 0)]);
    m.release_all(&a);
    assert_clean(&m);
}

#[test]
fn written_rows_are_let_go_unless_a_savepoint_lies_between() {
    let (table, m) = manager();
    let [a, b] = [1, 2].map(|s| m.owner(s));
    let id = table.allocate(Lsn(1));
    m.register_holder(&a, id);
    for key in 0..100_u32 {
        m.try_lock(&a, T, &key.to_be_bytes(), X).unwrap();
        m.let_go(&a, T, &key.to_be_bytes());
    }
    assert_eq!(m.stats().rows, 0);
    assert_eq!(a.weight(), 0);
    m.try_lock(&a, T, b"before", X).unwrap();
    a.begin_epoch();
    m.let_go(&a, T, b"before");
    assert!(m.holds(&a, T, b"before", X), "a rollback to the savepoint needs it");
    m.try_lock(&a, T, b"awaited", X).unwrap();
    let wait_b = ticket(m.enqueue(&b, T, b"awaited", X, None));
    m.let_go(&a, T, b"awaited");
    assert_eq!(b.outcome(), Outcome::Waiting, "it waits for the writer now");
    table.commit(id);
    m.release_all(&a);
    wait_b.wait(LONG, &quiet).unwrap();
    m.release_all(&b);
    assert_clean(&m);
}

/// Many locks are released in parts; a waiter for one of the first gets it, and all are gone.
#[test]
fn many_locks_of_all_kinds_go_at_the_end() {
    let (_, m) = manager();
    let [a, b] = [1, 2].map(|s| m.owner(s));
    for n in 0..5_000_u32 {
        let (low, high) = ((n * 4).to_be_bytes(), (n * 4 + 2).to_be_bytes());
        m.try_lock(&a, T, &(n * 4 + 3).to_be_bytes(), X).unwrap();
        m.try_lock_range(&a, T, (Excluded(&low[..]), Excluded(&high[..])), X).unwrap();
        m.try_lock_range(&a, T, (Excluded(&low[..]), Included(&high[..])), S).unwrap();
    }
    assert_eq!((m.stats().rows, m.stats().intervals), (5_000, 10_000));
    let wait_b = ticket(m.enqueue(&b, T, &3_u32.to_be_bytes(), S, None));
    m.release_all(&a);
    wait_b.wait(LONG, &quiet).unwrap();
    m.release_all(&b);
    assert_clean(&m);
}
