//! Statements of the random workload, planned before they are sent: the SQL text, what the server
//! must answer, and what it changes. Planning needs only the rows that the session sees, so the
//! harness knows beforehand whether a statement must fail.

use crate::record::{Blob, Row, RowChange, Rows, Table, KEYS, RANGE};
use sluice_rig::rng::Rng;
use std::collections::BTreeSet;

#[derive(Debug, PartialEq)]
pub enum Expect {
    /// Success, with this many rows matched.
    Rows(u64),
    Success,
    /// A duplicate key error; the whole statement has no effect.
    Duplicate,
}

pub struct Planned {
    pub sql: String,
    pub expect: Expect,
    pub changes: Vec<RowChange>,
}

/// The keys of one table that one session owns, with their rows.
pub struct Scope<'a> {
    pub table: Table,
    pub base: i64,
    pub rows: &'a Rows,
    pub big_rows: bool,
}

const COLUMNS: &str = "id, k, u, pad, big";
/// Rows of one k value are neighbours in the secondary index; few values make long runs.
const K_VALUES: i64 = 40;

impl Scope<'_> {
    fn get(&self, id: i64) -> Option<&Row> {
        self.rows.get(&(self.table, id))
    }

    fn own(&self) -> impl Iterator<Item = (i64, &Row)> {
        self.rows.range((self.table, 0)..=(self.table, i64::MAX)).map(|(key, row)| (key.1, row))
    }

    fn ids(&self) -> Vec<i64> {
        self.own().map(|(id, _)| id).collect()
    }

    fn holder_of(&self, u: Option<i64>) -> Option<i64> {
        let u = u?;
        self.own().find(|(_, row)| row.u == Some(u)).map(|(id, _)| id)
    }

    fn random_id(&self, rng: &mut Rng) -> i64 {
        self.base + rng.between(0, KEYS - 1)
    }

    fn random_k(&self, rng: &mut Rng) -> i64 {
        self.base + rng.between(0, K_VALUES - 1)
    }

    fn random_u(&self, rng: &mut Rng) -> Option<i64> {
        if rng.one_in(4) {
            return None;
        }
        Some(self.base + rng.between(0, RANGE / 100))
    }

    fn random_row(&self, rng: &mut Rng) -> Row {
        Row {
            k: self.random_k(rng),
            u: self.random_u(rng),
            pad: random_text(rng),
            big: self.random_blob(rng, 25),
        }
    }

    /// A long value once in `n` calls, none otherwise.
    fn random_blob(&self, rng: &mut Rng, n: i64) -> Option<Blob> {
        if !self.big_rows || !rng.one_in(n) {
            return None;
        }
        let limit = *rng.pick(&[100, 8_000, 17_000, 70_000, 200_000]).unwrap_or(&100);
        Some(Blob { seed: rng.next_u64(), len_bytes: rng.between(0, limit) as usize })
    }

    fn put(&self, id: i64, row: Row) -> RowChange {
        RowChange::Put(self.table, id, row)
    }
}

fn random_text(rng: &mut Rng) -> String {
    let len = rng.between(0, 100);
    (0..len).map(|_| *rng.pick(&['a', 'b', 'z', 'Q', '7', ' ', 'é']).unwrap_or(&'a')).collect()
}

fn literal(u: Option<i64>) -> String {
    u.map_or("NULL".into(), |u| u.to_string())
}

fn blob_literal(blob: &Option<Blob>) -> String {
    match blob {
        None => "NULL".into(),
        Some(blob) => {
            let hex: String = blob.bytes().iter().map(|byte| format!("{byte:02x}")).collect();
            format!("x'{hex}'")
        }
    }
}

fn values(rows: &[(i64, Row)]) -> String {
    let tuple = |(id, row): &(i64, Row)| {
        let (u, big) = (literal(row.u), blob_literal(&row.big));
        format!("({id}, {}, {u}, '{}', {big})", row.k, row.pad)
    };
    rows.iter().map(tuple).collect::<Vec<_>>().join(", ")
}

/// One or many rows; a few of these collide by chance, and then nothing may remain of them.
pub fn insert(scope: &Scope, rng: &mut Rng) -> Option<Planned> {
    let count = *rng.pick(&[1, 1, 1, 3, 10, 25])?;
    let rows: Vec<_> = (0..count).map(|_| (scope.random_id(rng), scope.random_row(rng))).collect();
    Some(plan_insert(scope, rows))
}

/// Good rows in front of one that exists: the statement must fail and take them with it.
pub fn insert_with_duplicate(scope: &Scope, rng: &mut Rng) -> Option<Planned> {
    let taken = *rng.pick(&scope.ids())?;
    let mut rows: Vec<_> =
        (0..rng.between(1, 8)).map(|_| (scope.random_id(rng), scope.random_row(rng))).collect();
    rows.push((taken, scope.random_row(rng)));
    Some(plan_insert(scope, rows))
}

fn plan_insert(scope: &Scope, rows: Vec<(i64, Row)>) -> Planned {
    let (mut ids, mut us) = (BTreeSet::new(), BTreeSet::new());
    let collides = |(id, row): &(i64, Row)| {
        scope.get(*id).is_some()
            || scope.holder_of(row.u).is_some()
            || !ids.insert(*id)
            || row.u.is_some_and(|u| !us.insert(u))
    };
    let duplicate = rows.iter().any(collides);
    let sql = format!("INSERT INTO {} ({COLUMNS}) VALUES {}", scope.table.name(), values(&rows));
    let expect = if duplicate { Expect::Duplicate } else { Expect::Rows(rows.len() as u64) };
    Planned { sql, expect, changes: rows.into_iter().map(|(id, row)| scope.put(id, row)).collect() }
}

