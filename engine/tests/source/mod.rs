//! The source tree as the tests of the house read it: files, words, and code without comments.
#![allow(dead_code, reason = "each of the tests uses a part")]

use std::fs;
use std::path::{Path, PathBuf};

pub struct Source {
    /// Relative to the workspace.
    pub path: String,
    pub text: String,
    /// The text with comments and literals blanked out; same lines.
    pub code: String,
}

impl Source {
    pub fn new(path: &str, text: &str) -> Source {
        Source { path: path.to_owned(), text: text.to_owned(), code: code_only(text) }
    }

    pub fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    pub fn is_test(&self) -> bool {
        let name = self.path.rsplit('/').next().unwrap_or_default();
        name == "tests.rs" || name.ends_with("_tests.rs") || self.path.contains("/tests/")
    }
}

pub fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the engine lies in a workspace").into()
}

/// Every Rust and C++ source of the workspace's crates.
pub fn sources() -> Vec<Source> {
    let root = workspace();
    let mut found = Vec::new();
    for member in ["engine", "plugin", "cli", "testing"] {
        collect(&root, &root.join(member), &mut found);
    }
    assert!(found.len() > 100, "no source tree under {}", root.display());
    found
}

fn collect(root: &Path, dir: &Path, found: &mut Vec<Source>) {
    for entry in fs::read_dir(dir).expect("a readable directory") {
        let path = entry.expect("a readable directory").path();
        if path.is_dir() {
            if path.file_name().is_some_and(|name| name != "target") {
                collect(root, &path, found);
            }
        } else if path.extension().is_some_and(|e| e == "rs" || e == "cc" || e == "h") {
            let text = fs::read_to_string(&path).expect("a source file is UTF-8");
            let path = path.strip_prefix(root).expect("below the root");
            found.push(Source::new(&path.to_string_lossy(), &text));
        }
    }
}

/// Blanks comments, strings and characters, keeping every line break.
fn code_only(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let blank = match first {
            '/' if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            '/' if rest.starts_with("/*") => rest.find("*/").map_or(rest.len(), |at| at + 2),
            '"' => escaped_literal(rest, '"'),
            'r' if !ends_in_word(&out) => raw_string(rest),
            '\'' if rest[1..].starts_with('\\') => escaped_literal(rest, '\''),
            '\'' => plain_char(rest),
            _ => 0,
        };
        let taken = blank.max(first.len_utf8());
        let keep = |c| if blank == 0 || c == '\n' { c } else { ' ' };
        out.extend(rest[..taken].chars().map(keep));
        rest = &rest[taken..];
    }
    out
}

pub fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn ends_in_word(text: &str) -> bool {
    text.chars().next_back().is_some_and(is_word)
}

fn escaped_literal(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        if !escaped && c == quote {
            return at + 1;
        }
        escaped = !escaped && c == '\\';
    }
    text.len()
}

/// The length of a raw string at the start of `text`, or 0.
fn raw_string(text: &str) -> usize {
    let hashes = text[1..].chars().take_while(|&c| c == '#').count();
    let body = hashes + 2;
    if !text[1 + hashes..].starts_with('"') {
        return 0;
    }
    let end = format!("\"{}", "#".repeat(hashes));
    text[body..].find(&end).map_or(text.len(), |at| body + at + end.len())
}

/// The length of a character at the start of `text`, or 0: then it is a lifetime.
fn plain_char(text: &str) -> usize {
    let mut chars = text.char_indices().skip(2);
    chars.next().filter(|&(_, c)| c == '\'').map_or(0, |(at, _)| at + 1)
}

/// The words of a text with their offsets.
pub fn words(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut at = 0;
    text.split(|c| !is_word(c)).filter_map(move |word| {
        let start = at;
        at += word.len();
        at += text[at..].chars().next().map_or(0, char::len_utf8);
        (!word.is_empty()).then_some((start, word))
    })
}

pub fn line_of(text: &str, at: usize) -> usize {
    text[..at].matches('\n').count() + 1
}

/// The code in front of the module of tests that ends the file.
pub fn without_test_module(code: &str) -> &str {
    let begins = |at: usize| code[..at].trim_end().rfind('\n').map_or(0, |line| line + 1);
    let is_tests = |at: &usize| code[begins(*at)..*at].contains("test");
    let at = code.find("\nmod tests {").filter(is_tests);
    at.map_or(code, |at| &code[..begins(at)])
}
