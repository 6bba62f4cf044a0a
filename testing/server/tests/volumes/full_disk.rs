//! The disk of the server gets full while a backup is under way: the server gives the backup up, the backup
//! fails and says why, statements get errors that say why, and when there is room all of them go on.

use crate::commits::{has, Commits, TABLES as RECORDED};
use crate::{data_dir, taken_away, World};
use sluice_rig::server::copy_tree;
use sluice_rig::suite::skip;
use sluice_rig::tool::{run, wait, Ended};
use sluice_server_tests::backup::{state, Case, TABLES};
use sluice_server_tests::small_disk::SmallDisk;
use std::collections::BTreeSet;
use std::fs;

const LARGE_BYTES: u64 = 1 << 30;
/// More than the reserve that the server keeps free.
const ROOM_BYTES: u64 = 64 << 20;
const GIVEN_UP: &str = "the server has given the backup up, because its disk is full";
const NOT_BEGUN: &str = "no backup is begun: the disk is full";
/// So that InnoDB's log does not take most of the disk.
const SMALL: &str = "--innodb-log-file-size=8M";

/// The data directory of the server is a file system of its own.
fn on_small_disk(case: &Case) -> SmallDisk {
    let installed = taken_away(&case.d);
    let Some(disk) = SmallDisk::mount(data_dir(&case.d), LARGE_BYTES) else {
        skip("no right to mount a file system");
    };
    copy_tree(&installed.join("."), &disk.0).expect("an installation");
    disk
}

fn make_tables(case: &Case) {
    case.d.run(&TABLES);
    case.d.run(&RECORDED);
    case.fill();
}

/// It has failed for want of room on the server's disk, and nothing of it is left.
#[track_caller]
fn was_given_up(case: &Case, name: &str, ended: &Ended) {
    ended.refuses(GIVEN_UP);
    case.d.says("the backup under way is given up: the disk is full");
    assert!(!case.to(name).join("data").exists(), "what is left of a backup");
    run(&mut case.restore(name, &case.to("none"))).refuses("not finished");
}

/// Commits go on without an error, beside a backup as well; they outlive a kill; and another backup restores to
/// what the server has.
fn goes_on(case: &mut Case, options: &[&str], acknowledged: &mut BTreeSet<i64>) {
    let commits = Commits::begin(&case.d, 1);
    commits.wait_for_commits(200);
    run(&mut case.backup("beside", &["--no-verify"])).ok();
    commits.wait_for_commits(50);
    let (more, reasons) = commits.end();
    assert!(reasons.is_empty(), "there is room: {reasons:?}");
    acknowledged.extend(more);
    has(&case.d, acknowledged);
    case.d.kill();
    case.d.start(options);
    has(&case.d, acknowledged);
    run(&mut case.backup("last", &[])).ok();
    case.nothing_is_kept();
    let mut restored = case.restored("last", "restored");
    restored.start(&[]);
    has(&restored, acknowledged);
    assert_eq!(state(&restored), state(&case.d));
    restored.stop();
    case.d.stop();
}

pub fn a_server_that_fills_its_disk_gives_the_backup_up(_: &mut World) {
    let mut case = Case::new("a_server_that_fills_its_disk");
    let disk = on_small_disk(&case);
    case.d.start(&[SMALL]);
    make_tables(&case);
    disk.resize(disk.used_bytes() + ROOM_BYTES);
    let backup = case.slow_backup("b");
    let commits = Commits::begin(&case.d, 0);
    commits.wait_for_refusals(20);
    was_given_up(&case, "b", &wait(backup));
    case.nothing_is_kept();
    // The disk is full still. A backup is not begun, or given up as well, or there is just enough room for it.
    commits.wait_for_refusals(20);
    let again = run(&mut case.backup("again", &["--no-verify"]));
    match again.text().contains(NOT_BEGUN) {
        true => again.refuses(NOT_BEGUN),
        false if again.code == Some(0) => {}
        false => was_given_up(&case, "again", &again),
    }
    commits.wait_for_refusals(20);
    let (mut acknowledged, reasons) = commits.end();
    print!("{} commits, then {reasons:?} ... ", acknowledged.len());
    has(&case.d, &acknowledged);
    disk.resize(LARGE_BYTES);
    goes_on(&mut case, &[SMALL], &mut acknowledged);
}

/// Nothing is left of the reserve, either. The binary log has room: otherwise the server itself would wait for it.
pub fn a_disk_that_others_fill_ends_the_backup(_: &mut World) {
    let mut case = Case::new("a_disk_that_others_fill");
    let disk = on_small_disk(&case);
    fs::create_dir(case.to("binlog")).expect("a directory");
    let binlog = format!("--log-bin={}", case.to("binlog/x").display());
    let options = [SMALL, &binlog];
    case.d.start(&options);
    make_tables(&case);
    disk.resize(disk.used_bytes() + 2 * ROOM_BYTES);
    let backup = case.slow_backup("b");
    let commits = Commits::begin(&case.d, 0);
    commits.wait_for_commits(50);
    disk.fill(usize::MAX);
    commits.wait_for_refusals(20);
    was_given_up(&case, "b", &wait(backup));
    case.nothing_is_kept();
    disk.make_room();
    commits.wait_for_commits(200);
    let (mut acknowledged, reasons) = commits.end();
    print!("{} commits, in between {reasons:?} ... ", acknowledged.len());
    goes_on(&mut case, &options, &mut acknowledged);
}
