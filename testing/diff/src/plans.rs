//! Whether both engines take the same way to a statement's rows: what they lock depends on it. Asked
//! of EXPLAIN, by a session that waits for nothing.

use crate::session::{Direct, Row, Side, SIDES};

/// True if both plans are known and differ.
pub fn differ(control: &mut Direct, sql: &str) -> bool {
    let Some(text) = explained(sql) else { return false };
    let [ours, theirs] = SIDES.map(|side| plan(control, side, &text));
    ours.is_some() && theirs.is_some() && ours != theirs
}

/// What EXPLAIN is asked; reads are asked without their locks.
fn explained(sql: &str) -> Option<String> {
    let locking = [" FOR UPDATE", " LOCK IN SHARE MODE"];
    let plain = locking.iter().fold(sql, |text, end| text.split(end).next().unwrap_or(text));
    let asks = ["SELECT", "UPDATE", "DELETE"].iter().any(|w| sql.starts_with(w));
    (asks && sql.contains(" WHERE ")).then(|| plain.to_owned())
}

fn plan(control: &mut Direct, side: Side, text: &str) -> Option<Vec<Row>> {
    control.run(&format!("USE {}", side.database()));
    let no_wait = "lock_wait_timeout=0, innodb_lock_wait_timeout=0, sluice_lock_wait_timeout=0";
    let outcome = control.run(&format!("SET STATEMENT {no_wait} FOR EXPLAIN {text}"));
    let set = outcome.sets.first().filter(|_| outcome.is_ok())?;
    let at = |name: &&str| set.names.iter().position(|n| n == name);
    let columns: Vec<usize> = ["table", "type", "key", "key_len"].iter().filter_map(at).collect();
    let chosen = |row: &Row| columns.iter().map(|c| row.get(*c).cloned().flatten()).collect();
    Some(set.rows.iter().map(chosen).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_has_a_path_is_asked() {
        assert_eq!(explained("INSERT INTO t VALUES (1)"), None);
        assert_eq!(explained("SELECT * FROM t"), None);
        let asked = explained("SELECT c FROM t WHERE c = 1 FOR UPDATE NOWAIT");
        assert_eq!(asked.as_deref(), Some("SELECT c FROM t WHERE c = 1"));
    }
}
