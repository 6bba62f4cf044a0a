//! What the engine must hold: a history of what was committed, and what is surely durable.
//!
//! Sessions tell the model of a commit after its place in the order is known and before they let
//! go of its locks; from before they ask for that place they count as committing. A session that
//! compares what it read waits until those who were committing then have told ([`Model::committing`]).
//!
//! A life of the machine begins with a state. Every commit and DDL statement in it is an event
//! with its place in the log. What a recovery finds must be the state after some beginning of the
//! sequence of events, and that must hold at least what was acknowledged as durable.

use crate::locks::Locks;
use crate::row::{Row, Rows, FIRST_DEFINITION};
use sluice_engine::os::sim::SimRng;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

/// A table between its creation and its end or truncation, whatever its name.
pub type TableKey = u64;

/// Changes of one transaction: what is there now.
pub type Changes = BTreeMap<(TableKey, u32), Option<Row>>;

pub type Xid = Vec<u8>;

/// Of each row, by commit.
type Versions = BTreeMap<(TableKey, u32), Vec<(u64, Option<Row>)>>;

#[derive(Clone, Debug)]
pub enum Ddl {
    Create {
        name: String,
        key: TableKey,
    },
    Drop {
        name: String,
    },
    Rename {
        from: String,
        to: String,
    },
    Truncate {
        name: String,
        key: TableKey,
    },
    /// A table that has all its rows when it comes to its name.
    Load {
        name: String,
        key: TableKey,
        rows: Arc<Rows>,
        seed: u64,
    },
    /// Other indexes, the same rows.
    Alter {
        name: String,
        seed: u64,
    },
}

impl Ddl {
    /// What takes it back.
    fn inverse(&self) -> Ddl {
        match self {
            Ddl::Create { name, .. } => Ddl::Drop { name: name.clone() },
            _ => panic!("{self:?} is not taken back"),
        }
    }
}

#[derive(Clone, Debug)]
enum What {
    Commit { changes: Changes, xid: Option<Xid> },
    Ddl(Ddl),
}

#[derive(Clone, Debug)]
struct Event {
    /// The end of its record, or, for DDL, a place after all events on the same table.
    lsn: u64,
    what: What,
}

/// A prepared transaction, as the life goes on.
#[derive(Clone, Debug)]
struct Prepared {
    changes: Changes,
    /// The record of its prepare is surely durable.
    is_sure: bool,
    /// Somebody has asked for its rollback.
    may_be_gone: bool,
    /// Tables that it may have written to.
    wrote: BTreeSet<TableKey>,
    /// Its session has gone, and nobody has ended it yet.
    is_detached: bool,
    /// Somebody is about to end it.
    is_taken: bool,
}

/// Everything that must survive a crash.
#[derive(Clone, Debug, Default)]
pub struct State {
    pub names: BTreeMap<String, TableKey>,
    pub rows: BTreeMap<TableKey, Rows>,
    /// Of tables that were altered.
    definitions: BTreeMap<TableKey, Vec<u8>>,
}

/// The description that an ALTER leaves; no two are alike.
pub fn altered_definition(seed: u64) -> Vec<u8> {
    [&b"altered"[..], &seed.to_le_bytes()].concat()
}

impl State {
    fn commit(&mut self, changes: &Changes) {
        for ((table, id), row) in changes {
            let rows = self.rows.entry(*table).or_default();
            match row {
                Some(row) => drop(rows.insert(*id, row.clone())),
                None => drop(rows.remove(id)),
            }
        }
    }

    fn happen(&mut self, event: &Event) {
        match &event.what {
            What::Commit { changes, .. } => self.commit(changes),
            What::Ddl(ddl) => self.apply(ddl),
        }
    }

