//! No import circles inside the rooms of the engine and inside the plugin: modules that cannot be read
//! one after the other, because each of them imports another of the circle.
#![allow(clippy::disallowed_methods, reason = "it reads the source tree")]

mod source;

use source::{sources, without_test_module, words, Source};
use std::collections::{BTreeMap, BTreeSet};

/// Directories whose modules are compared.
const ROOTS: [&str; 21] = [
    "engine/src/base",
    "engine/src/os",
    "engine/src/wal",
    "engine/src/store",
    "engine/src/buffer",
    "engine/src/btree",
    "engine/src/txn",
    "engine/src/txn/locks",
    "engine/src/txn/versions",
    "engine/src/binlog",
    "engine/src/catalog",
    "engine/src/db",
    "engine/src/db/tables",
    "engine/src/db/rows",
    "engine/src/db/ddl",
    "engine/src/db/recovery",
    "engine/src/db/upkeep",
    "engine/src/db/inspect",
    "engine/src/db/backup",
    "plugin/src",
    "plugin/src/handler",
];

/// The modules of a directory, each with its code; `mod.rs` and `lib.rs` are not among them.
struct Room<'s> {
    root: &'s str,
    modules: BTreeMap<&'s str, Vec<(&'s Source, &'s str)>>,
    /// Names that the room itself offers, and the module each comes from.
    offered: BTreeMap<&'s str, &'s str>,
}

impl<'s> Room<'s> {
    fn read(root: &'s str, all: &'s [Source]) -> Room<'s> {
        let mut room = Room { root, modules: BTreeMap::new(), offered: BTreeMap::new() };
        let mut face = "";
        for source in all.iter().filter(|s| s.is_rust() && !s.is_test()) {
            let Some(inside) = source.path.strip_prefix(root).and_then(|p| p.strip_prefix('/'))
            else {
                continue;
            };
            let code = without_test_module(&source.code);
            if inside == "mod.rs" || inside == "lib.rs" {
                face = code;
                continue;
            }
            let module = inside.split('/').next().unwrap_or(inside);
            let module = module.strip_suffix(".rs").unwrap_or(module);
            room.modules.entry(module).or_default().push((source, code));
        }
        for (at, _) in words(face).filter(|(_, word)| *word == "use") {
            let statement = face[at..].split(';').next().unwrap_or_default();
            let mut named = words(statement).map(|(_, word)| word).skip(1);
            let module = named.find(|word| *word != "self");
            if let Some(module) = module.filter(|m| room.modules.contains_key(m)) {
                room.offered.extend(named.map(|name| (name, module)));
            }
        }
        room
    }

    /// The modules that each module imports.
    fn imports(&self) -> BTreeMap<&'s str, BTreeSet<&'s str>> {
        let mut all = BTreeMap::new();
        for (&module, files) in &self.modules {
            let named = files.iter().flat_map(|(source, code)| self.named(source, code));
            let imported = named.filter_map(|name| {
                let of_module = self.modules.get_key_value(name).map(|(module, _)| *module);
                of_module.or_else(|| self.offered.get(name).copied())
            });
            all.insert(module, imported.filter(|other| *other != module).collect());
        }
        all
    }

    /// What a file names directly below the room.
    fn named(&self, source: &Source, code: &'s str) -> Vec<&'s str> {
        let inside = &source.path[self.root.len() + 1..];
        let mut ways = vec!["super::".repeat(inside.matches('/').count() + 1)];
        let below = ["engine/src", "plugin/src"].iter().find_map(|src| self.root.strip_prefix(src));
        ways.push(format!("crate{}::", below.unwrap_or_default().replace('/', "::")));
        let mut found = Vec::new();
        for way in ways {
            for (at, _) in code.match_indices(&way) {
                // A longer way leads out of the room.
                let is_longer = code[..at].ends_with("super::");
                if !is_longer {
                    found.extend(heads(&code[at + way.len()..]));
                }
            }
        }
        found
    }
}

