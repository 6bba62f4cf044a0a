//! No string that users wrote is to be read in any file of a server that encrypts all it can: not below
//! its data directory, in Sluice's log, in the binary logs, in temporary files while statements use
//! them, nor in a backup. A server that encrypts nothing shows that the search finds each of these.

use crate::{write_keys, Case, KEY, NEEDLE, SMALL};
use sluice_rig::tool::{run, wait};
use sluice_server_tests::scratch::Scratch;
use sluice_server_tests::site::{done, Site};
use sluice_server_tests::{wait_until, PATIENCE};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::thread::JoinHandle;

/// Rows whose keys an index build does not sort in memory.
const ROWS: usize = 120_000;
/// An index build may be done with its file before the server stands still.
const BUILDS_MAX: usize = 10;
const CHUNK_BYTES: usize = 1 << 20;
const NAMELESS: &str = "a file without a name";
/// Compression would hide the string where encryption does not.
const UNPACKED: [&str; 2] = ["--sluice-compression=none", "--sluice-log-compression=none"];
/// Everything that the server can encrypt, but for tables of InnoDB.
const ENCRYPTED: [&str; 5] = [
    "--sluice-encrypt=ON",
    "--encrypt-binlog=ON",
    "--encrypt-tmp-files=ON",
    "--encrypt-tmp-disk-tables=ON",
    "--aria-encrypt-tables=ON",
];
/// Tables that the server makes in `tmpdir` for a statement are plain there, whatever its
/// encrypt_tmp_disk_tables says (10.11.18, also for tables of InnoDB): docs/security.md.
const KNOWN: (&str, &str) = ("group", "d/tmp/");
/// Statements with temporary files of the server. Each waits for a user lock while it has them.
const USERS_OF_TMPDIR: [(&str, &[&str]); 4] = [
    (
        "sort",
        &[
            "SET sort_buffer_size = 65536",
            "SELECT a, IF(a = 77777, GET_LOCK('hold', 100), 0) FROM w.big ORDER BY b",
        ],
    ),
    (
        "group",
        &[
            "SET tmp_memory_table_size = 0",
            "SELECT COUNT(*) FROM (SELECT b, MIN(a) m FROM w.big GROUP BY b) x \
             WHERE IF(m = 77, GET_LOCK('hold', 100), 1)",
        ],
    ),
    (
        "transaction",
        &[
            "SET binlog_format = ROW",
            "BEGIN",
            "INSERT INTO w.big SELECT a + 1000000, b FROM w.big LIMIT 20000",
            "DO GET_LOCK('hold', 100)",
            "ROLLBACK",
        ],
    ),
    (
        "temporary table",
        &[
            "CREATE TEMPORARY TABLE w.of_aria ENGINE=Aria SELECT * FROM w.big LIMIT 20000",
            "DO GET_LOCK('hold', 100)",
        ],
    ),
];

fn holds(bytes: &[u8], wanted: &[u8]) -> bool {
    let (first, rest) = wanted.split_first().expect("a string to be found");
    let is_here = |(at, byte)| byte == first && bytes[at + 1..].starts_with(rest);
    bytes.iter().enumerate().any(is_here)
}

fn file_holds(path: &Path, wanted: &str) -> bool {
    // It may have gone since the directory was listed.
    let Ok(mut file) = File::open(path) else { return false };
    let (mut bytes, mut kept) = (vec![0; CHUNK_BYTES], 0);
    loop {
        let read = file.read(&mut bytes[kept..]).expect("a file");
        let known = kept + read;
        if read == 0 || holds(&bytes[..known], wanted.as_bytes()) {
            return read > 0;
        }
        // The string may begin here and end in the bytes that are read next.
        kept = known.min(wanted.len() - 1);
        bytes.copy_within(known - kept..known, 0);
    }
}

/// All files below a directory.
fn walk(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
    entries.flat_map(|path| if path.is_dir() { walk(&path) } else { vec![path] }).collect()
}

/// Files that the server has open and that have no name any more.
fn nameless(site: &Site) -> Vec<PathBuf> {
    let is_nameless = |path: &PathBuf| {
        let name = fs::read_link(path).unwrap_or_default();
        name.to_string_lossy().ends_with(" (deleted)")
            && fs::metadata(path).is_ok_and(|found| found.is_file())
    };
    walk(Path::new(&format!("/proc/{}/fd", site.pid()))).into_iter().filter(is_nameless).collect()
}

fn total_bytes(files: &[PathBuf]) -> u64 {
    files.iter().map(|path| fs::metadata(path).map_or(0, |found| found.len())).sum()
}

/// A session that runs statements.
fn begin(site: &Site, statements: &[&str]) -> JoinHandle<()> {
    let mut client = site.patient_client(PATIENCE);
    let statements: Vec<String> = statements.iter().map(|sql| sql.to_string()).collect();
    std::thread::spawn(move || {
        for sql in statements {
            done(client.run(&sql), &sql);
        }
    })
}

