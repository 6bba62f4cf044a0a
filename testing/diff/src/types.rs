//! Types of columns, and literals for them. Literals are of the column's own type, with its scale
//! and its fraction: comparisons with others depend on the plan, in any engine.

use crate::chance::Chance;
use sluice_rig::rng::Rng;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class {
    Int,
    Decimal,
    Float,
    Date,
    DateTime,
    Timestamp,
    Time,
    Year,
    Bit,
    Enum,
    Set,
    Text,
    Binary,
    Json,
    Uuid,
    Inet6,
    Inet4,
}

#[derive(Clone, PartialEq, Debug)]
pub struct Type {
    pub class: Class,
    pub sql: String,
    /// Bytes of an integer, characters, digits or bits.
    pub width: u32,
    /// Digits after the point, of numbers and of seconds.
    pub scale: u32,
    pub unsigned: bool,
    pub collation: &'static str,
    /// BLOB, TEXT and JSON: keys need a prefix.
    pub blob: bool,
    /// CHAR and BINARY.
    pub fixed: bool,
}

pub const COLLATIONS: [&str; 15] = [
    "latin1_swedish_ci",
    "latin1_swedish_nopad_ci",
    "latin1_bin",
    "latin2_czech_cs",
    "ascii_general_ci",
    "utf8mb3_general_ci",
    "utf8mb4_general_ci",
    "utf8mb4_general_nopad_ci",
    "utf8mb4_bin",
    "utf8mb4_nopad_bin",
    "utf8mb4_unicode_520_ci",
    "utf8mb4_uca1400_ai_ci",
    "utf8mb4_uca1400_nopad_as_cs",
    "ucs2_general_ci",
    "utf16_unicode_nopad_ci",
];

const INT_SQL: [(&str, u32); 5] =
    [("TINYINT", 1), ("SMALLINT", 2), ("MEDIUMINT", 3), ("INT", 4), ("BIGINT", 8)];

fn plain(class: Class, sql: impl Into<String>, width: u32, scale: u32) -> Type {
    Type {
        class,
        sql: sql.into(),
        width,
        scale,
        unsigned: false,
        collation: "",
        blob: false,
        fixed: false,
    }
}

pub fn int() -> Type {
    plain(Class::Int, "INT", 4, 0)
}

impl Type {
    pub fn random(rng: &mut Rng) -> Type {
        match rng.weighted(&[30, 6, 4, 4, 5, 3, 4, 1, 3, 4, 2, 24, 8, 2, 2, 2, 1]) {
            0 => Type::integer(rng),
            1 => Type::decimal(rng),
            2 => plain(Class::Float, rng.one(&["FLOAT", "DOUBLE"]), 0, 0),
            3 => plain(Class::Date, "DATE", 0, 0),
            4 => Type::with_fraction(rng, Class::DateTime, "DATETIME"),
            5 => Type::with_fraction(rng, Class::Timestamp, "TIMESTAMP"),
            6 => Type::with_fraction(rng, Class::Time, "TIME"),
            7 => plain(Class::Year, "YEAR", 0, 0),
            8 => {
                let width = [1, 7, 8, 13, 33, 64][rng.below(6)];
                plain(Class::Bit, format!("BIT({width})"), width, 0)
            }
            9 => plain(Class::Enum, "ENUM('b','a','','ccc')", 4, 0),
            10 => plain(Class::Set, "SET('x','y','z')", 3, 0),
            11 => Type::text(rng),
            12 => Type::binary(rng),
            13 => Type { blob: true, ..plain(Class::Json, "JSON", 200, 0) },
            14 => plain(Class::Uuid, "UUID", 0, 0),
            15 => plain(Class::Inet6, "INET6", 0, 0),
            _ => plain(Class::Inet4, "INET4", 0, 0),
        }
    }

    pub fn integer(rng: &mut Rng) -> Type {
        let (name, width) = INT_SQL[rng.weighted(&[1, 2, 1, 6, 3])];
        let unsigned = rng.percent(25);
        let sql = format!("{name}{}", if unsigned { " UNSIGNED" } else { "" });
        Type { unsigned, ..plain(Class::Int, sql, width, 0) }
    }

    fn decimal(rng: &mut Rng) -> Type {
        let (width, scale) = [(5, 2), (10, 0), (18, 9), (30, 10), (65, 30)][rng.below(5)];
        let unsigned = rng.percent(15);
        let sql = format!("DECIMAL({width},{scale}){}", if unsigned { " UNSIGNED" } else { "" });
        Type { unsigned, ..plain(Class::Decimal, sql, width, scale) }
    }

    fn with_fraction(rng: &mut Rng, class: Class, name: &str) -> Type {
        let scale = [0, 0, 2, 6][rng.below(4)];
        let sql = if scale > 0 { format!("{name}({scale})") } else { name.to_owned() };
        plain(class, sql, 0, scale)
    }

