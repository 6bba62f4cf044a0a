//! The files of earlier releases, as docs/format.md promises: the repository keeps a data directory of
//! each format, as a killed server left it, those of encrypted ones with their keys. This release opens
//! it, finds every row that was recorded, and goes on.
//!
//! `cargo test --release --workspace --test formats [NAME]`. Before a release with a new format, add it
//! to engine/src/base/formats.rs and run `... --test formats -- --ignored keep_the_newest_format`.

mod small;

use sluice_engine::base::checksum::checksum;
use sluice_engine::base::formats::{
    Release, CURRENT, ENCRYPTED, ENCRYPTED_TABLES, FORMATS, LOGS, STORES,
};
use sluice_server_tests::kinds;
use sluice_server_tests::scratch::{kept_formats, Scratch};
use sluice_server_tests::site::{done, Site};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const SMALL: [&str; 2] = ["--loose-sluice-log-capacity=16M", "--loose-sluice-buffer-pool-size=16M"];

const ARCHIVE: &str = "data.tar.xz";
const CONTENT: &str = "content.txt";
/// Of file_key_management, for an encrypted directory.
const KEYS: &str = "keys.txt";
const KEY: &str = "1;5b1e7c03f2a94d6688d0b7f1c3e52a94\n";
/// The archive is in the repository for ever.
const ARCHIVE_BYTES_MAX: u64 = 1_000_000;

/// What a prepared transaction does, and when it is committed one can see it here.
const PREPARED: [&str; 4] = [
    "INSERT INTO kinds.plain VALUES (500000, 'prepared')",
    "UPDATE kinds.packed SET v = 'prepared' WHERE id = 1",
    "DELETE FROM kinds.descending WHERE b = 3",
    "UPDATE kinds.longs SET t = REPEAT('prepared', 4000) WHERE id = 2",
];
const PREPARED_QUESTION: &str = "SELECT (SELECT v FROM kinds.plain WHERE id = 500000), \
     (SELECT v FROM kinds.packed WHERE id = 1), (SELECT COUNT(*) FROM kinds.descending WHERE b = 3), \
     (SELECT LENGTH(t) FROM kinds.longs WHERE id = 2)";

/// Work that has no end when the server is killed.
const OPEN: [&str; 4] = [
    "BEGIN",
    "UPDATE kinds.types SET c = 'open', vc = 'open' WHERE id < 30",
    "DELETE FROM kinds.parts",
    "INSERT INTO kinds.longs VALUES (100, REPEAT('o', 50000), REPEAT('p', 60000))",
];

#[track_caller]
fn content(site: &Site) -> String {
    format!("{}> GTID\n{}\n\n", kinds::content(site), site.value("SELECT @@gtid_binlog_pos"))
}

/// Sluice's files, the definitions of the tables, and the binlog.
fn pack(data: &Path, archive: &Path) {
    let names = fs::read_dir(data).expect("a data directory").flatten();
    let names = names.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let is_ours =
        |n: &String| ["sluice", "kinds", "small"].contains(&&**n) || n.starts_with("sluice-bin.");
    let ours = names.filter(is_ours);
    let mut tar = Command::new("tar");
    tar.args(["--exclude=sluice/lock", "--owner=root:0", "--group=root:0", "--sort=name"]);
    tar.args(["--use-compress-program=xz -9", "-cf"]).arg(archive).arg("-C").arg(data);
    assert!(tar.args(ours).status().is_ok_and(|s| s.success()), "packing {}", data.display());
}

fn unpack(archive: &Path, data: &Path) {
    let mut tar = Command::new("tar");
    tar.args(["--no-same-owner", "-xJf"]).arg(archive).arg("-C").arg(data);
    assert!(tar.status().is_ok_and(|s| s.success()), "unpacking {}", archive.display());
}

/// The directories of testing/formats by their names.
fn kept() -> Vec<String> {
    let plain = FORMATS.iter().map(|format| format.since.to_string());
    plain.chain([encrypted(), encrypted_tables()]).collect()
}

fn encrypted() -> String {
    format!("{}-encrypted", ENCRYPTED.since)
}

fn encrypted_tables() -> String {
    format!("{}-encrypted-tables", ENCRYPTED_TABLES.since)
}

