//! What may differ, and why. Every rule has an id, a reason and a matcher, and every use of a rule
//! is counted in the report. A difference that no rule matches fails the run.

use crate::compare::{normal, Kind, Observation};
use crate::session::Outcome;
use sluice_rig::client::DUPLICATE;
use std::collections::BTreeMap;

pub struct Rule {
    pub id: &'static str,
    pub reason: &'static str,
    matches: fn(&Observation) -> bool,
}

impl Rule {
    /// One that the controller applies: it compares more than two outcomes.
    const fn of_controller(id: &'static str, reason: &'static str) -> Rule {
        Rule { id, reason, matches: |_| false }
    }
}

/// The reasons, for the help text.
pub fn reasons() -> String {
    let all = RULES.iter().chain([
        &VICTIM,
        &WIDER,
        &UNJUDGED,
        &CAUGHT_UP,
        &COMMITTED,
        &NUMBERS,
        &ROWS_ON,
        &FURTHER,
        &PREPARED,
        &READER,
        &SAVEPOINT,
        &SKIPPED,
        &GONE,
        &ELSEWHERE,
        &PLAN,
        &ORDER,
        &WOKEN,
        &MIXED,
        &UNFINISHED,
        &IMMUNE,
        &LATER,
        &SCAN,
        &SORT,
    ]);
    all.map(|r| format!("  {}: {}\n", r.id, r.reason)).collect()
}

/// Applied in this order; the first that matches counts.
pub const RULES: [Rule; 6] = [
    Rule {
        id: "client-library",
        reason: "the client library cannot read this answer of the server, on both sides",
        matches: client_library,
    },
    Rule {
        id: "duplicate-of-copy",
        reason: "of several rows that a copying ALTER TABLE or CREATE INDEX cannot take, one is \
                 named; InnoDB loads the empty copy in bulk and meets duplicates later than other \
                 faults, in the order of the index",
        matches: duplicate_of_copy,
    },
    Rule {
        id: "evaluation-warnings",
        reason: "a SELECT warns each time that it evaluates an expression; how often depends on \
                 the plan, and the plan on statistics",
        matches: evaluation_warnings,
    },
    Rule {
        id: "history-is-gone",
        reason:
            "a read by a snapshot that is older than the table: error 1412; InnoDB gives error 159 \
                 where the table was truncated meanwhile",
        matches: history_is_gone,
    },
    Rule {
        id: "out-of-memory",
        reason:
            "where a range or a merge of indexes ends in an error, the server shows error 1041 \
                 (out of memory) beside it with InnoDB; Sluice shows the first error alone",
        matches: out_of_memory,
    },
    Rule {
        id: "error-shown-again",
        reason: "InnoDB: the error of a statement is among its warnings more than once, since the \
                 server reports it again; Sluice shows it once, but a kill in a range twice. The \
                 other warnings are the same",
        matches: error_shown_again,
    },
];

/// Rules of schedules, which compare more than two outcomes; the controller applies them.
pub const VICTIM: Rule = Rule::of_controller(
    "victim",
    "each engine chooses the victim of a deadlock by its own count of changes and locks; where one request \
     closes several cycles, Sluice ends each of them, and may have one more victim, which waited before",
);

pub const WIDER: Rule = Rule::of_controller(
    "wider-lock",
    "InnoDB locks the whole gap between two entries, and the first entry after a range; \
     Sluice locks the interval that was asked for. So InnoDB may wait, or refuse, or end a \
     deadlock where Sluice goes on; never the other way. It applies only where the statement has \
     met no row and no range that another session holds by its own statements (claims.rs)",
);

pub const UNJUDGED: Rule = Rule::of_controller(
    "wider-lock-unjudged",
    "the same, for a statement whose meeting with others is not worked out: an index merge, a \
     second condition, several statements at work at once",
);

pub const CAUGHT_UP: Rule = Rule::of_controller(
    "others-end",
    "one side alone has run a statement, by a rule about locks, and cannot take it back: the transactions \
     of others were undone on both sides until the other side has run it, too; the answers are compared",
);

