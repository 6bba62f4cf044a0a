//! Statements that change rows. Where the order of rows matters (a unique key may refuse one of
//! them) it is fixed by ORDER BY over a unique key or by the index that must be used.

use crate::chance::Chance;
use crate::compare::{FREE, ORDERED};
use crate::exprs::{any_hint, condition, force, names, order_by};
use crate::load;
use crate::schema::{Column, Style, Table};
use crate::types::Class;
use sluice_rig::rng::Rng;

pub fn statement(rng: &mut Rng, tables: &[Table], style: Style) -> String {
    let Some(table) = rng.pick(tables).cloned() else { return "DO 1".into() };
    match rng.weighted(&[40, 24, 14, 6, 4, 6, 8]) {
        0 => insert(rng, &table, style),
        1 => update(rng, &table),
        2 => delete(rng, &table),
        3 => multi_update(rng, tables),
        4 => multi_delete(rng, tables),
        6 => load::statement(rng, &table, style),
        _ => insert_select(rng, &table, tables),
    }
}

fn target_columns(rng: &mut Rng, table: &Table) -> Vec<Column> {
    let mut columns = table.written();
    columns.retain(|c| {
        let optional = c.nullable || c.default.is_some() || c.auto_increment;
        let rare = if optional { 18 } else { 3 };
        !rng.percent(rare)
    });
    columns
}

fn row(rng: &mut Rng, columns: &[Column]) -> String {
    let values: Vec<String> = columns.iter().map(|c| c.value(rng)).collect();
    format!("({})", values.join(","))
}

pub fn insert(rng: &mut Rng, table: &Table, style: Style) -> String {
    let columns = target_columns(rng, table);
    let most = if style.small { 3 } else { 9 };
    let count = if rng.percent(40) { 1 } else { rng.between(1, most) };
    let rows: Vec<String> = (0..count).map(|_| row(rng, &columns)).collect();
    let list = names(&columns, "");
    let body = format!("INTO {} ({list}) VALUES {}", table.name, rows.join(","));
    match rng.weighted(&[45, 14, 20, 14, 7]) {
        0 => format!("INSERT {body}"),
        1 => format!("INSERT IGNORE {body}"),
        2 if style.on_duplicate => {
            let sets = on_duplicate(rng, table);
            format!("INSERT {body}{sets}")
        }
        2 | 3 => format!("REPLACE {body}"),
        _ => {
            let what = rng.one(&["INSERT", "INSERT IGNORE", "REPLACE"]);
            let returned = names(&table.columns, "");
            format!("{what} {ORDERED} {body} RETURNING {returned}")
        }
    }
}

fn on_duplicate(rng: &mut Rng, table: &Table) -> String {
    let columns = rng.some(&table.written(), 1, 2);
    let set = |c: &Column| {
        let name = &c.name;
        match rng.below(4) {
            0 if c.kind.class == Class::Int => format!("{name} = {name} + 1"),
            0 | 1 => format!("{name} = VALUES({name})"),
            2 => format!("{name} = {name}"),
            _ => format!("{name} = {}", c.value(rng)),
        }
    };
    let sets: Vec<String> = columns.iter().map(set).collect();
    match sets.is_empty() {
        true => String::new(),
        false => format!(" ON DUPLICATE KEY UPDATE {}", sets.join(", ")),
    }
}

fn assignment(rng: &mut Rng, column: &Column, alias: &str) -> String {
    let name = format!("{alias}{}", column.name);
    if column.kind.class == Class::Int && rng.percent(40) {
        let change = rng.one(&["+ 1", "- 1", "+ 3", "+ 0"]);
        return format!("{name} = {name} {change}");
    }
    format!("{name} = {}", column.value(rng))
}

pub fn update(rng: &mut Rng, table: &Table) -> String {
    let columns = rng.some(&table.written(), 1, 3);
    if columns.is_empty() {
        return "DO 2".into();
    }
    let sets: Vec<String> = columns.iter().map(|c| assignment(rng, c, "")).collect();
    let sets = sets.join(", ");
    let filter = condition(rng, table, "");
    let ignore = if rng.percent(12) { " IGNORE" } else { "" };
    let name = &table.name;
    let unique = columns.iter().any(|c| table.in_unique(&c.name)) || !table.checks.is_empty();
    let total = table.total_order();
    match (rng.below(3), total.clone()) {
        (0, Some(order)) => {
            let order = order_by(rng, &order, "");
            let limit = limit(rng);
            format!("UPDATE{ignore} {name} SET {sets} WHERE {filter}{order}{limit}")
        }
        (1, _) | (_, None) => {
            let hint = force(rng, table);
            // Equal entries of two partitions come in the order of hidden keys.
            let hidden = table.partitions.is_some() && total.is_none();
            let free = if hidden { format!(" {FREE}") } else { String::new() };
            format!("UPDATE{free}{ignore} {name}{hint} SET {sets} WHERE {filter}")
        }
        (_, Some(order)) if unique => {
            let order = order_by(rng, &order, "");
            format!("UPDATE{ignore} {name} SET {sets} WHERE {filter}{order}")
        }
        _ => format!("UPDATE {FREE}{ignore} {name} SET {sets} WHERE {filter}"),
    }
}