/// A server whose files lie in directories of their own: data, log, binlogs, tmp.
struct Hunt {
    case: Case,
    options: Vec<String>,
    /// Where the string is to be read: at which moment, and in which file.
    found: BTreeSet<(String, String)>,
}

impl Hunt {
    fn new(name: &str, options: &[&str]) -> Hunt {
        let scratch = Scratch::new("encryption", name);
        let keys = scratch.path("keys.txt");
        write_keys(&keys, KEY);
        let sizes = [
            "--loose-sluice-log-capacity=64M",
            "--innodb-log-file-size=8M",
            // Otherwise pages of temporary tables stay in memory.
            "--aria-pagecache-buffer-size=1M",
        ];
        let d = Site::new(&scratch, "d", "Sluice", &[&SMALL[..], &sizes, &UNPACKED].concat());
        let case = Case { d, keys, scratch };
        let at = |name: &str| case.scratch.path("d").join(name);
        for name in ["log", "binlogs", "tmp"] {
            fs::create_dir(at(name)).expect("a new directory");
        }
        let mut all = case.with_keys().to_vec();
        all.extend(options.iter().map(|option| option.to_string()));
        all.push(format!("--sluice-log-dir={}", at("log").display()));
        all.push(format!("--log-bin={}", at("binlogs/bin").display()));
        all.push(format!("--tmpdir={}", at("tmp").display()));
        Hunt { case, options: all, found: BTreeSet::new() }
    }

    fn start(&mut self) {
        let options: Vec<&str> = self.options.iter().map(String::as_str).collect();
        self.case.d.start(&options);
    }

    fn search_in(&self, files: &[PathBuf], wanted: &str) -> Vec<String> {
        let root = self.case.scratch.path("");
        let name = |path: &PathBuf| match path.strip_prefix(&root) {
            Ok(name) => name.display().to_string(),
            Err(_) => NAMELESS.into(),
        };
        files.iter().filter(|path| file_holds(path, wanted)).map(name).collect()
    }

    fn keep(&mut self, moment: &str, found: Vec<String>) {
        self.found.extend(found.into_iter().map(|name| (moment.to_owned(), name)));
    }

    /// In everything below the directory of the test.
    fn search(&mut self, moment: &str) {
        let found = self.search_in(&walk(&self.case.scratch.path("")), NEEDLE);
        self.keep(moment, found);
    }

    fn write(&self) {
        self.case.write();
        self.case.d.run(&[
            "CREATE TABLE w.big (a INT PRIMARY KEY, b VARBINARY(300))",
            &format!(
                "INSERT INTO w.big SELECT seq, \
                     CONCAT('{NEEDLE} ', seq * 7919 % 100003, REPEAT('x', 150)) \
                 FROM w.seq_1_to_{ROWS}"
            ),
        ]);
    }

    /// While one of these waits for the user lock.
    fn search_during(&mut self, moment: &str, statements: &[&str]) {
        let mut holder = self.case.d.client();
        // The session before may still be on its way out with the lock.
        let taken: Vec<i64> = done(holder.rows("SELECT GET_LOCK('hold', 100)"), "a lock");
        assert_eq!(taken, [1]);
        let session = begin(&self.case.d, statements);
        let waiters =
            "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE STATE = 'User lock'";
        wait_until(moment, || session.is_finished() || self.case.d.value(waiters) == "1");
        assert!(!session.is_finished(), "{moment}: nothing waits");
        let (files, found) = self.case.d.frozen(|| {
            let mut files = walk(&self.case.scratch.path("d/tmp"));
            files.extend(nameless(&self.case.d));
            let found = self.search_in(&files, NEEDLE);
            (files, found)
        });
        assert!(total_bytes(&files) > 0, "{moment}: no temporary file has a byte");
        self.keep(moment, found);
        done(holder.run("DO RELEASE_LOCK('hold')"), "a lock");
        session.join().expect("statements");
    }

    /// Files in which an index build sorts.
    fn sorted(&self) -> Vec<PathBuf> {
        let is_one = |path: &PathBuf| path.to_string_lossy().contains("/sort-");
        walk(&self.case.d.data("sluice")).into_iter().filter(is_one).collect()
    }

    fn search_during_build(&mut self) {
        for _ in 0..BUILDS_MAX {
            let session = begin(&self.case.d, &["CREATE INDEX k ON w.big (b)"]);
            wait_until("a build", || session.is_finished() || total_bytes(&self.sorted()) > 0);
            let (bytes, found) = self.case.d.frozen(|| {
                let files = self.sorted();
                (total_bytes(&files), self.search_in(&files, NEEDLE))
            });
            session.join().expect("statements");
            self.case.d.run(&["DROP INDEX k ON w.big"]);
            if bytes > 0 {
                return self.keep("index", found);
            }
        }
        panic!("no file of an index build was seen");
    }

    fn backup(&self, to: &str) -> std::process::Command {
        let mut command = self.case.program();
        let address = format!("mysql://root@localhost/?socket={}", self.case.d.socket().display());
        command.args(["backup", &address, "--only-sluice", "--to", to]);
        command.arg(format!("--key-file={}", self.case.keys.display()));
        command
    }

