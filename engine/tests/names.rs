//! A name of a type means one thing. Where types of two files have one name, it stands in [`SHARED`], which
//! only shrinks.
#![allow(clippy::disallowed_methods, reason = "it reads the source tree")]

mod source;

use source::{sources, Source};
use std::collections::{BTreeMap, BTreeSet};

/// Names that types of several files have. Of each, at most one type is used outside of its room, and the
/// others are private to a file or to a few files beside each other, whose heads say what is meant:
/// - `Counters`, `State`, `Inner`, `Bug` are those of the room or type, and mean the same everywhere;
/// - `RawMutex`, `RawRwLock`, `Handle`: one takes the place of the other in the simulator;
/// - the rest are parts of one algorithm each, and their words are those of its text.
#[rustfmt::skip]
const SHARED: [&str; 39] = [
    "Aside", "Bug", "Builder", "Chunk", "Counters", "Cut", "Directory", "Fate", "Found", "Handle", "Held",
    "Inner", "Kind", "Known", "Level", "Mark", "Measured", "Need", "Outcome", "Pace", "Packed",
    "Place", "Places", "Progress", "RawMutex", "RawRwLock", "Reading", "Seen", "Shard", "Slot",
    "State", "Stored", "Sums", "Tail", "Trace", "Verdict", "View", "Waiter", "Written",
];

/// Types of a file of the engine, outside of its tests.
fn types_of(source: &Source) -> Vec<&str> {
    let is_measurement = source.path.ends_with("bench.rs");
    if !source.path.starts_with("engine/src/") || source.is_test() || is_measurement {
        return Vec::new();
    }
    let code = source.code.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    code.lines().filter_map(type_of).collect()
}

/// The type that a line declares, if it begins at the left edge.
fn type_of(line: &str) -> Option<&str> {
    let rest = match line.strip_prefix("pub(") {
        Some(rest) => rest.split_once(") ")?.1,
        None => line.strip_prefix("pub ").unwrap_or(line),
    };
    let name = ["struct ", "enum ", "trait "].iter().find_map(|word| rest.strip_prefix(word))?;
    name.split(|c: char| !c.is_alphanumeric()).next()
}

fn shared(sources: &[Source]) -> BTreeSet<&str> {
    let mut files: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for source in sources {
        for name in types_of(source) {
            files.entry(name).or_default().insert(&source.path);
        }
    }
    files.into_iter().filter(|(_, files)| files.len() > 1).map(|(name, _)| name).collect()
}

#[test]
fn names_of_types_mean_one_thing() {
    let sources = sources();
    let (found, known) = (shared(&sources), BTreeSet::from(SHARED));
    let new: Vec<_> = found.difference(&known).collect();
    assert!(new.is_empty(), "types of two files have these names, say which is which: {new:?}");
    let gone: Vec<_> = known.difference(&found).collect();
    assert!(gone.is_empty(), "these names mean one thing, take them off the list: {gone:?}");
}

#[test]
fn a_name_of_two_types_is_found() {
    let file = |path, text| Source::new(path, text);
    let sources = [
        file("engine/src/a.rs", "pub struct Map<K> {\n}\nenum Once {}\n    struct Inside;\n"),
        file("engine/src/b.rs", "pub(in crate::a) enum Map {}\nstruct Inside;\n"),
        file("engine/src/c.rs", "// struct Once\n#[cfg(test)]\nmod tests {\nstruct Once;\n}\n"),
        file("plugin/src/d.rs", "struct Once;\n"),
        file("engine/src/e/tests/f.rs", "struct Once;\n"),
    ];
    assert_eq!(shared(&sources), BTreeSet::from(["Map"]));
}
