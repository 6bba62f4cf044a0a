//! Locks that have stopped a session on one side alone: is that right, and by which rule?
//!
//! Each rule is a function over one [`View`] of the step, and names the session that it lets off. The rules
//! are tried in the order of [`RULES_IN_ORDER`], and the first that applies is counted. What InnoDB alone has
//! stopped and no rule lets off is a lock that Sluice has forgotten. What Sluice alone has stopped and no rule
//! lets off is left to the comparison of answers.

use crate::books::{lets_go, Answer, Books};
use crate::claims::Spared;
use crate::compare::{Difference, Kind};
use crate::pairs::Talk;
use crate::rules::{
    Rule, ELSEWHERE, FURTHER, GONE, PREPARED, READER, SAVEPOINT, SKIPPED, UNJUDGED, VICTIM, WIDER,
};
use crate::session::{Direct, Outcome, Session};
use crate::waits;
use std::cell::{OnceCell, RefCell};

/// A session whose locks have met others on one side only.
#[derive(Debug)]
pub enum Alone {
    Nobody,
    /// A rule allows it.
    Allowed(usize, &'static str),
    Missing(Box<Difference>),
}

/// Why Sluice had to stop a statement, too. `Err`: that cannot be told.
type Held = Result<Option<String>, ()>;

/// What only the servers can tell of a session.
pub trait Live {
    /// Does its connection of InnoDB wait for a metadata lock?
    fn at_metadata(&self, at: usize) -> bool;
    /// Does it wait for InnoDB's lock of a table?
    fn at_innodb_table(&self, at: usize) -> bool;
    /// See [`Books::spares`].
    fn spares(&self, at: usize, sql: &str) -> Option<Spared>;
    /// See [`Books::judge`].
    fn held(&self, at: usize, sql: &str, ours: &Outcome, alone: bool) -> Held;
}

/// The servers, asked over the connection of the controller.
pub struct Servers<'a> {
    pub sessions: &'a [[Session; 2]],
    pub books: &'a Books,
    pub control: RefCell<&'a mut Direct>,
}

impl Live for Servers<'_> {
    fn at_metadata(&self, at: usize) -> bool {
        waits::at_metadata(&mut self.control.borrow_mut(), self.sessions[at][1].id)
    }

    fn at_innodb_table(&self, at: usize) -> bool {
        waits::at_innodb_table(&mut self.control.borrow_mut(), self.sessions[at][1].id)
    }

    fn spares(&self, at: usize, sql: &str) -> Option<Spared> {
        self.books.spares(&mut self.control.borrow_mut(), at, sql)
    }

    fn held(&self, at: usize, sql: &str, ours: &Outcome, alone: bool) -> Held {
        self.books.judge(&mut self.control.borrow_mut(), at, sql, ours, alone)
    }
}

/// A step, when every session has answered or waits.
pub struct View<'a> {
    /// The session of the step.
    session: usize,
    talks: &'a [Talk],
    /// The answers of the step so far that no rule has seen.
    new: &'a [Answer],
    books: &'a Books,
    live: &'a dyn Live,
    spared: OnceCell<Option<Spared>>,
    held: OnceCell<Option<(usize, Held)>>,
}

impl<'a> View<'a> {
    pub fn new(
        session: usize,
        talks: &'a [Talk],
        new: &'a [Answer],
        books: &'a Books,
        live: &'a dyn Live,
    ) -> View<'a> {
        let (spared, held) = (OnceCell::new(), OnceCell::new());
        View { session, talks, new, books, live, spared, held }
    }

    fn find(&self, is_it: impl Fn(&Talk) -> bool) -> Option<usize> {
        self.talks.iter().position(is_it)
    }

    fn sql(&self, at: usize) -> &str {
        self.talks[at].sql()
    }

    fn our_victim(&self) -> Option<usize> {
        self.find(|talk| talk.met().our_victim_alone())
    }

    fn their_victim(&self) -> Option<usize> {
        self.find(|talk| talk.met().their_victim_alone())
    }

    /// The session that Sluice alone has ended in a deadlock, where InnoDB has ended no other one.
    fn lone_victim(&self) -> Option<usize> {
        self.our_victim().filter(|_| self.their_victim().is_none())
    }

    /// The session that Sluice alone has stopped.
    fn stopped_by_us(&self) -> Option<usize> {
        self.find(|talk| talk.met().is_narrower(talk.waits(0), talk.sql()))
    }

    /// The session that InnoDB alone has stopped. Metadata locks are the server's.
    fn stopped_by_them(&self) -> Option<usize> {
        let wider = |talk: &Talk| talk.met().is_wider(talk.waits(1), talk.sql());
        let at = self.their_victim().or_else(|| self.find(wider))?;
        let answered = self.talks[at].early[1].is_some();
        (answered || !self.live.at_metadata(at)).then_some(at)
    }

    /// Why InnoDB may hold less than Sluice of what stops the session `at`, which Sluice alone has stopped.
    fn spared(&self, at: usize) -> Option<Spared> {
        *self.spared.get_or_init(|| self.live.spares(at, self.sql(at)))
    }

    /// The session that InnoDB alone has stopped, and why Sluice had to stop it, too.
    fn held(&self) -> Option<&(usize, Held)> {
        let held = || self.stopped_by_them().map(|at| (at, self.held_by_others(at)));
        self.held.get_or_init(held).as_ref()
    }

    fn held_by_others(&self, at: usize) -> Held {
        let ours = self.talks[at].early[0].as_ref();
        let Some(ours) = ours.filter(|outcome| outcome.is_ok()) else { return Ok(None) };
        let alone = self.new.iter().filter(|a| a.replies[0].is_some()).count() == 1;
        self.live.held(at, self.sql(at), ours, alone)
    }
}

