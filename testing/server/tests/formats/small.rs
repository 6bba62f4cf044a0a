//! Small directories of what checkouts before release 0.2.0 changed in the log: batches without gaps (decision 0048),
//! then the record that says how far the purge has come. The other directories show the formats of pages.

use crate::{kill_and_keep, site_of, unpack, ARCHIVE, CONTENT, KEY, KEYS};
use sluice_rig::tool::{built, run, says};
use sluice_server_tests::kinds;
use sluice_server_tests::scratch::{kept_formats, Scratch};
use sluice_server_tests::site::Site;
use std::fmt::Write;
use std::fs;
use std::process::Command;

/// With the versions of the log of all, without encryption and with it.
pub const DENSE: [(&str, u32); 2] = [("0.2.0-dense", 6), ("0.2.0-dense-encrypted", 7)];
pub const PURGED: [(&str, u32); 2] = [("0.2.0-purged", 8), ("0.2.0-purged-encrypted", 9)];
const ARCHIVE_BYTES_MAX: u64 = 180_000;

const TABLES: [&str; 4] = [
    "CREATE TABLE small.orders (id INT AUTO_INCREMENT PRIMARY KEY, customer INT NOT NULL, note VARCHAR(60), \
     KEY (customer), UNIQUE (note, id))",
    "CREATE TABLE small.longs (id INT PRIMARY KEY, t LONGTEXT, b LONGBLOB, KEY (t(20)))",
    "CREATE TABLE small.loaded (id INT PRIMARY KEY, v VARCHAR(1000), KEY (v(10)))",
    // Larger than the pool that it gets, images of 16 KiB, four rows in each.
    "CREATE TABLE small.scattered (id INT PRIMARY KEY, n INT, v VARCHAR(4000)) COMPRESSION=none",
];

/// The events of rows would be most of the archive.
const STATEMENTS: &str = "SET SESSION binlog_format = 'STATEMENT'";

const ROWS: [&str; 6] = [
    STATEMENTS,
    "INSERT INTO small.orders (customer, note) SELECT seq % 17, CONCAT('note ', seq % 50) FROM small.seq_1_to_300",
    "INSERT INTO small.longs SELECT seq, REPEAT(CHAR(96 + seq), seq * 9000), REPEAT('long', seq * 5000) \
     FROM small.seq_1_to_4",
    // The log goes on in its second segment.
    "INSERT INTO small.longs VALUES (5, 'segment', REPEAT('segment', 350000))",
    "SET SESSION sluice_bulk_insert_size = 1",
    "INSERT INTO small.loaded SELECT seq, REPEAT(CHAR(97 + seq % 4), 900) FROM small.seq_1_to_1300",
];

const CHANGES: [&str; 6] = [
    "UPDATE small.orders SET customer = customer + 100 WHERE id % 5 = 0",
    "DELETE FROM small.orders WHERE id BETWEEN 40 AND 49",
    "UPDATE small.longs SET t = CONCAT(t, 'end') WHERE id = 2",
    "DELETE FROM small.longs WHERE id = 4",
    "UPDATE small.loaded SET v = CONCAT('new ', v) WHERE id % 100 = 7",
    "ALTER TABLE small.orders ADD INDEX again (note, customer), ALGORITHM=INPLACE",
];

/// A change of 3300 bytes in each leaf of the table: they take more than memory for changes has, and images would
/// be dearer.
const DELTAS: [&str; 8] = [
    STATEMENTS,
    "SET GLOBAL sluice_page_deltas = ON",
    "SET SESSION sluice_bulk_insert_size = 1",
    "INSERT INTO small.scattered SELECT seq, seq, REPEAT('s', 3500) FROM small.seq_1_to_2950",
    "SET GLOBAL sluice_buffer_pool_size = 4 << 20",
    "UPDATE small.scattered SET v = REPEAT('a', 3300) WHERE id % 12 = 1",
    "UPDATE small.scattered SET n = n + 1000, v = REPEAT('b', 3300) WHERE id % 12 = 5",
    "UPDATE small.scattered SET n = n + 2000, v = REPEAT('c', 3300) WHERE id % 12 = 9",
];

const PREPARED: [&str; 3] = [
    "INSERT INTO small.orders (id, customer, note) VALUES (5000, 1, 'prepared')",
    "UPDATE small.longs SET b = REPEAT('prepared', 3000) WHERE id = 1",
    "DELETE FROM small.loaded WHERE id = 3",
];
const PREPARED_QUESTION: &str = "SELECT (SELECT note FROM small.orders WHERE id = 5000), \
     (SELECT LENGTH(b) FROM small.longs WHERE id = 1), (SELECT COUNT(*) FROM small.loaded WHERE id = 3)";

/// Work that has no end when the server is killed.
const OPEN: [&str; 4] = [
    "BEGIN",
    "UPDATE small.orders SET note = 'open' WHERE id < 30",
    "DELETE FROM small.loaded WHERE id > 1280",
    "INSERT INTO small.longs VALUES (100, REPEAT('o', 20000), REPEAT('p', 30000))",
];

