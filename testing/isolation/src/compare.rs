//! Two engines' outcomes of one case at one level, and what the case allows.

use crate::case::{Case, Difference};
use crate::level::{Engine, Level};
use crate::outcome::{Outcome, StepOutcome, Timeline};

const DEADLOCK: &str = "error 1213";

/// The outcomes of one case at one level.
#[derive(Clone, Debug, Default)]
pub struct Pair {
    pub innodb: Timeline,
    pub sluice: Timeline,
}

impl Pair {
    pub fn of(&self, engine: Engine) -> &Timeline {
        match engine {
            Engine::InnoDb => &self.innodb,
            Engine::Sluice => &self.sluice,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepDifference {
    pub label: String,
    pub innodb: String,
    pub sluice: String,
    /// The index of the allowance in the case.
    pub allowed_by: Option<usize>,
}

pub fn differences(case: &Case, level: Level, pair: &Pair) -> Vec<StepDifference> {
    let both = pair.innodb.iter().zip(&pair.sluice);
    let texts = both.map(|(a, b)| (a.label.clone(), a.outcome.text(), b.outcome.text()));
    texts
        .filter(|(_, innodb, sluice)| innodb != sluice)
        .map(|(label, innodb, sluice)| {
            let allows = |d: &Difference| {
                if d.victim {
                    return d.levels.contains(&level) && is_same_deadlock(pair);
                }
                let has = |engine, text: &str| {
                    d.steps.iter().any(|s| s.0 == label && s.1 == engine && s.2 == text)
                };
                let both = has(Engine::InnoDb, &innodb) && has(Engine::Sluice, &sluice);
                both && d.levels.contains(&level)
            };
            let allowed_by = case.differences.iter().position(allows);
            StepDifference { label, innodb, sluice, allowed_by }
        })
        .collect()
}

/// Whether the first deadlock of both engines came with the same step.
fn is_same_deadlock(pair: &Pair) -> bool {
    let first = first_deadlock(&pair.innodb);
    first.is_some() && first == first_deadlock(&pair.sluice)
}

/// The step with which the first deadlock came about: the victim's own, or the one that it had
/// waited up to.
fn first_deadlock(timeline: &Timeline) -> Option<usize> {
    let position = |label: &str| timeline.iter().position(|step| step.label == label);
    let cause = |step: &StepOutcome| match &step.outcome {
        Outcome::Ended { text, released_by } if text == DEADLOCK => {
            position(released_by.as_deref().unwrap_or(&step.label))
        }
        _ => None,
    };
    timeline.iter().filter_map(cause).min()
}

/// Allowances that the runs did not need: they would hide the next difference.
pub fn idle_allowances(case: &Case, pairs: &[(Level, Pair)]) -> Vec<String> {
    let mut idle = Vec::new();
    for (at, allowance) in case.differences.iter().enumerate() {
        for level in &allowance.levels {
            let Some((_, pair)) = pairs.iter().find(|(l, _)| l == level) else { continue };
            let found = differences(case, *level, pair);
            let is_used =
                |label: &str| found.iter().any(|d| d.allowed_by == Some(at) && d.label == label);
            for (label, ..) in allowance.steps.iter().filter(|s| s.1 == Engine::Sluice) {
                if !is_used(label) {
                    idle.push(format!("{} at {level}: {label} does not differ so", case.name));
                }
            }
        }
    }
    idle
}

/// Whether the outcomes are those that the case calls its anomaly.
pub fn shows_anomaly(case: &Case, timeline: &Timeline) -> bool {
    case.anomaly.iter().all(|(label, wanted)| {
        timeline.iter().any(|step| step.label == *label && step.outcome.text() == *wanted)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::parse;

    const TEXT: &str = "
case one
about Two.
steps
  a: select 1
anomaly
  a1: rows (2)
differs at SERIALIZABLE
  a1 InnoDB: rows (1)
  a1 Sluice: rows (2)
  because it may
";

    fn pair(innodb: &str, sluice: &str) -> Pair {
        let timeline = |text: &str| {
            let outcome = Outcome::Ended { text: text.into(), released_by: None };
            vec![StepOutcome { label: "a1".into(), outcome }]
        };
        Pair { innodb: timeline(innodb), sluice: timeline(sluice) }
    }

    #[test]
    fn a_difference_is_allowed_at_its_level_with_its_outcomes_only() {
        let case = &parse("file", TEXT).unwrap()[0];
        let allowed = |level, a, b| {
            differences(case, level, &pair(a, b)).iter().map(|d| d.allowed_by).collect::<Vec<_>>()
        };
        assert_eq!(allowed(Level::Serializable, "rows (1)", "rows (2)"), [Some(0)]);
        assert_eq!(allowed(Level::RepeatableRead, "rows (1)", "rows (2)"), [None]);
        assert_eq!(allowed(Level::Serializable, "rows (1)", "rows (3)"), [None]);
        assert!(allowed(Level::Serializable, "rows (1)", "rows (1)").is_empty());
    }

    #[test]
    fn an_allowance_that_nobody_needs_is_a_fault() {
        let case = &parse("file", TEXT).unwrap()[0];
        let runs = |a, b| [(Level::Serializable, pair(a, b))];
        assert!(idle_allowances(case, &runs("rows (1)", "rows (2)")).is_empty());
        assert_eq!(idle_allowances(case, &runs("rows (1)", "rows (1)")).len(), 1);
    }

    #[test]
    fn another_victim_of_the_same_deadlock_is_allowed() {
        let text = TEXT.replace("  a1 InnoDB: rows (1)\n  a1 Sluice: rows (2)\n", "  victim\n");
        let case = &parse("file", &text.replace("  a: select 1", "  a: x\n  b: x")).unwrap()[0];
        let step = |label: &str, text: &str, released_by: Option<&str>| {
            let released_by = released_by.map(String::from);
            let outcome = Outcome::Ended { text: text.into(), released_by };
            StepOutcome { label: label.into(), outcome }
        };
        let innodb = vec![step("a1", DEADLOCK, Some("b1")), step("b1", "ok 1", None)];
        let sluice = vec![step("a1", "ok 1", Some("b1")), step("b1", DEADLOCK, None)];
        let allowed = |innodb: &Timeline, sluice: &Timeline| {
            let pair = Pair { innodb: innodb.clone(), sluice: sluice.clone() };
            let found = differences(case, Level::Serializable, &pair);
            found.iter().all(|d| d.allowed_by.is_some())
        };
        assert!(allowed(&innodb, &sluice));
        let none = vec![step("a1", "ok 1", Some("b1")), step("b1", "ok 1", None)];
        assert!(!allowed(&innodb, &none));
        let earlier = vec![step("a1", DEADLOCK, None), step("b1", "ok 1", None)];
        assert!(!allowed(&innodb, &earlier));
    }

    #[test]
    fn the_anomaly_shows_in_outcomes() {
        let case = &parse("file", TEXT).unwrap()[0];
        let pair = pair("rows (1)", "rows (2)");
        assert!(!shows_anomaly(case, &pair.innodb));
        assert!(shows_anomaly(case, &pair.sluice));
    }
}
