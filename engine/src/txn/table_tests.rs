use super::*;
use crate::os::sim::SimRng;
use crate::txn::Snapshot;
use std::collections::BTreeSet;
use std::sync::atomic::AtomicBool;
use std::thread;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Is {
    Active,
    Prepared,
    Aborted,
    Committed(u64),
}

/// What the table should say, kept the long way.
#[derive(Default)]
struct Model {
    ids: BTreeMap<u64, Is>,
    first: BTreeMap<u64, u64>,
    snapshots: Vec<(Snapshot, BTreeSet<u64>)>,
    log_end: u64,
    csn: u64,
}

impl Model {
    fn pick(&self, rng: &mut SimRng, wanted: fn(Is) -> bool) -> Option<u64> {
        let fit: Vec<u64> = self.ids.iter().filter(|(_, is)| wanted(**is)).map(|i| *i.0).collect();
        (!fit.is_empty()).then(|| fit[rng.below(fit.len() as u64) as usize])
    }

    fn committed(&self) -> BTreeSet<u64> {
        let committed = self.ids.iter().filter(|(_, is)| matches!(is, Is::Committed(_)));
        committed.map(|(id, _)| *id).collect()
    }

    fn check(&self, table: &Arc<TxnTable>) {
        for (&id, &is) in &self.ids {
            match (table.state(TxnId(id)), is) {
                (TxnState::Committed(csn), Is::Committed(c)) => {
                    assert!(csn.0 == c || csn == Csn::ZERO);
                }
                (state, is) => assert_eq!(format!("{state:?}"), format!("{is:?}")),
            }
        }
        let oldest = table.oldest_view(Lsn(self.log_end));
        let everyone = self.snapshots.first().map_or_else(|| self.committed(), |s| s.1.clone());
        for &id in self.ids.keys() {
            assert_eq!(oldest.sees(table, TxnId(id), None), everyone.contains(&id));
            for (snapshot, visible) in &self.snapshots {
                let seen = visible.contains(&id);
                assert_eq!(snapshot.sees(table, TxnId(id), None), seen, "{snapshot:?} of {id}");
                assert_eq!(table.visible(snapshot.csn(), TxnId(id), None), seen);
                assert!(table.visible(snapshot.csn(), TxnId(id), Some(TxnId(id))));
                assert!(seen || snapshot.low().0 <= id);
                // A version that the snapshot does not see lies in the log above its pin.
                assert!(seen || snapshot.pin().0 <= self.first[&id]);
            }
        }
        let open = self.ids.iter().filter(|(_, is)| !matches!(is, Is::Committed(_)));
        let low = open.map(|(id, _)| self.first[id]).min().unwrap_or(u64::MAX);
        assert_eq!(table.oldest_needed_lsn(), Lsn(low));
        let stats = table.stats();
        assert!(stats.ring_ids <= table.words.len() as u64);
    }
}

fn run(seed: u64) {
    let mut rng = SimRng::new(seed);
    let ring = 8 << rng.below(5);
    let first = 1 + rng.below(100);
    let table = TxnTable::with_ring(TxnId(first), ring);
    let mut m = Model { log_end: 10, ..Model::default() };
    let snapshot_percent = rng.below(15);
    for step in 0..400 {
        m.log_end += rng.below(3);
        match rng.below(100) {
            0..40 => {
                let lsn = m.log_end - rng.below(3).min(m.log_end);
                let id = table.allocate(Lsn(lsn)).0;
                assert!(m.ids.insert(id, Is::Active).is_none());
                m.first.insert(id, lsn);
                // The caller's log end for a snapshot is read after what it must cover.
            }
            40..75 => {
                let open = |is| matches!(is, Is::Active | Is::Prepared);
                if let Some(id) = m.pick(&mut rng, open).filter(|_| rng.chance(90)) {
                    m.csn += 1;
                    assert_eq!(table.commit(TxnId(id)), Csn(m.csn));
                    m.ids.insert(id, Is::Committed(m.csn));
                }
            }
            75..80 => {
                if let Some(id) = m.pick(&mut rng, |is| is == Is::Active) {
                    table.set_prepared(TxnId(id));
                    m.ids.insert(id, Is::Prepared);
                }
            }
            80..85 => {
                if let Some(id) = m.pick(&mut rng, |is| is == Is::Active) {
                    table.abort(TxnId(id));
                    m.ids.insert(id, Is::Aborted);
                }
            }
            85..90 => {
                if let Some(id) = m.pick(&mut rng, |is| is == Is::Aborted) {
                    table.forget(TxnId(id));
                    m.ids.remove(&id);
                }
            }
            90..93 => table.advance_horizon(),
            _ => {}
        }
        if rng.chance(snapshot_percent) {
            let lowest = m.log_end - m.log_end.min(3);
            m.snapshots.push((table.snapshot(Lsn(lowest)), m.committed()));
        }
        if !m.snapshots.is_empty() && rng.chance(snapshot_percent) {
            let at = rng.below(m.snapshots.len() as u64) as usize;
            m.snapshots.remove(at);
        }
        if step % 20 == 0 {
            m.check(&table);
        }
    }
    m.check(&table);
    m.snapshots.clear();
    table.advance_horizon();
    m.check(&table);
    check_restore(&table, &m);
}

