//! Statements that read. Of columns in which equal values can look different (case, trailing
//! spaces) no representative is shown, and sums are of exact numbers.

use crate::chance::Chance;
use crate::compare::ORDERED;
use crate::dml::join_columns;
use crate::exprs::{any_hint, comparison, condition, names, order_by};
use crate::schema::{Column, Table};
use crate::types::Class;
use sluice_rig::rng::Rng;

pub fn statement(rng: &mut Rng, tables: &[Table]) -> String {
    let Some(t) = rng.pick(tables).cloned() else { return "SELECT 1".into() };
    match rng.weighted(&[24, 14, 10, 14, 10, 6, 6, 6, 6, 4]) {
        0 => plain(rng, &t),
        1 => ordered(rng, &t),
        2 => merge(rng, &t),
        3 => join(rng, tables),
        4 => group(rng, &t),
        5 => distinct(rng, &t),
        6 => window(rng, &t),
        7 => subquery(rng, tables),
        8 => union(rng, &t),
        _ => count(rng, &t),
    }
}

fn columns(rng: &mut Rng, table: &Table) -> Vec<Column> {
    match rng.percent(50) {
        true => table.columns.clone(),
        false => rng.some(&table.columns, 1, 4),
    }
}

fn locking(rng: &mut Rng) -> &'static str {
    const CLAUSES: [&str; 5] =
        [" FOR UPDATE", " LOCK IN SHARE MODE", " FOR UPDATE NOWAIT", " FOR UPDATE SKIP LOCKED", ""];
    if rng.percent(8) {
        CLAUSES[rng.below(4)]
    } else {
        ""
    }
}

pub fn plain(rng: &mut Rng, t: &Table) -> String {
    let list = names(&columns(rng, t), "");
    let filter = condition(rng, t, "");
    let hint = any_hint(rng, t);
    let lock = locking(rng);
    format!("SELECT {list} FROM {}{hint} WHERE {filter}{lock}", t.name)
}

pub fn ordered(rng: &mut Rng, t: &Table) -> String {
    let Some(order) = t.total_order() else { return plain(rng, t) };
    let list = names(&columns(rng, t), "");
    let filter = condition(rng, t, "");
    let order = order_by(rng, &order, "");
    let hint = any_hint(rng, t);
    let limit = match rng.below(3) {
        0 => format!(" LIMIT {}", rng.between(1, 6)),
        1 => format!(" LIMIT {}, {}", rng.between(0, 4), rng.between(1, 6)),
        _ => String::new(),
    };
    format!("SELECT {ORDERED} {list} FROM {}{hint} WHERE {filter}{order}{limit}", t.name)
}

/// Conditions over two keys at once, for index merge.
fn merge(rng: &mut Rng, t: &Table) -> String {
    let leading = |k: &crate::schema::Key| {
        k.parts.first().and_then(|p| t.column(&p.column)).map(|c| (k.name.clone(), c.clone()))
    };
    let keyed: Vec<(String, Column)> = t.keys.iter().filter_map(leading).collect();
    let chosen = rng.some(&keyed, 2, 3);
    if chosen.len() < 2 {
        return plain(rng, t);
    }
    let parts: Vec<String> = chosen.iter().map(|(_, c)| comparison(rng, c, "")).collect();
    let keys: Vec<String> = chosen.iter().map(|(k, _)| format!("`{k}`")).collect();
    let glue = rng.one(&[" OR ", " OR ", " AND "]);
    let hint = match rng.percent(60) {
        true => format!(" FORCE INDEX ({})", keys.join(",")),
        false => String::new(),
    };
    let list = names(&t.columns, "");
    let lock = locking(rng);
    format!("SELECT {list} FROM {}{hint} WHERE {}{lock}", t.name, parts.join(glue))
}

fn join(rng: &mut Rng, tables: &[Table]) -> String {
    let pair = rng.pick(tables).cloned().zip(rng.pick(tables).cloned());
    let Some((a, b)) = pair else { return "SELECT 2".into() };
    let Some((x, y)) = join_columns(rng, &a, &b) else { return plain(rng, &a) };
    if a.temporary && a.name == b.name {
        return plain(rng, &a);
    }
    let filter = condition(rng, &a, "a.");
    let kind = rng.one(&["JOIN", "LEFT JOIN", "STRAIGHT_JOIN"]);
    let list = format!("{},{}", names(&columns(rng, &a), "a."), names(&columns(rng, &b), "b."));
    let hint = any_hint(rng, &b);
    let (an, bn) = (&a.name, &b.name);
    let extra = match rng.percent(25) {
        true => format!(" AND {}", condition_of_one(rng, &b)),
        false => String::new(),
    };
    format!("SELECT {list} FROM {an} a {kind} {bn} b{hint} ON a.{x} = b.{y}{extra} WHERE {filter}")
}

fn condition_of_one(rng: &mut Rng, table: &Table) -> String {
    match rng.pick(&table.columns).cloned() {
        Some(column) => comparison(rng, &column, "b."),
        None => "1".into(),
    }
}

