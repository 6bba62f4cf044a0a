//! LOAD DATA. The statement carries its file in a comment at its end, so that a script is whole: both
//! sides read the same bytes, and a script is made smaller as lists of an INSERT are.
//!
//! `/*file SEPARATOR END (FIELD,FIELD),(FIELD)*/`: every byte that is no letter and no digit is `%xx`.

use crate::chance::Chance;
use crate::schema::{Column, Style, Table};
use crate::types::Class;
use sluice_rig::rng::Rng;
use std::fmt::Write as _;

/// Stands for the path of the file.
pub const FILE_MARK: &str = "@file@";
const HEAD: &str = "/*file ";

/// How the file is written and read.
struct Format {
    separator: &'static str,
    enclosed: bool,
    starting: &'static str,
    charset: &'static str,
}

/// Some columns of the file come through a variable, some of the table from SET alone.
pub fn statement(rng: &mut Rng, table: &Table, style: Style) -> String {
    let columns = &columns(rng, table);
    let format = Format::random(rng);
    let most = if style.small { 3 } else { 12 };
    let mut rows: Vec<String> =
        (0..rng.between(1, most)).map(|_| format.row(rng, columns)).collect();
    let skipped = rng.percent(10);
    if skipped {
        rows.insert(0, "(head)".into());
    }
    let (list, mut sets) = targets(rng, columns);
    if rng.percent(15) {
        sets.extend(set(rng, table, columns));
    }
    let sets = if sets.is_empty() { String::new() } else { format!(" SET {}", sets.join(", ")) };
    let local = if rng.percent(40) { "LOCAL " } else { "" };
    let how = rng.one(&["", "", " IGNORE", " REPLACE", " REPLACE"]);
    let ignored = if skipped { " IGNORE 1 LINES" } else { "" };
    let (clauses, name) = (format.clauses(), &table.name);
    format!(
        "LOAD DATA {local}INFILE '{FILE_MARK}'{how} INTO TABLE {name} {clauses}{ignored} {list}{sets} \
         {HEAD}{} {} {}*/",
        encoded(format.separator.as_bytes()),
        encoded(b"\n"),
        rows.join(",")
    )
}

/// The columns of the file, and what SET does with its variables.
fn targets(rng: &mut Rng, columns: &[Column]) -> (String, Vec<String>) {
    let mut sets = Vec::new();
    let mut target = |column: &Column| {
        let name = &column.name;
        if !rng.percent(8) {
            return name.clone();
        }
        let value = match column.kind.class {
            Class::Int => rng.one(&["@v#", "@v# + 1", "NULLIF(@v#, '')"]),
            Class::Text => rng.one(&["@v#", "UPPER(@v#)", "IFNULL(@v#, '')"]),
            _ => "@v#",
        };
        sets.push(format!("{name} = {}", value.replace('#', name)));
        format!("@v{name}")
    };
    let list: Vec<String> = columns.iter().map(&mut target).collect();
    (format!("({})", list.join(",")), sets)
}

/// A value for a column that the file does not have.
fn set(rng: &mut Rng, table: &Table, columns: &[Column]) -> Option<String> {
    let mut others = table.written();
    others.retain(|c| !columns.iter().any(|have| have.name == c.name));
    let column = rng.pick(&others)?.clone();
    Some(format!("{} = {}", column.name, column.value(rng)))
}

impl Format {
    fn random(rng: &mut Rng) -> Format {
        Format {
            separator: [",", "\t", ";", "||"][rng.below(4)],
            enclosed: rng.percent(40),
            starting: ["", "", "", ">> "][rng.below(4)],
            charset: ["utf8mb4", "utf8mb4", "binary", "latin1"][rng.below(4)],
        }
    }

    /// No text with a backslash: sql_mode may say that it is none.
    fn clauses(&self) -> String {
        let mut out = format!("CHARACTER SET {}", self.charset);
        if self.separator != "\t" || self.enclosed {
            out.push_str(" FIELDS");
        }
        if self.separator != "\t" {
            let _ = write!(out, " TERMINATED BY '{}'", self.separator);
        }
        if self.enclosed {
            out.push_str(" OPTIONALLY ENCLOSED BY '\"'");
        }
        if !self.starting.is_empty() {
            let _ = write!(out, " LINES STARTING BY '{}'", self.starting);
        }
        out
    }

