//! One run of a case: at one level, on one engine, step by step.
//!
//! 1. A step begins only when every statement before it has ended or waits for a lock.
//! 2. A step of a session that waits is put off; it begins as soon as the wait is over.
//! 3. So the order of all that happens follows from the case and the engine, not from the machine.

use crate::case::{Action, Case, CHECK};
use crate::level::{Engine, Level};
use crate::observer::Observer;
use crate::outcome::{ended, Outcome, StepOutcome, Timeline};
use crate::session::Session;
use sluice_rig::client::{Answer, Client, Reply};
use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::Path;
use std::time::{Duration, Instant};

/// A statement that neither ends nor waits for so long is a fault of the run.
const LIMIT: Duration = Duration::from_secs(90);
/// Most statements that do not wait have ended by then.
const FIRST_LOOK: Duration = Duration::from_millis(4);

/// Where, at which level and on which engine.
#[derive(Clone)]
pub struct Place<'a> {
    pub socket: &'a Path,
    pub database: String,
    pub level: Level,
    pub engine: Engine,
}

pub fn run(case: &Case, place: &Place) -> Result<Timeline, String> {
    let mut run = Run::prepare(case, place).map_err(|e| format!("setup: {e}"))?;
    let done = run.all_steps();
    run.clean_up();
    done?;
    let labels = case.steps.iter().map(|step| step.label.clone());
    let pairs = labels.zip(run.outcomes.iter().cloned());
    Ok(pairs.map(|(label, outcome)| StepOutcome { label, outcome }).collect())
}

struct Live {
    session: Session,
    /// The step whose statement has not ended.
    pending: Option<usize>,
    was_waiting: bool,
    put_off: Vec<usize>,
}

struct Run<'a> {
    case: &'a Case,
    place: &'a Place<'a>,
    control: Client,
    observer: Observer,
    sessions: BTreeMap<String, Live>,
    outcomes: Vec<Outcome>,
    /// The step that was begun last.
    current: usize,
}

fn lost(what: impl Display) -> String {
    format!("{what}")
}