/// Aggregates that do not depend on the order of rows.
fn aggregate(rng: &mut Rng, table: &Table) -> String {
    let Some(column) = rng.pick(&table.columns).cloned() else { return "COUNT(*)".into() };
    let c = &column.name;
    match column.kind.class {
        Class::Int | Class::Decimal => {
            format!("{}({c})", rng.one(&["SUM", "MIN", "MAX", "COUNT", "AVG", "BIT_XOR"]))
        }
        _ if column.kind.is_exact() && column.kind.class != Class::Bit => {
            format!("{}({c})", rng.one(&["MIN", "MAX", "COUNT", "COUNT"]))
        }
        _ => format!("{}({c})", rng.one(&["COUNT", "COUNT"])),
    }
}

fn group(rng: &mut Rng, t: &Table) -> String {
    let by = rng.some(&t.columns, 1, 2);
    let exact: Vec<Column> = by.iter().filter(|c| c.kind.is_exact()).cloned().collect();
    let mut list: Vec<String> = exact.iter().map(|c| c.name.clone()).collect();
    list.push(aggregate(rng, t));
    list.push("COUNT(*)".into());
    let filter = if rng.percent(50) { condition(rng, t, "") } else { "1".into() };
    let hint = any_hint(rng, t);
    let having = rng.one(&["", "", "", " HAVING COUNT(*) > 1"]);
    let rollup = if exact.len() == by.len() && rng.percent(8) { " WITH ROLLUP" } else { "" };
    let (list, by) = (list.join(","), names(&by, ""));
    format!("SELECT {list} FROM {}{hint} WHERE {filter} GROUP BY {by}{rollup}{having}", t.name)
}

fn distinct(rng: &mut Rng, t: &Table) -> String {
    let exact: Vec<Column> = t.columns.iter().filter(|c| c.kind.is_exact()).cloned().collect();
    let chosen = rng.some(&exact, 1, 2);
    let hint = any_hint(rng, t);
    if chosen.is_empty() || rng.percent(30) {
        let column = rng.pick(&t.columns).map(|c| c.name.clone()).unwrap_or("1".into());
        return format!("SELECT COUNT(DISTINCT {column}) FROM {}{hint}", t.name);
    }
    let filter = condition(rng, t, "");
    format!("SELECT DISTINCT {} FROM {}{hint} WHERE {filter}", names(&chosen, ""), t.name)
}

fn window(rng: &mut Rng, t: &Table) -> String {
    let Some(order) = t.total_order() else { return group(rng, t) };
    let Some(by) = rng.pick(&t.columns).cloned() else { return plain(rng, t) };
    let list = order.join(",");
    let function = match rng.below(5) {
        0 => "ROW_NUMBER()".to_owned(),
        1 => format!("LAG({}) ", order[0]),
        2 => "COUNT(*)".to_owned(),
        3 => "RANK()".to_owned(),
        _ => format!("FIRST_VALUE({})", order[0]),
    };
    let partition = format!("PARTITION BY {}", by.name);
    let order = order_by(rng, &order, "");
    format!("SELECT {list}, {function} OVER ({partition}{order}) w FROM {}", t.name)
}

fn subquery(rng: &mut Rng, tables: &[Table]) -> String {
    let pair = rng.pick(tables).cloned().zip(rng.pick(tables).cloned());
    let Some((a, b)) = pair else { return "SELECT 3".into() };
    let Some((x, y)) = join_columns(rng, &a, &b) else { return plain(rng, &a) };
    if a.temporary && a.name == b.name {
        return plain(rng, &a);
    }
    let list = names(&columns(rng, &a), "a.");
    let inner = condition(rng, &b, "b.");
    let (an, bn) = (&a.name, &b.name);
    let tail = match rng.below(5) {
        0 => format!("a.{x} IN (SELECT b.{y} FROM {bn} b WHERE {inner})"),
        1 => format!("a.{x} NOT IN (SELECT b.{y} FROM {bn} b WHERE {inner})"),
        2 => format!("EXISTS (SELECT 1 FROM {bn} b WHERE b.{y} = a.{x} AND ({inner}))"),
        3 => format!("NOT EXISTS (SELECT 1 FROM {bn} b WHERE b.{y} = a.{x})"),
        _ => format!("a.{x} = (SELECT MAX(b.{y}) FROM {bn} b WHERE {inner})"),
    };
    format!("SELECT {list} FROM {an} a WHERE {tail}")
}

fn union(rng: &mut Rng, t: &Table) -> String {
    let exact: Vec<Column> = t.columns.iter().filter(|c| c.kind.is_exact()).cloned().collect();
    let chosen = rng.some(&exact, 1, 3);
    if chosen.is_empty() {
        return plain(rng, t);
    }
    let list = names(&chosen, "");
    let kind = rng.one(&["UNION", "UNION ALL", "INTERSECT", "EXCEPT"]);
    let (one, two) = (condition(rng, t, ""), condition(rng, t, ""));
    let name = &t.name;
    if t.temporary {
        return format!("WITH q AS (SELECT {list} FROM {name} WHERE {one}) SELECT {list} FROM q");
    }
    format!("SELECT {list} FROM {name} WHERE {one} {kind} SELECT {list} FROM {name} WHERE {two}")
}

fn count(rng: &mut Rng, t: &Table) -> String {
    let hint = any_hint(rng, t);
    let filter = condition(rng, t, "");
    let first = aggregate(rng, t);
    format!("SELECT COUNT(*), {first} FROM {}{hint} WHERE {filter}", t.name)
}
