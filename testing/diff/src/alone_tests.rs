//! Each rule on the smallest step to which it applies, and on one beside that.

use super::*;
use crate::rules::DEADLOCK;
use std::collections::BTreeMap;

/// What the servers would say.
struct Told {
    metadata: bool,
    table: bool,
    spared: Option<Spared>,
    held: Held,
}

impl Live for Told {
    fn at_metadata(&self, _: usize) -> bool {
        self.metadata
    }

    fn at_innodb_table(&self, _: usize) -> bool {
        self.table
    }

    fn spares(&self, _: usize, _: &str) -> Option<Spared> {
        self.spared
    }

    fn held(&self, _: usize, _: &str, _: &Outcome, _: bool) -> Held {
        self.held.clone()
    }
}

const NOTHING: Told = Told { metadata: false, table: false, spared: None, held: Ok(None) };
const UPDATE: &str = "UPDATE t1 SET c1 = 2 WHERE c1 = 1";
const DDL: &str = "ALTER TABLE t1 FORCE";

/// A reply, and its absence.
const WAITS: Option<Outcome> = None;

fn ok() -> Option<Outcome> {
    Some(Outcome::default())
}

fn deadlock() -> Option<Outcome> {
    Some(Outcome { error: Some((DEADLOCK, String::new())), ..Outcome::default() })
}

fn talk(sql: &str, ours: Option<Outcome>, theirs: Option<Outcome>) -> Talk {
    Talk { asked: [Some(sql.into()), Some(sql.into())], early: [ours, theirs] }
}

fn answer(session: usize, sql: &str) -> Answer {
    Answer { session, sql: sql.into(), replies: [ok(), ok()] }
}

/// The session and the rule; the difference's reason; or nothing.
fn judged(books: &Books, live: &Told, talks: &[Talk]) -> String {
    match judge(&View::new(0, talks, &[], books, live)) {
        Alone::Nobody => String::new(),
        Alone::Allowed(at, rule) => format!("{at} {rule}"),
        Alone::Missing(found) => format!("missing: {}", found.sluice),
    }
}

#[test]
fn each_rule_is_described() {
    let page = include_str!("../../../docs/diff.md");
    for (rule, _) in RULES_IN_ORDER {
        assert!(page.contains(&format!("`{}`", rule.id)), "{} is not in docs/diff.md", rule.id);
    }
}

#[test]
fn nothing_has_stopped_on_one_side() {
    let books = Books::new(2);
    let same = [talk(UPDATE, ok(), ok()), talk(UPDATE, WAITS, WAITS)];
    assert_eq!(judged(&books, &NOTHING, &same), "");
    let both = [talk(UPDATE, deadlock(), deadlock()), Talk::default()];
    assert_eq!(judged(&books, &NOTHING, &both), "");
}

#[test]
fn victims() {
    let mut books = Books::new(2);
    let other = [talk(UPDATE, deadlock(), WAITS), talk(UPDATE, WAITS, deadlock())];
    assert_eq!(judged(&books, &NOTHING, &other), "0 victim");
    let lone = [talk(UPDATE, deadlock(), WAITS), talk(UPDATE, WAITS, WAITS)];
    assert_eq!(judged(&books, &NOTHING, &lone), "0 deadlock-further", "another one waits");
    assert_eq!(judged(&books, &NOTHING, &lone[..1]), "", "no other waits");
    let more = [talk(UPDATE, deadlock(), ok()), talk(UPDATE, deadlock(), deadlock())];
    assert_eq!(judged(&books, &NOTHING, &more), "", "it has not waited before");
    books.begin_step(BTreeMap::from([(0, UPDATE.into())]));
    assert_eq!(judged(&books, &NOTHING, &more), "0 victim", "one more of the same request");
    assert_eq!(judged(&books, &NOTHING, &lone[..1]), "0 deadlock-further", "it has waited");
}

#[test]
fn ddl_beside_a_savepoint() {
    let mut books = Books::new(2);
    let passed = [talk(DDL, ok(), WAITS), Talk::default()];
    let at_metadata = Told { metadata: true, ..NOTHING };
    assert_eq!(judged(&books, &at_metadata, &passed), "", "nobody has gone back");
    books.came(&[answer(1, "ROLLBACK TO s1")]);
    assert_eq!(judged(&books, &at_metadata, &passed), "0 savepoint-lets-ddl-by");
    assert_eq!(judged(&books, &NOTHING, &passed), "", "another lock stops it");
    let victim = [talk(DDL, WAITS, WAITS), talk(UPDATE, deadlock(), ok())];
    assert_eq!(judged(&books, &NOTHING, &victim), "", "no DDL has waited");
    books.begin_step(BTreeMap::from([(0, DDL.into())]));
    assert_eq!(judged(&books, &NOTHING, &victim), "1 savepoint-lets-ddl-by");
}

#[test]
fn sluice_alone_waits() {
    let mut books = Books::new(2);
    let waits = [talk(UPDATE, WAITS, ok()), Talk::default()];
    let [skipped, gone] =
        [Spared::Skipped, Spared::RowGone].map(|why| Told { spared: Some(why), ..NOTHING });
    assert_eq!(judged(&books, &NOTHING, &waits), "", "no rule: a difference");
    assert_eq!(judged(&books, &skipped, &waits), "0 skip-locked-gap");
    assert_eq!(judged(&books, &gone, &waits), "0 row-gone");
    books.begin_step(BTreeMap::from([(1, UPDATE.into())]));
    assert_eq!(judged(&books, &NOTHING, &waits), "0 waits-elsewhere");
    assert_eq!(judged(&books, &gone, &waits), "0 row-gone", "before waits-elsewhere");
    books.send(1, "SELECT * FROM t1");
    books.came(&[answer(1, "XA PREPARE 'x'")]);
    assert_eq!(judged(&books, &gone, &waits), "0 prepared-lets-go", "before all of them");
}

#[test]
fn innodb_alone_waits() {
    let mut books = Books::new(2);
    let waits = [talk(UPDATE, ok(), WAITS), Talk::default()];
    let held = |held: Held| Told { held, ..NOTHING };
    assert_eq!(judged(&books, &held(Ok(None)), &waits), "0 wider-lock");
    assert_eq!(judged(&books, &held(Err(())), &waits), "0 wider-lock-unjudged");
    let why = held(Ok(Some("it is held".into())));
    assert_eq!(judged(&books, &why, &waits), "missing: goes on, but it is held");
    let refused = [talk(UPDATE, ok(), deadlock()), Talk::default()];
    assert_eq!(judged(&books, &why, &refused), "missing: goes on, but it is held");
    let at_metadata = Told { metadata: true, ..why };
    assert_eq!(judged(&books, &at_metadata, &waits), "", "the server's lock");
    assert!(judged(&books, &at_metadata, &refused).starts_with("missing"), "it waits no more");

    let ddl = [talk(DDL, ok(), WAITS), Talk::default()];
    let at_table = Told { table: true, ..NOTHING };
    books.send(1, "SELECT * FROM t1");
    assert_eq!(judged(&books, &at_table, &ddl), "", "not prepared");
    books.came(&[answer(1, "XA PREPARE 'x'")]);
    assert_eq!(judged(&books, &at_table, &ddl), "0 ddl-passes-reader");
    assert_eq!(judged(&books, &NOTHING, &ddl), "", "another lock stops it");
}
