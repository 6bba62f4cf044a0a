//! What must hold at the end of a script: the same tables with the same rows, definitions and
//! AUTO_INCREMENT; CHECK TABLE has nothing to say; every index has the rows that a scan has.

use crate::compare::{compare, normal, row_difference, rows_of, Difference, Kind};
use crate::mistakes::scan_agrees;
use crate::rules::{Counts, SCAN};
use crate::run::Parted;
use crate::session::{Direct, Outcome, Row, Session};

pub fn roll_back_prepared(control: &mut Direct) {
    let prepared = control.run("XA RECOVER");
    for set in &prepared.sets {
        for row in &set.rows {
            let id = row.get(3).cloned().flatten().unwrap_or_default();
            control.run(&format!("XA ROLLBACK '{}'", String::from_utf8_lossy(&id)));
        }
    }
}

fn text(cell: &Option<Vec<u8>>) -> String {
    String::from_utf8_lossy(cell.as_deref().unwrap_or_default()).into_owned()
}

fn first_rows(outcome: &Outcome) -> &[Row] {
    outcome.sets.first().map_or(&[], |set| &set.rows)
}

/// Where the histories have parted, each side is checked by itself only.
pub fn verify(
    ours: &Session,
    theirs: &Session,
    parted: &Parted,
    counts: &mut Counts,
) -> Option<Difference> {
    let list = "SHOW FULL TABLES WHERE Table_type = 'BASE TABLE'";
    let tables: Vec<String> = first_rows(&ours.run(list)).iter().map(|row| text(&row[0])).collect();
    for table in &tables {
        if let Some(found) = own_checks(ours, table) {
            return Some(found);
        }
    }
    if parted.alone {
        return None;
    }
    let left_out: String = parted.numbers.iter().map(|table| format!(",'{table}'")).collect();
    let names = format!(
        "SELECT table_name, auto_increment FROM information_schema.tables WHERE table_schema = DATABASE() \
         AND table_type = 'BASE TABLE' AND table_name NOT IN (''{left_out})"
    );
    for table in &tables {
        let found = same(ours, theirs, &select_all(ours, table), Kind::FinalTable, counts)
            .or_else(|| same(ours, theirs, &show_create(table), Kind::Definition, counts));
        if found.is_some() {
            return found;
        }
    }
    same(ours, theirs, &names, Kind::AutoIncrement, counts).or_else(|| {
        tables.iter().find_map(|table| {
            let keys = keys_of(ours, table);
            keys.iter().find_map(|k| walk_both(ours, theirs, table, k, counts))
        })
    })
}

fn show_create(table: &str) -> String {
    format!("SHOW CREATE TABLE `{table}`")
}

fn select_all(session: &Session, table: &str) -> String {
    format!("SELECT {} FROM `{table}`", columns_of(session, table).join(","))
}

/// All columns, invisible ones too.
fn columns_of(session: &Session, table: &str) -> Vec<String> {
    let sql = format!(
        "SELECT column_name FROM information_schema.columns WHERE table_schema = DATABASE() \
         AND table_name = '{table}' ORDER BY ordinal_position"
    );
    first_rows(&session.run(&sql)).iter().map(|row| format!("`{}`", text(&row[0]))).collect()
}

fn same(
    a: &Session,
    b: &Session,
    sql: &str,
    kind: Kind,
    counts: &mut Counts,
) -> Option<Difference> {
    a.send(sql);
    b.send(sql);
    let (a, b) = (a.wait(), b.wait());
    let found = compare(sql, &a, &b, counts)?;
    let kind = if found.kind == Kind::Lost { Kind::Lost } else { kind };
    Some(Difference { kind, ..found })
}

