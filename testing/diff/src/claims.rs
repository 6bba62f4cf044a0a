//! What each session must hold by its own statements, worked out from their texts and from the rows
//! that READ UNCOMMITTED shows: so it depends on no lock manager. Where InnoDB waits and Sluice goes on,
//! this says whether Sluice had to wait, too.
//!
//! Only what is certain counts. A statement with a second condition, an index merge, XA, an error or
//! a schedule in which several sessions answer at once gives no claim.

use crate::session::{Outcome, ResultSet, Row};
use std::collections::BTreeMap;

/// Values of one column. Every value and NULL, if there is no column.
#[derive(Clone, Debug, PartialEq)]
pub struct Range {
    column: Option<String>,
    allowed: Vec<(i64, i64)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    Read,
    Change,
    Insert,
}

/// What a statement asks for.
#[derive(Clone, Debug, PartialEq)]
pub struct Ask {
    pub table: String,
    pub verb: Verb,
    /// `None`: a plain read, which locks at SERIALIZABLE only.
    pub exclusive: Option<bool>,
    /// `None`: a condition that is not understood.
    pub range: Option<Range>,
    pub skips_locked: bool,
}

/// The rows of a table, with the names of its columns.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Image {
    pub names: Vec<String>,
    pub rows: Vec<Row>,
}

pub type Images = BTreeMap<String, Image>;

impl Image {
    pub fn of(set: &ResultSet) -> Image {
        Image { names: set.names.clone(), rows: set.rows.clone() }
    }

    fn value(&self, row: &Row, column: &str) -> Option<i64> {
        let at = self.names.iter().position(|name| name == column)?;
        String::from_utf8_lossy(row.get(at)?.as_deref()?).parse().ok()
    }

    fn has(&self, row: &Row, range: &Range) -> bool {
        let Some(column) = &range.column else { return true };
        let value = self.value(row, column);
        value.is_some_and(|v| range.allowed.iter().any(|(low, high)| (*low..=*high).contains(&v)))
    }
}

struct Hold {
    table: String,
    range: Range,
    exclusive: bool,
    /// At REPEATABLE READ and above nobody may insert into the range. Below it only these rows are held.
    gaps: bool,
    rows: Vec<Row>,
    /// It had not waited, so `rows` are all that were in the range.
    whole: bool,
}

/// Why InnoDB may hold less of a range than Sluice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spared {
    /// SKIP LOCKED passed a locked entry after the range, with the gap before it.
    Skipped,
    /// A statement that locks no gaps waited for a row, which may have gone.
    RowGone,
}

#[derive(Default)]
struct Writes {
    /// Rows that were there before the transaction and are not any more.
    removed: Vec<Row>,
    added: Vec<Row>,
}

#[derive(Default)]
pub struct Claims {
    holds: Vec<Hold>,
    /// Ranges that were asked for, in which InnoDB may hold less than Sluice.
    spared: Vec<(String, Range, Spared)>,
    writes: BTreeMap<String, Writes>,
}

/// How the session's statement ran.
pub struct Ran<'a> {
    pub sql: &'a str,
    pub level: &'a str,
    pub waited: bool,
    pub in_transaction: bool,
    pub before: &'a Images,
    pub after: &'a Images,
    /// The statement reads the committed rows of its table first, and passes those that do not match
    /// (a semi-consistent read).
    pub committed: Option<Image>,
}

impl Ran<'_> {
    /// The rows that the statement may lock.
    fn sees(&self, table: &str) -> Option<&Image> {
        self.committed.as_ref().or_else(|| self.before.get(table))
    }
}

pub fn locks_gaps(level: &str) -> bool {
    matches!(level, "REPEATABLE-READ" | "SERIALIZABLE")
}

/// Rows that only the first has.
pub fn only(a: &[Row], b: &[Row]) -> Vec<Row> {
    let mut rest: Vec<&Row> = b.iter().collect();
    let mut out = Vec::new();
    for row in a {
        match rest.iter().position(|r| *r == row) {
            Some(at) => drop(rest.swap_remove(at)),
            None => out.push(row.clone()),
        }
    }
    out
}

impl Claims {
    /// Does the statement ask for a row that this session holds? `None`: that cannot be told.
    pub fn meets(&self, ran: &Ran) -> Option<bool> {
        let ask = Ask::of(ran.sql)?;
        let image = ran.sees(&ask.table)?;
        let exclusive = locks(&ask, ran.level, true)?;
        let range = ask.range.as_ref()?;
        let is_asked = |r: &&Row| image.has(r, range) && !self.is_unfinished(&ask.table, r, image);
        let targets: Vec<Row> = image.rows.iter().filter(is_asked).cloned().collect();
        Some(self.met(&ask, exclusive, &targets, image).is_some())
    }

    /// Is the row in a range whose gaps this session holds, and neither one that it found there nor its own?
    /// Then a statement that waits has written it.
    fn is_unfinished(&self, table: &str, row: &Row, image: &Image) -> bool {
        let found = |h: &Hold| {
            h.table == table
                && h.gaps
                && h.whole
                && image.has(row, &h.range)
                && !h.rows.contains(row)
        };
        let own = self.writes.get(table).is_some_and(|writes| writes.added.contains(row));
        !own && self.holds.iter().any(found)
    }

