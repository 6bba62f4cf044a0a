//! Runs a script on both engines, step by step, with the same schedule, and judges what they have answered.
//! `pairs` has the connections, `alone` the rules for what one side alone has stopped.
//!
//! A step ends when every session has answered or waits, on both sides alike. Where a rule lets one side go
//! another way, the session's transaction is undone on both, or the case ends.

use crate::alone::{self, Alone, Servers, View};
use crate::books::{Answer, Books};
use crate::claims::table_of;
use crate::compare::{compare, Difference, Kind, Observation};
use crate::mistakes;
use crate::orders::{explain, Ending};
use crate::pairs::{Pairs, LOCK_WAIT_TIMEOUT};
use crate::plans;
use crate::rules::{
    ended_rows_further, Counts, CAUGHT_UP, COMMITTED, ELSEWHERE, IMMUNE, NUMBERS, PLAN, ROWS_ON,
    UNFINISHED,
};
use crate::script::{Action, ScriptStep};
use crate::session::{Outcome, SIDES};
use crate::verify;
use crate::world::World;
use std::cell::RefCell;
use std::collections::{BTreeSet, HashSet};
use std::io;
use std::time::{Duration, Instant};

/// In which a statement must have ended after KILL QUERY; half of the sessions' lock wait timeout.
const HEED: Duration = Duration::from_secs(15);

pub struct Runner<'w> {
    pub pairs: Pairs<'w>,
    pub counts: Counts,
    pub parted: Parted,
    /// No rule about locks applies: the script is known to lock alike.
    pub strict: bool,
    /// Each step is shown, with its answers.
    pub trace: bool,
    pub books: Books,
    /// What EXECUTE runs.
    prepared: String,
}

/// In what the two sides cannot be made alike again, for a reason that a rule gives: the case ends.
#[derive(Default)]
pub struct Parted {
    /// In their histories: only each side alone can be checked.
    pub alone: bool,
    /// In AUTO_INCREMENT of these tables, and in nothing else.
    pub numbers: BTreeSet<String>,
}

impl Parted {
    pub fn is_over(&self) -> bool {
        self.alone || !self.numbers.is_empty()
    }
}

pub enum Stepped {
    /// Both sides have answered alike; the first is how it went.
    Same(Box<Outcome>),
    /// Both sides wait.
    Waits,
    /// The session waits for its last statement, so this one was left out.
    Skipped,
    Parted,
    Differs(Box<Difference>),
}

