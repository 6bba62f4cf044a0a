//! The connections of a script, a pair for each session: what each side was asked, what it has answered, and
//! which of them wait. Nothing is judged here.
//!
//! 1. A statement is sent to both sides, and the next one of its session only when both have answered.
//! 2. A reply stays in `early` until the other side's is there, and both are taken together.
//! 3. A connection that is let go has answered.

use crate::books::Answer;
use crate::rules::Met;
use crate::session::{Direct, Outcome, Session, Side, SIDES};
use crate::waits::{self, Waiter};
use crate::world::{World, LOCK_WAIT_TIMEOUT_S};
use std::collections::{BTreeMap, HashSet};
use std::io;
use std::time::Duration;

/// InnoDB's DDL heeds no KILL while it waits for a table.
pub const LOCK_WAIT_TIMEOUT: Duration = Duration::from_secs(LOCK_WAIT_TIMEOUT_S);

/// What a session was asked and has answered, by side.
#[derive(Default)]
pub struct Talk {
    /// The statement that has not been answered.
    pub asked: [Option<String>; 2],
    /// Replies that one side has given and the other has not.
    pub early: [Option<Outcome>; 2],
}

impl Talk {
    /// Its last statement has not been answered on both sides.
    pub fn is_open(&self) -> bool {
        self.asked.iter().any(Option::is_some)
    }

    pub fn waits(&self, side: usize) -> bool {
        self.asked[side].is_some() && self.early[side].is_none()
    }

    /// The statement, or nothing.
    pub fn sql(&self) -> &str {
        self.asked[0].as_deref().unwrap_or("")
    }

    pub fn met(&self) -> Met<'_> {
        Met { ours: &self.early[0], theirs: &self.early[1] }
    }
}

pub struct Pairs<'w> {
    world: &'w World,
    /// By session, then by side.
    pub sessions: Vec<[Session; 2]>,
    pub talks: Vec<Talk>,
    pub control: Direct,
    /// Its snapshot keeps both engines from purging deleted entries, which would happen at random moments:
    /// a statement waits for an entry or does not meet it.
    _history: Option<Direct>,
}

/// A connection that is let go waits for its answer.
impl Drop for Pairs<'_> {
    fn drop(&mut self) {
        (0..self.count()).for_each(|at| self.kill(at));
    }
}

