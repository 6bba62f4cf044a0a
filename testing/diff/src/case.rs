//! One case: empty databases, a random script made while it runs, the checks at its end.

use crate::compare::{Difference, Kind};
use crate::gen::{Generator, Planned};
use crate::orders::Ending;
use crate::rules::Counts;
use crate::run::{Runner, Stepped};
use crate::schema::Style;
use crate::script::ScriptStep;
use crate::world::World;
use sluice_rig::rng::Rng;
use std::collections::BTreeMap;
use std::io;

#[derive(Default)]
pub struct Case {
    pub steps: Vec<ScriptStep>,
    pub found: Option<Difference>,
    /// Of several sessions: how the case came to the difference.
    pub ending: Option<Ending>,
    pub counts: Counts,
    /// Statements by their first words, and how many of them failed.
    pub kinds: BTreeMap<String, (u64, u64)>,
}

/// The server has ended while a case ran.
pub fn crash() -> Difference {
    Difference {
        kind: Kind::Lost,
        statement: "the server has ended".into(),
        sluice: String::new(),
        innodb: String::new(),
    }
}

/// Statements in a case: enough for states to build up, few enough to shrink.
pub const LENGTH: usize = 150;

pub fn single(world: &mut World, rng: Rng, length: usize, style: Style) -> io::Result<Case> {
    world.empty()?;
    let mut case = Case::default();
    let mut generator = Generator::new(rng, style);
    let mut runner = Runner::new(world, 1)?;
    let mut plan = generator.prologue();
    while case.steps.len() < length && case.found.is_none() {
        for planned in std::mem::take(&mut plan) {
            case.one(&mut runner, &mut generator, planned)?;
            if case.found.is_some() {
                break;
            }
        }
        plan = generator.next();
    }
    if case.found.is_none() {
        case.found = runner.finish()?;
    }
    case.counts.merge(&runner.counts);
    Ok(case)
}

impl Case {
    fn one(
        &mut self,
        runner: &mut Runner,
        generator: &mut Generator,
        planned: Planned,
    ) -> io::Result<()> {
        let step = ScriptStep::sql(0, planned.sql);
        self.steps.push(step.clone());
        match runner.step(&step)? {
            Stepped::Same(outcome) => {
                self.count(step.text(), outcome.is_ok());
                if let Some(effect) = planned.effect.filter(|_| outcome.is_ok()) {
                    generator.apply(effect);
                }
            }
            Stepped::Differs(found) => self.found = Some(*found),
            _ => {}
        }
        Ok(())
    }

    pub fn count(&mut self, sql: &str, ok: bool) {
        let word = sql.split_whitespace().find(|w| !w.starts_with("/*")).unwrap_or("");
        let entry = self.kinds.entry(word.to_owned()).or_default();
        entry.0 += 1;
        entry.1 += u64::from(!ok);
    }
}
