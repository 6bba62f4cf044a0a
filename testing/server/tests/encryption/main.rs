//! Encryption at rest with file_key_management: nothing that users wrote is to be read below `sluice/`, and
//! no start without the right key changes a file.
//!
//! `cargo test --release --workspace --test encryption [NAME]`, after `make build`.

mod plaintext;

use sluice_rig::tool::{is_silent_about, run, says, spawn, wait};
use sluice_server_tests::scratch::Scratch;
use sluice_server_tests::site::Site;
use sluice_server_tests::wait_until;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

const SMALL: [&str; 2] = ["--loose-sluice-log-capacity=16M", "--loose-sluice-buffer-pool-size=16M"];
/// A checkpoint is due after half a minute.
const KEYS_WAIT_MAX: Duration = Duration::from_secs(120);
const NEEDLE: &str = "a secret of somebody";
const KEY: &str = "770a8a65da156d24ee2a093277530142";
const OTHER_KEY: &str = "18420b5cbe31cca43c7d8a2ff59d2a5d";
const THIRD_KEY: &str = "26f0c4a1d9e35b7882b6e0a94c1f7d53";

struct Case {
    d: Site,
    keys: PathBuf,
    scratch: Scratch,
}

fn write_keys(path: &Path, key: &str) {
    fs::write(path, format!("1;{key}\n")).expect("a file of keys");
}

impl Case {
    fn new(name: &str) -> Case {
        let scratch = Scratch::new("encryption", name);
        let keys = scratch.path("keys.txt");
        write_keys(&keys, KEY);
        let d = Site::new(&scratch, "d", "Sluice", &SMALL);
        Case { d, keys, scratch }
    }

    fn with_keys(&self) -> [String; 2] {
        let file = format!("--file-key-management-filename={}", self.keys.display());
        ["--plugin-load-add=file_key_management".into(), file]
    }

    fn start(&mut self, more: &[&str]) {
        let keys = self.with_keys();
        let options: Vec<&str> =
            keys.iter().map(String::as_str).chain(more.iter().copied()).collect();
        self.d.start(&options);
    }

    fn refuses(&mut self, why: &str, options: &[&str]) {
        let before = files(&self.d.data("sluice"));
        self.d.refuses(why, options);
        assert!(files(&self.d.data("sluice")) == before, "{why}: the refused start changed files");
    }

    fn write(&self) {
        self.write_with("");
    }

    /// `options`: of the table.
    fn write_with(&self, options: &str) {
        self.d.run(&[
            "CREATE DATABASE w",
            &format!("CREATE TABLE w.t (a INT PRIMARY KEY, b VARCHAR(200), c LONGTEXT, KEY (b)) {options}"),
            &format!("INSERT INTO w.t SELECT seq, CONCAT('{NEEDLE} ', seq), REPEAT('{NEEDLE}', seq % 9 * 300) \
                      FROM w.seq_1_to_3000"),
            "FLUSH ENGINE LOGS",
            &format!("UPDATE w.t SET b = CONCAT(a, ' {NEEDLE}') WHERE a < 500"),
            "ALTER TABLE w.t ADD KEY other (c(60))",
            &format!("XA START '{NEEDLE}'"),
            &format!("INSERT INTO w.t VALUES (10000, '{NEEDLE}', NULL)"),
            &format!("XA END '{NEEDLE}'"),
            &format!("XA PREPARE '{NEEDLE}'"),
        ]);
    }

    /// The session that prepared it may still be on its way out: until then nobody else knows the XID.
    fn roll_back_prepared(&self) {
        let others = "SELECT COUNT(*) FROM information_schema.PROCESSLIST \
                      WHERE ID <> CONNECTION_ID() AND COMMAND <> 'Daemon'";
        let until = Instant::now() + Duration::from_secs(20);
        while self.d.value(others) != "0" && Instant::now() < until {
            sleep(Duration::from_millis(20));
        }
        self.d.run(&[&format!("XA ROLLBACK '{NEEDLE}'")]);
    }

