//! One open table of one connection: rows in, rows out, and where its scan stands.
//!
//! A scan has a last returned entry and, most of the time, a live cursor behind it. The cursor
//! is good for one direction and up to the end it was opened with; a step that needs another
//! one opens it again from the last entry.

use crate::autoinc::Autoinc;
use crate::engine;
use crate::errors::HA_ERR_RECORD_IS_THE_SAME;
use crate::key::{self, KeyMaker};
use crate::order::successor;
use crate::record::Record;
use crate::row;
use crate::session::Session;
use crate::shape::{Collator, Index, Part, Shape};
use sluice_engine::base::codec::put_bytes;
use sluice_engine::base::{Error, Result};
use sluice_engine::db::{
    CheckDepth, Cursor, Direction, Engine, Entry, Killed, RangeEstimate, ReadMode, RowWrite, Table,
    TableReport, WaitPolicy,
};
use std::ops::Bound;
use std::sync::Arc;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Find {
    Exact,
    AtOrAfter,
    AtOrBefore,
    After,
    Before,
    Last,
}

/// An end of a range as the server gives it.
#[derive(Clone, Copy)]
pub struct ImageBound<'a> {
    pub image: &'a [u8],
    pub parts: usize,
    pub inclusive: bool,
}

/// What is known of an index.
pub struct KeyStatistics {
    pub entries: u64,
    pub leaf_pages: u64,
    pub distinct: Vec<u64>,
}

pub enum Change {
    Done,
    Failed(i32),
}

/// Does the statement do with what an index entry has?
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub enum Keyread {
    #[default]
    Off,
    On,
    /// Other scans of an index merge share the record: what they put in it stays.
    KeepOthers,
}

#[derive(Default)]
struct EntryBuffer {
    key: Vec<u8>,
    payload: Vec<u8>,
    unique: bool,
}

#[derive(Clone, Copy, Default)]
struct FreshLocks {
    entry: bool,
    row: bool,
}

/// The gap in which a search has its key: before or behind all entries that begin with it.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Gap {
    #[default]
    None,
    Below,
    Above,
}

#[derive(Default)]
struct Scan {
    index: usize,
    /// The engine's cursor stands on the last returned entry and may go on this way.
    live: Option<Direction>,
    /// The cursor was opened for one prefix only.
    narrowed: bool,
    /// Encoded key of the search, for `step_same` and for steps from a search without a row.
    prefix: Vec<u8>,
    gap: Gap,
    /// Key of the last returned entry, when no live cursor has it.
    at: Vec<u8>,
    /// Was there a row at all?
    started: bool,
    /// The cursor was opened up to the end of the index.
    is_unbounded: bool,
    /// The scan ran off the index at this end.
    beyond: Option<Direction>,
}

impl Scan {
    /// Where a step begins that no live cursor can do: beside the last returned entry, or in the
    /// gap of a search that found none. None: behind the end of the index. `again`: that entry is
    /// to be read once more.
    fn resume(&self, direction: Direction, again: bool) -> Option<Bound<Vec<u8>>> {
        if again {
            return Some(Bound::Included(self.at.clone()));
        }
        if self.started {
            return Some(Bound::Excluded(self.at.clone()));
        }
        match (self.gap, direction) {
            (Gap::Above, Direction::Forward) => successor(&self.prefix).map(Bound::Included),
            (Gap::Above, Direction::Backward) => Some(below_successor(&self.prefix)),
            (_, Direction::Forward) => Some(Bound::Included(self.prefix.clone())),
            (_, Direction::Backward) => Some(Bound::Excluded(self.prefix.clone())),
        }
    }
}

