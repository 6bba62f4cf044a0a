//! The statements of one table, which is `t`.

use super::keys::Key;
use crate::chance::Chance;
use sluice_rig::rng::Rng;

/// A column `v`: its definition, values for it as SQL, and the keys to try.
pub struct Column {
    pub definition: String,
    pub values: Vec<String>,
    pub keys: Vec<Key>,
}

/// Of so many values at most, so that a table takes seconds.
const SOME: usize = 24;

/// For generated columns, whose values are found and not written.
const FOUND: [&str; 6] = ["1", "3", "'v1'", "'v3'", "'bbbbbb'", "'2001-01-02'"];

impl Column {
    fn is_generated(&self) -> bool {
        self.definition.contains(" as (")
    }

    fn is_versioned(&self) -> bool {
        self.definition.contains("with system versioning")
    }

    /// The server compares CHAR without PAD SPACE with a constant without its trailing spaces, but a
    /// range of an index ends at the padded one. Where weights and characters differ in number
    /// (accents, expansions, control characters) the answer depends on the plan, with every engine.
    fn has_stable_ranges(&self) -> bool {
        !(self.definition.starts_with("char") && self.definition.contains("nopad"))
    }

    pub fn statements(&self, key: &Key, seed: u64) -> Vec<String> {
        let mut draw = Rng::new(seed).fork(hash(&format!("{} {}", self.definition, key.name)));
        let force = match key.name {
            "none" => "",
            name if name.starts_with("primary") => " FORCE INDEX (PRIMARY)",
            _ => " FORCE INDEX (k)",
        };
        let mut out = self.fill(key, &mut draw);
        in_order(key, force, &mut out);
        let found = FOUND.map(str::to_owned);
        let all = if self.is_generated() { &found[..] } else { &self.values };
        let some = if all.len() <= SOME { all.to_vec() } else { sample(all, &mut draw) };
        self.search(&some, force, &mut out);
        match self.is_generated() {
            true => out.extend(
                ["UPDATE t SET id = id + 100 WHERE id % 4 = 1", "UPDATE t SET w = w + 1"]
                    .map(str::to_owned),
            ),
            false => change(&some, &mut out),
        }
        for value in some.iter().skip(8).take(6) {
            out.push(format!("DELETE FROM t WHERE v = {value}"));
        }
        self.look_at_the_end(key, force, &mut out);
        out
    }

    /// The table and its rows, some of them duplicates.
    fn fill(&self, key: &Key, draw: &mut Rng) -> Vec<String> {
        let definition = self.definition.replace(" with system versioning", "");
        let null = if key.nullable || self.is_generated() { "" } else { " NOT NULL" };
        let suffix = if self.is_versioned() { " WITH SYSTEM VERSIONING" } else { "" };
        let clause = &key.clause;
        let mut out = vec![
            "DROP TABLE IF EXISTS t".to_owned(),
            format!(
                "CREATE TABLE t (id INT NOT NULL, w INT, v {definition}{null}, {clause}){suffix}"
            ),
        ];
        if self.is_generated() {
            let insert = |n| format!("INSERT IGNORE INTO t (id, w) VALUES ({n}, {})", n % 3);
            out.extend((1..30).map(insert));
        } else {
            for (n, value) in self.rows(key, draw).iter().enumerate() {
                let ignore = if n % 4 > 0 { " IGNORE" } else { "" };
                out.push(format!(
                    "INSERT{ignore} INTO t (id, w, v) VALUES ({n}, {}, {value})",
                    n % 3
                ));
            }
        }
        out.push("SELECT id, w, HEX(v) FROM t ORDER BY id".to_owned());
        out
    }

    fn rows(&self, key: &Key, draw: &mut Rng) -> Vec<String> {
        let mut rows = self.values.clone();
        for _ in 0..self.values.len() / 2 {
            rows.push(self.values[draw.below(self.values.len())].clone());
        }
        if key.nullable {
            rows.extend(["NULL".to_owned(), "NULL".to_owned()]);
        }
        draw.shuffle(&mut rows);
        rows
    }