fn check_restore(table: &Arc<TxnTable>, m: &Model) {
    let mut unsettled = Vec::new();
    for (&id, is) in m.ids.iter().filter(|(_, is)| !matches!(is, Is::Committed(_))) {
        let (id, first_lsn) = (TxnId(id), Lsn(m.first[&id]));
        unsettled.push(Unsettled { id, prepared: *is == Is::Prepared, first_lsn });
    }
    let again = TxnTable::restore(table.next_id(), &unsettled);
    assert_eq!(again.next_id(), table.next_id());
    assert_eq!(again.oldest_needed_lsn(), table.oldest_needed_lsn());
    let snapshot = again.snapshot(Lsn(m.log_end));
    for (&id, &is) in &m.ids {
        let expected = match is {
            Is::Active | Is::Aborted => TxnState::Aborted,
            Is::Prepared => TxnState::Prepared,
            Is::Committed(_) => TxnState::Committed(Csn::ZERO),
        };
        assert_eq!(again.state(TxnId(id)), expected);
        let committed = matches!(is, Is::Committed(_));
        assert_eq!(snapshot.sees(&again, TxnId(id), None), committed);
    }
    for one in unsettled {
        match one.prepared {
            true => drop(again.commit(one.id)),
            false => again.forget(one.id),
        }
    }
    drop(snapshot);
    again.advance_horizon();
    assert_eq!(again.stats(), TableStats::default());
}

#[test]
fn agrees_with_the_model() {
    for seed in 0..300 {
        run(seed);
    }
}

#[test]
fn an_idle_transaction_and_an_old_snapshot_do_not_stop_the_horizon() {
    let table = TxnTable::with_ring(TxnId(1), 64);
    let idle = table.allocate(Lsn(5));
    let before = table.allocate(Lsn(6));
    table.commit(before);
    let old = table.snapshot(Lsn(7));
    let mut last = TxnId::ZERO;
    for _ in 0..10_000 {
        last = table.allocate(Lsn(100));
        table.commit(last);
    }
    assert!(table.horizon() > idle);
    assert_eq!(table.state(idle), TxnState::Active);
    assert!(old.sees(&table, before, None) && !old.sees(&table, last, None));
    assert_eq!((table.stats().views, table.stats().exceptions), (1, 1));
    assert_eq!(table.oldest_snapshot_pin(), Some(Lsn(5)));
    let csn = table.commit(idle);
    table.wait_visible(csn);
    assert!(!old.sees(&table, idle, None));
    assert!(table.snapshot(Lsn(101)).sees(&table, idle, None));
    drop(old);
    table.advance_horizon();
    assert_eq!(table.stats(), TableStats::default());
}

/// Ends the other threads of a test also when an assertion fails.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// M10 with threads and a ring so small that words are reused and snapshots grow old under the
/// readers: a snapshot answers the same twice, sees what was committed before it was taken, and
/// sees no less than an older one. Ids that were forgotten are left out: nobody asks for them.
#[test]
fn snapshots_repeat_and_nest_under_concurrent_commits() {
    const RECENT: u64 = 100;
    let table = TxnTable::with_ring(TxnId(1), 64);
    let stop = AtomicBool::new(false);
    let forgotten = Mutex::new(BTreeSet::new());
    thread::scope(|scope| {
        let _stop = StopOnDrop(&stop);
        for seed in 0..3 {
            let (table, stop, forgotten) = (&table, &stop, &forgotten);
            scope.spawn(move || {
                let mut rng = SimRng::new(seed);
                while !stop.load(Ordering::Relaxed) {
                    for id in [0; 3].map(|_| table.allocate(Lsn(1))) {
                        if rng.chance(10) {
                            table.abort(id);
                            forgotten.lock().insert(id.0);
                            table.forget(id);
                            continue;
                        }
                        let csn = table.commit(id);
                        table.wait_visible(csn);
                        let snapshot = table.snapshot(Lsn(1));
                        assert!(snapshot.csn() >= csn && snapshot.sees(table, id, None));
                    }
                }
            });
        }
        let mut rng = SimRng::new(9);
        for _ in 0..1000 {
            let older = table.snapshot(Lsn(1));
            let from = table.next_id().0.saturating_sub(RECENT / 2 + rng.below(100)).max(1);
            let ids = from..from + RECENT;
            let seen = |s: &Snapshot| -> Vec<bool> {
                ids.clone().map(|id| s.sees(&table, TxnId(id), None)).collect()
            };
            let first = seen(&older);
            if rng.chance(30) {
                thread::yield_now();
            }
            let newer = seen(&table.snapshot(Lsn(1)));
            let again = seen(&older);
            let forgotten = forgotten.lock();
            for at in (0..RECENT as usize).filter(|&at| !forgotten.contains(&(from + at as u64))) {
                assert_eq!(first[at], again[at], "a snapshot repeats");
                assert!(!first[at] || newer[at], "snapshots nest");
            }
        }
    });
    table.advance_horizon();
    assert_eq!(table.stats(), TableStats::default());
}