/// The two sides cannot be made alike again: the case ends, with each engine's own checks.
pub const COMMITTED: Rule = Rule::of_controller(
    "case-ends-committed",
    "one side alone has run a statement, by a rule about locks, and has committed it",
);

/// Rows, definitions and indexes are compared at the end, all but AUTO_INCREMENT of these tables.
pub const NUMBERS: Rule = Rule::of_controller(
    "case-ends-numbers",
    "one side alone has run an INSERT, by a rule about locks, or one of several rows was ended while it \
     waited, on either side at a row of its own; the sides have then counted AUTO_INCREMENT unlike, and no \
     ROLLBACK gives values back",
);

pub const ROWS_ON: Rule = Rule::of_controller(
    "ended-rows-further",
    "a statement of several rows waited on both sides, in InnoDB for the gap of an earlier row (wider-lock), and \
     was ended there with the same error: Sluice has given warnings for the rows between. Those that InnoDB has \
     given come first on both sides",
);

pub const FURTHER: Rule = Rule::of_controller(
    "deadlock-further",
    "a deadlock in Sluice whose victim still waits in InnoDB; it waited before, or so does another session: \
     InnoDB met the first entry after a range, or a gap, waits earlier, and holds less",
);

pub const PREPARED: Rule = Rule::of_controller(
    "prepared-lets-go",
    "InnoDB gives up the locks of ranges and reads at XA PREPARE; Sluice keeps them until the \
     end, so it may wait. Only for a table that a transaction which is prepared now has used",
);

pub const READER: Rule = Rule::of_controller(
    "ddl-passes-reader",
    "DDL of a table that a prepared transaction, whose connection has ended, has only read: InnoDB still holds \
     its lock of the table, so the DDL waits; in Sluice only what it has changed stops the DDL",
);

pub const SAVEPOINT: Rule = Rule::of_controller(
    "savepoint-lets-ddl-by",
    "ROLLBACK TO SAVEPOINT gives back metadata locks where the transaction holds no locks in the engine. Sluice \
     then holds none if no row is left; InnoDB keeps its lock of the table. So DDL goes on in Sluice alone, or \
     meets the next statement of that transaction in a deadlock",
);

pub const SKIPPED: Rule = Rule::of_controller(
    "skip-locked-gap",
    "SKIP LOCKED at REPEATABLE READ: where the first entry after the range is locked, InnoDB locks nothing \
     of the gap before it; Sluice locks the range that was asked for, so a row that comes there may wait",
);

pub const GONE: Rule = Rule::of_controller(
    "row-gone",
    "a statement of READ COMMITTED waited for a row, whose INSERT was then rolled back: Sluice keeps the lock of \
     the row until the transaction ends, InnoDB's goes with the entry; so an INSERT of this row may wait",
);

pub const ELSEWHERE: Rule = Rule::of_controller(
    "waits-elsewhere",
    "another session waits on both sides in a statement of the same table, or a statement \
     of its transaction was killed or refused at a lock; InnoDB stopped it at the first entry after a range, \
     or at a gap, before it held what it holds in Sluice. So Sluice may wait or refuse. Only \
     where no statement that has ended holds what is asked for",
);

pub const PLAN: Rule = Rule::of_controller(
    "plan-differs",
    "the optimizer takes another access path in one engine (tables of two rows), so the statement \
     locks other rows; it is left out",
);

pub const WOKEN: Rule = Rule::of_controller(
    "deadlock-of-woken",
    "one step has set several statements to work at once, and they met in a deadlock in Sluice; sent \
     one after another, in every order, both engines answer alike",
);

pub const MIXED: Rule = Rule::of_controller(
    "mixed-among-woken",
    "one step has set several statements of a table to work at once, and one of them locks no gaps (READ \
     COMMITTED), or takes AUTO_INCREMENT values for several rows, which come from no transaction: it may meet \
     some of the rows that another one writes, and not the rest. In every order, one after another, both \
     engines answer alike; every row that Sluice has or answers is one that InnoDB has in one of the orders, or \
     that one of the statements has written there; no row is gone that no order touches; other tables are as \
     in one of the orders",
);

