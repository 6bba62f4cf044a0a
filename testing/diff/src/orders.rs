//! Statements that one step has set to work at once, such as those that waited for the transaction
//! that has ended: which of them is first is chance, on both sides. So Sluice's answers are right if
//! they are InnoDB's in one of the orders. Each order is tried with the statements sent one after
//! another; then the same script is run again and again.

use crate::books::{is_ddl, Answer};
use crate::claims::{Image, Images};
use crate::compare::compare;
use crate::rules::{Counts, DEADLOCK, MIXED, ORDER, WOKEN};
use crate::run::{Runner, Stepped};
use crate::script::{sessions, Action, Step};
use crate::session::{Outcome, Row, SIDES};
use crate::world::World;
use std::io;

/// How a script ended in a difference.
#[derive(Clone)]
pub struct Ending {
    /// Up to the step that differs.
    pub steps: Vec<Step>,
    /// It was the last step, not the checks behind it.
    pub at_step: bool,
    /// Sessions at work at once in the last step, with the step that sent their statements.
    pub crowd: Vec<(usize, usize)>,
    pub crowded: bool,
    /// A statement of the crowd may run between two rows of another one: it locks no gaps, or takes numbers.
    pub mixes: bool,
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
}

/// May a statement of the crowd have met some of the rows that another one has written, and not the rest?
/// Only statements of the crowd have other answers, and each row of Sluice is what one of the orders gives, or
/// was written there: one that comes before the place of another statement is passed by that.
fn is_mixed(ending: &Ending, ends: &[End]) -> bool {
    let is_fine = |answer: &Answer| match &answer.replies {
        [None, None] => true,
        [Some(ours), Some(theirs)] => {
            let woken = ending.crowd.iter().any(|(at, _)| *at == answer.session);
            let alike = || compare(&answer.sql, ours, theirs, &mut Counts::default()).is_none();
            let known = |row: &Row| ends.iter().any(|end| end.has_answered(answer.session, row));
            let ran = ours.is_ok() && theirs.is_ok();
            woken && ran && ours.sets.iter().flat_map(|set| &set.rows).all(known) || alike()
        }
        _ => false,
    };
    let known = |table: &String, row: &Row| ends.iter().any(|end| end.has(table, row));
    ending.mixes
        && ending.answers.iter().all(is_fine)
        && ending.images.iter().all(|(table, image)| image.rows.iter().all(|row| known(table, row)))
}

impl End {
    fn has(&self, table: &String, row: &Row) -> bool {
        let written = self.written.iter().any(|(at, other)| at == table && other == row);
        written || self.images.get(table).is_some_and(|image| image.rows.contains(row))
    }

    fn has_answered(&self, session: usize, row: &Row) -> bool {
        let own = self.replies.iter().filter(|(at, _, _)| *at == session);
        let mut sets = own.filter_map(|(_, _, reply)| reply.as_ref()).flat_map(|o| &o.sets);
        sets.any(|set| set.rows.contains(row))
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
fn commit_of_ddl(last: &Step) -> Option<Step> {
    let Action::Sql(sql) = &last.action else { return None };
    is_ddl(sql).then(|| Step::sql(last.session, "COMMIT"))
}

/// The statements of the crowd are left out where they were, and sent after the last step; or before it
/// and after its commit, if that is DDL.
fn in_order(world: &mut World, ending: &Ending, order: &[(usize, usize)]) -> io::Result<Ordered> {
    let last = ending.steps.len();
    let later: Vec<(usize, usize)> = order.iter().copied().filter(|(_, at)| *at < last).collect();
    let stays = |(index, step): (usize, &Step)| {
        let sent = later.iter().find(|(session, _)| *session == step.session);
        let gone = sent.is_some_and(|(_, at)| index + 1 >= *at) && step.action != Action::Kill;
        (!gone).then(|| step.clone())
    };
    let mut steps: Vec<Step> = ending.steps.iter().enumerate().filter_map(stays).collect();
    let tail = later.iter().map(|(_, at)| ending.steps[*at - 1].clone());
    let before = steps.len();
    match steps.last().and_then(commit_of_ddl) {
        Some(commit) => {
            let ddl = std::mem::replace(&mut steps[before - 1], commit);
            steps.extend(tail);
            steps.push(ddl);
        }
        None => steps.extend(tail),
    }
    world.empty()?;
    let mut runner = Runner::new(world, sessions(&ending.steps))?;
    let mut replies: Replies = Vec::new();
    let (mut differs, mut images, mut written) = (false, None, Vec::new());
    for (index, step) in steps.iter().enumerate() {
        let stepped = runner.step(step)?;
        let is_last = index + 1 == steps.len();
        differs = matches!(stepped, Stepped::Parted | Stepped::Differs(_));
        if matches!(stepped, Stepped::Parted) || differs && !is_last {
            return Ok(Ordered::Differs);
        }
        if index + 1 >= before {
            take(&mut replies, &runner.books.answers);
            let after = runner.books.look(&mut runner.pairs.control, SIDES[1]);
            written.extend(images.iter().flat_map(|images| new_rows(images, &after)));
            images = Some(after);
        }
    }
    let images = images.unwrap_or_default();
    Ok(match same(ending, &replies) && same_tables(&ending.images, &images) {
        true => Ordered::AsSluiceWas,
        false if differs => Ordered::Differs,
        false => Ordered::Alike(End { replies, images, written }),
    })
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
    let sorted = |images: &Images, table: &String| {
        let mut rows = images.get(table)?.rows.clone();
        rows.sort();
        Some(rows)
    };
    ours.keys().all(|t| !theirs.contains_key(t) || sorted(ours, t) == sorted(theirs, t))
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

    #[test]
    fn woken_statements_may_mix() {
        let changed = |rows: u64| Some(Outcome { affected_rows: rows, ..Outcome::default() });
        let answer = |ours: u64, theirs: u64| Answer {
            session: 0,
            sql: "UPDATE t1 SET c1 = 2".into(),
            replies: [changed(ours), changed(theirs)],
        };
        let mut ending = Ending {
            steps: Vec::new(),
            at_step: true,
            crowd: vec![(0, 1), (1, 2)],
            crowded: true,
            mixes: true,
            answers: vec![answer(2, 1)],
            images: images(&["1", "2"]),
        };
        let end = |values: &[&str]| End {
            replies: Vec::new(),
            images: images(values),
            written: Vec::new(),
        };
        let orders = [end(&["1", "1"]), end(&["2", "2"])];
        assert!(is_mixed(&ending, &orders));
        assert!(!is_mixed(&ending, &orders[..1]), "a row that no order gives");
        let written = new_rows(&images(&["1"]), &images(&["1", "2"]));
        let passed = End { written, ..end(&["1", "1"]) };
        assert!(is_mixed(&ending, &[passed]), "a row that one order gives and takes away");
        ending.mixes = false;
        assert!(!is_mixed(&ending, &orders), "it locks gaps");
        ending.mixes = true;
        ending.crowd = vec![(1, 2), (2, 3)];
        assert!(!is_mixed(&ending, &orders), "another answer, and it was not woken");
    }

    #[test]
    fn every_order_once() {
        let all = orders(&[(0, 1), (1, 2), (2, 3)]);
        assert_eq!(all.len(), 6);
        assert!(all.contains(&vec![(2, 3), (0, 1), (1, 2)]));
    }
}
