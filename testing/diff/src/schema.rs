//! Tables as the generator knows them, random ones, and their text.

use crate::chance::Chance;
use crate::types::{int, Class, Type};
use sluice_rig::rng::Rng;

#[derive(Clone, Debug, PartialEq)]
pub struct Column {
    pub name: String,
    pub kind: Type,
    pub nullable: bool,
    pub default: Option<String>,
    /// Expression, and whether it is stored.
    pub generated: Option<(String, bool)>,
    pub auto_increment: bool,
    pub invisible: bool,
    pub on_update: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    pub column: String,
    pub prefix: Option<u32>,
    pub descending: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Key {
    pub name: String,
    pub unique: bool,
    pub parts: Vec<Part>,
}

pub const PRIMARY: &str = "PRIMARY";
/// A column that no key has.
pub const SPARE: &str = "z";

#[derive(Clone, Debug, PartialEq)]
pub struct Partitions {
    pub column: String,
    pub clause: String,
    pub names: Vec<String>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    pub name: String,
    pub temporary: bool,
    pub columns: Vec<Column>,
    pub keys: Vec<Key>,
    pub checks: Vec<String>,
    pub partitions: Option<Partitions>,
    /// For new names.
    pub next: usize,
}

impl Column {
    pub fn new(name: impl Into<String>, kind: Type) -> Column {
        Column {
            name: name.into(),
            kind,
            nullable: true,
            default: None,
            generated: None,
            auto_increment: false,
            invisible: false,
            on_update: false,
        }
    }

    pub fn definition(&self) -> String {
        let mut out = format!("{} {}", self.name, self.kind.sql);
        if let Some((expression, stored)) = &self.generated {
            let how = if *stored { "STORED" } else { "VIRTUAL" };
            out.push_str(&format!(" AS ({expression}) {how}"));
        } else {
            out.push_str(if self.nullable { " NULL" } else { " NOT NULL" });
            if let Some(default) = &self.default {
                out.push_str(&format!(" DEFAULT {default}"));
            }
            if self.on_update {
                out.push_str(&format!(" ON UPDATE CURRENT_TIMESTAMP({})", self.kind.scale));
            }
        }
        if self.auto_increment {
            out.push_str(" AUTO_INCREMENT");
        }
        if self.invisible {
            out.push_str(" INVISIBLE");
        }
        out
    }

    pub fn is_written(&self) -> bool {
        self.generated.is_none()
    }

    /// A value for INSERT or SET.
    pub fn value(&self, rng: &mut Rng) -> String {
        let null = if self.nullable { 12 } else { 1 };
        if self.auto_increment && rng.percent(50) {
            return rng.one(&["NULL", "0", "DEFAULT"]).to_owned();
        }
        if rng.percent(null) {
            return "NULL".to_owned();
        }
        if rng.percent(2) {
            return "DEFAULT".to_owned();
        }
        let nasty = rng.percent(15);
        self.kind.literal(rng, nasty)
    }
}

impl Key {
    pub fn definition(&self) -> String {
        let parts: Vec<String> = self.parts.iter().map(Part::text).collect();
        let parts = parts.join(",");
        match (self.name == PRIMARY, self.unique) {
            (true, _) => format!("PRIMARY KEY ({parts})"),
            (false, true) => format!("UNIQUE KEY {} ({parts})", self.name),
            (false, false) => format!("KEY {} ({parts})", self.name),
        }
    }

    pub fn has(&self, column: &str) -> bool {
        self.parts.iter().any(|p| p.column == column)
    }
}

impl Part {
    fn text(&self) -> String {
        let prefix = self.prefix.map(|n| format!("({n})")).unwrap_or_default();
        format!("{}{prefix}{}", self.column, if self.descending { " DESC" } else { "" })
    }
}

impl Table {
    pub fn column(&self, name: &str) -> Option<&Column> {
        self.columns.iter().find(|c| c.name == name)
    }

    pub fn create(&self) -> String {
        let mut items: Vec<String> = self.columns.iter().map(Column::definition).collect();
        items.extend(self.keys.iter().map(Key::definition));
        items.extend(self.checks.iter().cloned());
        let partitions = self.partitions.as_ref().map_or("", |p| &p.clause);
        let temporary = if self.temporary { "TEMPORARY " } else { "" };
        format!("CREATE {temporary}TABLE {} ({}){partitions}", self.name, items.join(", "))
    }

    pub fn written(&self) -> Vec<Column> {
        self.columns.iter().filter(|c| c.is_written()).cloned().collect()
    }

    pub fn in_unique(&self, column: &str) -> bool {
        let reads = |c: &Column| match &c.generated {
            Some((expression, _)) => expression.contains(column),
            None => false,
        };
        let touched: Vec<&str> = self
            .columns
            .iter()
            .filter(|c| c.name == column || reads(c))
            .map(|c| c.name.as_str())
            .collect();
        self.keys.iter().any(|k| k.unique && touched.iter().any(|c| k.has(c)))
    }