pub const UNFINISHED: Rule = Rule::of_controller(
    "unfinished-seen",
    "a plain read at READ UNCOMMITTED of a table that a waiting statement is changing, or a statement that takes \
     AUTO_INCREMENT values where one of several rows waits that does: how far that has \
     come before its wait is each engine's own affair; the statement is left out",
);

/// InnoDB's dictionary transactions heed no KILL (`innobase_kill_query`).
pub const IMMUNE: Rule = Rule::of_controller(
    "kill-left-out",
    "DDL that waits in InnoDB for a table, which a prepared transaction has changed, goes on to wait \
     after KILL QUERY; in Sluice it ends with error 1317; the KILL is left out",
);

pub const ORDER: Rule = Rule::of_controller(
    "order-of-woken",
    "one step has set several statements to work at once, or one of READ COMMITTED, beside whose place others \
     have written; Sluice's answers and rows are those that InnoDB gives in one of the orders (orders.rs)",
);

/// After a statement that needs no partition at all, an UPDATE or DELETE of the same table by the
/// plan `index` (ORDER BY with LIMIT) changes no row, in InnoDB as in Sluice, until a SELECT has read
/// the table: the server's handler of partitions keeps something of that statement.
pub const LATER: Rule = Rule::of_controller(
    "partitions-find-later",
    "one side's UPDATE or DELETE over partitions finds fewer rows, and the rest when it is given \
     again after a SELECT",
);

/// Two mistakes are known. To compare an entry with an older row InnoDB computes virtual columns by
/// `TABLE::update_virtual_field`, which clears the set of columns that a sort reads, so the rest of
/// a range is lost. With `mrr=on,mrr_sort_keys=on` a range over partitions gives error 1032.
pub const SCAN: Rule = Rule::of_controller(
    "innodb-by-scan",
    "InnoDB's SELECT gives other rows by an index than without one, or an error; without one \
     it gives what Sluice gives",
);

/// By an index alone the server computes no virtual column. A sort that then fetches the rows by
/// their positions shows what the record held before.
pub const SORT: Rule = Rule::of_controller(
    "sort-of-virtual",
    "the server sorts by an index alone and shows virtual columns that it has not computed, on \
     both sides; without an index both give the same",
);

const OUT_OF_RESOURCES: u16 = 1041;
pub const INTERRUPTED: u16 = 1317;
pub const LOCK_WAIT: u16 = 1205;
pub const DEADLOCK: u16 = 1213;

/// What the two sides have answered to one session; `None` while it waits.
pub struct Met<'a> {
    pub ours: &'a Option<Outcome>,
    pub theirs: &'a Option<Outcome>,
}

fn has(outcome: &Option<Outcome>, code: u16) -> bool {
    outcome.as_ref().is_some_and(|o| o.error_code() == code)
}

impl Met<'_> {
    pub fn our_victim_alone(&self) -> bool {
        has(self.ours, DEADLOCK) && !has(self.theirs, DEADLOCK)
    }

    pub fn their_victim_alone(&self) -> bool {
        has(self.theirs, DEADLOCK) && !has(self.ours, DEADLOCK)
    }

    /// On both sides.
    pub fn is_victim(&self) -> bool {
        has(self.ours, DEADLOCK) && has(self.theirs, DEADLOCK)
    }

    /// `waits`: the statement `sql` waits in InnoDB.
    pub fn is_wider(&self, waits: bool, sql: &str) -> bool {
        let Some(ours) = self.ours else { return false };
        let goes_on = ours.error_code() != LOCK_WAIT && ours.error_code() != DEADLOCK;
        let ddl = ["ALTER", "OPTIMIZE", "TRUNCATE", "DROP", "CREATE"];
        if starts_with(sql, &ddl) {
            return false;
        }
        let skipped = sql.contains("SKIP LOCKED") && self.theirs.is_some() && self.more_rows();
        goes_on && (waits || has(self.theirs, LOCK_WAIT)) || skipped
    }

    /// InnoDB goes on where Sluice waits (`waits`), has refused, skipped rows, or ended a deadlock.
    pub fn is_narrower(&self, waits: bool, sql: &str) -> bool {
        let at_lock = [LOCK_WAIT, DEADLOCK, INTERRUPTED];
        let is_past = |o: &Outcome| o.lost.is_none() && !at_lock.contains(&o.error_code());
        let goes_on = self.theirs.as_ref().is_some_and(is_past);
        let refused = has(self.ours, LOCK_WAIT) || has(self.ours, DEADLOCK);
        let swapped = Met { ours: self.theirs, theirs: self.ours };
        goes_on && (waits || refused || sql.contains("SKIP LOCKED") && swapped.more_rows())
    }

    /// Sluice gave every row that InnoDB gave, and others.
    fn more_rows(&self) -> bool {
        let rows = |outcome: &Option<Outcome>| {
            let sets = outcome.as_ref().map(|o| o.sets.clone()).unwrap_or_default();
            sets.into_iter().next().map(|s| s.rows).unwrap_or_default()
        };
        let (ours, theirs) = (rows(self.ours), rows(self.theirs));
        ours.len() > theirs.len() && theirs.iter().all(|row| ours.contains(row))
    }
}

