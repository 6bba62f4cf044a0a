//! Cases of several sessions: which session goes next, and with which statement. Every statement
//! that locks says which index it takes, so that both engines lock along the same path.

use crate::case::Case;
use crate::chance::Chance;
use crate::compare::FREE;
use crate::dml;
use crate::exprs::{comparison, names};
use crate::gen::{Effect, Generator};
use crate::load;
use crate::run::{Runner, Stepped};
use crate::schema::{Style, Table, PRIMARY, SPARE};
use crate::script::{Action, ScriptStep};
use crate::session::{CACHE_MARK, SIDE_MARK};
use crate::settings::LEVELS;
use crate::world::World;
use sluice_rig::rng::Rng;
use std::io;

pub fn several(
    world: &mut World,
    rng: Rng,
    length: usize,
    style: Style,
    sessions: usize,
) -> io::Result<Case> {
    world.empty()?;
    let mut case = Case::default();
    let mut generator = Generator::new(rng, Style { small: true, ..style });
    let mut runner = Runner::new(world, sessions)?;
    for planned in generator.tables_for_sessions() {
        let step = ScriptStep::sql(0, planned.sql);
        case.take(&mut runner, &mut generator, step, planned.effect)?;
    }
    let cache = generator.rng.percent(30);
    for session in 0..sessions {
        for sql in opening(&mut generator.rng, cache) {
            case.take(&mut runner, &mut generator, ScriptStep::sql(session, sql), None)?;
        }
    }
    while case.steps.len() < length && case.found.is_none() && !runner.parted.is_over() {
        for step in next(&mut generator, &runner, cache) {
            case.take(&mut runner, &mut generator, step, None)?;
        }
    }
    let at_step = case.found.is_some();
    if case.found.is_none() {
        case.found = runner.finish()?;
    }
    if case.found.is_some() {
        case.ending = Some(runner.ending(&case.steps, at_step));
    }
    case.counts.merge(&runner.counts);
    Ok(case)
}

impl Case {
    fn take(
        &mut self,
        runner: &mut Runner,
        generator: &mut Generator,
        step: ScriptStep,
        effect: Option<Effect>,
    ) -> io::Result<()> {
        if self.found.is_some() || runner.parted.is_over() {
            return Ok(());
        }
        self.steps.push(step.clone());
        match runner.step(&step)? {
            Stepped::Same(outcome) => {
                self.count(step.text(), outcome.is_ok());
                if let Some(effect) = effect.filter(|_| outcome.is_ok()) {
                    generator.apply(effect);
                }
            }
            Stepped::Waits => self.count("waits", true),
            Stepped::Differs(found) => self.found = Some(*found),
            Stepped::Skipped | Stepped::Parted => {}
        }
        Ok(())
    }
}

/// `cache`: the query cache may be used.
fn opening(rng: &mut Rng, cache: bool) -> Vec<String> {
    let mut all = vec![format!(
        "SET SESSION TRANSACTION ISOLATION LEVEL {}",
        LEVELS[rng.weighted(&[1, 3, 6, 4])]
    )];
    if cache && rng.percent(50) {
        all.push(format!("SET query_cache_type={CACHE_MARK}"));
    }
    all
}

fn next(generator: &mut Generator, runner: &Runner, cache: bool) -> Vec<ScriptStep> {
    let rng = &mut generator.rng;
    let free: Vec<usize> = (0..runner.sessions()).filter(|s| !runner.waits(*s)).collect();
    let waiting: Vec<usize> = (0..runner.sessions()).filter(|s| runner.waits(*s)).collect();
    let kill = rng.percent(2) || free.is_empty();
    if let Some(session) = rng.pick(&waiting).copied().filter(|_| kill) {
        return vec![ScriptStep { session, action: Action::Kill }];
    }
    let Some(session) = rng.pick(&free).copied() else { return Vec::new() };
    if rng.percent(2) {
        return vec![ScriptStep { session, action: Action::Disconnect }];
    }
    let Some(table) = rng.pick(&generator.tables).cloned() else { return Vec::new() };
    let texts = match rng.weighted(&[24, 26, 18, 18, 4, 5, 2, 3]) {
        0 => transaction(rng),
        1 => vec![change(rng, &table, generator.style)],
        2 => vec![locking_read(rng, &table)],
        3 => vec![read(rng, &table)],
        4 => vec![format!("SELECT f{}({})", table.name, rng.between(0, 9))],
        5 => xa(rng, session, runner.sessions()),
        6 => vec![ddl(rng, &table)],
        _ => opening(rng, cache),
    };
    texts.into_iter().map(|text| ScriptStep::sql(session, text)).collect()
}

fn transaction(rng: &mut Rng) -> Vec<String> {
    let text = match rng.weighted(&[30, 30, 14, 8, 8, 3, 3]) {
        0 => "BEGIN",
        1 => "COMMIT",
        2 => "ROLLBACK",
        3 => "SAVEPOINT s1",
        4 => "ROLLBACK TO SAVEPOINT s1",
        // By itself it would end a transaction before: whether others that go on then come before the
        // snapshot is chance.
        5 => {
            return ["COMMIT", "START TRANSACTION WITH CONSISTENT SNAPSHOT"]
                .map(String::from)
                .into()
        }
        _ => rng.one(&["SET autocommit=0", "SET autocommit=1"]),
    };
    vec![text.to_owned()]
}