    fn sum(&self) -> String {
        sum(&self.d)
    }

    /// Files below `sluice/` in which the needle is to be read.
    fn bare(&self) -> Vec<String> {
        let has = |bytes: &[u8]| bytes.windows(NEEDLE.len()).any(|part| part == NEEDLE.as_bytes());
        let found = files(&self.d.data("sluice")).into_iter().filter(|(_, bytes)| has(bytes));
        found.map(|(path, _)| path.display().to_string()).collect()
    }

    fn program(&self) -> Command {
        Command::new(sluice_rig::tool::built("sluice").expect("the program"))
    }
}

fn sum(site: &Site) -> String {
    site.value(
        "SELECT CONCAT(COUNT(*), ' ', SUM(a), ' ', SUM(LENGTH(b)), ' ', SUM(LENGTH(c))) FROM w.t",
    )
}

/// Names and content.
fn files(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(dir).expect("a directory").flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            found.insert(path.clone(), fs::read(&path).expect("a file"));
        }
    }
    found
}

#[test]
fn no_known_string_is_to_be_read_after_a_kill() {
    let mut plain = Case::new("plain");
    plain.start(&["--sluice-compression=none", "--sluice-log-compression=none"]);
    plain.write();
    plain.d.wait_until_log_is_durable();
    plain.d.kill();
    assert!(!plain.bare().is_empty(), "the search finds nothing where all is to be read");

    for compression in ["none", "lz4"] {
        let mut case = Case::new(&format!("hidden-{compression}"));
        let options = [
            "--sluice-encrypt=ON".to_string(),
            format!("--sluice-compression={compression}"),
            format!("--sluice-log-compression={compression}"),
        ];
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        case.start(&options);
        case.write();
        let before = case.sum();
        case.d.wait_until_log_is_durable();
        case.d.kill();
        assert_eq!(case.bare(), Vec::<String>::new());
        case.start(&options);
        case.d.does_not_say("[ERROR]");
        assert_eq!(case.sum(), before);
        case.roll_back_prepared();
        let checked = case.d.rows("CHECK TABLE w.t EXTENDED");
        assert_eq!(checked[0][3], "OK", "{checked:?}");
        case.d.stop();
        assert_eq!(case.bare(), Vec::<String>::new());
    }
}

#[test]
fn a_start_without_the_key_is_refused_and_changes_nothing() {
    let mut case = Case::new("refused");
    case.start(&["--sluice-encrypt=ON"]);
    case.write();
    let before = case.sum();
    case.d.wait_until_log_is_durable();
    case.d.kill();
    case.refuses("encryption is on, but there is no key 1", &["--sluice-encrypt=ON"]);
    case.refuses("key 1 version 1 is needed and is not there", &[]);
    write_keys(&case.keys, OTHER_KEY);
    let keys = case.with_keys();
    let options = [&keys[0][..], &keys[1], "--sluice-encrypt=ON"];
    case.refuses("key 1 version 1 is not the one that the files were encrypted with", &options);
    write_keys(&case.keys, KEY);
    // Off again: what is there is read.
    case.start(&[]);
    assert_eq!(case.sum(), before);
    case.d.stop();
}

impl Case {
    /// Waits until a start needs no key but the one in use, if there is one.
    fn wait_for_keys(&self) {
        let until = Instant::now() + KEYS_WAIT_MAX;
        while self.status("old_keys_needed") != "0" {
            let text = || self.d.rows("SHOW ENGINE SLUICE STATUS")[0][2].clone();
            assert!(Instant::now() < until, "old keys stay needed:\n{}", text());
            sleep(Duration::from_millis(200));
        }
    }

    fn status(&self, name: &str) -> String {
        self.d.value(&format!(
            "SELECT VARIABLE_VALUE FROM information_schema.GLOBAL_STATUS \
             WHERE VARIABLE_NAME = 'Sluice_encryption_{name}'"
        ))
    }
}

