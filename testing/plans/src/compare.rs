//! Plans, and whether two of them are the same.

use crate::sets::{Query, Set};
use mysql::prelude::FromRow;
use mysql::Row;
use sluice_rig::client::{Client, Reply};
use std::fmt::Write;

/// Estimates of rows that differ by more than this are printed.
const ROWS_FACTOR: f64 = 3.0;

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Engine {
    InnoDb,
    Sluice,
}

pub const ENGINES: [Engine; 2] = [Engine::InnoDb, Engine::Sluice];

impl Engine {
    pub fn name(self) -> &'static str {
        match self {
            Engine::InnoDb => "InnoDB",
            Engine::Sluice => "Sluice",
        }
    }

    pub fn database(self, set: &Set) -> String {
        format!("{}_{}", set.name, self.name().to_lowercase())
    }
}

/// One line of EXPLAIN.
#[derive(Clone, Debug, PartialEq)]
pub struct PlanLine {
    pub id: String,
    pub table: String,
    pub access: String,
    pub key: String,
    pub rows: Option<f64>,
    pub extra: String,
}

fn text(row: &mut Row, column: usize) -> String {
    match row.take::<Option<String>, _>(column) {
        Some(Some(text)) => text,
        _ => "-".into(),
    }
}

/// id, select_type, table, type, possible_keys, key, key_len, ref, rows, Extra
impl FromRow for PlanLine {
    fn from_row_opt(mut row: Row) -> Result<PlanLine, mysql::FromRowError> {
        Ok(PlanLine {
            id: text(&mut row, 0),
            table: text(&mut row, 2),
            access: text(&mut row, 3),
            key: text(&mut row, 5),
            rows: text(&mut row, 8).parse().ok(),
            extra: text(&mut row, 9),
        })
    }
}

impl PlanLine {
    /// What counts: which table comes when, and how it is read.
    fn is_same(&self, other: &PlanLine) -> bool {
        let of = |s: &PlanLine| (s.id.clone(), s.table.clone(), s.access.clone(), s.key.clone());
        of(self) == of(other)
    }

    fn is_far(&self, other: &PlanLine) -> bool {
        match (self.rows, other.rows) {
            (Some(a), Some(b)) => a.max(b) > ROWS_FACTOR * a.min(b).max(1.0),
            _ => false,
        }
    }
}

pub fn explain(client: &mut Client, sql: &str) -> Reply<Vec<PlanLine>> {
    client.rows(&format!("explain {sql}"))
}

/// What both engines make of a query.
pub struct Outcome {
    pub name: String,
    plans: [Vec<PlanLine>; 2],
}

impl Outcome {
    pub fn new(query: &Query, plans: [Vec<PlanLine>; 2]) -> Outcome {
        Outcome { name: query.name.clone(), plans }
    }

    pub fn is_same(&self) -> bool {
        let [a, b] = &self.plans;
        a.len() == b.len() && a.iter().zip(b).all(|(x, y)| x.is_same(y))
    }

    pub fn describe(&self, set: &Set) -> String {
        let mut out = format!("{}/{}", set.name, self.name);
        match (self.is_same(), set.reason(&self.name)) {
            (true, _) => out.push_str(": same\n"),
            (false, Some(reason)) => _ = writeln!(out, ": differs, known: {reason}"),
            (false, None) => out.push_str(": DIFFERS\n"),
        }
        for (engine, plan) in ENGINES.iter().zip(&self.plans) {
            for (i, s) in plan.iter().enumerate() {
                let PlanLine { id, table, access, key, rows, extra } = s;
                let far = self.plans[0].get(i).is_some_and(|other| s.is_far(other));
                let rows = rows.map_or("-".into(), |n| n.to_string());
                let mark = if far { " (!)" } else { "" };
                let name = engine.name();
                let _ = writeln!(
                    out,
                    "  {name}  {id:>2} {table:<14} {access:<11} {key:<24} {rows:>8}{mark}  {extra}"
                );
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(table: &str, key: &str, rows: f64) -> PlanLine {
        let (id, access, extra) = ("1".into(), "ref".into(), String::new());
        PlanLine { id, table: table.into(), access, key: key.into(), rows: Some(rows), extra }
    }

    #[test]
    fn plans_are_compared_by_order_access_and_key() {
        let query = Query { name: "q".into(), sql: String::new() };
        let is_same = |a: &[PlanLine], b: &[PlanLine]| {
            Outcome::new(&query, [a.to_vec(), b.to_vec()]).is_same()
        };
        let (a, b) = (step("a", "k", 10.0), step("b", "k", 10.0));
        assert!(is_same(&[a.clone(), b.clone()], &[step("a", "k", 900.0), b.clone()]));
        assert!(!is_same(&[a.clone(), b.clone()], &[b.clone(), a.clone()]));
        assert!(!is_same(std::slice::from_ref(&a), &[step("a", "other", 10.0)]));
        assert!(!is_same(std::slice::from_ref(&a), &[a.clone(), b]));
        assert!(!is_same(
            std::slice::from_ref(&a),
            &[PlanLine { access: "range".into(), ..a.clone() }]
        ));
        assert!(a.is_far(&step("a", "k", 31.0)) && !a.is_far(&step("a", "k", 29.0)));
    }
}
