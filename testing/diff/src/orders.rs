//! Statements that one step has set to work at once, such as those that waited for the transaction
//! that has ended: which of them is first is chance, on both sides. So Sluice's answers are right if
//! they are InnoDB's in one of the orders. Each order is tried with the statements sent one after
//! another; then the same script is run again and again.

use crate::books::{is_ddl, Answer};
use crate::claims::{only, table_of, Image, Images};
use crate::compare::compare;
use crate::rules::{Counts, DEADLOCK, MIXED, ORDER, WOKEN};
use crate::run::{Runner, Stepped};
use crate::script::{sessions, Action, ScriptStep};
use crate::session::{Outcome, Row, SIDES};
use crate::world::World;
use std::collections::BTreeSet;
use std::io;

/// How a script ended in a difference.
#[derive(Clone)]
pub struct Ending {
    /// Up to the step that differs.
    pub steps: Vec<ScriptStep>,
    /// It was the last step, not the checks after it.
    pub at_step: bool,
    /// Steps that were left out: in another order they might not be.
    pub left_out: Vec<usize>,
    /// Sessions at work at once in the last step, with the step that sent their statements.
    pub crowd: Vec<(usize, usize)>,
    pub crowded: bool,
    /// Sessions whose transactions a rule has undone in the last step, one after another.
    pub undone: Vec<usize>,
    /// The steps that sent their statements, if these had waited before: nothing of them has stayed.
    pub withdrawn: Vec<usize>,
    /// Tables in which a statement of the crowd may run between two rows of another one: it locks no gaps, or
    /// takes numbers.
    pub mixes: BTreeSet<String>,
    pub answers: Vec<Answer>,
    pub images: Images,
}

const RUNS: usize = 8;

type Replies = Vec<(usize, String, Option<Outcome>)>;

/// The rule by which chance explains the difference.
pub fn explain(world: &mut World, ending: &Ending) -> io::Result<Option<&'static str>> {
    if !ending.crowded {
        return Ok(None);
    }
    let mut all_alike = ending.at_step;
    let mut ends = Vec::new();
    if ending.at_step && (1..=3).contains(&ending.crowd.len()) {
        for order in orders(&ending.crowd) {
            match in_order(world, ending, &order)? {
                Ordered::AsSluiceWas => return Ok(Some(ORDER.id)),
                Ordered::Alike(end) => ends.push(end),
                Ordered::Differs => all_alike = false,
            }
        }
        if all_alike && has_own_victim(ending) {
            return Ok(Some(WOKEN.id));
        }
        if all_alike && is_mixed(ending, &ends) {
            return Ok(Some(MIXED.id));
        }
    }
    Ok(again(world, ending)?.then_some(ORDER.id))
}

/// Is the difference nothing but a deadlock in Sluice, of statements that were set to work at once, and DDL
/// that goes on since the victim has gone?
fn has_own_victim(ending: &Ending) -> bool {
    let differs = |answer: &&Answer| match &answer.replies {
        [None, None] => false,
        [Some(ours), Some(theirs)] => {
            compare(&answer.sql, ours, theirs, &mut Counts::default()).is_some()
        }
        _ => true,
    };
    let ours = |answer: &Answer| {
        let woken = ending.crowd.iter().any(|(at, _)| *at == answer.session);
        woken && answer.replies[0].as_ref().is_some_and(|o| o.error_code() == DEADLOCK)
    };
    // The victim has let go of its metadata locks, too.
    let follows = |answer: &&Answer| {
        is_ddl(&answer.sql)
            && answer.replies[0].as_ref().is_some_and(Outcome::is_ok)
            && answer.replies[1].is_none()
    };
    let all = ending.answers.iter().filter(differs).filter(|answer| !follows(answer));
    let all: Vec<&Answer> = all.collect();
    all.len() == 1 && ours(all[0])
}

/// How InnoDB has ended in one of the orders.
struct End {
    replies: Replies,
    images: Images,
    /// Tables, with the rows that one of the statements has written there, also if a later one has taken
    /// them away.
    written: Vec<(String, Row)>,
    /// Rows that were there before the statements and after each of them.
    untouched: Images,
}