/// file_key_management has one version of each key, so another key stands for a new version here.
#[test]
fn pages_get_another_key_in_the_background_and_the_old_one_may_go() {
    let mut case = Case::new("rotation");
    case.start(&[]);
    case.write();
    case.roll_back_prepared();
    let before = case.sum();
    case.d.stop();

    fs::write(&case.keys, format!("1;{KEY}\n2;{OTHER_KEY}\n")).expect("a file of keys");
    case.start(&["--sluice-encrypt=ON", "--sluice-encryption-rotate-key-age=0"]);
    assert_eq!(case.status("old_keys_needed"), "1", "pages are plain, and 0 leaves them so");
    case.d.run(&["SET GLOBAL sluice_encryption_rotate_key_age = 1"]);
    case.wait_for_keys();
    assert_ne!(case.status("rewritten_pages"), "0");
    assert_eq!(case.status("oldest_key_version"), "1");
    case.d.run(&["UPDATE w.t SET b = CONCAT('x', b) WHERE a < 100"]);
    let more = case.sum();
    case.d.wait_until_log_is_durable();
    case.d.kill();

    case.start(&["--sluice-encrypt=ON", "--sluice-encryption-key-id=2"]);
    assert_eq!(case.sum(), more);
    case.wait_for_keys();
    case.d.kill();
    // The plugin wants some key 1.
    fs::write(&case.keys, format!("1;{THIRD_KEY}\n2;{OTHER_KEY}\n")).expect("a file of keys");
    case.start(&["--sluice-encrypt=ON", "--sluice-encryption-key-id=2"]);
    assert_eq!(case.sum(), more);
    assert_ne!(more, before);
    assert_eq!(case.d.rows("CHECK TABLE w.t EXTENDED")[0][3], "OK");
    case.d.stop();

    case.refuses("key 2 version 1 is needed and is not there", &[]);
    case.start(&[]);
    case.wait_for_keys();
    case.d.stop();
    case.d.start(&[]);
    assert_eq!(case.sum(), more);
    case.d.stop();
}

/// The server's own plugin for tests has versions, which change while it runs.
#[test]
fn a_new_version_of_the_key_reaches_all_pages_while_the_server_runs() {
    let mut case = Case::new("versions");
    let start = |case: &mut Case, version: &str| {
        let version = format!("--debug-key-management-version={version}");
        let load = "--plugin-load-add=debug_key_management";
        case.d.start(&[load, &version, "--sluice-encrypt=ON"]);
    };
    start(&mut case, "3");
    case.write();
    case.wait_for_keys();
    let before = case.sum();
    assert_eq!(
        (case.status("key_version"), case.status("rewritten_pages")),
        ("3".into(), "0".into())
    );
    case.d.run(&["SET GLOBAL debug_key_management_version = 7"]);
    let until = Instant::now() + KEYS_WAIT_MAX;
    while case.status("key_version") != "7" {
        assert!(Instant::now() < until, "the new version is not seen");
        sleep(Duration::from_millis(50));
    }
    // The prepared transaction needs log from before.
    assert_eq!(case.status("old_keys_needed"), "1");
    case.roll_back_prepared();
    case.wait_for_keys();
    assert_eq!(case.status("oldest_key_version"), "7");
    assert_ne!(case.status("rewritten_pages"), "0");
    case.d.kill();
    start(&mut case, "7");
    assert_eq!(case.sum(), before);
    assert_eq!(case.bare(), Vec::<String>::new());
    case.d.stop();
}

