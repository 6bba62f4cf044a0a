//! Cases as text. A file holds several; docs/isolation.md describes the format.
//!
//! A step is named by its session and its number in that session: `b2` is the second one of `b`.

use crate::level::{Engine, Level};

/// Something that a session does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    Sql(String),
    /// The connection goes; a prepared transaction stays.
    Disconnect,
    /// KILL QUERY of another session.
    Kill(String),
    /// Lock waits of this session end after so many seconds.
    Timeout(u32),
    /// Wait until this session's statement has ended by itself.
    Await,
}

#[derive(Clone, Debug)]
pub struct Step {
    pub session: String,
    pub label: String,
    pub action: Action,
}

/// The session that comes after all others have gone, and reads what they have left.
pub const CHECK: &str = "check";

/// An outcome of a step at some levels that differs between the engines, and why it may.
#[derive(Clone, Debug)]
pub struct Difference {
    pub levels: Vec<Level>,
    pub steps: Vec<(String, Engine, String)>,
    /// Both find a deadlock at the same step and may choose another victim; what follows from
    /// that is not compared.
    pub victim: bool,
    pub reason: String,
}

#[derive(Clone, Debug, Default)]
pub struct Case {
    pub name: String,
    /// The file's name, which is the group.
    pub group: String,
    pub about: String,
    pub levels: Vec<Level>,
    pub setup: Vec<String>,
    pub steps: Vec<Step>,
    /// The anomaly shows when all of these steps have these outcomes.
    pub anomaly: Vec<(String, String)>,
    pub differences: Vec<Difference>,
}

#[derive(Clone, Copy, PartialEq)]
enum Section {
    Outside,
    Setup,
    Steps,
    Anomaly,
    Differs,
}

/// All cases of one file.
pub fn parse(group: &str, text: &str) -> Result<Vec<Case>, String> {
    let mut cases: Vec<Case> = Vec::new();
    let mut section = Section::Outside;
    for (number, line) in text.lines().enumerate() {
        let content = line.trim();
        if content.is_empty() || content.starts_with('#') {
            continue;
        }
        let at = |problem: String| format!("{group}:{}: {problem}", number + 1);
        if line.starts_with(' ') {
            let case = cases.last_mut().ok_or_else(|| at("no case yet".into()))?;
            take_line(case, section, content).map_err(at)?;
            continue;
        }
        let (word, rest) = content.split_once(' ').unwrap_or((content, ""));
        if word == "case" {
            let levels = Level::ALL.to_vec();
            let (name, group) = (rest.into(), group.into());
            cases.push(Case { name, group, levels, ..Case::default() });
            section = Section::Outside;
            continue;
        }
        let case = cases.last_mut().ok_or_else(|| at("no case yet".into()))?;
        section = take_header(case, word, rest).map_err(at)?;
    }
    cases.iter().try_for_each(check)?;
    Ok(cases)
}

fn take_header(case: &mut Case, word: &str, rest: &str) -> Result<Section, String> {
    match word {
        "about" => {
            case.about = rest.into();
            Ok(Section::Outside)
        }
        "levels" => {
            case.levels = levels(rest)?;
            Ok(Section::Outside)
        }
        "setup" => Ok(Section::Setup),
        "steps" => Ok(Section::Steps),
        "anomaly" => Ok(Section::Anomaly),
        "differs" => {
            let levels = levels(rest.strip_prefix("at ").ok_or("differs at LEVEL, ...")?)?;
            let (steps, reason) = (Vec::new(), String::new());
            case.differences.push(Difference { levels, steps, victim: false, reason });
            Ok(Section::Differs)
        }
        _ => Err(format!("unknown word {word}")),
    }
}

fn take_line(case: &mut Case, section: Section, line: &str) -> Result<(), String> {
    match section {
        Section::Outside => Err("this line belongs to no section".into()),
        Section::Setup => {
            case.setup.push(line.into());
            Ok(())
        }
        Section::Steps => {
            let (session, action) = line.split_once(": ").ok_or("session: statement")?;
            let count = case.steps.iter().filter(|s| s.session == session).count();
            let (session, label) = (session.to_string(), format!("{session}{}", count + 1));
            case.steps.push(Step { session, label, action: action_of(action)? });
            Ok(())
        }
        Section::Anomaly => {
            let (label, outcome) = line.split_once(": ").ok_or("step: outcome")?;
            case.anomaly.push((label.into(), outcome.into()));
            Ok(())
        }
        Section::Differs => {
            let difference = case.differences.last_mut().ok_or("differs at first")?;
            if let Some(reason) = line.strip_prefix("because ") {
                difference.reason = reason.into();
                return Ok(());
            }
            if line == "victim" {
                difference.victim = true;
                return Ok(());
            }
            let (head, outcome) = line.split_once(": ").ok_or("STEP ENGINE: outcome")?;
            let (label, engine) = head.split_once(' ').ok_or("STEP ENGINE: outcome")?;
            let engine = Engine::parse(engine).ok_or(format!("no engine {engine}"))?;
            difference.steps.push((label.into(), engine, outcome.into()));
            Ok(())
        }
    }
}

fn levels(list: &str) -> Result<Vec<Level>, String> {
    if list == "all" {
        return Ok(Level::ALL.to_vec());
    }
    list.split(',').map(|name| Level::parse(name).ok_or(format!("no level {name}"))).collect()
}

fn action_of(text: &str) -> Result<Action, String> {
    let Some(command) = text.strip_prefix('!') else { return Ok(Action::Sql(text.into())) };
    match command.split_once(' ') {
        None if command == "disconnect" => Ok(Action::Disconnect),
        None if command == "await" => Ok(Action::Await),
        Some(("kill", session)) => Ok(Action::Kill(session.into())),
        Some(("timeout", seconds)) => {
            seconds.parse().map(Action::Timeout).map_err(|_| format!("timeout {seconds}?"))
        }
        _ => Err(format!("unknown command !{command}")),
    }
}

fn check(case: &Case) -> Result<(), String> {
    let fault = |problem: String| Err(format!("{}: case {}: {problem}", case.group, case.name));
    if case.about.is_empty() || case.steps.is_empty() {
        return fault("it needs a line `about` and steps".into());
    }
    let named = case.differences.iter().flat_map(|d| &d.steps).map(|(label, ..)| label);
    for label in named.chain(case.anomaly.iter().map(|(label, _)| label)) {
        if !case.steps.iter().any(|step| step.label == *label) {
            return fault(format!("no step {label}"));
        }
    }
    if let Some(at) = case.steps.iter().position(|step| step.session == CHECK) {
        if case.steps[at..].iter().any(|step| step.session != CHECK) {
            return fault("`check` comes last".into());
        }
    }
    if case.differences.iter().any(|d| d.reason.is_empty() || d.steps.is_empty() != d.victim) {
        return fault("a difference needs its outcomes and a reason".into());
    }
    Ok(())
}

#[cfg(test)]
#[path = "case_tests.rs"]
mod tests;
