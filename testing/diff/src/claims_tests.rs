use super::*;

fn cell(value: i64) -> Option<Vec<u8>> {
    Some(value.to_string().into_bytes())
}

fn images(rows: &[(i64, i64)]) -> Images {
    let rows = rows.iter().map(|(a, b)| vec![cell(*a), cell(*b)]).collect();
    let image = Image { names: vec!["c1".into(), "c2".into()], rows };
    Images::from([("t1".to_owned(), image)])
}

fn ran<'a>(sql: &'a str, level: &'a str, before: &'a Images, after: &'a Images) -> Ran<'a> {
    Ran { sql, level, waited: false, in_transaction: true, before, after, committed: None }
}

/// A holder runs `held`, then another runs `asked`: had it to wait?
fn stops(
    level: &str,
    held: &str,
    asked: &str,
    before: &[(i64, i64)],
    after: &[(i64, i64)],
) -> bool {
    let (first, last) = (images(before), images(after));
    let mut claims = Claims::default();
    claims.add(&ran(held, level, &first, &first));
    claims.stop(&ran(asked, level, &first, &last), &Outcome::default()).is_some()
}

const RR: &str = "REPEATABLE-READ";
const RC: &str = "READ-COMMITTED";
const READ: &str = "SELECT c1,c2 FROM t1 FORCE INDEX (k2) WHERE c1 BETWEEN 3 AND 6 FOR UPDATE";
const SHARE: &str = "SELECT c1,c2 FROM t1 FORCE INDEX (k2) WHERE c1 <= 5 LOCK IN SHARE MODE";

#[test]
fn texts_are_understood() {
    let ask = Ask::of(READ).expect("an ask");
    assert_eq!((ask.table.as_str(), ask.verb, ask.exclusive), ("t1", Verb::Read, Some(true)));
    assert_eq!(ask.range.expect("a range").allowed, [(3, 6)]);
    let delete = "DELETE /*free*/ t1 FROM t1 FORCE INDEX (`PRIMARY`) WHERE c1 IN (4,-9)";
    assert_eq!(Ask::of(delete).and_then(|a| a.range).expect("a range").allowed, [(4, 4), (-9, -9)]);
    for vague in [
        "UPDATE t1 FORCE INDEX (k) SET c2 = 1 WHERE c1 = 4 AND c2 < 3",
        "SELECT c1 FROM t1 FORCE INDEX (`k`,`l`) WHERE c1 = 1 OR c2 = 2 FOR UPDATE",
        "SELECT c1 FROM t1 WHERE c1 = 1 FOR UPDATE",
    ] {
        assert_eq!(Ask::of(vague).and_then(|a| a.range), None, "{vague}");
    }
    assert_eq!(Ask::of("ALTER TABLE t1 FORCE"), None);
}

#[test]
fn rows_that_are_held_stop_others() {
    let rows = [(4, 1), (8, 1)];
    assert!(stops(RR, READ, SHARE, &rows, &rows));
    assert!(stops(RC, READ, SHARE, &rows, &rows));
    assert!(!stops(RR, SHARE, SHARE, &rows, &rows), "two readers");
    assert!(!stops(RR, READ, READ, &[(8, 1)], &[(8, 1)]), "no row in the range");
    let behind = "SELECT c1,c2 FROM t1 FORCE INDEX (k2) WHERE c1 > 6 FOR UPDATE";
    assert!(!stops(RR, READ, behind, &rows, &rows), "another row");
}

#[test]
fn ranges_stop_inserts_where_gaps_are_locked() {
    let insert = "INSERT INTO t1 (c1,c2) VALUES (5,1)";
    assert!(stops(RR, SHARE, insert, &[(8, 1)], &[(8, 1), (5, 1)]));
    assert!(!stops(RC, SHARE, insert, &[(8, 1)], &[(8, 1), (5, 1)]));
    assert!(!stops(RR, SHARE, insert, &[(8, 1)], &[(8, 1), (6, 1)]), "after the range");
    let update = "UPDATE t1 FORCE INDEX (k2) SET c1 = 4 WHERE c1 = 8";
    assert!(stops(RR, SHARE, update, &[(8, 1)], &[(4, 1)]), "a row moves into the range");
    let plain = "SELECT c1,c2 FROM t1 FORCE INDEX (k2) WHERE c1 <= 5";
    assert!(stops("SERIALIZABLE", plain, insert, &[], &[(5, 1)]));
    assert!(!stops(RR, plain, insert, &[], &[(5, 1)]));
}