/// May a statement of the crowd have met some of the rows that another one has written, and not the rest?
/// Only statements of the crowd have other answers, and only in tables where they may mix. Each row of Sluice
/// is what one of the orders gives, or was written there: one that comes before the place of another statement
/// is passed by that. What no statement touches in any order is there.
fn is_mixed(ending: &Ending, ends: &[End]) -> bool {
    let mixes = |table: &String| ending.mixes.contains(table);
    let is_fine = |answer: &Answer| match &answer.replies {
        [None, None] => true,
        [Some(ours), Some(theirs)] => {
            let woken = ending.crowd.iter().any(|(at, _)| *at == answer.session);
            let alike = || compare(&answer.sql, ours, theirs, &mut Counts::default()).is_none();
            let may_differ = woken && table_of(&answer.sql).as_ref().is_some_and(mixes);
            may_differ && ours.is_ok() && theirs.is_ok() && is_part(answer.session, ours, ends)
                || alike()
        }
        _ => false,
    };
    let is_fine_table = |(table, image): (&String, &Image)| match mixes(table) {
        true => image.rows.iter().all(|row| ends.iter().any(|end| end.has(table, row))),
        false => ends.iter().any(|end| same_rows(image, end.images.get(table))),
    };
    !ending.mixes.is_empty()
        && ending.answers.iter().all(is_fine)
        && ending.images.iter().all(is_fine_table)
        && has_untouched(&ending.images, ends)
}

/// Has the answer no row, and no number of affected rows, beyond what all orders together have?
fn is_part(session: usize, ours: &Outcome, ends: &[End]) -> bool {
    let own = |end: &End| -> Vec<Outcome> {
        let own = end.replies.iter().filter(|(at, _, _)| *at == session);
        own.filter_map(|(_, _, reply)| reply.clone()).collect()
    };
    let replies: Vec<Outcome> = ends.iter().flat_map(own).collect();
    let rows = |outcome: &Outcome| -> Vec<Row> {
        outcome.sets.iter().flat_map(|set| set.rows.clone()).collect()
    };
    let all: Vec<Row> = replies.iter().flat_map(rows).collect();
    let affected: u64 = replies.iter().map(|reply| reply.affected_rows).sum();
    ours.affected_rows <= affected && only(&rows(ours), &all).is_empty()
}

fn has_untouched(ours: &Images, ends: &[End]) -> bool {
    let images = ends.iter().map(|end| end.untouched.clone());
    let untouched = images.reduce(|a, b| in_both(&a, &b)).unwrap_or_default();
    let is_there = |(table, image): (&String, &Image)| {
        ours.get(table).is_none_or(|ours| only(&image.rows, &ours.rows).is_empty())
    };
    untouched.iter().all(is_there)
}

/// The rows that both have, of tables that both have.
fn in_both(a: &Images, b: &Images) -> Images {
    let rows = |(table, image): (&String, &Image)| {
        let rows = only(&image.rows, &only(&image.rows, &b.get(table)?.rows));
        Some((table.clone(), Image { names: image.names.clone(), rows }))
    };
    a.iter().filter_map(rows).collect()
}

impl End {
    fn has(&self, table: &String, row: &Row) -> bool {
        let written = self.written.iter().any(|(at, other)| at == table && other == row);
        written || self.images.get(table).is_some_and(|image| image.rows.contains(row))
    }
}

enum Ordered {
    /// InnoDB has answered as Sluice had when the difference was seen.
    AsSluiceWas,
    /// Both sides have answered alike, in another way.
    Alike(End),
    Differs,
}

fn orders(crowd: &[(usize, usize)]) -> Vec<Vec<(usize, usize)>> {
    if crowd.len() < 2 {
        return vec![crowd.to_vec()];
    }
    let mut out = Vec::new();
    for first in 0..crowd.len() {
        let mut rest = crowd.to_vec();
        let one = rest.remove(first);
        for mut order in orders(&rest) {
            order.insert(0, one);
            out.push(order);
        }
    }
    out
}

/// What DDL does before it asks for its metadata lock, which the woken statements hold.
fn commit_of_ddl(last: &ScriptStep) -> Option<ScriptStep> {
    let Action::Sql(sql) = &last.action else { return None };
    is_ddl(sql).then(|| ScriptStep::sql(last.session, "COMMIT"))
}

