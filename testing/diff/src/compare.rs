//! Two outcomes of one statement, compared: rows, affected rows, LAST_INSERT_ID, error, warnings.

use crate::rules::{self, Counts};
use crate::session::{Outcome, ResultSet, Row};

/// What differs. A script is shrunk as long as the same kind of difference stays.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub enum Kind {
    Rows,
    Affected,
    InsertId,
    Info,
    Error,
    ErrorText,
    Warnings,
    /// One side waits for a lock, the other does not.
    Wait,
    /// Sluice has not locked what the statements of two sessions both need.
    Lock,
    /// The connection or the server is gone.
    Lost,
    FinalTable,
    Definition,
    AutoIncrement,
    Check,
    Index,
}

#[derive(Clone, Debug)]
pub struct Difference {
    pub kind: Kind,
    pub statement: String,
    pub sluice: String,
    pub innodb: String,
}

/// In a statement: its rows come in a total order, and are compared in order.
pub const ORDERED: &str = "/*ordered*/";
/// In a statement: the server may visit rows in any order, so row numbers in texts mean nothing.
pub const FREE: &str = "/*free*/";

pub struct Observation<'a> {
    pub kind: Kind,
    pub sql: &'a str,
    pub sluice: &'a Outcome,
    pub innodb: &'a Outcome,
}

/// The first difference that no rule explains.
pub fn compare(
    sql: &str,
    sluice: &Outcome,
    innodb: &Outcome,
    counts: &mut Counts,
) -> Option<Difference> {
    for (kind, found) in differences(sql, sluice, innodb) {
        let seen = Observation { kind, sql, sluice, innodb };
        if let Some(rule) = rules::explain(&seen) {
            counts.add(rule);
            continue;
        }
        let (ours, theirs) = found;
        return Some(Difference { kind, statement: sql.into(), sluice: ours, innodb: theirs });
    }
    None
}

type Texts = (String, String);

fn differences(sql: &str, a: &Outcome, b: &Outcome) -> Vec<(Kind, Texts)> {
    if a.lost.is_some() || b.lost.is_some() {
        return vec![(Kind::Lost, (format!("{:?}", a.lost), format!("{:?}", b.lost)))];
    }
    let mut found = Vec::new();
    if a.error_code() != b.error_code() {
        found.push((Kind::Error, (error_text(a), error_text(b))));
        return found;
    }
    let mut differ = |kind, ours: String, theirs: String| {
        if ours != theirs {
            found.push((kind, (ours, theirs)));
        }
    };
    differ(Kind::ErrorText, normal_error(sql, a), normal_error(sql, b));
    differ(Kind::Affected, a.affected_rows.to_string(), b.affected_rows.to_string());
    differ(Kind::InsertId, a.insert_id.to_string(), b.insert_id.to_string());
    differ(Kind::Info, a.info.clone(), b.info.clone());
    differ(Kind::Warnings, warnings(sql, a), warnings(sql, b));
    if let Some(texts) = set_difference(sql, &a.sets, &b.sets) {
        found.insert(0, (Kind::Rows, texts));
    }
    found
}

fn error_text(outcome: &Outcome) -> String {
    match &outcome.error {
        Some((code, text)) => format!("{code}: {text}"),
        None => format!("no error, {} rows affected", outcome.affected_rows),
    }
}

fn normal_error(sql: &str, outcome: &Outcome) -> String {
    outcome.error.as_ref().map(|e| format!("{}: {}", e.0, normal(sql, &e.1))).unwrap_or_default()
}

fn warnings(sql: &str, outcome: &Outcome) -> String {
    let own = |text: &str| text.starts_with("Sluice: ") || text.starts_with("InnoDB: ");
    let mut lines: Vec<String> = outcome
        .warnings
        .iter()
        .filter(|w| !own(&w.2))
        .map(|w| format!("{} {} {}", w.0, w.1, normal(sql, &w.2)))
        .collect();
    lines.sort();
    lines.join("\n")
}

/// A text without what names the side.
pub fn normal(sql: &str, text: &str) -> String {
    let mut out = text.replace("d_sluice", "d").replace("d_innodb", "d");
    out = out.replace("Sluice", "E").replace("InnoDB", "E");
    if sql.contains(FREE) {
        out = without_row_number(&out);
    }
    out
}

fn without_row_number(text: &str) -> String {
    match text.find(" at row ") {
        Some(at) => text[..at].to_owned(),
        None => text.to_owned(),
    }
}

fn set_difference(sql: &str, a: &[ResultSet], b: &[ResultSet]) -> Option<Texts> {
    if a.len() != b.len() {
        return Some((format!("{} result sets", a.len()), format!("{} result sets", b.len())));
    }
    let ordered = sql.contains(ORDERED);
    for (a, b) in a.iter().zip(b) {
        if a.columns != b.columns {
            return Some((format!("{} columns", a.columns), format!("{} columns", b.columns)));
        }
        if let Some(texts) = row_difference(&rows_of(a, ordered), &rows_of(b, ordered), ordered) {
            return Some(texts);
        }
    }
    None
}

pub fn rows_of(set: &ResultSet, ordered: bool) -> Vec<Row> {
    let cell = |cell: &Option<Vec<u8>>| cell.as_ref().map(|bytes| normal_bytes(bytes));
    let mut rows: Vec<Row> = set.rows.iter().map(|r| r.iter().map(cell).collect()).collect();
    if !ordered {
        rows.sort();
    }
    rows
}