pub struct Handler {
    name: String,
    pub shape: Shape,
    pub table: Arc<Table>,
    /// Indexes built with other weights of a collation than the server has now.
    stale: Vec<bool>,
    /// Columns that reads must give; empty: all.
    wanted: Vec<bool>,
    collator: &'static (dyn Collator + Sync),
    pub mode: ReadMode,
    keyread: Keyread,
    /// By index: the statement wants a column of which an entry has a prefix only. Of the primary
    /// key, because positions are made from it; of the index itself, because the server compares
    /// the record with the end of a range. Empty: none.
    wants_row: Vec<bool>,
    pub replace: bool,
    /// ALTER TABLE copies rows into the table: [`Session::copy_begin`].
    pub copies: bool,
    /// Scans of rows show a held one as it was committed last, before they wait for it.
    semi_consistent: bool,
    pub autoinc: Autoinc,
    range_end: Option<Bound<Vec<u8>>>,
    cursor: Cursor,
    scan: Scan,
    /// Clustered key of the row in the record buffer.
    row_key: Vec<u8>,
    /// The entry and the row of the last read whose locks may be given back.
    fresh_locks: FreshLocks,
    payload: Vec<u8>,
    entries: [Vec<EntryBuffer>; 2],
    /// Indexes that the present write changes.
    touched: Vec<bool>,
    scratch: Vec<u8>,
    variable: Vec<u8>,
}

impl Handler {
    pub fn open(
        engine: &Engine,
        name: &str,
        shape: Shape,
        collator: &'static (dyn Collator + Sync),
    ) -> Result<Handler> {
        let table = engine.table(name)?.ok_or(Error::NotFound)?;
        let Some(stale) = shape.stale_indexes(table.definition()) else {
            return Err(Error::Refused(format!(
                "the definition of {name} in the server is not the one it was created with"
            )));
        };
        name_keys(&table, &shape);
        Ok(Handler {
            stale,
            wanted: Vec::new(),
            name: name.to_owned(),
            shape,
            table,
            collator,
            mode: ReadMode::Snapshot,
            keyread: Keyread::Off,
            wants_row: Vec::new(),
            replace: false,
            copies: false,
            semi_consistent: false,
            autoinc: Autoinc::default(),
            range_end: None,
            cursor: Cursor::default(),
            scan: Scan::default(),
            row_key: Vec::new(),
            fresh_locks: FreshLocks::default(),
            payload: Vec::new(),
            entries: [Vec::new(), Vec::new()],
            touched: Vec::new(),
            scratch: Vec::new(),
            variable: Vec::new(),
        })
    }

    /// TRUNCATE gives a table new trees; handlers that stayed open take them over here.
    pub fn refresh(&mut self, engine: &Engine) -> Result<()> {
        if self.table.is_current() {
            return Ok(());
        }
        let table = engine.table(&self.name)?.ok_or(Error::NotFound)?;
        if table.id() != self.table.id() {
            name_keys(&table, &self.shape);
            self.table = table;
            self.scan_end();
        }
        Ok(())
    }

    pub fn reset(&mut self) {
        const KEEP_BYTES: usize = 1 << 20;
        self.keyread = Keyread::Off;
        self.replace = false;
        self.semi_consistent = false;
        self.want_all();
        self.scan_end();
        self.autoinc.statement_end(&self.table);
        // One long value must not hold its memory as long as the table is open.
        let entries = self.entries.iter_mut().flatten().map(|entry| &mut entry.payload);
        for buffer in entries.chain([&mut self.payload]) {
            if buffer.capacity() > KEEP_BYTES {
                *buffer = Vec::new();
            }
        }
        if self.cursor.payload().len() > KEEP_BYTES {
            self.cursor = Cursor::default();
        }
    }

    pub fn set_keyread(&mut self, keyread: Keyread) {
        self.keyread = keyread;
    }

    /// Semi-consistent reads, as the server asks for them in UPDATE: of rows only, in scans only.
    pub fn try_semi_consistent(&mut self, on: bool) {
        self.semi_consistent = on;
        if !on {
            self.cursor.wait_always();
        }
    }

    /// Is the row of the last step not locked? Then it must not be changed: the next step comes to
    /// it again, with a lock.
    pub fn was_semi_consistent(&self) -> bool {
        self.scan.live.is_some() && self.cursor.peeks()
    }