    pub fn text(rng: &mut Rng) -> Type {
        let collation = COLLATIONS[rng.below(COLLATIONS.len())];
        let charset = collation.split('_').next().unwrap_or("utf8mb4");
        let (name, width, blob, fixed) = match rng.weighted(&[4, 6, 2, 1, 2, 1]) {
            0 => ("VARCHAR(5)", 5, false, false),
            1 => ("VARCHAR(40)", 40, false, false),
            2 => ("CHAR(6)", 6, false, true),
            3 => ("VARCHAR(300)", 300, false, false),
            4 => ("TEXT", 400, true, false),
            _ => ("TINYTEXT", 40, true, false),
        };
        let sql = format!("{name} CHARACTER SET {charset} COLLATE {collation}");
        Type { collation, blob, fixed, ..plain(Class::Text, sql, width, 0) }
    }

    fn binary(rng: &mut Rng) -> Type {
        let (name, width, blob, fixed) = match rng.below(4) {
            0 => ("VARBINARY(6)", 6, false, false),
            1 => ("VARBINARY(60)", 60, false, false),
            2 => ("BINARY(4)", 4, false, true),
            _ => ("BLOB", 300, true, false),
        };
        Type { blob, fixed, ..plain(Class::Binary, name, width, 0) }
    }

    /// Equal values look the same, so DISTINCT and GROUP BY have one result.
    pub fn is_exact(&self) -> bool {
        match self.class {
            Class::Float | Class::Json => false,
            Class::Text => self.collation.ends_with("nopad_bin"),
            _ => true,
        }
    }

    /// Whether `<`, BETWEEN and ranges mean the same by an index and by a scan in the server.
    pub fn has_ranges(&self) -> bool {
        match self.class {
            Class::Enum | Class::Set | Class::Json => false,
            Class::Binary => !self.fixed,
            Class::Text => !(self.fixed && self.collation.contains("nopad")),
            _ => true,
        }
    }

    pub fn is_string(&self) -> bool {
        matches!(self.class, Class::Text | Class::Binary)
    }

    /// Columns that can be joined without a conversion.
    pub fn joins(&self, other: &Type) -> bool {
        self.class == other.class
            && self.collation == other.collation
            && self.unsigned == other.unsigned
            && self.scale == other.scale
            && !matches!(self.class, Class::Float | Class::Json | Class::Enum | Class::Set)
            && (self.class != Class::Binary || (!self.fixed && !other.fixed))
            // By an index over the narrower one the server cuts the bits off, in any engine.
            && (self.class != Class::Bit || self.width == other.width)
    }

    /// A literal, never NULL. `nasty`: it may be at the limits or beyond.
    pub fn literal(&self, rng: &mut Rng, nasty: bool) -> String {
        match self.class {
            Class::Int => self.int_literal(rng, nasty),
            Class::Decimal => self.decimal_literal(rng, nasty),
            Class::Float => float_literal(rng, nasty),
            Class::Date => format!("'{}'", date(rng, nasty)),
            Class::DateTime => format!("'{} {}'", date(rng, nasty), self.clock(rng)),
            Class::Timestamp => self.timestamp(rng, nasty),
            Class::Time => self.time(rng, nasty),
            Class::Year => rng.one(&["1901", "2000", "2023", "2024", "2155"]).to_owned(),
            Class::Bit => self.bit_literal(rng),
            Class::Enum => rng.one(&["'a'", "'b'", "'ccc'", "''"]).to_owned(),
            Class::Set => rng.one(&["'x'", "'y'", "'x,z'", "''", "'x,y,z'"]).to_owned(),
            Class::Text => self.text_literal(rng, nasty),
            Class::Binary => self.binary_literal(rng, nasty),
            Class::Json => rng.one(&["'{}'", "'[1, 2]'", "'{\"a\": 1}'", "'\"x\"'", "'1'"]).into(),
            Class::Uuid => uuid(rng),
            Class::Inet6 => rng.one(&["'::'", "'::1'", "'ffff::'", "'2001:db8::7'"]).to_owned(),
            Class::Inet4 => rng.one(&["'0.0.0.0'", "'10.0.0.1'", "'255.255.255.255'"]).to_owned(),
        }
    }

    fn int_literal(&self, rng: &mut Rng, nasty: bool) -> String {
        if !nasty || rng.percent(80) {
            let low = if self.unsigned { 0 } else { -3 };
            return rng.between(low, 20).to_string();
        }
        let bits = self.width * 8;
        let (min, max) = match self.unsigned {
            true => (0, (1i128 << bits) - 1),
            false => (-(1i128 << (bits - 1)), (1i128 << (bits - 1)) - 1),
        };
        match rng.below(10) {
            0..=3 => max.to_string(),
            4..=7 => min.to_string(),
            8 => (max - 1).to_string(),
            _ => (max + 1).to_string(),
        }
    }

    fn decimal_literal(&self, rng: &mut Rng, nasty: bool) -> String {
        let digits = (self.width - self.scale) as usize;
        let fraction = |digit: &str| match self.scale as usize {
            0 => String::new(),
            scale => format!(".{}", digit.repeat(scale)),
        };
        let sign = if self.unsigned || rng.percent(60) { "" } else { "-" };
        if nasty && rng.percent(15) {
            return format!("{sign}{}{}", "9".repeat(digits), fraction("9"));
        }
        let mut tail = fraction("0");
        if self.scale > 0 && rng.percent(50) {
            tail.pop();
            tail.push_str(rng.one(&["1", "5", "9"]));
        }
        format!("{sign}{}{tail}", rng.between(0, 12))
    }

