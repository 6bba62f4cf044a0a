//! One session: transactions of many kinds, each read and write compared with the model.

use crate::check;
use crate::loading;
use crate::locks::{Holder, Place};
use crate::model::{Changes, Model, TableKey, Xid};
use crate::row::{name_of, Parts, Row, Rows};
use crate::world::Life;
use sluice_engine::base::{Error, Result};
use sluice_engine::db::{
    Cursor, Direction, Isolation, ReadMode, Savepoint, Table, Trx, WaitPolicy, Wanted,
};
use sluice_engine::os::sched;
use sluice_engine::os::sim::SimRng;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

/// Tells what sessions draw for tables that they fill from the rest.
const FILL_SALT: u64 = 0xF1_11;

/// Power is off, or the machine is sick: what was under way is in doubt.
pub struct PowerOff;

/// The work goes on, or power is off.
pub type Flow = std::result::Result<(), PowerOff>;

/// A table that this transaction uses.
struct Use {
    key: TableKey,
    table: Arc<Table>,
}

/// A range that this transaction has locked as a whole, and what it held of others.
struct Guarded {
    key: TableKey,
    range: (Bound<u32>, Bound<u32>),
    rows: Rows,
}

pub struct Session {
    life: Arc<Life>,
    number: u64,
    rng: SimRng,
    /// For tables that are filled at once, so that the rest of a seed stays as it is without them.
    fill_rng: SimRng,
    trx: Trx,
    changes: Changes,
    used: BTreeMap<String, Use>,
    guarded: Vec<Guarded>,
    savepoints: Vec<(Savepoint, Changes, usize)>,
    /// By this its locks are known.
    holder: Holder,
    xid: Option<Xid>,
    /// DDL statements that were over before the snapshot was taken.
    snapshot_ddl: u64,
    /// The engine has rolled the transaction back.
    is_victim: bool,
    /// Its transactions go on for long: others' checkpoints, purge and moved versions meet them.
    is_patient: bool,
    /// Its transactions write much before they end.
    is_large: bool,
}

impl Session {
    pub fn new(life: Arc<Life>, number: u64, seed: u64) -> Session {
        let trx = life.engine.begin(number);
        let mut rng = SimRng::new(seed);
        let is_patient = rng.chance(life.habits.patient_percent);
        let large_percent = life.habits.large_percent;
        let is_large = large_percent > 0 && rng.chance(large_percent);
        let holder = life.model().locks.new_holder();
        let mut session = Session {
            life,
            number,
            rng,
            fill_rng: SimRng::new(seed ^ FILL_SALT),
            trx,
            changes: Changes::new(),
            used: BTreeMap::new(),
            guarded: Vec::new(),
            savepoints: Vec::new(),
            holder,
            xid: None,
            snapshot_ddl: 0,
            is_victim: false,
            is_patient,
            is_large,
        };
        session.begin();
        session
    }

    /// Works until the life is over.
    pub fn work(self) {
        self.work_some(u64::MAX);
    }

    /// Works, for so many steps at most.
    pub fn work_some(mut self, steps: u64) {
        for _ in 0..steps {
            if !self.life.goes_on() {
                break;
            }
            if self.step().is_err() {
                if self.life.is_dark() {
                    break;
                }
                self.give_up();
            }
        }
        // Dropping the transaction rolls it back.
        self.let_go();
        if let Some(xid) = self.xid.take().filter(|_| !self.life.is_dark()) {
            self.model().rolling_back(&xid);
        }
    }

    /// Rolls back after an error of a sick machine, as the server does when a statement cannot be
    /// taken back alone.
    fn give_up(&mut self) {
        if let Some(xid) = self.xid.take() {
            self.model().rolling_back(&xid);
        }
        self.let_go();
        self.trx.rollback();
        self.forget();
    }

    /// The transaction is about to release its locks, or may do so from now on.
    fn let_go(&self) {
        self.model().locks.release(self.holder);
    }

    /// A call that waits for locks. What others were granted against those of this transaction is
    /// right only if it has lost them as the victim of a deadlock.
    #[track_caller]
    fn asking<R>(&mut self, call: impl FnOnce(&mut Trx) -> Result<R>) -> Result<R> {
        self.model().locks.ask(self.holder);
        let outcome = call(&mut self.trx);
        let is_victim = matches!(outcome, Err(Error::Deadlock));
        let wrong = self.model().locks.answered(self.holder, is_victim);
        assert!(wrong.is_empty(), "{}: {wrong:?}", self.number);
        outcome
    }

