//! Runs a script on both engines, step by step, with the same schedule.

use crate::books::{lets_go, Answer, Books};
use crate::claims::Spared;
use crate::compare::{compare, Difference, Kind};
use crate::mistakes;
use crate::orders::{explain, Ending};
use crate::plans;
use crate::rules::{
    Counts, Met, CAUGHT_UP, COMMITTED, ELSEWHERE, FURTHER, GONE, IMMUNE, NUMBERS, PLAN, PREPARED,
    READER, SAVEPOINT, SKIPPED, UNFINISHED, UNJUDGED, VICTIM, WIDER,
};
use crate::script::{Action, Step};
use crate::session::{Direct, Outcome, Session, SIDES};
use crate::verify;
use crate::waits::{self, Waiter};
use crate::world::{World, LOCK_WAIT_TIMEOUT_S};
use std::collections::{BTreeMap, HashSet};
use std::io;
use std::time::{Duration, Instant};

/// In which a statement must have ended after KILL QUERY; half of the sessions' lock wait timeout.
const HEED: Duration = Duration::from_secs(15);
/// InnoDB's DDL heeds no KILL while it waits for a table.
const LOCK_WAIT_TIMEOUT: Duration = Duration::from_secs(LOCK_WAIT_TIMEOUT_S);

pub struct Runner<'w> {
    pub world: &'w World,
    /// By session, then by side.
    pairs: Vec<[Session; 2]>,
    pub control: Direct,
    /// Its snapshot keeps both engines from purging deleted entries, which would happen at random moments:
    /// a statement waits for an entry or does not meet it.
    _history: Option<Direct>,
    pub counts: Counts,
    /// The statement that a session has not had an answer to, by session and side.
    asked: Vec<[Option<String>; 2]>,
    /// Replies that one side has given and the other has not.
    early: Vec<[Option<Outcome>; 2]>,
    /// The histories have parted for a reason that a rule gives; only each side alone can be checked.
    pub parted: bool,
    /// No rule about locks applies: the script is known to lock alike.
    pub strict: bool,
    /// Each step is shown, with its answers.
    pub trace: bool,
    pub books: Books,
    /// What EXECUTE runs.
    prepared: String,
}

/// A connection that is let go waits for its answer.
impl Drop for Runner<'_> {
    fn drop(&mut self) {
        (0..self.sessions()).for_each(|at| self.kill(at));
    }
}

/// A session whose locks have met others on one side only.
enum Alone {
    Nobody,
    /// A rule allows it.
    Allowed(usize, &'static str),
    Missing(Box<Difference>),
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
        let mut pairs = Vec::new();
        for _ in 0..sessions {
            pairs.push([world.session(SIDES[0])?, world.session(SIDES[1])?]);
        }
        let mut control = world.control()?;
        control.run("SET SESSION TRANSACTION ISOLATION LEVEL READ UNCOMMITTED");
        let mut history = (sessions > 1).then(|| world.control()).transpose()?;
        if let Some(history) = &mut history {
            history.run("START TRANSACTION WITH CONSISTENT SNAPSHOT");
        }
        Ok(Runner {
            world,
            pairs,
            control,
            _history: history,
            counts: Counts::default(),
            asked: vec![[None, None]; sessions],
            early: (0..sessions).map(|_| [None, None]).collect(),
            parted: false,
            strict: false,
            trace: world.trace,
            books: Books::new(sessions),
            prepared: String::new(),
        })
    }

    pub fn sessions(&self) -> usize {
        self.pairs.len()
    }

    pub fn waits(&self, session: usize) -> bool {
        self.asked[session].iter().any(Option::is_some)
    }

    pub fn step(&mut self, step: &Step) -> io::Result<Stepped> {
        let begun = Instant::now();
        let stepped = self.run_step(step)?;
        if self.trace {
            self.show(step, &stepped);
            println!("    {} ms", begun.elapsed().as_millis());
        }
        Ok(stepped)
    }