#[test]
fn a_backup_needs_the_keys_to_be_verified_and_restored() {
    let mut case = Case::new("backup");
    case.start(&["--sluice-encrypt=ON"]);
    case.write();
    let address = format!("mysql://root@localhost/?socket={}", case.d.socket().display());
    let keys = format!("--key-file={}", case.keys.display());
    let to = case.scratch.path("copy");
    let backup = |options: &[&str]| {
        let mut command = case.program();
        run(command.args(["backup", &address, "--only-sluice", "--to"]).arg(&to).args(options))
    };
    backup(&[]).refuses("give --key-file or --no-verify");
    backup(&[&keys]).ok();
    // The images of an increment are verified as they are.
    case.d.run(&[&format!("UPDATE w.t SET b = '{NEEDLE} again' WHERE a <= 900")]);
    let (before, more) = (case.sum(), case.scratch.path("more"));
    let mut increment = case.program();
    increment
        .args(["backup", &address, "--only-sluice", "--to"])
        .arg(&more)
        .arg("--since")
        .arg(&to);
    assert!(run(&mut increment).ok().contains("; verified"));
    let holds = |bytes: &[u8]| bytes.windows(NEEDLE.len()).any(|part| part == NEEDLE.as_bytes());
    let bare = files(&more.join("data/sluice")).into_iter().find(|(_, bytes)| holds(bytes));
    assert_eq!(bare.map(|(path, _)| path), None, "a file of the increment shows the needle");
    case.d.stop();
    let inspect = |options: &[&str]| {
        run(case.program().arg("inspect").arg(case.d.data("sluice")).args(options))
    };
    inspect(&["verify"]).refuses("the files are encrypted with key 1 version 1");
    inspect(&["verify", &keys]).ok();
    let mut site = Site::new(&case.scratch, "restored", "Sluice", &SMALL);
    let data = site.data("");
    fs::remove_dir_all(&data).expect("an installation that nobody needs");
    let restore = |options: &[&str]| {
        let mut command = case.program();
        command.args(["restore", "--from"]).arg(&to).arg("--with").arg(&more);
        run(command.arg("--to").arg(&data).args(options))
    };
    restore(&[]).refuses("the files are encrypted with key 1 version 1");
    restore(&[&keys]).ok();
    let [load, file] = case.with_keys();
    site.start(&[&load, &file, "--sluice-encrypt=ON"]);
    assert_eq!(sum(&site), before);
    site.stop();
}

const OPEN_NEEDLE: &str = "for everybody to read";
const SUMS: &str =
    "SELECT CONCAT_WS(' ', (SELECT SUM(LENGTH(b)) FROM w.t), (SELECT SUM(LENGTH(b)) FROM w.o), \
                    (SELECT SUM(LENGTH(b)) FROM w.p))";

impl Case {
    /// A table that must be encrypted, one with partitions, and one that need not be.
    fn write_tables(&self) {
        self.write_with("ENCRYPTED=YES");
        self.d.run(&[
            "CREATE TABLE w.p (a INT PRIMARY KEY, b VARCHAR(200), KEY (b)) ENCRYPTED=YES \
             PARTITION BY HASH (a) PARTITIONS 3",
            &format!("INSERT INTO w.p SELECT seq, CONCAT('{NEEDLE} ', seq) FROM w.seq_1_to_2000"),
            "CREATE TABLE w.o (a INT PRIMARY KEY, b VARCHAR(200), KEY (b))",
            &format!(
                "INSERT INTO w.o SELECT seq, CONCAT('{OPEN_NEEDLE} ', seq) FROM w.seq_1_to_2000"
            ),
        ]);
    }

    fn sums(&self) -> String {
        self.d.value(SUMS)
    }

    fn with_needle(&self, dir: &Path, needle: &str) -> Vec<String> {
        let has = |bytes: &[u8]| bytes.windows(needle.len()).any(|part| part == needle.as_bytes());
        let found = files(dir).into_iter().filter(|(_, bytes)| has(bytes));
        found.map(|(path, _)| path.display().to_string()).collect()
    }

