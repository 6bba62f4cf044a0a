//! Where a scan stands. It has a last returned entry and, most of the time, a live cursor at it.
//!
//! 1. A live cursor is good for one direction and up to the end that it was opened with. A step that needs
//!    another one opens it again from the last entry.
//! 2. The key of the last entry is the cursor's while that is live, and in `at` after that.
//! 3. A search without a row leaves the gap in which it has its key; a step goes on from there.
//! 4. A scan that ran off one end of the index does not go on that way, and begins at that end on the way back.

use super::bounds::{as_bound, at_successor, below_successor};
use super::rows::{FreshLocks, Source};
use super::{Handler, ImageBound};
use crate::order::successor;
use crate::session::Session;
use sluice_engine::base::Result;
use sluice_engine::db::{Direction, ReadMode, WaitPolicy};
use std::ops::Bound;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Find {
    Exact,
    AtOrAfter,
    AtOrBefore,
    After,
    Before,
    Last,
}

/// The gap in which a search has its key: before or after all entries that begin with it.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Gap {
    #[default]
    None,
    Below,
    Above,
}

#[derive(Default)]
pub(super) struct Scan {
    pub index: usize,
    /// The engine's cursor stands on the last returned entry and may go on this way.
    live: Option<Direction>,
    /// The cursor was opened for one prefix only.
    narrowed: bool,
    /// Encoded key of the search, for `step_same` and for steps from a search without a row.
    prefix: Vec<u8>,
    gap: Gap,
    /// Key of the last returned entry, when no live cursor has it.
    at: Vec<u8>,
    /// Payload of the last entry of `at`, if a look-up found it in another index than the clustered one.
    payload: Vec<u8>,
    /// Was there a row at all?
    started: bool,
    /// The cursor was opened up to the end of the index.
    is_unbounded: bool,
    /// The scan ran off the index at this end.
    beyond: Option<Direction>,
}

impl Scan {
    /// Where a step begins that no live cursor can do: beside the last returned entry, or in the
    /// gap of a search that found none. None: after the end of the index. `again`: that entry is
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

impl Handler {
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
        let fresh = std::mem::take(&mut self.rows.fresh_locks);
        let index = self.scan.index;
        if fresh.row {
            session.trx.unlock(&self.table, 0, &self.rows.row_key);
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
        let Handler { shape, table, mode, rows, cursor, scan, .. } = self;
        let mut source = Source { shape, table, mode: *mode, session };
        loop {
            rows.fresh_locks = FreshLocks::default();
            if !source.session.trx.next_wanted(cursor, rows.wanted(scan.index))? {
                // The last entry stays where a scan in the other direction begins.
                if scan.is_unbounded && scan.started && !scan.narrowed {
                    scan.beyond = scan.live;
                }
                return Ok(false);
            }
            rows.fresh_locks.entry = source.took_lock();
            scan.started = true;
            let (key, payload) = (cursor.key(), cursor.payload());
            if rows.put_entry(&mut source, scan.index, key, payload, record)? {
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
        let Handler { shape, table, mode, rows, scan, .. } = self;
        scan.narrowed = true;
        scan.started = true;
        scan.at = key;
        let mut source = Source { shape, table, mode: *mode, session };
        rows.look_up(&mut source, index, &scan.at, &mut scan.payload, record)
    }
}
