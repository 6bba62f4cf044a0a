//! Conditions over columns, and hints.

use crate::chance::Chance;
use crate::schema::{Column, Table};
use crate::types::Class;
use sluice_rig::rng::Rng;

/// `alias` is "" or "a.".
pub fn condition(rng: &mut Rng, table: &Table, alias: &str) -> String {
    let count = [1, 1, 1, 2, 2, 3][rng.below(6)];
    let mut out = String::new();
    for at in 0..count {
        if at > 0 {
            out.push_str(if rng.percent(60) { " AND " } else { " OR " });
        }
        let Some(column) = keyed_column(rng, table) else { return "1".into() };
        out.push_str(&comparison(rng, &column, alias));
    }
    if count > 1 && rng.percent(15) {
        out = format!("NOT ({out})");
    }
    out
}

/// Columns of keys are asked for more often.
fn keyed_column(rng: &mut Rng, table: &Table) -> Option<Column> {
    let keyed: Vec<&Column> = table
        .keys
        .iter()
        .filter_map(|k| k.parts.first())
        .filter_map(|p| table.column(&p.column))
        .collect();
    match rng.percent(70) {
        true if !keyed.is_empty() => rng.pick(&keyed).map(|c| (*c).clone()),
        _ => rng.pick(&table.columns).cloned(),
    }
}

pub fn comparison(rng: &mut Rng, column: &Column, alias: &str) -> String {
    let name = format!("{alias}{}", column.name);
    let kind = &column.kind;
    let value = |rng: &mut Rng| kind.literal(rng, false);
    let choice = match kind.has_ranges() {
        true => rng.weighted(&[30, 5, 15, 12, 15, 8, 5, 6]),
        false => rng.weighted(&[40, 5, 0, 0, 15, 8, 5, 0]),
    };
    match choice {
        0 => format!("{name} = {}", value(rng)),
        1 => format!("{name} <=> {}", if rng.percent(30) { "NULL".into() } else { value(rng) }),
        2 => format!("{name} {} {}", rng.one(&["<", "<=", ">", ">="]), value(rng)),
        3 => format!("{name} BETWEEN {} AND {}", value(rng), value(rng)),
        4 => {
            let values: Vec<String> = (0..rng.between(1, 4)).map(|_| value(rng)).collect();
            format!("{name} IN ({})", values.join(","))
        }
        5 => format!("{name} IS{} NULL", if rng.percent(40) { " NOT" } else { "" }),
        6 => format!("{name} <> {}", value(rng)),
        _ if kind.class == Class::Text => {
            format!("{name} LIKE '{}'", rng.one(&["a%", "%b", "ab%", "_", "z%z", "A%"]))
        }
        _ => format!("{name} {} {}", rng.one(&["<", ">"]), value(rng)),
    }
}

/// A hint that makes both engines take the same index, if there is one.
pub fn force(rng: &mut Rng, table: &Table) -> String {
    match rng.pick(&table.keys) {
        Some(key) => format!(" FORCE INDEX ({})", key_name(&key.name)),
        None => String::new(),
    }
}

pub fn any_hint(rng: &mut Rng, table: &Table) -> String {
    let names: Vec<String> = table.keys.iter().map(|k| key_name(&k.name)).collect();
    if names.is_empty() || rng.percent(50) {
        return String::new();
    }
    let some = rng.some(&names, 1, 3).join(",");
    format!(" {} INDEX ({some})", rng.one(&["FORCE", "FORCE", "IGNORE", "USE"]))
}

fn key_name(name: &str) -> String {
    if name == crate::schema::PRIMARY {
        "`PRIMARY`".into()
    } else {
        name.to_owned()
    }
}

pub fn order_by(rng: &mut Rng, columns: &[String], alias: &str) -> String {
    let way = rng.one(&["", " DESC"]);
    let items: Vec<String> = columns.iter().map(|c| format!("{alias}{c}{way}")).collect();
    format!(" ORDER BY {}", items.join(","))
}

pub fn names(columns: &[Column], alias: &str) -> String {
    columns.iter().map(|c| format!("{alias}{}", c.name)).collect::<Vec<_>>().join(",")
}
