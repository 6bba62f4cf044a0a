//! AUTO_INCREMENT as with InnoDB's default, `innodb_autoinc_lock_mode=1`: which values a statement
//! gets, what an error leaves unused, and what a value given by hand does to the counter.
//!
//! The server asks once for as many values as it thinks it needs and counts through them; rows with
//! values of their own and errors make it ask again. So that the answers are InnoDB's, they depend
//! on what InnoDB's depend on: rows still expected in the statement, and the end of the last answer.

use sluice_engine::db::Table;

/// The AUTO_INCREMENT state of one open table.
pub struct Autoinc {
    /// The end of the values that this statement got last; 0: it got none.
    last: u64,
    /// As of the last question; they count for values given by hand, too.
    offset: u64,
    increment: u64,
    /// The counter after a restart, when the rows of a bulk insert are done.
    to_keep: u64,
    is_bulk: bool,
    /// ALTER TABLE ... AUTO_INCREMENT=n: rows below the counter leave it.
    is_restart: bool,
}

impl Default for Autoinc {
    fn default() -> Self {
        Autoinc { last: 0, offset: 0, increment: 1, to_keep: 0, is_bulk: false, is_restart: false }
    }
}

/// A question of the server.
#[derive(Clone, Copy)]
pub struct Wanted {
    pub offset: u64,
    pub increment: u64,
    /// Rows that the statement is thought to insert.
    pub rows: u64,
    /// The largest value of the column's type.
    pub max: u64,
    pub is_alter: bool,
    /// Where the server stands in the values that it has.
    pub first: u64,
}

/// The first value, and how many; none are left when `first` is over the column's largest value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Values {
    pub first: u64,
    pub count: u64,
}

impl Autoinc {
    /// `rows_left` belongs to the transaction and lives as long as the statement.
    pub fn get(&mut self, table: &Table, rows_left: &mut u64, wanted: Wanted) -> Values {
        let mut values = Values { first: u64::MAX, count: 0 };
        table.autoinc_update(|counter| {
            values = self.answer(counter, rows_left, wanted);
            if values.count == 0 {
                counter
            } else {
                self.last
            }
        });
        values
    }

    fn answer(&mut self, counter: u64, rows_left: &mut u64, wanted: Wanted) -> Values {
        let Wanted { offset, increment, max, .. } = wanted;
        let start = if wanted.is_alter { counter } else { align(counter, wanted) };
        let mut first = wanted.first;
        if *rows_left == 0 {
            *rows_left = wanted.rows.max(1);
            first = first.max(start);
        } else if self.last == 0 {
            first = first.max(start);
        }
        if first > max {
            self.last = 0;
            return Values { first, count: 0 };
        }
        (self.offset, self.increment) = (offset, increment);
        let count = *rows_left;
        self.last = next_value(first, count, increment, offset, max);
        if self.last < first {
            return Values { first: u64::MAX, count };
        }
        Values { first, count }
    }

    /// A row with `value` was written, or met a duplicate in a statement that replaces rows.
    pub fn wrote(&self, table: &Table, value: u64, max: u64, is_duplicate: bool) {
        if value <= max && (is_duplicate || value >= self.last) {
            let next = next_value(value, 1, self.increment, self.offset, max);
            let leaves = |counter: u64| self.is_restart && value < counter;
            table.autoinc_update(|counter| if leaves(counter) { counter } else { next });
        }
    }

    /// UPDATE gave the column another value, which counts unless it is 0. As in InnoDB, the counter
    /// is one further after a restart than before.
    pub fn updated(&mut self, table: &Table, value: u64, max: u64) {
        if (1..=max).contains(&value) {
            let next = next_value(value, 1, self.increment, self.offset, max);
            table.autoinc_update(|_| next);
            table.autoinc_keep(next_value(next, 1, 1, 0, max));
        }
    }

    /// A row with `value` goes into the table, whatever becomes of its transaction.
    pub fn keep(&mut self, table: &Table, value: u64, max: u64) {
        if value > max {
            return;
        }
        self.to_keep = self.to_keep.max(next_value(value, 1, 1, 0, max));
        if !self.is_bulk {
            self.keep_now(table);
        }
    }

    fn keep_now(&mut self, table: &Table) {
        table.autoinc_keep(std::mem::take(&mut self.to_keep));
    }

    /// Rows of a bulk insert are kept together at its end, which comes before the commit.
    pub fn set_bulk(&mut self, table: &Table, is_bulk: bool) {
        self.is_bulk = is_bulk;
        if !is_bulk {
            self.is_restart = false;
            self.keep_now(table);
        }
    }

    /// For the rows of ALTER TABLE ... AUTO_INCREMENT=n, which come from a copy.
    pub fn set_series(&mut self, offset: u64, increment: u64) {
        (self.offset, self.increment) = (offset, increment);
        self.is_restart = true;
    }

    pub fn statement_end(&mut self, table: &Table) {
        self.set_bulk(table, false);
        self.last = 0;
    }
}

/// The first value of the series at or after the counter.
fn align(counter: u64, wanted: Wanted) -> u64 {
    let Wanted { offset, increment, max, .. } = wanted;
    if increment <= 1 || counter.checked_add(increment).is_none() || counter >= max {
        return counter;
    }
    let steps = (counter - 1 + increment).wrapping_sub(offset) / increment;
    let value = steps.wrapping_mul(increment).wrapping_add(offset);
    if value >= max {
        counter
    } else {
        value
    }
}

/// `need` steps after `current`, in the series of `offset`; `u64::MAX` when there is none.
pub fn next_value(current: u64, need: u64, step: u64, offset: u64, max: u64) -> u64 {
    if current > max {
        return u64::MAX;
    }
    let step = step.max(1);
    let offset = if offset > step { 0 } else { offset };
    let distance = current.abs_diff(offset);
    let next = (distance - distance % step).checked_add(offset);
    let block = need.checked_mul(step);
    next.zip(block).and_then(|(next, block)| next.checked_add(block)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_value_of_a_series() {
        assert_eq!(next_value(1, 1, 1, 1, 100), 2);
        assert_eq!(next_value(1, 3, 1, 1, 100), 4);
        assert_eq!(next_value(20, 1, 5, 3, 100), 23);
        assert_eq!(next_value(101, 1, 1, 1, 100), u64::MAX);
        assert_eq!(next_value(u64::MAX, 1, 1, 1, u64::MAX), u64::MAX);
        // An offset over the increment is ignored.
        assert_eq!(next_value(7, 1, 2, 5, 100), 8);
    }

    #[test]
    fn values_of_one_statement() {
        let mut autoinc = Autoinc::default();
        let mut rows = 0;
        let wanted =
            Wanted { offset: 1, increment: 1, rows: 4, max: 127, is_alter: false, first: 0 };
        assert_eq!(autoinc.answer(5, &mut rows, wanted), Values { first: 5, count: 4 });
        assert_eq!((rows, autoinc.last), (4, 9));
        // A row with a value of its own in between: the server stands at 20.
        rows = 2;
        let later = Wanted { first: 20, ..wanted };
        assert_eq!(autoinc.answer(9, &mut rows, later), Values { first: 20, count: 2 });
        let exhausted = Wanted { first: 128, ..wanted };
        assert_eq!(autoinc.answer(9, &mut rows, exhausted).count, 0);
        assert_eq!(autoinc.last, 0);
    }
}
