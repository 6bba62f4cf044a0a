//! Views, stored functions and procedures, triggers, prepared statements, HANDLER.

use crate::chance::Chance;
use crate::dml;
use crate::exprs::{condition, names};
use crate::gen::Planned;
use crate::queries;
use crate::schema::{Style, Table};
use crate::types::Class;
use sluice_rig::rng::Rng;

#[derive(Default)]
pub struct Programs {
    views: Vec<String>,
    functions: Vec<String>,
    procedures: Vec<String>,
}

fn one(sql: String) -> Vec<Planned> {
    vec![Planned::plain(sql)]
}

/// `fresh` ends in a number that no other name has.
pub fn statement(
    known: &mut Programs,
    rng: &mut Rng,
    tables: &[Table],
    fresh: &str,
    style: Style,
) -> Vec<Planned> {
    let Some(table) = rng.pick(tables).cloned() else { return Vec::new() };
    let number = fresh.trim_start_matches('t');
    match rng.weighted(&[20, 12, 14, 12, 14, 8, 18]) {
        0 => prepare(rng, tables, style),
        1 => view(known, rng, &table, number),
        2 => trigger(rng, tables, &table, number, style),
        3 => function(known, rng, &table, number),
        4 => handler(rng, &table),
        5 => procedure(known, rng, tables, number, style),
        _ => use_one(known, rng),
    }
}

fn quoted(sql: &str) -> String {
    format!("'{}'", sql.replace('\\', "\\\\").replace('\'', "''"))
}

fn prepare(rng: &mut Rng, tables: &[Table], style: Style) -> Vec<Planned> {
    let sql = match rng.percent(50) {
        true => dml::statement(rng, tables, style),
        false => queries::statement(rng, tables),
    };
    // What the comparison reads from the text is in the text of EXECUTE as well.
    let marks: Vec<&str> = [crate::compare::ORDERED, crate::compare::FREE]
        .into_iter()
        .filter(|mark| sql.contains(mark))
        .collect();
    let execute = format!("EXECUTE {} p", marks.join(" "));
    let mut plan = vec![Planned::plain(format!("PREPARE p FROM {}", quoted(&sql)))];
    for _ in 0..rng.between(1, 2) {
        plan.push(Planned::plain(execute.clone()));
    }
    plan
}

fn view(known: &mut Programs, rng: &mut Rng, table: &Table, number: &str) -> Vec<Planned> {
    if table.temporary {
        return Vec::new();
    }
    let name = format!("v{number}");
    let filter = condition(rng, table, "");
    let list = names(&table.columns, "");
    known.views.push(name.clone());
    one(format!("CREATE VIEW {name} AS SELECT {list} FROM {} WHERE {filter}", table.name))
}

fn use_one(known: &Programs, rng: &mut Rng) -> Vec<Planned> {
    let view = rng.pick(&known.views);
    let function = rng.pick(&known.functions);
    let procedure = rng.pick(&known.procedures);
    match (rng.below(3), view, function, procedure) {
        (0, Some(view), _, _) => one(format!("SELECT * FROM {view}")),
        (1, _, Some(function), _) => one(format!("SELECT {function}({})", rng.between(0, 9))),
        (2, _, _, Some(procedure)) => one(format!("CALL {procedure}()")),
        _ => Vec::new(),
    }
}

fn function(known: &mut Programs, rng: &mut Rng, table: &Table, number: &str) -> Vec<Planned> {
    let ints: Vec<&str> = table
        .columns
        .iter()
        .filter(|c| c.kind.class == Class::Int)
        .map(|c| c.name.as_str())
        .collect();
    let Some(column) = rng.pick(&ints) else { return Vec::new() };
    if table.temporary {
        return Vec::new();
    }
    let name = format!("f{number}");
    known.functions.push(name.clone());
    let table = &table.name;
    one(format!(
        "CREATE FUNCTION {name}(x INT) RETURNS INT READS SQL DATA RETURN (SELECT COUNT(*) FROM \
         {table} WHERE {column} >= x)"
    ))
}