fn normal_bytes(bytes: &[u8]) -> Vec<u8> {
    // A definition may hold bytes of any character set.
    let has = |what: &str| bytes.windows(what.len()).any(|w| w == what.as_bytes());
    if !["d_sluice", "d_innodb", "ENGINE"].iter().any(|what| has(what)) {
        return bytes.to_vec();
    }
    let mut out = bytes.to_vec();
    for (from, to) in [("d_sluice", "d"), ("d_innodb", "d"), ("Sluice", "E"), ("InnoDB", "E")] {
        out = replaced(&out, from.as_bytes(), to.as_bytes());
    }
    without_number(out, b" AUTO_INCREMENT=")
}

fn replaced(bytes: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some(at) = rest.windows(from.len()).position(|w| w == from) {
        out.extend_from_slice(&rest[..at]);
        out.extend_from_slice(to);
        rest = &rest[at + from.len()..];
    }
    out.extend_from_slice(rest);
    out
}

/// AUTO_INCREMENT of a definition is compared by itself.
fn without_number(mut bytes: Vec<u8>, word: &[u8]) -> Vec<u8> {
    if let Some(at) = bytes.windows(word.len()).position(|w| w == word) {
        let digits = bytes[at + word.len()..].iter().take_while(|b| b.is_ascii_digit()).count();
        bytes.drain(at..at + word.len() + digits);
    }
    bytes
}

/// Rows that only one side has, or the first place where the order differs.
pub fn row_difference(a: &[Row], b: &[Row], ordered: bool) -> Option<Texts> {
    if a == b {
        return None;
    }
    let mut only_b: Vec<&Row> = b.iter().collect();
    let mut only_a = Vec::new();
    for row in a {
        match only_b.iter().position(|r| *r == row) {
            Some(at) => drop(only_b.remove(at)),
            None => only_a.push(row),
        }
    }
    if only_a.is_empty() && only_b.is_empty() && ordered {
        let at = a.iter().zip(b).position(|(a, b)| a != b).unwrap_or(0);
        let text = |rows: &[Row]| format!("row {at} of {}: {}", rows.len(), show(&rows[at]));
        return Some((text(a), text(b)));
    }
    let text = |count: usize, rows: &[&Row]| {
        let some: Vec<String> = rows.iter().take(5).map(|r| show(r)).collect();
        format!("{count} rows, {} not on the other side: {}", rows.len(), some.join(" "))
    };
    Some((text(a.len(), &only_a), text(b.len(), &only_b)))
}

fn show(row: &Row) -> String {
    let cell = |cell: &Option<Vec<u8>>| match cell {
        None => "NULL".to_owned(),
        Some(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => format!("{text:?}"),
            Err(_) => format!("{bytes:02x?}"),
        },
    };
    format!("({})", row.iter().map(cell).collect::<Vec<_>>().join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(values: &[&str]) -> Outcome {
        let rows = values.iter().map(|v| vec![Some(v.as_bytes().to_vec())]).collect();
        Outcome {
            sets: vec![ResultSet { columns: 1, names: Vec::new(), rows }],
            ..Outcome::default()
        }
    }

    fn kind(sql: &str, a: &Outcome, b: &Outcome) -> Option<Kind> {
        compare(sql, a, b, &mut Counts::default()).map(|d| d.kind)
    }

    #[test]
    fn each_kind_of_difference_is_seen() {
        let plain = Outcome::default();
        let with = |change: fn(&mut Outcome)| {
            let mut changed = Outcome::default();
            change(&mut changed);
            kind("INSERT INTO t VALUES (1)", &changed, &plain)
        };
        assert_eq!(with(|_| {}), None);
        assert_eq!(with(|o| o.affected_rows = 1), Some(Kind::Affected));
        assert_eq!(with(|o| o.insert_id = 1), Some(Kind::InsertId));
        assert_eq!(with(|o| o.error = Some((1062, "x".into()))), Some(Kind::Error));
        assert_eq!(with(|o| o.lost = Some("x".into())), Some(Kind::Lost));
        let warning = |o: &mut Outcome| o.warnings.push(("Warning".into(), 1264, "x".into()));
        assert_eq!(with(warning), Some(Kind::Warnings));
        let own = |o: &mut Outcome| o.warnings.push(("Warning".into(), 1, "Sluice: x".into()));
        assert_eq!(with(own), None);
    }

    #[test]
    fn order_counts_only_where_the_statement_says_so() {
        let (a, b) = (rows(&["1", "2"]), rows(&["2", "1"]));
        assert_eq!(kind("SELECT c FROM t", &a, &b), None);
        assert_eq!(kind("SELECT /*ordered*/ c FROM t ORDER BY c", &a, &b), Some(Kind::Rows));
        assert_eq!(kind("SELECT c FROM t", &a, &rows(&["1", "1"])), Some(Kind::Rows));
    }

    #[test]
    fn names_of_the_sides_are_no_difference() {
        let a = rows(&["CREATE TABLE `d_sluice`.`t` ENGINE=Sluice"]);
        let b = rows(&["CREATE TABLE `d_innodb`.`t` ENGINE=InnoDB"]);
        assert_eq!(kind("SHOW CREATE TABLE t", &a, &b), None);
    }
}
