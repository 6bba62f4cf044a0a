//! Mistakes of InnoDB and of the server that they show themselves: given once more, in another way,
//! the same statement has the other side's answer. So these rules cannot hide a wrong answer of
//! Sluice's own.

use crate::compare::compare;
use crate::rules::{Counts, LATER, SCAN, SORT};
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
    if theirs.is_ok() && sorts_virtual(sides, sql) {
        return Some(SORT.id);
    }
    (theirs.is_ok() && finds_later(sides, sql, ours, theirs)).then_some(LATER.id)
}

/// A SELECT that gives Sluice's answer when InnoDB must not use an index.
pub fn scan_agrees(innodb: &Session, sql: &str, ours: &Outcome) -> bool {
    by_scan(innodb, sql)
        .is_some_and(|scanned| compare(sql, ours, &scanned, &mut Counts::default()).is_none())
}

/// What a SELECT gives when it must not use an index.
fn by_scan(session: &Session, sql: &str) -> Option<Outcome> {
    if !sql.starts_with("SELECT") && !sql.starts_with("WITH") {
        return None;
    }
    let text = without_indexes(sql, |table| keys_of(session, table))?;
    Some(session.run(&text)).filter(Outcome::is_ok)
}

/// See [`SORT`]: both sides sort what an index alone gives, and agree without one.
fn sorts_virtual(sides: &[Session; 2], sql: &str) -> bool {
    let sorts = |session: &Session| {
        let shown = session.run(&format!("EXPLAIN {sql}"));
        let cells = shown.sets.iter().flat_map(|set| set.rows.iter().flatten().flatten());
        let mut texts = cells.map(|cell| String::from_utf8_lossy(cell));
        texts.any(|text| text.contains("Using index;") && text.contains("Using filesort"))
    };
    let Some(table) = sql.split_whitespace().find(|w| is_table(w)) else { return false };
    if !sql.contains("ORDER BY")
        || !definition_has(&sides[0], table, " VIRTUAL")
        || !sides.iter().all(sorts)
    {
        return false;
    }
    let [ours, theirs] = [by_scan(&sides[0], sql), by_scan(&sides[1], sql)];
    ours.zip(theirs).is_some_and(|(a, b)| compare(sql, &a, &b, &mut Counts::default()).is_none())
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
    if !definition_has(poorer, table, "PARTITION BY") {
        return false;
    }
    poorer.run(&format!("SELECT * FROM {table}"));
    poorer.run(sql).affected_rows == missed
}

fn definition_has(session: &Session, table: &str, what: &str) -> bool {
    let shown = session.run(&format!("SHOW CREATE TABLE {table}"));
    let cell = shown.sets.first().and_then(|set| set.rows.first()?.get(1)?.clone());
    cell.is_some_and(|text| String::from_utf8_lossy(&text).contains(what))
}

fn is_table(word: &str) -> bool {
    word.trim_matches('`').strip_prefix('t').is_some_and(|n| n.parse::<u32>().is_ok())
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
