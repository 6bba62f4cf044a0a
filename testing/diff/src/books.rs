//! What the controller writes down of a schedule of several sessions: what each holds by its own
//! statements, what the tables look like, and which statements were at work at once.

use crate::claims::{
    locks_gaps, reads_committed_first, table_of, Ask, Claims, Image, Images, Ran, Spared, Verb,
};
use crate::compare::{row_difference, Difference, Kind};
use crate::rules::{DEADLOCK, INTERRUPTED, LOCK_WAIT};
use crate::session::{Direct, Outcome, Side, SIDES};
use std::collections::{BTreeMap, BTreeSet};

/// What a session asked for, and what each side has answered; `None` while it waits.
#[derive(Clone, Debug)]
pub struct Answer {
    pub session: usize,
    pub sql: String,
    pub replies: [Option<Outcome>; 2],
}

/// Tables that a transaction has used, and those of them that it has changed.
#[derive(Clone, Default)]
struct Tables {
    used: BTreeSet<String>,
    changed: BTreeSet<String>,
}

#[derive(Clone, Debug)]
struct Setting {
    level: String,
    in_transaction: bool,
}

pub struct Books {
    /// Steps so far.
    pub step: usize,
    /// Steps that were left out.
    pub left_out: Vec<usize>,
    /// The step that sent a session's last statement.
    pub issued: Vec<usize>,
    /// Sessions whose statements were at work at once on one side in the last step: which of them
    /// was first is chance. Also one that locks no gaps, if it had waited.
    pub crowd: BTreeSet<usize>,
    /// There has been a crowd in this script.
    pub crowded: bool,
    pub answers: Vec<Answer>,
    /// Transactions that are prepared now, with the tables that they have used.
    prepared: BTreeMap<String, Tables>,
    /// The tables of each session's transaction.
    used: Vec<Tables>,
    /// Tables in which a statement of the session was refused or killed at a lock, perhaps at another one on
    /// either side: what its transaction holds of them may differ.
    stopped: Vec<BTreeSet<String>>,
    /// Has the session's transaction gone back to a savepoint?
    went_back: Vec<bool>,
    /// A session was undone in this step: what the tables look like is not this statement's work.
    undone: bool,
    /// Sessions that were given a new connection in this step.
    pub anew: Vec<usize>,
    /// Sessions that waited on both sides before the present step, with their statements.
    pub waiting: BTreeMap<usize, String>,
    /// Tables, by the side; what READ UNCOMMITTED shows of them after the last step.
    pub images: [Images; 2],
    tables: BTreeSet<String>,
    /// Tables that hand out numbers: a statement that only one side has run may have taken some.
    numbered: BTreeSet<String>,
    /// Primary keys of one column, by table.
    primary: BTreeMap<String, String>,
    claims: Vec<Claims>,
    settings: Vec<Setting>,
}

/// The end of a transaction, or nothing that meets locks.
fn is_control(sql: &str) -> bool {
    ["COMMIT", "ROLLBACK", "BEGIN", "START", "SET", "XA", "SAVEPOINT"]
        .iter()
        .any(|w| sql.starts_with(w))
}

/// The locks of what came before may be gone.
pub fn lets_go(sql: &str) -> bool {
    let first = ["COMMIT", "ROLLBACK", "BEGIN", "START", "XA", "SET autocommit", "CREATE", "ALTER"];
    first.iter().chain(&["TRUNCATE", "OPTIMIZE", "DROP"]).any(|w| sql.starts_with(w))
}

/// DDL that sessions send: it commits, then asks for a metadata lock.
pub fn is_ddl(sql: &str) -> bool {
    ["ALTER", "TRUNCATE"].iter().any(|word| sql.starts_with(word))
}

fn xa_name(sql: &str) -> String {
    sql.split('\'').nth(1).unwrap_or("").to_owned()
}

fn is_ok(reply: &Option<Outcome>) -> bool {
    reply.as_ref().is_some_and(Outcome::is_ok)
}