    fn search(&self, some: &[String], force: &str, out: &mut Vec<String>) {
        for (n, value) in some.iter().enumerate() {
            let operators: &[&str] = match n {
                _ if !self.has_stable_ranges() => &["="],
                0..=5 => &["=", "<", ">=", ">"],
                _ => &["=", "<"],
            };
            for operator in operators {
                out.push(format!(
                    "SELECT GROUP_CONCAT(id ORDER BY id) FROM t{force} WHERE v {operator} {value}"
                ));
            }
        }
        for pair in some.chunks_exact(2).filter(|_| self.has_stable_ranges()) {
            out.push(format!(
                "SELECT COUNT(*), MIN(v) IS NULL, HEX(MAX(v)) FROM t{force} WHERE v BETWEEN {} AND {}",
                pair[0], pair[1]
            ));
        }
        out.push(format!("SELECT HEX(MIN(v)), HEX(MAX(v)), COUNT(DISTINCT v) FROM t{force}"));
        out.push(format!("SELECT COUNT(*) FROM t{force} WHERE v IS NULL"));
    }

    fn look_at_the_end(&self, key: &Key, force: &str, out: &mut Vec<String>) {
        out.push("SELECT id, w, HEX(v) FROM t ORDER BY id, w, HEX(v)".to_owned());
        out.push(format!("SELECT COUNT(*), COUNT(v) FROM t{force}"));
        if self.is_versioned() {
            out.push("SELECT COUNT(*) FROM t FOR SYSTEM_TIME ALL".to_owned());
        }
        if key.name != "none" {
            out.push("DELETE FROM t WHERE v IS NOT NULL".to_owned());
        }
        out.extend(
            ["SELECT COUNT(*) FROM t", "ALTER TABLE t FORCE", "CHECK TABLE t"].map(String::from),
        );
    }
}

fn in_order(key: &Key, force: &str, out: &mut Vec<String>) {
    for order in ["", " DESC"] {
        // In the order of the index, whose ties both engines resolve by the primary key.
        if !matches!(key.name, "none" | "hidden") && !key.clause.contains("v(") {
            out.push(format!("SELECT id, HEX(v) FROM t{force} ORDER BY v{order}, id{order}"));
            out.push(format!("SELECT HEX(v) FROM t{force} ORDER BY v{order}"));
        }
        out.push(format!(
            "SELECT v IS NULL, COUNT(*), MIN(id) FROM t{force} GROUP BY v ORDER BY 3{order}"
        ));
    }
}

fn change(some: &[String], out: &mut Vec<String>) {
    for (n, value) in some.iter().enumerate() {
        let other = &some[(n * 7 + 1) % some.len()];
        out.push(format!("UPDATE IGNORE t SET v = {value} WHERE v = {other}"));
        out.push(format!("UPDATE t SET v = {value}, w = w + 1 WHERE id = {}", n * 3));
    }
    // The same value in other words.
    out.push("UPDATE IGNORE t SET v = UPPER(v) WHERE id % 2".to_owned());
    out.push("UPDATE IGNORE t SET v = CONCAT(v, ' ') WHERE id % 3 = 1".to_owned());
    for (n, value) in some.iter().take(8).enumerate() {
        out.push(format!("REPLACE INTO t (id, w, v) VALUES ({}, 9, {value})", 1000 + n));
        out.push(format!(
            "INSERT INTO t (id, w, v) VALUES ({}, 8, {value}) ON DUPLICATE KEY UPDATE w = w + 100",
            2000 + n
        ));
    }
}

fn sample(values: &[String], draw: &mut Rng) -> Vec<String> {
    let mut some = values.to_vec();
    draw.shuffle(&mut some);
    some.truncate(SOME);
    some
}

/// FNV-1a: the same in every release of Rust, unlike the standard library's.
fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