    /// This transaction was granted a lock.
    #[track_caller]
    fn took(&self, table: TableKey, place: Place) {
        let wrong = self.model().locks.took(self.holder, table, place);
        assert!(wrong.is_none(), "a lock of session {}: {wrong:?}", self.number);
        if let Place::Row { id, .. } | Place::Insert { id } = place {
            let prepared = self.model().prepared_row(table, id);
            assert!(prepared.is_none(), "{place:?} beside {prepared:?}, which has written it");
        }
    }

    fn model(&self) -> MutexGuard<'_, Model> {
        self.life.model()
    }

    /// Settings of the next transaction.
    fn begin(&mut self) {
        let isolation = match self.rng.below(10) {
            0..=6 => Isolation::RepeatableRead,
            _ => Isolation::ReadCommitted,
        };
        self.trx.set_isolation(isolation);
        let timeout_ms = [0, 1, 20, 1000][self.rng.below(4) as usize];
        self.trx.set_lock_timeout(Duration::from_millis(timeout_ms));
    }

    fn locks_gaps(&self) -> bool {
        self.trx.isolation() == Isolation::RepeatableRead
    }

    fn step(&mut self) -> Flow {
        if self.rng.chance(10) {
            // Thinks.
            let time = Duration::from_micros(self.rng.below(20_000));
            sluice_engine::os::sync::sleep(time);
        }
        if self.xid.is_some() {
            return self.end();
        }
        self.trx.clear_interrupt();
        self.trx.statement_start();
        if self.is_patient && self.life.habits.patient_read_only {
            return if self.rng.chance(4) { self.end() } else { self.read_snapshot() };
        }
        if self.is_large && !self.rng.chance(15) {
            return self.statement();
        }
        match self.rng.below(100) {
            0..=54 => self.statement(),
            55..=62 => self.read_snapshot(),
            63..=72 => self.read_locking(),
            73..=76 => self.savepoint(),
            77..=80 => self.back_to_savepoint(),
            81..=84 => self.prepare(),
            85..=86 => self.end_detached(),
            87.. if self.is_patient && !self.rng.chance(8) => self.read_snapshot(),
            _ => self.end(),
        }
    }

    /// An error is fine if it can be explained; true if the statement was done.
    #[track_caller]
    fn explained<R>(&mut self, outcome: Result<R>) -> std::result::Result<Option<R>, PowerOff> {
        match outcome {
            Ok(done) => Ok(Some(done)),
            Err(Error::Deadlock) => {
                self.is_victim = true;
                Ok(None)
            }
            Err(Error::LockTimeout | Error::WouldWait | Error::Interrupted) => Ok(None),
            Err(error) => {
                let off = self.life.power_off(&error);
                // On a machine that is only sick the statement has failed, and nothing else.
                if self.life.is_dark() {
                    Err(off)
                } else {
                    Ok(None)
                }
            }
        }
    }

    /// Was the table refused because the snapshot is older? That must be so.
    fn is_too_young<R>(&self, key: TableKey, outcome: &Result<R>) -> bool {
        if !matches!(outcome, Err(Error::TableChanged)) {
            return false;
        }
        let younger = self.trx.has_snapshot() && self.model().is_younger(key, self.snapshot_ddl);
        assert!(younger, "the table has not changed");
        true
    }

    /// Takes the table into this transaction.
    fn use_table(&mut self, name: &str) -> Option<(TableKey, Arc<Table>)> {
        if let Some(found) = self.used.get(name) {
            return Some((found.key, Arc::clone(&found.table)));
        }
        let key = self.model().enter(name)?;
        let Ok(Some(table)) = self.life.engine.table(name) else {
            self.model().leave(key);
            return None;
        };
        table.name_rows(Arc::new(name_of));
        table.name_parts(Arc::new(Parts));
        self.used.insert(name.to_string(), Use { key, table: Arc::clone(&table) });
        Some((key, table))
    }

    fn some_table(&mut self) -> Option<(TableKey, Arc<Table>)> {
        let names: Vec<String> = self.model().names.keys().cloned().collect();
        if names.is_empty() {
            return None;
        }
        let name = names[self.rng.below(names.len() as u64) as usize].clone();
        self.use_table(&name)
    }

    /// The rows of a table that this transaction would find if nobody else wrote any more.
    fn rows_with_own(&self, key: TableKey, mut rows: Rows) -> Rows {
        for ((_, id), row) in self.changes.range((key, 0)..=(key, u32::MAX)) {
            match row {
                Some(row) => drop(rows.insert(*id, row.clone())),
                None => drop(rows.remove(id)),
            }
        }
        rows
    }

    /// Waits until everybody who may have taken a place in the order has told the model.
    fn settle(&self) {
        let waiting = self.model().committing();
        while !self.model().committing().is_disjoint(&waiting) {
            sched::yield_now();
        }
    }

    fn newest(&self, key: TableKey) -> Rows {
        self.settle();
        let newest = self.model().newest(key);
        self.rows_with_own(key, newest)
    }

    /// Some row operations that succeed or fail together.
    fn statement(&mut self) -> Flow {
        if self.fill_rng.chance(self.life.habits.fill_percent) {
            let found = self.some_empty_table();
            if let Some((key, table)) = found {
                return self.fill(key, &table);
            }
        }
        let before = self.changes.clone();
        let mark = self.model().locks.mark(self.holder);
        for _ in 0..1 + self.rng.below(3) {
            if self.row()? {
                continue;
            }
            if self.is_victim {
                self.forget();
                return Ok(());
            }
            return self.undo_statement(before, mark);
        }
        if self.rng.chance(5) {
            return self.undo_statement(before, mark);
        }
        Ok(())
    }

    /// Back to what was before the statement, and to the locks that it had then.
    fn undo_statement(&mut self, before: Changes, mark: usize) -> Flow {
        self.model().locks.undo_to(self.holder, mark);
        let undone = self.trx.statement_rollback();
        self.powered(undone)?;
        self.changes = before;
        Ok(())
    }

    /// One that has no row of a commit or of this transaction.
    fn some_empty_table(&mut self) -> Option<(TableKey, Arc<Table>)> {
        let names: Vec<String> = self.model().names.keys().cloned().collect();
        let at = self.fill_rng.below(1 + names.len() as u64) as usize;
        let (key, table) = self.use_table(names.get(at)?)?;
        self.newest(key).is_empty().then_some((key, table))
    }

    /// A statement that fills a table that looks empty, from all rows at once if it is.
    fn fill(&mut self, key: TableKey, table: &Arc<Table>) -> Flow {
        if self.trx.has_snapshot() && self.model().is_younger(key, self.snapshot_ddl) {
            return Ok(());
        }
        let (before, mark) = (self.changes.clone(), self.model().locks.mark(self.holder));
        let habits = &self.life.habits;
        let rows = loading::random_rows(&mut self.fill_rng, habits.ids, habits.filler_bytes);
        let mut order = loading::in_some_order(&mut self.fill_rng, &rows);
        let has_twin = self.fill_rng.chance(10) && !order.is_empty();
        if has_twin {
            order.push(order[self.fill_rng.below(order.len() as u64) as usize]);
        }
        let gives_up = self.fill_rng.chance(10);
        let first_bytes = self.fill_rng.below(1500);
        let outcome = self.asking(|trx| loading::insert_all(trx, table, &order, first_bytes));
        let is_refused = matches!(outcome, Err(Error::Duplicate));
        if is_refused {
            assert!(has_twin || !self.newest(key).is_empty(), "no duplicate, but refused");
        } else if self.explained(outcome)?.is_some() && !gives_up {
            assert!(!has_twin, "a duplicate went into {}", table.name());
            for (id, row) in rows {
                self.took(key, Place::Insert { id });
                self.changes.insert((key, id), Some(row));
            }
            return Ok(());
        }
        if self.is_victim {
            self.forget();
            return Ok(());
        }
        self.undo_statement(before, mark)
    }

    #[track_caller]
    fn powered<R>(&self, outcome: Result<R>) -> std::result::Result<R, PowerOff> {
        match outcome {
            Ok(done) => Ok(done),
            Err(error) => Err(self.life.power_off(&error)),
        }
    }

    /// One row operation: locks the row as a statement does, and changes it. False: it failed.
    fn row(&mut self) -> std::result::Result<bool, PowerOff> {
        let Some((key, table)) = self.some_table() else { return Ok(true) };
        let id = self.rng.below(self.life.habits.ids) as u32;
        let mode = ReadMode::Lock { exclusive: true, wait: WaitPolicy::Wait };
        let mut payload = Vec::new();
        let wanted = [self.rng.chance(50), self.rng.chance(50)];
        let wanted = Wanted::Tags(&wanted);
        let asked = |trx: &mut Trx| {
            trx.get_wanted(&table, 0, &id.to_be_bytes(), mode, wanted, &mut payload)
        };
        let found = self.asking(asked);
        if self.is_too_young(key, &found) {
            return Ok(false);
        }
        let Some(found) = self.explained(found)? else { return Ok(false) };
        self.took_row(key, id, found);
        let old = found.then(|| Row::parse(&id.to_be_bytes(), &payload, wanted));
        let newest = self.newest(key);
        if found || self.locks_gaps() {
            assert_eq!(old.as_ref(), newest.get(&id), "a locked read of {} {id}", table.name());
        }
        let new =
            Row::random(&mut self.rng, id, self.life.habits.ids, self.life.habits.filler_bytes);
        let new = match &old {
            Some(old) => new.in_place_of(old, &mut self.rng),
            None => new,
        };
        let delete = found && self.rng.chance(35);
        let outcome = self.asking(|trx| match &old {
            None => new.with(|w| trx.insert(&table, w)),
            Some(old) if delete => old.with(|w| trx.delete(&table, w)),
            Some(old) => old.with(|o| new.with(|n| trx.update(&table, o, n))),
        });
        if let Err(Error::Duplicate) = outcome {
            let newest = self.newest(key);
            let same_id = old.is_none() && newest.contains_key(&id);
            let taken = newest.values().any(|r| r.unique == new.unique && r.id != id);
            assert!(!delete && (taken || same_id), "no duplicate in {}, but refused", table.name());
            return Ok(self.rng.chance(50));
        }
        let Some(()) = self.explained(outcome)? else { return Ok(false) };
        if old.is_none() {
            self.took(key, Place::Insert { id });
        }
        let newest = self.newest(key);
        if !delete {
            let taken = newest.values().any(|r| r.unique == new.unique && r.id != id);
            assert!(!taken, "a duplicate of {} went into {}", new.unique, table.name());
        }
        assert_eq!(old.as_ref(), newest.get(&id), "row {id} of {} changed", table.name());
        self.changes.insert((key, id), (!delete).then_some(new));
        Ok(true)
    }

    /// A locking read of one row has answered. Of rows that this transaction has written itself its
    /// id is the lock.
    fn took_row(&self, table: TableKey, id: u32, found: bool) {
        if self.changes.contains_key(&(table, id)) {
            return;
        }
        if found {
            self.took(table, Place::Row { id, exclusive: true });
        } else if self.locks_gaps() {
            self.took(table, Place::Gap { id });
        }
    }

    /// A plain read of all of a table, by one of its indexes, in one of the directions.
    fn read_snapshot(&mut self) -> Flow {
        if !self.trx.has_snapshot() {
            let ddl_count = self.model().ddl_count;
            self.snapshot_ddl = ddl_count;
        }
        let csn = self.trx.snapshot_csn().0;
        let Some((key, table)) = self.some_table() else { return Ok(()) };
        let way = match self.rng.chance(50) {
            true => Direction::Forward,
            false => Direction::Backward,
        };
        self.settle();
        let known = self.model().rows_at(key, csn);
        let known = self.rows_with_own(key, known);
        let outcome = match self.rng.below(4) {
            0 => check::index_fits(&mut self.trx, &table, 1, way, &known),
            1 => check::index_fits(&mut self.trx, &table, 2, way, &known),
            2 => self.read_one(&table, &known),
            _ => check::rows(&mut self.trx, &table, way).map(|found| {
                assert!(found == known, "{}", differ(table.name(), csn, &known, &found));
            }),
        };
        if let Err(Error::Interrupted) = outcome {
            // Killed; the next statement begins undisturbed.
            self.trx.clear_interrupt();
            return Ok(());
        }
        if self.is_too_young(key, &outcome) {
            return Ok(());
        }
        self.powered(outcome)
    }

    fn read_one(&mut self, table: &Arc<Table>, known: &Rows) -> Result<()> {
        let id = self.rng.below(self.life.habits.ids) as u32;
        let mut payload = Vec::new();
        let (key, mode) = (id.to_be_bytes(), ReadMode::Snapshot);
        let wanted = [self.rng.chance(70), self.rng.chance(70)];
        let wanted = Wanted::Tags(&wanted);
        let found = self.trx.get_wanted(table, 0, &key, mode, wanted, &mut payload)?;
        let row = found.then(|| Row::parse(&key, &payload, wanted));
        assert_eq!(row.as_ref(), known.get(&id), "a read of {} {id}", table.name());
        Ok(())
    }

    /// A locking scan of a range of rows.
    fn read_locking(&mut self) -> Flow {
        let Some((key, table)) = self.some_table() else { return Ok(()) };
        let (a, b) = (self.rng.below(self.life.habits.ids) as u32, self.rng.below(20) as u32);
        let (low, high) = (a, a + b);
        let wait = match self.rng.below(5) {
            0 => WaitPolicy::NoWait,
            1 => WaitPolicy::SkipLocked,
            2 | 3 if !self.locks_gaps() => WaitPolicy::CommittedFirst,
            _ => WaitPolicy::Wait,
        };
        let exclusive = self.rng.chance(50);
        let backward = self.rng.chance(40);
        let mode = ReadMode::Lock { exclusive, wait };
        let skips: Vec<bool> = (0..4).map(|_| self.rng.chance(50)).collect();
        let scanned =
            self.asking(|trx| scan_locking(trx, &table, (low, high), backward, mode, &skips));
        if self.is_too_young(key, &scanned) {
            return Ok(());
        }
        let Some(found) = self.explained(scanned)? else {
            if self.is_victim {
                self.forget();
                return Ok(());
            }
            let undone = self.trx.statement_rollback();
            return self.powered(undone);
        };
        self.took_rows(key, (low, high), &found, mode);
        let newest = self.newest(key);
        for (id, row) in &found {
            assert_eq!(newest.get(id), Some(row), "a locked row of {}", table.name());
        }
        if self.locks_gaps() && wait != WaitPolicy::SkipLocked {
            let range = (Bound::Included(low), Bound::Included(high));
            let known: Rows = newest.range(range).map(|(id, row)| (*id, row.clone())).collect();
            assert!(known == found, "{}", differ(table.name(), u64::MAX, &known, &found));
            let rows = self.model().newest_in(key, range);
            self.guarded.push(Guarded { key, range, rows });
        }
        Ok(())
    }

    /// What a locking scan has locked.
    fn took_rows(&self, table: TableKey, (low, high): (u32, u32), found: &Rows, mode: ReadMode) {
        let ReadMode::Lock { exclusive, wait } = mode else { return };
        for id in found.keys().filter(|id| !self.changes.contains_key(&(table, **id))) {
            self.took(table, Place::Row { id: *id, exclusive });
        }
        if self.locks_gaps() && wait != WaitPolicy::SkipLocked {
            self.took(table, Place::Range { low, high, exclusive });
        }
    }

    fn savepoint(&mut self) -> Flow {
        let mark = self.model().locks.mark(self.holder);
        self.savepoints.push((self.trx.savepoint(), self.changes.clone(), mark));
        Ok(())
    }

    fn back_to_savepoint(&mut self) -> Flow {
        if self.savepoints.is_empty() {
            return Ok(());
        }
        let at = self.rng.below(self.savepoints.len() as u64) as usize;
        let (savepoint, changes, mark) = self.savepoints[at].clone();
        self.savepoints.truncate(at + 1);
        self.model().locks.undo_to(self.holder, mark);
        let undone = self.trx.rollback_to(savepoint);
        self.powered(undone)?;
        self.changes = changes;
        Ok(())
    }

    /// What was locked as a whole must still be as it was.
    fn check_guarded(&self) {
        self.settle();
        for guarded in &self.guarded {
            let now = self.model().newest_in(guarded.key, guarded.range);
            assert!(
                now == guarded.rows,
                "a locked range: {}",
                differ("table", guarded.key, &guarded.rows, &now)
            );
        }
    }

    fn end(&mut self) -> Flow {
        if self.rng.chance(75) {
            self.commit()
        } else {
            self.rollback()
        }
    }

    fn commit(&mut self) -> Flow {
        self.check_guarded();
        let flush = self.rng.chance(70);
        let mut lsn = None;
        if self.trx.has_writes() {
            let ticket = self.model().begin_commit();
            // The id in the entries is no lock any more once the commit has its place.
            self.let_go();
            self.trx.commit_ordered();
            let place = self.trx.published().expect("a place in the order");
            let place = (place.0 .0, place.1 .0);
            let xid = self.xid.take();
            self.model().committed(ticket, place, &self.changes, xid);
            lsn = Some(place.1);
        }
        if self.rng.chance(20) {
            sched::yield_now();
        }
        self.let_go();
        let done = self.trx.commit(flush);
        self.powered(done)?;
        if let Some(lsn) = lsn.filter(|_| flush && self.life.commits_are_durable) {
            self.model().durable_up_to(lsn);
        }
        self.forget();
        Ok(())
    }

    fn rollback(&mut self) -> Flow {
        self.let_go();
        if let Some(xid) = self.xid.take() {
            self.model().rolling_back(&xid);
            self.trx.rollback();
            let told = self.model().told_lsn();
            let flushed = self.life.engine.flush_log();
            self.powered(flushed)?;
            let mut model = self.model();
            model.rolled_back(&xid);
            model.durable_up_to(told);
        } else {
            self.trx.rollback();
        }
        self.forget();
        Ok(())
    }

    fn prepare(&mut self) -> Flow {
        if !self.trx.has_writes() {
            return Ok(());
        }
        self.check_guarded();
        let xid = self.model().new_xid();
        let wrote = self.used.values().map(|used| used.key).collect();
        self.model().preparing(&xid, &self.changes, wrote);
        let flush = self.rng.chance(70);
        self.let_go();
        let done = self.trx.prepare(&xid, flush);
        self.xid = Some(xid.clone());
        self.powered(done)?;
        if flush && self.life.commits_are_durable {
            self.model().prepare_is_sure(&xid);
        }
        if self.rng.chance(25) {
            self.disconnect(&xid);
        }
        Ok(())
    }

    /// Leaves the prepared transaction behind, and with it no metadata locks.
    fn disconnect(&mut self, xid: &Xid) {
        let fresh = self.life.engine.begin(self.number);
        std::mem::replace(&mut self.trx, fresh).detach();
        self.xid = None;
        self.model().detached(xid);
        self.forget();
    }

    /// XA COMMIT or XA ROLLBACK of a transaction that somebody else has prepared, perhaps in an
    /// earlier life.
    fn end_detached(&mut self) -> Flow {
        let taken = self.life.model().take_detached(&mut self.rng);
        let Some((xid, changes)) = taken else { return Ok(()) };
        let engine = &self.life.engine;
        let found = if self.rng.chance(60) {
            let ticket = self.model().begin_commit();
            let mut end = 0;
            let done = engine.commit_prepared_told(&xid, |csn, lsn| {
                let mut model = self.model();
                model.committed(ticket, (csn.0, lsn.0), &changes, Some(xid.clone()));
                model.ended(&xid);
                end = lsn.0;
            });
            let found = self.powered(done)?;
            self.model().durable_up_to(end);
            found
        } else {
            self.model().rolling_back(&xid);
            let told = self.model().told_lsn();
            let done = engine.rollback_prepared(&xid);
            let found = self.powered(done)?;
            let mut model = self.model();
            model.rolled_back(&xid);
            model.durable_up_to(told);
            found
        };
        assert!(found, "an XID is gone");
        Ok(())
    }

    /// The transaction is over.
    fn forget(&mut self) {
        self.let_go();
        self.changes.clear();
        self.savepoints.clear();
        self.guarded.clear();
        self.is_victim = false;
        let used = std::mem::take(&mut self.used);
        for found in used.values() {
            self.model().leave(found.key);
        }
        self.begin();
    }
}