/// Did it end with one of these errors, on both sides?
fn was_stopped(answer: &Answer, codes: &[u16]) -> bool {
    let ended = |reply: &Option<Outcome>| {
        reply.as_ref().is_some_and(|outcome| codes.contains(&outcome.error_code()))
    };
    answer.replies.iter().all(ended)
}

/// A new connection.
impl Default for Setting {
    fn default() -> Setting {
        Setting { level: "REPEATABLE-READ".into(), in_transaction: false }
    }
}

impl Books {
    pub fn new(sessions: usize) -> Books {
        Books {
            step: 0,
            left_out: Vec::new(),
            issued: vec![0; sessions],
            crowd: BTreeSet::new(),
            crowded: false,
            answers: Vec::new(),
            prepared: BTreeMap::new(),
            used: vec![Tables::default(); sessions],
            stopped: vec![BTreeSet::new(); sessions],
            went_back: vec![false; sessions],
            undone: false,
            anew: Vec::new(),
            waiting: BTreeMap::new(),
            images: Default::default(),
            tables: BTreeSet::new(),
            numbered: BTreeSet::new(),
            primary: BTreeMap::new(),
            claims: (0..sessions).map(|_| Claims::default()).collect(),
            settings: vec![Setting::default(); sessions],
        }
    }

    pub fn begin_step(&mut self, waiting: BTreeMap<usize, String>) {
        self.step += 1;
        for (at, sql) in &waiting {
            // DDL that waits has ended the transaction before.
            if lets_go(sql) {
                self.claims[*at].clear();
            }
        }
        self.waiting = waiting;
        self.undone = false;
        self.anew.clear();
        self.crowd.clear();
        self.answers.clear();
    }

    pub fn send(&mut self, session: usize, sql: &str) {
        self.issued[session] = self.step;
        self.used[session].used.extend(table_of(sql));
        if let Some(rest) = sql.strip_prefix("CREATE TABLE ") {
            let name = rest.split([' ', '(']).next().unwrap_or("").to_owned();
            if sql.contains("AUTO_INCREMENT") {
                self.numbered.insert(name.clone());
            }
            let key = sql.split_once("PRIMARY KEY (").and_then(|(_, key)| key.split(')').next());
            if let Some(column) = key.filter(|columns| !columns.contains(',')) {
                let column = column.split(' ').next().unwrap_or("");
                self.primary.insert(name.clone(), column.to_owned());
            }
            self.tables.insert(name);
        }
    }

    /// These answers have come since the last look.
    pub fn came(&mut self, new: &[Answer]) {
        for answer in new.iter().filter(|a| a.replies.iter().any(is_ok)) {
            let rows = answer.replies.iter().flatten().any(|o| o.affected_rows > 0);
            let changes = Ask::of(&answer.sql).filter(|ask| rows && ask.verb != Verb::Read);
            self.used[answer.session].changed.extend(changes.map(|ask| ask.table));
        }
        for answer in new.iter().filter(|a| a.sql.starts_with("ROLLBACK TO")) {
            self.went_back[answer.session] |= answer.replies.iter().any(is_ok);
        }
        // Statements that waited for it go on in the same step.
        for answer in new.iter().filter(|a| a.sql.starts_with("XA PREPARE")) {
            if answer.replies.iter().any(is_ok) {
                let used = std::mem::take(&mut self.used[answer.session]);
                let tables = self.prepared.entry(xa_name(&answer.sql)).or_default();
                tables.used.extend(used.used);
                tables.changed.extend(used.changed);
            }
        }
        for side in 0..2 {
            let at_work = |answer: &&Answer| {
                let over = [DEADLOCK, INTERRUPTED];
                let reply = answer.replies[side].as_ref();
                let ran = reply.is_some_and(|o| !over.contains(&o.error_code()));
                ran && !is_control(&answer.sql)
            };
            let sessions: Vec<usize> = new.iter().filter(at_work).map(|a| a.session).collect();
            self.note_crowd(sessions);
        }
        self.note_gapless(new);
        // The other one of a deadlock may wait still.
        let waited = |a: &Answer| self.waiting.contains_key(&a.session);
        let victim = |a: &Answer| {
            a.replies[0].as_ref().is_some_and(|o| o.error_code() == DEADLOCK) && waited(a)
        };
        if new.iter().any(victim) {
            self.note_crowd(self.waiting.keys().copied().collect());
        }
    }