impl<'a> Run<'a> {
    fn prepare(case: &'a Case, place: &'a Place<'a>) -> Reply<Run<'a>> {
        let database = &place.database;
        let mut control = Client::connect(place.socket, "")?;
        control.run(&format!("CREATE DATABASE {database}"))?;
        control.run(&format!("USE {database}"))?;
        control.run(&format!("SET default_storage_engine={}", place.engine))?;
        for statement in &case.setup {
            control.run(&statement.replace("$case", database))?;
        }
        let observer = Observer::new(place.socket, place.engine)?;
        let outcomes = vec![Outcome::NotReached; case.steps.len()];
        let mut sessions = BTreeMap::new();
        for step in case.steps.iter().filter(|step| step.session != CHECK) {
            if !sessions.contains_key(&step.session) {
                sessions.insert(step.session.clone(), Live::open(place)?);
            }
        }
        Ok(Run { case, place, control, observer, sessions, outcomes, current: 0 })
    }

    fn all_steps(&mut self) -> Result<(), String> {
        for at in 0..self.case.steps.len() {
            let step = &self.case.steps[at];
            if step.session == CHECK {
                self.check(at)?;
                continue;
            }
            let live = self.sessions.get_mut(&step.session).ok_or("session gone")?;
            if live.pending.is_some() && step.action != Action::Await {
                live.put_off.push(at);
                continue;
            }
            self.begin(at)?;
            self.settle()?;
        }
        self.mark_waiting();
        Ok(())
    }

    fn begin(&mut self, at: usize) -> Result<(), String> {
        self.current = at;
        let step = &self.case.steps[at];
        match &step.action {
            Action::Sql(sql) => self.send(at, &sql.replace("$case", &self.place.database)),
            Action::Timeout(seconds) => self.send(
                at,
                &format!(
                    "SET innodb_lock_wait_timeout={seconds}, sluice_lock_wait_timeout={seconds}"
                ),
            ),
            Action::Disconnect => {
                let live = self.sessions.remove(&step.session).ok_or("session gone")?;
                let id = live.session.id;
                live.session.close();
                self.outcomes[at] = Outcome::Ended { text: "ok".into(), released_by: None };
                self.wait_until_gone(id)
            }
            Action::Kill(other) => {
                let other = self.sessions.get(other).ok_or(format!("no session {other}"))?;
                let reply = self.control.answer(&format!("KILL QUERY {}", other.session.id));
                self.outcomes[at] = ended(&reply, true, None);
                self.await_answer(&self.case.steps[at], true)
            }
            Action::Await => {
                self.outcomes[at] = Outcome::Ended { text: "ok".into(), released_by: None };
                self.await_answer(step, false)
            }
        }
    }

    fn send(&mut self, at: usize, sql: &str) -> Result<(), String> {
        let step = &self.case.steps[at];
        let live = self.sessions.get_mut(&step.session).ok_or("session gone")?;
        live.session.begin(sql);
        live.pending = Some(at);
        live.was_waiting = false;
        Ok(())
    }

    /// Waits for the end of a statement that ends by itself, or because it was killed.
    fn await_answer(&mut self, step: &crate::case::Step, killed: bool) -> Result<(), String> {
        let name = match (&step.action, killed) {
            (Action::Kill(other), true) => other.clone(),
            _ => step.session.clone(),
        };
        let Some(live) = self.sessions.get(&name) else { return Ok(()) };
        if live.pending.is_none() {
            return Ok(());
        }
        let reply = live.session.answer_within(LIMIT).ok_or("no end after a kill or timeout")?;
        self.note_end(&name, reply);
        Ok(())
    }

    /// Until every statement has ended or waits, and no step that was put off can begin.
    fn settle(&mut self) -> Result<(), String> {
        loop {
            while self.look_at_all()? {}
            let free = self.sessions.values_mut().filter(|live| live.pending.is_none());
            let next = free.filter(|live| !live.put_off.is_empty()).min_by_key(|l| l.put_off[0]);
            let Some(live) = next else { return Ok(()) };
            let at = live.put_off.remove(0);
            self.begin(at)?;
        }
    }

    /// One look at each session; true if one of them came to an end, since others may follow.
    fn look_at_all(&mut self) -> Result<bool, String> {
        let names: Vec<String> = self.sessions.keys().cloned().collect();
        let mut progress = false;
        for name in names {
            if self.sessions[&name].pending.is_some() {
                progress |= self.look_at(&name)?;
            }
        }
        Ok(progress)
    }

    fn look_at(&mut self, name: &str) -> Result<bool, String> {
        let give_up = Instant::now() + LIMIT;
        let mut patience = FIRST_LOOK;
        while Instant::now() < give_up {
            let live = &self.sessions[name];
            if let Some(reply) = live.session.answer_within(patience) {
                self.note_end(name, reply);
                return Ok(true);
            }
            patience = Duration::from_millis(1);
            let (id, thread_id) = (live.session.id, live.session.thread_id);
            if self.observer.is_waiting(id, thread_id).map_err(lost)? {
                let live = self.sessions.get_mut(name).ok_or("session gone")?;
                live.was_waiting = true;
                return Ok(false);
            }
        }
        Err(format!("session {name} neither ends nor waits"))
    }

    fn note_end(&mut self, name: &str, reply: Reply<Answer>) {
        let Some(live) = self.sessions.get_mut(name) else { return };
        let Some(at) = live.pending.take() else { return };
        let step = &self.case.steps[at];
        // A wait that ends with its own step is no step's release: the winner of a deadlock waits until the other
        // one is rolled back, which may be over before anybody looks.
        let was_released = live.was_waiting && at != self.current;
        let released_by = was_released.then(|| self.case.steps[self.current].label.clone());
        let sorted = !matches!(&step.action, Action::Sql(sql) if is_ordered(sql));
        self.outcomes[at] = ended(&reply, sorted, released_by);
    }

    fn mark_waiting(&mut self) {
        for live in self.sessions.values().filter(|live| live.was_waiting) {
            if let Some(at) = live.pending {
                self.outcomes[at] = Outcome::Waits;
            }
        }
    }

    /// A step of the session that comes when all others have gone.
    fn check(&mut self, at: usize) -> Result<(), String> {
        self.mark_waiting();
        self.end_sessions();
        let step = &self.case.steps[at];
        let Action::Sql(sql) = &step.action else { return Err("check takes statements".into()) };
        let reply = self.control.answer(&sql.replace("$case", &self.place.database));
        self.outcomes[at] = ended(&reply, !is_ordered(sql), None);
        Ok(())
    }

    fn end_sessions(&mut self) {
        for live in self.sessions.values().filter(|live| live.pending.is_some()) {
            let _ = self.control.run(&format!("KILL QUERY {}", live.session.id));
        }
        for (_, live) in std::mem::take(&mut self.sessions) {
            let id = live.session.id;
            let _ = live.pending.map(|_| live.session.answer_within(LIMIT));
            live.session.close();
            let _ = self.wait_until_gone(id);
        }
    }

    fn wait_until_gone(&mut self, id: u32) -> Result<(), String> {
        let sql = format!("SELECT COUNT(*) FROM information_schema.processlist WHERE ID={id}");
        let give_up = Instant::now() + LIMIT;
        while Instant::now() < give_up {
            if self.control.rows::<u64>(&sql).map_err(lost)?.first() == Some(&0) {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Err("a session does not go".into())
    }

    fn clean_up(&mut self) {
        self.end_sessions();
        let database = &self.place.database;
        let xids: Vec<(u64, u64, u64, String)> =
            self.control.rows("XA RECOVER").unwrap_or_default();
        for (_, length, _, data) in xids {
            let name = &data[..(length as usize).min(data.len())];
            if name.contains(database.as_str()) {
                let _ = self.control.run(&format!("XA ROLLBACK '{name}'"));
            }
        }
        self.drop_tables();
    }

    /// The database itself stays: DROP DATABASE locks the list of routines, for which a function
    /// of another case would be seen to wait.
    fn drop_tables(&mut self) {
        let list = format!(
            "SELECT TABLE_NAME FROM information_schema.tables WHERE TABLE_SCHEMA='{}'",
            self.place.database
        );
        let tables: Vec<String> = self.control.rows(&list).unwrap_or_default();
        let drop = format!("DROP TABLE {}", tables.join(", "));
        if let Err(fault) = self.control.run(&drop) {
            eprintln!("{}: {fault}", self.place.database);
        }
    }
}

impl Live {
    fn open(place: &Place) -> Reply<Live> {
        let session = Session::open(place.socket, &place.database, place.level, place.engine)?;
        Ok(Live { session, pending: None, was_waiting: false, put_off: Vec::new() })
    }
}

fn is_ordered(sql: &str) -> bool {
    sql.to_ascii_lowercase().contains("order by")
}
