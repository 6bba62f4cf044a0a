//! Pages against the source tree: the rules that comments cite are in docs/invariants.md, and the sources,
//! functions and tests that pages name exist.
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

/// A path of a source: from the workspace's root, or from the engine's.
fn is_source(name: &str) -> bool {
    let is_path = |c: char| c.is_ascii_alphanumeric() || "_-./".contains(c);
    let ending = name.rsplit('.').next().unwrap_or_default();
    name.contains('/') && name.chars().all(is_path) && ["rs", "cc", "h"].contains(&ending)
}

/// The sources that a page names and that are not there. `sql/` is the server's own tree.
fn gone_sources(page: &str) -> Vec<&str> {
    let exists =
        |name: &str| ["", "engine/src"].iter().any(|d| workspace().join(d).join(name).exists());
    let named =
        quoted(page).into_iter().filter(|name| is_source(name) && !name.starts_with("sql/"));
    named.filter(|name| !exists(name)).collect()
}

/// The functions that a page names, such as `Trx::insert` and `log_and_apply`, and that no source has.
fn gone_functions<'p>(page: &'p str, sources: &[(PathBuf, String)]) -> Vec<&'p str> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    let is_function =
        |name: &&str| name.chars().all(is_word) && (name.contains("::") || name.contains('_'));
    let exists = |name: &str| {
        let last = name.rsplit("::").next().unwrap_or_default();
        let (rust, cpp) = (format!("fn {last}("), format!("{name}("));
        sources.iter().any(|(path, text)| match path.extension().is_some_and(|e| e == "rs") {
            true => text.contains(&rust),
            false => text.contains(&cpp),
        })
    };
    quoted(page).into_iter().filter(is_function).filter(|name| !exists(name)).collect()
}

/// The scripts that a page names and that are not there.
fn gone_scripts(page: &str) -> Vec<&str> {
    let is_path = |c: char| c.is_ascii_alphanumeric() || "_-./".contains(c);
    let words = page.split(|c| !is_path(c)).map(|word| word.trim_end_matches('.'));
    let named = words.filter(|word| word.starts_with("scripts/"));
    named.filter(|name| !workspace().join(name).exists()).collect()
}

#[test]
fn every_source_that_a_page_names_exists() {
    let mut gone = Vec::new();
    for dir in ["", "docs", "docs/systems"] {
        for entry in fs::read_dir(workspace().join(dir)).expect("a readable directory") {
            let path = entry.expect("a readable directory").path();
            // The changelog may name what has gone.
            if path.extension().is_some_and(|e| e == "md") && !path.ends_with("CHANGELOG.md") {
                let text = fs::read_to_string(&path).expect("a page is UTF-8");
                let named = gone_sources(&text).into_iter();
                gone.extend(named.map(|name| format!("{}: {name}", path.display())));
                // This page says what has replaced the scripts that are gone.
                let scripts = if path.ends_with("bench.md") { vec![] } else { gone_scripts(&text) };
                gone.extend(scripts.iter().map(|name| format!("{}: {name}", path.display())));
            }
        }
    }
    assert!(gone.is_empty(), "\n{}", gone.join("\n"));
}

#[test]
fn every_function_that_the_tour_names_exists() {
    let tour = fs::read_to_string(workspace().join("docs/tour.md")).expect("docs/tour.md");
    let gone = gone_functions(&tour, &all_sources());
    assert!(gone.is_empty(), "docs/tour.md names what is not there: {gone:?}");
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
    let page = "`engine/src/os/rank.rs` `os/rank.rs` `os/gone.rs` `sql/handler.h` `a/b` `1 / 2.h`";
    assert_eq!(gone_sources(page), ["os/gone.rs"]);
    assert_eq!(gone_scripts("`A=1 scripts/gone x`, scripts/mtr. scripts/lib/"), ["scripts/gone"]);
    let page =
        "`Trx::insert` `Trx::insert_no_such` `ha_sluice::write_row` `ha_sluice::write_now` `word`";
    assert_eq!(gone_functions(page, &sources), ["Trx::insert_no_such", "ha_sluice::write_now"]);
}