    /// A statement that locks no gaps has waited: others have written beside the place where it stood, which
    /// each engine chooses for itself.
    fn note_gapless(&mut self, new: &[Answer]) {
        let stood = |a: &&Answer| {
            let ran = a.replies.iter().any(is_ok) && !is_control(&a.sql);
            ran && self.waiting.contains_key(&a.session) && self.is_gapless(a.session)
        };
        let stood: Vec<usize> = new.iter().filter(stood).map(|a| a.session).collect();
        self.crowded |= !stood.is_empty();
        self.crowd.extend(stood);
    }

    fn is_gapless(&self, at: usize) -> bool {
        !locks_gaps(&self.settings[at].level)
    }

    fn note_crowd(&mut self, sessions: Vec<usize>) {
        if sessions.len() > 1 {
            self.crowd.extend(sessions);
            self.crowded = true;
        }
    }

    /// Were several statements at work at once, beside the one of the step?
    pub fn is_chance(&self, session: usize) -> bool {
        self.crowd.iter().filter(|at| **at != session).count() > 1
    }

    /// Tables in which what one of them does may fall between two rows of another one, or, of one that is alone,
    /// beside the place where it waited: it locks no gaps, or takes numbers.
    pub fn mixed_tables(&self) -> BTreeSet<String> {
        let woken = |answer: &&Answer| self.crowd.contains(&answer.session);
        let woken: Vec<&Answer> = self.answers.iter().filter(woken).collect();
        let mixes = |answer: &Answer| {
            self.is_gapless(answer.session) || self.takes_many_numbers(&answer.sql)
        };
        let met = |answer: &Answer, table: &String| {
            let is_other = |other: &&Answer| other.session != answer.session;
            let mut others = woken.iter().copied().filter(is_other);
            self.crowd.len() == 1
                || others.any(|other| table_of(&other.sql).as_ref() == Some(table))
        };
        let table = |answer: &&Answer| table_of(&answer.sql).filter(|table| met(answer, table));
        woken.iter().copied().filter(|answer| mixes(answer)).filter_map(|a| table(&a)).collect()
    }

    /// What each side's tables show to READ UNCOMMITTED. A table that cannot be read now is missing.
    pub fn look(&self, control: &mut Direct, side: Side) -> Images {
        let mut images = Images::new();
        for table in &self.tables {
            let database = side.database();
            let sql =
                format!("SET STATEMENT lock_wait_timeout=0 FOR SELECT * FROM {database}.{table}");
            let outcome = control.run(&sql);
            if let Some(set) = outcome.sets.first().filter(|_| outcome.is_ok()) {
                images.insert(table.clone(), Image::of(set));
            }
        }
        images
    }

    /// Why Sluice had to make this statement wait, which it let go on and InnoDB did not.
    /// `Err`: that cannot be told.
    pub fn judge(
        &self,
        control: &mut Direct,
        at: usize,
        sql: &str,
        ours: &Outcome,
        alone: bool,
    ) -> Result<Option<String>, ()> {
        let ask = Ask::of(sql).filter(|_| alone && !self.undone).ok_or(())?;
        // Of an earlier step's statement it is not known what it met first, and of rows that a
        // waiting statement has written not yet all that it will write.
        if self.issued[at] != self.step || self.is_being_changed(&ask.table) {
            return Err(());
        }
        if ask.verb != Verb::Insert && ask.range.is_none() {
            return Err(());
        }
        let after = self.look(control, SIDES[0]);
        let ran = self.ran(at, sql, &self.images[0], &after, false);
        let others = (0..self.claims.len()).filter(|other| *other != at);
        let stop = |other: usize| {
            let why = self.claims[other].stop(&ran, ours)?;
            Some(format!("session {} holds it: {why}", other + 1))
        };
        Ok(others.into_iter().find_map(stop))
    }

