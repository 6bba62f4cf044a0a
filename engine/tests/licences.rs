//! The licence of every crate that the workspace depends on, against the two lists of deny.toml.
#![allow(clippy::disallowed_methods, reason = "it reads deny.toml")]

use std::collections::BTreeSet;
use std::fs;
use std::iter::Peekable;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::str::SplitWhitespace;

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the engine lies in a workspace").into()
}

/// Whether the SPDX expression can be satisfied by the allowed licences: an OR by one side, an AND by both. A
/// licence WITH an exception is a name of its own.
fn allows(expression: &str, allowed: &BTreeSet<&str>) -> bool {
    let text = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let mut words = text.split_whitespace().peekable();
    either(&mut words, allowed) && words.next().is_none()
}

fn either(words: &mut Peekable<SplitWhitespace<'_>>, allowed: &BTreeSet<&str>) -> bool {
    let mut result = both(words, allowed);
    while words.next_if_eq(&"OR").is_some() {
        result |= both(words, allowed);
    }
    result
}

fn both(words: &mut Peekable<SplitWhitespace<'_>>, allowed: &BTreeSet<&str>) -> bool {
    let mut result = one(words, allowed);
    while words.next_if_eq(&"AND").is_some() {
        result &= one(words, allowed);
    }
    result
}

fn one(words: &mut Peekable<SplitWhitespace<'_>>, allowed: &BTreeSet<&str>) -> bool {
    match words.next() {
        None | Some("AND" | "OR" | "WITH" | ")") => false,
        Some("(") => either(words, allowed) & (words.next() == Some(")")),
        Some(name) if words.next_if_eq(&"WITH").is_some() => {
            let exception = words.next().unwrap_or_default();
            allowed.contains(format!("{name} WITH {exception}").as_str())
        }
        Some(name) => allowed.contains(name),
    }
}

/// The words in quotes.
fn quoted(text: &str) -> Vec<&str> {
    text.split('"').skip(1).step_by(2).collect()
}

/// The allowed licences, and those that each of our own crates may have besides.
fn rules(deny: &str) -> (BTreeSet<&str>, Vec<(&str, Vec<&str>)>) {
    let section = deny.split_once("[licenses]").map_or("", |(_, rest)| rest);
    let (allow, rest) = section.split_once("\nallow = [").map_or(("", ""), |(_, rest)| {
        let (allow, rest) = rest.split_once(']').unwrap_or_default();
        (allow, rest.split("\n]").next().unwrap_or_default())
    });
    let exceptions = rest.lines().map(quoted).filter(|words| words.len() > 1);
    (quoted(allow).into_iter().collect(), exceptions.map(|w| (w[0], w[1..].to_vec())).collect())
}

/// Name, version and licence of a line of `cargo tree`, and whether the crate lies in a directory.
fn package(line: &str) -> Option<(&str, &str, &str, bool)> {
    let (package, licence) = line.strip_suffix(" (*)").unwrap_or(line).split_once('\t')?;
    let mut words = package.split(' ');
    let (name, version) = (words.next()?, words.next()?);
    Some((name, version, licence, words.any(|word| word.contains('/'))))
}

#[test]
fn every_crate_has_an_allowed_licence() {
    let deny = fs::read_to_string(workspace().join("deny.toml")).expect("deny.toml");
    let (allowed, exceptions) = rules(&deny);
    assert!(allowed.len() > 5 && exceptions.len() > 5, "deny.toml has lost its lists");
    // Not `cargo metadata`: that also names what a feature would need that nobody asks for (ring, of rustls).
    let cargo = std::env::var_os("CARGO").unwrap_or("cargo".into());
    let mut tree = Command::new(cargo);
    tree.args(["tree", "--workspace", "--all-features", "--target", "all", "--locked"]);
    tree.args(["--edges", "normal,build,dev", "--prefix", "none", "--format", "{p}\t{l}"]);
    let output = tree.current_dir(workspace()).output().expect("cargo tree");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("names in UTF-8");
    let found: BTreeSet<_> = text.lines().filter_map(package).collect();
    assert!(found.len() > 50, "cargo tree lists {} crates", found.len());
    let refused = found.into_iter().filter(|(name, _, licence, is_ours)| {
        // A crate from a registry that took the name of one of ours is no exception.
        let own = exceptions.iter().filter(|(crate_name, _)| *is_ours && crate_name == name);
        let allowed = own.flat_map(|(_, more)| more).chain(&allowed).copied().collect();
        !allows(licence, &allowed)
    });
    let refused: Vec<_> =
        refused.map(|(name, version, licence, _)| (name, version, licence)).collect();
    assert!(refused.is_empty(), "licences that are not allowed: {refused:?}");
}

#[test]
fn an_expression_is_satisfied_by_allowed_licences() {
    let allows =
        |expression: &str, allowed: &[&str]| allows(expression, &allowed.iter().copied().collect());
    assert!(allows("MIT OR Apache-2.0", &["MIT"]) && allows("MIT/Apache-2.0", &["MIT"]));
    assert!(
        !allows("Apache-2.0", &["MIT"]) && !allows("", &["MIT"]) && !allows("MIT OR", &["ISC"])
    );
    assert!(!allows("(MIT OR Apache-2.0) AND Unicode-3.0", &["MIT"]));
    assert!(allows("(MIT OR Apache-2.0) AND Unicode-3.0", &["MIT", "Unicode-3.0"]));
    assert!(allows("MIT AND Apache-2.0 OR ISC", &["ISC"]));
    assert!(!allows("Apache-2.0 WITH LLVM-exception OR MIT", &["Apache-2.0"]));
    assert!(allows("Apache-2.0 WITH LLVM-exception", &["Apache-2.0 WITH LLVM-exception"]));
    assert!(!allows("(MIT", &["MIT"]) && !allows("MIT)", &["MIT"]));
}

#[test]
fn lists_and_lines_are_read() {
    let deny = "[licenses]\nallow = [\n \"MIT\",\n]\nexceptions = [\n { crate = \"a\", allow = [\"G\"] },\n]\n\"x\" \"y\"";
    assert_eq!(rules(deny), (["MIT"].into(), vec![("a", vec!["G"])]));
    assert_eq!(package("a v1.2\tMIT (*)"), Some(("a", "v1.2", "MIT", false)));
    assert_eq!(package("a v1.2 (/home/a)\tGPL"), Some(("a", "v1.2", "GPL", true)));
}