    fn show(&self, step: &Step, stepped: &Stepped) {
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

    fn run_step(&mut self, step: &Step) -> io::Result<Stepped> {
        self.books.begin_step(self.waiting());
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
                for side in 0..2 {
                    self.pairs[step.session][side].send(sql);
                    self.asked[step.session][side] = Some(sql.clone());
                }
                self.settle(step.session, false)
            }
            Action::Disconnect if self.waits(step.session) => Ok(Stepped::Skipped),
            Action::Disconnect => {
                self.reconnect(step.session)?;
                self.settle(step.session, true)
            }
            Action::Kill if !self.strict && self.is_immune(step.session) => {
                self.counts.add(IMMUNE.id);
                Ok(Stepped::Skipped)
            }
            Action::Kill => {
                self.kill(step.session);
                self.settle(step.session, true)
            }
        }
    }

    /// Sessions that wait on both sides, with their statements.
    fn waiting(&self) -> BTreeMap<usize, String> {
        let both = |at: &usize| self.asked[*at].iter().all(Option::is_some);
        let text = |at: usize| Some((at, self.asked[at][0].clone()?));
        (0..self.sessions()).filter(both).filter_map(text).collect()
    }

    fn takes_another_path(&mut self, sql: &str) -> bool {
        self.sessions() > 1 && !self.strict && plans::differ(&mut self.control, sql)
    }

    fn is_immune(&mut self, session: usize) -> bool {
        let theirs = self.pairs[session][1].id;
        self.asked[session][1].is_some() && waits::at_innodb_table(&mut self.control, theirs)
    }

    fn kill(&mut self, session: usize) {
        for side in 0..2 {
            if self.asked[session][side].is_some() && self.early[session][side].is_none() {
                let id = self.pairs[session][side].id;
                self.control.run(&format!("KILL QUERY {id}"));
            }
        }
    }

    /// Waits until the server has really ended the old connections.
    fn reconnect(&mut self, session: usize) -> io::Result<()> {
        for (at, side) in SIDES.into_iter().enumerate() {
            let fresh = self.world.session(side)?;
            let old = std::mem::replace(&mut self.pairs[session][at], fresh);
            let id = old.id;
            drop(old);
            waits::until_gone(&mut self.control, id);
        }
        self.books.begin_anew(session);
        Ok(())
    }

    /// Collects answers until every session has answered or waits, on both sides, and compares.
    /// `reset`: the step has ended what the session did.
    fn settle(&mut self, session: usize, reset: bool) -> io::Result<Stepped> {
        if self.sessions() == 1 {
            for side in 0..2 {
                if self.asked[0][side].is_some() {
                    self.early[0][side] = Some(self.pairs[0][side].wait());
                }
            }
            return Ok(self.judge(session));
        }
        let mut known = self.answered();
        loop {
            self.collect(session);
            self.books.came(&self.new_answers(&known));
            let (at, rule) = match self.alone(session, &known) {
                Alone::Nobody => break,
                Alone::Allowed(at, rule) => (at, rule),
                Alone::Missing(found) => return Ok(Stepped::Differs(found)),
            };
            self.counts.add(rule);
            if self.trace {
                println!("    session {}: rule {rule}", at + 1);
            }
            known = self.answered();
            if let Some(end) = self.abandon(at)? {
                // Not where another statement has stopped at two places, or several are at work at once: they
                // may meet other rows then.
                let sure = rule != ELSEWHERE.id && !self.books.is_chance(session);
                if sure && self.catch_up(session, at)? {
                    self.counts.add(CAUGHT_UP.id);
                    known = self.answered();
                    continue;
                }
                self.counts.add(end);
                self.parted = true;
                return Ok(Stepped::Parted);
            }
        }
        self.books.answers = self.new_answers(&HashSet::new());
        let answers = self.books.answers.clone();
        let stepped = self.judge(session);
        if matches!(stepped, Stepped::Differs(_)) {
            self.books.images[0] = self.books.look(&mut self.control, SIDES[0]);
            return Ok(stepped);
        }
        if answers.iter().any(|a| self.books.numbers_differ(a)) {
            self.counts.add(NUMBERS.id);
            self.parted = true;
            return Ok(Stepped::Parted);
        }
        let both: Vec<Answer> =
            answers.into_iter().filter(|a| a.replies.iter().all(Option::is_some)).collect();
        let Runner { books, control, pairs, .. } = self;
        let run = |at: usize, sql: &str| pairs[at][0].run(sql);
        books.end_step(control, reset.then_some(session), &both, run);
        Ok(books.parted_tables().map_or(stepped, |found| Stepped::Differs(Box::new(found))))
    }

    /// Replies that are there: session and side.
    fn answered(&self) -> HashSet<(usize, usize)> {
        let all = (0..self.sessions()).flat_map(|at| [(at, 0), (at, 1)]);
        all.filter(|(at, side)| self.early[*at][*side].is_some()).collect()
    }

    /// Every session that has been asked, with the replies that are not known yet.
    fn new_answers(&self, known: &HashSet<(usize, usize)>) -> Vec<Answer> {
        let answer = |session: usize| {
            let sql = self.asked[session][0].clone()?;
            let reply = |side: usize| {
                self.early[session][side].clone().filter(|_| !known.contains(&(session, side)))
            };
            Some(Answer { session, sql, replies: [reply(0), reply(1)] })
        };
        (0..self.sessions()).filter_map(answer).collect()
    }

    fn alone(&mut self, session: usize, known: &HashSet<(usize, usize)>) -> Alone {
        if self.strict {
            return Alone::Nobody;
        }
        if let Some(at) = (0..self.sessions()).find(|at| self.passes_prepared(*at)) {
            return Alone::Allowed(at, READER.id);
        }
        let replies: Vec<Met> =
            self.early.iter().map(|e| Met { ours: &e[0], theirs: &e[1] }).collect();
        let victims =
            [Met::our_victim_alone, Met::their_victim_alone].map(|f| replies.iter().position(f));
        let at = match victims {
            [Some(ours), Some(_)] => return Alone::Allowed(ours, VICTIM.id),
            [Some(ours), None] if replies[ours].theirs.is_none() && self.is_further(ours) => {
                return Alone::Allowed(ours, FURTHER.id);
            }
            [Some(ours), None]
                if self.books.waiting.contains_key(&ours) && replies.iter().any(Met::is_victim) =>
            {
                return Alone::Allowed(ours, VICTIM.id);
            }
            [Some(ours), None] if self.books.gave_way(ours) => {
                return Alone::Allowed(ours, SAVEPOINT.id);
            }
            [None, Some(theirs)] => Some(theirs),
            _ => None,
        };
        let sql = |at: usize| self.asked[at][0].as_deref().unwrap_or("");
        let let_by = |at: &usize| {
            let ended = replies[*at].ours.as_ref().is_some_and(Outcome::is_ok);
            ended && replies[*at].theirs.is_none() && self.books.was_let_by(*at, sql(*at))
        };
        if let Some(at) = (0..self.sessions()).find(let_by) {
            let theirs = self.pairs[at][1].id;
            if waits::at_metadata(&mut self.control, theirs) {
                return Alone::Allowed(at, SAVEPOINT.id);
            }
        }
        let narrower = |at: &usize| {
            let waits = self.asked[*at][0].is_some() && replies[*at].ours.is_none();
            replies[*at].is_narrower(waits, sql(*at))
        };
        if let Some(at) = (0..self.sessions()).find(narrower) {
            if self.books.meets_prepared(sql(at)) {
                return Alone::Allowed(at, PREPARED.id);
            }
            match self.books.spares(&mut self.control, at, sql(at)) {
                Some(Spared::Skipped) => return Alone::Allowed(at, SKIPPED.id),
                Some(Spared::RowGone) => return Alone::Allowed(at, GONE.id),
                None => {}
            }
            let ended = Some(session).filter(|s| lets_go(sql(*s)));
            if self.books.waits_elsewhere(at, sql(at), ended) {
                return Alone::Allowed(at, ELSEWHERE.id);
            }
        }
        let wider = |at: &usize| {
            let waits = self.asked[*at][1].is_some() && replies[*at].theirs.is_none();
            replies[*at].is_wider(waits, sql(*at))
        };
        let Some(at) = at.or_else(|| (0..self.sessions()).find(wider)) else {
            return Alone::Nobody;
        };
        let theirs = self.pairs[at][1].id;
        if replies[at].theirs.is_none() && waits::at_metadata(&mut self.control, theirs) {
            return Alone::Nobody;
        }
        self.is_missing(at, known)
    }

    /// DDL has ended in Sluice; InnoDB's waits for the table, which a prepared transaction has only read.
    fn passes_prepared(&mut self, at: usize) -> bool {
        let [Some(ours), None] = &self.early[at] else { return false };
        let sql = self.asked[at][1].clone().unwrap_or_default();
        ours.is_ok() && self.books.is_read_by_prepared(&sql) && self.is_immune(at)
    }

    /// Did the victim wait before this step, or does another session wait in InnoDB?
    fn is_further(&self, at: usize) -> bool {
        let waits = |at: usize| self.asked[at][1].is_some() && self.early[at][1].is_none();
        self.books.waiting.contains_key(&at)
            || (0..self.sessions()).any(|other| other != at && waits(other))
    }

    /// InnoDB has made the session wait, or has refused or ended it. Had Sluice to do so, too?
    fn is_missing(&mut self, at: usize, known: &HashSet<(usize, usize)>) -> Alone {
        let sql = self.asked[at][0].clone().unwrap_or_default();
        let Some(ours) = self.early[at][0].clone().filter(Outcome::is_ok) else {
            return Alone::Allowed(at, WIDER.id);
        };
        let all = self.new_answers(known);
        let alone = all.iter().filter(|a| a.replies[0].is_some()).count() == 1;
        match self.books.judge(&mut self.control, at, &sql, &ours, alone) {
            Ok(None) => Alone::Allowed(at, WIDER.id),
            Err(()) => Alone::Allowed(at, UNJUDGED.id),
            Ok(Some(why)) => Alone::Missing(Box::new(Difference {
                kind: Kind::Lock,
                statement: format!("session {}: {sql}", at + 1),
                sluice: format!("goes on, but {why}"),
                innodb: match &self.early[at][1] {
                    None => "waits".into(),
                    Some(outcome) => format!("{:?}", outcome.error),
                },
            })),
        }
    }

    /// Undoes the session's transaction on both sides, so that they are alike again. Where that is
    /// not possible, the rule that ends the case.
    fn abandon(&mut self, at: usize) -> io::Result<Option<&'static str>> {
        if self.early[at].iter().flatten().any(|o| o.lost.is_some()) {
            return Err(io::Error::other("a connection is lost"));
        }
        for side in 0..2 {
            let ended = match &self.early[at][side] {
                Some(outcome) if outcome.is_ok() => {
                    let open = self.pairs[at][side].run("SELECT @@in_transaction");
                    let cell = open.sets.first().and_then(|s| s.rows.first()?.first()?.clone());
                    cell.as_deref() != Some(b"1")
                }
                _ => false,
            };
            let reads =
                self.asked[at][side].as_deref().is_some_and(|sql| sql.starts_with("SELECT"));
            if ended && !reads {
                return Ok(Some(COMMITTED.id));
            }
        }
        let sql = self.asked[at][0].as_deref().unwrap_or("");
        if self.books.takes_numbers(sql) {
            return Ok(Some(NUMBERS.id));
        }
        for side in 0..2 {
            if self.asked[at][side].take().is_some() && self.early[at][side].take().is_none() {
                let id = self.pairs[at][side].id;
                self.control.run(&format!("KILL QUERY {id}"));
                if self.pairs[at][side].poll(LOCK_WAIT_TIMEOUT).is_none() {
                    return Err(io::Error::other("a statement that was killed goes on"));
                }
            }
        }
        self.reconnect(at)?;
        Ok(None)
    }

    /// One side has run the statement of `at` for good, on the other it waits for locks that the first side
    /// need not take: the transactions of others are undone, on both sides, until it goes on. Then
    /// both sides have run the same, and the answers are compared like any other.
    fn catch_up(&mut self, session: usize, at: usize) -> io::Result<bool> {
        let is_fine = |answer: &Option<Outcome>| answer.as_ref().is_none_or(Outcome::is_ok);
        if self.early[at].iter().all(Option::is_some) || !self.early[at].iter().all(is_fine) {
            // One side has ended it with an error, for good.
            return Ok(false);
        }
        // First those that wait for the same table: one side's statement has come before theirs.
        let overtaken = self.books.waiters_beside(at, self.asked[at][0].as_deref().unwrap_or(""));
        let open = |other: &usize| *other != at && self.books.is_open(*other);
        let waits = |other: &usize| *other != at && self.books.waiting.contains_key(other);
        let holders = (0..self.sessions()).filter(open);
        let waiters = (0..self.sessions()).filter(waits);
        let rest: Vec<usize> =
            holders.chain(waiters).filter(|other| !overtaken.contains(other)).collect();
        for other in overtaken.iter().chain(&rest) {
            let known = self.answered();
            if !self.undo(*other)? {
                if overtaken.contains(other) {
                    return Ok(false);
                }
                continue;
            }
            self.collect(session);
            self.books.came(&self.new_answers(&known));
            if self.early[at].iter().all(Option::is_some) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Ends the session's transaction on both sides, if both are at the same place.
    fn undo(&mut self, at: usize) -> io::Result<bool> {
        match self.early[at].iter().flatten().count() {
            0 if self.waits(at) => return Ok(self.abandon(at)?.is_none()),
            1 => return Ok(false),
            _ => self.reconnect(at)?,
        }
        Ok(true)
    }

    fn collect(&mut self, session: usize) {
        let mut watch = waits::Watch::default();
        loop {
            let mut news = false;
            for at in 0..self.sessions() {
                for side in 0..2 {
                    if self.asked[at][side].is_none() || self.early[at][side].is_some() {
                        continue;
                    }
                    let limit = if at == session { 2 } else { 0 };
                    let reply = self.pairs[at][side].poll(Duration::from_millis(limit));
                    news |= reply.is_some();
                    self.early[at][side] = reply;
                }
            }
            if news {
                watch = waits::Watch::default();
            }
            let open = |side: usize| -> Vec<Waiter> {
                let is_open =
                    |at: &usize| self.asked[*at][side].is_some() && self.early[*at][side].is_none();
                (0..self.sessions())
                    .filter(is_open)
                    .map(|at| Waiter::of(&self.pairs[at][side]))
                    .collect()
            };
            let (sluice, innodb) = (open(0), open(1));
            if sluice.is_empty() && innodb.is_empty() {
                return;
            }
            if watch.all_wait(&mut self.control, &sluice, &innodb) {
                return;
            }
        }
    }

    /// Compares the answers that both sides have given.
    fn judge(&mut self, session: usize) -> Stepped {
        let mut own = Stepped::Waits;
        for at in 0..self.sessions() {
            let [ours, theirs] = &mut self.early[at];
            match (ours.take(), theirs.take()) {
                (None, None) => {}
                (Some(ours), Some(theirs)) => {
                    let sql = self.asked[at][0].take().unwrap_or_default();
                    self.asked[at][1] = None;
                    let found = compare(&sql, &ours, &theirs, &mut self.counts);
                    if let Some(found) =
                        found.filter(|_| !self.is_mistake(at, &sql, &ours, &theirs))
                    {
                        return Stepped::Differs(Box::new(found));
                    }
                    if at == session {
                        own = Stepped::Same(Box::new(ours));
                    }
                }
                (ours, theirs) => return self.wait_differs(at, ours, theirs),
            }
        }
        match self.asked[session][0] {
            None if !matches!(own, Stepped::Same(_)) => Stepped::Same(Box::default()),
            _ => own,
        }
    }

    /// With several sessions a second run of the statement could wait, or lock more.
    fn is_mistake(&mut self, at: usize, sql: &str, ours: &Outcome, theirs: &Outcome) -> bool {
        let alone = self.sessions() == 1;
        let sql = if sql.starts_with("EXECUTE ") { &self.prepared } else { sql };
        let rule = alone.then(|| mistakes::explain(&self.pairs[at], sql, ours, theirs)).flatten();
        rule.inspect(|rule| self.counts.add(rule)).is_some()
    }

    fn wait_differs(
        &mut self,
        at: usize,
        ours: Option<Outcome>,
        theirs: Option<Outcome>,
    ) -> Stepped {
        let text = |outcome: &Option<Outcome>| match outcome {
            None => "waits".to_owned(),
            Some(o) if o.is_ok() => "goes on".to_owned(),
            Some(o) => format!("{:?} {:?}", o.error, o.lost),
        };
        let statement = self.asked[at][0].clone().unwrap_or_default();
        let found = Difference {
            kind: Kind::Wait,
            statement: format!("session {}: {statement}", at + 1),
            sluice: text(&ours),
            innodb: text(&theirs),
        };
        Stepped::Differs(Box::new(found))
    }

    /// Ends every transaction and compares the tables. Sessions that wait are killed first, the newest
    /// statement before those that it waits for: none may go on. What InnoDB does not let be killed waits for
    /// a prepared transaction, and must end after that.
    pub fn finish(&mut self) -> io::Result<Option<Difference>> {
        let mut all: Vec<usize> = (0..self.sessions()).collect();
        all.sort_by_key(|at| std::cmp::Reverse(self.books.issued[*at]));
        let mut numbers = false;
        let (immune, rest): (Vec<usize>, Vec<usize>) =
            all.into_iter().partition(|at| self.is_immune(*at));
        for at in rest.iter().copied() {
            let sql = self.asked[at][0].clone().unwrap_or_default();
            numbers |= self.books.takes_many_numbers(&sql);
            self.kill(at);
            if !self.ends(at, HEED) {
                return Ok(Some(deaf(at, sql, HEED, "KILL QUERY")));
            }
        }
        for at in rest {
            self.reconnect(at)?;
        }
        verify::roll_back_prepared(&mut self.control);
        for at in immune {
            let sql = self.asked[at][0].clone().unwrap_or_default();
            if !self.ends(at, LOCK_WAIT_TIMEOUT) {
                return Ok(Some(deaf(at, sql, LOCK_WAIT_TIMEOUT, "the end of all others")));
            }
            self.reconnect(at)?;
        }
        if numbers && !self.parted {
            self.counts.add(NUMBERS.id);
            self.parted = true;
        }
        let [ours, theirs] = &self.pairs[0];
        Ok(verify::verify(ours, theirs, self.parted, &mut self.counts))
    }

    /// Waits for the end of what the session has asked for. True if Sluice's statement ends within `limit`.
    fn ends(&mut self, at: usize, limit: Duration) -> bool {
        let mut ends = true;
        for (side, limit) in [limit, LOCK_WAIT_TIMEOUT].into_iter().enumerate() {
            if self.asked[at][side].take().is_none() || self.early[at][side].take().is_some() {
                continue;
            }
            ends &= self.pairs[at][side].poll(limit).is_some() || side == 1;
        }
        ends
    }
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
    pub fn ending(&self, steps: &[Step], at_step: bool) -> Ending {
        let books = &self.books;
        Ending {
            steps: steps.to_vec(),
            at_step,
            crowd: books.crowd.iter().map(|at| (*at, books.issued[*at])).collect(),
            crowded: books.crowded,
            mixes: books.crowd_mixes(),
            answers: books.answers.clone(),
            images: books.images[0].clone(),
        }
    }
}

/// Runs a script from empty databases.
pub fn run_script(
    world: &mut World,
    steps: &[Step],
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

fn run_steps(runner: &mut Runner, steps: &[Step]) -> io::Result<(Option<Difference>, Ending)> {
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
