//! Snapshots of file systems: copies of the files of a server at one moment. Here the server is stopped by
//! a signal while they are copied, so no call of it comes between two files.

use crate::case::{transaction, Case, TABLES, WRITERS};
use sluice_rig::tool::run;
use sluice_server_tests::site::Site;
use sluice_server_tests::writer::Writers;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Answers that were on their way when the server was stopped arrive meanwhile.
const ON_THEIR_WAY: Duration = Duration::from_millis(300);

/// Copies while nothing of the server runs.
fn frozen<T>(site: &Site, copy: impl FnOnce() -> T) -> T {
    site.frozen(|| {
        std::thread::sleep(ON_THEIR_WAY);
        copy()
    })
}

fn copy(from: &Path, to: &Path) {
    run(Command::new("cp").arg("-a").arg(from).arg(to)).ok();
}

/// The number of rows that writers have committed, if these are whole transactions.
fn rows(site: &Site) -> usize {
    let whole = "SELECT (SELECT COUNT(*) FROM w.s) = (SELECT SUM(n) FROM w.n) AND \
                 (SELECT COUNT(*) FROM w.s) = (SELECT COUNT(*) FROM w.p)";
    assert_eq!(site.value(whole), "1", "parts of transactions");
    site.value("SELECT COUNT(*) FROM w.s").parse().expect("a number")
}

#[test]
fn a_snapshot_of_all_files_is_a_crash() {
    let case = Case::with_tables("a_snapshot_of_all_files");
    case.fill();
    let before: u64 = case
        .d
        .value("SELECT @@gtid_binlog_pos")
        .rsplit('-')
        .next()
        .and_then(|n| n.parse().ok())
        .expect("a GTID");
    let writers = Writers::start(&case.d, WRITERS, 1, transaction);
    for n in 0..3 {
        writers.wait_for(200);
        let mut site = case.site(&format!("r{n}"));
        let acknowledged = frozen(&case.d, || {
            copy(&case.d.data(""), &site.data(""));
            writers.count()
        });
        site.start(&["--server-id=1"]);
        let found = rows(&site);
        let most = acknowledged + WRITERS as usize;
        assert!(
            (acknowledged..=most).contains(&found),
            "{found} rows, {acknowledged} acknowledged"
        );
        // The binary log has the same transactions.
        let gtid = format!("0-1-{}", before + found as u64);
        assert_eq!(site.value("SELECT @@gtid_binlog_pos"), gtid);
        site.run(&["INSERT INTO w.s VALUES (-1, 'more')"]);
        assert_eq!(site.rows("CHECK TABLE w.s, w.n, w.p, w.big").len(), 4);
        site.stop();
    }
    writers.end();
}

/// A server with its binary log on a volume of its own, and copies of both.
struct Volumes {
    case: Case,
    binlog: PathBuf,
    option: String,
}

impl Volumes {
    fn new(name: &str) -> Volumes {
        let mut case = Case::new(name);
        let binlog = case.to("binlog");
        fs::create_dir(&binlog).expect("a directory");
        let option = format!("--log-bin={}", binlog.join("x").display());
        case.d.start(&[&option]);
        case.d.run(&TABLES);
        Volumes { case, binlog, option }
    }

    fn data(&self) -> PathBuf {
        self.case.d.data("")
    }

    fn commit(&self, count: i64) {
        let mut writer = self.case.d.client();
        let begun: i64 =
            self.case.d.value("SELECT COALESCE(MAX(a), 0) FROM w.s").parse().expect("a number");
        for key in begun + 1..=begun + count {
            transaction(key)
                .iter()
                .for_each(|sql| writer.run(sql).unwrap_or_else(|fault| panic!("{sql}: {fault}")));
        }
    }

    /// The volumes as they were in these copies.
    fn back(&mut self, data: &str, binlog: &str) {
        for (copied, place) in [(data, self.data()), (binlog, self.binlog.clone())] {
            let _ = fs::remove_dir_all(&place);
            copy(&self.case.to(copied), &place);
        }
    }
}

#[test]
fn snapshots_of_two_volumes_at_two_moments() {
    let mut volumes = Volumes::new("snapshots_of_two_volumes");
    volumes.commit(20);
    let (data, binlog) = (volumes.data(), volumes.binlog.clone());
    let take = |volumes: &Volumes, n: u32| {
        frozen(&volumes.case.d, || {
            copy(&data, &volumes.case.to(&format!("data{n}")));
            copy(&binlog, &volumes.case.to(&format!("binlog{n}")));
        });
    };
    take(&volumes, 1);
    volumes.commit(20);
    take(&volumes, 2);
    volumes.case.d.run(&["FLUSH BINARY LOGS"]);
    volumes.commit(20);
    take(&volumes, 3);
    volumes.case.d.kill();
    let option = volumes.option.clone();

    // Both of one moment.
    volumes.back("data1", "binlog1");
    volumes.case.d.start(&[&option]);
    assert_eq!(rows(&volumes.case.d), 20);
    volumes.case.d.kill();
    // The binary log is newer: transactions in it that the tables do not have. Nothing is changed.
    volumes.back("data1", "binlog2");
    volumes.case.d.refuses("older copy", &[&option]);
    volumes.back("data2", "binlog2");
    volumes.case.d.start(&[&option]);
    assert_eq!(rows(&volumes.case.d), 40);
    volumes.case.d.kill();
    // The binary log is older: the log of the engine completes it.
    volumes.back("data2", "binlog1");
    volumes.case.d.start(&[&option]);
    assert_eq!(rows(&volumes.case.d), 40);
    volumes.case.d.kill();
    // It is so much older that a file is not there.
    volumes.back("data3", "binlog2");
    volumes.case.d.refuses("which does not exist", &[&option]);
    volumes.back("data3", "binlog3");
    volumes.case.d.start(&[&option]);
    assert_eq!(rows(&volumes.case.d), 60);
    volumes.case.d.stop();
}