/// The script in one of the orders.
struct Script {
    steps: Vec<ScriptStep>,
    /// So many, with the last one of the case: from that one on, answers count.
    asked: usize,
    /// So many before those of the crowd.
    before: usize,
}

/// The statements of the crowd are left out where they were, and sent after the last step; or before it
/// and after its commit, if that is DDL. A transaction that a rule has undone in the last step, where other
/// statements met it, is undone here before they are sent; its statement is not sent at all if it had waited.
fn script(ending: &Ending, order: &[(usize, usize)]) -> Script {
    let last = ending.steps.len();
    let later: Vec<(usize, usize)> = order.iter().copied().filter(|(_, at)| *at < last).collect();
    let stays = |(index, step): (usize, &ScriptStep)| {
        if ending.left_out.contains(&(index + 1)) {
            return None;
        }
        if ending.withdrawn.contains(&(index + 1)) {
            return commit_of_ddl(step);
        }
        let sent = later.iter().find(|(session, _)| *session == step.session);
        let gone = sent.is_some_and(|(_, at)| index + 1 >= *at) && step.action != Action::Kill;
        (!gone).then(|| step.clone())
    };
    let mut steps: Vec<ScriptStep> = ending.steps.iter().enumerate().filter_map(stays).collect();
    let asked = steps.len();
    let commit = steps.last().and_then(commit_of_ddl);
    let ddl = commit.map(|commit| std::mem::replace(&mut steps[asked - 1], commit));
    let end = |at: &usize| {
        let step = |action| ScriptStep { session: *at, action };
        [step(Action::Kill), step(Action::Disconnect)]
    };
    steps.extend(ending.undone.iter().flat_map(end));
    let before = steps.len();
    steps.extend(later.iter().map(|(_, at)| ending.steps[*at - 1].clone()));
    steps.extend(ddl.filter(|ddl| !ending.undone.contains(&ddl.session)));
    Script { steps, asked, before }
}

fn in_order(world: &mut World, ending: &Ending, order: &[(usize, usize)]) -> io::Result<Ordered> {
    let Script { steps, asked, before } = script(ending, order);
    world.empty()?;
    let mut runner = Runner::new(world, sessions(&ending.steps))?;
    let mut replies: Replies = Vec::new();
    let (mut differs, mut written) = (false, Vec::new());
    let (mut images, mut untouched): (Option<Images>, Option<Images>) = (None, None);
    for (index, step) in steps.iter().enumerate() {
        let stepped = runner.step(step)?;
        let is_last = index + 1 == steps.len();
        differs = matches!(stepped, Stepped::Parted | Stepped::Differs(_));
        if matches!(stepped, Stepped::Parted) || differs && !is_last {
            return Ok(Ordered::Differs);
        }
        if index + 1 == asked && has_committed(&runner, ending, step) {
            return Ok(Ordered::Differs);
        }
        if index + 1 >= asked {
            take(&mut replies, &runner.books.answers);
        }
        if index + 1 >= before {
            let after = runner.books.look(&mut runner.pairs.control, SIDES[1]);
            written.extend(images.iter().flat_map(|images| new_rows(images, &after)));
            untouched =
                Some(untouched.map_or_else(|| after.clone(), |rows| in_both(&rows, &after)));
            images = Some(after);
        }
    }
    let (images, untouched) = (images.unwrap_or_default(), untouched.unwrap_or_default());
    Ok(match same(ending, &replies) && same_tables(&ending.images, &images) {
        true => Ordered::AsSluiceWas,
        false if differs => Ordered::Differs,
        false => Ordered::Alike(End { replies, images, written, untouched }),
    })
}

/// Has the last step committed here what a rule has undone in the case?
fn has_committed(runner: &Runner, ending: &Ending, step: &ScriptStep) -> bool {
    let session = step.session;
    let ran = |answer: &Answer| {
        let ok = answer.replies.iter().flatten().any(Outcome::is_ok);
        answer.session == session && ok && !answer.sql.starts_with("SELECT")
    };
    let books = &runner.books;
    ending.undone.contains(&session) && books.answers.iter().any(ran) && !books.is_open(session)
}