#[derive(Default, Clone, Debug)]
pub struct Counts(pub BTreeMap<&'static str, u64>);

impl Counts {
    pub fn add(&mut self, rule: &'static str) {
        *self.0.entry(rule).or_default() += 1;
    }

    pub fn merge(&mut self, other: &Counts) {
        for (rule, count) in &other.0 {
            *self.0.entry(rule).or_default() += count;
        }
    }
}

pub fn explain(seen: &Observation) -> Option<&'static str> {
    RULES.iter().find(|rule| (rule.matches)(seen)).map(|rule| rule.id)
}

fn starts_with(sql: &str, words: &[&str]) -> bool {
    words.iter().any(|w| sql.starts_with(w))
}

fn history_is_gone(seen: &Observation) -> bool {
    let codes = (seen.sluice.error_code(), seen.innodb.error_code());
    seen.kind == Kind::Error && codes == (1412, 159)
}

/// How often the statement's error is among its warnings, and the other warnings.
fn own_error(outcome: &Outcome) -> (usize, Vec<&(String, u16, String)>) {
    let own = |text: &str| text.starts_with("Sluice: ") || text.starts_with("InnoDB: ");
    let all = outcome.warnings.iter().filter(|w| !own(&w.2));
    let (errors, rest): (Vec<_>, Vec<_>) = all.partition(|w| w.1 == outcome.error_code());
    (errors.len(), rest)
}

fn out_of_memory(seen: &Observation) -> bool {
    let ((ours, others), (theirs, mut their_others)) =
        (own_error(seen.sluice), own_error(seen.innodb));
    their_others.retain(|w| w.1 != OUT_OF_RESOURCES);
    let more = their_others.len() < own_error(seen.innodb).1.len();
    let alike = (ours, others) == (1, their_others) && theirs > 0;
    seen.kind == Kind::Warnings && seen.sluice.error_code() != 0 && alike && more
}

fn error_shown_again(seen: &Observation) -> bool {
    let ((ours, others), (theirs, their_others)) = (own_error(seen.sluice), own_error(seen.innodb));
    let code = seen.sluice.error_code();
    let again = ours == 1 && theirs > 1 || (ours, theirs, code) == (2, 1, INTERRUPTED);
    seen.kind == Kind::Warnings && code != 0 && again && others == their_others
}

/// [`ROWS_ON`]; `waited`: on both sides, before the step that has ended it.
pub fn ended_rows_further(seen: &Observation, waited: bool) -> bool {
    let writes = starts_with(seen.sql, &["INSERT", "REPLACE", "LOAD", "UPDATE", "DELETE"]);
    let one_row = seen.sql.contains(" VALUES (") && !seen.sql.contains("),(");
    let ended = [INTERRUPTED, LOCK_WAIT, DEADLOCK].contains(&seen.sluice.error_code());
    let alike = seen.sluice.error_code() == seen.innodb.error_code();
    let ((ours, more), (theirs, first)) = (own_error(seen.sluice), own_error(seen.innodb));
    let texts = |all: &[&(String, u16, String)]| -> Vec<_> {
        all.iter().map(|w| (w.0.clone(), w.1, normal(seen.sql, &w.2))).collect()
    };
    let further = more.len() > first.len() && texts(&more).starts_with(&texts(&first));
    let told = ours > 0 && theirs > 0;
    seen.kind == Kind::Warnings && waited && writes && !one_row && ended && alike && told && further
}