    pub fn clear(&mut self) {
        *self = Claims::default();
    }

    /// The table as if this transaction had changed nothing in it.
    pub fn undo(&self, table: &str, image: &mut Image) {
        let Some(writes) = self.writes.get(table) else { return };
        image.rows = only(&image.rows, &writes.added);
        image.rows.extend(writes.removed.iter().cloned());
    }

    /// A statement has succeeded, the only one that has in this step.
    pub fn add(&mut self, ran: &Ran) {
        if ran.sql.starts_with("ROLLBACK TO") || ran.sql.starts_with("XA") {
            // Which locks stay is each engine's own affair.
            return self.clear();
        }
        let Some(ask) = Ask::of(ran.sql) else { return };
        self.write(&ask.table, ran);
        let Some(exclusive) = locks(&ask, ran.level, ran.in_transaction) else { return };
        let Some(range) = ask.range else { return };
        let gaps = locks_gaps(ran.level);
        if ran.waited && !gaps {
            self.spared.push((ask.table.clone(), range.clone(), Spared::RowGone));
        }
        if ask.skips_locked {
            self.spared.extend(gaps.then_some((ask.table, range, Spared::Skipped)));
            return;
        }
        let image = ran.sees(&ask.table).cloned().unwrap_or_default();
        let rows = match ran.waited {
            true => Vec::new(),
            false => image.rows.iter().filter(|r| image.has(r, &range)).cloned().collect(),
        };
        let whole = !ran.waited;
        self.holds.push(Hold { table: ask.table, range, exclusive, gaps, rows, whole });
    }

    fn write(&mut self, table: &str, ran: &Ran) {
        let (Some(before), Some(after)) = (ran.before.get(table), ran.after.get(table)) else {
            return;
        };
        let writes = self.writes.entry(table.to_owned()).or_default();
        for row in only(&before.rows, &after.rows) {
            match writes.added.iter().position(|r| *r == row) {
                Some(at) => drop(writes.added.remove(at)),
                None => writes.removed.push(row),
            }
        }
        writes.added.extend(only(&after.rows, &before.rows));
    }

    /// Why the statement had to wait for this session; `None` if that is not certain.
    pub fn stop(&self, ran: &Ran, outcome: &Outcome) -> Option<String> {
        let ask = Ask::of(ran.sql)?;
        let before = ran.before.get(&ask.table)?;
        let after = ran.after.get(&ask.table)?;
        if let Some(exclusive) = locks(&ask, ran.level, true) {
            let seen = ran.sees(&ask.table)?;
            let targets: Vec<Row> = match (&ask.range, ask.skips_locked) {
                (_, true) => results(outcome, before),
                (Some(range), _) => {
                    seen.rows.iter().filter(|r| seen.has(r, range)).cloned().collect()
                }
                _ => Vec::new(),
            };
            let found = self.met(&ask, exclusive, &targets, seen);
            if found.is_some() {
                return found;
            }
        }
        let (gone, new) = (only(&before.rows, &after.rows), only(&after.rows, &before.rows));
        for hold in self.holds.iter().filter(|h| h.table == ask.table) {
            let met =
                |row: &&Row| hold.rows.contains(row) || hold.gaps && before.has(row, &hold.range);
            let row = gone.iter().find(met);
            let row = row.or_else(|| new.iter().find(|r| hold.gaps && after.has(r, &hold.range)));
            if let Some(row) = row {
                return Some(format!("it changed {} in {:?}", text(row), hold.range));
            }
        }
        None
    }

    /// Has the statement put a row into a range in which InnoDB may hold less?
    pub fn spares(&self, ran: &Ran) -> Option<Spared> {
        let ask = Ask::of(ran.sql)?;
        let before = ran.before.get(&ask.table)?;
        let after = ran.after.get(&ask.table)?;
        let new = only(&after.rows, &before.rows);
        let met = |(table, range, _): &&(String, Range, Spared)| {
            *table == ask.table && new.iter().any(|row| after.has(row, range))
        };
        self.spared.iter().find(met).map(|(_, _, why)| *why)
    }

    fn met(&self, ask: &Ask, exclusive: bool, targets: &[Row], image: &Image) -> Option<String> {
        for hold in self.holds.iter().filter(|h| h.table == ask.table) {
            let met =
                |row: &&Row| image.has(row, &hold.range) && (hold.gaps || hold.rows.contains(row));
            let row = targets.iter().find(met).filter(|_| exclusive || hold.exclusive);
            if let Some(row) = row {
                return Some(format!("it locked {}, held by {:?}", text(row), hold.range));
            }
        }
        let writes = self.writes.get(&ask.table)?;
        let removed = match &ask.range {
            Some(range) if !ask.skips_locked => writes.removed.iter().find(|r| image.has(r, range)),
            _ => None,
        };
        let row = removed.or_else(|| targets.iter().find(|r| writes.added.contains(r)))?;
        Some(format!("it locked {}, which another transaction has changed", text(row)))
    }
}