/// Passes the rows that it peeks at as `skips` says, in turn.
fn scan_locking(
    trx: &mut Trx,
    table: &Arc<Table>,
    ids: (u32, u32),
    backward: bool,
    mode: ReadMode,
    skips: &[bool],
) -> Result<Rows> {
    let (low, high) = (ids.0.to_be_bytes(), ids.1.to_be_bytes());
    let (low, high) = (Bound::Included(&low[..]), Bound::Included(&high[..]));
    let (from, to, way) = match backward {
        true => (high, low, Direction::Backward),
        false => (low, high, Direction::Forward),
    };
    let (mut cursor, mut skips) = (Cursor::default(), skips.iter().cycle());
    trx.seek(&mut cursor, table, 0, from, to, way, mode)?;
    let mut found = Rows::new();
    while trx.next_wanted(&mut cursor, Wanted::NONE)? {
        let row = Row::parse(cursor.key(), cursor.payload(), Wanted::NONE);
        if cursor.peeks() {
            if skips.next() == Some(&true) {
                cursor.pass_peeked();
            }
            continue;
        }
        found.insert(row.id, row);
    }
    Ok(found)
}

fn differ(name: &str, csn: u64, known: &Rows, found: &Rows) -> String {
    let ids: Vec<u32> = known.keys().chain(found.keys()).copied().collect();
    let id = ids.iter().find(|id| known.get(id) != found.get(id));
    let (known, found) = (id.and_then(|id| known.get(id)), id.and_then(|id| found.get(id)));
    format!("{name} as of {csn}: id {id:?} is {known:?}, found {found:?}")
}
