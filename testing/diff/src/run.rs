//! Runs a script on both engines, step by step, with the same schedule.

use crate::compare::{compare, Difference, Kind};
use crate::rules::{Counts, Met, VICTIM, WIDER};
use crate::script::{Action, Step};
use crate::session::{Direct, Outcome, Session, SIDES};
use crate::verify;
use crate::waits;
use crate::world::World;
use std::io;
use std::time::Duration;

pub struct Runner<'w> {
    pub world: &'w World,
    /// By session, then by side.
    pairs: Vec<[Session; 2]>,
    pub control: Direct,
    pub counts: Counts,
    /// The statement that a session has not had an answer to, by session and side.
    asked: Vec<[Option<String>; 2]>,
    /// Replies that one side has given and the other has not.
    early: Vec<[Option<Outcome>; 2]>,
    /// The histories have parted for a reason that a rule gives; only each side alone can be checked.
    pub parted: bool,
    /// No rule about locks applies: the script is known to lock alike.
    pub strict: bool,
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
        Ok(Runner {
            world,
            pairs,
            control: world.control()?,
            counts: Counts::default(),
            asked: vec![[None, None]; sessions],
            early: (0..sessions).map(|_| [None, None]).collect(),
            parted: false,
            strict: false,
        })
    }

    pub fn sessions(&self) -> usize {
        self.pairs.len()
    }

    pub fn waits(&self, session: usize) -> bool {
        self.asked[session].iter().any(Option::is_some)
    }

    pub fn step(&mut self, step: &Step) -> io::Result<Stepped> {
        match &step.action {
            Action::Sql(_) if self.waits(step.session) => Ok(Stepped::Skipped),
            Action::Sql(sql) => {
                for side in 0..2 {
                    self.pairs[step.session][side].send(sql);
                    self.asked[step.session][side] = Some(sql.clone());
                }
                self.settle(step.session)
            }
            Action::Disconnect if self.waits(step.session) => Ok(Stepped::Skipped),
            Action::Disconnect => {
                self.reconnect(step.session)?;
                self.settle(step.session)
            }
            Action::Kill => {
                self.kill(step.session);
                self.settle(step.session)
            }
        }
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
        Ok(())
    }

    /// Collects answers until every session has answered or waits, on both sides, and compares.
    fn settle(&mut self, session: usize) -> io::Result<Stepped> {
        if self.sessions() == 1 {
            for side in 0..2 {
                if self.asked[0][side].is_some() {
                    self.early[0][side] = Some(self.pairs[0][side].wait());
                }
            }
            return Ok(self.judge(session));
        }
        loop {
            self.collect(session);
            let Some((at, rule)) = self.allowed() else { return Ok(self.judge(session)) };
            self.counts.add(rule);
            if !self.abandon(at)? {
                self.parted = true;
                return Ok(Stepped::Parted);
            }
        }
    }

    /// A session whose locks have met others on one side only, and the rule that allows it.
    fn allowed(&self) -> Option<(usize, &'static str)> {
        if self.strict {
            return None;
        }
        let replies: Vec<Met> =
            self.early.iter().map(|e| Met { ours: &e[0], theirs: &e[1] }).collect();
        let victims = [Met::our_victim, Met::their_victim].map(|f| replies.iter().position(f));
        match victims {
            [Some(ours), Some(theirs)] if ours == theirs => {}
            [Some(ours), Some(_)] => return Some((ours, VICTIM.id)),
            [None, Some(theirs)] => return Some((theirs, WIDER.id)),
            _ => {}
        }
        let wider = |at: &usize| {
            let waits = self.asked[*at][1].is_some() && replies[*at].theirs.is_none();
            let sql = self.asked[*at][0].as_deref().unwrap_or("");
            replies[*at].is_wider(waits, sql)
        };
        (0..self.sessions()).find(wider).map(|at| (at, WIDER.id))
    }

    /// Undoes the session's transaction on both sides, so that they are alike again. False if one
    /// side has committed already.
    fn abandon(&mut self, at: usize) -> io::Result<bool> {
        if self.early[at].iter().flatten().any(|o| o.lost.is_some()) {
            return Ok(false);
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
                return Ok(false);
            }
        }
        for side in 0..2 {
            if self.asked[at][side].take().is_some() && self.early[at][side].take().is_none() {
                let id = self.pairs[at][side].id;
                self.control.run(&format!("KILL QUERY {id}"));
                if self.pairs[at][side].poll(Duration::from_secs(30)).is_none() {
                    return Ok(false);
                }
            }
        }
        self.reconnect(at)?;
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
            let open = |side: usize| -> Vec<u32> {
                let is_open =
                    |at: &usize| self.asked[*at][side].is_some() && self.early[*at][side].is_none();
                (0..self.sessions()).filter(is_open).map(|at| self.pairs[at][side].id).collect()
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
                    if let Some(found) = compare(&sql, &ours, &theirs, &mut self.counts) {
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

    /// Ends every transaction and compares the tables. Sessions that wait are killed first.
    pub fn finish(&mut self) -> io::Result<Option<Difference>> {
        for at in 0..self.sessions() {
            self.kill(at);
            for side in 0..2 {
                let open = self.asked[at][side].take().is_some();
                if open && self.early[at][side].take().is_none() {
                    self.pairs[at][side].poll(Duration::from_secs(30));
                }
            }
        }
        for at in 0..self.sessions() {
            self.reconnect(at)?;
        }
        verify::roll_back_prepared(&mut self.control);
        let [ours, theirs] = &self.pairs[0];
        Ok(verify::verify(ours, theirs, self.parted, &mut self.counts))
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
    let found = {
        let mut runner = Runner::new(world, crate::script::sessions(steps))?;
        runner.strict = strict;
        let found = run_steps(&mut runner, steps)?;
        counts.merge(&runner.counts);
        found
    };
    Ok(found)
}

fn run_steps(runner: &mut Runner, steps: &[Step]) -> io::Result<Option<Difference>> {
    for step in steps {
        match runner.step(step)? {
            Stepped::Differs(found) => return Ok(Some(*found)),
            Stepped::Parted => break,
            _ => {}
        }
    }
    runner.finish()
}
