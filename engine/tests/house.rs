//! The rules of the house, read off the source tree: which room may import which, where `unsafe`
//! may stand, how long files, functions and lines of documentation may be, which links must lead
//! somewhere, and what must not be left lying about.
//!
//! Each rule is a function from a source to its faults; `every_rule_can_fail` shows each of them
//! something bad. Lists of exceptions only shrink: an entry without a need is a fault too.
#![allow(clippy::disallowed_methods, reason = "it reads the source tree")]

mod source;

use source::{line_of, sources, without_test_module, words, workspace, Source};
use std::fs;
use std::path::{Path, PathBuf};

/// A room of the engine and the rooms that it may import.
const ROOMS: [(&str, &[&str]); 11] = [
    ("base", &[]),
    ("os", &["base"]),
    ("cipher", &["base", "os"]),
    ("wal", &["base", "os", "cipher"]),
    ("store", &["base", "os", "cipher"]),
    ("buffer", &["base", "os", "store"]),
    ("btree", &["base", "wal", "buffer"]),
    ("txn", &["base", "os", "wal", "buffer", "btree"]),
    ("binlog", &["base", "os", "wal"]),
    ("catalog", &["base", "btree", "txn"]),
    (
        "db",
        &["base", "os", "cipher", "wal", "store", "buffer", "btree", "txn", "binlog", "catalog"],
    ),
];

/// The only files with `unsafe` code. Each says at its top why it is sound.
const UNSAFE_FILES: [&str; 29] = [
    "engine/src/os/aligned.rs",
    "engine/src/os/ranked.rs",
    "engine/src/os/real.rs",
    "engine/src/os/sched/locks.rs",
    "engine/src/os/slabs.rs",
    "engine/src/wal/ring.rs",
    // The C ABI, and what reads and declares structures of the server.
    "plugin/src/abi.rs",
    "plugin/src/abi_alter.rs",
    "plugin/src/abi_binlog.rs",
    "plugin/src/abi_calls.rs",
    "plugin/src/codec_tests.rs",
    "plugin/src/declare.rs",
    "plugin/src/describe.rs",
    "plugin/src/record.rs",
    // System calls that the standard library does not offer.
    "cli/src/host/calls.rs",
    "cli/src/host/statx.rs",
    "cli/src/server/checks.rs",
    "cli/src/server/lock.rs",
    "cli/src/server/process.rs",
    "cli/src/server/start.rs",
    "cli/src/server/stop.rs",
    "cli/src/signals.rs",
    "testing/rig/src/server.rs",
    "testing/crash/src/shimcheck.rs",
    // It replaces libc's file calls in the server that loads it.
    "testing/powershim/src/data.rs",
    "testing/powershim/src/names.rs",
    "testing/powershim/src/raw.rs",
    "testing/powershim/src/state.rs",
    "testing/powershim/src/unseen.rs",
];

const FILE_LINES_MAX: usize = 1000;
const FUNCTION_LINES_MAX: usize = 70;
const PAGE_COLUMNS_MAX: usize = 120;

/// Longer functions, as (file, name): to be shortened, never to be joined by others.
const LONG_FUNCTIONS: [(&str, &str); 0] = [];

/// Spelt apart, so that this file passes.
const LEFTOVERS: [&str; 5] = [
    concat!("to", "do!"),
    concat!("un", "implemented!"),
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("db", "g!"),
];

/// Rule: imports go down only.
fn layering(source: &Source) -> Vec<String> {
    let Some(inside) = source.path.strip_prefix("engine/src/") else { return Vec::new() };
    let Some((room, _)) = inside.split_once('/') else { return Vec::new() };
    let Some((_, allowed)) = ROOMS.iter().find(|(name, _)| *name == room) else {
        return vec![format!("{}: `{room}` is no room of the table", source.path)];
    };
    let code = if source.is_test() { "" } else { without_test_module(&source.code) };
    let mut faults = Vec::new();
    for (at, _) in words(code).filter(|(_, word)| *word == "crate") {
        for target in named_rooms(&code[at + "crate".len()..]) {
            if target != room && !allowed.contains(&target) {
                let line = line_of(code, at);
                faults.push(format!("{}:{line}: `{room}` imports `{target}`", source.path));
            }
        }
    }
    faults
}

