//! Mistakes of InnoDB and of the server that they show themselves: given once more, in another way,
//! the same statement has the other side's answer. So these rules cannot hide a wrong answer of
//! Sluice's own.

use crate::compare::compare;
use crate::rules::{Counts, LATER, SCAN};
use crate::session::{Outcome, Session};

/// The rule by which the answers of `sides`, Sluice and InnoDB, differ by a mistake of others.
pub fn explain(
    sides: &[Session; 2],
    sql: &str,
    ours: &Outcome,
    theirs: &Outcome,
) -> Option<&'static str> {
    if !ours.is_ok() || theirs.lost.is_some() {
        return None;
    }
    if scan_agrees(&sides[1], sql, ours) {
        return Some(SCAN.id);
    }
    (theirs.is_ok() && finds_later(sides, sql, ours, theirs)).then_some(LATER.id)
}

/// A SELECT that gives Sluice's answer when InnoDB must not use an index.
fn scan_agrees(innodb: &Session, sql: &str, ours: &Outcome) -> bool {
    let reads = sql.starts_with("SELECT") || sql.starts_with("WITH");
    let by_scan = reads.then(|| without_indexes(sql, |table| keys_of(innodb, table))).flatten();
    by_scan.is_some_and(|text| {
        let scanned = innodb.run(&text);
        scanned.is_ok() && compare(sql, ours, &scanned, &mut Counts::default()).is_none()
    })
}

/// See [`LATER`]. Were the rows of the two sides not the same, the tables would differ in the end.
fn finds_later(sides: &[Session; 2], sql: &str, ours: &Outcome, theirs: &Outcome) -> bool {
    let changes = sql.starts_with("UPDATE") || sql.starts_with("DELETE");
    let missed = ours.affected_rows.abs_diff(theirs.affected_rows);
    let Some(table) = sql.split_whitespace().find(|w| is_table(w)) else { return false };
    if !changes || missed == 0 {
        return false;
    }
    let poorer = &sides[usize::from(theirs.affected_rows < ours.affected_rows)];
    if !is_partitioned(poorer, table) {
        return false;
    }
    poorer.run(&format!("SELECT * FROM {table}"));
    poorer.run(sql).affected_rows == missed
}

fn is_partitioned(session: &Session, table: &str) -> bool {
    let shown = session.run(&format!("SHOW CREATE TABLE {table}"));
    let cell = shown.sets.first().and_then(|set| set.rows.first()?.get(1)?.clone());
    cell.is_some_and(|text| String::from_utf8_lossy(&text).contains("PARTITION BY"))
}

fn is_table(word: &str) -> bool {
    word.strip_prefix('t').is_some_and(|n| n.parse::<u32>().is_ok())
}

/// `SHOW KEYS` knows temporary tables, too.
fn keys_of(session: &Session, table: &str) -> Vec<String> {
    let shown = session.run(&format!("SHOW KEYS FROM {table}"));
    let rows = shown.sets.first().map(|set| set.rows.clone()).unwrap_or_default();
    let name = |row: &crate::session::Row| row.get(2).cloned().flatten();
    let mut names: Vec<String> = rows
        .iter()
        .filter_map(name)
        .map(|bytes| format!("`{}`", String::from_utf8_lossy(&bytes)))
        .collect();
    names.dedup();
    names
}

/// The statement with IGNORE INDEX for every key of each table that it reads, in place of its own
/// hints. `None` if there is nothing to ignore.
fn without_indexes(sql: &str, keys: impl Fn(&str) -> Vec<String>) -> Option<String> {
    let words: Vec<&str> = sql.split(' ').collect();
    let mut out: Vec<String> = Vec::new();
    let (mut at, mut ignores) = (0, false);
    while at < words.len() {
        out.push(words[at].to_owned());
        at += 1;
        let names_table = matches!(words[at - 1], "FROM" | "JOIN" | "STRAIGHT_JOIN");
        let Some(table) = words.get(at).filter(|w| names_table && is_table(w)) else { continue };
        out.push((*table).to_owned());
        at += 1;
        if let Some(alias) = words.get(at).filter(|w| matches!(**w, "a" | "b")) {
            out.push((*alias).to_owned());
            at += 1;
        }
        if matches!(words.get(at), Some(&"FORCE" | &"USE" | &"IGNORE")) {
            at += 3;
        }
        let names = keys(table);
        if !names.is_empty() {
            out.push(format!("IGNORE INDEX ({})", names.join(",")));
            ignores = true;
        }
    }
    ignores.then(|| out.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ignored(sql: &str) -> Option<String> {
        let keys = |table: &str| match table {
            "t9" => Vec::new(),
            _ => vec!["`PRIMARY`".to_owned(), "`k1`".to_owned()],
        };
        without_indexes(sql, keys)
    }

    #[test]
    fn a_hint_for_each_table_that_is_read() {
        let scan =
            ignored("SELECT c FROM t1 FORCE INDEX (k1,`PRIMARY`) WHERE c = 'a b' LIMIT 1, 4");
        let expected = "SELECT c FROM t1 IGNORE INDEX (`PRIMARY`,`k1`) WHERE c = 'a b' LIMIT 1, 4";
        assert_eq!(scan.as_deref(), Some(expected));
        let scan = ignored("SELECT 1 FROM t1 a JOIN t2 b USE INDEX (k1) ON a.x = b.y WHERE 1");
        let expected = "SELECT 1 FROM t1 a IGNORE INDEX (`PRIMARY`,`k1`) JOIN t2 b \
                        IGNORE INDEX (`PRIMARY`,`k1`) ON a.x = b.y WHERE 1";
        assert_eq!(scan.as_deref(), Some(expected));
    }

    #[test]
    fn nothing_to_ignore() {
        assert_eq!(ignored("SELECT c FROM t9 WHERE c = 1"), None);
        assert_eq!(ignored("SELECT c FROM v3"), None);
    }
}
