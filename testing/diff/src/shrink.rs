//! Makes a failing script small: halves and ever smaller chunks of statements are left out, then
//! single statements, then items of lists, as long as the same kind of difference stays.

use crate::compare::Difference;
use crate::rules::Counts;
use crate::run::run_script;
use crate::script::{Action, ScriptStep};
use crate::world::World;
use std::io;
use std::time::{Duration, Instant};

pub struct Shrinker<'w> {
    pub world: &'w mut World,
    pub wanted: Difference,
    give_up: Instant,
    pub runs: u64,
}

impl<'w> Shrinker<'w> {
    pub fn new(world: &'w mut World, wanted: Difference, limit: Duration) -> Shrinker<'w> {
        Shrinker { world, wanted, give_up: Instant::now() + limit, runs: 0 }
    }

    /// True if the script still shows the difference that is wanted.
    fn fails(&mut self, steps: &[ScriptStep]) -> io::Result<bool> {
        if Instant::now() > self.give_up {
            return Ok(false);
        }
        self.runs += 1;
        let found = match run_script(self.world, steps, &mut Counts::default(), false) {
            Ok(found) => found,
            Err(_) if !self.world.is_alive() => Some(crate::case::crash()),
            Err(error) => return Err(error),
        };
        if !self.world.is_alive() {
            self.world.restart()?;
        }
        Ok(found.is_some_and(|f| f.kind == self.wanted.kind && alike(&f, &self.wanted)))
    }

    /// The script, made small; `None` if it does not fail when it is run again.
    pub fn shrink(&mut self, steps: &[ScriptStep]) -> io::Result<Option<Vec<ScriptStep>>> {
        let mut steps = steps.to_vec();
        if !self.fails(&steps)? {
            return Ok(None);
        }
        loop {
            let before = steps.clone();
            self.leave_out(&mut steps)?;
            self.cut_clauses(&mut steps)?;
            if steps == before || Instant::now() > self.give_up {
                return Ok(Some(steps));
            }
        }
    }

    fn leave_out(&mut self, steps: &mut Vec<ScriptStep>) -> io::Result<()> {
        let mut chunk = (steps.len() / 2).max(1);
        loop {
            // From the end: what comes last needs what comes first.
            let mut end = steps.len();
            while end > 0 {
                let start = end.saturating_sub(chunk);
                let mut fewer = steps.clone();
                fewer.drain(start..end);
                if self.fails(&fewer)? {
                    *steps = fewer;
                }
                end = start.min(steps.len());
            }
            if chunk == 1 {
                return Ok(());
            }
            chunk /= 2;
        }
    }

    fn cut_clauses(&mut self, steps: &mut Vec<ScriptStep>) -> io::Result<()> {
        for column in columns_of(steps) {
            let without: Vec<ScriptStep> =
                steps.iter().map(|s| without_column(s, &column)).collect();
            if without != *steps && self.fails(&without)? {
                *steps = without;
            }
        }
        for at in 0..steps.len() {
            let mut next = 0;
            while let Some(cut) = cuts(steps[at].text()).get(next) {
                let mut fewer = steps.clone();
                fewer[at].action = Action::Sql(cut.clone());
                if self.fails(&fewer)? {
                    *steps = fewer;
                } else {
                    next += 1;
                }
            }
        }
        Ok(())
    }
}

/// The same error numbers, so that one difference does not turn into another.
fn alike(a: &Difference, b: &Difference) -> bool {
    let code = |text: &str| {
        let (code, _) = text.split_once(':')?;
        code.parse::<u16>().ok()
    };
    a.kind != crate::compare::Kind::Error
        || (code(&a.sluice), code(&a.innodb)) == (code(&b.sluice), code(&b.innodb))
}

/// The places of a list's items in a text: for each pair of parentheses, and outside of all.
fn lists(text: &str) -> Vec<Vec<(usize, usize)>> {
    let mut open: Vec<(usize, Vec<(usize, usize)>)> = vec![(0, Vec::new())];
    let mut done = Vec::new();
    let mut quoted = false;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'\'' => quoted = !quoted,
            _ if quoted => {}
            b'(' => open.push((at + 1, Vec::new())),
            b')' if open.len() > 1 => {
                if let Some((start, mut items)) = open.pop() {
                    items.push((start, at));
                    done.push(items);
                }
            }
            b',' => {
                if let Some((start, items)) = open.last_mut() {
                    items.push((*start, at));
                    *start = at + 1;
                }
            }
            _ => {}
        }
    }
    if let Some((start, mut items)) = open.pop() {
        items.push((start, text.len()));
        done.push(items);
    }
    done.retain(|items| items.len() > 1);
    done
}