fn procedure(
    known: &mut Programs,
    rng: &mut Rng,
    tables: &[Table],
    number: &str,
    style: Style,
) -> Vec<Planned> {
    let name = format!("q{number}");
    known.procedures.push(name.clone());
    let mut body: Vec<String> =
        (0..rng.between(1, 3)).map(|_| dml::statement(rng, tables, style)).collect();
    let handler = rng.one(&["", "DECLARE CONTINUE HANDLER FOR SQLEXCEPTION BEGIN END; "]);
    if !handler.is_empty() {
        // The server begins a result set that it never ends when the statement fails.
        body.iter_mut().for_each(|sql| sql.truncate(sql.find(" RETURNING").unwrap_or(sql.len())));
    }
    one(format!("CREATE PROCEDURE {name}() BEGIN {handler}{}; END", body.join("; ")))
}

fn trigger(
    rng: &mut Rng,
    tables: &[Table],
    table: &Table,
    number: &str,
    style: Style,
) -> Vec<Planned> {
    if table.temporary {
        return Vec::new();
    }
    let time = rng.one(&["BEFORE", "AFTER"]);
    let event = rng.one(&["INSERT", "UPDATE", "DELETE"]);
    let other = rng.pick(tables).filter(|t| t.name != table.name && !t.temporary).cloned();
    // An UPDATE of two tables does not compute virtual columns again after a trigger: their indexes are
    // spoiled then, in InnoDB as well.
    let is_read = |name: &str| {
        let reads = |g: &(String, bool)| !g.1 && g.0.contains(name);
        table.columns.iter().any(|c| c.generated.as_ref().is_some_and(reads))
    };
    let ints: Vec<String> = table
        .written()
        .iter()
        .filter(|c| c.kind.class == Class::Int && !c.auto_increment)
        .filter(|c| event == "INSERT" || !is_read(&c.name))
        .map(|c| c.name.clone())
        .collect();
    let body = match (other, rng.pick(&ints)) {
        (Some(other), _) if rng.percent(60) => {
            dml::insert(rng, &other, Style { small: true, ..style })
        }
        (_, Some(c)) if time == "BEFORE" && event != "DELETE" => {
            format!("SET NEW.{c} = NEW.{c} % 9")
        }
        _ => "SET @n = @n + 1".to_owned(),
    };
    if body.contains("RETURNING") {
        return Vec::new();
    }
    let name = &table.name;
    one(format!("CREATE TRIGGER g{number} {time} {event} ON {name} FOR EACH ROW {body}"))
}

/// A walk by a key. Rows with equal keys come in the order of the primary key.
fn handler(rng: &mut Rng, table: &Table) -> Vec<Planned> {
    let name = &table.name;
    let Some(key) = rng.pick(&table.keys).cloned() else { return Vec::new() };
    let total = table.total_order().is_some() && table.partitions.is_none();
    if !total || table.temporary {
        return Vec::new();
    }
    let mut plan = vec![Planned::plain(format!("HANDLER {name} OPEN"))];
    let first = rng.one(&["FIRST", "LAST"]);
    let next = if first == "FIRST" { "NEXT" } else { "PREV" };
    let key_name = format!("`{}`", key.name);
    let mark = crate::compare::ORDERED;
    plan.push(Planned::plain(format!("HANDLER {mark} {name} READ {key_name} {first}")));
    for _ in 0..2 {
        let limit = rng.between(1, 5);
        let sql = format!("HANDLER {mark} {name} READ {key_name} {next} LIMIT {limit}");
        plan.push(Planned::plain(sql));
    }
    if let Some(column) = key.parts.first().and_then(|p| table.column(&p.column)) {
        let value = column.kind.literal(rng, false);
        let op = rng.one(&["=", ">=", ">", "<=", "<"]);
        let limit = rng.between(1, 4);
        let sql = format!("HANDLER {mark} {name} READ {key_name} {op} ({value}) LIMIT {limit}");
        plan.push(Planned::plain(sql));
    }
    plan.push(Planned::plain(format!("HANDLER {name} CLOSE")));
    plan
}