    fn apply(&mut self, ddl: &Ddl) {
        match ddl {
            Ddl::Create { name, key } => drop(self.names.insert(name.clone(), *key)),
            Ddl::Load { name, key, rows, .. } => {
                self.names.insert(name.clone(), *key);
                self.rows.insert(*key, Rows::clone(rows));
            }
            Ddl::Drop { name } => drop(self.names.remove(name)),
            Ddl::Rename { from, to } => {
                let key = self.names.remove(from).expect("a table that is renamed");
                self.names.insert(to.clone(), key);
            }
            Ddl::Truncate { name, key } => {
                let old = self.names.insert(name.clone(), *key);
                if let Some(definition) = old.and_then(|old| self.definitions.remove(&old)) {
                    self.definitions.insert(*key, definition);
                }
            }
            Ddl::Alter { name, seed } => {
                let key = self.names[name];
                self.definitions.insert(key, altered_definition(*seed));
            }
        }
    }

    fn definition(&self, key: TableKey) -> &[u8] {
        self.definitions.get(&key).map_or(FIRST_DEFINITION, Vec::as_slice)
    }

    pub fn table(&self, name: &str) -> Rows {
        self.names.get(name).and_then(|key| self.rows.get(key)).cloned().unwrap_or_default()
    }

    fn is_like(&self, found: &Found) -> bool {
        let empty = Rows::new();
        self.names.keys().eq(found.tables.keys())
            && self.names.iter().all(|(name, key)| self.definition(*key) == found.definitions[name])
            && self.names.iter().all(|(name, key)| {
                let (known, rows) = (self.rows.get(key).unwrap_or(&empty), &found.tables[name]);
                match found.unreadable.get(name) {
                    None => known == rows,
                    Some(unreadable) => {
                        let mut ids = known.keys().chain(rows.keys());
                        ids.all(|id| unreadable.contains(id) || known.get(id) == rows.get(id))
                    }
                }
            })
    }
}

/// What a recovery has brought.
#[derive(Debug, Default)]
pub struct Found {
    pub tables: BTreeMap<String, Rows>,
    pub definitions: BTreeMap<String, Vec<u8>>,
    /// Of tables with pages that were given up: rows that nobody can read.
    pub unreadable: BTreeMap<String, BTreeSet<u32>>,
}

#[derive(Default)]
pub struct Model {
    /// At the beginning of this life.
    base: State,
    /// Now, as DDL sees it.
    pub names: BTreeMap<String, TableKey>,
    events: Vec<Event>,
    versions: Versions,
    prepared: BTreeMap<Xid, Prepared>,
    /// A DDL statement under way, and the place that it would have.
    ddl: Option<(Ddl, u64)>,
    has_noted_copy: bool,
    /// Everything up to here is surely durable.
    durable_lsn: u64,
    committing: BTreeSet<u64>,
    next_ticket: u64,
    next_table: TableKey,
    next_xid: u64,
    /// Transactions that use a table (metadata locks).
    users: BTreeMap<TableKey, usize>,
    exclusive: Option<TableKey>,
    /// DDL waits for this table: nobody else begins to use it.
    awaited: Option<TableKey>,
    /// DDL statements that came to their end.
    pub ddl_count: u64,
    born: BTreeMap<TableKey, u64>,
    pub locks: Locks,
}

impl Model {
    /// The events told so far, as a place in the log.
    pub fn told_lsn(&self) -> u64 {
        self.events.iter().map(|event| event.lsn).max().unwrap_or(0)
    }

    pub fn durable_up_to(&mut self, lsn: u64) {
        self.durable_lsn = self.durable_lsn.max(lsn);
    }

    pub fn begin_commit(&mut self) -> u64 {
        self.next_ticket += 1;
        self.committing.insert(self.next_ticket);
        self.next_ticket
    }

    pub fn committed(
        &mut self,
        ticket: u64,
        place: (u64, u64),
        changes: &Changes,
        xid: Option<Xid>,
    ) {
        let (csn, lsn) = place;
        self.committing.remove(&ticket);
        for (key, row) in changes {
            let versions = self.versions.entry(*key).or_default();
            let at = versions.partition_point(|v| v.0 < csn);
            assert!(versions.get(at).is_none_or(|v| v.0 != csn), "one number for two commits");
            versions.insert(at, (csn, row.clone()));
        }
        self.events.push(Event { lsn, what: What::Commit { changes: changes.clone(), xid } });
    }