#[test]
fn changes_stop_those_who_would_see_them() {
    let (before, after) = (images(&[(4, 1), (9, 1)]), images(&[(4, 7)]));
    let mut claims = Claims::default();
    claims.add(&ran(
        "UPDATE t1 FORCE INDEX (x) SET c2 = 7 WHERE c9 = 4 AND 1",
        RC,
        &before,
        &after,
    ));
    let stopped =
        |sql: &str| claims.stop(&ran(sql, RC, &after, &after), &Outcome::default()).is_some();
    assert!(stopped("SELECT c1,c2 FROM t1 FORCE INDEX (k2) WHERE c1 = 4 FOR UPDATE"));
    assert!(stopped("DELETE FROM t1 FORCE INDEX (k2) WHERE c1 > 8"), "the deleted row");
    assert!(!stopped("SELECT c1,c2 FROM t1 FORCE INDEX (k2) WHERE c1 = 5 FOR UPDATE"));
    claims.clear();
    assert!(claims.holds.is_empty() && claims.writes.is_empty());
}

#[test]
fn skip_locked_must_leave_out_what_is_held() {
    let rows = [(4, 1), (8, 1)];
    let before = images(&rows);
    let mut claims = Claims::default();
    claims.add(&ran(READ, RR, &before, &before));
    let skip = "SELECT c1,c2 FROM t1 FORCE INDEX (k2) WHERE c1 > 0 FOR UPDATE SKIP LOCKED";
    let answer = |value: i64| {
        let rows = vec![vec![cell(value), cell(1)]];
        let names = vec!["c1".into(), "c2".into()];
        Outcome { sets: vec![ResultSet { columns: 2, names, rows }], ..Outcome::default() }
    };
    assert!(claims.stop(&ran(skip, RR, &before, &before), &answer(4)).is_some());
    assert!(claims.stop(&ran(skip, RR, &before, &before), &answer(8)).is_none());
}

#[test]
fn an_update_that_reads_committed_rows_passes_new_ones() {
    let update = "UPDATE t1 FORCE INDEX (`PRIMARY`) SET c2 = 8 WHERE c1 < 7";
    assert!(reads_committed_first(update, RC, Some("c1")));
    assert!(!reads_committed_first(update, RR, Some("c1")));
    let single = "UPDATE t1 FORCE INDEX (`PRIMARY`) SET c2 = 8 WHERE c1 IN (7,8)";
    assert!(!reads_committed_first(single, RC, Some("c1")), "a search for single rows");
    assert!(reads_committed_first(single, RC, None), "a part of the key");
    assert!(!reads_committed_first(&update.replace("`PRIMARY`", "k2"), RC, Some("c1")));
    let (before, after) = (images(&[(1, 1), (9, 1)]), images(&[(0, 1), (1, 1), (5, 1)]));
    let mut claims = Claims::default();
    claims.add(&ran("INSERT INTO t1 (c1,c2) VALUES (0,1),(5,1)", RC, &before, &after));
    let stopped = |sql: &str, claims: &Claims| {
        let mut committed = after["t1"].clone();
        claims.undo("t1", &mut committed);
        let ran = Ran { committed: Some(committed), ..ran(sql, RC, &after, &after) };
        claims.stop(&ran, &Outcome::default()).is_some()
    };
    assert!(stopped(&update.replace("< 7", "> 7"), &claims), "the row that went");
    assert!(!stopped(update, &claims), "rows that are not committed");
}

#[test]
fn ranges_in_which_innodb_may_hold_less() {
    let skip = READ.replace("FOR UPDATE", "FOR UPDATE SKIP LOCKED");
    let insert = "INSERT INTO t1 (c1,c2) VALUES (5,1)";
    let spares = |level: &str, held: &str, waited: bool, new: (i64, i64)| {
        let (first, last) = (images(&[(8, 1)]), images(&[(8, 1), new]));
        let mut claims = Claims::default();
        claims.add(&Ran { waited, ..ran(held, level, &first, &first) });
        claims.spares(&ran(insert, level, &first, &last))
    };
    assert_eq!(spares(RR, &skip, false, (5, 1)), Some(Spared::Skipped));
    assert_eq!(spares(RR, &skip, false, (7, 1)), None, "after the range");
    assert_eq!(spares(RC, &skip, false, (5, 1)), None, "no gaps at this level");
    assert_eq!(spares(RR, READ, false, (5, 1)), None, "InnoDB had to wait");
    assert_eq!(spares(RC, READ, true, (5, 1)), Some(Spared::RowGone));
    assert_eq!(spares(RC, READ, true, (7, 1)), None, "after the range");
    assert_eq!(spares(RC, READ, false, (5, 1)), None, "it did not wait");
    assert_eq!(spares(RR, READ, true, (5, 1)), None, "the gap is held");
}

#[test]
fn what_a_waiting_statement_has_written_is_held_by_nobody_else() {
    let update = "UPDATE t1 FORCE INDEX (k2) SET c2 = 1 WHERE c1 < 9";
    let meets = |before: &[(i64, i64)], now: &[(i64, i64)]| {
        let (first, last) = (images(before), images(now));
        let mut claims = Claims::default();
        claims.add(&ran(READ, RR, &first, &first));
        claims.meets(&ran(update, RR, &last, &last))
    };
    assert_eq!(meets(&[(4, 1)], &[(4, 1)]), Some(true));
    assert_eq!(meets(&[(8, 1)], &[(8, 1), (5, 1)]), Some(false));
}
