//! Statements that change tables, each with what they make of the generator's picture.

use crate::chance::Chance;
use crate::gen::{Effect, Planned};
use crate::schema::{random_column, random_key, Column, Key, Table, PRIMARY};
use crate::types::{Class, Type};
use sluice_rig::rng::Rng;

fn changed(sql: String, table: Table) -> Vec<Planned> {
    vec![Planned { sql, effect: Some(Effect::Set(table)) }]
}

fn alone(sql: String) -> Vec<Planned> {
    vec![Planned { sql, effect: None }]
}

/// `fresh` is a name that no table has.
pub fn statement(rng: &mut Rng, table: &Table, fresh: &str) -> Vec<Planned> {
    match rng.weighted(&[12, 8, 14, 16, 10, 5, 4, 6, 6, 3, 7, 8, 9]) {
        0 => add_column(rng, table),
        1 => drop_column(rng, table),
        2 => modify(rng, table),
        3 => add_key(rng, table),
        4 => drop_key(rng, table),
        5 => rename_column(rng, table),
        6 => rename_table(table, fresh),
        7 => alone(format!("TRUNCATE TABLE {}", table.name)),
        8 => alone(format!("{} TABLE {}", rng.one(&["OPTIMIZE", "ANALYZE"]), table.name)),
        9 => alone(format!("ALTER TABLE {} FORCE", table.name)),
        10 => copy(rng, table, fresh),
        11 => partition(rng, table, fresh),
        _ => other(rng, table),
    }
}

fn add_column(rng: &mut Rng, table: &Table) -> Vec<Planned> {
    let mut after = table.clone();
    let kind = Type::random(rng);
    let column = random_column(rng, &mut after, kind);
    let at = rng.below(after.columns.len() + 1);
    let place = match at {
        0 => " FIRST".to_owned(),
        at if at == after.columns.len() => String::new(),
        at => format!(" AFTER {}", after.columns[at - 1].name),
    };
    let sql = format!("ALTER TABLE {} ADD COLUMN {}{place}", table.name, column.definition());
    after.columns.insert(at, column);
    changed(sql, after)
}

fn drop_column(rng: &mut Rng, table: &Table) -> Vec<Planned> {
    let Some(column) = rng.pick(&table.columns).map(|c| c.name.clone()) else { return Vec::new() };
    let needed = table.partitions.as_ref().is_some_and(|p| p.column == column)
        || table.checks.iter().any(|c| c.contains(&column));
    if table.columns.len() < 3 || needed {
        return Vec::new();
    }
    let sql = format!("ALTER TABLE {} DROP COLUMN {column}", table.name);
    changed(sql, table.without(&column))
}

fn modify(rng: &mut Rng, table: &Table) -> Vec<Planned> {
    let mut after = table.clone();
    let at = rng.below(after.columns.len());
    let column = &mut after.columns[at];
    if column.auto_increment {
        return Vec::new();
    }
    if let Some((_, stored)) = &mut column.generated {
        *stored = !*stored;
    } else {
        match rng.below(4) {
            0 => column.nullable = !column.nullable,
            1 if column.kind.class == Class::Text => column.kind = Type::text(rng),
            1 if column.kind.class == Class::Int => column.kind = Type::integer(rng),
            1 if table.columns.iter().all(Column::is_written) => column.kind = Type::random(rng),
            2 => column.default = Some(column.kind.literal(rng, false)),
            _ => {}
        }
        if column.default.as_deref().is_some_and(|d| d == "NULL") || column.on_update {
            return Vec::new();
        }
    }
    let place = rng.one(&["", "", " FIRST"]);
    let sql = format!("ALTER TABLE {} MODIFY COLUMN {}{place}", table.name, column.definition());
    if !place.is_empty() {
        let column = after.columns.remove(at);
        after.columns.insert(0, column);
    }
    changed(sql, after)
}

fn add_key(rng: &mut Rng, table: &Table) -> Vec<Planned> {
    let mut after = table.clone();
    let Some(mut key) = random_key(rng, &mut after) else { return Vec::new() };
    let name = &table.name;
    let has_primary = after.keys.iter().any(|k| k.name == PRIMARY);
    if rng.percent(20) && !table.temporary {
        key.name = PRIMARY.into();
        key.unique = true;
        let drop = if has_primary { "DROP PRIMARY KEY, " } else { "" };
        let sql = format!("ALTER TABLE {name} {drop}ADD {}", key.definition());
        after.keys.retain(|k| k.name != PRIMARY);
        for part in &key.parts {
            if let Some(c) = after.columns.iter_mut().find(|c| c.name == part.column) {
                c.nullable = false;
            }
        }
        after.keys.insert(0, key);
        return changed(sql, after);
    }
    let sql = match rng.percent(30) {
        true => create_index(name, &key),
        false => format!("ALTER TABLE {name} ADD {}", key.definition()),
    };
    after.keys.push(key);
    changed(sql, after)
}

fn create_index(table: &str, key: &Key) -> String {
    let text = key.definition();
    let parts = text.find('(').map_or("", |at| &text[at..]);
    let unique = if key.unique { "UNIQUE " } else { "" };
    format!("CREATE {unique}INDEX {} ON {table} {parts}", key.name)
}