pub fn replace(scope: &Scope, rng: &mut Rng) -> Option<Planned> {
    let (id, row) = (scope.random_id(rng), scope.random_row(rng));
    let name = scope.table.name();
    let sql = format!("REPLACE INTO {name} ({COLUMNS}) VALUES {}", values(&[(id, row.clone())]));
    let mut changes = Vec::new();
    if let Some(holder) = scope.holder_of(row.u) {
        changes.push(RowChange::Delete(scope.table, holder));
    }
    changes.push(scope.put(id, row));
    Some(Planned { sql, expect: Expect::Success, changes })
}

fn update_one(scope: &Scope, id: i64, assignment: String, row: Row) -> Planned {
    let sql = format!("UPDATE {} SET {assignment} WHERE id = {id}", scope.table.name());
    Planned { sql, expect: Expect::Rows(1), changes: vec![scope.put(id, row)] }
}

pub fn update_pad(scope: &Scope, rng: &mut Rng) -> Option<Planned> {
    let id = *rng.pick(&scope.ids())?;
    let row = Row { pad: random_text(rng), ..scope.get(id)?.clone() };
    Some(update_one(scope, id, format!("pad = '{}'", row.pad), row))
}

pub fn update_blob(scope: &Scope, rng: &mut Rng) -> Option<Planned> {
    let id = *rng.pick(&scope.ids())?;
    let row = Row { big: scope.random_blob(rng, 3), ..scope.get(id)?.clone() };
    Some(update_one(scope, id, format!("big = {}", blob_literal(&row.big)), row))
}

/// A unique key changes; sometimes to a value that another row has.
pub fn update_unique(scope: &Scope, rng: &mut Rng) -> Option<Planned> {
    let id = *rng.pick(&scope.ids())?;
    let u = match rng.one_in(3) {
        true => scope.get(*rng.pick(&scope.ids())?)?.u,
        false => scope.random_u(rng),
    };
    let row = Row { u, ..scope.get(id)?.clone() };
    let mut plan = update_one(scope, id, format!("u = {}", literal(u)), row);
    if scope.holder_of(u).is_some_and(|holder| holder != id) {
        plan.expect = Expect::Duplicate;
    }
    Some(plan)
}

/// A secondary key changes over a range of primary keys, at times over all of them.
pub fn update_key_range(scope: &Scope, rng: &mut Rng) -> Option<Planned> {
    let low = scope.random_id(rng);
    let high = low + *rng.pick(&[0, 0, 5, 30, KEYS])?;
    let k = scope.random_k(rng);
    let hit: Vec<_> = scope.own().filter(|(id, _)| (low..=high).contains(id)).collect();
    let name = scope.table.name();
    let sql = format!("UPDATE {name} SET k = {k} WHERE id BETWEEN {low} AND {high}");
    let expect = Expect::Rows(hit.len() as u64);
    let changes =
        hit.into_iter().map(|(id, row)| scope.put(id, Row { k, ..row.clone() })).collect();
    Some(Planned { sql, expect, changes })
}

/// The primary key itself changes.
pub fn move_row(scope: &Scope, rng: &mut Rng) -> Option<Planned> {
    let from = *rng.pick(&scope.ids())?;
    let to = scope.random_id(rng);
    let row = scope.get(from)?.clone();
    let mut plan = update_one(scope, from, format!("id = {to}"), row.clone());
    plan.changes = vec![RowChange::Delete(scope.table, from), scope.put(to, row)];
    if to != from && scope.get(to).is_some() {
        plan.expect = Expect::Duplicate;
    }
    Some(plan)
}

pub fn delete_one(scope: &Scope, rng: &mut Rng) -> Option<Planned> {
    let id = *rng.pick(&scope.ids())?;
    let sql = format!("DELETE FROM {} WHERE id = {id}", scope.table.name());
    Some(Planned {
        sql,
        expect: Expect::Rows(1),
        changes: vec![RowChange::Delete(scope.table, id)],
    })
}

/// Deletes through the secondary index.
pub fn delete_by_key(scope: &Scope, rng: &mut Rng) -> Option<Planned> {
    let k = scope.random_k(rng);
    let hit: Vec<_> = scope.own().filter(|(_, row)| row.k == k).map(|(id, _)| id).collect();
    let sql = format!("DELETE FROM {} WHERE k = {k}", scope.table.name());
    let expect = Expect::Rows(hit.len() as u64);
    let changes = hit.into_iter().map(|id| RowChange::Delete(scope.table, id)).collect();
    Some(Planned { sql, expect, changes })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duplicate_is_known_before_the_statement_is_sent() {
        let row = Row { k: 1, u: Some(7), pad: String::new(), big: None };
        let rows: Rows = [((Table::Main, 5), row.clone())].into();
        let scope = Scope { table: Table::Main, base: 0, rows: &rows, big_rows: false };
        let free = Row { u: None, ..row.clone() };
        assert_eq!(plan_insert(&scope, vec![(6, free.clone())]).expect, Expect::Rows(1));
        assert_eq!(plan_insert(&scope, vec![(5, free.clone())]).expect, Expect::Duplicate);
        assert_eq!(plan_insert(&scope, vec![(6, row)]).expect, Expect::Duplicate);
        let twice = vec![(6, free.clone()), (6, free)];
        assert_eq!(plan_insert(&scope, twice).expect, Expect::Duplicate);
    }

    #[test]
    fn the_same_seed_plans_the_same_statements() {
        let rows = Rows::new();
        let scope = Scope { table: Table::Main, base: 0, rows: &rows, big_rows: true };
        let text = |seed| insert(&scope, &mut Rng::new(seed)).map(|plan| plan.sql);
        assert_eq!(text(3), text(3));
        assert_ne!(text(3), text(4));
    }
}