/// What one side can be asked alone: CHECK TABLE, and every index against the rows.
fn own_checks(session: &Session, table: &str) -> Option<Difference> {
    let sql = format!("CHECK TABLE `{table}` EXTENDED");
    let outcome = session.run(&sql);
    let bad = first_rows(&outcome).iter().any(|row| text(&row[3]) != "OK") || !outcome.is_ok();
    if bad {
        let said: Vec<String> = first_rows(&outcome).iter().map(|r| text(&r[3])).collect();
        return Some(found(Kind::Check, &sql, format!("{said:?} {:?}", outcome.error)));
    }
    let columns = columns_of(session, table).join(",");
    let keys = keys_of(session, table);
    if keys.is_empty() {
        return None;
    }
    let names: Vec<String> = keys.iter().map(|k| format!("`{}`", k.name)).collect();
    let ignored = names.join(",");
    let scan = format!("SELECT {columns} FROM `{table}` IGNORE INDEX ({ignored})");
    let rows = session.run(&scan);
    let expected = rows.sets.first().map(|set| rows_of(set, false)).unwrap_or_default();
    for key in &keys {
        for sql in searches(table, &columns, key) {
            let outcome = session.run(&sql);
            if outcome.error_code() != rows.error_code() {
                let text = format!("by the index: {:?}", outcome.error);
                return Some(found(Kind::Index, &sql, text));
            }
            let got = outcome.sets.first().map(|set| rows_of(set, false)).unwrap_or_default();
            if let Some((index, scan)) = row_difference(&got, &expected, false) {
                let text = format!("by the index: {index}; by a scan: {scan}");
                return Some(found(Kind::Index, &sql, text));
            }
        }
    }
    None
}

fn found(kind: Kind, statement: &str, sluice: String) -> Difference {
    let sluice = normal("", &sluice);
    Difference { kind, statement: statement.into(), sluice, innodb: "not asked".into() }
}

pub struct KeyInfo {
    pub name: String,
    pub columns: Vec<String>,
    /// How many parts from the first on are whole columns.
    pub whole: usize,
}

fn keys_of(session: &Session, table: &str) -> Vec<KeyInfo> {
    let sql = format!(
        "SELECT index_name, GROUP_CONCAT(column_name ORDER BY seq_in_index), \
         GROUP_CONCAT(IFNULL(sub_part, 0) ORDER BY seq_in_index) \
         FROM information_schema.statistics WHERE table_schema = DATABASE() \
         AND table_name = '{table}' AND index_type = 'BTREE' AND ignored = 'NO' GROUP BY index_name \
         ORDER BY index_name"
    );
    let key = |row: &Row| KeyInfo {
        name: text(&row[0]),
        columns: text(&row[1]).split(',').map(|c| format!("`{c}`")).collect(),
        whole: text(&row[2]).split(',').take_while(|n| *n == "0").count(),
    };
    first_rows(&session.run(&sql)).iter().map(key).collect()
}

/// All rows by one index, forward and descending.
fn searches(table: &str, columns: &str, key: &KeyInfo) -> Vec<String> {
    let KeyInfo { name, columns: parts, whole } = key;
    if *whole == 0 {
        // A prefix gives no order, but there is a range of all values. Only strings have prefixes.
        let first = &parts[0];
        let range = format!("{first} IS NULL OR {first} > 'zzz' OR {first} <= 'zzz'");
        return vec![format!(
            "SELECT {columns} FROM `{table}` FORCE INDEX (`{name}`) WHERE {range}"
        )];
    }
    let order = |way: &str| {
        parts[..*whole].iter().map(|p| format!("{p} {way}")).collect::<Vec<_>>().join(",")
    };
    let select = |way| {
        let order = order(way);
        format!("SELECT {columns} FROM `{table}` FORCE INDEX (`{name}`) ORDER BY {order}")
    };
    vec![select("ASC"), select("DESC")]
}

/// Rows in the order of an index, ties by the primary key; and the index alone.
fn walk_both(
    a: &Session,
    b: &Session,
    table: &str,
    key: &KeyInfo,
    counts: &mut Counts,
) -> Option<Difference> {
    let KeyInfo { name, columns: parts, whole } = key;
    if *whole < parts.len() {
        return None;
    }
    let parts = parts.join(",");
    let alone = format!("SELECT {parts} FROM `{table}` FORCE INDEX (`{name}`) ORDER BY {parts}");
    let found = same(a, b, &alone, Kind::Index, counts)?;
    // The tables are the same. Where InnoDB's index alone has other bytes than its rows, it is InnoDB's mistake.
    if found.kind == Kind::Index && scan_agrees(b, &alone, &a.run(&alone)) {
        counts.add(SCAN.id);
        return None;
    }
    Some(found)
}