/// What follows `crate`: `::room`, or a group that names several.
fn named_rooms(rest: &str) -> Vec<&str> {
    let Some(rest) = rest.strip_prefix("::") else { return Vec::new() };
    let Some(group) = rest.strip_prefix('{') else {
        return words(rest).take(1).map(|(_, word)| word).collect();
    };
    let group = &group[..group.find(';').unwrap_or(group.len())];
    let is_room = |word: &&str| ROOMS.iter().any(|(name, _)| name == word);
    words(group).map(|(_, word)| word).filter(is_room).collect()
}

/// Rule: `unsafe` stands in named files, which open with their safety argument.
fn unsafe_code(source: &Source) -> Vec<String> {
    let first = words(&source.code).find(|(_, word)| *word == "unsafe");
    let listed = UNSAFE_FILES.contains(&source.path.as_str());
    let mut header = source.text.lines().take_while(|line| line.starts_with("//!"));
    let fault = match first {
        Some(_) if !listed => "unsafe code, but not on the list",
        Some(_) if !header.any(|line| line.contains("Safety argument")) => "no safety argument",
        None if listed => "on the list, but without unsafe code",
        _ => return Vec::new(),
    };
    vec![format!("{}:{}: {fault}", source.path, first.map_or(1, |f| line_of(&source.code, f.0)))]
}

/// Rule: no file is too long to be read in one sitting.
fn file_length(source: &Source) -> Vec<String> {
    let lines = source.text.lines().count();
    let fault = format!("{}: {lines} lines", source.path);
    if lines > FILE_LINES_MAX {
        vec![fault]
    } else {
        Vec::new()
    }
}

/// Every function with a body: name, first line, number of lines.
fn functions(code: &str) -> Vec<(&str, usize, usize)> {
    let mut found = Vec::new();
    let mut all = words(code).peekable();
    while let Some((at, word)) = all.next() {
        let Some(&(_, name)) = all.peek().filter(|_| word == "fn") else { continue };
        let Some(length) = body_end(&code[at..]) else { continue };
        found.push((name, line_of(code, at), line_of(&code[at..], length)));
    }
    found
}

/// Where the closing brace is; none for a declaration or a function's type.
fn body_end(code: &str) -> Option<usize> {
    let (mut braces, mut brackets) = (0, 0);
    for (at, c) in code.char_indices() {
        match c {
            '{' => braces += 1,
            '}' => braces -= 1,
            '(' | '[' => brackets += 1,
            ')' | ']' => brackets -= 1,
            ';' if braces == 0 && brackets == 0 => return None,
            _ => continue,
        }
        if brackets < 0 || braces < 0 {
            return None;
        }
        if c == '}' && braces == 0 && brackets == 0 {
            return Some(at);
        }
    }
    None
}

/// Rule: functions fit a screen, but for those listed.
fn function_length(source: &Source, exceptions: &[(&str, &str)]) -> Vec<String> {
    let mut faults = Vec::new();
    let all = if source.is_rust() { functions(&source.code) } else { Vec::new() };
    for &(name, line, lines) in all.iter().filter(|f| f.2 > FUNCTION_LINES_MAX) {
        if !exceptions.contains(&(source.path.as_str(), name)) {
            faults.push(format!("{}:{line}: `{name}` has {lines} lines", source.path));
        }
    }
    for (_, name) in exceptions.iter().filter(|(path, _)| *path == source.path) {
        if !all.iter().any(|f| f.0 == *name && f.2 > FUNCTION_LINES_MAX) {
            faults.push(format!("{}: `{name}` needs no exception", source.path));
        }
    }
    faults
}

/// Rule: nothing unfinished is left behind.
fn leftovers(source: &Source) -> Vec<String> {
    let mut faults = Vec::new();
    for (line, text) in source.text.lines().enumerate() {
        for what in LEFTOVERS.iter().filter(|what| text.contains(**what)) {
            faults.push(format!("{}:{}: {what}", source.path, line + 1));
        }
    }
    faults
}

