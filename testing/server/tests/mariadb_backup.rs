//! mariadb-backup, the program, on servers that have the engine: with Sluice tables it fails with the engine's
//! error, without them it works, and what docs/backup.md says of its option `--no-lock` is so.
//!
//! `cargo test --release --workspace --test mariadb_backup [NAME]`, after `make build`. It fetches the program for
//! the server's release; where that cannot be had the tests are skipped.

use sluice_rig::client::Fault;
use sluice_rig::server::Prefix;
use sluice_rig::suite::{self, skip};
use sluice_rig::tests;
use sluice_rig::tool::{checkout, is_silent_about, run, says, Ended};
use sluice_server_tests::scratch::{prefix, Scratch};
use sluice_server_tests::site::Site;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

struct World {
    scratch: Scratch,
    prefix: Prefix,
    /// Why there is no program.
    missing: Option<String>,
}

fn main() -> ExitCode {
    let tests = tests![
        a_server_with_sluice_tables_is_refused,
        a_server_with_tables_of_innodb_alone_is_copied,
        without_a_lock_it_copies_no_rows_of_sluice,
        a_server_that_allows_the_stages_gives_no_rows_of_sluice,
    ];
    suite::run(&tests, || {
        let prefix = prefix();
        let mut fetch = Command::new(checkout().join("scripts/fetch-mariadb-backup"));
        let fetched = run(fetch.env("SLUICE_PREFIX", &prefix.root));
        let why = fetched.err.lines().last().unwrap_or_default();
        let missing = (fetched.code != Some(0)).then(|| why.to_owned());
        Ok(World { scratch: Scratch::new("mariadb_backup", "mariadb_backup"), prefix, missing })
    })
}

/// So that it copies little.
const SMALL: [&str; 2] = ["--innodb-log-file-size=8M", "--loose-sluice-log-capacity=16M"];
const INNODB: [&str; 4] = [
    "CREATE DATABASE w",
    "CREATE DATABASE only_innodb",
    "CREATE TABLE w.i (a INT PRIMARY KEY, b VARCHAR(200), KEY (b)) ENGINE=InnoDB",
    "INSERT INTO w.i SELECT seq, CONCAT('i', seq) FROM w.seq_1_to_2000",
];
const SLUICE: [&str; 2] = [
    "CREATE TABLE w.s (a INT PRIMARY KEY, b VARCHAR(200), KEY (b)) ENGINE=Sluice",
    "INSERT INTO w.s SELECT seq, CONCAT('s', seq) FROM w.seq_1_to_2000",
];
const REFUSAL: &str = "Sluice does not support backups with BACKUP STAGE";
const NO_SUCH_TABLE_IN_ENGINE: u16 = 1932;

impl World {
    /// A server that has the engine, and tables of InnoDB.
    fn server(&self, name: &str) -> Site {
        if let Some(why) = &self.missing {
            skip(format!("mariadb-backup cannot be fetched: {why}"));
        }
        let mut site = Site::new(&self.scratch, name, "Sluice", &SMALL);
        site.start(&[]);
        site.run(&INNODB);
        site
    }

    fn to(&self, name: &str) -> PathBuf {
        self.scratch.path(name)
    }

    fn program(&self, verb: &str, dir: &Path) -> Command {
        let mut command = Command::new(self.prefix.program("mariadb-backup"));
        command.args(["--no-defaults", verb]).arg(format!("--target-dir={}", dir.display()));
        command
    }

    fn backup(&self, site: &Site, name: &str, options: &[&str]) -> Ended {
        let mut command = self.program("--backup", &self.to(name));
        command.arg(format!("--socket={}", site.socket().display())).arg("--user=root");
        run(command.args(options))
    }