/// Versions in the log's control file of all directories, as docs/format.md has them.
fn log_versions() -> BTreeMap<String, u32> {
    let small = small::DENSE.into_iter().chain(small::PURGED);
    let [tables, all] = [encrypted_tables(), encrypted()];
    let older = [("0.1.0".into(), 1), ("0.2.0".into(), 2), (all, 3), (tables, 3)];
    older.into_iter().chain(small.map(|(name, version)| (name.into(), version))).collect()
}

#[test]
fn each_directory_has_the_log_that_it_is_kept_for() {
    let dirs = fs::read_dir(kept_formats()).expect("a directory").flatten();
    let found = dirs.map(|entry| {
        let name = entry.file_name().to_string_lossy().into_owned();
        let mut tar = Command::new("tar");
        tar.arg("-xJOf").arg(entry.path().join(ARCHIVE)).arg("sluice/log/control");
        let control = tar.output().expect("tar").stdout;
        (name, u32::from_le_bytes(control[8..12].try_into().expect("four bytes")))
    });
    assert_eq!(found.collect::<BTreeMap<_, _>>(), log_versions());
}

/// A server for the directory of this name.
fn site_of(scratch: &Scratch, name: &str) -> Site {
    let keys = kept_formats().join(name).join(KEYS);
    let file = format!("--file-key-management-filename={}", keys.display());
    let scope = if name == encrypted_tables() { "TABLES" } else { "ON" };
    let encrypt = format!("--sluice-encrypt={scope}");
    let with_keys = [
        "--plugin-load-add=file_key_management",
        &file,
        &encrypt,
        // An archive cannot pack encrypted bytes.
        "--sluice-compression=zstd",
        "--sluice-log-compression=zstd",
    ];
    let with_keys = if keys.exists() { &with_keys[..] } else { &[] };
    Site::new(scratch, "d", "Sluice", &[&SMALL[..], with_keys].concat())
}

#[test]
#[ignore = "writes below testing/formats"]
fn keep_the_newest_format() {
    keep(&CURRENT.since.to_string());
}

#[test]
#[ignore = "writes below testing/formats"]
fn keep_the_newest_format_encrypted() {
    for name in [encrypted(), encrypted_tables()] {
        let kept = kept_formats().join(&name);
        fs::create_dir_all(&kept).expect("a directory");
        fs::write(kept.join(KEYS), KEY).expect("a file of keys");
        keep(&name);
    }
}

#[track_caller]
fn keep(name: &str) {
    let kept = kept_formats().join(name);
    fs::create_dir_all(&kept).expect("a directory");
    let scratch = Scratch::new("formats", &format!("keep {name}"));
    let mut site = site_of(&scratch, name);
    site.start(&[]);
    kinds::make(&site);
    if name == encrypted_tables() {
        site.run(&["ALTER TABLE kinds.words ENCRYPTED=YES"]);
    }
    site.stop();
    site.start(&[]);
    kinds::change(&site);
    kill_and_keep(site, &OPEN, &PREPARED, content, &kept, ARCHIVE_BYTES_MAX);
}

/// With a transaction that has no end and a prepared one.
#[track_caller]
fn kill_and_keep(
    mut site: Site,
    open: &[&str],
    prepared: &[&str],
    content: fn(&Site) -> String,
    kept: &Path,
    bytes_max: u64,
) {
    let mut without_end = site.client();
    for sql in open {
        done(without_end.run(sql), sql);
    }
    let (begin, end) = (["XA START 'kept'"], ["XA END 'kept'", "XA PREPARE 'kept'"]);
    site.run(&[&begin, prepared, &end].concat());
    let content = content(&site);
    site.wait_until_log_is_durable();
    site.kill();
    pack(&site.data(""), &kept.join(ARCHIVE));
    fs::write(kept.join(CONTENT), content).expect("the content");
    let bytes = fs::metadata(kept.join(ARCHIVE)).expect("an archive").len();
    assert!(bytes < bytes_max, "{bytes} bytes are too many for the repository");
}