/// Every page of the documentation: its path below the root and its text.
fn pages() -> Vec<(String, String)> {
    let root = workspace();
    let mut paths = vec![];
    for name in ["README.md", "CHANGELOG.md", "CONTRIBUTING.md"] {
        paths.push(root.join(name));
    }
    collect_pages(&root.join("docs"), &mut paths);
    assert!(paths.len() > 20, "no documentation under {}", root.display());
    let read = |path: &PathBuf| {
        let text = fs::read_to_string(path).expect("a page is UTF-8");
        let path = path.strip_prefix(&root).expect("below the root");
        (path.to_string_lossy().into_owned(), text)
    };
    paths.iter().map(read).collect()
}

fn collect_pages(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).expect("a readable directory") {
        let path = entry.expect("a readable directory").path();
        if path.is_dir() {
            collect_pages(&path, found);
        } else if path.extension().is_some_and(|e| e == "md") {
            found.push(path);
        }
    }
}

/// Rule: a line of a page fits an editor, but for tables, marks (`<!-- ... -->`) and text that a
/// tool writes: the reports, and all between the marks `<!-- begin: ` and `<!-- end: `.
fn page_columns(path: &str, text: &str) -> Vec<String> {
    let mut faults = Vec::new();
    let mut generated = path.starts_with("docs/reports/");
    for (line, text) in text.lines().enumerate() {
        if text.starts_with("<!-- begin: ") {
            generated = true;
        } else if text.starts_with("<!-- end: ") {
            generated = false;
        }
        let free = text.trim_start().starts_with('|') || text.starts_with("<!-- ");
        let columns = text.chars().count();
        if !generated && !free && columns > PAGE_COLUMNS_MAX {
            faults.push(format!("{path}:{}: {columns} columns", line + 1));
        }
    }
    faults
}

/// Rule: a link to a file leads to a file. `exists` gets a path below the root.
fn page_links(path: &str, text: &str, exists: impl Fn(&Path) -> bool) -> Vec<String> {
    let dir = Path::new(path).parent().expect("a page lies in a directory");
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let is_file = |target: &&str| {
        !target.starts_with('#') && !target.contains("://") && !target.starts_with("mailto:")
    };
    let mut faults = Vec::new();
    for target in targets.filter(is_file) {
        let file = target.split('#').next().unwrap_or_default();
        if !exists(&dir.join(file)) {
            faults.push(format!("{path}: a link to `{target}`, which is not there"));
        }
    }
    faults
}