    fn scan_mode(&self) -> ReadMode {
        match self.mode {
            ReadMode::Lock { exclusive, wait: WaitPolicy::Wait }
                if self.semi_consistent && self.scan.index == 0 =>
            {
                ReadMode::Lock { exclusive, wait: WaitPolicy::CommittedFirst }
            }
            mode => mode,
        }
    }

    fn want_all(&mut self) {
        self.wanted.clear();
        self.wants_row.clear();
    }

    /// The statement reads the columns of `bits`, one bit each. With `all` it gets every column;
    /// else those and the ones of the primary key.
    pub fn want(&mut self, bits: &[u8], all: bool) {
        let Handler { shape, wanted, wants_row, .. } = self;
        let is_set = |c: usize| bits.get(c / 8).is_none_or(|b| b >> (c % 8) & 1 == 1);
        let primary = &shape.indexes[0].parts;
        // The server computes a virtual column from others.
        let is_read = |c: usize| is_set(c) || shape.columns[c].is_virtual;
        let is_cut = |p: &Part| !p.is_whole(&shape.columns) && is_read(p.column);
        let is_cut_primary = primary.iter().any(is_cut) && !crate::planted::is("A1");
        wants_row.clear();
        wants_row
            .extend(shape.indexes.iter().map(|i| is_cut_primary || i.parts.iter().any(is_cut)));
        wanted.clear();
        if !all {
            wanted.extend((0..shape.columns.len()).map(is_set));
            primary.iter().for_each(|part| wanted[part.column] = true);
        }
    }

    /// An index whose collation has changed has its entries in another order than the server
    /// expects: searches in it would miss rows, and writes would spoil it further.
    fn check_order(&self, index: usize) -> Result<()> {
        if !self.stale[index] {
            return Ok(());
        }
        let which = if index == 0 { "the primary key".into() } else { format!("index {index}") };
        Err(Error::Refused(format!(
            "{which} of {} was built with another version of its collation: rebuild it with \
             ALTER TABLE ... FORCE",
            self.name
        )))
    }