fn drop_key(rng: &mut Rng, table: &Table) -> Vec<Planned> {
    let Some(key) = rng.pick(&table.keys).map(|k| k.name.clone()) else { return Vec::new() };
    let mut after = table.clone();
    after.keys.retain(|k| k.name != key);
    let what = if key == PRIMARY { "PRIMARY KEY".to_owned() } else { format!("KEY {key}") };
    changed(format!("ALTER TABLE {} DROP {what}", table.name), after)
}

fn rename_column(rng: &mut Rng, table: &Table) -> Vec<Planned> {
    let mut after = table.clone();
    let at = rng.below(after.columns.len());
    let old = after.columns[at].name.clone();
    let used =
        after.columns.iter().any(|c| c.generated.as_ref().is_some_and(|g| g.0.contains(&old)))
            || after.checks.iter().any(|c| c.contains(&old))
            || after.partitions.as_ref().is_some_and(|p| p.column == old);
    if used {
        return Vec::new();
    }
    after.next += 1;
    let new = format!("r{}", after.next);
    after.columns[at].name.clone_from(&new);
    for part in after.keys.iter_mut().flat_map(|k| &mut k.parts) {
        if part.column == old {
            part.column.clone_from(&new);
        }
    }
    changed(format!("ALTER TABLE {} RENAME COLUMN {old} TO {new}", table.name), after)
}

fn rename_table(table: &Table, fresh: &str) -> Vec<Planned> {
    let mut after = table.clone();
    after.name = fresh.to_owned();
    let sql = format!("ALTER TABLE {} RENAME TO {fresh}", table.name);
    vec![Planned { sql, effect: Some(Effect::Replace(table.name.clone(), after)) }]
}

fn copy(rng: &mut Rng, table: &Table, fresh: &str) -> Vec<Planned> {
    let mut after = table.clone();
    after.name = fresh.to_owned();
    after.temporary = false;
    let name = &table.name;
    match (rng.below(3), table.total_order()) {
        (0, Some(order)) if table.columns.iter().all(|c| c.generated.is_none()) => {
            after.keys.clear();
            after.checks.clear();
            after.partitions = None;
            after.columns.retain(|c| !c.invisible);
            for column in &mut after.columns {
                column.auto_increment = false;
                column.on_update = false;
            }
            let order = order.join(",");
            let sql = format!("CREATE TABLE {fresh} AS SELECT * FROM {name} ORDER BY {order}");
            changed(sql, after)
        }
        (1, _) if !table.temporary => {
            let list: Vec<String> = table.written().iter().map(|c| c.name.clone()).collect();
            let list = list.join(",");
            let fill = format!("INSERT INTO {fresh} ({list}) SELECT {list} FROM {name}");
            let mut plan = changed(format!("CREATE TABLE {fresh} LIKE {name}"), after);
            if table.columns.iter().all(|c| !c.auto_increment) && table.checks.is_empty() {
                plan.push(Planned { sql: fill, effect: None });
            }
            plan
        }
        _ => Vec::new(),
    }
}

fn partition(rng: &mut Rng, table: &Table, fresh: &str) -> Vec<Planned> {
    let name = &table.name;
    let Some(partitions) = &table.partitions else { return Vec::new() };
    let Some(one) = rng.pick(&partitions.names).cloned() else { return Vec::new() };
    match rng.below(5) {
        0 => alone(format!("ALTER TABLE {name} TRUNCATE PARTITION {one}")),
        1 => alone(format!("ALTER TABLE {name} REBUILD PARTITION {one}")),
        2 => alone(format!("SELECT COUNT(*) FROM {name} PARTITION ({one})")),
        3 => {
            let mut after = table.clone();
            after.partitions = None;
            changed(format!("ALTER TABLE {name} REMOVE PARTITIONING"), after)
        }
        _ => [
            // Without autocommit InnoDB waits for itself.
            "SET autocommit=1".to_owned(),
            format!("CREATE TABLE {fresh} LIKE {name}"),
            format!("ALTER TABLE {fresh} REMOVE PARTITIONING"),
            format!("ALTER TABLE {name} EXCHANGE PARTITION {one} WITH TABLE {fresh}"),
        ]
        .map(|sql| Planned { sql, effect: None })
        .into(),
    }
}

fn other(rng: &mut Rng, table: &Table) -> Vec<Planned> {
    let name = &table.name;
    match rng.below(4) {
        0 if table.columns.iter().any(|c| c.auto_increment) => {
            alone(format!("ALTER TABLE {name} AUTO_INCREMENT = {}", rng.between(1, 200)))
        }
        1 => alone(format!("ALTER TABLE {name} COMMENT = 'x'")),
        2 => {
            let Some(column) = rng.pick(&table.columns).cloned() else { return Vec::new() };
            let mut after = table.clone();
            if !column.is_written() || column.auto_increment || column.kind.blob {
                return Vec::new();
            }
            let value = column.kind.literal(rng, false);
            let sql =
                format!("ALTER TABLE {name} ALTER COLUMN {} SET DEFAULT {value}", column.name);
            for c in after.columns.iter_mut().filter(|c| c.name == column.name) {
                c.default = Some(value.clone());
            }
            changed(sql, after)
        }
        _ => {
            let Some(key) = rng.pick(&table.keys) else { return Vec::new() };
            if key.name == PRIMARY {
                return Vec::new();
            }
            let word = rng.one(&["IGNORED", "NOT IGNORED"]);
            alone(format!("ALTER TABLE {name} ALTER INDEX {} {word}", key.name))
        }
    }
}