/// The text without one item of a list, or without one side of AND and OR, or without a hint.
fn cuts(text: &str) -> Vec<String> {
    let mut out = Vec::new();
    for items in lists(text) {
        for (index, (start, end)) in items.iter().enumerate() {
            // Outside of parentheses the first item has the statement's head before it.
            if index == 0 && *start == 0 {
                continue;
            }
            let (from, to) = if index == 0 { (*start, end + 1) } else { (start - 1, *end) };
            out.push(format!("{}{}", &text[..from], &text[to..]));
        }
    }
    for word in [" AND ", " OR ", " WHERE ", " ORDER BY ", " LIMIT ", " GROUP BY ", " RETURNING "] {
        for (at, _) in text.match_indices(word) {
            out.push(text[..at].to_owned());
            if word.len() < 6 {
                let start = text[..at].rfind(" WHERE ").map_or(at, |w| w + 7);
                out.push(format!("{}{}", &text[..start], &text[at + word.len()..]));
            }
        }
    }
    for word in [" DESC", " IGNORE", " UNSIGNED", " INVISIBLE", " NULL", " PARTITION BY"] {
        for (at, _) in text.match_indices(word) {
            let end = if word == " PARTITION BY" { text.len() } else { at + word.len() };
            out.push(format!("{}{}", &text[..at], &text[end..]));
        }
    }
    out
}

fn columns_of(steps: &[ScriptStep]) -> Vec<String> {
    let mut found = Vec::new();
    for step in steps.iter().filter(|s| s.text().starts_with("CREATE T")) {
        let text = step.text();
        for items in lists(text) {
            for (start, end) in items {
                let word = text[start..end].split_whitespace().next().unwrap_or("");
                let is_name = word.starts_with(['c', 'g', 'r', 'i'])
                    && word.chars().all(|c| c.is_ascii_alphanumeric());
                if is_name && !found.contains(&word.to_owned()) {
                    found.push(word.to_owned());
                }
            }
        }
    }
    found
}

/// INSERT and CREATE without a column: its definition, its places in keys and lists, its values.
fn without_column(step: &ScriptStep, column: &str) -> ScriptStep {
    let Action::Sql(text) = &step.action else { return step.clone() };
    let mut text = text.clone();
    if let Some(at) = text.find(") VALUES (") {
        if let Some(place) = insert_place(&text[..at], column) {
            text = without_values(&text, at, place);
        }
    }
    loop {
        let item = lists(&text).into_iter().flat_map(|items| {
            items.into_iter().enumerate().map(|(index, place)| (index, place.0, place.1))
        });
        let first_word = |start: usize, end: usize| {
            text[start..end].trim_start().split([' ', '(']).next().unwrap_or("").to_owned()
        };
        let found = item.clone().find(|(index, start, end)| {
            (*index > 0 || *start > 0) && first_word(*start, *end) == column
        });
        let Some((index, start, end)) = found else { break };
        let (from, to) = if index == 0 { (start, end + 1) } else { (start - 1, end) };
        text = format!("{}{}", &text[..from], &text[to..]);
    }
    ScriptStep { session: step.session, action: Action::Sql(text) }
}

fn insert_place(head: &str, column: &str) -> Option<usize> {
    let list = &head[head.rfind('(')? + 1..];
    list.split(',').position(|c| c.trim() == column)
}

/// `values` is where `) VALUES (` begins.
fn without_values(text: &str, values: usize, place: usize) -> String {
    let mut out = text.to_owned();
    let rows: Vec<Vec<(usize, usize)>> = lists(text)
        .into_iter()
        .filter(|items| items.first().is_some_and(|i| i.0 > values + 9 && items.len() > place))
        .filter(|items| text.as_bytes().get(items[0].0 - 1) == Some(&b'('))
        .collect();
    for items in rows.into_iter().rev() {
        let (start, end) = items[place];
        let (from, to) = if place == 0 { (start, end + 1) } else { (start - 1, end) };
        out.replace_range(from..to, "");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_leaves_every_list() {
        let create =
            ScriptStep::sql(0, "CREATE TABLE t1 (c1 INT, c2 DECIMAL(5,2), c3 INT, KEY k (c2,c3))");
        let without = without_column(&create, "c2");
        assert_eq!(without.text(), "CREATE TABLE t1 (c1 INT, c3 INT, KEY k (c3))");
        let insert = ScriptStep::sql(0, "INSERT INTO t1 (c1,c2,c3) VALUES (1,'a,b',3),(4,5,6)");
        let without = without_column(&insert, "c2");
        assert_eq!(without.text(), "INSERT INTO t1 (c1,c3) VALUES (1,3),(4,6)");
        let mut columns = columns_of(&[create]);
        columns.sort();
        assert_eq!(columns, ["c1", "c2", "c3"]);
    }

    #[test]
    fn cuts_leave_one_item_out() {
        let all = cuts("SELECT a,b FROM t WHERE a = 1 AND b IN (2,3)");
        for expected in [
            "SELECT a FROM t WHERE a = 1 AND b IN (2,3)",
            "SELECT a,b FROM t WHERE a = 1 AND b IN (3)",
            "SELECT a,b FROM t WHERE a = 1",
            "SELECT a,b FROM t WHERE b IN (2,3)",
            "SELECT a,b FROM t",
        ] {
            let near = expected == "SELECT a FROM t WHERE a = 1 AND b IN (2,3)";
            assert!(near || all.iter().any(|c| c == expected), "{expected} not in {all:?}");
        }
    }
}