const QUESTIONS: [&str; 7] = [
    "CHECKSUM TABLE small.orders, small.longs, small.loaded, small.scattered EXTENDED",
    "SELECT * FROM small.orders WHERE id % 10 = 0 ORDER BY id",
    "SELECT id FROM small.orders FORCE INDEX (customer) WHERE customer IN (3, 103) ORDER BY customer, id",
    "SELECT COUNT(*), SUM(id), MIN(note), MAX(note) FROM small.orders FORCE INDEX (again) WHERE note > ''",
    "SELECT id, LENGTH(t), MD5(t), LENGTH(b), MD5(b) FROM small.longs ORDER BY id",
    "SELECT id FROM small.loaded FORCE INDEX (v) WHERE v LIKE 'new%' ORDER BY id",
    "SELECT COUNT(*), SUM(n), SUM(LENGTH(v)), COUNT(DISTINCT v) FROM small.scattered",
];

fn content(site: &Site) -> String {
    let mut text = String::new();
    for question in QUESTIONS {
        writeln!(text, "> {question}").expect("a string");
        site.rows(question)
            .iter()
            .for_each(|r| writeln!(text, "{}", r.join("\t")).expect("a string"));
        text.push('\n');
    }
    text
}

#[track_caller]
fn make(site: &Site, with_deltas: bool) {
    site.run(&["CREATE DATABASE small DEFAULT CHARSET=latin1 COLLATE=latin1_swedish_ci"]);
    site.run(&TABLES);
    site.run(&ROWS);
    assert_eq!(site.status("Sluice_bulk_inserts"), 1);
    if with_deltas {
        site.run(&DELTAS);
        assert!(site.status("Sluice_buffer_pool_deltas") > 20, "deltas");
    }
    site.run(&["SET GLOBAL sluice_log_compression = 'zstd'"]);
    site.run(&CHANGES);
}

#[test]
#[ignore = "writes below testing/formats"]
fn keep_the_newest_format_small() {
    for (name, _) in PURGED {
        let kept = kept_formats().join(name);
        fs::create_dir_all(&kept).expect("a directory");
        let is_encrypted = name.ends_with("encrypted");
        if is_encrypted {
            fs::write(kept.join(KEYS), KEY).expect("a file of keys");
        }
        let scratch = Scratch::new("formats", &format!("keep {name}"));
        let mut site = site_of(&scratch, name);
        // The archive packs plain batches better than their own compression does, but not encrypted ones.
        let log = if is_encrypted { "zstd" } else { "none" };
        site.start(&["--sluice-compression=zstd", &format!("--sluice-log-compression={log}")]);
        make(&site, !is_encrypted);
        kill_and_keep(site, &OPEN, &PREPARED, content, &kept, ARCHIVE_BYTES_MAX);
    }
}

/// The program finds no damage in it.
fn is_sound(site: &Site, name: &str) {
    says("no damage found", &inspect(site, name, "verify"));
}

#[track_caller]
fn inspect(site: &Site, name: &str, what: &str) -> String {
    let mut inspect = Command::new(built("sluice").expect("the program"));
    inspect.arg("inspect").arg(site.data("sluice")).arg(what);
    let keys = kept_formats().join(name).join(KEYS);
    if keys.exists() {
        inspect.arg("--key-file").arg(keys);
    }
    run(&mut inspect).ok()
}

#[test]
fn small_directories_are_read() {
    for (name, _) in DENSE.into_iter().chain(PURGED) {
        let kept = kept_formats().join(name);
        let scratch = Scratch::new("formats", name);
        let mut site = site_of(&scratch, name);
        unpack(&kept.join(ARCHIVE), &site.data(""));
        is_sound(&site, name);
        let has_purged = inspect(&site, name, "log").contains("purged");
        assert_eq!(has_purged, PURGED.iter().any(|(purged, _)| *purged == name));
        site.start(&[]);
        site.does_not_say("[ERROR]");
        let recorded = fs::read_to_string(kept.join(CONTENT)).expect("the content");
        kinds::same(&content(&site), &recorded, "");
        kinds::check(&site, "small", "");
        if !name.ends_with("encrypted") {
            let reads = site.status("Sluice_buffer_pool_delta_reads");
            assert!(reads > 0, "no page needed a delta");
        }
        goes_on(&mut site);
        is_sound(&site, name);
    }
}

/// The prepared transaction is committed, tables change, and all of it outlives a crash.
fn goes_on(site: &mut Site) {
    assert_eq!(site.rows("XA RECOVER"), [["1", "4", "0", "kept"]]);
    site.run(&[
        "XA COMMIT 'kept'",
        "UPDATE small.loaded SET v = 'later' WHERE id % 50 = 0",
        "UPDATE small.scattered SET n = -1 WHERE id % 20 = 0",
        "UPDATE small.longs SET b = CONCAT(b, 'more') WHERE id = 3",
    ]);
    let before = content(site);
    let is_committed = |site: &Site| {
        assert_eq!(site.rows(PREPARED_QUESTION), [["prepared", "24000", "0"]]);
    };
    is_committed(site);
    site.kill();
    site.start(&[]);
    kinds::same(&content(site), &before, "");
    kinds::check(site, "small", "");
    is_committed(site);
    site.stop();
}