impl<'w> Runner<'w> {
    pub fn new(world: &'w World, sessions: usize) -> io::Result<Runner<'w>> {
        Ok(Runner {
            pairs: Pairs::connect(world, sessions)?,
            counts: Counts::default(),
            parted: Parted::default(),
            strict: false,
            trace: world.trace,
            books: Books::new(sessions),
            prepared: String::new(),
        })
    }

    pub fn sessions(&self) -> usize {
        self.pairs.count()
    }

    pub fn waits(&self, session: usize) -> bool {
        self.pairs.talks[session].is_open()
    }

    pub fn step(&mut self, step: &ScriptStep) -> io::Result<Stepped> {
        let begun = Instant::now();
        let stepped = match self.run_step(step)? {
            Stepped::Differs(found) => Stepped::Differs(found),
            _ if self.parted.is_over() => Stepped::Parted,
            stepped => stepped,
        };
        if matches!(stepped, Stepped::Skipped) {
            self.books.left_out.push(self.books.step);
        }
        if self.trace {
            self.show(step, &stepped);
            println!("    {} ms", begun.elapsed().as_millis());
        }
        Ok(stepped)
    }

    fn show(&self, step: &ScriptStep, stepped: &Stepped) {
        let end = match stepped {
            Stepped::Same(_) => "",
            Stepped::Waits => "waits",
            Stepped::Skipped => "left out",
            Stepped::Parted => "parted",
            Stepped::Differs(_) => "DIFFERS",
        };
        println!("{}: {} {end}", step.session + 1, step.text());
        for answer in &self.books.answers {
            let show = |reply: &Option<Outcome>| match reply {
                None => "waits".to_owned(),
                Some(o) if o.is_ok() => format!(
                    "{} rows, {} affected",
                    o.sets.iter().map(|s| s.rows.len()).sum::<usize>(),
                    o.affected_rows
                ),
                Some(o) => format!("{:?} {:?}", o.error, o.lost),
            };
            println!(
                "    {}: {} | {} ({})",
                answer.session + 1,
                show(&answer.replies[0]),
                show(&answer.replies[1]),
                answer.sql
            );
        }
    }

    fn run_step(&mut self, step: &ScriptStep) -> io::Result<Stepped> {
        self.books.begin_step(self.pairs.waiting());
        match &step.action {
            Action::Sql(_) if self.waits(step.session) => Ok(Stepped::Skipped),
            Action::Sql(sql) if !self.strict && self.books.is_left_out(step.session, sql) => {
                self.counts.add(UNFINISHED.id);
                Ok(Stepped::Skipped)
            }
            Action::Sql(sql) if self.takes_another_path(sql) => {
                self.counts.add(PLAN.id);
                Ok(Stepped::Skipped)
            }
            Action::Sql(sql) => {
                let prepared =
                    sql.strip_prefix("PREPARE p FROM '").and_then(|t| t.strip_suffix('\''));
                if let Some(text) = prepared {
                    self.prepared = text.replace("''", "'").replace("\\\\", "\\");
                }
                self.books.send(step.session, sql);
                self.pairs.send(step.session, sql);
                self.settle(step.session, false)
            }
            Action::Disconnect if self.waits(step.session) => Ok(Stepped::Skipped),
            Action::Disconnect => {
                self.reconnect(step.session)?;
                self.settle(step.session, true)
            }
            Action::Kill if !self.strict && self.pairs.is_immune(step.session) => {
                self.counts.add(IMMUNE.id);
                Ok(Stepped::Skipped)
            }
            Action::Kill => {
                self.pairs.kill(step.session);
                self.settle(step.session, true)
            }
        }
    }

    fn takes_another_path(&mut self, sql: &str) -> bool {
        self.sessions() > 1 && !self.strict && plans::differ(&mut self.pairs.control, sql)
    }

    fn reconnect(&mut self, session: usize) -> io::Result<()> {
        self.pairs.reconnect(session)?;
        self.books.begin_anew(session);
        Ok(())
    }

    /// Takes answers until every session has answered or waits, on both sides, and compares.
    /// `reset`: the step has ended what the session did.
    fn settle(&mut self, session: usize, reset: bool) -> io::Result<Stepped> {
        if self.sessions() == 1 {
            self.pairs.wait(0);
            return Ok(self.judge(session));
        }
        if let Some(end) = self.collect_alike(session)? {
            return Ok(end);
        }
        self.books.answers = self.pairs.new_answers(&HashSet::new());
        let answers = self.books.answers.clone();
        let stepped = self.judge(session);
        let Runner { books, pairs, .. } = self;
        if matches!(stepped, Stepped::Differs(_)) {
            books.images[0] = books.look(&mut pairs.control, SIDES[0]);
            return Ok(stepped);
        }
        let doubtful: Vec<String> =
            answers.iter().filter_map(|a| books.numbers_doubtful(a)).collect();
        doubtful.into_iter().for_each(|table| self.doubt_numbers(table));
        let Runner { books, pairs, .. } = self;
        let both: Vec<Answer> =
            answers.into_iter().filter(|a| a.replies.iter().all(Option::is_some)).collect();
        let Pairs { control, sessions, .. } = pairs;
        let run = |at: usize, sql: &str| sessions[at][0].run(sql);
        books.end_step(control, reset.then_some(session), &both, run);
        Ok(books.parted_tables().map_or(stepped, |found| Stepped::Differs(Box::new(found))))
    }

    /// Takes answers until every session has answered or waits. What one side alone has stopped, and a rule
    /// allows, is undone. How the step ends where the sides are not alike after that.
    fn collect_alike(&mut self, session: usize) -> io::Result<Option<Stepped>> {
        let mut known = self.pairs.answered();
        loop {
            self.pairs.collect(session);
            let new = self.pairs.new_answers(&known);
            self.books.came(&new);
            let (at, rule) = match self.alone(session, &new) {
                Alone::Nobody => return Ok(None),
                Alone::Allowed(at, rule) => (at, rule),
                Alone::Missing(found) => return Ok(Some(Stepped::Differs(found))),
            };
            self.counts.add(rule);
            if self.trace {
                println!("    session {}: rule {rule}", at + 1);
            }
            known = self.pairs.answered();
            let Some(end) = self.abandon(at)? else { continue };
            // Not where another statement has stopped at two places, or several are at work at once: they
            // may meet other rows then.
            let sure = rule != ELSEWHERE.id && !self.books.is_chance(session);
            if sure && self.catch_up(session, at)? {
                self.counts.add(CAUGHT_UP.id);
            } else if end == COMMITTED.id || !self.undo_numbers(at)? {
                return Ok(Some(self.part(end)));
            }
            known = self.pairs.answered();
        }
    }

    fn alone(&mut self, session: usize, new: &[Answer]) -> Alone {
        if self.strict {
            return Alone::Nobody;
        }
        let books = &self.books;
        let Pairs { sessions, talks, control, .. } = &mut self.pairs;
        let servers = Servers { sessions, books, control: RefCell::new(control) };
        let view = View::new(session, talks, new, books, &servers);
        alone::judge(&view)
    }

    /// The case ends, by this rule.
    fn part(&mut self, rule: &'static str) -> Stepped {
        self.counts.add(rule);
        self.parted.alone = true;
        Stepped::Parted
    }

    /// Undoes the session's transaction on both sides, so that they are alike again. Where that is
    /// not possible, the rule that ends the case.
    fn abandon(&mut self, at: usize) -> io::Result<Option<&'static str>> {
        let talk = &self.pairs.talks[at];
        if talk.early.iter().flatten().any(|o| o.lost.is_some()) {
            return Err(io::Error::other("a connection is lost"));
        }
        if (0..2).any(|side| self.pairs.has_committed(at, side)) {
            return Ok(Some(COMMITTED.id));
        }
        let table = table_of(talk.sql()).filter(|_| self.books.takes_numbers(talk.sql()));
        if table.as_ref().is_some_and(|table| !self.pairs.count_alike(table)) {
            return Ok(Some(NUMBERS.id));
        }
        self.pairs.stop(at)?;
        self.reconnect(at)?;
        table.into_iter().for_each(|table| self.doubt_numbers(table));
        Ok(None)
    }

