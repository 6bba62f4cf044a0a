//! Types, collations, and values for them as SQL, in an order of no meaning. NULL is added where the
//! column takes it.

use crate::chance::Chance;
use sluice_rig::rng::Rng;

pub struct Type {
    pub column: &'static str,
    pub values: &'static [&'static str],
    /// Such a column may have keys over a part of it.
    pub is_text: bool,
}

const fn of(column: &'static str, values: &'static [&'static str]) -> Type {
    Type { column, values, is_text: false }
}

const fn text(column: &'static str, values: &'static [&'static str]) -> Type {
    Type { column, values, is_text: true }
}

// With --quick: one of each way to make keys, and of each way in which a collation weighs.
const QUICK_TYPES: [&str; 14] = [
    "int",
    "bigint unsigned",
    "double",
    "decimal(10,2)",
    "bit(13)",
    "datetime(6)",
    "time(2)",
    "enum('b','a','c')",
    "uuid",
    "varchar(12)",
    "char(12)",
    "varbinary(12)",
    "text",
    "varchar(20) as (concat('v', id % 4)) virtual",
];
const QUICK_COLLATIONS: [&str; 17] = [
    "latin1_swedish_ci",
    "latin1_swedish_nopad_ci",
    "latin2_czech_cs",
    "cp1250_czech_cs",
    "big5_chinese_ci",
    "sjis_japanese_nopad_ci",
    "tis620_thai_ci",
    "tis620_thai_nopad_ci",
    "utf8mb4_bin",
    "utf8mb4_general_ci",
    "utf8mb4_unicode_520_nopad_ci",
    "utf8mb4_uca1400_as_cs",
    "utf8mb4_uca1400_nopad_ai_cs",
    "utf8mb4_uca1400_nopad_as_cs",
    "utf16_uca1400_nopad_as_ci",
    "ucs2_general_nopad_ci",
    "utf32_german2_ci",
];
pub const QUICK_KEYS: [&str; 3] = ["primary", "desc_unique", "prefix_unique"];
pub const COLLATION_KEYS: [&str; 6] =
    ["primary", "secondary", "unique", "desc", "prefix_unique", "hash"];

pub fn is_quick_type(column: &str) -> bool {
    QUICK_TYPES.contains(&column)
}

pub fn is_quick_collation(collation: &str) -> bool {
    QUICK_COLLATIONS.contains(&collation)
}

const INTEGERS: [&str; 16] = [
    "0",
    "1",
    "-1",
    "5",
    "-128",
    "127",
    "255",
    "-32768",
    "65535",
    "8388607",
    "2147483647",
    "-2147483648",
    "4294967295",
    "-9223372036854775808",
    "9223372036854775807",
    "18446744073709551615",
];
/// For BIT a comparison with a negative number, for TIME one with a finer fraction, depends on the
/// plan that the server happens to choose, in InnoDB too.
const NATURALS: [&str; 11] = [
    "0",
    "1",
    "5",
    "127",
    "255",
    "65535",
    "8388607",
    "2147483647",
    "4294967295",
    "9223372036854775807",
    "18446744073709551615",
];
const WHOLE_CLOCKS: [&str; 5] =
    ["'00:00:00'", "'-838:59:59'", "'838:59:59'", "'-12:34:56'", "'01:00:00'"];
const FRACTIONS: [&str; 12] = [
    "0",
    "-0.0",
    "1.5",
    "-1.5",
    "0.1",
    "-0.1",
    "99999.99",
    "-99999.99",
    "1e10",
    "-1e-10",
    "1.7976931348623157e308",
    "2.2250738585072014e-308",
];
const TIMES: [&str; 9] = [
    "'0000-00-00'",
    "'1000-01-01'",
    "'1970-01-01 00:00:01'",
    "'1999-12-31 23:59:59.999999'",
    "'2001-02-03 04:05:06'",
    "'2001-02-03 04:05:06.5'",
    "'2038-01-19 03:14:07'",
    "'9999-12-31 23:59:59'",
    "'2024-02-29'",
];
const CLOCKS: [&str; 8] = [
    "'00:00:00'",
    "'-838:59:59'",
    "'838:59:59'",
    "'-00:00:00.5'",
    "'00:00:00.5'",
    "'12:34:56.789012'",
    "'-12:34:56'",
    "'01:00:00'",
];
const BYTES: [&str; 18] = [
    "''",
    "'a'",
    "'A'",
    "'a '",
    "'a\\0'",
    "'a\\0\\0'",
    "x'00'",
    "x'0000'",
    "x'ff'",
    "x'ffff'",
    "x'7f80'",
    "'abc'",
    "'abd'",
    "'ab'",
    "'abcdefgh'",
    "'abcdefghi'",
    "x'00ff'",
    "' '",
];
const WORDS: [&str; 20] = [
    "''",
    "'a'",
    "'A'",
    "'a '",
    "'a  '",
    "'b'",
    "'ab'",
    "'aB'",
    "'abc'",
    "'abd'",
    "'a\\tb'",
    "'Z'",
    "'z'",
    "'0'",
    "'10'",
    "'9'",
    "' a'",
    "'_'",
    "'abcdefghijkl'",
    "'ABCDEFGHIJKLM'",
];
const POINTS: [&str; 3] =
    ["POINT(1,2)", "POINT(0,0)", "ST_GeomFromText('LINESTRING(0 0,1 1,2 2)')"];

pub const TYPES: [Type; 68] = [
    of("tinyint", &INTEGERS),
    of("tinyint unsigned", &INTEGERS),
    of("smallint", &INTEGERS),
    of("smallint unsigned", &INTEGERS),
    of("mediumint", &INTEGERS),
    of("mediumint unsigned", &INTEGERS),
    of("int", &INTEGERS),
    of("int unsigned", &INTEGERS),
    of("int(8) zerofill", &INTEGERS),
    of("bigint", &INTEGERS),
    of("bigint unsigned", &INTEGERS),
    of("boolean", &INTEGERS),
    of("float", &FRACTIONS),
    of("double", &FRACTIONS),
    of("float unsigned", &FRACTIONS),
    of("decimal(10,2)", &FRACTIONS),
    of("decimal(65,30)", &FRACTIONS),
    of("decimal(5,0) unsigned", &FRACTIONS),
    of("bit(1)", &NATURALS),
    of("bit(7)", &NATURALS),
    of("bit(13)", &NATURALS),
    of("bit(64)", &NATURALS),
    of("year", &["0", "1901", "2155", "2000", "70", "69"]),
    of("date", &TIMES),
    of("datetime", &TIMES),
    of("datetime(3)", &TIMES),
    of("datetime(6)", &TIMES),
    of("timestamp null", &TIMES),
    of("timestamp(6) null", &TIMES),
    of("time", &WHOLE_CLOCKS),
    of("time(2)", &CLOCKS),
    of("time(6)", &CLOCKS),
    of("enum('b','a','c')", &["'a'", "'b'", "'c'", "1", "3", "'x'"]),
    of("set('b','a','c','d','e','f','g','h','i')", &["'a'", "'a,b'", "''", "'i'", "'a,i'", "511"]),
    of("inet6", &["'::'", "'::1'", "'fe80::1'", "'1.2.3.4'", "'ffff:ffff::'"]),
    of("inet4", &["'0.0.0.0'", "'255.255.255.255'", "'10.0.0.1'", "'9.255.0.0'"]),
    of(
        "uuid",
        &[
            "'00000000-0000-0000-0000-000000000000'",
            "'ffffffff-ffff-ffff-ffff-ffffffffffff'",
            "'123e4567-e89b-12d3-a456-426655440000'",
            "'123e4567-e89b-42d3-a456-426655440000'",
            "'f23e4567-e89b-12d3-a456-426655440000'",
            "'123e4567-e89b-72d3-2456-426655440000'",
        ],
    ),
    of("json", &["'{}'", "'[1,2]'", "'{\"a\": 1}'", "'\"x\"'", "'not json'"]),
    text("char(12)", &WORDS),
    of("char(0)", &["''", "'a'"]),
    text("varchar(12)", &WORDS),
    text("varchar(300)", &WORDS),
    text("binary(8)", &BYTES),
    text("varbinary(12)", &BYTES),
    text("varbinary(300)", &BYTES),
    text("tinyblob", &BYTES),
    text("blob", &BYTES),
    text("mediumblob", &BYTES),
    text("longblob", &BYTES),
    text("tinytext", &WORDS),
    text("text", &WORDS),
    text("mediumtext", &WORDS),
    text("longtext", &WORDS),
    of("geometry", &POINTS),
    of("point", &["POINT(1,2)", "POINT(0,0)"]),
    text("varchar(40) compressed", &WORDS),
    text("text compressed", &WORDS),
    text("blob compressed", &BYTES),
    of("int as (id * 7 % 5) virtual", &[]),
    of("int as (id * 7 % 5) persistent", &[]),
    of("varchar(20) as (concat('v', id % 4)) virtual", &[]),
    of("text as (repeat(char(97 + id % 3), id * 3)) virtual", &[]),
    of("varchar(20) as (concat('v', id % 4)) persistent", &[]),
    of("datetime as ('2001-01-01' + interval id % 3 day) virtual", &[]),
    of("int invisible default 3", &INTEGERS),
    of("int check (v <> 5)", &INTEGERS),
    text("varchar(50) default (concat('x', uuid_short() * 0))", &WORDS),
    of("int with system versioning", &["0", "1", "-1", "5", "-128", "127"]),
];

/// Many scripts: case, accents, contractions, expansions, ignorable and combining characters, and
/// letters that only some character sets have.
const LETTERS: [&str; 56] = [
    "a",
    "A",
    "b",
    "z",
    "c",
    "ch",
    "h",
    "H",
    "d",
    "dz",
    "\u{e1}",
    "\u{e4}",
    "\u{c4}",
    "\u{df}",
    "ss",
    "ae",
    "\u{e6}",
    "\u{f8}",
    "\u{142}",
    "l",
    "ll",
    "n",
    "\u{f1}",
    "\u{131}",
    "I",
    "i",
    "\u{130}",
    "\u{17e}",
    "\u{10d}",
    "e\u{301}",
    "\u{301}",
    "\u{e01}",
    "\u{e40}\u{e01}",
    "\u{e01}\u{e48}",
    "\u{3042}",
    "\u{30a2}",
    "\u{3041}",
    "\u{6f22}",
    "\u{ac00}",
    "\u{5d0}",
    "\u{627}",
    "\u{3c3}",
    "\u{3c2}",
    "\u{416}",
    "\u{436}",
    "\u{1f600}",
    "0",
    "9",
    " ",
    "-",
    "_",
    "\t",
    "\u{1}",
    "\u{a0}",
    "\u{200b}",
    "\u{ad}",
];

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\\', "\\\\").replace('\'', "''"))
}

/// Words for columns of every collation.
pub fn words_of_many_scripts(draw: &mut Rng) -> Vec<String> {
    let mut words: Vec<String> = LETTERS.map(str::to_owned).into();
    let padded = LETTERS[..12].iter().chain(&LETTERS[31..34]);
    words.extend(padded.map(|letter| format!("{letter} ")));
    words.extend(LETTERS.iter().map(|letter| format!("a{letter}")));
    words.extend(["", " ", "  "].map(str::to_owned));
    for _ in 0..50 {
        let length = draw.between(2, 6);
        words.push((0..length).map(|_| draw.one(&LETTERS)).collect());
    }
    words.iter().map(|word| quoted(word)).collect()
}
