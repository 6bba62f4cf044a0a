//! Snapshots that a file system makes while the server runs and sessions write: each is a crash of the server at
//! that moment.

use crate::{data_dir, taken_away, World};
use sluice_rig::server::copy_tree;
use sluice_rig::tool::run;
use sluice_server_tests::backup::{transaction, Case, TABLES, WRITERS};
use sluice_server_tests::mounted::FileSystem;
use sluice_server_tests::site::Site;
use sluice_server_tests::writer::{Writers, KEYS_EACH};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

const SNAPSHOTS: usize = 6;
/// The file system has a GiB for all snapshots.
const SMALL: &str = "--innodb-log-file-size=8M";

fn btrfs(verb: &str, paths: &[&Path]) {
    run(Command::new("btrfs").args(["subvolume", verb]).args(paths)).ok();
}

fn log_dir(volume: &Path) -> String {
    format!("--sluice-log-dir={}", volume.join("log").display())
}

/// The data directory of a server is on this volume.
fn put_on(site: &Site, volume: &Path) {
    symlink(volume.join("data"), data_dir(site)).expect("a new name");
}

/// A volume with the data, the binary log and Sluice's log of the server.
fn volume_of(case: &Case, at: &Path) -> PathBuf {
    let volume = at.join("live");
    btrfs("create", &[&volume]);
    copy_tree(&taken_away(&case.d), &volume.join("data")).expect("an installation");
    fs::create_dir(volume.join("log")).expect("a directory");
    put_on(&case.d, &volume);
    volume
}

/// Of the writer `n` its first transactions are there, at least those that were acknowledged before the snapshot
/// and at most those after it and the one under way: each whole, in all of its tables. How many there are.
#[track_caller]
fn transactions(site: &Site, n: usize, least: usize, most: usize) -> usize {
    let (from, to) = (n as i64 * KEYS_EACH + 1, (n as i64 + 1) * KEYS_EACH);
    let keys = format!("a BETWEEN {from} AND {to}");
    let one = |sql: &str| -> usize { site.value(sql).parse().expect("a number") };
    let found = one(&format!("SELECT COUNT(*) FROM w.s WHERE {keys}"));
    assert!((least..=most + 1).contains(&found), "writer {n}: {found} of {least} to {most}");
    let newest =
        one(&format!("SELECT COALESCE(MAX(a), {from} - 1) - {from} + 1 FROM w.s WHERE {keys}"));
    assert_eq!(newest, found, "writer {n}: one is missing before its last one");
    let right = "b = CONCAT(a, REPEAT('x', IF(a % 50 = 0, 20000, 100)))";
    assert_eq!(one(&format!("SELECT COUNT(*) FROM w.s WHERE {keys} AND {right}")), found, "w.s");
    assert_eq!(one(&format!("SELECT COUNT(*) FROM w.p WHERE {keys} AND b = a % 50")), found, "w.p");
    assert_eq!(one(&format!("SELECT n FROM w.n WHERE a = {n}")), found, "w.n");
    found
}

fn sum(counts: &[usize]) -> usize {
    counts.iter().sum()
}

fn last_number(site: &Site) -> usize {
    let gtid = site.value("SELECT @@gtid_binlog_pos");
    gtid.rsplit('-').next().and_then(|n| n.parse().ok()).expect("a GTID")
}

pub fn a_snapshot_of_a_running_server_is_a_crash(w: &mut World) {
    let on = FileSystem::btrfs(&w.tool, "btrfs");
    on.mount("rw").ok();
    let mut case = Case::new("a_snapshot_of_a_running_server");
    let live = volume_of(&case, &on.at);
    case.d.start(&[SMALL, &log_dir(&live)]);
    case.d.run(&TABLES);
    case.fill();
    let before = last_number(&case.d);
    let writers = Writers::start(&case.d, WRITERS, 1, transaction);
    for number in 0..SNAPSHOTS {
        writers.wait_for(250);
        let volume = on.at.join(format!("snapshot{number}"));
        let least = writers.counts();
        btrfs("snapshot", &[&live, &volume]);
        let most = writers.counts();
        let mut verification = case.verification(&volume.join("data"));
        run(verification.arg("--log-dir").arg(volume.join("log"))).ok();
        let mut site = case.site(&format!("r{number}"));
        put_on(&site, &volume);
        site.start(&["--server-id=1", SMALL, &log_dir(&volume)]);
        let bounds = least.iter().zip(&most).enumerate();
        let found: Vec<_> = bounds.map(|(n, (a, b))| transactions(&site, n, *a, *b)).collect();
        print!("{} rows, {} acknowledged before, {} after; ", sum(&found), sum(&least), sum(&most));
        // The binary log has the same ones.
        assert_eq!(last_number(&site), before + sum(&found), "GTIDs");
        site.run(&["INSERT INTO w.s VALUES (-1, 'more')"]);
        let checked = site.rows("CHECK TABLE w.s, w.n, w.p, w.big EXTENDED");
        assert!(checked.len() == 4 && checked.iter().all(|row| row[3] == "OK"), "{checked:?}");
        site.stop();
    }
    writers.end();
    case.d.stop();
    drop(case);
    on.unmount().ok();
}