    /// Columns that put all rows into one order: those of a unique key without NULL.
    pub fn total_order(&self) -> Option<Vec<String>> {
        let total = |key: &&Key| {
            let whole = |p: &Part| self.column(&p.column).is_some_and(|c| !c.nullable);
            key.unique && key.parts.iter().all(whole)
        };
        let key = self.keys.iter().find(total)?;
        Some(key.parts.iter().map(|p| p.column.clone()).collect())
    }

    /// Removes a column with everything that needs it.
    pub fn without(&self, column: &str) -> Table {
        let mut table = self.clone();
        table.columns.retain(|c| c.name != column);
        for key in &mut table.keys {
            key.parts.retain(|p| p.column != column);
        }
        table.keys.retain(|k| !k.parts.is_empty());
        table
    }
}

/// What the schemas of one case are like.
#[derive(Clone, Copy, Debug)]
pub struct Style {
    /// Only integer and short string columns, few values: for sessions that meet.
    pub small: bool,
    pub auto_increment: bool,
    pub on_duplicate: bool,
}

pub fn random_table(rng: &mut Rng, name: &str, style: Style) -> Table {
    let mut table = Table {
        name: name.to_owned(),
        temporary: !style.small && rng.percent(6),
        columns: Vec::new(),
        keys: Vec::new(),
        checks: Vec::new(),
        partitions: None,
        next: 0,
    };
    let count = rng.between(2, if style.small { 4 } else { 8 });
    for _ in 0..count {
        let kind = if style.small || rng.percent(20) { int() } else { Type::random(rng) };
        let column = random_column(rng, &mut table, kind);
        table.columns.push(column);
    }
    add_generated(rng, &mut table);
    if style.small {
        // In no key, so that no index alone answers a read: Sluice locks the row then, InnoDB does not.
        table.columns.push(Column::new(SPARE, int()));
    }
    add_primary(rng, &mut table, style.auto_increment);
    for _ in 0..rng.between(0, 4) {
        if let Some(key) = random_key(rng, &mut table) {
            table.keys.push(key);
        }
    }
    if rng.percent(15) {
        if let Some(c) = table.columns.iter().find(|c| c.kind.class == Class::Int) {
            table.checks.push(format!("CONSTRAINT k{name} CHECK ({} <> 13)", c.name));
        }
    }
    if !table.temporary && rng.percent(if style.small { 5 } else { 14 }) {
        add_partitions(rng, &mut table);
    }
    table
}

pub fn random_column(rng: &mut Rng, table: &mut Table, kind: Type) -> Column {
    table.next += 1;
    let mut column = Column::new(format!("c{}", table.next), kind);
    column.nullable = rng.percent(65);
    let class = column.kind.class;
    if matches!(class, Class::DateTime | Class::Timestamp) && rng.percent(25) {
        column.default = Some(format!("CURRENT_TIMESTAMP({})", column.kind.scale));
        column.on_update = rng.percent(60);
    } else if rng.percent(40) {
        column.default = Some(column.kind.literal(rng, false));
    } else if class == Class::Timestamp {
        // Without one, the first such column gets a default of its own.
        column.default =
            Some(if column.nullable { "NULL" } else { "'2023-03-01 00:00:00'" }.into());
    }
    column.invisible = column.default.is_some() && rng.percent(5);
    column
}

fn add_generated(rng: &mut Rng, table: &mut Table) {
    if !rng.percent(30) {
        return;
    }
    for _ in 0..rng.between(1, 2) {
        let bases: Vec<Column> =
            table.columns.iter().filter(|c| c.is_written() && !c.auto_increment).cloned().collect();
        let Some(base) = rng.pick(&bases) else { return };
        let c = &base.name;
        let (kind, expression) = match base.kind.class {
            Class::Int if base.kind.width < 8 => {
                (int(), rng.one(&["# % 7", "# DIV 3", "# IS NULL"]))
            }
            Class::Text if !base.kind.blob => {
                (base.kind.clone(), rng.one(&["LEFT(#, 2)", "REVERSE(#)", "UPPER(#)"]))
            }
            Class::Text | Class::Binary => (int(), "CHAR_LENGTH(#)"),
            Class::Date | Class::DateTime => (int(), rng.one(&["YEAR(#)", "MONTH(#) * 3"])),
            _ => (int(), "# IS NULL"),
        };
        let expression = expression.replace('#', c);
        table.next += 1;
        let mut column = Column::new(format!("g{}", table.next), kind);
        column.generated = Some((expression, rng.percent(40)));
        table.columns.push(column);
    }
}

fn add_primary(rng: &mut Rng, table: &mut Table, auto_increment: bool) {
    if rng.percent(12) || table.temporary {
        return;
    }
    if rng.percent(45) {
        let mut id = Column::new("id", int());
        id.kind = Type::integer(rng);
        id.nullable = false;
        id.auto_increment = rng.percent(65) && auto_increment;
        table.columns.insert(0, id);
        let descending = rng.percent(10);
        let part = Part { column: "id".into(), prefix: None, descending };
        table.keys.push(Key { name: PRIMARY.into(), unique: true, parts: vec![part] });
        return;
    }
    if let Some(mut key) = random_key(rng, table) {
        let virtuals = |p: &Part| {
            table.column(&p.column).is_none_or(|c| matches!(c.generated, Some((_, false))))
        };
        if key.parts.iter().any(virtuals) {
            return;
        }
        key.name = PRIMARY.into();
        key.unique = true;
        for part in &key.parts {
            let named = |c: &&mut Column| c.name == part.column && c.is_written();
            if let Some(column) = table.columns.iter_mut().find(named) {
                column.nullable = false;
                column.default = column.default.take().filter(|d| d != "NULL");
            }
        }
        table.keys.insert(0, key);
    }
}

pub fn random_key(rng: &mut Rng, table: &mut Table) -> Option<Key> {
    let most = [1, 2, 3][rng.below(3)];
    let keyed: Vec<Column> = table.columns.iter().filter(|c| c.name != SPARE).cloned().collect();
    let mut columns = rng.some(&keyed, 1, most);
    rng.shuffle(&mut columns);
    let parts: Vec<Part> = columns.iter().filter_map(|c| random_part(rng, c)).collect();
    if parts.is_empty() {
        return None;
    }
    table.next += 1;
    // A statement that fails in a temporary table of InnoDB with unique keys can lose rows.
    let unique = rng.percent(25) && !table.temporary;
    let mut key = Key { name: format!("k{}", table.next), unique, parts };
    if let Some(partitions) = table.partitions.as_ref().filter(|_| key.unique) {
        add_part(&mut key, &partitions.column);
    }
    Some(key)
}

fn random_part(rng: &mut Rng, column: &Column) -> Option<Part> {
    let kind = &column.kind;
    if kind.class == Class::Json {
        return None;
    }
    let longest = kind.width.min(60);
    let prefix = match kind.is_string() && !kind.fixed {
        true if kind.blob || kind.width > 100 || rng.percent(30) => {
            Some([1, 2, 3, 5, longest][rng.below(5)].min(longest))
        }
        _ => None,
    };
    let prefix = prefix.filter(|n| *n < kind.width);
    if kind.blob && prefix.is_none() {
        return None;
    }
    Some(Part { column: column.name.clone(), prefix, descending: rng.percent(15) })
}

fn add_part(key: &mut Key, column: &str) {
    if !key.has(column) {
        key.parts.push(Part { column: column.to_owned(), prefix: None, descending: false });
    }
}

fn add_partitions(rng: &mut Rng, table: &mut Table) {
    let fits = |c: &&Column| c.kind.class == Class::Int && c.is_written();
    let Some(column) = table.columns.iter().find(fits).map(|c| c.name.clone()) else { return };
    for key in table.keys.iter_mut().filter(|k| k.unique) {
        add_part(key, &column);
        let primary = key.name == PRIMARY;
        let named = |c: &&mut Column| c.name == column;
        if let Some(column) = table.columns.iter_mut().find(named).filter(|_| primary) {
            column.nullable = false;
            column.default = column.default.take().filter(|d| d != "NULL");
        }
    }
    let (clause, names): (String, &[&str]) = match rng.below(4) {
        0 => (
            format!(
                " PARTITION BY RANGE ({column}) (PARTITION p0 VALUES LESS THAN (3), PARTITION p1 \
                 VALUES LESS THAN (9), PARTITION p2 VALUES LESS THAN MAXVALUE)"
            ),
            &["p0", "p1", "p2"],
        ),
        1 => (
            format!(
                " PARTITION BY LIST ({column}) (PARTITION p0 VALUES IN (0,1,2,3,NULL), PARTITION \
                 p1 VALUES IN (4,5,6,7,8,9,10), PARTITION p2 VALUES IN (11,12,14,15))"
            ),
            &["p0", "p1", "p2"],
        ),
        2 => (format!(" PARTITION BY HASH ({column}) PARTITIONS 3"), &["p0", "p1", "p2"]),
        _ => (format!(" PARTITION BY KEY ({column}) PARTITIONS 2"), &["p0", "p1"]),
    };
    let names = names.iter().map(|n| (*n).to_owned()).collect();
    table.partitions = Some(Partitions { column, clause, names });
}