    /// A directory, a stream, and what is restored from one.
    fn back_up(&self) {
        let path = |name: &str| self.case.scratch.path(name);
        run(&mut self.backup(&path("copy").display().to_string())).ok();
        let stream = File::create(path("stream")).expect("a file");
        let mut command = self.backup("-");
        let child = command.stdin(Stdio::null()).stdout(stream).stderr(Stdio::piped()).spawn();
        wait(child.expect("a child")).ok();
        let mut restore = self.case.program();
        restore.args(["restore", "--from"]).arg(path("stream")).arg("--to").arg(path("restored"));
        run(restore.arg(format!("--key-file={}", self.case.keys.display()))).ok();
    }

    /// The life of a server, and searches in it.
    fn run(&mut self) {
        self.start();
        self.write();
        for (moment, statements) in USERS_OF_TMPDIR {
            self.search_during(moment, statements);
        }
        self.search_during_build();
        self.back_up();
        self.search("at work");
        self.case.d.wait_until_log_is_durable();
        self.case.d.kill();
        self.search("killed");
        self.start();
        self.case.roll_back_prepared();
        self.case.d.stop();
        self.search("stopped");
    }
}

#[test]
fn no_known_string_is_to_be_read_in_any_file() {
    let mut plain = Hunt::new("all-plain", &[]);
    plain.run();
    let places = [
        ("index", "d/data/sluice/sort-"),
        ("sort", NAMELESS),
        KNOWN,
        ("transaction", NAMELESS),
        ("temporary table", "d/tmp/"),
        ("at work", "d/data/sluice/pages"),
        ("at work", "d/log/"),
        ("at work", "d/binlogs/bin."),
        ("at work", "copy/data/sluice/pages"),
        ("at work", "copy/data/sluice/log/"),
        ("at work", "stream"),
        ("at work", "restored/sluice/pages"),
        ("killed", "d/data/sluice/pages"),
        ("stopped", "d/data/sluice/pages"),
    ];
    let is_in = |(moment, place): (&str, &str), found: &(String, String)| {
        found.0 == moment && found.1.starts_with(place)
    };
    for place in places {
        let found = plain.found.iter().any(|found| is_in(place, found));
        assert!(found, "{place:?} is not in {:?}", plain.found);
    }
    drop(plain);
    let mut encrypted = Hunt::new("all-encrypted", &ENCRYPTED);
    encrypted.run();
    encrypted.found.retain(|found| !is_in(KNOWN, found));
    assert_eq!(encrypted.found, BTreeSet::new());
}

/// Each string with the files, and their ends, in which it is to be read all the same.
const PLAIN: [(&str, &str, &[&str]); 6] = [
    (
        "a default of a column",
        "CREATE TABLE w.defaults (a INT PRIMARY KEY, b VARCHAR(99) DEFAULT 'a default of a column')",
        &["d/data/w/defaults.frm"],
    ),
    (
        "a row of an engine that is not told to encrypt",
        "CREATE TABLE w.other ENGINE=InnoDB AS \
         SELECT 'a row of an engine that is not told to encrypt' a FROM seq_1_to_99",
        &["d/data/ib_logfile0", "d/data/w/other.ibd"],
    ),
    (
        "a text of a trigger",
        "CREATE TRIGGER w.tr BEFORE INSERT ON w.defaults FOR EACH ROW SET NEW.b = 'a text of a trigger'",
        &["d/data/w/defaults.TRG"],
    ),
    (
        "a text of a view",
        "CREATE VIEW w.v AS SELECT 'a text of a view' a",
        &["d/data/w/v.frm"],
    ),
    (
        "a text of a procedure",
        "CREATE PROCEDURE w.pr() SELECT 'a text of a procedure'",
        &["d/data/aria_log.00000001", "d/data/mysql/proc.MAD"],
    ),
    (
        "a value in statistics",
        "ANALYZE TABLE w.counted PERSISTENT FOR ALL",
        &["d/data/mysql/column_stats.MAD"],
    ),
];

/// docs/security.md has this list.
#[test]
fn plain_files_beside_encrypted_ones_are_known() {
    let mut hunt = Hunt::new("known-plain", &ENCRYPTED);
    hunt.start();
    hunt.case.d.run(&[
        "CREATE DATABASE w",
        "CREATE TABLE w.counted (a INT PRIMARY KEY, b VARCHAR(99))",
        "INSERT INTO w.counted SELECT seq, CONCAT('a value in statistics ', seq) FROM w.seq_1_to_99",
    ]);
    let mut client = hunt.case.d.client();
    done(client.run("USE w"), "USE");
    for (_, sql, _) in PLAIN {
        done(client.run(sql), sql);
    }
    hunt.case.d.stop();
    let files = walk(&hunt.case.scratch.path(""));
    for (wanted, _, places) in PLAIN {
        let mut found = hunt.search_in(&files, wanted);
        found.sort();
        println!("{wanted}: {found:?}");
        assert_eq!(found, places, "{wanted}");
    }
}