fn duplicate_of_copy(seen: &Observation) -> bool {
    let ddl = ["ALTER TABLE", "CREATE INDEX", "CREATE UNIQUE INDEX", "CREATE TABLE", "OPTIMIZE"];
    let one = matches!(seen.kind, Kind::Error | Kind::ErrorText | Kind::Warnings);
    let both = !seen.sluice.is_ok() && !seen.innodb.is_ok();
    one && both && seen.sluice.error_code() == DUPLICATE && starts_with(seen.sql, &ddl)
}

fn client_library(seen: &Observation) -> bool {
    let cannot = seen.sluice.lost.as_ref().is_some_and(|text| text.contains("can't parse"));
    seen.kind == Kind::Lost && cannot && seen.sluice.lost == seen.innodb.lost
}

/// The same warnings, a different number of times.
fn evaluation_warnings(seen: &Observation) -> bool {
    let set = |outcome: &crate::session::Outcome| {
        let mut all: Vec<_> = outcome.warnings.iter().map(|w| (w.1, w.2.clone())).collect();
        all.sort();
        all.dedup();
        all
    };
    seen.kind == Kind::Warnings
        && starts_with(seen.sql, &["SELECT", "(SELECT", "WITH"])
        && set(seen.sluice) == set(seen.innodb)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(code: u16, rows: &[&str]) -> Outcome {
        let row = |text: &&str| ("Warning".to_owned(), DUPLICATE, (*text).to_owned());
        let mut warnings: Vec<_> = rows.iter().map(row).collect();
        warnings.push(("Error".into(), code, "ended".into()));
        Outcome { error: Some((code, "ended".into())), warnings, ..Outcome::default() }
    }

    #[test]
    fn warnings_of_rows_further_on_are_explained_only_where_a_statement_of_several_was_ended() {
        const TWO: &str = "INSERT IGNORE INTO t (id) VALUES (1),(2)";
        let applies = |kind, sql, ours: &Outcome, theirs: &Outcome, waited| {
            let seen = Observation { kind, sql, sluice: ours, innodb: theirs };
            ended_rows_further(&seen, waited)
        };
        let (none, one, two) =
            (ended(INTERRUPTED, &[]), ended(INTERRUPTED, &["a"]), ended(INTERRUPTED, &["a", "b"]));
        for (ours, theirs) in [(&one, &none), (&two, &one), (&two, &none)] {
            assert!(applies(Kind::Warnings, TWO, ours, theirs, true));
            assert!(!applies(Kind::Warnings, TWO, theirs, ours, true), "InnoDB is not further");
            assert!(!applies(Kind::Warnings, TWO, ours, theirs, false), "it did not wait");
            assert!(!applies(Kind::Affected, TWO, ours, theirs, true));
            assert!(!applies(
                Kind::Warnings,
                "INSERT IGNORE INTO t VALUES (1)",
                ours,
                theirs,
                true
            ));
            assert!(!applies(Kind::Warnings, "SELECT 1", ours, theirs, true));
        }
        let (other, duplicate) = (ended(INTERRUPTED, &["b"]), ended(DUPLICATE, &["a"]));
        assert!(!applies(Kind::Warnings, TWO, &two, &other, true), "not the first ones");
        assert!(!applies(Kind::Warnings, TWO, &one, &one, true), "no warning more");
        assert!(!applies(Kind::Warnings, TWO, &duplicate, &ended(DUPLICATE, &[]), true));
        assert!(!applies(Kind::Warnings, TWO, &one, &Outcome::default(), true), "not ended there");
    }
}