    fn copy(&self, name: &str) -> PathBuf {
        let address = format!("mysql://root@localhost/?socket={}", self.d.socket().display());
        let to = self.scratch.path(name);
        let mut command = self.program();
        command.args(["backup", &address, "--only-sluice", "--to"]).arg(&to);
        run(command.arg(format!("--key-file={}", self.keys.display()))).ok();
        to
    }
}

/// debug_key_management: a key is its version in four bytes, and zeros.
const DEBUG_KEYS: &str =
    "1;3;00000003000000000000000000000000\n1;7;00000007000000000000000000000000\n";

/// Keys of a plugin that has versions: the file has one with each key.
#[test]
fn a_backup_under_versions_of_a_key_is_restored() {
    let mut case = Case::new("backup_of_versions");
    let load = "--plugin-load-add=debug_key_management";
    let encrypt = "--sluice-encrypt=ON";
    // Nothing is written anew, so both versions are in use.
    let stay = "--sluice-encryption-rotate-key-age=0";
    let start = [load, "--debug-key-management-version=3", encrypt, stay];
    case.d.start(&start);
    case.write();
    case.d.run(&["SET GLOBAL debug_key_management_version = 7"]);
    let until = Instant::now() + KEYS_WAIT_MAX;
    while case.status("key_version") != "7" {
        assert!(Instant::now() < until, "the new version is not seen");
        sleep(Duration::from_millis(50));
    }
    case.d.run(&["UPDATE w.t SET b = 'newer' WHERE a BETWEEN 2000 AND 2900"]);
    let before = case.sum();
    let address = format!("mysql://root@localhost/?socket={}", case.d.socket().display());
    let to = case.scratch.path("copy");
    let backup = |options: &[&str]| {
        let mut command = case.program();
        run(command.args(["backup", &address, "--only-sluice", "--to"]).arg(&to).args(options))
    };
    let unverified = backup(&["--no-verify"]);
    says("--key-file must have a line 1;7;KEY", &unverified.err);
    unverified.ok();
    fs::remove_dir_all(&to).expect("a backup");

    fs::write(&case.keys, DEBUG_KEYS).expect("a file of keys");
    let keys = format!("--key-file={}", case.keys.display());
    let verified = backup(&[&keys]);
    is_silent_about("warning", &verified.err);
    says("; verified", &verified.ok());
    let mut site = Site::new(&case.scratch, "r", "Sluice", &SMALL);
    fs::remove_dir_all(site.data("")).expect("an installation that nobody needs");
    let restore = |options: &[&str]| {
        let mut command = case.program();
        command.args(["restore", "--from"]).arg(&to).arg("--to").arg(site.data(""));
        run(command.args(options))
    };
    fs::write(&case.keys, DEBUG_KEYS.split_once('\n').expect("two lines").1).expect("keys");
    restore(&[&keys]).refuses("key 1 version 3");
    fs::write(&case.keys, DEBUG_KEYS).expect("a file of keys");
    restore(&[&keys]).ok();
    site.start(&[load, "--debug-key-management-version=7", encrypt]);
    assert_eq!(sum(&site), before);
    assert_eq!(case.with_needle(&site.data("sluice"), NEEDLE), Vec::<String>::new());
    site.stop();
}