    pub fn collator(&self) -> &'static (dyn Collator + Sync) {
        self.collator
    }

    pub fn is_stale(&self) -> bool {
        self.stale.contains(&true)
    }

    fn check_orders(&self) -> Result<()> {
        (0..self.stale.len()).try_for_each(|index| self.check_order(index))
    }

    /// CHECK TABLE.
    pub fn check(
        &self,
        engine: &Arc<Engine>,
        depth: CheckDepth,
        killed: &Killed<'_>,
    ) -> Result<TableReport> {
        engine.check_table(&self.name, depth, killed)
    }

    // Writing.

    pub fn insert(&mut self, session: &mut Session, record: Record<'_>) -> Result<()> {
        self.check_orders()?;
        self.touch_all();
        if self.shape.hidden_key {
            self.row_key = self.table.next_hidden_key()?.to_be_bytes().to_vec();
        }
        self.make_entries(0, record);
        let trx = session.inserter(self.copies);
        trx.set_replace(self.replace);
        let entries = as_entries(&self.entries[0]);
        trx.insert(&self.table, &RowWrite { entries: &entries })?;
        if self.copies {
            session
                .copied(entries.iter().map(|entry| entry.key.len() + entry.payload.len()).sum())?;
        }
        Ok(())
    }

    pub fn update(
        &mut self,
        session: &mut Session,
        before: Record<'_>,
        after: Record<'_>,
    ) -> Result<Change> {
        self.check_orders()?;
        self.note_touched(before, after);
        self.make_entries(0, before);
        self.make_entries(1, after);
        let [old, new] = &self.entries;
        if old.iter().zip(new).all(|(a, b)| a.key == b.key && a.payload == b.payload) {
            return Ok(Change::Failed(HA_ERR_RECORD_IS_THE_SAME));
        }
        let (old, new) = (as_entries(old), as_entries(new));
        let (old, new) = (RowWrite { entries: &old }, RowWrite { entries: &new });
        session.trx.set_replace(self.replace);
        session.trx.update(&self.table, &old, &new).map(|()| Change::Done)
    }

    pub fn delete(&mut self, session: &mut Session, record: Record<'_>) -> Result<()> {
        self.check_orders()?;
        self.touch_all();
        self.make_entries(0, record);
        let entries = as_entries(&self.entries[0]);
        session.trx.delete(&self.table, &RowWrite { entries: &entries })
    }

    /// The key of the last duplicate. The transaction knows it: a row that moves to another partition
    /// fails in another handler than the one that the server asks.
    pub fn duplicate_key(&self, session: &Session) -> usize {
        self.shape.key_of_index(session.duplicate_index(self.copies))
    }

    fn took_lock(&self, session: &Session) -> bool {
        self.mode != ReadMode::Snapshot && session.trx.lock_is_new()
    }

    fn touch_all(&mut self) {
        self.touched.clear();
        self.touched.resize(self.shape.indexes.len(), true);
    }

    /// Which indexes does the change from `before` to `after` touch?
    fn note_touched(&mut self, before: Record<'_>, after: Record<'_>) {
        let shape = &self.shape;
        let differs = |&column: &usize| {
            let column = &shape.columns[column];
            // The server leaves a virtual BLOB that it did not need as it was, maybe an address
            // of nothing.
            if column.is_virtual && before.has_same_bytes(&after, column) {
                return false;
            }
            let nulls = (before.is_null(column), after.is_null(column));
            nulls.0 != nulls.1 || !nulls.0 && before.value(column) != after.value(column)
        };
        let index_differs = |index: &Index| {
            index
                .parts
                .iter()
                .map(|p| p.column)
                .chain(index.stored.iter().copied())
                .any(|c| differs(&c))
        };
        let key_differs = shape.indexes[0].parts.iter().any(|p| differs(&p.column));
        self.touched.clear();
        self.touched.extend(shape.indexes.iter().map(|index| key_differs || index_differs(index)));
    }

    /// One pass from the record to the bytes of every touched index; the entries of the others
    /// stay empty, which the engine takes for unchanged.
    fn make_entries(&mut self, which: usize, record: Record<'_>) {
        let shape = &self.shape;
        let entries = &mut self.entries[which];
        entries.resize_with(shape.indexes.len(), EntryBuffer::default);
        let mut maker = KeyMaker { shape, collator: self.collator, scratch: &mut self.scratch };
        let (clustered, others) = entries.split_first_mut().expect("a clustered index");
        clustered.key.clear();
        clustered.payload.clear();
        clustered.unique = true;
        if shape.hidden_key {
            clustered.key.extend_from_slice(&self.row_key);
        } else {
            maker.put_parts(0, record, &mut clustered.key);
        }
        row::pack(shape, 0, record, &mut clustered.payload);
        for (i, entry) in others.iter_mut().enumerate() {
            let index = i + 1;
            entry.key.clear();
            entry.payload.clear();
            if !self.touched[index] {
                continue;
            }
            let has_null = maker.put_parts(index, record, &mut entry.key);
            entry.unique = shape.indexes[index].unique && !has_null;
            if entry.unique {
                put_bytes(&mut entry.payload, &clustered.key);
            } else {
                entry.key.extend_from_slice(&clustered.key);
            }
            row::pack(shape, index, record, &mut entry.payload);
        }
    }

    // Reading.

    pub fn set_range_end(&mut self, index: usize, end: Option<ImageBound<'_>>) -> Result<()> {
        self.range_end = match end {
            None => None,
            Some(end) => Some(self.upper(index, end)?),
        };
        Ok(())
    }

    fn encode(&mut self, index: usize, at: ImageBound<'_>) -> Result<Vec<u8>> {
        self.check_order(index)?;
        let mut out = Vec::new();
        let shape = &self.shape;
        let mut maker = KeyMaker { shape, collator: self.collator, scratch: &mut self.scratch };
        maker.put_image(index, at.image, at.parts, &mut out)?;
        Ok(out)
    }

    fn upper(&mut self, index: usize, end: ImageBound<'_>) -> Result<Bound<Vec<u8>>> {
        let key = self.encode(index, end)?;
        Ok(if end.inclusive { below_successor(&key) } else { Bound::Excluded(key) })
    }

    /// ANALYZE TABLE of a session, which may be killed. `sample_pages`: 0 for the default.
    pub fn analyze(&self, engine: &Engine, session: u64, sample_pages: usize) -> Result<()> {
        engine.analyze_table(&self.name, sample_pages, &|| engine::is_killed(session))
    }

    /// How many values each prefix of a key has, by the parts of the server; entries and leaf pages of
    /// its index. None: not known.
    pub fn key_statistics(&self, index: usize) -> Option<KeyStatistics> {
        let (statistics, _) = self.table.statistics();
        let of_index = statistics?.trees.get(index)?.clone();
        let prefixes = key::prefix_of_parts(&self.shape, index);
        // Behind the whole key of a unique index nothing more is told apart.
        let values = |&i: &usize| of_index.distinct.get(i).copied().unwrap_or(of_index.entries);
        Some(KeyStatistics {
            entries: of_index.entries,
            leaf_pages: of_index.leaf_pages,
            distinct: prefixes.iter().map(values).collect(),
        })
    }

    /// Entries between two ends, an estimate.
    pub fn rows_in_range(
        &mut self,
        index: usize,
        low: Option<ImageBound<'_>>,
        high: Option<ImageBound<'_>>,
    ) -> Result<RangeEstimate> {
        let low = match low {
            None => Bound::Unbounded,
            Some(at) => {
                let key = self.encode(index, at)?;
                if at.inclusive {
                    Bound::Included(key)
                } else {
                    at_successor(&key)
                }
            }
        };
        let high = match high {
            None => Bound::Unbounded,
            Some(at) => self.upper(index, at)?,
        };
        let range = self.table.range_estimate(index, as_bound(&low), as_bound(&high));
        range.ok_or(Error::NotFound)
    }

    pub fn seek(
        &mut self,
        session: &mut Session,
        index: usize,
        at: ImageBound<'_>,
        find: Find,
        record: &mut [u8],
    ) -> Result<bool> {
        let key = self.encode(index, at)?;
        let end = self.range_end.take();
        self.start_scan(index);
        let whole = at.parts >= self.shape.indexes[index].parts.len();
        if find == Find::Exact && whole && self.is_unique_entry(index, &key)? {
            return self.get(session, index, key, record);
        }
        let end = end.unwrap_or(Bound::Unbounded);
        let (from, to, direction) = match find {
            Find::Exact => {
                (Bound::Included(key.clone()), below_successor(&key), Direction::Forward)
            }
            Find::AtOrAfter => (Bound::Included(key.clone()), end, Direction::Forward),
            Find::After => (at_successor(&key), end, Direction::Forward),
            Find::Before => (Bound::Excluded(key.clone()), Bound::Unbounded, Direction::Backward),
            Find::AtOrBefore => (below_successor(&key), Bound::Unbounded, Direction::Backward),
            Find::Last => {
                (below_successor(&key), Bound::Included(key.clone()), Direction::Backward)
            }
        };
        self.scan.prefix = key;
        self.scan.gap = match find {
            Find::Exact | Find::AtOrAfter | Find::Before => Gap::Below,
            Find::After | Find::AtOrBefore | Find::Last => Gap::Above,
        };
        if find == Find::After && matches!(from, Bound::Unbounded) {
            return Ok(false);
        }
        self.scan.narrowed = matches!(find, Find::Exact | Find::Last);
        self.open_cursor(session, from, to, direction)?;
        self.advance(session, record)
    }

    /// The first or last entry. A scan of the whole table takes the rows in any order.
    pub fn start(
        &mut self,
        session: &mut Session,
        index: usize,
        is_whole_table: bool,
        direction: Direction,
        record: &mut [u8],
    ) -> Result<bool> {
        if !is_whole_table {
            self.check_order(index)?;
        }
        self.first(session, index, direction, record)
    }

    fn first(
        &mut self,
        session: &mut Session,
        index: usize,
        direction: Direction,
        record: &mut [u8],
    ) -> Result<bool> {
        let end = self.range_end.take().unwrap_or(Bound::Unbounded);
        let to = if direction == Direction::Forward { end } else { Bound::Unbounded };
        self.start_scan(index);
        self.open_cursor(session, Bound::Unbounded, to, direction)?;
        self.advance(session, record)
    }

    pub fn step(
        &mut self,
        session: &mut Session,
        direction: Direction,
        record: &mut [u8],
    ) -> Result<bool> {
        match self.scan.beyond {
            Some(end) if end == direction => return Ok(false),
            // Back from beyond an end of the index.
            Some(_) => return self.first(session, self.scan.index, direction, record),
            None => {}
        }
        if self.scan.live != Some(direction) || self.scan.narrowed {
            let peeked = self.was_semi_consistent();
            self.remember();
            if !self.scan.started && self.scan.gap == Gap::None {
                return self.first(session, self.scan.index, direction, record);
            }
            let Some(from) = self.scan.resume(direction, peeked) else { return Ok(false) };
            self.scan.narrowed = false;
            self.open_cursor(session, from, Bound::Unbounded, direction)?;
            if peeked {
                self.cursor.peek_again(&self.scan.at);
            }
        }
        self.advance(session, record)
    }

    /// The next entry with the key of the last exact search.
    pub fn step_same(&mut self, session: &mut Session, record: &mut [u8]) -> Result<bool> {
        let scan = &self.scan;
        if scan.narrowed && scan.live == Some(Direction::Forward) {
            return self.advance(session, record);
        }
        if scan.narrowed || scan.prefix.is_empty() {
            return Ok(false);
        }
        let found = self.step(session, Direction::Forward, record)?;
        Ok(found && self.cursor.key().starts_with(&self.scan.prefix))
    }

    /// A row by its reference: a key image of the primary key, or the hidden key.
    pub fn fetch(
        &mut self,
        session: &mut Session,
        image: &[u8],
        record: &mut [u8],
    ) -> Result<bool> {
        let key = self.encode_ref(image)?;
        self.fresh_locks = FreshLocks::default();
        if !session.trx.get(&self.table, 0, &key, self.mode, &mut self.payload)? {
            return Ok(false);
        }
        self.fresh_locks.row = self.took_lock(session);
        self.row_key = key;
        let payload = std::mem::take(&mut self.payload);
        let done = self.put_row(&payload, record);
        self.payload = payload;
        done.map(|()| true)
    }

    /// The row with this clustered key, for a message about it.
    pub fn fetch_clustered(
        &mut self,
        session: &mut Session,
        clustered: &[u8],
        record: &mut [u8],
    ) -> Result<bool> {
        self.row_key = clustered.to_vec();
        self.fetch_row(session, clustered, record)
    }

    pub fn encode_ref(&mut self, image: &[u8]) -> Result<Vec<u8>> {
        if self.shape.hidden_key {
            return Ok(image[..key::HIDDEN_KEY_BYTES.min(image.len())].to_vec());
        }
        let parts = self.shape.indexes[0].parts.len();
        self.encode(0, ImageBound { image, parts, inclusive: true })
    }

    pub fn hidden_ref(&self) -> &[u8] {
        &self.row_key
    }

    pub fn scan_end(&mut self) {
        self.start_scan(0);
        self.range_end = None;
    }

    /// The statement does not want the row that was read last: its locks go, in the index and
    /// of the row, unless the transaction had them before. What it has changed stays locked by
    /// its id in the entries.
    pub fn unlock_row(&mut self, session: &mut Session) {
        if self.was_semi_consistent() {
            self.cursor.pass_peeked();
        }
        let fresh = std::mem::take(&mut self.fresh_locks);
        let index = self.scan.index;
        if fresh.row {
            session.trx.unlock(&self.table, 0, &self.row_key);
        }
        if fresh.entry && self.scan.live.is_some() {
            session.trx.unlock_last(&self.cursor);
        } else if fresh.entry {
            session.trx.unlock(&self.table, index, &self.scan.at);
        }
    }

    fn start_scan(&mut self, index: usize) {
        self.scan.index = index;
        self.scan.live = None;
        self.scan.narrowed = false;
        self.scan.started = false;
        self.scan.beyond = None;
        self.scan.prefix.clear();
        self.scan.gap = Gap::None;
    }

    fn is_unique_entry(&self, index: usize, key: &[u8]) -> Result<bool> {
        let shape = &self.shape;
        if !shape.indexes[index].unique || shape.indexes[index].parts.is_empty() {
            return Ok(false);
        }
        let (n, has_null) = key::parts_len(shape, index, key)?;
        Ok(n == key.len() && !has_null)
    }

    fn open_cursor(
        &mut self,
        session: &mut Session,
        from: Bound<Vec<u8>>,
        to: Bound<Vec<u8>>,
        direction: Direction,
    ) -> Result<()> {
        let (from, to) = (as_bound(&from), as_bound(&to));
        let (mode, index) = (self.scan_mode(), self.scan.index);
        let cursor = &mut self.cursor;
        session.trx.seek(cursor, &self.table, index, from, to, direction, mode)?;
        self.scan.live = Some(direction);
        self.scan.is_unbounded = to == Bound::Unbounded;
        Ok(())
    }

    /// Keeps the key of the last entry before the cursor is lost.
    fn remember(&mut self) {
        if self.scan.live.take().is_some() && self.scan.started {
            self.scan.at.clear();
            self.scan.at.extend_from_slice(self.cursor.key());
        }
    }

    fn advance(&mut self, session: &mut Session, record: &mut [u8]) -> Result<bool> {
        loop {
            self.fresh_locks = FreshLocks::default();
            if !session.trx.next(&mut self.cursor)? {
                // The last entry stays where a scan in the other direction begins.
                if self.scan.is_unbounded && self.scan.started && !self.scan.narrowed {
                    self.scan.beyond = self.scan.live;
                }
                return Ok(false);
            }
            self.fresh_locks.entry = self.took_lock(session);
            self.scan.started = true;
            // The cursor is moved out while its bytes are decoded into self.
            let cursor = std::mem::take(&mut self.cursor);
            let found = self.put_entry(session, cursor.key(), cursor.payload(), record);
            self.cursor = cursor;
            if found? {
                return Ok(true);
            }
        }
    }

    fn get(
        &mut self,
        session: &mut Session,
        index: usize,
        key: Vec<u8>,
        record: &mut [u8],
    ) -> Result<bool> {
        let mut payload = std::mem::take(&mut self.payload);
        let found = session.trx.get(&self.table, index, &key, self.mode, &mut payload);
        self.fresh_locks = FreshLocks { entry: self.took_lock(session), row: false };
        self.scan.narrowed = true;
        self.scan.started = true;
        let done = match found {
            Ok(true) if index == 0 => {
                self.row_key.clone_from(&key);
                let done = self.put_row(&payload, record).map(|()| true);
                self.payload = payload;
                done
            }
            Ok(true) => self.put_entry(session, &key, &payload, record),
            other => other,
        };
        self.scan.at = key;
        done
    }

    /// An entry of the scanned index to the record. False: its row is gone.
    fn put_entry(
        &mut self,
        session: &mut Session,
        entry_key: &[u8],
        payload: &[u8],
        record: &mut [u8],
    ) -> Result<bool> {
        let index = self.scan.index;
        if index == 0 {
            self.row_key.clear();
            self.row_key.extend_from_slice(entry_key);
            return self.put_row(payload, record).map(|()| true);
        }
        let (clustered, stored) = key::split_entry(&self.shape, index, entry_key, payload)?;
        self.row_key.clear();
        self.row_key.extend_from_slice(clustered);
        let wants_row = self.wants_row.get(self.scan.index) == Some(&true);
        if self.keyread != Keyread::Off && !wants_row {
            let is_locking = self.mode != ReadMode::Snapshot;
            if is_locking && !self.lock_row(session)? {
                return Ok(false);
            }
            self.clear_nulls(record);
            self.put_columns(entry_key, stored, record)?;
            key::take_columns(&self.shape, 0, clustered, &mut self.variable, record)?;
            return Ok(true);
        }
        if !self.fetch_row(session, clustered, record)? {
            return Ok(false);
        }
        if self.keyread != Keyread::Off {
            // The server does not compute virtual columns that the index has.
            self.put_columns(entry_key, stored, record)?;
        }
        Ok(true)
    }

    /// What an entry of the scanned index has to the record.
    fn put_columns(&mut self, key: &[u8], stored: &[u8], record: &mut [u8]) -> Result<()> {
        let (shape, index) = (&self.shape, self.scan.index);
        row::unpack(shape, index, stored, &self.wanted, record)?;
        key::take_columns(shape, index, key, &mut self.variable, record)
    }

    /// The row of an entry to the record. False: it is gone.
    fn fetch_row(
        &mut self,
        session: &mut Session,
        clustered: &[u8],
        record: &mut [u8],
    ) -> Result<bool> {
        let mut row = std::mem::take(&mut self.payload);
        let found = session.trx.get(&self.table, 0, clustered, self.mode, &mut row);
        self.fresh_locks.row = self.took_lock(session);
        let done = match found {
            Ok(true) => self.put_row(&row, record).map(|()| true),
            other => other,
        };
        self.payload = row;
        done
    }

    /// An index entry alone does not keep others from changing the rest of its row.
    fn lock_row(&mut self, session: &mut Session) -> Result<bool> {
        let mut row = std::mem::take(&mut self.payload);
        let found = session.trx.get(&self.table, 0, &self.row_key, self.mode, &mut row);
        self.payload = row;
        self.fresh_locks.row = self.took_lock(session);
        found
    }

    fn clear_nulls(&self, record: &mut [u8]) {
        if self.keyread != Keyread::KeepOthers {
            self.shape.put_null_bytes(record);
        }
    }

    /// The row of `row_key` to the record. BLOB columns point into `payload`.
    fn put_row(&mut self, payload: &[u8], record: &mut [u8]) -> Result<()> {
        self.clear_nulls(record);
        let shape = &self.shape;
        row::unpack(shape, 0, payload, &self.wanted, record)?;
        key::take_columns(shape, 0, &self.row_key, &mut self.variable, record)
    }
}