type Applies = fn(&View<'_>) -> Option<usize>;

/// Where several apply, the first is counted: deadlocks come before waits, and what Sluice alone has stopped
/// comes before what InnoDB alone has.
const RULES_IN_ORDER: [(&Rule, Applies); 10] = [
    (&READER, ddl_passes_reader),
    (&FURTHER, deadlock_further),
    (&VICTIM, victim),
    (&SAVEPOINT, savepoint_lets_ddl_by),
    (&PREPARED, prepared_lets_go),
    (&SKIPPED, skip_locked_gap),
    (&GONE, row_gone),
    (&ELSEWHERE, waits_elsewhere),
    (&UNJUDGED, wider_lock_unjudged),
    (&WIDER, wider_lock),
];

pub fn judge(view: &View<'_>) -> Alone {
    let allowed = |(rule, applies): &(&Rule, Applies)| Some((applies(view)?, rule.id));
    match RULES_IN_ORDER.iter().find_map(allowed) {
        Some((at, rule)) => Alone::Allowed(at, rule),
        None => forgotten(view).map_or(Alone::Nobody, |found| Alone::Missing(Box::new(found))),
    }
}

/// In Sluice a prepared transaction that has only read holds no lock of the table: DDL has ended there, and
/// waits in InnoDB.
fn ddl_passes_reader(view: &View<'_>) -> Option<usize> {
    let passes = |at: &usize| {
        let Talk { asked, early: [Some(ours), None] } = &view.talks[*at] else { return false };
        let Some(sql) = &asked[1] else { return false };
        ours.is_ok() && view.books.is_read_by_prepared(sql) && view.live.at_innodb_table(*at)
    };
    (0..view.talks.len()).find(passes)
}

/// A victim that waited before, or beside others, has come further in Sluice than in InnoDB, which still lets
/// it wait for an entry or a gap before that place.
fn deadlock_further(view: &View<'_>) -> Option<usize> {
    let at = view.lone_victim().filter(|at| view.talks[*at].early[1].is_none())?;
    let mut others = view.talks.iter().enumerate().filter(|(other, _)| *other != at);
    let further = view.books.waiting.contains_key(&at) || others.any(|(_, talk)| talk.waits(1));
    further.then_some(at)
}

/// Each engine chooses its own victim, and where one request closes several cycles Sluice may have one more,
/// which waited before.
fn victim(view: &View<'_>) -> Option<usize> {
    let at = view.our_victim()?;
    let one_more = || {
        let both = view.find(|talk| talk.met().is_victim()).is_some();
        both && view.books.waiting.contains_key(&at)
    };
    (view.their_victim().is_some() || one_more()).then_some(at)
}

/// A transaction that has gone back to a savepoint may have no metadata lock in Sluice: DDL meets its next
/// statement in a deadlock, or has ended while InnoDB's still waits for that lock.
fn savepoint_lets_ddl_by(view: &View<'_>) -> Option<usize> {
    let gave_way = view.lone_victim().filter(|at| view.books.gave_way(*at));
    let let_by = |at: &usize| {
        let Talk { early: [Some(ours), None], .. } = &view.talks[*at] else { return false };
        ours.is_ok() && view.books.was_let_by(*at, view.sql(*at))
    };
    gave_way.or_else(|| {
        let at = (0..view.talks.len()).find(let_by)?;
        view.live.at_metadata(at).then_some(at)
    })
}

/// InnoDB gives up the locks of ranges and reads at XA PREPARE.
fn prepared_lets_go(view: &View<'_>) -> Option<usize> {
    view.stopped_by_us().filter(|at| view.books.meets_prepared(view.sql(*at)))
}

/// Before a locked entry that SKIP LOCKED passes InnoDB does not lock the gap.
fn skip_locked_gap(view: &View<'_>) -> Option<usize> {
    view.stopped_by_us().filter(|at| view.spared(*at) == Some(Spared::Skipped))
}

/// InnoDB's lock of a row goes with its entry when the INSERT is rolled back.
fn row_gone(view: &View<'_>) -> Option<usize> {
    view.stopped_by_us().filter(|at| view.spared(*at) == Some(Spared::RowGone))
}

/// A statement that InnoDB has stopped earlier than Sluice holds less there.
fn waits_elsewhere(view: &View<'_>) -> Option<usize> {
    let at = view.stopped_by_us()?;
    let ended = Some(view.session).filter(|session| lets_go(view.sql(*session)));
    view.books.waits_elsewhere(at, view.sql(at), ended).then_some(at)
}

/// InnoDB locks more, and the books do not say what this statement has met.
fn wider_lock_unjudged(view: &View<'_>) -> Option<usize> {
    view.held().filter(|(_, held)| held.is_err()).map(|(at, _)| *at)
}

/// InnoDB locks whole gaps, and the books say that the statement has met nothing that others hold.
fn wider_lock(view: &View<'_>) -> Option<usize> {
    view.held().filter(|(_, held)| *held == Ok(None)).map(|(at, _)| *at)
}

/// InnoDB alone has stopped a session at what another one holds by its own statements.
fn forgotten(view: &View<'_>) -> Option<Difference> {
    let (at, Ok(Some(why))) = view.held()? else { return None };
    let innodb = match &view.talks[*at].early[1] {
        None => "waits".into(),
        Some(outcome) => format!("{:?}", outcome.error),
    };
    Some(Difference {
        kind: Kind::Lock,
        statement: format!("session {}: {}", at + 1, view.sql(*at)),
        sluice: format!("goes on, but {why}"),
        innodb,
    })
}

#[cfg(test)]
#[path = "alone_tests.rs"]
mod tests;