fn limit(rng: &mut Rng) -> String {
    if rng.percent(50) {
        format!(" LIMIT {}", rng.between(1, 5))
    } else {
        String::new()
    }
}

pub fn delete(rng: &mut Rng, table: &Table) -> String {
    let name = &table.name;
    let filter = condition(rng, table, "");
    let returning = match rng.percent(20) {
        true => format!(" RETURNING {}", names(&table.columns, "")),
        false => String::new(),
    };
    match table.total_order() {
        Some(order) if rng.percent(60) => {
            let order = order_by(rng, &order, "");
            let limit = limit(rng);
            format!("DELETE {FREE} FROM {name} WHERE {filter}{order}{limit}{returning}")
        }
        _ => format!("DELETE {FREE} FROM {name} WHERE {filter}{returning}"),
    }
}

/// Two columns that can be compared without a conversion.
pub fn join_columns(rng: &mut Rng, a: &Table, b: &Table) -> Option<(String, String)> {
    let mut pairs = Vec::new();
    for x in &a.columns {
        for y in &b.columns {
            if x.kind.joins(&y.kind) {
                pairs.push((x.name.clone(), y.name.clone()));
            }
        }
    }
    rng.pick(&pairs).cloned()
}

fn two(rng: &mut Rng, tables: &[Table]) -> Option<(Table, Table, String, String)> {
    let a = rng.pick(tables)?.clone();
    let b = rng.pick(tables)?.clone();
    let (x, y) = join_columns(rng, &a, &b)?;
    // A temporary table cannot be opened twice.
    (!(a.temporary && a.name == b.name)).then_some((a, b, x, y))
}

/// Only columns of no unique key, only constants: the order of the join does not matter.
fn multi_update(rng: &mut Rng, tables: &[Table]) -> String {
    let Some((a, b, x, y)) = two(rng, tables) else { return "DO 3".into() };
    let constant = |rng: &mut Rng, t: &Table, alias: &str, joined: &str| {
        let free = |c: &&Column| {
            !t.in_unique(&c.name) && !c.auto_increment && c.name != joined && !read_by(t, &c.name)
        };
        let columns: Vec<Column> = t.written().iter().filter(free).cloned().collect();
        let column = rng.pick(&columns)?.clone();
        let value = column.kind.literal(rng, false);
        Some(format!("{alias}{} = {value}", column.name))
    };
    let mut sets: Vec<String> = constant(rng, &a, "a.", &x).into_iter().collect();
    if a.name != b.name {
        sets.extend(constant(rng, &b, "b.", &y));
    }
    if sets.is_empty() {
        return "DO 3".into();
    }
    let filter = condition(rng, &a, "a.");
    let (a, b, sets) = (&a.name, &b.name, sets.join(", "));
    format!("UPDATE {FREE} {a} a JOIN {b} b ON a.{x} = b.{y} SET {sets} WHERE {filter}")
}

fn read_by(table: &Table, column: &str) -> bool {
    let reads = |c: &Column| c.generated.as_ref().is_some_and(|g| g.0.contains(column));
    table.columns.iter().any(reads) || table.checks.iter().any(|c| c.contains(column))
}

fn multi_delete(rng: &mut Rng, tables: &[Table]) -> String {
    let Some((a, b, x, y)) = two(rng, tables) else { return "DO 4".into() };
    if a.name == b.name {
        return "DO 4".into();
    }
    let filter = condition(rng, &a, "a.");
    let which = rng.one(&["a", "b", "a,b"]);
    let (a, b) = (&a.name, &b.name);
    format!("DELETE {FREE} {which} FROM {a} a JOIN {b} b ON a.{x} = b.{y} WHERE {filter}")
}

/// Columns of the same type from a table with a total order.
fn insert_select(rng: &mut Rng, table: &Table, tables: &[Table]) -> String {
    let Some(source) = rng.pick(tables).cloned() else { return "DO 5".into() };
    let Some(order) = source.total_order() else { return "DO 5".into() };
    if table.temporary && source.name == table.name {
        return "DO 5".into();
    }
    let mut targets = Vec::new();
    let mut values = Vec::new();
    for column in table.written() {
        let fits = |c: &&Column| c.kind.class == column.kind.class;
        let found = source.columns.iter().find(fits);
        if column.auto_increment && rng.percent(60) {
            continue;
        }
        targets.push(column.name.clone());
        values.push(match found {
            Some(c) => c.name.clone(),
            None => column.value(rng).replace("DEFAULT", "NULL"),
        });
    }
    let what = rng.one(&["INSERT", "INSERT IGNORE", "REPLACE"]);
    let (targets, values) = (targets.join(","), values.join(","));
    let order = order_by(rng, &order, "");
    let filter = condition(rng, &source, "");
    let limit = limit(rng);
    let (name, from) = (&table.name, &source.name);
    let hint = any_hint(rng, &source);
    // With a sort the rows are numbered as they come out of it.
    format!(
        "{what} {FREE} INTO {name} ({targets}) SELECT {values} FROM {from}{hint} \
         WHERE {filter}{order}{limit}"
    )
}