/// Writes beside the backup use the new version. Pages are written anew after it.
#[test]
fn a_backup_during_a_rotation_is_restored() {
    let mut case = Case::new("backup_in_rotation");
    fs::write(&case.keys, DEBUG_KEYS).expect("a file of keys");
    let (load, encrypt) = ("--plugin-load-add=debug_key_management", "--sluice-encrypt=ON");
    let plain = ["--sluice-compression=none", "--sluice-log-compression=none"];
    case.d.start(&[load, "--debug-key-management-version=3", encrypt, plain[0], plain[1]]);
    case.write();
    case.roll_back_prepared();
    let to = case.scratch.path("copy");
    let address = format!("mysql://root@localhost/?socket={}", case.d.socket().display());
    let keys = format!("--key-file={}", case.keys.display());
    let mut command = case.program();
    command
        .args(["backup", &address, "--only-sluice", "--rate-mib=2", "--no-verify", "--to"])
        .arg(&to);
    let mut backup = spawn(&mut command);
    wait_until("a backup under way", || case.d.status("Sluice_backup_state") == 1);
    case.d.run(&["SET GLOBAL debug_key_management_version = 7", "FLUSH ENGINE LOGS"]);
    wait_until("the new version", || case.status("key_version") == "7");
    case.d.run(&["UPDATE w.t SET b = 'newer' WHERE a BETWEEN 2000 AND 2900"]);
    assert_eq!(case.status("rewritten_pages"), "0");
    assert_eq!(case.d.status("Sluice_backup_state"), 1, "the copy ended before the rotation");
    let before = case.sum();
    assert!(backup.try_wait().expect("a child").is_none());
    wait(backup).ok();
    let mut site = Site::new(&case.scratch, "r", "Sluice", &SMALL);
    fs::remove_dir_all(site.data("")).expect("an installation that nobody needs");
    let mut restore = case.program();
    restore.args(["restore", "--from"]).arg(&to).arg("--to").arg(site.data(""));
    run(restore.arg(&keys)).ok();
    site.start(&[load, "--debug-key-management-version=7", encrypt]);
    assert_eq!(sum(&site), before);
    assert_eq!(site.rows("CHECK TABLE w.t EXTENDED")[0][3], "OK");
    assert_eq!(case.with_needle(&site.data("sluice"), NEEDLE), Vec::<String>::new());
    site.stop();
    case.d.stop();
}

#[test]
fn single_tables_are_encrypted_and_others_are_not() {
    let mut case = Case::new("tables");
    let tables =
        ["--sluice-encrypt=TABLES", "--sluice-compression=none", "--sluice-log-compression=none"];
    case.start(&tables);
    case.write_tables();
    let before = (case.sum(), case.sums());
    case.d.wait_until_log_is_durable();
    case.d.kill();
    assert_eq!(case.bare(), Vec::<String>::new());
    let keys = case.with_keys();
    let why = "tables were made with ENCRYPTED=YES, and encryption is off";
    case.refuses(why, &[&keys[0], &keys[1]]);
    case.start(&tables);
    assert_eq!((case.sum(), case.sums()), before);
    case.roll_back_prepared();
    case.wait_for_keys();
    case.d.stop();
    assert_eq!(case.bare(), Vec::<String>::new());
    let pages = case.d.data("sluice/pages").display().to_string();
    assert_eq!(case.with_needle(&case.d.data("sluice"), OPEN_NEEDLE), [pages]);

    // All, and back again.
    case.start(&["--sluice-encrypt=ON"]);
    case.wait_for_keys();
    assert_ne!(case.status("rewritten_pages"), "0");
    case.d.stop();
    case.start(&tables);
    case.wait_for_keys();
    assert_eq!(case.sums(), before.1);
    assert_eq!(case.d.rows("CHECK TABLE w.t, w.o, w.p EXTENDED").len(), 3);

    // What was plain is encrypted by ALTER; its old places keep their bytes.
    case.d.run(&[
        "UPDATE w.o SET b = CONCAT(b, '!')",
        "UPDATE w.o SET b = TRIM(TRAILING '!' FROM b)",
    ]);
    case.d.run(&["ALTER TABLE w.o ENCRYPTED=YES"]);
    let made: String = case.d.rows("SHOW CREATE TABLE w.o")[0][1].clone();
    assert!(made.contains("`ENCRYPTED`=YES"), "{made}");
    assert_eq!(case.sums(), before.1);
    let copy = case.copy("altered");
    assert_eq!(case.with_needle(&copy, NEEDLE), Vec::<String>::new());
    // A dump of the schema has it.
    let socket = format!("--socket={}", case.d.socket().display());
    let dump = ["-uroot", &socket, "--no-data", "--skip-comments", "w"];
    let schema = case.d.program("mariadb-dump", &dump).ok();
    case.d.run(&["CREATE DATABASE x"]);
    case.d.program("mariadb", &["-uroot", &socket, "x", "-e", &schema]).ok();
    let options = "SELECT COUNT(*) FROM information_schema.TABLES \
                   WHERE CREATE_OPTIONS LIKE '%ENCRYPTED`=YES%'";
    assert_eq!(case.d.value(options), "6");

    // Without such a table a start without encryption is fine.
    case.d.run(&["DROP DATABASE x"]);
    for name in ["t", "o", "p"] {
        case.d.run(&[&format!("ALTER TABLE w.{name} ENCRYPTED=NO")]);
    }
    case.d.stop();
    case.start(&[]);
    case.d.does_not_say("[ERROR] Sluice");
    assert_eq!(case.sums(), before.1);
    case.wait_for_keys();
    case.d.stop();
}