#[track_caller]
fn assert_none(faults: impl IntoIterator<Item = String>) {
    let faults: Vec<String> = faults.into_iter().collect();
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

#[test]
fn imports_go_down_only() {
    assert_none(sources().iter().flat_map(layering));
    for (room, _) in ROOMS {
        assert!(workspace().join("engine/src").join(room).is_dir(), "no room `{room}`");
    }
}

#[test]
fn unsafe_code_stands_in_named_files_with_an_argument() {
    let all = sources();
    assert_none(all.iter().filter(|s| s.is_rust()).flat_map(unsafe_code));
    for path in UNSAFE_FILES {
        assert!(all.iter().any(|s| s.path == path), "{path} is gone: take it off the list");
    }
}

#[test]
fn files_are_short() {
    let all = sources();
    assert_none(all.iter().flat_map(file_length));
    let mut lines: Vec<usize> = all.iter().map(|s| s.text.lines().count()).collect();
    lines.sort_unstable();
    let count = lines.len();
    println!("{count} files: median {}, longest {} lines", lines[count / 2], lines[count - 1]);
}

#[test]
fn functions_are_short() {
    let all = sources();
    assert_none(all.iter().flat_map(|s| function_length(s, &LONG_FUNCTIONS)));
    for (path, _) in LONG_FUNCTIONS {
        assert!(all.iter().any(|s| s.path == path), "{path} is gone: take it off the list");
    }
    let rust = all.iter().filter(|s| s.is_rust());
    let mut lines: Vec<usize> = rust.flat_map(|s| functions(&s.code)).map(|f| f.2).collect();
    lines.sort_unstable();
    let count = lines.len();
    assert!(count > 1000, "only {count} functions found");
    let (median, p90, longest) = (lines[count / 2], lines[count * 9 / 10], lines[count - 1]);
    println!("{count} functions: median {median}, p90 {p90}, longest {longest} lines");
}

#[test]
fn nothing_is_left_unfinished() {
    assert_none(sources().iter().flat_map(leftovers));
}

#[test]
fn pages_have_short_lines() {
    assert_none(pages().iter().flat_map(|(path, text)| page_columns(path, text)));
}

#[test]
fn links_between_pages_lead_somewhere() {
    let root = workspace();
    let exists = |path: &Path| root.join(path).exists();
    assert_none(pages().iter().flat_map(|(path, text)| page_links(path, text, exists)));
}

#[test]
fn every_rule_of_pages_can_fail() {
    let wide = "x".repeat(PAGE_COLUMNS_MAX + 1);
    let faults = |text: &str| page_columns("docs/x.md", text).len();
    assert_eq!(faults(&wide), 1);
    assert_eq!(faults(&wide[1..]), 0);
    assert_eq!(faults(&"\u{e4}".repeat(PAGE_COLUMNS_MAX)), 0, "columns, not bytes");
    assert_eq!(faults(&format!("| {wide} |")), 0);
    assert_eq!(faults(&format!("<!-- begin: t -->\n{wide}\n<!-- end: t -->\n{wide}")), 1);
    assert_eq!(page_columns("docs/reports/x/report.md", &wide), Vec::<String>::new());

    let faults = |path: &str, text: &str| {
        page_links(path, text, |path| path == Path::new("docs/there.md")).len()
    };
    assert_eq!(faults("docs/x.md", "[a](there.md), [b](there.md#c), [c](gone.md)"), 1);
    assert_eq!(faults("README.md", "[a](docs/there.md) and\n[b](there.md)"), 1);
    assert_eq!(faults("docs/x.md", "[a](#here), [b](https://mariadb.org/x)"), 0);
}

#[test]
fn every_rule_can_fail() {
    let faults = |path: &str, text: &str, rule: fn(&Source) -> Vec<String>| {
        rule(&Source::new(path, text)).len()
    };
    let wal = "engine/src/wal/x.rs";
    assert_eq!(faults(wal, "use crate::btree::Tree;", layering), 1);
    assert_eq!(faults(wal, "use crate::{base::Lsn, btree, store::Store};", layering), 2);
    assert_eq!(faults(wal, "fn f() { crate::db::open() }", layering), 1);
    assert_eq!(faults(wal, "#[cfg(test)]\nmod bench;\nuse crate::db::Engine;", layering), 1);
    assert_eq!(faults("engine/src/attic/x.rs", "", layering), 1);
    assert_eq!(faults(wal, "use crate::os::Os; // crate::db\nuse crate::wal::Wal;", layering), 0);
    assert_eq!(faults(wal, "#[cfg(test)]\nmod tests { use crate::db::Engine; }", layering), 0);
    assert_eq!(faults("engine/src/wal/tests.rs", "use crate::db::Engine;", layering), 0);

    let ring = "engine/src/wal/ring.rs";
    assert_eq!(faults(wal, "fn f() { unsafe { g() } }", unsafe_code), 1);
    assert_eq!(faults(wal, "/// unsafe\nfn f() { \"unsafe\"; r#\"unsafe\"#; }", unsafe_code), 0);
    assert_eq!(faults(ring, "//! Ring.\n\nunsafe fn f() {}", unsafe_code), 1);
    assert_eq!(faults(ring, "//! Safety argument: x.\nunsafe fn f() {}", unsafe_code), 0);
    assert_eq!(faults(ring, "//! Safety argument: x.\nfn f() {}", unsafe_code), 1);

    assert_eq!(faults(wal, &"\n".repeat(FILE_LINES_MAX + 1), file_length), 1);
    assert_eq!(faults(wal, &"\n".repeat(FILE_LINES_MAX), file_length), 0);

    let function = |lines: usize| format!("fn f<'a>(c: char) {{{}}}", "'}';\n".repeat(lines - 1));
    let long = Source::new(wal, &function(FUNCTION_LINES_MAX + 1));
    let short = Source::new(wal, &function(FUNCTION_LINES_MAX));
    assert_eq!(function_length(&long, &[]).len(), 1);
    assert_eq!(function_length(&short, &[]).len(), 0);
    assert_eq!(function_length(&long, &[(wal, "f")]).len(), 0);
    assert_eq!(function_length(&short, &[(wal, "f")]).len(), 1, "an exception without a need");

    for what in LEFTOVERS {
        assert_eq!(faults(wal, &format!("// {what}"), leftovers), 1);
    }
}