/// An index and a condition on its first column.
fn path(rng: &mut Rng, table: &Table) -> (String, String) {
    let Some(key) = rng.pick(&table.keys).cloned() else { return (String::new(), "1".into()) };
    let name = if key.name == PRIMARY { "`PRIMARY`" } else { &key.name };
    let Some(column) = key.parts.first().and_then(|p| table.column(&p.column)) else {
        return (String::new(), "1".into());
    };
    let c = &column.name;
    let value = |rng: &mut Rng| rng.between(0, 14);
    let condition = match rng.weighted(&[50, 14, 14, 8, 8]) {
        0 => format!("{c} = {}", value(rng)),
        1 => format!("{c} {} {}", rng.one(&["<", "<=", ">", ">="]), value(rng)),
        2 => {
            let low = value(rng);
            format!("{c} BETWEEN {low} AND {}", low + rng.between(0, 4))
        }
        3 => format!("{c} IN ({},{})", value(rng), value(rng)),
        _ => format!("{c} = {} AND {}", value(rng), other(rng, table)),
    };
    (format!(" FORCE INDEX ({name})"), condition)
}

fn other(rng: &mut Rng, table: &Table) -> String {
    match rng.pick(&table.columns).cloned() {
        Some(column) => comparison(rng, &column, ""),
        None => "1".into(),
    }
}

fn change(rng: &mut Rng, table: &Table, style: Style) -> String {
    let name = &table.name;
    let (hint, condition) = path(rng, table);
    match rng.weighted(&[36, 40, 20, 4]) {
        0 => dml::insert(rng, table, style),
        3 => load::statement(rng, table, style),
        1 => {
            let columns = rng.some(&table.written(), 1, 2);
            let sets: Vec<String> =
                columns.iter().map(|c| format!("{} = {}", c.name, rng.between(0, 14))).collect();
            format!("UPDATE {name}{hint} SET {} WHERE {condition}", sets.join(", "))
        }
        _ => format!("DELETE {FREE} {name} FROM {name}{hint} WHERE {condition}"),
    }
}

fn locking_read(rng: &mut Rng, table: &Table) -> String {
    const CLAUSES: [&str; 5] = [
        "FOR UPDATE",
        "LOCK IN SHARE MODE",
        "FOR UPDATE NOWAIT",
        "LOCK IN SHARE MODE NOWAIT",
        "FOR UPDATE SKIP LOCKED",
    ];
    let clause = CLAUSES[rng.weighted(&[10, 8, 2, 1, 2])];
    let list = names(&table.columns, "");
    if rng.percent(15) {
        if let Some(merge) = merge(rng, table) {
            return format!("SELECT {list} FROM {}{merge} {clause}", table.name);
        }
    }
    let (hint, condition) = path(rng, table);
    format!("SELECT {list} FROM {}{hint} WHERE {condition} {clause}", table.name)
}

/// Two keys at once.
fn merge(rng: &mut Rng, table: &Table) -> Option<String> {
    let keys = rng.some(&table.keys, 2, 2);
    let [a, b] = keys.as_slice() else { return None };
    let (x, y) = (&a.parts.first()?.column, &b.parts.first()?.column);
    let glue = rng.one(&["OR", "OR", "AND"]);
    let (v, w) = (rng.between(0, 14), rng.between(0, 14));
    let (a, b) = (&a.name, &b.name);
    Some(format!(" FORCE INDEX (`{a}`,`{b}`) WHERE {x} = {v} {glue} {y} = {w}"))
}

fn read(rng: &mut Rng, table: &Table) -> String {
    let (hint, condition) = path(rng, table);
    let name = &table.name;
    match rng.below(3) {
        0 => format!("SELECT COUNT({SPARE}) FROM {name}"),
        1 => format!("SELECT * FROM {name}"),
        _ => format!("SELECT {} FROM {name}{hint} WHERE {condition}", names(&table.columns, "")),
    }
}

fn xa(rng: &mut Rng, session: usize, sessions: usize) -> Vec<String> {
    let own = format!("'x{SIDE_MARK}{session}'");
    let any = format!("'x{SIDE_MARK}{}'", rng.below(sessions));
    match rng.below(6) {
        0 | 1 => vec![format!("XA START {own}")],
        2 => vec![format!("XA END {own}"), format!("XA PREPARE {own}")],
        3 => vec![format!("XA END {own}"), format!("XA ROLLBACK {own}")],
        4 => vec![format!("XA COMMIT {any}")],
        _ => vec![format!("XA ROLLBACK {any}")],
    }
}

fn ddl(rng: &mut Rng, table: &Table) -> String {
    let name = &table.name;
    match rng.below(3) {
        0 => format!("ALTER TABLE {name} FORCE"),
        1 => format!("TRUNCATE TABLE {name}"),
        _ => format!("ALTER TABLE {name} COMMENT = 'c{}'", rng.between(0, 9)),
    }
}