/// The first table that must be encrypted is there when its CREATE has returned, and so is the promise.
#[test]
fn a_kill_after_create_leaves_a_promise() {
    let mut case = Case::new("promise");
    case.start(&["--sluice-encrypt=TABLES"]);
    case.d.run(&["CREATE DATABASE w", "CREATE TABLE w.t (a INT PRIMARY KEY) ENCRYPTED=YES"]);
    case.d.kill();
    let keys = case.with_keys();
    case.refuses("tables were made with ENCRYPTED=YES", &[&keys[0], &keys[1]]);
    case.start(&["--sluice-encrypt=ON"]);
    case.d.run(&["INSERT INTO w.t VALUES (1)"]);
    case.d.stop();
    case.refuses("tables were made with ENCRYPTED=YES", &[&keys[0], &keys[1]]);
}

/// Numbers and words of older option files mean what they meant.
#[test]
fn the_switch_takes_its_old_values() {
    let mut case = Case::new("values");
    let values = [
        ("--sluice-encrypt=0", "OFF"),
        ("--sluice-encrypt=off", "OFF"),
        ("--skip-sluice-encrypt", "OFF"),
        ("--sluice-encrypt", "ON"),
        ("--sluice-encrypt=1", "ON"),
        ("--sluice-encrypt=2", "TABLES"),
    ];
    for (option, value) in values {
        case.start(&[option]);
        assert_eq!(case.d.value("SELECT @@sluice_encrypt"), value, "{option}");
        case.d.stop();
    }
}

/// Restored, such a directory needs encryption as before.
#[test]
fn a_backup_keeps_the_promise() {
    let mut case = Case::new("promised-copy");
    case.start(&["--sluice-encrypt=TABLES", "--sluice-compression=none"]);
    case.write_tables();
    case.roll_back_prepared();
    let before = (case.sum(), case.sums());
    let copy = case.copy("copy");
    assert_eq!(case.with_needle(&copy, NEEDLE), Vec::<String>::new());
    case.d.stop();
    let mut site = Site::new(&case.scratch, "restored", "Sluice", &SMALL);
    let data = site.data("");
    fs::remove_dir_all(&data).expect("an installation that nobody needs");
    let restore = |options: &[&str]| {
        let mut command = case.program();
        run(command.args(["restore", "--from"]).arg(&copy).arg("--to").arg(&data).args(options))
    };
    restore(&[]).refuses("the files are encrypted with key 1 version 1");
    restore(&[&format!("--key-file={}", case.keys.display())]).ok();
    let [load, file] = case.with_keys();
    site.refuses("tables were made with ENCRYPTED=YES", &[&load, &file]);
    site.start(&[&load, &file, "--sluice-encrypt=TABLES"]);
    assert_eq!((sum(&site), site.value(SUMS)), before);
    site.stop();
    assert_eq!(case.with_needle(&site.data("sluice"), NEEDLE), Vec::<String>::new());
}