    fn clock(&self, rng: &mut Rng) -> String {
        let time = rng.one(&["00:00:00", "12:30:15", "23:59:59", "12:30:16"]);
        format!("{time}{}", self.fraction(rng))
    }

    fn fraction(&self, rng: &mut Rng) -> String {
        match self.scale {
            0 => String::new(),
            2 => rng.one(&[".00", ".50", ".99"]).to_owned(),
            _ => rng.one(&[".000000", ".500000", ".999999", ".000001"]).to_owned(),
        }
    }

    fn timestamp(&self, rng: &mut Rng, nasty: bool) -> String {
        if nasty && rng.percent(15) {
            return rng.one(&["'1970-01-01 00:00:01'", "'2038-01-19 03:14:07'"]).to_owned();
        }
        let day = rng.between(1, 4);
        format!("'2023-03-{day:02} {}'", self.clock(rng))
    }

    fn time(&self, rng: &mut Rng, nasty: bool) -> String {
        let clock = match nasty && rng.percent(30) {
            true => rng.one(&["-838:59:59", "838:59:59", "-00:00:01"]).to_owned(),
            false => format!("{:02}:00:{:02}", rng.between(0, 2), rng.between(0, 2)),
        };
        // The limits take no fraction.
        let fraction = if clock.contains("838") { String::new() } else { self.fraction(rng) };
        format!("'{clock}{fraction}'")
    }

    fn bit_literal(&self, rng: &mut Rng) -> String {
        let max = (1u128 << self.width) - 1;
        match rng.below(5) {
            0 => max.to_string(),
            1 => "0".to_owned(),
            _ => (rng.between(0, 9) as u128).min(max).to_string(),
        }
    }

    fn text_literal(&self, rng: &mut Rng, nasty: bool) -> String {
        const PLAIN: [&str; 15] =
            ["a", "A", "b", "B", "c", "ab", "aB", "zz", "z", "abcde", "abcdz", "", "a ", "m", "x1"];
        const LONG: [&str; 4] = ["abcdefgh", "ABCDEFGHI", "abcdefgh  ", "zzzzzzzzzz"];
        const ACCENTS: [&str; 8] = ["á", "Á", "ä", "é", "ö", "Öz", "č", "日本"];
        let value = match rng.weighted(&[70, 8, 12, if nasty { 5 } else { 0 }]) {
            1 if self.width > 9 || nasty => rng.one(&LONG).to_owned(),
            2 if nasty || self.collation.starts_with("utf") => rng.one(&ACCENTS).to_owned(),
            3 => format!("{}{}", "x".repeat(self.width as usize - 1), rng.one(&["", "y", "yz"])),
            _ => rng.one(&PLAIN).to_owned(),
        };
        format!("'{value}'")
    }

    fn binary_literal(&self, rng: &mut Rng, nasty: bool) -> String {
        if self.fixed {
            let last = rng.between(0, 9);
            return format!("x'{}{last:02x}'", rng.one(&["000000", "610000", "ffffff"]));
        }
        let text = match rng.below(8) {
            0 => String::new(),
            1 => "00".to_owned(),
            2 => "ff".to_owned(),
            3 => "6100".to_owned(),
            4 if nasty => "ab".repeat(self.width as usize),
            _ => format!("61{:02x}", rng.between(0x61, 0x66)),
        };
        format!("x'{text}'")
    }
}

fn float_literal(rng: &mut Rng, nasty: bool) -> String {
    // Exact in FLOAT and DOUBLE, so that an index finds what a scan finds.
    let plain = ["0", "0.5", "-0.5", "1.25", "-2.75", "3", "1024", "7"];
    match nasty && rng.percent(15) {
        true => rng.one(&["1e30", "-1e30", "-0.0"]).to_owned(),
        false => rng.one(&plain).to_owned(),
    }
}

fn date(rng: &mut Rng, nasty: bool) -> String {
    if nasty && rng.percent(15) {
        return rng.one(&["1000-01-01", "9999-12-31", "0001-01-01", "2024-02-29"]).to_owned();
    }
    format!("2023-0{}-0{}", rng.between(1, 3), rng.between(1, 4))
}

fn uuid(rng: &mut Rng) -> String {
    let first = rng.one(&["00000000", "123e4567", "ffffffff"]);
    format!("'{first}-e89b-12d3-a456-42665544000{}'", rng.between(0, 9))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_joined_with_as_many() {
        let bit = |width| plain(Class::Bit, format!("BIT({width})"), width, 0);
        assert!(bit(8).joins(&bit(8)));
        assert!(!bit(1).joins(&bit(8)));
        assert!(!bit(8).joins(&bit(1)));
        let small = plain(Class::Int, "SMALLINT", 2, 0);
        assert!(small.joins(&int()));
    }
}