    /// Those who have a place in the order, perhaps, and have not told it yet.
    pub fn committing(&self) -> BTreeSet<u64> {
        self.committing.clone()
    }

    /// The rows of a table as a snapshot sees them.
    pub fn rows_at(&self, table: TableKey, csn: u64) -> Rows {
        let mut rows = Rows::new();
        for ((_, id), versions) in self.versions.range((table, 0)..=(table, u32::MAX)) {
            let seen = versions.iter().rev().find(|v| v.0 <= csn);
            if let Some((_, Some(row))) = seen {
                rows.insert(*id, row.clone());
            }
        }
        rows
    }

    pub fn newest(&self, table: TableKey) -> Rows {
        self.rows_at(table, u64::MAX)
    }

    pub fn newest_in(&self, table: TableKey, range: (Bound<u32>, Bound<u32>)) -> Rows {
        self.newest(table).range(range).map(|(id, row)| (*id, row.clone())).collect()
    }

    pub fn new_xid(&mut self) -> Xid {
        self.next_xid += 1;
        format!("xid-{}", self.next_xid).into_bytes()
    }

    pub fn preparing(&mut self, xid: &Xid, changes: &Changes, wrote: BTreeSet<TableKey>) {
        let prepared = Prepared {
            changes: changes.clone(),
            is_sure: false,
            may_be_gone: false,
            wrote,
            is_detached: false,
            is_taken: false,
        };
        self.prepared.insert(xid.clone(), prepared);
    }

    pub fn detached(&mut self, xid: &Xid) {
        self.prepared.get_mut(xid).expect("a prepared transaction").is_detached = true;
    }

    /// A prepared transaction without a session, for somebody who ends it.
    pub fn take_detached(&mut self, rng: &mut SimRng) -> Option<(Xid, Changes)> {
        let free = |p: &Prepared| p.is_detached && !p.is_taken;
        let mut all: Vec<_> = self.prepared.iter_mut().filter(|(_, p)| free(p)).collect();
        if all.is_empty() {
            return None;
        }
        let at = rng.below(all.len() as u64) as usize;
        let (xid, prepared) = &mut all[at];
        prepared.is_taken = true;
        Some(((*xid).clone(), prepared.changes.clone()))
    }

    /// Prepared transactions without a session that have changes in the table for sure.
    pub fn prepared_in(&self, table: TableKey) -> Vec<Xid> {
        self.detached_with(|p| p.changes.keys().any(|(of, _)| *of == table))
    }

    /// A prepared transaction without a session that has written this row for sure.
    pub fn prepared_row(&self, table: TableKey, id: u32) -> Option<String> {
        let has = |p: &Prepared| matches!(p.changes.get(&(table, id)), Some(Some(_)));
        let held = |p: &Prepared| p.is_detached && !p.is_taken && !p.may_be_gone;
        let found = self.prepared.iter().find(|(_, p)| held(p) && has(p));
        found.map(|(xid, _)| String::from_utf8_lossy(xid).into_owned())
    }

    /// Those that may have, and those whose end has its place while their locks are still held.
    pub fn perhaps_prepared_in(&self, table: TableKey) -> Vec<Xid> {
        let all = self.prepared.iter().filter(|(_, p)| p.wrote.contains(&table));
        all.map(|(xid, _)| xid.clone()).collect()
    }

    fn detached_with(&self, fits: impl Fn(&Prepared) -> bool) -> Vec<Xid> {
        let all = self.prepared.iter().filter(|(_, p)| p.is_detached && fits(p));
        all.map(|(xid, _)| xid.clone()).collect()
    }

    /// Its end has its place in the order; its locks are still held.
    pub fn ended(&mut self, xid: &Xid) {
        self.prepared.get_mut(xid).expect("a prepared transaction").is_detached = false;
    }

    pub fn prepare_is_sure(&mut self, xid: &Xid) {
        if let Some(prepared) = self.prepared.get_mut(xid) {
            prepared.is_sure = true;
        }
    }

    pub fn rolling_back(&mut self, xid: &Xid) {
        if let Some(prepared) = self.prepared.get_mut(xid) {
            (prepared.may_be_gone, prepared.is_detached) = (true, false);
        }
    }

