//! docs/invariants.md against the source tree: what comments cite is there, and what it names lives.
#![allow(clippy::disallowed_methods, reason = "it reads the source tree")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the engine lies in a workspace").into()
}

fn page() -> String {
    fs::read_to_string(workspace().join("docs/invariants.md")).expect("docs/invariants.md")
}

/// Every source below `dir`: its path and its text.
fn sources(dir: &Path, found: &mut Vec<(PathBuf, String)>) {
    for entry in fs::read_dir(dir).expect("a readable directory") {
        let path = entry.expect("a readable directory").path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|e| e == "rs" || e == "cc" || e == "h") {
            let text = fs::read_to_string(&path).expect("a source file is UTF-8");
            found.push((path, text));
        }
    }
}

fn all_sources() -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    for room in ["engine/src", "engine/tests", "plugin/src", "testing"] {
        sources(&workspace().join(room), &mut found);
    }
    // This file cites numbers that there are not.
    found.retain(|(path, _)| !path.ends_with(file!().rsplit('/').next().unwrap_or_default()));
    found
}

/// The words of a text that have the form of a rule's number, such as M7.
fn numbers(text: &str) -> impl Iterator<Item = &str> {
    let is_number = |word: &&str| {
        let (kind, digits) = word.split_at(word.len().min(1));
        matches!(kind, "M" | "S" | "N")
            && matches!(digits.len(), 1 | 2)
            && digits.bytes().all(|b| b.is_ascii_digit())
    };
    text.split(|c: char| !c.is_alphanumeric() && c != '_').filter(is_number)
}

/// The numbers that comments of a source cite.
fn cited(source: &str) -> BTreeSet<&str> {
    let comments = source.lines().filter_map(|line| line.find("//").map(|at| &line[at..]));
    comments.flat_map(numbers).collect()
}

/// The numbers of the page's headings.
fn defined(page: &str) -> BTreeSet<&str> {
    page.lines().filter_map(|line| line.strip_prefix("## ")).flat_map(numbers).collect()
}

/// What the page names between `open` and `close`.
fn named(page: &str, open: char, close: char) -> Vec<&str> {
    let parts = page.split(open).skip(1);
    parts.filter_map(|part| part.split_once(close).map(|(name, _)| name)).collect()
}

/// Names in backquotes, in pairs.
fn quoted(page: &str) -> Vec<&str> {
    page.split('`').skip(1).step_by(2).collect()
}

fn missing(page: &str, sources: &[(PathBuf, String)]) -> Vec<String> {
    let exists = |name: &str| match name.contains('/') {
        true => workspace().join(name).exists(),
        false => sources.iter().any(|(_, text)| text.contains(&format!("fn {name}("))),
    };
    let is_file_or_test = |name: &&str| name.contains('/') || name.contains('_');
    let mut gone: Vec<String> = quoted(page)
        .into_iter()
        .filter(is_file_or_test)
        .filter(|name| !exists(name))
        .map(str::to_owned)
        .collect();
    let bugs = named(page, '[', ']').into_iter().filter(|n| n.starts_with(char::is_uppercase));
    let planted = sources.iter().find(|(path, _)| path.ends_with("os/bug.rs"));
    let list = planted.map_or("", |(_, text)| text.as_str());
    gone.extend(bugs.filter(|bug| !list.contains(&format!("Bug::{bug},"))).map(str::to_owned));
    gone
}

#[test]
fn every_number_that_a_comment_cites_is_on_the_page() {
    let page = page();
    let known = defined(&page);
    assert!(known.len() > 20, "the page has lost its rules");
    for (path, text) in all_sources() {
        for number in cited(&text) {
            assert!(known.contains(number), "{}: {number} is on no page", path.display());
        }
    }
}

#[test]
fn every_file_test_and_bug_that_the_page_names_exists() {
    let gone = missing(&page(), &all_sources());
    assert!(gone.is_empty(), "docs/invariants.md names what is not there: {gone:?}");
}

#[test]
fn the_checks_can_fail() {
    assert_eq!(cited("// rules M7 and S99; M123, TM1\nlet m1 = M2;"), ["M7", "S99"].into());
    assert_eq!(defined("## M1 One\ntext M2\n## N10 Ten\n"), ["M1", "N10"].into());
    let sources = all_sources();
    let page =
        "`engine/src/gone.rs` `no_such_test_of_ours` [NoSuchBug] `engine/src/os/rank.rs` word";
    assert_eq!(
        missing(page, &sources),
        ["engine/src/gone.rs", "no_such_test_of_ours", "NoSuchBug"]
    );
}
