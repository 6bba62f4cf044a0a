//! One header has what differs between server releases, and one table has the releases.

use std::fs;
use std::path::Path;

const TABLE: &str = include_str!("../src/cpp/server_compat.h");
const INSTALL: &str = include_str!("../../docs/install.md");

/// The first number of each line of the table.
fn releases() -> Vec<u32> {
    let table = TABLE.split_once("sluice_layouts[]= {").expect("the table").1;
    let rows = table.split_once("};").expect("its end").0.lines();
    let first = |line: &str| line.trim().strip_prefix('{')?.split(',').next()?.parse().ok();
    rows.filter_map(first).collect()
}

#[test]
fn releases_are_in_order_and_in_the_manual() {
    let releases = releases();
    assert!(!releases.is_empty() && releases.is_sorted(), "{releases:?}");
    for id in releases {
        let version = format!("{}.{}.{}", id / 10000, id / 100 % 100, id % 100);
        assert!(INSTALL.contains(&format!("| {version} |")), "docs/install.md has no {version}");
    }
}

#[test]
fn one_header_tests_the_version_of_the_server() {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/cpp");
    for file in fs::read_dir(sources).expect("the sources") {
        let path = file.expect("a file").path();
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        let text = fs::read_to_string(&path).expect("a source");
        let tests =
            text.lines().filter(|l| l.trim_start().starts_with("#if") && l.contains("VERSION"));
        assert!(name == "server_compat.h" || tests.count() == 0, "{name}: see server_compat.h");
    }
}

/// The first line of a release: pool, version of the packages, archive, the release that lends its source.
#[test]
fn each_release_has_its_files_and_a_lender_its_patch() {
    let releases_dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/lib/releases");
    let mut found = Vec::new();
    for file in fs::read_dir(&releases_dir).expect("the releases") {
        let path = file.expect("a file").path();
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        if name.ends_with(".patch") {
            continue;
        }
        let text = fs::read_to_string(&path).expect("a release");
        let first: Vec<_> = text.lines().next().expect("a line").split(' ').collect();
        assert!(first[2].starts_with(&format!("1:{name}")), "{name}: {first:?}");
        let has = |ending: &str| text.lines().skip(1).any(|line| line.ends_with(ending));
        let lender = first.get(4).copied().unwrap_or(&name);
        assert_eq!(has(".dsc"), lender == name, "{name}: its own source, or that of {lender}");
        assert_eq!(releases_dir.join(format!("{name}.patch")).exists(), lender != name, "{name}");
        assert!(releases_dir.join(lender).exists(), "{name}: no files of {lender}");
        let numbers = name.split('.').map(|n| n.parse::<u32>().expect("a number"));
        found.push(numbers.fold(0, |id, n| id * 100 + n));
    }
    found.sort();
    assert_eq!(found, releases());
}
