//! One test: a server, its binlog files, and a crash that loses a part of them.

use crate::files;
use sluice_server_tests::scratch::Scratch;
use sluice_server_tests::site::Site;
use sluice_server_tests::writer::{insert, row_of_s};
use std::fs::{self, File};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Nothing but a rotation and this interval syncs the file.
pub const OPTIONS: [&str; 1] = ["--loose-sluice-sync-binlog-interval=10000"];
/// Of that interval, what a test may use.
const WINDOW: Duration = Duration::from_millis(9000);

pub struct Case {
    /// The server under test.
    pub d: Site,
    /// The index of its binlog.
    pub index: PathBuf,
    pub scratch: Scratch,
}

/// The file was synced in the middle of a test that loses bytes: bytes that are synced are not lost
/// in a crash, so the log may have let go of them. The test is made again.
#[derive(Debug)]
pub struct Synced;

const TRIES: u32 = 10;

/// Makes a test again until the file was not synced in the middle of it.
pub fn unsynced(name: &str, test: fn(&mut Case) -> Result<(), Synced>) {
    let is_done = (0..TRIES).any(|_| test(&mut Case::new(name)).is_ok());
    assert!(is_done, "the file was synced in each of {TRIES} tries: the device is too slow");
}

/// What a crash will lose: the binlog from `size` on.
pub struct Tail {
    pub size: u64,
    syncs: u64,
    begun: Instant,
}

#[derive(Clone, Copy)]
pub enum Loss {
    Cut,
    Zeros,
}

impl Case {
    pub fn new(name: &str) -> Case {
        let scratch = Scratch::new("binlog", name);
        let d = Site::new(&scratch, "d", "Sluice", &OPTIONS);
        Case { index: d.data("sluice-bin.index"), d, scratch }
    }

    pub fn make_tables(&self) {
        make_tables(&self.d);
    }

    pub fn binlogs(&self) -> Vec<PathBuf> {
        files::binlogs(&self.index, &self.d.data(""))
    }

    pub fn last_binlog(&self) -> PathBuf {
        self.binlogs().pop().expect("a binlog")
    }

    pub fn last_size(&self) -> u64 {
        files::size(&self.last_binlog())
    }

    /// Runs statements, then notes where the last binlog ends: what follows may be lost. Before
    /// that, the next sync of the file is put off for the whole interval.
    #[track_caller]
    pub fn tail_after(&self, statements: &[&str]) -> Tail {
        self.d.run(&["SET GLOBAL sluice_sync_binlog_interval = 1"]);
        // The thread that syncs looks ten times a second. If it did not look, the test is made
        // again at the worst.
        std::thread::sleep(Duration::from_millis(150));
        let begun = Instant::now();
        self.d.run(&["SET GLOBAL sluice_sync_binlog_interval = 10000"]);
        self.d.run(statements);
        Tail { size: self.last_size(), syncs: self.d.status("Sluice_binlog_file_syncs"), begun }
    }

    /// Kills the server, if the file was not synced since the tail began.
    #[track_caller]
    pub fn kill_unsynced(&mut self, tail: &Tail) -> Result<(), Synced> {
        let syncs = self.d.status("Sluice_binlog_file_syncs");
        self.d.kill();
        let is_synced = syncs != tail.syncs || tail.begun.elapsed() > WINDOW;
        if is_synced {
            Err(Synced)
        } else {
            Ok(())
        }
    }

    /// Cuts the last binlog back to `size` bytes, or overwrites it with zeros from there on.
    #[track_caller]
    pub fn lose_from(&self, size: u64, loss: Loss) {
        let file = File::options().write(true).open(self.last_binlog()).expect("the last binlog");
        let all = file.metadata().expect("its size").len();
        assert!(all > size, "the binlog has {all} bytes, not more than {size}");
        file.set_len(size).expect("a cut");
        if let Loss::Zeros = loss {
            file.set_len(all).expect("zeros");
        }
    }

    /// So many rows of this sum are in the table of Sluice, and the binlogs have as many.
    #[track_caller]
    pub fn same_rows(&self, count: i64, sum: i64) {
        assert_eq!(self.d.count_and_sum("s"), (count, sum), "rows of Sluice");
        let copies = self.scratch.path("copies");
        fs::create_dir(&copies).expect("a directory for copies");
        let copied: Vec<_> = self.binlogs().iter().map(|f| files::copy_into(f, &copies)).collect();
        assert_eq!(files::rows_of_s(&copied), count as usize, "rows in the binlog");
        fs::remove_dir_all(&copies).expect("the copies to be removed");
    }

    #[track_caller]
    pub fn gtid_position_is(&self, position: &str) {
        assert_eq!(self.d.value("SELECT @@gtid_binlog_pos"), position, "GTID position");
    }

    /// 50 rows are acknowledged, then a crash leaves nothing of them in the binlog file.
    #[track_caller]
    pub fn lose_fifty_rows(&mut self, options: &[&str]) -> Result<(), Synced> {
        self.d.start(options);
        self.make_tables();
        // The table z is a group before the tail that is lost.
        let z = "CREATE TABLE IF NOT EXISTS test.z (a INT) ENGINE=Sluice";
        let tail = self.tail_after(&["FLUSH LOGS", z]);
        insert(&self.d, 1..=50, row_of_s);
        self.kill_unsynced(&tail)?;
        self.lose_from(tail.size, Loss::Cut);
        Ok(())
    }
}

#[track_caller]
pub fn make_tables(site: &Site) {
    site.run(&[
        "CREATE DATABASE IF NOT EXISTS test",
        "CREATE TABLE test.s (a INT PRIMARY KEY, b LONGTEXT) ENGINE=Sluice",
        "CREATE TABLE test.i (a INT PRIMARY KEY, b LONGTEXT) ENGINE=InnoDB",
        "CREATE TABLE test.m (a INT PRIMARY KEY, b LONGTEXT) ENGINE=MyISAM",
    ]);
}

/// Every key that was acknowledged is in the table of Sluice.
#[track_caller]
pub fn none_is_missing(site: &Site, acknowledged: &[i64]) {
    let found: std::collections::BTreeSet<_> = site.keys("s").into_iter().collect();
    let missing: Vec<_> = acknowledged.iter().filter(|key| !found.contains(key)).collect();
    let (lost, all) = (missing.len(), acknowledged.len());
    let some = &missing[..lost.min(5)];
    assert!(missing.is_empty(), "{lost} of {all} acknowledged rows are missing, such as {some:?}");
}