/// The engine follows rows through the indexes and checks these, for which it must know their keys:
/// where an entry keeps its row's key only the shape of the table says.
/// What the engine asks about the bytes of keys.
pub fn name_keys(table: &Table, shape: &Shape) {
    table.name_parts(Arc::new(key::PartEnds { shape: shape.clone() }));
    let shape = shape.clone();
    table.name_rows(Arc::new(move |index, key, payload| {
        key::split_entry(&shape, index, key, payload).map(|(row, _)| row.to_vec())
    }));
}

fn as_entries(buffers: &[EntryBuffer]) -> Vec<Entry<'_>> {
    buffers.iter().map(|b| Entry { key: &b.key, payload: &b.payload, unique: b.unique }).collect()
}

fn as_bound(bound: &Bound<Vec<u8>>) -> Bound<&[u8]> {
    match bound {
        Bound::Included(key) => Bound::Included(key),
        Bound::Excluded(key) => Bound::Excluded(key),
        Bound::Unbounded => Bound::Unbounded,
    }
}

/// Up to and with every key that begins with `prefix`.
fn below_successor(prefix: &[u8]) -> Bound<Vec<u8>> {
    successor(prefix).map_or(Bound::Unbounded, Bound::Excluded)
}

/// From the first key above all that begin with `prefix`; Unbounded stands for "nothing".
fn at_successor(prefix: &[u8]) -> Bound<Vec<u8>> {
    successor(prefix).map_or(Bound::Unbounded, Bound::Included)
}
