//! What became of each step, as text that can be compared, recorded and written into a case.

use sluice_rig::client::{Answer, Fault, Reply};

pub const LOCK_TIMEOUT: u16 = 1205;

/// A step's end.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum Outcome {
    /// It comes after a statement of its session that still waits.
    #[default]
    NotReached,
    /// It waited when all others had come to rest, and has not ended since.
    Waits,
    /// It ended, at once or, after a wait, during the step named.
    Ended { text: String, released_by: Option<String> },
}

/// A timeout ends a wait by itself: nobody has released it.
pub fn ended(reply: &Reply<Answer>, sorted: bool, released_by: Option<String>) -> Outcome {
    let released_by = released_by.filter(|_| !is_timeout(reply));
    Outcome::Ended { text: text_of(reply, sorted), released_by }
}

fn is_timeout(reply: &Reply<Answer>) -> bool {
    matches!(reply, Err(Fault::Sql(LOCK_TIMEOUT, _)))
}

fn text_of(reply: &Reply<Answer>, sorted: bool) -> String {
    match reply {
        Ok(Answer::Done(rows)) => format!("ok {rows}"),
        Ok(Answer::Rows(rows)) if rows.is_empty() => "rows none".into(),
        Ok(Answer::Rows(rows)) => {
            let mut texts: Vec<String> = rows.iter().map(|row| row_text(row)).collect();
            if sorted {
                texts.sort();
            }
            format!("rows {}", texts.join(" "))
        }
        Err(Fault::Sql(code, _)) => format!("error {code}"),
        Err(Fault::Lost(_)) => "connection lost".into(),
    }
}

fn row_text(row: &[Option<String>]) -> String {
    let values: Vec<&str> = row.iter().map(|v| v.as_deref().unwrap_or("NULL")).collect();
    format!("({})", values.join(", "))
}

impl Outcome {
    pub fn text(&self) -> String {
        match self {
            Outcome::NotReached => "not reached".into(),
            Outcome::Waits => "waits to the end".into(),
            Outcome::Ended { text, released_by: None } => text.clone(),
            Outcome::Ended { text, released_by: Some(step) } => {
                format!("waits until {step}, then {text}")
            }
        }
    }

    /// What the table says of the step; nothing for one that just works.
    pub fn summary(&self) -> Option<String> {
        match self {
            Outcome::NotReached => None,
            Outcome::Waits => Some("waits".into()),
            Outcome::Ended { text, released_by } => {
                let error = text.strip_prefix("error ");
                match (released_by, error) {
                    (None, None) => None,
                    (None, Some(code)) => Some(code.into()),
                    (Some(_), None) => Some("waits".into()),
                    (Some(_), Some(code)) => Some(format!("waits, {code}")),
                }
            }
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepOutcome {
    pub label: String,
    pub outcome: Outcome,
}

/// All steps of one run of a case, in the order of the case.
pub type Timeline = Vec<StepOutcome>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_read_as_they_are_written_in_cases() {
        let rows = vec![vec![Some("2".into()), None], vec![Some("1".into()), Some("x".into())]];
        let reply = Ok(Answer::Rows(rows));
        assert_eq!(ended(&reply, true, None).text(), "rows (1, x) (2, NULL)");
        assert_eq!(ended(&reply, false, None).text(), "rows (2, NULL) (1, x)");
        assert_eq!(ended(&Ok(Answer::Rows(vec![])), true, None).text(), "rows none");
        let done = ended(&Ok(Answer::Done(3)), true, Some("a2".into()));
        assert_eq!(done.text(), "waits until a2, then ok 3");
        assert_eq!(done.summary().as_deref(), Some("waits"));
        let deadlock = ended(&Err(Fault::Sql(1213, "".into())), true, Some("a2".into()));
        assert_eq!(deadlock.summary().as_deref(), Some("waits, 1213"));
    }

    #[test]
    fn a_timeout_is_nobodys_release() {
        let reply = Err(Fault::Sql(LOCK_TIMEOUT, "".into()));
        assert_eq!(ended(&reply, true, Some("a2".into())).text(), "error 1205");
    }
}