impl<'w> Pairs<'w> {
    pub fn connect(world: &'w World, count: usize) -> io::Result<Pairs<'w>> {
        let mut sessions = Vec::new();
        for _ in 0..count {
            sessions.push([world.session(SIDES[0])?, world.session(SIDES[1])?]);
        }
        let mut control = world.control()?;
        control.run("SET SESSION TRANSACTION ISOLATION LEVEL READ UNCOMMITTED");
        let mut history = (count > 1).then(|| world.control()).transpose()?;
        if let Some(history) = &mut history {
            history.run("START TRANSACTION WITH CONSISTENT SNAPSHOT");
        }
        let talks = (0..count).map(|_| Talk::default()).collect();
        Ok(Pairs { world, sessions, talks, control, _history: history })
    }

    pub fn count(&self) -> usize {
        self.sessions.len()
    }

    /// Sessions that wait on both sides, with their statements.
    pub fn waiting(&self) -> BTreeMap<usize, String> {
        let both = |(_, talk): &(usize, &Talk)| talk.asked.iter().all(Option::is_some);
        let text = |(at, talk): (usize, &Talk)| Some((at, talk.asked[0].clone()?));
        self.talks.iter().enumerate().filter(both).filter_map(text).collect()
    }

    pub fn send(&mut self, session: usize, sql: &str) {
        for side in 0..2 {
            self.sessions[session][side].send(sql);
            self.talks[session].asked[side] = Some(sql.to_owned());
        }
    }

    /// Does its statement wait in InnoDB for a table, and heed no KILL?
    pub fn is_immune(&mut self, session: usize) -> bool {
        let theirs = self.sessions[session][1].id;
        self.talks[session].asked[1].is_some() && waits::at_innodb_table(&mut self.control, theirs)
    }

    pub fn kill(&mut self, session: usize) {
        for side in 0..2 {
            if self.talks[session].waits(side) {
                self.kill_query(session, side);
            }
        }
    }

    fn kill_query(&mut self, session: usize, side: usize) {
        let id = self.sessions[session][side].id;
        self.control.run(&format!("KILL QUERY {id}"));
    }

    /// Takes the statement back on both sides, as far as that goes without the end of the connection.
    pub fn stop(&mut self, session: usize) -> io::Result<()> {
        for side in 0..2 {
            let talk = &mut self.talks[session];
            if talk.asked[side].take().is_some() && talk.early[side].take().is_none() {
                self.kill_query(session, side);
                if self.sessions[session][side].poll(LOCK_WAIT_TIMEOUT).is_none() {
                    return Err(io::Error::other("a statement that was killed goes on"));
                }
            }
        }
        Ok(())
    }

    /// Waits for the end of what the session has asked for. True if Sluice's statement ends within `limit`.
    pub fn ends(&mut self, session: usize, limit: Duration) -> bool {
        let mut ends = true;
        for (side, limit) in [limit, LOCK_WAIT_TIMEOUT].into_iter().enumerate() {
            let talk = &mut self.talks[session];
            if talk.asked[side].take().is_none() || talk.early[side].take().is_some() {
                continue;
            }
            ends &= self.sessions[session][side].poll(limit).is_some() || side == 1;
        }
        ends
    }

    /// Waits until the server has really ended the old connections.
    pub fn reconnect(&mut self, session: usize) -> io::Result<()> {
        for (at, side) in SIDES.into_iter().enumerate() {
            let fresh = self.world.session(side)?;
            let old = std::mem::replace(&mut self.sessions[session][at], fresh);
            let id = old.id;
            drop(old);
            waits::until_gone(&mut self.control, id);
        }
        Ok(())
    }

    /// Has this side run what changes rows, and has the session no transaction?
    pub fn has_committed(&self, session: usize, side: usize) -> bool {
        let talk = &self.talks[session];
        let reads = talk.asked[side].as_deref().is_some_and(|sql| sql.starts_with("SELECT"));
        if reads || !talk.early[side].as_ref().is_some_and(Outcome::is_ok) {
            return false;
        }
        let open = self.sessions[session][side].run("SELECT @@in_transaction");
        let cell = open.sets.first().and_then(|s| s.rows.first()?.first()?.clone());
        cell.as_deref() != Some(b"1")
    }

    /// Has the table the same AUTO_INCREMENT on both sides? Not if that cannot be read now.
    pub fn count_alike(&mut self, table: &str) -> bool {
        let mut next = |side: Side| {
            let database = side.database();
            let sql = format!(
                "SET STATEMENT lock_wait_timeout=0 FOR SELECT auto_increment FROM \
                 information_schema.tables WHERE table_schema = '{database}' AND table_name = '{table}'"
            );
            self.control.run(&sql).sets.first()?.rows.first()?.first()?.clone()
        };
        let (ours, theirs) = (next(SIDES[0]), next(SIDES[1]));
        ours.is_some() && ours == theirs
    }

    /// Replies that are there: session and side.
    pub fn answered(&self) -> HashSet<(usize, usize)> {
        let all = (0..self.count()).flat_map(|at| [(at, 0), (at, 1)]);
        all.filter(|(at, side)| self.talks[*at].early[*side].is_some()).collect()
    }

    /// Every session that has been asked, with the replies that are not known yet.
    pub fn new_answers(&self, known: &HashSet<(usize, usize)>) -> Vec<Answer> {
        let answer = |(session, talk): (usize, &Talk)| {
            let sql = talk.asked[0].clone()?;
            let reply = |side: usize| {
                talk.early[side].clone().filter(|_| !known.contains(&(session, side)))
            };
            Some(Answer { session, sql, replies: [reply(0), reply(1)] })
        };
        self.talks.iter().enumerate().filter_map(answer).collect()
    }

    /// Takes the answers of a session that nobody else can make wait.
    pub fn wait(&mut self, session: usize) {
        for side in 0..2 {
            if self.talks[session].asked[side].is_some() {
                self.talks[session].early[side] = Some(self.sessions[session][side].wait());
            }
        }
    }

    /// Takes answers until every session has answered or waits. The one of the step is likely to be next.
    pub fn collect(&mut self, session: usize) {
        let mut watch = waits::Watch::default();
        loop {
            if self.poll(session) {
                watch = waits::Watch::default();
            }
            let (sluice, innodb) = (self.waiters(0), self.waiters(1));
            if sluice.is_empty() && innodb.is_empty() {
                return;
            }
            if watch.all_wait(&mut self.control, &sluice, &innodb) {
                return;
            }
        }
    }

    /// Takes what has come. True if there was something.
    fn poll(&mut self, session: usize) -> bool {
        let mut news = false;
        for at in 0..self.count() {
            for side in 0..2 {
                if !self.talks[at].waits(side) {
                    continue;
                }
                let limit = if at == session { 2 } else { 0 };
                let reply = self.sessions[at][side].poll(Duration::from_millis(limit));
                news |= reply.is_some();
                self.talks[at].early[side] = reply;
            }
        }
        news
    }

    fn waiters(&self, side: usize) -> Vec<Waiter> {
        let all = self.sessions.iter().zip(&self.talks);
        all.filter(|(_, talk)| talk.waits(side)).map(|(pair, _)| Waiter::of(&pair[side])).collect()
    }
}
