//! The tests that take part, and the two copies of a suite.
//!
//! A test takes part if a CREATE TABLE in it names no other engine, so that the default engine makes the
//! table. Left out are tests about another engine or about programs of the server (by the name), tests that
//! need a debug build or --big-test, tests with combinations, whose outputs would take one file, and those that
//! wait for ever after an error that they do not expect, with InnoDB, too.
//!
//! In the copy for Sluice, `ENGINE=InnoDB` and variables like `$engine_type= InnoDB` name Sluice.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

pub struct Engine {
    pub name: &'static str,
    suffix: &'static str,
}

pub const ENGINES: [&Engine; 2] =
    [&Engine { name: "InnoDB", suffix: "innodb" }, &Engine { name: "Sluice", suffix: "sluice" }];

pub struct Suite {
    pub name: &'static str,
    /// Below the directory mysql-test.
    dir: &'static str,
    /// Parts of names of tests that are not ours.
    left_out: &'static [&'static str],
    /// Engines for which each copy has its own.
    replaced: &'static [&'static str],
}

pub const SUITES: [Suite; 2] = [
    Suite {
        name: "main",
        dir: "main",
        left_out: &[
            "merge",
            "myisam",
            "aria",
            "maria",
            "archive",
            "csv",
            "federated",
            "blackhole",
            "heap",
            "debug",
            "mysqlbinlog",
            "mysqld-",
            "ssl",
            "upgrade",
            "install_db",
            "perror",
            "plugin",
        ],
        replaced: &["innodb"],
    },
    Suite {
        name: "handler",
        dir: "suite/handler",
        left_out: &["heap"],
        replaced: &["innodb", "myisam", "aria"],
    },
];

const LEFT_OUT_WITH: [&str; 9] = [
    "have_debug",
    "maybe_debug",
    "big_test",
    "log_bin.inc",
    "master-slave",
    "platform.inc",
    "lcase_names",
    "innodb_page_size",
    "partition_open",
];

const OTHER_ENGINES: [&str; 9] =
    ["myisam", "aria", "maria", "heap", "memory", "csv", "archive", "merge", "blackhole"];

const NEVER_END: [&str; 4] =
    ["lock_multi", "mdl", "partition_exchange", "partition_innodb_semi_consistent"];

impl Suite {
    pub fn copy_for(&self, engine: &Engine) -> String {
        format!("{}_{}", self.name, engine.suffix)
    }

    fn stock(&self, prefix: &Path) -> PathBuf {
        prefix.join("usr/share/mysql/mysql-test").join(self.dir)
    }
}

pub fn copy_dirs(copies: &Path, suite: &str) -> [PathBuf; 2] {
    ENGINES.map(|engine| copies.join(format!("{suite}_{}", engine.suffix)))
}

/// The suites that `names` name, whole or by `SUITE.TEST`, with the tests to run.
pub fn chosen(
    names: &[String],
    prefix: &Path,
) -> Result<Vec<(&'static Suite, Vec<String>)>, String> {
    let mut chosen = Vec::new();
    let mut left = names.to_vec();
    for suite in &SUITES {
        let mut tests = all(suite, prefix).map_err(|e| format!("suite {}: {e}", suite.name))?;
        let is_named = |name: &str| names.iter().any(|n| n == name);
        tests.retain(|test| is_named(suite.name) || is_named(&format!("{}.{test}", suite.name)));
        left.retain(|n| {
            n != suite.name && !tests.iter().any(|test| *n == format!("{}.{test}", suite.name))
        });
        if !tests.is_empty() {
            chosen.push((suite, tests));
        }
    }
    match left.first() {
        Some(name) => Err(format!("{name}: no such suite, or no test that takes part")),
        None => Ok(chosen),
    }
}

fn all(suite: &Suite, prefix: &Path) -> io::Result<Vec<String>> {
    let mut tests = Vec::new();
    for entry in fs::read_dir(suite.stock(prefix))? {
        let path = entry?.path();
        let Some(name) = path.file_name().and_then(|n| n.to_str()?.strip_suffix(".test")) else {
            continue;
        };
        let text = String::from_utf8_lossy(&fs::read(&path)?).to_lowercase();
        let has_combinations = path.with_extension("combinations").exists();
        if !has_combinations && !is_left_out(name, suite) && takes_part(&text) {
            tests.push(name.to_owned());
        }
    }
    tests.sort();
    Ok(tests)
}

fn is_left_out(name: &str, suite: &Suite) -> bool {
    let subject = name.replace("index_merge", "").replace("derived_merge", "");
    NEVER_END.contains(&name) || suite.left_out.iter().any(|part| subject.contains(part))
}