fn new_rows(before: &Images, after: &Images) -> Vec<(String, Row)> {
    let is_new =
        |table: &String, row: &Row| before.get(table).is_some_and(|b| !b.rows.contains(row));
    let rows = |(table, image): (&String, &Image)| {
        let new = image.rows.iter().filter(|row| is_new(table, row));
        new.map(|row| (table.clone(), row.clone())).collect::<Vec<_>>()
    };
    after.iter().flat_map(rows).collect()
}

/// The newest answer of each session, on InnoDB.
fn take(replies: &mut Replies, answers: &[Answer]) {
    for Answer { session, sql, replies: both } in answers {
        replies.retain(|(at, _, _)| at != session);
        replies.push((*session, sql.clone(), both[1].clone()));
    }
}

fn same(ending: &Ending, replies: &Replies) -> bool {
    ending.answers.iter().all(|answer| {
        let reply = replies.iter().find(|(at, sql, _)| *at == answer.session && *sql == answer.sql);
        match (&answer.replies[0], reply.and_then(|(_, _, reply)| reply.as_ref())) {
            (None, None) => true,
            (Some(ours), Some(theirs)) => {
                compare(&answer.sql, ours, theirs, &mut Counts::default()).is_none()
            }
            _ => false,
        }
    })
}

fn same_tables(ours: &Images, theirs: &Images) -> bool {
    ours.iter().all(|(table, image)| same_rows(image, theirs.get(table)))
}

/// A table that cannot be read now is not compared.
fn same_rows(ours: &Image, theirs: Option<&Image>) -> bool {
    let sorted = |image: &Image| {
        let mut rows = image.rows.clone();
        rows.sort();
        rows
    };
    theirs.is_none_or(|theirs| sorted(ours) == sorted(theirs))
}