fn results(outcome: &Outcome, image: &Image) -> Vec<Row> {
    let set = outcome.sets.first().filter(|set| set.names == image.names);
    set.map(|set| set.rows.clone()).unwrap_or_default()
}

fn text(row: &Row) -> String {
    let cell = |cell: &Option<Vec<u8>>| match cell {
        None => "NULL".into(),
        Some(bytes) => String::from_utf8_lossy(bytes).into_owned(),
    };
    format!("({})", row.iter().map(cell).collect::<Vec<String>>().join(","))
}

fn locks(ask: &Ask, level: &str, in_transaction: bool) -> Option<bool> {
    match ask.exclusive {
        None if level == "SERIALIZABLE" && in_transaction => Some(false),
        exclusive => exclusive,
    }
}

/// The table that a statement of one table names, also through its function.
pub fn table_of(sql: &str) -> Option<String> {
    let called = sql.strip_prefix("SELECT f").and_then(|rest| rest.split('(').next());
    called.map(str::to_owned).or_else(|| Ask::of(sql).map(|ask| ask.table))
}

/// An UPDATE by the rows themselves, at a level without gaps, that is no search for single rows, reads
/// committed rows first. `primary`: the only column of the primary key.
pub fn reads_committed_first(sql: &str, level: &str, primary: Option<&str>) -> bool {
    let hint = sql.contains(" FORCE INDEX (");
    let by_rows = sql.contains(" FORCE INDEX (`PRIMARY`)") || !hint;
    let range = Ask::of(sql).and_then(|ask| ask.range);
    let points = primary.zip(range).is_some_and(|(column, range)| range.is_points_of(column));
    sql.starts_with("UPDATE ") && by_rows && !points && !locks_gaps(level)
}

impl Ask {
    pub fn of(sql: &str) -> Option<Ask> {
        let words: Vec<&str> = sql.split_whitespace().filter(|w| !w.starts_with("/*")).collect();
        let after = |word: &str| {
            let at = words.iter().position(|w| *w == word)?;
            words.get(at + 1).map(|w| (*w).to_owned())
        };
        let (verb, table, exclusive) = match *words.first()? {
            "SELECT" => {
                let shared = sql.contains(" LOCK IN SHARE MODE").then_some(false);
                let exclusive = sql.contains(" FOR UPDATE").then_some(true);
                (Verb::Read, after("FROM")?, exclusive.or(shared))
            }
            "UPDATE" => (Verb::Change, after("UPDATE")?, Some(true)),
            "DELETE" => (Verb::Change, after("FROM")?, Some(true)),
            "INSERT" | "REPLACE" => (Verb::Insert, after("INTO")?, None),
            "LOAD" => (Verb::Insert, after("TABLE")?, None),
            _ => return None,
        };
        let range = if verb == Verb::Insert { None } else { Range::of(sql) };
        Some(Ask { table, verb, exclusive, range, skips_locked: sql.contains(" SKIP LOCKED") })
    }
}

impl Range {
    /// Is it nothing but single values of this column?
    fn is_points_of(&self, column: &str) -> bool {
        self.column.as_deref() == Some(column) && self.allowed.iter().all(|(low, high)| low == high)
    }

    fn of(sql: &str) -> Option<Range> {
        let all = Range { column: None, allowed: Vec::new() };
        let indexes = sql.find("FORCE INDEX (").map(|at| &sql[at..]);
        if indexes.and_then(|t| t.split(')').next()).is_some_and(|names| names.contains(',')) {
            return None;
        }
        let Some(at) = sql.find(" WHERE ") else { return indexes.is_none().then_some(all) };
        let mut condition = &sql[at + 7..];
        for end in [" FOR UPDATE", " LOCK IN SHARE MODE"] {
            condition = condition.split(end).next().unwrap_or(condition);
        }
        if condition == "1" {
            return Some(all);
        }
        let words: Vec<&str> = condition.split_whitespace().collect();
        let column = (*words.first()?).to_owned();
        if !column.chars().all(|c| c.is_ascii_alphanumeric()) || indexes.is_none() {
            return None;
        }
        let number = |at: usize| words.get(at).and_then(|w| w.parse::<i64>().ok());
        let (low, high) = (i64::MIN, i64::MAX);
        let allowed = match (words.get(1).copied()?, words.len()) {
            ("=", 3) => vec![(number(2)?, number(2)?)],
            ("<", 3) => vec![(low, number(2)?.checked_sub(1)?)],
            ("<=", 3) => vec![(low, number(2)?)],
            (">", 3) => vec![(number(2)?.checked_add(1)?, high)],
            (">=", 3) => vec![(number(2)?, high)],
            ("BETWEEN", 5) => vec![(number(2)?, number(4)?)],
            ("IN", 3) => {
                let list = words[2].strip_prefix('(')?.strip_suffix(')')?;
                let one = |v: &str| v.parse().ok().map(|v: i64| (v, v));
                list.split(',').map(one).collect::<Option<Vec<_>>>()?
            }
            _ => return None,
        };
        Some(Range { column: Some(column), allowed })
    }
}

#[cfg(test)]
#[path = "claims_tests.rs"]
mod tests;
