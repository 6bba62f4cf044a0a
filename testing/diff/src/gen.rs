//! The generator of one case: what it knows of the tables, and which statement comes next. What it
//! knows changes only when a statement has succeeded.

use crate::chance::Chance;
use crate::schema::{random_table, Style, Table, SPARE};
use crate::{ddl, dml, programs, queries, settings};
use sluice_rig::rng::Rng;

#[derive(Clone, Debug)]
pub enum Effect {
    /// A table is new or has changed.
    Set(Table),
    /// A table has another name now.
    Replace(String, Table),
    Drop(String),
}

#[derive(Clone, Debug)]
pub struct Planned {
    pub sql: String,
    pub effect: Option<Effect>,
}

impl Planned {
    pub fn plain(sql: impl Into<String>) -> Planned {
        Planned { sql: sql.into(), effect: None }
    }
}

pub struct Generator {
    pub rng: Rng,
    pub tables: Vec<Table>,
    pub style: Style,
    names: usize,
    /// Prepared statements, functions and views so far.
    pub programs: programs::Programs,
}

const TABLES_MAX: usize = 4;

impl Generator {
    pub fn new(rng: Rng, style: Style) -> Generator {
        Generator {
            rng,
            tables: Vec::new(),
            style,
            names: 0,
            programs: programs::Programs::default(),
        }
    }

    pub fn fresh(&mut self) -> String {
        self.names += 1;
        format!("t{}", self.names)
    }

    /// Tables, their first rows and settings of the session.
    pub fn prologue(&mut self) -> Vec<Planned> {
        let mut plan = settings::session(&mut self.rng);
        for _ in 0..self.rng.between(1, 3) {
            plan.extend(self.create());
        }
        plan
    }

    /// Tables with a few rows, and a function that reads each of them.
    pub fn tables_for_sessions(&mut self) -> Vec<Planned> {
        let mut plan = Vec::new();
        for _ in 0..self.rng.between(1, 2) {
            plan.extend(self.create());
            let name = format!("t{}", self.names);
            plan.push(Planned::plain(format!(
                "CREATE FUNCTION f{name}(x INT) RETURNS INT READS SQL DATA RETURN (SELECT COUNT({SPARE}) \
                 FROM {name})"
            )));
        }
        plan
    }

    fn create(&mut self) -> Vec<Planned> {
        let name = self.fresh();
        let table = random_table(&mut self.rng, &name, self.style);
        let fill: Vec<Planned> = (0..self.rng.between(1, 3))
            .map(|_| Planned::plain(dml::insert(&mut self.rng, &table, self.style)))
            .collect();
        let mut plan = vec![Planned { sql: table.create(), effect: Some(Effect::Set(table)) }];
        plan.extend(fill);
        plan
    }

    pub fn apply(&mut self, effect: Effect) {
        match effect {
            Effect::Set(table) => match self.tables.iter_mut().find(|t| t.name == table.name) {
                Some(old) => *old = table,
                None => self.tables.push(table),
            },
            Effect::Replace(old, table) => {
                self.tables.retain(|t| t.name != old);
                self.tables.push(table);
            }
            Effect::Drop(name) => self.tables.retain(|t| t.name != name),
        }
    }

    /// The next statements of a single session.
    pub fn next(&mut self) -> Vec<Planned> {
        if self.tables.is_empty() {
            return self.create();
        }
        let fresh = self.fresh();
        let rng = &mut self.rng;
        let tables = &self.tables;
        match rng.weighted(&[42, 34, 7, 6, 4, 3, 2]) {
            0 => vec![Planned::plain(dml::statement(rng, tables, self.style))],
            1 => vec![Planned::plain(queries::statement(rng, tables))],
            2 => match rng.pick(tables).cloned() {
                Some(table) => ddl::statement(rng, &table, &fresh),
                None => Vec::new(),
            },
            3 => settings::transaction(rng, &fresh),
            4 => programs::statement(&mut self.programs, rng, tables, &fresh, self.style),
            5 => settings::session(rng),
            _ => self.room(),
        }
    }

    /// A new table, or one less when there are many.
    fn room(&mut self) -> Vec<Planned> {
        if self.tables.len() < TABLES_MAX {
            return self.create();
        }
        let Some(table) = self.rng.pick(&self.tables) else { return Vec::new() };
        let sql = format!("DROP TABLE {}", table.name);
        vec![Planned { sql, effect: Some(Effect::Drop(table.name.clone())) }]
    }
}