    fn row(&self, rng: &mut Rng, columns: &[Column]) -> String {
        let mut fields: Vec<Vec<u8>> = columns.iter().map(|c| self.field(rng, c)).collect();
        match rng.below(120) {
            0 => drop(fields.pop()),
            1 => fields.push(b"more".to_vec()),
            _ => {}
        }
        let mut fields: Vec<String> = fields.iter().map(|f| encoded(f)).collect();
        match fields.first_mut() {
            Some(first) => first.insert_str(0, &encoded(self.starting.as_bytes())),
            None => fields.push(encoded(self.starting.as_bytes())),
        }
        format!("({})", fields.join(","))
    }

    fn field(&self, rng: &mut Rng, column: &Column) -> Vec<u8> {
        let Some(bytes) = value(&column.value(rng)) else { return b"\\N".to_vec() };
        let enclosed = self.enclosed && rng.percent(60);
        let mut out = Vec::new();
        for byte in bytes {
            let special = self.separator.as_bytes().contains(&byte)
                || matches!(byte, b'\\' | b'\n' | b'"' | b'>');
            match byte {
                0 => out.extend(b"\\0"),
                _ if special => out.extend([b'\\', byte]),
                _ => out.push(byte),
            }
        }
        match enclosed {
            true => [b"\"".as_slice(), out.as_slice(), b"\""].concat(),
            false => out,
        }
    }
}

/// What a literal of SQL stands for; `None`: NULL.
fn value(literal: &str) -> Option<Vec<u8>> {
    if literal == "NULL" {
        return None;
    }
    if literal == "DEFAULT" {
        return Some(Vec::new());
    }
    if let Some(hex) = literal.strip_prefix("x'").and_then(|rest| rest.strip_suffix('\'')) {
        return Some(from_hex(hex));
    }
    let text = literal.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\''));
    Some(text.unwrap_or(literal).replace("''", "'").into_bytes())
}

fn from_hex(hex: &str) -> Vec<u8> {
    let pair = |at: usize| hex.get(at..at + 2).and_then(|two| u8::from_str_radix(two, 16).ok());
    (0..hex.len()).step_by(2).filter_map(pair).collect()
}

fn encoded(bytes: &[u8]) -> String {
    let mut out = String::new();
    for byte in bytes {
        match byte.is_ascii_alphanumeric() {
            true => out.push(char::from(*byte)),
            false => {
                let _ = write!(out, "%{byte:02x}");
            }
        }
    }
    out
}

fn decoded(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let mut pieces = text.split('%');
    out.extend(pieces.next().unwrap_or("").bytes());
    for piece in pieces {
        let (hex, rest) = piece.split_at_checked(2).unwrap_or((piece, ""));
        out.extend(from_hex(hex));
        out.extend(rest.bytes());
    }
    out
}

/// The bytes of the file that the statement reads, if it reads one.
pub fn file(sql: &str) -> Option<Vec<u8>> {
    // PREPARE has it within quotes.
    let text = sql.split_once(HEAD)?.1.split_once("*/")?.0;
    let mut words = text.splitn(3, ' ');
    let (separator, end) = (decoded(words.next()?), decoded(words.next()?));
    let rows = words.next().unwrap_or("");
    let mut out = Vec::new();
    for row in rows.split("),(").filter(|row| !row.is_empty()) {
        let fields: Vec<Vec<u8>> = row.trim_matches(['(', ')']).split(',').map(decoded).collect();
        out.extend(fields.join(separator.as_slice()));
        out.extend(&end);
    }
    Some(out)
}

/// The columns that the file has.
fn columns(rng: &mut Rng, table: &Table) -> Vec<Column> {
    let mut columns = table.written();
    columns.retain(|c| {
        let optional = c.nullable || c.default.is_some() || c.auto_increment;
        !rng.percent(if optional { 15 } else { 3 })
    });
    if rng.percent(20) {
        rng.shuffle(&mut columns);
    }
    columns
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_in_the_statement() {
        let sql = "LOAD DATA INFILE '@file@' INTO TABLE t (a,b) /*file %2c %0a (1,%5cN),(%22x%2cy%22,2)*/";
        assert_eq!(file(sql), Some(b"1,\\N\n\"x,y\",2\n".to_vec()));
        assert_eq!(
            file("LOAD DATA INFILE '@file@' INTO TABLE t (a) /*file %09 %0a */"),
            Some(Vec::new())
        );
        assert_eq!(file("SELECT 1"), None);
    }

    #[test]
    fn bytes_come_back() {
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(decoded(&encoded(&all)), all);
        assert_eq!(value("x'00ff'"), Some(vec![0, 255]));
        assert_eq!(value("'it''s'"), Some(b"it's".to_vec()));
        assert_eq!(value("NULL"), None);
    }
}
