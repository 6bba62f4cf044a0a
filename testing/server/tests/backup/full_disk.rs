//! File systems that get full under a backup and under a restore: each failure names the place and the
//! reason, leaves nothing, and harms no server. They are mounted here; without the right to mount the tests say
//! so and end.

use crate::case::{is_empty, state, Case};
use crate::stream::stream_to;
use sluice_rig::tool::{run, says, Ended};
use sluice_server_tests::small_disk::SmallDisk;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

const FULL: &str = "No space left on device";
const LARGE_BYTES: u64 = 1 << 30;
/// Of the room that all of it takes. The last ones are full at the end, where small files are written.
const PERCENTS: [u64; 7] = [0, 1, 20, 50, 80, 95, 99];
/// Up to here it is an error. After that a copy may be a bit smaller than the one before.
const SURELY_FULL_PERCENT: u64 = 95;

fn mounted(dir: PathBuf) -> Option<SmallDisk> {
    let disk = SmallDisk::mount(dir, LARGE_BYTES);
    if disk.is_none() {
        // Not by a macro: the harness would keep that line of a test that passes to itself.
        let line = b"skipped, not tested: no right to mount a file system\n";
        std::io::stderr().write_all(line).expect("a standard error");
    }
    disk
}

/// Room for a part of `whole_bytes`; for a few directories at least.
fn resize(disk: &SmallDisk, whole_bytes: u64, percent: u64) {
    disk.resize((whole_bytes * percent / 100).max(16 << 10));
}

/// It has failed for want of room below `dir`.
#[track_caller]
fn has_no_room(ended: &Ended, dir: &Path) {
    ended.refuses(FULL);
    says(&dir.display().to_string(), &ended.err);
}

/// The server reads and writes.
fn serves(case: &Case) {
    case.nothing_is_kept();
    let rows = || case.d.value("SELECT COUNT(*) FROM w.s").parse::<u64>().expect("a number");
    let before = rows();
    case.d.run(&["INSERT INTO w.s SELECT COUNT(*) + 1, 'one more' FROM w.s"]);
    assert_eq!(rows(), before + 1);
}

#[test]
fn a_backup_onto_a_full_disk_leaves_nothing() {
    let case = Case::with_tables("a_backup_onto_a_full_disk");
    case.fill();
    let Some(disk) = mounted(case.to("small")) else { return };
    let to = case.to("small/b");
    run(&mut case.backup("small/b", &["--no-verify"])).ok();
    let whole = disk.used_bytes();
    fs::remove_dir_all(&to).expect("a backup");
    for percent in PERCENTS {
        resize(&disk, whole, percent);
        let ended = run(&mut case.backup("small/b", &["--no-verify"]));
        if percent > SURELY_FULL_PERCENT && ended.code == Some(0) {
            fs::remove_dir_all(&to).expect("a backup");
            continue;
        }
        has_no_room(&ended, &to);
        assert!(is_empty(&to), "{percent} %: something is left of a backup");
        run(&mut case.restore("small/b", &case.to("none"))).refuses("not finished");
        serves(&case);
    }
    run(&mut case.backup("elsewhere", &[])).ok();
    disk.resize(LARGE_BYTES);
    run(&mut case.backup("small/b", &[])).ok();
    let mut site = case.restored("small/b", "r");
    site.start(&[]);
    assert_eq!(state(&site), state(&case.d));
    site.stop();
}

#[test]
fn a_stream_onto_a_full_disk_is_an_error() {
    let case = Case::with_tables("a_stream_onto_a_full_disk");
    for options in [&[][..], &["--compress"]] {
        let full = fs::File::options().write(true).open("/dev/full").expect("a full device");
        let ended = stream_to(&case, full, options);
        ended.refuses(FULL);
        says("cannot write the stream", &ended.err);
        serves(&case);
    }
}

#[test]
fn a_restore_onto_a_full_disk_leaves_nothing() {
    let case = Case::with_tables("a_restore_onto_a_full_disk");
    case.fill();
    run(&mut case.backup("b", &[])).ok();
    stream_to(&case, fs::File::create(case.to("stream")).expect("a file"), &[]).ok();
    for from in ["b", "stream"] {
        restores_when_there_is_room(&case, from);
    }
}

fn restores_when_there_is_room(case: &Case, from: &str) {
    let mut site = case.site(&format!("r{from}"));
    let to = site.data("");
    let Some(disk) = mounted(to.clone()) else { return };
    run(&mut case.restore(from, &to)).ok();
    let whole = disk.used_bytes();
    let clear = || {
        for entry in fs::read_dir(&to).expect("a directory").flatten() {
            let removed = match entry.path() {
                path if path.is_dir() => fs::remove_dir_all(path),
                path => fs::remove_file(path),
            };
            removed.expect("a file that is removed");
        }
    };
    clear();
    for percent in PERCENTS {
        resize(&disk, whole, percent);
        let ended = run(&mut case.restore(from, &to));
        if percent > SURELY_FULL_PERCENT && ended.code == Some(0) {
            clear();
            continue;
        }
        has_no_room(&ended, &to);
        assert!(is_empty(&to), "{percent} %: something is left of a restore");
    }
    // No server starts on it. The files that the start has made are in the way of a second restore.
    disk.resize(LARGE_BYTES);
    site.refuses("mysql.", &[]);
    run(&mut case.restore(from, &to)).refuses("is not empty");
    clear();
    run(&mut case.restore(from, &to)).ok();
    site.start(&[]);
    assert_eq!(state(&site), state(&case.d));
    site.stop();
}
