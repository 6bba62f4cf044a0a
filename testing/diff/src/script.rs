//! A script: statements of one or more sessions, one on a line. Lines that begin with `--` are
//! comments, but for `-- session N`, `-- disconnect`, `-- kill N` and `-- set NAME=VALUE`.

use std::fmt::Write as _;

#[derive(Clone, PartialEq, Debug)]
pub enum Action {
    Sql(String),
    /// The session ends its connection and makes a new one.
    Disconnect,
    /// KILL QUERY, from outside, of what the session is doing.
    Kill,
}

#[derive(Clone, PartialEq, Debug)]
pub struct ScriptStep {
    pub session: usize,
    pub action: Action,
}

impl ScriptStep {
    pub fn sql(session: usize, text: impl Into<String>) -> ScriptStep {
        ScriptStep { session, action: Action::Sql(text.into()) }
    }

    pub fn text(&self) -> &str {
        match &self.action {
            Action::Sql(text) => text,
            Action::Disconnect => "-- disconnect",
            Action::Kill => "-- kill",
        }
    }
}

/// A line `-- strict`: the rules about locks do not apply.
pub fn is_strict(text: &str) -> bool {
    text.lines().any(|line| line.trim() == "-- strict")
}

pub fn sessions(steps: &[ScriptStep]) -> usize {
    steps.iter().map(|s| s.session + 1).max().unwrap_or(1)
}

pub fn write(header: &[String], steps: &[ScriptStep]) -> String {
    let mut out = String::new();
    for line in header {
        for part in line.lines() {
            let _ = writeln!(out, "-- {part}");
        }
    }
    let mut current = 0;
    for step in steps {
        if step.session != current {
            current = step.session;
            let _ = writeln!(out, "-- session {}", current + 1);
        }
        match &step.action {
            Action::Sql(text) => {
                let _ = writeln!(out, "{text};");
            }
            other => {
                let word = if *other == Action::Kill { "kill" } else { "disconnect" };
                let _ = writeln!(out, "-- {word}");
            }
        }
    }
    out
}

pub fn parse(text: &str) -> Result<Vec<ScriptStep>, String> {
    let mut session = 0;
    let mut steps = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let line = line.trim_end();
        if let Some(comment) = line.strip_prefix("--") {
            match comment.split_whitespace().collect::<Vec<_>>().as_slice() {
                ["session", number] => {
                    let number = number.parse::<usize>().ok().filter(|n| (1..=64).contains(n));
                    session = number.ok_or(format!("line {}: no session", at + 1))? - 1;
                }
                ["disconnect"] => steps.push(ScriptStep { session, action: Action::Disconnect }),
                ["kill"] => steps.push(ScriptStep { session, action: Action::Kill }),
                _ => {}
            }
        } else if !line.is_empty() {
            let sql = line.strip_suffix(';').ok_or(format!("line {}: no ; at the end", at + 1))?;
            steps.push(ScriptStep::sql(session, sql));
        }
    }
    Ok(steps)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_comes_back_as_it_was_written() {
        let steps = vec![
            ScriptStep::sql(0, "SELECT 1"),
            ScriptStep::sql(2, "SELECT ';'"),
            ScriptStep { session: 2, action: Action::Disconnect },
            ScriptStep { session: 1, action: Action::Kill },
            ScriptStep::sql(0, "BEGIN NOT ATOMIC SELECT 2; END"),
        ];
        let text = write(&["made by\na test".into()], &steps);
        assert_eq!(parse(&text), Ok(steps));
        assert!(parse("SELECT 1\n").is_err());
        assert!(parse("-- session 0\n").is_err());
    }
}