/// Runs the script again: does InnoDB ever answer as Sluice has answered?
fn again(world: &mut World, ending: &Ending) -> io::Result<bool> {
    for _ in 0..RUNS {
        world.empty()?;
        let mut runner = Runner::new(world, sessions(&ending.steps))?;
        let mut replies = Replies::new();
        let mut whole = true;
        for (index, step) in ending.steps.iter().enumerate() {
            let stepped = runner.step(step)?;
            let is_last = index + 1 == ending.steps.len();
            if is_last {
                take(&mut replies, &runner.books.answers);
            }
            let broken = matches!(stepped, Stepped::Parted | Stepped::Differs(_));
            whole &= !broken || is_last && ending.at_step;
            if !whole {
                break;
            }
        }
        let explained = match ending.at_step {
            true => {
                let images = runner.books.look(&mut runner.pairs.control, SIDES[1]);
                whole && same(ending, &replies) && same_tables(&ending.images, &images)
            }
            false => whole && runner.finish()?.is_none(),
        };
        if explained {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn images(values: &[&str]) -> Images {
        let rows = values.iter().map(|v| vec![Some(v.as_bytes().to_vec())]).collect();
        Images::from([("t1".to_owned(), Image { names: vec!["c1".into()], rows })])
    }

    /// InnoDB's session 0 has changed one row.
    fn end(values: &[&str], untouched: &[&str]) -> End {
        let reply = Some(Outcome { affected_rows: 1, ..Outcome::default() });
        let replies = vec![(0, "UPDATE t1 SET c1 = 2".into(), reply)];
        End { replies, images: images(values), written: Vec::new(), untouched: images(untouched) }
    }

    /// Sluice's session 0 has changed two rows, InnoDB's one.
    fn ending() -> Ending {
        let changed = |rows: u64| Some(Outcome { affected_rows: rows, ..Outcome::default() });
        let answer = Answer {
            session: 0,
            sql: "UPDATE t1 SET c1 = 2".into(),
            replies: [changed(2), changed(1)],
        };
        Ending {
            steps: Vec::new(),
            at_step: true,
            left_out: Vec::new(),
            crowd: vec![(0, 1), (1, 2)],
            crowded: true,
            undone: Vec::new(),
            withdrawn: Vec::new(),
            mixes: BTreeSet::from(["t1".to_owned()]),
            answers: vec![answer],
            images: images(&["1", "2"]),
        }
    }

    #[test]
    fn woken_statements_may_mix() {
        let orders = [end(&["1", "1"], &[]), end(&["2", "2"], &[])];
        assert!(is_mixed(&ending(), &orders));
        let written = new_rows(&images(&["1"]), &images(&["1", "2"]));
        let passed = End { written, ..end(&["1", "1"], &[]) };
        let other = end(&["1", "1"], &[]);
        assert!(is_mixed(&ending(), &[passed, other]), "a row that one order gives and takes away");
        let no_table = Ending { mixes: BTreeSet::new(), ..ending() };
        assert!(!is_mixed(&no_table, &orders), "it locks gaps");
        let other_table = Ending { mixes: BTreeSet::from(["t2".to_owned()]), ..ending() };
        assert!(!is_mixed(&other_table, &orders), "they mix elsewhere");
        let not_woken = Ending { crowd: vec![(1, 2), (2, 3)], ..ending() };
        assert!(!is_mixed(&not_woken, &orders), "another answer, and it was not woken");
    }

    #[test]
    fn what_mixes_is_between_the_orders() {
        let one = [end(&["1", "1"], &[])];
        assert!(!is_mixed(&ending(), &one), "a row that no order gives");
        let lost = [end(&["1", "1", "3"], &["3"]), end(&["2", "2", "3"], &["3"])];
        assert!(!is_mixed(&ending(), &lost), "a row that no order touches is gone");
        let written_once = [end(&["1", "1", "3"], &["3"]), end(&["2", "2"], &[])];
        assert!(is_mixed(&ending(), &written_once), "one order touches the row");
        let mut more = ending();
        more.answers[0].replies[0] = Some(Outcome { affected_rows: 3, ..Outcome::default() });
        let orders = [end(&["1", "1"], &[]), end(&["2", "2"], &[])];
        assert!(!is_mixed(&more, &orders), "more rows than all orders together");
    }

    #[test]
    fn rows_of_both() {
        let found = in_both(&images(&["1", "1", "2", "3"]), &images(&["1", "3", "4"]));
        assert_eq!(found, images(&["1", "3"]));
    }

    #[test]
    fn what_was_undone_is_undone_before_the_crowd() {
        let sql = |session, text: &str| ScriptStep::sql(session, text);
        let steps = vec![sql(0, "BEGIN"), sql(1, "DELETE"), sql(2, "UPDATE"), sql(0, "SELECT")];
        let mut ending = Ending { steps, undone: vec![0], ..ending() };
        let texts = |ending: &Ending| -> Vec<String> {
            let Script { steps, asked, before } = script(ending, &[(2, 3), (1, 2)]);
            assert_eq!((asked, before), (2, 4));
            steps.iter().map(|step| format!("{} {}", step.session, step.text())).collect()
        };
        let end = ["0 -- kill", "0 -- disconnect", "2 UPDATE", "1 DELETE"];
        assert_eq!(texts(&ending), [&["0 BEGIN", "0 SELECT"], &end[..]].concat());
        ending.left_out = vec![1];
        assert_eq!(script(&ending, &[(2, 3), (1, 2)]).steps.len(), 5);
        let mut ddl = Ending { left_out: Vec::new(), ..ending };
        ddl.steps[3] = sql(0, "TRUNCATE TABLE t1");
        assert_eq!(texts(&ddl), [&["0 BEGIN", "0 COMMIT"], &end[..]].concat());
        ddl.undone = vec![1];
        let other = ["1 -- kill", "1 -- disconnect", "2 UPDATE", "1 DELETE", "0 TRUNCATE TABLE t1"];
        assert_eq!(texts(&ddl), [&["0 BEGIN", "0 COMMIT"], &other[..]].concat());
        let steps = vec![sql(3, "UPDATE"), sql(1, "DELETE"), sql(2, "UPDATE"), sql(0, "COMMIT")];
        let waited = Ending { steps, undone: vec![3], withdrawn: vec![1], ..ddl };
        let Script { steps, asked, before } = script(&waited, &[(2, 3), (1, 2)]);
        assert_eq!((asked, before, steps.len()), (1, 3, 5));
        assert_eq!(steps[0].text(), "COMMIT");
    }

    #[test]
    fn every_order_once() {
        let all = orders(&[(0, 1), (1, 2), (2, 3)]);
        assert_eq!(all.len(), 6);
        assert!(all.contains(&vec![(2, 3), (0, 1), (1, 2)]));
    }
}