    /// One side may have taken more numbers of this table than the other: if so, the case ends.
    fn doubt_numbers(&mut self, table: String) {
        if !self.parted.is_over() && !self.pairs.count_alike(&table) {
            self.counts.add(NUMBERS.id);
            self.parted.numbers.insert(table);
        }
    }

    /// Undoes the session's transaction although one side has taken more numbers. False: another statement at
    /// work takes numbers of the same table, so it may have got other ones.
    fn undo_numbers(&mut self, at: usize) -> io::Result<bool> {
        let table = table_of(self.pairs.talks[at].sql());
        let takes = |other: usize| {
            let sql = self.pairs.talks[other].sql();
            table_of(sql) == table && self.books.takes_numbers(sql)
        };
        if (0..self.sessions()).any(|other| other != at && takes(other)) {
            return Ok(false);
        }
        self.pairs.stop(at)?;
        self.reconnect(at)?;
        table.into_iter().for_each(|table| self.doubt_numbers(table));
        Ok(true)
    }

    /// One side has run the statement of `at` for good, on the other it waits for locks that the first side
    /// need not take: the transactions of others are undone, on both sides, until it goes on. Then
    /// both sides have run the same, and the answers are compared like any other.
    fn catch_up(&mut self, session: usize, at: usize) -> io::Result<bool> {
        let is_fine = |answer: &Option<Outcome>| answer.as_ref().is_none_or(Outcome::is_ok);
        let talk = &self.pairs.talks[at];
        if talk.early.iter().all(Option::is_some) || !talk.early.iter().all(is_fine) {
            // One side has ended it with an error, for good.
            return Ok(false);
        }
        // First those that wait for the same table: one side's statement has come before theirs.
        let overtaken = self.books.waiters_beside(at, talk.sql());
        let open = |other: &usize| *other != at && self.books.is_open(*other);
        let waits = |other: &usize| *other != at && self.books.waiting.contains_key(other);
        let holders = (0..self.sessions()).filter(open);
        let waiters = (0..self.sessions()).filter(waits);
        let rest: Vec<usize> =
            holders.chain(waiters).filter(|other| !overtaken.contains(other)).collect();
        for other in overtaken.iter().chain(&rest) {
            let known = self.pairs.answered();
            if !self.undo(*other)? {
                if overtaken.contains(other) {
                    return Ok(false);
                }
                continue;
            }
            self.pairs.collect(session);
            self.books.came(&self.pairs.new_answers(&known));
            if self.pairs.talks[at].early.iter().all(Option::is_some) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Ends the session's transaction on both sides, if both are at the same place.
    fn undo(&mut self, at: usize) -> io::Result<bool> {
        match self.pairs.talks[at].early.iter().flatten().count() {
            0 if self.waits(at) => return Ok(self.abandon(at)?.is_none()),
            1 => return Ok(false),
            _ => self.reconnect(at)?,
        }
        Ok(true)
    }

    /// Compares the answers that both sides have given.
    fn judge(&mut self, session: usize) -> Stepped {
        let mut own = Stepped::Waits;
        for at in 0..self.sessions() {
            let talk = &mut self.pairs.talks[at];
            match (talk.early[0].take(), talk.early[1].take()) {
                (None, None) => {}
                (Some(ours), Some(theirs)) => {
                    let sql = talk.asked[0].take().unwrap_or_default();
                    talk.asked[1] = None;
                    let found = compare(&sql, &ours, &theirs, &mut self.counts);
                    let sides = (&ours, &theirs);
                    let found =
                        found.filter(|found| !self.is_rows_further(at, found.kind, &sql, sides));
                    if let Some(found) =
                        found.filter(|_| !self.is_mistake(at, &sql, &ours, &theirs))
                    {
                        return Stepped::Differs(Box::new(found));
                    }
                    if at == session {
                        own = Stepped::Same(Box::new(ours));
                    }
                }
                (ours, theirs) => return wait_differs(at, talk.sql(), &ours, &theirs),
            }
        }
        match self.pairs.talks[session].asked[0] {
            None if !matches!(own, Stepped::Same(_)) => Stepped::Same(Box::default()),
            _ => own,
        }
    }

    /// See [`ROWS_ON`].
    fn is_rows_further(
        &mut self,
        at: usize,
        kind: Kind,
        sql: &str,
        (sluice, innodb): (&Outcome, &Outcome),
    ) -> bool {
        let waited = !self.strict && self.books.waiting.contains_key(&at);
        let seen = Observation { kind, sql, sluice, innodb };
        let applies = ended_rows_further(&seen, waited);
        if applies {
            self.counts.add(ROWS_ON.id);
        }
        applies
    }

    /// With several sessions a second run of the statement could wait, or lock more.
    fn is_mistake(&mut self, at: usize, sql: &str, ours: &Outcome, theirs: &Outcome) -> bool {
        let alone = self.sessions() == 1;
        let sql = if sql.starts_with("EXECUTE ") { &self.prepared } else { sql };
        let sides = &self.pairs.sessions[at];
        let rule = alone.then(|| mistakes::explain(sides, sql, ours, theirs)).flatten();
        rule.inspect(|rule| self.counts.add(rule)).is_some()
    }

    /// Ends every transaction and compares the tables. Sessions that wait are killed first, the newest
    /// statement before those that it waits for: none may go on. What InnoDB does not let be killed waits for
    /// a prepared transaction, and must end after that.
    pub fn finish(&mut self) -> io::Result<Option<Difference>> {
        let mut all: Vec<usize> = (0..self.sessions()).collect();
        all.sort_by_key(|at| std::cmp::Reverse(self.books.issued[*at]));
        let mut doubtful = Vec::new();
        let (immune, rest): (Vec<usize>, Vec<usize>) =
            all.into_iter().partition(|at| self.pairs.is_immune(*at));
        for at in rest.iter().copied() {
            let sql = self.pairs.talks[at].sql().to_owned();
            doubtful.extend(table_of(&sql).filter(|_| self.books.takes_many_numbers(&sql)));
            self.pairs.kill(at);
            if !self.pairs.ends(at, HEED) {
                return Ok(Some(deaf(at, sql, HEED, "KILL QUERY")));
            }
        }
        for at in rest {
            self.reconnect(at)?;
        }
        verify::roll_back_prepared(&mut self.pairs.control);
        for at in immune {
            let sql = self.pairs.talks[at].sql().to_owned();
            if !self.pairs.ends(at, LOCK_WAIT_TIMEOUT) {
                return Ok(Some(deaf(at, sql, LOCK_WAIT_TIMEOUT, "the end of all others")));
            }
            self.reconnect(at)?;
        }
        doubtful.into_iter().for_each(|table| self.doubt_numbers(table));
        let [ours, theirs] = &self.pairs.sessions[0];
        Ok(verify::verify(ours, theirs, &self.parted, &mut self.counts))
    }
}

fn wait_differs(at: usize, sql: &str, ours: &Option<Outcome>, theirs: &Option<Outcome>) -> Stepped {
    let text = |outcome: &Option<Outcome>| match outcome {
        None => "waits".to_owned(),
        Some(o) if o.is_ok() => "goes on".to_owned(),
        Some(o) => format!("{:?} {:?}", o.error, o.lost),
    };
    let found = Difference {
        kind: Kind::Wait,
        statement: format!("session {}: {sql}", at + 1),
        sluice: text(ours),
        innodb: text(theirs),
    };
    Stepped::Differs(Box::new(found))
}

/// Sluice's statement has not ended after what should end it.
fn deaf(session: usize, sql: String, limit: Duration, end: &str) -> Difference {
    Difference {
        kind: Kind::Wait,
        statement: format!("session {}: {sql}", session + 1),
        sluice: format!("goes on {} s after {end}", limit.as_secs()),
        innodb: "is not asked".to_owned(),
    }
}

impl Runner<'_> {
    /// How `steps` have ended in a difference; `None`: by the checks at the end, without one.
    pub fn ending(&self, steps: &[ScriptStep], at_step: bool) -> Ending {
        let books = &self.books;
        let stays = |at: &&usize| !books.anew.contains(at);
        let waited = |at: &&usize| books.waiting.contains_key(at);
        Ending {
            steps: steps.to_vec(),
            at_step,
            left_out: books.left_out.clone(),
            crowd: books.crowd.iter().filter(stays).map(|at| (*at, books.issued[*at])).collect(),
            crowded: books.crowded,
            undone: books.anew.clone(),
            withdrawn: books.anew.iter().filter(waited).map(|at| books.issued[*at]).collect(),
            mixes: books.mixed_tables(),
            answers: books.answers.clone(),
            images: books.images[0].clone(),
        }
    }
}

/// Runs a script from empty databases.
pub fn run_script(
    world: &mut World,
    steps: &[ScriptStep],
    counts: &mut Counts,
    strict: bool,
) -> io::Result<Option<Difference>> {
    world.empty()?;
    let (found, ending) = {
        let mut runner = Runner::new(world, crate::script::sessions(steps))?;
        runner.strict = strict;
        let ended = run_steps(&mut runner, steps)?;
        counts.merge(&runner.counts);
        ended
    };
    let rule = if found.is_some() { explain(world, &ending)? } else { None };
    if let Some(rule) = rule {
        counts.add(rule);
        return Ok(None);
    }
    Ok(found)
}

fn run_steps(
    runner: &mut Runner,
    steps: &[ScriptStep],
) -> io::Result<(Option<Difference>, Ending)> {
    for (index, step) in steps.iter().enumerate() {
        match runner.step(step)? {
            Stepped::Differs(found) => {
                return Ok((Some(*found), runner.ending(&steps[..=index], true)));
            }
            Stepped::Parted => break,
            _ => {}
        }
    }
    let found = runner.finish()?;
    Ok((found, runner.ending(steps, false)))
}