    pub fn rolled_back(&mut self, xid: &Xid) {
        self.prepared.remove(xid);
    }

    pub fn prepared_changes(&self) -> Vec<(Xid, Changes)> {
        self.prepared.iter().map(|(xid, p)| (xid.clone(), p.changes.clone())).collect()
    }

    /// At a life's beginning, when nobody else commits.
    pub fn commit_prepared(&mut self, xid: &Xid) {
        let prepared = self.prepared.remove(xid).expect("a prepared transaction");
        self.base.commit(&prepared.changes);
    }

    /// A table for a statement, if no DDL is about to change it. Every success needs a
    /// [`Model::leave`].
    pub fn enter(&mut self, name: &str) -> Option<TableKey> {
        let key = *self.names.get(name)?;
        if [self.exclusive, self.awaited].contains(&Some(key)) {
            return None;
        }
        *self.users.entry(key).or_default() += 1;
        Some(key)
    }

    pub fn leave(&mut self, table: TableKey) {
        *self.users.get_mut(&table).expect("a user") -= 1;
    }

    /// From now on nobody begins to use the table, until DDL has come or gone.
    pub fn await_table(&mut self, name: Option<&str>) {
        self.awaited = name.and_then(|name| self.names.get(name).copied());
    }

    /// Starts a DDL statement. None: somebody uses the table.
    pub fn begin_ddl(&mut self, name: &str, make: impl FnOnce(TableKey) -> Ddl) -> Option<Ddl> {
        let key = self.names.get(name).copied();
        if key.is_some_and(|key| self.users.get(&key).is_some_and(|&n| n > 0)) {
            return None;
        }
        self.next_table += 1;
        let ddl = make(self.next_table);
        self.exclusive = key;
        self.ddl = Some((ddl.clone(), self.told_lsn()));
        Some(ddl)
    }

    /// Nothing has happened.
    pub fn ddl_refused(&mut self) {
        (self.ddl, self.exclusive) = (None, None);
    }

    /// The statement is over, and has committed at these places: not at all, once, or a second time
    /// to take it back. An error leaves open whether that is durable.
    pub fn ddl_over(&mut self, ends: &[u64], is_durable: bool) {
        let (ddl, _) = self.ddl.take().expect("a statement under way");
        (self.exclusive, self.has_noted_copy) = (None, false);
        if let [end, ..] = ends {
            self.ddl_event(ddl.clone(), *end);
        }
        if let [_, end] = ends {
            self.ddl_event(ddl.inverse(), *end);
        }
        if let (true, Some(end)) = (is_durable, ends.last()) {
            self.durable_up_to(*end);
        }
    }

    fn ddl_event(&mut self, ddl: Ddl, lsn: u64) {
        self.ddl_count += 1;
        let mut state = State { names: std::mem::take(&mut self.names), ..State::default() };
        state.apply(&ddl);
        self.names = state.names;
        let born = match &ddl {
            Ddl::Create { key, .. } | Ddl::Load { key, .. } | Ddl::Truncate { key, .. } => {
                Some(*key)
            }
            // For snapshots from before it the table is another one.
            Ddl::Alter { name, .. } => self.names.get(name).copied(),
            Ddl::Drop { .. } | Ddl::Rename { .. } => None,
        };
        if let Some(key) = born {
            self.born.insert(key, self.ddl_count);
        }
        if let Ddl::Load { key, rows, .. } = &ddl {
            self.know_rows(*key, rows);
        }
        self.events.push(Event { lsn, what: What::Ddl(ddl) });
    }

    /// Every snapshot that gets at the table sees these rows.
    fn know_rows(&mut self, key: TableKey, rows: &Rows) {
        for (id, row) in rows {
            self.versions.insert((key, *id), vec![(0, Some(row.clone()))]);
        }
    }

    /// The server notes that the table that is being filled comes to its name, also after a crash.
    pub fn copy_is_noted(&mut self) {
        self.has_noted_copy = true;
    }