/// The first words of the paths that a path goes on with: of one, or of each in a group.
fn heads(rest: &str) -> Vec<&str> {
    let Some(group) = rest.strip_prefix('{') else {
        return words(rest).take(1).map(|(_, word)| word).collect();
    };
    let mut found = Vec::new();
    let (mut depth, mut begin) = (0, 0);
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth > 0 => depth -= 1,
            ',' | '}' if depth == 0 => {
                found.extend(words(&group[begin..at]).next().map(|(_, word)| word));
                begin = at + 1;
                if c == '}' {
                    break;
                }
            }
            _ => {}
        }
    }
    found
}

/// Every module that `from` leads to.
fn reached<'s>(imports: &BTreeMap<&'s str, BTreeSet<&'s str>>, from: &'s str) -> BTreeSet<&'s str> {
    let (mut found, mut open) = (BTreeSet::new(), vec![from]);
    while let Some(module) = open.pop() {
        let next = imports.get(module).into_iter().flatten().filter(|m| found.insert(**m));
        open.extend(next.copied().collect::<Vec<_>>());
    }
    found
}

/// Groups of modules of which each leads to every other.
fn circles<'s>(imports: &BTreeMap<&'s str, BTreeSet<&'s str>>) -> BTreeSet<Vec<&'s str>> {
    let leads: BTreeMap<_, _> = imports.keys().map(|m| (*m, reached(imports, m))).collect();
    let of = |module: &&'s str| -> Vec<&'s str> {
        let there = leads[module].iter().copied();
        there.filter(|other| leads.get(other).is_some_and(|l| l.contains(module))).collect()
    };
    imports.keys().map(of).filter(|circle| circle.len() > 1).collect()
}

/// The circles of one room, with the imports that make them.
fn faults(room: &Room<'_>) -> Vec<String> {
    let imports = room.imports();
    let fault = |circle: &Vec<&str>| {
        let ways = circle.iter().map(|module| {
            let to = imports[module].iter().filter(|m| circle.contains(m));
            format!("    {module} imports {}", to.copied().collect::<Vec<_>>().join(", "))
        });
        format!("{}: a circle of {circle:?}\n{}", room.root, ways.collect::<Vec<_>>().join("\n"))
    };
    circles(&imports).iter().map(fault).collect()
}

#[test]
fn no_module_joins_a_circle() {
    let all = sources();
    let found: Vec<_> = ROOTS.iter().flat_map(|root| faults(&Room::read(root, &all))).collect();
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}

#[test]
fn a_circle_is_found() {
    let files = |texts: &[(&str, &str)]| -> Vec<Source> {
        texts.iter().map(|(path, text)| Source::new(path, text)).collect()
    };
    let count = |texts: &[(&str, &str)]| faults(&Room::read("engine/src/wal", &files(texts))).len();
    let (a, b) = ("engine/src/wal/a.rs", "engine/src/wal/b.rs");
    let face = ("engine/src/wal/mod.rs", "mod a; mod b; pub use a::{One, Two};");
    let one_way = [face, (a, "use super::b::B;"), (b, "use crate::os::Os;")];
    assert_eq!(count(&one_way), 0);
    let both = [face, (a, "use super::b::B;"), (b, "use super::{c::C, a::A};")];
    assert_eq!(count(&both), 1);
    let by_face = [face, (a, "use super::b::B;"), (b, "fn f(x: crate::wal::Two) {}")];
    assert_eq!(count(&by_face), 1);
    let below = ("engine/src/wal/b/c.rs", "use super::super::a::A;");
    assert_eq!(count(&[face, (a, "use super::b::B;"), below]), 1);
    let own = ("engine/src/wal/b/c.rs", "use super::a::A;");
    assert_eq!(count(&[face, (a, "use super::b::B;"), own]), 0, "an `a` of its own");
    let in_comment = [face, (a, "use super::b::B;"), (b, "// super::a::A")];
    assert_eq!(count(&in_comment), 0);
    let room = "engine/src/db/rows";
    let inner = files(&[
        ("engine/src/db/rows/a.rs", "use crate::db::rows::b::B;"),
        ("engine/src/db/rows/b.rs", "use super::a::A;"),
    ]);
    assert_eq!(faults(&Room::read(room, &inner)).len(), 1, "of an inner room");
    let in_test = [face, (a, "use super::b::B;"), (b, "#[cfg(test)]\nmod tests { super::a }")];
    assert_eq!(count(&in_test), 0);
}