#[test]
fn kept_directories_are_read() {
    for name in kept() {
        let kept = kept_formats().join(&name);
        let scratch = Scratch::new("formats", &name);
        let mut site = site_of(&scratch, &name);
        unpack(&kept.join(ARCHIVE), &site.data(""));
        let recorded = fs::read_to_string(kept.join(CONTENT)).expect("the content");
        site.start(&[]);
        site.does_not_say("[ERROR]");
        // 10.11 made it.
        let is_newer = !site.value("SELECT VERSION()").starts_with("10.11.");
        let left_out = if is_newer { kinds::HISTORY } else { "" };
        kinds::same(&content(&site), &recorded, left_out);
        kinds::check(&site, "kinds", left_out);
        goes_on(&mut site, left_out);
    }
}

/// The prepared transaction is committed, tables change, and all of it outlives a crash.
#[track_caller]
fn goes_on(site: &mut Site, left_out: &str) {
    assert_eq!(site.rows("XA RECOVER"), [["1", "4", "0", "kept"]]);
    site.run(&[
        "XA COMMIT 'kept'",
        "UPDATE kinds.types SET su = id, vc = CONCAT('again ', vc)",
        "UPDATE kinds.longs SET b = CONCAT(b, 'more') WHERE id = 3",
        "ALTER TABLE kinds.inplace DROP INDEX b, ADD INDEX again (b, a), ALGORITHM=INPLACE",
        "ALTER TABLE kinds.no_key FORCE",
        "INSERT INTO kinds.inplace (a, b) VALUES (1, 'later')",
    ]);
    let next = site.value("SELECT id FROM kinds.inplace WHERE b = 'later'");
    assert_eq!(next, "601", "an AUTO_INCREMENT value is used once, also that of a deleted row");
    let before = content(site);
    assert_eq!(site.rows(PREPARED_QUESTION), [["prepared", "prepared", "0", "32000"]]);
    site.kill();
    site.start(&[]);
    kinds::same(&content(site), &before, "");
    kinds::check(site, "kinds", left_out);
    assert_eq!(site.rows(PREPARED_QUESTION), [["prepared", "prepared", "0", "32000"]]);
    site.stop();
}

/// Sound blocks that a later release made (docs/format.md).
fn made_later(file: &Path, is_log: bool) {
    let mut bytes = fs::read(file).expect("a file");
    for block in bytes.chunks_mut(4096) {
        let read = if is_log { LOGS } else { STORES };
        block[8] = *read.end() as u8 + 1;
        let since = Release(0, 9, 0).to_u32().to_le_bytes();
        if is_log {
            block[12..16].copy_from_slice(&since);
            let magic = u32::from_le_bytes(block[..4].try_into().expect("four bytes"));
            let check = checksum(magic, &block[8..40]);
            block[4..8].copy_from_slice(&check.to_le_bytes());
        } else {
            block[4092..].copy_from_slice(&since);
            let check = checksum(checksum(0, &block[..12]), &block[16..]);
            block[12..16].copy_from_slice(&check.to_le_bytes());
        }
    }
    fs::write(file, bytes).expect("a file");
}

/// Sluice's files but the lock.
fn files(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for dir in [dir.to_path_buf(), dir.join("log")] {
        let paths = fs::read_dir(dir).expect("a directory").flatten().map(|entry| entry.path());
        for path in paths.filter(|path| path.is_file() && !path.ends_with("lock")) {
            let bytes = fs::read(&path).expect("a file");
            found.insert(path, bytes);
        }
    }
    found
}

/// After a start of that release the log is newer, after its first checkpoint the superblock is.
#[test]
fn files_of_a_later_release_are_left_alone() {
    for (name, is_log) in [("sluice/log/control", true), ("sluice/superblock", false)] {
        let scratch = Scratch::new("formats", "files_of_a_later_release_are_left_alone");
        let mut site = Site::new(&scratch, "d", "Sluice", &SMALL);
        unpack(&kept_formats().join(CURRENT.since.to_string()).join(ARCHIVE), &site.data(""));
        let sluice = site.data("sluice");
        made_later(&site.data(name), is_log);
        let before = files(&sluice);
        site.refuses("was made by a newer Sluice", &[]);
        site.says("Start release 0.9.0 or a later one");
        assert!(files(&sluice) == before, "{name}: the refused start has changed files");
    }
}