    /// The name to which a table comes at the start after a crash.
    pub fn noted_copy(&self) -> Option<String> {
        match &self.ddl {
            Some((Ddl::Load { name, .. }, _)) if self.has_noted_copy => Some(name.clone()),
            _ => None,
        }
    }

    /// Was the table made after a snapshot that saw `ddl_count` statements?
    pub fn is_younger(&self, table: TableKey, ddl_count: u64) -> bool {
        self.born.get(&table).is_some_and(|&born| born > ddl_count)
    }

    /// The machine has come up with `found`: from now on that is the base, if it may be.
    pub fn recovered(&mut self, found: &Found, xids: &[Xid], all: bool) {
        self.events.sort_by_key(|event| event.lsn);
        let durable_lsn = if all { u64::MAX } else { self.durable_lsn };
        let surely = self.events.iter().filter(|e| e.lsn <= durable_lsn).count();
        let (state, count) = self.matching(found, xids, surely).unwrap_or_else(|| {
            panic!("{}", self.difference(found, surely));
        });
        self.check_prepared(xids, count);
        self.begin(state, xids);
    }

    /// A copy of the machine in this life, which ends at a place in the log, has `found`: all that was
    /// committed up to that place, and nothing else.
    pub fn copied(&mut self, found: &Found, xids: &[Xid], end: u64) {
        self.events.sort_by_key(|event| event.lsn);
        let count = self.events.iter().filter(|event| event.lsn <= end).count();
        let mut state = self.base.clone();
        self.events[..count].iter().for_each(|event| state.happen(event));
        // Where the power went off in a statement, its end is in doubt.
        let mut with_ddl = state.clone();
        let in_doubt = self.ddl.iter().filter(|(_, before)| *before <= end);
        in_doubt.for_each(|(ddl, _)| with_ddl.apply(ddl));
        assert!(
            state.is_like(found) || with_ddl.is_like(found),
            "a backup that ends at {end}: {}",
            self.difference(found, count)
        );
        let ended = self.ended_before(count);
        for xid in xids {
            let shows =
                self.prepared.get(xid).is_some_and(|p| p.changes.values().any(Option::is_some));
            let name = String::from_utf8_lossy(xid);
            assert!(!shows || !ended.contains(xid), "{name} is committed and prepared in a backup");
        }
    }

    /// Prepared transactions that the first `count` events have committed.
    fn ended_before(&self, count: usize) -> BTreeSet<Xid> {
        let commits = |event: &Event| match &event.what {
            What::Commit { xid, .. } => xid.clone(),
            What::Ddl(_) => None,
        };
        self.events[..count].iter().filter_map(commits).collect()
    }

    /// The state after the longest beginning of the events that fits, at least `surely` of them.
    fn matching(&self, found: &Found, xids: &[Xid], surely: usize) -> Option<(State, usize)> {
        let fits = |end: &State| {
            end.is_like(found) && xids.iter().all(|xid| self.keeps_tables_of(xid, end))
        };
        let with_ddl = self.ddl.as_ref().and_then(|(ddl, lsn)| {
            let before = self.events.iter().filter(|e| e.lsn <= *lsn).count();
            self.longest(fits, surely.max(before), Some(ddl))
        });
        with_ddl.or_else(|| self.longest(fits, surely, None))
    }

    /// DDL waits for prepared transactions, so one that is there has all its tables. Rows alone do not tell:
    /// a TRUNCATE that is lost with the rollback that it waited for leaves a table as empty as one that is not.
    fn keeps_tables_of(&self, xid: &Xid, end: &State) -> bool {
        let keys: Vec<&TableKey> = end.names.values().collect();
        let wrote = self.prepared.get(xid).into_iter().flat_map(|p| p.changes.keys());
        wrote.into_iter().all(|(table, _)| keys.contains(&table))
    }

    /// The state after the most events, at least `least`, that fits.
    fn longest(
        &self,
        fits: impl Fn(&State) -> bool,
        least: usize,
        ddl: Option<&Ddl>,
    ) -> Option<(State, usize)> {
        let mut state = self.base.clone();
        let mut best = None;
        for count in 0..=self.events.len() {
            if count > 0 {
                state.happen(&self.events[count - 1]);
            }
            if count < least {
                continue;
            }
            let mut end = state.clone();
            ddl.into_iter().for_each(|ddl| end.apply(ddl));
            if fits(&end) {
                best = Some((end, count));
            }
        }
        best
    }