/// `text` is in lower case.
fn takes_part(text: &str) -> bool {
    !LEFT_OUT_WITH.iter().any(|include| text.contains(include))
        && text.lines().any(|line| makes_a_table(line) && !names_other_engine(line))
}

fn makes_a_table(line: &str) -> bool {
    let mut words = line.split_whitespace().skip_while(|word| *word != "create").skip(1);
    let word = words.find(|word| !["or", "replace", "temporary"].contains(word));
    word == Some("table")
}

fn names_other_engine(line: &str) -> bool {
    let Some((_, after)) = line.split_once("engine") else { return false };
    let name = after.trim_start_matches([' ', '=', '\'', '"', '`']);
    name.starts_with('$') || OTHER_ENGINES.iter().any(|engine| name.starts_with(engine))
}

/// Both copies of `suite`; the driver writes the outputs beside the tests.
pub fn copy(suite: &Suite, tests: &[String], prefix: &Path, copies: &Path) -> io::Result<()> {
    for engine in ENGINES {
        let to = copies.join(suite.copy_for(engine));
        fs::create_dir_all(&to)?;
        for entry in fs::read_dir(suite.stock(prefix))? {
            let from = entry?.path();
            let name = from.file_name().unwrap_or_default();
            match from.extension().and_then(|e| e.to_str()) {
                Some("result" | "rdiff" | "reject" | "test") => {}
                _ if from.is_file() => drop(fs::copy(&from, to.join(name))?),
                _ => {}
            }
        }
        for test in tests {
            let name = format!("{test}.test");
            let text = fs::read(suite.stock(prefix).join(&name))?;
            fs::write(to.join(name), with_engine(&text, suite.replaced, engine.name))?;
        }
    }
    Ok(())
}

/// Puts `engine` where a word with "engine" in it names one of `replaced`. Tests are in many character sets.
fn with_engine(text: &[u8], replaced: &[&str], engine: &str) -> Vec<u8> {
    let mut made = Vec::with_capacity(text.len());
    let mut at = 0;
    while at < text.len() {
        let is_word = |from: &[u8], word: &str| {
            from.len() >= word.len()
                && from[..word.len()].eq_ignore_ascii_case(word.as_bytes())
                && !from.get(word.len()).is_some_and(|byte| is_of_word(*byte))
        };
        match replaced.iter().find(|word| is_word(&text[at..], word)) {
            Some(word) if names_an_engine(&text[..at]) => {
                made.extend_from_slice(engine.as_bytes());
                at += word.len();
            }
            _ => {
                made.push(text[at]);
                at += 1;
            }
        }
    }
    made
}

fn is_of_word(byte: u8) -> bool {
    byte == b'_' || byte.is_ascii_alphanumeric()
}

/// Whether `before` ends as in `ENGINE=`, `engine '` or `$engine_type= `.
fn names_an_engine(before: &[u8]) -> bool {
    let end = before.iter().rposition(|byte| is_of_word(*byte)).map_or(0, |last| last + 1);
    let start = before[..end].iter().rposition(|byte| !is_of_word(*byte)).map_or(0, |at| at + 1);
    let word = before[start..end].to_ascii_lowercase();
    end < before.len()
        && before[end..].iter().all(|byte| b" \t\n='\"`".contains(byte))
        && word.windows(6).any(|part| part == b"engine")
}

#[cfg(test)]
mod checks {
    use super::*;

    #[test]
    fn a_test_takes_part_if_the_default_engine_makes_a_table() {
        for text in
            ["create table t1 (a int);", "  create or replace table t1 (a int) engine=innodb;"]
        {
            assert!(takes_part(text), "{text}");
        }
        for text in [
            "select 1;",
            "create table t1 (a int) engine = memory;",
            "create table t1 (a int) engine=$engine;",
            "--source include/have_debug.inc\ncreate table t1 (a int);",
            "create view table_v as select 1;",
        ] {
            assert!(!takes_part(text), "{text}");
        }
        assert!(!is_left_out("index_merge_innodb", &SUITES[0]));
        assert!(is_left_out("merge_mmap", &SUITES[0]));
    }

    #[test]
    fn an_engine_gives_way_where_it_is_named_as_one() {
        let made = |text: &str| {
            String::from_utf8(with_engine(text.as_bytes(), &["innodb"], "Sluice"))
                .unwrap_or_default()
        };
        assert_eq!(made("(a int) ENGINE = InnoDB;"), "(a int) ENGINE = Sluice;");
        assert_eq!(made("engine =\nInnoDB"), "engine =\nSluice");
        assert_eq!(made("let $engine_type= 'innodb';"), "let $engine_type= 'Sluice';");
        for text in
            ["set @@innodb_x=1", "engine=innodb_x", "have_innodb.inc", "innodb", "engineinnodb"]
        {
            assert_eq!(made(text), text);
        }
    }
}