    fn ran<'a>(
        &'a self,
        at: usize,
        sql: &'a str,
        before: &'a Images,
        after: &'a Images,
        waited: bool,
    ) -> Ran<'a> {
        let Setting { level, in_transaction } = &self.settings[at];
        let committed = self.committed(at, sql, level, before);
        Ran { sql, level, waited, in_transaction: *in_transaction, before, after, committed }
    }

    /// What session `at` sees of the statement's table where it reads committed rows first.
    fn committed(&self, at: usize, sql: &str, level: &str, before: &Images) -> Option<Image> {
        let table = Ask::of(sql)?.table;
        let primary = self.primary.get(&table).map(String::as_str);
        let mut image =
            before.get(&table).filter(|_| reads_committed_first(sql, level, primary))?.clone();
        for (other, claims) in self.claims.iter().enumerate() {
            if other != at {
                claims.undo(&table, &mut image);
            }
        }
        Some(image)
    }

    /// Has a transaction that is prepared now used the statement's table?
    pub fn meets_prepared(&self, sql: &str) -> bool {
        let Some(table) = table_of(sql) else { return false };
        self.prepared.values().any(|tables| tables.used.contains(&table))
    }

    /// Sessions that wait since an earlier step in a statement of the same table.
    pub fn waiters_beside(&self, at: usize, sql: &str) -> Vec<usize> {
        let table = table_of(sql);
        let beside = |(other, asked): &(&usize, &String)| **other != at && table_of(asked) == table;
        self.waiting.iter().filter(beside).map(|(other, _)| *other).collect()
    }

    /// Is it DDL of a table that transactions which are prepared now have used, and not changed?
    pub fn is_read_by_prepared(&self, sql: &str) -> bool {
        let words: Vec<&str> = sql.split_whitespace().take(3).collect();
        let ["ALTER" | "TRUNCATE", "TABLE", table] = words.as_slice() else { return false };
        let mut all =
            self.prepared.values().filter(|tables| tables.used.contains(*table)).peekable();
        all.peek().is_some() && all.all(|tables| !tables.changed.contains(*table))
    }

    /// Has the session gone back to a savepoint while another one's DDL waits?
    pub fn gave_way(&self, at: usize) -> bool {
        let ddl = |(other, sql): (&usize, &String)| *other != at && is_ddl(sql);
        self.went_back[at] && self.waiting.iter().any(ddl)
    }

    /// Is it DDL for which another session may have given way by going back to a savepoint?
    pub fn was_let_by(&self, at: usize, sql: &str) -> bool {
        is_ddl(sql) && self.went_back.iter().enumerate().any(|(other, back)| other != at && *back)
    }

    /// Would it see how far a waiting statement has come?
    pub fn is_left_out(&self, at: usize, sql: &str) -> bool {
        self.sees_unfinished(at, sql) || self.meets_numbers(sql)
    }

    /// Is it a plain read at READ UNCOMMITTED of a table that a waiting statement changes?
    fn sees_unfinished(&self, at: usize, sql: &str) -> bool {
        let table = table_of(sql);
        let plain =
            Ask::of(sql).is_some_and(|ask| ask.verb == Verb::Read && ask.exclusive.is_none());
        (plain || sql.starts_with("SELECT f"))
            && self.settings[at].level == "READ-UNCOMMITTED"
            && table.is_some_and(|table| self.is_being_changed(&table))
    }

    /// Does it take numbers where a statement waits that may have taken some?
    fn meets_numbers(&self, sql: &str) -> bool {
        let table = table_of(sql);
        let waits = |asked: &String| table_of(asked) == table && self.takes_many_numbers(asked);
        self.takes_numbers(sql) && self.waiting.values().any(waits)
    }

    fn is_being_changed(&self, table: &str) -> bool {
        self.waiting
            .values()
            .filter_map(|sql| Ask::of(sql))
            .any(|ask| ask.table == table && ask.verb != Verb::Read)
    }

    /// Does another session, `at` aside, wait since an earlier step in a statement of this table, or was one
    /// stopped there, and does no session that does not wait hold a row that is asked for? `ended`: the
    /// transaction that the present step has ended.
    pub fn waits_elsewhere(&self, at: usize, sql: &str, ended: Option<usize>) -> bool {
        let table = table_of(sql);
        let stopped = |(other, tables): (usize, &BTreeSet<String>)| {
            other != at && table.as_ref().is_some_and(|table| tables.contains(table))
        };
        let waits = table.is_some() && !self.waiters_beside(at, sql).is_empty();
        let elsewhere = waits || self.stopped.iter().enumerate().any(stopped);
        if !elsewhere {
            return false;
        }
        let ran = self.ran(at, sql, &self.images[0], &self.images[0], false);
        let holds = |s: &usize| *s != at && Some(*s) != ended && !self.waiting.contains_key(s);
        let others = (0..self.claims.len()).filter(holds);
        !others.into_iter().any(|other| self.claims[other].meets(&ran) == Some(true))
    }

    /// InnoDB has run the statement. Has it put a row into a range in which InnoDB may hold less for another
    /// session than Sluice?
    pub fn spares(&self, control: &mut Direct, at: usize, sql: &str) -> Option<Spared> {
        let after = self.look(control, SIDES[1]);
        let ran = self.ran(at, sql, &self.images[0], &after, false);
        let others = (0..self.claims.len()).filter(|other| *other != at);
        others.into_iter().find_map(|other| self.claims[other].spares(&ran))
    }

    /// At the end of a step, `answered` alike. `run` asks a session of Sluice.
    pub fn end_step(
        &mut self,
        control: &mut Direct,
        reset: Option<usize>,
        answered: &[Answer],
        mut run: impl FnMut(usize, &str) -> Outcome,
    ) {
        let after = self.look(control, SIDES[0]);
        if let Some(at) = reset {
            self.forget(at);
        }
        let done: Vec<&Answer> = answered.iter().filter(|a| is_ok(&a.replies[0])).collect();
        // Whose the changes are is clear if there was one statement, and no end of a transaction.
        let clear = answered.len() == 1 && reset.is_none() && !self.undone;
        for answer in &done {
            let at = answer.session;
            if ["XA COMMIT", "XA ROLLBACK"].iter().any(|w| answer.sql.starts_with(w)) {
                self.prepared.remove(&xa_name(&answer.sql));
            }
            if lets_go(&answer.sql) {
                self.claims[at].clear();
                continue;
            }
            let waited = !clear || self.issued[at] != self.step;
            let before = if clear { &self.images[0] } else { &after };
            let mut claims = std::mem::take(&mut self.claims[at]);
            claims.add(&self.ran(at, &answer.sql, before, &after, waited));
            self.claims[at] = claims;
        }
        for answer in answered {
            if was_stopped(answer, &[INTERRUPTED, LOCK_WAIT]) {
                self.stopped[answer.session].extend(table_of(&answer.sql));
            }
            let begins = ["BEGIN", "START"].iter().any(|w| answer.sql.starts_with(w));
            let begins = begins && is_ok(&answer.replies[0]);
            self.ask_setting(answer.session, begins, &mut run);
        }
        self.images[0] = after;
        if !self.crowd.is_empty() {
            self.images[1] = self.look(control, SIDES[1]);
        }
    }

    /// `begins`: the session's transaction has begun just now, perhaps after the end of another.
    fn ask_setting(
        &mut self,
        at: usize,
        begins: bool,
        run: &mut impl FnMut(usize, &str) -> Outcome,
    ) {
        let outcome = run(at, "SELECT @@in_transaction, @@tx_isolation");
        let row = outcome.sets.first().and_then(|set| set.rows.first()).cloned();
        let cell = |index: usize| {
            let bytes = row.as_ref()?.get(index)?.as_deref()?;
            Some(String::from_utf8_lossy(bytes).into_owned())
        };
        let open = cell(0).as_deref() == Some("1");
        let setting = &mut self.settings[at];
        setting.in_transaction = open;
        if !open || begins {
            // A transaction keeps the level that it began with.
            setting.level = cell(1).unwrap_or_else(|| setting.level.clone());
            self.claims[at].clear();
            self.used[at] = Tables::default();
            self.stopped[at].clear();
            self.went_back[at] = false;
        }
    }

    /// Has the session a transaction?
    pub fn is_open(&self, at: usize) -> bool {
        self.settings[at].in_transaction
    }

    /// The session has a new connection.
    pub fn begin_anew(&mut self, at: usize) {
        self.forget(at);
        self.anew.push(at);
        self.stopped[at].clear();
        self.went_back[at] = false;
        self.settings[at] = Setting::default();
    }

    /// The session's statement was ended, or its transaction.
    fn forget(&mut self, at: usize) {
        self.undone = true;
        self.claims[at].clear();
        self.used[at] = Tables::default();
        self.settings[at].in_transaction = false;
    }

    /// After a crowd: the tables that are not alike.
    pub fn parted_tables(&self) -> Option<Difference> {
        if self.crowd.is_empty() {
            return None;
        }
        let differs = |(table, ours): (&String, &Image)| {
            let theirs = self.images[1].get(table).filter(|_| !self.is_being_changed(table))?;
            let sorted = |image: &Image| {
                let mut rows = image.rows.clone();
                rows.sort();
                rows
            };
            let (sluice, innodb) = row_difference(&sorted(ours), &sorted(theirs), false)?;
            Some(Difference { kind: Kind::FinalTable, statement: table.clone(), sluice, innodb })
        };
        self.images[0].iter().find_map(differs)
    }

    /// Has the statement, which one side has run and the other has not, taken numbers?
    pub fn takes_numbers(&self, sql: &str) -> bool {
        let set = sql.split_once(" SET ").map_or("", |(_, rest)| rest);
        let set = set.split(" WHERE ").next().unwrap_or("");
        let gives =
            |ask: &Ask| ask.verb == Verb::Insert || set.split(", ").any(|s| s.starts_with("id = "));
        Ask::of(sql).filter(gives).is_some_and(|ask| self.numbered.contains(&ask.table))
    }

    /// Does it take numbers for more rows than one?
    pub fn takes_many_numbers(&self, sql: &str) -> bool {
        let one = sql.contains(" VALUES (") && !sql.contains("),(");
        self.takes_numbers(sql) && !one
    }

    /// The table of a statement that was ended while it waited, where each side may have taken the numbers of
    /// other rows by then.
    pub fn numbers_doubtful(&self, answer: &Answer) -> Option<String> {
        let over = [DEADLOCK, INTERRUPTED, LOCK_WAIT];
        let doubtful = was_stopped(answer, &over) && self.takes_many_numbers(&answer.sql);
        table_of(&answer.sql).filter(|_| doubtful)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_that_take_many_numbers() {
        let mut books = Books::new(2);
        books.send(0, "CREATE TABLE t1 (id INT NOT NULL AUTO_INCREMENT, c1 INT, PRIMARY KEY (id))");
        assert!(!books.takes_many_numbers("INSERT INTO t1 (c1) VALUES (1)"), "one row");
        assert!(!books.takes_many_numbers("INSERT INTO t2 (c1) VALUES (1),(2)"), "no numbers");
        assert!(!books.takes_many_numbers("UPDATE t1 SET c1 = 2 WHERE id = 3"));
        assert!(books.takes_many_numbers("REPLACE INTO t1 (c1) VALUES (1),(2)"));
        assert!(books.takes_many_numbers("LOAD DATA INFILE 'f' INTO TABLE t1 (c1)"));
        assert!(books.takes_many_numbers("UPDATE t1 SET id = 2 WHERE c1 = 3"));
        let (one, two) = ("INSERT INTO t1 (c1) VALUES (1)", "INSERT INTO t1 (c1) VALUES (1),(2)");
        books.begin_step(BTreeMap::from([(0, one.into())]));
        assert!(!books.meets_numbers(two));
        books.begin_step(BTreeMap::from([(0, two.into())]));
        assert!(books.meets_numbers(one));
        assert!(!books.meets_numbers("DELETE FROM t1 WHERE id = 3"));
    }

    #[test]
    fn statements_mix_in_a_table_that_they_share() {
        let answer = |session: usize, sql: &str| Answer {
            session,
            sql: sql.into(),
            replies: [Some(Outcome::default()), Some(Outcome::default())],
        };
        let mut books = Books::new(3);
        books.settings[0].level = "READ-COMMITTED".into();
        books.answers = vec![answer(0, "UPDATE t1 SET c1 = 2"), answer(1, "DELETE FROM t2")];
        books.crowd = BTreeSet::from([0, 1]);
        assert_eq!(books.mixed_tables(), BTreeSet::new(), "each in its own table");
        books.answers.push(answer(2, "DELETE FROM t1"));
        assert_eq!(books.mixed_tables(), BTreeSet::new(), "that one was not woken");
        books.crowd.insert(2);
        assert_eq!(books.mixed_tables(), BTreeSet::from(["t1".to_owned()]));
        books.settings[0].level = "SERIALIZABLE".into();
        assert_eq!(books.mixed_tables(), BTreeSet::new(), "all lock gaps");
        books.settings[0].level = "READ-COMMITTED".into();
        books.crowd = BTreeSet::from([0]);
        assert_eq!(books.mixed_tables(), BTreeSet::from(["t1".to_owned()]), "it waited alone");
    }

    #[test]
    fn ddl_passes_what_was_only_read() {
        let mut books = Books::new(1);
        let ran = |sql: &str, affected_rows: u64| {
            let outcome = Some(Outcome { affected_rows, ..Outcome::default() });
            Answer { session: 0, sql: sql.into(), replies: [outcome.clone(), outcome] }
        };
        for (sql, rows) in [("SELECT * FROM t1", 0), ("DELETE t2 FROM t2", 2)] {
            books.send(0, sql);
            books.came(&[ran(sql, rows)]);
        }
        assert!(!books.is_read_by_prepared("ALTER TABLE t1 FORCE"), "not prepared");
        books.came(&[ran("XA PREPARE 'x'", 0)]);
        assert!(books.is_read_by_prepared("ALTER TABLE t1 FORCE"));
        assert!(!books.is_read_by_prepared("TRUNCATE TABLE t2"), "changed");
        assert!(!books.is_read_by_prepared("TRUNCATE TABLE t3"), "not used");
    }

    #[test]
    fn what_was_killed_at_a_lock_may_hold_other_locks() {
        let sql = "SELECT c1 FROM t1 FORCE INDEX (k1) WHERE c1 = 1 FOR UPDATE";
        let mut books = Books::new(2);
        assert!(!books.waits_elsewhere(1, sql, None));
        books.stopped[1].insert("t1".into());
        assert!(!books.waits_elsewhere(1, sql, None), "its own");
        books.stopped[0].insert("t1".into());
        assert!(books.waits_elsewhere(1, sql, None));
        books.begin_anew(0);
        assert!(!books.waits_elsewhere(1, sql, None), "a new connection");
    }
}