    fn difference(&self, found: &Found, surely: usize) -> String {
        let (unreadable, definitions, found) =
            (&found.unreadable, &found.definitions, &found.tables);
        let mut state = self.base.clone();
        self.events[..surely].iter().for_each(|event| state.happen(event));
        let mut text = format!(
            "recovered state fits no end of the log: {surely} of {} events are surely durable",
            self.events.len()
        );
        if !state.names.keys().eq(found.keys()) {
            let (known, found) = (state.names.keys(), found.keys());
            text += &format!("; tables {known:?}, found {found:?}, DDL {:?}", self.ddl);
        }
        for (name, key) in &state.names {
            if definitions.get(name).is_some_and(|found| found != state.definition(*key)) {
                text += &format!("; the last ALTER of {name} is another");
            }
        }
        for (name, rows) in found {
            let known = state.table(name);
            let ids: BTreeSet<u32> = known.keys().chain(rows.keys()).copied().collect();
            let hidden = |id: &u32| unreadable.get(name).is_some_and(|ids| ids.contains(id));
            let other = |id: &u32| !hidden(id) && known.get(id) != rows.get(id);
            for id in ids.into_iter().filter(other).take(3) {
                text += &format!("; {name} {:?} found {:?}", known.get(&id), rows.get(&id));
            }
        }
        text
    }

    fn check_prepared(&self, xids: &[Xid], count: usize) {
        let ended = self.ended_before(count);
        for xid in xids {
            let name = String::from_utf8_lossy(xid);
            let prepared = self.prepared.get(xid);
            let prepared = prepared.unwrap_or_else(|| panic!("{name} is prepared by nobody"));
            // A commit without rows of its own cannot be told from none.
            let shows = prepared.changes.values().any(Option::is_some);
            assert!(!shows || !ended.contains(xid), "{name} is committed and still prepared");
        }
        for (xid, prepared) in &self.prepared {
            let name = String::from_utf8_lossy(xid);
            let must_be = prepared.is_sure && !prepared.may_be_gone && !ended.contains(xid);
            assert!(!must_be || xids.contains(xid), "prepared {name} is gone");
        }
    }

    /// A life begins with this.
    fn begin(&mut self, state: State, xids: &[Xid]) {
        self.prepared.retain(|xid, _| xids.contains(xid));
        for prepared in self.prepared.values_mut() {
            (prepared.is_sure, prepared.may_be_gone) = (true, false);
            (prepared.is_detached, prepared.is_taken) = (true, false);
        }
        self.base = state;
    }

    /// From here on sessions are at work.
    pub fn open(&mut self) {
        self.names.clone_from(&self.base.names);
        let kept: BTreeSet<TableKey> = self.names.values().copied().collect();
        self.base.rows.retain(|key, _| kept.contains(key));
        self.base.definitions.retain(|key, _| kept.contains(key));
        self.events.clear();
        (self.ddl, self.has_noted_copy) = (None, false);
        (self.durable_lsn, self.exclusive, self.awaited) = (0, None, None);
        self.committing.clear();
        self.users.clear();
        self.born.clear();
        self.locks.clear();
        self.versions.clear();
        for (key, rows) in &self.base.rows.clone() {
            self.know_rows(*key, rows);
        }
    }

    /// At a life's beginning: a table that lost pages is dropped, and with it what was prepared
    /// there.
    pub fn drop_damaged(&mut self, name: &str) {
        self.base.apply(&Ddl::Drop { name: name.to_string() });
    }

    /// XIDs of prepared transactions that may have written to the table of this name.
    pub fn prepared_in_base(&self, name: &str) -> Vec<Xid> {
        self.perhaps_prepared_in(self.base.names[name])
    }

    /// What must be there now, if nothing is under way.
    pub fn base(&self) -> &State {
        &self.base
    }
}