    /// A server on a backup that was made ready.
    fn on_copy(&self, name: &str) -> Site {
        let copy = self.to(name);
        run(&mut self.program("--prepare", &copy)).ok();
        let mut site = Site::new(&self.scratch, &format!("{name}-server"), "Sluice", &SMALL);
        fs::remove_dir_all(site.data("")).expect("an installation that nobody needs");
        fs::rename(&copy, site.data("")).expect("a data directory");
        site.start(&[]);
        site
    }
}

fn a_server_with_sluice_tables_is_refused(w: &mut World) {
    let mut site = w.server("refused");
    site.run(&SLUICE);
    for (name, options) in [("all", &[][..]), ("one", &["--databases=only_innodb"])] {
        let ended = w.backup(&site, name, options);
        says(REFUSAL, &ended.text());
        says("Use sluice backup", &ended.text());
        is_silent_about("completed OK!", &ended.text());
        ended.with_code(1);
    }
    // It holds nothing: the server writes, and is backed up by another program.
    assert_eq!(site.status("Sluice_backup_state"), 0);
    site.run(&["INSERT INTO w.s VALUES (0, 'more')", "CREATE TABLE w.more (a INT PRIMARY KEY)"]);
    // Without the tables there is nothing that it would leave out.
    site.run(&["DROP TABLE w.s, w.more"]);
    says("completed OK!", &w.backup(&site, "after", &[]).text());
    site.stop();
}

fn a_server_with_tables_of_innodb_alone_is_copied(w: &mut World) {
    let mut site = w.server("innodb");
    let ended = w.backup(&site, "of-innodb", &[]);
    says("completed OK!", &ended.text());
    ended.ok();
    let mut copy = w.on_copy("of-innodb");
    let sum = "CHECKSUM TABLE w.i";
    assert_eq!(copy.rows(sum), site.rows(sum));
    // The engine begins anew there.
    copy.run(&SLUICE);
    assert_eq!(copy.value("SELECT COUNT(*) FROM w.s"), "2000");
    copy.stop();
    site.stop();
}

/// As docs/backup.md warns: the table is there, its rows are not, and each statement says so.
fn lacks_rows_of_sluice(w: &World, site: &Site, name: &str, ended: Ended) {
    says("completed OK!", &ended.text());
    says("Skipping db: ./sluice", &ended.text());
    is_silent_about(REFUSAL, &ended.text());
    ended.ok();
    let copy = w.to(name);
    assert!(copy.join("w/s.frm").exists(), "a definition");
    assert!(!copy.join("sluice").exists(), "files of the engine");
    let mut copy = w.on_copy(name);
    assert_eq!(copy.rows("SHOW TABLES FROM w LIKE 's'").len(), 1);
    for sql in ["SELECT * FROM w.s", "INSERT INTO w.s VALUES (1, 'a')"] {
        match copy.client().run(sql) {
            Err(Fault::Sql(NO_SUCH_TABLE_IN_ENGINE, text)) => {
                says("doesn't exist in engine", &text)
            }
            Err(fault) => panic!("{sql}: {fault}"),
            Ok(()) => panic!("{sql}: the copy has the table"),
        }
    }
    let sum = "CHECKSUM TABLE w.i";
    assert_eq!(copy.rows(sum), site.rows(sum));
    copy.stop();
}

fn without_a_lock_it_copies_no_rows_of_sluice(w: &mut World) {
    let mut site = w.server("no-lock");
    site.run(&SLUICE);
    // The only warning: at each start.
    site.stop();
    site.start(&[]);
    site.says("mariadb-backup does not copy the 1 Sluice tables");
    let ended = w.backup(&site, "unlocked", &["--no-lock"]);
    lacks_rows_of_sluice(w, &site, "unlocked", ended);
    site.stop();
}

fn a_server_that_allows_the_stages_gives_no_rows_of_sluice(w: &mut World) {
    let mut site = w.server("allowed");
    site.run(&SLUICE);
    site.run(&["SET GLOBAL sluice_allow_backup_stage = ON"]);
    let ended = w.backup(&site, "staged", &[]);
    lacks_rows_of_sluice(w, &site, "staged", ended);
    site.stop();
}
